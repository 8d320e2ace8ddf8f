// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/univmon/manifest"
	"github.com/netsketch/netsketch/sketch/universal"
)

// Assignment is who counts what in a network.
type Assignment struct {
	*manifest.Map
	*manifest.Manifest
	// Unfit are the switches that count nothing, with the reason.
	Unfit map[string]string

	bits map[string]int // number of each dimension in entries, from 1
}

// fits reports whether packets count once under an assignment if the routes are those of next.
// Packets of a host that only next knows count where they enter the network.
func (a *Assignment) fits(next *manifest.Map) bool {
	if a.Map == next {
		return true
	}
	routes := routesOf(a.Map)
	for where, now := range routesOf(next) {
		if was, known := routes[where]; known && was != now {
			return false
		}
	}
	owners := make(map[netip.Prefix]string)
	for i, prefixes := range a.Sites {
		for _, p := range prefixes {
			owners[p] = a.Problem.Switches[i].Name
		}
	}
	for i, prefixes := range next.Sites {
		for _, p := range prefixes {
			for bits := p.Bits(); bits >= 0; bits-- { // the longest prefix decides
				if was, known := owners[netip.PrefixFrom(p.Addr(), bits).Masked()]; known {
					if was != next.Problem.Switches[i].Name {
						return false
					}
					break
				}
			}
		}
	}
	return true
}

// routesOf returns the paths of each pair of switches and the inner ports of each switch, by name.
func routesOf(m *manifest.Map) map[string]string {
	out := make(map[string]string)
	for _, p := range m.Problem.Pairs {
		var paths []string
		for _, path := range p.Paths {
			var names []string
			for _, i := range path {
				names = append(names, m.Problem.Switches[i].Name)
			}
			paths = append(paths, strings.Join(names, " "))
		}
		slices.Sort(paths)
		out[m.Problem.Switches[p.Origin].Name+" "+m.Problem.Switches[p.Destination].Name] = strings.Join(paths, ", ")
	}
	for i, ports := range m.Internal {
		out[m.Problem.Switches[i].Name] = fmt.Sprint(ports)
	}
	return out
}

// read returns the switches, sites and paths of a network.
func (c *Configuration) read(network *sdk.Network) (*manifest.Map, error) {
	return manifest.Read(network, manifest.Routing{Owners: c.Network.Prefixes, Paths: c.Network.Paths,
		Shortest: c.Network.Unmanaged == UnmanagedShortest})
}

// Assign computes an assignment by a scheme. All switches that count need the same sketches of all
// dimensions, so that the sketches can be added up. Absent are switches that do not count, with the
// reason.
func (c *Configuration) Assign(network *sdk.Network, scheme manifest.Scheme, absent map[string]string) (*Assignment,
	error) {
	m, err := c.read(network)
	if err != nil {
		return nil, err
	}
	a := &Assignment{Map: m, Unfit: make(map[string]string), bits: make(map[string]int)}
	layouts := make(map[string]universal.Layout)
	wanted := c.Dimensions
	for i := range network.Devices {
		d := &network.Devices[i]
		m.Problem.Switches[i].Capacity = int(c.Network.Memory)
		found, _ := find(d)
		if len(wanted) == 0 { // takes the dimensions of the first switch that measures
			for _, name := range allDimensions() {
				if _, ok := found[name]; ok {
					wanted = append(wanted, name)
				}
			}
		}
		reason := absent[d.Name]
		if u, _ := findUnparsed(d); c.inner() && (u == nil || u.forwarded == 0) {
			reason = "its pipeline measures outer flows only"
		}
		if len(wanted) == 0 {
			reason = "it measures no dimension"
		}
		for _, name := range wanted {
			in, ok := found[name]
			if first, known := layouts[name]; !ok {
				reason = "it does not measure " + name
			} else if in.duty == 0 {
				reason = "its pipeline counts all packets by " + name
			} else if bit := a.bits[name]; bit != 0 && bit != in.duty {
				reason = fmt.Sprintf("duties for %s have bit %d, those of others bit %d", name, in.duty, bit)
			} else if known && in.layout != first {
				reason = fmt.Sprintf("its sketch of %s (%v) differs from that of others (%v)", name, in.layout, first)
			}
		}
		if reason != "" {
			a.Unfit[d.Name] = reason
			m.Problem.Switches[i].Excluded = true
			continue
		}
		for _, name := range wanted {
			layouts[name], a.bits[name] = found[name].layout, found[name].duty
		}
	}
	if len(layouts) == 0 {
		return nil, errors.New("no switch measures all dimensions")
	}
	for _, name := range wanted {
		m.Problem.Dimensions = append(m.Problem.Dimensions,
			manifest.Dimension{Name: name, Bytes: layouts[name].Bytes()})
	}
	a.Manifest, err = manifest.Solve(&m.Problem, scheme)
	return a, err
}
