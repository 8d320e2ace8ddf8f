// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Victims are flows that lose packets on the way.
type Victims struct {
	// Share is the share of the flows that are victims, 0 to 1. Victims are taken from the flows
	// between hosts of different sites.
	Share float64 `yaml:"share"`
	// Loss is the probability with which each of their packets is lost, 0 to 1; every victim loses
	// one at least.
	Loss float64 `yaml:"loss"`
}

// Change changes a set of flows from a point in time.
type Change struct {
	// From is the time of the change, a multiple of the period.
	From time.Duration `yaml:"from"`
	// Flows is the number of flows from then on; 0: unchanged.
	Flows int `yaml:"flows"`
	// Victims are the victims from then on; nil: unchanged.
	Victims *Victims `yaml:"victims"`
}

// Exact describes flows that each send exactly their number of packets in every period, mixed with
// the packets of the other flows. A flow and its size do not depend on the number of flows.
type Exact struct {
	Generated               // Rate and Zipf are not used; From and Until are multiples of the period
	Period    time.Duration // usually the length of an epoch
	Scale     float64       // factor for sizes drawn from CDF; 0: 1. Without CDF, the size of every flow
	Most      int           // largest size in packets; 0: no limit
	Fresh     bool          // whether every period has other flows
	Victims   Victims
	Changes   []Change // changes in the order of their times
}

// GenerateExact returns the packets that x describes between the hosts. The error names the invalid
// field.
func GenerateExact(x Exact, hosts []Host) (Source, error) {
	x.Rate = 1 // has no effect here
	if x.Bytes == 0 {
		x.Bytes = 128
	}
	if x.Scale == 0 {
		x.Scale = 1
	}
	if err := x.check(len(hosts)); err != nil {
		return nil, err
	}
	if err := x.checkExact(); err != nil {
		return nil, err
	}
	x.CDF = slices.Clone(x.CDF)
	for i := range x.CDF {
		x.CDF[i].Packets *= x.Scale
	}
	return &exact{x: x, hosts: hosts, now: x.From - x.Period, rng: rand.New(rand.NewPCG(x.Seed, 0x6578616374))}, nil
}

func (x *Exact) checkExact() error {
	bad := func(field, format string, args ...any) error {
		return fmt.Errorf("traffic: %s: %s: %s", x.Name, field, fmt.Sprintf(format, args...))
	}
	share := func(field string, v float64) error {
		if v >= 0 && v <= 1 {
			return nil
		}
		return bad(field, "%v; a share is 0 to 1", v)
	}
	switch {
	case x.Period <= 0:
		return bad("period", "%v; it must be above 0", x.Period)
	case x.From%x.Period != 0 || x.Until%x.Period != 0:
		return bad("from, until", "%v and %v must be multiples of the period, %v", x.From, x.Until, x.Period)
	case !(x.Scale > 0 && x.Scale <= 1e6):
		return bad("scale", "%v; it must be above 0, at most a million", x.Scale)
	case x.Most < 0:
		return bad("max-packets", "%d; it must be 0 or more", x.Most)
	}
	errs := []error{share("victims.share", x.Victims.Share), share("victims.loss", x.Victims.Loss)}
	at := x.From - 1
	for i, c := range x.Changes {
		field := fmt.Sprintf("changes[%d]", i)
		switch {
		case c.From <= at || (c.From-x.From)%x.Period != 0:
			errs = append(errs, bad(field, "from %v must be after the previous change and a multiple of the period, %v",
				c.From, x.Period))
		case c.Flows < 0 || c.Flows > MaxFlows:
			errs = append(errs, bad(field, "flows: %d; it must be 1 to %d, or 0 for as many as before", c.Flows,
				MaxFlows))
		case c.Victims != nil:
			errs = append(errs, share(field+".victims.share", c.Victims.Share),
				share(field+".victims.loss", c.Victims.Loss))
		}
		at = c.From
	}
	return errors.Join(errs...)
}

// exact is the source: period by period.
type exact struct {
	x      Exact
	hosts  []Host
	rng    *rand.Rand // random numbers that differ by period
	now    time.Duration
	made   []exactFlow // flows of generation gen
	gen    uint64      // generation of flows; with x.Fresh every period has new flows
	victim []bool      // for each flow in made, whether it is a victim
	chosen Victims     // the victims of the slice victim
	total  int         // packets in this period
	next   int         // next index of order
	order  []int32     // flows in the order of their packets
	left   []int32     // packets that a flow has not sent in this period
	lose   []int32     // number of lost packets of each flow
}

type exactFlow struct {
	genFlow
	size    int32
	far     bool    // whether the flow's hosts are at different sites
	fortune float64 // random; the flows with the lowest values are victims
}

// Next returns the next packet.
func (s *exact) Next() (Packet, error) {
	for s.next == len(s.order) {
		if err := s.begin(); err != nil {
			return Packet{}, err
		}
	}
	i := s.order[s.next]
	at := s.now + time.Duration((float64(s.next)+0.5)/float64(s.total)*float64(s.x.Period))
	s.next++
	f := &s.made[i]
	p := Packet{At: at, Host: f.host, Frame: f.frame}
	if lose := s.lose[i]; lose > 0 && s.rng.IntN(int(s.left[i])) < int(lose) {
		s.lose[i]--
		p.Doomed = uint8(1 + s.rng.IntN(2)) // every path between two sites has at least two links
	}
	s.left[i]--
	return p, nil
}

// begin prepares the next period.
func (s *exact) begin() error {
	s.now += s.x.Period
	if s.x.Until != 0 && s.now >= s.x.Until {
		s.now -= s.x.Period
		return io.EOF
	}
	flows, victims := s.x.Flows, s.x.Victims
	for _, c := range s.x.Changes {
		if c.From > s.now {
			break
		}
		if c.Flows > 0 {
			flows = c.Flows
		}
		if c.Victims != nil {
			victims = *c.Victims
		}
	}
	if s.x.Fresh {
		s.gen++
		s.made = s.made[:0]
	}
	if err := s.make(flows); err != nil {
		return err
	}
	if s.x.Fresh || victims.Share != s.chosen.Share || len(s.victim) != flows {
		s.choose(victims)
	}
	s.chosen = victims
	s.deal(victims.Loss)
	return nil
}

// make creates or removes flows until there are n.
func (s *exact) make(n int) error {
	if len(s.made) > n {
		s.made = s.made[:n]
	}
	for i := len(s.made); i < n; i++ {
		// Each flow has its own generator, so a flow does not depend on other flows.
		rng := rand.New(rand.NewPCG(s.x.Seed+s.gen*0x9e3779b97f4a7c15, uint64(i)))
		g, to, err := s.x.flow(rng, s.hosts)
		if err != nil {
			return err
		}
		f := exactFlow{genFlow: g, far: s.hosts[g.host].Site != s.hosts[to].Site}
		f.size = s.size(rng.Float64())
		f.fortune = rng.Float64()
		s.made = append(s.made, f)
	}
	return nil
}

func (s *exact) size(share float64) int32 {
	size := uint32(math.Ceil(s.x.Scale))
	if s.x.CDF != nil {
		size = Size(s.x.CDF, share) // scaled already
	}
	if s.x.Most > 0 {
		size = min(size, uint32(s.x.Most))
	}
	return int32(min(max(size, 1), math.MaxInt32/2))
}

// choose selects the share of the flows with the least fortune as victims.
func (s *exact) choose(v Victims) {
	s.victim = make([]bool, len(s.made))
	var far []int
	for i := range s.made {
		if s.made[i].far {
			far = append(far, i)
		}
	}
	slices.SortFunc(far, func(a, b int) int {
		switch {
		case s.made[a].fortune < s.made[b].fortune:
			return -1
		case s.made[a].fortune > s.made[b].fortune:
			return 1
		}
		return a - b
	})
	n := int(math.Round(v.Share * float64(len(s.made))))
	for _, i := range far[:min(n, len(far))] {
		s.victim[i] = true
	}
}

// deal mixes the packets of a period and sets the losses of each victim.
func (s *exact) deal(loss float64) {
	s.order, s.next = s.order[:0], 0
	s.left = slices.Grow(s.left[:0], len(s.made))[:len(s.made)]
	s.lose = slices.Grow(s.lose[:0], len(s.made))[:len(s.made)]
	for i := range s.made {
		size := s.made[i].size
		s.left[i], s.lose[i] = size, 0
		for range size {
			s.order = append(s.order, int32(i))
		}
		if !s.victim[i] {
			continue
		}
		for range size {
			if s.rng.Float64() < loss {
				s.lose[i]++
			}
		}
		s.lose[i] = max(s.lose[i], 1)
	}
	s.total = len(s.order)
	s.rng.Shuffle(s.total, func(a, b int) { s.order[a], s.order[b] = s.order[b], s.order[a] })
}
