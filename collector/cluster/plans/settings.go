// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// keptSettings are the newest settings of a plugin for each role and host.
type keptSettings struct {
	*clusterv1.StoredSettings
	shared bool // whether the bucket has the settings
}

// settingsKey is the key of a plugin's settings in the bucket of plans.
func settingsKey(plugin string) string { return "hosts." + token(plugin) }

// Settings shares the settings of hosts that a plugin planned here with all members: those that are
// there and those that join later.
func (c *Component) Settings(plugin string, plan sdk.Plan) {
	if len(plan.Hosts) == 0 {
		return
	}
	c.mu.Lock()
	next := &clusterv1.StoredSettings{Protocol: clusterv1.Version, From: c.deps.Member}
	type hostRole struct{ host, role string }
	replaced := map[hostRole]bool{}
	for _, s := range plan.Hosts {
		replaced[hostRole{s.Host, s.Role}] = true
	}
	before := c.settings[plugin]
	for _, old := range before.GetHosts() { // a setting for all hosts replaces settings for single hosts
		if !replaced[hostRole{old.GetHost(), old.GetRole()}] && !replaced[hostRole{"", old.GetRole()}] {
			next.Hosts = append(next.Hosts, &clusterv1.Setting{Host: old.GetHost(), Role: old.GetRole(), Data: old.GetData(),
				Plan: old.GetPlan(), Epoch: old.GetEpoch(), Tail: addTail(next, tailOf(before.StoredSettings, old))})
		}
	}
	for _, s := range plan.Hosts {
		next.Hosts = append(next.Hosts, &clusterv1.Setting{Host: s.Host, Role: s.Role, Data: s.Data, Plan: plan.ID,
			Epoch: plan.FromEpoch, Tail: addTail(next, s.Tail)})
	}
	c.settings[plugin] = keptSettings{next, false}
	c.mu.Unlock()
	c.signal()
}

// addTail returns the index of a tail in the list of tails. It adds a tail that is not in the list.
func addTail(s *clusterv1.StoredSettings, tail []byte) uint32 {
	if len(tail) == 0 {
		return 0
	}
	at := slices.IndexFunc(s.GetTails(), func(t []byte) bool { return bytes.Equal(t, tail) })
	if at < 0 {
		at = len(s.GetTails())
		s.Tails = append(s.Tails, tail)
	}
	return uint32(at + 1)
}

// tailOf returns the tail of a setting, or nil.
func tailOf(s *clusterv1.StoredSettings, of *clusterv1.Setting) []byte {
	if n := of.GetTail(); n > 0 && int(n) <= len(s.GetTails()) {
		return s.GetTails()[n-1]
	}
	return nil
}

// putSettings writes the settings that are not in the bucket.
func (c *Component) putSettings(ctx context.Context, bucket jetstream.KeyValue) (err error) {
	c.mu.Lock()
	todo := map[string][]byte{}
	for plugin, k := range c.settings {
		if !k.shared {
			todo[plugin], err = proto.Marshal(k.StoredSettings)
			c.settings[plugin] = keptSettings{k.StoredSettings, true}
		}
	}
	c.mu.Unlock()
	for plugin, data := range todo {
		if err == nil {
			_, err = bucket.Put(ctx, settingsKey(plugin), data)
		}
		if err != nil {
			c.mu.Lock()
			c.settings[plugin] = keptSettings{c.settings[plugin].StoredSettings, false}
			c.mu.Unlock()
			err = fmt.Errorf("plugin %s: %w", plugin, err)
		}
	}
	return err
}

// takeSettings takes the settings of one plugin. Settings that cannot be read are counted and
// logged, and the previous settings stay.
func (c *Component) takeSettings(plugin string, data []byte) {
	k := &clusterv1.StoredSettings{}
	err := clusterv1.Unmarshal(data, k)
	if err == nil {
		err = clusterv1.CheckVersion(k.GetProtocol())
	}
	c.note("settings of hosts", "key", plugin, err)
	if err != nil {
		return
	}
	c.mu.Lock()
	_, planned := c.settings[plugin]
	own := k.GetFrom() == c.deps.Member && planned // without a plan, the entry dates from before a restart
	if !own {
		c.settings[plugin] = keptSettings{k, true} // further settings extend these if the plugin moves here
	}
	c.mu.Unlock()
	if own {
		return
	}
	var plan sdk.Plan
	for _, s := range k.GetHosts() {
		if id, from := s.GetPlan(), s.GetEpoch(); plan.ID != id || plan.FromEpoch != from {
			c.deps.FollowHosts(plugin, plan)
			plan = sdk.Plan{ID: id, FromEpoch: from}
		}
		plan.Hosts = append(plan.Hosts, sdk.HostSetting{Host: s.GetHost(), Role: s.GetRole(), Data: s.GetData(),
			Tail: tailOf(k, s)})
	}
	c.deps.FollowHosts(plugin, plan)
}
