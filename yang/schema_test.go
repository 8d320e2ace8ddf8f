// SPDX-License-Identifier: Apache-2.0

package yang

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/yang/table"
)

func TestMain(m *testing.M) {
	// ygot logs through glog, which starts a goroutine at load.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

// univmon is the module of a plugin that ships with netsketch.
func univmon(tb testing.TB) Module {
	tb.Helper()
	text, err := os.ReadFile("../plugins/univmon/plugin/netsketch-univmon.yang")
	if err != nil {
		tb.Fatal(err)
	}
	return Module{Name: "netsketch-univmon", Text: string(text)}
}

// everything returns the schema of the collector, a plugin and the switch.
func everything(tb testing.TB) *Schema {
	tb.Helper()
	s, err := Load(slices.Concat(CollectorModules(), SwitchModules(), []Module{univmon(tb)})...)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestBundledModules(t *testing.T) {
	s := everything(t)
	var lists []string
	for _, l := range s.Lists() {
		var keys []string
		for _, k := range l.Keys {
			keys = append(keys, k.Name+":"+k.Kind().String())
		}
		if strings.Contains(l.Path, "netsketch") {
			lists = append(lists, l.Path+" "+strings.Join(keys, " "))
		}
	}
	want := []string{
		"/netsketch-collector:collector/certificates/certificate file:string",
		"/netsketch-collector:collector/devices/device node:string",
		"/netsketch-collector:collector/devices/device/configuration/leaves/leaf path:string",
		"/netsketch-collector:collector/hosts/host node:string",
		"/netsketch-collector:collector/links/link port:string",
		"/netsketch-collector:collector/outputs/output name:string",
		"/netsketch-collector:collector/plugins/plugin name:string",
		"/netsketch-lldp:lldp/interfaces/interface name:string",
		"/netsketch-lldp:lldp/interfaces/interface/neighbors/neighbor id:string",
		"/netsketch-platform:components/component name:string",
		"/netsketch-topology:topology/links/link name:string",
		"/netsketch-topology:topology/nodes/node name:string",
		"/netsketch-topology:topology/ports/port name:string",
		"/netsketch-univmon:univmon/alerts/alert location:string kind:string subject:string",
		"/netsketch-univmon:univmon/ddos-victims/ddos-victim node:string destination-address:string",
		"/netsketch-univmon:univmon/flows/flow node:string dimension:string flow:string",
		"/netsketch-univmon:univmon/functions/function node:string dimension:string name:string",
		"/netsketch-univmon:univmon/heavy-changes/heavy-change node:string dimension:string flow:string",
		"/netsketch-univmon:univmon/heavy-hitters/heavy-hitter node:string dimension:string flow:string",
		"/netsketch-univmon:univmon/manifests/manifest node:string dimension:string entry-node:string exit-node:string",
		"/netsketch-univmon:univmon/node-summaries/node-summary node:string dimension:string",
		"/netsketch-univmon:univmon/unparsed-packets/unparsed-packet node:string reason:string",
	}
	if diff := cmp.Diff(want, lists); diff != "" {
		t.Errorf("lists (-want +got):\n%s", diff)
	}
	for _, m := range s.Models() {
		if m.Version == "" || m.Organization == "" {
			t.Errorf("module %s: version %q, organization %q", m.Name, m.Version, m.Organization)
		}
		types := m.Name == "netsketch-types" || m.Name == "netsketch-results"
		if strings.HasPrefix(m.Name, "netsketch-") && m.Data == types {
			t.Errorf("module %s: data nodes %v", m.Name, m.Data)
		}
	}
}

// Every bundled module of netsketch is laid out in OpenConfig's style; TestRules checks its nodes.
func TestOpenConfigStyle(t *testing.T) {
	for _, name := range BundledNames() {
		m := bundled()[name]
		if !strings.HasPrefix(name, "netsketch-") {
			continue
		}
		for _, want := range []string{"\n  yang-version", "\n  revision \"20", "oc-ext:openconfig-version \"",
			"\n  contact", "\n  organization", "\n  description"} {
			if !strings.Contains(m.Text, want) {
				t.Errorf("%s.yang has no %s", name, strings.TrimSpace(want))
			}
		}
		for i, line := range strings.Split(m.Text, "\n") {
			if len(line) > 80 || strings.ContainsAny(line, "\t\r") || line != strings.TrimRight(line, " ") {
				t.Errorf("%s.yang:%d: over 80 columns, tab, or space at the end", name, i+1)
			}
		}
	}
}

func TestLeaves(t *testing.T) {
	s := everything(t)
	tests := []struct {
		list, leaf string
		base       Base
		kind       table.Kind
		units      string
		config     bool
	}{
		{"/netsketch-univmon:univmon/heavy-hitters/heavy-hitter", "state/packets", Uint64, table.Uint64, "packets",
			false},
		{"/univmon/heavy-hitters/heavy-hitter", "flow", String, table.String, "", false},
		{"/univmon/heavy-hitters/heavy-hitter", "state/share", Decimal64, table.Float64, "share", false},
		{"/univmon/heavy-changes/heavy-change", "state/delta", Int64, table.Int64, "packets", false},
		{"/univmon/heavy-changes/heavy-change", "state/kind", Enumeration, table.String, "", false},
		{"/collector/epoch", "state/flip-time", Uint64, table.Uint64, "nanoseconds", false},
		{"/collector", "epoch/state/flip-time", Uint64, table.Uint64, "nanoseconds", false},
		{"/collector/devices/device", "config/address", String, table.String, "", true},
		{"/interfaces/interface", "state/id", Uint32, table.Uint64, "", false},
		{"/openconfig-interfaces:interfaces/interface", "state/counters/in-octets", Uint64, table.Uint64, "", false},
		{"/interfaces/interface", "state/type", Identityref, table.String, "", false},
		{"/interfaces/interface", "ethernet/state/port-speed", Identityref, table.String, "", false},
	}
	for _, tt := range tests {
		l, err := s.List(tt.list)
		if err != nil {
			t.Error(err)
			continue
		}
		leaf := l.Leaf(tt.leaf)
		if leaf == nil {
			t.Errorf("%s has no %s", tt.list, tt.leaf)
			continue
		}
		if leaf.Name != tt.leaf || leaf.Type.Base != tt.base || leaf.Kind() != tt.kind || leaf.Units != tt.units ||
			leaf.Config() != tt.config {
			t.Errorf("%s %s: name %s, %s as %s in %q, config %v", tt.list, tt.leaf, leaf.Name, leaf.Type.Base,
				leaf.Kind(), leaf.Units, leaf.Config())
		}
	}
	l, _ := s.List("/collector/devices/device")
	if diff := cmp.Diff([]string{"config/node", "state/node"}, l.Keys[0].RefersTo); diff != "" {
		t.Error(diff)
	}
	path, keys, ok := s.ListKeys([]string{"univmon", "netsketch-univmon:flows", "flow"})
	if !ok || path != "/netsketch-univmon:univmon/flows/flow" ||
		!slices.Equal(keys, []string{"node", "dimension", "flow"}) {
		t.Errorf("got %s %v %v", path, keys, ok)
	}
	if _, _, ok := s.ListKeys([]string{"univmon", "flows"}); ok {
		t.Error("a container was taken for a list")
	}
	want := map[string]string{"state/node": "node", "state/dimension": "dimension", "state/flow": "flow"}
	if diff := cmp.Diff(want, s.KeyLeaves(path)); diff != "" {
		t.Error(diff)
	}
	id, _ := s.Node("/interfaces/interface/state/id")
	if got := id.Path; got != "/openconfig-interfaces:interfaces/interface/state/netsketch-p4rt-ids:id" {
		t.Errorf("path %s", got)
	}
	l, _ = s.List("/interfaces/interface")
	typ := l.Leaf("state/type").Type
	for _, v := range []string{"ethernetCsmacd", "iana-if-type:ethernetCsmacd"} {
		if err := typ.CheckText(v); err != nil {
			t.Error(err)
		}
		if got := typ.Qualify(v); got != "iana-if-type:ethernetCsmacd" {
			t.Errorf("%s qualifies as %s", v, got)
		}
	}
	sub, err := s.List("/interfaces/interface/subinterfaces/subinterface")
	if err != nil || !sub.Nested {
		t.Errorf("subinterface: %v", err)
	}
	for _, path := range []string{"univmon", "/univmon/x", "/univmon/flows/flow/state", "/univmon/flows/flow/flow", "/",
		"/wrong:univmon/flows/flow"} {
		if _, err := s.List(path); err == nil {
			t.Errorf("%s was taken for a list", path)
		}
	}
}

const hitters = "/netsketch-univmon:univmon/heavy-hitters/heavy-hitter"

// hitterTable returns a table of n heavy hitters.
func hitterTable(tb testing.TB, n int) *table.Table {
	tb.Helper()
	b := table.NewBuilder(hitters)
	device, dimension, flow := b.TextKey("node"), b.TextKey("dimension"), b.TextKey("flow")
	rank, packets, share := b.Uint("state/rank"), b.Uint("state/packets"), b.Float("state/share")
	for i := range n {
		device.Append(fmt.Sprintf("leaf-%d", i%8))
		dimension.Append("5-tuple")
		flow.Append(fmt.Sprintf("10.%d.%d.%d,10.0.0.1,tcp,%d,80", i>>16&255, i>>8&255, i&255, i&0xffff))
		rank.Append(uint64(i + 1))
		packets.Append(uint64(n - i))
		share.Append(1 / float64(n))
	}
	t, err := b.Table()
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func TestValidate(t *testing.T) {
	s := everything(t)
	if err := s.Validate(hitterTable(t, 3000)); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(hitterTable(t, 0)); err != nil {
		t.Fatal(err)
	}
	change := func(f func(*table.Table)) *table.Table {
		tab := hitterTable(t, 3)
		f(tab)
		return tab
	}
	tests := []struct {
		name string
		t    *table.Table
		want string
	}{
		{"list", change(func(t *table.Table) { t.List = "/netsketch-univmon:univmon/heavy-hiters/heavy-hitter" }),
			`yang: there is no "heavy-hiters" at /netsketch-univmon:univmon; did you mean "heavy-hitters"?`},
		{"path form", change(func(t *table.Table) {
			t.List = "/netsketch-univmon:univmon/heavy-hitters/netsketch-univmon:heavy-hitter"
		}), "its path is " + hitters},
		{"key missing", change(func(t *table.Table) { t.Keys = t.Keys[:2] }),
			"2 key columns (node, dimension), the list has the keys node, dimension, flow"},
		{"rows with the same keys", change(func(t *table.Table) {
			t.Keys[0] = table.Strings("node", []string{"s1", "s2", "s1"})
			t.Keys[2] = table.Strings("flow", []string{"b", "b", "b"})
		}), "[node=s1][dimension=5-tuple][flow=b]: the table has two rows with these keys"},
		{"key order", change(func(t *table.Table) { t.Keys[0], t.Keys[1] = t.Keys[1], t.Keys[0] }), "in this order"},
		{"unknown leaf", change(func(t *table.Table) { t.Values[1].Name = "state/packet" }),
			`column state/packet: yang: there is no "packet" at ` + hitters + `/state; did you mean "packets"?`},
		{"container", change(func(t *table.Table) { t.Values[1].Name = "state" }), "column state is a container"},
		{"kind", change(func(t *table.Table) { t.Values[1] = table.Int64s("state/packets", []int64{1, 2, 3}) }),
			"column state/packets is int64; the leaf is a uint64, carried as uint64"},
		{"range", change(func(t *table.Table) { t.Values[0] = table.Uint64s("state/rank", []uint64{1, 0, 2}) }),
			"yang: " + hitters + "[node=leaf-1][dimension=5-tuple][flow=10.0.0.1,10.0.0.1,tcp,1,80]: " +
				"state/rank: 0 is outside of 1..4294967295"},
		{"width", change(func(t *table.Table) { t.Values[0] = table.Uint64s("state/rank", []uint64{1, 1 << 32, 2}) }),
			"state/rank: 4294967296 is outside"},
		{"decimal", change(func(t *table.Table) {
			t.Values[2] = table.Float64s("state/share",
				[]float64{0, 1, 1.001})
		}), "state/share: 1.001 is outside of 0"},
		{"not a number", change(func(t *table.Table) {
			t.Values[2] = table.Float64s("state/share", []float64{0, math.NaN(), 0})
		}), "state/share: NaN is not a finite number"},
		{"infinity", change(func(t *table.Table) {
			t.Values[2] = table.Float64s("state/share", []float64{0, math.Inf(-1), 0})
		}), "state/share: -Inf is not a finite number"},
		{"pattern", change(func(t *table.Table) {
			t.Keys[1] = table.Strings("dimension", []string{"src", "src dst", "dst"})
		}), `dimension: "src dst" does not match the pattern`},
		{"length", change(func(t *table.Table) { t.Keys[0] = table.Strings("node", []string{"a", "", "b"}) }),
			`node: "" has the length 0, allowed is 1..63`},
		{"utf-8", change(func(t *table.Table) { t.Keys[0] = table.Strings("node", []string{"a", "\xff", "b"}) }),
			"is not UTF-8"},
		{"control", change(func(t *table.Table) { t.Keys[0] = table.Strings("node", []string{"a", "x\x00", "b"}) }),
			"control character"},
		{"repeats key", change(func(t *table.Table) {
			t.Values = append(t.Values, table.Strings("state/flow", []string{"a", "b", "c"}))
		}), "differs from the key flow"},
		{"nested", &table.Table{List: "/openconfig-interfaces:interfaces/interface/subinterfaces/subinterface",
			Keys: []table.Column{table.Uint64s("index", nil)}}, "interface/name, index"},
		{"unequal columns", change(func(t *table.Table) { t.Values[0] = table.Uint64s("state/rank", []uint64{1}) }),
			"has 1 rows"},
	}
	for _, tt := range tests {
		err := s.Validate(tt.t)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got  %v\nwant %s", tt.name, err, tt.want)
		}
	}
	var ve *ValueError
	bad := change(func(t *table.Table) { t.Values[0] = table.Uint64s("state/rank", []uint64{1, 2, 0}) })
	if err := s.Validate(bad); !errors.As(err, &ve) || ve.Row != 2 || ve.Leaf != "state/rank" {
		t.Errorf("got %v", err)
	}
	// Absent values are not checked, and rounding precedes the range check.
	nulls, _ := table.Uint64s("state/rank", []uint64{1, 0, 3}).WithNulls([]uint64{2})
	if err := s.Validate(change(func(t *table.Table) {
		t.Values[0] = nulls
		t.Values[2], _ = table.Float64s("state/share", []float64{0, 1.0000001, math.NaN()}).WithNulls([]uint64{4})
	})); err != nil {
		t.Error(err)
	}
	typ, _ := table.Strings("state/type", []string{""}).WithNulls([]uint64{1})
	port := &table.Table{List: "/openconfig-interfaces:interfaces/interface",
		Keys: []table.Column{table.Strings("name", []string{"1"})}, Values: []table.Column{typ}}
	if err := s.Validate(port); err == nil || !strings.Contains(err.Error(),
		"[name=1]: the mandatory leaf state/type is absent") {
		t.Error(err)
	}
	port.Values = []table.Column{table.Uint64s("state/id", []uint64{5})}
	if err := s.Validate(port); err != nil {
		t.Error(err)
	}
	summary := &table.Table{List: "/netsketch-collector:collector/epoch",
		Values: []table.Column{table.Strings("state/status", []string{"PARTIAL"}),
			table.Uint64s("state/flip-time", []uint64{5})}}
	if err := s.Validate(summary); err != nil {
		t.Error(err)
	}
	summary.Values[0] = table.Strings("state/status", []string{"part"})
	if err := s.Validate(summary); err == nil || !strings.Contains(err.Error(),
		`"part" is not one of COMPLETE, PARTIAL, LOST`) {
		t.Error(err)
	}
}

func elem(name string, keys ...string) *gpb.PathElem {
	e := &gpb.PathElem{Name: name}
	for i := 0; i < len(keys); i += 2 {
		if e.Key == nil {
			e.Key = map[string]string{}
		}
		e.Key[keys[i]] = keys[i+1]
	}
	return e
}

func TestResolve(t *testing.T) {
	s := everything(t)
	path := func(elems ...*gpb.PathElem) *gpb.Path { return &gpb.Path{Elem: elems} }
	um := "/netsketch-univmon:univmon"
	tests := []struct {
		path *gpb.Path
		want []string // expected rows, or one error preceded by "!"
	}{
		{path(), []string{"/"}},
		{path(elem("univmon"), elem("flows"), elem("flow", "flow", "a", "node", "*")), []string{um + "/flows/flow"}},
		{path(elem("netsketch-univmon:univmon"), elem("flows")), []string{um + "/flows"}},
		{path(elem("univmon"), elem("*"), elem("flow")), []string{um + "/flows/flow"}},
		{path(elem("univmon"), elem("..."), elem("packets")), []string{
			um + "/flows/flow/state/packets", um + "/heavy-hitters/heavy-hitter/state/packets",
			um + "/node-summaries/node-summary/state/packets", um + "/unparsed-packets/unparsed-packet/state/packets"}},
		{path(elem("..."), elem("ddos-victim", "destination-address", "10.0.0.1")),
			[]string{um + "/ddos-victims/ddos-victim"}},
		{&gpb.Path{Origin: "openconfig", Elem: []*gpb.PathElem{elem("collector"), elem("epoch")}},
			[]string{"/netsketch-collector:collector/epoch"}},
		{&gpb.Path{Origin: "cli"}, []string{`!origin "cli"`}},
		{path(elem("univmom")), []string{`!there is no "univmom" at the top of the tree; did you mean "univmon"? ` +
			`(element 1 of /univmom)`}},
		{path(elem("univmon"), elem("flows"), elem("flow", "destination", "a")),
			[]string{"!has no key \"destination\", its keys are node, dimension, flow"}},
		{path(elem("univmon", "a", "b")), []string{"!is a container and has no key"}},
		{path(elem("univmon"), elem("flows"), elem("flow", "dimension", "a b")),
			[]string{`!key dimension: "a b" does not match`}},
		{path(elem("univmon"), elem("flows"), elem("flow"), elem("state"), elem("packets"), elem("x")),
			[]string{`!there is no "x" at`}},
		{path(elem("univmon"), elem("flows"), elem("flow"), elem("state"), elem("packets"), elem("*")),
			[]string{"!nothing below"}},
		{path(elem("")), []string{"!without a name"}},
		{path(elem("...", "a", "b")), []string{"!has keys"}},
		{path(slices.Repeat([]*gpb.PathElem{elem("...")}, 65)...), []string{"!at most 64"}},
	}
	for _, tt := range tests {
		nodes, err := s.Resolve(nil, tt.path)
		var got []string
		for _, n := range nodes {
			got = append(got, n.Path)
		}
		if strings.HasPrefix(tt.want[0], "!") {
			if err == nil || !strings.Contains(err.Error(), tt.want[0][1:]) {
				t.Errorf("%s: got %v %v, want an error with %s", PathString(tt.path.GetElem()), got, err,
					tt.want[0][1:])
			}
			continue
		}
		if err != nil {
			t.Error(err)
		} else if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", PathString(tt.path.GetElem()), diff)
		}
	}
	if err := s.CheckPath(path(elem("univmon")), path(elem("flows"))); err != nil {
		t.Error(err)
	}
	if got := PathString([]*gpb.PathElem{elem("a", "k", `x]\`), elem("b")}); got != `/a[k=x\]\\]/b` {
		t.Error(got)
	}
}

func TestAppendDecimal(t *testing.T) {
	tests := []struct {
		v    float64
		fd   int
		want string
	}{
		{0, 6, "0.0"}, {1, 6, "1.0"}, {1.5, 6, "1.5"}, {-0.0000001, 6, "0.0"}, {13.1234567, 6, "13.123457"},
		{100, 2, "100.0"}, {-2.50, 3, "-2.5"}, {1e15, 3, "1000000000000000.0"}, {math.Copysign(0, -1), 2, "0.0"},
	}
	for _, tt := range tests {
		if got := string(AppendDecimal([]byte("x"), tt.v, tt.fd)); got != "x"+tt.want {
			t.Errorf("%v with %d digits: %s, want %s", tt.v, tt.fd, got[1:], tt.want)
		}
	}
}

func TestGoPattern(t *testing.T) {
	tests := []struct {
		pattern, text string
		want          bool
	}{
		{"a|b", "xb", false}, {"a|b", "b", true}, {"^a|b$", "b", true}, {"^a|b$", "ba", false},
		{`a$b\$`, "a$b$", true}, {"[^a]b", "cb", true}, {"[^a]b", "ab", false}, {"a^", "a^", true},
		{`\d{2}`, "123", false},
		{`[$^]x`, "^x", true}, {"a", "a\n", false},
	}
	for _, tt := range tests {
		b := &builder{regexps: map[string]pattern{}}
		typ := &Type{}
		if err := b.patterns(typ, yangType(tt.pattern)); err != nil {
			t.Fatal(err)
		}
		if got := typ.patterns[0].re.MatchString(tt.text); got != tt.want {
			t.Errorf("%s on %q: %v", tt.pattern, tt.text, got)
		}
	}
}

// The files in testdata/refused are module texts with the expected error in the first line.
func TestRefused(t *testing.T) {
	files, err := filepath.Glob("testdata/refused/*.yang")
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(text), "\n")
		want := strings.TrimPrefix(first, "// want: ")
		_, err = Load(Module{Name: strings.TrimSuffix(filepath.Base(f), ".yang"), Text: string(text),
			Source: "plugin p"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\ngot  %v\nwant %s", f, err, want)
		}
	}
}

const head = "module m {\n namespace \"urn:m\"; prefix m;\n"

// Texts that are larger or nested deeper than any published module are refused.
func TestBounds(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"depth", head + strings.Repeat("container c {", 10_000) + strings.Repeat("}", 10_001), "nested more than"},
		{"size", head + strings.Repeat(" ", 600_000) + "}", "bytes"},
		{"pattern", head + "leaf l { type string { pattern '((a{1,30}b?){1,30}){1,30}'; } } }", "pattern"},
	}
	for _, tt := range tests {
		if _, err := Load(Module{Text: tt.text}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", tt.name, err, tt.want)
		}
	}
	big := make([]Module, 300)
	if _, err := Load(big...); err == nil || !strings.Contains(err.Error(), "300 modules") {
		t.Error(err)
	}
}

func TestSameModuleTwice(t *testing.T) {
	a := Module{Name: "m", Text: head + "container a { leaf x { type string; } } }", Source: "plugin one"}
	b := Module{Name: "m", Text: head + "container b; }", Source: "plugin two"}
	if _, err := Load(a, a); err != nil {
		t.Error(err)
	}
	if _, err := Load(a, b); err == nil || !strings.Contains(err.Error(), "plugin one: m.yang") ||
		!strings.Contains(err.Error(), "plugin two: m.yang") {
		t.Error(err)
	}
	other := Module{Name: "n", Text: strings.ReplaceAll(a.Text, "module m", "module n"), Source: "plugin two"}
	if _, err := Load(a, other); err == nil || !strings.Contains(err.Error(), "namespace") {
		t.Error(err)
	}
	other.Text = strings.ReplaceAll(other.Text, "urn:m", "urn:n")
	if _, err := Load(a, other); err == nil || !strings.Contains(err.Error(),
		`module n adds "a" to /, where module m has a node of that name`) {
		t.Error(err)
	}
	// A plugin's version of a module replaces the bundled one.
	newer := bundled()["netsketch-lldp"]
	newer.Text = strings.ReplaceAll(newer.Text, "0.1.0", "0.2.0")
	s, err := Load(newer)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Models() {
		if m.Name == newer.Name && m.Version != "0.2.0" {
			t.Errorf("version %s", m.Version)
		}
	}
}

func FuzzLoad(f *testing.F) {
	for _, n := range BundledNames() {
		if strings.HasPrefix(n, "netsketch-") {
			f.Add(bundled()[n].Text)
		}
	}
	files, _ := filepath.Glob("testdata/refused/*.yang")
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Load(Module{Text: text})
		if err != nil {
			return
		}
		for _, l := range s.Lists() {
			if got, err := s.List(l.Path); err != nil || got != l {
				t.Errorf("list %s is not found by its path: %v", l.Path, err)
			}
			for _, leaf := range append(slices.Clone(l.Keys), l.Leaves...) {
				if leaf.Type == nil || leaf.Kind() == table.Invalid {
					t.Errorf("leaf %s of %s has no type", leaf.Name, l.Path)
				}
				_ = leaf.Type.CheckText(text)
			}
		}
	})
}

func FuzzCheckPath(f *testing.F) {
	s := everything(f)
	f.Add("univmon", "flow", "node", "a")
	f.Fuzz(func(t *testing.T, a, b, k, v string) {
		_ = s.CheckPath(nil, &gpb.Path{Elem: []*gpb.PathElem{elem(a), elem("..."), elem(b, k, v)}})
	})
}

func BenchmarkValidate100k(b *testing.B) {
	s, tab := everything(b), hitterTable(b, 100_000)
	for b.Loop() {
		if err := s.Validate(tab); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/table")
}

func BenchmarkLoad(b *testing.B) {
	mods := append(CollectorModules(), univmon(b))
	for b.Loop() {
		if _, err := Load(mods...); err != nil {
			b.Fatal(err)
		}
	}
}
