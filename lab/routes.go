// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/netsketch/netsketch/p4/softswitch"
)

// Misroute gives switch i wrong routes to a host of the fabric: they lead to a neighbor of the
// switch. The collector does not learn of them. restore brings the old routes back. BMv2 switches
// cannot have wrong routes.
func (n *Network) Misroute(i, host int, via string) (restore func() error, err error) {
	nd, sw := n.nodes[i], n.Switch(i)
	if sw == nil {
		return nil, fmt.Errorf("lab: switch %s is no soft switch, so it cannot have wrong routes", nd.spec.Name)
	}
	out := -1
	for port, w := range nd.out {
		if !w.to.host && n.nodes[w.to.node].spec.Name == via {
			out = int(port)
		}
	}
	if out < 0 {
		return nil, fmt.Errorf("lab: switch %s has no link to %s", nd.spec.Name, via)
	}
	wrong := softswitch.Action{Name: "ingress.forwarding.forward",
		Params: [][]byte{binary.BigEndian.AppendUint16(nil, uint16(out)), make([]byte, 6), make([]byte, 6)}}
	type route struct {
		table string
		softswitch.Entry
	}
	var old []route
	h := n.cfg.Fabric.Hosts[host]
	for _, p := range append([]netip.Prefix{h.V4, h.V6}, h.Prefixes...) {
		table := "ingress.forwarding.ipv4_lpm"
		if p.Addr().Is6() {
			table = "ingress.forwarding.ipv6_lpm"
		}
		was, err := sw.ReadEntry(table, softswitch.Entry{Match: []softswitch.Match{
			{Kind: softswitch.MatchLPM, Value: p.Masked().Addr().AsSlice(), PrefixLen: p.Bits()}}})
		if err != nil {
			return nil, fmt.Errorf("lab: switch %s: route to %v: %w", nd.spec.Name, p, err)
		}
		next := was
		next.Action = wrong
		if err := sw.ModifyEntry(table, next); err != nil {
			return nil, fmt.Errorf("lab: switch %s: route to %v: %w", nd.spec.Name, p, err)
		}
		old = append(old, route{table, was})
	}
	return func() error {
		for _, r := range old {
			if err := sw.ModifyEntry(r.table, r.Entry); err != nil {
				return fmt.Errorf("lab: switch %s: old routes: %w", nd.spec.Name, err)
			}
		}
		return nil
	}, nil
}
