// SPDX-License-Identifier: Apache-2.0

package devconfig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/collector/southbound"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

var modes = map[string]bool{"with commits": true, "without commits": false}

// String returns the event's description.
func (e event) String() string {
	return [events]string{
		foundClean:      "the device is as the file says",
		foundDifference: "the device differs from the file",
		foundRefusal:    "a leaf is refused",
		unreadable:      "the device cannot be read",
		begin:           "a change begins",
		revertedAgain:   "somebody else has taken changes back too often",
		answered:        "the Set is over, with an answer or without",
		proved:          "the step has proved what it is for",
		disproved:       "the step has found the opposite",
		unproved:        "the time of the step is over",
		broken:          "the connection with the device has ended",
		restarted:       "the collector has started again",
	}[e]
}

// A change is proved in this order, over one connection. Any other course of events undoes it.
// After a crash, only a change that was already proved is confirmed.
func TestTransitions(t *testing.T) {
	order := []State{Setting, ReadingBack, AwaitingState, Connecting, Confirming}
	for i, s := range order {
		if i > 0 && order[i-1].next(proved) != s && order[i-1].next(answered) != s {
			t.Errorf("%s does not lead to %s", order[i-1], s)
		}
		for e := range event(events) {
			next := s.next(e)
			switch {
			case next == s, next == Undoing, i+1 < len(order) && next == order[i+1], s == Confirming && e == proved &&
				next == Clean:
			default:
				t.Errorf("%s: after %q, %s", s, e, next)
			}
		}
		if want := map[bool]State{true: Confirming, false: Undoing}[s == Confirming]; s.next(restarted) != want ||
			s.next(broken) != want {
			t.Errorf("%s: after a crash %s, after a lost connection %s; expected %s", s, s.next(restarted), s.next(broken), want)
		}
	}
	for e := range transitions {
		for from, to := range transitions[e] {
			if to == Clean && from.transaction() && from != Confirming {
				t.Errorf("%s becomes %s without a confirmation", from, to)
			}
		}
	}
}

func TestApply(t *testing.T) {
	for name, commits := range modes {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newFake(t), config.ConfigureApply)
			r.device.commits = commits
			before := r.device.all()
			var mu sync.Mutex
			var seen DeviceStatus // at the newest OnChange
			r.onChange = func() {
				s, _ := r.Status("leaf1")
				mu.Lock()
				defer mu.Unlock()
				seen = s
			}
			r.start()
			testkit.Until(t, "the P4Runtime session may open", func() bool { return !r.sessions.closed() })
			p := r.plan()
			if len(p.Changes) != 5 || p.Refused() || len(r.device.sets) != 0 {
				t.Fatalf("plan\n%s%d Sets", shown(p), len(r.device.sets))
			}
			if err := r.apply(); err != nil {
				t.Fatal(err)
			}
			r.expect(settled())
			if log := r.sessions.log; !slices.Equal(log, []string{"suspend", "resume", "suspend", "resume"}) {
				t.Errorf("the P4Runtime session: %q", log)
			}
			if r.device.commit != "" {
				t.Error("the commit is not confirmed")
			}
			mu.Lock()
			if seen.State != Clean || len(seen.Leaves) != 6 || slices.ContainsFunc(seen.Leaves,
				func(l LeafState) bool { return l.Status != InEffect }) {
				t.Errorf("published is %+v", seen)
			}
			mu.Unlock()
			if err := r.apply(); err == nil || !strings.Contains(err.Error(), "is carried out already") {
				t.Errorf("the plan again: %v", err)
			}
			r.Stop() // a collector that starts later knows what to restore
			r.start()
			if restored, err := r.Revert(t.Context(), "leaf1"); err != nil || !restored {
				t.Fatal(restored, err)
			}
			r.expect(before)
			if restored, err := r.Revert(t.Context(), "leaf1"); err != nil || restored {
				t.Errorf("revert again: restored %v, error %v", restored, err)
			}
			if rec := r.record(); len(rec.Written) != 0 || rec.Pending != nil {
				t.Errorf("record %+v", rec)
			}
		})
	}
}

func TestApplyRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*rig)
		want    string
	}{
		"mode check": {func(r *rig) { r.cfg.Devices[0].GNMI.Configure = config.ConfigureCheck },
			"gnmi.configure is check; write apply"},
		"another collector": {func(r *rig) { r.owner = "c2" }, "belongs to c2; run the command there"},
		"a foreign id":      {func(r *rig) { r.device.put(node, "9") }, "somebody else has set 9"},
		"a pending commit": {func(r *rig) { r.device.commits, r.device.commit = true, "theirs" },
			"commit of somebody else that is pending"},
		"an unknown port": {func(r *rig) { r.cfg.Devices[0].GNMI.Ports[0].Interface = "Ethernet5" },
			"no interface \"Ethernet5\""},
		"a read-only server": {func(r *rig) { r.device.fault = readOnly },
			"the device refuses the change: Set is not served"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newFake(t), config.ConfigureApply)
			c.prepare(r)
			before := r.device.all()
			r.build()
			if err := r.Start(); err != nil {
				t.Fatal(err)
			}
			defer r.Stop()
			if err := r.apply(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; expected %q", err, c.want)
			}
			r.expect(before)
			if n := len(r.device.sets); n > 0 && name != "a read-only server" {
				t.Errorf("%d Sets are sent", n)
			}
			if rec := r.record(); rec.Pending != nil || len(rec.Written) > 0 {
				t.Errorf("record %+v", rec)
			}
		})
	}
}

func readOnly(int) (float64, error) { return 0, status.Error(codes.Unimplemented, "Set is not served") }

// A plan that is out of date is not carried out, whatever has changed.
func TestApplyChangedSince(t *testing.T) {
	r := newRig(t, newFake(t), config.ConfigureApply).start()
	digest := r.plan().Digest
	r.device.put(eth4+"description", "changed meanwhile")
	if _, err := r.Apply(t.Context(), digest); err == nil || !strings.Contains(err.Error(), "has changed since") {
		t.Errorf("error %v", err)
	}
	if len(r.device.sets) != 0 {
		t.Error("the device was set")
	}
}

// The device fails in the middle of a change: at the end it has either all changes or its earlier
// values.
func TestFaults(t *testing.T) {
	first := func(effect float64, err error) func(int) (float64, error) {
		return func(n int) (float64, error) {
			if n == 1 {
				return effect, err
			}
			return 1, nil
		}
	}
	internal := status.Error(codes.Internal, "fault")
	for name, c := range map[string]struct {
		fault   func(int) (float64, error)
		prepare func(*rig)
		want    string // of the error; "" if the change is made
	}{
		"OK without effect": {fault: first(0, nil),
			want: "has answered OK, and its configuration does not have the change"},
		"OK with half of it":    {fault: first(0.5, nil), want: "carried out a part of the change only"},
		"error with effect":     {fault: first(1, internal)},
		"error with half of it": {fault: first(0.5, internal), want: "carried out a part of the change only"},
		"error": {fault: func(n int) (float64, error) {
			if n <= 2*forms { // each form of values, with a commit and without
				return 0, internal
			}
			return 1, nil
		}, want: "the device refuses the change: fault"},
		"hangs":             {fault: first(0, errHang), want: "has not carried out the change in time"},
		"hangs with effect": {fault: first(1, errHang)},
		"state does not follow": {prepare: func(r *rig) {
			r.device.dead[strings.Replace(eth0, "config", "state",
				1)+"id"] = true
		},
			want: "state/id does not follow the configuration"},
		"P4Runtime does not connect": {prepare: func(r *rig) { r.sessions.refuse = errors.New("refused") },
			want: "P4Runtime does not connect within 200ms: refused"},
		"connection closed by the Set": {prepare: func(r *rig) {
			r.device.onSet = func(n int) {
				if n == 1 {
					config := r.device.all()
					go r.device.server.Stop()
					r.device.restartLater(r.t, config)
				}
			}
		}, want: "tried again"},
		"restart with the new configuration": {prepare: restartAt(Connecting,
			func(r *rig) map[string]string { return r.device.all() }),
			want: "the connection with the device has ended during the change"},
		"restart with the old configuration": {prepare: restartAt(Connecting,
			func(*rig) map[string]string { return oldConfig() }),
			want: "P4Runtime does not connect within 200ms: Switch does not have a Device ID"},
		"somebody else takes it back": {prepare: func(r *rig) {
			r.onChange = when(r, AwaitingState, func() { r.device.put(eth0+"id", "8") })
		}, want: "somebody else has changed the configuration meanwhile"},
	} {
		for mode, commits := range modes {
			t.Run(name+" "+mode, func(t *testing.T) {
				r := newRig(t, newFake(t), config.ConfigureApply)
				r.cfg.Devices[0].Timeout = 300 * time.Millisecond
				r.device.commits, r.device.fault = commits, c.fault
				if c.prepare != nil {
					c.prepare(r)
				}
				r.cfg.DeviceConfiguration.Interval = 20 * time.Millisecond
				r.start()
				err := r.apply()
				if c.want == "" {
					if err != nil {
						t.Fatal(err)
					}
					r.expect(settled())
					return
				}
				if err == nil {
					t.Fatalf("the change is made; expected an error with %q", c.want)
				}
				if c.want != "tried again" && !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v; expected %q", err, c.want)
				}
				r.undone()
				want := oldConfig()
				if name == "somebody else takes it back" && !commits {
					want[eth0+"id"] = "8" // a value of somebody else is not restored
				}
				r.expect(want)
				if r.record().Failure == "" {
					t.Error("the record has no failure")
				}
			})
		}
	}
}

// A change is not reported as in effect if somebody else changes a leaf after the device has shown
// the new value.
func TestChangedAfterTheProof(t *testing.T) {
	for name, commits := range modes {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newFake(t), config.ConfigureApply)
			r.device.commits = commits
			r.onChange = when(r, Confirming, func() { r.device.put(eth0+"enabled", "false") })
			r.start()
			if err := r.apply(); err == nil || !strings.Contains(err.Error(), "has taken the change, and is DIFFERS since") {
				t.Errorf("error %v", err)
			}
			if rec := r.record(); rec.Pending != nil || rec.Written[eth0+"enabled"].Value != "true" {
				t.Errorf("record %+v", rec)
			}
		})
	}
}

// undone waits until no change is in progress.
func (r *rig) undone() {
	r.t.Helper()
	testkit.Until(r.t, "the change is over", func() bool {
		r.pass(time.Minute)
		r.Wake("leaf1")
		return r.record().Pending == nil
	})
}

func oldConfig() map[string]string {
	return map[string]string{eth0 + "enabled": "false", eth4 + "enabled": "true"}
}

// when calls f once, when a state begins.
func when(r *rig, state State, f func()) func() {
	var once sync.Once
	return func() {
		if s, _ := r.Status("leaf1"); s.State == state {
			once.Do(f)
		}
	}
}

func restartAt(state State, config func(*rig) map[string]string) func(*rig) {
	return func(r *rig) { r.onChange = when(r, state, func() { r.device.restart(r.t, config(r)) }) }
}

// restartLater starts the server again when it has stopped.
func (f *fake) restartLater(t *testing.T, config map[string]string) {
	server := f.server
	go func() {
		server.Stop()
		f.start(t, f.addr)
	}()
}

// A collector is killed between any two steps of a change, while the device has done any part of
// its work. The next collector finishes: the device has either all changes or its earlier values.
func TestKilled(t *testing.T) {
	for name, commits := range modes {
		t.Run(name, func(t *testing.T) {
			type moment struct {
				state  State
				dir    string
				config map[string]string
				commit string
				saved  map[string]string
			}
			var moments []moment
			r := newRig(t, newFake(t), config.ConfigureApply)
			r.device.commits = commits
			keep := func(state State) {
				r.device.mu.Lock()
				defer r.device.mu.Unlock()
				m := moment{state, t.TempDir(), maps.Clone(r.device.config), r.device.commit, maps.Clone(r.device.saved)}
				copyDir(t, r.dir, m.dir)
				moments = append(moments, m)
			}
			r.onChange = func() {
				s, _ := r.Status("leaf1")
				keep(s.State)
			}
			r.device.onSet = func(int) { keep(Setting) }
			r.start()
			if err := r.apply(); err != nil {
				t.Fatal(err)
			}
			// The device has received the confirmation, and the collector is killed before it
			// knows.
			for _, m := range moments {
				if m.state == Confirming {
					m.commit, m.saved = "", nil
					moments = append(moments, m)
					break
				}
			}
			if len(moments) < 7 {
				t.Fatalf("%d moments", len(moments))
			}
			for _, m := range moments {
				for _, rolledBack := range []bool{false, true} {
					if rolledBack && m.commit == "" {
						continue
					}
					t.Run(string(m.state), func(t *testing.T) {
						next := newRig(t, newFake(t), config.ConfigureApply)
						next.device.commits, next.device.config, next.device.commit = commits, maps.Clone(m.config), m.commit
						next.device.saved = maps.Clone(m.saved)
						if rolledBack { // the device has waited for the confirmation in vain
							next.device.config, next.device.commit = maps.Clone(m.saved), ""
						}
						copyDir(t, m.dir, next.dir)
						next.start()
						next.undone()
						if (m.state == Confirming || m.state == Clean) && !rolledBack {
							next.expect(settled())
						} else {
							next.expect(oldConfig())
						}
						if next.device.commit != "" {
							t.Error("a commit is pending")
						}
					})
				}
			}
		})
	}
}

// The device restarts while a change is undone.
func TestRestartDuringUndo(t *testing.T) {
	r := newRig(t, newFake(t), config.ConfigureApply)
	r.sessions.refuse = errors.New("refused")
	r.cfg.DeviceConfiguration.Interval = 20 * time.Millisecond
	r.onChange = when(r, Undoing, func() { r.device.restart(t, r.device.all()) })
	r.start()
	if err := r.apply(); err == nil {
		t.Fatal("the change is made")
	}
	r.undone()
	r.expect(oldConfig())
}

// Values are written in a form that the device accepts. The next Set tries this form first.
func TestForms(t *testing.T) {
	for f := range form(forms) {
		r := newRig(t, newFake(t), config.ConfigureApply)
		r.device.form = f
		r.start()
		if err := r.apply(); err != nil {
			t.Fatalf("form %d: %v", f, err)
		}
		r.expect(settled())
		n := len(r.device.sets)
		if _, err := r.Revert(t.Context(), "leaf1"); err != nil || len(r.device.sets) != n+1 {
			t.Errorf("form %d: error %v, %d more Sets", f, err, len(r.device.sets)-n)
		}
		r.Stop()
	}
}

func TestEnforce(t *testing.T) {
	r := newRig(t, newFake(t), config.ConfigureEnforce)
	r.cfg.DeviceConfiguration.Interval = 10 * time.Millisecond
	r.start()
	for range maxReverts {
		r.until(Clean)
		r.expect(settled())
		r.device.put(eth0+"enabled", "false")
		r.Wake("leaf1")
		r.leaves(Clean)
	}
	r.until(Ended)
	if s, _ := r.Status("leaf1"); !strings.Contains(s.Reason, eth0+"enabled back 3 times within 1h0m0s; find out who") {
		t.Errorf("reason %q", s.Reason)
	}
	if r.device.get(eth0+"enabled") != "false" {
		t.Error("the port is set again")
	}
	r.Stop()
	r.start() // the next collector knows the form from the record
	r.until(Ended)
	if err := r.apply(); err != nil {
		t.Fatal(err)
	}
	r.expect(settled())
	if rec := r.record(); rec.Ended || len(rec.Reverts) != 0 {
		t.Errorf("record %+v", rec)
	}
	if _, err := r.Revert(t.Context(), "leaf1"); err != nil {
		t.Fatal(err)
	}
	r.until(Ended)
	r.expect(oldConfig())
}

// leaves waits until the device is in another state, or has been set again.
func (r *rig) leaves(s State) {
	r.t.Helper()
	n := len(r.device.setsNow())
	testkit.Until(r.t, "another state than "+string(s), func() bool {
		now, _ := r.Status("leaf1")
		return now.State != s || len(r.device.setsNow()) > n
	})
}

func (f *fake) setsNow() []*gpb.SetRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sets
}

// A removed key restores the leaf if it still holds the collector's value.
func TestReload(t *testing.T) {
	r := newRig(t, newFake(t), config.ConfigureEnforce).start()
	r.until(Clean)
	next := *r.cfg
	next.Devices = slices.Clone(next.Devices)
	next.Devices[0].GNMI.Ports = next.Devices[0].GNMI.Ports[:1]
	r.Reload(&next)
	want := settled()
	delete(want, eth4+"id")
	delete(want, eth4+"description")
	testkit.Until(t, "the removed keys are restored", func() bool {
		s, _ := r.Status("leaf1")
		return s.State == Clean && r.device.get(eth4+"id") == ""
	})
	r.expect(want)
}

// A collector that becomes the owner of a device later configures it then.
func TestOwnerLater(t *testing.T) {
	r := newRig(t, newFake(t), config.ConfigureEnforce)
	r.owner = "c2"
	r.start()
	testkit.Until(t, "the owner is known", func() bool {
		s, _ := r.Status("leaf1")
		return s.Reason == "c2 has the device"
	})
	if len(r.device.setsNow()) > 0 {
		t.Error("the device is set")
	}
	r.own("")
	r.until(Clean)
	r.expect(settled())
}

// Two collectors do not share a directory, and do not take the same device from each other.
func TestTwoCollectors(t *testing.T) {
	device := newFake(t)
	a := newRig(t, device, config.ConfigureEnforce).start()
	a.until(Clean)
	b := newRig(t, device, config.ConfigureEnforce)
	b.cfg.DeviceConfiguration.Directory = a.dir
	b.build()
	if err := b.Start(); err == nil || !strings.Contains(err.Error(), "is used by another collector") {
		t.Errorf("error %v", err)
	}
	b.Stop()
	b = newRig(t, device, config.ConfigureEnforce)
	b.cfg.Devices[0].DeviceID = 5
	b.start()
	b.until(Blocked)
	if s, _ := b.Status("leaf1"); !strings.Contains(s.Reason, "somebody else has set 1") {
		t.Errorf("reason %q", s.Reason)
	}
	b.expect(settled())
}

// Commands reach the collector over its socket, and say so if there is none.
func TestCommands(t *testing.T) {
	r := newRig(t, newFake(t), config.ConfigureApply)
	if _, err := Call(t.Context(), r.dir, Request{Command: "plan"}); !errors.Is(err, ErrNoCollector) {
		t.Errorf("without a collector: %v", err)
	}
	r.start()
	do := func(request Request) Reply {
		t.Helper()
		reply, err := Call(t.Context(), r.dir, request)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	plan := do(Request{Command: "plan", Devices: []string{"leaf1"}})
	if len(plan.Plans) != 1 || plan.Plans[0].Digest == "" {
		t.Fatalf("%+v", plan)
	}
	if got := do(Request{Command: "plan", Devices: []string{"leaf"}}); !strings.Contains(got.Error,
		"did you mean leaf1?") {
		t.Errorf("%+v", got)
	}
	if got := do(Request{Command: "apply", Digest: plan.Plans[0].Digest}); !slices.Equal(got.Applied, []string{"leaf1"}) {
		t.Errorf("%+v", got)
	}
	if got := do(Request{Command: "revert", Devices: []string{"leaf1"}}); got.Error != "" {
		t.Errorf("%+v", got)
	}
	r.expect(oldConfig())
	if got := do(Request{Command: "reboot"}); got.Error == "" {
		t.Errorf("%+v", got)
	}
}

// The probe for commits finds them supported, but the device refuses every Set with an extension.
// It is set without the extension.
func TestNoExtensions(t *testing.T) {
	r := newRig(t, newFake(t), config.ConfigureApply)
	r.device.extensions = status.Error(codes.InvalidArgument, "extensions are not taken")
	r.start()
	if err := r.apply(); err != nil {
		t.Fatal(err)
	}
	r.expect(settled())
}

// A device is read and set in the form in which it sends values, which is the form of its gNMI
// session or is found by trying.
func TestFormOfRequests(t *testing.T) {
	sonic := southbound.Form{Origin: "openconfig", Wildcards: true, Target: "OC-YANG", Encoding: gpb.Encoding_JSON_IETF}
	junos := southbound.Form{Origin: "openconfig", Wildcards: true, Encoding: gpb.Encoding_PROTO}
	for _, want := range []southbound.Form{sonic, junos, {Encoding: gpb.Encoding_JSON_IETF}} {
		t.Run(want.String(), func(t *testing.T) {
			r := newRig(t, newFake(t), config.ConfigureApply)
			r.device.serves = func(l *gpb.SubscriptionList) bool {
				p := l.GetSubscription()[0].GetPath()
				return want == southbound.Form{Origin: p.GetOrigin(), Wildcards: len(p.GetElem()[1].GetKey()) > 0,
					Target: l.GetPrefix().GetTarget(), Encoding: l.GetEncoding()}
			}
			r.form = func(string) (southbound.Form, bool) { return want, true }
			r.start()
			if r.plan(); r.device.subscribed > 2 {
				t.Errorf("%d subscriptions for two plans", r.device.subscribed)
			}
			r.Stop()
			r.form = nil
			r.start()
			if err := r.apply(); err != nil {
				t.Fatal(err)
			}
			r.expect(settled())
			set := r.device.setsNow()[0]
			if o := set.GetUpdate()[0].GetPath().GetOrigin(); o != want.Origin || set.GetPrefix().GetTarget() != want.Target {
				t.Errorf("the Set has the origin %q and the target %q", o, set.GetPrefix().GetTarget())
			}
		})
	}
}

// NX-OS sends the sync_response of a ONCE subscription before its values. Other servers leave the
// stream open.
func TestEarlySync(t *testing.T) {
	for _, open := range []bool{false, true} {
		r := newRig(t, newFake(t), config.ConfigureApply)
		r.device.early, r.device.open = !open, open
		r.start()
		for _, d := range r.devices {
			if d.times.AfterSync = time.Minute; open {
				d.times.AfterSync = time.Millisecond
			}
		}
		if p := r.plan(); p.Error != "" || len(p.Changes) != 5 {
			t.Errorf("stream left open: %v: plan\n%s%s", open, shown(p), p.Error)
		}
		r.Stop()
	}
}

// A device that reports too much is not read, and says why.
func TestHostileDevice(t *testing.T) {
	r := newRig(t, newFake(t), config.ConfigureEnforce)
	r.device.put(eth0+"description", strings.Repeat("x", 60<<20))
	r.cfg.Devices[0].Timeout = time.Minute
	r.start()
	r.until(Unread)
	testkit.Until(t, "the reason is known", func() bool {
		s, _ := r.Status("leaf1")
		return strings.Contains(s.Reason, "larger than max")
	})
	for i := range 200_000 {
		r.device.interfaces = append(r.device.interfaces, fmt.Sprint("Ethernet", 100+i))
	}
	r.device.put(eth0+"description", "")
	if p := r.plan(); p.Error != "" || len(p.Changes) != 5 {
		t.Errorf("200,000 interfaces: %d changes, error %q", len(p.Changes), p.Error)
	}
	s := NewSnapshot()
	s.leaves = maxLeaves
	err := s.add(testSchema(), &gpb.Notification{Update: []*gpb.Update{{Path: gnmiPath(eth0 + "enabled"),
		Val: &gpb.TypedValue{Value: &gpb.TypedValue_BoolVal{BoolVal: true}}}}})
	if err == nil || !strings.Contains(err.Error(), "more than 500000 leaves") {
		t.Errorf("error %v", err)
	}
}

// A directory whose socket would have too long a path is refused at the start.
func TestLongDirectory(t *testing.T) {
	r := newRig(t, newFake(t), config.ConfigureApply)
	r.cfg.DeviceConfiguration.Directory = filepath.Join(r.dir, strings.Repeat("x", 100))
	r.build()
	if err := r.Start(); err == nil || !strings.Contains(err.Error(), "choose a shorter directory") {
		t.Errorf("error %v", err)
	}
	r.Stop()
}

// A reload ends the change in progress; the device of the new configuration undoes it.
func TestReloadDuringChange(t *testing.T) {
	r := newRig(t, newFake(t), config.ConfigureApply)
	r.sessions.refuse = errors.New("refused")
	r.start()
	r.times.Session = time.Hour
	for _, d := range r.devices {
		d.times.Session = time.Hour
	}
	digest, over := r.plan().Digest, make(chan error, 1)
	go func() {
		_, err := r.Apply(context.Background(), digest)
		over <- err
	}()
	r.until(Connecting)
	next := *r.cfg
	next.Devices = slices.Clone(next.Devices)
	next.Devices[0].GNMI.Ports = next.Devices[0].GNMI.Ports[:1]
	r.Reload(&next)
	if err := <-over; err == nil {
		t.Error("the change is made")
	}
	r.undone()
	r.expect(oldConfig())
}

// In a mode that sets the device, the P4Runtime session opens when the device's disabled ports are
// known, or after a time limit. In mode enforce, it opens only after the device has also been set.
// A reload delays the sessions of changed devices only.
func TestSessionWaits(t *testing.T) {
	r := newRig(t, newFake(t), config.ConfigureCheck).start()
	if len(r.sessions.log) > 0 {
		t.Errorf("mode check: %q", r.sessions.log)
	}
	for _, mode := range []config.Configure{config.ConfigureApply, config.ConfigureEnforce} {
		t.Run(string(mode), func(t *testing.T) {
			r := newRig(t, newFake(t), mode)
			asked, known, once := make(chan struct{}), make(chan struct{}), sync.Once{}
			r.known = func(ctx context.Context, _ string) {
				once.Do(func() { close(asked) })
				select {
				case <-known:
				case <-ctx.Done():
				}
			}
			r.start()
			<-asked
			if !r.sessions.closed() || len(r.device.setsNow()) > 0 {
				t.Errorf("the session is closed: %v; %d Sets", r.sessions.closed(), len(r.device.setsNow()))
			}
			close(known)
			testkit.Until(t, "the session to open", func() bool { return !r.sessions.closed() })
			if n := len(r.device.setsNow()); n > 0 != (mode == config.ConfigureEnforce) {
				t.Errorf("%d Sets before the session opens", n)
			}
			if mode == config.ConfigureEnforce {
				r.until(Clean)
			}
			next := *r.cfg
			next.Links = append(slices.Clone(next.Links), config.Link{From: config.PortRef{Switch: "leaf1", Port: 2},
				To: config.PortRef{Switch: "x", Port: 2}}, config.Link{From: config.PortRef{Switch: "leaf1", Port: 3},
				To: config.PortRef{Switch: "x", Port: 3}})
			n := r.sessions.count()
			r.Reload(&next)
			if r.sessions.count() != n {
				t.Errorf("a new link: %q", r.sessions.log)
			}
			again := next
			again.Devices = slices.Clone(next.Devices)
			again.Devices[0].Timeout++
			r.Reload(&again)
			if r.sessions.count() == n {
				t.Error("a changed device: the session does not wait")
			}
			testkit.Until(t, "the session to open", func() bool { return !r.sessions.closed() })
		})
	}
	late := newRig(t, newFake(t), config.ConfigureApply)
	late.known = func(ctx context.Context, _ string) { <-ctx.Done() }
	late.start()
	testkit.Until(t, "the session to open after a while", func() bool { return !late.sessions.closed() })
}

// A Set that the device refuses, because it still sees the P4Runtime session that was just closed,
// is sent again.
func TestSessionCloses(t *testing.T) {
	r := newRig(t, newFake(t), config.ConfigureApply)
	r.device.fault = func(n int) (float64, error) {
		if n < 3 {
			return 0, status.Error(codes.FailedPrecondition, "a controller is connected")
		}
		return 1, nil
	}
	r.start()
	if err := r.apply(); err != nil {
		t.Fatal(err)
	}
	r.expect(settled())
}

// A record that is no regular file is refused: opening a pipe would wait for a writer for good.
func TestRecordIsAPipe(t *testing.T) {
	dir := records(t.TempDir())
	if err := syscall.Mkfifo(dir.path("leaf1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := dir.Load(t.Context(), "leaf1"); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("error %v", err)
	}
}
