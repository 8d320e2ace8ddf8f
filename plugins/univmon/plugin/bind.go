// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/hostagent/univmon/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
)

// instance is a universal sketch on a switch: two registers of its pipeline.
type instance struct {
	dimension string
	layout    universal.Layout
	counters  string // full names of the objects
	heavy     string
	packets   int // cell of the counters at which the packets by level begin; -1: they are not counted
	duty      int // bit of the dimension in the entries of duties.p4, from 1; 0: it has no bit
}

// find returns the usable sketches on a device by dimension, and the unusable ones with reasons. It
// identifies sketches by their annotations (docs/p4.md), not by the names of registers or
// pipelines.
func find(d *sdk.Device) (map[string]instance, []sdk.MissingObject) {
	found := make(map[string]instance)
	var missing []sdk.MissingObject
	for _, counters := range d.Select(countersNeed) {
		key := counters.Annotations[annotation]["key"]
		in, err := bind(d, counters)
		if err != nil {
			missing = append(missing, sdk.MissingObject{Device: d.Name, Object: counters.Name,
				Consequence: fmt.Sprintf("no results for %s: %v", key, err)})
			continue
		}
		if _, twice := found[key]; !twice {
			found[key] = in
		}
	}
	return found, missing
}

// annotation is the name of the annotation of UnivMon's registers in programs.
const annotation = "netsketch_univmon"

var (
	countersNeed = sdk.ObjectNeed{Annotation: annotation,
		Values: map[string]string{"part": "counters", "key": "", "levels": "",
			"columns": ""}}
	heavyNeed = sdk.ObjectNeed{Annotation: annotation,
		Values: map[string]string{"part": "heavy", "key": "", "ways": "", "slots": ""}}
	// unparsedNeed is an optional object that counts packets without a flow by reason. Cell i + 1
	// counts packets with reason i that the switch drops; for packets that it forwards, the cell is
	// "forwarded" cells later, a value of the annotation. Switches with the object have choiceTable.
	unparsedNeed = sdk.ObjectNeed{Annotation: annotation, Values: map[string]string{"part": "unparsed", "reasons": ""}}
)

// choiceTable selects the flow of packets in tunnels: encapsulation.p4.
const choiceTable = "ingress.encapsulation.choice"

// choice returns the write by which a switch measures outer or inner flows.
func choice(device string, e wire.Encapsulation) sdk.DeviceWrite {
	return sdk.DeviceWrite{Device: device, Op: sdk.SetDefault,
		Entry: sdk.TableEntry{Table: choiceTable, Action: "ingress.encapsulation." + string(e)}}
}

// unparsedCells says where a switch counts packets without a flow.
type unparsedCells struct {
	object    string
	cells     map[wire.Counter]int // first cell of a bank, by reason
	forwarded int                  // distance to the cells of forwarded packets; 0: no such cells
}

// findUnparsed returns nil if the pipeline does not count these packets.
func findUnparsed(d *sdk.Device) (*unparsedCells, []sdk.MissingObject) {
	found := d.Select(unparsedNeed)
	if len(found) == 0 {
		return nil, nil
	}
	o := found[0]
	u := &unparsedCells{object: o.Name, cells: make(map[wire.Counter]int)}
	names := strings.Split(o.Annotations[annotation]["reasons"], ",")
	for c := range reasons {
		if i := slices.Index(names, c.String()); i >= 0 && i+1 < o.Cells {
			u.cells[c] = i + 1
		}
	}
	if len(u.cells) < len(names) {
		return nil, []sdk.MissingObject{{Device: d.Name, Object: o.Name, Consequence: fmt.Sprintf(
			"no unparsed packets: of its reasons %q in %d cells only %d are known", names, o.Cells, len(u.cells))}}
	}
	if text, ok := o.Annotations[annotation]["forwarded"]; ok {
		n, err := strconv.Atoi(text)
		if err != nil || n <= len(names) || n+len(names) >= o.Cells {
			return nil, []sdk.MissingObject{{Device: d.Name, Object: o.Name, Consequence: fmt.Sprintf(
				"no unparsed packets: annotation forwarded is %q, not a number of cells above %d", text, len(names))}}
		}
		u.forwarded = n
	}
	return u, nil
}

// open returns the packets without a flow that a device counted; nil if it does not count them.
func (u *unparsedCells) open(d *sdk.DeviceData) (*unparsed, error) {
	if u == nil {
		return nil, nil
	}
	cells, err := cellsOf(d, u.object, 1+u.forwarded+slices.Max(slices.Collect(maps.Values(u.cells))))
	if err != nil {
		return nil, err
	}
	out := new(unparsed)
	for c, i := range u.cells {
		out.ended[c] = uint64(cells[i])
		if u.forwarded > 0 {
			out.forwarded[c] = uint64(cells[i+u.forwarded])
		}
	}
	return out, nil
}

func bind(d *sdk.Device, counters sdk.Object) (instance, error) {
	in := instance{dimension: counters.Annotations[annotation]["key"], counters: counters.Name, packets: -1}
	fields, err := flow.ParseFields(in.dimension)
	if err != nil {
		return in, err
	}
	of := sdk.ObjectNeed{Annotation: annotation,
		Values: map[string]string{"part": "heavy", "key": in.dimension, "ways": "", "slots": ""}}
	heavy := d.Select(of)
	if len(heavy) == 0 {
		return in, fmt.Errorf("the pipeline has no heavy keys for it (object with @netsketch_univmon[part=heavy, key=%s])",
			in.dimension)
	}
	in.heavy = heavy[0].Name
	var c struct {
		Levels  int `key:"levels"`
		Rows    int `key:"rows"`
		Columns int `key:"columns"`
		Packets int `key:"packets" default:"-1"`
		Duty    int `key:"duty" default:"0"`
	}
	var h struct {
		Ways  int `key:"ways"`
		Slots int `key:"slots"`
	}
	if err := cmp.Or(counters.Layout(annotation, &c), heavy[0].Layout(annotation, &h)); err != nil {
		return in, err
	}
	if in.packets, in.duty = c.Packets, c.Duty; c.Duty < 0 || c.Duty > 8 {
		return in, fmt.Errorf("annotation duty of %s is %d, not 1 to 8", counters.Name, c.Duty)
	}
	in.layout = universal.Layout{Key: fields, Levels: c.Levels, Rows: c.Rows, Columns: c.Columns, Ways: h.Ways,
		Slots: h.Slots}
	if err := in.layout.Validate(); err != nil {
		return in, err
	}
	need := in.layout.CounterCells()
	if in.packets >= 0 && in.packets != need {
		return in, fmt.Errorf("%s has %d cells, and the packets by level at %d; expected %d for %v", counters.Name,
			counters.Cells, in.packets, need, in.layout)
	}
	if counters.Cells < need || in.packets >= 0 && counters.Cells < need+in.layout.Levels {
		return in, fmt.Errorf("%s has %d cells, too few for %v", counters.Name, counters.Cells, in.layout)
	}
	if need := in.layout.HeavyCells(); heavy[0].Cells < need {
		return in, fmt.Errorf("%s has %d cells, too few for %v", in.heavy, heavy[0].Cells, in.layout)
	}
	return in, nil
}

// open returns the cells that a device delivered for an instance.
func (in *instance) open(d *sdk.DeviceData) (*sealed, error) {
	counters, err := cellsOf(d, in.counters, in.layout.CounterCells())
	if err != nil {
		return nil, err
	}
	heavy, err := cellsOf(d, in.heavy, in.layout.HeavyCells())
	if err != nil {
		return nil, err
	}
	var packets []uint32
	if in.packets >= 0 {
		if len(counters) < in.packets+in.layout.Levels {
			return nil, fmt.Errorf("%s: %d cells delivered, the packets by level are at %d", in.counters, len(counters),
				in.packets)
		}
		packets = counters[in.packets : in.packets+in.layout.Levels]
	}
	return &sealed{layout: in.layout, counters: counters[:in.layout.CounterCells()],
		heavy: heavy[:in.layout.HeavyCells()], packets: packets}, nil
}

// cellsOf returns the cells of an object, at least those needed.
func cellsOf(d *sdk.DeviceData, object string, need int) ([]uint32, error) {
	c := d.Object(object)
	if c == nil {
		return nil, fmt.Errorf("%s was not delivered", object)
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	if c.Width != 32 || c.Len() < need {
		return nil, fmt.Errorf("%s: %d cells of %d bits delivered, expected %d of 32", object, c.Len(), c.Width, need)
	}
	return c.Uint32s(), nil
}

// plan is the configuration applied to a network: the sketches to read and to combine.
type plan struct {
	instances   map[string]map[string]instance // instances by device and dimension
	unparsed    map[string]*unparsedCells      // cells by switch; nil for a switch that does not count such packets
	choices     []sdk.DeviceWrite              // selects the flow of packets in tunnels, by switch
	dimensions  []string                       // dimensions that a device measures; without any, the configured dimensions
	hosts       []string                       // hosts that measure, sorted
	hostPlan    []sdk.HostSetting              // settings of the hosts that count
	hostPackets wire.Packets                   // packets that the hosts count
	views       []view                         // one view for each dimension of the network
	settings    sdk.Settings
}

// view lists the switches whose sketches are combined for a dimension of the network.
type view struct {
	dimension string
	plus      []string // devices, sorted
	minus     []string
	assigned  bool     // whether each packet is counted by exactly one switch of plus
	excluded  []string // switches that measured under another assignment
}

func newPlan(c *Configuration, network *sdk.Network) (*plan, error) {
	p := &plan{instances: make(map[string]map[string]instance), unparsed: make(map[string]*unparsedCells)}
	wanted, usual := c.Dimensions, c.Dimensions
	if len(wanted) == 0 {
		wanted, usual = allDimensions(), dimensions
	}
	measured := make(map[string]bool)
	for i := range network.Devices {
		d := &network.Devices[i]
		found, missing := find(d)
		p.settings.Missing = append(p.settings.Missing, missing...)
		u, missing := findUnparsed(d)
		p.settings.Missing = append(p.settings.Missing, missing...)
		switch {
		case u != nil && u.forwarded > 0:
			p.choices = append(p.choices, choice(d.Name, c.Encapsulation))
		case c.inner() && len(found) > 0:
			p.settings.Missing = append(p.settings.Missing, sdk.MissingObject{Device: d.Name, Object: choiceTable,
				Consequence: "no results: its pipeline measures outer flows only"})
			continue
		}
		use := make(map[string]instance)
		for _, dimension := range wanted {
			if in, ok := found[dimension]; ok {
				use[dimension] = in
				measured[dimension] = true
				p.settings.Bindings = append(p.settings.Bindings,
					sdk.Binding{Device: d.Name, Object: in.counters}, sdk.Binding{Device: d.Name, Object: in.heavy})
			}
		}
		if len(use) > 0 {
			p.instances[d.Name] = use
			if u != nil {
				p.unparsed[d.Name] = u
				p.settings.Bindings = append(p.settings.Bindings, sdk.Binding{Device: d.Name, Object: u.object})
			}
		}
	}
	switches := len(p.instances) > 0
	if err := p.addHosts(c, network, usual, measured); err != nil {
		return nil, err
	}
	p.dimensions = usual
	if len(measured) > 0 {
		p.dimensions = slices.Sorted(maps.Keys(measured))
	}
	if len(network.Devices) > 0 && len(p.instances) == 0 {
		p.settings.Missing = append(p.settings.Missing,
			sdk.MissingObject{Object: countersNeed.String(), Consequence: "no results"})
	}
	for _, dimension := range c.Dimensions {
		if len(p.instances) > 0 && !measured[dimension] {
			p.settings.Missing = append(p.settings.Missing, sdk.MissingObject{
				Object: "universal sketch of " + dimension, Consequence: "no results for " + dimension})
		}
	}
	if c.Network.Enabled && c.Network.Scheme == SchemeWeights {
		if err := p.addViews(c, network, wanted, switches); err != nil {
			return nil, err
		}
		p.settings.Merge = c.mergeable()
	}
	return p, nil
}

// addViews computes the views of the network. switches states whether any switch measures.
func (p *plan) addViews(c *Configuration, network *sdk.Network, wanted []string, switches bool) error {
	weights, err := p.weigh(c, network, switches)
	if err != nil {
		if len(c.Network.Weights) > 0 {
			return settings.KeyErrors{{Key: "network.weights", Message: err.Error()}}
		}
		p.settings.Missing = append(p.settings.Missing, sdk.MissingObject{Object: "network-wide view",
			Consequence: fmt.Sprintf("no results for the network: %v; set network.weights, or network.enabled to false",
				err)})
		return nil
	}
	ofHosts := func(name string) bool { return weights[name] != 0 }
	if e := c.Hosts.Encapsulation; switches && e != wire.EncapsulationSwitch && slices.ContainsFunc(p.hosts, ofHosts) {
		return settings.KeyErrors{{Key: "hosts.encapsulation", Message: fmt.Sprintf("is %q; expected %q, because "+
			"network.weights add sketches of hosts to those of switches", e, wire.EncapsulationSwitch)}}
	}
	for _, dimension := range wanted {
		v := view{dimension: dimension}
		var first instance
		for _, name := range p.devices(network) {
			in, ok := p.instances[name][dimension]
			w := weights[name]
			switch {
			case w == 0:
				continue
			case !ok:
				err = fmt.Errorf("%s does not measure it", name)
			case len(v.plus)+len(v.minus) == 0:
				first = in
			case in.layout != first.layout:
				err = fmt.Errorf("the sketch of %s (%v) differs from others (%v)", name, in.layout, first.layout)
			}
			if w > 0 {
				v.plus = append(v.plus, name)
			} else {
				v.minus = append(v.minus, name)
			}
		}
		measured := slices.ContainsFunc(append(v.plus, v.minus...),
			func(name string) bool { _, ok := p.instances[name][dimension]; return ok })
		if err == nil && len(v.plus) > 0 {
			slices.Sort(v.plus)
			slices.Sort(v.minus)
			p.views = append(p.views, v)
		} else if measured {
			p.settings.Missing = append(p.settings.Missing,
				sdk.MissingObject{Object: "network-wide view of " + dimension,
					Consequence: fmt.Sprintf("no results for the network by %s: %v", dimension, err)})
		}
		err = nil
	}
	return nil
}
