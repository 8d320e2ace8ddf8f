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
	// HeavyF1 is of flows that lost at least Tl packets, by the numbers that were told; Heavy is
	// how many there are. It is 1 when there are none and none are told.
	HeavyF1 float64
	Heavy   int
	// RecordedF1 is of flows that lost a packet while the classifier held them for HL or HH
	// candidates, against those told as heavy losers.
	RecordedF1 float64
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
	var heavy, recorded f1
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
		if x.Lost >= least {
			j.Heavy++
		}
		heavy.add(x.Lost >= least, ok && v.lost >= least)
		recorded.add(x.LostHeavy > 0, ok && v.heavy)
	}
	for _, v := range victims { // that lost nothing
		j.False++
		heavy.add(false, v.lost >= least)
		recorded.add(false, v.heavy)
	}
	j.Exact = j.Missed == 0 && j.False == 0 && uncertain == 0
	j.HeavyF1, j.RecordedF1 = heavy.score(), recorded.score()
	if j.Victims > 0 {
		j.Estimate = p.Measured.Victims / float64(j.Victims)
	}
	return j
}

// f1 counts hits and misses.
type f1 struct{ hits, misses float64 }

func (f *f1) add(is, told bool) {
	switch {
	case is && told:
		f.hits++
	case is != told:
		f.misses++
	}
}

func (f *f1) score() float64 {
	if f.hits+f.misses == 0 {
		return 1
	}
	return 2 * f.hits / (2*f.hits + f.misses)
}
