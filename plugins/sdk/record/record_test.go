// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var setup = Setup{
	Config: []byte(`{"k":16}`), EpochLength: time.Second,
	State: &sdk.State{Epoch: 7, Version: 2, Data: []byte("state")},
	Network: sdk.Network{Version: 3, Devices: []sdk.Device{{
		Name: "leaf1", Role: "edge", Program: "univmon",
		Objects: []sdk.Object{{Name: "c.cells", Alias: "cells", Cells: 8, Width: 32, Banks: 2,
			Annotations: sdk.Annotations{"structure": {"rows": "2"}}}},
		Ports: []sdk.Port{{Number: 1, Name: "eth1"}},
	}}, Hosts: []sdk.Host{{Name: "h1", Addresses: []string{"10.0.0.1"}, Agent: true}},
		Links: []sdk.Link{{A: sdk.Endpoint{Node: "leaf1", Port: 1}, B: sdk.Endpoint{Node: "h1"}, CapacityBPS: 1e9}}},
}

// changed returns the setup from epoch 2 on.
func changed() Setup {
	s := setup
	s.Config, s.Network.Version, s.State = []byte(`{"k":17}`), 4, nil
	return s
}

func epochs() []*sdk.Epoch {
	watch := func(flow string) sdk.RowKey {
		return sdk.RowKey{List: "/m:a/b", Keys: map[string]string{"flow": flow}}
	}
	var all []*sdk.Epoch
	for n := range 3 {
		e := &sdk.Epoch{
			Number: uint64(n), Start: time.Unix(int64(n), 0).UTC(), End: time.Unix(int64(n+1), 0).UTC(),
			Status: sdk.StatusPartial, Expected: []string{"leaf1", "leaf2"},
			Missing: []sdk.Missing{{Name: "leaf2", Reason: "no answer"}},
			Hosts:   []sdk.HostReport{{Host: "h1", Role: "omni", Data: []byte("report")}},
			Watched: [][]sdk.RowKey{nil, {watch("a"), watch("b")}, {watch("b")}}[n],
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
	w, err := NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Configure(setup); err != nil {
		t.Fatal(err)
	}
	for _, e := range epochs() {
		if e.Number == 2 {
			if err := w.Configure(changed()); err != nil {
				t.Fatal(err)
			}
		}
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
		for _, want := range epochs() {
			got, with, err := r.Next()
			if err != nil {
				t.Fatal(name, err)
			}
			if diff := cmp.Diff(map[uint64]*Setup{0: &setup, 2: new(changed())}[want.Number], with); diff != "" {
				t.Errorf("%s: setup of epoch %d: %s", name, want.Number, diff)
			}
			if len(want.Devices[0].Objects[0].Packed) == 0 {
				want.Devices[0].Objects[0].Packed = nil
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(bytes.Equal)); diff != "" {
				t.Errorf("%s: epoch %d: %.2000s", name, want.Number, diff)
			}
		}
		if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: at the end: %v", name, err)
		}
	}
}

func TestCutOff(t *testing.T) {
	content := recording(t)
	for _, keep := range []int{len(content) - 1, len(content) - 100, len(content) / 2, 1500} {
		r, err := NewReader(bytes.NewReader(content[:keep]))
		for err == nil {
			_, _, err = r.Next()
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, ErrDamaged) {
			t.Errorf("cut to %d of %d bytes: %v", keep, len(content), err)
		}
	}
	for _, bad := range []string{"", "netsketch", "something else entirely, longer than the line"} {
		if _, err := NewReader(bytes.NewReader([]byte(bad))); !errors.Is(err, ErrDamaged) {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}

// TestCorrupt reads entries that can be decoded but do not form a valid recording.
func TestCorrupt(t *testing.T) {
	run := func(m *pluginv1.RunRequest) *pluginv1.RecordEntry {
		return &pluginv1.RecordEntry{Entry: &pluginv1.RecordEntry_Run{Run: m}}
	}
	configure := &pluginv1.RecordEntry{Entry: &pluginv1.RecordEntry_Configure{Configure: &pluginv1.ConfigureRequest{}}}
	begin := run(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Begin{Begin: &pluginv1.EpochBegin{Epoch: 4,
		EndUnixNs: 1}}})
	end := run(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_End{End: &pluginv1.EpochEnd{Epoch: 4,
		Status: pluginv1.EpochStatus_EPOCH_STATUS_COMPLETE}}})
	other := run(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_End{End: &pluginv1.EpochEnd{Epoch: 5,
		Status: pluginv1.EpochStatus_EPOCH_STATUS_COMPLETE}}})
	for _, tt := range []struct {
		name, want string
		entries    []*pluginv1.RecordEntry
	}{
		{"no configuration", "no configuration", []*pluginv1.RecordEntry{begin, end}},
		{"configuration within an epoch", "within an epoch", []*pluginv1.RecordEntry{configure, begin, configure, end}},
		{"empty entry", "unknown kind", []*pluginv1.RecordEntry{configure, {}, begin, end}},
		{"end of another epoch", "after 1 whole epochs", []*pluginv1.RecordEntry{configure, begin, end, begin, other}},
		{"end without a beginning", "not open", []*pluginv1.RecordEntry{configure, end}},
	} {
		b := bytes.NewBufferString(magic)
		w := Writer{out: b}
		for _, e := range tt.entries {
			if err := w.put(e); err != nil {
				t.Fatal(err)
			}
		}
		r, err := NewReader(b)
		for err == nil {
			_, _, err = r.Next()
		}
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
	content := recording(t)
	for at := len(magic); at < len(content); at += 1 + len(content)/50 {
		flipped := bytes.Clone(content)
		flipped[at] ^= 0x10
		r, err := NewReader(bytes.NewReader(flipped))
		for err == nil {
			_, _, err = r.Next()
		}
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("a changed byte at %d of %d: error %v", at, len(content), err)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(recording(f)[:2000])
	var b bytes.Buffer
	w, err := NewWriter(&b)
	if err != nil {
		f.Fatal(err)
	}
	if err := w.Configure(setup); err != nil {
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
			_, _, err = r.Next()
		}
	})
}
