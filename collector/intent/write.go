// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/netsketch/netsketch/p4/p4rt"
)

// ErrPartiallyApplied is wrapped if a plan failed and could not be undone.
var ErrPartiallyApplied = errors.New("the switch may hold some of these entries")

// undoTime bounds, on the wall clock, how long undoing a refused plan may take.
const undoTime = time.Second

// change is an update, with the entry that it replaces.
type change struct {
	update p4rt.Update
	key    string
	before *p4rt.Entry // entry that a plan wrote earlier; nil if no plan did
	upsert bool        // an insertion modifies an existing entry, and a modification inserts a missing one
}

func isDelete(u p4rt.Update) bool { return u.Type == p4rt.Delete(u.Entry).Type }
func isInsert(u p4rt.Update) bool { return u.Type == p4rt.Insert(u.Entry).Type }

// changes finds out for each update which entry it replaces.
func (d *deviceIntent) changes(updates []p4rt.Update) ([]change, error) {
	var errs []error
	out := make([]change, 0, len(updates))
	for i, u := range updates {
		c := change{update: u, upsert: isInsert(u)}
		var err error
		if c.key, err = d.Key(u.Entry); err != nil {
			errs = append(errs, fmt.Errorf("write %d of %d: %w", i+1, len(updates), err))
			continue
		}
		if before, ok := d.applied[c.key]; ok {
			c.before = &before
			if isInsert(u) {
				c.update = p4rt.Modify(u.Entry)
			}
		}
		out = append(out, c)
	}
	return out, errors.Join(errs...)
}

// send writes changes. If it fails, it returns the changes that the device may have applied.
func send(ctx context.Context, d Device, changes []change) (done []change, err error) {
	if len(changes) == 0 {
		return nil, nil
	}
	updates := make([]p4rt.Update, len(changes))
	for i, c := range changes {
		updates[i] = c.update
	}
	err = d.Write(ctx, updates...)
	var failed *p4rt.WriteError
	switch {
	case err == nil:
		return changes, nil
	case errors.Is(err, p4rt.ErrRefused), errors.Is(err, p4rt.ErrNotReady): // nothing was sent
		return nil, err
	case !errors.As(err, &failed) || failed.Cause != nil:
		return changes, err
	}
	refused := map[int]bool{}
	var again []p4rt.Update
	for _, f := range failed.Failed {
		switch c := changes[f.Index]; {
		case c.upsert && f.Code == codes.AlreadyExists:
			again = append(again, p4rt.Modify(c.update.Entry))
		case c.upsert && f.Code == codes.NotFound:
			again = append(again, p4rt.Insert(c.update.Entry))
		default:
			refused[f.Index] = true
		}
	}
	if len(refused) == 0 {
		return changes, d.Write(ctx, again...)
	}
	for i, c := range changes {
		if !refused[i] {
			done = append(done, c)
		}
	}
	return done, err
}

// revert undoes changes, the newest first. It fails for a change of an entry that no plan wrote,
// because the entry's former value is unknown.
func revert(ctx context.Context, d Device, changes []change) error {
	var back []change
	var unknown error
	for _, c := range slices.Backward(changes) {
		switch {
		case c.before != nil:
			back = append(back, change{update: p4rt.Modify(*c.before), upsert: !c.before.Default})
		case c.upsert:
			back = append(back, change{update: p4rt.Delete(c.update.Entry)})
		default:
			unknown = fmt.Errorf("the former entry of table %s is unknown", c.update.Entry.Table)
		}
	}
	_, err := send(ctx, d, back)
	var failed *p4rt.WriteError
	found := func(f *p4rt.UpdateError) bool { return f.Code != codes.NotFound }
	if errors.As(err, &failed) && failed.Cause == nil && !slices.ContainsFunc(failed.Failed, found) {
		err = nil // the entries to delete do not exist
	}
	return errors.Join(err, unknown)
}
