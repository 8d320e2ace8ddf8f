// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
)

// maxQueues bounds the queues of an interval.
const maxQueues = 1 << 14

// queueInstruction is the bit of queue metadata in the instructions.
const queueInstruction = 1 << (15 - inband.Queue)

// queue is a queue of a switch.
type queue struct {
	node uint32
	id   uint8
}

// measureQueues measures the queues of all hops of a packet, if its instructions request them.
func (g *group) measureQueues(p *inband.Packet) {
	if p.Hops() == 0 || p.Instructions&queueInstruction == 0 {
		return
	}
	var h inband.Hop
	for i := range p.Hops() {
		p.Hop(i, &h)
		g.measureQueue(h.NodeID, &h)
	}
}

// measureQueue measures the queue of one hop, if the switch has its metadata.
func (g *group) measureQueue(node uint32, h *inband.Hop) {
	if !h.Has.Contains(inband.Queue) {
		return
	}
	q := g.queue(queue{node, h.QueueID})
	if q == nil {
		g.Counters[wire.NodesFull]++
		return
	}
	q.Packets++
	q.Occupancy += uint64(h.QueueOccupancy)
	q.Worst = max(q.Worst, h.QueueOccupancy)
	if h.Has.Contains(inband.Latency) {
		q.Timed++
		q.Sum += uint64(h.Latency)
	}
}

// queue returns the counts of a queue, or nil without room.
func (g *group) queue(id queue) *wire.Queue {
	q := g.queues[id]
	if q == nil && len(g.queues) < maxQueues {
		q = &wire.Queue{Node: id.node, ID: id.id}
		g.queues[id] = q
	}
	return q
}

// mergeQueues adds the queues of another lane.
func (g *group) mergeQueues(o *group) {
	for id, from := range o.queues {
		to := g.queue(id)
		if to == nil {
			g.Counters[wire.NodesFull] += from.Packets
			continue
		}
		to.Packets, to.Timed, to.Sum = to.Packets+from.Packets, to.Timed+from.Timed, to.Sum+from.Sum
		to.Occupancy, to.Worst = to.Occupancy+from.Occupancy, max(to.Worst, from.Worst)
	}
}
