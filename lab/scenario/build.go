// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/lab"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/p4/compiled"
)

// sources makes the traffic of a scenario; every component is shifted by start. Traces assign
// addresses to the fabric's hosts, so sources runs before the fabric is built. The closers close
// the traces' files.
func (s *Scenario) sources(f *lab.Fabric, start time.Duration,
	placements map[string]*placement,
) (traffic.Source, []io.Closer, error) {
	var all, traces []traffic.Source
	var counts []*atomic.Int64 // packets of each trace
	var closers []io.Closer
	hosts := make([]traffic.Host, len(f.Hosts))
	for i, h := range f.Hosts {
		hosts[i] = traffic.Host{V4: h.V4, V6: h.V6, Site: h.Switch}
	}
	for i, c := range s.Traffic {
		src, err := s.source(c, uint64(i), f, hosts, placements)
		if err != nil {
			return nil, closers, err
		}
		if x, ok := src.(io.Closer); ok {
			closers = append(closers, x)
		}
		if c.Tunnel != "" {
			if src, err = traffic.Tunnel(src, c.Tunnel); err != nil {
				return nil, closers, err
			}
		}
		if c.Trace != "" {
			if c.Until > 0 {
				src = traffic.Until(src, c.Until-c.From)
				placements[c.Trace].played = nil
			}
			traces = append(traces, traffic.Shift(src, c.From))
			counts = append(counts, placements[c.Trace].played)
			continue
		}
		all = append(all, traffic.Shift(src, start))
	}
	if len(traces) > 0 {
		together := traffic.Together(time.Duration(s.Epochs)*s.Epoch, counts, traces...)
		all = append(all, traffic.Shift(together, start))
	}
	return traffic.Merge(all...), closers, nil
}

func (s *Scenario) source(c Component, i uint64, f *lab.Fabric, hosts []traffic.Host,
	placements map[string]*placement,
) (traffic.Source, error) {
	if c.Trace != "" {
		open := func() (*traffic.Trace, error) { return s.openTrace(c.Trace, placements[c.Trace].of) }
		if c.Repeat {
			return traffic.Repeat(open, time.Millisecond), nil
		}
		return open()
	}
	index := func(names []string) []int {
		var out []int
		for _, n := range names {
			out = append(out, findHost(f, n))
		}
		return out
	}
	sizes, err := c.sizes()
	if err != nil {
		return nil, err
	}
	g := traffic.Generated{
		Name: cmp.Or(c.Name, fmt.Sprintf("traffic %d", i+1)), Seed: s.Seed*1_000_003 + i,
		Rate: c.Rate, From: c.From, Until: c.Until, Flows: c.Flows, Zipf: c.Zipf, CDF: sizes,
		V6Share: c.IPv6, UDP: c.UDP, Bytes: c.Bytes, Senders: index(c.Senders), Receivers: index(c.Receivers),
		Target: c.Target, Source: c.Source,
	}
	if !c.Exact {
		return traffic.Generate(g, hosts)
	}
	return traffic.GenerateExact(traffic.Exact{
		Generated: g, Period: s.Epoch, Scale: c.Scale, Most: c.MaxPackets, Fresh: c.Fresh, Victims: c.Victims,
		Changes: c.Changes,
	}, hosts)
}

// openTrace opens a trace of the scenario. Several traces keep their pauses.
func (s *Scenario) openTrace(path string, place func(frame []byte) int) (*traffic.Trace, error) {
	traces := 0
	for _, c := range s.Traffic {
		if c.Trace != "" {
			traces++
		}
	}
	return traffic.OpenTrace(path, place, traces > 1)
}

// load returns the default program and the programs of switches and roles.
func (s *Scenario) load() (*compiled.Program, map[string]*compiled.Program, error) {
	all, err := loadProgram(s.Program)
	if err != nil {
		return nil, nil, err
	}
	some := make(map[string]*compiled.Program)
	for name, program := range s.Programs {
		if some[name], err = loadProgram(program); err != nil {
			return nil, nil, err
		}
	}
	return all, some, nil
}

// program returns the name of a switch's program.
func (s *Scenario) program(name string, role lab.Role) string {
	return cmp.Or(s.Programs[name], s.Programs[string(role)], s.Program)
}

// programText describes the switches' programs.
func (s *Scenario) programText() string {
	all := append([]string{s.Program}, slices.Collect(maps.Values(s.Programs))...)
	if s.Programs[string(lab.RoleEdge)] != "" && s.Programs[string(lab.RoleTransit)] != "" {
		all = all[1:] // no switch uses the default program
	}
	for i, program := range all {
		all[i] = filepath.Base(program)
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// changes returns the epochs of the run, from 0, in which traffic or a fault differs from the epoch
// before.
func (s *Scenario) changes() []int {
	at := map[int]bool{}
	add := func(d time.Duration) {
		if d > 0 {
			at[int(d/s.Epoch)] = true
		}
	}
	for _, c := range s.Traffic {
		add(c.From)
		add(c.Until)
		for _, x := range c.Changes {
			add(x.From)
		}
	}
	for _, x := range s.Faults {
		add(x.From)
		add(x.Until)
	}
	return slices.Sorted(maps.Keys(at))
}

// placeTraces assigns the addresses of all traces to the fabric's hosts.
func (s *Scenario) placeTraces(f *lab.Fabric) (map[string]*placement, error) {
	out := map[string]*placement{}
	for _, c := range s.Traffic {
		if c.Trace == "" || out[c.Trace] != nil {
			continue
		}
		p, err := s.place(f, c.Trace, slices.Contains(s.Agents, wire.Role))
		if err != nil {
			return nil, err
		}
		out[c.Trace] = p
	}
	return out, nil
}

// action is a fault's beginning or end.
type action struct {
	at time.Duration
	do func(context.Context, *Run) error
}

// actions lists what faults do, in order of time, shifted by start.
func (s *Scenario) actions(f *lab.Fabric, start time.Duration) []action {
	var out []action
	for _, x := range s.Faults {
		begin, end := x.actions(s, f)
		out = append(out, action{start + x.From, begin})
		if x.Until > 0 && end != nil {
			out = append(out, action{start + x.Until, end})
		}
	}
	slices.SortStableFunc(out, func(a, b action) int { return cmp.Compare(a.at, b.at) })
	return out
}

// actions returns what happens when the fault begins and ends; end is nil if it does not end.
func (x *Fault) actions(s *Scenario, f *lab.Fabric) (begin, end func(context.Context, *Run) error) {
	host, sw := findHost(f, x.Host), f.Find(x.Switch)
	switch {
	case x.Avoid:
		set := func(avoid bool) func(context.Context, *Run) error {
			return func(ctx context.Context, r *Run) error { return r.avoid(ctx, x.Link, avoid) }
		}
		return set(true), set(false)
	case x.Link != "":
		set := func(state lab.LinkState) func(context.Context, *Run) error {
			return func(_ context.Context, r *Run) error { return r.net.SetLink(x.Link, state) }
		}
		if x.Stall {
			return func(_ context.Context, r *Run) error {
				return r.net.SetLink(x.Link, lab.LinkState{Loss: s.Topology.Loss, Held: r.net.Clock().Now() + x.Until - x.From})
			}, set(lab.LinkState{Loss: s.Topology.Loss})
		}
		return set(lab.LinkState{Loss: x.Loss, Flows: x.Flows, Down: x.Down}), set(lab.LinkState{Loss: s.Topology.Loss})
	case x.To != "":
		var restore func() error
		return func(_ context.Context, r *Run) (err error) {
			restore, err = r.net.Misroute(sw, findHost(f, x.To), x.Via)
			return err
		}, func(context.Context, *Run) error { return restore() }
	case x.Kill:
		return func(_ context.Context, r *Run) error { r.killAgent(host); return nil },
			func(ctx context.Context, r *Run) error { return r.restartAgent(ctx, host) }
	case x.Host != "":
		set := func(ahead time.Duration) func(context.Context, *Run) error {
			return func(_ context.Context, r *Run) error { r.agents.all[host].clock.offset.Store(int64(ahead)); return nil }
		}
		return set(x.Clock), set(0)
	case x.Loss == 0 && !x.Refuse && x.Late == 0:
		return func(ctx context.Context, r *Run) error { return r.stopSwitch(ctx, sw) }, nil
	}
	set := func(x Fault) func(context.Context, *Run) error {
		return func(_ context.Context, r *Run) error {
			r.net.SetRefusing(sw, x.Refuse)
			r.net.SetSkew(sw, x.Late)
			r.net.SetLoss(sw, x.Loss, x.Flows)
			return nil
		}
	}
	return set(*x), set(Fault{})
}

// portNames lists the ports of a switch with their interfaces, as gnmi.ports has them.
func portNames(f *lab.Fabric, sw int) (ports []any) {
	add := func(number uint32) {
		ports = append(ports, map[string]any{"number": number, "interface": fmt.Sprint("Ethernet", number)})
	}
	for _, l := range f.Links {
		if l.A == sw {
			add(l.PortA)
		}
		if l.B == sw {
			add(l.PortB)
		}
	}
	for _, h := range f.Hosts {
		if h.Switch == sw {
			add(h.Port)
		}
	}
	return ports
}

// avoids reports whether routes avoid a link for some time. The collector then has no gNMI of the
// switches: it would add the link again, because LLDP discovers it.
func (s *Scenario) avoids() bool {
	return slices.ContainsFunc(s.Faults, func(x Fault) bool { return x.Avoid })
}

// avoid removes a link from the collector's configuration, or adds it again.
func (r *Run) avoid(ctx context.Context, name string, avoid bool) error {
	f, next := r.net.Fabric(), *r.col.Config()
	i := slices.IndexFunc(f.Links, func(l lab.Link) bool { return f.LinkName(l) == name })
	same := func(l config.Link) bool { return l == r.cfg.Links[i] } // in the fabric's order
	next.Links = slices.DeleteFunc(slices.Clone(next.Links), same)
	if !avoid {
		next.Links = append(next.Links, r.cfg.Links[i])
	}
	r.detours.Change(r.net.Clock().Now(), avoid)
	if _, err := r.col.Reload(ctx, &next); err != nil {
		return fmt.Errorf("scenario: link %s: %w", name, err)
	}
	return nil
}

// collectorConfig writes the configuration file that a user of this network would
// write, and reads it as the collector does. records is the directory of the changes of devices.
func (s *Scenario) collectorConfig(f *lab.Fabric, switches []lab.Device, opts Options, records string) (*config.Config,
	error) {
	type object = map[string]any
	var devices, links, hosts, instances []any
	for _, d := range switches {
		device := object{"name": d.Name, "address": d.Address, "device-id": d.DeviceID, "role": string(d.Role),
			"pipeline": pipeline(s.program(d.Name, d.Role))}
		if d.GNMI && !s.avoids() {
			gnmi := object{"address": d.Address}
			if slices.Contains(s.Unconfigured, d.Name) {
				gnmi["configure"], gnmi["ports"] = "enforce", portNames(f, f.Find(d.Name))
			}
			device["gnmi"] = gnmi
		}
		devices = append(devices, device)
	}
	port := func(sw int, p uint32) string { return fmt.Sprintf("%s/%d", f.Switches[sw].Name, p) }
	for _, l := range f.Links {
		links = append(links, object{"from": port(l.A, l.PortA), "to": port(l.B, l.PortB)})
	}
	for i, h := range f.Hosts {
		var addresses []string
		for _, p := range append([]netip.Prefix{h.V4, h.V6}, h.Prefixes...) {
			addresses = append(addresses, p.String())
		}
		mac := fmt.Sprintf("02:00:00:00:%02x:%02x", (i+1)>>8, (i+1)&0xff)
		hosts = append(hosts, object{"name": h.Name, "port": port(h.Switch, h.Port), "mac": mac,
			"addresses": addresses, "agent": len(s.Agents) > 0})
	}
	agents := object{}
	if len(s.Agents) > 0 {
		agents = object{"address": "127.0.0.1:0", "tls": object{"plaintext": true}}
	}
	for _, a := range s.Algorithms {
		instances = append(instances, s.instance(a))
	}
	epoch := object{"interval": s.Epoch.String(), "align": true}
	for key, d := range map[string]time.Duration{"guard": s.Guard, "drain": s.Drain, "deadline": s.Deadline} {
		if d > 0 {
			epoch[key] = d.String()
		}
	}
	plaintext := object{"plaintext": true}
	outputs := []any{object{"type": "gnmi", "address": opts.Listen, "tls": plaintext}}
	if opts.Web != "" {
		outputs = append(outputs, object{"type": "web", "address": opts.Web, "tls": plaintext})
	}
	data, err := json.Marshal(object{
		"name":  "netsketch",
		"epoch": epoch,
		"device-defaults": object{
			"forwarding": "managed", "tls": object{"plaintext": true},
			"gnmi": object{"tls": object{"plaintext": true}, "subscriptions": []any{
				object{"path": "/interfaces/interface/state/counters", "mode": "sample",
					"sample-interval": max(s.Epoch, time.Second).String()},
				object{"path": "/interfaces/interface/config", "mode": "on-change"},
				object{"path": "/components", "mode": "on-change"},
			}},
		},
		"devices": devices, "links": links, "hosts": hosts, "agents": agents,
		"plugins": object{"directory": opts.PluginDir, "instances": instances},
		"outputs": outputs, "device-configuration": object{"directory": records},
	})
	if err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	cfg, err := config.Parse("the demo's configuration", data) // JSON is valid YAML
	if err != nil {
		return nil, err
	}
	for _, o := range s.Outputs {
		o.Name = cmp.Or(o.Name, o.Type)
		cfg.Outputs = append(cfg.Outputs, o)
	}
	return cfg, nil
}
