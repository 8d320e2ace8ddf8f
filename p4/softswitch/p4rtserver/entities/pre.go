// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"slices"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
)

// Limits of v1model on BMv2: egress_rid has 16 bits, clone sessions are below 32768, multicast
// groups are numbers of 16 bits.
const (
	maxInstance = 0xffff
	maxGroup    = 0xffff
	maxSession  = 0x7fff
	maxPort     = 511
)

// writePRE applies an update of a multicast group or a clone session.
func (d *Device) writePRE(kind p4v1.Update_Type, e *p4v1.PacketReplicationEngineEntry) (undo, error) {
	switch e := e.GetType().(type) {
	case *p4v1.PacketReplicationEngineEntry_MulticastGroupEntry:
		return d.writeMulticast(kind, e.MulticastGroupEntry)
	case *p4v1.PacketReplicationEngineEntry_CloneSessionEntry:
		return d.writeClone(kind, e.CloneSessionEntry)
	}
	return nil, invalid("a packet replication entry is a multicast group or a clone session, and this is neither")
}

func (d *Device) writeMulticast(kind p4v1.Update_Type, e *p4v1.MulticastGroupEntry) (undo, error) {
	id := e.GetMulticastGroupId()
	if id == 0 || id > maxGroup {
		return nil, invalid("a multicast group's id is 1 to %d, not %d", maxGroup, id)
	}
	all := d.sw.ReadMulticastGroups()
	i := slices.IndexFunc(all, func(g softswitch.MulticastGroup) bool { return g.ID == id })
	if kind != p4v1.Update_INSERT && i < 0 {
		return nil, notFound("there is no multicast group %d", id)
	}
	if kind == p4v1.Update_DELETE {
		return func() error { return d.sw.InsertMulticastGroup(all[i]) }, d.sw.DeleteMulticastGroup(id)
	}
	rs, err := replicasOf(e.GetReplicas())
	if err != nil {
		return nil, err
	}
	g := softswitch.MulticastGroup{ID: id, Replicas: rs, Metadata: e.GetMetadata()}
	if kind == p4v1.Update_INSERT {
		return func() error { return d.sw.DeleteMulticastGroup(id) }, d.sw.InsertMulticastGroup(g)
	}
	return func() error { return d.sw.ModifyMulticastGroup(all[i]) }, d.sw.ModifyMulticastGroup(g)
}

func (d *Device) writeClone(kind p4v1.Update_Type, e *p4v1.CloneSessionEntry) (undo, error) {
	id := e.GetSessionId()
	if id == 0 || id > maxSession {
		return nil, invalid("a clone session's id is 1 to %d, not %d", maxSession, id)
	}
	all := d.sw.ReadCloneSessions()
	i := slices.IndexFunc(all, func(c softswitch.CloneSession) bool { return c.ID == id })
	if kind != p4v1.Update_INSERT && i < 0 {
		return nil, notFound("there is no clone session %d", id)
	}
	if kind == p4v1.Update_DELETE {
		return func() error { return d.sw.InsertCloneSession(all[i]) }, d.sw.DeleteCloneSession(id)
	}
	rs, err := replicasOf(e.GetReplicas())
	if err != nil {
		return nil, err
	}
	if e.GetPacketLengthBytes() < 0 || e.GetClassOfService() > 7 {
		return nil, invalid("clone session %d: a packet length of %d bytes, class of service %d (0 to 7)", id,
			e.GetPacketLengthBytes(), e.GetClassOfService())
	}
	c := softswitch.CloneSession{ID: id, Replicas: rs, ClassOfService: e.GetClassOfService(),
		PacketLength: int(e.GetPacketLengthBytes())}
	if kind == p4v1.Update_INSERT {
		return func() error { return d.sw.DeleteCloneSession(id) }, d.sw.InsertCloneSession(c)
	}
	return func() error { return d.sw.ModifyCloneSession(all[i]) }, d.sw.ModifyCloneSession(c)
}

// replicasOf converts replicas and their backups. Each (port, instance) is unique.
func replicasOf(rs []*p4v1.Replica) ([]softswitch.Replica, error) {
	type place struct{ port, instance uint64 }
	seen := map[place]bool{}
	one := func(port uint64, instance uint32) (softswitch.Replica, error) {
		if port > maxPort || instance > maxInstance {
			return softswitch.Replica{}, invalid(
				"replica (port %d, instance %d): ports are 0 to %d and instances 0 to %d", port, instance, maxPort,
				maxInstance)
		}
		at := place{port, uint64(instance)}
		if seen[at] {
			return softswitch.Replica{}, invalid("replica (port %d, instance %d) is there twice", port, instance)
		}
		seen[at] = true
		return softswitch.Replica{Port: uint32(port), Instance: uint16(instance)}, nil
	}
	var out []softswitch.Replica
	for _, r := range rs {
		port, numbered := numberedPort(r)
		if r.GetPortKind() == nil {
			return nil, invalid("a replica needs a port")
		}
		if !numbered {
			var err error
			if port, err = p4values.Uint64(r.GetPort()); err != nil {
				return nil, invalid("replica: port: %v", err)
			}
		}
		sr, err := one(port, r.GetInstance())
		if err != nil {
			return nil, err
		}
		for _, b := range r.GetBackupReplicas() {
			port, err := p4values.Uint64(b.GetPort())
			if err != nil {
				return nil, invalid("backup replica: port: %v", err)
			}
			sb, err := one(port, b.GetInstance())
			if err != nil {
				return nil, err
			}
			if sb.Port == sr.Port {
				return nil, invalid("replica (port %d, instance %d) has a backup of the same port", sr.Port,
					sr.Instance)
			}
			sr.Backups = append(sr.Backups, sb)
		}
		out = append(out, sr)
	}
	return out, nil
}

func protoReplicas(rs []softswitch.Replica) []*p4v1.Replica {
	var out []*p4v1.Replica
	for _, r := range rs {
		pr := &p4v1.Replica{PortKind: &p4v1.Replica_Port{Port: p4values.Uint(uint64(r.Port))},
			Instance: uint32(r.Instance)}
		for _, b := range r.Backups {
			pr.BackupReplicas = append(pr.BackupReplicas,
				&p4v1.BackupReplica{Port: p4values.Uint(uint64(b.Port)), Instance: uint32(b.Instance)})
		}
		out = append(out, pr)
	}
	return out
}

// queryPRE returns the multicast groups or clone sessions that a read requests; id 0 requests all.
func (d *Device) queryPRE(q *p4v1.PacketReplicationEngineEntry) ([]*p4v1.Entity, error) {
	var out []*p4v1.Entity
	add := func(e *p4v1.PacketReplicationEngineEntry) {
		out = append(out,
			&p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{PacketReplicationEngineEntry: e}})
	}
	switch q := q.GetType().(type) {
	case *p4v1.PacketReplicationEngineEntry_MulticastGroupEntry:
		id := q.MulticastGroupEntry.GetMulticastGroupId()
		for _, g := range d.sw.ReadMulticastGroups() {
			if id == 0 || g.ID == id {
				m := &p4v1.MulticastGroupEntry{MulticastGroupId: g.ID, Replicas: protoReplicas(g.Replicas),
					Metadata: g.Metadata}
				add(&p4v1.PacketReplicationEngineEntry{Type: &p4v1.PacketReplicationEngineEntry_MulticastGroupEntry{
					MulticastGroupEntry: m}})
			}
		}
		if id != 0 && len(out) == 0 {
			return nil, notFound("there is no multicast group %d", id)
		}
	case *p4v1.PacketReplicationEngineEntry_CloneSessionEntry:
		id := q.CloneSessionEntry.GetSessionId()
		for _, c := range d.sw.ReadCloneSessions() {
			if id == 0 || c.ID == id {
				m := &p4v1.CloneSessionEntry{SessionId: c.ID, Replicas: protoReplicas(c.Replicas),
					ClassOfService: c.ClassOfService, PacketLengthBytes: int32(c.PacketLength)}
				add(&p4v1.PacketReplicationEngineEntry{Type: &p4v1.PacketReplicationEngineEntry_CloneSessionEntry{
					CloneSessionEntry: m}})
			}
		}
		if id != 0 && len(out) == 0 {
			return nil, notFound("there is no clone session %d", id)
		}
	default:
		return nil, invalid("a packet replication entry is a multicast group or a clone session, and this is neither")
	}
	return out, nil
}
