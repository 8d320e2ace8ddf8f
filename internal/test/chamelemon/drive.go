// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"context"
	"fmt"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// Driver plays epochs through a testbed; a plugin analyzes them and plans the next ones.
type Driver struct {
	Testbed *Testbed
	plugin  sdk.Plugin
}

// Played is a played epoch.
type Played struct {
	Epoch   uint64
	Results *sdk.Results
	*Measured
}

// Start configures the plugin for a testbed and writes its first plan.
func Start(ctx context.Context, c Config, p sdk.Plugin, configuration string) (*Driver, error) {
	d := &Driver{Testbed: New(c), plugin: p}
	settings, err := p.Configure(ctx, sdk.Config{JSON: []byte(configuration)}, d.Testbed.Network())
	if err != nil {
		return nil, fmt.Errorf("configure the plugin: %w", err)
	}
	if len(settings.Missing) > 0 {
		return nil, fmt.Errorf("the plugin requires %v", settings.Missing)
	}
	if settings.Plan != nil {
		if err := d.Testbed.Apply(*settings.Plan); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Play sends flows through the network in one epoch.
func (d *Driver) Play(ctx context.Context, flows []Flow) (*Played, error) {
	e, err := d.Testbed.Record(flows)
	if err != nil {
		return nil, err
	}
	r, err := d.plugin.Analyze(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("epoch %d: %w", e.Number, err)
	}
	d.Testbed.Plan(r.Plans...)
	m, err := Measure(r)
	if err != nil {
		return nil, fmt.Errorf("epoch %d: %w", e.Number, err)
	}
	return &Played{Epoch: e.Number, Results: r, Measured: m}, nil
}
