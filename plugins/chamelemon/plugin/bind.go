// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/settings"
)

// Network is the device name of results for the whole network.
const Network = "network"

// maxCells is the most that a register may have.
const maxCells = 1 << 28

// keyBytes is the length of a 5-tuple by family.
var keyBytes = [families]int{13, 37}

// layout is the sizes of the sketches of an edge switch. Cells of equal layouts can be added.
type layout struct {
	bits, counters [2]int // bits and counters of the classifier's rows
	up, down       [families]int
	words          [families]int
}

// edge is an edge switch: its layout and objects.
type edge struct {
	name       string
	layout     layout
	classifier [2]string
	up, down   [families]string // names of registers; "": not measured
	cells      map[string]int   // a bank's, by object
	ports      []uint32         // where packets enter and leave
}

// room applies the configuration to a layout.
func (l *layout) room(c *Configuration) [families]Room {
	var room [families]Room
	for f := range room {
		up, down := l.up[f], l.down[f]
		if up == 0 {
			continue // the switch is not measured
		}
		r := Room{Up: up, Down: down, Reserve: odd((down+5)/6 + 1), IllHL: odd(down * 5 / 6)}
		r.IllLL = down - down*5/6
		if f == 0 {
			d := c.Division
			if d.Reserve > 0 {
				r.Reserve = odd(d.Reserve)
			}
			if d.IllHL > 0 {
				r.IllHL = d.IllHL
			}
			if d.IllLL > 0 {
				r.IllLL = d.IllLL
			}
		}
		room[f] = r
	}
	return room
}

// fits returns the keys of a division that exceed the encoders, which are equal at all edges.
func (b *binding) fits(d *Division) (errs settings.KeyErrors) {
	r, encoders := &b.room[0], "the downstream encoders of switch "+b.edges[0].name
	if r.Reserve > r.Down {
		errs.Add("division.reserve", "is %d buckets an array; %s have %d", d.Reserve, encoders, r.Down)
	}
	if r.IllHL+r.IllLL > r.Down {
		key := map[bool]string{true: "division.ill-hl", false: "division.ill-ll"}[d.IllHL > 0]
		errs.Add(key, "%d buckets an array for HL and %d for LL; %s have %d", r.IllHL, r.IllLL, encoders, r.Down)
	}
	return errs
}

// annotation is the name of the annotation of ChameleMon's registers in programs.
const annotation = "netsketch_chamelemon"

var (
	classifierNeed = sdk.ObjectNeed{Annotation: annotation,
		Values: map[string]string{"part": "classifier", "row": "", "bits": "",
			"counters": ""}}
	encoderNeed = sdk.ObjectNeed{Annotation: annotation,
		Values: map[string]string{"part": "encoder", "side": "", "family": "",
			"buckets": "", "words": ""}}
)

// bindEdge finds the ChameleMon objects of a device. ok is false for a device without any.
func bindEdge(d *sdk.Device) (e edge, ok bool, err error) {
	e.name, e.cells = d.Name, make(map[string]int)
	rows, encoders := d.Select(classifierNeed), d.Select(encoderNeed)
	if len(rows) == 0 && len(encoders) == 0 {
		return e, false, nil
	}
	number := func(o sdk.Object, key string) int {
		n, bad := strconv.Atoi(o.Annotations[annotation][key])
		if bad != nil && err == nil {
			err = fmt.Errorf("annotation %s of %s is %q, not a number", key, o.Name, o.Annotations[annotation][key])
		}
		return n
	}
	for _, o := range rows {
		row := number(o, "row")
		if row < 0 || row > 1 {
			return e, true, fmt.Errorf("%s: row %d of the classifier; supported are rows 0 and 1", o.Name, row)
		}
		e.classifier[row], e.cells[o.Name] = o.Name, o.Cells
		e.layout.bits[row], e.layout.counters[row] = number(o, "bits"), number(o, "counters")
		if err == nil && (o.Cells < e.layout.counters[row] || o.Cells > maxCells) {
			err = fmt.Errorf("%s has %d cells, expected are %d counters", o.Name, o.Cells, e.layout.counters[row])
		}
	}
	for _, o := range encoders {
		values := o.Annotations[annotation]
		if o.Cells > maxCells && err == nil {
			err = fmt.Errorf("%s has %d cells; at most %d are supported", o.Name, o.Cells, maxCells)
		}
		f := 0
		if values["family"] == "6" {
			f = 1
		}
		n, words := number(o, "buckets"), number(o, "words")
		if want := 1 + (keyBytes[f]+3)/4; err == nil &&
			(words != want || number(o, "arrays") != arrays || number(o, "prime") != 4294967291 ||
				number(o, "fragment") != 32 || number(o, "hash") != 48 || number(o, "fingerprint") != fingerprint) {
			err = fmt.Errorf("%s: %d words a bucket, %s arrays, prime %s, fragments of %s bits, a hash of %s bits, a "+
				"fingerprint of %s bits; supported are %d words, %d arrays, 4294967291, 32, 48 and %d",
				o.Name, words, values["arrays"], values["prime"], values["fragment"],
				values["hash"], values["fingerprint"], want, arrays, fingerprint)
		}
		if err == nil && (n < 1 || n > o.Cells || o.Cells < arrays*n*words) {
			err = fmt.Errorf("%s has %d cells, too few for %d arrays of %d buckets of %d words", o.Name, o.Cells,
				arrays, n, words)
		}
		e.layout.words[f], e.cells[o.Name] = words, o.Cells
		if values["side"] == "upstream" {
			e.up[f], e.layout.up[f] = o.Name, n
		} else {
			e.down[f], e.layout.down[f] = o.Name, n
		}
	}
	for f, family := range []string{"IPv4", "IPv6"} {
		l := &e.layout
		switch {
		case err != nil:
		case (e.up[f] == "") != (e.down[f] == ""):
			err = fmt.Errorf("one of the two %s encoders is missing", family)
		case f == 0 && e.up[f] == "":
			err = fmt.Errorf("there are no %s encoders", family)
		case e.up[f] != "" && (l.down[f] < 6 || l.up[f] <= l.down[f]):
			err = fmt.Errorf("the %s encoders have %d buckets an array upstream and %d downstream; at least 6 downstream and "+
				"more upstream are needed, or nothing is left for heavy hitters", family, l.up[f], l.down[f])
		}
	}
	if err == nil && (e.classifier[0] == "" || e.classifier[1] == "") {
		err = fmt.Errorf("a row of the classifier is missing")
	}
	if l := &e.layout; err == nil && (l.bits[0] < 1 || l.bits[0] >= l.bits[1] || l.bits[1] > 32 ||
		min(l.counters[0], l.counters[1]) < 1) {
		err = fmt.Errorf("the classifier has %d counters of %d bits and %d of %d; the second row needs wider counters than "+
			"the first, up to 32 bits", l.counters[0], l.bits[0], l.counters[1], l.bits[1])
	}
	return e, true, err
}

// binding is the configuration applied to a network.
type binding struct {
	edges    []edge // sorted by name
	layout   layout
	room     [families]Room
	problem  string // why packets get no mark, so that no losses are computed; "": they get one
	hosts    prefixes
	settings sdk.Settings
}

// prefixes maps addresses to the switches that they are attached to.
type prefixes struct {
	at      map[netip.Prefix]string
	lengths [families][]int // the existing lengths, longest first
}

func (p *prefixes) add(prefix netip.Prefix, device string) {
	if p.at == nil {
		p.at = make(map[netip.Prefix]string)
	}
	f := 0
	if prefix.Addr().Is6() {
		f = 1
	}
	prefix = prefix.Masked()
	if _, known := p.at[prefix]; known {
		return // returns the first problem
	}
	p.at[prefix] = device
	if i, known := slices.BinarySearchFunc(p.lengths[f], prefix.Bits(), func(a, b int) int { return b - a }); !known {
		p.lengths[f] = slices.Insert(p.lengths[f], i, prefix.Bits())
	}
}

// of returns the switch that an address is attached to, or "".
func (p *prefixes) of(a netip.Addr) string {
	f := 0
	if a.Is6() {
		f = 1
	}
	for _, bits := range p.lengths[f] {
		if prefix, err := a.Prefix(bits); err == nil {
			if device, ok := p.at[prefix]; ok {
				return device
			}
		}
	}
	return ""
}

func bind(c *Configuration, network *sdk.Network) (*binding, error) {
	b := &binding{}
	attached := make(map[string][]uint32) // host ports by device
	at := make(map[string]string)         // device by host
	hosts := make(map[string]bool)
	for _, h := range network.Hosts {
		hosts[h.Name] = true
	}
	for _, l := range network.Links {
		for _, ends := range [][2]sdk.Endpoint{{l.A, l.B}, {l.B, l.A}} {
			if hosts[ends[0].Node] && network.Device(ends[1].Node) != nil {
				attached[ends[1].Node] = append(attached[ends[1].Node], ends[1].Port)
				at[ends[0].Node] = ends[1].Node
			}
		}
	}
	for device, ports := range c.HostPorts {
		attached[device] = append(attached[device], ports...)
	}
	for _, h := range network.Hosts {
		for _, a := range h.Addresses {
			if p, err := netip.ParsePrefix(a); err == nil && at[h.Name] != "" {
				b.hosts.add(p, at[h.Name])
			} else if ip, err := netip.ParseAddr(a); err == nil && at[h.Name] != "" {
				b.hosts.add(netip.PrefixFrom(ip, ip.BitLen()), at[h.Name])
			}
		}
	}
	var outside []string
	lacking := func(device, object, consequence string) {
		b.settings.Missing = append(b.settings.Missing,
			sdk.MissingObject{Device: device, Object: object, Consequence: consequence})
	}
	for i := range network.Devices {
		d := &network.Devices[i]
		ports := attached[d.Name]
		slices.Sort(ports)
		ports = slices.Compact(ports)
		e, has, err := bindEdge(d)
		switch {
		case !has && len(ports) == 0:
			continue // an inner switch
		case !has:
			err = fmt.Errorf("its pipeline has no ChameleMon objects")
		case err == nil && len(b.edges) > 0 && e.layout != b.layout:
			err = fmt.Errorf("its registers differ in size from those of %s", b.edges[0].name)
		case err == nil && len(ports) == 0 && len(network.Links) > 0:
			continue // an inner switch with an edge pipeline: no packets enter
		}
		if err != nil {
			outside = append(outside, d.Name)
			lacking(d.Name, encoderNeed.String(), fmt.Sprintf("no losses are computed, because packets enter and leave at "+
				"this switch: %v", err))
			continue
		}
		e.ports = ports
		b.layout = e.layout
		b.edges = append(b.edges, e)
		for _, o := range slices.Concat(e.classifier[:], e.up[:], e.down[:]) {
			if o != "" {
				b.settings.Bindings = append(b.settings.Bindings, sdk.Binding{Device: d.Name, Object: o})
			}
		}
	}
	slices.SortFunc(b.edges, func(x, y edge) int { return strings.Compare(x.name, y.name) })
	if len(b.edges) == 0 {
		if len(network.Devices) > 0 {
			lacking("", encoderNeed.String(), "no results")
		}
		b.problem = "no edge switch runs ChameleMon"
		return b, nil
	}
	var marking []string
	for i := range network.Devices {
		if strings.HasPrefix(network.Devices[i].Program, "sketchint") {
			marking = append(marking, network.Devices[i].Name)
		}
	}
	switch {
	case len(outside) > 0:
		b.problem = "packets enter and leave at switches that do not measure: " + strings.Join(outside, ", ")
	case len(marking) > 0:
		b.problem = "switches use the DSCP of packets for SketchINT, where ChameleMon's mark is: " +
			strings.Join(marking, ", ")
	}
	b.room = b.layout.room(c)
	if errs := b.fits(&c.Division); len(errs) > 0 {
		return nil, errs
	}
	return b, nil
}

// attachedTo returns the edge switch that an address is attached to, or "".
func (b *binding) attachedTo(a netip.Addr) string { return b.hosts.of(a) }

// names lists the edges.
func (b *binding) names() []string {
	out := make([]string, len(b.edges))
	for i := range b.edges {
		out[i] = b.edges[i].name
	}
	return out
}
