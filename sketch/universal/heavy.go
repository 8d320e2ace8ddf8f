// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"encoding/binary"

	"github.com/netsketch/netsketch/sketch/flow"
)

// The words of a heavy-key slot; a slot whose count is zero is empty. The key's fields follow: if
// the key has a port, one word with the source port in its upper and the destination port in its
// lower half; then four words for each address, of which an IPv4 address uses the first.
const (
	wordCount = iota // estimate of the key's packets when it last grew
	wordHash         // crc32 of the key
	wordKind         // family (4 or 6) << 8 | protocol; the protocol is 0 in keys without it
)

// store writes the key, but not the count, into a slot.
func store(slot []uint32, k *flow.Key, h uint32, f flow.Fields) {
	kind := uint32(4 << 8)
	if k.V6 {
		kind = 6 << 8
	}
	if f&flow.Proto != 0 {
		kind |= uint32(k.Proto)
	}
	slot[wordHash], slot[wordKind] = h, kind
	slot = slot[wordKind+1:]
	if f&(flow.SrcPort|flow.DstPort) != 0 {
		slot[0] = 0
		if f&flow.SrcPort != 0 {
			slot[0] = uint32(k.SrcPort) << 16
		}
		if f&flow.DstPort != 0 {
			slot[0] |= uint32(k.DstPort)
		}
		slot = slot[1:]
	}
	if f&flow.Src != 0 {
		storeAddr(slot, &k.Src)
		slot = slot[4:]
	}
	if f&flow.Dst != 0 {
		storeAddr(slot, &k.Dst)
	}
}

func storeAddr(words []uint32, a *[16]byte) {
	for i := range 4 {
		words[i] = binary.BigEndian.Uint32(a[4*i:])
	}
}

func loadAddr(words []uint32) (a [16]byte) {
	for i := range 4 {
		binary.BigEndian.PutUint32(a[4*i:], words[i])
	}
	return a
}

// load reads a slot's key. It returns false for an empty slot, and for words that the data plane
// never writes: such a slot is damaged and skipped.
func load(slot []uint32, f flow.Fields, level, levels int) (k flow.Key, h uint32, ok bool) {
	if slot[wordCount] == 0 {
		return k, 0, false
	}
	k.Mask = f
	switch slot[wordKind] >> 8 {
	case 4:
	case 6:
		k.V6 = f&(flow.Src|flow.Dst) != 0 // keys without addresses have no family
	default:
		return k, 0, false
	}
	if f&flow.Proto != 0 {
		k.Proto = uint8(slot[wordKind])
	}
	rest := slot[wordKind+1:]
	if f&(flow.SrcPort|flow.DstPort) != 0 {
		if f&flow.SrcPort != 0 {
			k.SrcPort = uint16(rest[0] >> 16)
		}
		if f&flow.DstPort != 0 {
			k.DstPort = uint16(rest[0])
		}
		rest = rest[1:]
	}
	if f&flow.Src != 0 {
		k.Src, rest = loadAddr(rest), rest[4:]
	}
	if f&flow.Dst != 0 {
		k.Dst = loadAddr(rest)
	}
	h = hashOf(&k, f)
	return k, h, h == slot[wordHash] && levelOf(h, levels) == level
}
