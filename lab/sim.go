// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/sketch/flow"
)

// event is a frame that arrives somewhere at a moment of the lab's time, or packets that leave the
// queues of a switch.
type event struct {
	at   time.Duration
	seq  uint64 // order of events at one moment
	to   endpoint
	load *load // nil for departures from the queues of the switch, and for calls
	call func()
}

// load is a frame on its way and the state of its packet.
type load struct {
	frame []byte
	passage
}

// passage is a packet's way through the network so far.
type passage struct {
	entry  truth.Entry
	doomed uint8 // number of the link between switches on which it is lost; 0 for none
	links  uint8 // number of links that the frame has taken
	hops   uint8 // number of switches that the frame has entered

	journaled bool // the packet has a header with this epoch and this flow
	epoch     uint16
	key       flow.Key
	bytes     int // bytes of the IP packet

	sent []byte // frame that the host's application sent

	probe bool // the packet is a probe of a host's agent: counts and ground truth of hosts leave it out

	tracked bool           // the packet's stays are ground truth, and key is its flow
	entered time.Duration  // time at which the frame entered its switch
	segment *truth.Segment // segment of that switch
	stays   []truth.Stay   // stays at earlier switches
}

// endpoint is a port of a switch, or a host.
type endpoint struct {
	host bool
	node int // index into the fabric's switches or hosts
	port uint32
}

// eventQueue is a binary heap, the earliest event first.
type eventQueue []event

func (q eventQueue) before(i, j int) bool {
	if q[i].at != q[j].at {
		return q[i].at < q[j].at
	}
	return q[i].seq < q[j].seq
}

func (q *eventQueue) push(ev event) {
	*q = append(*q, ev)
	h := *q
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.before(i, parent) {
			return
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func (q *eventQueue) pop() event {
	h := *q
	first, last := h[0], len(h)-1
	h[0] = h[last]
	h[last] = event{}
	h = h[:last]
	*q = h
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if h.before(child, least) {
				least = child
			}
		}
		if least == i {
			return first
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// wire is one direction of a link, or of a host's attachment.
type wire struct {
	link  string // name of the link in the journal
	to    endpoint
	inner bool // whether the wire is between switches

	mu      sync.Mutex
	latency time.Duration
	down    bool
	held    time.Duration // time until which packets wait on the wire
	chance  chance
	lost    uint64
}

// chance loses packets of a wire or a switch. Its owner locks it.
type chance struct {
	loss, flows float64 // shares, as in Loss
	salt        uint64  // salt of the choice of flows
	rng         *rand.Rand
	probes      *rand.Rand // random numbers for probes, so that traffic has the same losses with and without probes
}

// newChance returns the chance of a named element, without losses.
func newChance(seed uint64, name string) chance {
	h := fnv.New64a()
	h.Write([]byte(name))
	return chance{rng: rand.New(rand.NewPCG(seed, h.Sum64())), probes: rand.New(rand.NewPCG(seed, h.Sum64()+1)),
		salt: rand.New(rand.NewPCG(h.Sum64(), seed)).Uint64()}
}

// carry returns the delay of a frame that is sent now; ok is false if it is lost.
func (w *wire) carry(p *passage, now time.Duration) (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inner {
		p.links++
	}
	if w.down || w.inner && p.links == p.doomed || w.chance.loses(p) {
		if !p.probe {
			w.lost++
		}
		return 0, false
	}
	return max(w.latency, w.held-now), true
}

// loses draws whether the packet is lost.
func (c *chance) loses(p *passage) bool {
	if c.loss <= 0 || c.flows > 0 && c.flows < 1 && !c.picks(p) {
		return false
	}
	if p.probe {
		return c.probes.Float64() < c.loss
	}
	return c.rng.Float64() < c.loss
}

// picks reports whether a gray failure affects the packet's flow.
func (c *chance) picks(p *passage) bool {
	if !p.entry.Known() {
		return false
	}
	var b [flow.MaxBinary]byte
	h := fnv.New64a()
	h.Write(p.entry.Key.AppendBinary(b[:0]))
	// FNV's upper bits hardly depend on the last bytes: mix them (the finalizer of SplitMix64).
	x := h.Sum64() ^ c.salt
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11)/(1<<53) < c.flows
}

// schedule queues a copy of frame for arrival at to.
func (n *Network) schedule(at time.Duration, to endpoint, frame []byte, p *passage) {
	l := n.loads.Get().(*load)
	l.frame, l.passage = append(l.frame[:0], frame...), *p
	n.enqueue(event{at: at, to: to, load: l})
}

// Transmit makes host i send a probe of its agent now. Stats and ground truth leave it out, except
// the ground truth of switches that count the probe like any other packet.
func (n *Network) Transmit(i int, frame []byte) {
	h, p, now := &n.hosts[i], passage{probe: true}, n.clock.Now()
	if latency, ok := h.up.carry(&p, now); ok {
		n.schedule(now+latency, h.up.to, frame, &p)
	}
}

// After makes Play call f after d of the lab's time. stop prevents the call.
func (n *Network) After(d time.Duration, f func()) (stop func() bool) {
	var done atomic.Bool
	n.enqueue(event{at: n.clock.Now() + d, call: func() {
		if !done.Swap(true) {
			f()
		}
	}})
	return func() bool { return !done.Swap(true) }
}

func (n *Network) enqueue(ev event) {
	n.queueMu.Lock()
	n.seq++
	ev.seq = n.seq
	n.queue.push(ev)
	n.queueMu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// next returns the time of the earliest event, and false without events.
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
	return n.queue.pop()
}

// Play sends the packets of src and carries them through the network until the lab's
// time is until. Packets still on the way then are carried on by the next Play. A
// source that ends early leaves the network quiet; its error ends Play.
//
// On the wall clock Play keeps pace with the clock; when the machine cannot, packets are late, and
// Stats.Lag is the delay. On a virtual or paced clock Play moves the time. Play must not run twice
// at once.
func (n *Network) Play(ctx context.Context, src traffic.Source, until time.Duration) error {
	pkt, more, err := n.pull(src)
	if err != nil {
		return err
	}
	for {
		due, pending := n.next()
		at := due
		fromSource := more && (!pending || pkt.At <= due)
		if fromSource {
			at = pkt.At
		}
		if !fromSource && !pending || at >= until {
			at = until
		}
		if reached, err := n.clock.wait(ctx, at, n.wake); err != nil {
			return fmt.Errorf("lab: %w", err)
		} else if !reached {
			continue // an earlier event has been queued
		}
		if at == until {
			n.held, n.heldMore = pkt, more
			return nil
		}
		if !fromSource {
			n.deliver(n.pop())
			continue
		}
		host := &n.hosts[pkt.Host]
		p := passage{doomed: pkt.Doomed}
		frame := n.send(host, pkt.Frame, &p)
		if latency, ok := host.up.carry(&p, at); !ok {
			n.lose(&p, host.up.link)
		} else {
			if latency > 0 || pending && at == due {
				n.schedule(at+latency, host.up.to, frame, &p)
			} else { // no other event comes first
				n.direct.frame, n.direct.passage = append(n.direct.frame[:0], frame...), p
				n.nodes[host.up.to.node].receive(host.up.to.port, &n.direct, at)
			}
		}
		if pkt, more, err = n.pull(src); err != nil {
			return err
		}
	}
}

// pull takes the next packet: the packet that an earlier Play held back, or the source's next one.
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
		return traffic.Packet{}, false, fmt.Errorf("lab: a packet comes from host %d; there are %d", pkt.Host,
			len(n.hosts))
	}
	return pkt, true, nil
}

// deliver hands the frame of an event to where it arrives.
func (n *Network) deliver(ev event) {
	if ev.call != nil {
		ev.call()
		return
	}
	if ev.load == nil {
		n.nodes[ev.to.node].serve(ev.at)
		return
	}
	if ev.to.host {
		n.arrive(&n.hosts[ev.to.node], ev.load.frame, &ev.load.passage)
	} else {
		n.nodes[ev.to.node].receive(ev.to.port, ev.load, ev.at)
	}
	n.loads.Put(ev.load)
}
