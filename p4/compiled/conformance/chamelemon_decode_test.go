// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// fermat is one part of an encoder, or sums and differences of such parts: three arrays
// of buckets. It is a plain decoder that shares nothing with the sketch library.
type fermat struct {
	m, words int
	cells    []uint32
}

// newFermat takes a part out of a bank of an encoder's register.
func newFermat(c *p4rt.Cells, m *cmRegister, p part) *fermat {
	f := &fermat{m: int(p.buckets), words: m.words, cells: make([]uint32, 3*int(p.buckets)*m.words)}
	for array := range 3 {
		for i := range f.m * f.words {
			f.cells[array*f.m*f.words+i] = c.At((array*m.buckets+int(p.first))*m.words + i)
		}
	}
	return f
}

// add adds o to f, or subtracts it if sign is -1.
func (f *fermat) add(o *fermat, sign int) {
	for i, v := range o.cells {
		switch {
		case i%f.words == 0:
			f.cells[i] += uint32(sign) * v
		case sign > 0:
			f.cells[i] = uint32((uint64(f.cells[i]) + uint64(v)) % cmPrime)
		default:
			f.cells[i] = uint32((uint64(f.cells[i]) + cmPrime - uint64(v)) % cmPrime)
		}
	}
}

// insert adds n packets of a flow.
func (f *fermat) insert(key []byte, n int32) {
	factor := uint64(int64(n)+cmPrime) % cmPrime
	for array := range 3 {
		b := f.bucket(array, int(arrayHash(key, array)%uint32(f.m)))
		b[0] += uint32(n)
		for i, v := range fragments(key) {
			b[1+i] = uint32((uint64(b[1+i]) + factor*(uint64(v)%cmPrime)) % cmPrime)
		}
	}
}

func (f *fermat) bucket(array, i int) []uint32 { return f.cells[(array*f.m+i)*f.words:][:f.words] }

// decode extracts all flows and reports whether nothing is left. Fragments that may have been
// larger by the prime are taken as they are until nothing else helps: a word of an IPv6 address is
// zero far more often than it is 0xfffffffb, and each further try is a further chance to mistake a
// bucket of several flows for a bucket of one.
func (f *fermat) decode() (flows map[string]int32, complete bool) {
	flows = map[string]int32{}
	for _, larger := range []bool{false, true, false} {
		for found, rounds := true, 0; found && rounds < 1000; rounds++ {
			found = false
			for array := range 3 {
				for i := range f.m {
					b := f.bucket(array, i)
					if n := int32(b[0]); n != 0 {
						if key := f.pure(b, array, i, larger); key != nil {
							if flows[string(key)] += n; flows[string(key)] == 0 {
								delete(flows, string(key))
							}
							f.insert(key, -n)
							found = true
						}
					}
				}
			}
		}
	}
	for _, v := range f.cells {
		if v != 0 {
			return flows, false
		}
	}
	return flows, true
}

// pure returns the key of a bucket that passes the tests for a single flow.
func (f *fermat) pure(b []uint32, array, i int, larger bool) []byte {
	inverse := uint64(1)
	for base, e := uint64(int64(int32(b[0]))+cmPrime)%cmPrime, uint64(cmPrime-2); e > 0; e >>= 1 {
		if e&1 != 0 {
			inverse = inverse * base % cmPrime
		}
		base = base * base % cmPrime
	}
	var words []uint32
	var small uint // fragments that may have been larger by the prime
	for j, sum := range b[1:] {
		words = append(words, uint32(uint64(sum)*inverse%cmPrime))
		if words[j] < 5 && j < f.words-2 {
			small |= 1 << j
		}
	}
	for choice := uint(0); ; choice = (choice - small) & small { // all subsets of small
		var key []byte
		for j, w := range words[:len(words)-1] {
			if choice>>j&1 != 0 {
				w += cmPrime
			}
			key = binary.BigEndian.AppendUint32(key, w)
		}
		key = append(key, byte(words[len(words)-1]))
		if arrayHash(key, array)%uint32(f.m) == uint32(i) &&
			fragments(key)[len(words)-1] == words[len(words)-1] {
			return key
		}
		if !larger || choice == small {
			return nil
		}
	}
}

// cmFlow is a flow of the decode test.
type cmFlow struct {
	frame   []byte
	key     string
	edge    int // edge at which the flow enters
	packets int
	lose    int // packets of the flow that are lost between the edges
}

// cmFlows makes flows of sequential addresses and ports, which is what hash functions
// find hardest. The first victims of them lose packets.
func cmFlows(r *rand.Rand, n, victims, v6Share int) []*cmFlow {
	var out []*cmFlow
	for i := range n {
		f := &cmFlow{edge: i % 2, packets: 1 + bits.TrailingZeros(uint(1+r.IntN(1<<12)))*r.IntN(4)}
		host, port := byte(i/2%200), uint16(1024+i/400)
		if i%10 < v6Share {
			dst := address6(0, 0, host) // by its route to the other edge
			if f.edge == 1 {
				dst[3]++
			}
			f.frame = ethernet(0x86dd, nil, ipv6(address6(byte(i%2), 9, 0, 0, 0, 0, 0, 0, 0, 0, host), dst, 6, 64,
				ports(port, 80)))
		} else {
			dst := [4]byte{10, 0, 7, host}
			if f.edge == 1 {
				dst[0] = 20
			}
			f.frame = ethernet(0x0800, nil, ipv4([4]byte{10, 9, byte(i % 2), host}, dst, 6, 64, 0, nil,
				ports(port, 80)))
		}
		f.key = string(parse(f.frame).fiveTuple())
		if i < victims {
			f.lose = 1 + r.IntN(f.packets)
		}
		out = append(out, f)
	}
	return out
}

// cmDecode is one epoch of the decode test.
type cmDecode struct {
	name              string
	th, tl, sample    uint32
	light, heavy      [2]uint32 // buckets an array, by family
	flows, victims    int
	v6                int // tenths of the flows
	seed              uint64
	atLeast, atLeast6 float64 // load factor that the HL part must come to, or the test is too easy
	atLeastLight      float64 // the same for LL, IPv4
}

// TestSoftSwitchDecode loses packets between two edge switches and decodes every lost packet, by
// flow, from the registers of both switches: section 4.2 of the paper, at load factors up to 0.69.
func TestSoftSwitchDecode(t *testing.T) {
	const never = 0xffffffff
	whole := [2]uint32{3072, 768}
	for _, tc := range []cmDecode{
		{name: "healthy, load 0.30", th: never, tl: 1, heavy: whole, flows: 4000, victims: 2764, seed: 1,
			atLeast: 0.299},
		{name: "healthy, load 0.60", th: never, tl: 1, heavy: whole, flows: 8000, victims: 5529, seed: 2,
			atLeast: 0.599},
		{name: "healthy, load 0.69", th: never, tl: 1, heavy: whole, flows: 8000, victims: 6359, seed: 3,
			atLeast: 0.689},
		{name: "healthy, load 0.69, other losses", th: never, tl: 1, heavy: whole, flows: 8000, victims: 6359, seed: 4,
			atLeast: 0.689},
		{name: "healthy, small part, load 0.69", th: never, tl: 1, heavy: [2]uint32{777, 768}, flows: 3000,
			victims: 1608, seed: 5, atLeast: 0.689},
		{name: "healthy with heavy hitters", th: 12, tl: 1, heavy: [2]uint32{3000, 500}, flows: 8000, victims: 6210,
			seed: 6, atLeast: 0.689},
		{name: "healthy, IPv6", th: 14, tl: 1, heavy: [2]uint32{2000, 768}, flows: 5270, victims: 5270, v6: 3, seed: 7,
			atLeast: 0.6, atLeast6: 0.68},
		{
			name: "ill", th: 9, tl: 2, sample: 19_000, light: [2]uint32{1000, 120}, heavy: [2]uint32{1420, 200},
			flows: 12_000, victims: 9000, v6: 1, seed: 8, atLeast: 0.67, atLeast6: 0.5, atLeastLight: 0.67,
		},
	} {
		t.Run(tc.name, func(t *testing.T) { decodeLosses(t, func(t *testing.T) target { return startSoft(t) }, tc) })
	}
}

// TestBMv2Decode is the same test on BMv2, with fewer packets.
func TestBMv2Decode(t *testing.T) {
	decodeLosses(t, func(t *testing.T) target { return startBMv2(t) }, cmDecode{
		th: 9, tl: 2, sample: 19_000, light: [2]uint32{200, 60}, heavy: [2]uint32{260, 80},
		flows: 2600, victims: 1950, v6: 2, seed: 9, atLeast: 0.6, atLeast6: 0.4, atLeastLight: 0.6,
	})
}

func decodeLosses(t *testing.T, start func(*testing.T) target, tc cmDecode) {
	e := cmEpoch{th: tc.th, tl: tc.tl, sample: tc.sample, seed: 0xcc9e2d51}
	e.divide(0, tc.light[0], tc.heavy[0], 4096)
	e.divide(1, tc.light[1], tc.heavy[1], 1024)
	n := newDecodeNetwork(t, start, e)
	r := rand.New(rand.NewPCG(tc.seed, 0))
	lost := n.play(r, cmFlows(r, tc.flows, tc.victims, tc.v6))
	load := n.decode(lost)
	t.Logf("%d packets, %d lost; load factors HL %.3f, LL %.3f; IPv6 HL %.3f, LL %.3f", n.packets, n.lost,
		load[0][cmHeavy], load[0][cmLight], load[1][cmHeavy], load[1][cmLight])
	if load[0][cmHeavy] < tc.atLeast || load[1][cmHeavy] < tc.atLeast6 || load[0][cmLight] < tc.atLeastLight {
		t.Errorf("too easy: load factors of at least %v, IPv6 %v and LL %v are wanted", tc.atLeast, tc.atLeast6,
			tc.atLeastLight)
	}
}

// decodeNetwork is two edge switches, joined by a link that loses packets.
type decodeNetwork struct {
	t             *testing.T
	edges         [2]*bench
	epoch         cmEpoch
	packets, lost int
}

// Ports of an edge switch. Packets from hosts arrive at port 1, packets from the other edge switch
// at port 7. By their routes, packets for the first edge switch leave by ports 5 and 6, packets for
// the second by ports 2 and 4.
const fabricPort = 7

func newDecodeNetwork(t *testing.T, start func(*testing.T) target, e cmEpoch) *decodeNetwork {
	n := &decodeNetwork{t: t, epoch: e}
	for i, exit := range [][]uint32{{5, 6}, {2, 4}} {
		b := newBench(t, load(t, "chamelemon"), start(t))
		b.install()
		b.configure(cmConfig{epochs: [2]cmEpoch{e, e}, entry: []uint32{1}, exit: exit})
		n.edges[i] = b
	}
	return n
}

// losses are lost packets by family, hierarchy (HH counted as HL) and flow.
type losses [2][3]map[string]int32

// play sends all packets of all flows, mixed, and returns those that were lost.
func (n *decodeNetwork) play(r *rand.Rand, flows []*cmFlow) *losses {
	n.t.Helper()
	var order []*cmFlow
	left := map[*cmFlow]int{}
	for _, f := range flows {
		left[f] = f.packets
		for range f.packets {
			order = append(order, f)
		}
	}
	r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	var out losses
	for family := range out {
		for hierarchy := range out[family] {
			out[family][hierarchy] = map[string]int32{}
		}
	}
	over := func(b *bench, port uint32, f []byte) []byte {
		if err := b.sw.inject(port, f); err != nil {
			n.t.Fatal(err)
		}
		select {
		case out := <-b.sw.output():
			return out.frame
		case <-time.After(patience):
			n.t.Fatal("a packet did not leave its edge switch")
			return nil
		}
	}
	for _, f := range order {
		n.packets++
		between := over(n.edges[f.edge], 1, f.frame)
		left[f]--
		if r.IntN(left[f]+1) < f.lose {
			f.lose--
			n.lost++
			p := parse(between)
			out[p.family()][min(p.tos>>3&3, cmHeavy)][f.key]++
			continue
		}
		over(n.edges[1-f.edge], fabricPort, between)
	}
	return &out
}

// decode reads the switches and compares what it decodes with what was lost. It returns
// the load factors, by family and hierarchy.
func (n *decodeNetwork) decode(lost *losses) (load [2][3]float64) {
	n.t.Helper()
	read := func(b *bench, m *cmRegister) *p4rt.Cells { return b.readBank(m.register.Name, 0) }
	for family := range 2 {
		up, down := n.epoch.upstream[family], n.epoch.downstream[family]
		var delta [3]*fermat
		for _, b := range n.edges {
			upstream, downstream := read(b, b.edge.upstream[family]), read(b, b.edge.downstream[family])
			for hierarchy := cmLight; hierarchy <= cmHeavy; hierarchy++ {
				d := newFermat(upstream, b.edge.upstream[family], up[hierarchy])
				if hierarchy == cmHeavy {
					hitters, complete := newFermat(upstream, b.edge.upstream[family], up[cmHitter]).decode()
					if !complete {
						n.t.Fatalf("an upstream HH encoder does not decode: %d flows found", len(hitters))
					}
					for key, packets := range hitters {
						d.insert([]byte(key), packets)
					}
				}
				d.add(newFermat(downstream, b.edge.downstream[family], down[hierarchy]), -1)
				if delta[hierarchy] == nil {
					delta[hierarchy] = d
				} else {
					delta[hierarchy].add(d, +1)
				}
			}
		}
		for hierarchy := cmLight; hierarchy <= cmHeavy; hierarchy++ {
			label := fmt.Sprintf("family %d, hierarchy %d", family, hierarchy)
			want := lost[family][hierarchy]
			if m := delta[hierarchy].m; m > 0 {
				load[family][hierarchy] = float64(len(want)) / float64(3*m)
			}
			rest := &fermat{m: delta[hierarchy].m, words: delta[hierarchy].words,
				cells: slices.Clone(delta[hierarchy].cells)}
			for key, packets := range want {
				rest.insert([]byte(key), -packets)
			}
			if slices.ContainsFunc(rest.cells, func(v uint32) bool { return v != 0 }) {
				n.t.Errorf("%s: the difference of the encoders is not what was lost", label)
			}
			got, complete := delta[hierarchy].decode()
			if !complete {
				n.t.Errorf("%s: not decoded, %d flows of %d found at load factor %.3f", label, len(got), len(want),
					load[family][hierarchy])
				continue
			}
			if diff := cmp.Diff(want, got); diff != "" {
				n.t.Errorf("%s: lost packets by flow differ (-lost +decoded): %d and %d flows", label, len(want),
					len(got))
			}
		}
	}
	return load
}
