// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// divide lays the parts of the encoders out as the paper does: LL from the left, HL
// after it, HH up to the end of the upstream encoder.
func (e *cmEpoch) divide(family int, light, heavy, upstream uint32) {
	parts := [4]part{cmLight: {0, light}, cmHeavy: {light, heavy}}
	e.downstream[family] = parts
	parts[cmHitter] = part{light + heavy, upstream - light - heavy}
	e.upstream[family] = parts
}

// smallEpoch has parts that are small enough for flows to share buckets.
func smallEpoch(th, tl, sample uint32) cmEpoch {
	e := cmEpoch{th: th, tl: tl, sample: sample, seed: 0xcc9e2d51 + 2*th}
	e.divide(0, 100, 333, 4096)
	e.divide(1, 17, 61, 1024)
	return e
}

// configure writes a ChameleMon configuration to the switch and to the model.
func (b *bench) configure(c cmConfig) {
	b.t.Helper()
	exact := func(field string, v uint32) p4rt.Match { return p4rt.Exact(field, []byte{byte(v)}) }
	number := func(name string, v uint32) p4rt.Param { return p4rt.Uint(name, uint64(v)) }
	var entries []p4rt.Entry
	enter, leave := "ingress.chamelemon.from_host", "egress.chamelemon.to_host"
	if c.unmarked {
		enter, leave = "ingress.chamelemon.measure", "egress.chamelemon.keep"
	}
	for _, p := range c.entry {
		entries = append(entries, p4rt.Entry{Table: "ingress.chamelemon.entry_port", Action: enter,
			Match: []p4rt.Match{exact("port", p)}})
	}
	for _, p := range c.exit {
		entries = append(entries, p4rt.Entry{Table: "egress.chamelemon.exit_port", Action: leave,
			Match: []p4rt.Match{exact("port", p)}})
	}
	for dscp, code := range c.dscp {
		entries = append(entries,
			p4rt.Entry{
				Table: "ingress.chamelemon.dscp_in", Action: "ingress.chamelemon.carry",
				Match:  []p4rt.Match{exact("dscp", uint32(dscp))},
				Params: []p4rt.Param{number("code", uint32(code))},
			},
			p4rt.Entry{
				Table: "egress.chamelemon.dscp_out", Action: "egress.chamelemon.restore",
				Match:  []p4rt.Match{exact("code", uint32(code))},
				Params: []p4rt.Param{number("dscp", uint32(dscp))},
			})
	}
	for time := range uint32(2) {
		e := c.epochs[time]
		entries = append(entries, p4rt.Entry{
			Table: "ingress.chamelemon.thresholds", Action: "ingress.chamelemon.classify",
			Match:  []p4rt.Match{exact("time", time)},
			Params: []p4rt.Param{number("th", e.th), number("tl", e.tl), number("sample", e.sample), number("seed", e.seed)},
		})
		for family, suffix := range []string{"", "_ipv6"} {
			for side, parts := range map[string][4]part{"ingress": e.upstream[family], "egress": e.downstream[family]} {
				for hierarchy, in := range parts {
					if in.buckets == 0 {
						continue
					}
					entries = append(entries, p4rt.Entry{
						Table: side + ".chamelemon.division" + suffix, Action: side + ".chamelemon.encode" + suffix,
						Match:  []p4rt.Match{exact("time", time), exact("hierarchy", uint32(hierarchy))},
						Params: []p4rt.Param{number("first", in.first), number("buckets", in.buckets)},
					})
				}
			}
		}
	}
	if err := b.client.Reconcile(b.ctx, p4rt.Desired{Entries: entries}); err != nil {
		b.t.Fatal(err)
	}
	b.edge.config = c
}

// hop is a switch on a path: a packet that enters by port 1 leaves by the port of its route.
type hop struct {
	*bench
	bank int
}

// through sends a frame through the switch, compares the result with the model and returns
// it.
func (h *hop) through(label string, f []byte) frameOut {
	h.t.Helper()
	port, want, forwarded := expect(f)
	if !forwarded || port == cpuPort {
		h.t.Fatalf("%s: not a frame for a path", label)
	}
	if h.edge != nil {
		h.edge.pass(h.bank, parse(f), 1, port, want)
	}
	if err := h.sw.inject(1, f); err != nil {
		h.t.Fatal(err)
	}
	select {
	case got := <-h.sw.output():
		if got.port != port || !bytes.Equal(got.frame, want) {
			h.t.Fatalf("%s: left by port %d as\n% x, want by port %d\n% x", label, got.port, got.frame, port, want)
		}
		return got
	case <-time.After(patience):
		h.t.Fatalf("%s: nothing came out", label)
		return frameOut{}
	}
}

// conformPath sends packets over an edge switch, one that only forwards, and another
// edge switch. Some are lost on each of the links between them, banks are flipped at
// different moments with packets of the earlier epoch still under way, and the
// configuration of each time bit changes while the other one is in use. Both edges must
// agree with the model in every cell, and hosts must get what hosts sent.
func conformPath(t *testing.T, start func(*testing.T) target, packets int) {
	first := &hop{bench: newBench(t, load(t, "chamelemon"), start(t))}
	middle := &hop{bench: newBench(t, load(t, "forwarding"), start(t))}
	last := &hop{bench: newBench(t, load(t, "chamelemon"), start(t))}
	r := rand.New(rand.NewPCG(12, 0))
	config := func(th, tl, sample, light, heavy uint32) cmEpoch {
		e := cmEpoch{th: th, tl: tl, sample: sample, seed: heavy*0x9e3779b9 | 1}
		e.divide(0, light, heavy, 4096)
		e.divide(1, light/4, heavy/4, 1024)
		return e
	}
	next := cmConfig{epochs: [2]cmEpoch{config(12, 3, 20_000, 256, 1000), config(5, 1, 0, 0, 3072)},
		dscp: map[byte]byte{46: 5, 18: 2}}
	for _, h := range []*hop{first, middle, last} {
		h.install()
	}
	reconfigure := func() {
		ends, starts := next, next
		starts.entry, ends.exit = []uint32{1}, []uint32{2, 3, 4, 5, 6, 10, 11, 12}
		first.configure(starts)
		last.configure(ends)
	}
	reconfigure()

	type flight struct{ sent, frame []byte }
	var underWay []flight // left the first edge switch
	land := func(label string, f flight) {
		t.Helper()
		out := middle.through(label+" in the middle", f.frame).frame
		if r.IntN(10) == 0 {
			return
		}
		out = last.through(label+" at the end", out).frame
		sent, got := parse(f.sent), parse(out)
		if got.tos != sent.tos || !got.counted {
			t.Fatalf("%s: arrived with ToS %#x, was sent with %#x", label, got.tos, sent.tos)
		}
	}
	tos := []byte{0, 1, 3, 46 << 2, 46<<2 | 2, 18 << 2, 56 << 2, 8<<2 | 1}
	const epochs = 4
	for epoch := range epochs {
		for i, f := range flowFrames(uint64(20+epoch), packets/epochs, 250) {
			label := fmt.Sprintf("epoch %d, packet %d", epoch, i)
			if port, _, forwarded := expect(f); !forwarded || port == cpuPort {
				continue
			}
			f = slices.Clone(f) // all packets of a flow share one slice
			setTos(f[14:], parse(f).v6, tos[r.IntN(len(tos))])
			out := first.through(label, f).frame
			if r.IntN(10) != 0 {
				underWay = append(underWay, flight{f, out})
			}
			if len(underWay) > 40 {
				land(label, underWay[0])
				underWay = underWay[1:]
			}
			if i == 20 && epoch%2 == 1 { // the other edge's clock is late
				last.bank = first.bank
				last.flip(uint64(last.bank))
			}
		}
		// The configuration of the next epoch is written while this epoch measures. Entries for
		// this epoch's time bit stay.
		time := epoch % 2
		next.epochs[1-time] = config(uint32(4+epoch), uint32(2+epoch%2), 9000, 128, uint32(700+epoch))
		if epoch == 0 {
			next.epochs[1-time] = config(5, 1, 0, 0, 3072)
		}
		reconfigure()
		first.bank = 1 - first.bank
		first.flip(uint64(first.bank))
		if epoch%2 == 1 {
			last.bank = first.bank
			last.flip(uint64(last.bank))
		}
		for i, f := range underWay {
			land(fmt.Sprintf("epoch %d, straggler %d", epoch, i), f)
		}
		underWay = nil
		first.compare(time)
		last.compare(time)
	}
	for bank := range 2 {
		first.compare(bank)
		last.compare(bank)
	}
	first.compareCounters()
	last.compareCounters()
	middle.compareCounters()
}

// conformUnmarked lets packets with each ToS enter and leave an edge switch that writes no marks:
// it measures what enters, and every packet leaves with its ToS.
func conformUnmarked(t *testing.T, sw target) {
	h := &hop{bench: newBench(t, load(t, "chamelemon"), sw)}
	h.install()
	epoch := smallEpoch(12, 3, 20_000)
	h.configure(cmConfig{entry: []uint32{1}, exit: []uint32{2, 3, 4, 5, 6, 10, 11, 12}, epochs: [2]cmEpoch{epoch, epoch},
		dscp: map[byte]byte{46: 5}, unmarked: true})
	tos := 0
	for i, f := range flowFrames(31, 1500, 60) {
		if port, _, forwarded := expect(f); !forwarded || port == cpuPort {
			continue
		}
		f = slices.Clone(f) // all packets of a flow share one slice
		setTos(f[14:], parse(f).v6, byte(tos))
		tos++
		label := fmt.Sprintf("packet %d", i)
		if got := parse(h.through(label, f).frame).tos; got != parse(f).tos {
			t.Fatalf("%s: left with ToS %#x, entered with %#x", label, got, parse(f).tos)
		}
	}
	if tos < 256 {
		t.Errorf("%d packets", tos)
	}
	for bank := range 2 {
		h.compare(bank)
	}
	h.compareCounters()
}

func TestSoftSwitchUnmarked(t *testing.T) { conformUnmarked(t, startSoft(t)) }

func TestBMv2Unmarked(t *testing.T) { conformUnmarked(t, startBMv2(t)) }

// conformEdgeFlips lets traffic enter and leave one edge switch, through queues of eight
// ports, while the time bit is flipped and upstream registers are read at once. With
// no packet lost, the two sides come to the same sums in every bucket, and both to the packets
// that were sent: no update is lost among BMv2's threads, or counted in the other bank.
func conformEdgeFlips(t *testing.T, sw target, n int) {
	const flips = 8
	b := newBench(t, load(t, "chamelemon"), sw)
	b.install()
	e := cmEpoch{th: 0xffffffff, tl: 1}
	e.divide(0, 0, 1000, 4096)
	e.divide(1, 0, 300, 1024)
	b.configure(cmConfig{entry: []uint32{1}, exit: []uint32{2, 3, 4, 5, 6, 10, 11, 12}, epochs: [2]cmEpoch{e, e}})
	sent, n := b.traffic(n)

	var sums [2][2]*fermat // by side and family
	collect := func(side, bank int) {
		for family, m := range [2][2]*cmRegister{b.edge.upstream, b.edge.downstream}[side] {
			cells := b.readBank(m.register.Name, bank)
			read := newFermat(cells, m, e.downstream[family][cmHeavy])
			if sums[side][family] == nil {
				sums[side][family] = read
			} else {
				sums[side][family].add(read, +1)
			}
		}
	}
	for i := range flips {
		b.flip(uint64(1 - i%2))
		collect(0, i%2)
		collect(1, 1-i%2) // what other epochs' stragglers left, and some of this one
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	for bank := range 2 {
		collect(0, bank)
		collect(1, bank)
	}
	counted := 0
	for family := range 2 {
		up, down := sums[0][family], sums[1][family]
		for i := range up.m {
			counted += int(up.bucket(0, i)[0])
		}
		if diff := cmp.Diff(up.cells, down.cells); diff != "" {
			t.Errorf("family %d: sums upstream and downstream differ (-upstream +downstream):\n%s", family, diff)
		}
	}
	if counted != n {
		t.Errorf("the upstream encoders have %d packets, %d were sent", counted, n)
	}
}

func TestSoftSwitchEdgeFlips(t *testing.T) { conformEdgeFlips(t, startSoft(t), 10_000) }

func TestBMv2EdgeFlips(t *testing.T) { conformEdgeFlips(t, startBMv2(t), 10_000) }

func TestSoftSwitchPath(t *testing.T) {
	conformPath(t, func(t *testing.T) target { return startSoft(t) }, 6000)
}

func TestBMv2Path(t *testing.T) {
	conformPath(t, func(t *testing.T) target { return startBMv2(t) }, 2400)
}
