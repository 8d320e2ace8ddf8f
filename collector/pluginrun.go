// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/config"
	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// ErrPluginBusy is why a plugin misses an epoch when it is still at work on earlier ones.
var ErrPluginBusy = errors.New("still busy with the epoch before")

// pluginRun is one plugin instance with a goroutine that gives it one epoch after another. A plugin
// may be one epoch behind; one more is lost for it, and nothing else.
type pluginRun struct {
	p     *plugins
	inst  instance
	queue chan job
	ended chan struct{}

	// What of its state is on disk; the goroutine's.
	kept   uint64
	keptAt time.Time
	unkept bool

	mu       sync.Mutex
	closed   bool // no more jobs
	cfg      config.Plugin
	refusal  error // why it did not take the newest configuration and keeps cfg
	settings sdk.Settings
	planned  map[string]bool            // devices of the network that settings were made for
	bound    map[string]map[string]bool // what bindings returned for version
	version  uint64
	losing   bool   // for the log: one line per change
	busy     uint64 // epochs for which there was no room
	refused  uint64
	rows     uint64
	analysis time.Duration
}

// job is an epoch for a plugin. done gets exactly one value.
type job struct {
	epoch *sdk.Epoch
	done  chan<- PluginReport
}

func newPluginRun(p *plugins, cfg config.Plugin) *pluginRun {
	return &pluginRun{p: p, cfg: cfg, queue: make(chan job, 1), ended: make(chan struct{})}
}

func (r *pluginRun) begin() { go r.work() }

// end lets the goroutine finish what it has and waits for it.
func (r *pluginRun) end() {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.queue)
	}
	r.mu.Unlock()
	<-r.ended
}

func (r *pluginRun) config() config.Plugin {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cfg
}

// setConfig takes note of the configuration that the plugin has, and of why it is not a newer one.
func (r *pluginRun) setConfig(cfg config.Plugin, refusal error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cfg, r.bound, r.refusal = cfg, nil, refusal
}

// configured takes what the plugin asks of the network, each time it was configured.
func (r *pluginRun) configured(s sdk.Settings) {
	planned := map[string]bool{}
	for _, d := range r.network().Devices {
		planned[d.Name] = true
	}
	r.mu.Lock()
	first := r.inst == nil
	r.settings, r.planned, r.bound = s, planned, nil
	name := r.cfg.Name
	r.mu.Unlock()
	for _, m := range s.Missing {
		r.p.log.Warn("plugin misses something in the network", "plugin", name, "device", m.Device, "object", m.Object, "consequence", m.Consequence)
	}
	if s.Plan != nil {
		plan := *s.Plan
		plan.FromEpoch, plan.Ahead = 0, false
		r.p.c.plans.add(r.p.ctx, name, plan)
	}
	if first {
		return // Start goes on when all plugins are there
	}
	r.p.c.bindAll()
	for _, m := range r.p.c.managedDevices() {
		if _, err := m.Ready(); err == nil {
			r.p.c.plans.apply(r.p.c.ctx, m, r.p.c.opened(), false)
		}
	}
}

// network is the part of the network that the plugin is for.
func (r *pluginRun) network() sdk.Network {
	n := r.p.c.network()
	cfg := r.config()
	n.Devices = slices.DeleteFunc(n.Devices, func(d sdk.Device) bool { return !cfg.Selects(d.Name) })
	return n
}

// bindings are the objects that the plugin reads, by device. The map must not be changed.
func (r *pluginRun) bindings() map[string]map[string]bool {
	version := r.p.c.networkVersion()
	r.mu.Lock()
	bound, inst, settings, planned := r.bound, r.inst, r.settings, r.planned
	current := bound != nil && r.version == version
	r.mu.Unlock()
	if current {
		return bound
	}
	network := r.network()
	list := settings.Bindings
	if inst != nil {
		// What Describe asks for holds where the settings say nothing: when they have no bindings at all,
		// and for devices that came later, of which the plugin hears as an update.
		all, _ := network.Bind(inst.Describe().Objects)
		for _, b := range all {
			if len(settings.Bindings) == 0 || !planned[b.Device] {
				list = append(list[:len(list):len(list)], b)
			}
		}
	}
	bound = map[string]map[string]bool{}
	for _, b := range list {
		d := network.Device(b.Device)
		if d == nil || d.Object(b.Object) == nil {
			continue
		}
		if bound[b.Device] == nil {
			bound[b.Device] = map[string]bool{}
		}
		bound[b.Device][d.Object(b.Object).Name] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bound, r.version = bound, network.Version
	return bound
}

// view is an epoch as this plugin sees it: its devices, its objects.
func (r *pluginRun) view(ep *epoch.Epoch[*device.Reading]) *sdk.Epoch {
	bound := r.bindings()
	cfg := r.config()
	all := len(r.inst.Describe().Objects) == 0 && len(bound) == 0
	e := &sdk.Epoch{Number: ep.Number, Start: ep.Start, End: ep.End, BankShift: ep.BankShift, Skew: ep.Timings.Skew}
	for _, o := range ep.Switches {
		objects := bound[o.Name]
		if len(objects) == 0 && !(all && cfg.Selects(o.Name)) {
			continue
		}
		e.Expected = append(e.Expected, o.Name)
		if o.Err != nil {
			e.Missing = append(e.Missing, sdk.Missing{Name: o.Name, Reason: oneLine(o.Err.Error())})
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
	slices.Sort(e.Expected)
	e.States = r.p.c.plans.states(cfg.Name, ep.Number, e.Expected)
	for _, d := range ep.Doubts {
		if d.Member == "" || slices.Contains(e.Expected, d.Member) {
			e.Doubts = append(e.Doubts, sdk.Doubt{Device: d.Member, Reason: d.Reason})
		}
	}
	switch {
	case len(e.Missing) == 0 && ep.Skipped == 0:
		e.Status = sdk.StatusComplete
	case len(e.Devices) == 0:
		e.Status = sdk.StatusLost
	default:
		e.Status = sdk.StatusPartial
	}
	return e
}

// offer queues an epoch; it is lost for the plugin when there is no room.
func (r *pluginRun) offer(e *sdk.Epoch, done chan<- PluginReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		done <- PluginReport{Name: r.cfg.Name, Err: context.Canceled}
		return
	}
	select {
	case r.queue <- job{e, done}:
	default:
		r.busy++
		r.outcome(ErrPluginBusy)
		done <- PluginReport{Name: r.cfg.Name, Err: ErrPluginBusy}
	}
}

func (r *pluginRun) work() {
	defer close(r.ended)
	for j := range r.queue {
		j.done <- r.analyse(j.epoch)
		r.keepState(false)
	}
	r.keepState(true)
}

// analyse gives the plugin an epoch and publishes what it makes of it.
func (r *pluginRun) analyse(e *sdk.Epoch) PluginReport {
	cfg := r.config()
	rep := PluginReport{Name: cfg.Name}
	limit := cfg.Deadline
	if limit <= 0 {
		limit = e.End.Sub(e.Start)
	}
	ctx, cancel := r.p.c.clock.WithTimeout(r.p.ctx, limit)
	defer cancel()
	e.Plans = r.p.c.plans.outcomes(cfg.Name)
	begin := time.Now()
	results, err := r.inst.Analyse(ctx, e)
	rep.Answered = time.Now()
	rep.Duration = rep.Answered.Sub(begin)
	if err == nil {
		r.p.c.plans.told(cfg.Name, len(e.Plans))
		var planning sync.WaitGroup // beside publication, for a plan has little time
		planning.Go(func() { rep.Planned = r.plan(results) })
		rep.Tables, rep.Rows, err = r.publish(e, results)
		rep.Published = time.Now()
		planning.Wait()
	} else {
		rep.Published = time.Now()
	}
	rep.Err = err
	r.mu.Lock()
	defer r.mu.Unlock()
	r.analysis = rep.Duration
	r.rows += uint64(rep.Rows)
	r.outcome(err)
	return rep
}

// plan takes up plans. It returns when those that are ahead of their epoch were written, the zero time when there
// was none.
func (r *pluginRun) plan(results *sdk.Results) (planned time.Time) {
	name := r.config().Name
	for _, plan := range results.Plans {
		r.p.c.plans.add(r.p.ctx, name, plan)
		if plan.Ahead {
			planned = time.Now()
		}
	}
	return planned
}

// publish puts results into the store, all of a target's tables at once.
func (r *pluginRun) publish(e *sdk.Epoch, results *sdk.Results) (tables, rows int, err error) {
	c := r.p.c
	var order []string
	batches := map[string]*store.Batch{}
	for _, t := range results.Tables {
		if t.Target != "" && c.device(t.Target) == nil {
			r.refuse(t.Table.Rows())
			err = errors.Join(err, fmt.Errorf("table %s is for target %q, which is not a device", t.Table.List, t.Target))
			continue
		}
		b := batches[t.Target]
		if b == nil {
			b = &store.Batch{Target: t.Target, Time: e.End, Epoch: e.Number}
			batches[t.Target] = b
			order = append(order, t.Target)
		}
		b.Tables = append(b.Tables, store.Publication{Table: t.Table, Replace: t.Replace})
	}
	for _, target := range order {
		b := batches[target]
		n := 0
		for _, t := range b.Tables {
			n += t.Table.Rows()
		}
		if perr := c.store.Publish(*b); perr != nil {
			r.refuse(n)
			err = errors.Join(err, perr)
			continue
		}
		tables += len(b.Tables)
		rows += n
	}
	return tables, rows, err
}

func (r *pluginRun) refuse(rows int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused += uint64(rows)
}

// outcome logs when a plugin begins to lose epochs and when it has results again. r.mu is held.
func (r *pluginRun) outcome(err error) {
	switch {
	case err != nil && !r.losing && !errors.Is(err, context.Canceled):
		r.losing = true
		r.p.log.Warn("plugin loses epochs", "plugin", r.cfg.Name, "error", err)
	case err == nil && r.losing:
		r.losing = false
		r.p.log.Info("plugin has results again", "plugin", r.cfg.Name)
	}
}
