// SPDX-License-Identifier: Apache-2.0

package sketchbench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/netsketch/netsketch/sketch/baseline"
	"github.com/netsketch/netsketch/sketch/fermat"
)

// losses is one experiment of ChameleMon §5.1: flows pass a link and some of them lose packets.
type losses struct {
	flows []Flow // those that pass
	lost  []uint32
}

// source addresses are the flow identifiers there.
const lossKey = 4

func (t *Trace) losses(flows, victims int, rate float64, seed uint64) losses {
	r := rand.New(rand.NewPCG(seed, 0x6c6f7373))
	l := losses{flows: t.flows[:min(flows, len(t.flows))]}
	for i := range l.flows {
		n := uint32(0)
		if i < victims {
			n = uint32(max(1, math.Round(rate*float64(l.flows[i].Packets)+r.Float64()-0.5)))
		}
		l.lost = append(l.lost, n)
	}
	return l
}

// decoder tries to decode the losses with so much memory, and says how long decoding took.
type decoder func(l losses, memory int, seed uint64) (ok bool, took time.Duration, err error)

func fermatLosses(l losses, memory int, seed uint64) (bool, time.Duration, error) {
	// What entered less what left holds the lost packets alone: sketches are linear.
	s, err := fermat.New[host, fermat.Prime32](fermat.Config{Memory: memory, KeyBytes: lossKey, FragmentBits: 32, Seed: seed})
	if err != nil {
		return false, 0, err
	}
	for i, n := range l.lost {
		if n > 0 {
			if err := s.Add([]byte(l.flows[i].Key[:lossKey]), int64(n)); err != nil {
				return false, 0, err
			}
		}
	}
	start := time.Now()
	r, err := s.Decode()
	return r.Complete, time.Since(start), err
}

func flowRadarLosses(l losses, memory int, seed uint64) (bool, time.Duration, error) {
	up, err := baseline.NewFlowRadar[host](memory, lossKey, seed)
	if err != nil {
		return false, 0, err
	}
	for _, f := range l.flows {
		if err := up.Insert([]byte(f.Key[:lossKey]), int64(f.Packets)); err != nil {
			return false, 0, err
		}
	}
	start := time.Now()
	_, ok := up.Decode()
	took := time.Since(start)
	return ok, 2 * took, nil // the far end has the same flows to decode
}

func lossRadarLosses(l losses, memory int, seed uint64) (bool, time.Duration, error) {
	s, err := baseline.NewLossRadar[host](memory, lossKey, seed)
	if err != nil {
		return false, 0, err
	}
	for i, n := range l.lost {
		for packet := range n {
			if err := s.Insert([]byte(l.flows[i].Key[:lossKey]), uint16(packet*7)); err != nil {
				return false, 0, err
			}
		}
	}
	start := time.Now()
	_, ok := s.Decode()
	return ok, time.Since(start), nil
}

// least finds the least memory, to 3 %, with which every one of runs decodes; 0 when 64 MB
// do not. LossRadar numbers a flow's packets in 16 bits, so that one which loses more
// than 65,536 packets never decodes.
func least(ctx context.Context, d decoder, l losses, runs int, seed uint64) (memory int, took time.Duration, err error) {
	try := func(memory int) (bool, time.Duration, error) {
		best := time.Hour
		for run := range runs {
			if err := ctx.Err(); err != nil {
				return false, 0, err
			}
			ok, t, err := d(l, memory, seed+uint64(run))
			if err != nil || !ok {
				return false, 0, err
			}
			best = min(best, t)
		}
		return true, best, nil
	}
	lo, hi := 0, 512
	for {
		ok, t, err := try(hi)
		if err != nil {
			return 0, 0, err
		}
		if ok {
			took = t
			break
		}
		if lo, hi = hi, hi*2; hi > 1<<26 {
			return 0, 0, nil
		}
	}
	for hi-lo > max(hi/32, 24) {
		mid := (lo + hi) / 2
		ok, t, err := try(mid)
		if err != nil {
			return 0, 0, err
		}
		if ok {
			hi, took = mid, t
		} else {
			lo = mid
		}
	}
	return hi, took, nil
}

// lossFigure is ChameleMon's Figure 4 (victims), 5 (loss rate) or 6 (flows).
func lossFigure(figure int) Suite {
	type point struct {
		label          string
		flows, victims int
		rate           float64
	}
	var points []point
	var x, paper string
	switch figure {
	case 4:
		x, paper = "victim flows", "Fermat's memory and time grow with the victims, FlowRadar's stay; Fermat needs up to 15.9 times less memory than FlowRadar and 23.2 times less than LossRadar."
		for _, n := range []int{500, 1000, 2000, 4000, 6000, 8000, 10_000} {
			points = append(points, point{fmt.Sprint(n), 10_000, n, 0.01})
		}
	case 5:
		x, paper = "loss rate (%)", "Fermat's and FlowRadar's memory and time do not depend on the rate, LossRadar's grow with it: up to 276 times (FlowRadar) and 6,411 times (LossRadar) Fermat's memory."
		for _, p := range []float64{1, 2, 5, 10, 20, 30} {
			points = append(points, point{fmt.Sprint(p), 10_000, 100, p / 100})
		}
	default:
		x, paper = "flows", "Fermat's and LossRadar's memory and time do not depend on the flows, FlowRadar's grow with them: up to 1,535 times (FlowRadar) and 129 times (LossRadar) Fermat's memory."
		for _, n := range []int{10_000, 20_000, 40_000, 60_000, 80_000, 100_000} {
			points = append(points, point{fmt.Sprint(n), n, 100, 0.01})
		}
	}
	name := fmt.Sprintf("chamelemon-%d", figure)
	return Suite{
		Name: name, Title: fmt.Sprintf("ChameleMon, Figure %d: packet losses by %s", figure, x),
		Run: func(ctx context.Context, t *Trace, o Options) (rows []Row, err error) {
			for _, p := range points {
				if p.flows > len(t.flows) {
					continue // the trace has not so many
				}
				l := t.losses(p.flows, p.victims, p.rate, o.Seed)
				for _, d := range []struct {
					name string
					d    decoder
				}{{"Fermat", fermatLosses}, {"FlowRadar", flowRadarLosses}, {"LossRadar", lossRadarLosses}} {
					memory, took, err := least(ctx, d.d, l, o.Runs, o.Seed)
					if err != nil {
						return nil, err
					}
					if memory == 0 {
						continue
					}
					variant := x + " " + p.label
					rows = append(rows,
						Row{d.name, variant, memory, "packet losses", "memory", float64(memory), "bytes", t.Name},
						Row{d.name, variant, memory, "packet losses", "decoding time", took.Seconds() * 1e3, "ms", t.Name})
				}
			}
			return rows, nil
		},
		Plots: []Plot{
			{File: name + "-memory", Title: "memory to decode every loss (bytes)", Task: "packet losses", Metric: "memory", X: x, Log: true, Paper: paper},
			{File: name + "-time", Title: "decoding time (ms)", Task: "packet losses", Metric: "decoding time", X: x, Log: true, Paper: paper},
		},
	}
}
