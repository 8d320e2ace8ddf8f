// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"testing"

	lab "github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
)

// The registers of program chamelemon, and the edge switches of the testbed.
const (
	towerA, towerB = "ingress.chamelemon.tower8", "ingress.chamelemon.tower16"
	edges          = 4
)

var (
	upNames   = [families]string{"ingress.chamelemon.upstream", "ingress.chamelemon.upstream_ipv6"}
	downNames = [families]string{"chamelemon_downstream", "chamelemon_downstream_ipv6"}
)

var edgeName = lab.EdgeName

// network is the paper's testbed.
func network() sdk.Network { return lab.New(lab.Config{}).Network() }

// fabric is a testbed whose plans go the way that the collector's do: carried out or not, and
// accounted for.
type fabric struct {
	tb     testing.TB
	bed    *lab.Testbed
	h      *sdktest.Harness
	config string
	number uint64 // number of the latest epoch
	plans  []sdk.Plan

	// account: epochs report the outcome of plans, as a collector's do.
	account  bool
	fails    func(sdk.Plan) sdk.PlanStatus // outcome of a plan; nil: applied
	applied  map[string][2]uint64          // latest plan by switch and bank
	outcomes []sdk.PlanOutcome
}

// newFabric is a testbed of the paper's size.
func newFabric(tb testing.TB, seed uint64, config string) *fabric {
	return newFabricOf(tb, lab.Config{Seed: seed}, config)
}

// newSmall is one of a quarter of the size, in which the time bit is ahead of an epoch's number.
func newSmall(tb testing.TB, seed uint64, config string) *fabric {
	return newFabricOf(tb, lab.Config{Seed: seed, Shape: lab.Paper().Scaled(4), BankShift: 1}, config)
}

func newFabricOf(tb testing.TB, c lab.Config, config string) *fabric {
	if !strings.Contains(config, `"victims"`) { // tests compare all victims
		config = strings.Replace(cmp.Or(config, "{}"), "{", `{"victims": {"limit": 20000}, `, 1)
		config = strings.Replace(config, ", }", "}", 1)
	}
	f := &fabric{tb: tb, bed: lab.New(c), config: config, applied: make(map[string][2]uint64)}
	f.begin(nil)
	for i := range edges {
		for port := uint32(1); port <= 3; port++ {
			for _, t := range []string{"ingress.chamelemon.entry_port", "egress.chamelemon.exit_port"} {
				if got := f.bed.HasPort(i, t, port); got != (port < 3) {
					tb.Errorf("%s: an entry for port %d in %s: %v", edgeName(i), port, t, got)
				}
			}
		}
	}
	return f
}

// begin starts the plugin's process, with what the collector has kept of an earlier one's state.
func (f *fabric) begin(state *sdk.State) {
	f.h = sdktest.Start(f.tb, New(), sdktest.Options{Config: f.config, Network: f.bed.Network(), State: state})
	p := *f.h.Settings().Plan
	f.apply(p)
	if p.ID == 0 {
		return
	}
	for i := range edges { // the plan of a configuration is for both banks
		f.applied[edgeName(i)] = [2]uint64{p.ID, p.ID}
	}
}

// restart is the death of the plugin's process and the start of another.
func (f *fabric) restart(state *sdk.State) { f.begin(state) }

func (f *fabric) apply(p sdk.Plan) {
	f.tb.Helper()
	if err := f.bed.Apply(p); err != nil {
		f.tb.Error(err)
	}
}

// carryOut does with a plan what a collector does.
func (f *fabric) carryOut(p sdk.Plan) {
	status := sdk.PlanApplied
	if f.fails != nil {
		status = f.fails(p)
	}
	bit := f.bed.Bit(p.FromEpoch)
	touched := make(map[string]bool)
	for _, w := range p.Writes {
		touched[w.Device] = true
		if m := w.Entry.Matches; !p.PreEpoch || len(m) == 0 || m[0].Field != "time" || len(m[0].Value) != 1 ||
			uint64(m[0].Value[0]) != bit {
			f.tb.Errorf("a plan for epoch %d, time bit %d, writes to %+v", p.FromEpoch, bit, w.Entry)
		}
	}
	for name := range touched {
		f.outcomes = append(f.outcomes, sdk.PlanOutcome{Plan: p.ID, FromEpoch: p.FromEpoch, Device: name,
			Status: status, Reason: map[bool]string{true: "it came too late"}[status != sdk.PlanApplied]})
		if status == sdk.PlanApplied {
			x := f.applied[name]
			x[bit] = p.ID
			f.applied[name] = x
		}
	}
	if status == sdk.PlanApplied {
		f.apply(p)
	}
}

// pareto are heavy-tailed sizes: with the exponent 1.05, up to 3,000 packets.
var pareto = func() (points []traffic.SizePoint) {
	for x := 1.0; x < 3000; x = max(x+1, math.Floor(1.3*x)) {
		points = append(points, traffic.SizePoint{Packets: x, Share: 1 - math.Pow(x+1, -1.05)})
	}
	return append(points, traffic.SizePoint{Packets: 3000, Share: 1})
}()

// flows returns n flows. Of these, the given share loses a tenth of its packets.
func (f *fabric) flows(n int, victims, v6 float64) []lab.Flow {
	return f.bed.Flows(lab.Traffic{Sizes: pareto, Flows: n, Victims: victims, Loss: 0.1, IPv6: v6})
}

// record passes the flows through the network and returns the sealed epoch.
func (f *fabric) record(flows []lab.Flow) *sdk.Epoch {
	f.tb.Helper()
	f.number = f.bed.Number() + 1
	later := f.plans[:0]
	for _, p := range f.plans {
		if p.FromEpoch > f.number {
			later = append(later, p)
			continue
		}
		f.carryOut(p)
	}
	f.plans = later
	e, err := f.bed.Record(flows)
	if err != nil {
		f.tb.Fatal(err)
	}
	e.Plans, f.outcomes = f.outcomes, nil
	if f.account {
		for i := range edges {
			e.States = append(e.States, sdk.DeviceState{Device: edgeName(i),
				Plan: f.applied[edgeName(i)][f.bed.Bit(f.number)]})
		}
	}
	return e
}

// play records an epoch, has the plugin analyze it, and takes up its plans.
func (f *fabric) play(flows []lab.Flow) *sdk.Results {
	f.tb.Helper()
	return f.analyze(f.record(flows))
}

func (f *fabric) analyze(e *sdk.Epoch) *sdk.Results {
	f.tb.Helper()
	r := f.h.Analyze(e)
	f.plans = append(f.plans, r.Plans...)
	return r
}

// row returns the one row with these leaves.
func row(tb testing.TB, r *sdk.Results, list string, with ...string) map[string]string {
	tb.Helper()
	for _, m := range lab.Rows(r, list) {
		ok := true
		for i := 0; i < len(with); i += 2 {
			ok = ok && m[with[i]] == with[i+1]
		}
		if ok {
			return m
		}
	}
	tb.Fatalf("%s has no row with %v", list, with)
	return nil
}

func float(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return math.NaN()
	}
	return v
}

// isExact reports whether a leaf with a quality says that the value is exact.
func isExact(tb testing.TB, row map[string]string, leaf string) bool {
	tb.Helper()
	switch row[leaf] {
	case "EXACT":
		return true
	case "LOWER_BOUND", "UPPER_BOUND", "BOUNDED", "ESTIMATE":
	default:
		tb.Errorf("no quality in the leaf %s of %v", leaf, row)
	}
	return false
}
