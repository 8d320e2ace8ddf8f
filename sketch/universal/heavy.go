// SPDX-License-Identifier: Apache-2.0

package universal

import "github.com/netsketch/netsketch/sketch/flow"

// The words of a heavy-key slot; a slot whose count is zero is empty. The words of the key follow:
// flow.FromWords.
const (
	wordCount = iota // estimate of the key's packets when it last grew
	wordHash         // crc32 of the key
	wordKey          // first word of the key
)

// store writes the key, but not the count, into a slot.
func store(slot []uint32, k *flow.Key, h uint32, f flow.Fields) {
	slot[wordHash] = h
	k.PutWords(f, slot[wordKey:])
}

// load reads a slot's key. It returns false for an empty slot, and for words that the data plane
// never writes: such a slot is damaged and skipped.
func load(slot []uint32, f flow.Fields, level, levels int) (k flow.Key, h uint32, ok bool) {
	if slot[wordCount] == 0 {
		return k, 0, false
	}
	if k, ok = flow.FromWords(f, slot[wordKey:]); !ok {
		return k, 0, false
	}
	h = hashOf(&k, f)
	return k, h, h == slot[wordHash] && levelOf(h, levels) == level
}
