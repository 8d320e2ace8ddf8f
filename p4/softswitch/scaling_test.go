// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// slicePackets is the number of packets in one measured slice of time. A slice is much shorter than
// a scheduler's time slice, so that most slices are not interrupted, even on a busy machine.
const slicePackets = 64

const (
	period = 6 * time.Millisecond
	burst  = 2 * time.Millisecond // work at the begin of each period
)

// slice is a stretch of one core's work.
type slice struct{ from, to time.Duration }

// BenchmarkScaling measures how much more n cores do than one, on a machine with other work too: it
// cuts the work into slices of some microseconds, and counts only slices that nothing interrupted,
// and for several cores only slices during which all of them worked. The cores work in bursts that
// begin together, and sleep between bursts, because schedulers prefer threads that sleep.
func BenchmarkScaling(b *testing.B) {
	for _, name := range []string{"forwarding", "univmon-300k", "univmon", "chamelemon"} {
		one := 0.0
		for cores := 1; cores <= runtime.NumCPU(); cores *= 2 {
			b.Run(fmt.Sprintf("%s/cores=%d", name, cores), func(b *testing.B) {
				ns, part := together(workOn(b, name, cores))
				if cores == 1 {
					one = ns
				}
				b.ReportMetric(100*part, "%counted")
				if ns > 0 {
					b.ReportMetric(ns, "ns/packet/core")
					b.ReportMetric(float64(cores)*one/ns, "x-one-core")
				}
			})
		}
	}
}

// workOn runs b.N packets on n cores, each with flows of its own, and returns the slices of
// each.
func workOn(b *testing.B, name string, cores int) [][]slice {
	b.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
	s, flows := parallelWork(b, name, cores)
	all := make([][]slice, cores)
	for w := range all {
		all[w] = make([]slice, 0, b.N/cores/slicePackets)
	}
	start := time.Now()
	var ready, done sync.WaitGroup
	ready.Add(cores)
	b.ResetTimer()
	for w := range cores {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			ready.Wait()
			mine, at := flows[w], 0
			last := time.Since(start)
			for range cap(all[w]) {
				if last%period > burst {
					time.Sleep(period - last%period)
					last = time.Since(start)
				}
				for range slicePackets {
					s.Inject(uint32(w%2), mine[at], time.Duration(at))
					if at++; at == len(mine) {
						at = 0
					}
				}
				now := time.Since(start)
				all[w] = append(all[w], slice{last, now})
				last = now
			}
		})
	}
	done.Wait()
	return all
}

// settled is how long all cores must have worked before a slice counts, so that the caches are in
// the state of parallel work.
const settled = 300 * time.Microsecond

// makeEdge makes a chamelemon switch one where every packet enters and leaves the network: all are
// classified and counted in both encoders.
func makeEdge(tb testing.TB, s *Switch) {
	tb.Helper()
	exact := func(keys ...byte) (m []Match) {
		for _, k := range keys {
			m = append(m, Match{Kind: MatchExact, Value: []byte{k}})
		}
		return m
	}
	insert := func(table string, a Action, keys ...byte) {
		tb.Helper()
		if err := s.InsertEntry(table, Entry{Match: exact(keys...), Action: a}); err != nil {
			tb.Fatal(err)
		}
	}
	for i := range byte(2) {
		insert("ingress.chamelemon.entry_port", Action{Name: "ingress.chamelemon.from_host"}, i)
		insert("egress.chamelemon.exit_port", Action{Name: "egress.chamelemon.to_host"}, i)
	}
	for _, way := range []string{"ingress", "egress"} {
		for _, version := range []string{"", "_ipv6"} {
			// into 256 buckets of each array
			encode := Action{Name: way + ".chamelemon.encode" + version, Params: [][]byte{{0}, {1, 0}}}
			insert(way+".chamelemon.division"+version, encode, 0, 2)
		}
	}
}

// together returns the mean time of a packet on a core while all cores worked, and the share of
// these slices among all.
func together(all [][]slice) (ns float64, part float64) {
	var times []time.Duration
	for _, s := range all {
		for _, x := range s {
			times = append(times, x.to-x.from)
		}
	}
	if len(times) == 0 {
		return 0, 0
	}
	slices.Sort(times)
	whole := 2 * times[len(times)/2]  // longer slices were interrupted
	runs := make([][]slice, len(all)) // runs of each core in which it was not interrupted
	for w, s := range all {
		for i, x := range s {
			switch {
			case x.to-x.from > whole:
				runs[w] = append(runs[w], slice{x.to, x.to})
			case i == 0 || x.from != s[i-1].to:
				runs[w] = append(runs[w], x)
			default:
				runs[w][len(runs[w])-1].to = x.to
			}
		}
	}
	var sum time.Duration
	n := 0
	for _, s := range all {
		at := make([]int, len(all))
	next:
		for _, x := range s {
			for o, r := range runs {
				for at[o] < len(r) && r[at[o]].to < x.to {
					at[o]++
				}
				if at[o] == len(r) || r[at[o]].from > x.from-settled {
					continue next
				}
			}
			sum += x.to - x.from
			n++
		}
	}
	if n == 0 {
		return 0, 0
	}
	return float64(sum.Nanoseconds()) / float64(n) / slicePackets, float64(n) / float64(len(times))
}
