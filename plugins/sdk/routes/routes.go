// SPDX-License-Identifier: Apache-2.0

// Package routes computes which switches a flow passes, from the network model's routes that the
// collector installs.
package routes

import (
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/rowhash"
)

// Routes are the routes of a network and the places of its hosts. They are immutable.
type Routes struct {
	switches map[string]*router
	owners   *sdk.RouteTable // owners of the hosts' addresses: a group is the index of a host
	hosts    []host
}

// host is a host and the switch that it is attached to.
type host struct{ name, at string }

// router is a switch.
type router struct {
	seed   uint32          // seed of the hash that selects a port of a group
	routes *sdk.RouteTable // nil if the collector does not install the switch's routes
	groups []sdk.PortGroup
	ends   map[uint32]string // name of the node at the other end of each port
}

// New returns the routes of a network.
func New(model *sdk.Network) *Routes {
	r := &Routes{switches: map[string]*router{}}
	for i := range model.Devices {
		d := &model.Devices[i]
		s := &router{ends: map[uint32]string{}}
		if f := d.Forwarding; f != nil {
			s.seed, s.groups, s.routes = f.Seed, f.Groups, sdk.NewRouteTable(f.Routes)
		}
		r.switches[d.Name] = s
	}
	at := map[string]string{}
	for _, l := range model.Links {
		for _, e := range [][2]sdk.Endpoint{{l.A, l.B}, {l.B, l.A}} {
			if s := r.switches[e[0].Node]; s != nil {
				s.ends[e[0].Port] = e[1].Node
				at[e[1].Node] = e[0].Node
			}
		}
	}
	var owners []sdk.Route
	for i := range model.Hosts {
		h := &model.Hosts[i]
		for _, a := range h.Addresses {
			switch {
			case strings.Contains(a, "/"):
			case strings.Contains(a, ":"):
				a += "/128"
			default:
				a += "/32"
			}
			owners = append(owners, sdk.Route{Prefix: a, Group: i})
		}
		r.hosts = append(r.hosts, host{h.Name, at[h.Name]})
	}
	r.owners = sdk.NewRouteTable(owners)
	return r
}

// Ends returns the hosts that have the source and the destination address of a flow; a name is
// empty if no host of the model has the address.
func (r *Routes) Ends(k *flow.Key) (from, to string) {
	if i, ok := r.owners.Group(k.SrcAddr()); ok {
		from = r.hosts[i].name
	}
	if i, ok := r.owners.Group(k.DstAddr()); ok {
		to = r.hosts[i].name
	}
	return from, to
}

// Neighbors returns the switches with a link to a switch, sorted.
func (r *Routes) Neighbors(name string) (names []string) {
	s := r.switches[name]
	if s == nil {
		return nil
	}
	for _, end := range s.ends {
		if r.switches[end] != nil {
			names = append(names, end)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Path returns the switches that a flow passes, in order. The hash of the flow selects one of
// equally short paths. It returns nil if the path is not known.
func (r *Routes) Path(k *flow.Key) []string { return r.follow(k, true) }

// Paths returns the switches on all equally short paths of a flow; nil if they are not known.
func (r *Routes) Paths(k *flow.Key) []string { return r.follow(k, false) }

func (r *Routes) follow(k *flow.Key, one bool) []string {
	source, ok := r.owners.Group(k.SrcAddr())
	if !ok {
		return nil
	}
	to, hash := k.DstAddr(), rowhash.Key(k.AppendBinary(nil))
	names := []string{r.hosts[source].at}
	for i := 0; i < len(names); i++ {
		s := r.switches[names[i]]
		if s == nil || s.routes == nil {
			return nil
		}
		group, ok := s.routes.Group(to)
		if !ok || group < 0 || group >= len(s.groups) || len(s.groups[group].Ports) == 0 {
			return nil
		}
		ports := s.groups[group].Ports
		if one {
			ports = []uint32{s.groups[group].Port(s.seed, hash)}
		}
		for _, p := range ports {
			end, linked := s.ends[p]
			if !linked {
				return nil
			}
			if r.switches[end] != nil && !slices.Contains(names, end) {
				names = append(names, end)
			}
		}
	}
	return names
}
