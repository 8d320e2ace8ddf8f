// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/netsketch/netsketch/p4/bmv2"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// lgBench is a switch that runs lightguardian, with the model.
type lgBench struct {
	*bench
	m       *lightguardian
	virtual *delayed // with a virtual clock, so that times are those of the model; nil: the wall clock
	seed    uint32   // seed that carry sets
	byDelay uint32   // on the wall clock all packets are in this delay range
	began   time.Time
}

func startLightGuardian(t testing.TB, program *compiled.Program, sw target) *lgBench {
	b := newBench(t, program, sw)
	l := &lgBench{bench: b, m: newLightGuardian(t, b.cat), seed: 0x2c9277b5, began: time.Now()}
	l.virtual, _ = sw.(*delayed)
	l.install()
	if l.virtual == nil {
		for i := range l.m.config.Ranges {
			l.m.config.Ranges[i] = uint32(i + 1) // packets are recorded by the number of their range
		}
	}
	return l
}

func (l *lgBench) action(table, action string, params ...p4rt.Param) {
	l.t.Helper()
	if err := l.client.SetDefaultAction(l.ctx, table, action, params...); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lgBench) interval(bank byte) {
	l.flip(uint64(bank))
	l.m.bank = bank
}

// carry sets λc in parts of 65,536, and k.
func (l *lgBench) carry(device uint16, probability uint32, chances int) {
	l.m.device, l.m.probability, l.m.chances, l.m.seed = device, probability, chances, l.seed
	l.action("ingress.lightguardian.carry", "set_carry", p4rt.Uint("device", uint64(device)),
		p4rt.Uint("probability", uint64(probability)), p4rt.Uint("chances", uint64(chances)),
		p4rt.Uint("seed", uint64(l.m.seed)))
}

func (l *lgBench) setMTU(n int) {
	l.m.mtu = n
	l.action("egress.lightguardian.mtu", "set_mtu", p4rt.Uint("bytes", uint64(n)))
}

// delays puts all packets into one delay range: on a wall clock delays are not known.
func (l *lgBench) delays(number uint32) {
	if l.virtual != nil {
		return
	}
	l.byDelay = number
	var params []p4rt.Param
	for i := range l.m.config.Ranges {
		limit := uint64(0)
		if uint32(i) >= number {
			limit = math.MaxUint32
		}
		params = append(params, p4rt.Uint(fmt.Sprintf("limit%d", i+1), limit))
	}
	l.action("egress.lightguardian.delays", "set_delays", params...)
}

// pass sends frames at once and compares all that leave with the model. Frames that are not
// forwarded are those that the test expects to be dropped.
func (l *lgBench) pass(label string, frames ...[]byte) (out [][]byte) {
	l.t.Helper()
	var at uint64
	if l.virtual != nil {
		l.virtual.at += time.Millisecond
		at = uint64(l.virtual.at.Microseconds())
	}
	var passages []passage
	for _, f := range frames {
		if l.virtual == nil {
			if err := l.sw.inject(1, f); err != nil {
				l.t.Fatal(err)
			}
		} else {
			l.virtual.sw.Inject(1, f, l.virtual.at)
		}
		var p passage
		if parse(f).counted {
			p = l.m.arrive(f, at)
		}
		passages = append(passages, p)
	}
	if l.virtual != nil {
		l.virtual.sw.Advance(l.virtual.at + time.Duration(len(frames)+1)*service)
	}
	for i, f := range frames {
		label := fmt.Sprintf("%s, frame %d", label, i)
		port, want, forwarded := expect(f)
		if !forwarded {
			l.drops[port]++
			continue
		}
		if port == cpuPort {
			if p := <-l.tap.Packets; !bytes.Equal(p.GetPayload(), want) {
				l.t.Fatalf("%s: packet-in % x, want % x", label, p.GetPayload(), want)
			}
			continue
		}
		got := l.output(label)
		delay := l.byDelay
		if l.virtual != nil {
			delay = uint32((time.Duration(i+1) * service).Microseconds())
		}
		if s := l.m.depart(l.t, f, passages[i], port, delay); s != nil {
			if l.virtual == nil {
				l.adopt(label, s, got.frame, want)
			}
			want = s.with(want)
		}
		if got.port != port || !bytes.Equal(got.frame, want) {
			l.t.Fatalf("%s: left by port %d as\n% x, want by port %d\n% x", label, got.port, got.frame, port, want)
		}
		out = append(out, got.frame)
	}
	return out
}

// adopt takes the times of a sketchlet on the wall clock over from the frame that left, if they can
// be those of the test.
func (l *lgBench) adopt(label string, s *sketchlet, got, plain []byte) {
	l.t.Helper()
	at := locate(plain).payload + 10
	if !l.m.config.Intervals || len(got) < at+4*len(s.cells) {
		return // the comparison of the frames shows the difference
	}
	limit := uint32(time.Since(l.began).Microseconds())
	for row := range l.m.config.Rows {
		n := (row+1)*l.m.cells() - 2
		gap, last := binary.BigEndian.Uint32(got[at+4*n:]), binary.BigEndian.Uint32(got[at+4*n+4:])
		if last > limit || gap >= max(last, 1) || (last == 0) != (s.cells[n+1] == 0) {
			l.t.Errorf("%s: row %d has a gap of %d and the last arrival at %d of %d µs; the model has %d", label, row, gap,
				last, limit, s.cells[n+1])
		}
		s.cells[n], s.cells[n+1] = gap, last
	}
}

// lgFrames are all kinds of frames that carry sketchlets and some that do not, of flows of
// different sizes.
func lgFrames(seed uint64, n int) (out [][]byte) {
	var pool [][]byte
	for src := range uint16(12) {
		pool = append(pool, plainFrames([4]byte{10, 0, 0, byte(src)}, toSwitch6, 3000+src)...)
	}
	r := rand.New(rand.NewPCG(seed, 11))
	for range n {
		f := r.Float64()
		out = append(out, pool[int(f*f*float64(len(pool)))])
	}
	return out
}

// inCarriers returns the frames in the carriers of OmniMon's header in turn.
func inCarriers(frames [][]byte) (out [][]byte) {
	for i, f := range frames {
		if f = ofHosts.carry(carriers[i%len(carriers)], f, someHeader); f != nil {
			out = append(out, f)
		}
	}
	return out
}

// conformLightGuardian compares a switch with the model.
func conformLightGuardian(t *testing.T, program *compiled.Program, sw target) *lgBench {
	l := startLightGuardian(t, program, sw)
	each := func(label string, frames [][]byte) {
		t.Helper()
		for i, f := range frames {
			l.pass(fmt.Sprintf("%s %d", label, i), f)
		}
	}
	l.carry(0x1234, 1<<16, 2)
	each("before the first interval", lgFrames(30, 20))
	l.interval(5)
	l.delays(0)
	each("the interval in which the switch started", slices.Concat(oddFrames(), lgFrames(1, 50)))
	l.interval(6)
	for number := range uint32(len(l.m.config.Ranges) + 1) {
		l.delays(number)
		each(fmt.Sprintf("the first whole interval, range %d", number), lgFrames(uint64(2+number), 100))
	}
	each("the first whole interval", flowFrames(12, 200, 60))
	l.interval(7)
	each("every packet carries", lgFrames(20, 500))
	each("every packet carries, in carriers of OmniMon", inCarriers(lgFrames(24, 300)))
	l.carry(0xffff, 20_000, l.m.chancesMost)
	each("some carry", slices.Concat(oddFrames(), lgFrames(21, 200)))
	l.interval(8)
	l.carry(7, 1<<16, 0)
	l.edges()
	l.strips()
	l.interval(11) // no packet in two intervals
	each("after empty intervals", lgFrames(22, 50))
	l.interval(12)
	each("in the next one", lgFrames(23, 100))
	l.interval(13)
	each("before the seed changes", lgFrames(25, 50))
	l.seed = 0x7feb352d
	l.carry(7, 1<<16, 1)
	before := l.m.events[lgInserted]
	each("after the seed has changed", lgFrames(26, 100))
	l.interval(14)
	each("the first interval with the new seed", lgFrames(27, 200))
	if n := l.m.events[lgInserted] - before; n != 0 {
		t.Errorf("%d sketchlets of intervals that are not of the new seed alone", n)
	}
	l.interval(15)
	each("sketchlets of the new seed", lgFrames(28, 100))
	if l.m.events[lgInserted] == before {
		t.Error("no sketchlets of the interval with the new seed")
	}
	l.compareCounters()
	if got := l.readCounter("lightguardian_events"); !slices.Equal(got, l.m.events[:]) {
		t.Errorf("lightguardian_events is %v, the model has %v", got, l.m.events)
	}
	if e := l.m.events; e[lgInserted] < 400 || e[lgMTU] == 0 || e[lgStripped] == 0 || e[lgUnknown] == 0 {
		t.Errorf("events %v: the test does not cover them", l.m.events)
	}
	return l
}

// edges sends packets that just fit, that carry a mark already, and that cannot be restored.
func (l *lgBench) edges() {
	l.t.Helper()
	for n, f := range plainFrames([4]byte{10, 0, 0, 2}, toSwitch6, 4000) {
		size := len(f) - locate(f).ip
		for _, more := range []int{l.m.size - 1, l.m.size} {
			l.setMTU(size + more)
			l.pass(fmt.Sprintf("frame %d of %d bytes, MTU %d", n, size, l.m.mtu), f)
		}
		l.setMTU(1500)
		s := locate(f)
		if s.v6 && s.udp {
			continue
		}
		l.pass(fmt.Sprintf("frame %d with a sketchlet", n), sketchlet{device: 9, cells: []uint32{1, 2, 3}}.with(f))
		l.pass(fmt.Sprintf("frame %d with a mark", n), marked(f, nil))
		if corrupt := slices.Clone(f); len(f) > s.payload {
			corrupt[len(f)-1] ^= 0x55
			l.pass(fmt.Sprintf("frame %d, corrupted", n), corrupt)
		}
		ones := slices.Clone(f)
		ones[s.sum], ones[s.sum+1] = 0xff, 0xff
		if !s.udp {
			l.pass(fmt.Sprintf("frame %d with a checksum of ones", n), ones)
		}
	}
}

// strips removes sketchlets at a port of hosts, and does not change packets whose mark announces
// none.
func (l *lgBench) strips() {
	l.t.Helper()
	entry := p4rt.Entry{Table: "egress.lightguardian.strip", Action: "egress.lightguardian.remove",
		Match: []p4rt.Match{p4rt.Exact("port", []byte{toHost})}}
	if err := l.client.Reconcile(l.ctx, p4rt.Desired{Entries: []p4rt.Entry{entry}}); err != nil {
		l.t.Fatal(err)
	}
	l.m.strip[toHost] = true
	r := rand.New(rand.NewPCG(3, 4))
	for n, f := range plainFrames([4]byte{192, 0, 2, 1}, toSwitch6, 4100) {
		if locate(f).v6 {
			continue // port 4 leads to another switch
		}
		l.pass(fmt.Sprintf("frame %d to a host", n), f)
		for _, words := range []int{1, 2, 21, 255} {
			s := sketchlet{device: uint16(r.Uint32()), column: uint16(r.Uint32()), interval: byte(n)}
			for range words {
				s.cells = append(s.cells, r.Uint32())
			}
			label := fmt.Sprintf("frame %d with %d words to a host", n, words)
			l.stripped(label, s.with(f), f, lgStripped)
			forged := s.bytes()
			forged[r.IntN(4)] ^= byte(1 + r.IntN(255))
			l.stripped(label+", forged", marked(f, forged), marked(f, forged), lgUnknown)
			cut := marked(f, s.bytes()[:r.IntN(10)])
			if len(cut)-locate(cut).payload < 10+4*int(cut[min(locate(cut).payload+9, len(cut)-1)]) {
				l.stripped(label+", cut short", cut, cut, lgUnknown)
			}
		}
	}
}

// stripped sends a frame to a host and expects it to leave as plain does.
func (l *lgBench) stripped(label string, f, plain []byte, event int) {
	l.t.Helper()
	l.m.events[event]++
	at := uint64(0)
	if l.virtual != nil {
		at = uint64((l.virtual.at + time.Millisecond).Microseconds())
	}
	p := l.m.arrive(f, at)
	if err := l.sw.inject(1, f); err != nil {
		l.t.Fatal(err)
	}
	port, want, _ := expect(plain)
	got := l.output(label)
	delay := l.byDelay
	if l.virtual != nil {
		delay = uint32(service.Microseconds())
	}
	l.m.depart(l.t, f, p, port, delay)
	if got.port != port || !bytes.Equal(got.frame, want) {
		l.t.Fatalf("%s: left by port %d as\n% x, want by port %d\n% x", label, got.port, got.frame, port, want)
	}
}

func TestSoftSwitchLightGuardian(t *testing.T) {
	conformLightGuardian(t, load(t, "lightguardian"), startDelayed(t)).cells()
}

// cells compares all buckets of the register with sketch/sumax.
func (l *lgBench) cells() {
	l.t.Helper()
	got, err := l.virtual.sw.ReadRegister("lightguardian_sketch", 0, -1)
	if err != nil {
		l.t.Fatal(err)
	}
	n, filled := l.m.cells(), 0
	for _, interval := range []uint32{l.m.current - 1, l.m.current} {
		sketch := l.m.sketch(l.t, interval)
		for column := range l.m.config.Width {
			want, err := sketch.Column(nil, column)
			if err != nil {
				l.t.Fatal(err)
			}
			for row := range l.m.config.Rows {
				at := ((int(interval&1)*l.m.config.Rows+row)*l.m.config.Width + column) * (n + 1)
				bucket := make([]uint32, n)
				if got[at] == uint64(interval) {
					filled++
					for i := range bucket {
						bucket[i] = uint32(got[at+1+i])
					}
				}
				if !slices.Equal(bucket, want[row*n:][:n]) {
					l.t.Fatalf("interval %d, row %d, column %d: %v, sketch/sumax has %v", interval, row, column, bucket,
						want[row*n:][:n])
				}
			}
		}
	}
	if filled < 2*l.m.config.Rows {
		l.t.Errorf("%d buckets are filled", filled)
	}
}

// TestLightGuardianDelays: packets that wait in a queue are in the delay ranges of their waits.
func TestLightGuardianDelays(t *testing.T) {
	l := startLightGuardian(t, load(t, "lightguardian"), startDelayed(t))
	l.carry(3, 1<<16, 4)
	frames := slices.DeleteFunc(plainFrames([4]byte{10, 0, 0, 2}, toSwitch6, 4200), func(f []byte) bool {
		return locate(f).v6 // one queue, so that packets leave in their order
	})
	for bank := byte(1); bank < 5; bank++ {
		l.interval(bank)
		for i := range 20 {
			l.pass(fmt.Sprintf("interval %d, burst %d", bank, i), frames[:1+(7*i)%len(frames)]...)
		}
	}
	l.cells()
	total := make([]uint32, len(l.m.config.Ranges)+1)
	for column := range l.m.config.Width {
		cells, err := l.m.sketch(t, l.m.current).Column(nil, column)
		if err != nil {
			t.Fatal(err)
		}
		for i := range total {
			total[i] += cells[1+i]
		}
	}
	if slices.Min(total[:3]) == 0 {
		t.Errorf("packets by range: %v", total)
	}
}

// TestLightGuardianWaiting: a packet that waits in the queue while its interval ends counts in that
// interval and carries no sketchlet. A packet that waits for one more whole interval is not
// counted.
func TestLightGuardianWaiting(t *testing.T) {
	l := startLightGuardian(t, load(t, "lightguardian"), startDelayed(t))
	l.carry(3, 1<<16, 1)
	f := plainFrames([4]byte{10, 0, 0, 2}, toSwitch6, 4300)[0]
	for bank := byte(1); bank < 5; bank++ {
		l.interval(bank)
		l.pass(fmt.Sprintf("interval %d", bank), f, f)
	}
	_, plain, _ := expect(f)
	for _, more := range []int{1, 2} {
		at := l.virtual.at + time.Millisecond
		l.virtual.at = at
		var passages []passage
		for i := range more + 1 {
			if i > 0 {
				l.interval(l.m.bank + 1)
			}
			for range 3 {
				l.virtual.sw.Inject(1, f, at)
				passages = append(passages, l.m.arrive(f, uint64(at.Microseconds())))
			}
		}
		l.virtual.sw.Advance(at + time.Millisecond)
		for i, p := range passages {
			got, want := l.output(fmt.Sprintf("packet %d", i)), plain
			switch behind := l.m.current - p.interval; {
			case behind > 1:
				l.m.events[lgOld]++
				l.m.events[lgFlipped]++
			default:
				p.carry = behind == 0
				l.m.events[lgFlipped] += int64(behind)
				if s := l.m.depart(t, f, p, 2, uint32((time.Duration(i+1) * service).Microseconds())); s != nil {
					want = s.with(plain)
				}
			}
			if !bytes.Equal(got.frame, want) {
				t.Fatalf("%d intervals, packet %d left as\n% x, want\n% x", more, i, got.frame, want)
			}
		}
	}
	l.cells()
	if got := l.readCounter("lightguardian_events"); !slices.Equal(got, l.m.events[:]) || got[lgOld] != 3 {
		t.Errorf("lightguardian_events is %v, the model has %v", got, l.m.events)
	}
}

// output returns the next frame that leaves.
func (l *lgBench) output(label string) frameOut {
	l.t.Helper()
	select {
	case got := <-l.sw.output():
		return got
	case <-time.After(patience):
		l.t.Fatalf("%s: no frame left", label)
		return frameOut{}
	}
}

func TestBMv2LightGuardian(t *testing.T) {
	conformLightGuardian(t, load(t, "lightguardian"), startBMv2(t))
}

// TestSelection: k+chance selection with λc of 1/64 needs as many packets until 90 and 99 % of the
// columns have left as independent random numbers do (paper, Figure 5h). The hashes are those of
// the model, which the switches are compared with.
func TestSelection(t *testing.T) {
	for k, want := range [][2]float64{{2.30, 4.61}, {1.54, 2.78}, {1.44, 2.41}, {1.43, 2.34}, {1.43, 2.33}} {
		m := newLightGuardian(t, newCatalog(t, "lightguardian"))
		m.chances = k
		left, seen, packets, at90 := m.config.Width, map[uint16]bool{}, 0, 0
		for n := uint32(1); left > m.config.Width/100; n++ {
			p := passage{interval: 300, random: mix(n, 0x2c9277b5)}
			if p.random&0xffff >= 1024 {
				continue
			}
			packets++
			if column := m.choose(p); !seen[column] {
				seen[column] = true
				left--
			}
			if at90 == 0 && left <= m.config.Width/10 {
				at90 = packets
			}
		}
		width := float64(m.config.Width)
		got := [2]float64{float64(at90) / width, float64(packets) / width}
		t.Logf("k = %d: %.2f and %.2f, of random numbers %.2f and %.2f", k, got[0], got[1], want[0], want[1])
		if math.Abs(got[0]/want[0]-1) > 0.06 || math.Abs(got[1]/want[1]-1) > 0.06 {
			t.Errorf("k = %d: %.2f and %.2f, of random numbers %.2f and %.2f", k, got[0], got[1], want[0], want[1])
		}
	}
}

func newCatalog(t *testing.T, program string) *p4values.Catalog {
	t.Helper()
	cat, err := p4values.NewCatalog(load(t, program).P4Info)
	if err != nil {
		t.Fatal(err)
	}
	return cat
}

// BenchmarkLightGuardian passes a packet with 100 bytes of payload through the soft switch:
// measured, and with a sketchlet.
func BenchmarkLightGuardian(b *testing.B) {
	for name, probability := range map[string]uint32{"measured": 0, "one-in-64": 1024, "all-carry": 1 << 16} {
		b.Run(name, func(b *testing.B) {
			sw := startSoft(b)
			l := startLightGuardian(b, load(b, "lightguardian"), sw)
			l.carry(1, probability, 2)
			f := plainFrames([4]byte{10, 0, 0, 2}, toSwitch6, 1)[30]
			for bank := range byte(3) {
				l.interval(bank)
				sw.sw.Inject(1, f, 0)
				<-sw.out
			}
			for b.Loop() {
				sw.sw.Inject(1, f, 0)
				<-sw.out
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
		})
	}
}

// TestLightGuardianSizes: the sizes of the sketch are parameters of the compiler. Needs p4c-bm2-ss
// on the PATH.
func TestLightGuardianSizes(t *testing.T) {
	const prefix = "NS_LIGHTGUARDIAN_"
	for name, s := range map[string]sizes{
		"smallest": {"ROWS": 1, "COLUMNS": 64, "DELAYS": 2, "SIZES": 0, "GAPS": 0, "CHANCES": 1},
		"largest":  {"ROWS": 4, "COLUMNS": 65536, "DELAYS": 8},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := compile(t, "lightguardian", prefix, s)
			if err != nil {
				t.Fatal(err)
			}
			t.Run("SoftSwitch", func(t *testing.T) { conformLightGuardian(t, p, startDelayed(t)).cells() })
			if _, err := exec.LookPath(bmv2.Program); err == nil {
				t.Run("BMv2", func(t *testing.T) { conformLightGuardian(t, p, startBMv2(t)) })
			}
		})
	}
	for _, s := range []sizes{{"ROWS": 5}, {"COLUMNS": 1000}, {"COLUMNS": 131072}, {"DELAYS": 1}, {"DELAYS": 9},
		{"SIZES": 2}, {"GAPS": 2}, {"CHANCES": 5}} {
		if _, err := compile(t, "lightguardian", prefix, s); err == nil {
			t.Errorf("%v compiles", s)
		}
	}
}
