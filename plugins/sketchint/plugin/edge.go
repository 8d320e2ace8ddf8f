// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/tower"
)

// Edge switches have the towers of hosts in registers: cell 2i has the lower half of word i, cell
// 2i+1 the upper one. They count the packets that leave the network at the switch.

// annotation is the name of the annotation of towers in programs.
const annotation = "netsketch_sketchint"

// The objects of towers, by the structure that they have.
var (
	flowsNeed = sdk.ObjectNeed{Optional: true,
		Annotation: annotation, Values: map[string]string{"part": "flows", "rows": "2,4,8,16,32", "cells": ""}}
	latenciesNeed = sdk.ObjectNeed{Optional: true,
		Annotation: annotation, Values: map[string]string{"part": "latencies", "rows": "8+24,16+28,24+40", "cells": ""}}
)

// edgeInstructions are the INT instructions that edge switches read: node ids and latencies.
const edgeInstructions = 0xa000

// The rows of the towers.
const (
	flowRows    = 5
	latencyRows = 3
)

// edge is a switch with towers.
type edge struct {
	name             string
	flows, latencies register
}

// register is the tower of one object.
type register struct {
	object string
	bytes  int
}

// findEdge returns the towers of a switch; nil, nil if the switch has no towers.
func findEdge(d *sdk.Device) (*edge, error) {
	flows, latencies := d.Select(flowsNeed), d.Select(latenciesNeed)
	if len(flows) == 0 || len(latencies) == 0 {
		return nil, nil
	}
	e := &edge{name: d.Name}
	for _, x := range []struct {
		object sdk.Object
		rows   int
		to     *register
	}{{flows[0], flowRows, &e.flows}, {latencies[0], latencyRows, &e.latencies}} {
		cells, err := strconv.Atoi(x.object.Annotations[annotation]["cells"])
		if err != nil || cells < 2 || cells%2 != 0 || x.rows*cells != x.object.Cells || x.object.Width != 32 ||
			4*x.object.Cells > maxTower {
			return nil, fmt.Errorf("%s has %d cells of %d bits; expected %d rows of %q cells of 32 bits, at most %d bytes",
				x.object.Name, x.object.Cells, x.object.Width, x.rows, x.object.Annotations[annotation]["cells"], maxTower)
		}
		*x.to = register{x.object.Name, 4 * x.object.Cells}
	}
	return e, nil
}

// words returns the words of a tower.
func (g *register) words(d *sdk.DeviceData) ([]uint64, error) {
	c := d.Object(g.object)
	if c == nil {
		return nil, fmt.Errorf("%s was not delivered", g.object)
	}
	if c.Width != 32 || len(c.Packed) != g.bytes {
		return nil, fmt.Errorf("%s: %d bytes in cells of %d bits were delivered; expected %d in cells of 32",
			g.object, len(c.Packed), c.Width, g.bytes)
	}
	return sdk.Cells{Object: c.Object, Width: 64, Packed: c.Packed}.Uint64s(), nil
}

// gathered holds the data that an edge switch recorded in the epochs of an interval.
type gathered struct {
	interval, length uint64 // length: epochs of an interval
	epochs           uint64 // number of delivered epochs
	problem          string
	flows            *tower.Sketch[family.P4]
	latencies        *tower.Latency[family.P4]
}

// gather adds the towers of an epoch to the towers of the interval. Insertion is CM, so towers can
// be added.
func (p *Plugin) gather(epoch *sdk.Epoch) {
	now := map[string]*gathered{}
	for _, e := range p.setup.edges {
		g := p.edges[e.name]
		if number := epoch.Number / p.setup.epochs; g == nil || g.interval != number || g.length != p.setup.epochs {
			g = &gathered{interval: number, length: p.setup.epochs}
		}
		now[e.name] = g
		if err := g.add(e, epoch); err != nil {
			g.problem = err.Error()
			continue
		}
		g.epochs++
		p.collects.add(e.flows.bytes + e.latencies.bytes)
	}
	p.edges = now
}

// add adds the towers of one epoch.
func (g *gathered) add(e *edge, epoch *sdk.Epoch) error {
	for _, m := range epoch.Missing {
		if !m.Host && m.Name == e.name {
			return fmt.Errorf("epoch %d: %s", epoch.Number, cmp.Or(m.Reason, "no reason given"))
		}
	}
	d := epoch.Device(e.name)
	if d == nil {
		return fmt.Errorf("epoch %d: nothing was delivered", epoch.Number)
	}
	flows, err := tower.New[family.P4](tower.Config{Memory: e.flows.bytes})
	if err != nil {
		return err
	}
	latencies, err := tower.NewLatency[family.P4](tower.Config{Memory: e.latencies.bytes})
	if err != nil {
		return err
	}
	for _, x := range []struct {
		from *register
		to   []uint64
	}{{&e.flows, flows.Words()}, {&e.latencies, latencies.Words()}} {
		words, err := x.from.words(d)
		if err != nil {
			return fmt.Errorf("epoch %d: %w", epoch.Number, err)
		}
		copy(x.to, words)
	}
	if g.flows == nil {
		g.flows, g.latencies = flows, latencies
		return nil
	}
	if err := g.flows.Merge(flows); err != nil {
		return err
	}
	return g.latencies.Merge(latencies)
}

// readEdges makes observers of the edge switches. The switches have no keys of flows: their heavy
// flows are the flows in the tables of hosts that end at the switch.
func (r *interval) readEdges(of map[string]*gathered, routes []*routing) {
	var hosts []*observer
	for _, o := range r.observers {
		if o.report != nil {
			hosts = append(hosts, o)
		}
	}
	for _, e := range r.edges {
		g := of[e.name]
		o := &observer{name: e.name, edge: true, unit: uint64(r.config.TimeUnit), problem: g.problem,
			whole: g.epochs == r.epochs, routes: routes}
		r.observers = append(r.observers, o)
		if !o.whole {
			o.problem = cmp.Or(o.problem, fmt.Sprintf("%d of %d epochs were delivered", g.epochs, r.epochs))
			r.problem(e.name, switchMissing, "%s", o.problem)
		}
		if g.flows == nil {
			continue
		}
		o.report = &wire.Report{First: r.number * r.epochs, Last: r.epoch.Number, Flows: g.flows, Latencies: g.latencies}
		o.count()
		for id := range r.names {
			o.report.Nodes = append(o.report.Nodes, wire.Node{ID: id})
		}
		slices.SortFunc(o.report.Nodes, func(a, b wire.Node) int { return cmp.Compare(a.ID, b.ID) })
		o.heavy = map[flow.Key]*wire.Heavy{}
		for _, h := range hosts {
			for key := range h.heavy {
				if n, ok := o.size(&key); r.at[key.DstAddr().String()] == e.name && ok && n >= r.config.threshold() {
					o.heavy[key] = &wire.Heavy{Key: key}
				}
			}
		}
	}
	slices.SortFunc(r.observers, func(a, b *observer) int { return strings.Compare(a.name, b.name) })
}

// count derives the counters of a report from the towers of an edge switch. The highest row of a
// tower has all packets, unless a counter has overflowed.
func (o *observer) count() {
	c := &o.report.Counters
	for _, n := range o.report.Flows.Row(flowRows - 1) {
		c[wire.Packets] += uint64(n)
	}
	words := o.report.Latencies.Words()
	for _, w := range words[len(words)/latencyRows*(latencyRows-1):] {
		c[wire.Hops] += w & (1<<24 - 1)
	}
}

// passport returns the packets and bytes that INT's passport mode would take for an observer's
// packets.
func (r *interval) passport(o *observer) (packets, bytes uint64) {
	if o.report == nil {
		return 0, 0
	}
	c := &o.report.Counters
	if o.edge {
		return c[wire.Packets], c[wire.Packets]*(headers+intHeader) + c[wire.Hops]*edgeHop
	}
	return c[wire.WithINT], c[wire.WithINT]*headers + c[wire.INTBytes]
}

// The bytes of INT-MD: shim and metadata header, and a hop with edgeInstructions.
const (
	intHeader = 16
	edgeHop   = 8
)
