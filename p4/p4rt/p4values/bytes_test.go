// SPDX-License-Identifier: Apache-2.0

package p4values

import (
	"bytes"
	"errors"
	"math/big"
	"testing"
)

// The tables "Valid" and "Invalid Bytestring Encoding" of the specification, section 8.4.
func TestEncodeSpecificationTables(t *testing.T) {
	for _, tc := range []struct {
		in     string
		width  int
		signed bool
		want   string // "" if the value must be refused
	}{
		{"\x63", 8, false, "\x63"},
		{"\x00\x63", 16, false, "\x63"},
		{"\x63", 16, false, "\x63"},
		{"\x30\x64", 16, false, "\x30\x64"},
		{"\x00\x30\x64", 16, false, "\x30\x64"},
		{"\x00\x63", 12, false, "\x63"},
		{"\x00\x00\x63", 12, false, "\x63"},
		{"\x63", 8, true, "\x63"},
		{"\x9d", 8, true, "\x9d"},
		{"\xff\x9d", 8, true, "\x9d"},
		{"\xfd\x1d", 12, true, "\xfd\x1d"},
		{"\x00\x00", 16, true, "\x00"},
		{"\x00", 16, true, "\x00"},
		{"\x01\x63", 8, false, ""},
		{"", 8, false, ""},
		{"\x01\x00\x63", 16, false, ""},
		{"\x10\x63", 12, false, ""},
		{"\x01\x00\x63", 12, false, ""},
		{"\x00\x40\x63", 12, false, ""},
		{"\x00\x9d", 8, true, ""},
		{"\x8d\x1d", 12, true, ""},
		{"", 16, true, ""},
	} {
		encode := Encode
		if tc.signed {
			encode = EncodeSigned
		}
		got, err := encode([]byte(tc.in), tc.width)
		if tc.want == "" {
			if err == nil {
				t.Errorf("%q as %d bits (signed %v) was accepted as %q", tc.in, tc.width, tc.signed, got)
			} else if !errors.Is(err, ErrEmpty) && !errors.Is(err, ErrRange) {
				t.Errorf("%q: untyped error %v", tc.in, err)
			}
			continue
		}
		if err != nil || string(got) != tc.want {
			t.Errorf("%q as %d bits (signed %v) = %q, %v; want %q", tc.in, tc.width, tc.signed, got, err, tc.want)
		}
	}
}

func TestPadSignedRoundTrip(t *testing.T) {
	for v := int64(-2048); v < 2048; v++ {
		raw := []byte{byte(v >> 8), byte(v)}
		p, err := PadSigned(raw, 12)
		if err != nil {
			t.Fatalf("%d: %v", v, err)
		}
		if len(p) != 2 || p[0] > 0x0f {
			t.Fatalf("%d is held as % x", v, p)
		}
		if got := FromSignedBits(p, 12); !bytes.Equal(got, CanonicalSigned(raw)) {
			t.Fatalf("%d comes back as % x", v, got)
		}
	}
}

func TestMaskAndCompare(t *testing.T) {
	if got := Mask(9, 12); !bytes.Equal(got, []byte{0x0f, 0xf8}) {
		t.Errorf("Mask(9, 12) = % x", got)
	}
	if got := Ones(9); !bytes.Equal(got, []byte{0x01, 0xff}) {
		t.Errorf("Ones(9) = % x", got)
	}
	if got := And([]byte{1, 2, 3}, []byte{0xff}); !bytes.Equal(got, []byte{0, 0, 3}) {
		t.Errorf("And = % x", got)
	}
	if Compare([]byte{0, 0, 5}, []byte{4}) <= 0 || Compare(nil, []byte{0}) != 0 ||
		Compare([]byte{1, 0}, []byte{2}) <= 0 {
		t.Error("Compare does not compare numbers")
	}
}

func FuzzEncode(f *testing.F) {
	f.Add([]byte{}, 8)
	f.Add([]byte{0, 0, 1}, 9)
	f.Add([]byte{0xff, 0x80}, 8)
	f.Fuzz(func(t *testing.T, b []byte, width int) {
		width = 1 + int(uint(width)%512)
		n := new(big.Int).SetBytes(b)
		c, err := Encode(b, width)
		if ok := len(b) > 0 && n.BitLen() <= width; ok != (err == nil) {
			t.Fatalf("Encode(% x, %d): %v", b, width, err)
		}
		if err == nil {
			if !bytes.Equal(Canonical(c), c) || new(big.Int).SetBytes(c).Cmp(n) != 0 {
				t.Fatalf("Encode(% x) = % x", b, c)
			}
			p, err := Pad(b, width)
			if err != nil || len(p) != Bytes(width) || !Equal(p, b) {
				t.Fatalf("Pad(% x, %d) = % x, %v", b, width, p, err)
			}
		}
		if s, err := EncodeSigned(b, width); err == nil {
			p, err := PadSigned(b, width)
			if err != nil || !bytes.Equal(FromSignedBits(p, width), s) {
				t.Fatalf("signed % x of %d bits: held % x, back % x, canonical % x (%v)", b, width, p,
					FromSignedBits(p, width), s, err)
			}
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8}, uint8(9), uint8(7))
	f.Fuzz(func(t *testing.T, b []byte, w1, w2 uint8) {
		h := newHeader(Object{}, []HeaderField{{ID: 1, Width: 1 + int(w1)%70}, {ID: 2, Width: 1 + int(w2)%70},
			{ID: 3, Width: 16}})
		hdr := make([]byte, h.Len())
		var want [][]byte
		for i, fd := range h.Fields {
			v := And(append([]byte{0}, b...), Ones(fd.Width))
			want = append(want, Canonical(v))
			if err := h.Put(hdr, i, v); err != nil {
				t.Fatal(err)
			}
		}
		for i := range h.Fields {
			if got := h.Get(hdr, i); !bytes.Equal(got, want[i]) {
				t.Fatalf("field %d of % x = % x, want % x", i, hdr, got, want[i])
			}
		}
	})
}
