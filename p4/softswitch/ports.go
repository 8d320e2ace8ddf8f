// SPDX-License-Identifier: Apache-2.0

package softswitch

import "time"

// Port is how AddPort wants a port to be.
type Port struct {
	Name  string
	Speed uint64 // bits a second, for reports only
	// Tx takes a packet that leaves here. The slice is the switch's own and is overwritten after Tx returns: copy what is
	// kept. It is called in the goroutine of the packet, at the time the packet leaves. A nil Tx discards without error.
	Tx func(pkt []byte, at time.Duration)
	// QueueDepth bounds the egress queue in packets; 0 is no bound. A packet that finds the queue full is discarded and counted.
	QueueDepth int
	// QueueRate serves the queue at so many packets a second; 0 sends at once. Packets then leave, and Tx is told, at the time
	// the queue would have sent them.
	QueueRate uint64
	// Down adds the port in the down state.
	Down bool
}

// PortCounters count since the port was added.
type PortCounters struct {
	InPackets, InOctets, InErrors, InDiscards     uint64
	OutPackets, OutOctets, OutErrors, OutDiscards uint64
}

// PortStatus is a port's state at one moment.
type PortStatus struct {
	ID         uint32
	Name       string
	Speed      uint64
	Up         bool
	LastChange time.Duration // on the switch's clock
	Counters   PortCounters
	Removed    bool // only in calls of a watch function
}
