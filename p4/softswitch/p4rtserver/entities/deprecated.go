// SPDX-License-Identifier: Apache-2.0

//nolint:staticcheck // fields that P4Runtime deprecated and that a server must still accept
package entities

import p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

// cookieOf returns an entry's controller_metadata, superseded by metadata in 1.3.
func cookieOf(e *p4v1.TableEntry) uint64 { return e.GetControllerMetadata() }

func setCookie(e *p4v1.TableEntry, v uint64) { e.ControllerMetadata = v }

// numberedPort returns a replica's port as a number, superseded by a byte string in 1.4.
func numberedPort(r *p4v1.Replica) (uint64, bool) {
	k, ok := r.GetPortKind().(*p4v1.Replica_EgressPort)
	if !ok {
		return 0, false
	}
	return uint64(k.EgressPort), true
}

// watchedPort and watchedPortOf return a watch port as a number, superseded by a byte string.
func watchedPort(m *p4v1.ActionProfileGroup_Member) (uint64, bool) {
	k, ok := m.GetWatchKind().(*p4v1.ActionProfileGroup_Member_Watch)
	if !ok {
		return 0, false
	}
	return uint64(uint32(k.Watch)), true
}

func watchedPortOf(a *p4v1.ActionProfileAction) (uint64, bool) {
	k, ok := a.GetWatchKind().(*p4v1.ActionProfileAction_Watch)
	if !ok {
		return 0, false
	}
	return uint64(uint32(k.Watch)), true
}
