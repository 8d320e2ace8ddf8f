// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/netsketch/netsketch/hostagent/univmon/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
)

// Hosts as devices: agents with the role univmon count packets in the sketches of switches.

// addHosts adds the hosts with agents that measure, with the sketches of the first switch that has
// sketches, else of wire.Sketch. measured are the dimensions of switches, which hosts measure, too;
// if it is empty, addHosts adds the dimensions of hosts to it.
func (p *plan) addHosts(c *Configuration, network *sdk.Network, wanted []string, measured map[string]bool) error {
	if c.Hosts.Packets == HostsNone {
		return nil
	}
	for i := range network.Hosts {
		if h := &network.Hosts[i]; h.Agent {
			p.hosts = append(p.hosts, h.Name)
		}
	}
	slices.Sort(p.hosts)
	if len(p.hosts) == 0 {
		if len(network.Hosts) > 0 {
			p.settings.Missing = append(p.settings.Missing, sdk.MissingObject{Object: "host agents",
				Consequence: "no results of hosts: set agent on the hosts that run one"})
		}
		return nil
	}
	if len(measured) > 0 {
		wanted = slices.Sorted(maps.Keys(measured))
	}
	settings := wire.Settings{Packets: wire.Packets{Sent: c.Hosts.Packets != HostsReceived,
		Received: c.Hosts.Packets != HostsSent, Encapsulation: c.Hosts.Encapsulation}}
	if c.inner() && c.Hosts.Encapsulation == wire.EncapsulationSwitch {
		settings.Encapsulation = wire.EncapsulationSwitchInner
	}
	p.hostPackets = settings.Packets
	use := make(map[string]instance)
	for _, dimension := range wanted[:min(len(wanted), wire.MaxSketches)] {
		fields, err := flow.ParseFields(dimension)
		if err != nil {
			return err // check and find have parsed the dimension
		}
		l := wire.Sketch(fields)
		for i := range network.Devices {
			if in, ok := p.instances[network.Devices[i].Name][dimension]; ok {
				l = in.layout
				break
			}
		}
		settings.Sketches = append(settings.Sketches, l)
		use[dimension] = instance{dimension: dimension, layout: l}
		measured[dimension] = true
	}
	data, err := settings.Append(nil)
	if err != nil {
		return fmt.Errorf("settings of hosts: %w", err)
	}
	for _, name := range p.hosts {
		p.instances[name] = use
		p.hostPlan = append(p.hostPlan, sdk.HostSetting{Host: name, Role: wire.Role, Data: data})
	}
	return nil
}

// alike reports whether devices are all hosts, or all switches.
func (p *plan) alike(devices []string) bool {
	hosts := 0
	for _, name := range devices {
		if slices.Contains(p.hosts, name) {
			hosts++
		}
	}
	return hosts == 0 || hosts == len(devices)
}

// hostData is the report of a host: its sketches by dimension, or the reason for which it has none.
type hostData struct {
	name     string
	sketches map[string]*universal.Sketch
	unparsed *unparsed
	err      error // reason for which there are no sketches
}

// unparsed are packets of a host or a switch without a flow, by reason.
type unparsed struct {
	ended     [wire.TooDeep + 1]uint64 // packets that no other switch counts
	forwarded [wire.TooDeep + 1]uint64 // packets with a fault in a tunnel, which each switch on the path counts
}

// of returns the count of packets with a reason.
func (u *unparsed) of(c wire.Counter) uint64 { return u.ended[c] + u.forwarded[c] }

// reasons are the reasons why packets are not parsed.
func reasons(yield func(wire.Counter) bool) {
	for c := wire.NotIP; c <= wire.TooDeep && yield(c); c++ {
	}
}

func (u *unparsed) sum() (n uint64) {
	for c := range reasons {
		n += u.of(c)
	}
	return n
}

// add adds another device's counts.
func (u *unparsed) add(o *unparsed) {
	for c := range reasons {
		u.ended[c] += o.ended[c]
		u.forwarded[c] += o.forwarded[c]
	}
}

// less returns the counts of a network: u from its devices of weight 1, and o from its devices of
// weight -1.
func (u *unparsed) less(o *unparsed) *unparsed {
	out := new(unparsed)
	for c := range reasons {
		out.ended[c] = u.ended[c] + o.ended[c]
		out.forwarded[c] = u.forwarded[c] - min(u.forwarded[c], o.forwarded[c])
	}
	return out
}

// hostReports returns the reports of hosts that measure, and records late reports as problems.
func (a *analysis) hostReports() (out []hostData) {
	for i := range a.epoch.Late {
		if l := &a.epoch.Late[i]; l.Role == wire.Role {
			a.problem(l.Host, "its report of epoch %d arrived after that epoch was published, and is not used", l.Epoch)
		}
	}
	for i := range a.epoch.Hosts {
		h := &a.epoch.Hosts[i]
		if _, measures := slices.BinarySearch(a.plan.hosts, h.Host); h.Role != wire.Role || !measures {
			continue
		}
		d := hostData{name: h.Host, sketches: make(map[string]*universal.Sketch)}
		var r *wire.Report
		if r, d.err = wire.ParseReport(h.Data); d.err == nil {
			if r.Packets != a.plan.hostPackets {
				d.err = fmt.Errorf("its report is of other packets (%+v), expected %+v", r.Packets, a.plan.hostPackets)
			}
			for _, s := range r.Sketches {
				d.sketches[s.Layout().Key.String()] = s
			}
			d.unparsed = &unparsed{ended: [wire.TooDeep + 1]uint64(r.Counters[:])}
			a.uncounted(h.Host, d.unparsed, r.Counters[wire.Missed])
		}
		out = append(out, d)
	}
	return out
}

// uncounted reports packets that a device could not count, and the epochs whose report a host
// dropped.
func (a *analysis) uncounted(device string, packets *unparsed, epochs uint64) {
	text := ""
	for c := range reasons {
		if packets != nil && c != wire.NotIP && packets.of(c) > 0 { // packets of other protocols than IP are no problem
			text += fmt.Sprintf(" %s %d", c, packets.of(c))
		}
	}
	if epochs > 0 {
		text += fmt.Sprintf(" %s %d", wire.Missed, epochs)
	}
	if text != "" {
		a.problem(device, "packets or epochs are not counted:%s", text)
	}
}

// sealed returns the cells of a dimension.
func (d *hostData) sealed(in *instance) (*sealed, error) {
	if d.err != nil {
		return nil, d.err
	}
	s := d.sketches[in.dimension]
	switch {
	case s == nil:
		return nil, fmt.Errorf("its report has no sketch of %s", in.dimension)
	case s.Layout() != in.layout:
		return nil, fmt.Errorf("its sketch is of other settings (%v), expected %v", s.Layout(), in.layout)
	}
	return &sealed{layout: in.layout, counters: s.Counters(), heavy: s.Heavy(), packets: s.Packets()}, nil
}

// newSettings returns the plan of settings that hosts and switches do not have yet. The caller
// holds the lock.
func (p *Plugin) newSettings(epoch *sdk.Epoch) (plan sdk.Plan, ok bool) {
	plan.FromEpoch = epoch.Number + 1
	plan.Hosts = p.withdrawn()
	for _, s := range p.plan.hostPlan {
		if string(s.Data) != p.hostSettings[s.Host] {
			plan.Hosts = append(plan.Hosts, s)
		}
	}
	for _, w := range p.plan.choices {
		if p.chosen[w.Device] != w.Entry.Action {
			plan.Writes = append(plan.Writes, w)
		}
	}
	p.planned()
	return plan, len(plan.Hosts)+len(plan.Writes) > 0
}

// withdrawn returns what ends the role at hosts that measure no longer and still have agents. The
// caller holds the lock.
func (p *Plugin) withdrawn() (out []sdk.HostSetting) {
	for i := range p.network.Hosts {
		h := &p.network.Hosts[i]
		if _, measured := p.hostSettings[h.Name]; measured && h.Agent && !slices.Contains(p.plan.hosts, h.Name) {
			out = append(out, sdk.HostSetting{Host: h.Name, Role: wire.Role})
		}
	}
	return out
}

// planned records that all settings have been sent. The caller holds the lock.
func (p *Plugin) planned() {
	p.hostSettings, p.chosen = make(map[string]string), make(map[string]string)
	for _, s := range p.plan.hostPlan {
		p.hostSettings[s.Host] = string(s.Data)
	}
	for _, w := range p.plan.choices {
		p.chosen[w.Device] = w.Entry.Action
	}
}

// expected returns the devices whose results an epoch should have, each once.
func (a *analysis) expected() []string {
	names := append(slices.Clone(a.epoch.Expected), a.plan.hosts...)
	slices.SortFunc(names, cmp.Compare[string])
	return slices.Compact(names)
}
