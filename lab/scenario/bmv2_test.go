// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/p4/bmv2"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/settings/yaml"
	"github.com/netsketch/netsketch/sketch/flow"
)

// published is all of what a plugin publishes in an epoch, by path.
type published map[string]string

// record returns the epochs of a run that are played with o, each as the leaves below /root.
func record(t *testing.T, root string, o *scenario.Options) *[]published {
	t.Helper()
	epochs := new([]published)
	o.OnEpoch = func(run *scenario.Run) error {
		updates, err := once(t, connect(t, run.Address()), &gnmi.Path{Elem: []*gnmi.PathElem{{Name: root}}})
		if err != nil {
			return err
		}
		p := published{}
		for _, u := range updates {
			path, value := text(u.GetPath()), u.GetVal().String()
			switch leaf := path[strings.LastIndexByte(path, '/')+1:]; leaf {
			case "response-time", "analysis-time":
				continue // leaves of the machine, not of the network
			case "epoch", "since-epoch": // the lab's time begins as soon as the switches are ready
				value = fmt.Sprint(int64(u.GetVal().GetUintVal() - run.Report().Epochs[0].Epoch))
			case "last-change":
				value = fmt.Sprint(int64(u.GetVal().GetUintVal()) - run.Report().Epochs[0].End.UnixNano())
			}
			p[path] = value
		}
		*epochs = append(*epochs, p)
		return nil
	}
	return epochs
}

// The example on BMv2: edge switches with simple_switch_grpc give the same as soft switches, leaf
// by leaf over gNMI, and both match the ground truth.
func TestChameleMonOnBMv2(t *testing.T) {
	if _, err := exec.LookPath(bmv2.Program); err != nil {
		t.Skipf("%v: the example is played on soft switches only", err)
	}
	soft, epochs := playPair(t)
	external, publishedByBMv2 := playPair(t, "edge")
	if soft.Network.Sent != external.Network.Sent || soft.Network.Received != external.Network.Received ||
		soft.Network.Lost != external.Network.Lost || soft.Network.Lost == 0 {
		t.Errorf("soft switches: %+v, BMv2: %+v; want the same, with losses", soft.Network, external.Network)
	}
	for i := range soft.Epochs {
		for name, r := range map[string]*scenario.Report{"soft switches": soft, "BMv2": external} {
			e, victims := losses(t, &r.Epochs[i]), fewFlows/10
			if i >= changeAt {
				victims = manyFlows / 10
			}
			if r.Epochs[i].Status != "COMPLETE" || !e.Sure || e.Found.TruePositive != victims ||
				e.Found.FalsePositive+e.Found.FalseNegative > 0 || e.Exact != victims {
				t.Errorf("epoch %d of the run, %s, %s: %q, %+v, %d exact; %d flows lost packets", i+1, name,
					r.Epochs[i].Status, e.Problem, e.Found, e.Exact, victims)
			}
			for device, v := range e.Views {
				if v.Hitters == nil || v.Hitters.TruePositive == 0 ||
					v.Hitters.FalsePositive+v.Hitters.FalseNegative > 0 {
					t.Errorf("epoch %d of the run, %s: heavy hitters of %s: %+v", i+1, name, device, v.Hitters)
				}
			}
		}
		checkEnds(t, epochs[i])
		if diff := gocmp.Diff(epochs[i], publishedByBMv2[i]); diff != "" {
			t.Errorf("epoch %d of the run (-soft switches, +BMv2):\n%.4000s", i+1, diff)
		}
		e := losses(t, &external.Epochs[i])
		t.Logf("epoch %d of the run: %d leaves, %d victims exact; Tl %v, Th %v, HH %+v, HL %+v", i+1, len(epochs[i]),
			e.Exact, e.Low, e.High, e.Heavy, e.HL)
	}
	if first, last := losses(t, &external.Epochs[0]).High, losses(t, &external.Epochs[pairEpochs-1]).High; first != 4 ||
		last != 1 {
		t.Errorf("Th is %v and then %v; attention goes from 4 to 1", first, last)
	}
	t.Logf("%+v", external.Network)
}

// The example's pair has fewFlows, and manyFlows from epoch changeAt on, of pairEpochs.
const fewFlows, manyFlows, pairEpochs, changeAt = 2000, 3500, 4, 2

// checkEnds holds where victims entered and left against their addresses: 10.0.0.0/24 and fd00::/64
// are behind leaf1, the others behind leaf2.
func checkEnds(t *testing.T, p published) {
	t.Helper()
	victims := 0
	for path, value := range p {
		_, victim, found := strings.Cut(path, "/victims/victim[flow=")
		text, leaf, _ := strings.Cut(victim, "]/state/")
		if !found || leaf != "entry" && leaf != "exit" {
			continue
		}
		victims++
		key, err := flow.Parse(flow.FiveTuple, text)
		if err != nil {
			t.Fatal(err)
		}
		end := key.SrcAddr()
		if leaf == "exit" {
			end = key.DstAddr()
		}
		want := `string_val:"leaf2"`
		if netip.MustParsePrefix("10.0.0.0/24").Contains(end) || netip.MustParsePrefix("fd00::/64").Contains(end) {
			want = `string_val:"leaf1"`
		}
		if value != want {
			t.Errorf("victim %s: %s is %s, not %s", text, leaf, value, want)
		}
	}
	if victims == 0 {
		t.Error("no victim has its entry")
	}
}

// playPair plays the small scenario on two edge switches with one between them.
func playPair(t *testing.T, external ...string) (*scenario.Report, []published) {
	t.Helper()
	s := load(t, "small", pairEpochs)
	s.Topology = scenario.Topology{Kind: "leaf-spine", Leaves: 2, Spines: 1, HostsPerLeaf: 1,
		Latency: s.Topology.Latency}
	s.Traffic[0].Flows, s.Traffic[0].MaxPackets = fewFlows, 12
	s.Traffic[0].Changes = []traffic.Change{change(changeAt*s.Epoch, manyFlows)}
	section, err := yaml.Section("the test",
		`{plugin: chamelemon, config: {start: {high: 4}, heavy-hitters: {packets: 10, share: 0.0001}}}`)
	if err != nil {
		t.Fatal(err)
	}
	s.Algorithms, s.Expect = []settings.Section{section}, nil // attention goes from Th 4 to Th 1
	o := scenario.Options{Virtual: true, BMv2: external}
	epochs := record(t, "chamelemon", &o)
	report := playWith(t, s, o)
	if len(*epochs) != pairEpochs || len(report.Epochs) != pairEpochs {
		t.Fatalf("%d epochs were played and %d read, not %d", len(report.Epochs), len(*epochs), pairEpochs)
	}
	return report, *epochs
}

// Two pods of the example's fat tree on BMv2: four edge, four aggregation and two core switches
// with simple_switch_grpc give the same as soft switches, leaf by leaf over gNMI, and both meet the
// example's bounds.
func TestOmniMonOnBMv2(t *testing.T) {
	if _, err := exec.LookPath(bmv2.Program); err != nil {
		t.Skipf("%v: the example is played on soft switches only", err)
	}
	const epochs = 4
	play := func(external ...string) (*scenario.Report, []published) {
		s, err := scenario.Load("../../examples/omnimon/fat-tree.yaml")
		if err != nil {
			t.Fatal(err)
		}
		s.Epochs, s.Topology.Pods, s.Topology.Cores = epochs, 2, 2
		s.Traffic[0].Rate, s.Traffic[0].Flows = 400/s.Epoch.Seconds(), 200
		s.Faults = s.Faults[:2] // the others are in other pods
		s.Faults[0].From, s.Faults[0].Until, s.Faults[0].Loss = s.Epoch, 3*s.Epoch, 0.2
		s.Faults[1].From = 2 * s.Epoch
		all := 1.0 // no link is down, so everything is exact
		s.Expect[0].AtLeast, s.Expect[1].AtLeast = &all, &all
		o := scenario.Options{Virtual: true, BMv2: external}
		leaves := record(t, "omnimon", &o)
		r := playWith(t, s, o)
		check(t, r, epochs)
		return r, *leaves
	}
	soft, want := play()
	external, got := play("edge", "transit")
	if diff := gocmp.Diff(soft.Network, external.Network); diff != "" || soft.Network.Lost == 0 {
		t.Errorf("%d packets were lost (-soft switches, +BMv2):\n%s", soft.Network.Lost, diff)
	}
	for i := range want {
		if diff := gocmp.Diff(want[i], got[i]); diff != "" {
			t.Errorf("epoch %d of the run (-soft switches, +BMv2):\n%.4000s", i+1, diff)
		}
		lost := want[i]["/omnimon/summary/state/lost-packets"]
		t.Logf("epoch %d of the run: %d leaves; lost packets: %s", i+1, len(got[i]), lost)
		if faulty := i > 0; len(got[i]) < 1000 || faulty != (lost != "uint_val:0") {
			t.Errorf("epoch %d of the run: %d leaves, lost packets: %q, with faults: %v", i+1, len(got[i]), lost, faulty)
		}
	}
	t.Logf("%+v", external.Network)
}

// Manifests on a ring of three switches, which no weights suit: with simple_switch_grpc everywhere
// the results are those of soft switches, leaf by leaf over gNMI, and count each packet once.
func TestUnivMonOnBMv2(t *testing.T) {
	if _, err := exec.LookPath(bmv2.Program); err != nil {
		t.Skipf("%v: the scenario is played on soft switches only", err)
	}
	play := func(external ...string) (*scenario.Report, []published) {
		s, err := scenario.Parse("ring.yaml", []byte(`
name: ring
epochs: 5
warm-up: 2
epoch: 1s
program: univmon-300k
topology: {kind: graph, hosts-per-leaf: 1, latency: 10us, links: [A-B, B-C, C-A]}
traffic:
  - {name: flows, exact: true, flows: 100, max-packets: 12, workload: hadoop, ipv6: 0.3}
algorithms:
  - {plugin: univmon, config: {network: {scheme: manifest}}}
`))
		if err != nil {
			t.Fatal(err)
		}
		o := scenario.Options{Virtual: true, BMv2: external}
		leaves := record(t, "univmon", &o)
		return playWith(t, s, o), *leaves
	}
	soft, want := play()
	external, got := play("edge")
	if soft.Network.Sent != external.Network.Sent || len(want) != 5 || len(got) != 5 {
		t.Fatalf("soft switches: %+v, %d epochs; BMv2: %+v, %d epochs", soft.Network, len(want), external.Network,
			len(got))
	}
	for i := 2; i < 5; i++ {
		if diff := gocmp.Diff(want[i], got[i]); diff != "" {
			t.Errorf("epoch %d of the run (-soft switches, +BMv2):\n%.4000s", i+1, diff)
		}
		result := external.Epochs[i].Results["univmon"]
		for _, dimension := range []string{"src", "5-tuple"} {
			view := score.View{Device: score.Network, Dimension: dimension}
			row, actual := result.Published.Row("node-summary", view, ""), result.Truth.Row("node-summary", view, "")
			if row == nil || actual == nil || row.Text("status") != "COMPLETE" ||
				row.Text("packets") != actual.Text("packets") {
				t.Errorf("epoch %d of the run, %s: %+v; expected %+v", i+1, dimension, row, actual)
			}
		}
		t.Logf("epoch %d of the run: %d leaves", i+1, len(got[i]))
	}
}

// text writes a path out.
func text(p *gnmi.Path) string {
	var b strings.Builder
	for _, e := range p.GetElem() {
		b.WriteString("/" + e.GetName())
		var keys []string
		for k, v := range e.GetKey() {
			keys = append(keys, "["+k+"="+v+"]")
		}
		slices.SortFunc(keys, cmp.Compare[string])
		b.WriteString(strings.Join(keys, ""))
	}
	return b.String()
}
