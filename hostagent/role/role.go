// SPDX-License-Identifier: Apache-2.0

// Package role defines the roles that a host agent runs: a role measures the packets of one host
// and reports each epoch. A third party builds an agent with a role of its own by implementing
// Role.
package role

import (
	"net/netip"
	"time"

	"github.com/netsketch/netsketch/hostagent/lease"
	"github.com/netsketch/netsketch/hostagent/packet"
)

// Role is one algorithm at one host. Its methods are called by one goroutine at a time; only the
// reports that Seal returns are used by others.
type Role interface {
	// Name is the name under which plugins send settings and receive reports.
	Name() string
	// Apply applies settings in the format that the role defines. After an error the previous
	// settings stay in force.
	Apply(settings []byte) error
	// Out receives packets that the host sends, in their order, and may change them.
	Out(frames []*packet.Frame)
	// In receives packets that arrived at the host, in their order, and may change them.
	In(frames []*packet.Frame)
	// Seal ends an epoch that is over and returns its report. It returns nil if the role has no data
	// of the epoch, because the epoch was sealed before or is too old. It does not wait.
	Seal(epoch uint64) Report
}

// Observer is implemented by roles that never change or drop a packet. A scenario passes packets to
// an observer of another process many at once; it waits for each packet of another role.
type Observer interface {
	// Observes is never called.
	Observes()
}

// Parallel is implemented by roles that measure packets that arrive in several goroutines.
type Parallel interface {
	// NewLane returns a lane. It is called as the methods of Role are.
	NewLane() Lane
}

// Lane receives a part of the arriving packets of a host: all packets of a flow or none. It is used
// by one goroutine at a time, at the same time as other lanes and the methods of its role.
type Lane interface {
	// In receives packets that arrived at the host, in their order, and may change them.
	In(frames []*packet.Frame)
}

// Streamer is implemented by roles that also report results before their epoch ends.
type Streamer interface {
	// Part returns results of the current epoch that no earlier part has, at most one message, or nil
	// if there are none. With full it returns only a full message. The report that Seal returns has
	// the rest. Part does not wait.
	Part(full bool) (epoch uint64, part Report)
	// OnFull calls f each time when a message becomes full. f does not block.
	OnFull(f func())
}

// Leaser is implemented by roles that may tag packets only to addresses with a lease.
type Leaser interface {
	// NeedLeases makes the role tag packets only to addresses with a lease. mtu is the length in bytes
	// of the longest IP packet that the interface sends. link returns the link layer, up to the
	// EtherType, of frames to an address; nil: the role learns it from packets. It is called before
	// any other method.
	NeedLeases(mtu int, link func(to netip.Addr) []byte)
	// Peering returns the peers for which the settings in force need leases; ok is false without
	// settings, or if the role needs no leases.
	Peering() (p lease.Peering, ok bool)
	// Now is the clock of Lease.Until.
	Now() time.Duration
	// SetLeases replaces all leases.
	SetLeases([]lease.Lease)
	// Wanted returns the peers to which packets were sent since the last call.
	Wanted() []lease.Peer
	// Probe returns the frame of a probe or reply, or nil if the role does not know its link layer.
	Probe(lease.Probe) []byte
	// TakeProbes returns the probes and replies that In has dropped since the last call.
	TakeProbes() []lease.Received
}

// Hider is implemented by roles that may hide the flows of packets from the other roles of the
// host, by a header that other roles do not read.
type Hider interface {
	// Hides reports whether the settings in force hide flows.
	Hides() bool
}

// Blindable is implemented by roles that count packets by flow and report whether flows were hidden
// from them.
type Blindable interface {
	// SetHidden states whether another role of the host hides the flows of packets from now on. No
	// other method of the role runs at the same time.
	SetHidden(hidden bool)
}

// Receiver is implemented by roles that measure telemetry reports of switches, too.
type Receiver interface {
	// Receive receives datagrams in the order of each sender. They are valid until it returns.
	Receive(datagrams []Datagram)
}

// Datagram is the payload of a UDP packet with telemetry reports.
type Datagram struct {
	From    netip.Addr
	Payload []byte
}

// Report has the results of a role in one epoch. It may be used concurrently with the role, by one
// goroutine at a time.
type Report interface {
	// Append appends the report in the format that the role defines.
	Append(b []byte) []byte
	// Release ends the use of the report and gives its memory back to the role.
	Release()
}
