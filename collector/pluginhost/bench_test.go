// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// BenchmarkEpoch measures the transfer of an epoch to a plugin process and of its results back,
// with mutual TLS. The plugin sums all cells.
func BenchmarkEpoch(b *testing.B) {
	h := newHost(b, Options{})
	inst := start(b, h, "good")
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	for _, size := range []int{1, 16} {
		b.Run(fmt.Sprintf("%dMB", size), func(b *testing.B) {
			e := epoch(1, "")
			e.Devices = nil
			for d := range size {
				e.Put(fmt.Sprintf("s%02d", d), sdk.CellsOf("r", make([]uint32, 1_000_000/4)))
			}
			b.SetBytes(int64(e.Bytes()))
			for b.Loop() {
				if _, err := inst.Analyze(ctx, e); err != nil {
					b.Fatal(err)
				}
			}
			seconds := b.Elapsed().Seconds() / float64(b.N)
			b.ReportMetric(float64(e.Bytes())/(1<<20)/seconds, "MiB/s")
			b.ReportMetric(seconds*1e3, "ms/epoch")
		})
	}
}

// BenchmarkResults measures the transfer of a table with 300,000 rows from the plugin.
func BenchmarkResults(b *testing.B) {
	h := newHost(b, Options{})
	inst := start(b, h, "good")
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	e := epoch(1, "huge")
	for b.Loop() {
		if _, err := inst.Analyze(ctx, e); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(300_002*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkStart measures the time from a plugin's start until it accepts epochs, and its orderly
// end.
func BenchmarkStart(b *testing.B) {
	h := newHost(b, Options{})
	path := filepath.Join(pluginDir(b, "good"), testPrefix+"good")
	ending := time.Duration(0)
	for b.Loop() {
		inst, err := h.Start(context.Background(), Spec{Path: path})
		if err != nil {
			b.Fatal(err)
		}
		begun := time.Now()
		inst.Stop(context.Background())
		ending += time.Since(begun)
	}
	b.ReportMetric((b.Elapsed()-ending).Seconds()*1e3/float64(b.N), "ms/start")
	b.ReportMetric(ending.Seconds()*1e3/float64(b.N), "ms/stop")
}

// BenchmarkRecovery measures the time from the death of a plugin to the results of the next epoch.
func BenchmarkRecovery(b *testing.B) {
	h := newHost(b, Options{Backoff: Backoff{Base: time.Nanosecond, Max: time.Nanosecond}})
	inst := start(b, h, "good")
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	for b.Loop() {
		if err := testkit.Signal(inst.Status().PID, syscall.SIGKILL); err != nil {
			b.Fatal(err)
		}
		for lost := true; lost; { // the first epoch may still go to the dying process
			_, err := inst.Analyze(ctx, epoch(1, ""))
			lost = err != nil
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(b.N), "ms/recovery")
}
