// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"math"
	"strconv"
)

// axis maps values to pixels, and has the ticks.
type axis struct {
	lo, hi   float64
	log      bool
	from, to float64
}

func newAxis(values []float64, log bool, from, to float64) axis {
	a := axis{lo: math.Inf(1), hi: math.Inf(-1), log: log, from: from, to: to}
	for _, v := range values {
		if !log || v > 0 {
			a.lo, a.hi = min(a.lo, v), max(a.hi, v)
		}
	}
	switch {
	case math.IsInf(a.lo, 1):
		a.lo, a.hi = 0.1, 1
	case log:
		a.lo, a.hi = math.Pow(10, math.Floor(math.Log10(a.lo))), math.Pow(10, math.Ceil(math.Log10(a.hi)))
		if a.lo == a.hi {
			a.hi *= 10
		}
	case a.lo == a.hi:
		a.lo, a.hi = a.lo-1, a.hi+1
	}
	return a
}

func (a *axis) at(v float64) float64 {
	if a.log {
		v = max(v, a.lo)
		return a.from + (math.Log(v)-math.Log(a.lo))/(math.Log(a.hi)-math.Log(a.lo))*(a.to-a.from)
	}
	return a.from + (v-a.lo)/(a.hi-a.lo)*(a.to-a.from)
}

func (a *axis) ticks() (t []float64) {
	if a.log {
		step := math.Pow(10, math.Max(1, math.Ceil(math.Log10(a.hi/a.lo)/6)))
		for v := a.lo; v <= a.hi*1.0001; v *= step {
			t = append(t, v)
		}
		return t
	}
	step := math.Pow(10, math.Floor(math.Log10((a.hi-a.lo)/3)))
	for (a.hi-a.lo)/step > 7 {
		step *= 2
	}
	for v := math.Ceil(a.lo/step) * step; v <= a.hi+step/1e6; v += step {
		t = append(t, v)
	}
	return t
}

// Number writes a value as the axes do: up to six decimals, and powers of ten outside of
// what reads well.
func Number(v float64) string {
	if v != 0 && (math.Abs(v) < 0.001 || math.Abs(v) >= 1e6) {
		return strconv.FormatFloat(v, 'e', 0, 64)
	}
	return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'g', -1, 64)
}
