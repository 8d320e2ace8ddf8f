// SPDX-License-Identifier: Apache-2.0

package softswitch_test

import (
	"errors"
	"testing"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/meter"
)

// TestExecute follows a meter of packets packet by packet: both buckets start full, fill at their
// rates up to their bursts, and a packet takes no tokens of the lower rate if the peak rate is
// exceeded.
func TestExecute(t *testing.T) {
	var m meter.Meter
	if c := m.Execute(0, 100); c != meter.Green {
		t.Errorf("without configuration: color %d", c)
	}
	m.Configure(&control.MeterConfig{CIR: 10, CBurst: 1, PIR: 20, PBurst: 3}, time.Second)
	for i, step := range []struct {
		after time.Duration // the configuration
		color int
	}{
		{0, meter.Green}, {0, meter.Yellow}, {0, meter.Yellow}, {0, meter.Red}, // 1 and 3 tokens
		{50 * time.Millisecond, meter.Yellow}, // one token of the peak rate, half a token of the committed rate
		{100 * time.Millisecond, meter.Green}, // one of each
		{40 * time.Millisecond, meter.Red},    // out of order: nothing fills
		{10 * time.Second, meter.Green},       // both buckets are full again
		{10 * time.Second, meter.Yellow},      // 1 token of the burst was there
		{10 * time.Second, meter.Yellow},
		{10 * time.Second, meter.Red},
	} {
		if c := m.Execute(time.Second+step.after, 100); c != step.color {
			t.Errorf("packet %d, %v after the configuration: color %d, want %d", i, step.after, c, step.color)
		}
	}
	if got, want := m.Counts(), (control.Colors{{Packets: 4, Bytes: 400}, {Packets: 5, Bytes: 500},
		{Packets: 3, Bytes: 300}}); got != want {
		t.Errorf("counts %v, want %v", got, want)
	}
	m.SetCounts(control.Colors{})
	if c := m.Counts(); c != (control.Colors{}) {
		t.Errorf("counts %v after a reset", c)
	}
	m.Configure(nil, 0)
	if c := m.Execute(0, 100); c != meter.Green || m.Config() != nil {
		t.Errorf("configuration removed: color %d, %v", c, m.Config())
	}
}

func TestExecuteBytes(t *testing.T) {
	m := meter.Meter{Unit: control.MeterBytes}
	m.Configure(&control.MeterConfig{CIR: 1e6, CBurst: 150, PIR: 2e6, PBurst: 300}, 0)
	for i, step := range []struct {
		at           time.Duration
		bytes, color int
	}{
		{0, 100, meter.Green}, {0, 100, meter.Yellow}, {0, 101, meter.Red}, {0, 50, meter.Green},
		{100 * time.Microsecond, 200, meter.Yellow}, // of 250 tokens of the peak rate and 100 of the committed rate
		{100 * time.Microsecond, 100, meter.Red},
		{100 * time.Microsecond, 50, meter.Green},
	} {
		if c := m.Execute(step.at, step.bytes); c != step.color {
			t.Errorf("packet %d: color %d, want %d", i, c, step.color)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		cfg *control.MeterConfig
		ok  bool
	}{
		{nil, true},
		{&control.MeterConfig{}, true},
		{&control.MeterConfig{CIR: 5, PIR: 5, PBurst: 1}, true},
		{&control.MeterConfig{CIR: 6, PIR: 5, PBurst: 1}, false},
		{&control.MeterConfig{PIR: 5}, false},
	} {
		if err := meter.Check("meter", tc.cfg); (err == nil) != tc.ok || err != nil && !errors.Is(err, control.ErrInvalid) {
			t.Errorf("%+v: %v", tc.cfg, err)
		}
	}
}
