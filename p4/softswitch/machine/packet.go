// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// CacheLine is the distance in bytes between memory that different lanes write. Cores fetch pairs
// of cache lines of 64 bytes.
const CacheLine = 128

// Packet is one packet in execution. It belongs to the lane that runs it.
type Packet struct {
	_    [64]byte // packets of different lanes share no cache line
	f    []uint64 // the slots
	Data []byte   // the bytes received, read only
	own  []byte   // buffer for data that outlives the caller's buffer
	Kept bool     // data is in own
	off  int      // bytes that the parser consumed; the payload follows
	prog *program.Program
	st   *State
	Lane *Lane

	Now        time.Duration
	Port       uint32 // ingress port
	length     int    // BMv2's packet length register
	ingressLen int    // length that counters and meters use
	Truncate   int    // limit of truncate(); -1: no limit
	Loops      int

	ret     uint32 // return address of the running action
	exit    bool
	perr    int // parser error + 1; 0: the parser found no error
	states  int // parser states passed
	badSum  bool
	Dropped bool // assert or assume failed

	Clone       int // number of the clone session + 1; 0: the packet is not cloned
	CloneList   int
	Learn       int
	Resubmit    int
	Recirculate int
	_           [64]byte
}

// Lane runs one packet at a time.
type Lane struct {
	ID      int
	Stats   Stats
	free    []*Packet // unused packets of the loaded program
	scratch []byte
	pad     []byte // the last bytes of a short packet, followed by zeros
	rng     rand.PCG
	serial  bool // the only lane: registers need no locks
}

// NewLane returns lane number id of a switch with a number of lanes. It is usable after Load.
func NewLane(id, lanes int, seed uint64) Lane {
	return Lane{ID: id, rng: *rand.NewPCG(seed, uint64(id)), serial: lanes == 1}
}

// Load prepares the lane for packets of a program.
func (l *Lane) Load(st *State) {
	l.free = make([]*Packet, 0, CacheLine/4)
	l.Stats = Stats{}
	l.pad = make([]byte, st.Prog.PadBytes)
}

func (l *Lane) random() uint64 { return l.rng.Uint64() }

func (l *Lane) scratchOf(n int) []byte {
	if cap(l.scratch) < n {
		l.scratch = make([]byte, n, 2*n+2048)
	}
	return l.scratch[:n]
}

// growScratch extends buf, which is scratch, to n bytes.
func (l *Lane) growScratch(buf []byte, n int) []byte {
	if cap(buf) < n {
		l.scratch = append(make([]byte, 0, 2*n), buf...)
		buf = l.scratch
	}
	return buf[:n]
}

// newPacket returns a new packet of the loaded program.
func (l *Lane) newPacket(st *State) *Packet {
	p := &Packet{prog: st.Prog, st: st, Lane: l, f: make([]uint64, len(st.Prog.Slots))}
	copy(p.f, st.Prog.Slots)
	return p
}

// Take returns a packet whose fields are zero.
func (l *Lane) Take(st *State) *Packet {
	if n := len(l.free); n > 0 {
		p := l.free[n-1]
		l.free = l.free[:n-1]
		clear(p.f[:st.Prog.Fields])
		return p
	}
	return l.newPacket(st)
}

func (l *Lane) Give(p *Packet) {
	p.Data, p.Kept = nil, false
	l.free = append(l.free, p)
}

// payload returns the bytes after the parsed headers, limited by truncate.
func (p *Packet) payload() []byte {
	b := p.Data[p.off:]
	if p.Truncate >= 0 && len(b) > p.Truncate {
		b = b[:p.Truncate]
	}
	return b
}

// Begin initializes a packet that enters the pipeline.
func (p *Packet) Begin(data []byte, port uint32, now time.Duration, length int) {
	p.Data, p.off, p.Now, p.Port = data, 0, now, port
	p.length, p.ingressLen, p.Truncate = length, len(data), -1
	p.ClearMarks()
}

// KeepData copies b to the packet's own buffer and makes it the packet's data.
func (p *Packet) KeepData(b []byte) {
	if !p.Kept {
		p.own = append(p.own[:0], b...)
		p.Data, p.Kept = p.own, true
	}
}

// Lend makes the data of o safe for its copy p: the packets share the data, or p gets a copy if o's
// data may be overwritten.
func (p *Packet) Lend(o *Packet) {
	if o.Kept {
		p.KeepData(o.Data)
	}
}

func (p *Packet) ClearMarks() {
	p.exit, p.perr, p.states, p.badSum, p.Dropped = false, 0, 0, false, false
	p.Clone, p.CloneList, p.Learn, p.Resubmit, p.Recirculate = 0, 0, 0, 0, 0
}

func (p *Packet) Set(f program.StdField, v uint64) {
	if f.Slot >= 0 {
		p.f[f.Slot] = v & f.Mask
	}
}

func (p *Packet) Get(f program.StdField) uint64 {
	if f.Slot < 0 {
		return 0
	}
	return p.f[f.Slot]
}

// extract reads a header of fixed length; false means that the packet is too short.
func (p *Packet) extract(h *program.Header) bool {
	t := h.Type
	rest := p.Data[p.off:]
	if len(rest) < t.Bytes {
		return false
	}
	if len(rest) < t.Bytes+9 {
		pad := p.Lane.pad
		clear(pad[copy(pad, rest) : t.Bytes+9])
		rest = pad
	}
	f := p.f[h.Base : h.Base+t.Slots]
	for i := range t.Pieces {
		pc := &t.Pieces[i]
		v := binary.BigEndian.Uint64(rest[pc.Off:])
		if pc.Spill != 0 {
			v = v<<pc.Spill | uint64(rest[pc.Off+8]>>(8-pc.Spill))
		}
		f[pc.Slot] = v >> pc.Shift & pc.Mask
	}
	f[0] = 1
	for _, s := range h.Siblings {
		p.f[s] = 0
	}
	p.off += t.Bytes
	return true
}

// extractVL reads a header with a variable-length field of n bits.
func (p *Packet) extractVL(h *program.Header, n int) int {
	t := h.Type
	switch total := t.Bytes + n/8; {
	case n%8 != 0:
		return program.InvalidArgument
	case len(p.Data)-p.off < total:
		return program.PacketTooShort
	case n > t.MaxVariable:
		return program.HeaderTooShort
	}
	rest := p.Data[p.off:]
	p.f[h.Base+t.VariableLen] = uint64(n)
	shift := 0
	for _, pt := range t.Parts {
		if pt.Variable {
			fl := &t.Fields[t.Variable]
			wide.Read(p.f[h.Base+fl.Slot:h.Base+fl.Slot+fl.Words], rest, pt.Bit, n)
			shift = n
			continue
		}
		p.f[h.Base+pt.Slot] = wide.ReadBits(rest, pt.Bit+shift, pt.Width)
	}
	p.setValid(h)
	p.off += t.Bytes + n/8
	return 0
}

// writeHeader deparses a header to b, which has room for it and for eight more bytes.
func (p *Packet) writeHeader(b []byte, h *program.Header) {
	t := h.Type
	n := 0
	if t.Variable >= 0 {
		n = int(p.f[h.Base+t.VariableLen])
	}
	shift := 0
	for _, pt := range t.Parts {
		if pt.Variable {
			fl := &t.Fields[t.Variable]
			wide.Write(b, pt.Bit, n, p.f[h.Base+fl.Slot:h.Base+fl.Slot+fl.Words])
			shift = n
			continue
		}
		wide.WriteBits(b, pt.Bit+shift, pt.Width, p.f[h.Base+pt.Slot])
	}
}

// Deparse runs the deparser and appends the packet to out.
func (p *Packet) Deparse(out []byte) []byte {
	p.run(p.prog.DeparserPC)
	start := len(out)
	for i, slot := range p.prog.Emitted {
		if p.f[slot] == 0 {
			continue
		}
		h := p.prog.Deparse[i]
		n := p.headerBytes(h)
		at := len(out)
		out = grow(out, n+8)
		b := out[at : at+n+8]
		if h.Type.Variable >= 0 {
			p.writeHeader(b, h)
		} else {
			f := p.f[h.Base : h.Base+h.Type.Slots]
			var acc uint64
			for i := range h.Type.Emits {
				e := &h.Type.Emits[i]
				if e.Right {
					acc |= f[e.Slot] >> e.Shift
				} else {
					acc |= f[e.Slot] << e.Shift
				}
				if e.Flush {
					binary.BigEndian.PutUint64(b[e.Off:], acc)
					acc = 0
				}
			}
		}
		out = out[:at+n]
	}
	out = append(out, p.Data[p.off:]...)
	if p.Truncate >= 0 && len(out)-start > p.Truncate {
		out = out[:start+p.Truncate]
	}
	return out
}

// grow extends b by n bytes of undefined content.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) < n {
		b = append(make([]byte, 0, 2*cap(b)+n+2048), b...)
	}
	return b[:len(b)+n]
}

func (p *Packet) Parse() { p.run(p.prog.ParserPC) }

// RunIngress parses the packet and runs the ingress pipeline.
func (p *Packet) RunIngress() {
	std := &p.prog.Std
	p.Parse()
	if p.perr != 0 {
		p.Lane.Stats.ParserErrors++
	}
	p.Set(std.ParserError, p.errorCode())
	if p.badSum {
		p.Lane.Stats.ChecksumErrors++
	}
	p.Set(std.ChecksumError, bit(p.badSum))
	p.run(p.prog.IngressPC)
	p.exit = false
}

// RunEgress runs the egress pipeline of a packet that leaves by a port.
func (p *Packet) RunEgress(port uint32) {
	std := &p.prog.Std
	p.Set(std.EgressTimestamp, uint64(p.Now.Microseconds()))
	p.Set(std.EgressPort, uint64(port))
	p.Set(std.EgressSpec, program.DropPort+1)
	p.Set(std.PacketLength, uint64(p.length))
	p.run(p.prog.EgressPC)
	p.exit = false
}

// CopyFrom makes p a copy of o, without its pending clones, digests and loops.
func (p *Packet) CopyFrom(o *Packet) {
	copy(p.f[:p.prog.Fields], o.f)
	p.Begin(o.Data, o.Port, o.Now, o.length)
	p.Lend(o)
	p.off, p.ingressLen, p.Loops = o.off, o.ingressLen, o.Loops // copies are not truncated in BMv2
}

// Preserve copies the fields of a list from o, and sets the instance type.
func (p *Packet) Preserve(o *Packet, list int, instance uint64) {
	for _, c := range p.prog.FieldLists[list] {
		copy(p.f[c.Slot:c.Slot+c.Words], o.f[c.Slot:])
	}
	p.Set(p.prog.Std.InstanceType, instance)
}

func (p *Packet) ResetMetadata() {
	for _, m := range p.prog.Metadata {
		clear(p.f[m[0]:m[1]])
	}
}

// errorCode converts perr to the program's error number.
func (p *Packet) errorCode() uint64 {
	switch {
	case p.perr == 0:
		return p.prog.NoError
	case p.perr >= program.ErrorBase:
		return uint64(p.perr - program.ErrorBase)
	}
	return p.prog.CoreError[p.perr]
}

// Number writes a field to out, big-endian.
func (p *Packet) Number(f program.FieldCopy, out []byte) []byte {
	return wide.PutBytes(out, p.f[f.Slot:f.Slot+f.Words])
}
