// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
	"github.com/netsketch/netsketch/sketch/estimate"
)

// run is the analysis of one epoch: it publishes the interval whose columns arrive in the epoch,
// from the columns that have arrived.
type run struct {
	*interval
	epoch    *sdk.Epoch
	reports  map[string]*reported // reports of the epoch, by host
	flows    []*flowState         // flows, first the flows with faults, then the largest
	tasks    map[string]*task     // tasks by switch
	problems []alert.Problem
	inexact  []string
	few      string // says that too few sketchlets arrived; "": they suffice, or more follow
	faults   int
	omitted  uint64 // rows that limits leave out
}

// task holds the estimates of a sketch for all flows of a switch.
type task struct {
	packets float64
	flows   float64
	counted bool // flows
	crowded bool // too many flows share a column for their sizes
	sizes   estimate.Distribution
	large   []uint32 // buckets beyond sizes: of large flows
	share   float64  // share of the columns that were received
}

// entropy returns the entropy of packets over flows in bits. A large bucket counts as one flow: the
// packets that others add to it hardly matter.
func (t *task) entropy() float64 {
	total := t.sizes.Packets()
	sum := 0.0 // sum of n log n over the sizes n of flows
	if total > 0 {
		sum = total * (math.Log2(total) - t.sizes.Entropy())
	}
	for _, n := range t.large {
		total += float64(n) / t.share
		sum += float64(n) * math.Log2(float64(n)) / t.share
	}
	if total <= 0 {
		return 0
	}
	return math.Log2(total) - sum/total
}

// ranges returns the numbers of flows by their packets, from each power of two to the next one.
func (t *task) ranges() []float64 {
	out := make([]float64, 32)
	for x := 1; x < len(t.sizes); x++ {
		out[bits.Len(uint(x))-1] += t.sizes[x]
	}
	for _, n := range t.large {
		out[bits.Len32(n)-1] += 1 / t.share
	}
	return out
}

// Analyze implements sdk.Plugin.
func (p *Plugin) Analyze(ctx context.Context, epoch *sdk.Epoch) (*sdk.Results, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.setup == nil {
		return nil, fmt.Errorf("lightguardian: epoch %d before a configuration", epoch.Number)
	}
	if p.unfit != nil {
		return nil, fmt.Errorf("lightguardian: no results: %w", p.unfit)
	}
	now := p.open(epoch)
	p.reach(epoch)
	r := &run{epoch: epoch, reports: map[string]*reported{}, tasks: map[string]*task{}}
	for i := range epoch.Late {
		if l := &epoch.Late[i]; l.Role == wire.Role {
			if late := p.read(&l.HostReport, l.Epoch, true); late.problem != "" {
				r.inexact = append(r.inexact, fmt.Sprintf("host %s, late report of epoch %d: %s", l.Host, l.Epoch, late.problem))
			}
		}
	}
	old := map[string]uint64{} // sketchlets of older intervals in parts of reports, by host
	for i := range epoch.Hosts {
		h := &epoch.Hosts[i]
		if h.Role != wire.Role || !slices.Contains(p.setup.hosts, h.Host) {
			continue
		}
		x := p.read(h, epoch.Number, false)
		if x.report != nil && x.report.Part > 0 {
			old[h.Host] += x.old
			continue
		}
		x.old += old[h.Host]
		if x.report != nil || r.reports[h.Host] == nil {
			r.reports[h.Host] = x
		}
		if x.problem != "" {
			r.inexact = append(r.inexact, fmt.Sprintf("host %s: %s", h.Host, x.problem))
		}
	}
	if r.interval = p.at(now.number - 1); r.interval == nil { // the first interval has no columns
		r.interval = &interval{setup: p.setup, number: now.number - 1, first: now.first - min(now.first, p.setup.epochs),
			last: now.first - min(now.first, 1), switches: map[string]*column{}, routes: now.routes}
	}
	r.next = now
	r.outcomes(epoch)
	r.missing()
	r.flows = r.all()
	r.sketches()
	out, err := p.publish(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("epoch %d: %w", epoch.Number, err)
	}
	if plan := p.carry(r); plan != nil {
		out.Plans = append(out.Plans, *plan)
	}
	p.newest, p.epoch = r.interval, epoch.Number
	return out, nil
}

// outcomes adds plans that failed, and reasons why the epoch is inexact.
func (r *run) outcomes(epoch *sdk.Epoch) {
	for _, o := range epoch.Plans {
		if o.Status != sdk.PlanApplied {
			r.problem(o.Device, planFailed, "the plan of this configuration is %v: %s", o.Status, o.Reason)
		}
	}
	for _, w := range epoch.AccuracyWarnings {
		r.inexact = append(r.inexact, cmp.Or(w.Device, "all devices")+": "+w.Reason)
	}
}

func (r *run) problem(subject string, k alert.Kind, format string, args ...any) {
	r.problems = append(r.problems, alert.Problem{Location: subject, Kind: k, Text: fmt.Sprintf(format, args...)})
}

// missing adds hosts without a report, and switches without columns although hosts reported.
func (r *run) missing() {
	missing := r.epoch.MissingHosts()
	for _, host := range r.hosts {
		x, m := r.reports[host], missing[host]
		switch {
		case x == nil:
			x = &reported{host: host, epoch: r.epoch.Number, problem: cmp.Or(m.Reason, "no report arrived")}
			r.reports[host] = x
			fallthrough
		case x.report == nil:
			r.problems = append(r.problems, alert.OfMissing(host, hostMissing, x.problem, m))
		}
	}
	if r.status() == sdk.StatusLost || r.early() {
		return
	}
	for _, name := range r.own {
		switch {
		case r.share(name) > 0:
		case r.unreached[name]:
			r.problem(name, switchMissing, "the collector did not reach it when epoch %d began, or when epoch %d ended: what "+
				"it measured in them is not whole and is not used", r.first, r.last)
		default:
			r.problem(name, switchMissing, "no column of epochs %d to %d has been received: it forwards too few packets, or "+
				"was restarted", r.first, r.last)
		}
	}
}

// early reports whether later results of the interval follow.
func (r *run) early() bool { return r.epoch.Number < r.settled() }

// mostForSizes and mostForEntropy are the largest numbers of flows for each column with which the
// distribution of sizes, and the entropy, are published. Up to these the weighted mean relative
// error of the distribution was at most 0.21, and the error of the entropy at most 5.3 %.
const (
	mostForSizes   = 1.5
	mostForEntropy = 3.0
)

// moreColumns says what to do against too many flows for each column.
const moreColumns = "compile the program of all switches with more columns (NS_LIGHTGUARDIAN_COLUMNS), and set " +
	"sketch.columns to their number"

// workers bounds the sketches that are measured at the same time.
const workers = 4

// largestSize bounds the sizes that MRAC divides into flows. Larger buckets are one flow each.
const largestSize = 1 << 16

// sketches measures the sketch of each switch.
func (r *run) sketches() {
	var group errgroup.Group
	group.SetLimit(workers)
	for _, name := range slices.Sorted(maps.Keys(r.switches)) {
		c := r.switches[name]
		if c.sketch == nil {
			continue
		}
		t := &task{}
		r.tasks[name] = t
		group.Go(func() error {
			t.share = c.sketch.Received()
			for _, n := range c.sketch.Row(0) {
				t.packets += float64(n)
				if n >= largestSize {
					t.large = append(t.large, n)
				}
			}
			t.packets /= t.share
			t.flows, t.counted = c.sketch.Cardinality()
			if !t.counted || t.flows > mostForEntropy*float64(r.config.Sketch.Columns) {
				return nil
			}
			if d, _, err := c.sketch.Distribution(largestSize); err == nil {
				t.sizes = d
			}
			return nil
		})
	}
	_ = group.Wait() // no error: a full sketch has no sizes
	for _, name := range slices.Sorted(maps.Keys(r.tasks)) {
		t, columns := r.tasks[name], float64(r.config.Sketch.Columns)
		switch {
		case !t.counted:
			r.inexact = append(r.inexact, fmt.Sprintf("%s: more flows than its sketch can count: their number, sizes and "+
				"entropy are unknown, and their packets are too high; %s", name, moreColumns))
		case t.flows > mostForSizes*columns:
			r.inexact = append(r.inexact, fmt.Sprintf("%s: about %.0f flows share %.0f columns: the distribution of their "+
				"sizes, with more than %v flows a column also the entropy, is unknown; %s", name, t.flows, columns,
				mostForEntropy, moreColumns))
			t.crowded = true
		}
	}
}
