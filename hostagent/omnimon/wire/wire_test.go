// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/sketch/flow"
)

func key5(t testing.TB, text string) flow.Key {
	t.Helper()
	k, err := flow.Parse(flow.FiveTuple, text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var (
	large = Values{1, 1500, 0, 1, 0, 1 << 40, 0, 0, -7, 3}
	small = Values{3, 120}
)

// example is a report with rows of both families.
func example(t testing.TB) []byte {
	var b Builder
	s := Summary{Host: 3, Epoch: 1 << 33, MappingsUsed: 2, MappingsOwned: 590_000}
	s.Counters[Untracked], s.Late = 5, []LateEpoch{{1, 6}, {1<<33 - 1, 1 << 40}}
	b.Begin(&s, 2, 2)
	b.Egress(&EgressRow{Index: 4, Key: key5(t, "10.0.0.1,10.0.0.2,tcp,1,2"), Age: 9, Slots: [4]uint16{1, 300},
		Untagged: Untagged{7, 1 << 50}}, &large)
	b.Egress(&EgressRow{Index: 700, Key: key5(t, "::1,::2,udp,3,4"), Slots: [4]uint16{5, 6}}, &small)
	b.BeginIngress(1)
	b.BeginHost(9, 2)
	b.Ingress(1, 77, &small)
	b.Ingress(1<<24-1, 78, &large)
	b.Queries(queries)
	return b.Data
}

var queries = []QueryRow{{ID: 1 << 60, Step: 2, Undefined: 3, Dropped: 4, Tuples: []byte{1, 2, 3}},
	{ID: 7, Problem: "no such field", Tuples: []byte{}}}

func TestReport(t *testing.T) {
	r, err := Open(example(t))
	if err != nil {
		t.Fatal(err)
	}
	if r.Host != 3 || r.Epoch != 1<<33 || r.Counters[Untracked] != 5 || r.MappingsUsed != 2 ||
		r.MappingsOwned != 590_000 || !slices.Equal(r.Late, []LateEpoch{{1, 6}, {1<<33 - 1, 1 << 40}}) {
		t.Errorf("head %+v", r.Summary)
	}
	var egress EgressRow
	var v Values
	for _, want := range []struct {
		index   uint32
		key     string
		age     uint64
		slots   [4]uint16
		without Untagged
		values  Values
	}{
		{4, "10.0.0.1,10.0.0.2,tcp,1,2", 9, [4]uint16{1, 300}, Untagged{7, 1 << 50}, large},
		{700, "::1,::2,udp,3,4", 0, [4]uint16{5, 6}, Untagged{}, small},
	} {
		if !r.NextEgress(&egress) || v.Decode(egress.Values) != nil {
			t.Fatal(r.Err())
		}
		if egress.Index != want.index || egress.Key.String() != want.key || egress.Age != want.age ||
			egress.Slots != want.slots || egress.Untagged != want.without || v != want.values {
			t.Errorf("row %+v with %v, want %+v", egress, v, want)
		}
	}
	if r.NextEgress(&egress) {
		t.Error("a third row")
	}
	if host, ok := r.NextHost(); !ok || host != 9 {
		t.Errorf("host %d, %v", host, ok)
	}
	var ingress IngressRow
	for _, want := range []struct {
		index, check uint32
		values       Values
	}{{1, 77, small}, {1<<24 - 1, 78, large}} {
		if !r.NextIngress(&ingress) || v.Decode(ingress.Values) != nil || ingress.Index != want.index ||
			ingress.Check != want.check || v != want.values {
			t.Errorf("row %+v with %v, want %+v", ingress, v, want)
		}
		if check, values := IngressAt(example(t), ingress.At); check != want.check || !bytes.Equal(values, ingress.Values) {
			t.Errorf("at %d: check %d, values %x, want %+v", ingress.At, check, values, ingress)
		}
	}
	if _, ok := r.NextHost(); ok || r.Err() != nil {
		t.Errorf("at the end: another host %v, %v", ok, r.Err())
	}
	for _, want := range queries {
		var got QueryRow
		if !r.NextQuery(&got) || !reflect.DeepEqual(got, want) {
			t.Errorf("query %+v, want %+v, %v", got, want, r.Err())
		}
	}
	if r.NextQuery(new(QueryRow)) || r.Err() != nil {
		t.Errorf("another query, or %v", r.Err())
	}
}

func TestSkipEgress(t *testing.T) {
	r, err := Open(example(t))
	if err != nil {
		t.Fatal(err)
	}
	r.SkipEgress()
	if host, ok := r.NextHost(); !ok || host != 9 {
		t.Errorf("host %d, %v, %v", host, ok, r.Err())
	}
}

// drain reads a whole report.
func drain(data []byte) error {
	r, err := Open(data)
	if err != nil {
		return err
	}
	var e EgressRow
	var i IngressRow
	var v Values
	for r.NextEgress(&e) {
		if err := v.Decode(e.Values); err != nil {
			return err
		}
	}
	for {
		if _, ok := r.NextHost(); !ok {
			for r.NextQuery(new(QueryRow)) {
			}
			return r.Err()
		}
		for r.NextIngress(&i) {
			if err := v.Decode(i.Values); err != nil {
				return err
			}
		}
	}
}

func TestEveryTruncationIsAnError(t *testing.T) {
	data := example(t)
	for n := range data {
		if err := drain(data[:n]); !errors.Is(err, errReport) {
			t.Errorf("%d of %d bytes: %v", n, len(data), err)
		}
	}
	if err := drain(append(bytes.Clone(data), 0)); !errors.Is(err, errReport) {
		t.Errorf("a byte too much: %v", err)
	}
	data[0] = 2
	if err := drain(data); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("another version: %v", err)
	}
}

func TestSettings(t *testing.T) {
	s := &Settings{Carrier: CarrierOption, KeepMSS: true, EtherType: 0x88b5, Slots: 512, SlotsPerFlow: 2,
		Shares: 8, Host: 1, Flows: 9, IngressSlots: 10, IdleEpochs: 11, UDPIdleEpochs: 2, FlowletGap: 500_000,
		Hosts: [][]netip.Addr{{netip.MustParseAddr("10.0.0.1")}, {netip.MustParseAddr("::1")}}, Match: "zorro",
		Extremes: []Extreme{{Field: FieldLength}, {Field: FieldTTL, Min: true}}}
	data, err := s.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParseSettings(data); err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("%s came back as %+v, %v", data, got, err)
	}
	if _, err := ParseSettings([]byte("{")); err == nil || !strings.Contains(err.Error(), "omnimon") {
		t.Errorf("cut settings: %v", err)
	}
}

// TestCheckDiffers: keys that differ in one field have different check values.
func TestCheckDiffers(t *testing.T) {
	seen := map[uint32]string{}
	for _, text := range []string{"10.0.0.1,10.0.0.2,tcp,1,2", "10.0.0.2,10.0.0.1,tcp,1,2", "10.0.0.1,10.0.0.2,udp,1,2",
		"10.0.0.1,10.0.0.2,tcp,2,1", "10.0.0.1,10.0.0.2,tcp,1,3", "a00:1::,a00:2::,tcp,1,2", "a00:1::,a00:2::1,tcp,1,2"} {
		k := key5(t, text)
		c := Check(&k)
		if other, ok := seen[c]; ok {
			t.Errorf("%s and %s have check %#x", text, other, c)
		}
		seen[c] = text
	}
}

func FuzzReport(f *testing.F) {
	f.Add(example(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := drain(data); err != nil && !errors.Is(err, errReport) && !strings.Contains(err.Error(), "version") {
			t.Errorf("%v", err)
		}
	})
}
