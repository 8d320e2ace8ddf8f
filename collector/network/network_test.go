// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// fakeDevice records what the component does with a device.
type fakeDevice struct {
	Device
	cfg     device.Config
	started bool
	closed  bool
	objects []string
	// suspended is set between Suspend and Resume.
	suspended bool
	epochs    int
	session   atomic.Pointer[p4rt.Status] // state of the session; nil for a backup session
	closing   func()                      // called by Close
}

func (d *fakeDevice) Name() string     { return d.cfg.Name }
func (d *fakeDevice) Role() string     { return d.cfg.Role }
func (d *fakeDevice) Program() string  { return "univmon" }
func (d *fakeDevice) Measured() bool   { return true }
func (d *fakeDevice) Banks() int       { return 2 }
func (d *fakeDevice) DeviceID() uint64 { return d.cfg.Session.DeviceID }
func (d *fakeDevice) Address() string  { return d.cfg.Session.Target }

func (d *fakeDevice) Objects() []sdk.Object        { return []sdk.Object{{Name: "counters"}} }
func (d *fakeDevice) Unread() []sdk.Object         { return []sdk.Object{{Name: "carried"}} }
func (d *fakeDevice) SelectObjects(names []string) { d.objects = names }
func (d *fakeDevice) Suspend()                     { d.suspended = true }
func (d *fakeDevice) Resume()                      { d.suspended = false }
func (d *fakeDevice) SetBankEpochs(epochs int)     { d.epochs = epochs }
func (d *fakeDevice) Start(context.Context) error  { d.started = true; return d.cfg.Fault }
func (d *fakeDevice) Close() error {
	d.closed = true
	if d.closing != nil {
		d.closing()
	}
	return nil
}
func (d *fakeDevice) Reconcile(context.Context, ...p4rt.Desired) error {
	return p4rt.ErrNotReady
}
func (d *fakeDevice) Status() device.Status {
	if st := d.session.Load(); st != nil {
		return device.Status{Session: *st}
	}
	return device.Status{Session: p4rt.Status{State: p4rt.Standby}}
}
func (d *fakeDevice) Key(p4rt.Entry) (string, error) { return "", nil }

func (d *fakeDevice) Ready() (banks.Incarnation, error) {
	if d.Status().Session.State != p4rt.Ready {
		return banks.Incarnation{}, errors.New("the fake has no session")
	}
	return banks.Incarnation{ID: 1}, nil
}

func (d *fakeDevice) Flip(context.Context, int) error { return nil }

func (d *fakeDevice) Read(context.Context, int, epoch.Drained) (*epoch.Reading, error) {
	return &epoch.Reading{}, nil
}

// windowDevice is a device whose packets select the bank.
type windowDevice struct {
	*fakeDevice
	windows chan int // sizes of windows; -1 for a flip
}

func (d *windowDevice) Windowed() bool { return true }

func (d *windowDevice) SetWindow(_ context.Context, _ uint64, size int) error {
	d.windows <- size
	return nil
}

func (d *windowDevice) Flip(context.Context, int) error {
	d.windows <- -1
	return nil
}

func (d *windowDevice) Uncounted(*epoch.Reading) ([]uint32, bool) { return nil, true }

func (d *windowDevice) Ready() (banks.Incarnation, error) {
	return banks.Incarnation{ID: 1, Clean: true}, nil
}

// rig is a component with fake devices.
type rig struct {
	*Component
	t       *testing.T
	cfg     *config.Config
	devices map[string]*fakeDevice // the newest device of each name
	models  int                    // counts calls of OnModel
	windows chan int               // windows of the device w1, a windowDevice
}

func parse(t *testing.T, yaml string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("netsketch.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func newRig(t *testing.T, yaml string, shared ...bool) *rig {
	t.Helper()
	r := &rig{t: t, cfg: parse(t, yaml), devices: map[string]*fakeDevice{}, windows: make(chan int, 16)}
	engine := epoch.New(epoch.Config{Interval: time.Second}, epoch.Dependencies{Clock: epoch.Wall{},
		Logger: slog.New(slog.DiscardHandler)})
	group := banks.New(banks.Config{Interval: time.Second}, epoch.Wall{})
	var err error
	r.Component, err = New(r.cfg, Dependencies{
		Clock: epoch.Wall{}, Logger: slog.New(slog.DiscardHandler), Engine: engine, Banks: group,
		Intent: intent.New(intent.Config{}, intent.Dependencies{Epochs: engine, BankShift: group.Shift}),
		Programs: func(name string) (*p4rt.Program, error) {
			return nil, errors.New("no pipeline " + name + " here")
		},
		Shared:   slices.Contains(shared, true),
		PortName: func(device string, port uint32) string { return device + "-eth" + string(rune('0'+port)) },
		OnModel:  func(context.Context) { r.models++ },
		OnDevice: func() {},
		NewDevice: func(dc device.Config) (Device, error) {
			d := &fakeDevice{cfg: dc}
			r.devices[dc.Name] = d
			if dc.Name == "w1" {
				return &windowDevice{d, r.windows}, nil
			}
			return d, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}

// reload applies a changed configuration as the collector does.
func (r *rig) reload(yaml string) error {
	r.t.Helper()
	next := parse(r.t, yaml)
	topo, err := topology.Of(next)
	if err != nil {
		r.t.Fatal(err)
	}
	p, err := r.Prepare(next, topo, config.Compare(r.cfg, next))
	if err != nil {
		return err
	}
	r.cfg = next
	return r.Reload(r.t.Context(), p)
}

const (
	twoSwitches = `devices:
  - {name: s1, address: "127.0.0.1:1", device-id: 1, role: edge, pipeline: {keep: true}, tls: {plaintext: true}}
  - {name: s2, address: "127.0.0.1:2", device-id: 2, pipeline: {keep: true}, tls: {plaintext: true}}
`
	linksAndHosts = `links: [{from: s1/1, to: s2/1}]
hosts:
  - {name: h2, port: s2/2, mac: "02:00:00:00:00:02", addresses: [10.0.0.2]}
  - {name: h1, port: s1/2, mac: "02:00:00:00:00:01", addresses: [10.0.0.1, 10.1.0.0/16]}
`
)

// The model has all devices with their registers and named ports, in the order of their names, and
// all hosts and links.
func TestModel(t *testing.T) {
	r := newRig(t, twoSwitches+linksAndHosts)
	objects := []sdk.Object{{Name: "counters"}}
	end := func(node string, port uint32) sdk.Endpoint { return sdk.Endpoint{Node: node, Port: port} }
	unread := []sdk.Object{{Name: "carried"}}
	want := sdk.Network{
		Version: r.Version(),
		Devices: []sdk.Device{
			{Name: "s1", Role: "edge", Program: "univmon", Objects: objects, Unread: unread,
				Ports: []sdk.Port{{Number: 1, Name: "s1-eth1"}, {Number: 2, Name: "s1-eth2"}}},
			{Name: "s2", Role: string(r.cfg.Devices[1].Role), Program: "univmon", Objects: objects, Unread: unread,
				Ports: []sdk.Port{{Number: 1, Name: "s2-eth1"}, {Number: 2, Name: "s2-eth2"}}},
		},
		Hosts: []sdk.Host{{Name: "h1", Addresses: []string{"10.0.0.1", "10.1.0.0/16"}},
			{Name: "h2", Addresses: []string{"10.0.0.2"}}},
	}
	got := r.Model()
	links := got.Links
	got.Links = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("model (-want +got):\n%s", diff)
	}
	for _, l := range []sdk.Link{{A: end("h1", 0), B: end("s1", 2)}, {A: end("h2", 0), B: end("s2", 2)},
		{A: end("s1", 1), B: end("s2", 1)}} {
		if !slices.Contains(links, l) {
			t.Errorf("no link %v in %v", l, links)
		}
	}
	if len(links) != 3 {
		t.Errorf("links %v", links)
	}
}

// The model has the routes of devices whose forwarding tables the collector owns.
func TestModelForwarding(t *testing.T) {
	r := newRig(t, strings.Replace(twoSwitches, "device-id: 1,", "device-id: 1, forwarding: managed,", 1)+linksAndHosts)
	devices := r.Model().Devices
	f := devices[0].Forwarding
	if f == nil || devices[1].Forwarding != nil {
		t.Fatalf("forwarding of s1 %v, of s2 %v", f, devices[1].Forwarding)
	}
	want := map[string]uint32{"10.0.0.1/32": 2, "10.0.0.2/32": 1, "10.1.0.0/16": 2}
	for _, route := range f.Routes {
		if port := f.Groups[route.Group].Port(f.Seed, 1); port != want[route.Prefix] {
			t.Errorf("%s by port %d, want %d", route.Prefix, port, want[route.Prefix])
		}
		delete(want, route.Prefix)
	}
	if len(want) > 0 || f.Seed%2 == 0 {
		t.Errorf("no routes for %v, seed %d", want, f.Seed)
	}
}

// Reload closes the sessions of removed and changed devices only. Every change of the model has a
// new version and is reported.
func TestReload(t *testing.T) {
	r := newRig(t, twoSwitches)
	r.Start()
	s1, s2 := r.devices["s1"], r.devices["s2"]
	if !s1.started || !s2.started {
		t.Error("a session was not started")
	}
	before := r.Version()
	if err := r.reload(strings.Replace(twoSwitches, "device-id: 2", "device-id: 7", 1)); err != nil {
		t.Fatal(err)
	}
	if s1.closed || !s2.closed || !r.devices["s2"].started || r.devices["s2"].DeviceID() != 7 {
		t.Errorf("s1 closed %v, s2 closed %v and replaced by %+v", s1.closed, s2.closed, r.devices["s2"].cfg)
	}
	if r.models != 1 || r.Version() == before {
		t.Errorf("%d models, version %d after %d", r.models, r.Version(), before)
	}
	before = r.Version()
	one, _, _ := strings.Cut(twoSwitches, "  - {name: s2")
	if err := r.reload(one); err != nil {
		t.Fatal(err)
	}
	if !r.devices["s2"].closed || s1.closed || r.IsDevice("s2") || !r.IsDevice("s1") || r.models != 2 ||
		r.Version() == before {
		t.Errorf("devices %v, %d models, version %d after %d", r.Devices(), r.models, r.Version(), before)
	}
}

// The collector moves the window of a switch whose packets select the bank, and does not flip the
// switch.
func TestWindow(t *testing.T) {
	one, _, _ := strings.Cut(strings.Replace(twoSwitches, "name: s1", "name: w1", 1), "  - {name: s2")
	r := newRig(t, one)
	t.Cleanup(r.deps.Banks.Stop)
	r.Start()
	if size := <-r.windows; size != 0 {
		t.Errorf("the switch joined with %d; expected a window without epochs", size)
	}
	if missing := r.deps.Banks.WaitJoined(t.Context()); len(missing) > 0 {
		t.Errorf("not joined: %v", missing)
	}
}

// A configuration with a pipeline that cannot be loaded is refused, and changes nothing.
func TestReloadRefusesAPipeline(t *testing.T) {
	r := newRig(t, twoSwitches)
	r.Start()
	before := r.Version()
	err := r.reload(strings.Replace(twoSwitches, "device-id: 2, pipeline: {keep: true}",
		"device-id: 2, pipeline: univmon", 1))
	if err == nil || !strings.Contains(err.Error(), "s2") ||
		!strings.Contains(err.Error(), "no pipeline univmon here") {
		t.Errorf("error %v; expected one with the device and the pipeline", err)
	}
	if !r.IsDevice("s2") || r.Version() != before || r.models != 0 || r.devices["s1"].closed {
		t.Errorf("devices %v, version %d after %d, %d models", r.Devices(), r.Version(), before, r.models)
	}
}

// A device without a device-id is part of the network, and gets its session when the id is
// discovered.
func TestDiscoveredDeviceID(t *testing.T) {
	r := newRig(t, strings.Replace(twoSwitches, "device-id: 2", `gnmi: {address: "127.0.0.1:3"}`, 1))
	r.Start()
	first := r.devices["s2"]
	if first.cfg.Fault == nil || !r.IsDevice("s2") {
		t.Errorf("fault %v, device %v", first.cfg.Fault, r.IsDevice("s2"))
	}
	found := r.cfg.Devices[1]
	found.DeviceID = 9
	if err := r.Add(found); err != nil {
		t.Fatal(err)
	}
	second := r.devices["s2"]
	if !first.closed || second.cfg.Fault != nil || !second.started || second.DeviceID() != 9 || r.models != 1 {
		t.Errorf("first closed %v; second %+v, started %v; %d models", first.closed, second.cfg, second.started,
			r.models)
	}
}

// A device between Suspend and Resume stays suspended if it is replaced, or added only then.
func TestSuspendedDeviceIsReplaced(t *testing.T) {
	r := newRig(t, strings.Replace(twoSwitches, "device-id: 2", `gnmi: {address: "127.0.0.1:3"}`, 1))
	r.Start()
	r.Suspend("s2")
	found := r.cfg.Devices[1]
	found.DeviceID = 9
	if err := r.Add(found); err != nil {
		t.Fatal(err)
	}
	if d := r.devices["s2"]; !d.suspended {
		t.Error("the device that replaces a suspended one is not suspended")
	}
	r.Resume("s2")
	if r.devices["s2"].suspended {
		t.Error("the device is still suspended")
	}
	r.Suspend("s3")
	third := `  - {name: s3, address: "127.0.0.1:4", device-id: 3, pipeline: {keep: true}, tls: {plaintext: true}}
`
	if err := r.reload(twoSwitches + third); err != nil {
		t.Fatal(err)
	}
	if d := r.devices["s3"]; d == nil || !d.suspended || r.devices["s1"].suspended {
		t.Errorf("a device that was suspended before it was added: %+v", d)
	}
}

// Discovered links enter the model, and each device gets the registers that plugins bind on it.
func TestTopologyAndBindings(t *testing.T) {
	r := newRig(t, twoSwitches)
	before := r.Version()
	topo, err := topology.Of(r.cfg, topology.Link{A: topology.Port{Switch: "s1", Number: 3},
		B: topology.Port{Switch: "s2", Number: 4}})
	if err != nil {
		t.Fatal(err)
	}
	r.SetTopology(topo)
	want := []sdk.Link{{A: sdk.Endpoint{Node: "s1", Port: 3}, B: sdk.Endpoint{Node: "s2", Port: 4}}}
	if got := r.Model(); !slices.Equal(got.Links, want) || got.Version == before || r.models != 1 {
		t.Errorf("links %v, version %d after %d, %d models", got.Links, got.Version, before, r.models)
	}
	r.Bind(map[string][]string{"s2": {"counters"}, "gone": {"x"}}, map[string]int{"s2": 4, "gone": 2})
	if s1, s2 := r.devices["s1"].objects, r.devices["s2"].objects; s1 == nil || len(s1) != 0 ||
		!slices.Equal(s2, []string{"counters"}) {
		t.Errorf("registers of s1 %v and of s2 %v", s1, s2)
	}
	if s1, s2 := r.devices["s1"].epochs, r.devices["s2"].epochs; s1 != 0 || s2 != 4 {
		t.Errorf("epochs in a bank of s1 %d and of s2 %d", s1, s2)
	}
	old := r.devices["s2"]
	if err := r.Add(r.cfg.Devices[1]); err != nil {
		t.Fatal(err)
	}
	if s2 := r.devices["s2"]; s2 == old || !slices.Equal(s2.objects, []string{"counters"}) || s2.epochs != 4 {
		t.Errorf("registers of s2 %v and epochs in a bank %d, when it was replaced", s2.objects, s2.epochs)
	}
}

// On a virtual clock, the timeouts of a session follow that clock, so the load of the machine
// decides no result.
func TestSessionLimits(t *testing.T) {
	r := newRig(t, `devices: [{name: s1, address: "127.0.0.1:1", device-id: 1, pipeline: {keep: true},
  tls: {plaintext: true}}]`)
	for _, c := range []struct {
		clock                   epoch.Clock
		call, readout, pipeline time.Duration
	}{
		{epoch.Wall{}, r.cfg.Devices[0].Timeout, 400 * time.Millisecond, time.Minute},
		{epoch.NewVirtual(time.Unix(0, 0), 4*time.Minute), 4 * time.Minute, 2 * time.Minute, 4 * time.Minute},
	} {
		r.deps.Clock = c.clock
		dc, err := r.deviceConfig(r.cfg.Devices[0], nil, pipelines{})
		if err != nil {
			t.Fatal(err)
		}
		if s := dc.Session; s.CallTimeout != c.call || s.ReadoutTimeout != c.readout ||
			s.PipelineTimeout != c.pipeline || s.ReadTimeout != c.pipeline {
			t.Errorf("%T: call %v, read-out %v, pipeline %v, read %v", c.clock, s.CallTimeout, s.ReadoutTimeout,
				s.PipelineTimeout, s.ReadTimeout)
		}
	}
}
