// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"

	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// Plan hands a plan to the collector as if the plugin had returned it.
func (c *Collector) Plan(ctx context.Context, plugin string, plan sdk.Plan) {
	c.intent.Add(ctx, plugin, plan)
}

// view returns the newest view of the cluster.
func (c *Collector) view() cluster.View { return c.member.Status().View }

// PlanCounts returns the outcomes of a plugin's plans.
func (c *Collector) PlanCounts(plugin string) intent.Counts { return c.intent.Counts(plugin) }
