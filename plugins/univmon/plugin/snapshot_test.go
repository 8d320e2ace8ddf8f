// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// configured returns a plugin that was configured for the network leafSpine, after it has restored
// a state if there is one.
func configured(t *testing.T, config string, state sdk.State) *Plugin {
	t.Helper()
	p := New()
	if state.Data != nil {
		if err := p.RestoreState(state); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Configure(t.Context(), sdk.Config{JSON: []byte(config)}, leafSpine()); err != nil {
		t.Fatal(err)
	}
	return p
}

// traffic is an epoch of background traffic and of a few flows that change from epoch to epoch.
func traffic(t *testing.T, number uint64, absent ...string) *sdk.Epoch {
	t.Helper()
	f := newFabric(t, "leaf1", "leaf2", "spine1")
	f.background(t)
	for i := range uint16(8) {
		f.send(key(t, fmt.Sprint("10.9.0.", i+1), "10.2.0.1", 2000+i), 100*int((uint64(i)+number)%7))
	}
	return f.epoch(number, absent...)
}

// A plugin that is killed between any two epochs gives the same results as one that keeps running,
// heavy changes included.
func TestRestart(t *testing.T) {
	for _, config := range []string{`{}`, `{"switches": false}`,
		`{"network": {"enabled": false}, "dimensions": ["src"]}`} {
		a, b := configured(t, config, sdk.State{}), configured(t, config, sdk.State{})
		changes := 0
		for number := uint64(1); number <= 6; number++ {
			var absent []string
			if number == 3 {
				absent = []string{"spine1"}
			}
			e := traffic(t, number, absent...)
			want, err := a.Analyze(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			got, err := b.Analyze(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			for _, table := range want.Tables {
				if diff := cmp.Diff(rows(want, table.Table.List), rows(got, table.Table.List)); diff != "" {
					t.Errorf("%s: epoch %d, %s (-running +restarted):\n%s", config, number, table.Table.List, diff)
				}
			}
			changes += len(rows(got, changeList))
			state, err := b.SaveState()
			if err != nil {
				t.Fatal(err)
			}
			b = configured(t, config, state)
		}
		if changes < 10 {
			t.Errorf("%s: %d changes: the test compares too little", config, changes)
		}
	}
}

// The first epoch after a restart of the collector is compared with the saved one, although epochs
// between them were not measured.
func TestRestartWithAGap(t *testing.T) {
	for gap, want := range map[uint64]bool{1: true, 3: true, maxGap: true, maxGap + 1: false} {
		p := configured(t, `{}`, sdk.State{})
		if _, err := p.Analyze(t.Context(), traffic(t, 1)); err != nil {
			t.Fatal(err)
		}
		state, err := p.SaveState()
		if err != nil {
			t.Fatal(err)
		}
		results, err := configured(t, `{}`, state).Analyze(t.Context(), traffic(t, 1+gap))
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows(results, summaryList) {
			if got := row["state/changes"] != ""; got != want {
				t.Errorf("gap of %d epochs: %s of %s has changes %q", gap, row["dimension"], row["node"],
					row["state/changes"])
			}
		}
	}
}

// A state that is too large for all sketches contains those that fit; after a lost epoch, it
// contains no sketches.
func TestStateIsBounded(t *testing.T) {
	p := configured(t, `{}`, sdk.State{})
	if state, err := p.SaveState(); err != nil || state.Data != nil {
		t.Errorf("before the first epoch: %d bytes, %v", len(state.Data), err)
	}
	if _, err := p.Analyze(t.Context(), traffic(t, 1)); err != nil {
		t.Fatal(err)
	}
	whole, err := p.save(sdk.MaxState)
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for _, limit := range []int{0, len(whole.Data) / 2, 3 * len(whole.Data) / 4, len(whole.Data)} {
		state, err := p.save(limit)
		if err != nil || len(state.Data) > limit {
			t.Fatalf("%d bytes, %v; want at most %d", len(state.Data), err, limit)
		}
		if limit == 0 {
			continue
		}
		restored, err := readSnapshot(state.Data)
		if err != nil || len(restored) <= last {
			t.Errorf("%d sketches in %d bytes, %d in fewer: %v", len(restored), limit, last, err)
		}
		last = len(restored)
	}
	if last != 6 {
		t.Errorf("%d sketches, want 6", last)
	}
	if _, err := p.Analyze(t.Context(), traffic(t, 2, "leaf1", "leaf2", "spine1")); err != nil {
		t.Fatal(err)
	}
	if state, err := p.SaveState(); err != nil || state.Data != nil {
		t.Errorf("after a lost epoch: %d bytes, %v", len(state.Data), err)
	}
}

// A state that is damaged is refused as a whole.
func TestBadStates(t *testing.T) {
	p := configured(t, `{}`, sdk.State{})
	if _, err := p.Analyze(context.Background(), traffic(t, 1)); err != nil {
		t.Fatal(err)
	}
	good, err := p.SaveState()
	if err != nil {
		t.Fatal(err)
	}
	head := int(binary.BigEndian.Uint32(good.Data))
	edit := func(old, new string) []byte {
		text := strings.Replace(string(good.Data[4:4+head]), old, new, 1)
		if text == string(good.Data[4:4+head]) {
			t.Fatalf("no %q in %s", old, text)
		}
		return slices.Concat(binary.BigEndian.AppendUint32(nil, uint32(len(text))), []byte(text), good.Data[4+head:])
	}
	for name, data := range map[string][]byte{
		"empty":         {},
		"short":         {0, 0, 0, 9, 1},
		"not JSON":      {0, 0, 0, 1, '{'},
		"cut off":       good.Data[:len(good.Data)-1],
		"too long":      append(slices.Clone(good.Data), 0),
		"layout":        edit(`"Rows":3`, `"Rows":0`),
		"large layout":  edit(`"Columns":512`, `"Columns":16000000`),
		"other layout":  edit(`"Columns":512`, `"Columns":511`),
		"negative size": edit(`"Bytes":`, `"Bytes":-`),
		"large size":    edit(`"Bytes":`, `"Bytes":9999`),
	} {
		q := New()
		if err := q.RestoreState(sdk.State{Epoch: 5, Version: stateVersion, Data: data}); err == nil ||
			!strings.Contains(err.Error(), "state after epoch 5: not a state of this plugin") || len(q.measured) > 0 {
			t.Errorf("%s: error %v, %d sketches", name, err, len(q.measured))
		}
	}
	good.Version++
	if err := New().RestoreState(good); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("another version: %v", err)
	}
}

func BenchmarkSaveState(b *testing.B) {
	p := New()
	f := newFabric(b, "leaf1", "leaf2", "spine1")
	f.background(b)
	if _, err := p.Configure(b.Context(), sdk.Config{}, leafSpine()); err != nil {
		b.Fatal(err)
	}
	if _, err := p.Analyze(b.Context(), f.epoch(1)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		state, err := p.SaveState()
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(state.Data)))
	}
}
