// SPDX-License-Identifier: Apache-2.0

package pcapfile

import (
	"cmp"
	"slices"
	"time"
)

// KeepPauses makes the reader keep the pauses of the file, for callers that play several files
// together and cut only what is a pause of all of them. The caller calls it before Next. KeepPauses
// reads the dates of the whole file first. A jump ahead counts as a clock error only if the clock
// jumps back by as much later. If the clock was set back for good, the part of the file with the
// most packets keeps its dates, and the other parts are shifted.
func (r *Reader) KeepPauses() error {
	other, err := Open(r.name)
	if err != nil {
		return err
	}
	defer other.Close()
	r.dates.plan = other.plan()
	return nil
}

// part is packets of a file between two jumps or long pauses.
type part struct {
	begin int           // number of the part's first packet, from 0
	shift time.Duration // added to the dates of the part's packets
	jump  bool          // whether the clock jumps where the part begins
}

// plan returns the parts of a file. The plan ends where the file cannot be read; Next reports that
// error.
func (r *Reader) plan() []part {
	type pause struct {
		part int // index of the part that begins after the pause
		by   time.Duration
	}
	// A clock is the part of a file between two times at which the clock was set back.
	type clock struct {
		shift   time.Duration
		packets int
	}
	parts, clocks := []part{{}}, []clock{{}}
	var pauses []pause // a pause becomes a jump if the clock returns later
	var last time.Time
	for n, shift := 0, time.Duration(0); ; n++ {
		p, err := r.source.next()
		if err != nil {
			break
		}
		clocks[len(clocks)-1].packets++
		if p.date.IsZero() {
			continue
		}
		at := p.date.Add(shift)
		step := at.Sub(last)
		switch {
		case last.IsZero():
		case step > MaxPause:
			pauses = append(pauses, pause{len(parts), step})
			parts = append(parts, part{begin: n, shift: shift})
		case step < -maxBack:
			k := len(pauses) - 1
			for k >= 0 && (pauses[k].by+step).Abs() > MaxPause {
				k--
			}
			if k >= 0 { // the clock was ahead and returns
				for i := pauses[k].part; i < len(parts); i++ {
					parts[i].shift -= pauses[k].by
				}
				parts[pauses[k].part].jump = true
				last, step = last.Add(-pauses[k].by), step+pauses[k].by
				pauses = pauses[:k]
			}
			if step < -maxBack {
				shift, at = shift-step, last
			}
			if k < 0 { // the clock is set back
				pauses = nil
				clocks = append(clocks, clock{shift, 1})
				clocks[len(clocks)-2].packets--
			}
			parts = append(parts, part{n, shift, true})
		}
		if at.After(last) {
			last = at
		}
	}
	keep := slices.MaxFunc(clocks, func(a, b clock) int { return cmp.Compare(a.packets, b.packets) })
	for i := range parts {
		parts[i].shift -= keep.shift
	}
	return parts
}
