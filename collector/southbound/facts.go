// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Facts are the state of a switch that the network model needs.
type Facts struct {
	// Number grows with every change; 0 before the first sync.
	Number uint64
	// Hostname is the switch's host name. Chassis and SystemName are the values that LLDP announces.
	// Unknown values are empty.
	Hostname, Chassis, SystemName string
	// LLDP is set if LLDP is enabled.
	LLDP bool
	// DeviceIDs are the P4Runtime device ids that the switch reports, sorted.
	DeviceIDs []uint64
	// Ports are sorted by name.
	Ports []Port
	// Neighbors are sorted by interface, chassis and port.
	Neighbors []Neighbor
}

// Port is an interface.
type Port struct {
	Name string
	// ID is the P4Runtime port number; 0 when the switch does not report one.
	ID uint32
	// Down is set if the switch reports another operational status than UP.
	Down bool
	// Disabled is set if the switch reports that its configuration disables the port, and does not
	// report that the port is UP nevertheless.
	Disabled bool
	// Speed is in bits per second; 0 when the switch does not report it.
	Speed uint64
}

// Neighbor is an LLDP neighbor.
type Neighbor struct {
	Interface                           string
	Chassis, SystemName                 string
	PortID, PortIDType, PortDescription string
}

// equal compares all fields except Number. Facts with Number 0, which a switch has not sent, equal
// no facts.
func (f Facts) equal(g Facts) bool {
	return g.Number != 0 && f.Hostname == g.Hostname && f.Chassis == g.Chassis && f.SystemName == g.SystemName &&
		f.LLDP == g.LLDP &&
		slices.Equal(f.DeviceIDs, g.DeviceIDs) && slices.Equal(f.Ports, g.Ports) &&
		slices.Equal(f.Neighbors, g.Neighbors)
}

// Port returns the port with a name.
func (f *Facts) Port(name string) (Port, bool) {
	i, ok := slices.BinarySearchFunc(f.Ports, name,
		func(p Port, name string) int { return strings.Compare(p.Name, name) })
	if !ok {
		return Port{}, false
	}
	return f.Ports[i], true
}

// isFact reports whether discovery uses a leaf of a list; an empty name stands for any leaf.
func isFact(elems []string, name string) bool {
	switch elems[0] {
	case "interfaces":
		return len(elems) == 2 && (name == "" || name == "state/id" || name == "state/oper-status" ||
			name == "state/enabled" || name == "ethernet/state/port-speed")
	case "lldp":
		return len(elems) > 3 || len(elems) == 1
	case "components":
		return name == "" || name == "integrated-circuit/state/node-id"
	case "system":
		return name == "state/hostname"
	}
	return false
}

// bitsPerSecond returns the speed that an identity of openconfig-if-ethernet names, such as
// SPEED_10GB or SPEED_2500MB, with or without a prefix; 0 for others.
func bitsPerSecond(identity string) uint64 {
	_, speed, ok := strings.Cut(identity, "SPEED_")
	for unit, factor := range map[string]uint64{"MB": 1e6, "GB": 1e9} {
		if number, found := strings.CutSuffix(speed, unit); ok && found {
			n, err := strconv.ParseUint(number, 10, 16)
			if err == nil {
				return n * factor
			}
		}
	}
	return 0
}

// facts extracts the facts from the cache.
func (c *cache) facts() Facts {
	var f Facts
	for _, l := range c.lists {
		for _, r := range l.rows {
			text := func(name string) string {
				s, _ := r.leaves[name].value.(string)
				return s
			}
			switch strings.Join(l.elems, "/") {
			case "interfaces/interface":
				id, _ := r.leaves["state/id"].value.(uint64)
				status := text("state/oper-status")
				enabled, known := r.leaves["state/enabled"].value.(bool)
				f.Ports = append(f.Ports, Port{Name: r.keys[0], ID: uint32(id),
					Speed: bitsPerSecond(text("ethernet/state/port-speed")),
					Down:  status != "UP" && status != "", Disabled: known && !enabled && status != "UP"})
			case "lldp":
				f.Chassis, f.SystemName = text("state/chassis-id"), text("state/system-name")
				f.LLDP, _ = r.leaves["state/enabled"].value.(bool)
			case "lldp/interfaces/interface/neighbors/neighbor":
				f.Neighbors = append(f.Neighbors, Neighbor{
					Interface: r.keys[0], Chassis: text("state/chassis-id"), SystemName: text("state/system-name"),
					PortID: text("state/port-id"), PortIDType: text("state/port-id-type"),
					PortDescription: text("state/port-description"),
				})
			case "components/component":
				if id, ok := r.leaves["integrated-circuit/state/node-id"].value.(uint64); ok && id != 0 {
					f.DeviceIDs = append(f.DeviceIDs, id)
				}
			case "system":
				f.Hostname = text("state/hostname")
			}
		}
	}
	slices.Sort(f.DeviceIDs)
	f.DeviceIDs = slices.Compact(f.DeviceIDs)
	slices.SortFunc(f.Ports, func(a, b Port) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(f.Neighbors, func(a, b Neighbor) int {
		return cmp.Or(strings.Compare(a.Interface, b.Interface), strings.Compare(a.Chassis, b.Chassis),
			strings.Compare(a.PortID, b.PortID), strings.Compare(a.SystemName, b.SystemName))
	})
	return f
}
