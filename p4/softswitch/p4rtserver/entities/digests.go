// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"iter"
	"slices"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// writeDigest applies an update of a digest's configuration.
func (d *Device) writeDigest(kind p4v1.Update_Type, e *p4v1.DigestEntry, role string) (undo, error) {
	g, ok := d.cat.Digests.ID(e.GetDigestId())
	if !ok {
		return nil, notFound("the program has no digest with id %#x", e.GetDigestId())
	}
	if err := checkRole(role, g.Object); err != nil {
		return nil, err
	}
	old, on := d.digests[g.ID]
	switch {
	case kind == p4v1.Update_INSERT && on:
		return nil, status.Errorf(codes.AlreadyExists, "digest %s is enabled already", g.Name)
	case kind != p4v1.Update_INSERT && !on:
		return nil, notFound("digest %s is not enabled", g.Name)
	}
	set := func(c *p4v1.DigestEntry_Config) error {
		if c == nil {
			delete(d.digests, g.ID)
		} else {
			d.digests[g.ID] = c
		}
		if d.OnDigest != nil {
			d.OnDigest(g, c)
		}
		return nil
	}
	back := func() error { return set(old) }
	if kind == p4v1.Update_DELETE {
		return back, set(nil)
	}
	c := e.GetConfig()
	if c == nil {
		c = &p4v1.DigestEntry_Config{}
	}
	if c.GetMaxTimeoutNs() < 0 || c.GetAckTimeoutNs() < 0 || c.GetMaxListSize() < 0 {
		return nil, invalid("digest %s: timeouts and list size cannot be negative", g.Name)
	}
	return back, set(c)
}

func (d *Device) queryDigests(q *p4v1.DigestEntry, role string) (iter.Seq[*p4v1.Entity], error) {
	digests, err := which(q.GetDigestId(), role, d.cat.Digests.All(), func(id uint32) (*p4values.Digest, error) {
		g, ok := d.cat.Digests.ID(id)
		if !ok {
			return nil, notFound("the program has no digest with id %#x", id)
		}
		return g, nil
	})
	if err != nil {
		return nil, err
	}
	var out []*p4v1.Entity
	for _, g := range digests {
		if c, on := d.digests[g.ID]; on {
			out = append(out,
				&p4v1.Entity{Entity: &p4v1.Entity_DigestEntry{DigestEntry: &p4v1.DigestEntry{DigestId: g.ID,
					Config: c}}})
		}
	}
	return slices.Values(out), nil
}
