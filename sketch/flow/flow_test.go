// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func mustNew(t testing.TB, src, dst string, proto uint8, sp, dp uint16) Key {
	t.Helper()
	k, err := New(netip.MustParseAddr(src), netip.MustParseAddr(dst), proto, sp, dp)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestForms(t *testing.T) {
	v4 := mustNew(t, "10.0.0.1", "10.0.0.2", 6, 1234, 80)
	v6 := mustNew(t, "2001:db8::1", "fe80::2:0:0:1", 58, 0, 0)
	mapped := mustNew(t, "::ffff:1.2.3.4", "::", 255, 65535, 1)
	tests := []struct {
		name   string
		key    Key
		text   string
		binary string
	}{
		{"5-tuple v4", v4, "10.0.0.1,10.0.0.2,tcp,1234,80", "0a0000010a0000020604d20050"},
		{"src v4", v4.Project(Src), "10.0.0.1", "0a000001"},
		{"dst v4", v4.Project(Dst), "10.0.0.2", "0a000002"},
		{"pair v4", v4.Project(Src | Dst), "10.0.0.1,10.0.0.2", "0a0000010a000002"},
		{"ports", v4.Project(SrcPort | DstPort), "1234,80", "04d20050"},
		{"proto", v4.Project(Proto), "tcp", "06"},
		{"all traffic", v4.Project(0), "", ""},
		{"5-tuple v6", v6, "2001:db8::1,fe80::2:0:0:1,ipv6-icmp,0,0",
			"20010db8000000000000000000000001" + "fe800000000000000002000000000001" + "3a00000000"},
		{"dst v6", v6.Project(Dst), "fe80::2:0:0:1", "fe800000000000000002000000000001"},
		{"mapped stays v6", mapped, "::ffff:1.2.3.4,::,255,65535,1",
			"00000000000000000000ffff01020304" + "00000000000000000000000000000000" + "ffffff0001"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.key.String(); got != tc.text {
				t.Errorf("String() = %q, want %q", got, tc.text)
			}
			if got := hex.EncodeToString(tc.key.AppendBinary(nil)); got != tc.binary {
				t.Errorf("AppendBinary = %s, want %s", got, tc.binary)
			}
			if got, err := Parse(tc.key.Mask, tc.text); err != nil || got != tc.key {
				t.Errorf("Parse(%q) = %+v, %v", tc.text, got, err)
			}
			if got, err := ParseBinary(tc.key.Mask, tc.key.AppendBinary(nil)); err != nil || got != tc.key {
				t.Errorf("ParseBinary = %+v, %v", got, err)
			}
			if strings.ContainsAny(tc.text, `[]\=/"`) {
				t.Errorf("text form %q needs escaping in a path", tc.text)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	tests := []struct {
		name string
		f    func() error
		want string
	}{
		{"families differ", func() error {
			_, err := New(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("::1"), 6, 1, 2)
			return err
		}, "family"},
		{"no address", func() error { _, err := New(netip.Addr{}, netip.Addr{}, 6, 1, 2); return err },
			"not an IP address"},
		{"zone", func() error { _, err := Parse(Src, "fe80::1%eth0"); return err }, "zone"},
		{"too few", func() error { _, err := Parse(FiveTuple, "10.0.0.1"); return err },
			"has 1 comma-separated fields, a 5-tuple key has 5"},
		{"too many", func() error { _, err := Parse(Src, "10.0.0.1,10.0.0.2"); return err }, "a src key has 1"},
		{"bad proto", func() error { _, err := Parse(Proto, "tpc"); return err }, `"tpc" is neither`},
		{"big proto", func() error { _, err := Parse(Proto, "256"); return err }, "255"},
		{"big port", func() error { _, err := Parse(DstPort, "65536"); return err }, "dst-port"},
		{"text families", func() error { _, err := Parse(Src|Dst, "10.0.0.1,::1"); return err }, "family"},
		{"mask", func() error { _, err := Parse(0x80, ""); return err }, "0x80"},
		{"binary mask", func() error { _, err := ParseBinary(0x80, nil); return err }, "0x80"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.f(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
	if _, err := ParseBinary(Src, make([]byte, 5)); !errors.Is(err, ErrLength) {
		t.Errorf("ParseBinary of 5 bytes: %v, want ErrLength", err)
	}
}

func TestFieldsText(t *testing.T) {
	for f := Fields(1); f <= FiveTuple; f++ {
		if got, err := ParseFields(f.String()); err != nil || got != f {
			t.Errorf("ParseFields(%q) = %v, %v", f.String(), got, err)
		}
	}
	for _, s := range []string{"", "src+src", "source", "src+", "5-tuple+src"} {
		if f, err := ParseFields(s); err == nil {
			t.Errorf("ParseFields(%q) = %v, want an error", s, f)
		}
	}
}

func TestCompareIsAnOrder(t *testing.T) {
	keys := []Key{
		{}, mustNew(t, "10.0.0.1", "10.0.0.2", 6, 1, 2), mustNew(t, "10.0.0.1", "10.0.0.2", 6, 2, 2),
		mustNew(t, "10.0.0.1", "10.0.0.2", 17, 1, 2), mustNew(t, "::1", "::2", 17, 1, 2),
	}
	for i, a := range keys {
		for j, b := range keys {
			if got := a.Compare(b); (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("keys %d and %d compare as %d", i, j, got)
			}
		}
	}
}

func TestNoAllocations(t *testing.T) {
	k := mustNew(t, "2001:db8::1", "2001:db8::2", 17, 5, 6)
	buf := make([]byte, 0, 128)
	if n := testing.AllocsPerRun(100, func() {
		buf = k.AppendBinary(buf[:0])
		if _, err := ParseBinary(FiveTuple, buf); err != nil {
			t.Fatal(err)
		}
		buf, _ = k.AppendText(buf[:0])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzBinary(f *testing.F) {
	f.Add(uint8(FiveTuple), mustNew(f, "10.0.0.1", "10.0.0.2", 6, 1, 2).AppendBinary(nil))
	f.Add(uint8(FiveTuple), mustNew(f, "::1", "::2", 6, 1, 2).AppendBinary(nil))
	f.Add(uint8(Src), []byte{1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, mask uint8, b []byte) {
		k, err := ParseBinary(Fields(mask), b)
		if err != nil {
			return
		}
		if got := k.AppendBinary(nil); string(got) != string(b) {
			t.Errorf("bytes %x came back as %x", b, got)
		}
		if got, err := Parse(k.Mask, k.String()); err != nil || got != k {
			t.Errorf("text %q came back as %+v, %v", k, got, err)
		}
		if k.Project(k.Mask) != k {
			t.Errorf("projecting %v onto its own fields changes it", k)
		}
	})
}

func FuzzText(f *testing.F) {
	f.Add(uint8(FiveTuple), "10.0.0.1,10.0.0.2,tcp,1234,80")
	f.Add(uint8(Src), "2001:db8::1")
	f.Add(uint8(Proto|DstPort), "udp,53")
	f.Fuzz(func(t *testing.T, mask uint8, s string) {
		k, err := Parse(Fields(mask), s)
		if err != nil {
			return
		}
		if got, err := Parse(k.Mask, k.String()); err != nil || got != k {
			t.Errorf("%q became %q and came back as %+v, %v", s, k, got, err)
		}
		if got, err := ParseBinary(k.Mask, k.AppendBinary(nil)); err != nil || got != k {
			t.Errorf("%q: binary form came back as %+v, %v", s, got, err)
		}
	})
}
