// SPDX-License-Identifier: Apache-2.0

// Package groundtruth says what happened to the packets of each flow in a scenario, and writes it
// to files.
package groundtruth

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/netsketch/netsketch/lab/scenario/rowfile"
	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/sketch/flow"
)

// File receives what happened to the flows of each scored epoch. Several runs, one
// after the other, may share it.
type File struct {
	rows  *rowfile.File
	point []parquet.Value // values of a sweep's axes and the seed, the first columns
}

// truthColumns are the columns after those of a sweep.
var truthColumns = []rowfile.Column{
	{Name: "seed", Node: parquet.Uint(64)},
	{Name: "epoch", Node: parquet.Uint(64)},
	{Name: "node", Node: rowfile.Text()},
	{Name: "src", Node: rowfile.Text()},
	{Name: "dst", Node: rowfile.Text()},
	{Name: "protocol", Node: parquet.Uint(8)},
	{Name: "src-port", Node: parquet.Uint(16)},
	{Name: "dst-port", Node: parquet.Uint(16)},
	{Name: "packets", Node: parquet.Uint(64)},
	{Name: "entered", Node: parquet.Optional(parquet.Uint(64))},
	{Name: "lost", Node: parquet.Optional(parquet.Uint(64))},
	{Name: "lost-at", Node: parquet.Optional(rowfile.Text())},
	{Name: "hop", Node: parquet.Optional(parquet.Uint(32))},
	{Name: "delay-mean-ns", Node: parquet.Optional(parquet.Uint(64))},
	{Name: "delay-max-ns", Node: parquet.Optional(parquet.Uint(64))},
}

// Create creates a file whose first columns are the keys that a sweep changes: Parquet
// if its name ends in .parquet, otherwise CSV.
func Create(path string, keys ...string) (*File, error) {
	var columns []rowfile.Column
	for _, key := range keys {
		columns = append(columns, rowfile.Column{Name: key, Node: rowfile.Text()})
	}
	columns = append(columns, truthColumns...)
	file, err := rowfile.Create(path, "ground-truth", columns)
	if err != nil {
		return nil, err
	}
	return &File{rows: file}, nil
}

// Close ends the file. No other method may be called after it. Close of nil does nothing.
func (g *File) Close() error {
	if g == nil {
		return nil
	}
	if err := g.rows.Close(); err != nil {
		return fmt.Errorf("ground truth: %w", err)
	}
	return nil
}

// Begin begins a run at a point of a sweep.
func (g *File) Begin(values []string, seed uint64) {
	g.point = nil
	for _, v := range values {
		g.point = append(g.point, parquet.ValueOf(v))
	}
	g.point = append(g.point, parquet.ValueOf(seed))
}

// Write writes one row for each flow at each switch, in the order of names and flows, and one for
// each flow that entered the network, whose node is "network". If only hosts measure, the packets
// are those that arrived at hosts, and the rows are in the order of flows. If hosts mark packets
// with the epoch, the rows are about the packets that carry it, also in the order of flows, and the
// losses are in the row of the network.
func (g *File) Write(epoch uint64, actual *score.Truth) (err error) {
	row := func(device string, k flow.Key, packets uint64, rest ...any) {
		values := slices.Clone(g.point)
		for _, v := range append([]any{epoch, device, k.SrcAddr().String(), k.DstAddr().String(), uint32(k.Proto),
			uint32(k.SrcPort), uint32(k.DstPort), packets}, rest...) {
			values = append(values, parquet.ValueOf(v))
		}
		if err == nil {
			err = g.rows.Write(values)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(actual.Devices)) {
		d := actual.Devices[name]
		lostAt := map[flow.Key][]string{}
		for l, n := range d.Losses {
			lostAt[l.Flow] = append(lostAt[l.Flow], fmt.Sprintf("%s=%d", l.Element, n))
		}
		for _, k := range sortedFlows(d.All) {
			var entered, lost, at, hop, mean, worst any // nil is empty
			if n := d.Entered[k]; n > 0 {
				slices.Sort(lostAt[k])
				entered, lost, at = n, d.Lost[k], strings.Join(lostAt[k], " ")
			}
			if p, ok := d.Departed[k]; ok && len(p.Delays) > 0 {
				sum := time.Duration(0)
				for _, delay := range p.Delays {
					sum += delay
				}
				hop, mean, worst = uint32(p.Hop), uint64(sum)/uint64(len(p.Delays)), uint64(slices.Max(p.Delays))
			}
			row(name, k, d.All[k], entered, lost, at, hop, mean, worst)
		}
	}
	for _, k := range sortedFlows(actual.Network) {
		row("network", k, actual.Network[k], actual.Network[k], actual.Lost[k], nil, nil, nil, nil)
	}
	if OnlyHosts(actual) {
		through := Passages(actual)
		for _, k := range sortedFlows(actual.Stays.Packets) {
			for _, p := range through[k] {
				worst := actual.Stays.Delays[truth.FlowAt{Flow: k, Switch: p.Switch}].Worst
				row(p.Switch, k, p.Packets, nil, nil, nil, uint32(p.Hop), uint64(p.Delay)/p.Packets, uint64(worst))
			}
			row("network", k, actual.Stays.Packets[k], nil, nil, nil, nil, nil, nil)
		}
	}
	if j := actual.Journal; j != nil {
		writeJournal(j, row)
	}
	if err = cmp.Or(err, g.rows.Flush()); err != nil {
		return fmt.Errorf("ground truth: %w", err)
	}
	return nil
}

// writeJournal writes the rows of the packets that carry an epoch.
func writeJournal(j *truth.JournalEpoch, row func(device string, k flow.Key, packets uint64, rest ...any)) {
	path, lostAt, lost := map[flow.Key][]truth.Hop{}, map[flow.Key][]string{}, map[flow.Key]uint64{}
	for h := range j.Entered {
		path[h.Flow] = append(path[h.Flow], h)
	}
	for l, n := range j.Lost {
		lostAt[l.Flow] = append(lostAt[l.Flow], fmt.Sprintf("%s=%d", l.Element, n.Packets))
		lost[l.Flow] += n.Packets
	}
	for _, k := range sortedFlows(j.Sent) {
		slices.SortFunc(path[k], func(a, b truth.Hop) int {
			return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Switch, b.Switch))
		})
		for _, h := range path[k] {
			row(h.Switch, k, j.Entered[h].Packets, nil, nil, nil, uint32(h.Number), nil, nil)
		}
		slices.Sort(lostAt[k])
		sent := j.Sent[k].Packets
		row(score.Network, k, sent, sent, lost[k], strings.Join(lostAt[k], " "), nil, nil, nil)
	}
}

// sortedFlows returns the flows in the order of their keys' text.
func sortedFlows[V any](flows map[flow.Key]V) []flow.Key {
	return slices.SortedFunc(maps.Keys(flows), func(a, b flow.Key) int { return cmp.Compare(a.String(), b.String()) })
}
