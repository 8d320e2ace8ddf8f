// SPDX-License-Identifier: Apache-2.0

package switches

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/netsketch/netsketch/internal/test/p4tap"
)

// setMember is a member of a parser value set, field by field.
type setMember struct {
	set    string
	fields [][]byte
}

// formats sets up testdata/formats.p4, which needs no tables.
func formats(t *testing.T) *program {
	t.Helper()
	be := func(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
	return &program{
		Program: local(t, "formats"), inFrames: true, frames: shims,
		valueSets: []setMember{
			{"P.ports", [][]byte{be(0x1003)}}, {"P.ports", [][]byte{be(7)}}, {"P.ports", [][]byte{be(0x8000)}},
			{"P.pairs", [][]byte{{0x11}, be(0x1003)}}, {"P.pairs", [][]byte{{0x42}, be(7)}},
		},
		packetOut: func(port uint32) []p4tap.Field { return metadata("egress_port", port) },
	}
}

// shims puts headers of testdata/formats.p4 in front of the payloads of packets, and cuts some of
// the packets off within the headers. It draws from a fixed seed.
func shims(in []arrival) []arrival {
	rng := rand.New(rand.NewPCG(9, 2))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	pick := func(v ...uint16) uint16 { return v[rng.IntN(len(v))] }
	out := make([]arrival, len(in))
	for i, a := range in {
		kind := byte(rng.Uint32())
		if rng.IntN(3) == 0 {
			kind = byte(pick(0x10, 0x11, 0x2f, 0x30, 0x42, 0xff))
		}
		options := byte(rng.IntN(9))
		if rng.IntN(50) == 0 {
			options = byte(40 + rng.IntN(3)) // 41 is too many
		}
		f := append(append([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb6}, kind, options),
			binary.BigEndian.AppendUint16(nil, pick(7, 0x1003, 0x1fff, 0x8000, 0x8002, 0x9001,
				uint16(rng.Uint32())))...)
		f = append(f, random(2)...)
		if kind&3 != 0 {
			for n := 1 + rng.IntN(4); n > 0; n-- {
				label := random(4)
				label[2] &^= 1
				if n == 1 && rng.IntN(20) > 0 {
					label[2] |= 1
				}
				if rng.IntN(40) == 0 {
					label[0], label[1], label[2] = 0xff, 0xff, label[2]|0xf0
				}
				f = append(f, label...)
			}
		}
		f = append(f, random(int(options))...)
		for range rng.IntN(4) {
			switch rng.IntN(4) {
			case 0:
				f = append(append(f, 1), random(1)...)
			case 1:
				f = append(append(f, 2), random(5)...)
			case 2:
				f = append(append(f, 0x13), random(10)...)
			case 3:
				f = append(append(f, 0xf3), random(1)...)
			}
		}
		f = append(f, a.frame[min(len(a.frame), 14):]...)
		if rng.IntN(12) == 0 {
			f = f[:14+rng.IntN(len(f)-13)]
		}
		out[i] = arrival{a.port, f}
	}
	return out
}
