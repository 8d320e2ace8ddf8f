// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// TestActionsAreAtomic: under contention no two packets see one register in the same state, and
// none sees one register without the other.
func TestActionsAreAtomic(t *testing.T) {
	t.Parallel()
	const workers, each = 4, 3000
	s := New(Config{Parallel: workers})
	defer s.Close()
	if err := s.Load(load(t, "atomic")); err != nil {
		t.Fatal(err)
	}
	seen := make([]byte, workers*each)
	var mu sync.Mutex
	next := map[uint32]map[uint32]bool{} // values of a key's cell that were seen
	check := func(pkt []byte, _ time.Duration) {
		key, ticket, mine := binary.BigEndian.Uint16(pkt), binary.BigEndian.Uint32(pkt[2:]),
			binary.BigEndian.Uint32(pkt[6:])
		apart, largest := binary.BigEndian.Uint32(pkt[10:]), binary.BigEndian.Uint32(pkt[14:])
		mu.Lock()
		defer mu.Unlock()
		cell := flowHash(append(make([]byte, 26), pkt[:2]...)) % 64
		if next[cell] == nil {
			next[cell] = map[uint32]bool{}
		}
		switch {
		case ticket >= workers*each || seen[ticket] != 0:
			t.Errorf("ticket %d was given twice, or never existed", ticket)
		case next[cell][mine]:
			t.Errorf("key %d: two packets found cell %d at %d", key, cell, mine)
		case apart != 0 || largest < ticket:
			t.Errorf("ticket %d: twins differ by %d, largest ticket %d", ticket, apart, largest)
		default:
			seen[ticket], next[cell][mine] = 1, true
		}
	}
	for i := range uint32(2) {
		if err := s.AddPort(i, Port{Tx: check}); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			pkt := make([]byte, 20)
			for i := range each {
				binary.BigEndian.PutUint16(pkt, uint16(i%3+w%2))
				s.Inject(0, pkt, 0)
			}
		})
	}
	wg.Wait()
	var total uint64
	c, err := s.ReadCounter("I.bytes", 0, -1)
	for _, v := range c {
		total += v.Packets
	}
	in, err2 := s.PortStatus(0)
	out, err3 := s.PortStatus(1)
	if err != nil || err2 != nil || err3 != nil || total != workers*each || in.Counters.InPackets != total ||
		out.Counters.OutPackets != total {
		t.Errorf("counted %d, in %+v, out %+v (%v %v %v)", total, in.Counters, out.Counters, err, err2, err3)
	}
}

// BenchmarkPipelineParallel runs packets of different flows on one core, and on more if there are.
// x-one-core is the ratio of the packet rate to the rate of one core; it is valid on an idle
// machine only. x-one-core-cpu is the same ratio by processor time per packet, without the time
// spent waiting. BenchmarkScaling also works on a busy machine.
func BenchmarkPipelineParallel(b *testing.B) {
	for _, name := range []string{"forwarding", "univmon-300k", "univmon", "chamelemon"} {
		var oneWall, oneCPU float64
		for cores := 1; cores <= runtime.NumCPU(); cores *= 2 {
			b.Run(fmt.Sprintf("%s/cores=%d", name, cores), func(b *testing.B) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
				s, flows := parallelWork(b, name, cores)
				var wg sync.WaitGroup
				b.ResetTimer()
				before := cpuTime()
				for w := range cores {
					wg.Go(func() {
						mine := flows[w]
						for i := 0; i < b.N/cores; i++ {
							s.Inject(uint32(w%2), mine[i%len(mine)], time.Duration(i))
						}
					})
				}
				wg.Wait()
				wall, cpu := float64(b.Elapsed().Nanoseconds())/float64(b.N),
					float64((cpuTime()-before).Nanoseconds())/float64(b.N)
				if cores == 1 {
					oneWall, oneCPU = wall, cpu
				}
				b.ReportMetric(1e9/wall, "packets/s")
				b.ReportMetric(oneWall/wall, "x-one-core")
				if cpu > 0 {
					b.ReportMetric(cpu, "cpu-ns/packet")
					b.ReportMetric(float64(cores)*oneCPU/cpu, "x-one-core-cpu")
				}
			})
		}
	}
}

// parallelWork is a switch with n lanes, and packets for each, with flows of its own.
func parallelWork(b *testing.B, name string, cores int) (*Switch, [][][]byte) {
	b.Helper()
	s := router(b, name, Config{Parallel: cores})
	if name == "chamelemon" {
		makeEdge(b, s)
	}
	flows := make([][][]byte, cores)
	for _, p := range sharedTrace(b, 20000) {
		k := flowHash(p) % uint32(cores)
		flows[k] = append(flows[k], p)
	}
	return s, flows
}

// flowHash hashes the bytes in which packets have addresses and ports, to spread flows.
func flowHash(pkt []byte) uint32 {
	return uint32(program.Algorithms["crc32"](pkt[min(26, len(pkt)):min(38, len(pkt))]))
}
