// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
)

// stateVersion is the version of the format of the saved state: the JSON of type snapshot.
const stateVersion = 1

// saved is the state that the hosts' tables depend on.
type saved struct {
	// Shares is the number of parts that the mappings are divided into, one for each host.
	Shares int
	// Hosts are the names of hosts by number. A number is never given to another host while a host
	// without a number fits behind the last one.
	Hosts []string
}

// positions returns the positions of names in a list.
func positions(names []string) map[string]int {
	out := make(map[string]int, len(names))
	for i, name := range names {
		out[name] = i
	}
	return out
}

// number gives numbers to the hosts that have an agent and no number.
func (s saved) number(c *Configuration, model *sdk.Network) saved {
	agents := map[string]bool{}
	for _, h := range model.Hosts {
		if h.Agent && len(agentAddresses(&h)) > 0 {
			agents[h.Name] = true
		}
	}
	out := saved{Shares: cmp.Or(c.Shares, s.Shares), Hosts: slices.Clone(s.Hosts)}
	numbers := positions(out.Hosts)
	free := 0 // all hosts with lower numbers are still there
	for _, h := range model.Hosts {
		if _, numbered := numbers[h.Name]; numbered || !agents[h.Name] {
			continue
		}
		numbers[h.Name] = 0 // has a number
		for free < len(out.Hosts) && agents[out.Hosts[free]] {
			free++
		}
		if free < len(out.Hosts) && len(out.Hosts) >= max(out.Shares, 1) {
			out.Hosts[free] = h.Name // replaces a host that has left
			continue
		}
		out.Hosts = append(out.Hosts, h.Name)
	}
	if c.Shares == 0 && out.Shares < len(out.Hosts) {
		out.Shares = max(16, 2*len(out.Hosts))
	}
	return out
}

// addresses returns the addresses of the hosts that have an agent, by number.
func (s *saved) addresses(model *sdk.Network, numbers map[string]int) [][]netip.Addr {
	out := make([][]netip.Addr, len(s.Hosts))
	for i := range model.Hosts {
		if n, ok := numbers[model.Hosts[i].Name]; ok {
			out[n] = agentAddresses(&model.Hosts[i])
		}
	}
	return out
}

// snapshot is the state that a new process resumes from.
type snapshot struct {
	saved
	Plans  uint64 // the newest plan's ID
	Alerts alert.List
	// Uses has the query of each unit of the switches' ingress, QueueUses those of their egress.
	Uses, QueueUses []use
	history
}

// SaveState implements sdk.Stateful.
func (p *Plugin) SaveState() (sdk.State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	data, err := json.Marshal(snapshot{p.state, p.plans, p.alerts, p.uses[inIngress], p.uses[inEgress], p.results})
	return sdk.State{Version: stateVersion, Data: data}, err
}

// RestoreState implements sdk.Stateful.
func (p *Plugin) RestoreState(state sdk.State) error {
	if state.Version != stateVersion {
		return fmt.Errorf("state of version %d, this plugin reads version %d", state.Version, stateVersion)
	}
	var s snapshot
	if err := json.Unmarshal(state.Data, &s); err != nil {
		return err
	}
	numbers := positions(s.Hosts)
	for i, h := range s.Hosts {
		if numbers[h] != i {
			return fmt.Errorf("host %q has two numbers", h)
		}
	}
	if err := cmp.Or(s.Alerts.Check(), s.check()); err != nil {
		return err
	}
	if err := checkUses(slices.Concat(s.Uses, s.QueueUses)); err != nil {
		return err
	}
	if s.Shares < 0 || s.Shares > 1<<16 || len(s.Hosts) > 1<<16 {
		return fmt.Errorf("%d shares for %d hosts", s.Shares, len(s.Hosts))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.plans, p.alerts = s.saved, s.Plans, s.Alerts
	p.uses = [kinds][]use{inIngress: s.Uses, inEgress: s.QueueUses}
	p.epoch, p.results = state.Epoch, s.history
	return nil
}
