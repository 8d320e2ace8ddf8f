// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/epoch"
)

// Report is what became of an epoch.
type Report struct {
	// Number, Start and End are the epoch's.
	Number     uint64
	Start, End time.Time
	// Status says how much of the network it rests on.
	Status epoch.Status
	// Skipped is how many epochs before it were never sealed.
	Skipped uint64
	// Doubts are why it is not exact although it has arrived.
	Doubts []epoch.Doubt
	// Devices are in the order of their names.
	Devices []DeviceReport
	// Plugins are in the order of their names.
	Plugins []PluginReport
	// Stages say where the time from the epoch's end went.
	Stages Stages
	// Cells is the number of register cells read, Rows of list entries published.
	Cells, Rows int
}

// DeviceReport is what became of a device in an epoch.
type DeviceReport struct {
	Name string
	// Err is why it is missing; nil when it is not.
	Err error
	// Flip and Read are how long they took.
	Flip, Read time.Duration
}

// PluginReport is what became of an epoch in a plugin.
type PluginReport struct {
	Name string
	// Err is why there are no results, or not all.
	Err error
	// Duration is the analysis, from hand-over to the last result.
	Duration time.Duration
	// Answered and Published are when the plugin had answered and when its results were in the store.
	Answered, Published time.Time
	// Planned is when its plans that are ahead of their epoch were on the switches, the zero time when there
	// were none.
	Planned time.Time
	// Tables and Rows were published.
	Tables, Rows int
}

// Stages are the parts of the time from an epoch's end until its results could be read.
type Stages struct {
	epoch.Timings
	// Plugin is from the end of the read-out until the slowest plugin had answered.
	Plugin time.Duration
	// Publish is from there until the last results were in the store.
	Publish time.Duration
	// Plan is from the answer of a plugin until its plans that are ahead of their epoch were on the switches, of
	// the plugin for which it took longest; zero when there were none.
	Plan time.Duration
	// Total is from the epoch's end until then.
	Total time.Duration
}

// reports keeps the reports of epochs in order, and waits for those under way.
type reports struct {
	work sync.WaitGroup

	mu   sync.Mutex
	last chan struct{} // closed when the newest report is out
}

// next returns what to wait for before a report goes out, and what to close after.
func (r *reports) next() (before <-chan struct{}, after chan<- struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before = r.last
	ch := make(chan struct{})
	r.last = ch
	return before, ch
}

func (r *reports) wait() { r.work.Wait() }

// analyse hands a sealed epoch to all plugins and reports when they are done with it. With wait it
// returns the report, otherwise it returns at once.
func (c *Collector) analyse(ep *epoch.Epoch[*device.Reading], wait bool) Report {
	sealed := time.Now()
	runs := c.plugins.running()
	done := make(chan PluginReport, len(runs))
	for _, r := range runs {
		r.offer(r.view(ep), done)
	}
	planned := c.plans.handedOver(c.plugins.ctx, ep.Number)
	before, after := c.plugins.reports.next()
	if wait {
		defer planned()
		return c.report(ep, sealed, len(runs), done, before, after)
	}
	c.plugins.reports.work.Go(func() { c.report(ep, sealed, len(runs), done, before, after) })
	return Report{}
}

// report gathers what the plugins say and publishes the collector's own state.
func (c *Collector) report(ep *epoch.Epoch[*device.Reading], sealed time.Time, plugins int, done <-chan PluginReport,
	before <-chan struct{}, after chan<- struct{},
) Report {
	rep := Report{
		Number: ep.Number, Start: ep.Start, End: ep.End, Status: ep.Status, Skipped: ep.Skipped, Doubts: ep.Doubts, Stages: Stages{Timings: ep.Timings},
	}
	for _, o := range ep.Switches {
		rep.Devices = append(rep.Devices, DeviceReport{o.Name, o.Err, o.Flip, o.Read})
		if o.Reading != nil {
			rep.Cells += o.Reading.Cells()
		}
	}
	answered, published := sealed, sealed
	for range plugins {
		p := <-done
		rep.Plugins = append(rep.Plugins, p)
		rep.Rows += p.Rows
		if !p.Planned.IsZero() {
			rep.Stages.Plan = max(rep.Stages.Plan, p.Planned.Sub(p.Answered))
		}
		answered, published = latest(answered, p.Answered), latest(published, p.Published)
	}
	sortReports(rep.Plugins)
	rep.Stages.Plugin = answered.Sub(sealed)
	rep.Stages.Publish = published.Sub(answered)
	rep.Stages.Total = ep.Timings.Flip + ep.Timings.Wait + ep.Timings.Read + published.Sub(sealed)
	if before != nil {
		<-before
	}
	c.metrics.epoch(&rep)
	if c.deps.OnReport != nil {
		c.deps.OnReport(rep)
	}
	close(after)
	return rep
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// settle waits for epochs under way, but no longer than limit.
func (p *plugins) settle(limit time.Duration) {
	p.reports.mu.Lock()
	last := p.reports.last
	p.reports.mu.Unlock()
	if last == nil {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-last:
	case <-timer.C:
		p.log.Warn("an epoch is abandoned: its analysis did not end in time", "waited", limit)
	}
}
