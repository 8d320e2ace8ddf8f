// SPDX-License-Identifier: Apache-2.0

// Command netsketch-plugin-cocosketch is a netsketch plugin. It reads the slots of the P4 program
// p4/cocosketch.p4 and publishes flow sizes by any part of the 5-tuple.
package main

import (
	"context"
	_ "embed"
	"errors"
	"maps"
	"slices"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/yang/table"
)

//go:embed acme-cocosketch.yang
var module string

// configSchema is generated from configuration: UPDATE=1 go test.
//
//go:embed config.schema.json
var configSchema string

const (
	flows     = "/acme-cocosketch:cocosketch/flows/flow"
	summaries = "/acme-cocosketch:cocosketch/summaries/summary"
)

func main() { sdk.Serve(&plugin{}) }

// configuration is the configuration of the plugin; every key has a default.
type configuration struct {
	// Dimensions are the keys by which flow sizes are published: src, dst, proto, src-port and
	// dst-port joined by +, or 5-tuple. If empty: 5-tuple, src and dst.
	Dimensions []string `yaml:"dimensions"`
	// Packets is the smallest flow that is published.
	Packets uint64 `yaml:"packets" default:"100" range:"1..1000000000"`

	fields []flow.Fields
}

// Validate reads the dimensions.
func (c *configuration) Validate() error {
	if len(c.Dimensions) == 0 {
		c.Dimensions = []string{"5-tuple", "src", "dst"}
	}
	var errs []error
	for _, d := range c.Dimensions {
		f, err := flow.ParseFields(d)
		c.fields, errs = append(c.fields, f), append(errs, err)
	}
	return errors.Join(errs...)
}

// plugin holds the configuration. It keeps no state between epochs.
type plugin struct {
	config configuration
}

// needs selects the registers to read: those with the annotation @cocosketch_slots.
var needs = []sdk.ObjectNeed{{Annotation: "cocosketch_slots"}}

// Describe describes the plugin and the lists that it publishes.
func (p *plugin) Describe() sdk.Description {
	return sdk.Description{
		Name:         "cocosketch",
		Version:      "0.1.0",
		Summary:      "flow sizes by any part of the 5-tuple",
		Objects:      needs,
		ConfigSchema: configSchema,
		Modules:      []sdk.Module{{Name: "acme-cocosketch", Text: module}},
		Lists: []sdk.List{{Path: flows, Summary: "one flow at one switch"},
			{Path: summaries, Summary: "one switch"}},
	}
}

// Configure selects the registers to read.
func (p *plugin) Configure(_ context.Context, config sdk.Config, network sdk.Network) (sdk.Settings, error) {
	var wanted configuration
	if err := config.Decode(&wanted); err != nil {
		return sdk.Settings{}, err
	}
	p.config = wanted
	bindings, missing := network.Bind(needs)
	return sdk.Settings{Bindings: bindings, Missing: missing}, nil
}

// Analyze publishes the flows of an epoch by each dimension.
func (p *plugin) Analyze(_ context.Context, epoch *sdk.Epoch) (*sdk.Results, error) {
	f, s := table.NewBuilder(flows), table.NewBuilder(summaries)
	device, dimension, name := f.TextKey("device"), f.TextKey("dimension"), f.TextKey("flow")
	number, packets := f.Uint("state/epoch"), f.Uint("state/packets")
	of, ofEpoch, total, kept := s.TextKey("device"), s.Uint("state/epoch"), s.Uint("state/packets"), s.Uint("state/flows")
	for _, d := range epoch.Devices {
		for _, slots := range d.Objects {
			for i, fields := range p.config.fields {
				found, err := sizes(slots.Uint32s(), fields)
				if err != nil {
					return nil, err
				}
				for _, key := range slices.SortedFunc(maps.Keys(found), flow.Key.Compare) {
					if found[key] < p.config.Packets {
						continue
					}
					device.Append(d.Name)
					dimension.Append(p.config.Dimensions[i])
					name.Append(key.String())
					number.Append(epoch.Number)
					packets.Append(found[key])
				}
			}
			all, err := sizes(slots.Uint32s(), flow.FiveTuple)
			if err != nil {
				return nil, err
			}
			sum := uint64(0)
			for _, n := range all {
				sum += n
			}
			of.Append(d.Name)
			ofEpoch.Append(epoch.Number)
			total.Append(sum)
			kept.Append(uint64(len(all)))
		}
	}
	results := &sdk.Results{}
	results.Add(f.Table()) // replaces the rows of the previous epoch
	results.Add(s.Table())
	return results, results.Err()
}
