// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"

	"github.com/netsketch/netsketch/plugins/sdk"
)

//go:embed config.schema.json
var configSchema string

// Configuration is the configuration of the plugin. config.schema.json describes its JSON form.
type Configuration struct {
	// HeavyHitters are flows of at least Packets packets and Share of all.
	HeavyHitters Threshold `json:"heavyHitters"`
	// HeavyChanges are flows that changed by more than Packets from one epoch to the next.
	HeavyChanges Change `json:"heavyChanges"`
	// Victims bounds the rows of flows that lost packets.
	Victims Limit `json:"victims"`
	// Iterations of MRAC, the estimator of the distribution.
	Iterations int `json:"iterations"`
	// Division is the division of the IPv4 encoders where section 4.3 fixes it.
	Division Division `json:"division"`
	// Start is the initial attention. Without Control it never changes.
	Start Start `json:"start"`
	// HostPorts are ports, by switch, at which packets enter and leave, in addition to
	// the hosts of the network model: routers outside the measured network.
	HostPorts map[string][]uint32 `json:"hostPorts"`
	// Control enables plans. Without it the attention stays as Start sets it.
	Control bool `json:"control"`
	// Literal makes the control follow the paper's rules (section 4.3) without the changes that
	// docs/chamelemon.md lists, for comparison.
	Literal bool `json:"literal"`
}

// Threshold defines heavy hitters: both conditions must hold.
type Threshold struct {
	Share   float64 `json:"share"`
	Packets uint64  `json:"packets"`
	Limit   int     `json:"limit"` // maximum rows per device
}

// Change defines heavy changes.
type Change struct {
	Packets uint64 `json:"packets"`
	Limit   int    `json:"limit"` // maximum rows per device
}

// Limit bounds rows.
type Limit struct {
	Limit int `json:"limit"`
}

// Division is in buckets per array; 0: the paper's share of the downstream encoders.
type Division struct {
	Reserve int `json:"reserve"` // minimum of HL while healthy; default a sixth
	IllHL   int `json:"illHL"`   // HL while ill; default five sixths
	IllLL   int `json:"illLL"`   // LL while ill; default a sixth
}

// Start is an attention. Flows of at least High packets are heavy-hitter (HH) candidates, others of
// at least Low packets heavy (HL) candidates for victim flows; of the remaining light (LL)
// candidates the share Sample, 0 to 1, is encoded. A Low above 1 is for an ill network.
type Start struct {
	High   int     `json:"high"`
	Low    int     `json:"low"`
	Sample float64 `json:"sample"`
}

// DefaultConfiguration returns the defaults.
func DefaultConfiguration() Configuration {
	return Configuration{
		HeavyHitters: Threshold{Share: 0.001, Packets: 100, Limit: 1000},
		HeavyChanges: Change{Packets: 100, Limit: 1000},
		Victims:      Limit{Limit: 20_000},
		Start:        Start{High: 1, Low: 1, Sample: 1},
		Iterations:   8, Control: true,
	}
}

// check returns all errors of the configuration, by field.
func (c *Configuration) check() sdk.FieldErrors {
	var errs sdk.FieldErrors
	bad := func(field, format string, args ...any) {
		errs = append(errs, sdk.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if !(c.HeavyHitters.Share >= 0 && c.HeavyHitters.Share <= 1) {
		bad("heavyHitters.share", "is %v; expected a part of the whole, 0 to 1", c.HeavyHitters.Share)
	}
	for _, l := range []struct {
		field string
		n     int
	}{{"heavyHitters.limit", c.HeavyHitters.Limit}, {"heavyChanges.limit", c.HeavyChanges.Limit},
		{"victims.limit", c.Victims.Limit}} {
		if l.n < 1 {
			bad(l.field, "is %d; expected 1 or more rows", l.n)
		}
	}
	if c.Iterations < 1 || c.Iterations > 100 {
		bad("iterations", "is %d; expected 1 to 100", c.Iterations)
	}
	switch st := c.Start; {
	case st.Low < 1 || st.Low > maxThreshold:
		bad("start.low", "is %d packets; expected 1 to %d", st.Low, maxThreshold)
	case st.High < 1 || st.High > maxThreshold:
		bad("start.high", "is %d packets; expected 1 to %d", st.High, maxThreshold)
	case st.Low > st.High:
		bad("start.low", "is %d packets, above start.high, %d: thresholds are in the order 1 <= low <= high", st.Low,
			st.High)
	case !(st.Sample > 0 && st.Sample <= 1):
		bad("start.sample", "is %v; expected a part of the whole above 0, at most 1", st.Sample)
	}
	d := c.Division
	for field, n := range map[string]int{"reserve": d.Reserve, "illHL": d.IllHL, "illLL": d.IllLL} {
		if n < 0 {
			bad("division."+field, "is %d; expected buckets an array, 0 for the default", n)
		}
	}
	for _, device := range slices.Sorted(maps.Keys(c.HostPorts)) {
		for _, p := range c.HostPorts[device] {
			if p > 511 {
				bad("hostPorts."+device, "port %d; the pipeline has ports 0 to 511", p)
			}
		}
	}
	return errs
}
