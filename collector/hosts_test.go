// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/host"
	"github.com/netsketch/netsketch/collector/selfstate"
	"github.com/netsketch/netsketch/hostagent/agent"
	hostepoch "github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
)

const listHosts = selfstate.Root + "/hosts/host"

// hostRole is a role that counts packets by the epoch of its clock.
type hostRole struct {
	clock    *hostepoch.Clock
	settings string
	packets  map[uint64]int
}

func (r *hostRole) Name() string          { return "count" }
func (r *hostRole) Apply(b []byte) error  { r.settings = string(b); return nil }
func (r *hostRole) Out(f []*packet.Frame) { r.packets[r.clock.Current()] += len(f) }
func (r *hostRole) In(f []*packet.Frame)  { r.packets[r.clock.Current()] += len(f) }
func (r *hostRole) Seal(e uint64) role.Report {
	return hostReport(fmt.Sprintf("%s: %d packets in epoch %d", r.settings, r.packets[e], e))
}

type hostReport string

func (r hostReport) Append(b []byte) []byte { return append(b, r...) }
func (hostReport) Release()                 {}

// startAgent starts the agent of a host until the end of the test.
func (r *rig) startAgent(name string) (*agent.Agent, *agent.RolePath) {
	r.t.Helper()
	path := agent.NewRolePath(func(c *hostepoch.Clock) role.Role {
		return &hostRole{clock: c, packets: map[uint64]int{}}
	})
	a, err := agent.New(agent.Config{Address: r.c.AgentsAddress(), Host: name, Version: "7",
		DataPaths: []agent.DataPath{path}}, agent.Dependencies{Clock: r.clock})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = a.Run(ctx) // Run returns nil when ctx ends
	}()
	r.t.Cleanup(func() {
		cancel()
		<-done
	})
	testkit.Until(r.t, "a session of "+name, func() bool { return a.Status().Connected })
	return a, path
}

func (r *rig) hostStatus(name string) host.Status {
	for _, s := range r.c.hosts.Hosts() {
		if s.Name == name {
			return s
		}
	}
	return host.Status{}
}

func hostsYAML(agents string) string {
	return devicesYAML(1) + `
hosts:
  - {name: h1, port: s1/1, addresses: [10.0.0.1], agent: true}
  - {name: h2, port: s1/2, addresses: [10.0.0.2], agent: ` + agents + `}
agents: {address: "127.0.0.1:0", tls: {plaintext: true}}
`
}

// TestHosts: a plugin plans settings for hosts, and receives their reports and its outcomes.
func TestHosts(t *testing.T) {
	r := newRig(t, hostsYAML("true")+pluginsYAML(t, "fake", "other"), nil)
	p := r.plugins["fake"]
	a1, path := r.startAgent("h1")
	r.startAgent("h2")
	p.do(func(p *fakePlugin) {
		p.plans = []sdk.Plan{{ID: 9, Hosts: []sdk.HostSetting{{Role: "count", Data: []byte("all")},
			{Host: "h3", Role: "count"}}}}
	})
	if rep := r.step(); rep.Status != epoch.Complete || len(rep.Hosts) != 2 || len(rep.Devices) != 1 {
		t.Errorf("without settings: %v, hosts %+v, devices %+v", rep.Status, rep.Hosts, rep.Devices)
	}
	for _, name := range []string{"h1", "h2"} {
		testkit.Until(t, "settings of "+name, func() bool { return r.hostStatus(name).SettingsApplied == 1 })
	}
	if rep := r.step(); rep.Status != epoch.Partial {
		t.Errorf("the epoch in which settings came is %v, want partial", rep.Status)
	}
	a1.Tick() // the host's clock began the epoch that the collector opened
	path.Out([]*packet.Frame{packet.NewFrame(make([]byte, 60)), packet.NewFrame(make([]byte, 60))})
	p.do(func(p *fakePlugin) {
		if m := p.epochs[len(p.epochs)-1].MissingHosts(); !m["h1"].Joined || !m["h2"].Joined {
			t.Errorf("hosts missing from the epoch in which settings came: %+v, want both, which joined", m)
		}
	})
	rep := r.step()
	if rep.Status != epoch.Complete {
		t.Errorf("epoch with reports is %v, want complete", rep.Status)
	}
	var got []string
	var outcomes []sdk.PlanOutcome
	p.do(func(p *fakePlugin) {
		e := p.epochs[len(p.epochs)-1]
		for _, h := range e.Hosts {
			got = append(got, h.Host+" "+h.Role+" "+string(h.Data))
		}
		got = append(got, strings.Join(e.ExpectedHosts, ","))
		for _, e := range p.epochs {
			outcomes = append(outcomes, e.Plans...)
		}
	})
	want := fmt.Sprint([]string{fmt.Sprintf("h1 count all: 2 packets in epoch %d", rep.Number),
		fmt.Sprintf("h2 count all: 0 packets in epoch %d", rep.Number), "h1,h2"})
	if fmt.Sprint(got) != want {
		t.Errorf("plugin received %v, want %v", got, want)
	}
	if len(outcomes) != 3 || outcomes[0].Status != sdk.PlanFailed || outcomes[0].Device != "h3" ||
		outcomes[1].Status != sdk.PlanApplied || outcomes[2].Status != sdk.PlanApplied {
		t.Errorf("outcomes %+v, want h3 failed, h1 and h2 applied", outcomes)
	}
	r.plugins["other"].do(func(p *fakePlugin) {
		if e := p.epochs[len(p.epochs)-1]; len(e.Hosts) != 0 || len(e.ExpectedHosts) != 0 {
			t.Errorf("a plugin without settings received reports of %v", e.ExpectedHosts)
		}
	})
	rows := r.rows("", listHosts, "state/connected", "state/epochs-lost", "state/roles")
	if len(rows) != 2 || !strings.Contains(rows[0], "epochs-lost=1") || !strings.Contains(rows[0], "roles=count") {
		t.Errorf("state %q", rows)
	}
}

// TestReloadHosts: an agent connects when a reload adds its host, and is disconnected when a
// reload removes it.
func TestReloadHosts(t *testing.T) {
	plugins := pluginsYAML(t, "fake")
	r := newRig(t, hostsYAML("false")+plugins, nil)
	r.startAgent("h1")
	if rep := r.step(); len(rep.Hosts) != 1 {
		t.Errorf("hosts %+v, want h1", rep.Hosts)
	}
	if _, err := r.c.Reload(t.Context(), parseConfig(t, hostsYAML("true")+plugins)); err != nil {
		t.Fatal(err)
	}
	rep := r.step()
	if len(rep.Hosts) != 2 || rep.Hosts[1].Err == nil ||
		!strings.Contains(rep.Hosts[1].Err.Error(), "no agent has connected") {
		t.Errorf("hosts %+v, want h2 missing", rep.Hosts)
	}
	r.startAgent("h2")
	r.plugins["fake"].do(func(p *fakePlugin) {
		if n := p.network; len(n.Hosts) != 2 || !n.Hosts[1].Agent {
			t.Errorf("the plugin's network has hosts %+v", n.Hosts)
		}
	})
	if rep := r.step(); rep.Status != epoch.Complete {
		t.Errorf("with both agents: %v, %+v", rep.Status, rep.Hosts)
	}
}
