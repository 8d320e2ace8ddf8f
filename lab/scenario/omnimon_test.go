// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/lab"
	"github.com/netsketch/netsketch/lab/evidence"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/omnimon"
	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// failureKinds are the kinds of failures in Exp#9 of OmniMon's technical report, in the order of
// their epochs.
var failureKinds = []string{"congestion", "gray failure", "switch crash", "link failure"}

// failures is a fat tree whose elements fail: an epoch without failures, one for each kind, and one
// without.
type failures struct {
	k           int // arity of the tree
	elements    int // number of elements, drawn by the seed, that fail in an epoch
	flows, rate int
	gray        float64 // share of the flows that a gray failure drops
	seed        uint64
	trace       string // a capture to play instead of generated traffic
	log         *slog.Logger
}

// omnimonScenario is a network with agents on all hosts in which everything must be exact.
func omnimonScenario(tb testing.TB, seed uint64, epochs int, topology string, flows, rate int) *scenario.Scenario {
	tb.Helper()
	s, err := scenario.Parse("omnimon.yaml", fmt.Appendf(nil, `
name: omnimon
seed: %d
epochs: %d
epoch: 100ms
program: omnimon
topology: %s
agents: [omnimon]
traffic:
  - {name: web, rate: %d, flows: %d, zipf: 1.0, udp: 0.3, ipv6: 0.2}
algorithms:
  - {plugin: omnimon, config: {limits: {flows: %d, hops: 1000000, losses: 1000000, link-flows: 2000}}}
expect:
  - {measure: flows-exact, at-least: 1}
  - {measure: hops-published, at-least: 1}
  - {measure: hops-exact, at-least: 1}
  - {measure: switches-exact, at-least: 1}
  - {measure: links-exact, at-least: 1}
  - {measure: link-flows-bounded, at-least: 1}
  - {measure: loss-f1, at-least: 1}
  - {measure: losses-exact, at-least: 1}
  - {measure: settled-exact, at-least: 1}
  - {measure: determined, at-least: 1}
  - {measure: lost-packets-error, at-most: 0}
  - {measure: false-claims, at-most: 0}
  - {measure: partial-epochs, at-most: 0}
`, seed, epochs, topology, rate, flows, flows))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func (x *failures) scenario(tb testing.TB) *scenario.Scenario {
	tb.Helper()
	s := omnimonScenario(tb, x.seed, len(failureKinds)+2, fmt.Sprintf("{kind: fat-tree, k: %d, latency: 10us}", x.k),
		x.flows, x.rate)
	if x.trace != "" {
		s.UseTrace(x.trace)
		s.Epoch = time.Second
	}
	f, err := lab.FatTree(x.k, 0, 0, 0)
	if err != nil {
		tb.Fatal(err)
	}
	r := rand.New(rand.NewPCG(x.seed, 9))
	for n, kind := range failureKinds {
		of := len(f.Switches)
		if kind == "link failure" {
			of = len(f.Links)
		}
		for _, i := range r.Perm(of)[:x.elements] {
			begin := time.Duration(n+1) * s.Epoch
			fault := scenario.Fault{Loss: 1, From: begin, Until: begin + s.Epoch}
			if kind == "link failure" {
				fault.Link, fault.Loss, fault.Down = f.LinkName(f.Links[i]), 0, true
			} else {
				fault.Switch = f.Switches[i].Name
			}
			switch kind {
			case "congestion":
				fault.Loss = 0.01
			case "gray failure":
				fault.Flows = x.gray
			default: // in the course of the epoch
				fault.From += time.Duration(r.Int64N(int64(s.Epoch)))
			}
			s.Faults = append(s.Faults, fault)
		}
	}
	return s
}

// outcome is an epoch with one kind of failure.
type outcome struct {
	kind                           string
	packets, flows, lossy, lost    int
	rows                           int // flows and elements that lost packets
	unknowns, determined, elements int // elements that lost packets
	f1                             float64
}

// play plays the scenario. Every value of every flow at every host and switch, and every loss, must
// be exact. What the elements lost must equal the counters of ports and queues as well, which the
// ground truth does not use.
func (x *failures) play(t *testing.T) []outcome {
	t.Helper()
	s := x.scenario(t)
	published, counted := map[string]uint64{}, map[string]uint64{}
	var lossy []int // elements, by epoch
	r := playWith(t, s, scenario.Options{Virtual: true, Logger: x.log, OnEpoch: func(run *scenario.Run) error {
		lossy = append(lossy, 0)
		for _, list := range []string{"switches", "links"} {
			for path, value := range leaves(t, run.Address(), "omnimon", list) {
				name, leaf, _ := strings.Cut(path[strings.Index(path, "[")+1:], "]")
				if n, err := strconv.ParseUint(value, 10, 64); leaf == "/state/lost-packets-low" && err == nil && n > 0 {
					published[name] += n
					lossy[len(lossy)-1]++
				}
			}
		}
		if len(lossy) == s.Epochs {
			counted = discards(t, run.Network())
			for name, n := range run.Network().LostProbes() {
				counted[name] -= min(n, counted[name])
			}
		}
		return nil
	}})
	if x.trace != "" { // a part of a capture, with packets that hosts do not measure and links lose
		if len(r.Epochs) != s.Epochs {
			t.Errorf("%d epochs were scored, want %d", len(r.Epochs), s.Epochs)
		}
		return x.outcomes(t, r, lossy)
	}
	check(t, r, s.Epochs)
	for name := range published {
		if published[name] != counted[name] {
			t.Errorf("%s lost %d packets by the results, and %d by its counters", name, published[name], counted[name])
		}
	}
	if len(published) != len(counted) {
		t.Errorf("%d switches and links lost packets by the results, and %d by their counters", len(published),
			len(counted))
	}
	out, total := x.outcomes(t, r, lossy), 0
	for i := range r.Epochs {
		total += exactEpoch(t, r, i, x.flows/3).lost
	}
	for i, e := range out {
		if failing := e.kind != ""; failing != (e.lossy > 0) || failing != (e.elements > 0) || e.elements > 2*x.elements {
			t.Errorf("epoch %d of the run: %+v", i+1, e)
		}
	}
	// Switches and links count their losses independently of the journal. All losses must be in the
	// epochs.
	lost := r.Network.Lost
	for _, n := range r.Network.Dropped {
		lost += n
	}
	if int(lost) != total {
		t.Errorf("%d packets were lost in the epochs, %+v", total, r.Network)
	}
	return out
}

// outcomes are the outcomes of all epochs, each with the kind of its failures. lossy are the
// elements that lost packets.
func (x *failures) outcomes(t *testing.T, r *scenario.Report, lossy []int) (out []outcome) {
	for i := range r.Epochs {
		e := exactEpoch(t, r, i, 1)
		e.elements = lossy[i]
		if i > 0 && i <= len(failureKinds) {
			e.kind = failureKinds[i-1]
		}
		out = append(out, e)
	}
	return out
}

// network is the view of OmniMon's results.
var network = score.View{Device: score.Network}

// exactEpoch checks that all values of epoch i of a run are right, with all flows, which must be at
// least a number. An epoch with losses is provisional, any other one exact.
func exactEpoch(t *testing.T, r *scenario.Report, i, flows int) outcome {
	t.Helper()
	o := r.Epochs[i].Results["omnimon"]
	if o == nil {
		t.Fatalf("epoch %d of the run has no result of OmniMon", i+1)
	}
	figure := func(leaf string) int {
		f, ok := o.Figure("summary", network, leaf)
		if !ok || f.Error() != 0 {
			t.Errorf("epoch %d of the run: %s %+v, published: %v", i+1, leaf, f, ok)
		}
		return int(f.Measured)
	}
	right := func(measure string) int {
		if s := o.Score(measure, network); s != nil {
			return s.Counts.TruePositive
		}
		return 0 // no flow has packets
	}
	row := o.Published.Row("summary", network, "")
	e := outcome{packets: figure("packets"), flows: figure("flows"), lossy: figure("lossy-flows"),
		lost: figure("lost-packets"), rows: right(omnimon.LossesExact),
		unknowns: int(row.Value("unknowns")), determined: int(row.Value("determined")),
		f1: o.Score(omnimon.LossF1, network).Value}
	if n := right(omnimon.FlowsExact); n != e.flows || n < flows {
		t.Errorf("epoch %d of the run: %d exact flows of %d", i+1, n, e.flows)
	}
	want := map[bool]string{true: "UPPER_BOUND", false: "EXACT"}[e.lost > 0]
	if got := row.Text("lost-packets-quality"); row.Text("quality") != "EXACT" || got != want ||
		row.Is("final") == (e.lost > 0) {
		t.Errorf("epoch %d of the run with %d lost packets: %s, final %v, %s", i+1, e.lost, got, row.Is("final"),
			row.Text("problem"))
	}
	return e
}

// discards returns the packets that each directed link and each switch lost, by the counters of the
// switches: discards at both ends of a link, and drops between ingress and egress.
func discards(t *testing.T, n *lab.Network) map[string]uint64 {
	out := map[string]uint64{}
	counters := func(sw int, port uint32) (in, sent uint64) {
		st, err := n.Switch(sw).PortStatus(port)
		if err != nil {
			t.Fatal(err)
		}
		return st.Counters.InDiscards, st.Counters.OutDiscards
	}
	add := func(name string, lost uint64) {
		if lost > 0 {
			out[name] = lost
		}
	}
	f := n.Fabric()
	for _, l := range f.Links {
		a := sdk.Endpoint{Node: f.Switches[l.A].Name, Port: l.PortA}
		b := sdk.Endpoint{Node: f.Switches[l.B].Name, Port: l.PortB}
		inA, outA := counters(l.A, l.PortA)
		inB, outB := counters(l.B, l.PortB)
		add(sdk.LinkName(a, b), outA+inB)
		add(sdk.LinkName(b, a), outB+inA)
	}
	for i, sw := range f.Switches {
		add(sw.Name, n.Switch(i).Stats().QueueDrops)
	}
	return out
}

// TestOmniMonFailures: the agents of all hosts, the collector and the plugin's process on a 4-ary
// fat tree with all kinds of failures.
func TestOmniMonFailures(t *testing.T) {
	x := failures{k: 4, elements: 2, flows: 200, rate: 4000, gray: 0.1, seed: 1}
	for _, o := range x.play(t) {
		t.Logf("%+v", o)
	}
}

// straggler is a network in which the clock of a host is ahead by one offset after the other, for
// two epochs each, and a link loses packets.
func straggler(t *testing.T, offsets ...time.Duration) *scenario.Scenario {
	t.Helper()
	s := omnimonScenario(t, 3, 2*len(offsets)+2, "{hosts-per-leaf: 2}", 100, 3000)
	s.Faults = []scenario.Fault{{Link: "leaf1-spine1", Loss: 0.05, From: s.Epoch}}
	for i, d := range offsets {
		begin := time.Duration(2*i+1) * s.Epoch
		s.Faults = append(s.Faults, scenario.Fault{Host: "h2", Clock: d, From: begin, Until: begin + 2*s.Epoch})
	}
	return s
}

// TestOmniMonStraggler is the straggler of Exp#4 of the paper: the clock of a host is 1 ms to 1 s
// ahead or behind. Everything stays exact, of all packets.
func TestOmniMonStraggler(t *testing.T) {
	const ms = time.Millisecond
	s := straggler(t, ms, -ms, 10*ms, -10*ms, 100*ms, -100*ms, 1000*ms, -1000*ms)
	r := play(t, s)
	check(t, r, s.Epochs)
	packets := 0
	for i := range r.Epochs {
		packets += exactEpoch(t, r, i, 0).packets
	}
	// The run ends with the first packets of the next epoch, which last as long as the drain.
	if n := int(r.Network.Sent) - packets; n < 0 || n > packets/len(r.Epochs)/2 {
		t.Errorf("%d packets in the epochs of %d that were sent", packets, r.Network.Sent)
	}
}

// TestOmniMonClockAhead: the clock of a host is up to four epochs ahead of the collector's and of
// all others. Everything stays exact.
func TestOmniMonClockAhead(t *testing.T) {
	const ms = time.Millisecond
	for _, drain := range []time.Duration{10 * ms, 120 * ms} {
		t.Run(drain.String(), func(t *testing.T) {
			s := straggler(t, 150*ms, 250*ms, 300*ms, 333*ms, 400*ms, 99*ms, 200*ms, 399*ms, 450*ms, 600*ms)
			s.Drain = drain
			r := play(t, s)
			check(t, r, s.Epochs)
			for i := range r.Epochs {
				exactEpoch(t, r, i, 0)
			}
		})
	}
}

// TestOmniMonClocksAhead: the clocks of one host to all hosts are up to a second, ten epochs, ahead
// of the collector's or behind it, each by another time, and are set again and again. If the drain
// exceeds an epoch, the clocks are ahead by at most 280 ms less the drain. Everything stays exact,
// of all packets.
func TestOmniMonClocksAhead(t *testing.T) {
	const ms = time.Millisecond
	runs := uint64(8)
	if n, err := strconv.ParseUint(os.Getenv("NETSKETCH_CLOCKS"), 10, 64); err == nil {
		runs = n
	}
	for seed := range runs {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 34))
			s := omnimonScenario(t, 80+seed, 10, "{hosts-per-leaf: 2}", 100, 3000)
			s.Drain = []time.Duration{10 * ms, 60 * ms, 120 * ms, 250 * ms}[r.IntN(4)]
			s.Faults = []scenario.Fault{{Link: "leaf1-spine1", Loss: 0.05, From: s.Epoch}}
			hosts := 1 + int(seed%4)
			most := []int64{250, 1000}[r.IntN(2)]
			if s.Drain > s.Epoch {
				most = int64((280*ms - s.Drain) / ms)
			}
			all := time.Duration(1+r.Int64N(most)) * ms
			for _, h := range r.Perm(4)[:hosts] {
				for at := s.Epoch; at < 8*s.Epoch; {
					until := min(at+time.Duration(1+r.Int64N(int64(5*s.Epoch))), 8*s.Epoch)
					ahead := all // all hosts by the same time, or each by its own
					if seed%8 >= 4 {
						ahead = time.Duration(r.Int64N(2*most)-most) * ms
					}
					s.Faults = append(s.Faults, scenario.Fault{Host: fmt.Sprintf("h%d", 1+h), Clock: ahead, From: at, Until: until})
					at = until
				}
			}
			report := play(t, s)
			check(t, report, s.Epochs)
			packets := 0
			for i := range report.Epochs {
				packets += exactEpoch(t, report, i, 0).packets
			}
			open := 1 + int(s.Drain/s.Epoch) // epochs that have not been collected at the end of the run
			if n := int(report.Network.Sent) - packets; n < 0 || n > open*packets/len(report.Epochs)*5/4 {
				t.Errorf("%d packets in the epochs of %d that were sent", packets, report.Network.Sent)
			}
		})
	}
}

// TestOmniMonStall: packets wait on links for up to two and a half epochs, as the four banks of
// switches allow. Nothing looks lost, and nothing is withdrawn or an alert.
func TestOmniMonStall(t *testing.T) {
	const ms = time.Millisecond
	for seed, x := range []struct {
		drain time.Duration
		from  time.Duration
		until time.Duration
	}{{70 * ms, 180 * ms, 250 * ms}, {220 * ms, 180 * ms, 250 * ms}, {150 * ms, 210 * ms, 359 * ms},
		{240 * ms, 160 * ms, 399 * ms}} {
		t.Run(fmt.Sprintf("%v to %v", x.from, x.until), func(t *testing.T) {
			s := omnimonScenario(t, uint64(seed+20), 8, "{hosts-per-leaf: 2}", 100, 3000)
			s.Drain = x.drain
			s.Faults = []scenario.Fault{{Link: "leaf1-spine1", Stall: true, From: x.from, Until: x.until},
				{Link: "leaf2-spine2", Loss: 0.05}}
			r := playWith(t, s, scenario.Options{Virtual: true, OnEpoch: func(run *scenario.Run) error {
				for path, value := range leaves(t, run.Address(), "omnimon", "withdrawals") {
					t.Errorf("a withdrawal: %s %s", path, value)
				}
				for path := range leaves(t, run.Address(), "omnimon", "alerts") {
					if !strings.Contains(path, "leaf2/") {
						t.Errorf("an alert: %s", path)
					}
				}
				return nil
			}})
			check(t, r, s.Epochs)
			for i := range r.Epochs {
				exactEpoch(t, r, i, 50)
			}
		})
	}
}

// TestOmniMonRandomStalls: links stall for up to three epochs while packets get lost elsewhere, and
// the network drains for 10 ms only. Packets that wait look lost in their epoch. Nothing false is
// published as exact, now or when the epoch is settled, nothing is withdrawn, and no alert names a
// link or switch that lost nothing.
func TestOmniMonRandomStalls(t *testing.T) {
	seeds := uint64(6)
	if n, err := strconv.ParseUint(os.Getenv("NETSKETCH_STALLS"), 10, 64); err == nil {
		seeds = n
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := omnimonScenario(t, 60+seed, 16, "{hosts-per-leaf: 2}", 100, 3000)
			s.Drain = 10 * time.Millisecond
			s.Expect = slices.DeleteFunc(s.Expect, func(b scenario.Bound) bool { return b.Measure != omnimon.FalseClaims })
			r := rand.New(rand.NewPCG(seed, 15))
			links := r.Perm(4)
			for n := range 1 + r.IntN(3) {
				name := fmt.Sprintf("leaf%d-spine%d", 1+links[n]/2, 1+links[n]%2)
				for at := time.Duration(r.Int64N(int64(2 * s.Epoch))); at < 10*s.Epoch; {
					until := at + 20*time.Millisecond + time.Duration(r.Int64N(int64(3*s.Epoch-20*time.Millisecond)))
					s.Faults = append(s.Faults, scenario.Fault{Link: name, Stall: true, From: at, Until: until})
					at = until + time.Duration(r.Int64N(int64(4*s.Epoch)))
				}
			}
			lossy := fmt.Sprintf("leaf%d-spine%d", 1+links[3]/2, 1+links[3]%2)
			s.Faults = append(s.Faults, scenario.Fault{Link: lossy, Loss: 0.05})
			exact, held := 0, 0
			leaf, spine, _ := strings.Cut(lossy, "-")
			report := playWith(t, s, scenario.Options{Virtual: true, OnEpoch: func(run *scenario.Run) error {
				for path, value := range leaves(t, run.Address(), "omnimon", "withdrawals") {
					t.Errorf("a withdrawal: %s %s", path, value)
				}
				for path := range leaves(t, run.Address(), "omnimon", "alerts") {
					loss := strings.Contains(path, "PACKETS_LOST") || strings.Contains(path, "BLACKHOLE")
					if loss && !(strings.Contains(path, leaf+"/") && strings.Contains(path, spine+"/")) {
						t.Errorf("an alert: %s", path)
					}
				}
				switch leaves(t, run.Address(), "omnimon", "settled")["/omnimon/settled/state/quality"] {
				case "EXACT":
					exact++
				default:
					held++
				}
				return nil
			}})
			check(t, report, s.Epochs)
			t.Logf("%d epochs settled as exact, %d not; faults %+v", exact, held, s.Faults)
			if exact == 0 {
				t.Error("no epoch was settled as exact")
			}
		})
	}
}

// TestOmniMonAvoidWithDelay: routes change while the network takes two epochs to drain. Epochs that
// packets of both routes may be in are not exact, and nothing false is published as exact.
func TestOmniMonAvoidWithDelay(t *testing.T) {
	for seed := range uint64(3) {
		s := omnimonScenario(t, 30+seed, 12, "{hosts-per-leaf: 2}", 100, 3000)
		s.Drain = 2*s.Epoch + 20*time.Millisecond
		s.Faults = []scenario.Fault{{Link: "leaf1-spine1", Avoid: true, From: 2 * s.Epoch, Until: 5 * s.Epoch}}
		s.Expect = slices.DeleteFunc(s.Expect, func(b scenario.Bound) bool { return b.Measure != omnimon.FalseClaims })
		r := play(t, s)
		check(t, r, s.Epochs)
		for i := range r.Epochs {
			row := r.Epochs[i].Results["omnimon"].Published.Row("summary", network, "")
			t.Logf("epoch %d of the run: %s, %s", i+1, row.Text("quality"), row.Text("problem"))
			if changed := i >= 2 && i < 6; changed && row.Text("quality") != "ESTIMATE" {
				t.Errorf("epoch %d, in which routes change, is exact", i+1)
			}
		}
		exactEpoch(t, r, s.Epochs-1, 50)
	}
}

// TestOmniMonKilledAgent kills an agent with its data path in the middle of an epoch and starts it
// again later in the epoch. Results are exact again within two epochs, and nothing is published as
// exact before that is not.
func TestOmniMonKilledAgent(t *testing.T) {
	s := omnimonScenario(t, 4, 6, "{hosts-per-leaf: 2}", 100, 3000)
	const killed = 2
	s.Faults = []scenario.Fault{
		{Link: "leaf1-spine1", Loss: 0.05},
		{Host: "h2", Kill: true, From: killed*s.Epoch + 40*time.Millisecond, Until: killed*s.Epoch + 60*time.Millisecond},
	}
	s.Expect = slices.DeleteFunc(s.Expect, func(b scenario.Bound) bool { return b.Measure != omnimon.FalseClaims })
	r := play(t, s)
	check(t, r, s.Epochs)
	for i := range r.Epochs {
		if o := r.Epochs[i].Results["omnimon"]; i >= killed && i < killed+2 {
			row := o.Published.Row("summary", network, "")
			t.Logf("epoch %d of the run: %s, %s", i+1, row.Text("quality"), row.Text("problem"))
			if i == killed && row.Text("quality") != "ESTIMATE" {
				t.Error("the epoch in which the agent was killed is published as exact")
			}
			continue
		}
		e := exactEpoch(t, r, i, 50)
		t.Logf("%+v", e)
	}
}

// TestOmniMonManyHosts: with more addresses than hosts hold leases for, the first packets to a host
// have no header, and the results say so. After that all flows are exact. No value is published as
// exact that is not. NETSKETCH_SOAK=1 plays 1,280 hosts.
func TestOmniMonManyHosts(t *testing.T) {
	topology, flows, epochs := "{kind: leaf-spine, leaves: 10, spines: 2, hosts-per-leaf: 16}", 300, 10
	if os.Getenv("NETSKETCH_SOAK") != "" {
		topology, flows = "{kind: leaf-spine, leaves: 20, spines: 2, hosts-per-leaf: 64}", 2000
	}
	s, err := scenario.Parse("many-hosts.yaml", fmt.Appendf(nil, `
name: many-hosts
seed: 31
epochs: %d
epoch: 100ms
program: omnimon
topology: %s
agents: [omnimon]
traffic:
  - {name: web, rate: %d, flows: %d, udp: 0.3, ipv6: 0.2}
faults:
  - {link: leaf3-spine1, loss: 0.02}
algorithms:
  - {plugin: omnimon, config: {flows: 1024, ingress-slots: 4096,
      limits: {flows: 1000000, hops: 1000000, losses: 1000000, link-flows: 100000}}}
expect:
  - {measure: false-claims, at-most: 0}
  - {measure: links-exact, at-least: 1}
  - {measure: switches-exact, at-least: 1}
  - {measure: loss-f1, at-least: 1}
  - {measure: losses-exact, at-least: 1}
  - {measure: lost-packets-error, at-most: 0}
  - {measure: partial-epochs, at-most: 0}
`, epochs, topology, 50*flows, flows))
	if err != nil {
		t.Fatal(err)
	}
	r := play(t, s)
	check(t, r, s.Epochs)
	const leased = 5 // epochs until all hosts that send have leases
	for i := range r.Epochs {
		row := r.Epochs[i].Results["omnimon"].Published.Row("summary", network, "")
		t.Logf("epoch %d of the run: %s, %s", i+1, row.Text("quality"), row.Text("problem"))
		switch {
		case i == 0 && !strings.Contains(row.Text("problem"), "packets were sent without a header"):
			t.Errorf("the first epoch: %s", row.Text("problem"))
		case i >= leased:
			exactEpoch(t, r, i, flows*9/10)
		}
	}
}

// TestOmniMonDeadHost kills an agent for good. Flows between other hosts stay exact, and so do the
// losses of switches and of links between them; flows from and to the host have a reason, and an
// alert names it.
func TestOmniMonDeadHost(t *testing.T) {
	s := omnimonScenario(t, 4, 8, "{hosts-per-leaf: 2}", 200, 4000)
	const killed = 2
	s.Faults = []scenario.Fault{
		{Link: "leaf1-spine1", Loss: 0.05},
		{Host: "h2", Kill: true, From: killed*s.Epoch + 40*time.Millisecond},
	}
	s.Expect = slices.DeleteFunc(s.Expect, func(b scenario.Bound) bool { return b.Measure != omnimon.FalseClaims })
	epoch := 0
	const settles = 4 // epochs until losses are settled
	r := playWith(t, s, scenario.Options{Virtual: true, OnEpoch: func(run *scenario.Run) error {
		epoch++
		flows := leaves(t, run.Address(), "omnimon", "flows")
		settled := leaves(t, run.Address(), "omnimon", "settled")
		for path, value := range settled { // four epochs later, what flows lost
			flows[path] = value
		}
		exact, others := 0, 0
		for path, source := range flows {
			flow, ok := strings.CutSuffix(path, "/state/source-node")
			if !ok {
				continue
			}
			lost := flows[flow+"/state/lost-packets-quality"]
			if lost == "UPPER_BOUND" { // packets may be late
				continue
			}
			about := source == "h2" || flows[flow+"/state/destination-node"] == "h2"
			switch isExact := flows[flow+"/state/quality"] == "EXACT" && lost == "EXACT"; {
			case isExact && about && epoch > killed && !strings.HasPrefix(flow, "/omnimon/settled/"):
				t.Errorf("epoch %d: %s is exact", epoch, flow)
			case isExact:
				exact++
			case !about:
				others++
			}
		}
		alerts := leaves(t, run.Address(), "omnimon", "alerts")
		between := 0
		for path, quality := range settled {
			link, ok := strings.CutSuffix(path, "]/state/quality")
			link, is := strings.CutPrefix(link, "/omnimon/settled/links/link[")
			if !ok || !is || strings.Contains(link, "h") {
				continue
			}
			if between++; quality != "EXACT" {
				t.Errorf("epoch %d: the losses of link %s are %s", epoch, link, quality)
			}
		}
		lossy := false
		for path, active := range alerts {
			lossy = lossy || strings.HasSuffix(path, "[PACKETS_LOST]/state/active") && active == "true"
		}
		if missing := alerts["/omnimon/alerts/alert[h2][HOST_MISSING]/state/active"] == "true"; missing != (epoch > killed) {
			t.Errorf("epoch %d: an alert that h2 is missing: %v", epoch, missing)
		}
		if exact < 20 || others > 0 || epoch > settles+killed && between < 8 {
			t.Errorf("epoch %d: %d exact flows, %d flows of other hosts that are not, %d links", epoch, exact, others, between)
		}
		if lossy != (epoch > settles) {
			t.Errorf("epoch %d: an alert of the lossy link: %v", epoch, lossy)
		}
		return nil
	}})
	check(t, r, s.Epochs)
}

// TestOmniMonTrace: agents measure the addresses of a capture, also of blocks that hosts share, and
// with losses. Packets to multicast addresses are named, and measured nowhere. NETSKETCH_TRACE
// names another capture to play.
func TestOmniMonTrace(t *testing.T) {
	path, epochs := os.Getenv("NETSKETCH_TRACE"), 7
	if path == "" {
		var frames [][]byte
		address := func(i int) string { return fmt.Sprintf("10.%d.0.%d", 1+i%3, 1+i) }
		for i := range 600 {
			frames = append(frames, frame(address(i%20), address((i/2+1+i)%20), uint16(i%40)))
			if i%20 == 0 {
				frames = append(frames, frame(address(3), "239.1.1.1", 9))
			}
		}
		path = capture(t, frames)
	}
	s := omnimonScenario(t, 5, epochs, "{hosts-per-leaf: 2}", 1000, 1000)
	s.UseTrace(path)
	s.Faults = []scenario.Fault{{Link: "leaf1-spine1", Loss: 0.1}}
	foreign, measured := 0.0, 0
	r := play(t, s)
	check(t, r, epochs)
	for i := range r.Epochs {
		measured += exactEpoch(t, r, i, 10).packets
		foreign += r.Epochs[i].Results["omnimon"].Published.Row("summary", network, "").Value("foreign-packets")
	}
	t.Logf("%d packets measured, %.0f foreign of %d sent", measured, foreign, r.Network.Sent)
	n := uint64(measured) + uint64(foreign)
	if measured == 0 || foreign == 0 || n > r.Network.Sent || n*10 < r.Network.Sent*8 {
		t.Errorf("%d packets measured, %.0f foreign of %d sent", measured, foreign, r.Network.Sent)
	}
}

// TestOmniMonFlowlets: agents number flowlets by the times of packets, and the results of queries
// reach gNMI. With a gap of 5 ms, a flow with a packet every 10 ms has as many flowlets as packets,
// and one with a packet every 2 ms has one flowlet, which goes on in all epochs.
func TestOmniMonFlowlets(t *testing.T) {
	sizes, err := os.ReadFile("../../examples/omnimon/queries/flowlet-size-histogram.query")
	if err != nil {
		t.Fatal(err)
	}
	const numbers, few, many = "x = packets.reduce(keys=(flowlet), n=count())", 10, 50
	s, err := scenario.Parse("flowlets.yaml", fmt.Appendf(nil, `
name: flowlets
seed: 7
epochs: 3
epoch: 100ms
program: omnimon
topology: {hosts-per-leaf: 1}
agents: [omnimon]
traffic:
  - {name: slow, exact: true, flows: 1, scale: %d}
  - {name: fast, exact: true, flows: 1, scale: %d}
algorithms:
  - plugin: omnimon
    config: {flowlet-gap: 5ms, queries: [{name: sizes, text: %q}, {name: numbers, text: %q}]}
`, few, many, sizes, numbers))
	if err != nil {
		t.Fatal(err)
	}
	epochs := 0
	playWith(t, s, scenario.Options{Virtual: true, OnEpoch: func(run *scenario.Run) error {
		updates, err := once(t, connect(t, run.Address()), path("omnimon", "queries"))
		if err != nil {
			return err
		}
		got, exact := map[string]int64{}, 0
		for _, u := range updates {
			e := u.GetPath().GetElem()
			switch leaf := e[len(e)-1].GetName(); {
			case leaf == "quality" && u.GetVal().GetStringVal() == "EXACT":
				exact++
			case leaf == "value":
				got[e[2].GetKey()["name"]+" "+e[4].GetKey()["key"]] = u.GetVal().GetIntVal()
			}
		}
		want := map[string]int64{"sizes 1": few, fmt.Sprint("sizes ", many): 1, "numbers 0": many}
		for i := range few {
			want[fmt.Sprint("numbers ", epochs*few+i)]++
		}
		if exact != 2 || !maps.Equal(got, want) {
			t.Errorf("epoch %d: %d exact queries, results %v, want %v", epochs, exact, got, want)
		}
		epochs++
		return nil
	}})
	if epochs != s.Epochs {
		t.Errorf("%d epochs, want %d", epochs, s.Epochs)
	}
}

// TestOmniMonExp9 is Exp#9 of OmniMon's technical report: the 8-ary fat tree of 80 switches and
// 128 hosts, eight failed elements of each kind, 20 seeds. Everything must be exact and
// determined. It writes a row for each experiment. With NETSKETCH_TRACE it plays a capture.
func TestOmniMonExp9(t *testing.T) {
	file := os.Getenv("NETSKETCH_EXP9")
	if file == "" {
		t.Skip("takes eight minutes of processor time: run `make omnimon-failures`, which sets NETSKETCH_EXP9")
	}
	rows := [][]string{{"kind", "seed", "lossy_elements", "flows", "lossy_flows", "lost_packets", "flow_losses",
		"unknowns", "determined", "f1"}}
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			x := failures{k: 8, elements: 8, flows: 5000, rate: 200_000, gray: 0.01, seed: seed,
				trace: os.Getenv("NETSKETCH_TRACE"),
				log:   slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))}
			for _, o := range x.play(t) {
				t.Logf("%+v", o)
				if o.kind == "" {
					continue
				}
				row := []string{o.kind, fmt.Sprint(seed)}
				for _, n := range []int{o.elements, o.flows, o.lossy, o.lost, o.rows, o.unknowns, o.determined} {
					row = append(row, strconv.Itoa(n))
				}
				rows = append(rows, append(row, strconv.FormatFloat(o.f1, 'g', 6, 64)))
			}
		})
	}
	if t.Failed() {
		return
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := evidence.WriteCSV(f, rows); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestOmniMonForeignRouter: a spine that loses packets with a header, or all packets without one,
// costs no packet: hosts send without a header where a path may lead over it. Results name the
// flows that are not exact, and the hosts the reason.
func TestOmniMonForeignRouter(t *testing.T) {
	for _, carrier := range []wire.Carrier{wire.CarrierShim, wire.CarrierOption, wire.CarrierTunnel} {
		t.Run(string(carrier), func(t *testing.T) {
			s := carried(t, carrier)
			run, err := scenario.Open(t.Context(), s, scenario.Options{Virtual: true, PluginDir: plugins, Listen: "127.0.0.1:0",
				Compiler: &compiler})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := run.Close(); err != nil {
					t.Error(err)
				}
			}()
			layout := header.Layout{EtherType: header.DefaultEtherType, Slots: 2}
			spine := slices.IndexFunc(run.Network().Fabric().Switches, func(x lab.Switch) bool { return x.Name == "spine1" })
			tagged := 0
			run.Network().SetFilter(spine, func(frame []byte) bool {
				link, err := packet.ParseLink(frame)
				var h header.Header
				if err != nil || layout.Peek(frame, link, &h) != nil {
					return false
				}
				if h.Hops&header.Probe == 0 {
					tagged++
				}
				return true
			})
			r, err := run.Play(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n := r.Network; tagged != 0 || n.Lost != 0 || len(n.Dropped) != 0 || n.Sent == 0 || n.Received != n.Sent {
				t.Errorf("%d packets with a header at the spine, %+v", tagged, n)
			}
			for path, value := range leaves(t, run.Address(), "collector", "hosts") {
				switch {
				case strings.HasSuffix(path, "/state/leases-missing"):
					if value == "0" {
						t.Errorf("%s: no address is named", path)
					}
				case strings.HasSuffix(path, "/state/no-lease"):
					if !strings.Contains(value, ": carrier lost on the path") {
						t.Errorf("%s: %q", path, value)
					}
				case strings.HasSuffix(path, "/state/leases"):
					if value == "0" {
						t.Errorf("%s: hosts at the same switch have no lease", path)
					}
				}
			}
		})
	}
}

// carried is a network whose hosts use a carrier.
func carried(t *testing.T, carrier wire.Carrier) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("carrier.yaml", fmt.Appendf(nil, `
name: carrier
seed: 11
epochs: 4
epoch: 100ms
program: omnimon
topology: {hosts-per-leaf: 2}
agents: [omnimon]
traffic:
  - {name: web, rate: 3000, flows: 300, zipf: 1.0, udp: 0.3, ipv6: 0.2}
algorithms:
  - {plugin: omnimon, config: {carrier: %s}}
expect:
  - {measure: flows-exact, at-least: 1}
  - {measure: hops-exact, at-least: 1}
  - {measure: switches-exact, at-least: 1}
  - {measure: links-exact, at-least: 1}
  - {measure: link-flows-bounded, at-least: 1}
  - {measure: losses-exact, at-least: 1}
  - {measure: false-claims, at-most: 0}
`, carrier))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestOmniMonCarriers: with each carrier every value is exact, with losses.
func TestOmniMonCarriers(t *testing.T) {
	for _, carrier := range []wire.Carrier{wire.CarrierShim, wire.CarrierOption, wire.CarrierTunnel} {
		t.Run(string(carrier), func(t *testing.T) {
			s := carried(t, carrier)
			s.Faults = []scenario.Fault{{Link: "leaf1-spine1", Loss: 0.05}}
			r := play(t, s)
			check(t, r, s.Epochs)
			for i := range r.Epochs {
				if n := exactEpoch(t, r, i, 10).packets; n == 0 {
					t.Errorf("epoch %d: no packets", i)
				}
			}
		})
	}
}
