// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/univmon"
	"github.com/netsketch/netsketch/p4/softswitch"
)

// plugins is a directory with the built-in plugins, built once for the tests.
var plugins string

// compiler compiles each program once for all networks of the tests.
var compiler softswitch.Compiler

func TestMain(m *testing.M) {
	testkit.MainWithPlugins(m, &plugins, "univmon", "chamelemon", "omnimon", "sketchint", "lightguardian")
}

// play plays a scenario on a virtual clock.
func play(t *testing.T, s *scenario.Scenario) *scenario.Report {
	t.Helper()
	return playWith(t, s, scenario.Options{Virtual: true})
}

// playWith plays a scenario with the tests' plugins, on a free port, to its end or to errEnough.
func playWith(tb testing.TB, s *scenario.Scenario, o scenario.Options) *scenario.Report {
	tb.Helper()
	o.PluginDir, o.Listen, o.Compiler = plugins, "127.0.0.1:0", &compiler
	run, err := scenario.Open(tb.Context(), s, o)
	if err != nil {
		tb.Fatal(err)
	}
	report, err := run.Play(tb.Context())
	if err != nil && !errors.Is(err, errEnough) {
		tb.Error(err)
	}
	if err := run.Close(); err != nil {
		tb.Error(err)
	}
	accounted(tb, report)
	return report
}

// A run on the wall clock ends although nobody reads the collector's reports any more.
func TestCloseWithUnreadReports(t *testing.T) {
	s := load(t, "small", 200)
	s.Epoch = 20 * time.Millisecond
	playWith(t, s, scenario.Options{OnEpoch: func(*scenario.Run) error {
		time.Sleep(3 * time.Second) // 150 epochs: more reports than are kept
		return errEnough
	}})
}

func check(t *testing.T, r *scenario.Report, epochs int) {
	t.Helper()
	if len(r.Epochs) != epochs {
		t.Errorf("%d epochs were scored, want %d", len(r.Epochs), epochs)
	}
	for _, v := range r.Expected {
		t.Logf("%s, %s: %.5f", v.Bound, v.Dimension, v.Value)
		if !v.OK {
			t.Errorf("%s, %s: %.5f", v.Bound, v.Dimension, v.Value)
		}
	}
	if !r.OK {
		t.Error("the report is not ok")
		for i := range r.Epochs {
			for name, o := range r.Epochs[i].Results {
				if len(o.FalseClaims) > 0 {
					t.Logf("%s in epoch %d of the run: %s", name, i+1, strings.Join(o.FalseClaims[:min(len(o.FalseClaims), 5)], "\n"))
				}
			}
		}
	}
}

// The demo's own scenario, with the elephant, the attack and the lossy link in it. Everything that
// it publishes is valid by the schema.
func TestDefaultScenario(t *testing.T) {
	s, err := scenario.Default()
	if err != nil {
		t.Fatal(err)
	}
	// Events begin two epochs earlier and last for two epochs: one epoch without them is enough.
	const begun, ended = 2 * time.Second, 3 * time.Second
	for i := range s.Traffic {
		if tr := &s.Traffic[i]; tr.From > 0 {
			tr.From, tr.Until = tr.From-begun, tr.Until-ended
		}
	}
	s.Faults[0].From, s.Faults[0].Until, s.Epochs = s.Faults[0].From-begun, s.Faults[0].Until-ended, 6
	run, err := scenario.Open(t.Context(), s, scenario.Options{Compiler: &compiler, PluginDir: plugins,
		Listen: "127.0.0.1:0", Virtual: true})
	if err != nil {
		t.Fatal(err)
	}
	tap := run.Collector().Store().Tap(1024)
	r, err := run.Play(t.Context())
	if err != nil {
		t.Error(err)
	}
	if err := run.Close(); err != nil { // closes the tap
		t.Error(err)
	}
	accounted(t, r)
	check(t, r, 6)
	checkSchema(t, tap, run.Collector().Store())
	// 8,000 packets a second for six epochs (and the next one's guard), the elephant's 1,600, the
	// attack's 12,000.
	if r.Network.Sent < 58_000 || r.Network.Lost == 0 {
		t.Errorf("%d packets sent, %d lost: the scenario's traffic or its fault did not happen", r.Network.Sent,
			r.Network.Lost)
	}
	// The attack runs in the fourth and the fifth epoch: 3,000 flows of 6,000 packets a second,
	// each flow a source address of its own but for collisions in the hosts' 255 addresses;
	// reported are destinations with 1,000 sources and more.
	for i, e := range r.Epochs {
		attacked := i == 3 || i == 4
		if attacked != (len(of(e).Victims) == 1) {
			t.Errorf("epoch %d of the run: victims %v, under attack: %v", i+1, of(e).Victims, attacked)
			continue
		}
		for _, v := range of(e).Victims {
			if v.Flow != "10.0.5.80" || v.Error() > 0.15 {
				t.Errorf("epoch %d of the run: victim %s has %.0f sources, true %.0f", i+1, v.Flow, v.Measured, v.True)
			}
		}
	}
	if m := of(r.Epochs[0]).Views; len(m) != 21 {
		t.Errorf("%d views; 6 switches and the network in 3 dimensions are 21", len(m))
	}
	// Another run gives the same results.
	s.Epochs = 2
	if first, again := figuresOf(r.Epochs[:2]), figuresOf(play(t, s).Epochs); first != again {
		t.Errorf("two runs differ:\n%s\n%s", first, again)
	}
}

// figuresOf writes out what UnivMon published in some epochs.
func figuresOf(epochs []scenario.EpochScore) string {
	var b strings.Builder
	for _, e := range epochs {
		for _, v := range of(e).Views {
			fmt.Fprintf(&b, "%v %v %v %v %v %v\n", v.View, v.Packets, *v.Entropy, *v.Distinct, *v.SecondMoment,
				*v.Hitters)
		}
	}
	return b.String()
}

// The bounds of real traffic: 5-tuple and source keys, under 1 MB a switch, epochs of 1 s.
const realBounds = `
expect:
  - {measure: heavy-hitter-f1, dimension: 5-tuple, at-least: 0.98}
  - {measure: heavy-hitter-f1, dimension: src, at-least: 0.98}
  - {measure: entropy-error, dimension: 5-tuple, at-most: 0.05}
  - {measure: entropy-error, dimension: src, at-most: 0.05}
  - {measure: distinct-error, dimension: 5-tuple, at-most: 0.05}
  - {measure: distinct-error, dimension: src, at-most: 0.05}
  - {measure: lost, at-most: 0}
`

// sharedTrace is a capture of real packets that lies outside of the repository.
const sharedTrace = "../../../shared/traces/mixed-165k.pcap.gz"

func TestRealPackets(t *testing.T) {
	traffic := `
traffic:
  - {name: trace, trace: ` + sharedTrace + `, until: 3s}
`
	if _, err := os.Stat(sharedTrace); err != nil {
		t.Logf("the capture of real packets is not on this machine (%v): generated traffic takes its place", err)
		traffic = `
traffic:
  - {name: mice, rate: 16000, flows: 5000, zipf: 1.0, ipv6: 0.04}
`
	}
	s, err := scenario.Parse("real.yaml", []byte(`
name: real
seed: 3
epochs: 3
topology: {kind: leaf-spine, leaves: 4, spines: 2, hosts-per-leaf: 2}
algorithms:
  - {plugin: univmon, config: {heavy-hitters: {share: 0.005, packets: 1, limit: 1000}}}
`+traffic+realBounds))
	if err != nil {
		t.Fatal(err)
	}
	r := play(t, s)
	check(t, r, s.Epochs)
	for _, total := range r.Totals {
		if total.Measure == univmon.PacketsError && total.Worst > 0.001 {
			t.Errorf("%s: a switch miscounts its packets by %.4f", total.Dimension, total.Worst)
		}
	}
}

// A fat tree has paths of five switches: the network's view must still count each packet once.
func TestFatTree(t *testing.T) {
	s, err := scenario.Parse("fat-tree.yaml", []byte(`
name: fat-tree
epochs: 2
program: univmon-300k
topology: {kind: fat-tree, k: 4}
traffic:
  - {name: all, rate: 5000, flows: 1000, zipf: 1.0}
algorithms:
  - {plugin: univmon, config: {heavy-hitters: {limit: 10000}}}
expect:
  - {measure: heavy-hitter-f1, at-least: 0.98}
  - {measure: distinct-error, at-most: 0.05}
  - {measure: packets-error, at-most: 0.001}
  - {measure: lost, at-most: 0}
`))
	if err != nil {
		t.Fatal(err)
	}
	check(t, play(t, s), 2)
}

func TestScenarioErrorsNameLineAndKey(t *testing.T) {
	tests := []struct{ name, yaml, want string }{
		{"unknown key", "name: x\ntopologie: {}\n", `s.yaml:2`},
		{"unknown measure", "expect:\n  - {measure: speed, at-most: 1}\n", "speed"},
		{"bound without a limit", "expect:\n  - {measure: lost}\n", "at-least"},
		{"unknown link", "faults:\n  - {link: leaf1-leaf2, from: 1s}\n", "leaf1-leaf2"},
		{"no fault", "faults:\n  - {link: leaf1-spine2, flows: 0.01}\n", "faults[0]: nothing happens to the link"},
		{"a link's fault at a switch", "faults:\n  - {switch: leaf1, down: true}\n",
			"faults[0]: down, avoid and stall are faults of a link"},
		{"wrong routes to nowhere", "faults:\n  - {switch: leaf1, to: h1}\n", "faults[0]: wrong routes have a host, to, and"},
		{"wrong routes without a link", "faults:\n  - {switch: leaf1, to: h1, via: leaf2}\n",
			"faults[0]: via: switch leaf1 has no link to leaf2"},
		{"a stall without an end", "faults:\n  - {link: leaf1-spine1, stall: true}\n", "packets wait until it ends"},
		{"clock and kill", "agents: [omnimon]\nfaults:\n  - {host: h1, clock: 1ms, kill: true}\n",
			"faults[0]: expected either clock or kill"},
		{"a host without an agent", "faults:\n  - {host: h1, kill: true}\n", "expected agents in the scenario"},
		{"two subjects", "faults:\n  - {host: h1, link: leaf1-spine1, down: true}\n", "faults[0]: expected either"},
		{"no loss at a switch", "faults:\n  - {switch: leaf1, flows: 0.1}\n", "faults[0]: flows is the share"},
		{"too many watched flows", "watch: 100000\n", "watch: expected 0 to 5000"},
		{"unknown role of agents", "agents: [omnimom]\n",
			"agents[0]: no role is called \"omnimom\"; there are [lightguardian omnimon sketchint univmon]"},
		{"a role without its plugin", "agents: [univmon, sketchint]\nalgorithms:\n  - {plugin: univmon}\n",
			"agents[1]: the plugin sketchint, which sends the role its settings, is not among the algorithms: [univmon]"},
		{"unknown host", "traffic:\n  - {rate: 1, flows: 1, senders: [h99]}\n", "h99"},
		{"empty file", "", "traffic: there is none"},
		{"no component", "name: x\ntraffic: []\n", "traffic: there is none"},
		{"traffic without packets", "traffic:\n  - {name: idle}\n", "traffic[0]"},
		{"impossible topology", "topology: {kind: fat-tree, k: 3}\n", "k must be even"},
		{"second document", "name: x\n---\nname: y\n", "s.yaml:3:1: a second YAML document begins here"},
		{"endless rate", "traffic:\n  - {rate: 1e300, flows: 1}\n", "at most 1000000000 packets a second"},
		{"endless flows", "traffic:\n  - {rate: 1, flows: 9999999999}\n", "at most 16777216 flows"},
		{"endless epoch", "epoch: 99999h\n", "expected 10ms to 24h"},
		{"negative epochs", "epochs: -1\n", "epochs"},
	}
	for _, tt := range tests {
		_, err := scenario.Parse("s.yaml", []byte(tt.yaml))
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "s.yaml:") {
			t.Errorf("%s: error %v does not say %q with its place", tt.name, err, tt.want)
		}
	}
}

func TestOpenNamesWhatIsMissing(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pcap")
	// The file header of a pcap of Ethernet frames, and no packet.
	header := "\xd4\xc3\xb2\xa1\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\x00\x01\x00\x00\x00"
	if err := os.WriteFile(empty, []byte(header), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		change func(*scenario.Scenario, *scenario.Options)
		want   string
	}{
		{"program", func(s *scenario.Scenario, _ *scenario.Options) { s.Program = "nothing" }, "nothing"},
		{"trace", func(s *scenario.Scenario, _ *scenario.Options) { s.UseTrace("missing.pcap") }, "missing.pcap"},
		{"no packets", func(s *scenario.Scenario, _ *scenario.Options) { s.UseTrace(empty) }, "the file is empty"},
		{"plugin directory", func(_ *scenario.Scenario, o *scenario.Options) { o.PluginDir = t.TempDir() },
			"univmon does not run"},
		{"address", func(_ *scenario.Scenario, o *scenario.Options) { o.Listen = "127.0.0.1:notaport" }, "notaport"},
	}
	for _, tt := range tests {
		s, err := scenario.Default()
		if err != nil {
			t.Fatal(err)
		}
		o := scenario.Options{Compiler: &compiler, PluginDir: plugins, Listen: "127.0.0.1:0", Virtual: true}
		tt.change(s, &o)
		run, err := scenario.Open(t.Context(), s, o)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v does not name %q", tt.name, err, tt.want)
		}
		if run != nil {
			run.Close()
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("name: x\nepochs: 3\ntopology: {kind: leaf-spine}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := scenario.Parse("f.yaml", data); err == nil && s == nil {
			t.Fatal("neither a scenario nor an error")
		}
	})
}

// A scenario has secrets of outputs in variables, as the collector's file has.
func TestVariables(t *testing.T) {
	t.Setenv("NETSKETCH_TEST_EPOCHS", "7")
	file := filepath.Join(t.TempDir(), "s.yaml")
	text := "name: ${NETSKETCH_TEST_NAME:-seven}\nepochs: ${NETSKETCH_TEST_EPOCHS:-3}\n" +
		"algorithms: [plugin: univmon]\ntraffic: [{rate: 1, flows: 1}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := scenario.Load(file); err != nil || s.Epochs != 7 || s.Name != "seven" {
		t.Errorf("%+v, %v", s, err)
	}
}
