// SPDX-License-Identifier: Apache-2.0

package attention

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// Sweep is a figure of the paper that shows attention over a changing network.
type Sweep struct {
	Figure   int
	Workload string
	Victims  bool // the x axis is the ratio of victims, with 50,000 flows; otherwise the flows, with 10 % victims
}

// Sweeps returns the paper's sweeps: Figures 7 and 8 (§5.2) and 14 to 19 (Appendix E).
func Sweeps() []Sweep {
	return []Sweep{
		{7, "DCTCP", false}, {8, "DCTCP", true}, {14, "CACHE", false}, {15, "CACHE", true},
		{16, "VL2", false}, {17, "VL2", true}, {18, "HADOOP", false}, {19, "HADOOP", true},
	}
}

// Place is a point of the x axis.
type Place struct {
	Flows  int
	Victim float64 // share of the flows that lose packets
}

// Places are the points of the sweep's x axis.
func (s Sweep) Places() (out []Place) {
	for i := 1; i <= 10; i++ {
		if s.Victims {
			out = append(out, Place{50_000, 0.025 * float64(i)})
		} else {
			out = append(out, Place{10_000 * i, 0.1})
		}
	}
	return out
}

// X returns the value of a place on the x axis: flows, or victims in percent.
func (s Sweep) X(p Place) float64 {
	if s.Victims {
		return math.Round(1000*p.Victim) / 10
	}
	return float64(p.Flows)
}

// Options describe how to play a sweep.
type Options struct {
	Plugin  func() sdk.Plugin // makes a plugin without state
	Seeds   []uint64
	Settle  int // epochs for the plugin to settle; 0 means 20
	Measure int // number of measured epochs after that; 0 means 4
	// configuration is the plugin's configuration.
	configuration string
}

// loss is the share of a victim's packets that is lost.
const loss = 0.01

// configuration publishes all victims: the evaluation compares each of them.
const configuration = `{"victims": {"limit": 1000000}}`

func (o *Options) complete() {
	if o.Settle == 0 {
		o.Settle = 20
	}
	if o.Measure == 0 {
		o.Measure = 4
	}
	if o.configuration == "" {
		o.configuration = configuration
	}
}

// Sample is a measured epoch.
type Sample struct {
	Sweep
	Place
	Seed uint64
	chamelemon.Played
	Judgment
}

// Run plays a sweep at the given places, or at all of them if none is given. Each place and seed
// has a new network, which settles and is then measured for some epochs. Every epoch has new flows.
func (s Sweep) Run(ctx context.Context, o Options, places ...Place) ([]Sample, error) {
	o.complete()
	sizes, err := traffic.Workload(s.Workload)
	if err != nil {
		return nil, err
	}
	if len(places) == 0 {
		places = s.Places()
	}
	found := make([][]Sample, len(places)*len(o.Seeds))
	err = suite.Each(ctx, len(found), func(i int) error {
		p, seed := places[i/len(o.Seeds)], o.Seeds[i%len(o.Seeds)]
		samples, err := s.point(ctx, &o, sizes, p, seed)
		if err != nil {
			return fmt.Errorf("figure %d, %d flows, %.3f victims, seed %d: %w", s.Figure, p.Flows, p.Victim, seed, err)
		}
		found[i] = samples
		return nil
	})
	if err != nil {
		return nil, err
	}
	return slices.Concat(found...), nil
}

func (s Sweep) point(ctx context.Context, o *Options, sizes []traffic.SizePoint, p Place,
	seed uint64,
) ([]Sample, error) {
	// Every point has its own seed, independent of the other points.
	d, err := chamelemon.Start(ctx, chamelemon.Config{Seed: seed<<32 ^ uint64(s.Figure)<<24 ^ uint64(s.X(p)*10)},
		o.Plugin(), o.configuration)
	if err != nil {
		return nil, err
	}
	var out []Sample
	for i := range o.Settle + o.Measure {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		flows := d.Testbed.Flows(chamelemon.Traffic{Sizes: sizes, Flows: p.Flows, Victims: p.Victim, Loss: loss})
		played, err := d.Play(ctx, flows)
		if err != nil {
			return nil, err
		}
		if i >= o.Settle {
			judgment, err := Judge(flows, played)
			if err != nil {
				return nil, err
			}
			x := Sample{s, p, seed, *played, judgment}
			x.Results = nil
			out = append(out, x)
		}
	}
	return out, nil
}

// Point summarizes the epochs of a place.
type Point struct {
	Place
	X       float64
	Epochs  int
	Ill     float64 // share of the epochs that the plugin measured as ill
	Decoded float64 // share of the epochs in which everything was decoded
	Exact   float64 // share of the epochs in which every victim was published with its exact loss
	// Mean is over the decoded epochs, or over all epochs if none was decoded.
	Mean chamelemon.Measured
	// Scores of heavy victims in all decoded epochs; Heavy is the number of victims that HeavyF1
	// scores.
	HeavyF1, RecordedF1 float64
	Heavy               int
	Estimate            float64       // largest error of the estimated number of victims in the decoded epochs
	Response, Longest   time.Duration // median and longest of all epochs
}

// State is the state of most epochs.
func (p *Point) State() string {
	if p.Ill > 0.5 {
		return "ill"
	}
	return "healthy"
}

// means are the values of which Point.Mean has the mean.
var means = []func(*chamelemon.Measured) *float64{
	func(m *chamelemon.Measured) *float64 { return &m.Tl }, func(m *chamelemon.Measured) *float64 { return &m.Th },
	func(m *chamelemon.Measured) *float64 { return &m.Sample },
	func(m *chamelemon.Measured) *float64 { return &m.Victims },
	func(m *chamelemon.Measured) *float64 { return &m.BucketsHH },
	func(m *chamelemon.Measured) *float64 { return &m.BucketsHL },
	func(m *chamelemon.Measured) *float64 { return &m.BucketsLL },
	func(m *chamelemon.Measured) *float64 { return &m.HH }, func(m *chamelemon.Measured) *float64 { return &m.HL },
	func(m *chamelemon.Measured) *float64 { return &m.LL },
	func(m *chamelemon.Measured) *float64 { return &m.LoadHH },
	func(m *chamelemon.Measured) *float64 { return &m.LoadHL },
	func(m *chamelemon.Measured) *float64 { return &m.LoadLL },
}

// Summarize makes the points of one sweep, in the order of its axis.
func Summarize(samples []Sample) []Point {
	byPlace := make(map[Place][]Sample)
	for _, x := range samples {
		byPlace[x.Place] = append(byPlace[x.Place], x)
	}
	out := make([]Point, 0, len(byPlace))
	for place, group := range byPlace {
		out = append(out, summarize(place, group))
	}
	slices.SortFunc(out, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
	return out
}

func summarize(place Place, group []Sample) Point {
	p := Point{Place: place, X: group[0].X(place), Epochs: len(group), Estimate: 1}
	decoded := make([]*Sample, 0, len(group))
	times := make([]time.Duration, 0, len(group))
	count := func(to *float64, is bool) {
		if is {
			*to += 1 / float64(len(group))
		}
	}
	for i := range group {
		x := &group[i]
		count(&p.Ill, x.State == "ill")
		count(&p.Decoded, x.Decoded)
		count(&p.Exact, x.Exact)
		times = append(times, x.Response)
		if x.Decoded {
			decoded = append(decoded, x)
		}
	}
	var heavy, recorded Score
	for _, x := range decoded {
		heavy.Add(x.HeavyVictims)
		recorded.Add(x.Recorded)
		if math.Abs(x.Estimate-1) > math.Abs(p.Estimate-1) {
			p.Estimate = x.Estimate
		}
	}
	p.HeavyF1, p.RecordedF1, p.Heavy = heavy.F1(), recorded.F1(), heavy.Hits+heavy.Missed
	if len(decoded) == 0 {
		for i := range group {
			decoded = append(decoded, &group[i])
		}
	}
	for _, x := range decoded {
		for _, of := range means {
			*of(&p.Mean) += *of(x.Measured) / float64(len(decoded))
		}
	}
	slices.Sort(times)
	p.Response, p.Longest = times[len(times)/2], times[len(times)-1]
	return p
}
