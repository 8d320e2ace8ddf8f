// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/universal"
)

// Analyze implements sdk.Plugin.
func (p *Plugin) Analyze(ctx context.Context, epoch *sdk.Epoch) (*sdk.Results, error) {
	p.mu.Lock()
	config, plan, previous, network := p.config, p.plan, maps.Clone(p.previous), p.network
	p.mu.Unlock()

	run := analysis{epoch: epoch, config: &config, plan: plan, previous: previous, views: plan.views}
	var events []sdk.Event
	var plans []sdk.Plan
	if config.Network.Enabled && config.Network.Scheme != SchemeWeights {
		events, plans = p.assign(&run, &network)
	}
	results, err := run.switches(ctx)
	if err != nil {
		return nil, err
	}
	views, err := run.network(ctx, results)
	if err != nil {
		return nil, err
	}
	measured := results
	if config.Switches {
		run.addLost(results)
		maps.Copy(views, results)
	}
	results = views

	out, err := p.publish(&run, results)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out.Events = append(append(out.Events, events...), p.problemEvents(run.problems)...)
	if plan, ok := p.newSettings(epoch); ok {
		plans = append(plans, plan)
	}
	out.Plans = plans
	p.measured, p.previous = measured, results
	return out, nil
}

// assign adds the views of the assignment under which an epoch was measured, and returns the plan
// of the next one.
func (p *Plugin) assign(a *analysis, network *sdk.Network) (events []sdk.Event, plans []sdk.Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &p.duties
	d.outcomes(a.epoch)
	var ok bool
	if a.views, a.incomplete, ok = d.assigned(a.epoch, a.plan); !ok {
		a.problem("network", "no results: no manifests are in force, so packets count on every switch that they cross")
		for _, dimension := range a.plan.dimensions {
			a.views = append(a.views, view{dimension: dimension, assigned: true})
		}
	}
	_, now, _ := d.inForce(a.epoch)
	a.manifests = now
	if a.renewed = now != nil && d.before != nil && now != d.before; a.renewed {
		a.warning = "may be inexact: manifests changed when the epoch began, so packets that were in the network then may " +
			"count twice or not at all"
	}
	if now != nil {
		d.before = now
	}
	for _, w := range a.epoch.AccuracyWarnings {
		a.warning = "may be inexact: " + strings.TrimSpace(w.Device+" "+w.Reason)
	}
	events = d.want(a.config, network, a.epoch)
	if d.wanted != nil {
		d.route(d.wanted.Map)
	}
	if d.misfits[now] {
		a.incomplete = cmp.Or(a.incomplete, "routes changed, and the manifests are those of earlier ones: packets may count "+
			"twice or not at all")
	}
	if plan, ok := d.plan(a.epoch); ok {
		plans = append(plans, plan)
	}
	clear(d.misfits)
	if d.wanted != nil {
		d.route(d.wanted.Map)
	}
	return events, plans
}

// analysis is the work on one epoch.
type analysis struct {
	epoch    *sdk.Epoch
	config   *Configuration
	plan     *plan
	previous map[scope]*result
	views    []view
	problems map[string]string // problems by subject
	omitted  uint64            // rows that lists leave out
	failed   map[scope]string  // why data of a switch has no result

	manifests  *Assignment // assignment in force; nil: there is none, or an earlier process made it
	renewed    bool        // whether manifests changed when the epoch began
	incomplete string      // why packets are not counted under the assignment in force
	warning    string      // why an assigned view may be inexact
}

func (a *analysis) problem(subject, format string, args ...any) {
	if a.problems == nil {
		a.problems = make(map[string]string)
	}
	a.problems[subject] = fmt.Sprintf(format, args...)
}

// switches analyzes the sketches of each switch and host, in parallel.
func (a *analysis) switches(ctx context.Context) (map[scope]*result, error) {
	incomplete := a.missing()
	type job struct {
		open   func() (*sealed, error)
		result *result
		err    error
	}
	var jobs []*job
	sketches := newOpener(a.plan, a.epoch)
	add := func(device, dimension string, unparsed *unparsed, open func() (*sealed, error)) {
		r := &result{scope: scope{device, dimension}, epoch: a.epoch.Number, status: sdk.StatusComplete,
			whole: true, from: []string{device}, unparsed: unparsed}
		if r.problem = incomplete[device]; r.problem != "" {
			r.status, r.whole = sdk.StatusPartial, false
		}
		jobs = append(jobs, &job{open: open, result: r})
	}
	for i := range a.epoch.Devices {
		data := &a.epoch.Devices[i]
		instances := a.plan.instances[data.Name]
		unparsed, err := a.plan.unparsed[data.Name].open(data)
		if err != nil {
			a.problem(data.Name, "its unparsed packets are not known: %v", err)
		}
		a.uncounted(data.Name, unparsed, 0)
		for _, dimension := range slices.Sorted(maps.Keys(instances)) {
			in := instances[dimension]
			add(data.Name, dimension, unparsed, func() (*sealed, error) { return sketches.open(&in, data) })
		}
	}
	for _, h := range a.hostReports() {
		for dimension, in := range a.plan.instances[h.name] {
			add(h.name, dimension, h.unparsed, func() (*sealed, error) { return h.sealed(&in) })
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, j := range jobs {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("epoch %d: %w", a.epoch.Number, err)
			}
			if j.result.sealed, j.err = j.open(); j.err != nil {
				return nil
			}
			reading, err := j.result.sealed.reading()
			if err != nil {
				j.err = err
				return nil
			}
			j.result.estimate = reading.Estimate()
			if a.config.Switches {
				a.compare(j.result)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	results := make(map[scope]*result, len(jobs))
	a.failed = make(map[scope]string)
	for _, j := range jobs {
		if j.err != nil {
			a.failed[j.result.scope] = j.err.Error()
			a.problem(subject(j.result.scope), "no results: %v", j.err)
			continue
		}
		results[j.result.scope] = j.result
	}
	return results, nil
}

// missing returns why switches are missing, or deliver less than everything, by name.
func (a *analysis) missing() map[string]string {
	reasons := make(map[string]string)
	for _, m := range a.epoch.Missing {
		reasons[m.Name] = cmp.Or(m.Reason, "no reason given")
	}
	return reasons
}

// addLost adds a result without data for each dimension of each expected device that has no result,
// so that a lost epoch differs from an epoch without traffic. A switch whose program is not known
// has the dimensions of the others.
func (a *analysis) addLost(results map[scope]*result) {
	reasons := a.missing()
	for _, name := range a.expected() {
		own := a.plan.instances[name]
		for _, dimension := range a.plan.dimensions {
			s := scope{name, dimension}
			if _, measured := own[dimension]; results[s] != nil || own != nil && !measured {
				continue
			}
			results[s] = &result{scope: s, epoch: a.epoch.Number, status: sdk.StatusLost,
				problem: cmp.Or(reasons[name], a.failed[s], "nothing was delivered")}
		}
	}
}

// maxGap bounds the distance of a restored epoch from the first one after a restart. Nothing was
// measured while the collector was restarted.
const maxGap = 10

// compare computes the changes since the preceding epoch, if both epochs have all cells of the same
// switches. Lost data would look like a change.
func (a *analysis) compare(r *result) {
	before := a.previous[r.scope]
	if before == nil || !before.whole || !r.whole || !slices.Equal(before.from, r.from) {
		return
	}
	if gap := r.epoch - before.epoch; gap != 1 && !(before.restored && gap <= maxGap) {
		return
	}
	if change, err := universal.Compare(before.estimate, r.estimate); err == nil {
		r.change = change // after a change of the pipeline, the epochs cannot be compared
	}
}

// network combines the switches' sketches so that each packet is counted once.
func (a *analysis) network(ctx context.Context, switches map[scope]*result) (map[scope]*result, error) {
	results := make([]*result, len(a.views))
	missing := make([]string, len(a.views))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, v := range a.views {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("epoch %d: %w", a.epoch.Number, err)
			}
			results[i], missing[i] = a.add(v, switches)
			if results[i].change == nil {
				a.compare(results[i])
			}
			if before := a.previous[results[i].scope]; results[i].change != nil && before != nil && before.inexact {
				missing[i] = cmp.Or(missing[i], "changes may be inexact: packets of the epoch before may have counted twice "+
					"or not at all")
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	views := make(map[scope]*result, len(results))
	for i, r := range results {
		views[r.scope] = r
		r.problem = cmp.Or(r.problem, missing[i])
		if r.estimate != nil && r.change == nil {
			r.problem = cmp.Or(r.problem, "changes are unknown: there are no complete results of the epoch before")
		}
		if missing[i] != "" {
			a.problem(subject(r.scope), "%s", missing[i])
		}
	}
	return views, nil
}

// add computes one view. Without a switch of weight 1 the result is partial. Without a switch of
// weight -1, whose sketch removes packets that others counted twice, there is no result.
func (a *analysis) add(v view, switches map[scope]*result) (*result, string) {
	r := &result{scope: scope{Network, v.dimension}, epoch: a.epoch.Number, status: sdk.StatusComplete, whole: true}
	if len(v.plus) == 1 && len(v.minus) == 0 && !v.assigned {
		if one := switches[scope{v.plus[0], v.dimension}]; one != nil { // the network is one switch
			*r = *one
			r.scope = scope{Network, v.dimension}
			return r, ""
		}
	}
	var absent []string
	// A packet is counted by one switch, or by a host. With both in the sum it may count twice.
	known := a.plan.alike(slices.Concat(v.plus, v.minus))
	collect := func(names []string, total *unparsed) (readings []*universal.Reading) {
		for _, name := range names {
			s := switches[scope{name, v.dimension}]
			if s == nil {
				absent = append(absent, name)
				continue
			}
			if !s.whole {
				r.status, r.whole, r.problem = sdk.StatusPartial, false, name+": "+s.problem
			}
			r.from = append(r.from, name)
			if known = known && s.unparsed != nil; known {
				total.add(s.unparsed)
			}
			if n, _ := s.estimate.Packets(); v.assigned && n == 0 && len(readings) > 0 {
				continue // the switch does not use the sketch
			}
			readings = append(readings, s.estimate.Reading())
		}
		return readings
	}
	var added, subtracted unparsed
	plus := collect(v.plus, &added)
	edges := len(absent)
	minus := collect(v.minus, &subtracted)
	absent = append(absent, v.excluded...)
	if v.assigned {
		edges = len(absent)
	}
	if len(plus) == 0 || len(absent) > edges {
		r.status, r.whole, r.from = sdk.StatusLost, false, nil
		if len(absent) == 0 {
			return r, "no results: no manifests are in force"
		}
		return r, "no results without " + strings.Join(absent, ", ")
	}
	sum, err := universal.Sum(plus, minus)
	if err != nil {
		r.status, r.whole, r.from = sdk.StatusLost, false, nil
		return r, fmt.Sprintf("no results: %v", err)
	}
	r.estimate = sum.Estimate()
	if known {
		r.unparsed = added.less(&subtracted)
	}
	if len(absent) > 0 {
		r.status, r.whole = sdk.StatusPartial, r.whole && !v.assigned
		return r, fmt.Sprintf("results rest on %d of %d devices; missing: %s",
			len(r.from), len(r.from)+len(absent), strings.Join(absent, ", "))
	}
	if v.assigned && r.whole {
		r.from = []string{Network} // results of the network stay comparable when other switches count
		if a.incomplete != "" {
			r.status, r.whole = sdk.StatusPartial, false
		}
		r.inexact = a.warning != ""
		return r, cmp.Or(a.incomplete, a.warning)
	}
	return r, ""
}

// problemEvents returns log events for new and for resolved problems. The caller holds the lock.
func (p *Plugin) problemEvents(problems map[string]string) []sdk.Event {
	var events []sdk.Event
	for _, subject := range slices.Sorted(maps.Keys(problems)) {
		if _, known := p.reported[subject]; !known {
			events = append(events, sdk.Event{Level: slog.LevelWarn, Message: clip(subject + ": " + problems[subject])})
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(p.reported)) {
		if _, still := problems[subject]; !still {
			events = append(events, sdk.Event{Level: slog.LevelInfo, Message: clip(subject + ": resolved")})
		}
	}
	p.reported = problems
	return events
}

// subject names a scope in messages.
func subject(s scope) string { return s.dimension + " of " + s.device }

// clip limits a message to 1000 bytes, the bound for events.
func clip(s string) string {
	const most = 1000
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + " …"
}
