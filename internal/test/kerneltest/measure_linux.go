// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kerneltest

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Rounds returns the number of rounds of a benchmark that compares setups: the value of
// NETSKETCH_ROUNDS, or 7.
func Rounds(tb testing.TB) int {
	tb.Helper()
	rounds := 7
	if text := os.Getenv("NETSKETCH_ROUNDS"); text != "" {
		if _, err := fmt.Sscan(text, &rounds); err != nil {
			tb.Fatalf("NETSKETCH_ROUNDS: %v", err)
		}
	}
	return rounds
}

// ProcessorTime returns the processor time that f uses, in seconds.
func ProcessorTime(f func()) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() time.Duration {
		var t unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // cannot fail
		return time.Duration(t.Nano())
	}
	before := now()
	f()
	return (now() - before).Seconds()
}

// Median returns the median of values, the upper one of two.
func Median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// Ratios divides the rate of each round by the rate of base in the same round, and returns the
// median, the least and the greatest ratio.
func Ratios(rates, base []float64) (middle, least, most float64) {
	var r []float64
	for i := range rates {
		r = append(r, rates[i]/base[i])
	}
	return Median(r), slices.Min(r), slices.Max(r)
}
