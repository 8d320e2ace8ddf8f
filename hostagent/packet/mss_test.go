// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// segment is a TCP header with options and a checksum over the header alone.
func segment(options ...byte) []byte {
	for len(options)%4 != 0 {
		options = append(options, optionEnd)
	}
	b := make([]byte, tcp, tcp+len(options))
	b[0], b[3], b[12], b[13] = 0x12, 0x50, byte(5+len(options)/4)<<4, SYN
	b = append(b, options...)
	binary.BigEndian.PutUint16(b[checksumTCP:], ^uint16(sumOf(b)))
	return b
}

func sumOf(b []byte) uint64 {
	s := uint64(0)
	for i := range b {
		s += uint64(b[i]) << (8 * (1 - i%2))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return s
}

func TestClampMSS(t *testing.T) {
	for name, tc := range map[string]struct{ before, after []byte }{
		"too large":        {segment(2, 4, 5, 180), segment(2, 4, 5, 160)},
		"at an odd offset": {segment(1, 2, 4, 5, 180, 1, 1, 1), segment(1, 2, 4, 5, 160, 1, 1, 1)},
		"behind another option": {
			before: segment(8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 2, 4, 255, 255),
			after:  segment(8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 2, 4, 5, 160),
		},
		"small enough":            {segment(2, 4, 5, 160), nil},
		"no option":               {segment(), nil},
		"behind the end":          {segment(0, 0, 0, 0, 2, 4, 5, 180), nil},
		"an option without size":  {segment(8, 0, 2, 4, 5, 180), nil},
		"a truncated header":      {segment(2, 4, 5, 180)[:22], nil},
		"an option that is cut":   {segment(1, 1, 2, 9), nil},
		"another size of the MSS": {segment(2, 3, 5, 1), nil},
	} {
		b := bytes.Clone(tc.before)
		ClampMSS(b, 1440)
		want := tc.after
		if want == nil {
			want = tc.before
		}
		if !bytes.Equal(b, want) {
			t.Errorf("%s: %x became %x, want %x", name, tc.before, b, want)
		}
	}
}

func FuzzClampMSS(f *testing.F) {
	f.Add(segment(1, 2, 4, 5, 180, 1, 1, 1), uint16(1000))
	f.Fuzz(func(t *testing.T, b []byte, limit uint16) {
		before := sumOf(b)
		ClampMSS(b, int(limit))
		if after := sumOf(b); before%0xffff != after%0xffff {
			t.Errorf("the sum changed from %#x to %#x", before, after)
		}
	})
}
