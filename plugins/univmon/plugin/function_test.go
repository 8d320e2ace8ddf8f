// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
	"github.com/netsketch/netsketch/settings"
)

// TestGuaranteed: a sum has a guaranteed error only if its function is one of those of section 4.1
// of the paper.
func TestGuaranteed(t *testing.T) {
	registered := func(g func(float64) float64) Function { return Function{g: g} }
	for name, tc := range map[string]struct {
		f    Function
		want bool
	}{
		"flows":                {Function{}, true},
		"x^1.5":                {Function{Power: 1.5}, true},
		"x log x":              {Function{Power: 1, Log: 1}, true},
		"elephants":            {Function{From: 1000, Power: 1}, true},
		"mice":                 {Function{From: 1, To: 10}, false},
		"registered":           {registered(math.Sqrt), true},
		"square":               {registered(func(x float64) float64 { return x * x }), true},
		"cube":                 {registered(func(x float64) float64 { return x * x * x }), false},
		"square and logarithm": {registered(func(x float64) float64 { return x * x * math.Log2(x+1) }), false},
		"registered mice": {registered(func(x float64) float64 {
			if x > 0 && x <= 100_000 {
				return 1
			}
			return 0
		}), false},
		"negative":          {registered(func(x float64) float64 { return -x }), false},
		"not 0 without any": {registered(func(x float64) float64 { return x + 1 }), false},
		"not a number":      {registered(func(x float64) float64 { return math.Log(x - 2) }), false},
	} {
		if got := tc.f.guaranteed(); got != tc.want {
			t.Errorf("%s: guaranteed %v", name, got)
		}
	}
}

// TestLeast: a threshold is a share of the packets, or of what a link carries in an epoch (paper,
// section 7.1). By default it is 0.5 %, and 1 % of a total change.
func TestLeast(t *testing.T) {
	defaults := settings.Default[Configuration]()
	if share := defaults.HeavyChanges.Share; share != 0.01 {
		t.Errorf("heavy changes are %v of the total change", share)
	}
	for _, tc := range []struct {
		t    Threshold
		want float64
	}{
		{defaults.HeavyHitters, 50},
		{Threshold{Share: 0.005}, 50}, {Threshold{Share: 0.005, Packets: 80}, 80}, {Threshold{Share: 1e-9}, 1},
		{Threshold{Share: 0.0005, Capacity: 1e6}, 1000}, {Threshold{Share: 0.0005, Capacity: 1e6, Packets: 2000}, 2000},
	} {
		if got := tc.t.Least(10_000, 2*time.Second); got != tc.want {
			t.Errorf("%+v: %v packets, want %v", tc.t, got, tc.want)
		}
	}
}

// TestFunctionErrors: a sum has its standard error. It is absent, with the reason, where the error
// is too large or the function is not a number.
func TestFunctionErrors(t *testing.T) {
	r := flood(t, 1, 2000, 0)
	r.scope = scope{Network, "src"}
	out, err := functionTable([]Function{
		{Name: "flows"},
		{Name: "few", From: 3, To: 3},
		{Name: "undefined", g: func(x float64) float64 { return math.Sqrt(1 - 2*x) }},
	}, []*result{r})
	if err != nil {
		t.Fatal(err)
	}
	rows := sdktest.RowsOf(out)
	flows := rows["network src flows"]
	value, known := flows["value"].(float64)
	spread, _ := flows["value-error"].(float64)
	if !known || math.Abs(value-2000) > 3*spread || spread < 10 || spread > 200 || flows["problem"] != nil {
		t.Errorf("flows: %v", flows)
	}
	for name, want := range map[string]string{"few": "above 20 %", "undefined": "not a number"} {
		row := rows["network src "+name]
		if row["value"] != nil || row["value-error"] != nil || !strings.Contains(fmt.Sprint(row["problem"]), want) {
			t.Errorf("%s: %v, want a problem with %q", name, row, want)
		}
	}
}
