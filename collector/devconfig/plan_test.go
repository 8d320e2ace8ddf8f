// SPDX-License-Identifier: Apache-2.0

package devconfig

import (
	"fmt"
	"strings"
	"testing"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/collector/southbound"
	"github.com/netsketch/netsketch/yang"
)

// snapshotOf returns a snapshot with leaves, "path=value" each.
func snapshotOf(t *testing.T, leaves ...string) *Snapshot {
	t.Helper()
	s := NewSnapshot()
	n := &gpb.Notification{}
	for _, l := range leaves {
		i := strings.LastIndexByte(l, '=')
		n.Update = append(n.Update, &gpb.Update{Path: gnmiPath(l[:i]),
			Val: &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: l[i+1:]}}})
	}
	if err := s.add(testSchema(), n); err != nil {
		t.Fatal(err)
	}
	return s
}

// shown formats a plan as text, one leaf or change a line.
func shown(p *Plan) string {
	var b strings.Builder
	for _, l := range p.Leaves {
		fmt.Fprintf(&b, "%s %s", l.Status, l.Path)
		if l.Reason != "" {
			fmt.Fprintf(&b, ": %s", l.Reason)
		}
		b.WriteByte('\n')
	}
	text := func(v *string) string {
		if v == nil {
			return "-"
		}
		return *v
	}
	for _, c := range p.Changes {
		fmt.Fprintf(&b, "%s: %s > %s\n", c.Path, text(c.Before), text(c.After))
	}
	return b.String()
}

func TestDiff(t *testing.T) {
	const (
		circuit = "/components/component[name=ic0]/state/type=INTEGRATED_CIRCUIT"
		up0     = "/interfaces/interface[name=Ethernet0]/state/enabled=true"
		up4     = "/interfaces/interface[name=Ethernet4]/state/enabled=true"
		state0  = "/interfaces/interface[name=Ethernet0]/state/"
		nodeAt  = "/components/component[name=ic0]/integrated-circuit/state/node-id="
	)
	one := Wanted{DeviceID: 7, Ports: []Port{{Number: 1, Interface: "Ethernet0"}}}
	v := func(s string) *string { return &s }
	for name, c := range map[string]struct {
		wanted  Wanted
		device  []string
		written map[string]Written
		want    string // a part of the text, or several, separated by |
		not     string
	}{
		"nothing yet": {wanted: one, device: []string{circuit, up0},
			want: "MISSING " + node + "|MISSING " + eth0 + "id|IN_EFFECT " + eth0 + "enabled|" + node + ": - > 7"},
		"all is in effect": {wanted: one, device: []string{circuit, up0, node + "=7", nodeAt + "7", eth0 + "id=1",
			state0 + "id=1"},
			want: "IN_EFFECT " + node + "|IN_EFFECT " + eth0 + "id", not: ">"},
		"read-only, with the right values in state": {wanted: one, device: []string{circuit, up0, nodeAt + "7",
			state0 + "id=1"},
			want: "IN_EFFECT " + node + "|IN_EFFECT " + eth0 + "id", not: ">"},
		"zero is no value": {wanted: one, device: []string{circuit, up0, node + "=0", nodeAt + "0"},
			want: node + ": - > 7"},
		"configured and not in effect": {wanted: one, device: []string{circuit, up0, node + "=7"},
			want: "CONFIGURED " + node, not: node + ":"},
		"a foreign device id": {wanted: one, device: []string{circuit, up0, node + "=9"},
			want: "REFUSED " + node + ": somebody else has set 9; write 9 into the file, or delete", not: node + ": 9 >"},
		"a foreign device id in state": {wanted: one, device: []string{circuit, up0, nodeAt + "9"},
			want: "REFUSED " + node + ": the device has 9, and not from its gNMI configuration"},
		"our device id": {wanted: one, device: []string{circuit, up0, node + "=9"},
			written: map[string]Written{node: {Value: "9"}}, want: node + ": 9 > 7"},
		"a device id that somebody else changed": {wanted: one, device: []string{circuit, up0, node + "=9"},
			written: map[string]Written{node: {Value: "7"}}, want: "REFUSED " + node},
		"a device id that somebody else deleted": {wanted: one, device: []string{circuit, up0},
			written: map[string]Written{node: {Value: "7"}}, want: "DRIFTED " + node + "|" + node + ": - > 7"},
		"a port turned off": {wanted: one, device: []string{circuit, up0, eth0 + "enabled=false"},
			want: "MISSING " + eth0 + "enabled|" + eth0 + "enabled: false > true"},
		"a port that is off by the device's default": {wanted: one, device: []string{circuit,
			strings.Replace(up0, "true", "false", 1)}, want: eth0 + "enabled: false > true"},
		"an unknown interface": {wanted: Wanted{Ports: []Port{{Number: 1, Interface: "Ethernet1"}}}, device: []string{up0,
			up4},
			want: `REFUSED /interfaces/interface[name=Ethernet1]/config/id: the device has no interface "Ethernet1"; correct ` +
				"gnmi.ports: did you mean Ethernet0?"},
		"a port without an interface": {wanted: Wanted{Ports: []Port{{Number: 3}}}, device: []string{up0},
			want: "no interface of the device has the number 3; add its name to gnmi.ports: {number: 3, interface: NAME}"},
		"a port known by its number": {wanted: Wanted{Ports: []Port{{Number: 3}}}, device: []string{up0, state0 + "id=3"},
			want: "IN_EFFECT " + eth0 + "id|IN_EFFECT " + eth0 + "enabled"},
		"two ports with the number": {wanted: Wanted{Ports: []Port{{Number: 3}}},
			device: []string{up0, up4, eth0 + "id=3", eth4 + "id=3"}, want: "Ethernet0 and Ethernet4 have the number 3"},
		"a number in use": {wanted: one, device: []string{circuit, up0, up4, eth4 + "id=1"},
			want: "REFUSED " + eth0 + "id: interface Ethernet4 has the number 1 already; correct gnmi.ports, or delete " +
				eth4 + "id"},
		"a number twice": {wanted: one, device: []string{circuit, up0, up4, eth0 + "id=1", state0 + "id=1", eth4 + "id=1"},
			want: "REFUSED " + eth0 + "id: interface Ethernet4 has the number 1 already; correct gnmi.ports, or delete " +
				eth4 + "id"},
		"a device id twice": {wanted: Wanted{DeviceID: 7, Component: "ic0"},
			device: []string{circuit, strings.Replace(node, "ic0", "ic1", 1) + "=7"},
			want:   "REFUSED " + node + ": component ic1 has the number 7 already; correct gnmi.component, or delete /"},
		"our device id at another component": {wanted: Wanted{DeviceID: 7, Component: "ic1"},
			device:  []string{circuit, strings.Replace(circuit, "ic0", "ic1", 1), node + "=7"},
			written: map[string]Written{node: {Value: "7"}},
			want:    "MISSING " + strings.Replace(node, "ic0", "ic1", 1) + "|" + node + ": 7 > -", not: "REFUSED"},
		"an unknown component": {wanted: Wanted{DeviceID: 7, Component: "ic9"}, device: []string{circuit},
			want: `REFUSED ` + strings.Replace(node, "ic0", "ic9", 1) + `: the device has no component "ic9"; correct ` +
				"gnmi.component: did you mean ic0?"},
		"a component of a device that lists none": {wanted: Wanted{DeviceID: 7, Component: "ic9"}, device: []string{up0},
			want: "MISSING " + strings.Replace(node, "ic0", "ic9", 1)},
		"ours are exchanged": {wanted: Wanted{Ports: []Port{{Number: 2, Interface: "Ethernet0"},
			{Number: 1, Interface: "Ethernet4"}}}, device: []string{up0, up4, eth0 + "id=1", eth4 + "id=2"},
			written: map[string]Written{eth0 + "id": {Value: "1"}, eth4 + "id": {Value: "2"}},
			want:    eth0 + "id: 1 > 2|" + eth4 + "id: 2 > 1"},
		"a key removed from the file": {wanted: Wanted{}, device: []string{up0, eth0 + "description=ours",
			eth4 + "description=theirs"},
			written: map[string]Written{eth0 + "description": {Before: v("old"), Value: "ours"},
				eth4 + "description": {Value: "ours"}},
			want: eth0 + "description: ours > old", not: eth4},
		"no integrated circuit": {wanted: one, device: []string{up0}, want: "REFUSED /components/component[name=*]/" +
			"integrated-circuit/config/node-id: the device lists no integrated circuit; set gnmi.component"},
		"several integrated circuits": {wanted: one, device: []string{up0, circuit, strings.Replace(circuit, "ic0", "ic1",
			1)},
			want: "the integrated circuits ic0, ic1; set gnmi.component"},
		"LLDP is not served": {wanted: Wanted{LLDP: true}, device: []string{up0}, not: "lldp"},
		"LLDP is off": {wanted: Wanted{LLDP: true, Ports: []Port{{Number: 1, Interface: "Ethernet0"}}},
			device: []string{up0, "/lldp/config/enabled=false",
				"/lldp/interfaces/interface[name=Ethernet0]/config/enabled=false"},
			want: "/lldp/config/enabled: false > true|/lldp/interfaces/interface[name=Ethernet0]/config/enabled: false > true"},
		"a name with brackets": {wanted: Wanted{Ports: []Port{{Number: 1, Interface: `a]\b`}}},
			device: []string{`/interfaces/interface[name=a\]\\b]/state/enabled=true`}, want: `[name=a\]\\b]/config/id: - > 1`},
	} {
		t.Run(name, func(t *testing.T) {
			p := Diff("leaf1", c.wanted, snapshotOf(t, c.device...), c.written)
			got := shown(p)
			for part := range strings.SplitSeq(c.want, "|") {
				if !strings.Contains(got, part) {
					t.Errorf("got\n%sexpected %q", got, part)
				}
			}
			if c.not != "" && strings.Contains(got, c.not) {
				t.Errorf("got\n%sexpected no %q", got, c.not)
			}
			if (p.Digest == "") != (len(p.Changes) == 0 || p.Refused()) {
				t.Errorf("digest %q of %d changes", p.Digest, len(p.Changes))
			}
			if _, err := testClient().request(p.Changes, bare); err != nil {
				t.Errorf("the changes cannot be sent: %v", err)
			}
		})
	}
}

// TestDigest: the digest depends on each change and on the value that the leaf had before.
func TestDigest(t *testing.T) {
	w := Wanted{DeviceID: 7}
	circuit := "/components/component[name=ic0]/state/type=INTEGRATED_CIRCUIT"
	base := Diff("leaf1", w, snapshotOf(t, circuit), nil)
	for name, p := range map[string]*Plan{
		"device": Diff("leaf2", w, snapshotOf(t, circuit), nil),
		"after":  Diff("leaf1", Wanted{DeviceID: 8}, snapshotOf(t, circuit), nil),
		"before": Diff("leaf1", w, snapshotOf(t, circuit, node+"=8"), map[string]Written{node: {Value: "8"}}),
	} {
		if p.Digest == base.Digest {
			t.Errorf("the digest does not depend on %s", name)
		}
	}
	if again := Diff("leaf1", w, snapshotOf(t, circuit, eth0+"enabled=true"), nil); again.Digest != base.Digest {
		t.Error("the digest depends on what is not changed")
	}
	if d := Digest([]*Plan{base, {Device: "leaf3"}}); d != base.Digest {
		t.Errorf("digest %s, with one plan %s", d, base.Digest)
	}
}

// No leaf of the table turns a port off, no path names more than one leaf, and device ids and port
// numbers are deleted before they are changed.
func TestPaths(t *testing.T) {
	schema := testSchema()
	for k := range paths {
		l := Leaf{kind(k), "x"}
		if l.entry() == "" {
			l.name = ""
		}
		for _, path := range []string{l.Path(), l.State()} {
			n, err := schema.Resolve(nil, gnmiPath(path))
			if err != nil || len(n) != 1 || n[0].Leaf == nil {
				t.Errorf("%s: nodes %v, error %v; expected one leaf", path, n, err)
			}
		}
		if back, ok := leafAt(l.Path()); !ok || back != l {
			t.Errorf("%s is read back as %+v", l.Path(), back)
		}
	}
	no, two := "false", "2"
	for _, c := range []Change{{Path: eth0 + "enabled", After: &no}, {Path: "/interfaces", After: &no},
		{Path: eth0 + "mtu", After: &two}, {Path: eth0 + "id", After: &no}, {Path: "/lldp/config/enabled", After: &no}} {
		if req, err := testClient().request([]Change{c}, bare); err == nil {
			t.Errorf("%s = %s is sent: %v", c.Path, *c.After, req)
		}
	}
	one := "1"
	req, err := testClient().request([]Change{{Path: eth0 + "id", Before: &one, After: &two}}, bare)
	if err != nil || len(req.GetDelete()) != 1 || len(req.GetUpdate()) != 1 || len(req.GetReplace()) != 0 {
		t.Errorf("%v, error %v; expected a delete and an update", req, err)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"format":1,"device":"leaf1","written":{},"pending":{"state":"UNDOING","changes":[]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseRecord("leaf1", data)
		if err != nil || r.Pending == nil {
			return
		}
		if _, err := testClient().request(r.Pending.Changes, bare); err != nil {
			t.Errorf("a record that was read cannot be sent: %v", err)
		}
	})
}

func FuzzSnapshot(f *testing.F) {
	f.Add("/interfaces/interface[name=a]", []byte(`{"config":{"id":1,"enabled":true}}`))
	f.Add("/components", []byte(`{"component":[{"name":"x","integrated-circuit":{"state":{"node-id":"5"}}}]}`))
	f.Fuzz(func(t *testing.T, path string, value []byte) {
		defer func() {
			if r := recover(); r != nil {
				t.Errorf("%v", r)
			}
		}()
		p, ok := parse(path)
		if !ok {
			return
		}
		s := NewSnapshot()
		_ = s.add(testSchema(), &gpb.Notification{Update: []*gpb.Update{{Path: p,
			Val: &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: value}}}}})
		plan := Diff("leaf1", Wanted{DeviceID: 1, LLDP: true, Ports: []Port{{Number: 1}, {Number: 2, Interface: "a"}}}, s,
			nil)
		if _, err := testClient().request(plan.Changes, bare); err != nil {
			t.Error(err)
		}
	})
}

// testClient returns a client without a connection.
func testClient() *client { return &client{schema: testSchema(), path: southbound.DefaultForm()} }

// parse parses a path; ok is false if the text is not a path.
func parse(text string) (*gpb.Path, bool) {
	p, err := yang.ParsePath(text)
	return p, err == nil
}
