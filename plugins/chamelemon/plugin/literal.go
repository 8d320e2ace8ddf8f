// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"maps"
	"math"
	"slices"

	"github.com/netsketch/netsketch/sketch/estimate"
)

// literal computes the attention of epoch N + 2 by the rules of sections 4.3.1 and 4.3.2 of the
// paper alone. The paper has one Th; here Tl starts at the lowest one of all switches. Families
// share the thresholds.
func literal(now Attention, m *measured, room *[families]Room) (next Attention, reasons []string) {
	l := literalRules{now: &now, next: now, m: m, room: room}
	l.next.Th = maps.Clone(now.Th)
	if l.hittersDecoded() && m.deltas {
		if now.State == Healthy {
			l.healthy()
			l.hittersLast()
		} else if l.lightDecoded() {
			l.ill()
			l.hittersLast()
		}
	}
	s := shifter{next: l.next}
	s.order()
	return s.next, l.reasons
}

type literalRules struct {
	now     *Attention
	next    Attention
	m       *measured
	room    *[families]Room
	reasons []string
}

func (l *literalRules) addReason(reason string) { l.reasons = append(l.reasons, reason) }

// required is the size of a part that holds flows at the target load, in buckets per array.
func required(flows float64) int { return int(math.Ceil(flows / targetLoad / arrays)) }

// threshold returns the lowest Th at which the flows of at least Th packets fill the HH parts of a
// switch to the target load. The flows are divided among the families as the HH candidates are.
func (l *literalRules) threshold(e *edgeState) uint32 {
	total := e.hitters[0].flows + e.hitters[1].flows
	limit := math.Inf(1)
	for f := range families {
		if e.hitters[f].flows > 0 {
			limit = min(limit, targetLoad*buckets(l.next.hitters(f, l.room))*total/e.hitters[f].flows)
		}
	}
	return smallest(e.sizes().AtLeast, limit, 1)
}

// hittersDecoded is step 1: it raises Th of the switches whose HH parts were not decoded.
func (l *literalRules) hittersDecoded() bool {
	ok := true
	for _, name := range slices.Sorted(maps.Keys(l.m.edges)) {
		if e := l.m.edges[name]; !e.hitters[0].decoded || !e.hitters[1].decoded {
			ok = false
			l.next.Th[name] = max(l.threshold(e), l.now.Th[name]+1)
			l.addReason("HH part of " + name + " was not decoded: Th goes up")
		}
	}
	return ok
}

// healthy is step 2 of section 4.3.1.
func (l *literalRules) healthy() {
	for f := range families {
		hl, p := l.m.hl[f], &l.next.Parts[f]
		switch {
		case !hl.decoded && required(hl.flows) > l.room[f].Down:
			l.becomeIll()
			return
		case !hl.decoded:
			p.HL = max(required(hl.flows), l.room[f].Reserve)
			l.addReason("HL part was not decoded: it grows")
		case hl.flows < lowLoad*buckets(p.HL) && p.HL > l.room[f].Reserve:
			p.HL = max(required(hl.flows), l.room[f].Reserve)
			l.addReason("HL part is filled below 60 %: it shrinks")
		}
	}
}

func (l *literalRules) becomeIll() {
	l.addReason("the downstream encoders cannot hold all victims: the network is ill")
	l.next.State, l.next.Tl, l.next.Sample = Ill, maxThreshold, Sampled
	for _, th := range l.now.Th {
		l.next.Tl = max(min(l.next.Tl, th), 2)
	}
	for f := range families {
		l.next.Parts[f] = Parts{LL: l.room[f].IllLL, HL: l.room[f].IllHL}
		if n := l.m.hl[f].flows; n > 0 {
			l.next.Sample = min(l.next.Sample, rate(Sampled*targetLoad*buckets(l.room[f].IllLL)/n))
		}
	}
}

// lightDecoded is the second half of step 1 of section 4.3.2: it adapts the sample rate if an
// LL part was not decoded.
func (l *literalRules) lightDecoded() bool {
	if l.m.ll[0].decoded && l.m.ll[1].decoded {
		return true
	}
	l.sample()
	l.addReason("LL part was not decoded: the sample rate changes")
	return false
}

// sample sets the sample rate for the target load of the LL parts.
func (l *literalRules) sample() {
	to := float64(Sampled)
	for f := range families {
		if n := l.m.ll[f].flows; n > 0 {
			to = min(to, float64(l.now.Sample)*targetLoad*buckets(l.now.Parts[f].LL)/n)
		}
	}
	l.next.Sample = rate(to)
}

// ill is steps 2 and 3 of section 4.3.2. The victim flows are estimated by the sampled ones:
// the LLs, and the HLs that are in the same sample.
func (l *literalRules) ill() {
	heavyDecoded := l.m.hl[0].decoded && l.m.hl[1].decoded
	fits, low, light := true, true, true
	tl := uint32(2)
	for f := range families {
		var sizes, weights []float64
		for _, v := range l.m.victims {
			if v.family == f && v.sampled && (heavyDecoded || !v.heavy) {
				sizes, weights = append(sizes, v.size), append(weights, Sampled/float64(l.now.Sample))
			}
		}
		victims := estimate.NewTail(sizes, weights)
		fits = fits && required(victims.AtLeast(1)) <= l.room[f].Down
		low = low && l.m.hl[f].flows < lowLoad*buckets(l.now.Parts[f].HL)
		light = light && l.m.ll[f].flows < lowLoad*buckets(l.now.Parts[f].LL)
		tl = max(tl, smallest(victims.AtLeast, targetLoad*buckets(l.now.Parts[f].HL), 2))
		if fits {
			l.next.Parts[f].HL = max(required(victims.AtLeast(1)), l.room[f].Reserve)
		}
	}
	switch {
	case heavyDecoded && fits:
		l.addReason("the downstream encoders can hold all victims: the network is healthy")
		l.next.State, l.next.Tl, l.next.Sample = Healthy, 1, 0
		for f := range families {
			l.next.Parts[f].LL = 0
		}
		return
	case !heavyDecoded:
		l.next.Tl = max(tl, l.now.Tl+1)
		l.addReason("HL part was not decoded: Tl goes up")
	case low:
		l.next.Tl = tl
		l.addReason("HL part is filled below 60 %: Tl changes")
	}
	l.next.Parts = l.now.Parts
	if heavyDecoded && light {
		l.sample()
		l.addReason("LL part is filled below 60 %: the sample rate goes up")
	}
}

// hittersLast is the last step of both states: it sets Th of the switches whose HH part is filled
// below 60 % or above 70 %.
func (l *literalRules) hittersLast() {
	for _, name := range slices.Sorted(maps.Keys(l.m.edges)) {
		e := l.m.edges[name]
		low, high := true, false
		for f := range families {
			load := e.hitters[f].flows / max(buckets(l.next.hitters(f, l.room)), 1)
			low, high = low && load < lowLoad, high || load > targetLoad
		}
		if high || low && l.now.Th[name] > 1 {
			l.next.Th[name] = l.threshold(e)
			l.addReason("HH part of " + name + " returns to the target load: Th changes")
		}
	}
}
