// SPDX-License-Identifier: Apache-2.0

// Command netsketch-plugin-cocosketch is a netsketch plugin. It reads the slots of the P4 program
// p4/cocosketch.p4 and publishes flow sizes by any part of the 5-tuple.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/yang/table"

	"example.com/netsketch-plugin-cocosketch/slots"
)

//go:embed acme-cocosketch.yang
var module string

// configSchema is generated from configuration: UPDATE=1 go test.
//
//go:embed config.schema.json
var configSchema string

const (
	root      = "/acme-cocosketch:cocosketch/"
	flows     = root + "flows/flow"
	summaries = root + "node-summaries/node-summary"
)

func main() { sdk.Serve(&plugin{}) }

// configuration is the configuration of the plugin; every key has a default.
type configuration struct {
	// Dimensions are the keys by which flow sizes are published: src, dst, proto, src-port and
	// dst-port joined by +, or 5-tuple. If empty: 5-tuple, src and dst.
	Dimensions []string `yaml:"dimensions"`
	// Packets is the smallest flow that is published.
	Packets uint64 `yaml:"packets" default:"100" range:"1..1000000000"`
	// HostSlots is the number of slots of an array at hosts with the agent of this module, which count
	// what arrives. If 0, hosts do not count.
	HostSlots int `yaml:"host-slots" default:"0" range:"0..1048576"`

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

// role is the name of the role of agents in agent.
const role = "cocosketch"

// network is the key "node" of the results of all hosts together.
const network = "network"

// plugin holds the configuration. It keeps no state between epochs.
type plugin struct {
	config configuration
}

// annotation describes the register with the slots.
const annotation = "cocosketch_slots"

// needs selects the registers to read.
var needs = []sdk.ObjectNeed{{Annotation: annotation}}

// Describe describes the plugin and the lists that it publishes.
func (p *plugin) Describe() sdk.Description {
	return sdk.Description{
		Name:         "cocosketch",
		Version:      "0.1.0",
		Summary:      "flow sizes by any part of the 5-tuple",
		Objects:      needs,
		ConfigSchema: configSchema,
		Modules:      []sdk.Module{{Name: "acme-cocosketch", Text: module}},
		Lists: []sdk.List{{Path: flows, Summary: "one flow at one switch, or of all hosts"},
			{Path: summaries, Summary: "one switch, or all hosts"},
			{Path: root + "summary", Summary: "the epoch, and how complete its results are"}},
	}
}

// Configure selects the registers to read, and sends the agents of hosts their settings.
func (p *plugin) Configure(_ context.Context, config sdk.Config, network sdk.Network) (sdk.Settings, error) {
	var wanted configuration
	if err := config.Decode(&wanted); err != nil {
		return sdk.Settings{}, err
	}
	p.config = wanted
	bindings, missing := network.Bind(needs)
	out := sdk.Settings{Missing: missing}
	for _, b := range bindings {
		if err := checkLayout(network.Device(b.Device).Object(b.Object)); err != nil {
			out.Missing = append(out.Missing, sdk.MissingObject{Device: b.Device, Object: b.Object, Consequence: err.Error()})
			continue
		}
		out.Bindings = append(out.Bindings, b)
	}
	if wanted.HostSlots == 0 {
		return out, nil
	}
	if len(out.Bindings) == 0 {
		out.Missing = nil // hosts measure in the place of switches
	}
	out.Plan = &sdk.Plan{}
	for _, h := range network.Hosts {
		if h.Agent {
			out.Plan.Hosts = append(out.Plan.Hosts,
				sdk.HostSetting{Host: h.Name, Role: role, Data: strconv.AppendInt(nil, int64(wanted.HostSlots), 10)})
		}
	}
	return out, nil
}

// checkLayout returns an error if the register has other slots than package slots.
func checkLayout(register *sdk.Object) error {
	var l struct {
		Arrays int `key:"arrays"`
		Slots  int `key:"slots"`
		Words  int `key:"words"`
	}
	if err := register.Layout(annotation, &l); err != nil {
		return err
	}
	if l.Arrays != slots.Arrays || l.Words != slots.Words || l.Arrays*l.Slots*l.Words != register.Cells {
		return fmt.Errorf("%d arrays of %d slots of %d words in %d cells; expected %d arrays, %d words, and that number of "+
			"cells", l.Arrays, l.Slots, l.Words, register.Cells, slots.Arrays, slots.Words)
	}
	return nil
}

// Analyze publishes the flows of an epoch by each dimension.
func (p *plugin) Analyze(_ context.Context, epoch *sdk.Epoch) (*sdk.Results, error) {
	t := newTables()
	for _, d := range epoch.Devices {
		for _, register := range d.Objects {
			if err := t.add(&p.config, d.Name, sdk.Exact, register.Uint32s()); err != nil {
				return nil, fmt.Errorf("device %s: %w", d.Name, err)
			}
		}
	}
	// Each host counts what arrives, so that the sketches of all hosts hold each packet once.
	var hosts [][]uint32
	for _, h := range epoch.Hosts {
		if h.Role == role {
			hosts = append(hosts, sdk.Cells{Width: 32, Packed: h.Data}.Uint32s())
		}
	}
	if len(hosts) > 0 {
		quality := sdk.Exact
		if len(epoch.MissingHosts()) > 0 {
			quality = sdk.LowerBound
		}
		if err := t.add(&p.config, network, quality, hosts...); err != nil {
			return nil, fmt.Errorf("hosts: %w", err)
		}
	}
	results := &sdk.Results{}
	results.Add(t.flows.Table()) // replaces the rows of the previous epoch
	results.Add(t.summaries.Table())
	results.Add(epoch.Summary(root + "summary"))
	return results, results.Err()
}

// tables are the tables of an epoch.
type tables struct {
	flows, summaries            *table.Builder
	device, dimension, name, of *table.TextAppender
	quality, ofTotal            *table.TextAppender
	packets, total, kept        *table.UintAppender
}

func newTables() *tables {
	f, s := table.NewBuilder(flows), table.NewBuilder(summaries)
	return &tables{flows: f, summaries: s,
		device: f.TextKey("node"), dimension: f.TextKey("dimension"), name: f.TextKey("flow"),
		packets: f.Uint("state/packets"), quality: f.Text("state/quality"),
		of: s.TextKey("node"), total: s.Uint("state/packets"), ofTotal: s.Text("state/quality"),
		kept: s.Uint("state/flows")}
}

// add adds the flows of sketches, under the name of a node. Each packet is counted in one slot, so
// that only missing sketches make the sum of all packets inexact.
func (t *tables) add(c *configuration, node string, sum sdk.Quality, sketches ...[]uint32) error {
	for i, fields := range c.fields {
		found, err := sizes(sketches, fields)
		if err != nil {
			return err
		}
		for _, key := range slices.SortedFunc(maps.Keys(found), flow.Key.Compare) {
			if found[key] < c.Packets {
				continue
			}
			t.device.Append(node)
			t.dimension.Append(c.Dimensions[i])
			t.name.Append(key.String())
			t.packets.Append(found[key])
			t.quality.Append(string(sdk.Estimate))
		}
	}
	all, err := sizes(sketches, flow.FiveTuple)
	if err != nil {
		return err
	}
	total := uint64(0)
	for _, n := range all {
		total += n
	}
	t.of.Append(node)
	t.total.Append(total)
	t.ofTotal.Append(string(sum))
	t.kept.Append(uint64(len(all)))
	return nil
}

// sizes sums the sizes of each flow over sketches. Each sketch is read by itself, because many
// algorithms find the cells of a flow by a hash of its key.
func sizes(sketches [][]uint32, fields flow.Fields) (map[flow.Key]uint64, error) {
	sum := make(map[flow.Key]uint64)
	for _, cells := range sketches {
		found, err := slots.Sizes(cells, fields)
		if err != nil {
			return nil, err
		}
		for key, packets := range found {
			sum[key] += packets
		}
	}
	return sum, nil
}
