// SPDX-License-Identifier: Apache-2.0

package query

import (
	"math"
	"slices"

	"github.com/netsketch/netsketch/sketch/flow"
)

// Volume is what a host records of a flow in an epoch, whether queries run or not.
type Volume struct {
	Key            flow.Key
	Packets, Bytes int64
}

// recorded reports whether the volumes of flows determine the tuples that hosts have of a step over
// packets: it reads the flow key, counts packets and adds up their length. counts says which values
// of the last operator, a reduce, count packets.
func (s *Step) recorded() (counts []bool, ok bool) {
	defined, distinct := map[string]*Expression{}, false
	for _, f := range packetFields {
		defined[f.Name] = &Expression{Field: f.Name, kind: f.Type}
	}
	operators := s.AtHosts()
	for _, o := range operators {
		switch o.Kind {
		case Filter:
			if !ofKey(substitute(o.Condition, defined)) {
				return nil, false
			}
		case Reduce:
			for _, k := range o.Keys {
				if !ofKey(defined[k.Text]) {
					return nil, false
				}
			}
			for _, c := range o.Columns {
				one := c.Expression == nil
				if !one {
					e := substitute(c.Expression, defined)
					if one = e.Constant != nil; c.Function != "sum" || !one && (e.Operation != "" || e.Field != "length") {
						return nil, false
					}
				}
				counts = append(counts, one && !distinct)
			}
		default:
			next := map[string]*Expression{}
			for _, c := range o.Columns {
				e := substitute(c.Expression, defined)
				if e.Operation != "" || o.Kind == Distinct && !ofKey(e) {
					return nil, false
				}
				next[c.Name.Text] = e
			}
			defined, distinct = next, distinct || o.Kind == Distinct
		}
	}
	return counts, distinct || counts != nil
}

// ofKey reports whether an expression reads the flow key alone.
func ofKey(e *Expression) bool {
	if e.Operation == "" {
		return e.Constant != nil ||
			slices.ContainsFunc(packetFields[:keyFields], func(f Field) bool { return f.Name == e.Field })
	}
	return ofKey(e.Left) && (e.Right == nil || ofKey(e.Right))
}

// Recorded reports whether the volumes of flows determine all that hosts would return for the plan,
// so that hosts need not run it.
func (p *Plan) Recorded() bool {
	some := false
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Source == "packets" {
			if _, ok := s.recorded(); !ok {
				return false
			}
			some = true
		}
	}
	return some
}

// OfVolumes returns the tuples that all hosts together would return for each step over packets of a
// plan that is Recorded.
func (p *Plan) OfVolumes(volumes []Volume) map[string][]Tuple {
	parts := map[string][]Tuple{}
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Source != "packets" {
			continue
		}
		l := s.Start(math.MaxInt)
		l.counts, _ = s.recorded()
		for _, v := range volumes {
			if v.Packets > 0 {
				l.packets = v.Packets
				l.Add(v.tuple())
			}
		}
		parts[s.Name], _, _ = l.Result()
	}
	return parts
}

// tuple returns one packet that stands for all packets of the flow: its length is the sum of
// theirs.
func (v *Volume) tuple() Tuple {
	t := make(Tuple, len(packetFields))
	for i, f := range packetFields {
		t[i].Type = f.Type
	}
	t[0].Address, t[1].Address = v.Key.SrcAddr(), v.Key.DstAddr()
	for i, n := range []int64{int64(v.Key.Proto), int64(v.Key.SrcPort), int64(v.Key.DstPort), v.Bytes} {
		t[2+i].Int = n
	}
	return t
}
