// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/pcapfile"
	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// compiled compiles one of the project's programs.
func compiled(tb testing.TB, name string) *Program {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("..", "compiled", name+".json"))
	if err != nil {
		tb.Fatal(err)
	}
	p, err := Compile(b)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// sharedTrace returns the first packets of the trace next to the repository, or made-up packets if
// there is no trace.
func sharedTrace(tb testing.TB, n int) (pkts [][]byte) {
	tb.Helper()
	r, err := pcapfile.Open(filepath.Join("..", "..", "..", "shared", "traces", "mixed-165k.pcap.gz"))
	if errors.Is(err, os.ErrNotExist) {
		tb.Log("made-up packets: there is no trace next to the repository")
		for i := range n {
			frame := udp(uint32(i*i%5000), uint32(i%700), uint16(i%90), 53)
			pkts = append(pkts, append(frame, make([]byte, 60-len(frame))...)) // as short as Ethernet's are
		}
		return pkts
	}
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	for len(pkts) < n {
		pkt, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			tb.Fatal(err)
		}
		pkts = append(pkts, bytes.Clone(pkt.Frame))
	}
	return pkts
}

// udp is an IPv4 packet with a good header checksum.
func udp(src, dst uint32, sport, dport uint16) []byte {
	b := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0}
	b = binary.BigEndian.AppendUint32(b, src)
	b = binary.BigEndian.AppendUint32(b, dst)
	sum := program.Algorithms["csum16"](b[14:34])
	b[24], b[25] = byte(sum>>8), byte(sum)
	b = binary.BigEndian.AppendUint16(b, sport)
	b = binary.BigEndian.AppendUint16(b, dport)
	return append(b, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8)
}

// router is a switch with one of the programs, which sends everything it can route to port 1.
func router(tb testing.TB, name string, cfg Config) *Switch {
	tb.Helper()
	s := New(cfg)
	tb.Cleanup(s.Close)
	if err := s.Load(compiled(tb, name)); err != nil {
		tb.Fatal(err)
	}
	for i := range uint32(4) {
		if err := s.AddPort(i, Port{Tx: func([]byte, time.Duration) {}}); err != nil {
			tb.Fatal(err)
		}
	}
	forward := Action{Name: "ingress.forwarding.forward", Params: [][]byte{{1}, {2}, {3}}}
	for _, t := range []string{"ingress.forwarding.ipv4_lpm", "ingress.forwarding.ipv6_lpm"} {
		if err := s.SetDefault(t, &forward); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

// readOutRequest asks univmon-300k or univmon for 256 cells of an object.
func readOutRequest(object, bank byte, index, seq uint32) []byte {
	b := []byte{1, 0, 0, object, bank}
	b = binary.BigEndian.AppendUint32(b, index)
	b = binary.BigEndian.AppendUint32(b, seq)
	return append(b, make([]byte, 1024)...)
}

func TestForwarding(t *testing.T) {
	t.Parallel()
	s := router(t, "forwarding", Config{})
	var out []byte
	if err := s.RemovePort(1); err != nil {
		t.Fatal(err)
	}
	if err := s.AddPort(1, Port{Tx: func(p []byte, _ time.Duration) { out = append([]byte(nil), p...) }}); err != nil {
		t.Fatal(err)
	}
	in := udp(0x0a000001, 0x0a000002, 1, 2)
	s.Inject(0, in, 0)
	if len(out) != len(in) || out[22] != 63 || program.Algorithms["csum16"](out[14:34]) != 0 || out[5] != 3 ||
		out[11] != 2 {
		t.Errorf("routed packet %x", out)
	}
	out = nil
	in[24]++
	s.Inject(0, in, 0)
	if out != nil || s.Stats().ChecksumErrors != 1 {
		t.Error("a packet with a bad checksum was routed")
	}
	for n := range in {
		s.Inject(0, in[:n], 0) // runts: no panic, nothing out
	}
	if out != nil {
		t.Errorf("a runt was routed: %x", out)
	}
}

var underRace bool

// TestNoAllocations: packets, and read-outs, allocate nothing in steady state.
func TestNoAllocations(t *testing.T) {
	if underRace {
		t.Skip("under the race detector pools are emptied at random")
	}
	s := router(t, "univmon", Config{})
	s.SetPacketIn(func([]byte) {})
	pkts := sharedTrace(t, 500)
	ask := readOutRequest(1, 0, 0, 0)
	run := func() {
		for _, p := range pkts {
			s.Inject(0, p, 0)
		}
		_ = s.PacketOut(ask)
	}
	run()
	if n := testing.AllocsPerRun(20, run); n > 0 {
		t.Errorf("%.1f allocations for %d packets and a read-out", n, len(pkts))
	}
}

// TestNoAllocationsInLoops: resubmitted and recirculated packets allocate nothing, and digests only
// a block from time to time.
func TestNoAllocationsInLoops(t *testing.T) {
	if underRace {
		t.Skip("under the race detector pools are emptied at random")
	}
	s := New(Config{})
	defer s.Close()
	if err := s.Load(load(t, "loops")); err != nil {
		t.Fatal(err)
	}
	for i := range uint32(2) {
		if err := s.AddPort(i, Port{Tx: func([]byte, time.Duration) {}}); err != nil {
			t.Fatal(err)
		}
	}
	pkt := make([]byte, 100)
	for _, op := range []byte{1, 5} { // resubmit, recirculate
		pkt[0], pkt[1] = op, 7
		if n := testing.AllocsPerRun(100, func() { s.Inject(0, pkt, 0) }); n > 0 {
			t.Errorf("op %d: %.1f allocations", op, n)
		}
	}
	if st := s.Stats(); st.Resubmits < 700 || st.Recirculations < 700 {
		t.Errorf("%+v", st)
	}
	b := newBench(t, Config{})
	c, stop := b.SubscribeDigests(1)
	defer stop()
	digest := request{op: opDigest, key: 1}.bytes()
	b.check(b.RemovePort(1)) // the bench keeps what leaves
	b.check(b.AddPort(1, Port{}))
	if n := testing.AllocsPerRun(300, func() {
		b.Inject(0, digest, 0)
		<-c
	}); n > 0 {
		t.Errorf("%.1f allocations for a digest", n)
	}
}

// TestParallelIsExact: several goroutines that inject packets at once leave the same cells as one
// goroutine.
func TestParallelIsExact(t *testing.T) {
	t.Parallel()
	const workers = 4
	pkts := sharedTrace(t, 2000)
	regs := []string{"ingress.univmon_src.counters", "ingress.univmon_5t.counters"}
	alone := router(t, "univmon-300k", Config{})
	for range workers {
		for _, p := range pkts {
			alone.Inject(0, p, 0)
		}
	}
	s := router(t, "univmon-300k", Config{Parallel: workers})
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for _, p := range pkts {
				s.Inject(uint32(w), p, 0)
			}
		})
	}
	stop := make(chan struct{})
	var control sync.WaitGroup
	control.Go(func() { // a control plane that reads meanwhile
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = s.ReadRegister(regs[0], 0, 100)
			}
		}
	})
	wg.Wait()
	close(stop)
	control.Wait()
	if a, b := alone.Stats(), s.Stats(); a.Packets != b.Packets || a.IngressDrops != b.IngressDrops ||
		b.Packets != workers*2000 {
		t.Errorf("alone %+v, together %+v", a, b)
	}
	for _, r := range regs {
		x, err1 := alone.ReadRegister(r, 0, -1)
		y, err2 := s.ReadRegister(r, 0, -1)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		filled := 0
		for i := range x {
			if x[i] != y[i] {
				t.Fatalf("%s[%d] is %d alone and %d together", r, i, x[i], y[i])
			}
			if x[i] != 0 {
				filled++
			}
		}
		if filled == 0 {
			t.Errorf("%s is empty", r)
		}
	}
}

// TestReadOut: a read-out returns the cells there are and leaves zeros.
func TestReadOut(t *testing.T) {
	t.Parallel()
	s := router(t, "univmon-300k", Config{})
	for _, p := range sharedTrace(t, 2000) {
		s.Inject(0, p, 0)
	}
	const reg = "ingress.univmon_src.counters"
	want, err := s.ReadRegister(reg, 0, 1024)
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	s.SetPacketIn(func(p []byte) {
		for c := p[len(p)-1024:]; len(c) > 0; c = c[4:] {
			got = append(got, uint64(binary.BigEndian.Uint32(c)))
		}
	})
	for i := range uint32(4) {
		if err := s.PacketOut(readOutRequest(1, 0, 256*i, i)); err != nil {
			t.Fatal(err)
		}
	}
	after, err := s.ReadRegister(reg, 0, 1024)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d cells, %v", len(got), err)
	}
	filled := 0
	for i := range want {
		if got[i] != want[i] || after[i] != 0 {
			t.Fatalf("cell %d: was %d, read %d, left %d", i, want[i], got[i], after[i])
		}
		if want[i] != 0 {
			filled++
		}
	}
	if filled == 0 {
		t.Error("no cell was counted in")
	}
}

func BenchmarkPipeline(b *testing.B) {
	for _, name := range []string{"forwarding", "univmon-300k", "univmon"} {
		b.Run(name, func(b *testing.B) {
			s := router(b, name, Config{})
			pkts := sharedTrace(b, 20000)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				s.Inject(0, pkts[i%len(pkts)], time.Duration(i))
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
		})
	}
}

func BenchmarkReadOut(b *testing.B) {
	s := router(b, "univmon", Config{})
	s.SetPacketIn(func([]byte) {})
	ask := readOutRequest(1, 0, 0, 0)
	b.ReportAllocs()
	for b.Loop() {
		_ = s.PacketOut(ask)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/cell")
}

func BenchmarkCompile(b *testing.B) {
	js, err := os.ReadFile(filepath.Join("..", "compiled", "univmon.json"))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(js)))
	for b.Loop() {
		if _, err := Compile(js); err != nil {
			b.Fatal(err)
		}
	}
}
