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

// Update is a change of one entry. Make one with [Insert], [Modify] or [Delete].
type Update struct {
	Type  p4v1.Update_Type
	Entry Entry
}

// Insert adds an entry.
func Insert(e Entry) Update { return Update{p4v1.Update_INSERT, e} }

// Modify replaces an entry as a whole, or sets a default action.
func Modify(e Entry) Update { return Update{p4v1.Update_MODIFY, e} }

// Delete removes an entry; only the entry's table, match and priority are used.
func Delete(e Entry) Update { return Update{p4v1.Update_DELETE, e} }

// build returns the update as a P4Runtime message.
func (u Update) build(cat *p4values.Catalog) (*p4v1.Update, error) {
	build := u.Entry.Build
	switch u.Type {
	case p4v1.Update_INSERT, p4v1.Update_MODIFY:
	case p4v1.Update_DELETE:
		build = u.Entry.BuildKey
	default:
		return nil, fmt.Errorf("%w: update of type %v", ErrUnsupported, u.Type)
	}
	e, err := build(cat)
	return &p4v1.Update{Type: u.Type, Entity: e}, err
}

// Write applies updates. An update that does not fit the program fails the call with [ErrRefused]
// before anything is sent. The updates go in requests of less than 4 MB; a second update of the
// same entry goes in a later request, since a request has no order. All requests are sent even
// when the switch refuses updates in one; the error is then a [*WriteError] that names them. An
// error of a whole request ends the call: [ErrNotPrimary], [ErrSessionLost] or a deadline.
func (c *Client) Write(ctx context.Context, updates ...Update) error {
	s, err := c.use(Ready)
	if err != nil {
		return err
	}
	built := make([]*p4v1.Update, len(updates))
	var errs []error
	for i, u := range updates {
		if built[i], err = u.build(s.program().catalog); err != nil {
			errs = append(errs, fmt.Errorf("update %d of %d: %w", i+1, len(updates), err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("p4rt %s: %w: %w", c.cfg.Target, ErrRefused, err)
	}
	return s.write(ctx, built)
}

// SetDefaultAction sets a table's default action, which is how a bank is flipped. It is one small
// request, and takes effect between two packets.
func (c *Client) SetDefaultAction(ctx context.Context, table, action string, params ...Param) error {
	return c.Write(ctx, Modify(Entry{Table: table, Default: true, Action: action, Params: params}))
}

// write sends updates in as few requests as dependencies and size limits allow.
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

// singleError names the only update of a request that the switch refused without details.
func singleError(cat *p4values.Catalog, b batch, err error) *UpdateError {
	if len(b.updates) != 1 {
		return nil
	}
	switch code := status.Code(err); code {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.ResourceExhausted,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented:
		return &UpdateError{
			Index: b.index[0], Code: code, Message: status.Convert(err).Message(),
			update: describeUpdate(cat, b.updates[0]),
		}
	}
	return nil
}

// writeBatch sends one request. It ends when the client is no longer the primary.
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

// whyNotPrimary returns ErrSessionLost if the session ended, and ErrNotPrimary otherwise.
func (s *session) whyNotPrimary(err error) error {
	if s.ctx.Err() != nil {
		return s.lost(err)
	}
	if errors.Is(err, ErrNotPrimary) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotPrimary, err)
}

// batch holds the updates of one request, with their indices in the caller's list.
type batch struct {
	updates []*p4v1.Update
	index   []int
}

// batches splits updates, keeping their order. A new batch begins if an update would make the
// request too large, or if it changes an entry that the current batch already changes.
func batches(cat *p4values.Catalog, updates []*p4v1.Update, maxBytes, maxUpdates int) []batch {
	const overhead = 64 // device, role, election id
	var out []batch
	var now batch
	size := overhead
	keys := map[string]bool{}
	for i, u := range updates {
		n := proto.Size(u) + 6
		key := entityKey(cat, u.GetEntity())
		if len(now.updates) > 0 && (keys[key] || size+n > maxBytes || len(now.updates) == maxUpdates) {
			out = append(out, now)
			now, size = batch{}, overhead
			clear(keys)
		}
		now.updates, now.index = append(now.updates, u), append(now.index, i)
		size += n
		keys[key] = true
	}
	if len(now.updates) > 0 {
		out = append(out, now)
	}
	return out
}
