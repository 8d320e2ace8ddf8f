// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/netsketch/netsketch/sketch/flow"
)

// slotWords is the number of cells of a slot. p4/own.p4 describes them.
const slotWords = 12

// sizes returns the packets of the flows in the slots of a bank, summed over equal keys with the
// given fields. A flow whose slots hold other flows is missing, and its packets are counted for
// them: the expected sum for any key is exact.
func sizes(cells []uint32, fields flow.Fields) (map[flow.Key]uint64, error) {
	out := map[flow.Key]uint64{}
	for at := 0; at+slotWords <= len(cells); at += slotWords {
		slot := cells[at : at+slotWords]
		if slot[0] == 0 {
			continue
		}
		key, err := keyOf(slot)
		if err != nil {
			return nil, fmt.Errorf("slot %d: %w", at/slotWords, err)
		}
		out[key.Project(fields)] += uint64(slot[0])
	}
	return out, nil
}

// keyOf returns the 5-tuple of a slot.
func keyOf(slot []uint32) (flow.Key, error) {
	src, dst := address(slot[4:8]), address(slot[8:12])
	switch family := slot[2] >> 8; family {
	case 6:
	case 4:
		v4 := func(a netip.Addr) netip.Addr { b := a.As16(); return netip.AddrFrom4([4]byte(b[:4])) }
		src, dst = v4(src), v4(dst)
	default:
		return flow.Key{}, fmt.Errorf("%d is not an IP version", family)
	}
	return flow.New(src, dst, uint8(slot[2]), uint16(slot[3]>>16), uint16(slot[3]))
}

// address returns the address in four words.
func address(words []uint32) netip.Addr {
	var b [16]byte
	for i, w := range words {
		binary.BigEndian.PutUint32(b[4*i:], w)
	}
	return netip.AddrFrom16(b)
}
