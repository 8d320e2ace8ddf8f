// SPDX-License-Identifier: Apache-2.0

package softswitch

// fuseReadOut makes one step of a long run of "read cell, write zero to it, add one to the index" into neighbouring fields.
func (b *builder) fuseReadOut(start int) {
	const shortest = 4
	out := b.code[:start:start]
	code := b.code[start:]
	var fused []instr
	for i := 0; i < len(code); {
		n, ro := readOutAt(b, code[i:])
		if n < shortest {
			fused = append(fused, code[i])
			i++
			continue
		}
		b.fns = append(b.fns, func(p *packet) { p.st.regs[ro.reg].readAndClear(p, ro) })
		b.use(using(slot1(uint32(ro.index))))
		fused = append(fused, instr{op: opCall, a: uint32(len(b.fns) - 1)})
		i += 3 * n
	}
	b.code = append(out, fused...)
}

// readOutAt returns how many cells the code reads and clears from its start on.
func readOutAt(b *builder, code []instr) (int, *readOut) {
	n := 0
	ro := &readOut{}
	for ; len(code) >= 3; code = code[3:] {
		rd, wr, add := &code[0], &code[1], &code[2]
		if rd.op != opRegRd || wr.op != opRegWr || add.op != opAdd || rd.a != wr.a || rd.b != wr.b || add.d != rd.b || add.a != rd.b || rd.d == rd.b {
			break
		}
		zero, ok1 := b.constOf(wr.c)
		one, ok2 := b.constOf(add.b)
		if !ok1 || !ok2 || zero != 0 || one != 1 {
			break
		}
		switch {
		case n == 0:
			ro.reg, ro.index, ro.first, ro.mask, ro.indexMask = int(rd.a), int(rd.b), int(rd.d), rd.imm, add.imm
		case int(rd.a) != ro.reg || int(rd.b) != ro.index || rd.imm != ro.mask || add.imm != ro.indexMask:
			ro.count = n
			return n, ro
		}
		if n == 1 {
			ro.step = int(rd.d) - ro.first
		}
		if n > 0 && int(rd.d) != ro.first+n*ro.step || n > 0 && ro.step <= 0 {
			break
		}
		n++
	}
	ro.count = n
	return n, ro
}
