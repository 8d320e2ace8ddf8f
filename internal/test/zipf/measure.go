// SPDX-License-Identifier: Apache-2.0

package zipf

import (
	"runtime"
	"testing"
	"time"
)

// Speed runs pass b.N times and reports the speed of the best pass in million packets a second, by
// wall clock and, if the system provides it, by the thread's processor time. On a loaded machine,
// compare the latter.
func Speed(b *testing.B, packets int, pass func()) {
	b.Helper()
	b.ReportAllocs()
	wall, cpu := best(b, pass)
	b.ReportMetric(float64(packets)/wall.Seconds()/1e6, "Mpackets/s")
	if cpu > 0 {
		b.ReportMetric(float64(packets)/cpu.Seconds()/1e6, "Mpackets/cpu-s")
	}
}

// Time runs pass b.N times and reports the processor time of the best pass in milliseconds, if the
// system provides it.
func Time(b *testing.B, pass func()) {
	b.Helper()
	if _, cpu := best(b, pass); cpu > 0 {
		b.ReportMetric(cpu.Seconds()*1e3, "cpu-ms/op")
	}
}

// best returns the times of the best of b.N passes.
func best(b *testing.B, pass func()) (wall, cpu time.Duration) {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	wall, cpu = 1<<62, 1<<62
	b.ResetTimer()
	for range b.N {
		start, used := time.Now(), ThreadTime()
		pass()
		wall, cpu = min(wall, time.Since(start)), min(cpu, ThreadTime()-used)
	}
	return wall, cpu
}
