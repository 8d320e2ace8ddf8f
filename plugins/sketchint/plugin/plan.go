// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/settings"
)

// program is the beginning of the names of SketchINT's programs.
const program = "sketchint"

// mostEntries is the size of the tables where INT starts.
const mostEntries = 1024

// nodeTable is a table without keys.
const nodeTable = "egress.sketchint.node"

// inserts reports whether a switch runs a program of SketchINT: the plugin writes its tables.
func inserts(d *sdk.Device) bool { return strings.HasPrefix(d.Program, program) }

// assign returns the node ids of switches: the given ids, the earlier ids, and for other switches
// the lowest free ids, in the order of names. A switch that has left keeps its id, so that its last
// packets are not taken for another switch's.
func assign(c *Configuration, model *sdk.Network, known map[string]uint32) map[string]uint32 {
	out, taken := map[string]uint32{}, map[uint32]bool{}
	for _, n := range c.Nodes {
		taken[n.ID] = true
	}
	for name, id := range known {
		if !taken[id] {
			out[name], taken[id] = id, true
		}
	}
	given := map[string]uint32{}
	for _, n := range c.Nodes {
		given[n.Name] = n.ID
	}
	next := uint32(1)
	for _, name := range devices(model) {
		if id, ok := given[name]; ok {
			out[name] = id
			continue
		}
		if out[name] > 0 {
			continue
		}
		for taken[next] {
			next++
		}
		out[name], taken[next] = next, true
	}
	return out
}

// devices returns the names of the switches that insert INT, sorted.
func devices(model *sdk.Network) (names []string) {
	for i := range model.Devices {
		if inserts(&model.Devices[i]) {
			names = append(names, model.Devices[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// entries returns the entries of all switches, grouped by switch, and the missing objects. The
// agents of the hosts in gone are treated as if they were not configured.
func (s *setup) entries(gone map[string]bool) (out []sdk.DeviceWrite, missing []sdk.MissingObject, err error) {
	model := s.model
	agents := map[string]bool{}
	hosts := map[string]bool{}
	for i := range model.Hosts {
		hosts[model.Hosts[i].Name] = true
		agents[model.Hosts[i].Name] = model.Hosts[i].Agent && !gone[model.Hosts[i].Name]
	}
	cabling := model.Cabling()
	names := devices(model)
	// INT ends where a switch of another program or a host without an agent would receive it: these
	// change its marks, count its bytes, or pass it to an application.
	removes := func(name string) bool {
		_, own := slices.BinarySearch(names, name)
		return own || s.config.Sinks != sinksSwitches && agents[name]
	}
	for _, name := range names {
		d, ends := model.Device(name), cabling.Ends[name]
		write := func(op sdk.WriteOp, e sdk.TableEntry) {
			out = append(out, sdk.DeviceWrite{Device: name, Op: op, Entry: e})
		}
		write(sdk.SetDefault, sdk.TableEntry{Table: nodeTable, Action: "egress.sketchint.set_node",
			Params: []sdk.ActionParam{{Name: "id", Value: binary.BigEndian.AppendUint32(nil, s.nodes[name])}}})
		write(sdk.SetDefault, sdk.TableEntry{Table: "egress.sketchint.mtu", Action: "egress.sketchint.set_mtu",
			Params: []sdk.ActionParam{{Name: "bytes", Value: short(s.config.MTU)}}})
		session := uint16(0)
		if port, ok := s.reportsBy(name); ok {
			session = reportSession
			for _, w := range s.reports.entries(port) {
				write(w.Op, w.Entry)
			}
		}
		for _, p := range d.Ports {
			if _, linked := ends[p.Number]; !linked {
				write(sdk.Insert, sinkEntry(p.Number, session))
			}
		}
		sources, traffic, foreign := 0, s.config.traffic(), map[string]bool{}
		for _, port := range slices.Sorted(maps.Keys(ends)) {
			beyond := slices.DeleteFunc(cabling.Beyond(name, port), removes)
			if len(beyond) > 0 {
				write(sdk.Insert, sinkEntry(port, session))
			}
			if !hosts[ends[port]] {
				for _, other := range beyond {
					foreign[other] = true
				}
				continue
			}
			sources++
			for i, t := range traffic {
				for v6, table := range []string{"ingress.sketchint.source_ipv4", "ingress.sketchint.source_ipv6"} {
					if t.family(v6 == 1) {
						write(sdk.Insert, s.sourceEntry(table, port, &t, int32(len(traffic)-i)))
					}
				}
			}
		}
		if len(foreign) > 0 {
			missing = append(missing, sdk.MissingObject{Device: name, Object: "program " + program,
				Consequence: "INT ends at this switch for packets that leave by ports to " +
					strings.Join(slices.Sorted(maps.Keys(foreign)), ", ") + ", which would not remove it"})
		}
		if n := sources * len(traffic); n > mostEntries {
			return nil, nil, settings.KeyErrors{{Key: "traffic", Message: fmt.Sprintf(
				"has %d rows, so switch %s needs %d entries for %d ports of hosts; it has %d", len(traffic), name, n,
				sources, mostEntries)}}
		}
	}
	return out, missing, nil
}

// family reports whether the row selects packets of IPv6 or IPv4.
func (t *Traffic) family(v6 bool) bool {
	for _, p := range []settings.Prefix{t.Source, t.Destination} {
		if p.IsValid() && p.Addr().Is6() != v6 {
			return false
		}
	}
	return true
}

// short returns 16 bits as a P4 value.
func short[T ~int | ~uint16 | ~uint32](v T) []byte {
	return binary.BigEndian.AppendUint16(nil, uint16(v))
}

// sinkEntry ends INT at a port, with reports to a clone session if there is one.
func sinkEntry(port uint32, session uint16) sdk.TableEntry {
	e := sdk.TableEntry{Table: "egress.sketchint.sink", Action: "egress.sketchint.remove",
		Matches: []sdk.FieldMatch{{Field: "port", Value: short(port), PrefixLen: -1}}}
	if session > 0 {
		e.Action, e.Params = "egress.sketchint.report", []sdk.ActionParam{{Name: "session", Value: short(session)}}
	}
	return e
}

// reportsBy returns the port by which a switch sends reports.
func (s *setup) reportsBy(name string) (port uint32, ok bool) {
	if s.reports == nil {
		return 0, false
	}
	port, ok = s.reports.ports[name]
	return port, ok
}

// protocols are the numbers of the transport protocols of Traffic; without one, TCP and UDP match.
var protocols = map[string]uint8{"tcp": 6, "udp": 17}

// portMask is all bits of a port of v1model.
var portMask = []byte{1, 0xff}

func (s *setup) sourceEntry(table string, port uint32, t *Traffic, priority int32) sdk.TableEntry {
	matches := []sdk.FieldMatch{{Field: "port", Value: short(port), Mask: portMask, PrefixLen: -1}}
	for _, p := range []struct {
		field string
		settings.Prefix
	}{{"src", t.Source}, {"dst", t.Destination}} {
		if p.IsValid() && p.Bits() > 0 {
			address := p.Addr().AsSlice()
			mask := make([]byte, len(address))
			for i := range p.Bits() {
				mask[i/8] |= 0x80 >> (i % 8)
			}
			matches = append(matches, sdk.FieldMatch{Field: p.field, Value: address, Mask: mask, PrefixLen: -1})
		}
	}
	if number := protocols[t.Protocol]; number > 0 {
		matches = append(matches, sdk.FieldMatch{Field: "protocol", Value: []byte{number}, Mask: []byte{0xff},
			PrefixLen: -1})
	}
	for _, p := range []struct {
		field string
		Ports
	}{{"src_port", t.SourcePorts}, {"dst_port", t.DestinationPorts}} {
		if p.Ports != allPorts {
			matches = append(matches, sdk.FieldMatch{Field: p.field, Value: short(p.Low), High: short(p.High), PrefixLen: -1})
		}
	}
	return sdk.TableEntry{Table: table, Matches: matches, Priority: priority, Action: "ingress.sketchint.start",
		Params: []sdk.ActionParam{{Name: "instructions", Value: short(s.config.instructions())},
			{Name: "hops", Value: []byte{byte(s.config.MaxHops)}}}}
}
