// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"net/netip"
	"reflect"
	"testing"

	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/sketch/flow"
)

func example(t testing.TB) *Report {
	t.Helper()
	s := Settings{Flows: 200, Latencies: 200}
	r := &Report{First: 5, Last: 9}
	var err error
	if r.Flows, r.Latencies, err = s.NewTowers(); err != nil {
		t.Fatal(err)
	}
	k4, err4 := flow.New(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), 6, 1, 2)
	k6, err6 := flow.New(netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"), 17, 1, 2)
	if err4 != nil || err6 != nil {
		t.Fatal(err4, err6)
	}
	r.Flows.Insert(k4.AppendBinary(nil))
	r.Latencies.Insert(AppendKey(nil, &k6, 1<<31), 77)
	for i := range r.Counters {
		r.Counters[i] = uint64(i) << 20
	}
	r.Problems[3], r.Versions[15] = 1<<63, 4
	r.Heavy = []Heavy{{Key: k4, Path: []uint32{1, 1<<32 - 1}, Changes: 2}, {Key: k6}}
	r.Inflated = []Inflated{{Key: k6, Node: 4, Packets: 5, Worst: 6}}
	r.Nodes = []Node{{ID: 1, Packets: 2, Sum: 3, Worst: 4, Drops: 5}}
	r.Sources = []Source{{Address: netip.MustParseAddr("192.0.2.1"), Node: 1, Hardware: 2, Received: 3, Lost: 4, Late: 5,
		Restarts: 6}, {Address: netip.MustParseAddr("2001:db8::1")}}
	r.Queues = []Queue{{Node: 1<<32 - 1, ID: 255, Packets: 1 << 50, Timed: 2, Sum: 3, Occupancy: 4, Worst: 1<<32 - 1}}
	r.Faults = []Fault{{Address: netip.MustParseAddr("2001:db8::1"), Problem: inband.Problems - 1, Packets: 1 << 40}}
	return r
}

func TestReport(t *testing.T) {
	for _, want := range []*Report{example(t), {First: 7}} {
		b, err := want.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseReport(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: got  %+v\nwant %+v", err, got, want)
		}
		for n := range b {
			if _, err := ParseReport(b[:n]); err == nil {
				t.Errorf("%d bytes of %d are accepted", n, len(b))
			}
		}
		if _, err := ParseReport(append(b, 0)); err == nil {
			t.Error("a byte behind the end is accepted")
		}
	}
}

// FuzzParseReport parses any bytes; what is accepted is the same again.
func FuzzParseReport(f *testing.F) {
	b, err := example(f).Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseReport(b)
		if err != nil {
			return
		}
		once, err := r.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseReport(once)
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%v: %+v\n%+v", err, r, again)
		}
	})
}

// FuzzParseSettings parses any bytes.
func FuzzParseSettings(f *testing.F) {
	s := Settings{Interval: 5, Flows: 1000, Latencies: 1000, Heavy: 5, Inflation: 5}
	b, err := s.Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseSettings(b)
		if err != nil {
			return
		}
		once, err := s.Append(nil)
		if err != nil || !bytes.HasPrefix(once, []byte("{")) {
			t.Fatalf("%s: %v", once, err)
		}
	})
}
