// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/sketch/flow"
)

func example() *Report {
	r := &Report{Epoch: 1 << 40}
	for i := range r.Counters {
		r.Counters[i] = uint64(i) << 20
	}
	r.Flows = []Flow{
		{Key: flow.Key{Src: [16]byte{10}, Dst: [16]byte{11}, Proto: 6, Mask: flow.FiveTuple}, Received: 1 << 33},
		{Key: flow.Key{Src: [16]byte{1}, SrcPort: 5, Proto: 17, Mask: flow.FiveTuple, V6: true}, Sent: 7,
			Devices: []uint16{0, 3, 1<<16 - 1}},
	}
	r.Sketchlets = Append(Append(nil, 0x1234, 0xffff, 255, []uint32{1, 1<<32 - 1}), 2, 3, 4, make([]uint32, 255))
	return r
}

func TestReport(t *testing.T) {
	want := example()
	b := want.Append(nil)
	got, err := ParseReport(b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: got  %+v\nwant %+v", err, got, want)
	}
	all := slices.Collect(got.All)
	if len(all) != 2 || all[0].Device() != 0x1234 || all[0].Column() != 0xffff || all[0].Interval() != 255 ||
		!slices.Equal(all[0].Cells(nil), []uint32{1, 1<<32 - 1}) || all[1].Words() != 255 {
		t.Errorf("sketchlets %v", all)
	}
	ends := []int{len(b), len(b) - len(all[1]), len(b) - len(want.Sketchlets)}
	for n := range b {
		if _, err := ParseReport(b[:n]); (err == nil) != slices.Contains(ends, n) {
			t.Errorf("%d bytes of %d: %v", n, len(b), err)
		}
	}
	for i := range want.Sketchlets {
		broken := bytes.Clone(b)
		broken[len(b)-1-i] ^= 1
		if _, err := ParseReport(broken); err == nil {
			t.Errorf("a changed byte, %d from the end, is accepted", i)
		}
	}
}

// TestFlowsInOrder: flows and devices that are out of order, there twice or too large are refused.
func TestFlowsInOrder(t *testing.T) {
	for text, change := range map[string]func(*Report){
		"not behind the one before": func(r *Report) { slices.Reverse(r.Flows) },
		"flow 1 is not behind":      func(r *Report) { r.Flows[1] = r.Flows[0] },
		"device 3 is":               func(r *Report) { r.Flows[1].Devices[0] = 3 },
		"33 devices":                func(r *Report) { r.Flows[1].Devices = make([]uint16, MaxDevices+1) },
		"flow: binary key":          func(r *Report) { r.Flows[0].Key.Mask = flow.Src },
	} {
		r := example()
		change(r)
		if _, err := ParseReport(r.Append(nil)); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want one with %q", err, text)
		}
	}
}

// TestTooManyFlows: a count is checked before there is memory for it.
func TestTooManyFlows(t *testing.T) {
	b := (&Report{}).Append(nil)
	b = binary.AppendUvarint(b[:len(b)-1], MaxFlows+1) // the count of flows is last
	if _, err := ParseReport(b); err == nil || !strings.Contains(err.Error(), "1048577 flows") {
		t.Errorf("error %v", err)
	}
}

func TestSettings(t *testing.T) {
	want := Settings{Kept: 5, Flows: MaxFlows, Interval: MaxInterval,
		Devices: []Device{{ID: 1, Columns: 65536, Words: 255}}}
	b, err := want.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParseSettings(b); err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("%v: %+v", err, got)
	}
	want.Devices[0].Words, want.Sketch = 21, &Sketch{Rows: 3, Delays: []uint32{50, 100, 200}, Sizes: true, Gaps: true}
	if b, err = want.Append(nil); err != nil {
		t.Fatal(err)
	}
	if got, err := ParseSettings(b); err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("%v: %+v", err, got)
	}
	_, err = ParseSettings([]byte(`{"kept": 9999999999, "flows": 1048577, "interval": 65,
		"sketch": {"rows": 5, "unit": 33}, "devices": [{"id": 1, "columns": 65537},
		{"id": 1, "columns": 1, "words": 256}]}`))
	for _, text := range []string{"kept: 9999999999", "flows: 1048577", "interval: 65 epochs",
		"sketch: 5 rows, delays []", "unit 33", "devices[1]: 256 words; the sketch has 5", "devices[0]: 65537 columns",
		"devices[0]: 0 words", "256 words", "device 1 is there twice"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want one with %q", err, text)
		}
	}
	if _, err := ParseSettings([]byte("{")); err == nil || !strings.Contains(err.Error(), "settings of role") {
		t.Errorf("error %v", err)
	}
}

// FuzzParseReport: what is accepted encodes to a report that is equal.
func FuzzParseReport(f *testing.F) {
	f.Add(example().Append(nil))
	f.Add((&Report{}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseReport(b)
		if err != nil {
			return
		}
		again, err := ParseReport(r.Append(nil))
		if err != nil || again.Epoch != r.Epoch || again.Counters != r.Counters || !reflect.DeepEqual(again.Flows, r.Flows) ||
			!bytes.Equal(again.Sketchlets, r.Sketchlets) {
			t.Errorf("%v: %+v became %+v", err, r, again)
		}
		for s := range r.All {
			if b := Append(nil, s.Device(), s.Column(), s.Interval(), s.Cells(nil)); !bytes.Equal(b, s) {
				t.Errorf("% x became % x", s, b)
			}
		}
	})
}
