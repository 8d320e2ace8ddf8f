// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"time"

	"github.com/netsketch/netsketch/p4/softswitch"
)

// Queue is the queue of every port of the soft switches. BMv2 switches keep their own.
type Queue struct {
	// Rate is the packets a second that leave a port; 0 means no queues: packets leave at once.
	Rate uint64
	// Depth bounds the packets that wait at a port; 0 means 64. Further packets are dropped and
	// counted.
	Depth int
}

// defaultDepth is the default depth of soft switches' queues.
const defaultDepth = 64

// depth returns the most packets that wait at a port; 0 without queues.
func (q Queue) depth() int {
	switch {
	case q.Rate == 0:
		return 0
	case q.Depth == 0:
		return defaultDepth
	}
	return q.Depth
}

// line has the packets that wait at one port, in the order in which they leave. It mirrors the
// port's queue in the switch, which has the frames.
type line struct {
	packets []waiting
	head    int
}

// waiting is a packet in a queue.
type waiting struct {
	passage
	traffic bool // whether the packet is traffic, not a controller's
}

func (l *line) len() int { return len(l.packets) - l.head }

func (l *line) push(w waiting) {
	if l.head > 0 && len(l.packets) == cap(l.packets) {
		n := copy(l.packets, l.packets[l.head:])
		clear(l.packets[n:])
		l.packets, l.head = l.packets[:n], 0
	}
	l.packets = append(l.packets, w)
}

func (l *line) pop() waiting {
	w := l.packets[l.head]
	l.packets[l.head] = waiting{}
	if l.head++; l.head == len(l.packets) {
		l.packets, l.head = l.packets[:0], 0
	}
	return w
}

// wait notes that a packet is about to join the queue of a port, which drops it if the queue is
// full. For a packet of the traffic nd.mu is held.
func (nd *node) wait(port uint32, traffic bool) {
	nd.lineMu.Lock()
	defer nd.lineMu.Unlock()
	l := nd.lines[port]
	if l == nil || l.len() >= nd.depth {
		return
	}
	w := waiting{traffic: traffic}
	if traffic {
		w.passage = *nd.inside.Load()
		nd.joined++
	}
	l.push(w)
}

// depart is called when a packet leaves the queue of a port. nd.mu is held.
func (nd *node) depart(port uint32) {
	nd.settle()
	nd.lineMu.Lock()
	w := nd.lines[port].pop()
	nd.lineMu.Unlock()
	if w.traffic {
		nd.leaving = w.passage
		nd.toward, nd.faulty = port, false
		nd.inside.Store(&nd.leaving)
	}
}

// gone is a packet that a switch has dropped.
type gone struct {
	passage
	toward uint32 // port to which the packet was sent; 0: none
	faulty bool   // whether a fault of the switch lost the packet
}

// settle ends the work on the packet inside, after it and all its copies have left, were queued or
// were dropped. nd.mu is held.
func (nd *node) settle() {
	p := nd.inside.Swap(nil)
	if p == nil {
		return
	}
	left := nd.left.Swap(0) + nd.joined
	nd.joined = 0
	if left > 0 {
		if !p.probe {
			nd.copied += left - 1
		}
		return
	}
	nd.gone = append(nd.gone, gone{*p, nd.toward, nd.faulty})
}

// account counts the dropped packets by the reasons that the switch has counted since before.
// arrival is the port at which they arrived if it is down, otherwise 0. nd.mu is held.
func (nd *node) account(before *dropCounts, arrival uint32) {
	nd.settle()
	if len(nd.gone) == 0 {
		return
	}
	after := nd.sw.drops()
	for i := range nd.gone {
		g := &nd.gone[i]
		element, reason := nd.spec.Name, dropFault
		if !g.faulty {
			reason = after.reason(before)
		}
		switch w := nd.out[g.toward]; {
		case nd.stopped.Load():
		case arrival != 0:
			element, reason = nd.in[arrival], dropNames[dropPort] // the link failed while the packet was on it
		case reason == dropNames[dropPort] && w != nil:
			element = w.link // the switch sent the packet into a link that is down
		}
		if !g.probe {
			nd.dropped[reason]++
		}
		nd.net.lose(&g.passage, element)
	}
	nd.gone = nd.gone[:0]
}

// advance sends the packets that leave queues until a time. nd.mu is held.
func (nd *node) advance(at time.Duration) {
	if nd.lines == nil {
		return
	}
	before := nd.sw.drops()
	nd.sw.(*soft).sw.Advance(at)
	nd.account(&before, 0)
}

// plan queues the event of the next departure. nd.mu is held.
func (nd *node) plan() {
	if nd.lines == nil {
		return
	}
	if at, ok := nd.sw.(*soft).sw.NextDeparture(); ok && (nd.planned == 0 || at < nd.planned) {
		nd.planned = at
		nd.net.enqueue(event{at: at, to: endpoint{node: nd.index}})
	}
}

// serve is the event of a departure.
func (nd *node) serve(at time.Duration) {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	if nd.planned == at {
		nd.planned = 0
	}
	nd.advance(at)
	nd.plan()
}

// flush counts the packets in queues as lost: the switch drops them with its old pipeline. nd.mu is
// held.
func (nd *node) flush() {
	nd.lineMu.Lock()
	defer nd.lineMu.Unlock()
	for _, l := range nd.lines {
		for l.len() > 0 {
			if w := l.pop(); w.traffic && !w.probe {
				nd.dropped[dropNames[dropNoProgram]]++
				nd.net.lose(&w.passage, nd.spec.Name)
			}
		}
	}
}

// waitingPackets calls f for each packet in the switch's queues.
func (nd *node) waitingPackets(f func(*passage)) {
	nd.lineMu.Lock()
	defer nd.lineMu.Unlock()
	for _, l := range nd.lines {
		for i := range l.packets[l.head:] {
			if w := &l.packets[l.head+i]; w.traffic && !w.probe {
				f(&w.passage)
			}
		}
	}
}

// port returns the configuration of a port.
func (q Queue) port(name string, tx func([]byte, time.Duration)) softswitch.Port {
	return softswitch.Port{Name: name, Speed: linkSpeed, QueueRate: q.Rate, QueueDepth: q.depth(), Tx: tx}
}
