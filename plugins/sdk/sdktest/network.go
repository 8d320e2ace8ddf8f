// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"fmt"
	"net/netip"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// LeafSpine returns a small network with two paths between leaves: leaf1, leaf2, spine1 and
// spine2, in this order, and hosts h1 to h4 with agents, two at each leaf. Ports 1 and 2 lead to
// switches, 3 and 4 to hosts, and 5 is not connected. All switches run the program, and have a
// route to the address of each host 0 to 3. Each switch has another seed.
func LeafSpine(program string, address func(host int) netip.Addr) sdk.Network {
	n := sdk.Network{}
	for i, name := range []string{"leaf1", "leaf2", "spine1", "spine2"} {
		d := sdk.Device{Name: name, Program: program}
		f := &sdk.Forwarding{Seed: 0x9e3779b1 + uint32(i)*2, Groups: []sdk.PortGroup{{Ports: []uint32{1, 2}}}}
		for p := range uint32(5) {
			d.Ports = append(d.Ports, sdk.Port{Number: p + 1})
			f.Groups = append(f.Groups, sdk.PortGroup{Ports: []uint32{p + 1}})
		}
		for h := range 4 {
			group, to := 0, address(h)
			switch leaf := h / 2; {
			case i >= 2:
				group = 1 + leaf // group of a spine's ports to a leaf
			case i == leaf:
				group = 3 + h%2
			}
			f.Routes = append(f.Routes, sdk.Route{Prefix: netip.PrefixFrom(to, to.BitLen()).String(), Group: group})
		}
		d.Forwarding = f
		n.Devices = append(n.Devices, d)
	}
	for h := range 4 {
		name := fmt.Sprintf("h%d", h+1)
		n.Hosts = append(n.Hosts, sdk.Host{Name: name, Addresses: []string{address(h).String()}, Agent: true})
		n.Links = append(n.Links, sdk.Link{A: sdk.Endpoint{Node: name},
			B: sdk.Endpoint{Node: fmt.Sprintf("leaf%d", h/2+1), Port: uint32(3 + h%2)}})
	}
	for l := range 2 {
		for s := range 2 {
			n.Links = append(n.Links, sdk.Link{A: sdk.Endpoint{Node: fmt.Sprintf("leaf%d", l+1), Port: uint32(s + 1)},
				B: sdk.Endpoint{Node: fmt.Sprintf("spine%d", s+1), Port: uint32(l + 1)}})
		}
	}
	return n
}
