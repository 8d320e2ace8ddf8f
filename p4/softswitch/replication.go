// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"fmt"
	"maps"
	"slices"

	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/ports"
)

const (
	maxMulticastID = 1<<16 - 1
	maxSessionID   = 1<<15 - 1
	maxReplicas    = 1 << 12
)

func checkReplicas(object string, r []Replica) error {
	if len(r) > maxReplicas {
		return control.Errorf(ErrInvalid, object, "%d replicas; at most %d", len(r), maxReplicas)
	}
	type place struct {
		port     uint32
		instance uint16
	}
	seen := map[place]bool{}
	check := func(x Replica) error {
		if x.Port >= ports.Max {
			return control.Errorf(ErrInvalid, object, "port %d; ports are below %d", x.Port, ports.Max)
		}
		if seen[place{x.Port, x.Instance}] {
			return control.Errorf(ErrInvalid, object, "port %d with instance %d is given twice", x.Port, x.Instance)
		}
		seen[place{x.Port, x.Instance}] = true
		return nil
	}
	for _, x := range r {
		if err := check(x); err != nil {
			return err
		}
		if len(x.Backups) > maxReplicas {
			return control.Errorf(ErrInvalid, object, "%d backups of one replica; at most %d", len(x.Backups),
				maxReplicas)
		}
		for _, b := range x.Backups {
			if err := check(b); err != nil {
				return err
			}
			if b.Port == x.Port || len(b.Backups) > 0 {
				return control.Errorf(ErrInvalid, object, "a backup of port %d has the same port, or backups itself",
					x.Port)
			}
		}
	}
	return nil
}

// cloneReplicas copies replicas with their backups.
func cloneReplicas(r []Replica) []Replica {
	out := slices.Clone(r)
	for i := range out {
		out[i].Backups = slices.Clone(out[i].Backups)
	}
	return out
}

// setMulticast inserts or, with replace, replaces a group.
func (s *Switch) setMulticast(g MulticastGroup, replace bool) error {
	object := fmt.Sprintf("multicast group %d", g.ID)
	return s.with(object, func(st *loaded) error {
		if g.ID == 0 || g.ID > maxMulticastID {
			return control.Errorf(ErrInvalid, object, "ids are 1 to %d", maxMulticastID)
		}
		if err := checkReplicas(object, g.Replicas); err != nil {
			return err
		}
		if old := st.mcast[g.ID]; (old != nil) != replace {
			if replace {
				return control.Errorf(ErrNotFound, object, "")
			}
			return control.Errorf(ErrExists, object, "")
		}
		st.mcast[g.ID] = &MulticastGroup{ID: g.ID, Replicas: cloneReplicas(g.Replicas),
			Metadata: slices.Clone(g.Metadata)}
		return nil
	})
}

// InsertMulticastGroup adds a multicast group.
func (s *Switch) InsertMulticastGroup(g MulticastGroup) error { return s.setMulticast(g, false) }

// ModifyMulticastGroup replaces a multicast group's replicas.
func (s *Switch) ModifyMulticastGroup(g MulticastGroup) error { return s.setMulticast(g, true) }

// DeleteMulticastGroup removes a multicast group.
func (s *Switch) DeleteMulticastGroup(id uint32) error {
	object := fmt.Sprintf("multicast group %d", id)
	return s.with(object, func(st *loaded) error {
		if st.mcast[id] == nil {
			return control.Errorf(ErrNotFound, object, "")
		}
		delete(st.mcast, id)
		return nil
	})
}

// ReadMulticastGroups returns all multicast groups by id.
func (s *Switch) ReadMulticastGroups() (out []MulticastGroup) {
	_ = s.with("multicast groups", func(st *loaded) error {
		for _, id := range slices.Sorted(maps.Keys(st.mcast)) {
			g := *st.mcast[id]
			g.Replicas, g.Metadata = cloneReplicas(g.Replicas), slices.Clone(g.Metadata)
			out = append(out, g)
		}
		return nil
	})
	return out
}

func (s *Switch) setClone(c CloneSession, replace bool) error {
	object := fmt.Sprintf("clone session %d", c.ID)
	return s.with(object, func(st *loaded) error {
		if c.ID > maxSessionID || c.PacketLength < 0 {
			return control.Errorf(ErrInvalid, object, "ids are 0 to %d, and the packet length is not negative",
				maxSessionID)
		}
		if err := checkReplicas(object, c.Replicas); err != nil {
			return err
		}
		if old := st.clones[c.ID]; (old != nil) != replace {
			if replace {
				return control.Errorf(ErrNotFound, object, "")
			}
			return control.Errorf(ErrExists, object, "")
		}
		c.Replicas = cloneReplicas(c.Replicas)
		st.clones[c.ID] = &c
		return nil
	})
}

// InsertCloneSession adds a clone session.
func (s *Switch) InsertCloneSession(c CloneSession) error { return s.setClone(c, false) }

// ModifyCloneSession replaces a clone session.
func (s *Switch) ModifyCloneSession(c CloneSession) error { return s.setClone(c, true) }

// DeleteCloneSession removes a clone session.
func (s *Switch) DeleteCloneSession(id uint32) error {
	object := fmt.Sprintf("clone session %d", id)
	return s.with(object, func(st *loaded) error {
		if st.clones[id] == nil {
			return control.Errorf(ErrNotFound, object, "")
		}
		delete(st.clones, id)
		return nil
	})
}

// ReadCloneSessions returns all clone sessions by id.
func (s *Switch) ReadCloneSessions() (out []CloneSession) {
	_ = s.with("clone sessions", func(st *loaded) error {
		for _, id := range slices.Sorted(maps.Keys(st.clones)) {
			c := *st.clones[id]
			c.Replicas = cloneReplicas(c.Replicas)
			out = append(out, c)
		}
		return nil
	})
	return out
}
