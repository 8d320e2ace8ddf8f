// SPDX-License-Identifier: Apache-2.0

// The extensions commit (a Set that is taken back unless it is confirmed) and master_arbitration
// (the Sets of one client at a time).

package server

import (
	"context"
	"sync"
	"time"

	extpb "github.com/openconfig/gnmi/proto/gnmi_ext"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// rollbackTime is the time to confirm a commit if the client names none.
const rollbackTime = 10 * time.Minute

// maxRoles bounds the roles of arbitration that are remembered.
const maxRoles = 1000

// commits is the commit that waits for its confirmation, and the clients that won arbitration.
type commits struct {
	mu      sync.Mutex // held during a Set
	id      string     // id of the pending commit; "" for none
	timer   *time.Timer
	restore func() error
	highest map[string]*extpb.Uint128 // election id by role
}

// takeExtensions returns the commit of a Set, and the extensions that Set does not serve.
func (s *Server) takeExtensions(all []*extpb.Extension) (commit *extpb.Commit, others []*extpb.Extension) {
	for _, e := range all {
		switch {
		case s.opts.Checkpoint == nil:
			others = append(others, e)
		case e.GetCommit() != nil && commit == nil:
			commit = e.GetCommit()
		case e.GetMasterArbitration() != nil:
		default:
			others = append(others, e)
		}
	}
	return commit, others
}

// arbitrate refuses a Set of a client whose election id is below the highest of its role. A Set
// without the extension is accepted.
func (s *Server) arbitrate(all []*extpb.Extension) error {
	c := &s.commits
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range all {
		a := e.GetMasterArbitration()
		if a == nil {
			continue
		}
		role, id := a.GetRole().GetId(), a.GetElectionId()
		if id == nil {
			return invalid("extension master_arbitration: the election_id is missing")
		}
		was, known := c.highest[role]
		switch {
		case known && lower(id, was):
			return status.Errorf(codes.PermissionDenied, "extension master_arbitration: election id {%d, %d} is below "+
				"{%d, %d}, with which another client is the master of role %q", id.GetHigh(), id.GetLow(), was.GetHigh(),
				was.GetLow(), clip(role))
		case !known && len(c.highest) >= maxRoles:
			return status.Errorf(codes.ResourceExhausted, "extension master_arbitration: more than %d roles", maxRoles)
		case c.highest == nil:
			c.highest = map[string]*extpb.Uint128{}
		}
		c.highest[role] = id
	}
	return nil
}

func lower(a, b *extpb.Uint128) bool {
	return a.GetHigh() < b.GetHigh() || a.GetHigh() == b.GetHigh() && a.GetLow() < b.GetLow()
}

// transact carries out the steps of a Set, and the action of its commit extension.
func (s *Server) transact(ctx context.Context, edits []Edit, commit *extpb.Commit) error {
	c := &s.commits
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case commit == nil && c.id != "":
		return status.Errorf(codes.FailedPrecondition, "Set: commit %q is pending; confirm or cancel it first", c.id)
	case commit == nil:
		return s.opts.Apply(ctx, edits)
	case commit.GetId() == "":
		return invalid("extension commit: the id is missing")
	case commit.GetCommit() != nil:
		return s.begin(ctx, edits, commit)
	case len(edits) > 0:
		return invalid("extension commit: a Set that ends or prolongs a commit changes nothing else")
	case c.id == "":
		return status.Error(codes.FailedPrecondition, "extension commit: no commit is pending")
	case c.id != commit.GetId():
		return invalid("extension commit: %q is not the pending commit", clip(commit.GetId()))
	}
	switch x := commit.GetAction().(type) {
	case *extpb.Commit_Confirm:
		c.end()
		return nil
	case *extpb.Commit_Cancel:
		restore := c.restore
		c.end()
		return restore()
	case *extpb.Commit_SetRollbackDuration:
		d := x.SetRollbackDuration.GetRollbackDuration().AsDuration()
		if d <= 0 {
			return invalid("extension commit: rollback_duration %v; expected more than 0", d)
		}
		c.timer.Reset(d)
		return nil
	}
	return invalid("extension commit: the action is missing")
}

// begin carries out a Set that is taken back unless it is confirmed. The caller holds commits.mu.
func (s *Server) begin(ctx context.Context, edits []Edit, commit *extpb.Commit) error {
	c := &s.commits
	if c.id != "" {
		return status.Errorf(codes.FailedPrecondition, "extension commit: commit %q is pending already; confirm or cancel "+
			"it first", c.id)
	}
	limit := rollbackTime
	if d := commit.GetCommit().GetRollbackDuration(); d != nil {
		limit = d.AsDuration()
	}
	if limit <= 0 {
		return invalid("extension commit: rollback_duration %v; expected more than 0", limit)
	}
	restore := s.opts.Checkpoint()
	if err := s.opts.Apply(ctx, edits); err != nil {
		return err
	}
	id := commit.GetId()
	c.id, c.restore = id, restore
	var timer *time.Timer
	timer = time.AfterFunc(limit, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.timer != timer || c.id == "" {
			return // the commit has ended in the meantime
		}
		c.end()
		s.opts.Logger.Warn("gNMI: a commit was not confirmed, and is taken back", "commit", id)
		if err := restore(); err != nil {
			s.opts.Logger.Error("gNMI: the configuration before a commit cannot be restored", "commit", id, "error", err)
		}
	})
	c.timer = timer
	return nil
}

// end forgets the pending commit. The caller holds mu.
func (c *commits) end() {
	c.timer.Stop()
	c.id, c.restore = "", nil
}

// close keeps the server from taking a commit back after it was closed.
func (c *commits) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id != "" {
		c.end()
	}
}
