// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"slices"
	"testing"
	"time"

	"github.com/netsketch/netsketch/lab/scenario"
)

// BenchmarkEpochToUpdate measures the time from the end of an epoch to the first gNMI update at a
// subscriber, and the parts of this time as the collector measures them: six switches with 1 MB of
// UnivMon each, on the wall clock. One operation is one epoch of 500 ms.
func BenchmarkEpochToUpdate(b *testing.B) {
	s, err := scenario.Default()
	if err != nil {
		b.Fatal(err)
	}
	s.Epoch, s.Epochs, s.Expect, s.Faults = 500*time.Millisecond, max(b.N, 4), nil, nil
	r := playWith(b, s, scenario.Options{})
	median := func(part func(scenario.Stages) int64) float64 {
		var all []int64
		for _, e := range r.Epochs {
			all = append(all, part(e.Stages))
		}
		slices.Sort(all)
		return float64(all[len(all)/2]) / 1e6
	}
	b.ReportMetric(float64(r.Latency.MedianNS)/1e6, "ms-to-update")
	b.ReportMetric(median(func(s scenario.Stages) int64 { return s.FlipNS }), "ms-flip")
	b.ReportMetric(median(func(s scenario.Stages) int64 { return s.WaitNS }), "ms-wait")
	b.ReportMetric(median(func(s scenario.Stages) int64 { return s.ReadNS }), "ms-read-out")
	b.ReportMetric(median(func(s scenario.Stages) int64 { return s.PluginNS }), "ms-plugin")
	b.ReportMetric(median(func(s scenario.Stages) int64 { return s.PublishNS }), "ms-publish")
}
