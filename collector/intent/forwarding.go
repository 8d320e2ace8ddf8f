// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"errors"
	"fmt"

	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// The forwarding tables of the programs that ship with netsketch (docs/p4.md), by alias.
const (
	tableIPv4    = "ipv4_lpm"
	tableIPv6    = "ipv6_lpm"
	tableMembers = "ecmp_members"
	tableSeed    = "ecmp_seed"
	fieldIPv4    = "hdr.ipv4.dst"
	fieldIPv6    = "hdr.ipv6.dst"
	fieldGroup   = "meta.ecmp_group"
	fieldMember  = "meta.ecmp_member"
	actForward   = "forward"
	actECMP      = "ecmp"
	actSeed      = "choose_member"
)

// forwardingEntries makes the entries of a switch's routes. Groups come before the routes that lead
// to them.
func forwardingEntries(r topology.Routes) ([]p4rt.Desired, error) {
	groups := p4rt.Desired{Tables: []string{tableMembers}}
	groups.Entries = append(groups.Entries, p4rt.Entry{
		Table: tableSeed, Default: true, Action: actSeed,
		Params: []p4rt.Param{p4rt.Uint("seed", uint64(r.Seed))},
	})
	for _, g := range r.Groups {
		if len(g.Hops) < 2 {
			continue
		}
		for i, hop := range g.Hops {
			groups.Entries = append(groups.Entries, p4rt.Entry{
				Table: tableMembers,
				Match: []p4rt.Match{
					p4rt.Exact(fieldGroup, p4values.Uint(uint64(g.ID))),
					p4rt.Exact(fieldMember, p4values.Uint(uint64(i))),
				},
				Action: actForward, Params: forwardParams(hop),
			})
		}
	}
	routes := p4rt.Desired{Tables: []string{tableIPv4, tableIPv6}}
	for _, route := range r.Routes {
		g, ok := r.Group(route.Group)
		if !ok || len(g.Hops) == 0 {
			return nil, fmt.Errorf("route %s leads to group %d, which has no hops", route.Prefix, route.Group)
		}
		entry := p4rt.Entry{Table: tableIPv4, Match: []p4rt.Match{p4rt.Prefix(fieldIPv4, route.Prefix)}}
		if route.Prefix.Addr().Is6() {
			entry = p4rt.Entry{Table: tableIPv6, Match: []p4rt.Match{p4rt.Prefix(fieldIPv6, route.Prefix)}}
		}
		if len(g.Hops) == 1 {
			entry.Action, entry.Params = actForward, forwardParams(g.Hops[0])
		} else {
			entry.Action = actECMP
			entry.Params = []p4rt.Param{p4rt.Uint("group", uint64(g.ID)), p4rt.Uint("size", uint64(len(g.Hops)))}
		}
		routes.Entries = append(routes.Entries, entry)
	}
	return []p4rt.Desired{groups, routes}, nil
}

func forwardParams(h topology.NextHop) []p4rt.Param {
	return []p4rt.Param{
		p4rt.Uint("port", uint64(h.Port)), p4rt.Bytes("src_mac", h.Source[:]), p4rt.Bytes("dst_mac", h.Destination[:]),
	}
}

// CheckRoutes fails when a program does not have the forwarding tables, or a route does not fit
// them.
func CheckRoutes(p *p4rt.Program, name string, r topology.Routes) error {
	cat, err := p4values.NewCatalog(p.P4Info)
	if err != nil {
		return fmt.Errorf("device %s: program %s: %w", name, p.Name, err)
	}
	parts, err := forwardingEntries(r)
	errs := []error{err}
	for _, part := range parts {
		for _, table := range part.Tables {
			_, err := cat.Tables.Name(table)
			errs = append(errs, err)
		}
	}
	if errors.Join(errs...) == nil {
		for _, part := range parts {
			for _, e := range part.Entries {
				_, err := e.Build(cat)
				errs = append(errs, err)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("device %s: program %s cannot forward: %w", name, p.Name, err)
	}
	return nil
}

// SetRoutes makes a device forward by these routes, at once if its session is ready, and in every
// later session. It does nothing for a device whose forwarding tables another controller manages.
func (c *Component) SetRoutes(ctx context.Context, name string, r topology.Routes) error {
	d := c.device(name)
	if d == nil || !d.forwards {
		return nil
	}
	parts, err := forwardingEntries(r)
	if err != nil {
		return err
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	d.forwarding = parts
	if err := d.reconcile(ctx, d); !errors.Is(err, p4rt.ErrNotReady) {
		return err
	}
	return nil // the next session writes the forwarding entries
}
