// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	_ "embed" // the schema
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/netsketch/netsketch/plugins/lightguardian/analysis"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/sumax"
)

// configSchema is generated from Configuration.
//
//go:embed config.schema.json
var configSchema string

// Configuration is the configuration of LightGuardian; every key has a default. Another shape of
// the sketch, or other device ids, drop the columns received so far.
type Configuration struct {
	// Sketch is the shape of the switches' sketch, as compiled into their program. Another shape is
	// refused.
	Sketch Sketch `yaml:"sketch"`
	// IntervalEpochs is the number of epochs of an interval: switches send the sketch of an interval
	// in the packets of the next one.
	IntervalEpochs int `yaml:"interval-epochs" default:"1" range:"1..64"`
	// Probability is the least share of the packets without a sketchlet that get one at a switch
	// (λc).
	Probability float64 `yaml:"probability" default:"0.0625" range:"0..1"`
	// Copies is how many sketchlets a switch inserts for each of its columns in an interval: λc of
	// each switch rises above probability where fewer would be inserted. 0: λc is probability.
	Copies float64 `yaml:"copies" default:"2" range:"0..100"`
	// Chances is k of the k+chance selection, at most as compiled into the switches' program.
	Chances int `yaml:"chances" default:"4" range:"0..4"`
	// TimeUnit is the unit of times in sketches: 1us, or 2, 4, 8, … 65536 µs.
	TimeUnit time.Duration `yaml:"time-unit" default:"1us" range:"1us..65.536ms"`
	// MTU is the largest IP packet on links, in bytes.
	MTU int `yaml:"mtu" default:"1500" range:"576..65535"`
	// Devices are switches with given device ids; the plugin numbers the others.
	Devices []Device `yaml:"devices"`
	// ReportSize is the largest size of the sketchlets in a host's report of an epoch.
	ReportSize settings.Size `yaml:"report-size" default:"8MiB" range:"0..1GiB"`
	// ReportFlows is the largest number of flows in a host's report of an epoch.
	ReportFlows int `yaml:"report-flows" default:"65536" range:"0..1048576"`
	// Rules are the thresholds of faults. A threshold of 0 disables its fault.
	Rules Rules `yaml:"rules"`
	// Limits are the largest numbers of published rows.
	Limits Limits `yaml:"limits"`

	rules analysis.Rules
}

// Sketch is the shape of a switch's sketch, with the parameters of the program lightguardian.
type Sketch struct {
	// Rows is the number of rows.
	Rows int `yaml:"rows" default:"3" range:"1..4"`
	// Columns is the number of buckets of a row, a power of two.
	Columns int `yaml:"columns" default:"4096" range:"1..65536"`
	// Delays are the lowest delays of the delay ranges after the first one, 1 to 7 whole microseconds
	// in ascending order: one less than the program has ranges.
	Delays []time.Duration `yaml:"delays" default:"50us 100us 200us" range:"1us..1h" length:"1..7"`
	// Sizes is set if the program has cells of flow sizes.
	Sizes bool `yaml:"sizes" default:"true"`
	// Gaps is set if the program has cells of inter-arrival times and of the last arrival.
	Gaps bool `yaml:"gaps" default:"true"`
}

// Device is a switch and its device id.
type Device struct {
	// Name is the name of the switch; unique.
	Name string `yaml:"name" required:"the name of a switch" length:"1..253" unique:"true"`
	// ID is the device id; unique.
	ID uint16 `yaml:"id" required:"a device id from 1 to 65535" range:"1..65535" unique:"true"`
}

// Rules are the thresholds of faults (paper, section 6.2).
type Rules struct {
	// Packets is the least number of packets of a flow in an interval to be judged.
	Packets uint32 `yaml:"packets" default:"20"`
	// Slow is the lowest delay of an inflated latency, one of sketch.delays.
	Slow time.Duration `yaml:"slow" default:"200us" range:"1us..1h"`
	// SlowShare is the least share of a flow's packets with an inflated latency.
	SlowShare float64 `yaml:"slow-share" default:"0.5" range:"0..1"`
	// Drops is the least share of a flow's packets that random drops lose.
	Drops float64 `yaml:"drops" default:"0.05" range:"0..1"`
	// DropPackets is the least number of lost packets of a flow with random drops, a loop or a
	// blackhole.
	DropPackets uint32 `yaml:"drop-packets" default:"5"`
	// Blackhole is the largest share of a flow's packets that is left at a blackhole.
	Blackhole float64 `yaml:"blackhole" default:"0.05" range:"0..1"`
	// Loop is the least ratio of a flow's packets at a switch of a loop to those before it: 0, or
	// above 1.
	Loop float64 `yaml:"loop" default:"3" range:"0..1000000"`
	// Jitter is the least ratio of an abnormal maximum inter-arrival time to the inter-arrival times
	// at the switches before: 0, or above 1.
	Jitter float64 `yaml:"jitter" default:"5" range:"0..1000000"`
	// JitterTime is the least abnormal maximum inter-arrival time.
	JitterTime time.Duration `yaml:"jitter-time" default:"50ms" range:"1ns..1h"`
	// Path is the least share of a flow's packets at a switch that is not on its path.
	Path float64 `yaml:"path" default:"0.5" range:"0..1"`
}

// Limits bound the rows of lists.
type Limits struct {
	// Flows is the number of flows: those with faults, then those with the most packets.
	Flows int `yaml:"flows" default:"500" range:"0..1000000"`
	// Hops is the largest number of flows whose hops and delays are listed: the first of list flows.
	Hops int `yaml:"hops" default:"100" range:"0..1000000"`
	// Faults is the number of faults of flows at switches, divided equally among kinds of faults. What
	// a kind does not need is for the others.
	Faults int `yaml:"faults" default:"200" range:"0..1000000"`
}

// Validate returns the errors that tags cannot express, and converts the rules.
func (c *Configuration) Validate() error {
	var errs settings.KeyErrors
	s, r := &c.Sketch, &c.Rules
	if s.Columns&(s.Columns-1) != 0 {
		errs.Add("sketch.columns", "%d is not a power of two; expected 1, 2, 4, … 65536", s.Columns)
	}
	if u := c.TimeUnit / time.Microsecond; c.TimeUnit%time.Microsecond != 0 || u&(u-1) != 0 {
		errs.Add("time-unit", "%v is not a power of two in µs; expected 1us, 2us, 4us, … 65.536ms", c.TimeUnit)
	}
	for _, d := range s.Delays {
		if d%time.Microsecond != 0 {
			errs.Add("sketch.delays", "%v is not a whole number of µs", d)
		}
	}
	slow := slices.Index(s.Delays, r.Slow) + 1
	if r.SlowShare > 0 && slow == 0 {
		errs.Add("rules.slow", "%v is not a range of delays; expected one of sketch.delays, %v", r.Slow, s.Delays)
	}
	ratio := func(key string, v float64) {
		if v > 0 && v <= 1 {
			errs.Add(key, "%v is out of range; expected above 1, at most 1000000, or 0", v)
		}
	}
	ratio("rules.loop", r.Loop)
	ratio("rules.jitter", r.Jitter)
	if len(errs) == 0 {
		if _, err := s.partial(1); err != nil {
			errs.Add("sketch", "%v", err)
		}
	}
	c.rules = analysis.Rules{SlowRange: slow, SlowShare: r.SlowShare, Drops: r.Drops, DropPackets: r.DropPackets,
		Blackhole: r.Blackhole, Loop: r.Loop, Jitter: r.Jitter, JitterLeast: c.ticks(r.JitterTime)}
	return errs.Err()
}

// micros returns the lowest delays of the ranges after the first one, in µs.
func (s *Sketch) micros() []uint32 {
	out := make([]uint32, len(s.Delays))
	for i, d := range s.Delays {
		out[i] = uint32(d.Microseconds())
	}
	return out
}

// delayRange returns the lowest delay of a range, and that of the next one; 0 for the last range.
func (s *Sketch) delayRange(n int) (low, high time.Duration) {
	if n > 0 {
		low = s.Delays[n-1]
	}
	if n < len(s.Delays) {
		high = s.Delays[n]
	}
	return low, high
}

// partial returns an empty sketch for the columns of a switch with a seed.
func (s *Sketch) partial(seed uint32) (*sumax.Sketch[family.P4], error) {
	return sumax.NewPartial[family.P4](sumax.Config{Rows: s.Rows, Width: s.Columns, Ranges: s.micros(), NoSizes: !s.Sizes,
		Intervals: s.Gaps, Seed: uint64(seed)})
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

// unit returns the exponent of the unit of times: a unit is 2^unit µs.
func (c *Configuration) unit() int { return bits.Len64(uint64(c.TimeUnit.Microseconds())) - 1 }

// ticks returns a time in the unit of sketches.
func (c *Configuration) ticks(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0)>>max(c.unit(), 0), math.MaxUint32))
}

// nanoseconds returns a time of a sketch in nanoseconds.
func (c *Configuration) nanoseconds(ticks uint32) uint64 { return uint64(ticks) << c.unit() * 1000 }

// units converts a time to the unit of sketches.
func (c *Configuration) units(d time.Duration) uint32 {
	return uint32(min(uint64(d.Microseconds())>>c.unit(), math.MaxUint32))
}
