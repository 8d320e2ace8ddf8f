// SPDX-License-Identifier: Apache-2.0

package devconfig

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/config"
)

// Times are how long the steps of a change may take. Zero values are replaced by defaults.
type Times struct {
	// Config bounds the wait for the changes in the device's configuration, State in its state, and
	// Session the wait for the P4Runtime session.
	Config, State, Session time.Duration
	// Poll is the time between two readings while a step waits.
	Poll time.Duration
	// Retry is the first wait after a change that failed in mode enforce, and after an undo that
	// failed; it doubles up to an hour.
	Retry time.Duration
	// AfterSync is how long the device may send values after the sync_response of a reading.
	AfterSync time.Duration
}

func (t Times) withDefaults() Times {
	return Times{Config: cmp.Or(t.Config, 5*time.Second), State: cmp.Or(t.State, 30*time.Second),
		Session: cmp.Or(t.Session, time.Minute), Poll: cmp.Or(t.Poll, time.Second),
		Retry: cmp.Or(t.Retry, 10*time.Second), AfterSync: cmp.Or(t.AfterSync, 2*time.Second)}
}

// rollback is how long a device waits for the confirmation: longer than all steps together.
func (t Times) rollback(call time.Duration) time.Duration {
	return t.Config + t.State + t.Session + 6*call + time.Minute
}

const (
	// Mode enforce ends when somebody else has taken changes back maxReverts times within
	// revertWindow.
	maxReverts   = 3
	revertWindow = time.Hour
	maxRetry     = time.Hour
)

// device is the configuration of one device.
type device struct {
	ctx    context.Context // context of changes; ends when the device is removed from the configuration
	name   string
	mode   config.Configure
	wanted Wanted
	dial   dialer
	addr   string
	limit  time.Duration // limit of the time of a call
	deps   *Dependencies
	times  Times
	dir    records
	log    *slog.Logger

	op      sync.Mutex // one comparison or change at a time; guards the fields up to mu
	record  *Record
	form    form // form of values that the device takes in a Set
	closed  bool // the P4Runtime session, for a change
	retryAt time.Time
	retry   time.Duration
	setErr  error // error of the Set of the change in progress
	dialed  int32 // connections when the change began

	mu     sync.Mutex
	status DeviceStatus
}

// DeviceStatus is a snapshot for state leaves.
type DeviceStatus struct {
	Mode  config.Configure
	State State
	// Reason says why a device is not in effect: the newest failure, or the error of reading the
	// device.
	Reason string
	Leaves []LeafState
	// Since is when the device was compared last; zero if never.
	Since time.Time
}

// Status returns the snapshot.
func (d *device) Status() DeviceStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status
}

// state returns the current state.
func (d *device) state() State { return d.Status().State }

// enter sets the state, and logs it if it changes.
func (d *device) enter(to State, reason string) {
	d.mu.Lock()
	was := d.status
	d.status.State, d.status.Reason = to, reason
	d.mu.Unlock()
	if was.State == to && was.Reason == reason {
		return
	}
	level := slog.LevelInfo
	switch {
	case to == Ended:
		level = slog.LevelError
	case reason != "":
		level = slog.LevelWarn
	case to.transaction():
		level = slog.LevelDebug
	}
	d.log.Log(context.Background(), level, "gNMI configuration of the device", "state", string(to), "reason", reason)
	d.deps.OnChange()
}

// open connects with the device.
func (d *device) open() (*client, error) {
	c, err := open(d.dial, d.addr, d.deps.Schema(), d.limit)
	if err != nil {
		return nil, err
	}
	c.afterSync = d.times.AfterSync
	if form, known := d.deps.Form(d.name); known {
		c.path = form
	}
	return c, nil
}

// Plan compares the device with the file.
func (d *device) Plan(ctx context.Context) *Plan {
	d.op.Lock()
	defer d.op.Unlock()
	c, err := d.open()
	if err != nil {
		return &Plan{Device: d.name, Error: err.Error()}
	}
	defer c.close()
	return d.compare(ctx, c)
}

// compare reads the device and updates its state. The caller holds op.
func (d *device) compare(ctx context.Context, c *client) *Plan {
	if d.record == nil {
		return &Plan{Device: d.name, Error: d.Status().Reason}
	}
	s, err := c.read(ctx)
	if err != nil {
		if ctx.Err() == nil && !d.state().transaction() {
			d.enter(d.state().next(unreadable), err.Error())
		}
		return &Plan{Device: d.name, Error: err.Error()}
	}
	p := Diff(d.name, d.wanted, s, d.record.Written)
	d.mu.Lock()
	changed := !slices.Equal(d.status.Leaves, p.Leaves)
	d.status.Leaves, d.status.Since = p.Leaves, d.deps.Now()
	d.mu.Unlock()
	if changed {
		defer d.deps.OnChange()
	}
	state, e, reason := d.state(), foundClean, ""
	switch {
	case p.Refused():
		e, reason = foundRefusal, p.refusal()
	case len(p.Changes) > 0:
		e, reason = foundDifference, d.record.Failure
	}
	if state == Ended {
		reason = d.Status().Reason
	}
	if !state.transaction() {
		d.enter(state.next(e), reason)
	}
	return p
}

// Apply makes the changes that a digest names. It reads the device again, and fails if it has
// changed since the plan.
func (d *device) Apply(ctx context.Context, digest string) error {
	d.op.Lock()
	defer d.op.Unlock()
	if err := d.mayChange(); err != nil {
		return err
	}
	c, err := d.open()
	if err != nil {
		return err
	}
	defer c.close()
	p := d.compare(ctx, c)
	switch {
	case p.Error != "":
		return errors.New(p.Error)
	case p.Refused():
		return fmt.Errorf("device %s is not changed: %s", d.name, p.refusal())
	case p.Digest != digest:
		return fmt.Errorf("device %s has changed since the plan %s; its plan is %s now: look at it again", d.name, digest,
			cmp.Or(p.Digest, "empty"))
	}
	d.record.Ended, d.record.Reverts = false, nil
	return d.change(ctx, c, p.Changes)
}

// mayChange returns an error unless the device may be set. The caller holds op.
func (d *device) mayChange() error {
	switch {
	case d.record == nil:
		return errors.New(d.Status().Reason)
	case d.mode != config.ConfigureApply && d.mode != config.ConfigureEnforce:
		return fmt.Errorf("device %s: gnmi.configure is %s; write apply or enforce to let the collector set the device",
			d.name, d.mode)
	case d.dir == "":
		return fmt.Errorf("device %s: device-configuration.directory is missing; without it, nothing could be taken back "+
			"after a restart", d.name)
	case d.record.Pending != nil:
		return fmt.Errorf("device %s: a change is %s, and is tried again: %s", d.name, d.record.Pending.State,
			cmp.Or(d.record.Pending.Failure, d.Status().Reason))
	}
	if owner, own := d.deps.Owner(d.name); !own {
		return fmt.Errorf("device %s belongs to %s; run the command there", d.name, cmp.Or(owner, "no collector now"))
	}
	return nil
}

// Revert restores the device's values from before the collector wrote, and ends mode enforce.
func (d *device) Revert(ctx context.Context) error {
	d.op.Lock()
	defer d.op.Unlock()
	if err := d.mayChange(); err != nil {
		return err
	}
	c, err := d.open()
	if err != nil {
		return err
	}
	defer c.close()
	s, err := c.read(ctx)
	if err != nil {
		return err
	}
	nothing := &Plan{Device: d.name}
	nothing.restore(s, d.record.Written, nil)
	if d.mode == config.ConfigureEnforce {
		d.record.Ended = true
	}
	if len(nothing.Changes) == 0 {
		d.record.Written = map[string]Written{} // somebody else has changed all leaves that the collector wrote
		return d.dir.save(d.record)
	}
	if d.state() == Unread || d.state() == Blocked {
		d.enter(Differs, "")
	}
	err = d.change(ctx, c, nothing.Changes)
	if d.record.Ended && !d.state().transaction() {
		d.enter(Ended, "the device was reverted on command; devices apply begins again")
	}
	return err
}

// check compares the device, and makes it as the file says in mode enforce.
func (d *device) check(ctx context.Context) {
	d.op.Lock()
	defer d.op.Unlock()
	if d.record == nil {
		return
	}
	if owner, own := d.deps.Owner(d.name); !own && d.record.Pending == nil {
		d.enter(Unread, cmp.Or(owner, "no collector")+" has the device")
		return
	}
	if d.record.Pending == nil || !d.deps.Now().Before(d.retryAt) {
		c, err := d.open()
		if err != nil {
			d.enter(d.state().next(unreadable), err.Error())
			return
		}
		defer c.close()
		if d.record.Pending != nil {
			if err := d.settle(ctx, c); err != nil || ctx.Err() != nil {
				return
			}
		}
		d.enforce(ctx, c, d.compare(ctx, c))
	}
}

// enforce makes the changes of a plan in mode enforce. The caller holds op.
func (d *device) enforce(ctx context.Context, c *client, p *Plan) {
	if d.mode != config.ConfigureEnforce || d.state() != Differs || d.deps.Now().Before(d.retryAt) {
		return
	}
	if d.record.Ended {
		d.enter(Ended, "somebody else takes back what the collector sets; find out who, then use devices apply")
		return
	}
	if p.Drifted() {
		now := d.deps.Now()
		d.record.Reverts = append(slices.DeleteFunc(d.record.Reverts,
			func(t time.Time) bool { return now.Sub(t) > revertWindow }), now)
		d.record.Ended = len(d.record.Reverts) >= maxReverts
		if err := d.dir.save(d.record); err != nil {
			d.enter(d.state(), err.Error())
			return
		}
		if d.record.Ended {
			d.enter(d.state().next(revertedAgain), fmt.Sprintf("somebody else has taken %s back %d times within %v; find out "+
				"who, then use devices apply", drifted(p), maxReverts, revertWindow))
			return
		}
	}
	if err := d.change(ctx, c, p.Changes); err != nil && ctx.Err() == nil {
		d.wait()
	}
}

// wait puts the next attempt off.
func (d *device) wait() {
	d.retry = min(max(2*d.retry, d.times.Retry), maxRetry)
	d.retryAt = d.deps.Now().Add(d.retry)
}

func drifted(p *Plan) string {
	var names []string
	for _, l := range p.Leaves {
		if l.Status == Drifted {
			names = append(names, l.Path)
		}
	}
	return strings.Join(names, ", ")
}

// change makes changes and returns nil if they are proved and kept. The caller holds op.
func (d *device) change(ctx context.Context, c *client, changes []Change) error {
	if _, err := c.request(changes, bare); err != nil {
		return err
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	commit := hex.EncodeToString(id[:])
	commits, err := c.hasCommit(ctx, commit)
	if err != nil {
		return fmt.Errorf("device %s is not changed: %w", d.name, err)
	}
	if !commits {
		commit = ""
	}
	was := d.record.Pending
	d.record.Pending = &Pending{State: d.state().next(begin), Changes: changes, Started: d.deps.Now(), Commit: commit}
	if err := d.dir.save(d.record); err != nil {
		d.record.Pending = was
		return fmt.Errorf("device %s is not changed, because what it has cannot be kept: %w", d.name, err)
	}
	d.setErr, d.dialed = nil, c.connections()
	d.enter(d.record.Pending.State, "")
	if err := d.settle(ctx, c); err != nil {
		return err
	}
	if d.record.Failure != "" {
		return fmt.Errorf("device %s is as before: %s", d.name, d.record.Failure)
	}
	d.retry, d.retryAt = 0, time.Time{}
	return nil
}

// settle runs the steps of the change in progress until it is over. The record on disk has each
// state before its step begins. An error means that the change cannot end now; it is tried again.
func (d *device) settle(ctx context.Context, c *client) error {
	p := d.record.Pending
	for {
		e, failure := d.step(ctx, c, p)
		if ctx.Err() != nil {
			return ctx.Err() // the collector stops: the next one finds the state on disk
		}
		next := p.State.next(e)
		if next == p.State {
			d.wait()
			d.resume() // the device is measured during the change, if possible
			d.enter(p.State, failure)
			return fmt.Errorf("device %s: %s: %s", d.name, p.State, failure)
		}
		if next == Undoing {
			p.Failure = failure
		}
		p.State = next
		if !next.transaction() {
			d.record.Pending, d.record.Failure = nil, p.Failure
			if next == Clean {
				d.record.done(p.Changes)
			}
		}
		if err := d.dir.save(d.record); err != nil {
			d.record.Pending = p
			return fmt.Errorf("device %s: the state of the change cannot be kept: %w", d.name, err)
		}
		d.enter(next, p.Failure)
		if !next.transaction() {
			d.resume()
			if next == Clean {
				d.compare(ctx, c)
			}
			return nil
		}
	}
}

// step does the work of a state. It returns the event that decides the next state, and the reason
// for a failure.
func (d *device) step(ctx context.Context, c *client, p *Pending) (e event, failure string) {
	switch p.State {
	case Setting:
		d.suspend(p.Changes)
		_ = d.set(ctx, c, p.Changes, p.Commit) // setErr has the error
		if p.Commit != "" && d.refused(ctx, c, p.Changes) {
			// The probe was refused for another reason: the device does not support the commit extension.
			p.Commit = ""
			_ = d.set(ctx, c, p.Changes, "")
		}
		e = answered
	case ReadingBack:
		e, failure = d.readBack(ctx, c, p)
	case AwaitingState:
		e, failure = d.poll(ctx, c, d.times.State, func(s *Snapshot) (event, string) {
			if all, _ := taken(p.Changes, s); !all {
				return disproved, "somebody else has changed the configuration meanwhile"
			}
			if path := outstanding(p.Changes, s); path != "" {
				return unproved, fmt.Sprintf("%s does not follow the configuration within %v", path, d.times.State)
			}
			return proved, ""
		})
	case Connecting:
		if e, failure = d.connect(ctx, p.Changes); e == proved {
			// The device may have restarted: the configuration that it has now is confirmed.
			e, failure = d.readBack(ctx, c, p)
		}
	case Confirming:
		return d.confirm(ctx, c, p)
	case Undoing:
		return d.undo(ctx, c, p)
	}
	if e == broken || d.dialed != 0 && c.connections() != d.dialed || status.Code(d.setErr) == codes.Unavailable {
		e, failure = broken, strings.TrimSuffix("the connection with the device has ended during the change: "+failure, ": ")
	}
	return e, failure
}

// suspend closes the P4Runtime session if the changes need it.
func (d *device) suspend(changes []Change) {
	if !d.closed && sessionCloses(changes) {
		d.closed = true
		d.deps.Sessions.Suspend(d.name)
	}
}

// resume opens the P4Runtime session again.
func (d *device) resume() {
	if d.closed {
		d.closed = false
		d.deps.Sessions.Resume(d.name)
	}
}

// set sends changes in the form that the device takes.
func (d *device) set(ctx context.Context, c *client, changes []Change, commit string) error {
	first := d.form
	for i := range form(forms) {
		d.form = (first + i) % forms
		over := time.NewTimer(d.times.Config)
		for {
			d.setErr = c.set(ctx, changes, d.form, commit, d.times.rollback(d.limit))
			// A device may need a moment to see that the P4Runtime session is closed.
			if status.Code(d.setErr) != codes.FailedPrecondition || !d.closed || !sleep(ctx, over, d.times.Poll/4) {
				break
			}
		}
		over.Stop()
		if !d.refused(ctx, c, changes) {
			return d.setErr
		}
	}
	d.form = first
	return d.setErr
}

// refused reports whether the device has refused the form of values of the Set in progress, and
// carried out none of its changes.
func (d *device) refused(ctx context.Context, c *client, changes []Change) bool {
	switch status.Code(d.setErr) {
	case codes.InvalidArgument, codes.Unimplemented:
	default:
		return false
	}
	s, err := c.read(ctx)
	if err != nil {
		return false
	}
	_, any := taken(changes, s)
	return !any
}

// readBack reads the configuration until it has the changes.
func (d *device) readBack(ctx context.Context, c *client, p *Pending) (event, string) {
	return d.poll(ctx, c, d.times.Config, func(s *Snapshot) (event, string) {
		all, any := taken(p.Changes, s)
		switch {
		case all:
			if d.setErr != nil {
				d.log.Warn("device has answered a Set with an error, and has carried it out", "error", d.setErr)
			}
			return proved, ""
		case d.setErr != nil && status.Code(d.setErr) == codes.FailedPrecondition && !any:
			return disproved, fmt.Sprintf("%s: the device may have a commit of somebody else that is pending; confirm or "+
				"cancel it there, or wait until it ends", status.Convert(d.setErr).Message())
		case d.setErr != nil && !any && status.Code(d.setErr) != codes.DeadlineExceeded:
			return disproved, "the device refuses the change: " + status.Convert(d.setErr).Message()
		case d.setErr != nil:
			return unproved, "the device has carried out a part of the change only, and answered " + d.setErr.Error()
		case any:
			return unproved, "the device has answered OK, and carried out a part of the change only"
		}
		return unproved, "the device has answered OK, and its configuration does not have the change"
	})
}

// poll reads the device until look returns another event than unproved, or the time is over.
func (d *device) poll(ctx context.Context, c *client, limit time.Duration, look func(*Snapshot) (event, string),
) (e event, failure string) {
	over := time.NewTimer(limit)
	defer over.Stop()
	for {
		s, err := c.read(ctx)
		switch {
		case err == nil:
			e, failure = look(s)
		case status.Code(err) == codes.Unavailable:
			return broken, err.Error()
		default:
			e, failure = unproved, err.Error()
		}
		if e != unproved {
			return e, failure
		}
		if !sleep(ctx, over, d.times.Poll) {
			return e, failure
		}
	}
}

// sleep waits, and returns false if the time is over.
func sleep(ctx context.Context, over *time.Timer, d time.Duration) bool {
	tick := time.NewTimer(d)
	defer tick.Stop()
	select {
	case <-tick.C:
		return true
	case <-over.C:
	case <-ctx.Done():
	}
	return false
}

// connect opens the P4Runtime session and waits for it. A change that only restores earlier values
// needs no session.
func (d *device) connect(ctx context.Context, changes []Change) (event, string) {
	d.resume()
	if !slices.ContainsFunc(changes, func(c Change) bool { return !c.Restores }) {
		return proved, ""
	}
	over := time.NewTimer(d.times.Session)
	defer over.Stop()
	for {
		err := d.deps.Sessions.Connected(d.name)
		if err == nil {
			return proved, ""
		}
		if !sleep(ctx, over, d.times.Poll/4) {
			return unproved, fmt.Sprintf("P4Runtime does not connect within %v: %v", d.times.Session, err)
		}
	}
}

// confirm tells the device to keep the changes. A device that does not know the commit has
// confirmed it before, or has taken the changes back: its configuration shows which.
func (d *device) confirm(ctx context.Context, c *client, p *Pending) (event, string) {
	if p.Commit == "" {
		return proved, ""
	}
	err := c.confirm(ctx, p.Commit)
	switch status.Code(err) {
	case codes.OK:
		return proved, ""
	case codes.FailedPrecondition, codes.InvalidArgument:
	default:
		return begin, err.Error() // the event begin changes nothing here: the step is tried again
	}
	s, readErr := c.read(ctx)
	if readErr != nil {
		return begin, readErr.Error()
	}
	if all, _ := taken(p.Changes, s); all {
		return proved, ""
	}
	return disproved, "the device has taken the change back before it was confirmed: " + err.Error()
}

// undo takes the changes back and checks that the device has its earlier values.
func (d *device) undo(ctx context.Context, c *client, p *Pending) (event, string) {
	d.suspend(p.Changes)
	if p.Commit != "" {
		if err := c.cancel(ctx, p.Commit); status.Code(err) == codes.Unavailable {
			return begin, err.Error()
		}
	}
	s, err := c.read(ctx)
	if err != nil {
		return begin, err.Error()
	}
	back := undo(p.Changes, s)
	if len(back) == 0 {
		return proved, ""
	}
	setErr := d.set(ctx, c, back, "")
	if s, err = c.read(ctx); err != nil {
		return begin, err.Error()
	}
	if left := undo(p.Changes, s); len(left) > 0 {
		return begin, fmt.Sprintf("%s still has what the collector wrote: %v", left[0].Path, setErr)
	}
	return proved, ""
}
