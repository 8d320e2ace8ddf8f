// SPDX-License-Identifier: Apache-2.0

package p4rtserver

import (
	"cmp"
	"sync"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// election is a 128-bit election id; nil is an unset id, which is below all others.
type election struct{ high, low uint64 }

func electionOf(u *p4v1.Uint128) *election {
	if u == nil {
		return nil
	}
	return &election{u.GetHigh(), u.GetLow()}
}

func (e *election) compare(o *election) int {
	switch {
	case e == nil && o == nil:
		return 0
	case e == nil:
		return -1
	case o == nil:
		return 1
	}
	if c := cmp.Compare(e.high, o.high); c != 0 {
		return c
	}
	return cmp.Compare(e.low, o.low)
}

// role is the arbitration of one role. Its fields are guarded by Server.arb.
type role struct {
	name    string
	turn    sync.Mutex // held during a change of primary, including its waits; taken before arb
	streams map[*stream]bool
	primary *stream
	highest *election      // the highest election id so far; nil: there was no primary yet
	config  *p4v1.Role     // role configuration of the last primary
	writes  sync.WaitGroup // writes in progress; increases only while arb is held and primary is set
}

// arbitrate handles a MasterArbitrationUpdate. An error ends the stream.
func (s *Server) arbitrate(st *stream, m *p4v1.MasterArbitrationUpdate) error {
	if st.role == nil {
		if err := s.checkDevice(m.GetDeviceId()); err != nil {
			return err
		}
	} else if own := s.deviceID.Load(); m.GetDeviceId() != own {
		return status.Errorf(codes.FailedPrecondition, "this stream is of device %d; for device %d open another", own,
			m.GetDeviceId())
	}
	name := m.GetRole().GetName()
	if st.role != nil && st.role.name != name {
		return status.Errorf(codes.FailedPrecondition, "this stream is of role %q; for role %q open another",
			st.role.name, name)
	}
	if m.GetRole().GetConfig() != nil {
		return status.Errorf(codes.InvalidArgument,
			"role %q: no role configuration is agreed upon with this switch; leave it unset", name)
	}
	// Controllers of versions before 1.4.0 number their roles.
	if id := m.GetRole().GetId(); id != 0 && name == "" { //nolint:staticcheck // deprecated, and refused
		return status.Errorf(codes.InvalidArgument, "roles are named since P4Runtime 1.4.0; role id %d is not used", id)
	}
	r := s.roleNamed(name)
	r.turn.Lock()
	defer r.turn.Unlock()
	return s.elect(r, st, m)
}

func (s *Server) roleNamed(name string) *role {
	s.arb.Lock()
	defer s.arb.Unlock()
	r, ok := s.roles[name]
	if !ok {
		r = &role{name: name, streams: map[*stream]bool{}}
		s.roles[name] = r
	}
	return r
}

// elect applies the rules of section 5.3. The caller holds the role's turn.
func (s *Server) elect(r *role, st *stream, m *p4v1.MasterArbitrationUpdate) error {
	id := electionOf(m.GetElectionId())
	s.arb.Lock()
	if st.gone {
		s.arb.Unlock()
		return status.Error(codes.Canceled, "the stream has ended")
	}
	if id != nil {
		for other := range r.streams {
			if other != st && other.election != nil && other.election.compare(id) == 0 {
				s.arb.Unlock()
				return status.Errorf(codes.InvalidArgument,
					"election id {%d, %d} is in use by another controller of role %q", id.high, id.low, r.name)
			}
		}
	}
	was := r.primary == st
	st.role, st.election = r, id
	r.streams[st] = true
	if id == nil || r.highest != nil && id.compare(r.highest) < 0 {
		if was { // the primary stepped down
			r.primary = nil
		}
		if was {
			for other := range r.streams {
				other.notify(s.advisory(r, other))
			}
		} else {
			st.notify(s.advisory(r, st))
		}
		s.arb.Unlock()
		return nil
	}
	// A new or returning primary: the old one stops, the others are notified, its writes finish,
	// then the new one begins.
	r.primary, r.highest, r.config = nil, id, m.GetRole()
	for other := range r.streams {
		if other != st {
			other.notify(s.advisoryOf(r, codes.AlreadyExists))
		}
	}
	s.arb.Unlock()
	r.writes.Wait()
	s.arb.Lock()
	defer s.arb.Unlock()
	r.primary = st
	st.notify(s.advisoryOf(r, codes.OK))
	return nil
}

// leave removes an ended stream from the arbitration.
func (s *Server) leave(st *stream) {
	s.arb.Lock()
	s.open--
	st.gone = true
	r := st.role
	s.arb.Unlock()
	if r == nil {
		return
	}
	r.turn.Lock()
	defer r.turn.Unlock()
	s.arb.Lock()
	defer s.arb.Unlock()
	delete(r.streams, st)
	if r.primary != st {
		return
	}
	r.primary = nil
	for other := range r.streams {
		other.notify(s.advisory(r, other))
	}
}

// advisory sends a stream the result of the arbitration. The caller holds arb.
func (s *Server) advisory(r *role, to *stream) *p4v1.StreamMessageResponse {
	switch r.primary {
	case nil:
		return s.advisoryOf(r, codes.NotFound)
	case to:
		return s.advisoryOf(r, codes.OK)
	}
	return s.advisoryOf(r, codes.AlreadyExists)
}

func (s *Server) advisoryOf(r *role, code codes.Code) *p4v1.StreamMessageResponse {
	m := &p4v1.MasterArbitrationUpdate{DeviceId: s.deviceID.Load(),
		Status: &rpcstatus.Status{Code: int32(code), Message: advice[code]}}
	if r.name != "" {
		m.Role = &p4v1.Role{Name: r.name, Config: r.config.GetConfig()}
	}
	if r.highest != nil {
		m.ElectionId = &p4v1.Uint128{High: r.highest.high, Low: r.highest.low}
	}
	return &p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Arbitration{Arbitration: m}}
}

var advice = map[codes.Code]string{
	codes.OK:            "you are the primary",
	codes.AlreadyExists: "another controller is the primary",
	codes.NotFound:      "there is no primary",
}

// beginWrite checks, in the specification's order, the sender of a write, and counts the write as
// in progress until done is called.
func (s *Server) beginWrite(device uint64, roleName string, id *p4v1.Uint128) (done func(), err error) {
	if err := s.checkDevice(device); err != nil {
		return nil, err
	}
	s.arb.Lock()
	defer s.arb.Unlock()
	r, ok := s.roles[roleName]
	if !ok && roleName != "" {
		return nil, status.Errorf(codes.NotFound, "device %d has no role %q: no controller arbitrated for it", device,
			roleName)
	}
	e := electionOf(id)
	if !ok || r.primary == nil || e == nil || r.primary.election.compare(e) != 0 {
		return nil, status.Errorf(codes.PermissionDenied, "not the primary of role %q: %s", roleName, whoIs(r, e))
	}
	r.writes.Add(1)
	return r.writes.Done, nil
}

func whoIs(r *role, asked *election) string {
	switch {
	case asked == nil:
		return "the request has no election id"
	case r == nil || r.primary == nil:
		return "there is none"
	}
	return "the request's election id is not the primary's"
}

// primaries appends the primary streams of all roles to out.
func (s *Server) primaries(out []*stream) []*stream {
	s.arb.Lock()
	defer s.arb.Unlock()
	for _, r := range s.roles {
		if r.primary != nil {
			out = append(out, r.primary)
		}
	}
	return out
}

func (s *Server) isPrimary(st *stream) bool {
	s.arb.Lock()
	defer s.arb.Unlock()
	return st.role != nil && st.role.primary == st
}
