// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"errors"
	"fmt"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// CloneSessions is the Table of an [Entry] that is a clone session, which says where copies of
// packets go (P4Runtime 1.4, section 9.5). Sessions belong to the switch, so the program has no
// such table. The key is the field "session", 1 to 32,767; the action is "clone" with the
// parameter "port".
const CloneSessions = "clone-sessions"

const (
	maxSession = 1<<15 - 1
	portWidth  = 32 // bits
)

// cloneSession returns an entry of CloneSessions as a P4Runtime message; with keyOnly, without the
// action.
func (e Entry) cloneSession(keyOnly bool) (*p4v1.Entity, error) {
	id, err := e.sessionID()
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", CloneSessions, err)
	}
	out := &p4v1.CloneSessionEntry{SessionId: id}
	if !keyOnly {
		port, err := e.clonePort()
		if err != nil {
			return nil, fmt.Errorf("table %s: session %d: %w", CloneSessions, id, err)
		}
		// This form of the port is deprecated, but all switches accept it.
		out.Replicas = []*p4v1.Replica{{PortKind: &p4v1.Replica_EgressPort{EgressPort: port}, Instance: 1}}
	}
	return sessionEntity(out), nil
}

func (e Entry) sessionID() (uint32, error) {
	if e.Default || e.Priority != 0 || len(e.Match) != 1 || e.Match[0].Field != "session" {
		return 0, errors.New(`the key is one exact field "session", without a priority`)
	}
	id, err := p4values.Uint64(e.Match[0].Value)
	if err != nil || id == 0 || id > maxSession {
		return 0, fmt.Errorf("session %#x: expected 1 to %d", e.Match[0].Value, maxSession)
	}
	return uint32(id), nil
}

func (e Entry) clonePort() (uint32, error) {
	if e.Action != "clone" || len(e.Params) != 1 || e.Params[0].Name != "port" {
		return 0, fmt.Errorf(`action %q: expected "clone" with the parameter "port"`, e.Action)
	}
	port, err := p4values.Encode(e.Params[0].Value, portWidth)
	if err != nil {
		return 0, fmt.Errorf("port: %w", err)
	}
	n, err := p4values.Uint64(port)
	return uint32(n), err
}

func sessionEntity(e *p4v1.CloneSessionEntry) *p4v1.Entity {
	return &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{
		PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
			Type: &p4v1.PacketReplicationEngineEntry_CloneSessionEntry{CloneSessionEntry: e}}}}
}

// sessionKey returns a text that identifies a clone session on a switch.
func sessionKey(e *p4v1.CloneSessionEntry) string {
	return fmt.Sprintf("%s %d", CloneSessions, e.GetSessionId())
}

// sessionForm returns a text that is equal for equal clone sessions.
func sessionForm(e *p4v1.CloneSessionEntry) string {
	e = proto.Clone(e).(*p4v1.CloneSessionEntry)
	for _, r := range e.GetReplicas() {
		if n, err := p4values.Uint64(r.GetPort()); err == nil && len(r.GetPort()) > 0 {
			r.PortKind = &p4v1.Replica_EgressPort{EgressPort: uint32(n)}
		}
	}
	return marshal(e)
}

func describeSession(e *p4v1.CloneSessionEntry) string {
	return fmt.Sprintf("clone session %d to %d ports", e.GetSessionId(), len(e.GetReplicas()))
}
