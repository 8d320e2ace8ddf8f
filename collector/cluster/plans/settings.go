// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// retryEvery is the time between attempts while NATS is away, and callTimeout bounds one attempt.
const (
	retryEvery  = 500 * time.Millisecond
	callTimeout = 2 * time.Second
)

// kept are the newest settings of a plugin for each role and host.
type kept struct {
	*clusterv1.StoredSettings
	shared bool // whether the bucket has the settings
}

// Settings shares the settings of hosts that a plugin planned here with all members, also with
// members that join later.
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
	c.settings[plugin] = kept{next, false}
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// shareSettings writes settings to the bucket until Stop.
func (c *Component) shareSettings() {
	var logged string
	for {
		select {
		case <-c.changed:
		case <-c.ctx.Done():
			return
		}
		for {
			err := c.share()
			if c.ctx.Err() != nil {
				return
			}
			if err == nil {
				logged = ""
				break
			}
			c.settingsOf.failed()
			if err.Error() != logged {
				logged = err.Error()
				c.log.Warn("cluster: settings of hosts are not shared", "error", bus.Unanswered(err))
			}
			if !c.pause() {
				return
			}
		}
	}
}

func (c *Component) pause() bool {
	select {
	case <-time.After(retryEvery):
		return true
	case <-c.ctx.Done():
		return false
	}
}

// share writes the settings that are not in the bucket.
func (c *Component) share() error {
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	bucket, err := c.settingsOf.on(ctx, c.deps.Bus)
	if err != nil {
		return err
	}
	c.mu.Lock()
	todo := map[string][]byte{}
	for plugin, k := range c.settings {
		if !k.shared {
			todo[plugin], err = proto.Marshal(k.StoredSettings)
			c.settings[plugin] = kept{k.StoredSettings, true}
		}
	}
	c.mu.Unlock()
	for plugin, data := range todo {
		if err == nil {
			_, err = bucket.Put(ctx, plugin, data)
		}
		if err != nil {
			c.mu.Lock()
			c.settings[plugin] = kept{c.settings[plugin].StoredSettings, false}
			c.mu.Unlock()
			err = fmt.Errorf("plugin %s: %w", plugin, err)
		}
	}
	return err
}

// takeSettings takes the settings of plugins whose home is elsewhere, until Stop.
func (c *Component) takeSettings() {
	for c.ctx.Err() == nil {
		if err := c.watch(); err != nil && c.ctx.Err() == nil {
			c.settingsOf.failed()
			c.log.Debug("cluster: settings of hosts are not received", "error", err)
		}
		if !c.pause() {
			return
		}
	}
}

func (c *Component) watch() error {
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	bucket, err := c.settingsOf.on(ctx, c.deps.Bus)
	cancel()
	if err != nil {
		return err
	}
	updates, err := bucket.WatchAll(c.ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return err
	}
	defer func() { _ = updates.Stop() }()
	for {
		select {
		case entry, ok := <-updates.Updates():
			if !ok {
				return errors.New("the watch has ended")
			}
			if entry != nil { // nil ends the initial entries
				c.takeEntry(entry.Key(), entry.Value())
			}
		case <-c.ctx.Done():
			return nil
		}
	}
}

// takeEntry takes the settings of one plugin. Settings that cannot be read are counted and logged,
// and the earlier settings stay.
func (c *Component) takeEntry(plugin string, data []byte) {
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
		c.settings[plugin] = kept{k, true} // kept in case the plugin moves here
	}
	c.mu.Unlock()
	if own {
		return
	}
	for _, s := range k.GetHosts() {
		c.deps.Settings(c.ctx, plugin, sdk.Plan{ID: s.GetPlan(), FromEpoch: s.GetEpoch(),
			Hosts: []sdk.HostSetting{{Host: s.GetHost(), Role: s.GetRole(), Data: s.GetData()}}})
	}
}
