// SPDX-License-Identifier: Apache-2.0

package epoch_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
)

// away is a source of another collector.
type away struct{ *host }

func (away) Sealing() epoch.Sealing { return epoch.DeviceElsewhere }

// hurried is a virtual clock. If early is set, the wait before the hand-over ends at once.
type hurried struct {
	*epoch.Virtual
	early bool
}

const beforeHandOver = 600 * time.Millisecond

func (c *hurried) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if c.early && d == beforeHandOver {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx, cancel
	}
	return c.Virtual.WithTimeout(ctx, d)
}

// The readings of this collector's sources are handed over before the readings of other collectors
// arrive. A reading that came too late is handed over once, with the next epoch.
func TestHandOver(t *testing.T) {
	clock := &hurried{Virtual: epoch.NewVirtual(t0, 0)}
	r := &rig{t: t, clock: clock.Virtual, trace: &trace{}, end: t0}
	own, other := newHost("own", r), away{newHost("away", r)}
	var handed []string
	r.e = epoch.New(epoch.Config{Interval: time.Second, Guard: guard, Drain: drain, Deadline: 800 * time.Millisecond,
		HandOver: 200 * time.Millisecond}, epoch.Dependencies{Clock: clock, HandOver: func(ep *epoch.Epoch) {
		handed = append(handed, short(ep))
		for _, o := range ep.Sources {
			if o.Reading != nil && o.Reading.Release != nil {
				t.Errorf("%s: its cells may be released while they are handed over", o.Name)
			}
		}
		other.report(ep.Number, 5) // the other collector replies to each hand-over
		if clock.early {
			own.report(ep.Number, 8)
		}
		if !ep.End.Equal(r.end) || len(ep.Warnings) > 0 {
			t.Errorf("handed over %+v", ep)
		}
	}})
	t.Cleanup(r.e.Shutdown)
	r.e.Add(own)
	r.e.Add(other)
	r.open()
	own.report(1, 9)
	r.expect(r.step(), "1 COMPLETE away=5 own=9")
	clock.early = true
	r.expect(r.step(), "2 COMPLETE away=5 own=8")
	clock.early = false
	own.report(3, 7)
	r.expect(r.step(), "3 COMPLETE away=5 own=7")
	own.report(4, 6)
	r.expect(r.step(), "4 COMPLETE away=5 own=6")
	want := []string{"1 COMPLETE own=9", "2 LOST own=late", "3 COMPLETE own=7 late own/2=8", "4 COMPLETE own=6"}
	if !slices.Equal(handed, want) {
		t.Errorf("handed over %q, want %q", handed, want)
	}
}

// flippedAway is a source of another collector, which reports when it flipped its switches.
type flippedAway struct {
	away
	flips epoch.Flips
}

func (s *flippedAway) Begin(b epoch.Boundary) (epoch.Part, []string) {
	part, warnings := s.away.Begin(b)
	return &awayPart{part, s.flips}, warnings
}

type awayPart struct {
	epoch.Part
	flips epoch.Flips
}

func (p *awayPart) Collect(ctx context.Context, drained epoch.Drained) (epoch.Result, error) {
	r, err := p.Part.Collect(ctx, drained)
	r.Flips = &p.flips
	return r, err
}

// The skew covers the flips of all collectors. A skew greater than the guard adds a warning to the
// epoch.
func TestSkewOfAllCollectors(t *testing.T) {
	r := newRig(t, 0)
	other := &flippedAway{away: away{newHost("away", r)}}
	r.e.Add(other)
	r.e.Add(&flipped{name: "own", trace: r.trace}) // flips at the boundary
	r.open()
	for number, flips := range []epoch.Flips{{First: guard / 4, Last: guard / 2}, {First: guard, Last: 2 * guard}} {
		other.flips = flips
		other.report(uint64(number+1), 5)
		ep := r.step()
		if ep.Timings.Skew < flips.Last || ep.Timings.Flips.Last > 0 {
			t.Errorf("flips of another collector %v: timings %+v", flips, ep.Timings)
		}
		if got, want := len(ep.Warnings), number; got != want {
			t.Errorf("flips of another collector %v: %d warnings, want %d: %v", flips, got, want, ep.Warnings)
		}
	}
}

// An epoch without sources is complete.
func TestEpochWithoutSources(t *testing.T) {
	r := newRig(t, 0)
	r.open()
	r.expect(r.step(), "1 COMPLETE")
}
