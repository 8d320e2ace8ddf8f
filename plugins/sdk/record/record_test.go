// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/plugins/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var header = Header{
	Config: []byte(`{"k":16}`), EpochLength: time.Second,
	Network: sdk.Network{Version: 3, Devices: []sdk.Device{{
		Name: "leaf1", Role: "edge", Program: "univmon", Labels: map[string]string{"rack": "7"},
		Objects: []sdk.Object{{Name: "c.cells", Alias: "cells", Cells: 8, Width: 32, Banks: 2, Annotations: map[string]string{"rows": "2"}}},
		Ports:   []sdk.Port{{Number: 1, Name: "eth1", SpeedBPS: 1e10}},
	}}, Hosts: []sdk.Host{{Name: "h1", Addresses: []string{"10.0.0.1"}, Agent: true}},
		Links: []sdk.Link{{A: sdk.Endpoint{Node: "leaf1", Port: 1}, B: sdk.Endpoint{Node: "h1"}, CapacityBPS: 1e9}}},
}

func epochs() []*sdk.Epoch {
	watch := func(flow string) sdk.Watch {
		return sdk.Watch{List: "/m:a/b", Keys: map[string]string{"flow": flow}}
	}
	var all []*sdk.Epoch
	for n := range 3 {
		e := &sdk.Epoch{
			Number: uint64(n), Start: time.Unix(int64(n), 0).UTC(), End: time.Unix(int64(n+1), 0).UTC(),
			Status: sdk.StatusPartial, Expected: []string{"leaf1", "leaf2"}, Missing: []sdk.Missing{{Name: "leaf2", Reason: "no answer"}},
			Hosts:   []sdk.HostReport{{Host: "h1", Role: "omni", Data: []byte("report")}},
			Watched: [][]sdk.Watch{nil, {watch("a"), watch("b")}, {watch("b")}}[n],
		}
		large := make([]uint32, 600_000)
		for i := range large {
			large[i] = uint32(i * n)
		}
		e.Put("leaf1", sdk.CellsOf("c.large", large))
		e.Put("leaf1", sdk.CellsOf("c.bytes", []uint8{1, 2, 3}))
		e.Put("leaf0", sdk.CellsOf("c.empty", []uint64{}))
		all = append(all, e)
	}
	return all
}

func recording(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, header)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range epochs() {
		if err := w.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	plain := recording(t)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"plain": plain, "gzip": packed.Bytes()} {
		r, err := NewReader(bytes.NewReader(content))
		if err != nil {
			t.Fatal(name, err)
		}
		if diff := cmp.Diff(header, r.Header()); diff != "" {
			t.Errorf("%s: header: %s", name, diff)
		}
		for _, want := range epochs() {
			got, err := r.Next()
			if err != nil {
				t.Fatal(name, err)
			}
			if len(want.Devices[0].Objects[0].Packed) == 0 {
				want.Devices[0].Objects[0].Packed = nil
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(bytes.Equal)); diff != "" {
				t.Errorf("%s: epoch %d: %.2000s", name, want.Number, diff)
			}
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: at the end: %v", name, err)
		}
	}
}

func TestCutOff(t *testing.T) {
	content := recording(t)
	for _, keep := range []int{len(content) - 1, len(content) - 100, len(content) / 2, 1500} {
		r, err := NewReader(bytes.NewReader(content[:keep]))
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut to %d of %d bytes: %v", keep, len(content), err)
		}
	}
	for _, bad := range []string{"", "netsketch", "something else entirely, longer than the line"} {
		if _, err := NewReader(bytes.NewReader([]byte(bad))); err == nil {
			t.Errorf("%q is taken for a recording", bad)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(recording(f)[:2000])
	var b bytes.Buffer
	w, err := NewWriter(&b, header)
	if err != nil {
		f.Fatal(err)
	}
	e := epochs()[1]
	e.Devices = e.Devices[:1]
	if err := w.Write(e); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, content []byte) {
		r, err := NewReader(bytes.NewReader(content))
		for err == nil {
			_, err = r.Next()
		}
	})
}
