// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

// Instructions of distinct and reduce: keys of tuples, and the values of each key.

package kernel

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/netsketch/netsketch/hostagent/omnimon/query"
)

// stackKey is where the key of a map begins on the stack.
const stackKey = 512

// makeKey writes the columns of a tuple to the stack, as the key of a map. It returns the size of
// the key, and where the columns are in it.
func (g *generator) makeKey(names []string) (size int, where []rowValue, err error) {
	where = make([]rowValue, len(names))
	family := -1
	put := func(bytes int) (at int) {
		at, size = size, size+bytes
		return at
	}
	fits := func() bool { return size <= maxKey }
	for i, n := range names { // sorted by size, so that all are aligned
		o := g.columns[n]
		where[i].operand = o
		switch {
		case o.constant != nil:
		case o.kind == query.Text:
			return 0, nil, errPayload
		case o.kind == query.Address:
			family = 0
			where[i].at = put(16)
			if fits() {
				for j := int16(0); j < 16; j += 8 {
					g.emit(asm.LoadMem(asm.R1, asm.R6, o.offset+j, asm.DWord),
						asm.StoreMem(asm.RFP, int16(where[i].at)+j-stackKey, asm.R1, asm.DWord))
				}
			}
		}
	}
	for _, wide := range []bool{true, false} {
		for i, n := range names {
			o := g.columns[n]
			if o.constant != nil || o.kind != query.Integer || (o.size == asm.DWord) != wide {
				continue
			}
			store := asm.Word
			if wide {
				store = asm.DWord
			}
			where[i].at = put(store.Sizeof())
			if fits() {
				g.load(asm.R1, o)
				g.emit(asm.StoreMem(asm.RFP, int16(where[i].at)-stackKey, asm.R1, store))
			}
		}
	}
	if family == 0 {
		family = put(4)
		if fits() {
			g.emit(asm.LoadMem(asm.R1, asm.R6, familyAt, asm.Byte),
				asm.StoreMem(asm.RFP, int16(family)-stackKey, asm.R1, asm.Word))
		}
	}
	for i := range where {
		where[i].family = family
	}
	for size == 0 || size%8 > 0 {
		if at := put(4); fits() {
			g.emit(asm.StoreImm(asm.RFP, int16(at)-stackKey, 0, asm.Word))
		}
	}
	if !fits() {
		return 0, nil, unsupported(fmt.Sprintf("its keys have %d bytes, more than %d", size, maxKey))
	}
	return size, where, nil
}

// newHash creates a hash map.
func (g *generator) newHash(key, value int) (*ebpf.Map, error) {
	return ebpf.NewMap(&ebpf.MapSpec{Name: "query_groups", Type: ebpf.Hash, KeySize: uint32(key), ValueSize: uint32(value),
		MaxEntries: uint32(g.tuples), Flags: noPrealloc})
}

const noPrealloc = 1 // BPF_F_NO_PREALLOC

// newFront creates the map front. All steps need at least its header.
func (g *generator) newFront() (err error) {
	r := g.kept
	if r.groups != nil {
		for r.entries = frontEntries; frontHeader+r.entries*r.entry() > frontBytes; {
			r.entries /= 2
		}
	}
	r.front, err = ebpf.NewMap(&ebpf.MapSpec{Name: "query_front", Type: ebpf.PerCPUArray, KeySize: 4,
		ValueSize: uint32(frontHeader + r.entries*r.entry()), MaxEntries: 1})
	return err
}

// lookup writes instructions that set R0 to the address of the value that a map has for the key on
// the stack, or to 0.
func (g *generator) lookup(m *ebpf.Map) {
	g.emit(asm.LoadMapPtr(asm.R1, m.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -stackKey),
		asm.FnMapLookupElem.Call())
}

// insert adds the key on the stack to a map, with the value at an offset of the stack. R0 is 0 or
// an error.
func (g *generator) insert(m *ebpf.Map, value int32) {
	g.emit(asm.LoadMapPtr(asm.R1, m.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -stackKey),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, value), asm.Mov.Imm(asm.R4, int32(ebpf.UpdateNoExist)),
		asm.FnMapUpdateElem.Call())
}

const exists = -17 // -EEXIST

// distinct lets the first tuple of equal ones pass.
func (g *generator) distinct(names []string) error {
	r := g.kept
	size, where, err := g.makeKey(names)
	if err != nil {
		return err
	}
	m, err := g.newHash(size, 8)
	if err != nil {
		return err
	}
	r.seen, r.key, r.columns = append(r.seen, m), size, where
	g.lookup(m)
	g.emit(asm.JNE.Imm(asm.R0, 0, g.next))
	g.insert(m, -stackZero)
	passed := g.newLabel()
	g.emit(asm.JEq.Imm(asm.R0, 0, passed), asm.JEq.Imm(asm.R0, exists, g.next))
	g.goTo(g.dropped)
	g.at(passed)
	return nil
}

// reduce computes the values of a packet, and adds them to its group.
func (g *generator) reduce(o *query.Operator) error {
	if len(o.Columns) > maxValues {
		return unsupported(fmt.Sprintf("it has %d aggregates, more than %d", len(o.Columns), maxValues))
	}
	var names, functions []string
	for _, k := range o.Keys {
		names = append(names, k.Text)
	}
	for i, c := range o.Columns {
		functions = append(functions, c.Function)
		if c.Expression == nil {
			continue
		}
		if err := g.integer(c.Expression, 0); err != nil {
			return err
		}
		g.emit(asm.StoreMem(asm.RFP, valueAt(i), asm.R1, asm.DWord))
	}
	return g.keep(names, functions)
}

// valueAt is the place of a value on the stack. They are in the order of the values of maps.
func valueAt(i int) int16 { return int16(-stackValues + 8*i) }

func adds(function string) bool { return function == "sum" || function == "count" }

// keep adds the values on the stack to the group of a tuple. It computes the values of count, and
// multiplies sums by the packets of a piece.
func (g *generator) keep(names, functions []string) (err error) {
	r := g.kept
	if r.key, r.columns, err = g.makeKey(names); err != nil {
		return err
	}
	r.values = functions
	for i := range functions {
		r.columns = append(r.columns, rowValue{operand: operand{kind: query.Integer}, inValues: true, at: i})
	}
	if r.groups, err = g.newHash(r.key, 8*len(r.values)); err != nil {
		return err
	}
	if err = g.newFront(); err != nil {
		return err
	}
	g.emit(asm.LoadMem(asm.R1, asm.R7, sampleAt(unsafe.Offsetof(piece.Packets)), asm.Word))
	for i, f := range functions {
		switch f {
		case "count":
			g.emit(asm.StoreMem(asm.RFP, valueAt(i), asm.R1, asm.DWord))
		case "sum":
			g.emit(asm.LoadMem(asm.R2, asm.RFP, valueAt(i), asm.DWord), asm.Mul.Reg(asm.R2, asm.R1),
				asm.StoreMem(asm.RFP, valueAt(i), asm.R2, asm.DWord))
		}
	}
	group := g.newLabel()
	g.keepInFront(group)
	g.at(group)
	g.keepInGroup()
	return nil
}

// keepInFront adds the values to the table of the processor, or jumps to the label group if another
// key has the place.
func (g *generator) keepInFront(group string) {
	r := g.kept
	claim := g.newLabel()
	g.element(r.front)
	g.emit(asm.JEq.Imm(asm.R0, 0, group), asm.LoadImm(asm.R3, hashFactor, asm.DWord), asm.Mov.Imm(asm.R1, 0))
	for i := 0; i < r.key; i += 8 {
		g.emit(asm.LoadMem(asm.R2, asm.RFP, int16(i-stackKey), asm.DWord), asm.Xor.Reg(asm.R1, asm.R2),
			asm.Mul.Reg(asm.R1, asm.R3), asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, 32), asm.Xor.Reg(asm.R1, asm.R2))
	}
	g.emit(asm.And.Imm(asm.R1, int32(r.entries-1)), asm.Mul.Imm(asm.R1, int32(r.entry())), asm.Add.Reg(asm.R0, asm.R1),
		asm.Add.Imm(asm.R0, frontHeader), asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord))
	g.loadTag(asm.R2)
	g.emit(asm.JNE.Reg(asm.R1, asm.R2, claim))
	for i := 0; i < r.key; i += 8 {
		g.emit(asm.LoadMem(asm.R1, asm.R0, int16(entryHeader+i), asm.DWord),
			asm.LoadMem(asm.R2, asm.RFP, int16(i-stackKey), asm.DWord),
			asm.JNE.Reg(asm.R1, asm.R2, group))
	}
	for i, f := range r.values {
		at := int16(entryHeader + r.key + 8*i)
		g.emit(asm.LoadMem(asm.R1, asm.RFP, valueAt(i), asm.DWord))
		if adds(f) {
			g.emit(asm.LoadMem(asm.R2, asm.R0, at, asm.DWord), asm.Add.Reg(asm.R1, asm.R2))
		} else {
			keep := g.newLabel()
			g.emit(asm.LoadMem(asm.R2, asm.R0, at, asm.DWord), reaches(f).Reg(asm.R2, asm.R1, keep),
				asm.StoreMem(asm.R0, at, asm.R1, asm.DWord))
			g.at(keep)
			continue
		}
		g.emit(asm.StoreMem(asm.R0, at, asm.R1, asm.DWord))
	}
	g.goTo(g.next)
	g.at(claim)
	g.emit(asm.StoreMem(asm.R0, 0, asm.R2, asm.DWord))
	for i := 0; i < r.key; i += 8 {
		g.emit(asm.LoadMem(asm.R1, asm.RFP, int16(i-stackKey), asm.DWord),
			asm.StoreMem(asm.R0, int16(entryHeader+i), asm.R1, asm.DWord))
	}
	for i := range r.values {
		g.emit(asm.LoadMem(asm.R1, asm.RFP, valueAt(i), asm.DWord),
			asm.StoreMem(asm.R0, int16(entryHeader+r.key+8*i), asm.R1, asm.DWord))
	}
	g.goTo(g.next)
}

// reaches returns the comparison that holds if a value does not change a maximum or minimum.
func reaches(function string) asm.JumpOp {
	if function == "max" {
		return asm.JSGE
	}
	return asm.JSLE
}

// loadTag sets a register to the epoch plus one.
func (g *generator) loadTag(r asm.Register) {
	g.emit(asm.LoadMem(r, asm.R6, sampleAt(unsafe.Offsetof(sample.Epoch)), asm.DWord), asm.Add.Imm(r, 1))
}

// keepInGroup adds the values to the map of all processors.
func (g *generator) keepInGroup() {
	r := g.kept
	found := g.newLabel()
	g.lookup(r.groups)
	g.emit(asm.JNE.Imm(asm.R0, 0, found))
	g.insert(r.groups, -stackValues)
	g.emit(asm.JEq.Imm(asm.R0, 0, g.next), asm.JNE.Imm(asm.R0, exists, g.dropped))
	g.lookup(r.groups) // another processor inserted the key
	g.emit(asm.JEq.Imm(asm.R0, 0, g.dropped))
	g.at(found)
	g.emit(asm.Mov.Reg(asm.R8, asm.R0))
	for i, f := range r.values {
		at := int16(8 * i)
		g.emit(asm.LoadMem(asm.R1, asm.RFP, valueAt(i), asm.DWord))
		if adds(f) {
			g.emit(asm.AddAtomic.Mem(asm.R8, asm.R1, asm.DWord, at))
			continue
		}
		done := g.newLabel()
		for range valueAttempts {
			g.emit(asm.LoadMem(asm.R0, asm.R8, at, asm.DWord), reaches(f).Reg(asm.R0, asm.R1, done), asm.Mov.Reg(asm.R2, asm.R0),
				compareAndSwap(asm.R8, at, asm.R1), asm.JEq.Reg(asm.R0, asm.R2, done))
		}
		g.goTo(g.dropped)
		g.at(done)
	}
}

// compareAndSwap replaces R0 in memory by a register, and sets R0 to the earlier value. Version
// 0.22 of the library encodes the operation only if it is in Constant.
func compareAndSwap(base asm.Register, offset int16, with asm.Register) asm.Instruction {
	i := asm.CmpXchg.Mem(base, with, asm.DWord, offset)
	i.Constant = int64(asm.CmpXchg >> 8)
	return i
}

// failures counts the packets that a step has no result for.
func (g *generator) failures() {
	add, count := g.newLabel(), g.newLabel()
	if !g.used[g.undefined] && !g.used[g.dropped] {
		return
	}
	g.goTo(g.next)
	if g.used[g.undefined] {
		g.at(g.undefined)
		g.emit(asm.Mov.Imm(asm.R8, 8))
		if g.used[g.dropped] {
			g.goTo(count)
		}
	}
	if g.used[g.dropped] {
		g.at(g.dropped)
		g.emit(asm.Mov.Imm(asm.R8, 16))
	}
	g.at(count)
	g.element(g.kept.front)
	g.emit(asm.JEq.Imm(asm.R0, 0, g.next), asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord))
	g.loadTag(asm.R2)
	g.emit(asm.JEq.Reg(asm.R1, asm.R2, add), asm.StoreMem(asm.R0, 0, asm.R2, asm.DWord))
	g.zero(asm.R0, 8)
	g.zero(asm.R0, 16)
	g.at(add)
	g.emit(asm.Add.Reg(asm.R0, asm.R8), asm.LoadMem(asm.R1, asm.R7, sampleAt(unsafe.Offsetof(piece.Packets)), asm.Word),
		asm.LoadMem(asm.R2, asm.R0, 0, asm.DWord), asm.Add.Reg(asm.R1, asm.R2), asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord))
}
