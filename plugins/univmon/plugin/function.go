// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"math"

	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/sketch/universal"
)

// Function is a function g of a flow's packets x, whose sum over all flows is published:
// x^Power · log2(x)^Log for flows of From to To packets, and 0 for others; or any Go
// function (see WithFunction). A universal sketch gives the sums of functions that grow no
// faster than x² (paper, section 4.1).
type Function struct {
	// Name is the function's name in results; unique.
	Name string `yaml:"name" required:"the name of the function" length:"1..64" unique:"true"`
	// Power is the exponent of the flow's packets: a sketch cannot estimate sums of functions that
	// grow faster than their square.
	Power float64 `yaml:"power" default:"0" range:"0..2"`
	// Log is the exponent of the logarithm of the flow's packets. It must be 0 with power 2.
	Log float64 `yaml:"log" default:"0" range:"0..8"`
	// From is the least number of packets of a flow that counts.
	From float64 `yaml:"from" default:"0" range:"0.."`
	// To is the largest number of packets of a flow that counts. If 0, there is no bound.
	To float64 `yaml:"to" default:"0" range:"0.."`

	g universal.G
}

// WithFunction registers a function of a flow's packets, such as
//
//	analysis.New(analysis.WithFunction("elephants", func(x float64) float64 {
//		if x < 10_000 {
//			return 0
//		}
//		return x
//	}))
func WithFunction(name string, g universal.G) Option {
	return func(p *Plugin) { p.functions = append(p.functions, Function{Name: name, g: g}) }
}

// G returns the function.
func (f Function) G() universal.G {
	if f.g != nil {
		return f.g
	}
	return func(x float64) float64 {
		if x < f.From || (f.To > 0 && x > f.To) || x <= 0 {
			return 0
		}
		return math.Pow(x, f.Power) * math.Pow(max(math.Log2(x), 0), f.Log)
	}
}

// guaranteed reports whether a sketch guarantees the error of the function's sum: the function is 0
// without packets, never decreases, and grows no faster than the square (paper, section 4.1). A
// function with an upper bound decreases there. A registered function is tried with sizes up to
// 2^30 packets.
func (f Function) guaranteed() bool {
	if f.g == nil {
		return f.To == 0
	}
	last, lastRatio := f.g(0), math.Inf(1)
	if last != 0 {
		return false
	}
	for x := 1.0; x < 1<<30; x = math.Ceil(x * 1.01) {
		y := f.g(x)
		if !(y >= last) {
			return false
		}
		last = y
	}
	for x := 1024.0; x < 1<<30; x *= 2 {
		ratio := f.g(x) / (x * x)
		if ratio > 1.001*lastRatio {
			return false
		}
		lastRatio = ratio
	}
	return true
}

// check adds the errors that tags cannot express; path is the path of the function's keys.
func (f Function) check(path string, errs *settings.KeyErrors) {
	if f.Power == 2 && f.Log > 0 {
		errs.Add(path+"log", "%v with power 2 grows faster than the square, so a sketch cannot estimate the sum; expected 0",
			f.Log)
	}
	if f.To != 0 && f.To < f.From {
		errs.Add(path+"to", "%v is out of range; expected 0 (no bound) or at least from, %v", f.To, f.From)
	}
}
