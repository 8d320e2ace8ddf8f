// SPDX-License-Identifier: Apache-2.0

package devconfig

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/netsketch/netsketch/internal/config"
)

// Wanted is the desired configuration of one device.
type Wanted struct {
	// DeviceID is P4Runtime's device_id; 0 if the file has none.
	DeviceID uint64
	// Component is the component of the integrated circuit; "" if the device has only one.
	Component string
	// Ports are the ports of links and hosts, and the ports of the device's port list, by number.
	Ports []Port
	// LLDP is set if links are discovered.
	LLDP bool
}

// Port is a port of a device.
type Port struct {
	Number uint32
	// Interface is the interface's name; "" stands for the interface that reports the number.
	Interface string
	// Description is the interface's description; "" leaves it as it is.
	Description string
}

// WantedOf returns the desired configuration of a device in a file.
func WantedOf(cfg *config.Config, dev config.Device) Wanted {
	w := Wanted{DeviceID: dev.DeviceID, Component: dev.GNMI.Component, LLDP: len(cfg.Links) == 0 && len(cfg.Devices) > 1}
	byNumber := map[uint32]Port{}
	use := func(ref config.PortRef) {
		if ref.Switch == dev.Name {
			byNumber[ref.Port] = Port{Number: ref.Port}
		}
	}
	for _, l := range cfg.Links {
		use(l.From)
		use(l.To)
	}
	for _, h := range cfg.Hosts {
		use(h.Port)
	}
	for _, p := range dev.GNMI.Ports {
		byNumber[p.Number] = Port{Number: p.Number, Interface: p.Interface, Description: p.Description}
	}
	for _, p := range byNumber {
		w.Ports = append(w.Ports, p)
	}
	slices.SortFunc(w.Ports, func(a, b Port) int { return cmp.Compare(a.Number, b.Number) })
	return w
}

// desire is the desired value of a leaf.
type desire struct {
	Leaf
	value string
}

// unresolved says which setting of the file cannot be put into effect, why, and what to do.
type unresolved struct {
	path, reason string
}

// desires returns the leaves that put the file into effect on a device. It refuses settings for
// interfaces and components that the device does not have.
func (w Wanted) desires(s *Snapshot) (out []desire, refused []unresolved) {
	if w.DeviceID != 0 {
		name, reason := s.circuit(w.Component)
		l := Leaf{nodeID, name}
		if reason != "" {
			refused = append(refused, unresolved{l.Path(), reason})
		} else {
			out = append(out, desire{l, strconv.FormatUint(w.DeviceID, 10)})
		}
	}
	for _, p := range w.Ports {
		name, reason := s.interfaceOf(p)
		if reason != "" {
			refused = append(refused, unresolved{Leaf{portID, cmp.Or(p.Interface, "?")}.Path(), reason})
			continue
		}
		out = append(out, desire{Leaf{portID, name}, strconv.FormatUint(uint64(p.Number), 10)},
			desire{Leaf{portEnabled, name}, "true"})
		if p.Description != "" {
			out = append(out, desire{Leaf{portDescription, name}, p.Description})
		}
		if w.LLDP && s.LLDP {
			out = append(out, desire{Leaf{portLLDP, name}, "true"})
		}
	}
	if w.LLDP && s.LLDP {
		out = append(out, desire{Leaf{kind: lldpEnabled}, "true"})
	}
	slices.SortFunc(out, func(a, b desire) int { return a.compare(b.Leaf) })
	return out, refused
}
