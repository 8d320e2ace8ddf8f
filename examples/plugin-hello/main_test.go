// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/record"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
	"github.com/netsketch/netsketch/settings"
)

var update = flag.Bool("update", false, "write the recording and the golden files")

var network = sdk.Network{Devices: []sdk.Device{{
	Name: "leaf1",
	Objects: []sdk.Object{
		{Name: "MyIngress.counters", Cells: 4, Width: 32, Banks: 2},
		{Name: "MyIngress.keys", Cells: 2, Width: 64, Banks: 2},
	},
}}}

func epoch(number uint64) *sdk.Epoch {
	e := sdktest.Epoch(number)
	e.Put("leaf1", sdk.CellsOf("MyIngress.counters", []uint32{0, 7, 0, 1}))
	e.Put("leaf1", sdk.CellsOf("MyIngress.keys", []uint64{1, 1 << 40}))
	return e
}

func TestFill(t *testing.T) {
	h := sdktest.Start(t, &plugin{}, sdktest.Options{Network: network})
	if n := len(h.Settings().Bindings); n != 2 {
		t.Errorf("%d arrays to read, want 2", n)
	}
	lost := &sdk.Epoch{Number: 3, Start: time.Unix(3, 0), End: time.Unix(4, 0), Status: sdk.StatusLost}
	sdktest.Golden(t, "testdata/fill.golden", *update, h.Analyze(epoch(1)), h.Analyze(epoch(2)), h.Analyze(lost))
}

// A recording holds what a plugin receives; a collector writes one with the key record. This one
// has two epochs, and gives the results that they gave.
func TestRecording(t *testing.T) {
	const path = "testdata/epochs.rec"
	if *update {
		if err := write(path); err != nil {
			t.Fatal(err)
		}
	}
	h := sdktest.Start(t, &plugin{}, sdktest.Options{Network: network})
	sdktest.Golden(t, "testdata/recording.golden", *update, h.Replay(path)...)
}

// write records two epochs.
func write(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	w, err := record.NewWriter(file)
	if err != nil {
		return err
	}
	return errors.Join(w.Configure(record.Setup{EpochLength: time.Second, Network: network}), w.Write(epoch(1)),
		w.Write(epoch(2)))
}

// The schema of the configuration is generated from the tags and comments of its struct.
func TestConfigSchema(t *testing.T) {
	sdktest.ConfigSchema(t, "config.schema.json", "Hello", configuration{})
}

func TestConfiguration(t *testing.T) {
	h := sdktest.Start(t, &plugin{}, sdktest.Options{Network: network, Config: `{"objects":"*counters"}`})
	if b := h.Settings().Bindings; len(b) != 1 || b[0].Object != "MyIngress.counters" {
		t.Errorf("arrays to read: %v", b)
	}
	if _, err := h.Configure(`{"object":"x"}`, network, 0); !errors.As(err, new(settings.KeyErrors)) {
		t.Errorf("a misspelled key: %v", err)
	}
}

// go test -bench . -benchmem
func BenchmarkAnalyze(b *testing.B) {
	h := sdktest.Start(b, &plugin{}, sdktest.Options{Network: network})
	e := epoch(1)
	for b.Loop() {
		h.Analyze(e)
	}
}
