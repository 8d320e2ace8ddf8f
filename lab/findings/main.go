// SPDX-License-Identifier: Apache-2.0

// Command findings plays networks that nobody tuned for, on a virtual clock: topologies, sizes,
// traffic, places and times of faults are drawn from seeds, which differ in each run and are
// printed. It counts which faults the plugins find in their default configuration, and the alerts
// of healthy networks. `make findings` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/netsketch/netsketch/lab/evidence"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/p4/softswitch"
)

func main() {
	var r run
	seeds := ""
	flag.StringVar(&r.plugins, "plugins", "bin/plugins", "`directory` of the plugins")
	flag.StringVar(&seeds, "seed", "", "first `seed` of each draw, separated by commas; drawn if empty")
	draws := flag.Int("draws", 1, "draws, each with a line of its own in the table, if no seeds are given")
	flag.IntVar(&r.seeds, "seeds", 20, "seeds of a draw for each topology")
	flag.IntVar(&r.parallel, "parallel", 2, "networks that are played at the same time")
	flag.StringVar(&r.algorithms, "algorithms", "", "plugins, separated by commas; all if empty")
	flag.StringVar(&r.topologies, "topologies", strings.Join(topologies, ","), "topologies, separated by commas")
	flag.StringVar(&r.faults, "faults", "", "true: only runs with faults; false: only healthy ones")
	flag.StringVar(&r.kinds, "kinds", "",
		"`kinds` of faults and disturbances, separated by commas: each happens as often as it is named; all if empty")
	flag.StringVar(&r.page, "write", "", "`page` whose table is replaced")
	flag.Float64Var(&r.share, "share", 1, "of the usual packets: fewer are played faster, and show less")
	flag.StringVar(&r.keep, "keep", "", "`directory` for the counts of each network: what is there is not played again")
	flag.BoolVar(&r.kept, "kept", false, "count what -keep has, and play no network")
	show := flag.Bool("show", false, "print the drawn scenarios and play none")
	flag.Parse()
	err := r.draw(seeds, *draws)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = r.play(ctx, *show)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "findings:", err)
		os.Exit(1)
	}
}

// run is what the command plays: draws of networks.
type run struct {
	plugins, algorithms, topologies, faults, kinds, page, keep string

	draws           []uint64 // first seed of each
	seeds, parallel int
	share           float64
	kept            bool

	compiler softswitch.Compiler
}

// draw sets the first seed of each draw: those of a text, or drawn ones.
func (r *run) draw(text string, draws int) error {
	if text == "" {
		for range draws {
			r.draws = append(r.draws, rand.Uint64N(1<<32))
		}
		return nil
	}
	for _, s := range strings.Split(text, ",") {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil || slices.Contains(r.draws, seed) {
			return fmt.Errorf("-seed: %q is not another seed", s)
		}
		r.draws = append(r.draws, seed)
	}
	return nil
}

// trials draws all networks of a draw.
func (r *run) trials(seed uint64) (all []*trial, err error) {
	for i := range r.seeds {
		for _, topology := range strings.Split(r.topologies, ",") {
			if !slices.Contains(topologies, topology) {
				return nil, fmt.Errorf("no topology is called %q; there are %v", topology, topologies)
			}
			for _, a := range algorithms {
				if r.algorithms != "" && !slices.Contains(strings.Split(r.algorithms, ","), a.name) {
					continue
				}
				if a, err = a.only(r.kinds); err != nil {
					return nil, err
				}
				for _, faulty := range []bool{true, false} {
					if r.faults != "" && r.faults != fmt.Sprint(faulty) {
						continue
					}
					if faulty && len(a.faults) == 0 || !faulty && len(a.disturbances) == 0 {
						continue
					}
					t, err := draw(a, topology, seed+uint64(i), faulty, r.share)
					if err != nil {
						return nil, err
					}
					all = append(all, t)
				}
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no plugin is called %q, or it has none of the -kinds", r.algorithms)
	}
	return all, nil
}

// play plays all networks and prints the table.
func (r *run) play(ctx context.Context, show bool) error {
	var sums []*sum
	for _, seed := range r.draws {
		trials, err := r.trials(seed)
		if err != nil {
			return err
		}
		if show {
			for _, t := range trials {
				fmt.Printf("# %v\n%s\n", t, t.text)
			}
			continue
		}
		fmt.Printf("seeds %d to %d, %d networks\n", seed, seed+uint64(r.seeds)-1, len(trials))
		s, err := r.count(ctx, trials)
		if err != nil {
			return err
		}
		s.seed = seed
		sums = append(sums, s)
	}
	if show {
		return nil
	}
	each := r.table(sums, true)
	fmt.Print(each)
	if r.page != "" {
		if err := write(r.page, r.table(sums, false), each); err != nil {
			return err
		}
	}
	return aims(together(sums))
}

// count plays the networks of a draw, unless their counts are kept, and counts their findings.
func (r *run) count(ctx context.Context, trials []*trial) (*sum, error) {
	var mu sync.Mutex
	out := newSum()
	out.all = len(trials)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.parallel)
	for _, t := range trials {
		group.Go(func() error {
			p, err := r.load(t)
			if err == nil && p == nil && r.kept {
				return nil
			}
			if err == nil && p == nil {
				p = &piece{Scenario: t.text, Played: evidence.Run()}
				if p.Tally, err = t.play(ctx, r.plugins, &r.compiler); err == nil {
					err = r.store(t, p)
				}
			}
			if err != nil {
				return fmt.Errorf("%v: %w", t, err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, note := range p.Tally.Notes {
				fmt.Println(note)
			}
			out.add(t.algorithm.name, p)
			return nil
		})
	}
	return out, group.Wait()
}

// play plays a network and counts.
func (t *trial) play(ctx context.Context, plugins string, compiler *softswitch.Compiler) (out *tally, err error) {
	s, err := scenario.Parse("findings.yaml", []byte(t.text))
	if err != nil {
		return nil, err
	}
	var results []*score.Result
	r, err := scenario.Open(ctx, s, scenario.Options{PluginDir: plugins, Listen: "127.0.0.1:0", Virtual: true,
		Compiler: compiler, OnEpoch: func(r *scenario.Run) error {
			epochs := r.Report().Epochs
			results = append(results, epochs[len(epochs)-1].Results[t.algorithm.name])
			return ctx.Err()
		}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if _, err := r.Play(ctx); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return t.count(results), nil
}
