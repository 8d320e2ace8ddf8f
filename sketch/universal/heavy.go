// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"encoding/binary"

	"github.com/netsketch/netsketch/sketch/flow"
)

// The words of a heavy-key slot. A slot with count zero is empty.
const (
	wordCount = iota // the estimate when it last grew
	wordHash         // crc32 of the key
	wordKind         // family (4 or 6) << 8 | protocol, which is 0 in address keys
	wordAddr         // address keys: four words, an IPv4 address in the first
	wordPorts = wordAddr
	wordSrc   = wordPorts + 1
	wordDst   = wordSrc + 4
)

// store writes the key, not the count, into a slot.
func store(slot []uint32, k *flow.Key, h uint32, f flow.Fields) {
	family := uint32(4)
	if k.V6 {
		family = 6
	}
	slot[wordHash] = h
	switch f {
	case flow.Src:
		slot[wordKind] = family << 8
		storeAddr(slot[wordAddr:], &k.Src)
	case flow.Dst:
		slot[wordKind] = family << 8
		storeAddr(slot[wordAddr:], &k.Dst)
	default:
		slot[wordKind] = family<<8 | uint32(k.Proto)
		slot[wordPorts] = uint32(k.SrcPort)<<16 | uint32(k.DstPort)
		storeAddr(slot[wordSrc:], &k.Src)
		storeAddr(slot[wordDst:], &k.Dst)
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
// does not write: that slot was damaged and is skipped.
func load(slot []uint32, f flow.Fields, level, levels int) (k flow.Key, h uint32, ok bool) {
	if slot[wordCount] == 0 {
		return k, 0, false
	}
	k.Mask = f
	switch slot[wordKind] >> 8 {
	case 4:
	case 6:
		k.V6 = true
	default:
		return k, 0, false
	}
	switch f {
	case flow.Src:
		k.Src = loadAddr(slot[wordAddr:])
	case flow.Dst:
		k.Dst = loadAddr(slot[wordAddr:])
	default:
		k.Proto = uint8(slot[wordKind])
		k.SrcPort, k.DstPort = uint16(slot[wordPorts]>>16), uint16(slot[wordPorts])
		k.Src, k.Dst = loadAddr(slot[wordSrc:]), loadAddr(slot[wordDst:])
	}
	h = hashOf(&k, f)
	return k, h, h == slot[wordHash] && levelOf(h, levels) == level
}
