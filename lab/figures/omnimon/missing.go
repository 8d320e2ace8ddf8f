// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/internal/test/omnimon/simulation"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/plugins/omnimon/analysis"
)

// Ways in which hosts fail.
const (
	noReport = "no report" // packets carry the header as before; the reports are missing
	noAgent  = "no agent"  // packets from and to the host carry no header
)

// missingHosts are the counts of failed hosts, of 128.
var missingHosts = []int{0, 1, 8, 64}

// diagnosed counts the findings of the analysis of Exp#9.
type diagnosed struct {
	found, wrong, missed       int // lossy switches and links
	all, determined            int // variables of lossy flows
	between, betweenDetermined int // unknowns of flows between hosts with a report
}

// missing repeats Exp#9 with failed hosts, in a number of seeds.
func missing(seeds int) (rows []suite.Row, err error) {
	for _, kind := range failures {
		for _, way := range []string{noReport, noAgent} {
			for _, hosts := range missingHosts {
				var sum diagnosed
				for seed := range uint64(seeds) {
					if err := sum.add(kind, way, hosts, seed); err != nil {
						return nil, fmt.Errorf("%s, %s at %d hosts, seed %d: %w", kind, way, hosts, seed, err)
					}
				}
				row := func(metric string, value float64) {
					rows = append(rows, suite.Row{Structure: way, Variant: fmt.Sprintf("hosts %d", hosts), Task: kind, Metric: metric,
						Value: value})
				}
				row("F1", 2*float64(sum.found)/float64(2*sum.found+sum.wrong+sum.missed))
				row("unknowns", float64(sum.all))
				row("determined", float64(sum.determined)/float64(sum.all))
				row("unknowns between others", float64(sum.between))
				row("determined between others", float64(sum.betweenDetermined)/float64(sum.between))
			}
		}
	}
	return rows, nil
}

// add analyzes one experiment, and compares every bound with what happened.
func (d *diagnosed) add(kind, way string, hosts int, seed uint64) error {
	tp := simulation.FatTree(8)
	sim := simulation.Run(tp, simulation.Settings{Flows: diagnosisFlows, Slots: diagnosisSlots,
		Mean: float64(diagnosisPackets) / diagnosisFlows, Counters: true, Seed: seed,
		Drop: simulation.Failures(tp, kind, rand.New(rand.NewPCG(seed, 9)))})
	failed := rand.New(rand.NewPCG(seed, 128)).Perm(sim.Hosts)[:hosts]
	touched := func(f *simulation.Flow) bool { return slices.Contains(failed, f.From) || slices.Contains(failed, f.To) }
	if way == noAgent {
		sim.Flows = slices.DeleteFunc(sim.Flows, touched)
		sim.Count()
	}
	for _, host := range failed {
		sim.Epoch.Reports[host] = nil
	}
	result, err := sim.Analyze()
	if err != nil {
		return err
	}
	if err := sim.Contains(result); err != nil {
		return err
	}
	if result.Missing != hosts || len(result.Contradictions) > 0 {
		return fmt.Errorf("%d hosts are missing, %v", result.Missing, result.Contradictions)
	}
	switches, links := sim.Losses()
	for i, b := range slices.Concat(result.Switches, result.Links) {
		switch lost := slices.Concat(switches, links)[i]; {
		case lost > 0 && b.Low > 0:
			d.found++
		case lost > 0:
			d.missed++
		case b.Low > 0:
			d.wrong++
		}
	}
	losses := map[*simulation.Flow][]analysis.Loss{}
	for _, flows := range [][]analysis.LossyFlow{result.Lossy, result.Open} {
		for i := range flows {
			losses[sim.Route(&flows[i].Key)] = flows[i].Losses
		}
	}
	for _, f := range sim.Flows {
		if !f.Lossy() {
			continue
		}
		n := 0
		for i, l := range losses[f] {
			if l.Packets.Exact() && l.Packets.Low == f.Lost[i][wire.Packets] {
				n++
			}
		}
		d.all, d.determined = d.all+len(f.Lost), d.determined+n
		if !touched(f) {
			d.between, d.betweenDetermined = d.between+len(f.Lost), d.betweenDetermined+n
		}
	}
	return nil
}

// missingTable has a line for each kind of failure and count of missing hosts.
func missingTable(rows []suite.Row) string {
	v := suite.Values(rows)
	share := func(x float64) string { return fmt.Sprintf("%.6g", math.Floor(1e5*x)/1e5) } // never rounded up to 1
	var b strings.Builder
	b.WriteString("| failure | missing hosts | F1 | unknowns | determined | unknowns between other hosts | " +
		"determined |\n|---|---|---|---|---|---|---|\n")
	least := 1.0 // lowest F1 and lowest share of determined unknowns without an agent
	for _, kind := range failures {
		for _, hosts := range missingHosts {
			get := func(way, metric string) float64 {
				return v.Variant(way, fmt.Sprintf("hosts %d", hosts), kind, metric)
			}
			least = min(least, get(noAgent, "F1"), get(noAgent, "determined"))
			fmt.Fprintf(&b, "| %s | %d | %s | %.0f | %s | %.0f | %s |\n", kind, hosts, share(get(noReport, "F1")),
				get(noReport, "unknowns"), share(get(noReport, "determined")), get(noReport, "unknowns between others"),
				share(get(noReport, "determined between others")))
		}
	}
	fmt.Fprintf(&b, "\nWithout an agent on the missing hosts, F1 and the share determined are at least %s.\n",
		share(least))
	return b.String()
}

func missingFigure() suite.Suite {
	return suite.New(suite.Suite{
		Name:  "omnimon-missing",
		Table: missingTable,
		Measure: func(context.Context, *trace.Trace, suite.Options) ([]suite.Row, error) {
			return missing(diagnosisSeeds)
		},
	})
}
