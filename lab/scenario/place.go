// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/netsketch/netsketch/lab"
	"github.com/netsketch/netsketch/lab/truth"
)

// Prefix lengths of the blocks in which a trace's addresses are assigned to hosts.
const (
	traceBits4 = 16
	traceBits6 = 32
)

// maxPlaced bounds the addresses of a trace that hosts get one by one: half of a switch's routes.
const maxPlaced = 8192

// placement maps the addresses of a trace to hosts.
type placement struct {
	owner map[netip.Prefix]int // host of each address, and of each block
	trace TraceStats
	// played counts the packets of the run; nil if the scenario ends the trace before its end.
	played *atomic.Int64
}

// of returns the host that sends a frame; frames of no flow come from host 0.
func (p *placement) of(frame []byte) int {
	k, ok := truth.ParseEncapsulated(frame)
	if !ok {
		return 0
	}
	if host, ok := p.owner[single(k.SrcAddr())]; ok {
		return host
	}
	return p.owner[block(k.SrcAddr())]
}

func block(a netip.Addr) netip.Prefix {
	bits := traceBits4
	if a.Is6() {
		bits = traceBits6
	}
	p, _ := a.Prefix(bits) // the length fits the family
	return p
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// talk counts the packets of a trace, by address and by pair of addresses.
type talk struct {
	packets map[netip.Addr]int
	peers   map[netip.Addr]map[netip.Addr]int
}

// place reads a trace once and assigns its addresses to the fabric's hosts, which get them as
// further prefixes, so that routes lead there; multicast is not routed. If each is set, because
// agents measure addresses, hosts get single addresses, and the two ends of a flow get different
// hosts where that is possible; otherwise hosts get blocks of addresses. The busiest addresses or
// blocks come first, each to the host with the least traffic so far.
func (s *Scenario) place(f *lab.Fabric, path string, each bool) (*placement, error) {
	t, err := s.openTrace(path, nil)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	refused := map[string]int{}
	all := talk{packets: map[netip.Addr]int{}, peers: map[netip.Addr]map[netip.Addr]int{}}
	for {
		p, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if k, ok := truth.ParseEncapsulated(p.Frame); ok {
			all.add(k.SrcAddr(), k.DstAddr())
		} else {
			refused[truth.Refusal(p.Frame)]++
		}
	}
	if n := t.OtherLinks(); n > 0 {
		refused["of an interface that has neither Ethernet nor IP"] = n
	}
	if len(all.packets) == 0 {
		return nil, fmt.Errorf("scenario: trace %s: there is nothing to measure in its %d packets: %s", path, t.Packets(),
			cmp.Or(reasons(refused), "the file is empty"))
	}
	out := &placement{owner: map[netip.Prefix]int{}, played: new(atomic.Int64), trace: TraceStats{File: path,
		Packets: t.Packets(), LongerRecords: t.LongerRecords(), TimeSteps: t.TimeSteps(), Pauses: t.Pauses(),
		Refused: refused}}
	load := make([]int, len(f.Hosts))
	assign := func(p netip.Prefix, packets int, own func(host int) int) {
		best, ok := out.owner[p] // assigned for an earlier trace
		for h := range load {
			if !ok && cmp.Or(cmp.Compare(own(h), own(best)), cmp.Compare(load[h], load[best])) < 0 {
				best = h
			}
		}
		load[best] += packets
		if !ok {
			out.owner[p] = best
			f.Hosts[best].Prefixes = append(f.Hosts[best].Prefixes, p)
		}
	}
	for h := range f.Hosts {
		for _, p := range append([]netip.Prefix{f.Hosts[h].V4, f.Hosts[h].V6}, f.Hosts[h].Prefixes...) {
			out.owner[p] = h
		}
	}
	blocks := map[netip.Prefix]int{}
	placed := 0
	for _, a := range busiest(all.packets, netip.Addr.Compare) {
		if h, ok := out.owner[single(a)]; ok { // the address of the host itself
			load[h] += all.packets[a]
			continue
		}
		if !each || placed == maxPlaced || a.IsMulticast() || a.IsUnspecified() {
			blocks[block(a)] += all.packets[a]
			continue
		}
		placed++
		own := make([]int, len(f.Hosts)) // packets to and from addresses of each host
		for peer, n := range all.peers[a] {
			if h, ok := out.owner[single(peer)]; ok {
				own[h] += n
			}
		}
		assign(single(a), all.packets[a], func(h int) int { return own[h] })
	}
	for _, b := range busiest(blocks, netip.Prefix.Compare) {
		assign(b, blocks[b], func(int) int { return 0 })
	}
	return out, nil
}

// reasons lists counts by reason, the largest first.
func reasons(counts map[string]int) string {
	var out []string
	for _, why := range busiest(counts, cmp.Compare[string]) {
		out = append(out, fmt.Sprintf("%d: %s", counts[why], why))
	}
	return strings.Join(out, "; ")
}

// add counts a packet.
func (t *talk) add(from, to netip.Addr) {
	t.packets[from]++
	if to.IsMulticast() {
		return
	}
	t.packets[to]++
	for _, pair := range [2][2]netip.Addr{{from, to}, {to, from}} {
		if t.peers[pair[0]] == nil {
			t.peers[pair[0]] = map[netip.Addr]int{}
		}
		t.peers[pair[0]][pair[1]]++
	}
}

// busiest returns the keys of counts, the largest count first.
func busiest[K comparable](counts map[K]int, compare func(a, b K) int) []K {
	keys := make([]K, 0, len(counts))
	for k := range counts {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b K) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), compare(a, b)) })
	return keys
}
