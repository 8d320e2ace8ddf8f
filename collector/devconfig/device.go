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
	// Known bounds the wait for the disabled ports of the device before its session opens.
	Known time.Duration
	// Poll is the time between two readings while a step waits.
	Poll time.Duration
	// Retry is the first wait after a change that failed in mode enforce, and after an undo that
	// failed; it doubles up to an hour.
	Retry time.Duration
	// AfterSync is how long the device may send values after the sync_response of a reading.
	AfterSync time.Duration
	// Late is how long after the beginning of a change the collector watches the device, to take
	// back a Set that the device carries out late.
	Late time.Duration
}

func (t Times) withDefaults() Times {
	return Times{Config: cmp.Or(t.Config, 5*time.Second), State: cmp.Or(t.State, 30*time.Second),
		Session: cmp.Or(t.Session, time.Minute), Known: cmp.Or(t.Known, 10*time.Second), Poll: cmp.Or(t.Poll, time.Second),
		Retry: cmp.Or(t.Retry, 10*time.Second), AfterSync: cmp.Or(t.AfterSync, 2*time.Second),
		Late: cmp.Or(t.Late, 2*time.Minute)}
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
	ctx       context.Context // context of changes; ends when the device is removed from the configuration
	name      string
	mode      config.Configure
	wanted    Wanted
	dial      dialer
	fault     error // why there is no dial
	addr      string
	limit     time.Duration // limit of the time of a call
	deps      *Dependencies
	times     Times
	records   Records
	directory string
	log       *slog.Logger

	op       sync.Mutex // one comparison or change at a time; guards the fields up to mu
	record   *Record    // nil before load
	revision uint64     // revision of record
	// interrupted is set if the change in progress was read from the record: this collector began
	// it before a restart, another collector began it, or its state could not be kept.
	interrupted bool
	getOnly     bool // the device does not end a ONCE subscription
	form        form // form of values that the device takes in a Set
	closed      bool // the P4Runtime session is closed because of a change
	retryAt     time.Time
	retry       time.Duration
	setErr      error  // error of the Set of the change in progress
	dialed      int32  // number of connections opened before the change began
	left        string // leaves that the undo has not restored, because they have foreign values

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
	if d.fault != nil {
		return nil, d.fault
	}
	c, err := open(d.dial, d.addr, d.deps.Schema(), d.limit)
	if err != nil {
		return nil, err
	}
	c.afterSync, c.getOnly = d.times.AfterSync, &d.getOnly
	if form, known := d.deps.Form(d.name); known {
		c.path = form
	}
	return c, nil
}

// Plan compares the device with the file.
func (d *device) Plan(ctx context.Context) *Plan {
	d.op.Lock()
	defer d.op.Unlock()
	err := d.load(ctx)
	if err == nil {
		var c *client
		if c, err = d.open(); err == nil {
			defer c.close()
			return d.compare(ctx, c)
		}
	}
	return &Plan{Device: d.name, Error: err.Error()}
}

// compare reads the device and updates its state. The caller holds op.
func (d *device) compare(ctx context.Context, c *client) *Plan {
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
	c, err := d.openToChange(ctx)
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
	r := *d.record
	r.Ended, r.Reverts = false, nil
	if err := d.change(ctx, c, r, p.Changes); err != nil {
		return err
	}
	if s := d.Status(); s.State != Clean { // somebody else changed it after its state was read
		return fmt.Errorf("device %s has taken the change, and is %s since: %s", d.name, s.State,
			cmp.Or(s.Reason, "see devices plan"))
	}
	return nil
}

// openToChange returns a client, or an error unless the device may be set. The caller holds op.
func (d *device) openToChange(ctx context.Context) (*client, error) {
	if err := d.mayChange(ctx); err != nil {
		return nil, err
	}
	return d.open()
}

// sets reports whether the device may be set.
func (d *device) sets() bool {
	return d.mode == config.ConfigureApply || d.mode == config.ConfigureEnforce
}

func (d *device) mayChange(ctx context.Context) error {
	switch {
	case !d.sets():
		return fmt.Errorf("device %s: gnmi.configure is %s; write apply or enforce to let the collector set the device",
			d.name, d.mode)
	case d.directory == "":
		return fmt.Errorf("device %s: device-configuration.directory is missing; without it, nothing could be taken back "+
			"after a restart", d.name)
	}
	if owner, own := d.deps.Owner(d.name); !own {
		return fmt.Errorf("device %s belongs to %s; run the command there", d.name, cmp.Or(owner, "no collector now"))
	}
	err := d.load(ctx)
	if err == nil && d.record.Pending != nil {
		err = fmt.Errorf("device %s: a change is %s, and is tried again: %s", d.name, d.record.Pending.State,
			cmp.Or(d.record.Pending.Failure, d.Status().Reason))
	}
	return err
}

// Revert restores the device's values from before the collector wrote, and ends mode enforce.
// restored is false if the device has no value that the collector wrote.
func (d *device) Revert(ctx context.Context) (restored bool, err error) {
	d.op.Lock()
	defer d.op.Unlock()
	c, err := d.openToChange(ctx)
	if err != nil {
		return false, err
	}
	defer c.close()
	s, err := c.read(ctx)
	if err != nil {
		return false, err
	}
	nothing := &Plan{Device: d.name}
	nothing.restore(s, d.record.Written, nil)
	r := *d.record
	r.Ended = d.mode == config.ConfigureEnforce
	if len(nothing.Changes) == 0 {
		r.Written = map[string]Written{} // somebody else has changed all leaves that the collector wrote
		err = d.keep(ctx, r)
	} else {
		if d.state() == Unread || d.state() == Blocked {
			d.enter(Differs, "")
		}
		err = d.change(ctx, c, r, nothing.Changes)
	}
	if d.record != nil && d.record.Ended && !d.state().transaction() {
		d.enter(Ended, "the device was reverted on command; devices apply begins again")
	}
	return len(nothing.Changes) > 0, err
}

// check compares the device with the file, and in mode enforce applies the file.
func (d *device) check(ctx context.Context) {
	d.op.Lock()
	defer d.op.Unlock()
	if !d.owned() {
		return
	}
	err := d.load(ctx)
	if err == nil && d.interrupted {
		err = d.resumeChange(ctx)
	}
	if err != nil && ctx.Err() == nil {
		d.enter(d.state().next(unreadable), err.Error())
	}
	if err == nil && (d.record.Pending == nil || !d.deps.Now().Before(d.retryAt)) {
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

// owned reports whether this collector has the device. If it has not, another one continues the
// change in progress, with the record. The caller holds op.
func (d *device) owned() bool {
	owner, own := d.deps.Owner(d.name)
	if !own {
		d.record = nil
		d.resume()
		d.enter(Unread, cmp.Or(owner, "no collector")+" has the device")
	}
	return own
}

// resumeChange makes an interrupted change this collector's. In a cluster, the collector that began
// the change may still run and may just have sent a Set, so resumeChange waits until the timeout of
// that call has passed.
func (d *device) resumeChange(ctx context.Context) error {
	r, p := *d.record, *d.record.Pending
	if next := p.State.next(restarted); next != p.State {
		p.State, p.Failure = next, cmp.Or(p.Failure,
			"the collector has ended during the change, or its record could not be kept")
	}
	r.Pending = &p
	if err := d.keep(ctx, r); err != nil {
		return fmt.Errorf("a change was interrupted, and the record cannot be written: %w", err)
	}
	d.interrupted, d.dialed = false, 0
	if d.deps.Records != nil {
		d.retryAt = d.deps.Now().Add(d.limit)
	}
	d.enter(p.State, p.Failure)
	return nil
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
		now, r := d.deps.Now(), *d.record
		r.Reverts = append(slices.DeleteFunc(slices.Clone(r.Reverts),
			func(t time.Time) bool { return now.Sub(t) > revertWindow }), now)
		r.Ended = len(r.Reverts) >= maxReverts
		if err := d.keep(ctx, r); err != nil {
			d.enter(d.state(), err.Error())
			return
		}
		if r.Ended {
			d.enter(d.state().next(revertedAgain), fmt.Sprintf("somebody else has taken %s back %d times within %v; find out "+
				"who, then use devices apply", drifted(p), maxReverts, revertWindow))
			return
		}
	}
	if err := d.change(ctx, c, *d.record, p.Changes); err != nil && ctx.Err() == nil {
		d.wait()
	}
}

// wait postpones the next attempt. The delay doubles with each failure, up to an hour.
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

// change makes changes and returns nil if they are proved and kept. r is the record of the device.
// The caller holds op.
func (d *device) change(ctx context.Context, c *client, r Record, changes []Change) error {
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
	r.Pending = &Pending{State: d.state().next(begin), Changes: changes, Started: d.deps.Now(), Commit: commit, Late: true}
	if err := d.keep(ctx, r); err != nil {
		return fmt.Errorf("device %s is not changed, because what it has cannot be kept: %w", d.name, err)
	}
	d.setErr, d.left, d.dialed = nil, "", c.connections()
	d.enter(r.Pending.State, "")
	if err := d.settle(ctx, c); err != nil {
		return err
	}
	if d.record.Failure != "" {
		return fmt.Errorf("device %s is %sas before: %s", d.name, map[bool]string{true: "not "}[d.left != ""],
			d.record.Failure)
	}
	d.retry, d.retryAt = 0, time.Time{}
	return nil
}

// settle runs the steps of the change in progress until it is over. The record has each state
// before its step begins. An error means that the change cannot end now; it is tried again.
func (d *device) settle(ctx context.Context, c *client) error {
	for {
		if !d.owned() {
			return fmt.Errorf("device %s is not changed: %s; it takes back what was set", d.name, d.Status().Reason)
		}
		r, p := *d.record, *d.record.Pending
		e, failure := d.step(ctx, c, &p)
		if ctx.Err() != nil {
			return ctx.Err() // the collector stops: the next process finds the state in the record
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
		r.Pending = &p
		if !next.transaction() {
			r.Pending, r.Failure = nil, p.Failure
			if next != Clean && d.left != "" {
				r.Failure += "; not as before: " + d.left
			}
			if next == Clean {
				r.done(p.Changes)
			}
		}
		if err := d.keep(ctx, r); err != nil {
			err = fmt.Errorf("device %s: the state of the change cannot be kept: %w", d.name, err)
			d.wait()
			d.resume()
			d.enter(d.state(), err.Error())
			return err
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
		switch status.Code(d.setErr) {
		case codes.OK, codes.DeadlineExceeded, codes.Unavailable, codes.Canceled:
		default:
			p.Late = false
		}
		e = answered
	case ReadingBack:
		if e, failure = d.readBack(ctx, c, p); e == proved {
			p.Late = false
		}
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
			if d.setErr = d.holdsRecord(ctx); d.setErr == nil {
				d.setErr = c.set(ctx, changes, d.form, commit, d.times.rollback(d.limit))
			}
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

// holdsRecord returns an error if another collector has taken the device over.
func (d *device) holdsRecord(ctx context.Context) error {
	_, revision, err := d.records.Load(ctx, d.name)
	if err == nil && revision != d.revision {
		err = ErrDeposed
	}
	return err
}

// refused reports whether the device has refused the form of values of the Set in progress, and
// carried out none of its changes.
func (d *device) refused(ctx context.Context, c *client, changes []Change) bool {
	switch status.Code(d.setErr) {
	case codes.InvalidArgument, codes.Unimplemented, codes.Unknown, codes.Internal, codes.Aborted:
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
		case rewritten(p.Changes, s):
			p.Late = false
			return unproved, "the device has made another value of what was set: " + remade(p.Changes)
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
		case d.setErr != nil && !any:
			return unproved, "the device has not carried out the change in time: " + status.Convert(d.setErr).Message()
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
	s, err := c.read(ctx)
	if err != nil {
		return begin, err.Error()
	}
	back := undo(p.Changes, s)
	if len(back) > 0 {
		d.suspend(p.Changes)
	}
	if p.Commit != "" {
		if err := c.cancel(ctx, p.Commit); status.Code(err) == codes.Unavailable {
			return begin, err.Error()
		}
		if s, err = c.read(ctx); err != nil {
			return begin, err.Error()
		}
		back = undo(p.Changes, s)
	}
	if len(back) > 0 {
		setErr := d.set(ctx, c, back, "")
		if s, err = c.read(ctx); err != nil {
			return begin, err.Error()
		}
		left := slices.DeleteFunc(undo(p.Changes, s), func(b Change) bool { return holds(b, *b.Before, true) })
		if len(left) > 0 {
			return begin, fmt.Sprintf("%s still has what the collector wrote: %v", left[0].Path, setErr)
		}
	}
	d.left = foreign(p.Changes, s)
	if late := p.Started.Add(d.times.Late); p.Late && d.deps.Now().Before(late) {
		return begin, fmt.Sprintf("%s; the device may carry out the Set late, so it is read again until %s", p.Failure,
			late.Format(time.TimeOnly))
	}
	return proved, ""
}
