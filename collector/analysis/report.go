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
	// Number, Start and End are the number, start and end of the epoch.
	Number     uint64
	Start, End time.Time
	// Status says how much of the network the epoch covers.
	Status epoch.Status
	// Skipped is the number of epochs before this one that were never sealed.
	Skipped uint64
	// Warnings are reasons why the results may be inexact.
	Warnings []epoch.AccuracyWarning
	// Devices and Hosts are sorted by name.
	Devices, Hosts []DeviceReport
	// Plugins are sorted by name.
	Plugins []PluginReport
	// Stages are the parts of the time from the epoch's end to its results.
	Stages Stages
	// Cells is the number of register cells read, and Rows the number of list entries published.
	Cells, Rows int
}

// DeviceReport is the outcome of an epoch on one device or host.
type DeviceReport struct {
	Name string
	// Err says why the device is missing from the epoch; nil if the device was read.
	Err error
	// Flip and Read are the durations of the flip and the read-out.
	Flip, Read time.Duration
}

// PluginReport is the outcome of an epoch in one plugin.
type PluginReport struct {
	Name string
	// Err says why the plugin has no results of the epoch, or only some of them.
	Err error
	// Duration is the duration of the analysis, from the hand-over of the epoch to the last result.
	Duration time.Duration
	// Answered is the time when the plugin had returned its results, Published the time when the store
	// had them.
	Answered, Published time.Time
	// Planned is the time when the switches had the plans that must be written before their epoch;
	// zero if the plugin made no such plans.
	Planned time.Time
	// Tables and Rows are the numbers of published tables and rows.
	Tables, Rows int

	records bool // the plugin's recording may still read the epoch
}

// Stages are the parts of the time from an epoch's end until its results can be read.
type Stages struct {
	epoch.Timings
	// Plugin is the time from the end of the read-out until the slowest plugin had returned its
	// results.
	Plugin time.Duration
	// Publish is the time from the end of Plugin until the last results were in the store.
	Publish time.Duration
	// Plan is the time from a plugin's results until the switches had its plans that are ahead of
	// their epoch, for the plugin that took longest; zero if there were no plans.
	Plan time.Duration
	// Total is the time from the epoch's end to the end of Publish.
	Total time.Duration
}

// ErrUnfinished says that a plugin is still analyzing the epoch, so that the report lacks its
// results. The results are published and counted when they arrive.
var ErrUnfinished = errors.New("the plugin is still analyzing the epoch")

// reportLag is the number of epochs after which an epoch is reported without the plugins that are
// still analyzing it. With the default deadline, every plugin has finished or lost the epoch
// before.
const reportLag = 3

// Delivery is an epoch that was handed to the plugins.
type Delivery struct {
	number   uint64
	end      time.Time
	report   Report
	reported chan struct{} // closed when report is complete and delivered
	due      chan struct{} // closed when the report stops waiting for plugins
	before   *Delivery     // the previous delivery; nil once due
	planned  func()        // waits until the plans for which the epoch freed the bank are written
}

// Wait waits until all plugins have finished the epoch and due plans are written, and returns the
// epoch's report.
func (d *Delivery) Wait() Report {
	d.planned()
	<-d.reported
	return d.report
}

// expire makes the report of the delivery that is lag deliveries before d due. Only Deliver calls
// it.
func (d *Delivery) expire(lag int) {
	for ; lag > 1 && d.before != nil; lag-- {
		d = d.before
	}
	if old := d.before; old != nil {
		d.before = nil
		close(old.due)
	}
}

// gather builds the report as the plugins finish.
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

// collect returns the reports of the plugins that finish before the epoch's report is due, and
// reports with ErrUnfinished for the others.
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
// them: a plugin that failed, to whose process the cells may still be sent, or a plugin that is
// recorded.
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
