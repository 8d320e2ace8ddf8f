// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

// The instructions of expressions of queries: their values, and jumps on conditions.

package kernel

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/cilium/ebpf/asm"

	"github.com/netsketch/netsketch/hostagent/omnimon/query"
)

// direct returns the operand of an expression without an operation: a constant or a field. ok is
// false for other expressions and for unknown fields.
func (g *generator) direct(e *query.Expression) (o operand, ok bool) {
	switch {
	case e.Operation != "":
		return operand{}, false
	case e.Constant != nil:
		return operand{constant: e.Constant, kind: e.Constant.Type}, true
	}
	o, ok = g.columns[e.Field]
	return o, ok
}

// load writes instructions that copy an integer operand to a register.
func (g *generator) load(to asm.Register, o operand) {
	if o.constant != nil {
		g.emit(asm.LoadImm(to, o.constant.Int, asm.DWord))
	} else {
		g.emit(asm.LoadMem(to, o.base, o.offset, o.size))
	}
}

// integer writes instructions that put the value of an expression into R1, or jump to the label
// undefined. They leave the first temps values on the stack as they are.
func (g *generator) integer(e *query.Expression, temps int) error {
	if o, ok := g.direct(e); ok {
		if o.kind != query.Integer {
			return errPayload
		}
		g.load(asm.R1, o)
		return nil
	}
	if err := g.both(e, temps); err != nil {
		return err
	}
	switch e.Operation {
	case "+":
		g.emit(asm.Add.Reg(asm.R1, asm.R2))
	case "-":
		g.emit(asm.Sub.Reg(asm.R1, asm.R2))
	case "*":
		g.emit(asm.Mul.Reg(asm.R1, asm.R2))
	case "&":
		g.emit(asm.And.Reg(asm.R1, asm.R2))
	case "|":
		g.emit(asm.Or.Reg(asm.R1, asm.R2))
	case "/":
		g.divide()
	default:
		return unsupported("it has the operation " + e.Operation)
	}
	return nil
}

// both writes instructions that put the operands of an operation on integers into R1 and R2.
func (g *generator) both(e *query.Expression, temps int) error {
	if err := g.integer(e.Left, temps); err != nil {
		return err
	}
	if o, ok := g.direct(e.Right); ok && o.kind == query.Integer {
		g.load(asm.R2, o)
		return nil
	}
	if temps == maxTemps {
		return unsupported("its expressions are nested too deeply")
	}
	at := int16(-stackZero - 8*(temps+1))
	g.emit(asm.StoreMem(asm.RFP, at, asm.R1, asm.DWord))
	if err := g.integer(e.Right, temps+1); err != nil {
		return err
	}
	g.emit(asm.Mov.Reg(asm.R2, asm.R1), asm.LoadMem(asm.R1, asm.RFP, at, asm.DWord))
	return nil
}

// divide divides R1 by R2. Kernels before Linux 6.6 divide unsigned integers only.
func (g *generator) divide() {
	dividend, divisor, positive := g.newLabel(), g.newLabel(), g.newLabel()
	g.emit(
		asm.JEq.Imm(asm.R2, 0, g.undefined),
		asm.Mov.Reg(asm.R3, asm.R1),
		asm.Xor.Reg(asm.R3, asm.R2),
		asm.JSGE.Imm(asm.R1, 0, dividend),
		asm.Mul.Imm(asm.R1, -1),
	)
	g.at(dividend)
	g.emit(asm.JSGE.Imm(asm.R2, 0, divisor), asm.Mul.Imm(asm.R2, -1))
	g.at(divisor)
	g.emit(asm.Div.Reg(asm.R1, asm.R2), asm.JSGE.Imm(asm.R3, 0, positive), asm.Mul.Imm(asm.R1, -1))
	g.at(positive)
}

// comparisons are the jumps of comparisons, and of their opposites.
var comparisons = map[string][2]asm.JumpOp{"==": {asm.JEq, asm.JNE}, "!=": {asm.JNE, asm.JEq},
	"<": {asm.JSLT, asm.JSGE}, "<=": {asm.JSLE, asm.JSGT}, ">": {asm.JSGT, asm.JSLE}, ">=": {asm.JSGE, asm.JSLT}}

// jump jumps to a label if a condition has a value, and goes on otherwise.
func (g *generator) jump(e *query.Expression, to string, when bool) error {
	switch e.Operation {
	case "true", "false":
		g.static(e.Operation == "true", to, when)
		return nil
	case "!":
		return g.jump(e.Left, to, !when)
	case "&&", "||":
		if (e.Operation == "||") == when { // one of both conditions suffices
			if err := g.jump(e.Left, to, when); err != nil {
				return err
			}
			return g.jump(e.Right, to, when)
		}
		skip := g.newLabel()
		if err := g.jump(e.Left, skip, !when); err != nil {
			return err
		}
		if err := g.jump(e.Right, to, when); err != nil {
			return err
		}
		g.at(skip)
		return nil
	case "in", "contains":
		return g.jumpSpecial(e, to, when)
	}
	if kind := g.kind(e.Left); kind != query.Integer {
		return g.jumpSpecial(e, to, when)
	}
	if err := g.both(e, 0); err != nil {
		return err
	}
	op := comparisons[e.Operation][0]
	if !when {
		op = comparisons[e.Operation][1]
	}
	g.emit(op.Reg(asm.R1, asm.R2, to))
	return nil
}

// kind is the type of an expression.
func (g *generator) kind(e *query.Expression) query.Type {
	if o, ok := g.direct(e); ok {
		return o.kind
	}
	return query.Integer
}

// static jumps to a label if a value that is known when the program is made equals when.
func (g *generator) static(value bool, to string, when bool) {
	if value == when {
		g.goTo(to)
	}
}

// jumpSpecial works as jump, for comparisons of addresses and text. Both sides must be operands.
func (g *generator) jumpSpecial(e *query.Expression, to string, when bool) error {
	left, ok := g.direct(e.Left)
	right, also := g.direct(e.Right)
	if !ok || !also || left.kind == query.Text && (left.constant == nil || right.constant == nil) {
		return errPayload
	}
	if e.Operation == "!=" {
		when = !when
	}
	if left.constant == nil && right.constant == nil { // two of the addresses of a packet
		if left.offset == right.offset {
			g.static(true, to, when)
			return nil
		}
		differ := g.newLabel()
		for i := int16(0); i < 16; i += 8 {
			g.emit(asm.LoadMem(asm.R1, asm.R6, left.offset+i, asm.DWord), asm.LoadMem(asm.R2, asm.R6, right.offset+i, asm.DWord),
				asm.JNE.Reg(asm.R1, asm.R2, differ))
		}
		g.outcome(differ, to, when)
		return nil
	}
	if left.constant != nil && right.constant != nil {
		g.static(compareConstants(e.Operation, left.constant, right.constant), to, when)
		return nil
	}
	if left.constant != nil {
		left, right = right, left
	}
	prefix := right.constant.Prefix
	if right.kind == query.Address {
		a := right.constant.Address
		if a.Zone() != "" {
			g.static(false, to, when)
			return nil
		}
		prefix = netip.PrefixFrom(a, a.BitLen())
	}
	g.jumpPrefix(left, prefix, to, when)
	return nil
}

// outcome jumps to a label if no jump to the label differ was taken and when is true, or if one was
// and when is false.
func (g *generator) outcome(differ, to string, when bool) {
	if !when {
		skip := g.newLabel()
		g.goTo(skip)
		g.at(differ)
		g.goTo(to)
		g.at(skip)
		return
	}
	g.goTo(to)
	g.at(differ)
}

// jumpPrefix compares an address of the packet with a prefix.
func (g *generator) jumpPrefix(o operand, prefix netip.Prefix, to string, when bool) {
	differ, family := g.newLabel(), int32(1)
	if prefix.Addr().Is4() {
		family = 0
	}
	g.emit(asm.LoadMem(asm.R1, asm.R6, familyAt, asm.Byte), asm.JNE.Imm(asm.R1, family, differ))
	var value, mask [16]byte
	copy(value[:], prefix.Masked().Addr().AsSlice())
	for i := range prefix.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	for i := 0; i < 16; i += 8 {
		v, m := binary.NativeEndian.Uint64(value[i:]), binary.NativeEndian.Uint64(mask[i:])
		if m == 0 {
			continue
		}
		g.emit(asm.LoadMem(asm.R1, asm.R6, o.offset+int16(i), asm.DWord))
		if m != 1<<64-1 {
			g.emit(asm.LoadImm(asm.R2, int64(m), asm.DWord), asm.And.Reg(asm.R1, asm.R2))
		}
		g.emit(asm.LoadImm(asm.R2, int64(v), asm.DWord), asm.JNE.Reg(asm.R1, asm.R2, differ))
	}
	g.outcome(differ, to, when)
}

// compareConstants returns whether an operation on two constants is true: in, contains, or else ==.
func compareConstants(operation string, left, right *query.Value) bool {
	switch operation {
	case "in":
		return right.Prefix.Contains(left.Address)
	case "contains":
		return strings.Contains(left.Text, right.Text)
	}
	return *left == *right
}
