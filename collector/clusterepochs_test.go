// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/selfstate"
	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/hostv1"
	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// hostRigs starts the members c1 and c2 of a cluster, each with a host and its agent.
func hostRigs(t *testing.T, plugins string) (rigs map[string]*rig, agents map[string]*agent.Agent,
	hosts map[string]string) {
	t.Helper()
	server := bustest.Server(t)
	members := []string{"c1", "c2"}
	var view cluster.View
	for _, name := range members {
		view.Members = append(view.Members, cluster.Member{Name: name, State: cluster.Active, Weight: 1})
	}
	yaml := "hosts:\n"
	hosts = map[string]string{} // by owner
	for i := 1; len(hosts) < len(members); i++ {
		if name := fmt.Sprintf("h%d", i); hosts[view.Host(name)] == "" {
			hosts[view.Host(name)] = name
			yaml += fmt.Sprintf("  - {name: %s, port: s1/%d, addresses: [10.0.0.%d], agent: true}\n", name, i, i)
		}
	}
	agents = map[string]*agent.Agent{}
	rigs = startAll(t, func(name string) string {
		return devicesYAML(1) + yaml + plugins + fmt.Sprintf("agents: {address: \"127.0.0.1:0\", tls: {plaintext: true}}\n"+
			"cluster: {name: fabric, member: %s, nats: {addresses: [%q], tls: {plaintext: true}}}\n", name, server)
	}, members...)
	for _, name := range members {
		stepUntil(t, "two members at "+name, rigs, func() bool {
			r := rigs[name]
			return len(r.c.view().Members) == 2 && len(r.c.hosts.Hosts()) == 1
		})
	}
	for _, name := range members {
		agents[name], _ = rigs[name].startAgent(hosts[name])
	}
	return rigs, agents, hosts
}

// homeOf returns the member at which the plugin fake is at home, and the other one. On a busy
// machine a member can lose its lease for a moment, and the home moves.
func homeOf(rigs map[string]*rig) (home, other *rig) {
	home, other = rigs["c1"], rigs["c2"]
	open, _ := home.c.Epoch()
	if home.c.view().In(open).Plugin("fake") == "c2" {
		home, other = other, home
	}
	return home, other
}

// settle makes the plugin at its home plan settings of hosts. It waits until the home has the
// outcomes of both hosts, once each, and the other member has none. If the home moves meanwhile,
// settle plans the settings again.
func settle(t *testing.T, rigs map[string]*rig) {
	t.Helper()
	count := func(r *rig) uint64 { n := r.c.intent.Counts("fake"); return n.Applied + n.Failed }
	plan := sdk.Plan{ID: 8, Hosts: []sdk.HostSetting{{Role: "count", Data: []byte("all")}}}
	var home *rig
	var atHome, elsewhere uint64 // outcomes before the plan
	stepUntil(t, "the outcomes of both hosts at the plugin's home", rigs, func() bool {
		if h, other := homeOf(rigs); h != home || count(other) > elsewhere {
			home, atHome, elsewhere = h, count(h), count(other)
			plan.ID++
			home.c.Plan(t.Context(), "fake", plan)
		}
		return count(home) == atHome+2
	})
}

// The plugin receives the outcomes of its settings at the hosts of all collectors, once each.
func TestHostSettingsOfACluster(t *testing.T) {
	rigs, _, _ := hostRigs(t, pluginsYAML(t, "fake"))
	settle(t, rigs)
}

// A late report of a host at one collector reaches the plugin, whose home is another collector. A
// lost part of an epoch takes the report with it, so the test sends reports until one arrives.
func TestLateReportOfACluster(t *testing.T) {
	rigs, _, hosts := hostRigs(t, pluginsYAML(t, "fake"))
	settle(t, rigs)
	text := func(r sdk.LateReport) string { return fmt.Sprintf("late at %s in epoch %d", r.Host, r.Epoch) }
	stepUntil(t, "a late report at the plugin", rigs, func() (found bool) {
		home, other := homeOf(rigs)
		host := hosts[other.c.Config().Cluster.Member]
		home.plugins["fake"].do(func(p *fakePlugin) {
			for _, e := range p.epochs {
				found = found || slices.ContainsFunc(e.Late, func(r sdk.LateReport) bool {
					return r.Host == host && string(r.Data) == text(r)
				})
			}
		})
		open, _ := other.c.Epoch()
		late := sdk.LateReport{Epoch: open - 1, HostReport: sdk.HostReport{Host: host, Role: "count"}}
		if late.Data = []byte(text(late)); !found && !other.c.epochs.Late(late) {
			t.Fatal("the report is dropped")
		}
		return found
	})
}

// The epoch that the clock of one host begins reaches the hosts of other collectors. An epoch that
// is far ahead, or that comes from a collector that is not a member, does not.
func TestEpochsOfHostsOfACluster(t *testing.T) {
	rigs, agents, _ := hostRigs(t, "")
	open, _ := rigs["c1"].c.Epoch()
	testkit.Until(t, "the open epoch at both", func() bool {
		return agents["c1"].Status().Epoch == open && agents["c2"].Status().Epoch == open
	})
	rigs["c1"].clock.Advance(time.Second) // the clocks of the first host and collector are fast
	agents["c1"].Tick()
	testkit.Until(t, "the next epoch at the host of the other collector", func() bool {
		return agents["c2"].Status().Epoch == open+1
	})
	b := bustest.Connect(t, "fabric", "admin", rigs["c1"].c.Config().Cluster.NATS.Addresses[0])
	send := func(member string, epoch uint64) {
		data, err := proto.Marshal(&hostv1.EpochBegan{Epoch: epoch})
		if err == nil {
			err = b.Conn().Publish(b.Subject("epoch", member), data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	send("z", open+3)
	send("c1", open+100)
	testkit.Until(t, "the far epoch is refused", func() bool {
		return strings.Contains(rigs["c2"].log.String(), "is 100 ahead of this collector's")
	})
	send("c1", open+2)
	testkit.Until(t, "epochs of a member count", func() bool { return agents["c2"].Status().Epoch == open+2 })
	for name, want := range map[string]string{"c1": "epochs-received=0 host-epochs-refused=0 host-epochs-sent=1",
		"c2": "epochs-received=2 host-epochs-refused=1 host-epochs-sent=0"} {
		rigs[name].c.StateChanged()
		testkit.Until(t, name+" counts its epochs: "+want, func() bool {
			rows := rigs[name].rows("", selfstate.Root+"/cluster/state", "host-epochs-received", "host-epochs-refused",
				"host-epochs-sent")
			return len(rows) == 1 && strings.Contains(rows[0], want)
		})
	}
	if n := strings.Count(rigs["c2"].log.String(), "is not relayed"); n != 1 {
		t.Errorf("%d epochs are refused, want 1:\n%s", n, rigs["c2"].log)
	}
}
