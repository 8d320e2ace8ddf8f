// SPDX-License-Identifier: Apache-2.0

// Package mapping assigns flows to sets of slots (OmniMon, section 5.2): each of the C(K, d) sets
// of d different slots out of K is one mapping, and every host has a share of the mappings that no
// other host has.
//
// No list of mappings is stored. A pseudo-random permutation orders all mappings, the same way at
// all hosts; host i of n has every n-th mapping of that order, from the i-th on. The permutation
// spreads each share evenly over the slots.
package mapping

import (
	"fmt"
	"math/bits"
)

// MaxSlots is the largest d, and MaxK the largest K: a slot number has 16 bits in a packet.
const (
	MaxSlots = 4
	MaxK     = 1 << 16
)

// Slots are the slots of one mapping; only the first d count. Packets use them in turn, hop by hop,
// so the order is pseudo-random: the first and every other position use all slots equally often.
type Slots [MaxSlots]uint16

// Share is one host's share of all mappings.
type Share struct {
	k, d       int
	total      uint64 // C(k, d)
	host, of   uint64
	half, mask uint64 // bits of a half of the Feistel network, and their mask
	keys       [rounds]uint64
}

const rounds = 4

// NewShare returns the share of host number host, from 0, of hosts, where each flow is mapped to d
// of k slots. The seed selects the permutation; it is the same at all hosts.
func NewShare(k, d, host, hosts int, seed uint64) (*Share, error) {
	switch {
	case d < 1 || d > MaxSlots:
		return nil, fmt.Errorf("%d slots per flow: 1 to %d are possible", d, MaxSlots)
	case k < d || k > MaxK:
		return nil, fmt.Errorf("%d slots per switch: %d to %d are possible with %d slots per flow", k, d, MaxK, d)
	case hosts < 1 || host < 0 || host >= hosts:
		return nil, fmt.Errorf("host %d of %d: hosts are numbered from 0", host, hosts)
	}
	s := &Share{k: k, d: d, host: uint64(host), of: uint64(hosts)}
	s.total = choose(k, d)
	if s.total < uint64(hosts) {
		return nil, fmt.Errorf("%d slots have %d mappings to %d slots, fewer than %d hosts: increase the slots",
			k, s.total, d, hosts)
	}
	width := (bits.Len64(s.total-1) + 1) / 2
	s.half, s.mask = uint64(width), 1<<width-1
	for i := range s.keys {
		seed += 0x9e3779b97f4a7c15
		s.keys[i] = mix(seed)
	}
	return s, nil
}

// choose returns C(n, j). No product exceeds 64 bits for n up to MaxK and j up to MaxSlots.
func choose(n, j int) uint64 {
	c := uint64(1)
	for i := range min(j, n+1) {
		c = c * uint64(n-i) / uint64(i+1)
	}
	return c
}

// Len is the count of mappings in the share.
func (s *Share) Len() uint64 { return (s.total - s.host + s.of - 1) / s.of }

// At returns mapping i of the share; i is below Len.
func (s *Share) At(i uint64) Slots {
	rank := s.permute(s.host + i*s.of)
	set := s.unrank(rank)
	first := int(mix(rank^s.keys[0]) % uint64(s.d))
	slots := set
	for j := range s.d {
		slots[j] = set[(first+j)%s.d]
	}
	return slots
}

// permute returns the position of x under the permutation of [0, total): a Feistel network over the
// next even count of bits, repeated until the result is in range.
func (s *Share) permute(x uint64) uint64 {
	for {
		left, right := x>>s.half, x&s.mask
		for _, key := range s.keys {
			left, right = right, left^mix(right^key)&s.mask
		}
		if x = left<<s.half | right; x < s.total {
			return x
		}
	}
}

// unrank returns the rank-th set, in increasing order, in the combinatorial number system: rank =
// C(c1, 1) + … + C(cd, d) with c1 < … < cd.
func (s *Share) unrank(rank uint64) (slots Slots) {
	top := s.k
	for j := s.d; j >= 1; j-- {
		low, high := j-1, top // the largest c below top with C(c, j) <= rank
		for high-low > 1 {
			if middle := (low + high) / 2; choose(middle, j) <= rank {
				low = middle
			} else {
				high = middle
			}
		}
		slots[j-1] = uint16(low)
		rank -= choose(low, j)
		top = low
	}
	return slots
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
