// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"errors"
	"fmt"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

const (
	scopeTableOnly   = p4configv1.ActionRef_TABLE_ONLY
	scopeDefaultOnly = p4configv1.ActionRef_DEFAULT_ONLY
)

// Insert makes an update that adds an entity.
func Insert(e *p4v1.Entity) *p4v1.Update { return &p4v1.Update{Type: p4v1.Update_INSERT, Entity: e} }

// Modify makes an update that replaces an entity as a whole.
func Modify(e *p4v1.Entity) *p4v1.Update { return &p4v1.Update{Type: p4v1.Update_MODIFY, Entity: e} }

// Delete makes an update that removes an entity.
func Delete(e *p4v1.Entity) *p4v1.Update { return &p4v1.Update{Type: p4v1.Update_DELETE, Entity: e} }

// Write applies updates. It sends them in requests of less than 4 MB; updates that depend on ones before them (a group on its
// members, a second update of the same entry) go in a later request, for a request has no order. All requests are sent even when
// updates in one are refused; the error is then a [*WriteError] that names them. An error that concerns all of a request ends the
// call: [ErrNotPrimary], [ErrSessionLost] or a deadline.
func (c *Client) Write(ctx context.Context, updates ...*p4v1.Update) error {
	s, err := c.use(Ready)
	if err != nil {
		return err
	}
	return s.write(ctx, updates)
}

// SetDefaultAction sets a table's default action: the bank flip is this. It is one small request and takes effect between two packets.
func (c *Client) SetDefaultAction(ctx context.Context, table, action string, params ...Param) error {
	s, err := c.use(Ready)
	if err != nil {
		return err
	}
	e, err := Entry{Table: table, Default: true, Action: action, Params: params}.Build(s.program().catalog)
	if err != nil {
		return fmt.Errorf("p4rt %s: default action: %w", c.cfg.Target, err)
	}
	return s.write(ctx, []*p4v1.Update{Modify(e)})
}

// write sends updates in as few requests as their dependence and the size limit allow.
func (s *session) write(ctx context.Context, updates []*p4v1.Update) error {
	cfg, cat := &s.c.cfg, s.program().catalog
	report := &WriteError{Target: cfg.Target, Total: len(updates)}
	sent := 0
	for _, b := range batches(cat, updates, cfg.MaxBatchBytes, maxBatchUpdates) {
		err := s.writeBatch(ctx, b.updates)
		if details := perUpdate(err, len(b.updates)); details != nil {
			report.Failed = append(report.Failed, updateErrors(cat, b.updates, b.index, details)...)
		} else if one := singleError(cat, b, err); one != nil {
			report.Failed = append(report.Failed, one)
		} else if err != nil {
			report.Cause, report.NotTried = err, len(updates)-sent
			return report
		}
		sent += len(b.updates)
	}
	if len(report.Failed) > 0 {
		return report
	}
	return nil
}

// singleError names the update of a request that had only one, where the switch refused it without details.
func singleError(cat *p4values.Catalog, b batch, err error) *UpdateError {
	if len(b.updates) != 1 {
		return nil
	}
	switch code := status.Code(err); code {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.ResourceExhausted, codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented:
		return &UpdateError{Index: b.index[0], Update: b.updates[0], Code: code, Message: status.Convert(err).Message(), words: DescribeUpdate(cat, b.updates[0])}
	}
	return nil
}

// writeBatch sends one request. It ends when the client is not the primary any more.
func (s *session) writeBatch(ctx context.Context, updates []*p4v1.Update) error {
	s.mu.Lock()
	primary := s.primary
	s.mu.Unlock()
	if primary == nil || primary.Err() != nil {
		return s.whyNotPrimary(ErrNotPrimary)
	}
	ctx, cancel := context.WithTimeout(ctx, s.c.cfg.CallTimeout)
	defer cancel()
	defer context.AfterFunc(primary, cancel)()
	_, err := s.rpc.Write(ctx, &p4v1.WriteRequest{
		DeviceId: s.c.cfg.DeviceID, Role: s.c.cfg.Role, ElectionId: s.bid.proto(), Updates: updates,
	})
	if status.Code(err) == codes.PermissionDenied {
		s.permissionDenied(err)
		return fmt.Errorf("%w: %w", ErrNotPrimary, err)
	}
	if err != nil && primary.Err() != nil {
		return s.whyNotPrimary(err)
	}
	return err
}

// whyNotPrimary tells the loss of the session from the loss of mastership.
func (s *session) whyNotPrimary(err error) error {
	if s.ctx.Err() != nil {
		return s.lost(err)
	}
	if errors.Is(err, ErrNotPrimary) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotPrimary, err)
}

// batch is the updates of one request, with their places in the caller's list.
type batch struct {
	updates []*p4v1.Update
	index   []int
}

// batches splits updates, keeping their order. A new batch begins where an update would make the request too large, and where it
// depends on one in the batch.
func batches(cat *p4values.Catalog, updates []*p4v1.Update, maxBytes, maxUpdates int) []batch {
	const overhead = 64 // device, role, election id
	var out []batch
	var now batch
	size := overhead
	keys := map[string]bool{}
	rank := rankNone
	for i, u := range updates {
		n := proto.Size(u) + 6
		key, r := entityKey(cat, u.GetEntity()), entityRank(cat, u.GetEntity())
		depends := keys[key] || r != rankNone && rank != rankNone && r != rank
		if len(now.updates) > 0 && (depends || size+n > maxBytes || len(now.updates) == maxUpdates) {
			out = append(out, now)
			now, size, rank = batch{}, overhead, rankNone
			clear(keys)
		}
		now.updates, now.index = append(now.updates, u), append(now.index, i)
		size += n
		keys[key] = true
		if r != rankNone {
			rank = r
		}
	}
	if len(now.updates) > 0 {
		out = append(out, now)
	}
	return out
}
