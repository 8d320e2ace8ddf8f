// SPDX-License-Identifier: Apache-2.0

package varint

import (
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/sketch/flow"
)

func report(t testing.TB) []byte {
	t.Helper()
	k, err := flow.New(netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"), 17, 53, 54)
	if err != nil {
		t.Fatal(err)
	}
	b := AppendCounters(Append(nil, 7, 1<<40), []uint64{0, 200, math.MaxUint64})
	return append(AppendFlow(b, &k), "ab"...)
}

// read reads what report returns, and compares it if nothing is missing.
func read(t testing.TB, b []byte) error {
	t.Helper()
	r := &Reader{Rest: b}
	small, large := r.U32(), r.Number(1<<40)
	var counters [3]uint64
	r.Counters(counters[:])
	k, last := r.Flow(), r.Bytes(2)
	r.End()
	if r.Err() == nil && (small != 7 || large != 1<<40 || counters != [3]uint64{0, 200, math.MaxUint64} ||
		k.String() != "2001:db8::1,2001:db8::2,udp,53,54" || string(last) != "ab") {
		t.Errorf("read %d, %d, %d, %s, %q", small, large, counters, k, last)
	}
	return r.Err()
}

// A report is read as it was written. Truncated anywhere, or with more bytes, it is refused.
func TestReader(t *testing.T) {
	b := report(t)
	if err := read(t, b); err != nil {
		t.Error(err)
	}
	for n := range b {
		if read(t, b[:n]) == nil {
			t.Errorf("%d of %d bytes: no error", n, len(b))
		}
	}
	if err := read(t, append(b, 0)); err == nil || !strings.Contains(err.Error(), "1 bytes behind its end") {
		t.Errorf("with another byte: %v", err)
	}
}

// A Reader refuses numbers and counts above their limits, and keeps its first error.
func TestLimits(t *testing.T) {
	for name, f := range map[string]func(r *Reader){
		"1099511627776; expected at most 4294967295": func(r *Reader) { r.U32() },
		"ends too early": func(r *Reader) { r.Count(1) },
	} {
		r := &Reader{Rest: Append(nil, 1<<40, 1)}
		f(r)
		if r.Fail("another"); r.Err() == nil || r.Err().Error() != name || r.U64() != 0 || r.Bytes(1) != nil {
			t.Errorf("error %v, want %q", r.Err(), name)
		}
	}
	r := &Reader{Rest: AppendCounters(nil, []uint64{1, 2})}
	if r.Counters(make([]uint64, 3)); r.Err() == nil || r.Err().Error() != "2 counters; expected 3" {
		t.Errorf("error %v", r.Err())
	}
}

// Any bytes are read to their end or refused, and written again as they were read.
func FuzzReader(f *testing.F) {
	f.Add(report(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &Reader{Rest: b}
		n, counters := r.U64(), make([]uint64, 3)
		r.Counters(counters)
		k := r.Flow()
		r.End()
		if r.Err() != nil {
			return
		}
		if len(r.Rest) > 0 {
			t.Errorf("%d bytes are left", len(r.Rest))
		}
		again := &Reader{Rest: AppendFlow(AppendCounters(Append(nil, n), counters), &k)}
		if again.U64() != n || again.Count(1) != len(counters) || again.U64() != counters[0] {
			t.Errorf("%d and %d change when they are written", n, counters)
		}
	})
}
