// SPDX-License-Identifier: Apache-2.0

package lab

import "time"

// Reasons for which a switch drops a packet, as Stats names them, in the order in which reason
// checks them. Drops of the pipeline come last, because a controller's packets can increase that
// counter, too.
const (
	dropNoProgram = iota
	dropTrap
	dropTooLong
	dropGroup
	dropQueue
	dropPort
	dropLoop
	dropEgress
	dropIngress
	dropReasons
)

// TooLong is the reason of packets that a switch drops for their length.
const TooLong = "longer than 256 KiB"

var dropNames = [dropReasons]string{
	"no pipeline", "taken by the switch itself (LLDP)", TooLong, "multicast group without ports",
	"egress queue full", "port missing or down", "too many copies or loops",
	"dropped by the egress pipeline", "dropped by the ingress pipeline",
}

// dropFault is the reason if SetLoss lost the packet.
const dropFault = "fault of the switch"

// dropUnknown is the reason if the switch counted none, as BMv2 does.
const dropUnknown = "reason not counted"

type dropCounts [dropReasons]uint64

// reason returns the name of a counter that is higher than in before, and increments that counter
// in before.
func (after *dropCounts) reason(before *dropCounts) string {
	for i := range after {
		if after[i] > before[i] {
			before[i]++
			return dropNames[i]
		}
	}
	return dropUnknown
}

// Stats are counts since the start, without probes of agents. Between two calls of Play, every
// packet is in one of these counts:
//
//	Sent + Copied + FromControllers = Received + Lost + all of Dropped + InTransit
type Stats struct {
	Sent            uint64            // packets that hosts sent
	Copied          uint64            // additional copies of packets, which switches made
	FromControllers uint64            // packets that controllers sent into the network, LLDP not counted
	Received        uint64            // packets that hosts received
	Lost            uint64            // packets lost on links
	Dropped         map[string]uint64 // packets that switches dropped, by reason
	InTransit       uint64            // packets on the way, or in queues
	Lag             time.Duration     // largest delay of an event on the wall clock or a paced one
}

// Stats returns the counts of the whole network.
func (n *Network) Stats() Stats {
	s := Stats{Dropped: map[string]uint64{}, Lag: n.clock.Lag()}
	for i := range n.hosts {
		s.Sent += n.hosts[i].sent.Load()
		s.Received += n.hosts[i].received.Load()
	}
	for _, nd := range n.nodes {
		nd.mu.Lock()
		for reason, count := range nd.dropped {
			s.Dropped[reason] += count
		}
		s.Copied += nd.copied
		nd.mu.Unlock()
		nd.waitingPackets(func(*passage) { s.InTransit++ })
		s.FromControllers += nd.fromControllers.Load()
		for _, w := range nd.out {
			s.Lost += w.losses()
		}
	}
	for i := range n.hosts {
		s.Lost += n.hosts[i].up.losses()
	}
	n.queueMu.Lock()
	for i := range n.queue {
		if l := n.queue[i].load; l != nil && !l.probe {
			s.InTransit++
		}
	}
	n.queueMu.Unlock()
	return s
}

func (w *wire) losses() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}
