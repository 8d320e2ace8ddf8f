// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// The forwarding tables of the programs that come with the project (docs/p4.md), by alias.
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

// Owners of entries in a session. They are applied in the order of their names, and a route must
// not come before the group it leads to.
const (
	ownerGroups = "forwarding-1-groups"
	ownerRoutes = "forwarding-2-routes"
)

// entries is the forwarding state of a switch in P4Runtime's terms.
type entries struct{ groups, routes p4rt.Desired }

// forwardingEntries translates routes, and fails when the program has no such tables or the values
// do not fit them.
func forwardingEntries(cat *p4values.Catalog, name string, r topology.Routes) (entries, error) {
	e := entries{
		groups: p4rt.Desired{Tables: []string{tableMembers}},
		routes: p4rt.Desired{Tables: []string{tableIPv4, tableIPv6}},
	}
	e.groups.Entries = append(e.groups.Entries, p4rt.Entry{
		Table: tableSeed, Default: true, Action: actSeed, Params: []p4rt.Param{p4rt.Uint("seed", uint64(ecmpSeed(name)))},
	})
	for _, g := range r.Groups {
		if len(g.Hops) < 2 {
			continue
		}
		for i, hop := range g.Hops {
			e.groups.Entries = append(e.groups.Entries, p4rt.Entry{
				Table: tableMembers,
				Match: []p4rt.Match{
					p4rt.Exact(fieldGroup, p4values.Uint(uint64(g.ID))), p4rt.Exact(fieldMember, p4values.Uint(uint64(i))),
				},
				Action: actForward, Params: forwardParams(hop),
			})
		}
	}
	for _, route := range r.Routes {
		g, ok := r.Group(route.Group)
		if !ok || len(g.Hops) == 0 {
			return e, fmt.Errorf("route %s leads to group %d, which has no hops", route.Prefix, route.Group)
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
		e.routes.Entries = append(e.routes.Entries, entry)
	}
	return e, e.check(cat)
}

// check builds every entry for the program.
func (e entries) check(cat *p4values.Catalog) error {
	var errs []error
	for _, d := range []p4rt.Desired{e.groups, e.routes} {
		for _, table := range d.Tables {
			if _, err := cat.Tables.Name(table); err != nil {
				errs = append(errs, err)
			}
		}
		if len(errs) > 0 {
			continue // one message for a missing table is enough
		}
		for _, entry := range d.Entries {
			if _, err := entry.Build(cat); err != nil {
				errs = append(errs, err)
				break
			}
		}
	}
	return errors.Join(errs...)
}

func forwardParams(h topology.NextHop) []p4rt.Param {
	return []p4rt.Param{
		p4rt.Uint("port", uint64(h.Port)), p4rt.Bytes("src_mac", h.Source[:]), p4rt.Bytes("dst_mac", h.Destination[:]),
	}
}

// ecmpSeed is odd and differs from switch to switch: otherwise the second switch on a path sees
// only flows that chose alike at the first, and its other ports idle.
func ecmpSeed(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return h.Sum32() | 1
}

// SetRoutes makes the switch forward by these routes, now if the session is ready and in every later
// session. It does nothing when the collector does not own the forwarding.
func (d *Device) SetRoutes(ctx context.Context, r topology.Routes) error {
	if !d.cfg.Forwarding {
		return nil
	}
	d.mu.Lock()
	s := d.session
	d.routes = r
	d.mu.Unlock()
	if s == nil {
		return nil
	}
	var cat *p4values.Catalog
	var err error
	if p := d.cfg.Session.Program; p != nil {
		cat, err = p4values.NewCatalog(p.P4Info)
	} else {
		cat, err = s.Catalog()
	}
	if errors.Is(err, p4rt.ErrNotReady) {
		return nil // watch calls again
	}
	if err != nil {
		return err
	}
	e, err := forwardingEntries(cat, d.cfg.Name, r)
	if err != nil {
		return err
	}
	return errors.Join(s.Desire(ctx, ownerGroups, e.groups), s.Desire(ctx, ownerRoutes, e.routes))
}
