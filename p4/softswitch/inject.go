// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/machine"
)

// maxPacket bounds a packet's length in bytes. Packets in capture files have the same bound: they
// exceed 64 KiB where the kernel joins segments.
const maxPacket = 1 << 18

// maxCopies bounds the clones, replicas and loops of one packet.
const maxCopies = 1 << 14

// spend uses one of the arriving packet's copies; if none is left it counts a drop.
func (l *lane) spend() bool {
	if l.budget == 0 {
		l.Stats.LoopDrops++
		return false
	}
	l.budget--
	return true
}

// Values of instance_type, as simple_switch sets them.
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
	p        *machine.Packet
	port     uint32
	truncate int // 0 leaves the packet whole
}

// txBuffer holds outgoing packets and digests until the lane is free again.
type txBuffer struct {
	_       [64]byte
	lane    int // the lane that ran the last packet: its memory is in this core's cache
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

// Inject processes a packet that arrives on a port at a time on the switch's clock. It returns when
// the packet and all copies of it have left or were dropped. pkt is not changed and not kept.
// Inject reports whether the port took the packet: it takes none while it is down, and none above
// 256 KiB.
func (s *Switch) Inject(port uint32, pkt []byte, at time.Duration) bool {
	pt := s.ports.Get(port)
	if pt == nil {
		s.noPort.Add(1)
		return false
	}
	if !pt.Up() {
		pt.DiscardIn()
		return false
	}
	if len(pkt) > maxPacket {
		pt.ErrorIn()
		s.tooLong.Add(1)
		return false
	}
	out := s.outs.Get().(*txBuffer)
	pt.CountIn(out.lane, pkt)
	if !s.trapped(port, pkt, at) {
		s.enter(out, port, pkt, at)
	}
	s.outs.Put(out)
	return true
}

// PacketOut processes a packet that arrives on the CPU port now. pkt begins with the packet_out
// header. Errors: ErrClosed, ErrInvalid for a packet that is too long, ErrNoProgram.
func (s *Switch) PacketOut(pkt []byte) error {
	switch {
	case s.closed.Load():
		return control.Errorf(ErrClosed, "packet-out", "the switch was closed")
	case len(pkt) > maxPacket:
		return control.Errorf(ErrInvalid, "packet-out", "%d bytes; at most %d", len(pkt), maxPacket)
	}
	s.packetOuts.Add(1)
	out := s.outs.Get().(*txBuffer)
	ran := s.enter(out, s.cfg.CPUPort, pkt, s.clock())
	s.outs.Put(out)
	if !ran {
		return control.Errorf(ErrNoProgram, "packet-out", "load a program first")
	}
	return nil
}

// SetPacketIn sets the function that receives the packets that leave by the CPU port. They begin
// with the packet_in header. The slice is overwritten after f returns. If f is nil, these packets
// are dropped and counted.
func (s *Switch) SetPacketIn(f func(pkt []byte)) {
	if f == nil {
		s.packetIn.Store(nil)
		return
	}
	s.packetIn.Store(&f)
}

// enter runs a packet in a lane, then sends the results. It returns false if no program is loaded.
func (s *Switch) enter(out *txBuffer, port uint32, pkt []byte, at time.Duration) bool {
	if s.waiting.Load() > 0 && (port != s.cfg.CPUPort || s.cfg.Clock == nil) {
		s.Advance(at)
	}
	l := s.lockLane(out.lane)
	st := s.st
	if st == nil {
		l.mu.Unlock()
		s.noProgram.Add(1)
		return false
	}
	l.out, out.lane = out, l.ID
	s.arrive(l, port, pkt, at)
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

// lockLane locks a lane and returns it: lane number prefer if it is free, otherwise the next free
// one. If all lanes are busy, it waits for lane prefer.
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

// send sends packets and digests. The caller holds no lock.
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
		pt := s.ports.Get(t.port)
		if pt == nil || !pt.Up() {
			s.noPort.Add(1)
			if pt != nil {
				pt.DiscardOut(1)
			}
			continue
		}
		pt.Send(out.lane, pkt, t.at)
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

// arrive runs a packet and all its copies to completion.
func (s *Switch) arrive(l *lane, port uint32, pkt []byte, at time.Duration) {
	p := l.Take(s.st.State)
	p.Begin(pkt, port, at, len(pkt))
	p.Loops = 0
	std := &s.st.Prog.Std
	p.Set(std.IngressPort, uint64(port))
	p.Set(std.PacketLength, uint64(len(pkt)))
	p.Set(std.IngressTimestamp, uint64(at.Microseconds()))
	l.Stats.Packets++
	l.budget = maxCopies
	s.ingress(l, p)
	s.settle(l)
}

// settle runs queued packets until none is left.
func (s *Switch) settle(l *lane) {
	for {
		for i := 0; i < len(l.queue); i++ {
			s.egress(l, l.queue[i])
		}
		l.queue = l.queue[:0]
		if len(l.loops) == 0 {
			return
		}
		p := l.loops[0]
		l.loops = append(l.loops[:0], l.loops[1:]...)
		s.ingress(l, p)
	}
}

// ingress parses a packet and runs the ingress pipeline; the packet and its copies are queued for
// egress.
func (s *Switch) ingress(l *lane, p *machine.Packet) {
	std := &s.st.Prog.Std
	p.RunIngress()
	if p.Clone != 0 {
		s.cloneIngress(l, p)
		p.Clone = 0
	}
	if p.Learn != 0 {
		s.learn(l, p)
	}
	switch {
	case p.Dropped:
		l.Stats.IngressDrops++
		l.Give(p)
	case p.Resubmit != 0:
		s.again(l, p, p.Data, p.Resubmit-1, instanceResubmitted)
	case p.Get(std.McastGroup) != 0:
		p.Set(std.InstanceType, instanceReplicated)
		if g := s.st.mcast[uint32(p.Get(std.McastGroup))]; g != nil && len(g.Replicas) > 0 {
			s.replicate(l, p, g.Replicas, 0)
		} else {
			l.Stats.GroupDrops++
		}
		l.Give(p)
	case p.Get(std.EgressSpec) == DropPort:
		l.Stats.IngressDrops++
		l.Give(p)
	default:
		p.Set(std.InstanceType, instanceNormal)
		l.queue = append(l.queue, queued{p: p, port: uint32(p.Get(std.EgressSpec))})
	}
}

// replicate queues a copy of p for each replica. The caller keeps p.
func (s *Switch) replicate(l *lane, p *machine.Packet, to []Replica, truncate int) {
	for i := range to {
		if !l.spend() {
			return
		}
		c := l.Take(s.st.State)
		c.CopyFrom(p)
		r := s.working(&to[i])
		c.Set(s.st.Prog.Std.EgressRID, uint64(r.Instance))
		l.Stats.Replicas++
		l.queue = append(l.queue, queued{p: c, port: r.Port, truncate: truncate})
	}
}

// toSession queues a clone for its session's ports.
func (s *Switch) toSession(l *lane, c *machine.Packet, session *CloneSession) {
	l.Stats.Clones++
	s.replicate(l, c, session.Replicas, session.PacketLength)
	l.Give(c)
}

// cloneIngress clones the packet as it arrived: it parses the packet again, and keeps only the
// metadata in the clone's field list.
func (s *Switch) cloneIngress(l *lane, p *machine.Packet) {
	session := s.st.clones[uint32(p.Clone-1)]
	if session == nil {
		return
	}
	c := l.Take(s.st.State)
	c.Begin(p.Data, p.Port, p.Now, len(p.Data))
	c.Lend(p)
	c.Loops = p.Loops
	c.Set(s.st.Prog.Std.IngressPort, uint64(p.Port))
	c.Parse()
	c.ClearMarks()
	c.ResetMetadata()
	c.Preserve(p, p.CloneList, instanceIngressClone)
	s.toSession(l, c, session)
}

// cloneEgress clones the packet as it is at the end of egress.
func (s *Switch) cloneEgress(l *lane, p *machine.Packet) {
	session := s.st.clones[uint32(p.Clone-1)]
	if session == nil {
		return
	}
	if p.Loops >= s.cfg.MaxLoops { // a clone of a clone of a clone …
		l.Stats.LoopDrops++
		return
	}
	c := l.Take(s.st.State)
	c.CopyFrom(p)
	c.Loops = p.Loops + 1
	c.ResetMetadata()
	c.Preserve(p, p.CloneList, instanceEgressClone)
	s.toSession(l, c, session)
}

// again queues a packet for another pass through ingress, with the given bytes.
func (s *Switch) again(l *lane, p *machine.Packet, data []byte, list int, instance uint64) {
	std := &s.st.Prog.Std
	if p.Loops++; p.Loops > s.cfg.MaxLoops {
		l.Stats.LoopDrops++
		l.Give(p)
		return
	}
	if !l.spend() {
		l.Give(p)
		return
	}
	if len(data) > maxPacket {
		l.Stats.TooLong++
		l.Give(p)
		return
	}
	length := len(data)
	if instance == instanceResubmitted {
		l.Stats.Resubmits++
	} else {
		l.Stats.Recirculations++
	}
	c := l.Take(s.st.State)
	c.Begin(data, p.Port, p.Now, length)
	if p.Kept || instance == instanceRecirculated {
		c.KeepData(data)
	}
	c.Loops = p.Loops
	c.Preserve(p, list, instance)
	c.Set(std.PacketLength, uint64(length))
	l.Give(p)
	l.loops = append(l.loops, c)
}

// learn generates a digest of the packet.
func (s *Switch) learn(l *lane, p *machine.Packet) {
	d := &s.st.Prog.Digests[p.Learn-1]
	l.Stats.Digests++
	if s.listeners.Load() == 0 {
		s.digestDrops.Add(1)
		return
	}
	out := Digest{Name: d.Name, ID: d.ID, At: p.Now, Values: l.values.take(len(d.Fields))}
	for i, f := range d.Fields {
		out.Values[i] = p.Number(f, l.digits.take((d.Widths[i]+7)/8))
	}
	l.out.digests = append(l.out.digests, out)
}

// egress queues a packet at its port, or sends it on.
func (s *Switch) egress(l *lane, q queued) {
	if s.cfg.Drop != nil && s.cfg.Drop(q.p.Port, q.port) {
		s.queueDrops.Add(1)
		l.Give(q.p)
		return
	}
	if line := s.queueOf(q.port); line != nil {
		s.wait(l, q, line)
		return
	}
	p, std := q.p, &s.st.Prog.Std
	p.Set(std.EnqTimestamp, uint64(p.Now.Microseconds()))
	p.Set(std.EnqDepth, 0)
	p.Set(std.DeqDelta, 0)
	p.Set(std.DeqDepth, 0)
	p.Set(std.QID, p.Get(std.Priority))
	s.leave(l, q)
}

// leave runs the egress pipeline and the deparser.
func (s *Switch) leave(l *lane, q queued) {
	p := q.p
	std, at := &s.st.Prog.Std, p.Now
	p.RunEgress(q.port)
	if p.Clone != 0 {
		s.cloneEgress(l, p)
	}
	if p.Dropped || p.Get(std.EgressSpec) == DropPort {
		l.Stats.EgressDrops++
		l.Give(p)
		return
	}
	if q.truncate > 0 && (p.Truncate < 0 || q.truncate < p.Truncate) {
		p.Truncate = q.truncate
	}
	out := l.out
	from := len(out.bytes)
	out.bytes = p.Deparse(out.bytes)
	switch {
	case len(out.bytes)-from > maxPacket:
		l.Stats.TooLong++
		out.bytes = out.bytes[:from]
		l.Give(p)
	case p.Recirculate != 0:
		s.again(l, p, out.bytes[from:], p.Recirculate-1, instanceRecirculated)
		out.bytes = out.bytes[:from]
	default:
		out.packets = append(out.packets, txPacket{q.port, from, len(out.bytes), at})
		l.Give(p)
	}
}
