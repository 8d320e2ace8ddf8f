// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"

	"github.com/netsketch/netsketch/collector/config"
)

// Reload applies a new configuration to a running collector and returns the changes;
// Changes.NeedRestart names the keys that it cannot apply. Each component applies its part. The
// error joins what failed; the rest is applied.
func (c *Collector) Reload(ctx context.Context, next *config.Config) (config.Changes, error) {
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.stopped || !c.started {
		return config.Changes{}, errors.New("collector: Reload without Start, or after Stop")
	}
	changes := config.Compare(c.Config(), next)
	if changes.Empty() {
		return changes, nil
	}
	topology, err := c.discovery.Topology(next)
	if err != nil {
		return changes, err
	}
	c.cfg.Store(next)
	if changes.Log && c.deps.Level != nil {
		c.deps.Level.Set(next.Log.Level)
	}
	err = errors.Join(
		c.network.Reload(ctx, next, topology, changes),
		c.discovery.Reload(next, changes),
		c.analysis.Reload(ctx, analysisConfig(next), changes),
	)
	c.network.Bind(c.analysis.Bindings())
	c.self.Changed()
	if len(changes.NeedRestart) > 0 {
		c.log.Warn("some changes take effect only when the collector is restarted", "keys", changes.NeedRestart)
	}
	c.log.Info("configuration reloaded", "changes", changes.String())
	return changes, err
}
