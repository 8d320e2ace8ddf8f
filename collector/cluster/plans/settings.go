// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"
	"fmt"

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
	for _, old := range c.settings[plugin].GetHosts() { // a setting for all hosts replaces settings for single hosts
		replaced := false
		for _, s := range plan.Hosts {
			replaced = replaced || s.Role == old.GetRole() && (s.Host == "" || s.Host == old.GetHost())
		}
		if !replaced {
			next.Hosts = append(next.Hosts, old)
		}
	}
	for _, s := range plan.Hosts {
		next.Hosts = append(next.Hosts, &clusterv1.Setting{Host: s.Host, Role: s.Role, Data: s.Data, Plan: plan.ID,
			Epoch: plan.FromEpoch})
	}
	c.settings[plugin] = keptSettings{next, false}
	c.mu.Unlock()
	c.signal()
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
		c.settings[plugin] = keptSettings{k, true} // to go on from, if the plugin moves here
	}
	c.mu.Unlock()
	if own {
		return
	}
	for _, s := range k.GetHosts() {
		c.deps.FollowHosts(plugin, sdk.Plan{ID: s.GetPlan(), FromEpoch: s.GetEpoch(),
			Hosts: []sdk.HostSetting{{Host: s.GetHost(), Role: s.GetRole(), Data: s.GetData()}}})
	}
}
