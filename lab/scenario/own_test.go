// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/lab/scenario/groundtruth"
	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/scenario/scoring"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/sketch/flow"
)

// The example with the user's own program, plugin and agent is played from its files and scored by
// its own declaration.
func TestOwnProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("builds binaries, which takes long: run it without -short, as make test does")
	}
	const example = "../../examples/cocosketch"
	dir := t.TempDir()
	for name, pkg := range map[string]string{"netsketch-plugin-cocosketch": ".", "hostagent-cocosketch": "./agent"} {
		build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, name), pkg)
		build.Dir = example
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "p4"), os.DirFS(filepath.Join(example, "p4"))); err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string]string{"scenario.yaml": "cocosketch.json", "hosts.yaml": "forwarding"} {
		text, err := os.ReadFile(filepath.Join(example, name))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := Load(file)
		if err != nil {
			t.Fatal(err)
		}
		if missing, err := s.Check(t.Context(), dir); err != nil || len(missing) > 0 {
			t.Errorf("%s: %v, missing %q", name, err, missing)
		}
		checkMistakes(t, file, dir)
		if name == "scenario.yaml" {
			checkMisses(t, file, dir)
		}
		r, err := Open(t.Context(), s, Options{Virtual: true, PluginDir: dir, Listen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		report, err := r.Play(t.Context())
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err != nil || !report.OK || len(report.Expected) != 8 ||
			!slices.Equal(report.Plugins, []string{"cocosketch"}) || report.Program != program {
			out, _ := json.Marshal(report.Expected)
			t.Errorf("%s: %v, plugins %v, program %s: %s", name, err, report.Plugins, report.Program, out)
		}
	}
}

// checkMistakes checks that mistakes in the scenario of the example are found before it is played.
func checkMistakes(t *testing.T, file, dir string) {
	t.Helper()
	for change, want := range map[Change]string{
		{"scoring[0].measures[0].list", "flows"}: `scoring[0].measures[0].list: cocosketch has no list "flows"; ` +
			`did you mean "flow"?`,
		{"scoring[0].measures[0].list", "node-summary"}: `the list node-summary has no key "flow", by which its rows are`,
		{"scoring[0].measures[1].leaf", "packet"}:       `the list flow has no leaf "packet"; did you mean "packets"?`,
		{"scoring[0].root", "cocosketches"}:             `scoring[0].root: cocosketch publishes nothing below "cocosketches"`,
		{"scoring[0].summary", "node-summaries"}:        `scoring[0].summary: cocosketch has no list "node-summaries"; there`,
		{"scoring[0].measures[1].leaf", "quality"}:      "leaf: quality has the type quality, which is not compared with",
		{"program", "p4/none.json"}:                     "program: open ",
		{"algorithms[0].plugin", "./none"}:              "algorithms[0]: plugin none (",
		{"algorithms[0].plugin", "./p4/own.p4"}:         "it is not executable",
		{"algorithms[0].config", "{packet: 1}"}:         `unknown key "packet"`,
		{"algorithms[0].config", "{packets: 0}"}:        "packets: is out of range",
	} {
		s, err := Load(file, change)
		if err == nil {
			_, err = s.Check(t.Context(), dir)
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v: %v, want %q", filepath.Base(file), change, err, want)
		}
	}
	s, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Agents) > 0 { // hosts that count nothing
		s, err := Load(file, Change{"algorithms[0].config", "{host-slots: 0}"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Check(t.Context(), dir); err == nil || !strings.Contains(err.Error(),
			`agents[0]: no plugin has settings for the role "cocosketch" of ./hostagent-cocosketch`) {
			t.Error(err)
		}
	}
	for agent, want := range map[string]string{"./none": "agents[0]: ", "./p4/own.p4": "is not a program",
		"./netsketch-plugin-cocosketch": "expected a program whose main calls command.Main"} {
		s.Agents = []string{agent}
		if _, err := s.Check(t.Context(), dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("agent %s: %v, want %q", agent, err, want)
		}
	}
}

// checkMisses checks that a plugin that finds no register in the program is reported.
func checkMisses(t *testing.T, file, dir string) {
	t.Helper()
	for _, end := range []string{".json", ".p4info.txtpb"} {
		text, err := os.ReadFile(filepath.Join(dir, "p4/cocosketch"+end))
		if err != nil {
			t.Fatal(err)
		}
		text = []byte(strings.ReplaceAll(string(text), "cocosketch_slots", "cocosketch_slot"))
		if err := os.WriteFile(filepath.Join(dir, "p4/other"+end), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Load(file, Change{"program", "p4/other.json"})
	if err != nil {
		t.Fatal(err)
	}
	missing, err := s.Check(t.Context(), dir)
	if err != nil || len(missing) != 1 || !strings.Contains(missing[0], "plugin cocosketch misses @cocosketch_slots") ||
		!strings.Contains(missing[0], "@cocosketch_slot ") {
		t.Errorf("%v, missing %q", err, missing)
	}
}

// A program that no collector can read is refused before the run, and by config check.
func TestOwnProgramRefused(t *testing.T) {
	dir := t.TempDir()
	for _, end := range []string{".json", ".p4info.txtpb"} {
		text, err := os.ReadFile("../../examples/cocosketch/p4/cocosketch" + end)
		if err != nil {
			t.Fatal(err)
		}
		for old, size := range map[string]string{"size: 24576": "size: 640", `"size" : 24576`: `"size" : 640`} {
			text = []byte(strings.ReplaceAll(string(text), old, size))
		}
		if err := os.WriteFile(filepath.Join(dir, "odd"+end), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Parse("s", []byte("epochs: 1\nprogram: "+dir+"/odd.json\ntraffic: [{name: a, rate: 100, flows: 1}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "register ingress.own.slots has 320 cells in a bank"
	if _, err := s.Check(t.Context(), dir); err == nil || strings.Count(err.Error(), want) != 1 ||
		!strings.HasPrefix(err.Error(), "s:2:10: program: ") {
		t.Errorf("config check: %v, want %q once, at the key program", err, want)
	}
	began := time.Now()
	r, err := Open(t.Context(), s, Options{Virtual: true, PluginDir: dir, Listen: "127.0.0.1:0"})
	if err == nil || !strings.Contains(err.Error(), want) || time.Since(began) > 20*time.Second {
		t.Errorf("after %v: %v, want %q", time.Since(began), err, want)
	}
	if r != nil {
		_ = r.Close()
	}
}

// A program that answers another object than its annotation states is refused by config check.
func TestOwnProgramContradicts(t *testing.T) {
	dir := t.TempDir()
	for _, end := range []string{".json", ".p4info.txtpb"} {
		text, err := os.ReadFile("../../examples/cocosketch/p4/cocosketch" + end)
		if err != nil {
			t.Fatal(err)
		}
		text = []byte(strings.Replace(string(text), "int64_value: 128", "int64_value: 129", 1))
		if err := os.WriteFile(filepath.Join(dir, "odd"+end), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Parse("s", []byte("epochs: 1\nprogram: "+dir+"/odd.json\ntraffic: [{name: a, rate: 100, flows: 1}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "register ingress.own.slots: the program does not answer a read-out of object 129, bank 1, from " +
		"cell 0: an action needs NS_READ_AND_CLEAR(slots, 12288), called where NS_ASKED(129, 12288) holds"
	if _, err := s.Check(t.Context(), dir); err == nil || strings.Count(err.Error(), want) != 1 ||
		!strings.HasPrefix(err.Error(), "s:2:10: program: ") {
		t.Errorf("config check: %v, want %q once, at the key program", err, want)
	}
}

// An agent's program that serves no role ends the run, with its name.
func TestOwnAgentFails(t *testing.T) {
	s, err := Parse("s", []byte("epochs: 1\nprogram: forwarding\nagents: [/bin/true]\n"+
		"traffic: [{name: a, rate: 100, flows: 1}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(t.Context(), s, Options{Virtual: true, PluginDir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err == nil || !strings.Contains(err.Error(), "agent /bin/true: ") {
		t.Errorf("%v, want the name of the agent", err)
	}
	if r != nil {
		_ = r.Close()
	}
}

// Latencies and paths are those of the packets that left each switch; the network's are sums and
// whole paths. A value is correct within the tolerance.
func TestOwnTruths(t *testing.T) {
	parse := func(text string) flow.Key {
		k, err := flow.Parse(flow.FiveTuple, text)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	k, other := parse("10.0.0.1,10.1.0.1,udp,1,2"), parse("10.0.0.1,10.1.0.1,udp,1,3")
	left := func(hop uint8, delays ...time.Duration) truth.Departures {
		return truth.Departures{Packets: uint64(len(delays)), Hop: hop, Delays: delays}
	}
	epoch := &score.Epoch{Truth: &score.Truth{Network: truth.Counts{k: 3, other: 1}, Devices: map[string]*score.Device{
		"leaf1": {All: truth.Counts{k: 3, other: 1},
			Departed: map[flow.Key]truth.Departures{k: left(0, 10, 20), other: left(0, 60)}},
		"spine1": {All: truth.Counts{k: 2}, Departed: map[flow.Key]truth.Departures{k: left(1, 7, 9)}},
	}}}
	c := scoring.Scoring{Plugin: "mine", Root: "mine", Summary: "nodes/node", Measures: []scoring.Measure{
		{Name: "latency", List: "flow", Stat: "correct", Truth: groundtruth.Latencies, Leaf: "state/ns", Tolerance: 0.1,
			Dimensions: []string{"5-tuple", "src"}},
		{Name: "path", List: "flow", Stat: "correct", Truth: groundtruth.Paths, Leaf: "state/path"},
	}}
	number := func(t score.Tables, measure, device, dimension, key string) float64 {
		n, _ := t.Rows("truth of "+measure, score.View{Device: device, Dimension: dimension})[key].Number("state/ns")
		return n
	}
	all := func(network bool) score.Tables {
		c.Network = network
		of, err := c.Algorithm(true).GroundTruth(nil)
		if err != nil {
			t.Fatal(err)
		}
		return of(epoch)
	}
	devices, network := all(false), all(true)
	for _, test := range []struct {
		t                      score.Tables
		device, dimension, key string
		want                   float64
	}{
		{devices, "leaf1", "5-tuple", k.String(), 15}, {devices, "leaf1", "src", "10.0.0.1", 30},
		{devices, "spine1", "5-tuple", k.String(), 8}, {devices, "spine1", "5-tuple", other.String(), 0},
		{network, score.Network, "5-tuple", k.String(), 23}, {network, score.Network, "src", "10.0.0.1", 38},
	} {
		if got := number(test.t, "latency", test.device, test.dimension, test.key); got != test.want {
			t.Errorf("%s %s %s: %v ns, want %v", test.device, test.dimension, test.key, got, test.want)
		}
	}
	paths := network.Rows("truth of path", score.View{Device: score.Network})
	for key, want := range map[flow.Key]string{k: "leaf1 spine1", other: "leaf1"} {
		if got := paths[key.String()].Leaves["state/path"].Text; got != want {
			t.Errorf("path %q of %v, want %q", got, key, want)
		}
	}
	for _, m := range c.Algorithm(true).Measures {
		for value, want := range map[float64]float64{16: 1, 17: 0} {
			published := score.Rows{k.String(): {Leaves: score.Leaves{"state/ns": score.Number(value)}}}
			actual := score.Rows{k.String(): {Leaves: score.Leaves{"state/ns": score.Number(15)}}}
			if m.Name == "latency" {
				if s, ok := m.Stat(&m, published, actual); !ok || s.Value != want {
					t.Errorf("%v for 15: %v", value, s.Value)
				}
			}
		}
	}
	// If only hosts measure, the packets are those that arrived.
	var stays truth.Stays
	stays.Arrive(1, "h1", k, []truth.Stay{{Switch: "leaf2", Delay: 4}, {Switch: "leaf1", Delay: 6}})
	epoch = &score.Epoch{Truth: &score.Truth{Stays: stays.Take(1)}}
	hosts := all(true)
	if got := number(hosts, "latency", score.Network, "5-tuple", k.String()); got != 10 {
		t.Errorf("%v ns of a packet with 10", got)
	}
	if got := hosts.Rows("truth of path", score.View{Device: score.Network})[k.String()].Leaves["state/path"].Text; got !=
		"leaf2 leaf1" {
		t.Errorf("path %q", got)
	}
	file := filepath.Join(t.TempDir(), "truth.csv")
	g, err := groundtruth.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	g.Begin(nil, 3)
	if err := errors.Join(g.Write(1, epoch.Truth), g.Close()); err != nil {
		t.Fatal(err)
	}
	const want = "\n3,1,leaf2,10.0.0.1,10.1.0.1,17,1,2,1,,,,0,4,4\n3,1,leaf1,10.0.0.1,10.1.0.1,17,1,2,1,,,,1,6,6\n" +
		"3,1,network,10.0.0.1,10.1.0.1,17,1,2,1,,,,,,\n"
	if text, err := os.ReadFile(file); err != nil || !strings.HasSuffix(string(text), want) {
		t.Errorf("%v:\n%s", err, text)
	}
	if !c.Tracked() {
		t.Error("the paths of packets are not recorded")
	}
}

// The numbers of different addresses and ports are those of the packets of each flow.
func TestOwnSpreads(t *testing.T) {
	all := truth.Counts{}
	for _, text := range []string{"10.0.0.1,10.1.0.1,udp,1,53", "10.0.0.1,10.1.0.1,tcp,2,53", "10.0.0.1,10.1.0.2,udp,1,80",
		"10.0.0.2,10.1.0.2,udp,1,53"} {
		k, err := flow.Parse(flow.FiveTuple, text)
		if err != nil {
			t.Fatal(err)
		}
		all[k] = 5
	}
	d := &groundtruth.Truth{Device: &score.Device{All: all}}
	for _, test := range []struct {
		name   string
		fields flow.Fields
		key    string
		want   uint64
	}{
		{"flow-destinations", flow.Src, "10.0.0.1", 2}, {"flow-destinations", flow.Src, "10.0.0.2", 1},
		{"flow-sources", flow.Dst, "10.1.0.1", 1}, {"flow-sources", flow.Dst, "10.1.0.2", 2},
		{"flow-destination-ports", flow.Src | flow.Dst, "10.0.0.1,10.1.0.1", 1},
		{"flow-destination-ports", flow.Src, "10.0.0.1", 2},
	} {
		got := uint64(0)
		for k, n := range groundtruth.Named[test.name](d, test.fields) {
			if k.String() == test.key {
				got = n
			}
		}
		if got != test.want {
			t.Errorf("%s of %s: %d, want %d", test.name, test.key, got, test.want)
		}
	}
}

// There is no F1 score where no flow is in the list and none should be.
func TestOwnScoreOfNothing(t *testing.T) {
	unwanted := score.Rows{}
	unwanted.Add("10.0.0.1", score.Leaves{}).Unwanted = true
	for _, test := range []struct {
		published, actual score.Rows
		want              bool
	}{
		{score.Rows{}, unwanted, false}, {score.Rows{"10.0.0.2": {}}, unwanted, true},
		{score.Rows{}, score.Rows{"x": {}}, true},
	} {
		for _, stat := range []string{"f1", "precision", "recall"} {
			c := scoring.Scoring{Measures: []scoring.Measure{{Name: "m", Stat: stat}}}
			m := c.Algorithm(true).Measures[0]
			if s, ok := m.Stat(&m, test.published, test.actual); ok != test.want {
				t.Errorf("%s of %v and %v counts: %v, %v", stat, test.published, test.actual, ok, s.Value)
			}
		}
	}
}

// Each switch of one program must have a row, and the node network is no switch: without a row, a
// switch is lost, and a row of the network counts neither way.
func TestOwnLost(t *testing.T) {
	devices := map[string]*score.Device{"leaf1": {All: truth.Counts{}}, "leaf2": {All: truth.Counts{}}}
	published := score.Tables{}
	for _, name := range []string{"leaf1", score.Network} {
		published.Rows("node", score.View{Device: name}).Add("", score.Leaves{})
	}
	c := scoring.Scoring{Plugin: "mine", Root: "mine", Summary: "nodes/node"}
	for _, test := range []struct {
		all, network bool
		want         []string
	}{
		{true, false, []string{"leaf1", "leaf2"}},
		{false, false, []string{"leaf1"}},
		{true, true, []string{score.Network}},
	} {
		c.Network = test.network
		a := c.Algorithm(test.all)
		of, err := a.GroundTruth(nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range a.Due(published, of(&score.Epoch{Truth: &score.Truth{Devices: devices, Network: truth.Counts{}}})) {
			got = append(got, v.Device)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("one program %v, network %v: %v must have rows, want %v", test.all, test.network, got, test.want)
		}
	}
}

// Switches are compared unless they run another program, which shows by the lack of results.
func TestOwnOtherProgram(t *testing.T) {
	published := score.Tables{}
	published.Rows("node", score.View{Device: "leaf1"}).Add("", score.Leaves{})
	published.Rows("flow", score.View{Device: "leaf2", Dimension: "src"}).Add("10.0.0.1", score.Leaves{})
	c := scoring.Scoring{Summary: "nodes/node", Measures: []scoring.Measure{{Name: "m", List: "flow", Stat: "f1"}}}
	for all, want := range map[bool][]string{true: {"leaf1", "leaf2", "spine1"}, false: {"leaf1", "leaf2"}} {
		var got []string
		for _, name := range []string{"leaf1", "leaf2", "spine1"} {
			view := score.View{Device: name, Dimension: "src"}
			if _, ok := c.Algorithm(all).Measures[0].Dimension(&score.Epoch{Published: published}, view); ok {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("one program %v: %v are compared, want %v", all, got, want)
		}
	}
}

// Errors in scoring name the key and what is expected there.
func TestScoringErrors(t *testing.T) {
	const head = "traffic: [{name: a, rate: 1, flows: 1}]\nscoring: [{root: r, summary: a/b, plugin: "
	measures := func(text string) string { return "x, measures: [{name: m, list: l, " + text + "}]}]" }
	sizes := func(name, keys string) string {
		return "x, measures: [{name: " + name + ", list: l, stat: f1, truth: flow-sizes" + keys + "}]}]"
	}
	const bound = "\nexpect: [{measure: m, at-least: 1, "
	for text, want := range map[string]string{
		"univmon}]": "plugin: univmon is scored without a declaration",

		measures("stat: f2, truth: flow-sizes"):                       ".stat: expected",
		measures("stat: f1, truth: sizes"):                            ".truth: expected",
		measures("stat: wmre, truth: flow-sizes"):                     "leaf: wmre compares",
		measures("stat: f1, truth: flow-sizes, dimensions: [source]"): `"source"`,
		measures("stat: correct, truth: flow-paths"):                  "leaf: correct compares",
		measures("stat: wmre, leaf: x, truth: flow-paths"):            "truth: flow-paths are texts",
		measures("stat: f1, truth: flow-paths, at-least: 3"):          "truth: flow-paths are texts",
		measures("stat: f1, truth: flow-sizes, tolerance: 0.1"):       "tolerance: f1 has none",
		measures("stat: f1, truth: flow-sizes, tolerance: 2"):         "tolerance: ",
		"x}, {root: r, summary: a/b, plugin: x}]":                     "scoring[1].plugin: x has a declaration in scoring[0]",
		"x, measures: [{name: m, list: l, stat: f1, truth: flow-sizes}, " +
			"{name: m, list: k, stat: f1, truth: flow-sizes}]}]": "measures[1].name: measures[0] has the name",
		"x}]\nexpect: [{measure: m, at-least: 1}]": `no measure is called "m"`,

		sizes("m", ", dimensions: [dst+src]"):                          `dimensions[0]: write "src+dst" for "dst+src"`,
		sizes("m", ", dimensions: [src, src]"):                         `dimensions[1]: "src" is there twice`,
		sizes("m", ", leaf: quality"):                                  "leaf: f1 compares which flows are in the list",
		sizes("rows", ""):                                              `every scenario has a measure "rows"`,
		sizes("x-lost", ""):                                            `every scenario has a measure "x-lost"`,
		sizes("m", "") + bound + "at-most: 0.5}]":                      "expect[0]: no value is at least 1 and at most 0.5",
		sizes("m", "") + bound + "algorithm: y}]":                      `expect[0].algorithm: no algorithm is called "y"`,
		sizes("m", ", dimensions: [src]") + bound + "dimension: dst}]": `the measure m has no dimension "dst"; there are src`,
		sizes("m", "") + "\nexpect: [{measure: m, at-least: 1.2}]":     "expect[0]: m is a share, so that it is at most 1",
		sizes("m", "") + "\nexpect: [{measure: x-lost, at-most: 2}]":   "expect[0]: x-lost is a share",
		sizes("m", "") + "\nexpect: [{measure: m, at-least: -0.1}]":    "expect[0]: -0.1 bounds nothing",
		"x}]\nexpect: [{measure: partial-epochs, at-most: 5}]":         "expect[0]: partial-epochs is a share",
		"x}]\nexpect: [{measure: heavy-hitter-f1, at-least: 95}]":      "expect[0]: heavy-hitter-f1 is a share",
		"x}]\nprogram: forwarding\nagents: [./a, ./a]":                 "agents[1]: ./a is there twice",
	} {
		if _, err := Parse("s", []byte(head+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
