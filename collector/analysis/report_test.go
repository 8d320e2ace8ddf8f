// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// A decimal that is not a number makes the plugin lose the epoch: the error names list, row and
// column, and the store receives nothing, so gNMI and InfluxDB deliver nothing.
func TestDecimalsAreFinite(t *testing.T) {
	r := newRig(t, nil, "fake")
	for name, entropy := range map[string][]float64{"NaN": {1, math.NaN()}, "+Inf": {math.Inf(1)},
		"-Inf": {0, math.Inf(-1)}} {
		r.plugins["fake"].do(func(p *fakePlugin) {
			p.analyze = func(context.Context, *sdk.Epoch) (*sdk.Results, error) {
				return &sdk.Results{Tables: []sdk.TableResult{summary(entropy...)}}, nil
			}
		})
		row := []string{"src", "dst"}[len(entropy)-1]
		want := listSummaries + "[node=s1][dimension=" + row + "]: state/entropy: " + name + " is not a finite number"
		rep := r.deliver().Wait()
		if err := rep.Plugins[0].Err; !errors.Is(err, pluginhost.ErrInvalidResults) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
		if status := r.c.Status()[0]; status.Name != "fake" || !strings.Contains(status.LastError, want) {
			t.Errorf("%s: status %+v, want %q as last error", name, status, want)
		}
		if n := r.store.Size("", listSummaries); n != 0 {
			t.Errorf("%s: %d rows in the store", name, n)
		}
	}
	if !strings.Contains(r.log.String(), "plugin=fake") {
		t.Errorf("the log does not name the plugin:\n%s", r.log)
	}
}

// A plugin that hangs delays the reports, and thus the collector's own state, by at most reportLag
// epochs. Reports stay in order.
func TestReportsDoNotWaitForAHangingPlugin(t *testing.T) {
	r := newRig(t, func(c *Config) {
		for i := range c.Plugins.Instances {
			c.Plugins.Instances[i].Deadline = time.Hour
		}
	}, "fast", "slow")
	fast, slow, release := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	r.plugins["fast"].do(func(p *fakePlugin) {
		p.analyze = func(context.Context, *sdk.Epoch) (*sdk.Results, error) {
			fast <- struct{}{}
			return &sdk.Results{}, nil
		}
	})
	r.plugins["slow"].do(func(p *fakePlugin) {
		p.analyze = func(ctx context.Context, _ *sdk.Epoch) (*sdk.Results, error) {
			slow <- struct{}{}
			select {
			case <-release:
				return &sdk.Results{}, nil
			case <-ctx.Done():
				return nil, pluginhost.ErrTimeout
			}
		}
	})
	const epochs = 6
	var last *Delivery
	for number := range epochs {
		last = r.deliver()
		<-fast // the plugin has begun this epoch, so it has finished the previous one
		if number == 0 {
			<-slow // the next epoch is queued
		}
	}
	limit := time.After(time.Minute)
	for number := uint64(1); number <= epochs; number++ {
		if number == epochs-reportLag+1 {
			close(release) // the remaining reports are not due yet
		}
		var rep Report
		select {
		case rep = <-r.reports:
		case <-limit:
			t.Fatalf("no report of epoch %d", number)
		}
		want := ErrBusy
		if number <= 2 { // the plugin analyzes one epoch, and the other one is queued
			want = ErrUnfinished
		}
		if rep.Number != number || rep.Plugins[0].Name != "fast" || rep.Plugins[0].Err != nil ||
			!errors.Is(rep.Plugins[1].Err, want) {
			t.Errorf("epoch %d: plugins %+v, want %v", rep.Number, rep.Plugins, want)
		}
	}
	if rep := last.Wait(); rep.Number != epochs {
		t.Errorf("report %+v", rep)
	}
	<-slow // the queued epoch
	last = r.deliver()
	<-fast
	<-slow
	if rep := last.Wait(); rep.Plugins[1].Err != nil {
		t.Errorf("after the release: %+v", rep)
	}
}

// With an epoch, a plugin receives the late reports and late warnings of its roles and of its
// devices and hosts, and the deviation of its hosts.
func TestLateReports(t *testing.T) {
	r := newRig(t, nil, "fake")
	var got *sdk.Epoch
	r.plugins["fake"].do(func(p *fakePlugin) {
		p.analyze = func(_ context.Context, e *sdk.Epoch) (*sdk.Results, error) {
			got = e
			return &sdk.Results{}, nil
		}
	})
	reading := func(host string) *epoch.Reading {
		return &epoch.Reading{Hosts: []sdk.HostReport{{Host: host, Role: "other", Data: []byte("x")},
			{Host: host, Role: "role", Data: []byte("five")}}}
	}
	late := func(number uint64, host, role, data string) sdk.LateReport {
		return sdk.LateReport{Epoch: number, HostReport: sdk.HostReport{Host: host, Role: role, Data: []byte(data)}}
	}
	warning := func(number uint64, source string) epoch.LateWarning {
		return epoch.LateWarning{Epoch: number, AccuracyWarning: epoch.AccuracyWarning{Source: source, Reason: "late"}}
	}
	rep := r.c.Deliver(&epoch.Epoch{
		Number: 5, Start: time.Unix(5, 0), End: time.Unix(6, 0), Status: epoch.Complete,
		Sources: []epoch.Outcome{
			{Name: "h1", Sealing: epoch.SealedBySource, Reading: reading("h1"), Began: time.Unix(6, 300)},
			{Name: "h2", Sealing: epoch.SealedBySource, Reading: reading("h2"), Began: time.Unix(6, 100)},
			{Name: "h3", Sealing: epoch.SealedBySource, Reading: reading("h3")},
			{Name: "h4", Sealing: epoch.SealedBySource, Reading: reading("h4"), Began: time.Unix(6, 900)},
		},
		Late: []sdk.LateReport{late(3, "h1", "other", "x"), late(3, "h1", "role", "three"),
			late(4, "h9", "role", "four")},
		LateWarnings: []epoch.LateWarning{warning(2, "h1"), warning(3, "s9"), warning(4, "")},
	}).Wait()
	if rep.Plugins[0].Err != nil || got == nil {
		t.Fatalf("report %+v", rep)
	}
	if len(got.Late) != 1 || got.Late[0].Epoch != 3 || got.Late[0].Host != "h1" || string(got.Late[0].Data) != "three" ||
		len(got.Hosts) != 3 || string(got.Hosts[0].Data) != "five" || got.Deviation != 200 {
		t.Errorf("late %v, in time %v, deviation %v", got.Late, got.Hosts, got.Deviation)
	}
	if w := got.LateWarnings; len(got.AccuracyWarnings) > 0 || len(w) != 2 || w[0].Epoch != 2 || w[0].Device != "h1" ||
		w[1].Epoch != 4 || w[1].Reason != "late" {
		t.Errorf("late warnings %v, others %v", w, got.AccuracyWarnings)
	}
	if len(rep.Warnings) != 3 || rep.Warnings[0].Reason != "epoch 2: late" {
		t.Errorf("the report's warnings: %v", rep.Warnings)
	}
}

// An epoch's cells return to their source when all plugins have finished, but not while a plugin
// may still read them.
func TestCellsAreReleased(t *testing.T) {
	t.Parallel()
	errFailed := errors.New("failed")
	for _, test := range []struct {
		name   string
		err    error // error of one plugin
		record string
		want   int
	}{
		{"all have results", nil, "", 1},
		{"one failed", errFailed, "", 0},
		{"one records", nil, "file", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Plugins.Instances[1].Record = test.record }, "one", "two")
			released := 0
			cells := sdk.CellsOf("r", []uint32{7})
			for name, p := range r.plugins {
				p.do(func(p *fakePlugin) {
					p.analyze = func(context.Context, *sdk.Epoch) (*sdk.Results, error) {
						if cells.At(0) != 7 {
							t.Error("the cells are released before the analysis")
						}
						if name == "two" {
							return &sdk.Results{}, test.err
						}
						return &sdk.Results{}, nil
					}
				})
			}
			rep := r.c.Deliver(&epoch.Epoch{Number: 1, Start: t0, End: t0.Add(time.Second), Status: epoch.Complete,
				Sources: []epoch.Outcome{{Name: "s1", Reading: &epoch.Reading{Objects: []sdk.Cells{cells}, Release: func() {
					released++
					clear(cells.Packed)
				}}}}}).Wait()
			if released != test.want || rep.Cells != 1 {
				t.Errorf("released %d times, want %d; %d cells", released, test.want, rep.Cells)
			}
		})
	}
}
