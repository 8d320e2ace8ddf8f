// SPDX-License-Identifier: Apache-2.0

// Command plugin-hello is a netsketch plugin. It publishes the fill of the arrays that switches
// measure with, under paths of its own YANG module.
package main

import (
	"context"
	_ "embed"
	"log/slog"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

//go:embed acme-hello.yang
var module string

// configSchema is generated from configuration: UPDATE=1 go test.
//
//go:embed config.schema.json
var configSchema string

const (
	summary = "/acme-hello:hello/summary"
	list    = "/acme-hello:hello/arrays/array"
)

func main() { sdk.Serve(&plugin{}) }

// configuration is the configuration of the example; every key has a default.
type configuration struct {
	// Objects are the arrays to read by name; '*' stands for any characters.
	Objects string `yaml:"objects" default:"*" length:"1..255"`
}

// plugin holds the configuration. It keeps no state between epochs.
type plugin struct {
	config configuration
}

// Describe describes the plugin and the list that it publishes.
func (p *plugin) Describe() sdk.Description {
	return sdk.Description{
		Name:         "hello",
		Version:      "0.1.0",
		Summary:      "fill of the arrays that switches measure with",
		Objects:      []sdk.ObjectNeed{{Name: "*", Shared: true}}, // it reads along with other plugins
		ConfigSchema: configSchema,
		Modules:      []sdk.Module{{Name: "acme-hello", Text: module}},
		Lists: []sdk.List{{Path: summary, Summary: "the epoch, and how complete its results are"},
			{Path: list, Summary: "one array of one switch"}},
	}
}

// Configure selects the arrays to read.
func (p *plugin) Configure(_ context.Context, config sdk.Config, network sdk.Network) (sdk.Settings, error) {
	var wanted configuration
	if err := config.Decode(&wanted); err != nil {
		return sdk.Settings{}, err
	}
	p.config = wanted
	bindings, missing := network.Bind([]sdk.ObjectNeed{{Name: wanted.Objects}})
	slog.Info("hello", "devices", len(network.Devices), "arrays", len(bindings))
	return sdk.Settings{Bindings: bindings, Missing: missing}, nil
}

// Analyze counts the cells of an epoch that are not zero.
func (p *plugin) Analyze(_ context.Context, epoch *sdk.Epoch) (*sdk.Results, error) {
	b := table.NewBuilder(list)
	device, object := b.TextKey("node"), b.TextKey("object")
	cells, used, fill := b.Uint("state/cells"), b.Uint("state/used-cells"), b.Float("state/fill")
	quality := b.Text("state/quality")
	for _, d := range epoch.Devices {
		for _, array := range d.Objects {
			count := 0
			for i := range array.Len() {
				if array.At(i) != 0 {
					count++
				}
			}
			device.Append(d.Name)
			object.Append(array.Object)
			cells.Append(uint64(array.Len()))
			used.Append(uint64(count))
			fill.Append(float64(count) / float64(max(array.Len(), 1)))
			quality.Append(string(sdk.Exact)) // all cells of the array are there
		}
	}
	results := &sdk.Results{}
	results.Add(epoch.Summary(summary))
	results.Add(b.Table()) // replaces the rows of the previous epoch
	return results, results.Err()
}
