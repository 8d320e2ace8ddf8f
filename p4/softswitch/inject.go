// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"time"
)

// maxPacket bounds a packet's length, also that of one that grows as it is sent round.
const maxPacket = 1 << 16

// maxCopies bounds what one packet can become: clones, replicas, loops.
const maxCopies = 1 << 14

// spend takes one copy from what the arriving packet may become; it counts the copy as dropped when there is none left.
func (l *lane) spend() bool {
	if l.budget == 0 {
		l.stats.LoopDrops++
		return false
	}
	l.budget--
	return true
}

// instance_type as simple_switch sets it.
const (
	instanceNormal = iota
	instanceIngressClone
	instanceEgressClone
	_
	instanceRecirculated
	instanceReplicated
	instanceResubmitted
)

// queued is a packet on its way to egress.
type queued struct {
	p        *packet
	port     uint32
	truncate int // 0: whole
	priority int
}

// txBuffer keeps what a packet became until the lane is free again.
type txBuffer struct {
	_       [64]byte
	lane    int // that ran the last packet: what it wrote is near this core
	bytes   []byte
	packets []txPacket
	digests []Digest
	_       [64]byte
}

type txPacket struct {
	port     uint32
	from, to int
	at       time.Duration
}

// Inject lets a packet arrive on a port at a time on the switch's clock. It returns when the packet and all copies of it have left
// or were dropped. pkt is not changed and not kept.
func (s *Switch) Inject(port uint32, pkt []byte, at time.Duration) {
	pt := s.port(port)
	if pt == nil {
		s.noPort.Add(1)
		return
	}
	if !pt.up.Load() {
		pt.counts[0].inDiscards.Add(1)
		return
	}
	if len(pkt) > maxPacket {
		pt.counts[0].inErrors.Add(1)
		return
	}
	out := s.outs.Get().(*txBuffer)
	pt.counts[out.lane].countIn(pkt)
	if !s.trapped(port, pkt, at) {
		s.enter(out, port, pkt, at)
	}
	s.outs.Put(out)
}

// PacketOut lets a packet arrive on the CPU port now. pkt begins with the bytes of the packet_out header.
func (s *Switch) PacketOut(pkt []byte) error { return s.PacketOutAt(pkt, s.clock()) }

// PacketOutAt is PacketOut at a time on the switch's clock.
func (s *Switch) PacketOutAt(pkt []byte, at time.Duration) error {
	switch {
	case s.closed.Load():
		return fail(ErrClosed, "packet-out", "the switch was closed")
	case len(pkt) > maxPacket:
		return fail(ErrInvalid, "packet-out", "%d bytes; at most %d", len(pkt), maxPacket)
	}
	s.packetOuts.Add(1)
	out := s.outs.Get().(*txBuffer)
	ran := s.enter(out, s.cfg.CPUPort, pkt, at)
	s.outs.Put(out)
	if !ran {
		return fail(ErrNoProgram, "packet-out", "load one first")
	}
	return nil
}

// SetPacketIn sets who takes the packets that leave on the CPU port; they begin with the bytes of the packet_in header. The slice
// is overwritten after f returns. nil: such packets are dropped and counted.
func (s *Switch) SetPacketIn(f func(pkt []byte)) {
	if f == nil {
		s.packetIn.Store(nil)
		return
	}
	s.packetIn.Store(&f)
}

// enter runs a packet in a lane, then sends what it became. It tells whether there was a program to run.
func (s *Switch) enter(out *txBuffer, port uint32, pkt []byte, at time.Duration) bool {
	if s.waiting.Load() > 0 {
		s.Advance(at)
	}
	l := s.lockLane(out.lane)
	st := s.st
	if st == nil {
		l.mu.Unlock()
		s.noProgram.Add(1)
		return false
	}
	l.out, out.lane = out, l.id
	st.arrive(l, port, pkt, at)
	l.out = nil
	l.mu.Unlock()
	s.send(out)
	out.reset()
	if s.waiting.Load() > 0 {
		s.wake()
	}
	return true
}

func (out *txBuffer) reset() {
	out.bytes, out.packets = out.bytes[:0], out.packets[:0]
	clear(out.digests)
	out.digests = out.digests[:0]
}

// lockLane takes a free lane, the one that is preferred if it is free, or waits for that.
func (s *Switch) lockLane(prefer int) *lane {
	n := len(s.lanes)
	for i := range n {
		if l := s.lanes[(prefer+i)%n]; l.mu.TryLock() {
			return l
		}
	}
	l := s.lanes[prefer]
	l.mu.Lock()
	return l
}

// send hands out what left the pipeline, with no lock held.
func (s *Switch) send(out *txBuffer) {
	for i := range out.digests {
		s.publish(&out.digests[i])
	}
	for i := range out.packets {
		t := &out.packets[i]
		pkt := out.bytes[t.from:t.to:t.to]
		if t.port == s.cfg.CPUPort {
			if f := s.packetIn.Load(); f != nil {
				s.packetIns.Add(1)
				(*f)(pkt)
			} else {
				s.noPort.Add(1)
			}
			continue
		}
		pt := s.port(t.port)
		if pt == nil || !pt.up.Load() {
			s.noPort.Add(1)
			if pt != nil {
				pt.counts[0].outDiscards.Add(1)
			}
			continue
		}
		pt.counts[out.lane].countOut(pkt)
		if pt.cfg.Tx != nil {
			pt.cfg.Tx(pkt, t.at)
		}
	}
}

func (s *Switch) publish(d *Digest) {
	s.subsMu.RLock()
	defer s.subsMu.RUnlock()
	if len(s.subs) == 0 {
		s.digestDrops.Add(1)
	}
	for _, c := range s.subs {
		select {
		case c <- *d:
		default:
			s.digestDrops.Add(1)
		}
	}
}

// arrive runs a packet, and everything that comes of it, to completion.
func (st *state) arrive(l *lane, port uint32, pkt []byte, at time.Duration) {
	p := l.take(st)
	p.begin(pkt, port, at, len(pkt))
	p.loops = 0
	std := &st.prog.std
	p.set(std.ingressPort, uint64(port))
	p.set(std.packetLength, uint64(len(pkt)))
	p.set(std.ingressTS, uint64(at.Microseconds()))
	l.stats.Packets++
	l.budget = maxCopies
	st.ingress(p)
	st.settle(l)
}

// settle runs what came of a packet until nothing is left.
func (st *state) settle(l *lane) {
	for {
		for i := 0; i < len(l.queue); i++ {
			st.egress(l.queue[i])
		}
		l.queue = l.queue[:0]
		if len(l.loops) == 0 {
			return
		}
		p := l.loops[0]
		l.loops = append(l.loops[:0], l.loops[1:]...)
		st.ingress(p)
	}
}

func (p *packet) parse() {
	p.run(p.prog.parserPC)
}

// ingress parses a packet and runs the ingress pipeline; copies and the packet itself are queued for egress.
func (st *state) ingress(p *packet) {
	l, std := p.lane, &st.prog.std
	p.parse()
	if p.perr != 0 {
		l.stats.ParserErrors++
	}
	p.set(std.parserError, p.errorCode())
	if p.badSum {
		l.stats.ChecksumErrors++
	}
	p.set(std.checksumError, bit(p.badSum))
	p.run(st.prog.ingressPC)
	p.exit = false
	if p.clone != 0 {
		st.cloneIngress(p)
		p.clone = 0
	}
	if p.learn != 0 {
		st.learn(p)
	}
	switch {
	case p.dropped:
		l.stats.IngressDrops++
		l.give(p)
	case p.resubmit != 0:
		st.again(p, p.data, p.resubmit-1, instanceResubmitted)
	case p.get(std.mcastGrp) != 0:
		p.set(std.instanceType, instanceReplicated)
		if g := st.mcast[uint32(p.get(std.mcastGrp))]; g != nil {
			st.replicate(p, g.Replicas, 0)
		}
		l.give(p)
	case p.get(std.egressSpec) == DropPort:
		l.stats.IngressDrops++
		l.give(p)
	default:
		p.set(std.instanceType, instanceNormal)
		l.queue = append(l.queue, queued{p: p, port: uint32(p.get(std.egressSpec))})
	}
}

// replicate queues a copy of p for each replica; p itself stays.
func (st *state) replicate(p *packet, to []Replica, truncate int) {
	l := p.lane
	for i := range to {
		if !l.spend() {
			return
		}
		c := l.take(st)
		c.copyFrom(p)
		r := st.sw.working(&to[i])
		c.set(st.prog.std.egressRid, uint64(r.Instance))
		l.stats.Replicas++
		l.queue = append(l.queue, queued{p: c, port: r.Port, truncate: truncate})
	}
}

// copyFrom makes p a copy of o, without what o has marked to happen.
func (p *packet) copyFrom(o *packet) {
	copy(p.f[:p.prog.phv], o.f)
	p.begin(o.data, o.port, o.now, o.length)
	p.lend(o)
	p.off, p.ingressLen, p.loops = o.off, o.ingressLen, o.loops // BMv2 does not hand truncation on to copies
}

// preserve copies the fields of a list from o, and sets the instance type.
func (p *packet) preserve(o *packet, list int, instance uint64) {
	for _, c := range p.prog.fieldLists[list] {
		copy(p.f[c.slot:c.slot+c.words], o.f[c.slot:])
	}
	p.set(p.prog.std.instanceType, instance)
}

// toSession sends a clone to its session's ports.
func (st *state) toSession(c *packet, s *CloneSession) {
	c.lane.stats.Clones++
	st.replicate(c, s.Replicas, s.PacketLength)
	c.lane.give(c)
}

// cloneIngress makes a clone of the packet as it arrived, parsed again, with its metadata zero but for the list.
func (st *state) cloneIngress(p *packet) {
	s := st.clones[uint32(p.clone-1)]
	if s == nil {
		return
	}
	c := p.lane.take(st)
	c.begin(p.data, p.port, p.now, len(p.data))
	c.lend(p)
	c.loops = p.loops
	c.set(st.prog.std.ingressPort, uint64(p.port))
	c.parse()
	c.clearMarks()
	c.resetMetadata()
	c.preserve(p, p.cloneList, instanceIngressClone)
	st.toSession(c, s)
}

// cloneEgress makes a clone of the packet as it is at the end of egress.
func (st *state) cloneEgress(p *packet) {
	s := st.clones[uint32(p.clone-1)]
	if s == nil {
		return
	}
	if p.loops >= st.sw.cfg.MaxLoops { // a clone that is cloned again and again
		p.lane.stats.LoopDrops++
		return
	}
	c := p.lane.take(st)
	c.copyFrom(p)
	c.loops = p.loops + 1
	c.resetMetadata()
	c.preserve(p, p.cloneList, instanceEgressClone)
	st.toSession(c, s)
}

func (p *packet) resetMetadata() {
	for _, m := range p.prog.metadata {
		clear(p.f[m[0]:m[1]])
	}
}

// again makes a packet go through ingress once more, with the bytes given.
func (st *state) again(p *packet, data []byte, list int, instance uint64) {
	l, std := p.lane, &st.prog.std
	if p.loops++; p.loops > st.sw.cfg.MaxLoops {
		l.stats.LoopDrops++
		l.give(p)
		return
	}
	if !l.spend() {
		l.give(p)
		return
	}
	if len(data) > maxPacket {
		l.stats.TooLong++
		l.give(p)
		return
	}
	length := len(data)
	if instance == instanceResubmitted {
		l.stats.Resubmits++
	} else {
		l.stats.Recirculations++
	}
	c := l.take(st)
	c.begin(data, p.port, p.now, length)
	if p.kept || instance == instanceRecirculated {
		c.keepData(data)
	}
	c.loops = p.loops
	c.preserve(p, list, instance)
	c.set(std.packetLength, uint64(length))
	l.give(p)
	l.loops = append(l.loops, c)
}

// learn takes a digest of the packet.
func (st *state) learn(p *packet) {
	d := &st.prog.digests[p.learn-1]
	p.lane.stats.Digests++
	if st.sw.listeners.Load() == 0 {
		st.sw.digestDrops.Add(1)
		return
	}
	out := Digest{Name: d.Name, ID: d.ID, At: p.now, Values: p.lane.values.take(len(d.fields))}
	for i, f := range d.fields {
		out.Values[i] = putWords(p.lane.digits.take((d.Widths[i]+7)/8), p.f[f.slot:f.slot+f.words])
	}
	p.lane.out.digests = append(p.lane.out.digests, out)
}

// egress lets a packet wait for its port, or go on.
func (st *state) egress(q queued) {
	if pt := st.sw.port(q.port); pt != nil {
		if line := pt.queue.Load(); line != nil {
			st.wait(q, pt, line)
			return
		}
	}
	p, std := q.p, &st.prog.std
	p.set(std.enqTS, uint64(p.now.Microseconds()))
	p.set(std.enqDepth, 0)
	p.set(std.deqDelta, 0)
	p.set(std.deqDepth, 0)
	p.set(std.qid, p.get(std.priority))
	st.leave(q)
}

// leave runs the egress pipeline and deparses.
func (st *state) leave(q queued) {
	p := q.p
	l, std, at := p.lane, &st.prog.std, p.now
	p.egressPort = q.port
	p.set(std.egressTS, uint64(at.Microseconds()))
	p.set(std.egressPort, uint64(q.port))
	p.set(std.egressSpec, DropPort+1)
	p.set(std.packetLength, uint64(p.length))
	p.run(st.prog.egressPC)
	p.exit = false
	if p.clone != 0 {
		st.cloneEgress(p)
	}
	if p.dropped || p.get(std.egressSpec) == DropPort {
		l.stats.EgressDrops++
		l.give(p)
		return
	}
	if q.truncate > 0 && (p.trunc < 0 || q.truncate < p.trunc) {
		p.trunc = q.truncate
	}
	p.run(st.prog.deparserPC)
	out := l.out
	from := len(out.bytes)
	out.bytes = p.deparse(out.bytes)
	switch {
	case len(out.bytes)-from > maxPacket:
		l.stats.TooLong++
		out.bytes = out.bytes[:from]
		l.give(p)
	case p.recirc != 0:
		st.again(p, out.bytes[from:], p.recirc-1, instanceRecirculated)
		out.bytes = out.bytes[:from]
	default:
		out.packets = append(out.packets, txPacket{q.port, from, len(out.bytes), at})
		l.give(p)
	}
}
