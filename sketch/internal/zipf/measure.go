// SPDX-License-Identifier: Apache-2.0

package zipf

import (
	"testing"
	"time"
)

// Speed runs pass b.N times and reports the mean speed and that of the best pass, in
// million packets a second. On a machine with other work the best is what to compare.
func Speed(b *testing.B, packets int, pass func()) {
	b.Helper()
	b.ReportAllocs()
	best := time.Duration(1 << 62)
	b.ResetTimer()
	for range b.N {
		start := time.Now()
		pass()
		best = min(best, time.Since(start))
	}
	b.ReportMetric(float64(b.N)*float64(packets)/b.Elapsed().Seconds()/1e6, "Mpackets/s")
	b.ReportMetric(float64(packets)/best.Seconds()/1e6, "best-Mpackets/s")
}
