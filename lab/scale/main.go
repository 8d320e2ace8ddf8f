// SPDX-License-Identifier: Apache-2.0

// Command scale runs the epochs of a cluster of collectors, or of one, with simulated switches, and
// measures time, processor time, memory and messages. Membership, epoch engines, parts and results
// are those of collectors, in one process with a NATS server; switches, plugins and outputs are
// simulated: a switch returns an array, and the plugin publishes a row for each switch.
// `make scale` runs it. It fails if an epoch lacks a switch, or has cells of another epoch.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/cluster/bus/natsserver"
	"github.com/netsketch/netsketch/collector/cluster/exchange"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/lab/evidence"
	"github.com/netsketch/netsketch/lab/programs"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

const (
	plugin   = "scale"
	list     = "/netsketch-univmon:univmon/node-summaries/node-summary"
	joinTime = 30 * time.Second
)

// scale is a run.
type scale struct {
	switches, kilobytes, epochs int
	collectors                  int
	merge                       bool
	filled                      float64
	interval                    time.Duration
	virtual                     bool

	template []uint32
	members  []*member
	failed   atomic.Bool
}

// member is a collector.
type member struct {
	s      *scale
	name   string
	bus    *bus.Bus
	store  *store.Store
	member *cluster.Component
	x      *exchange.Component
	engine *epoch.Engine
	clock  *epoch.Virtual // nil: the wall clock
	home   bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var s scale
	flag.IntVar(&s.switches, "switches", 1000, "simulated switches")
	flag.IntVar(&s.kilobytes, "kilobytes", 300, "registers of a switch, in units of 1024 bytes")
	flag.IntVar(&s.collectors, "members", 3, "collectors")
	flag.BoolVar(&s.merge, "merge", false, "the plugin adds the registers of a collector's switches before they are sent")
	flag.Float64Var(&s.filled, "filled", 1, "share of the registers' blocks of 4 KiB that counted packets, 0 to 1")
	flag.IntVar(&s.epochs, "epochs", 6, "epochs to measure, after one that is not")
	flag.DurationVar(&s.interval, "interval", 10*time.Second, "length of an epoch")
	flag.BoolVar(&s.virtual, "virtual", false, "do not wait between epochs: virtual time")
	flag.Parse()
	err := s.run(ctx)
	if err == nil && s.failed.Load() {
		err = errors.New("an epoch was not complete")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func (s *scale) run(ctx context.Context) error {
	s.template = make([]uint32, s.kilobytes<<10/4)
	const block = 4096 / 4
	for i := range s.template {
		if float64(i/block%100) < 100*s.filled {
			s.template[i] = uint32(i) | 1
		}
	}
	dir, err := os.MkdirTemp("", "netsketch-scale-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	defer s.stop()
	if err := s.join(ctx, dir); err != nil {
		return err
	}
	for _, m := range s.members {
		m.addSources()
	}
	fmt.Printf("%s: %d switches with %d KiB, %.0f %% of it counted packets, %d collectors\n", evidence.Run(), s.switches,
		s.kilobytes, 100*s.filled, s.collectors)
	if s.virtual {
		return s.step(ctx)
	}
	return s.wait(ctx)
}

// join starts the members and waits until each sees all members.
func (s *scale) join(ctx context.Context, dir string) error {
	addresses, err := programs.FreeAddresses(1)
	if err != nil {
		return err
	}
	for i := range s.collectors {
		m := &member{s: s, name: fmt.Sprintf("c%d", i+1), store: store.New(store.Options{})}
		s.members = append(s.members, m)
		cfg := bus.Config{Name: "scale", Member: m.name, Servers: slices.Clone(addresses)}
		if i == 0 {
			cfg.Servers, cfg.Serve = nil, natsserver.Start
			cfg.Embedded = &bus.Embedded{Listen: addresses[0], Directory: dir}
		}
		if m.bus, err = bus.Connect(ctx, cfg); err != nil {
			return err
		}
		m.member = cluster.New(cluster.Config{Member: m.name, Weight: 1, Version: "scale"},
			cluster.Dependencies{Bus: m.bus, OnView: func() {}})
		m.x = exchange.New(exchange.Config{Member: m.name, AckTimeout: joinTime}, exchange.Dependencies{
			Bus: m.bus, Store: m.store, Validate: (*table.Table).Check, View: m.member.View, OnWatched: func() {},
			Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), Wanted: s.wanted(), Merge: s.merged,
			Answer: func(context.Context, string, sdk.RowKey) ([]sdk.TableResult, uint64, string, error) {
				return nil, 0, "refused", errors.New("not simulated")
			},
		})
		if err = m.x.Start(); err == nil {
			err = m.member.Start()
		}
		if err != nil {
			return err
		}
	}
	limit := time.Now().Add(joinTime)
	for slices.ContainsFunc(s.members, func(m *member) bool { return len(m.member.View().Members) < s.collectors }) {
		if time.Now().After(limit) || ctx.Err() != nil {
			return errors.New("the members did not find each other")
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}

func (s *scale) stop() {
	for _, m := range slices.Backward(s.members) {
		if m.engine != nil {
			m.engine.Shutdown()
		}
		if m.x != nil {
			m.member.Stop()
			m.x.Stop()
		}
		m.store.Close()
		if m.bus != nil {
			m.bus.Close()
		}
	}
}

func nameOf(i int) string { return fmt.Sprintf("s%05d", i) }

// wanted returns the registers that the plugin reads.
func (s *scale) wanted() func() map[string]map[string]map[string]bool {
	devices := map[string]map[string]bool{}
	objects := map[string]bool{"cells": true, "epoch": true}
	for i := range s.switches {
		devices[nameOf(i)] = objects
	}
	return func() map[string]map[string]map[string]bool {
		return map[string]map[string]map[string]bool{plugin: devices}
	}
}

// merged adds the cells of the switches that a collector measured; nil if the plugin does not
// merge.
func (s *scale) merged(_ context.Context, _ string, ep *epoch.Epoch) (*sdk.Epoch, error) {
	if !s.merge {
		return nil, nil
	}
	out := &sdk.Epoch{Number: ep.Number}
	sum := make([]uint32, len(s.template))
	for _, o := range ep.Sources {
		out.Expected = append(out.Expected, o.Name)
		for i, n := range o.Reading.Objects[0].Uint32s() {
			sum[i] += n
		}
		out.Put(o.Name, o.Reading.Objects[1])
		out.Put(o.Name, sdk.CellsOf[uint32]("cells", nil))
	}
	if len(out.Expected) > 0 {
		out.Put(out.Expected[0], sdk.CellsOf("cells", sum))
	}
	return out, nil
}

// addSources makes the engine of a member collect its own switches, and at the home of the plugin
// also the switches of the others.
func (m *member) addSources() {
	view := m.member.View()
	m.home = view.Plugin(plugin) == m.name
	deadline := m.s.interval * 8 / 10
	deps := epoch.Dependencies{HandOver: m.x.HandOver}
	if m.s.virtual {
		m.clock = epoch.NewVirtual(time.Unix(1_800_000_000, 0), 5*time.Minute)
		deps.Clock = m.clock
	}
	m.engine = epoch.New(epoch.Config{Interval: m.s.interval, Deadline: deadline, HandOver: deadline / 4,
		Origin: time.Unix(0, 0)}, deps)
	own := 0
	for i := range m.s.switches {
		switch name := nameOf(i); {
		case view.Device(name) == m.name:
			own++
			m.engine.Add(&simulated{s: m.s, name: name})
		case m.home:
			m.engine.Add(m.x.Source(name, false))
		}
	}
	fmt.Printf("%s: %d switches; home of the plugin: %v\n", m.name, own, m.home)
}

// simulated is a switch.
type simulated struct {
	s      *scale
	name   string
	number uint64
}

func (d *simulated) Name() string           { return d.name }
func (d *simulated) Sealing() epoch.Sealing { return epoch.SealedByCollector }

func (d *simulated) Begin(b epoch.Boundary) (epoch.Part, []string) {
	return &simulated{d.s, d.name, b.Number}, nil
}

func (d *simulated) Seal(context.Context) error { return nil }

func (d *simulated) Collect(context.Context, epoch.Drained) (epoch.Result, error) {
	return epoch.Result{Reading: &epoch.Reading{Objects: []sdk.Cells{
		sdk.CellsOf("cells", slices.Clone(d.s.template)), sdk.CellsOf("epoch", []uint64{d.number}),
	}}}, nil
}

// deliver checks an epoch at the home and publishes a row for each switch.
func (m *member) deliver(ep *epoch.Epoch) {
	if !m.home {
		return
	}
	b := table.NewBuilder(list)
	device, dimension, packets := b.TextKey("node"), b.TextKey("dimension"), b.Uint("state/packets")
	wrong := m.s.switches - len(ep.Sources)
	sum := uint64(0)
	for _, o := range ep.Sources {
		if o.Err != nil || len(o.Reading.Objects) != 2 || o.Reading.Objects[1].At(0) != ep.Number ||
			o.Reading.Objects[0].Len() != len(m.s.template) && len(o.Reading.Merged) == 0 {
			wrong++
			continue
		}
		device.Append(o.Name)
		dimension.Append("src")
		n := uint64(0)
		if o.Reading.Objects[0].Len() > 0 {
			n = o.Reading.Objects[0].At(0)
		}
		sum += n
		packets.Append(n)
	}
	if all := uint64(m.s.switches) * uint64(m.s.template[0]); wrong == 0 && sum != all {
		wrong = m.s.switches
	}
	t, err := b.Table()
	if err == nil {
		err = m.store.Publish(store.Batch{Time: ep.End, Epoch: ep.Number,
			Tables: []store.Publication{{Table: t, Replace: true}}})
	}
	if err != nil || wrong > 0 {
		m.s.failed.Store(true)
		fmt.Printf("epoch %d: %d of %d switches are missing or wrong; error %v\n", ep.Number, wrong, m.s.switches, err)
	}
}

// wait measures epochs on the wall clock.
func (s *scale) wait(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var before usage
	count := 0
	for _, m := range s.members {
		all.Go(func() {
			err := m.engine.Run(ctx, func(ep *epoch.Epoch) {
				m.deliver(ep)
				if !m.home {
					return
				}
				now := s.usage()
				if count > 0 {
					now.print(before, ep.Closed.Sub(ep.End), s.switches)
				}
				if before = now; count == s.epochs {
					cancel()
				}
				count++
			})
			if err != nil {
				fmt.Println(m.name, err)
				s.failed.Store(true)
			}
		})
	}
	all.Wait()
	return nil
}

// step measures epochs in virtual time.
func (s *scale) step(ctx context.Context) error {
	at := s.members[0].clock.Now()
	each := func(f func(m *member) error) error {
		var all sync.WaitGroup
		errs := make([]error, len(s.members))
		for i, m := range s.members {
			all.Go(func() { errs[i] = f(m) })
		}
		all.Wait()
		return errors.Join(errs...)
	}
	wait := func(m *member) epoch.WaitFunc {
		return func(_ context.Context, d time.Duration) error { m.clock.Advance(d); return nil }
	}
	if err := each(func(m *member) error { return m.engine.Open(ctx, at, wait(m)) }); err != nil {
		return err
	}
	before := s.usage()
	for i := range s.epochs + 1 {
		at = at.Add(s.interval)
		begin := time.Now()
		if err := each(func(m *member) error {
			m.clock.AdvanceTo(at)
			ep, err := m.engine.Close(ctx, at, wait(m))
			if err == nil {
				m.deliver(ep)
			}
			return err
		}); err != nil {
			return err
		}
		now := s.usage()
		if i > 0 {
			now.print(before, time.Since(begin), s.switches)
		}
		before = now
	}
	return nil
}

// usage holds what the process has used and exchanged so far.
type usage struct {
	cpu   time.Duration
	peak  int64 // resident memory in bytes
	parts uint64
	bytes uint64
	rows  uint64
}

func (s *scale) usage() usage {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r) // cannot fail
	u := usage{cpu: time.Duration(r.Utime.Nano() + r.Stime.Nano()), peak: r.Maxrss << 10}
	for _, m := range s.members {
		n := m.x.Stats()
		u.parts, u.bytes, u.rows = u.parts+n.PartsSent, u.bytes+n.PartBytesSent, u.rows+n.BatchBytesSent
	}
	return u
}

// print shows one epoch.
func (u usage) print(before usage, took time.Duration, switches int) {
	cpu := u.cpu - before.cpu
	fmt.Printf("epoch: %v to its delivery, CPU %v (%v per switch), %d parts, %.1f MB of parts, %d KB of results, "+
		"peak memory %d MB\n", took.Round(time.Millisecond), cpu.Round(time.Millisecond),
		(cpu / time.Duration(switches)).Round(time.Microsecond), u.parts-before.parts,
		float64(u.bytes-before.bytes)/1e6, (u.rows-before.rows)/1000, u.peak/1_000_000)
}
