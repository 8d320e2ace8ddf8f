// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/binary"

	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// compute computes a hash.
func (p *Packet) compute(c *program.Hash) uint64 {
	if c.Func == nil {
		return p.Lane.random()
	}
	fast := true
	for _, s := range c.Valid {
		fast = fast && p.f[s] != 0
	}
	for _, s := range c.Absent {
		fast = fast && p.f[s] == 0
	}
	var buf []byte
	if fast {
		buf = p.Lane.scratchOf(c.Bytes + 8)
		var acc uint64
		for i := range c.Emits {
			e := &c.Emits[i]
			if e.Right {
				acc |= p.f[e.Slot] >> e.Shift
			} else {
				acc |= p.f[e.Slot] << e.Shift
			}
			if e.Flush {
				binary.BigEndian.PutUint64(buf[e.Off:], acc)
				acc = 0
			}
		}
		buf = buf[:c.Bytes]
	} else {
		buf = p.hashInput(c)
	}
	if c.Payload {
		n := len(buf)
		payload := p.payload()
		buf = p.Lane.growScratch(buf, n+len(payload))
		copy(buf[n:], payload)
	}
	return c.Func(buf)
}

// hashInput packs the inputs of a hash bit by bit.
func (p *Packet) hashInput(c *program.Hash) []byte {
	bit := 0
	for i := range c.Items {
		if it := &c.Items[i]; it.Header == nil || it.Header.Metadata || p.f[it.Header.Base] != 0 {
			bit += p.inputBits(it)
		}
	}
	buf := p.Lane.scratchOf((bit + 7) / 8)
	clear(buf)
	bit = 0
	for i := range c.Items {
		it := &c.Items[i]
		if it.Header != nil && !it.Header.Metadata && p.f[it.Header.Base] == 0 {
			continue
		}
		if it.Whole {
			p.writeHeader(buf[bit/8:], it.Header)
		} else {
			wide.Write(buf, bit, p.inputBits(it), p.f[it.Slot:it.Slot+it.Words])
		}
		bit += p.inputBits(it)
	}
	return buf
}

func (p *Packet) inputBits(it *program.HashInput) int {
	switch {
	case it.Whole:
		return p.headerBytes(it.Header) * 8
	case it.Header != nil && it.Header.Type.Variable >= 0 &&
		it.Slot == it.Header.Base+it.Header.Type.Fields[it.Header.Type.Variable].Slot:
		return int(p.f[it.Header.Base+it.Header.Type.VariableLen])
	}
	return it.Width
}
