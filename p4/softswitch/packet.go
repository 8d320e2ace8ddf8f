// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"
)

// cacheLine is the bytes that a core fetches together. What lanes write is that far apart, or in blocks as large.
const cacheLine = 128

// packet is one packet on its way through the program. It belongs to the lane that runs it.
type packet struct {
	_    [64]byte // packets of different lanes share no cache line
	f    []uint64 // the slots
	data []byte   // what arrived, read only
	own  []byte   // room for data that outlives the caller's
	kept bool     // data is in own
	off  int      // bytes the parser consumed: data[off:] is the payload
	prog *Program
	st   *state
	lane *lane

	now        time.Duration
	port       uint32 // ingress port
	length     int    // BMv2's packet length register
	ingressLen int    // what counters and meters count
	trunc      int    // truncate(); -1: whole
	loops      int
	egressPort uint32
	rid        uint64

	ret     uint32 // where the running action returns to
	exit    bool
	perr    int // parser error + 1, or 0
	states  int // parser states passed
	badSum  bool
	dropped bool // assert or assume failed

	clone     int // session + 1, or 0
	cloneList int
	learn     int
	resubmit  int
	recirc    int
	_         [64]byte
}

// lane runs one packet at a time. A control plane call that changes what packets see holds the mutexes of all lanes.
type lane struct {
	_        [64]byte // lanes share no cache line
	mu       sync.Mutex
	id       int
	stats    Stats
	free     []*packet // packets of the loaded program at rest
	queue    []queued  // packets on their way to egress
	loops    []*packet // resubmitted and recirculated packets, in order
	scratch  []byte
	pad      []byte // a short packet's last bytes with zeros behind them
	rng      rand.PCG
	replayer *packet // does what logs hold
	serial   bool    // the only lane: registers need no locks
	out      *txBuffer
	budget   int           // copies the arriving packet may still become
	values   arena[[]byte] // of digests
	digits   arena[byte]
	_        [64]byte
}

// arena hands out what is kept for long in pieces of larger blocks.
type arena[T any] struct{ block []T }

const arenaBlock = 1 << 10

func (a *arena[T]) take(n int) []T {
	if n > len(a.block) {
		if n > arenaBlock/4 {
			return make([]T, n)
		}
		a.block = make([]T, arenaBlock)
	}
	piece := a.block[:n:n]
	a.block = a.block[n:]
	return piece
}

func (l *lane) random() uint64 { return l.rng.Uint64() }

func (l *lane) scratchOf(n int) []byte {
	if cap(l.scratch) < n {
		l.scratch = make([]byte, n, 2*n+2048)
	}
	return l.scratch[:n]
}

// growScratch returns buf, which is scratch, with n bytes.
func (l *lane) growScratch(buf []byte, n int) []byte {
	if cap(buf) < n {
		l.scratch = append(make([]byte, 0, 2*n), buf...)
		buf = l.scratch
	}
	return buf[:n]
}

// newPacket makes a packet of the loaded program.
func (l *lane) newPacket(st *state) *packet {
	p := &packet{prog: st.prog, st: st, lane: l, f: make([]uint64, len(st.prog.slots))}
	copy(p.f, st.prog.slots)
	return p
}

// take returns a packet with all its fields zero.
func (l *lane) take(st *state) *packet {
	if n := len(l.free); n > 0 {
		p := l.free[n-1]
		l.free = l.free[:n-1]
		for _, z := range st.prog.zero {
			clear(p.f[z.first : int(z.first)+z.n])
		}
		return p
	}
	return l.newPacket(st)
}

func (l *lane) give(p *packet) {
	p.data, p.kept = nil, false
	l.free = append(l.free, p)
}

// payload is what follows the parsed headers, cut off by truncate.
func (p *packet) payload() []byte {
	b := p.data[p.off:]
	if p.trunc >= 0 && len(b) > p.trunc {
		b = b[:p.trunc]
	}
	return b
}

// begin sets what a packet that enters starts with.
func (p *packet) begin(data []byte, port uint32, now time.Duration, length int) {
	p.data, p.off, p.now, p.port = data, 0, now, port
	p.length, p.ingressLen, p.trunc = length, len(data), -1
	p.rid, p.egressPort = 0, 0
	p.clearMarks()
}

// keepData makes the packet's data its own.
func (p *packet) keepData(b []byte) {
	if !p.kept {
		p.own = append(p.own[:0], b...)
		p.data, p.kept = p.own, true
	}
}

// lend gives a copy of o what o's data are: the same bytes, or when they may be overwritten, bytes of its own.
func (p *packet) lend(o *packet) {
	if o.kept {
		p.keepData(o.data)
	}
}

func (p *packet) clearMarks() {
	p.exit, p.perr, p.states, p.badSum, p.dropped = false, 0, 0, false, false
	p.clone, p.cloneList, p.learn, p.resubmit, p.recirc = 0, 0, 0, 0, 0
}

func (p *packet) set(f stdField, v uint64) {
	if f.slot >= 0 {
		p.f[f.slot] = v & f.mask
	}
}

func (p *packet) get(f stdField) uint64 {
	if f.slot < 0 {
		return 0
	}
	return p.f[f.slot]
}

// extract fills a header of fixed length from the packet; it returns false when the packet is too short.
func (p *packet) extract(h *header) bool {
	t := h.t
	rest := p.data[p.off:]
	if len(rest) < t.bytes {
		return false
	}
	if len(rest) < t.bytes+9 {
		pad := p.lane.pad
		clear(pad[copy(pad, rest) : t.bytes+9])
		rest = pad
	}
	f := p.f[h.base : h.base+t.slots]
	for i := range t.pieces {
		pc := &t.pieces[i]
		v := binary.BigEndian.Uint64(rest[pc.off:])
		if pc.spill != 0 {
			v = v<<pc.spill | uint64(rest[pc.off+8]>>(8-pc.spill))
		}
		f[pc.slot] = v >> pc.shift & pc.mask
	}
	f[0] = 1
	for _, s := range h.siblings {
		p.f[s] = 0
	}
	p.off += t.bytes
	return true
}

// extractVL fills a header with a variable-length field of n bits.
func (p *packet) extractVL(h *header, n int) int {
	t := h.t
	switch total := t.bytes + n/8; {
	case n%8 != 0:
		return errInvalidArgument
	case len(p.data)-p.off < total:
		return errTooShort
	case n > t.maxVL:
		return errHeaderTooShort
	}
	rest := p.data[p.off:]
	p.f[h.base+t.vlLen] = uint64(n)
	shift := 0
	for _, pt := range t.parts {
		if pt.vl {
			fl := &t.fields[t.vl]
			readWide(p.f[h.base+fl.slot:h.base+fl.slot+fl.words], rest, pt.bit, n)
			shift = n
			continue
		}
		p.f[h.base+pt.slot] = readBits(rest, pt.bit+shift, pt.width)
	}
	p.setValid(h)
	p.off += t.bytes + n/8
	return 0
}

// writeHeader deparses a header into b, which has room for it and, for headers of fixed length, eight bytes more.
func (p *packet) writeHeader(b []byte, h *header) {
	t := h.t
	n := 0
	if t.vl >= 0 {
		n = int(p.f[h.base+t.vlLen])
	}
	shift := 0
	for _, pt := range t.parts {
		if pt.vl {
			fl := &t.fields[t.vl]
			writeWide(b, pt.bit, n, p.f[h.base+fl.slot:h.base+fl.slot+fl.words])
			shift = n
			continue
		}
		writeBits(b, pt.bit+shift, pt.width, p.f[h.base+pt.slot])
	}
}

// deparse appends the packet as it leaves to out.
func (p *packet) deparse(out []byte) []byte {
	start := len(out)
	for _, h := range p.prog.deparse {
		if p.f[h.base] == 0 && !h.metadata {
			continue
		}
		n := p.headerBytes(h)
		at := len(out)
		out = grow(out, n+8)
		b := out[at : at+n+8]
		if h.t.vl >= 0 {
			p.writeHeader(b, h)
		} else {
			f := p.f[h.base : h.base+h.t.slots]
			var acc uint64
			for i := range h.t.emits {
				e := &h.t.emits[i]
				if e.right {
					acc |= f[e.slot] >> e.shift
				} else {
					acc |= f[e.slot] << e.shift
				}
				if e.flush {
					binary.BigEndian.PutUint64(b[e.off:], acc)
					acc = 0
				}
			}
		}
		out = out[:at+n]
	}
	out = append(out, p.data[p.off:]...)
	if p.trunc >= 0 && len(out)-start > p.trunc {
		out = out[:start+p.trunc]
	}
	return out
}

// grow extends b by n bytes of any content.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) < n {
		b = append(make([]byte, 0, 2*cap(b)+n+2048), b...)
	}
	return b[:len(b)+n]
}
