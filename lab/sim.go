// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/netsketch/netsketch/lab/traffic"
)

// event is a frame that arrives somewhere at a moment of the lab's time.
type event struct {
	at    time.Duration
	seq   uint64 // order of events at one moment
	to    endpoint
	frame *[]byte
}

// endpoint is a port of a switch, or a host.
type endpoint struct {
	host bool
	node int // index into the fabric's switches or hosts
	port uint32
}

type eventQueue []event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	if q[i].at != q[j].at {
		return q[i].at < q[j].at
	}
	return q[i].seq < q[j].seq
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *eventQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return x
}

// wire is one direction of a link, or of a host's attachment.
type wire struct {
	name string
	to   endpoint

	mu      sync.Mutex
	latency time.Duration
	loss    float64
	down    bool
	rng     *rand.Rand
	sent    uint64
	lost    uint64
}

// carry says whether the next frame arrives, and after which time.
func (w *wire) carry() (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent++
	if w.down || w.loss > 0 && w.rng.Float64() < w.loss {
		w.lost++
		return 0, false
	}
	return w.latency, true
}

// schedule queues a copy of frame for arrival at to.
func (n *Network) schedule(at time.Duration, to endpoint, frame []byte) {
	buf := n.frames.Get().(*[]byte)
	*buf = append((*buf)[:0], frame...)
	n.queueMu.Lock()
	n.seq++
	heap.Push(&n.queue, event{at, n.seq, to, buf})
	n.queueMu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// next returns the time of the earliest event, and false when there is none.
func (n *Network) next() (time.Duration, bool) {
	n.queueMu.Lock()
	defer n.queueMu.Unlock()
	if len(n.queue) == 0 {
		return 0, false
	}
	return n.queue[0].at, true
}

func (n *Network) pop() event {
	n.queueMu.Lock()
	defer n.queueMu.Unlock()
	return heap.Pop(&n.queue).(event)
}

// Play sends the packets of src and carries them through the network until the lab's
// time is until. Packets still on the way then are carried on by the next Play. A
// source that ends early leaves the network quiet; its error ends Play.
//
// On the wall clock Play keeps pace with it; when the machine cannot, packets are
// late and Stats.Lag tells by how much. On a virtual clock Play is what moves time.
// Play must not run twice at once.
func (n *Network) Play(ctx context.Context, src traffic.Source, until time.Duration) error {
	pkt, more, err := n.pull(src)
	if err != nil {
		return err
	}
	for {
		at, pending := n.next()
		fromSource := more && (!pending || pkt.At <= at)
		if fromSource {
			at = pkt.At
		}
		if !fromSource && !pending || at >= until {
			at = until
		}
		if reached, err := n.clock.wait(ctx, at, n.wake); err != nil {
			return fmt.Errorf("lab: %w", err)
		} else if !reached {
			continue // something earlier has been queued
		}
		if at == until {
			n.held, n.heldMore = pkt, more
			return nil
		}
		n.lag.Store(int64(n.clock.Now() - at))
		if !fromSource {
			n.deliver(n.pop())
			continue
		}
		host := &n.hosts[pkt.Host]
		if latency, ok := host.up.carry(); ok {
			host.sent.Add(1)
			n.schedule(at+latency, host.up.to, pkt.Frame)
		}
		if pkt, more, err = n.pull(src); err != nil {
			return err
		}
	}
}

// pull takes the next packet: the one that an earlier Play held back, or the source's.
func (n *Network) pull(src traffic.Source) (traffic.Packet, bool, error) {
	if n.heldMore && n.heldFrom == src {
		n.heldMore = false
		return n.held, true, nil
	}
	n.heldFrom, n.heldMore = src, false
	pkt, err := src.Next()
	if errors.Is(err, io.EOF) {
		return traffic.Packet{}, false, nil
	}
	if err != nil {
		return traffic.Packet{}, false, fmt.Errorf("lab: %w", err)
	}
	if pkt.Host < 0 || pkt.Host >= len(n.hosts) {
		return traffic.Packet{}, false, fmt.Errorf("lab: a packet comes from host %d; there are %d", pkt.Host, len(n.hosts))
	}
	return pkt, true, nil
}

// deliver hands the frame of an event to where it arrives.
func (n *Network) deliver(ev event) {
	if ev.to.host {
		n.hosts[ev.to.node].received.Add(1)
	} else {
		n.nodes[ev.to.node].receive(ev.to.port, *ev.frame, ev.at)
	}
	n.frames.Put(ev.frame)
}
