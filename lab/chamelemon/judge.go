// SPDX-License-Identifier: Apache-2.0

package chamelemon

import "strconv"

// Judgement holds what was told of lost packets against the truth.
type Judgement struct {
	Victims int  // flows that lost packets
	Exact   bool // each of them told, as exact, with the number of its lost packets, and no other flow
	False   int  // victims told that lost nothing, or told as exact with a wrong number, or with more than were lost
	Missed  int  // victims that are not told
	// Estimate is the published number of victims, for each that there is; 0 when none was published.
	Estimate float64
	// Recorded is of heavy losers as the paper has them: flows that lost a packet while the
	// classifier held them for HL or HH candidates, against those told as heavy losers.
	Recorded Score
	// HeavyLosers is of flows that lost at least Tl packets, against those told with that many:
	// of flows that are not in the sample, packets that were lost before the Tl-th are not told.
	HeavyLosers Score
}

// Judge compares an epoch's victims with what happened to its flows.
func Judge(flows []Flow, p *Played) Judgement {
	type told struct {
		lost  int64
		exact bool
		heavy bool
	}
	victims := make(map[string]told)
	for _, v := range Rows(p.Results, victimList) {
		n, _ := strconv.ParseInt(v["lost-packets"], 10, 64) // a leaf of an unsigned number
		victims[v["flow"]] = told{n, v["exact"] == "true", v["kind"] == "heavy"}
	}
	var j Judgement
	least := max(int64(p.Tl), 1)
	uncertain := 0
	for i := range flows {
		x := &flows[i]
		if x.Lost == 0 {
			continue
		}
		j.Victims++
		key := x.Key.String()
		v, ok := victims[key]
		delete(victims, key)
		switch {
		case !ok:
			j.Missed++
		case v.exact && v.lost != x.Lost || v.lost > x.Lost:
			j.False++
		case !v.exact:
			uncertain++
		}
		j.HeavyLosers.count(x.Lost >= least, ok && v.lost >= least)
		j.Recorded.count(x.LostHeavy > 0, ok && v.heavy)
	}
	for _, v := range victims { // that lost nothing
		j.False++
		j.HeavyLosers.count(false, v.lost >= least)
		j.Recorded.count(false, v.heavy)
	}
	j.Exact = j.Missed == 0 && j.False == 0 && uncertain == 0
	if j.Victims > 0 {
		j.Estimate = p.Measured.Victims / float64(j.Victims)
	}
	return j
}

// Score counts what was told and what is.
type Score struct{ Hits, Missed, False int }

func (s *Score) count(is, told bool) {
	switch {
	case is && told:
		s.Hits++
	case is:
		s.Missed++
	case told:
		s.False++
	}
}

// Add adds another epoch's.
func (s *Score) Add(o Score) {
	s.Hits, s.Missed, s.False = s.Hits+o.Hits, s.Missed+o.Missed, s.False+o.False
}

// F1 is the harmonic mean of precision and recall; 1 when there is nothing and nothing was told.
func (s Score) F1() float64 {
	if s == (Score{}) {
		return 1
	}
	return 2 * float64(s.Hits) / float64(2*s.Hits+s.Missed+s.False)
}
