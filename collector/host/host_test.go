// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/intent"
	hostagent "github.com/netsketch/netsketch/hostagent/agent"
	hostepoch "github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// agentVariable makes the test binary run as the agent of a host, given as NAME@ADDRESS.
const agentVariable = "NETSKETCH_TEST_AGENT"

func TestMain(m *testing.M) {
	if name, address, ok := strings.Cut(os.Getenv(agentVariable), "@"); ok {
		h := &testHost{name: name}
		a, err := hostagent.New(hostagent.Config{Address: address, Host: name, DataPaths: []hostagent.DataPath{h.path()}},
			hostagent.Dependencies{})
		if err == nil {
			err = a.Run(context.Background())
		}
		panic(err) // the agent runs until it is killed
	}
	goleak.VerifyTestMain(m)
}

const roleName = "test"

// testRole reports its settings and the epoch.
type testRole struct {
	clock    *hostepoch.Clock
	host     *testHost
	settings []byte
	sealed   map[uint64]bool
}

// testHost is the part of a role that a test controls.
type testHost struct {
	name string

	mu     sync.Mutex
	refuse string        // reason to refuse settings
	block  chan struct{} // Append blocks until it is closed; nil does not block
	size   int           // additional bytes of a report
	part   string        // content of the next part; empty if there is none
	inUse  string        // settings in force
	agent  *hostagent.Agent
	clock  *epoch.Virtual
	cancel func()
	done   chan struct{}
}

func (r *testRole) Name() string         { return roleName }
func (r *testRole) Out([]*packet.Frame)  {}
func (r *testRole) In([]*packet.Frame)   {}
func (h *testHost) do(f func(*testHost)) { h.mu.Lock(); defer h.mu.Unlock(); f(h) }

func (r *testRole) Apply(settings []byte) error {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	if r.host.refuse != "" {
		return errors.New(r.host.refuse)
	}
	r.settings, r.host.inUse = settings, string(settings)
	return nil
}

func (r *testRole) Seal(e uint64) role.Report {
	if r.settings == nil || e >= r.clock.Current() || r.sealed[e] {
		return nil
	}
	r.sealed[e] = true
	return testReport{r.host, fmt.Sprintf("%s %s %d", r.host.name, r.settings, e)}
}

// Part implements role.Streamer.
func (r *testRole) Part(bool) (uint64, role.Report) {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	if r.settings == nil || r.host.part == "" {
		return 0, nil
	}
	part := r.host.part
	r.host.part = ""
	return r.clock.Current(), testReport{r.host, part}
}

// OnFull implements role.Streamer.
func (r *testRole) OnFull(func()) {}

type testReport struct {
	host *testHost
	text string
}

func (r testReport) Append(b []byte) []byte {
	r.host.mu.Lock()
	block, size := r.host.block, r.host.size
	r.host.mu.Unlock()
	if block != nil {
		<-block
	}
	return append(append(b, r.text...), make([]byte, size)...)
}

func (testReport) Release() {}

// path returns a data path of the host's role.
func (h *testHost) path() *hostagent.RolePath {
	return hostagent.NewRolePath(func(c *hostepoch.Clock) role.Role {
		return &testRole{clock: c, host: h, sealed: map[uint64]bool{}}
	})
}

// rig is a component with an epoch engine on virtual time, and agents on loopback.
type rig struct {
	t      *testing.T
	log    testkit.Log
	clock  *epoch.Virtual
	engine *epoch.Engine
	c      *Component
	at     time.Time

	mu       sync.Mutex
	settings map[string][]intent.HostSetting // key "" means every host
	applied  []string
}

var start = time.Unix(1_000_000, 0).UTC()

func newRig(t *testing.T, change func(*Config), hosts ...string) *rig {
	r := &rig{t: t, clock: epoch.NewVirtual(start, 0), at: start, settings: map[string][]intent.HostSetting{}}
	r.engine = epoch.New(epoch.Config{Interval: time.Second, Deadline: 800 * time.Millisecond,
		Drain: time.Millisecond, Origin: time.Unix(0, 0)}, epoch.Dependencies{Clock: r.clock, Logger: r.log.Logger()})
	cfg := Config{Address: "127.0.0.1:0", Timeout: 10 * time.Second, MaxReport: 1 << 20, MaxEpoch: 1 << 30, Hosts: hosts}
	if change != nil {
		change(&cfg)
	}
	r.c = New(cfg, Dependencies{
		Logger: r.log.Logger(), Epochs: r.engine, OnChange: func() {},
		Settings: func(host string) []intent.HostSetting {
			r.mu.Lock()
			defer r.mu.Unlock()
			if own, ok := r.settings[host]; ok {
				return own
			}
			return r.settings[""]
		},
		Applied: func(host, role string, generation uint64, refusal string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.applied = append(r.applied, fmt.Sprintf("%s %s %d %s", host, role, generation, refusal))
		},
	})
	r.set("", intent.HostSetting{Role: roleName, Generation: 1, Data: []byte("one")})
	if err := r.c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.c.Stop()
		r.engine.Shutdown()
	})
	return r
}

func (r *rig) set(host string, settings ...intent.HostSetting) {
	r.mu.Lock()
	r.settings[host] = settings
	r.mu.Unlock()
	r.c.SettingsChanged()
}

// newHost returns a host whose agent is not running.
func (r *rig) newHost(name string) *testHost {
	return &testHost{name: name, clock: epoch.NewVirtual(r.clock.Now(), 0)}
}

// run starts the agent of a host.
func (r *rig) run(h *testHost, change func(*hostagent.Config)) *testHost {
	path := h.path()
	cfg := hostagent.Config{Address: r.c.Address(), Host: h.name, Version: "1", DataPaths: []hostagent.DataPath{path}}
	if change != nil {
		change(&cfg)
	}
	a, err := hostagent.New(cfg, hostagent.Dependencies{Clock: h.clock, Logger: r.log.Logger()})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.agent, h.done = a, make(chan struct{})
	go func() {
		defer close(h.done)
		if err := a.Run(ctx); err != nil {
			r.t.Errorf("agent %s: %v", h.name, err)
		}
	}()
	h.cancel = func() { cancel(); <-h.done }
	r.t.Cleanup(func() {
		h.do(func(h *testHost) {
			if h.block != nil {
				close(h.block)
				h.block = nil
			}
		})
		h.cancel()
	})
	return h
}

// start starts the agent of a host and waits for its session.
func (r *rig) start(name string, change func(*hostagent.Config)) *testHost {
	r.t.Helper()
	h := r.run(r.newHost(name), change)
	testkit.Until(r.t, "a session of "+name, func() bool { return h.agent.Status().Connected })
	return h
}

// open begins the epochs, and waits until hosts measure.
func (r *rig) open(hosts ...*testHost) {
	r.t.Helper()
	if err := r.engine.Open(context.Background(), r.at, noWait); err != nil {
		r.t.Fatal(err)
	}
	r.measuring(hosts...)
}

// measuring waits until settings are in force at hosts.
func (r *rig) measuring(hosts ...*testHost) {
	r.t.Helper()
	for _, h := range hosts {
		testkit.Until(r.t, "settings at "+h.name, func() bool { return r.status(h.name).SettingsApplied > 0 })
	}
}

func noWait(context.Context, time.Duration) error { return nil }

// step closes the open epoch.
func (r *rig) step() *epoch.Epoch {
	r.t.Helper()
	r.at = r.at.Add(time.Second)
	r.clock.AdvanceTo(r.at)
	ep, err := r.engine.Close(context.Background(), r.at, noWait)
	if err != nil {
		r.t.Fatal(err)
	}
	return ep
}

func (r *rig) status(host string) Status {
	r.t.Helper()
	for _, s := range r.c.Hosts() {
		if s.Name == host {
			return s
		}
	}
	r.t.Fatalf("no host %s", host)
	return Status{}
}

// outcome returns the report of a host as text, or its error.
func outcome(ep *epoch.Epoch, host string) string {
	for _, o := range ep.Sources {
		switch {
		case o.Name != host:
		case o.Err != nil:
			return "error: " + o.Err.Error()
		case len(o.Reading.Hosts) == 0:
			return "nothing"
		default:
			return string(bytes.TrimRight(o.Reading.Hosts[0].Data, "\x00"))
		}
	}
	return "missing"
}

func (r *rig) expect(ep *epoch.Epoch, host, want string) {
	r.t.Helper()
	if got := outcome(ep, host); !strings.Contains(got, want) {
		r.t.Errorf("epoch %d, host %s: %q, want %q", ep.Number, host, got, want)
	}
}
