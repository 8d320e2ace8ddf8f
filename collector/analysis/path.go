// SPDX-License-Identifier: Apache-2.0

// The path of an epoch: from the epoch engine through a plugin's queue and process to the store.

package analysis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// Deliver hands a sealed epoch to all plugins that this collector runs, and returns at once. The
// epoch is reported when all of them have finished it, and at the latest when reportLag later
// epochs have been delivered.
func (c *Component) Deliver(ep *epoch.Epoch) *Delivery {
	sealed := time.Now()
	plugins := c.running()
	answers := make(chan PluginReport, len(plugins))
	waiting := make([]string, 0, len(plugins))
	for _, p := range plugins {
		home, moved := p.atHome(ep.Number)
		if !home {
			continue
		}
		p.offer(job{p.view(ep), answers, moved})
		waiting = append(waiting, p.name)
	}
	d := &Delivery{
		number: ep.Number, end: ep.End, reported: make(chan struct{}), due: make(chan struct{}),
		planned: c.deps.Plans.Collected(c.ctx, ep.Number),
	}
	c.mu.Lock()
	before := c.last
	d.before, c.last = before, d
	c.mu.Unlock()
	d.expire(reportLag)
	c.work.Go(func() {
		d.report = d.gather(ep, sealed, waiting, answers)
		if before != nil {
			<-before.reported
		}
		c.deps.Report(d.report)
		close(d.reported)
	})
	return d
}

// view returns an epoch as the plugin receives it.
func (p *plugin) view(ep *epoch.Epoch) *sdk.Epoch {
	bound := p.bindings()
	cfg := p.config()
	all := len(p.inst.Describe().Objects) == 0 && len(bound) == 0
	e := &sdk.Epoch{Number: ep.Number, Open: ep.Open, Start: ep.Start, End: ep.End, BankShift: p.c.deps.BankShift(),
		Skew: ep.Timings.Skew}
	torn := p.torn(ep)
	for _, o := range ep.Sources {
		if o.Sealing.IsHost() {
			p.viewHost(e, o)
			continue
		}
		if o.Err == nil && torn[o.Name] {
			o.Err = errTorn
		}
		objects := bound[o.Name]
		if len(objects) == 0 && !(cfg.Selects(o.Name) && (all || o.Err != nil && !p.knows(o.Name))) {
			continue
		}
		e.Expected = append(e.Expected, o.Name)
		if o.Err != nil {
			e.Missing = append(e.Missing, missingData(o.Name, o.Err, false))
			continue
		}
		data := sdk.DeviceData{Name: o.Name}
		for _, cells := range o.Reading.Objects {
			if objects[cells.Object] {
				data.Objects = append(data.Objects, cells)
			}
		}
		e.Devices = append(e.Devices, data)
	}
	e.Deviation = deviation(ep, e.ExpectedHosts)
	slices.Sort(e.Expected)
	e.States = p.c.deps.Plans.States(p.name, ep.Number, e.Expected)
	concerns := func(source string) bool {
		return source == "" || slices.Contains(e.Expected, source) || slices.Contains(e.ExpectedHosts, source)
	}
	for _, w := range ep.Warnings {
		if concerns(w.Source) {
			e.AccuracyWarnings = append(e.AccuracyWarnings, sdk.AccuracyWarning{Device: w.Source, Reason: w.Reason})
		}
	}
	for _, w := range ep.LateWarnings {
		if concerns(w.Source) {
			e.LateWarnings = append(e.LateWarnings, sdk.LateWarning{Epoch: w.Epoch,
				AccuracyWarning: sdk.AccuracyWarning{Device: w.Source, Reason: w.Reason}})
		}
	}
	for _, r := range ep.Late {
		if slices.Contains(p.c.deps.Plans.HostRoles(p.name, r.Host), r.Role) {
			e.Late = append(e.Late, r)
		}
	}
	switch {
	case len(e.Missing) == 0 && ep.Skipped == 0:
		e.Status = sdk.StatusComplete
	case len(e.Devices)+len(e.Hosts) == 0:
		e.Status = sdk.StatusLost
	default:
		e.Status = sdk.StatusPartial
	}
	return e
}

// deviation returns the time between the first and the last of the given hosts to begin the next
// epoch. hosts is sorted.
func deviation(ep *epoch.Epoch, hosts []string) time.Duration {
	var first, last time.Time
	for _, o := range ep.Sources {
		if _, expected := slices.BinarySearch(hosts, o.Name); o.Began.IsZero() || !expected {
			continue
		}
		if first.IsZero() || o.Began.Before(first) {
			first = o.Began
		}
		last = latest(last, o.Began)
	}
	return last.Sub(first)
}

// missingData describes a missing source for plugins.
func missingData(name string, err error, host bool) sdk.Missing {
	return sdk.Missing{Name: name, Reason: oneLine(err.Error()), Host: host, Joined: errors.Is(err, epoch.ErrJoining)}
}

// viewHost adds the reports of the host's roles for which the plugin has settings.
func (p *plugin) viewHost(e *sdk.Epoch, o epoch.Outcome) {
	roles := p.c.deps.Plans.HostRoles(p.name, o.Name)
	if len(roles) == 0 {
		return
	}
	e.ExpectedHosts = append(e.ExpectedHosts, o.Name)
	missing := func(err error) {
		e.Missing = append(e.Missing, missingData(o.Name, err, true))
	}
	if o.Err != nil {
		missing(o.Err)
		return
	}
	for _, role := range roles {
		requested := false
		for _, r := range o.Reading.Hosts {
			if r.Role == role {
				e.Hosts = append(e.Hosts, r)
				requested = true
			}
		}
		if err := o.Reading.MissingRoles[role]; err != nil {
			missing(fmt.Errorf("role %s: %w", role, err))
		} else if !requested {
			missing(fmt.Errorf("%w: no report of role %s was requested: its settings are newer than the epoch",
				epoch.ErrJoining, role))
		}
	}
}

// knows reports whether the registers of a device are known. They are unknown while a device
// cannot be set up, and before the first session with a device that keeps its own pipeline.
func (p *plugin) knows(device string) bool {
	n := p.network()
	d := n.Device(device)
	return d != nil && d.Objects != nil
}

// offer queues an epoch. If the queue is full, the epoch is lost for the plugin.
func (p *plugin) offer(j job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		j.done <- PluginReport{Name: p.name, Err: context.Canceled}
		return
	}
	select {
	case p.queue <- j:
	default:
		p.status.EpochsLost++
		p.failed(ErrBusy)
		j.done <- PluginReport{Name: p.name, Err: ErrBusy}
	}
}

// work analyzes the jobs in the queue until it is closed.
func (p *plugin) work() {
	defer close(p.ended)
	for j := range p.queue {
		if j.moved {
			p.adopt()
		}
		j.done <- p.analyze(j.epoch)
		p.saveState(false)
	}
	p.saveState(true)
}

// analyze gives the plugin an epoch and publishes its results.
func (p *plugin) analyze(e *sdk.Epoch) PluginReport {
	rep := PluginReport{Name: p.name, records: p.records}
	limit := p.config().Deadline
	switch {
	case p.attached: // a call may wait at a breakpoint of the debugger
		limit = 24 * time.Hour
	case limit <= 0:
		limit = e.End.Sub(e.Start)
	}
	ctx, cancel := p.c.deps.Clock.WithTimeout(p.c.ctx, limit)
	defer cancel()
	e.Plans = p.c.deps.Plans.Outcomes(p.name)
	begin := time.Now()
	var results *sdk.Results
	err := p.contested()
	if err == nil {
		results, err = p.inst.Analyze(ctx, e)
	}
	if err == nil {
		err = cmp.Or(p.validate(results.Tables), p.claims(results.Plans))
	}
	rep.Answered = time.Now()
	rep.Duration = rep.Answered.Sub(begin)
	answered := err == nil
	if answered {
		p.keep(results.State)
		p.c.deps.Plans.Delivered(p.name, len(e.Plans))
		var planning sync.WaitGroup // publication may be slow, but plans must be written before their epoch
		planning.Go(func() { rep.Planned = p.plan(results) })
		rep.Tables, rep.Rows, err = p.publish(e, results)
		rep.Published = time.Now()
		planning.Wait()
	} else {
		rep.Published = time.Now()
	}
	rep.Err = err
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.AnalysisTime = rep.Duration
	p.status.Rows += uint64(rep.Rows)
	if answered {
		p.status.EpochsAnalyzed++
	} else {
		p.status.EpochsLost++
	}
	switch {
	case err != nil:
		p.failed(fmt.Errorf("epoch %d: %w", e.Number, err))
	case p.failing:
		p.failing = false
		p.c.log.Info("plugin has results again", "plugin", p.name)
	}
	return rep
}

// validate checks the tables that a plugin sent; no other code does. Each table must belong to a
// list that the plugin declares, and be valid against the schema. The error wraps
// pluginhost.ErrInvalidResults. validate adds the columns that the collector derives from flows,
// nodes and links.
func (p *plugin) validate(tables []sdk.TableResult) error {
	lists := p.inst.Describe().Lists
	for i, t := range tables {
		if !slices.ContainsFunc(lists, func(l sdk.List) bool { return l.Path == t.Table.List }) {
			return fmt.Errorf("%w: a table of %s, a list that its description does not declare",
				pluginhost.ErrInvalidResults, t.Table.List)
		}
		if err := p.c.deps.Schema.Validate(t.Table); err != nil {
			return fmt.Errorf("%w: %w", pluginhost.ErrInvalidResults, err)
		}
		tables[i].Table = p.c.deps.Schema.Complete(t.Table, p.c.model())
	}
	return nil
}

// claims checks that no other plugin writes the tables of plans. The error wraps
// pluginhost.ErrInvalidResults.
func (p *plugin) claims(plans []sdk.Plan) error {
	for _, plan := range plans {
		if err := p.c.claim(p, plan.Writes); err != nil {
			return fmt.Errorf("%w: %w", pluginhost.ErrInvalidResults, err)
		}
	}
	return nil
}

// publish puts validated tables into the store, all tables of a target at once that measured the
// same range. Earlier ranges come first, so that whoever reads the newest epoch's summary finds the
// rows of an earlier epoch that came with it.
func (p *plugin) publish(e *sdk.Epoch, results *sdk.Results) (tables, rows int, err error) {
	type measured struct {
		target string
		end    time.Time
	}
	var order []measured
	batches := map[measured]*store.Batch{}
	for _, t := range results.Tables {
		if t.Target != "" && !p.c.deps.Network.IsDevice(t.Target) {
			p.refuse(t.Table.Rows())
			err = errors.Join(err, fmt.Errorf("table %s is for target %q, which is not a device", t.Table.List,
				t.Target))
			continue
		}
		at := measured{t.Target, t.End}
		if at.end.IsZero() || at.end.After(e.End) {
			at.end = e.End
		}
		b := batches[at]
		if b == nil {
			b = &store.Batch{Target: t.Target, Time: at.end, Epoch: e.Number}
			batches[at] = b
			order = append(order, at)
		}
		b.Tables = append(b.Tables, store.Publication{Table: t.Table, Replace: t.Replace})
	}
	slices.SortStableFunc(order, func(a, b measured) int { return a.end.Compare(b.end) })
	for _, at := range order {
		b := batches[at]
		n := 0
		for _, t := range b.Tables {
			n += t.Table.Rows()
		}
		if perr := p.c.deps.Store.Publish(*b); perr != nil {
			p.refuse(n)
			err = errors.Join(err, perr)
			continue
		}
		tables += len(b.Tables)
		rows += n
	}
	return tables, rows, err
}

func (p *plugin) refuse(rows int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.RowsRefused += uint64(rows)
}

// plan passes the plugin's plans to Plans. It returns when the plans ahead of their epoch were
// written; zero if there were none.
func (p *plugin) plan(results *sdk.Results) (planned time.Time) {
	for _, plan := range results.Plans {
		p.c.deps.Plans.Add(p.c.ctx, p.name, plan)
		if plan.PreEpoch {
			planned = time.Now()
		}
	}
	return planned
}
