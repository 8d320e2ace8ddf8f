// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/internal/test/fakeswitch"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const counters = "ingress.univmon_src.counters"

func program(tb testing.TB, name string) *p4rt.Program {
	tb.Helper()
	p, err := compiled.Load(name)
	if err != nil {
		tb.Fatal(err)
	}
	return &p4rt.Program{Name: p.Name, DeviceConfig: p.JSON, P4Info: p.P4Info}
}

// start connects a device to a fake switch.
func start(t *testing.T, change func(*device.Config)) (*device.Device, *fakeswitch.Switch, *testkit.Log) {
	t.Helper()
	p := program(t, "univmon-300k")
	sw := fakeswitch.Start(t, p.P4Info)
	log := &testkit.Log{}
	cfg := device.Config{
		Name: "s1", Role: "edge",
		Session: p4rt.Config{
			Target: sw.Address, DeviceID: 1, Program: p, CallTimeout: 5 * time.Second,
			ReadoutTimeout: 200 * time.Millisecond,
			Backoff:        p4rt.Backoff{Min: time.Millisecond, Max: 20 * time.Millisecond},
		},
	}
	if change != nil {
		change(&cfg)
	}
	d, err := device.New(cfg, device.Dependencies{Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, sw, log
}

func ready(t *testing.T, d *device.Device) banks.Incarnation {
	t.Helper()
	var inc banks.Incarnation
	testkit.Until(t, "device is ready", func() bool {
		var err error
		inc, err = d.Ready()
		return err == nil
	})
	return inc
}

// logged waits until the log contains a text n times. The log line follows the change of the
// session, so a test must wait for it.
func logged(t *testing.T, log *testkit.Log, text string, n int) {
	t.Helper()
	testkit.Until(t, fmt.Sprintf("the log has %q %d times", text, n), func() bool {
		return strings.Count(log.String(), text) == n
	})
}

func TestFlipAndReadOut(t *testing.T) {
	d, sw, log := start(t, nil)
	if inc := ready(t, d); !inc.Clean {
		t.Error("the pipeline was pushed, and the registers are not clean")
	}
	ctx := context.Background()
	sw.Count(counters, 5, 7)
	if err := d.Flip(ctx, 1); err != nil || sw.Bank() != 1 {
		t.Fatalf("bank %d, error %v", sw.Bank(), err)
	}
	sw.Count(counters, 6, 9)
	for i, want := range []uint64{7, 0} {
		r, err := d.Read(ctx, 0, drained)
		if err != nil {
			t.Fatal(err)
		}
		data := sdk.DeviceData{Name: "s1", Objects: r.Objects}
		if got := data.Object(counters).At(5); got != want {
			t.Errorf("read %d gives %d, want %d", i+1, got, want)
		}
		if got := data.Object(counters).At(6); got != 0 {
			t.Errorf("bank 0 has %d packets that were counted in bank 1", got)
		}
	}
	objects := d.Objects()
	if len(objects) != 5 || objects[0].Name != "ingress.univmon_5t.counters" || objects[0].Banks != 2 ||
		objects[0].Annotations["netsketch_univmon"]["key"] != "5-tuple" {
		t.Errorf("objects %+v", objects)
	}
	st := d.Status()
	if st.Session.State != p4rt.Ready || !st.Capabilities.PacketReadout || st.LastError != "" || st.ReadTime == 0 ||
		st.FlipTime == 0 {
		t.Errorf("status %+v", st)
	}
	logged(t, log, "session is up", 1)
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines in the log, want 1:\n%s", n, log)
	}
}

func TestOnlySelectedObjectsAreRead(t *testing.T) {
	d, _, _ := start(t, nil)
	d.SelectObjects([]string{counters})
	before := ready(t, d)
	r, err := d.Read(context.Background(), 0, drained)
	if err != nil || len(r.Objects) != 1 || r.Objects[0].Object != counters || r.Cells() != r.Objects[0].Len() {
		t.Fatalf("%v %+v", err, r)
	}
	d.SelectObjects([]string{})
	if after := ready(t, d); after != before {
		t.Error("reading less begins a new incarnation")
	}
	d.SelectObjects([]string{counters})
	if after := ready(t, d); after.ID == before.ID || after.Clean {
		t.Error("reading more does not begin a new incarnation with unknown banks")
	}
}

// Epochs share a bank only if the program numbers intervals by banks.
func TestBankEpochs(t *testing.T) {
	for name, want := range map[string]struct{ banks, bank uint64 }{"lightguardian": {1024, 2}, "univmon-300k": {2, 1}} {
		p := program(t, name)
		sw := fakeswitch.Start(t, p.P4Info)
		d, _, _ := start(t, func(c *device.Config) { c.Session.Target, c.Session.Program = sw.Address, p })
		before := ready(t, d)
		d.SetBankEpochs(4)
		after := ready(t, d)
		if n := d.Banks(); n != int(want.banks) || (after.ID != before.ID) != (n > 2) {
			t.Errorf("%s: %d banks, incarnation %v after %v", name, n, after, before)
		}
		if err := d.Flip(t.Context(), int(min(want.banks-1, 11))); err != nil || sw.Bank() != want.bank {
			t.Errorf("%s: bank %d, error %v", name, sw.Bank(), err)
		}
		d.SetBankEpochs(4)
		if again := ready(t, d); again != after {
			t.Errorf("%s: the same number begins incarnation %v after %v", name, again, after)
		}
	}
}

func TestRebootIsANewIncarnation(t *testing.T) {
	d, sw, _ := start(t, nil)
	before := ready(t, d)
	sw.Reboot()
	testkit.Until(t, "the switch has its pipeline again", func() bool {
		inc, err := d.Ready()
		return err == nil && inc.ID != before.ID && inc.Clean && sw.Pushes() == 2
	})
}

func TestDroppedStreamIsANewIncarnationWithUnknownBanks(t *testing.T) {
	d, sw, log := start(t, nil)
	before := ready(t, d)
	logged(t, log, "session is", 1)
	sw.Drop(status.Error(codes.Unavailable, "gone"))
	testkit.Until(t, "the session is back", func() bool {
		inc, err := d.Ready()
		return err == nil && inc.ID != before.ID && !inc.Clean
	})
	if sw.Pushes() != 1 {
		t.Errorf("%d pushes", sw.Pushes())
	}
	logged(t, log, "session is", 3)
}

func TestFaults(t *testing.T) {
	for name, test := range map[string]struct {
		faults fakeswitch.Faults
		op     func(context.Context, *device.Device) error
		want   string
	}{
		"stream dropped in mid-read": {fakeswitch.Faults{DropAfter: 3}, read, "session lost"},
		"replies lost":               {fakeswitch.Faults{LoseReplies: 10}, read, "lost cells"},
		"garbage":                    {fakeswitch.Faults{Garbage: true}, read, "reply of 17 bytes"},
		"write refused": {fakeswitch.Faults{RefuseWrite: status.Error(codes.Internal, "broken driver")},
			flip, "broken driver"},
		"write hangs": {fakeswitch.Faults{HangWrite: true}, flip, "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			d, sw, _ := start(t, nil)
			ready(t, d)
			sw.SetFaults(test.faults)
			limit := time.Minute
			if test.want == "deadline" {
				limit = time.Second
			}
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			err := test.op(ctx, d)
			if err == nil || !strings.Contains(strings.ToLower(err.Error()), test.want) {
				t.Errorf("error %v, want %q in it", err, test.want)
			}
			if st := d.Status(); st.LastError == "" {
				t.Error("the error is not in the status")
			}
			sw.SetFaults(fakeswitch.Faults{})
			testkit.Until(t, "the device works again", func() bool {
				_, err := d.Ready()
				return err == nil && test.op(context.Background(), d) == nil
			})
		})
	}
}

// drained is an epoch.Drained for a network without packets in flight.
func drained(context.Context) error { return nil }

func read(ctx context.Context, d *device.Device) error { _, err := d.Read(ctx, 0, drained); return err }
func flip(ctx context.Context, d *device.Device) error { return d.Flip(ctx, 1) }

func TestPipelineRefused(t *testing.T) {
	p := program(t, "univmon-300k")
	sw := fakeswitch.Start(t, p.P4Info)
	sw.SetFaults(fakeswitch.Faults{RefusePipeline: status.Error(codes.InvalidArgument, "not for this chip")})
	log := &testkit.Log{}
	d, err := device.New(device.Config{
		Name: "s1",
		Session: p4rt.Config{Target: sw.Address, DeviceID: 1, Program: p,
			Backoff: p4rt.Backoff{Min: time.Millisecond, Max: 2 * time.Millisecond}},
	}, device.Dependencies{Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	testkit.Until(t, "some tries", func() bool { return sw.Refusals() > 5 })
	logged(t, log, "session is down", 1)
	_, err = d.Ready()
	if n := d.Status().Counts.SessionsLost; n != 0 {
		t.Errorf("%d sessions were lost that never began", n)
	}
	if st := d.Status(); !errors.Is(err, p4rt.ErrNotReady) || !strings.Contains(st.LastError, "not for this chip") {
		t.Errorf("error %v, status %+v", err, st)
	}
	if n := strings.Count(log.String(), "session is down"); n != 1 {
		t.Errorf("the log has %d lines, want one:\n%s", n, log)
	}
	sw.SetFaults(fakeswitch.Faults{})
	ready(t, d)
}

func TestMastershipLostAndRegained(t *testing.T) {
	d, sw, log := start(t, nil)
	before := ready(t, d)
	logged(t, log, "session is up", 1)
	if err := sw.Demote(); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "standby", func() bool { return d.Status().Session.State == p4rt.Standby })
	if _, err := d.Ready(); !errors.Is(err, p4rt.ErrNotPrimary) {
		t.Errorf("error %v, want ErrNotPrimary", err)
	}
	if err := d.Flip(context.Background(), 1); !errors.Is(err, p4rt.ErrNotPrimary) || sw.Bank() != 0 {
		t.Errorf("error %v, bank %d", err, sw.Bank())
	}
	logged(t, log, "session is standby", 1)
	if err := sw.Promote(); err != nil {
		t.Fatal(err)
	}
	if inc := ready(t, d); inc.ID == before.ID || inc.Clean {
		t.Errorf("incarnation %+v after %+v: another controller may have changed the banks", inc, before)
	}
	logged(t, log, "session is up", 2)
	if n := strings.Count(log.String(), "pushed=true"); n != 1 || sw.Pushes() != 1 {
		t.Errorf("%d lines about a push, %d pushes:\n%s", n, sw.Pushes(), log)
	}
}

func TestKeepUsesTheProgramOnTheSwitch(t *testing.T) {
	_, sw, _ := start(t, nil)
	testkit.Until(t, "a pipeline is there", func() bool { return sw.Pushes() == 1 })
	d, err := device.New(device.Config{Name: "s1", Session: p4rt.Config{Target: sw.Address, DeviceID: 1}},
		device.Dependencies{})
	if err != nil {
		t.Fatal(err)
	}
	if d.Objects() != nil {
		t.Error("objects before the session")
	}
	if err := d.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if inc := ready(t, d); inc.Clean || len(d.Objects()) != 5 || sw.Pushes() != 1 {
		t.Errorf("incarnation %+v, %d objects, %d pushes", inc, len(d.Objects()), sw.Pushes())
	}
}

func TestProgramsThatDoNotFit(t *testing.T) {
	p := program(t, "forwarding")
	for i, table := range p.P4Info.Tables {
		if table.Preamble.Alias == "bank" {
			p.P4Info.Tables = append(p.P4Info.Tables[:i:i], p.P4Info.Tables[i+1:]...)
			break
		}
	}
	d, err := device.New(device.Config{Name: "s1", Session: p4rt.Config{Target: "x:1", DeviceID: 1, Program: p}},
		device.Dependencies{})
	if err != nil || d.Objects() != nil {
		t.Fatalf("a switch without banks cannot be used: %v", err)
	}
}

// CheckProgram finds faults that would make a program count wrong, before the program runs, and
// names the object and the way out.
func TestCheckProgram(t *testing.T) {
	const cells = "ingress.univmon_5t.counters"
	register := func(change func(*p4configv1.Register)) func(*p4configv1.P4Info) {
		return func(info *p4configv1.P4Info) {
			for _, r := range info.Registers {
				if r.Preamble.Name == cells {
					change(r)
				}
			}
		}
	}
	annotate := func(name, old, new string) func(*p4configv1.P4Info) {
		return func(info *p4configv1.P4Info) {
			change := func(p *p4configv1.Preamble) {
				for _, a := range p.StructuredAnnotations {
					for _, kv := range a.GetKvPairList().GetKvPairs() {
						if a.Name == name && kv.Key == old {
							kv.Key = new
						}
					}
				}
			}
			for _, table := range info.Tables {
				change(table.Preamble)
			}
			for _, r := range info.Registers {
				change(r.Preamble)
			}
		}
	}
	width := func(bits int32) func(*p4configv1.Register) {
		return func(r *p4configv1.Register) { r.TypeSpec.GetBitstring().GetBit().Bitwidth = bits }
	}
	for name, c := range map[string]struct {
		change func(*p4configv1.P4Info)
		want   string
	}{
		"no change": {func(*p4configv1.P4Info) {}, ""},
		"cells between two packets": {register(func(r *p4configv1.Register) { r.Size += 2 * 64 }),
			cells + " has 15680 cells in a bank: a packet reads and clears 256 cells, so the last one would clear cells " +
				"of the next bank; give each bank a multiple, such as 15872"},
		"wide cells": {register(width(64)), cells + " has cells of 64 bits; the read-out carries 1 to 32"},
		"misspelled banks": {annotate("netsketch_readout", "banks", "bank"),
			`has the key "bank"; its keys are object, banks`},
		"misspelled in bank": {annotate("netsketch_bank", "banks", "bnaks"), `has the key "bnaks"; its keys are banks`},
		"other banks": {func(info *p4configv1.P4Info) {
			for _, r := range info.Registers {
				for _, a := range r.Preamble.StructuredAnnotations {
					for _, kv := range a.GetKvPairList().GetKvPairs() {
						if r.Preamble.Name == cells && kv.Key == "banks" {
							kv.Value.Value = &p4configv1.Expression_Int64Value{Int64Value: 4}
						}
					}
				}
			}
		}, `@netsketch_readout: counter "ingress.univmon_5t.counted" does not count packets in 4 cells, one for each bank`},
		"no bank table": {func(info *p4configv1.P4Info) {
			isBank := func(t *p4configv1.Table) bool { return t.Preamble.Alias == "bank" }
			info.Tables = slices.DeleteFunc(info.Tables, isBank)
		}, "can be read (@netsketch_readout), but no table chooses its bank"},
		"misspelled annotation": {register(func(r *p4configv1.Register) {
			r.Preamble.StructuredAnnotations[0].Name = "netsketch_readot"
		}), "register \"" + cells + "\": there is no annotation @netsketch_readot; did you mean @netsketch_readout?"},
		"capital annotation": {register(func(r *p4configv1.Register) {
			r.Preamble.StructuredAnnotations[0].Name = "Netsketch_Readout"
		}), "there is no annotation @Netsketch_Readout; did you mean @netsketch_readout?"},
		"misspelled bank annotation": {func(info *p4configv1.P4Info) {
			for _, table := range info.Tables {
				for _, a := range table.Preamble.StructuredAnnotations {
					a.Name = strings.Replace(a.Name, "_bank", "_banks", 1)
				}
			}
		}, "table \"ingress.bank.bank\": there is no annotation @netsketch_banks; did you mean @netsketch_bank?"},
		"bank annotation on a register": {register(func(r *p4configv1.Register) {
			r.Preamble.Annotations = []string{"@netsketch_bank"}
		}), "register \"" + cells + "\": @netsketch_bank is read on a table; move it there"},
		"readout annotation on a counter": {func(info *p4configv1.P4Info) {
			info.Counters[0].Preamble.Annotations = []string{"@netsketch_readout(object=7)"}
		}, ": @netsketch_readout is read on a register; move it there"},
		"annotation twice": {register(func(r *p4configv1.Register) {
			r.Preamble.Annotations = []string{"@netsketch_readout(object=99, banks=2)"}
		}), cells + "\": it has @netsketch_readout twice; keep one"},
		"drain is no number": {register(func(r *p4configv1.Register) {
			pairs := r.Preamble.StructuredAnnotations[0].GetKvPairList()
			pairs.KvPairs = append(pairs.KvPairs, &p4configv1.KeyValuePair{Key: "drain",
				Value: &p4configv1.Expression{Value: &p4configv1.Expression_StringValue{StringValue: "yes"}}})
		}), cells + ": @netsketch_readout: drain=yes; expected 0 or 1"},
	} {
		p := program(t, "univmon-300k")
		p.P4Info = proto.CloneOf(p.P4Info)
		c.change(p.P4Info)
		err := device.CheckProgram(p)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// A program has nothing to measure if it has no registers, or none with a read-out annotation.
func TestUnmeasured(t *testing.T) {
	forgotten := program(t, "univmon-300k")
	forgotten.P4Info = proto.CloneOf(forgotten.P4Info)
	for _, r := range forgotten.P4Info.Registers {
		r.Preamble.StructuredAnnotations = nil
	}
	for name, c := range map[string]struct {
		program *p4rt.Program
		why     string
	}{
		"registers":              {program(t, "univmon-300k"), ""},
		"numbered intervals":     {program(t, "lightguardian"), ""},
		"forwarding":             {program(t, "forwarding"), "program forwarding has no registers"},
		"registers without read": {forgotten, "no register has @netsketch_readout; its registers are ingress."},
	} {
		why := device.Unmeasured(c.program)
		if (why == nil) != (c.why == "") || why != nil && !strings.Contains(why.Error(), c.why) {
			t.Errorf("%s: %v, want %q", name, why, c.why)
		}
	}
}

// Registers that packets in flight change are read when the network has drained, other registers
// are read before.
func TestReadOutWaitsForTheNetworkToDrain(t *testing.T) {
	p := program(t, "chamelemon")
	sw := fakeswitch.Start(t, p.P4Info)
	d, err := device.New(device.Config{Name: "s1", Session: p4rt.Config{Target: sw.Address, DeviceID: 1, Program: p}},
		device.Dependencies{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ready(t, d)
	const in, out = "ingress.chamelemon.upstream", "chamelemon_downstream"
	sw.Count(in, 7, 1)
	sw.Count(out, 7, 1)
	calls := 0
	r, err := d.Read(context.Background(), 0, func(context.Context) error {
		calls++
		sw.Count(out, 7, 1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for i, o := range r.Objects {
		got[o.Object] = o.At(7)
		if i > 0 && r.Objects[i-1].Object >= o.Object {
			t.Errorf("%s after %s", o.Object, r.Objects[i-1].Object)
		}
	}
	if calls != 1 || len(got) != 6 || got[in] != 1 || got[out] != 2 {
		t.Errorf("%d calls, read %v", calls, got)
	}
	if !d.Measured() {
		t.Error("the switch is not measured")
	}
	// The switch acknowledges a flip, but keeps counting in the previous bank.
	sw.Count(in, 7, 1)
	r, err = d.Read(context.Background(), 0, func(context.Context) error {
		sw.Count(in, 7, 1)
		sw.Count(in, 8, 1)
		return nil
	})
	var inexact *banks.InexactError
	if !errors.As(err, &inexact) || !strings.Contains(err.Error(), "2 packets were counted in bank 0") || r == nil ||
		d.Status().LastError != err.Error() {
		t.Errorf("error %v, last error %q", err, d.Status().LastError)
	}
	if err := d.Flip(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	r, err = d.Read(context.Background(), 0, func(context.Context) error { sw.Count(in, 7, 1); return nil })
	if err != nil || d.Status().LastError != "" {
		t.Errorf("error %v, last error %q of a switch that has flipped", err, d.Status().LastError)
	}
	for _, o := range r.Objects {
		if o.Object == in && (o.At(7) != 1 || o.At(8) != 1) {
			t.Errorf("the late packets are %d and %d in the next reading, want 1 and 1", o.At(7), o.At(8))
		}
	}
	transit, err := device.New(device.Config{Name: "s2",
		Session: p4rt.Config{Target: "x:1", DeviceID: 1, Program: program(t, "forwarding")}}, device.Dependencies{})
	if err != nil || transit.Measured() {
		t.Errorf("a switch that only forwards is a source of epochs: %v", err)
	}
	numbered, err := device.New(device.Config{Name: "s3",
		Session: p4rt.Config{Target: "x:1", DeviceID: 1, Program: program(t, "lightguardian")}}, device.Dependencies{})
	if err != nil || !numbered.Measured() {
		t.Errorf("a switch that numbers its intervals is no source of epochs: %v", err)
	}
	if u := numbered.Unread(); len(numbered.Objects()) > 0 || len(u) != 1 || u[0].Name != "lightguardian_sketch" ||
		u[0].Annotations["netsketch_lightguardian"]["columns"] != "4096" || len(transit.Unread()) > 0 {
		t.Errorf("registers with annotations that are not read: %v, %v", u, transit.Unread())
	}
}

// A suspended device has no session and opens none, whatever else is called. After Resume it is
// measured again.
func TestSuspend(t *testing.T) {
	d, _, _ := start(t, nil)
	first := ready(t, d)
	d.Suspend()
	d.Suspend()
	if _, err := d.Ready(); !errors.Is(err, device.ErrSuspended) {
		t.Errorf("suspended: %v", err)
	}
	if st := d.Status().Session.State; st != p4rt.Down {
		t.Errorf("suspended: the session is %s", st)
	}
	d.Resume()
	d.Resume()
	if again := ready(t, d); again == first {
		t.Error("the session after Resume is the one before")
	}
	d.Suspend()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	d.Resume()
	if st := d.Status().Session.State; st != p4rt.Down {
		t.Errorf("closed: the session is %s", st)
	}
}

// While the collector may not write entries, the session continues, its banks are read, and nothing
// is written.
func TestMayWrite(t *testing.T) {
	var refused atomic.Bool
	d, _, _ := start(t, func(c *device.Config) {
		c.MayWrite = func() error {
			if refused.Load() {
				return errors.New("no lease")
			}
			return nil
		}
	})
	ready(t, d)
	for _, refuse := range []bool{true, false} {
		refused.Store(refuse)
		for name, err := range map[string]error{"Write": d.Write(t.Context()), "Reconcile": d.Reconcile(t.Context())} {
			if got := err != nil && strings.Contains(err.Error(), "s1: no lease"); got != refuse || !got && err != nil {
				t.Errorf("refused %v: %s returns %v", refuse, name, err)
			}
		}
		if _, err := d.Read(t.Context(), 1, func(context.Context) error { return nil }); err != nil {
			t.Errorf("refused %v: %v", refuse, err)
		}
	}
}
