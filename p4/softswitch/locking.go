// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
)

// An action's reads and writes of registers are one step, as in BMv2. Registers that some action uses together share a lock, so that no action
// takes more than one: on several cores it is the way of a lock's memory from core to core that costs, more than waiting. An action holds it
// from its first access to its last, and computes before what needs no register, above all hashes.

// spinLock is held for microseconds at most, so waiting for it in the scheduler would cost more than what it protects.
type spinLock struct{ held atomic.Bool }

// A waiter looks so often, then as often again after others ran, then sleeps: the holder has lost its core.
const (
	spins    = 1 << 9
	goscheds = 4
	doze     = 20 * time.Microsecond
)

func (l *spinLock) lock() {
	if !l.held.CompareAndSwap(false, true) {
		l.wait()
	}
}

func (l *spinLock) tryLock() bool { return !l.held.Load() && l.held.CompareAndSwap(false, true) }

func (l *spinLock) wait() {
	for round := 0; ; round++ {
		for range spins {
			if !l.held.Load() && l.held.CompareAndSwap(false, true) {
				return
			}
		}
		if round < goscheds {
			runtime.Gosched()
		} else {
			time.Sleep(doze)
		}
	}
}

func (l *spinLock) unlock() { l.held.Store(false) }

// groupRegisters gives the registers their locks.
func (b *builder) groupRegisters() {
	b.lockOf = make([]int, len(b.prog.info.regs))
	for i := range b.lockOf {
		b.lockOf[i] = i
	}
	for i := range b.file.Actions {
		regs := b.registersOf(b.actionByID[b.file.Actions[i].ID])
		for _, r := range regs {
			keep, drop := b.lockOf[regs[0]], b.lockOf[r]
			for j, l := range b.lockOf {
				if l == drop {
					b.lockOf[j] = keep
				}
			}
		}
	}
	b.prog.locks = len(b.lockOf)
}

// registersOf lists the registers an action names.
func (b *builder) registersOf(a *action) (regs []int) {
	var walk func(e *bmv2json.Expr)
	walk = func(e *bmv2json.Expr) {
		if e == nil {
			return
		}
		if e.Type == "register" || e.Type == "register_array" {
			if i, ok := b.regs[e.Name]; ok {
				regs = append(regs, i)
			}
		}
		walk(e.Left)
		walk(e.Right)
		walk(e.Cond)
		for _, x := range e.List {
			walk(x)
		}
	}
	for i := range a.def.Primitives {
		for _, e := range a.def.Primitives[i].Params {
			walk(e)
		}
	}
	slices.Sort(regs)
	return slices.Compact(regs)
}

// lockRegisters puts opLock and opUnlock around the part of an action's code, which begins at start, that needs them.
func (b *builder) lockRegisters(start, lock int) {
	if !b.plain {
		early := b.hoist(start)
		if len(early) > 0 {
			rest := append([]instr(nil), b.code[start:]...)
			for i := range rest {
				if rest[i].op >= opJmp && rest[i].op <= opJGeS {
					rest[i].d += uint32(len(early))
				}
			}
			b.code = append(append(b.code[:start], early...), rest...)
			b.optimize(start)
		}
	}
	code := b.code[start:]
	ahead := coverage(code, start)
	first, last := len(code), 0
	for i := range code {
		switch code[i].op {
		case opRegRd, opRegWr, opCall: // a call may use registers
			first, last = min(first, i), i+1
		}
	}
	if first == len(code) { // its registers are only named
		return
	}
	for ahead[first] > first {
		first--
	}
	for ahead[last] > last {
		last++
	}
	moved := func(i int) uint32 { // to the lock or the release, where one is before it
		switch i += start; {
		case i > start+last:
			return uint32(i + 2)
		case i > start+first:
			return uint32(i + 1)
		}
		return uint32(i)
	}
	out := make([]instr, 0, len(code)+2)
	for i := 0; i <= len(code); i++ {
		switch i {
		case first:
			out = append(out, instr{op: opLock, a: uint32(lock)})
		case last:
			out = append(out, instr{op: opUnlock, a: uint32(lock)})
		}
		if i == len(code) {
			break
		}
		in := code[i]
		if in.op >= opJmp && in.op <= opJGeS {
			in.d = moved(int(in.d) - start)
		}
		out = append(out, in)
	}
	b.code = append(b.code[:start], out...)
}

// coverage tells, for each place in the code and for its end, how far jumps from before it lead: a place that none leads past is always
// passed.
func coverage(code []instr, start int) []int {
	ahead := make([]int, len(code)+1)
	far := 0
	for i := range code {
		ahead[i] = far
		if code[i].op >= opJmp && code[i].op <= opJGeS {
			far = max(far, int(code[i].d)-start)
		}
	}
	ahead[len(code)] = far
	return ahead
}

// hoisted is an instruction that can run before the action's first access to a register.
type hoisted struct {
	in     instr
	at     int // its place
	from   [3]int
	needed bool
}

// hoist finds what can be computed from what slots hold when the action begins, as far as hashes and divisions need it. It returns the code
// for that, and leaves moves in its places.
func (b *builder) hoist(start int) []instr {
	code := b.code[start:]
	ahead := coverage(code, start)
	const unknown = -1
	now := map[uint32]int{} // slots that were written: by which hoisted instruction, or unknown
	var all []hoisted
	top := uint32(b.temps)
scan:
	for i := range code {
		in := &code[i]
		for _, s := range append(in.operands(), &in.d) {
			if b.isTemp(*s) {
				top = max(top, *s+1)
			}
		}
		switch {
		case in.pure() || in.op == opHash && b.prog.calcs[in.a].fn != nil:
		case in.op == opRegRd:
			now[in.d] = unknown
			continue
		case in.op >= opJmp && in.op <= opJGeS, in.op == opRegWr, in.op == opCount, in.op == opExit:
			continue
		default: // may write any slot
			break scan
		}
		h := hoisted{in: *in, at: i, from: [3]int{unknown, unknown, unknown}}
		ok := ahead[i] <= i
		if in.op == opHash { // it reads slots of its own
			for _, s := range b.prog.calcs[in.a].reads() {
				if _, written := now[s]; written {
					ok = false
				}
			}
		} else {
			for j, s := range h.in.operands() {
				if k, written := now[*s]; written {
					ok = ok && k != unknown
					h.from[j] = k
				}
			}
		}
		now[in.d] = unknown
		if ok {
			now[in.d] = len(all)
			all = append(all, h)
		}
	}
	for i := len(all) - 1; i >= 0; i-- {
		h := &all[i]
		switch h.in.op {
		case opCRC32M, opHash, opMod, opDiv:
			h.needed = true
		}
		for _, k := range h.from {
			if h.needed && k != unknown {
				all[k].needed = true
			}
		}
	}
	var early []instr
	for i := range all {
		h := &all[i]
		if !h.needed {
			continue
		}
		if top >= uint32(b.temps+b.tempCap) {
			return nil
		}
		code[h.at] = instr{op: opMov, d: h.in.d, a: top, imm: ^uint64(0)}
		if h.in.op != opHash {
			for j, s := range h.in.operands() {
				if k := h.from[j]; k != unknown {
					*s = all[k].in.d
				}
			}
		}
		h.in.d = top
		top++
		early = append(early, h.in)
	}
	return early
}
