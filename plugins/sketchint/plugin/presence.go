// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// silentEpochs is the number of epochs in a row without a report of an agent after which INT ends
// in front of its host. One report may be late although the agent runs.
const silentEpochs = 2

// presence tracks which agents report: INT must not reach a host whose programs may be gone with
// its agent, because an application would receive it.
type presence struct {
	// Silent is the count of epochs in a row without a report, by host.
	Silent map[string]uint64
	// Ended are the hosts in front of which INT ends, according to the entries of the switches.
	Ended map[string]bool
}

// hear counts the epochs in a row without a report.
func (a *presence) hear(epoch *sdk.Epoch, hosts map[string]bool) {
	missing := epoch.MissingHosts()
	for name := range hosts {
		m, ok := missing[name]
		if ok && !m.Joined {
			a.Silent[name]++
		} else if ok {
			delete(a.Silent, name)
		}
	}
	heard := func(h *sdk.HostReport) {
		if h.Role == wire.Role {
			delete(a.Silent, h.Host)
		}
	}
	for i := range epoch.Hosts {
		heard(&epoch.Hosts[i])
	}
	for i := range epoch.Late {
		heard(&epoch.Late[i].HostReport)
	}
	maps.DeleteFunc(a.Silent, func(name string, _ uint64) bool { return !hosts[name] })
}

// gone returns the hosts whose agents are gone.
func (a *presence) gone(hosts map[string]bool) map[string]bool {
	out := map[string]bool{}
	for name, epochs := range a.Silent {
		if hosts[name] && epochs >= silentEpochs {
			out[name] = true
		}
	}
	return out
}

// follow returns a plan if INT must end in front of other hosts than before.
func (p *Plugin) follow(epoch *sdk.Epoch) (*sdk.Results, error) {
	out := &sdk.Results{}
	p.agents.hear(epoch, p.setup.hosts)
	gone, again := p.agents.gone(p.setup.hosts), false
	for _, o := range epoch.Plans {
		if o.Status != sdk.PlanApplied && p.undone != nil && o.Plan == p.plans {
			p.writes, again = entriesOf(o.Device, p.undone, p.writes), true
		}
	}
	changed := !maps.Equal(gone, p.agents.Ended)
	if !changed && !again {
		return out, nil
	}
	writes, _, err := p.setup.entries(gone)
	if err != nil {
		return nil, err
	}
	p.plans++
	out.Plans = []sdk.Plan{{ID: p.plans, FromEpoch: epoch.Number + 1, Writes: p.changes(writes)}}
	p.undone, p.writes, p.agents.Ended = p.writes, writes, gone
	if changed {
		out.Events = []sdk.Event{{Level: slog.LevelWarn, Message: "INT ends in front of the hosts whose agents are silent",
			Attributes: map[string]string{"hosts": strings.Join(slices.Sorted(maps.Keys(gone)), ", ")}}}
	}
	return out, nil
}

// entriesOf returns the entries of a device from one list, and the entries of all other devices
// from another list.
func entriesOf(device string, from, others []sdk.DeviceWrite) (out []sdk.DeviceWrite) {
	for _, w := range from {
		if w.Device == device {
			out = append(out, w)
		}
	}
	for _, w := range others {
		if w.Device != device {
			out = append(out, w)
		}
	}
	return out
}

// changes returns the writes that make the entries of the switches equal to now.
func (p *Plugin) changes(now []sdk.DeviceWrite) []sdk.DeviceWrite {
	text := func(w *sdk.DeviceWrite) string {
		b, _ := json.Marshal(w) // cannot fail
		return string(b)
	}
	have := map[string]bool{}
	for i := range p.writes {
		have[text(&p.writes[i])] = true
	}
	return slices.DeleteFunc(sdk.Replace(p.writes, now, p.setup.owns),
		func(w sdk.DeviceWrite) bool { return have[text(&w)] })
}
