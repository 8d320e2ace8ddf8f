// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/lab"
	"github.com/netsketch/netsketch/lab/scenario/gnmiread"
	"github.com/netsketch/netsketch/lab/scenario/groundtruth"
	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/scenario/scoring"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/outputs/all"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/softswitch"
)

// Options configure a run.
type Options struct {
	// PluginDir is the directory of the plugin binaries.
	PluginDir string
	// Listen is the address of the collector's gNMI server; port 0 selects a free one.
	Listen string
	// Web is the address of the console; port 0 selects a free one. It is not served if empty.
	Web string
	// HTTP is the address of /metrics, /metrics/results with all lists of the scored plugins, /healthz
	// and /readyz; they are not served if empty.
	HTTP string
	// Virtual plays on a virtual clock: as fast as it can be computed, the same in every run.
	Virtual bool
	// Paced keeps the virtual clock from running ahead of the machine's. It needs Virtual.
	Paced bool
	// Start is when virtual time begins; January 1, 2026 if it is zero. Paced begins at the present.
	Start time.Time
	// BMv2 are the switches, by name or role, that run BMv2's simple_switch_grpc instead of a soft
	// switch.
	BMv2 []string
	// Logger receives the logs of the collector and the switches; nil disables logging.
	Logger *slog.Logger
	// OnEpoch is called after each epoch; nil for none.
	OnEpoch func(*Run) error
	// GroundTruth writes what happened to the flows of each scored epoch; nil for none.
	GroundTruth *groundtruth.File
	// Compiler shares compiled programs between runs; nil compiles them anew.
	Compiler *softswitch.Compiler
	// Version is the version that the collector reports.
	Version string
	// Point are the values of the keys that a sweep changes, for GroundTruth.
	Point []string
}

// Run is a scenario that is being played.
type Run struct {
	s       *Scenario
	o       Options
	net     *lab.Network
	cfg     *config.Config
	col     *collector.Collector
	virtual *epoch.Virtual
	outs    *all.Set
	outDone chan error
	stopOut context.CancelFunc
	client  *gnmiread.Client
	reports chan collector.Report
	source  traffic.Source
	closers []io.Closer
	records string // directory of the changes of devices; "" if there is none
	actions []action
	detours truth.Times   // when routes avoid links as planned
	first   time.Time     // when traffic begins
	anew    time.Duration // the lab's time at which traffic and faults begin again
	places  map[string]*placement
	scorers map[string]*score.Scorer // by plugin
	plugins []string                 // names of all plugins
	shared  int                      // epochs that share a bank
	rule    truth.Rule               // rule for the flows of packets; nil: the rule of the P4 programs
	header  *header.Layout           // header that hosts put into packets; nil: they put none
	scored  []string                 // names of the scored plugins, in the order of the scenario
	latency gnmiread.Latencies
	report  Report

	watching []context.CancelFunc // ends the subscriptions to watched rows
	agents   agents
}

// Open builds the network and starts the collector against it. When it returns, every
// switch is measured and the gNMI server answers. Close ends it all.
func Open(ctx context.Context, s *Scenario, o Options) (r *Run, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r = &Run{s: s, o: o, reports: make(chan collector.Report, 64), scorers: map[string]*score.Scorer{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
			r = nil
		}
	}()
	f, err := s.fabric()
	if err != nil {
		return r, err
	}
	if err := r.startScoring(f); err != nil {
		return r, err
	}
	if r.places, err = s.placeTraces(f); err != nil {
		return r, err
	}
	program, programs, err := s.load()
	if err != nil {
		return r, err
	}
	clock := lab.WallClock(time.Now())
	if o.Virtual {
		switch {
		case o.Paced:
			r.o.Start = time.Now()
		case r.o.Start.IsZero():
			r.o.Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		r.virtual = epoch.NewVirtual(r.o.Start, virtualLimit)
		if clock = lab.VirtualClock(r.virtual); o.Paced {
			clock = lab.PacedClock(r.virtual)
		}
	}
	external, err := bmv2Switches(f, o.BMv2)
	if err != nil {
		return r, err
	}
	if r.net, err = lab.New(lab.Config{Fabric: f, Program: program, Programs: programs, BMv2: external, Clock: clock,
		Unconfigured: s.Unconfigured, Seed: s.Seed, Logger: o.Logger, Compiler: o.Compiler, Header: r.header, Rule: r.rule,
		Track: o.GroundTruth != nil || slices.ContainsFunc(s.Scoring, scoring.Scoring.Tracked) ||
			slices.ContainsFunc(s.Agents, func(name string) bool { return name != wire.Role })}); err != nil {
		return r, err
	}
	if o.GroundTruth != nil {
		o.GroundTruth.Begin(o.Point, s.Seed)
	}
	if len(s.Unconfigured) > 0 {
		if r.records, err = os.MkdirTemp("", "netsketch-devices-"); err != nil {
			return r, err
		}
	}
	if r.cfg, err = s.collectorConfig(r.net.Fabric(), r.net.Devices(), o, r.records); err != nil {
		return r, err
	}
	if err := r.startCollector(ctx); err != nil {
		return r, err
	}
	r.report = Report{
		Plugins:  r.plugins,
		Scenario: s.Name, Clock: "wall", Switches: len(f.Switches), Hosts: len(f.Hosts), Program: s.programText(),
		GNMI: r.outs.Address("gnmi"), Console: r.outs.ConsoleURL(), Started: time.Now().UTC(),
	}
	if o.Paced {
		r.report.Clock = pacedClock
	} else if o.Virtual {
		r.report.Clock = "virtual"
	}
	for _, path := range slices.Sorted(maps.Keys(r.places)) {
		r.report.Traces = append(r.report.Traces, r.places[path].trace)
	}
	if r.client, err = gnmiread.Dial(r.report.GNMI); err != nil {
		return r, err
	}
	return r, r.waitForwarding(ctx)
}

// bmv2Switches checks the names of switches that are to be BMv2.
func bmv2Switches(f *lab.Fabric, names []string) (map[string]bool, error) {
	out := map[string]bool{}
	for _, name := range names {
		if !slices.ContainsFunc(f.Switches, func(s lab.Switch) bool {
			return s.Name == name ||
				string(s.Role) == name
		}) {
			return nil, fmt.Errorf("scenario: BMv2 instead of %q: expected a switch of the topology, or a role "+
				"(edge, transit) that is in it", name)
		}
		out[name] = true
	}
	return out, nil
}

// virtualLimit bounds, in real time, the duration of a boundary on a virtual clock. A busy machine
// plays the packets of that time slowly.
const virtualLimit = 3 * time.Minute

// readyLimit is how long devices may take to be measured, in real time.
func (r *Run) readyLimit() time.Duration {
	const limit = 30 * time.Second
	if r.virtual == nil {
		return limit
	}
	return r.virtual.IOLimit(limit)
}

// resultRows bounds the rows of each plugin in /metrics/results.
const resultRows = 100_000

// startCollector starts the collector and its outputs, and waits for the devices.
func (r *Run) startCollector(ctx context.Context) (err error) {
	deps := collector.Dependencies{
		Logger: r.o.Logger, Version: r.o.Version,
		Programs: Programs,
		OnReport: func(rep collector.Report) { r.reports <- rep },
	}
	if r.virtual != nil {
		deps.Clock = r.virtual
	}
	r.cfg.HTTP.Address, r.cfg.HTTP.ResultRows = r.o.HTTP, resultRows
	for _, name := range r.scored {
		r.cfg.HTTP.Results = append(r.cfg.HTTP.Results, "/"+r.scorers[name].Algorithm().Root)
	}
	if r.col, err = collector.New(r.cfg, deps); err != nil {
		return err
	}
	if err := r.col.Start(ctx); err != nil {
		return err
	}
	failed := r.col.FailedPlugins()
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		return fmt.Errorf("scenario: plugin %s does not run: %w", name, failed[name])
	}
	if err := errors.Join(r.col.Faults()...); err != nil {
		return fmt.Errorf("scenario: %w", err)
	}
	if err := r.s.checkPublished(r.col.Schema(), r.plugins...); err != nil {
		return err
	}
	if r.outs, err = all.Open(r.cfg.Outputs, r.col, r.o.Logger); err != nil {
		return err
	}
	if err := r.outs.Start(); err != nil {
		return err
	}
	r.col.Health().Outputs.Store(true)
	var outCtx context.Context
	outCtx, r.stopOut = context.WithCancel(context.WithoutCancel(ctx))
	r.outDone = make(chan error, 1)
	go func() { r.outDone <- r.outs.Run(outCtx) }()

	ready, cancel := context.WithTimeout(ctx, r.readyLimit())
	defer cancel()
	if missing := r.waitReady(ready); len(missing) > 0 {
		return fmt.Errorf("scenario: these switches are not measured after %v: %v", r.readyLimit(), missing)
	}
	return errors.Join(r.startAgents(ready), ctx.Err())
}

// waitReady waits for the devices; on a virtual clock it lets time go by meanwhile.
func (r *Run) waitReady(ctx context.Context) []string {
	if r.virtual == nil {
		return r.col.WaitReady(ctx)
	}
	done := make(chan []string, 1)
	go func() { done <- r.col.WaitReady(ctx) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case missing := <-done:
			return missing
		case <-tick.C:
			r.virtual.Advance(time.Millisecond)
		}
	}
}

// waitForwarding waits until the collector reports all switches as connected, including switches
// that are not measured, because they have their routes then. It also waits for the entries that
// plugins planned, so that the first packets are treated like all others, and on a virtual clock
// for the gNMI sessions, which keep to real time.
func (r *Run) waitForwarding(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.readyLimit())
	defer cancel()
	for pause := time.Millisecond; ; pause = min(pause*3/2, 10*time.Millisecond) {
		leaves, err := r.client.Leaves(ctx, "collector", "devices")
		if err != nil {
			return err
		}
		connected, synced := 0, 0
		for _, l := range leaves {
			if l.Path[len(l.Path)-1].GetName() == "connection" {
				switch l.Text {
				case "READY":
					connected++
				case "SYNCED":
					synced++
				}
			}
		}
		if want := len(r.net.Devices()); connected == want && (r.virtual == nil || synced == r.sessions()) {
			if r.waitReady(ctx); ctx.Err() != nil {
				return fmt.Errorf("scenario: not all switches have the entries that plugins planned after %v",
					r.readyLimit())
			}
			return nil
		} else if ctx.Err() != nil {
			return fmt.Errorf("scenario: %d of %d switches are connected and %d of %d gNMI sessions are synchronized "+
				"after %v", connected, want, synced, r.sessions(), r.readyLimit())
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// sessions returns the number of switches that the collector reads over gNMI.
func (r *Run) sessions() (n int) {
	for i := range r.cfg.Devices {
		if r.cfg.Devices[i].GNMI.Address != "" {
			n++
		}
	}
	return n
}

// stopSwitch stops a switch. On a virtual clock it waits until the collector knows from the
// neighbors that their ports are down, because gNMI keeps to real time.
func (r *Run) stopSwitch(ctx context.Context, sw int) error {
	r.net.StopSwitch(sw)
	if r.virtual == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.readyLimit())
	defer cancel()
	f := r.net.Fabric()
	for _, l := range f.Links {
		neighbor, port := l.A, l.PortA
		if l.A == sw {
			neighbor, port = l.B, l.PortB
		} else if l.B != sw {
			continue
		}
		if d := r.cfg.Devices[neighbor]; d.GNMI.Address == "" || r.net.StoppedBefore(neighbor, r.net.Clock().Now()) {
			continue
		}
		if err := r.waitDown(ctx, f.Switches[neighbor].Name, lab.PortName(port)); err != nil {
			return err
		}
	}
	return nil
}

// waitDown waits until the collector serves the operational status of a switch's port as DOWN.
func (r *Run) waitDown(ctx context.Context, sw, port string) error {
	p := gnmiread.Path("interfaces", "interface", "state", "oper-status")
	p.Elem[1].Key = map[string]string{"name": port}
	for {
		leaves, err := r.client.Read(ctx, sw, p)
		if err != nil {
			return fmt.Errorf("scenario: port %s of switch %s: %w", port, sw, err)
		}
		if len(leaves) == 1 && leaves[0].Text == "DOWN" {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("scenario: port %s of switch %s is not down after %v", port, sw, r.readyLimit())
		}
	}
}

// Programs finds a compiled program for the collector.
func Programs(name string) (*p4rt.Program, error) {
	p, err := compiled.Load(name)
	if err != nil {
		return nil, err
	}
	return &p4rt.Program{Name: p.Name, DeviceConfig: p.JSON, P4Info: p.P4Info}, nil
}

// Address returns where the collector's gNMI server listens.
func (r *Run) Address() string { return r.report.GNMI }

// ConsoleURL returns where a browser finds the console; empty without one.
func (r *Run) ConsoleURL() string { return r.report.Console }

// Report returns the report so far, which grows with each epoch.
func (r *Run) Report() *Report { return &r.report }

// Network returns the lab.
func (r *Run) Network() *lab.Network { return r.net }

// Collector returns the collector.
func (r *Run) Collector() *collector.Collector { return r.col }

// Play plays the scenario to its end, or until ctx ends, and returns the report. The
// report is never nil; its OK is true when every bound was kept.
func (r *Run) Play(ctx context.Context) (*Report, error) {
	play := r.playWall
	if r.virtual != nil {
		play = r.playVirtual
	}
	watch, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	if (r.virtual == nil || r.o.Paced) && len(r.scored) > 0 {
		a := r.scorers[r.scored[0]].Algorithm()
		marker := []string{a.Root, "summary", "state", cmp.Or(a.Marker, score.DefaultMarker)}
		watching.Go(func() { r.latency.Watch(watch, r.client, marker, r.o.Logger) })
	}
	err := errors.Join(play(ctx), r.agents.failure())
	stop()
	watching.Wait()
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled) {
		err = nil // the requested end
	}
	for _, name := range r.scored {
		err = errors.Join(err, r.scorers[name].Unpublished())
	}
	if err != nil {
		r.report.Error = err.Error()
	}
	r.fillStats()
	r.report.finish(r.s.Expect, r.scorers)
	r.report.Hint = r.report.slow(r.s.Epoch)
	return &r.report, err
}

func (r *Run) fillStats() {
	s := r.net.Stats()
	r.report.Network = NetworkStats{
		Sent: s.Sent, Copied: s.Copied, FromControllers: s.FromControllers, Received: s.Received, Lost: s.Lost,
		Dropped: s.Dropped, InFlight: s.InTransit, LagNS: int64(s.Lag),
	}
	r.report.Network.Altered, _ = r.net.Altered()
	if all := r.latency.Sorted(); len(all) > 0 {
		r.report.Latency = &Latency{MedianNS: int64(all[len(all)/2]), WorstNS: int64(all[len(all)-1]), Epochs: len(all)}
	}
	for i := range r.report.Traces {
		t := &r.report.Traces[i]
		if n := r.places[t.File].played; n != nil {
			played := n.Load()
			t.Played = &played
		}
	}
}

// begin opens the sources so that traffic starts at the lab's time start, and sets when it begins
// anew.
func (r *Run) begin(start time.Duration) error {
	for _, c := range r.closers {
		_ = c.Close() // the file was only read
	}
	var err error
	r.source, r.closers, err = r.s.sources(r.net.Fabric(), start, r.places)
	r.actions = r.s.actions(r.net.Fabric(), start)
	r.anew = math.MaxInt64
	if d := r.s.repeat(); d > 0 {
		r.anew = start + d
	}
	return err
}

// start begins the scenario at a time of the collector's clock, which is the lab's time at.
func (r *Run) start(first time.Time, at time.Duration) error {
	r.first = first
	return r.begin(at)
}

// quiet is traffic without packets.
type quiet struct{}

// Next implements traffic.Source.
func (quiet) Next() (traffic.Packet, error) { return traffic.Packet{}, io.EOF }

// advance plays until the lab's time until, and carries out everything that is due on the way.
func (r *Run) advance(ctx context.Context, until time.Duration) error {
	if r.source == nil {
		return r.net.Play(ctx, quiet{}, until)
	}
	for r.anew < until {
		if err := r.round(ctx, r.anew); err != nil {
			return err
		}
		if err := r.begin(r.anew); err != nil {
			return err
		}
	}
	return r.round(ctx, until)
}

// round plays the packets of the newest boundary.
func (r *Run) round(ctx context.Context, until time.Duration) error {
	for len(r.actions) > 0 && r.actions[0].at < until {
		if err := r.net.Play(ctx, r.source, r.actions[0].at); err != nil {
			return err
		}
		if err := r.actions[0].do(ctx, r); err != nil {
			return err
		}
		r.actions = r.actions[1:]
	}
	return r.net.Play(ctx, r.source, until)
}

// last returns the number of epochs after which the run ends.
func (r *Run) last() int {
	if r.s.Epochs == 0 {
		return math.MaxInt
	}
	return r.s.Epochs
}

// playVirtual moves time itself: traffic of one epoch, then its boundary to the end.
func (r *Run) playVirtual(ctx context.Context) error {
	interval := r.s.Epoch
	if r.o.Paced { // the start has taken real time
		r.virtual.AdvanceTo(time.Now())
	}
	at := r.virtual.Now().Truncate(interval).Add(interval)
	labTime := func(t time.Time) time.Duration { return t.Sub(r.o.Start) }
	idle := 0 // epochs before the traffic: agents receive their settings in the first one
	if len(r.s.Agents) > 0 {
		idle = 1
	} else if err := r.start(at, labTime(at)); err != nil {
		return err
	}
	var waited []time.Duration // real time of playing packets: first for the guard, then for the drain
	var stopped error          // error of wait, which the collector does not return
	wait := func(ctx context.Context, d time.Duration) error {
		begin := time.Now()
		defer func() { waited = append(waited, time.Since(begin)) }()
		number, _ := r.col.Epoch()
		if err := r.agents.reach(ctx, number); err != nil { // the collector has just sent the epoch
			stopped = err
			return err
		}
		return r.advance(ctx, labTime(r.virtual.Now())+d)
	}
	if err := r.advance(ctx, labTime(at)); err != nil {
		return err
	}
	if err := r.col.Open(ctx, at, wait); err != nil {
		return err
	}
	number, _ := r.col.Epoch()
	if err := errors.Join(r.agents.wait(ctx, r.net.Fabric()), r.boundary(ctx, number)); err != nil {
		return err
	}
	for n, delivered := 0, 0; delivered-idle < r.last(); n++ {
		end := at.Add(interval)
		for at = r.agents.next(at, end, interval); at.Before(end); at = r.agents.next(at, end, interval) {
			if err := r.advance(ctx, labTime(at)); err != nil {
				return err
			}
			if err := r.boundary(ctx, 0); err != nil {
				return err
			}
		}
		if err := r.advance(ctx, labTime(end)); err != nil {
			return err
		}
		number++
		if err := r.boundary(ctx, number); err != nil {
			return err
		}
		switch {
		case n+1 != idle:
		case time.Duration(idle)*interval < decisionTime && !r.agents.decided():
			idle++
		default:
			if err := r.start(end, labTime(end)); err != nil {
				return err
			}
		}
		waited = waited[:0]
		if rep, err := r.col.Step(ctx, at, wait); err != nil || stopped != nil {
			return cmp.Or(err, stopped)
		} else if rep.Number == 0 {
			continue // the network has not drained
		}
		rep := <-r.reports
		if delivered++; delivered <= idle {
			continue
		}
		for _, d := range waited[min(1, len(waited)):] {
			rep.Stages.Read -= d // the collector did not work during this time
		}
		if err := r.score(ctx, rep, labTime); err != nil {
			return err
		}
	}
	return nil
}

// decisionTime is how long the traffic waits until hosts know to which others they may send
// headers. A pair of hosts without a decision by then sends no headers, which does no harm.
const decisionTime = 2 * time.Second

// relayed is the delay of the message that begins an epoch at a host whose clock is wrong.
const relayed = 100 * time.Microsecond

// boundary advances the epochs of hosts by their clocks. When it returns, all hosts are at least in
// the given epoch, unless no host has begun it: while the clocks of all hosts are more than an
// epoch ahead, the collector begins each epoch.
func (r *Run) boundary(ctx context.Context, number uint64) error {
	r.agents.tick()
	if r.agents.stragglers() {
		if err := r.advance(ctx, r.net.Clock().Now()+relayed); err != nil {
			return err
		}
	}
	return r.agents.follow(ctx, number)
}

// playWall plays while a collector runs on the wall clock.
func (r *Run) playWall(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now().Add(-r.net.Clock().Now())
	labTime := func(t time.Time) time.Duration { return t.Sub(began) }
	interval := r.s.Epoch
	// The collector opens at the boundary that comes; traffic begins with the epoch
	// after it, so that its first epoch is whole.
	start := time.Now().Truncate(interval).Add(2 * interval)
	if err := r.start(start, labTime(start)); err != nil {
		return err
	}
	var work sync.WaitGroup
	defer work.Wait()
	failed := make(chan error, 2)
	work.Go(func() {
		if err := r.col.Run(ctx); err != nil {
			failed <- err
		}
	})
	work.Go(func() {
		if err := r.advance(ctx, math.MaxInt64); err != nil && ctx.Err() == nil {
			failed <- err
		}
	})
	defer cancel()
	for n := 0; n < r.last(); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case rep := <-r.reports:
			if !rep.End.After(start) {
				continue
			}
			if err := r.score(ctx, rep, labTime); err != nil {
				return err
			}
			n++
		}
	}
	return nil
}

// Close ends the run: outputs, collector, network.
func (r *Run) Close() error {
	var errs []error
	for _, end := range r.watching {
		end()
	}
	if r.client != nil {
		errs = append(errs, r.client.Close())
	}
	if r.stopOut != nil {
		r.stopOut()
		errs = append(errs, <-r.outDone)
	}
	r.agents.stop()
	if r.col != nil {
		errs = append(errs, stopUnread(r.col, r.reports))
	}
	if r.net != nil {
		errs = append(errs, r.net.Close())
	}
	for _, c := range r.closers {
		errs = append(errs, c.Close())
	}
	if r.records != "" {
		errs = append(errs, os.RemoveAll(r.records))
	}
	return errors.Join(errs...)
}

// stopUnread stops a collector whose reports nobody reads any more. A collector that waits for a
// reader could not stop.
func stopUnread(col *collector.Collector, reports chan collector.Report) error {
	go func() {
		for range reports {
		}
	}()
	defer close(reports)
	return col.Stop(context.Background())
}

// History returns the scores of an algorithm's epochs so far; ok is false if it is not scored.
func (r *Run) History(algorithm string) (h *score.History, ok bool) {
	s, ok := r.scorers[algorithm]
	if !ok {
		return nil, false
	}
	return s.History(), true
}
