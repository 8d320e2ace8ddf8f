// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"errors"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/yang/table"
)

// Paths of the collector's own state (module netsketch-collector).
const (
	listCollector = "/netsketch-collector:collector/state"
	listEpoch     = "/netsketch-collector:collector/epoch/state"
	listDevices   = "/netsketch-collector:collector/devices/device"
	listPlugins   = "/netsketch-collector:collector/plugins/plugin"
)

// selfMetrics publishes the collector's own state: with each epoch, and when a device or plugin changes.
type selfMetrics struct {
	c       *Collector
	off     bool
	started time.Time
	wake    chan struct{}

	mu      sync.Mutex // one publication at a time
	counts  map[epoch.Status]uint64
	devices map[string]*deviceCounts
	failing bool // for the log
	observe func() (streams int, first time.Duration)
}

// deviceCounts are a device's epochs.
type deviceCounts struct {
	complete, lost, last uint64
}

func newMetrics(c *Collector) *selfMetrics {
	return &selfMetrics{
		c: c, off: !c.cfg.Metrics.Enabled, started: time.Now(), wake: make(chan struct{}, 1),
		counts: map[epoch.Status]uint64{}, devices: map[string]*deviceCounts{},
	}
}

// changed says that the state of a device or plugin is another one.
func (m *selfMetrics) changed() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// ObserveSubscribers lets the collector publish, beside its own state, what only the gNMI server knows:
// how many streams are open, and the time from the end of the newest epoch that was sent to the first
// update of it that was handed to a subscriber's connection; 0 when there was none. f must not block.
func (c *Collector) ObserveSubscribers(f func() (streams int, first time.Duration)) {
	c.metrics.mu.Lock()
	defer c.metrics.mu.Unlock()
	c.metrics.observe = f
}

// follow publishes after changes, until the collector stops.
func (m *selfMetrics) follow() {
	for {
		select {
		case <-m.wake:
			m.mu.Lock()
			m.publish(m.c.clock.Now(), 0, m.state(), m.deviceTable(nil), m.pluginTable(), m.c.discovery.table())
			m.mu.Unlock()
		case <-m.c.ctx.Done():
			return
		}
	}
}

// epoch counts and publishes an epoch.
func (m *selfMetrics) epoch(r *Report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[r.Status]++
	m.counts[epoch.Lost] += r.Skipped
	for _, d := range r.Devices {
		n := m.devices[d.Name]
		if n == nil {
			n = &deviceCounts{}
			m.devices[d.Name] = n
		}
		if d.Err != nil {
			n.lost++
			continue
		}
		n.complete++
		n.last = r.Number
	}
	m.publish(r.End, r.Number, m.state(), m.epochTable(r), m.deviceTable(r), m.pluginTable(), m.c.discovery.table())
}

// publish puts tables into the store. m.mu is held.
func (m *selfMetrics) publish(at time.Time, number uint64, tables ...*table.Builder) {
	if m.off {
		return
	}
	b := store.Batch{Time: at, Epoch: number}
	for _, tb := range tables {
		t, err := tb.Table()
		if err == nil {
			err = m.c.schema.validate(t)
		}
		if err != nil {
			m.fail(err)
			continue
		}
		b.Tables = append(b.Tables, store.Publication{Table: t, Replace: t.List == listDevices || t.List == listPlugins || t.List == listLinks})
	}
	if err := m.c.store.Publish(b); err != nil && m.c.ctx.Err() == nil {
		m.fail(err)
	}
}

// fail logs a state that cannot be published, once: it would be a mistake of this file.
func (m *selfMetrics) fail(err error) {
	if !m.failing {
		m.failing = true
		m.c.log.Error("the collector's own state cannot be published", "error", err)
	}
}

func ns(d time.Duration) uint64 { return uint64(max(0, d.Nanoseconds())) }

func (m *selfMetrics) state() *table.Builder {
	cfg := m.c.Config()
	b := table.NewBuilder(listCollector)
	text(b, "name", cfg.Name)
	number(b, "epoch-length", ns(cfg.Epoch.Interval))
	number(b, "straggler-wait", ns(cfg.Epoch.Guard))
	number(b, "deadline", ns(cfg.Epoch.Deadline))
	text(b, "version", m.c.deps.Version)
	number(b, "started", uint64(m.started.UnixNano()))
	number(b, "epochs-complete", m.counts[epoch.Complete])
	number(b, "epochs-partial", m.counts[epoch.Partial])
	number(b, "epochs-lost", m.counts[epoch.Lost])
	if m.observe != nil {
		streams, _ := m.observe()
		number(b, "subscriptions", uint64(streams))
	}
	number(b, "watched-flows", uint64(m.c.plugins.watchedRows()))
	number(b, "rows", uint64(m.c.store.Stats().Rows))
	number(b, "heap", heap())
	return b
}

// heap is the memory in use by objects.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}

func (m *selfMetrics) epochTable(r *Report) *table.Builder {
	b := table.NewBuilder(listEpoch)
	var missing []string
	for _, d := range r.Devices {
		if d.Err != nil {
			missing = append(missing, d.Name)
		}
	}
	number(b, "number", r.Number)
	text(b, "status", r.Status.String())
	number(b, "start", uint64(r.Start.UnixNano()))
	number(b, "end", uint64(r.End.UnixNano()))
	number(b, "devices-expected", uint64(len(r.Devices)))
	number(b, "devices-present", uint64(len(r.Devices)-len(missing)))
	number(b, "devices-missing", uint64(len(missing)))
	text(b, "missing", cut(strings.Join(missing, ","), 4096))
	number(b, "flip-time", ns(r.Stages.Flip))
	number(b, "flip-skew", ns(r.Stages.Skew))
	number(b, "wait-time", ns(r.Stages.Wait))
	number(b, "readout-time", ns(r.Stages.Read))
	number(b, "drain-time", ns(r.Stages.Drain))
	number(b, "plan-time", ns(r.Stages.Plan))
	text(b, "doubts", doubtsText(r.Doubts))
	number(b, "plugin-time", ns(r.Stages.Plugin))
	number(b, "publish-time", ns(r.Stages.Publish))
	if m.observe != nil {
		if _, first := m.observe(); first > 0 {
			number(b, "first-update-time", ns(first))
		}
	}
	number(b, "total-time", ns(r.Stages.Total))
	number(b, "cells", uint64(r.Cells))
	number(b, "rows", uint64(r.Rows))
	return b
}

// doubtsText joins doubts into a line.
func doubtsText(doubts []epoch.Doubt) string {
	texts := make([]string, len(doubts))
	for i, d := range doubts {
		texts[i] = oneLine(strings.TrimSpace(d.Member + " " + d.Reason))
	}
	s := strings.Join(texts, "; ")
	if len(s) > 4096 {
		s = strings.ToValidUTF8(s[:4096], "")
	}
	return s
}

// cut shortens a list of names at a comma.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	s = s[:limit]
	return s[:strings.LastIndexByte(s, ',')]
}

func (m *selfMetrics) deviceTable(r *Report) *table.Builder {
	b := table.NewBuilder(listDevices)
	name := b.TextKey("name")
	address, id, program := b.Text("state/address"), b.Uint("state/device-id"), b.Text("state/program")
	connection, mastership := b.Text("state/connection"), b.Text("state/mastership")
	method := b.Text("state/readout-method")
	read, flip := b.Uint("state/readout-time"), b.Uint("state/flip-time")
	last, complete, lost := b.Uint("state/last-epoch"), b.Uint("state/epochs-complete"), b.Uint("state/epochs-lost")
	reconnects, ins, dropped := b.Uint("state/reconnects"), b.Uint("state/packet-ins"), b.Uint("state/packet-ins-dropped")
	failure := b.Text("state/last-error")
	gnmi := m.c.discovery.columns(b)
	for _, d := range m.c.managedDevices() {
		st := d.Status()
		name.Append(d.Name())
		address.Append(d.Address())
		id.Append(d.DeviceID())
		program.Append(d.Program())
		connection.Append(connectionText(st.Session.State))
		mastership.Append(mastershipText(st.Session.State))
		if usable(st.Session.State) {
			method.Append(methodText(st))
		} else {
			method.AppendNull()
		}
		read.Append(ns(st.ReadTime))
		flip.Append(ns(st.FlipTime))
		n := m.devices[d.Name()]
		if n == nil {
			n = &deviceCounts{}
		}
		if n.complete > 0 {
			last.Append(n.last)
		} else {
			last.AppendNull()
		}
		complete.Append(n.complete)
		lost.Append(n.lost)
		reconnects.Append(st.Counts.SessionsLost)
		ins.Append(st.Counts.PacketIns)
		dropped.Append(st.Counts.PacketsDropped)
		failure.Append(deviceError(r, d.Name(), st))
		gnmi.append(d.Name())
	}
	for _, d := range m.c.discovery.pending() {
		name.Append(d.Name)
		address.Append(d.Address)
		connection.Append("down")
		mastership.Append("none")
		failure.Append(errNoID.Error())
		gnmi.append(d.Name)
		for _, c := range []interface{ AppendNull() }{id, program, method, read, flip, last, complete, lost, reconnects, ins, dropped} {
			c.AppendNull()
		}
	}
	return b
}

// deviceError is the newest error: that of the epoch, or of the session where the epoch's only follows
// from an earlier one.
func deviceError(r *Report, name string, st device.Status) string {
	if r != nil {
		for _, d := range r.Devices {
			if d.Name == name && d.Err != nil && (st.LastError == "" || !follows(d.Err)) {
				return oneLine(d.Err.Error())
			}
		}
	}
	return oneLine(st.LastError)
}

// follows tells that an epoch's error is the consequence of another.
func follows(err error) bool {
	return errors.Is(err, epoch.ErrJoining) || errors.Is(err, epoch.ErrUnread) || errors.Is(err, epoch.ErrMerged)
}

// oneLine writes joined errors for a leaf or a log.
func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }

func usable(s p4rt.State) bool {
	return s == p4rt.Ready || s == p4rt.Standby || s == p4rt.ReadOnly
}

func connectionText(s p4rt.State) string {
	switch s {
	case p4rt.Connecting:
		return "connecting"
	case p4rt.Arbitrating:
		return "arbitrating"
	case p4rt.Provisioning, p4rt.Reconciling:
		return "pipeline"
	case p4rt.Ready:
		return "ready"
	case p4rt.Standby, p4rt.ReadOnly:
		return "backup"
	}
	return "down"
}

func mastershipText(s p4rt.State) string {
	switch s {
	case p4rt.Provisioning, p4rt.Reconciling, p4rt.Ready:
		return "primary"
	case p4rt.Standby, p4rt.ReadOnly:
		return "backup"
	}
	return "none"
}

func methodText(st device.Status) string {
	if st.Capabilities.PacketReadout {
		return "packet"
	}
	return "register"
}

func (m *selfMetrics) pluginTable() *table.Builder {
	b := table.NewBuilder(listPlugins)
	name := b.TextKey("name")
	version, status, pid := b.Text("state/version"), b.Text("state/status"), b.Uint("state/pid")
	restarts, analysed, lost := b.Uint("state/restarts"), b.Uint("state/epochs-analysed"), b.Uint("state/epochs-lost")
	analysis, rows, refused := b.Uint("state/analysis-time"), b.Uint("state/rows"), b.Uint("state/rows-refused")
	applied, late, failed, problem := b.Uint("state/plans-applied"), b.Uint("state/plans-late"), b.Uint("state/plans-failed"), b.Text("state/last-plan-problem")
	saved := b.Uint("state/saved-epoch")
	dropped, failure := b.Uint("state/log-lines-dropped"), b.Text("state/last-error")
	for _, p := range m.c.plugins.snapshot() {
		name.Append(p.name)
		version.Append(p.status.Version)
		status.Append(pluginStatusText(p.status.State))
		pid.Append(uint64(p.status.PID))
		restarts.Append(p.status.Restarts)
		analysed.Append(p.status.EpochsAnalysed)
		lost.Append(p.status.EpochsLost + p.busy)
		analysis.Append(ns(p.analysis))
		rows.Append(p.rows)
		refused.Append(p.refused)
		applied.Append(p.plans.applied)
		late.Append(p.plans.late)
		failed.Append(p.plans.failed)
		problem.Append(p.plans.last)
		if p.status.SavedEpoch > 0 {
			saved.Append(p.status.SavedEpoch)
		} else {
			saved.AppendNull()
		}
		dropped.Append(p.status.LogLinesDropped)
		failure.Append(oneLine(p.status.LastError))
	}
	return b
}

func pluginStatusText(s pluginhost.State) string {
	switch s {
	case pluginhost.StateRunning:
		return "running"
	case pluginhost.StateWaiting:
		return "backoff"
	case pluginhost.StateFailed:
		return "failed"
	case pluginhost.StateStopped:
		return "stopped"
	}
	return "starting"
}

// pluginSnapshot is a plugin for the state table.
type pluginSnapshot struct {
	name                string
	status              pluginhost.Status
	analysis            time.Duration
	rows, refused, busy uint64
	plans               planCounts
}

// snapshot lists all configured plugins by name, those that did not start among them.
func (p *plugins) snapshot() []pluginSnapshot {
	var out []pluginSnapshot
	for _, r := range p.running() {
		r.mu.Lock()
		s, refusal := pluginSnapshot{name: r.cfg.Name, analysis: r.analysis, rows: r.rows, refused: r.refused, busy: r.busy}, r.refusal
		r.mu.Unlock()
		s.status, s.plans = r.inst.Status(), p.c.plans.counted(s.name)
		if refusal != nil {
			s.status.LastError = refusal.Error()
		}
		out = append(out, s)
	}
	p.mu.Lock()
	for name, f := range p.failed {
		out = append(out, pluginSnapshot{name: name, status: pluginhost.Status{State: pluginhost.StateFailed, LastError: f.err.Error()}})
	}
	p.mu.Unlock()
	slices.SortFunc(out, func(a, b pluginSnapshot) int { return strings.Compare(a.name, b.name) })
	return out
}

func text(b *table.Builder, name, v string)       { b.Text(name).Append(v) }
func number(b *table.Builder, n string, v uint64) { b.Uint(n).Append(v) }

func sortReports(r []PluginReport) {
	slices.SortFunc(r, func(a, b PluginReport) int { return strings.Compare(a.Name, b.Name) })
}
