// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	_ "embed" // the schema
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/netsketch/netsketch/plugins/lightguardian/analysis"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/sumax"
)

//go:embed config.schema.json
var configSchema string

// Configuration is the configuration of the plugin. config.schema.json describes its JSON form.
type Configuration struct {
	// Sketch is the shape of the switches' sketch, which their compiled program determines.
	Sketch Sketch `json:"sketch"`
	// Interval is the count of epochs of an interval.
	Interval int `json:"interval"`
	// Probability is the share of packets without a sketchlet that get one (λc), 0 to 1.
	Probability float64 `json:"probability"`
	// Chances is k of the k+chance selection.
	Chances int `json:"chances"`
	// Unit is the exponent of the unit of times in sketches: 2^Unit µs.
	Unit int `json:"unit"`
	// MTU is the largest IP packet on links, in bytes.
	MTU int `json:"mtu"`
	// Devices have given device ids; the plugin numbers the others.
	Devices []Device `json:"devices"`
	// ReportBytes bounds the bytes of sketchlets in a host's report, ReportFlows its flows.
	ReportBytes int `json:"reportBytes"`
	ReportFlows int `json:"reportFlows"`
	// Rules are the thresholds of faults.
	Rules Rules `json:"rules"`
	// Limits bound the published rows.
	Limits Limits `json:"limits"`

	rules analysis.Rules
}

// Sketch is the shape of a switch's sketch, with the parameters of the program lightguardian.
type Sketch struct {
	Rows    int `json:"rows"`
	Columns int `json:"columns"`
	// Delays are the lowest delays of the ranges after the first one, in µs.
	Delays []uint32 `json:"delays"`
	Sizes  bool     `json:"sizes"`
	Gaps   bool     `json:"gaps"`
}

// Device is a switch and its device id.
type Device struct {
	Name string `json:"name"`
	ID   uint16 `json:"id"`
}

// Rules are the thresholds of faults (paper, section 6.2). A threshold of 0 disables its fault.
type Rules struct {
	// Packets is the least number of packets of a flow in an interval to be judged.
	Packets uint32 `json:"packets"`
	// Slow is the lowest delay of an inflated latency in µs, one of Sketch.Delays, and SlowShare the
	// least share of a flow's packets with it.
	Slow      uint32  `json:"slow"`
	SlowShare float64 `json:"slowShare"`
	// Drops is the least share of a flow's packets that random drops lose, DropPackets the least
	// number of lost packets of a flow with drops, a loop or a blackhole.
	Drops       float64 `json:"drops"`
	DropPackets uint32  `json:"dropPackets"`
	// Blackhole is the largest share of a flow's packets that is left at a blackhole.
	Blackhole float64 `json:"blackhole"`
	// Loop is the least ratio of a flow's packets at a switch of a loop to those before it.
	Loop float64 `json:"loop"`
	// Jitter is the least ratio of an abnormal maximum inter-arrival time to that of the switches
	// before, and JitterTime the least such time.
	Jitter     float64 `json:"jitter"`
	JitterTime string  `json:"jitterTime"`
	// Path is the least share of a flow's packets at a switch that is not on its path.
	Path float64 `json:"path"`
}

// Limits bound the rows of lists.
type Limits struct {
	Flows  int `json:"flows"`  // flows with faults, then those with the most packets
	Faults int `json:"faults"` // faults of flows at switches
}

// DefaultConfiguration returns the defaults; the sketch has the compiled program's shape.
func DefaultConfiguration() Configuration {
	return Configuration{
		Sketch:   Sketch{Rows: 3, Columns: 4096, Delays: []uint32{50, 100, 200}, Sizes: true, Gaps: true},
		Interval: 1, Probability: 1. / 16, Chances: 4, MTU: 1500, ReportBytes: 8 << 20, ReportFlows: 1 << 16,
		Rules: Rules{Packets: 20, Slow: 200, SlowShare: 0.5, Drops: 0.05, DropPackets: 5, Blackhole: 0.05, Loop: 3,
			Jitter: 5, JitterTime: "50ms", Path: 0.5},
		Limits: Limits{Flows: 1000, Faults: 1000},
	}
}

// Bounds of the configuration.
const (
	maxColumns     = 1 << 16
	maxRows        = 4
	maxRanges      = 8
	maxUnit        = 16
	maxReportBytes = 1 << 30
	maxReportFlows = 1 << 20
	maxLimit       = 1_000_000
)

// check returns all errors of the configuration, by field, and parses it.
func (c *Configuration) check() sdk.FieldErrors {
	var errs sdk.FieldErrors
	bad := func(field, format string, args ...any) {
		errs = append(errs, sdk.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	between := func(field string, n, low, high int) {
		if n < low || n > high {
			bad(field, "is %d; expected %d to %d", n, low, high)
		}
	}
	share := func(field string, v float64) {
		if !(v >= 0 && v <= 1) {
			bad(field, "is %v; expected a share, 0 to 1", v)
		}
	}
	ratio := func(field string, v float64) {
		if v != 0 && !(v > 1 && v <= 1e6) {
			bad(field, "is %v; expected a ratio above 1 and at most 1000000, or 0", v)
		}
	}
	c.checkSketch(bad, between)
	between("interval", c.Interval, 1, sdk.MaxBankEpochs)
	share("probability", c.Probability)
	between("chances", c.Chances, 0, 4)
	between("unit", c.Unit, 0, maxUnit)
	between("mtu", c.MTU, 576, 65_535)
	between("reportBytes", c.ReportBytes, 0, maxReportBytes)
	between("reportFlows", c.ReportFlows, 0, maxReportFlows)
	between("limits.flows", c.Limits.Flows, 0, maxLimit)
	between("limits.faults", c.Limits.Faults, 0, maxLimit)
	r := &c.Rules
	share("rules.slowShare", r.SlowShare)
	share("rules.drops", r.Drops)
	share("rules.blackhole", r.Blackhole)
	share("rules.path", r.Path)
	ratio("rules.loop", r.Loop)
	ratio("rules.jitter", r.Jitter)
	least, err := time.ParseDuration(r.JitterTime)
	if err != nil || least <= 0 || least > time.Hour {
		bad("rules.jitterTime", "is %q; expected a duration such as 50ms, at most 1h", r.JitterTime)
	}
	slow := slices.Index(c.Sketch.Delays, r.Slow) + 1
	if r.SlowShare > 0 && slow == 0 {
		bad("rules.slow", "is %d µs; expected one of sketch.delays, %v", r.Slow, c.Sketch.Delays)
	}
	ids, names := map[uint16]bool{}, map[string]bool{}
	for i, d := range c.Devices {
		switch field := fmt.Sprintf("devices.%d", i); {
		case d.Name == "" || len(d.Name) > 253:
			bad(field+".name", "has %d bytes; expected 1 to 253", len(d.Name))
		case names[d.Name]:
			bad(field+".name", "%q is given twice", d.Name)
		case d.ID < 1:
			bad(field+".id", "is 0; expected 1 to 65535")
		case ids[d.ID]:
			bad(field+".id", "%d is given twice", d.ID)
		}
		ids[d.ID], names[d.Name] = true, true
	}
	c.rules = analysis.Rules{SlowRange: slow, SlowShare: r.SlowShare, Drops: r.Drops, DropPackets: r.DropPackets,
		Blackhole: r.Blackhole, Loop: r.Loop, Jitter: r.Jitter, JitterLeast: c.ticks(least)}
	return errs
}

func (c *Configuration) checkSketch(bad func(field, format string, args ...any), between func(string, int, int, int)) {
	s := &c.Sketch
	between("sketch.rows", s.Rows, 1, maxRows)
	if s.Columns < 1 || s.Columns > maxColumns || s.Columns&(s.Columns-1) != 0 {
		bad("sketch.columns", "is %d; expected a power of two, at most %d", s.Columns, maxColumns)
		return
	}
	if n := len(s.Delays) + 1; n < 2 || n > maxRanges {
		bad("sketch.delays", "has %d limits; expected 1 to %d", n-1, maxRanges-1)
		return
	}
	if _, err := s.partial(); err != nil {
		bad("sketch", "%v", err)
	}
}

// partial returns an empty sketch for the columns of a switch.
func (s *Sketch) partial() (*sumax.Sketch[family.P4], error) {
	return sumax.NewPartial[family.P4](sumax.Config{Rows: s.Rows, Width: s.Columns, Ranges: s.Delays, NoSizes: !s.Sizes,
		Intervals: s.Gaps})
}

// words returns the count of cells of a sketchlet.
func (s *Sketch) words() int {
	n := len(s.Delays) + 1
	if s.Sizes {
		n++
	}
	if s.Gaps {
		n += 2
	}
	return s.Rows * n
}

// ticks returns a time in the unit of sketches.
func (c *Configuration) ticks(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0)>>max(c.Unit, 0), math.MaxUint32))
}

// nanoseconds returns a time of a sketch in nanoseconds.
func (c *Configuration) nanoseconds(ticks uint32) uint64 { return uint64(ticks) << c.Unit * 1000 }
