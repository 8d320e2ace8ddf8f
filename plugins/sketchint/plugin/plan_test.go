// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
)

// The plan numbers switches, starts INT at ports of hosts, and ends it where no agent does.
func TestPlan(t *testing.T) {
	n := simNetwork()
	n.Hosts[1].Agent = false
	n.Devices = append(n.Devices, sdk.Device{Name: "old", Program: "univmon"})
	h := sdktest.Start(t, New(), sdktest.Options{Network: n, Config: `{"mtu": 9000, "metadata": ["latency", "queue"],
		"traffic": [{"destination": "10.0.0.0/24", "protocol": "tcp", "destination-ports": "80-90"}, {"protocol": "udp"}]}`})
	plan := h.Settings().Plan
	if len(plan.Hosts) != 3 {
		t.Errorf("settings of %d hosts", len(plan.Hosts))
	}
	var got []string
	for _, w := range plan.Writes {
		if w.Device == "leaf1" {
			got = append(got, text(w))
		}
	}
	source := " start instructions=b000 hops=10"
	want := []string{
		"default node set_node id=00000001", "default mtu set_mtu bytes=2328",
		"insert sink port=0005 remove",
		"insert source_ipv4 port=0003&01ff dst=0a000000&ffffff00 protocol=06&ff dst_port=0050-005a priority 2" + source,
		"insert source_ipv4 port=0003&01ff protocol=11&ff priority 1" + source,
		"insert source_ipv6 port=0003&01ff protocol=11&ff priority 1" + source,
		"insert sink port=0004 remove",
		"insert source_ipv4 port=0004&01ff dst=0a000000&ffffff00 protocol=06&ff dst_port=0050-005a priority 2" + source,
		"insert source_ipv4 port=0004&01ff protocol=11&ff priority 1" + source,
		"insert source_ipv6 port=0004&01ff protocol=11&ff priority 1" + source,
	}
	if !slices.Equal(got, want) {
		t.Errorf("entries\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// Another configuration deletes the entries that it does not have.
	n.Hosts[1].Agent = true
	s, err := h.Configure(`{"mtu": 9000, "metadata": ["latency", "queue"], "traffic": [{"protocol": "udp"}]}`, n,
		time.Second)
	if err != nil {
		t.Fatal(err)
	}
	got = nil
	for _, w := range s.Plan.Writes {
		if w.Device == "leaf1" && w.Op == sdk.Delete {
			got = append(got, text(w))
		}
	}
	// The row of UDP has another place, and no priority above it.
	want = []string{
		"delete source_ipv4 port=0003&01ff dst=0a000000&ffffff00 protocol=06&ff dst_port=0050-005a priority 2" + source,
		"delete sink port=0004 remove",
		"delete source_ipv4 port=0004&01ff dst=0a000000&ffffff00 protocol=06&ff dst_port=0050-005a priority 2" + source,
	}
	if !slices.Equal(got, want) {
		t.Errorf("deletes\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// text describes a write, without the names of tables' controls.
func text(w sdk.DeviceWrite) string {
	last := func(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }
	b := map[sdk.WriteOp]string{sdk.Insert: "insert", sdk.Delete: "delete", sdk.SetDefault: "default"}[w.Op]
	b += " " + last(w.Entry.Table)
	for _, m := range w.Entry.Matches {
		switch {
		case m.High != nil:
			b += fmt.Sprintf(" %s=%x-%x", m.Field, m.Value, m.High)
		case m.Mask != nil:
			b += fmt.Sprintf(" %s=%x&%x", m.Field, m.Value, m.Mask)
		default:
			b += fmt.Sprintf(" %s=%x", m.Field, m.Value)
		}
	}
	if w.Entry.Priority > 0 {
		b += fmt.Sprint(" priority ", w.Entry.Priority)
	}
	b += " " + last(w.Entry.Action)
	for _, p := range w.Entry.Params {
		b += fmt.Sprintf(" %s=%x", p.Name, p.Value)
	}
	return b
}

// sinks returns the ports of a switch where INT ends, and what the settings say about it.
func sinks(s sdk.Settings, device string) (ports string, said []string) {
	for _, w := range s.Plan.Writes {
		if w.Device == device && w.Op == sdk.Insert && w.Entry.Table == "egress.sketchint.sink" {
			ports += fmt.Sprint(" ", w.Entry.Matches[0].Value[1])
		}
	}
	for _, m := range s.Missing {
		if m.Device == device {
			said = append(said, m.Consequence)
		}
	}
	return ports, said
}

// INT ends in front of switches of other programs, which change its marks or count its bytes, and
// in front of hosts without an agent, also if they are behind switches that only forward.
func TestForeignSwitches(t *testing.T) {
	const text = "INT ends at this switch for packets that leave by ports to %s, which would not remove it"
	for name, tc := range map[string]struct {
		spine, leaf string // programs of spine1 and leaf2
		agents      bool   // at the hosts of leaf2
		sinks       string
		beyond      string
	}{
		"another algorithm":           {"chamelemon", "sketchint", true, " 5 1", "spine1"},
		"plain":                       {"forwarding", "sketchint", true, " 5", ""},
		"plain, hosts with agents":    {"forwarding", "forwarding", true, " 5", ""},
		"plain, hosts without agents": {"forwarding", "forwarding", false, " 5 1", "h3, h4"},
	} {
		t.Run(name, func(t *testing.T) {
			n := simNetwork()
			n.Device("spine1").Program, n.Device("leaf2").Program = tc.spine, tc.leaf
			n.Hosts[2].Agent, n.Hosts[3].Agent = tc.agents, tc.agents
			h := sdktest.Start(t, New(), sdktest.Options{Network: n})
			var said []string
			if tc.beyond != "" {
				said = append(said, fmt.Sprintf(text, tc.beyond))
			}
			if got, why := sinks(h.Settings(), "leaf1"); got != tc.sinks || !slices.Equal(why, said) {
				t.Errorf("INT ends at ports%s: %q; want%s: %q", got, why, tc.sinks, said)
			}
		})
	}
}

// With INT that ends at switches every port of a host ends it.
func TestSinksAtSwitches(t *testing.T) {
	h := start(t, `{"sinks": "switches"}`)
	ports := 0
	for _, w := range h.Settings().Plan.Writes {
		if w.Entry.Table == "egress.sketchint.sink" && w.Device == "leaf1" {
			ports++
		}
	}
	if ports != 3 { // two of hosts, one of nothing
		t.Errorf("INT ends at %d ports", ports)
	}
}

// With reports the last switches send them to one host by the collector's routes, and the agent of
// that host measures all packets. A switch without a route is named.
func TestReports(t *testing.T) {
	const config = `{"sinks": "switches", "reports": {"host": "h3", "mac": "02:00:00:00:00:03", "source": "192.0.2.1"}}`
	n := routedNetwork(2)
	n.Device("spine1").Forwarding = nil
	h := sdktest.Start(t, New(), sdktest.Options{Network: n, Config: config})
	plan := h.Settings().Plan
	if len(plan.Hosts) != 1 || plan.Hosts[0].Host != "h3" || !settingsOf(t, h, "h3").SinkReports {
		t.Errorf("settings of hosts %+v", plan.Hosts)
	}
	const send = "default collector send src_mac=020000000000 dst_mac=020000000003 src=c0000201 dst=0a000003 " +
		"src_port=7ffe dst_port=7ffe"
	got := map[string]bool{}
	for _, w := range plan.Writes {
		got[w.Device+": "+text(w)] = true
	}
	for _, want := range []string{
		"leaf1: insert clone-sessions session=0001 clone port=0002", "leaf1: " + send, "leaf2: " + send,
		"leaf1: insert sink port=0003 report session=0001", "leaf2: insert sink port=0004 report session=0001",
		"leaf2: insert clone-sessions session=0001 clone port=0003", // clone session of the host itself
		"spine2: insert clone-sessions session=0001 clone port=0002",
		"spine1: insert sink port=0003 remove", // without a route
	} {
		if !got[want] {
			t.Errorf("no entry %q", want)
		}
	}
	missing := h.Settings().Missing
	if len(missing) != 1 || missing[0].Device != "spine1" || missing[0].Object != "route to h3" {
		t.Errorf("missing: %+v", missing)
	}
}

// Each wrong key is named, with what is expected.
func TestConfigErrors(t *testing.T) {
	h := start(t, "")
	for _, c := range [][2]string{
		{`{"interval": "soon"}`, "interval: expected a duration"},
		{`{"interval": "2h"}`, "interval: "},
		{`{"metadata": ["weather"]}`, "metadata[0]: expected one of latency"},
		{`{"metadata": ["queue", "queue"]}`, "metadata[1]: queue is given twice"},
		{`{"max-hops": 65}`, "max-hops: 65 is out of range; expected 1 to 64"},
		{`{"mtu": 9}`, "mtu: 9 is out of range; expected 576 to 65535"},
		{`{"sinks": "sea"}`, `sinks: expected hosts or switches; found "sea"`},
		{`{"sinks": "switches", "reports": {"host": "h1", "mac": "x", "source": "10.0.0.1"}}`,
			`reports.mac: "x" is not a MAC`},
		{`{"sinks": "switches", "reports": {"host": "h1", "mac": "02:00:00:00:00:01", "source": "::1"}}`,
			`reports.source: "::1" is not an IPv4`},
		{`{"reports": {"host": "h1", "mac": "02:00:00:00:00:01", "source": "10.0.0.1"}}`,
			`reports: are of switches where INT ends; expected sinks: switches`},
		{`{"sinks": "switches", "reports": {"host": "h9", "mac": "02:00:00:00:00:01", "source": "10.0.0.1"}}`,
			`reports.host: is "h9"; expected a host of`},
		{`{"sinks": "switches", "reports": {"host": "h2", "mac": "02:00:00:00:00:01", "source": "10.0.0.1"}}`,
			`reports.host: is "h2", which has no IPv4 address`},
		{`{"nodes": [{"name": "", "id": 1}]}`, "nodes[0].name: "},
		{`{"nodes": [{"name": "a", "id": 0}]}`, "nodes[0].id: 0 is out of range; expected 1 to 4294967294"},
		{`{"nodes": [{"name": "a", "id": 1}, {"name": "b", "id": 1}]}`, "nodes[1].id: 1 is given twice"},
		{`{"nodes": [{"name": "a", "id": 1}, {"name": "a", "id": 2}]}`, `nodes[1].name: a is given twice`},
		{`{"traffic": [{"source": "10"}]}`, `traffic[0].source: expected an address such as 10.0.0.1 or a prefix`},
		{`{"traffic": [{"source": "10.0.0.0/8", "destination": "2001:db8::/32"}]}`, "traffic[0].destination: "},
		{`{"traffic": [{"protocol": "icmp"}]}`, `traffic[0].protocol: expected tcp or udp; found "icmp"`},
		{`{"traffic": [{"source-ports": "9-1"}]}`, `traffic[0].source-ports: expected a port`},
		{`{"flow-tower": 8}`, "flow-tower: 8 is out of range; expected 40 to 16MiB"},
		{`{"latency-tower": 100000000}`, "latency-tower: 100000000 is out of range; expected 24 to 16MiB"},
		{`{"heavy": 0}`, "heavy: 0 is"},
		{`{"change": 0}`, "change: 0 is"},
		{`{"heavy-flows": -1}`, "heavy-flows: -1 is"},
		{`{"inflation": 0.5}`, "inflation: 0.5 is out of range; expected"},
		{`{"inflated-flows": 2000000}`, "inflated-flows: "},
		{`{"inflated-packets": 0}`, "inflated-packets: "},
		{`{"limits": {"flows": -1}}`, "limits.flows: "},
		{`{"marks": {"source-only": [{"words": 256}]}}`,
			"marks.source-only[0].words: 256 is out of range; expected 0 to 255"},
		{`{"interwal": "5s"}`, `unknown key "interwal": did you mean "interval"?`},
	} {
		config, want := c[0], c[1]
		if _, err := h.Configure(config, simNetwork(), time.Second); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
	rows := strings.Repeat(`{}, `, 63) + "{}"
	n := simNetwork()
	for p := range uint32(20) {
		name := fmt.Sprintf("x%d", p)
		n.Hosts = append(n.Hosts, sdk.Host{Name: name})
		n.Links = append(n.Links, sdk.Link{A: sdk.Endpoint{Node: name}, B: sdk.Endpoint{Node: "leaf1", Port: 10 + p}})
	}
	if _, err := h.Configure(`{"traffic": [`+rows+`]}`, n, time.Second); err == nil ||
		!strings.Contains(err.Error(), "switch leaf1 needs 1408 entries for 22 ports of hosts; it has 1024") {
		t.Errorf("too many entries: %v", err)
	}
}
