// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestActionsAreAtomic: under contention no two packets see one register in the same state, and none sees one register without the other.
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
		key, ticket, mine := binary.BigEndian.Uint16(pkt), binary.BigEndian.Uint32(pkt[2:]), binary.BigEndian.Uint32(pkt[6:])
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
	if err != nil || err2 != nil || err3 != nil || total != workers*each || in.Counters.InPackets != total || out.Counters.OutPackets != total {
		t.Errorf("counted %d, in %+v, out %+v (%v %v %v)", total, in.Counters, out.Counters, err, err2, err3)
	}
}

// BenchmarkPipelineParallel runs packets of different flows on one core, and on more as far as there are. On a machine with other work to
// do, the processor time a packet takes tells more than the packets a second: where it is the same on n cores, n cores do n times as much.
func BenchmarkPipelineParallel(b *testing.B) {
	for _, name := range []string{"forwarding", "univmon-300k", "univmon"} {
		for cores := 1; cores <= runtime.NumCPU(); cores *= 2 {
			b.Run(fmt.Sprintf("%s/cores=%d", name, cores), func(b *testing.B) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
				s := router(b, name, Config{Parallel: cores})
				pkts := sharedTrace(b, 20000)
				flows := make([][][]byte, cores)
				for _, p := range pkts {
					k := flowHash(p) % uint32(cores)
					flows[k] = append(flows[k], p)
				}
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
				used := cpuTime() - before
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
				if used > 0 {
					b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/packet")
				}
			})
		}
	}
}

// flowHash spreads packets by their addresses and ports, wherever they are.
func flowHash(pkt []byte) uint32 {
	return uint32(hashes["crc32"](pkt[min(26, len(pkt)):min(38, len(pkt))]))
}
