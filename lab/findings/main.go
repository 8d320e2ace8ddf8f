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
	flag.StringVar(&r.plugins, "plugins", "bin/plugins", "`directory` of the plugins")
	flag.Uint64Var(&r.seed, "seed", 0, "first seed; 0 draws one")
	flag.IntVar(&r.seeds, "seeds", 20, "seeds for each topology")
	flag.IntVar(&r.parallel, "parallel", 2, "networks that are played at the same time")
	flag.StringVar(&r.algorithms, "algorithms", "", "plugins, separated by commas; all if empty")
	flag.StringVar(&r.topologies, "topologies", strings.Join(topologies, ","), "topologies, separated by commas")
	flag.StringVar(&r.faults, "faults", "", "true: only runs with faults; false: only healthy ones")
	flag.StringVar(&r.page, "write", "", "`page` whose table is replaced")
	flag.Float64Var(&r.share, "share", 1, "of the usual packets: fewer are played faster, and show less")
	show := flag.Bool("show", false, "print the drawn scenarios and play none")
	flag.Parse()
	if r.seed == 0 {
		r.seed = rand.Uint64N(1 << 32)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := r.play(ctx, *show)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "findings:", err)
		os.Exit(1)
	}
}

// run is a scenario with the seed and network that it was drawn from.
type run struct {
	plugins, algorithms, topologies, faults, page string

	seed            uint64
	seeds, parallel int
	share           float64
	began           string // commit, day and load when the run began

	compiler softswitch.Compiler
}

// trials draws all networks.
func (r *run) trials() (all []*trial, err error) {
	for i := range r.seeds {
		for _, topology := range strings.Split(r.topologies, ",") {
			if !slices.Contains(topologies, topology) {
				return nil, fmt.Errorf("no topology is called %q; there are %v", topology, topologies)
			}
			for _, a := range algorithms {
				if r.algorithms != "" && !slices.Contains(strings.Split(r.algorithms, ","), a.name) {
					continue
				}
				for _, faulty := range []bool{true, false} {
					if r.faults != "" && r.faults != fmt.Sprint(faulty) {
						continue
					}
					t, err := draw(a, topology, r.seed+uint64(i), faulty, r.share)
					if err != nil {
						return nil, err
					}
					all = append(all, t)
				}
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no plugin is called %q", r.algorithms)
	}
	return all, nil
}

// play plays all networks and prints the table.
func (r *run) play(ctx context.Context, show bool) error {
	trials, err := r.trials()
	if err != nil {
		return err
	}
	if show {
		for _, t := range trials {
			fmt.Printf("# %v\n%s\n", t, t.text)
		}
		return nil
	}
	r.began = evidence.Run()
	fmt.Printf("seeds %d to %d, %d networks\n", r.seed, r.seed+uint64(r.seeds)-1, len(trials))
	sums, err := r.count(ctx, trials)
	if err != nil {
		return err
	}
	text := r.table(sums)
	fmt.Print(text)
	if r.page != "" {
		if err := write(r.page, text); err != nil {
			return err
		}
	}
	return aims(sums)
}

// count plays networks and counts their findings by algorithm.
func (r *run) count(ctx context.Context, trials []*trial) (map[string]*tally, error) {
	var mu sync.Mutex
	sums := map[string]*tally{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.parallel)
	for _, t := range trials {
		group.Go(func() error {
			n, err := t.play(ctx, r.plugins, &r.compiler)
			if err != nil {
				return fmt.Errorf("%v: %w", t, err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, note := range n.notes {
				fmt.Println(note)
			}
			if sums[t.algorithm.name] == nil {
				sums[t.algorithm.name] = newTally()
			}
			sums[t.algorithm.name].add(n)
			return nil
		})
	}
	return sums, group.Wait()
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
