// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/netsketch/netsketch/lab"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/lab/truth"
)

// Prefix lengths of the blocks in which a trace's addresses are assigned to hosts.
const (
	traceBits4 = 16
	traceBits6 = 32
)

// placement maps the addresses of a trace to hosts.
type placement struct {
	owner map[netip.Prefix]int
	trace TraceStats
}

// of returns the host that sends a frame; frames of no flow come from host 0.
func (p *placement) of(frame []byte) int {
	k, ok := truth.ParseEncapsulated(frame)
	if !ok {
		return 0
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

// place reads a trace once and assigns its address blocks to the fabric's hosts, the
// busiest first, each to the host with the least traffic so far. The hosts get the
// blocks as further prefixes, so that routes lead there; multicast is not routed.
func place(f *lab.Fabric, path string) (*placement, error) {
	t, err := traffic.OpenTrace(path, nil)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	packets := map[netip.Prefix]int{}
	for {
		p, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if k, ok := truth.ParseEncapsulated(p.Frame); ok {
			packets[block(k.SrcAddr())]++
			if !k.DstAddr().IsMulticast() {
				packets[block(k.DstAddr())]++
			}
		}
	}
	if len(packets) == 0 {
		return nil, fmt.Errorf("scenario: trace %s: none of its %d packets is IPv4 or IPv6; there is nothing "+
			"to measure", path, t.Packets())
	}
	blocks := make([]netip.Prefix, 0, len(packets))
	for b := range packets {
		blocks = append(blocks, b)
	}
	slices.SortFunc(blocks, func(a, b netip.Prefix) int {
		if c := cmp.Compare(packets[b], packets[a]); c != 0 {
			return c
		}
		return a.Addr().Compare(b.Addr())
	})
	out := &placement{owner: map[netip.Prefix]int{},
		trace: TraceStats{File: path, Packets: t.Packets(), LongerRecords: t.LongerRecords()}}
	load := make([]int, len(f.Hosts))
	for _, b := range blocks {
		h := 0
		for i := range load {
			if load[i] < load[h] {
				h = i
			}
		}
		load[h] += packets[b]
		out.owner[b] = h
		f.Hosts[h].Prefixes = append(f.Hosts[h].Prefixes, b)
	}
	return out, nil
}
