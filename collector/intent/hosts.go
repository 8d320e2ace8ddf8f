// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// Hosts are the methods of the host component that this package needs.
type Hosts interface {
	// Has reports whether the host is configured with an agent.
	Has(host string) bool
	// SettingsChanged is called when the result of HostSettings may have changed for any host. It
	// must not block.
	SettingsChanged()
}

// HostSetting is the setting that is in force for a role at a host.
type HostSetting struct {
	Role string
	// Plugin is the instance that made the setting.
	Plugin string
	// Generation changes with each change of the setting; it is never 0.
	Generation uint64
	// Data and Tail are the fields of sdk.HostSetting.
	Data, Tail []byte
}

// maxPendingHosts bounds the host settings that wait for their epoch.
const maxPendingHosts = 1 << 16

// hostRole is a role at a host; an empty host means all hosts.
type hostRole struct{ host, role string }

// hostPlan is a setting, and the plan that it belongs to.
type hostPlan struct {
	HostSetting
	at   hostRole
	plan uint64
	from uint64
}

// hostSettings are the settings of roles at hosts. Component.mu guards them.
type hostSettings struct {
	generation uint64
	inForce    map[string]map[string]hostPlan // settings in force, by host and role; host "" means all hosts
	pending    []hostPlan                     // settings for a later epoch, in the order of arrival
	// outcomes holds the generation whose outcome was recorded, by host and role.
	outcomes map[hostRole]uint64
}

// FollowHosts accepts the host settings of a plan that a plugin made at another collector.
func (c *Component) FollowHosts(plugin string, plan sdk.Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addHosts(plugin, plan)
}

// addHosts accepts the host settings of a plan, which come into force when the plan's epoch
// begins. The caller holds c.mu.
func (c *Component) addHosts(plugin string, plan sdk.Plan) {
	if len(plan.Hosts) == 0 {
		return
	}
	if c.hosts == nil {
		if !c.warnedNoHosts {
			c.warnedNoHosts = true
			c.log.Warn("plugin plans settings for host agents, and no host has one; set hosts[].agent and agents.address",
				"plugin", plugin)
		}
		return
	}
	for _, s := range plan.Hosts {
		p := hostPlan{HostSetting: HostSetting{Role: s.Role, Plugin: plugin, Data: s.Data, Tail: s.Tail},
			at: hostRole{s.Host, s.Role}, plan: plan.ID, from: plan.FromEpoch}
		if s.Host != "" && !c.hosts.Has(s.Host) {
			c.fail(p.outcome(s.Host), "host "+s.Host+" has no agent in the configuration")
			continue
		}
		if other := c.owner(s.Role); other != "" && other != plugin {
			c.fail(p.outcome(s.Host), fmt.Sprintf("role %s has settings of plugin %s; a role belongs to one plugin", s.Role,
				other))
			continue
		}
		if len(c.settings.pending) == maxPendingHosts {
			oldest := c.settings.pending[0]
			c.settings.pending = c.settings.pending[1:]
			c.fail(oldest.outcome(oldest.at.host), "dropped: too many settings of hosts wait for their epochs")
		}
		c.settings.pending = append(c.settings.pending, p)
	}
	c.releaseHosts()
}

// outcome describes the outcome of a setting at a host.
func (p hostPlan) outcome(host string) Outcome {
	return Outcome{Plugin: p.Plugin, Plan: p.plan, Host: host, Role: p.Role, From: p.from}
}

// owner returns the plugin that has settings for a role; empty if no plugin has. The caller holds
// c.mu.
func (c *Component) owner(role string) string {
	for _, roles := range c.settings.inForce {
		if s, ok := roles[role]; ok {
			return s.Plugin
		}
	}
	for _, s := range c.settings.pending {
		if s.Role == role {
			return s.Plugin
		}
	}
	return ""
}

// releaseHosts brings settings into force whose epoch has begun, and reports whether any did. The
// caller holds c.mu.
func (c *Component) releaseHosts() bool {
	h := &c.settings
	if len(h.pending) == 0 {
		return false
	}
	open, _ := c.epochs.Current()
	before := len(h.pending)
	h.pending = slices.DeleteFunc(h.pending, func(p hostPlan) bool {
		if p.from > open {
			return false
		}
		was, exists := h.inForce[p.at.host][p.Role]
		if p.at.host == "" { // a setting for all hosts replaces the settings of single hosts
			for _, roles := range h.inForce {
				delete(roles, p.Role)
			}
		}
		if len(p.Data)+len(p.Tail) == 0 {
			delete(h.inForce[p.at.host], p.Role)
			c.history(p.Plugin).record(p.outcome(p.at.host), sdk.PlanApplied, "")
			return true
		}
		if p.Generation = was.Generation; !exists || was.plan != p.plan || !bytes.Equal(was.Data, p.Data) ||
			!bytes.Equal(was.Tail, p.Tail) {
			h.generation++
			p.Generation = h.generation
		}
		if h.inForce[p.at.host] == nil {
			h.inForce[p.at.host] = map[string]hostPlan{}
		}
		h.inForce[p.at.host][p.Role] = p
		return true
	})
	if len(h.pending) == before {
		return false
	}
	c.hosts.SettingsChanged()
	return true
}

// HostSettings returns the settings of a host that are in force, sorted by role.
func (c *Component) HostSettings(host string) []HostSetting {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releaseHosts()
	byRole := map[string]HostSetting{}
	for _, of := range []string{"", host} {
		for role, s := range c.settings.inForce[of] {
			byRole[role] = s.HostSetting
		}
	}
	return slices.SortedFunc(maps.Values(byRole), func(a, b HostSetting) int { return cmp.Compare(a.Role, b.Role) })
}

// SettingRoles returns the roles of hosts for which a plugin has settings, in alphabetical order.
// Settings that are not in force yet count, too.
func (c *Component) SettingRoles() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	roles := map[string]bool{}
	for _, at := range c.settings.inForce {
		for role := range at {
			roles[role] = true
		}
	}
	for _, p := range c.settings.pending {
		if len(p.Data)+len(p.Tail) > 0 {
			roles[p.Role] = true
		}
	}
	return slices.Sorted(maps.Keys(roles))
}

// HostRoles returns, sorted, the roles at a host for which a plugin's settings are in force.
func (c *Component) HostRoles(plugin, host string) (roles []string) {
	for _, s := range c.HostSettings(host) {
		if s.Plugin == plugin {
			roles = append(roles, s.Role)
		}
	}
	return roles
}

// HostApplied records the outcome of a setting at a host: the reason of a refusal, or "". The
// plugin receives the first outcome of each host, as it does for devices; in a cluster, at the
// collector that runs it.
func (c *Component) HostApplied(host, role string, generation uint64, refusal string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.setting(host, role)
	if !ok || s.Generation != generation || c.settings.outcomes[hostRole{host, role}] == generation {
		return
	}
	open, _ := c.epochs.Current()
	o := s.outcome(host)
	o.From, o.Reason = open+1, refusal
	if c.cluster != nil && c.cluster.Forward(o) {
		c.settings.outcomes[hostRole{host, role}] = generation
		return
	}
	c.recordHost(s, o)
}

// takeHost records an outcome that HostApplied received at another collector. It returns false if
// the setting is not in force here yet, because the plan's epoch has begun at the other collector
// only. The caller holds c.mu.
func (c *Component) takeHost(o Outcome) bool {
	c.releaseHosts()
	for _, p := range c.settings.pending {
		if p.Plugin == o.Plugin && p.plan == o.Plan && p.Role == o.Role {
			return false
		}
	}
	if s, ok := c.setting(o.Host, o.Role); ok && s.Plugin == o.Plugin && s.plan == o.Plan &&
		c.settings.outcomes[hostRole{o.Host, o.Role}] != s.Generation {
		c.recordHost(s, o)
	}
	return true
}

// setting returns the setting that is in force for a role at a host. The caller holds c.mu.
func (c *Component) setting(host, role string) (s hostPlan, ok bool) {
	if s, ok = c.settings.inForce[host][role]; !ok {
		s, ok = c.settings.inForce[""][role]
	}
	return s, ok
}

// recordHost records the outcome of a setting at a host. The caller holds c.mu.
func (c *Component) recordHost(s hostPlan, o Outcome) {
	c.settings.outcomes[hostRole{o.Host, o.Role}] = s.Generation
	if o.Reason != "" {
		o.From = s.from
		c.fail(o, o.Reason)
		return
	}
	c.history(s.Plugin).record(o, sdk.PlanApplied, "")
}

// dropHosts removes the settings of a plugin that has stopped. The caller holds c.mu.
func (c *Component) dropHosts(plugin string) {
	h := &c.settings
	h.pending = slices.DeleteFunc(h.pending, func(p hostPlan) bool { return p.Plugin == plugin })
	dropped := false
	for _, roles := range h.inForce {
		maps.DeleteFunc(roles, func(_ string, p hostPlan) bool {
			dropped = dropped || p.Plugin == plugin
			return p.Plugin == plugin
		})
	}
	if dropped {
		c.hosts.SettingsChanged()
	}
}
