// SPDX-License-Identifier: Apache-2.0

package attention

import (
	"fmt"
	"strconv"

	"github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// Judgment compares the published victims of an epoch with the ground truth.
type Judgment struct {
	Victims int  // flows that lost packets
	Exact   bool // all victims, and no other flow, are published as exact with the right loss
	False   int  // published victims that lost fewer packets than published or, if exact, more
	Missed  int  // victims that are not published
	// Others reports that a part was not decoded only because a few flows share all their buckets:
	// the other victims are published as exact.
	Others bool
	// Estimate is the published number of victims divided by the number of victims.
	Estimate float64
	// Recorded scores the paper's heavy victims, flows that lost a packet while the classifier
	// had them as HL or HH candidates, against those published as heavy.
	Recorded Score
	// HeavyVictims scores flows that lost at least Tl packets against those published with at
	// least Tl. Losses of an unsampled flow before its Tl-th packet are not recorded.
	HeavyVictims Score
}

// Judge compares an epoch's victims with what happened to its flows. The error names a leaf that a
// victim lacks.
func Judge(flows []chamelemon.Flow, p *chamelemon.Played) (Judgment, error) {
	type published struct {
		lost  int64
		exact bool
		heavy bool
	}
	victims := make(map[string]published)
	for _, v := range chamelemon.Rows(p.Results, chamelemon.VictimList) {
		n, err := strconv.ParseInt(v["lost-packets"], 10, 64)
		if err != nil {
			return Judgment{}, fmt.Errorf("victim %v: leaf lost-packets: %w", v, err)
		}
		for _, leaf := range []string{"flow", "quality", "kind"} {
			if v[leaf] == "" {
				return Judgment{}, fmt.Errorf("victim %v has no leaf %s", v, leaf)
			}
		}
		victims[v["flow"]] = published{n, v["quality"] == string(sdk.Exact), v["kind"] == "HEAVY"}
	}
	var j Judgment
	least := max(int64(p.Tl), 1)
	uncertain := 0
	sure := 0
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
		if v.exact {
			sure++
		}
		j.HeavyVictims.count(x.Lost >= least, ok && v.lost >= least)
		j.Recorded.count(x.LostHeavy > 0, ok && v.heavy)
	}
	for _, v := range victims { // published flows that lost nothing
		j.False++
		j.HeavyVictims.count(false, v.lost >= least)
		j.Recorded.count(false, v.heavy)
	}
	j.Others = !p.Decoded && sure > 0
	j.Exact = j.Missed == 0 && j.False == 0 && uncertain == 0
	if j.Victims > 0 {
		j.Estimate = p.Measured.Victims / float64(j.Victims)
	}
	return j, nil
}

// Score compares published flows with the ground truth.
type Score struct{ Hits, Missed, False int }

func (s *Score) count(actual, published bool) {
	switch {
	case actual && published:
		s.Hits++
	case actual:
		s.Missed++
	case published:
		s.False++
	}
}

// Add adds the counts of another epoch.
func (s *Score) Add(o Score) {
	s.Hits, s.Missed, s.False = s.Hits+o.Hits, s.Missed+o.Missed, s.False+o.False
}

// F1 is the harmonic mean of precision and recall; 1 when all counts are zero.
func (s Score) F1() float64 {
	if s == (Score{}) {
		return 1
	}
	return 2 * float64(s.Hits) / float64(2*s.Hits+s.Missed+s.False)
}
