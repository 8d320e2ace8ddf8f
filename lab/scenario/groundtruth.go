// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/sketch/flow"
)

// GroundTruth writes what happened to the flows of each scored epoch as CSV. Several runs, one
// after the other, may share it.
type GroundTruth struct {
	w     *csv.Writer
	point []string // values of a sweep's axes and the seed, the first columns
}

// NewGroundTruth returns a writer whose first columns are the keys that a sweep changes. The first
// epoch reports an error of writing the names of the columns.
func NewGroundTruth(w io.Writer, keys ...string) *GroundTruth {
	g := &GroundTruth{w: csv.NewWriter(w)}
	_ = g.w.Write(append(slices.Clone(keys), "seed", "epoch", "device", "src", "dst", "protocol", "src-port",
		"dst-port", "packets", "entered", "lost", "lost-at", "hop", "delay-mean-ns", "delay-max-ns"))
	return g
}

// begin begins a run at a point of a sweep.
func (g *GroundTruth) begin(values []string, seed uint64) {
	g.point = append(slices.Clone(values), decimal(seed))
}

// write writes one row for each flow at each switch, in the order of names and flows, and one for
// each flow that entered the network, whose device is "network".
func (g *GroundTruth) write(epoch uint64, actual *score.Truth) error {
	for _, name := range slices.Sorted(maps.Keys(actual.Devices)) {
		d := actual.Devices[name]
		lostAt := map[flow.Key][]string{}
		for l, n := range d.Losses {
			lostAt[l.Flow] = append(lostAt[l.Flow], fmt.Sprintf("%s=%d", l.Element, n))
		}
		for _, k := range sortedFlows(d.All) {
			row := truthRow{}
			if n := d.Entered[k]; n > 0 {
				slices.Sort(lostAt[k])
				row.entered, row.lost, row.lostAt = decimal(n), decimal(d.Lost[k]), strings.Join(lostAt[k], " ")
			}
			if p, ok := d.Departed[k]; ok && len(p.Delays) > 0 {
				sum := time.Duration(0)
				for _, delay := range p.Delays {
					sum += delay
				}
				row.hop = decimal(uint64(p.Hop))
				row.mean = decimal(uint64(sum) / uint64(len(p.Delays)))
				row.worst = decimal(uint64(slices.Max(p.Delays)))
			}
			g.row(epoch, name, k, d.All[k], row)
		}
	}
	for _, k := range sortedFlows(actual.Network) {
		row := truthRow{}
		row.entered, row.lost = decimal(actual.Network[k]), decimal(actual.Lost[k])
		g.row(epoch, "network", k, actual.Network[k], row)
	}
	g.w.Flush()
	if err := g.w.Error(); err != nil {
		return fmt.Errorf("ground truth: %w", err)
	}
	return nil
}

// truthRow are the columns that are empty for some flows.
type truthRow struct{ entered, lost, lostAt, hop, mean, worst string }

func (g *GroundTruth) row(epoch uint64, device string, k flow.Key, packets uint64, r truthRow) {
	_ = g.w.Write(append(slices.Clone(g.point), decimal(epoch), device, k.SrcAddr().String(), k.DstAddr().String(),
		decimal(uint64(k.Proto)), decimal(uint64(k.SrcPort)), decimal(uint64(k.DstPort)), decimal(packets),
		r.entered, r.lost, r.lostAt, r.hop, r.mean, r.worst))
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// sortedFlows returns the flows in the order of their keys' text.
func sortedFlows[V any](flows map[flow.Key]V) []flow.Key {
	return slices.SortedFunc(maps.Keys(flows), func(a, b flow.Key) int { return cmp.Compare(a.String(), b.String()) })
}
