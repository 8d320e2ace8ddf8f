// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
)

// Report is the outcome of an epoch.
type Report struct {
	// Number, Start and End are the epoch's.
	Number     uint64
	Start, End time.Time
	// Status says how much of the network the epoch covers.
	Status epoch.Status
	// Skipped is the number of epochs before it that were never sealed.
	Skipped uint64
	// Warnings are reasons why its results may be inexact.
	Warnings []epoch.AccuracyWarning
	// Devices and Hosts are sorted by name.
	Devices, Hosts []DeviceReport
	// Plugins are sorted by name.
	Plugins []PluginReport
	// Stages divide the time from the epoch's end to its results.
	Stages Stages
	// Cells is the number of register cells read, Rows of list entries published.
	Cells, Rows int
}

// DeviceReport is the outcome of an epoch on a device or host.
type DeviceReport struct {
	Name string
	// Err is why it is missing; nil if it is not.
	Err error
	// Flip and Read are durations.
	Flip, Read time.Duration
}

// PluginReport is the outcome of an epoch in a plugin.
type PluginReport struct {
	Name string
	// Err is why there are no results, or not all.
	Err error
	// Duration is the analysis, from hand-over to the last result.
	Duration time.Duration
	// Answered and Published are when the plugin had answered and when its results were in the
	// store.
	Answered, Published time.Time
	// Planned is when its plans that are ahead of their epoch were on the switches, the zero time
	// if there were none.
	Planned time.Time
	// Tables and Rows were published.
	Tables, Rows int

	records bool // the plugin's recording may still read the epoch
}

// Stages are the parts of the time from an epoch's end until its results could be read.
type Stages struct {
	epoch.Timings
	// Plugin is from the end of the read-out until the slowest plugin had answered.
	Plugin time.Duration
	// Publish is from there until the last results were in the store.
	Publish time.Duration
	// Plan is from the answer of a plugin until its plans that are ahead of their epoch were on the
	// switches, of the plugin for which it took longest; zero if there were none.
	Plan time.Duration
	// Total is from the epoch's end to the end of Publish.
	Total time.Duration
}

// ErrUnfinished is why a report has no results of a plugin that is still at work on the epoch. They
// are published and counted when they arrive.
var ErrUnfinished = errors.New("still at work on the epoch")

// reportLag is the number of epochs after which an epoch is reported without the plugins that are
// still at work on it. With the default deadline every plugin has answered or lost the epoch by
// then.
const reportLag = 3

// Delivery is an epoch that was handed to the plugins.
type Delivery struct {
	number   uint64
	end      time.Time
	report   Report
	reported chan struct{} // closed when report is complete and out
	due      chan struct{} // closed when the report waits for plugins no longer
	before   *Delivery     // nil once due
	planned  func()        // waits for the plans that the epoch made due
}

// Wait returns the epoch's report when all plugins are done with it and plans that were due are
// written.
func (d *Delivery) Wait() Report {
	d.planned()
	<-d.reported
	return d.report
}

// expire makes the report of the delivery that is lag before d due. It is called by Deliver alone.
func (d *Delivery) expire(lag int) {
	for ; lag > 1 && d.before != nil; lag-- {
		d = d.before
	}
	if old := d.before; old != nil {
		d.before = nil
		close(old.due)
	}
}

// gather makes the report as the plugins finish.
func (d *Delivery) gather(ep *epoch.Epoch, sealed time.Time, waiting []string, answers <-chan PluginReport) Report {
	rep := Report{
		Number: ep.Number, Start: ep.Start, End: ep.End, Status: ep.Status, Skipped: ep.Skipped, Warnings: ep.AllWarnings(),
		Stages: Stages{Timings: ep.Timings},
	}
	for _, o := range ep.Sources {
		list := &rep.Devices
		if o.Sealing.IsHost() {
			list = &rep.Hosts
		}
		*list = append(*list, DeviceReport{o.Name, o.Err, o.Flip, o.Read})
		if o.Reading != nil {
			rep.Cells += o.Reading.Cells()
		}
	}
	rep.Plugins = d.collect(waiting, answers)
	release(ep, rep.Plugins)
	answered, published := sealed, sealed
	for _, p := range rep.Plugins {
		rep.Rows += p.Rows
		if !p.Planned.IsZero() {
			rep.Stages.Plan = max(rep.Stages.Plan, p.Planned.Sub(p.Answered))
		}
		answered, published = latest(answered, p.Answered), latest(published, p.Published)
	}
	slices.SortFunc(rep.Plugins, func(a, b PluginReport) int { return strings.Compare(a.Name, b.Name) })
	rep.Stages.Plugin = answered.Sub(sealed)
	rep.Stages.Publish = published.Sub(answered)
	rep.Stages.Total = ep.Timings.Flip + ep.Timings.Wait + ep.Timings.Read + published.Sub(sealed)
	return rep
}

// collect returns the reports of the plugins that are done before the epoch's report is due, and
// ErrUnfinished for the others.
func (d *Delivery) collect(waiting []string, answers <-chan PluginReport) []PluginReport {
	var out []PluginReport
	take := func(p PluginReport) {
		waiting = slices.DeleteFunc(waiting, func(name string) bool { return name == p.Name })
		out = append(out, p)
	}
	for len(waiting) > 0 {
		select {
		case p := <-answers:
			take(p)
		case <-d.due:
			for len(answers) > 0 {
				take(<-answers)
			}
			for _, name := range waiting {
				out = append(out, PluginReport{Name: name, Err: ErrUnfinished})
			}
			return out
		}
	}
	return out
}

// release returns the memory of an epoch's cells to their sources, unless a plugin may still read
// them: one that failed, for its process is perhaps still being sent them, or one that records.
func release(ep *epoch.Epoch, plugins []PluginReport) {
	if slices.ContainsFunc(plugins, func(p PluginReport) bool { return p.Err != nil || p.records }) {
		return
	}
	for _, o := range ep.Sources {
		if o.Reading != nil && o.Reading.Release != nil {
			o.Reading.Release()
		}
	}
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
