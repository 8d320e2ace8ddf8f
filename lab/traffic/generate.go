// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// Host sends or receives generated traffic. It owns every address of
// its prefixes.
type Host struct {
	V4, V6 netip.Prefix
	Site   int // switch that the host is attached to
}

// SizePoint is one point of a cumulative distribution of flow sizes: the share of
// flows with at most Packets packets.
type SizePoint struct {
	Packets float64 `yaml:"packets"`
	Share   float64 `yaml:"share"` // 0 to 1, not falling; the last point's is 1
}

// Generated describes packets of a fixed population of flows: every packet belongs
// to a flow drawn with a probability in proportion to the flow's size.
type Generated struct {
	Name    string
	Seed    uint64
	Rate    float64       // packets a second, mean; gaps are exponential
	From    time.Duration // time of the first packet, at the earliest
	Until   time.Duration // last packet before; 0: no end
	Flows   int           // size of the population, above 0
	Zipf    float64       // sizes fall with rank as rank^-Zipf; 0 with CDF nil: all equal
	CDF     []SizePoint   // distribution of sizes, instead of Zipf
	V6Share float64       // share of flows that are IPv6, 0 to 1
	UDP     float64       // share of flows that are UDP, the rest TCP
	Bytes   int           // length of each frame; at least 78, the longest header stack; 0: 128
	Senders []int         // sending hosts; nil: all
	// Receivers are the receiving hosts; nil: all. A flow whose receiver equals its sender uses the
	// next host.
	Receivers []int
	// Target, when valid, is the one destination of all flows, and each flow has its own source
	// address, as in a distributed attack.
	Target netip.Addr
	// Source, when valid, is the one source of all flows, as in a scan.
	Source netip.Addr
}

// minFrame is the longest header stack that is generated: Ethernet, IPv6, TCP.
const minFrame = ethernetLen + ipv6Len + tcpLen

// Limits of generated traffic: time has a resolution of nanoseconds, and every flow is in memory.
const (
	MaxRate  = 1_000_000_000 // packets a second
	MaxFlows = 1 << 24
)

func (g *Generated) check(hosts int) error {
	bad := func(field, format string, args ...any) error {
		return fmt.Errorf("traffic: %s: %s: %s", g.Name, field, fmt.Sprintf(format, args...))
	}
	index := func(field string, list []int) error {
		for _, h := range list {
			if h < 0 || h >= hosts {
				return bad(field, "host %d does not exist: there are %d", h, hosts)
			}
		}
		return nil
	}
	switch {
	case hosts < 2:
		return bad("hosts", "there are %d; traffic needs at least 2", hosts)
	case !(g.Rate > 0 && g.Rate <= MaxRate):
		return bad("rate", "%v packets a second; it must be above 0, at most %v", g.Rate, float64(MaxRate))
	case g.Flows < 1 || g.Flows > MaxFlows:
		return bad("flows", "%d; it must be 1 to %d", g.Flows, MaxFlows)
	case g.Zipf < 0 || g.Zipf > 10:
		return bad("zipf", "%v; it must be 0 to 10", g.Zipf)
	case g.V6Share < 0 || g.V6Share > 1:
		return bad("ipv6", "%v; a share is 0 to 1", g.V6Share)
	case g.UDP < 0 || g.UDP > 1:
		return bad("udp", "%v; a share is 0 to 1", g.UDP)
	case g.Bytes < minFrame || g.Bytes > 9000:
		return bad("bytes", "%d; it must be %d to 9000", g.Bytes, minFrame)
	case g.Until != 0 && g.Until <= g.From:
		return bad("until", "%v is not after from %v", g.Until, g.From)
	}
	last := SizePoint{}
	for i, p := range g.CDF {
		if p.Packets < last.Packets || p.Share < last.Share || p.Packets <= 0 || p.Share > 1 {
			return bad("cdf", "point %d (%v packets, share %v) does not continue the one before it", i, p.Packets,
				p.Share)
		}
		last = p
	}
	if len(g.CDF) > 0 && last.Share != 1 {
		return bad("cdf", "the last point's share is %v, not 1", last.Share)
	}
	return errors.Join(index("senders", g.Senders), index("receivers", g.Receivers))
}

// Generate returns the packets that g describes between the hosts. The error names the invalid
// field.
func Generate(g Generated, hosts []Host) (Source, error) {
	if g.Bytes == 0 {
		g.Bytes = 128
	}
	if err := g.check(len(hosts)); err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(g.Seed, 0x6e6574736b657463))
	s := &generator{g: g, rng: rng, at: g.From}
	weights := make([]float64, g.Flows)
	for i := range weights {
		switch {
		case g.CDF != nil:
			weights[i] = drawSize(g.CDF, rng.Float64())
		default:
			weights[i] = math.Pow(float64(i+1), -g.Zipf)
		}
	}
	s.table = newAlias(weights)
	s.flows = make([]genFlow, g.Flows)
	for i := range s.flows {
		f, _, err := g.flow(rng, hosts)
		if err != nil {
			return nil, err
		}
		s.flows[i] = f
	}
	return s, nil
}

type genFlow struct {
	host  int
	frame []byte
}

// flow draws the addresses and ports of a flow and builds its frame. It returns the receiving host,
// too.
func (g *Generated) flow(rng *rand.Rand, hosts []Host) (f genFlow, to int, err error) {
	pick := func(list []int) int {
		if list == nil {
			return rng.IntN(len(hosts))
		}
		return list[rng.IntN(len(list))]
	}
	from := pick(g.Senders)
	to = pick(g.Receivers)
	if from == to {
		to = (to + 1) % len(hosts)
	}
	v6 := rng.Float64() < g.V6Share
	if g.Target.IsValid() {
		v6 = g.Target.Is6()
	}
	if g.Source.IsValid() {
		v6 = g.Source.Is6()
	}
	prefix := func(h Host) netip.Prefix {
		if v6 {
			return h.V6
		}
		return h.V4
	}
	src, err := addrIn(prefix(hosts[from]), rng.Uint64())
	if err != nil {
		return f, to, fmt.Errorf("traffic: %s: host %d: %w", g.Name, from, err)
	}
	if g.Source.IsValid() {
		src = g.Source
	}
	dst := g.Target
	if !dst.IsValid() {
		if dst, err = addrIn(prefix(hosts[to]), rng.Uint64()); err != nil {
			return f, to, fmt.Errorf("traffic: %s: host %d: %w", g.Name, to, err)
		}
	}
	proto := protoTCP
	if rng.Float64() < g.UDP {
		proto = protoUDP
	}
	frame := BuildFrame(FrameSpec{
		Src: src, Dst: dst, Proto: proto,
		SrcPort: uint16(1024 + rng.IntN(64512)), DstPort: wellKnown[rng.IntN(len(wellKnown))],
		Length: g.Bytes,
	})
	return genFlow{from, frame}, to, nil
}

var wellKnown = []uint16{22, 53, 80, 123, 443, 445, 3306, 5432, 6379, 8080, 9092, 11211}

// addrIn returns the address of prefix whose host bits come from x, never the
// all-zeros one.
func addrIn(p netip.Prefix, x uint64) (netip.Addr, error) {
	if !p.IsValid() {
		return netip.Addr{}, errors.New("no prefix of the flow's address family")
	}
	b := p.Masked().Addr().AsSlice()
	free := min(len(b)*8-p.Bits(), 63)
	if free > 0 {
		x %= uint64(1) << free
		if x == 0 {
			x = 1
		}
	} else {
		x = 0
	}
	for i := len(b) - 1; i >= 0 && x > 0; i-- {
		b[i] |= byte(x)
		x >>= 8
	}
	a, _ := netip.AddrFromSlice(b)
	return a, nil
}

// drawSize inverts the distribution at u, linearly between its points.
func drawSize(cdf []SizePoint, u float64) float64 {
	i, _ := slices.BinarySearchFunc(cdf, u, func(p SizePoint, u float64) int {
		if p.Share < u {
			return -1
		}
		return 1
	})
	i = min(i, len(cdf)-1)
	prev := SizePoint{Packets: 1}
	if i > 0 {
		prev = cdf[i-1]
	}
	if cdf[i].Share == prev.Share {
		return math.Max(1, cdf[i].Packets)
	}
	return math.Max(1, prev.Packets+(cdf[i].Packets-prev.Packets)*(u-prev.Share)/(cdf[i].Share-prev.Share))
}

type generator struct {
	g     Generated
	rng   *rand.Rand
	at    time.Duration
	flows []genFlow
	table alias
}

func (s *generator) Next() (Packet, error) {
	s.at += time.Duration(s.rng.ExpFloat64() / s.g.Rate * float64(time.Second))
	if s.g.Until != 0 && s.at >= s.g.Until {
		return Packet{}, io.EOF
	}
	f := &s.flows[s.table.draw(s.rng)]
	return Packet{At: s.at, Host: f.host, Frame: f.frame}, nil
}

// alias draws from a discrete distribution in constant time (Walker's method with
// Vose's construction).
type alias struct {
	keep  []float64
	other []int32
}

func newAlias(weights []float64) alias {
	n := len(weights)
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	a := alias{make([]float64, n), make([]int32, n)}
	scaled := make([]float64, n)
	var small, large []int32
	for i, w := range weights {
		scaled[i] = w / sum * float64(n)
		if scaled[i] < 1 {
			small = append(small, int32(i))
		} else {
			large = append(large, int32(i))
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		a.keep[s], a.other[s] = scaled[s], l
		scaled[l] -= 1 - scaled[s]
		if scaled[l] < 1 {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	for _, i := range append(small, large...) {
		a.keep[i], a.other[i] = 1, i
	}
	return a
}

func (a *alias) draw(rng *rand.Rand) int32 {
	i := int32(rng.IntN(len(a.keep)))
	if rng.Float64() < a.keep[i] {
		return i
	}
	return a.other[i]
}
