// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"fmt"
	"math"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/universal"
)

// Function is a function g of a flow's packets x, whose sum over all flows is published:
// x^Power · log2(x)^Log for flows of From to To packets, and 0 for others; or any Go
// function (see WithFunction). A universal sketch gives the sums of functions that grow no
// faster than x² (paper, section 4.1).
type Function struct {
	Name  string  `json:"name"`
	Power float64 `json:"power"` // 0 to 2
	Log   float64 `json:"log"`   // 0 or more
	From  float64 `json:"from"`  // packets
	To    float64 `json:"to"`    // packets; 0: no bound

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

// G returns the function itself.
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

func (f Function) check() sdk.FieldErrors {
	var errs sdk.FieldErrors
	bad := func(field, format string, args ...any) {
		errs = append(errs, sdk.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if f.Name == "" || len(f.Name) > 64 {
		bad("name", "is %q; expected 1 to 64 characters", f.Name)
	}
	if !(f.Power >= 0 && f.Power <= 2) {
		bad("power", "is %v; expected 0 to 2: a sketch cannot estimate sums of functions that grow faster", f.Power)
	}
	if !(f.Log >= 0 && f.Log <= 8) {
		bad("log", "is %v; expected 0 to 8", f.Log)
	}
	if f.Power == 2 && f.Log > 0 {
		bad("log", "is %v with power 2; expected 0, as the function must not grow faster than the square", f.Log)
	}
	if !(f.From >= 0) {
		bad("from", "is %v; expected a number of packets, 0 or more", f.From)
	}
	if !(f.To == 0 || f.To >= f.From) {
		bad("to", "is %v; expected 0 (no bound) or at least from (%v)", f.To, f.From)
	}
	return errs
}
