// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/netsketch/netsketch/plugins/omnimon/query"
)

// A generator writes programs that run queries on samples: the steps of queries one after the
// other, for each piece of a sample. A step keeps its results in maps:
//
//	front   a table of each processor for the keys that come first, without atomic instructions
//	groups  a hash map of all processors, for the keys that find their place in front taken
//	seen    a hash map of all processors for each distinct
//
// R6 is the sample, R7 the piece, R8 is free, R9 counts pieces.
type generator struct {
	tables       *tables
	tuples       int
	instructions asm.Instructions
	label        string            // of the next instruction
	same         map[string]string // labels of the same instruction
	maps         int               // of the program
	labels       int
	used         map[string]bool // labels that are jumped to

	// Of the step.
	columns                  map[string]operand
	slots                    int    // of the stack that are used
	undefined, dropped, next string // labels: count the packet as one of these, or go on with the next step
	kept                     *rows
}

// The stack of a generated program, as negative offsets of the frame pointer.
const (
	stackContext  = 8
	stackZero     = 16 // the key of the only element of an array
	stackTemps    = stackZero + 8*maxTemps
	stackSlots    = stackTemps + 8*maxSlots
	stackValues   = stackSlots + 8*maxValues
	maxTemps      = 8
	maxSlots      = 18
	maxValues     = 8
	maxKey        = 512 - stackValues
	maxCode       = 24_000 // instructions of one program; jumps reach 32,767
	maxMaps       = 64     // of one program, in the kernel
	programMaps   = 2      // of each program: scratch and queries
	frontBytes    = 32 << 10
	frontHeader   = 32 // bytes: epoch plus one, undefined and dropped packets
	frontEntries  = 128
	entryHeader   = 8                   // bytes: epoch plus one
	hashFactor    = -0x61c8864680b583eb // as in bpf/common.h
	valueAttempts = 8                   // to change a value that other processors change
)

// unsupported is why the kernel does not run a step.
type unsupported string

func (u unsupported) Error() string { return string(u) }

const (
	errPayload = unsupported("it reads the payload")
	errFull    = unsupported("the queries are too large for the kernel")
)

// operand is a constant, or a value in memory: an address in the key of a sample, or an integer.
type operand struct {
	constant *query.Value
	kind     query.Type
	base     asm.Register
	offset   int16
	size     asm.Size // of an integer
}

// rows are the results of a step in one generation.
type rows struct {
	step          *query.Step
	front, groups *ebpf.Map // groups: nil if a map of seen has the results
	seen          []*ebpf.Map
	key           int        // bytes
	values        []string   // functions
	entries       int        // of front
	columns       []rowValue // of tuples
	repeated      bool       // the only value is how many equal tuples there are
}

// rowValue is where a column of a tuple is: a constant, in the key or in the values.
type rowValue struct {
	operand
	inValues bool
	at       int // bytes of the key, or number of the value
	family   int // of an address: bytes of the key
}

func (r *rows) entry() int { return entryHeader + r.key + 8*len(r.values) }

func (r *rows) maps() []*ebpf.Map {
	return slices.DeleteFunc(append(slices.Clone(r.seen), r.front, r.groups), func(m *ebpf.Map) bool { return m == nil })
}

func (r *rows) close() {
	for _, m := range r.maps() {
		_ = m.Close()
	}
}

// toCopies is the label behind the steps that the kernel runs.
const toCopies = "copies"

// generated are the programs of a set in one generation, with the results of its steps; nil for
// those that the agent runs.
type generated struct {
	programs []*ebpf.Program
	rows     []*rows
}

func (g *generated) close() {
	for _, p := range g.programs {
		_ = p.Close()
	}
	for _, r := range g.rows {
		if r != nil {
			r.close()
		}
	}
}

// refused is why the kernel does not load a program.
type refused struct{ error }

// generate loads the programs of steps, which are those of map queries from number first on. copied
// has, for each step, why the kernel does not run it, which generate completes.
func generate(t *tables, steps []*query.Step, tuples, first int, copied []string) (out *generated, err error) {
	g := &generator{tables: t, tuples: tuples}
	out = &generated{rows: make([]*rows, len(steps))}
	defer func() {
		if err != nil {
			out.close()
		}
	}()
	load := func() error {
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "nsketch_queries", Type: ebpf.SchedCLS, License: "Apache-2.0",
			Instructions: g.finish()})
		if err != nil {
			return refused{err}
		}
		out.programs = append(out.programs, program)
		at := first + len(out.programs) - 1
		return t.maps[omnimonMapQueries].Put(uint32(at), program)
	}
	g.begin()
	for i, s := range steps {
		if copied[i] != "" {
			continue
		}
		why, err := g.add(s)
		if why == errFull && g.maps > programMaps && len(out.programs) < queryPrograms-1 {
			g.at(toCopies)
			g.end(asm.Instructions{asm.Mov.Imm(asm.R3, int32(first+len(out.programs)+1))})
			if err := load(); err != nil {
				return out, err
			}
			g.begin()
			why, err = g.add(s)
		}
		if err != nil {
			return out, err
		}
		if copied[i] = string(why); why == "" {
			out.rows[i] = g.kept
		}
	}
	g.at(toCopies)
	var last asm.Instructions
	for i, s := range steps {
		if copied[i] != "" {
			g.mayMatch(s)
			last = asm.Instructions{
				asm.LoadMem(asm.R1, asm.R6, sampleAt(unsafe.Offsetof(sample.Copy)), asm.Byte),
				asm.JEq.Imm(asm.R1, 0, "end"),
				asm.Mov.Imm(asm.R3, copyProgram),
			}
		}
	}
	g.end(last)
	return out, load()
}

// add adds a step to a program, or returns why the kernel does not run it.
func (g *generator) add(s *query.Step) (unsupported, error) {
	before, label := len(g.instructions), g.label
	err := g.step(s)
	maps := g.maps + len(g.kept.maps())
	if err == nil && (len(g.instructions) > maxCode || maps > maxMaps) {
		err = errFull
	}
	if err == nil {
		g.maps = maps
		return "", nil
	}
	g.instructions, g.label = g.instructions[:before], label
	g.kept.close()
	if why, ok := errors.AsType[unsupported](err); ok {
		return why, nil
	}
	return "", err
}

func (g *generator) emit(all ...asm.Instruction) {
	for _, i := range all {
		if g.label != "" {
			i, g.label = i.WithSymbol(g.label), ""
		}
		if r := i.Reference(); r != "" {
			g.used[r] = true
		}
		g.instructions = append(g.instructions, i)
	}
}

func (g *generator) newLabel() string {
	g.labels++
	return "l" + strconv.Itoa(g.labels)
}

// at puts a label in front of the next instruction.
func (g *generator) at(label string) {
	if g.label == "" {
		g.label = label
	} else {
		g.same[label] = g.label
	}
}

// goTo jumps to a label. The kernel must not see that what follows cannot be reached.
func (g *generator) goTo(label string) {
	g.emit(asm.Mov.Imm(asm.R1, 0), asm.JEq.Imm(asm.R1, 0, label))
}

// zero clears 8 bytes of memory.
func (g *generator) zero(base asm.Register, offset int16) {
	g.emit(asm.StoreImm(base, offset, 0, asm.Word), asm.StoreImm(base, offset+4, 0, asm.Word))
}

func (g *generator) finish() asm.Instructions {
	for i := range g.instructions {
		if to, ok := g.same[g.instructions[i].Reference()]; ok {
			g.instructions[i] = g.instructions[i].WithReference(to)
		}
	}
	return g.instructions
}

func sampleAt(offset uintptr) int16 { return int16(offset) }

var (
	sample omnimonSample
	piece  = sample.Piece[0]

	keyAt    = unsafe.Offsetof(sample.Key)
	familyAt = sampleAt(keyAt + unsafe.Offsetof(sample.Key.V6))
)

const pieceBytes = int32(unsafe.Sizeof(omnimonSample{}.Piece[0]))

// packetColumns are the fields of packets.
func packetColumns() map[string]operand {
	integer := func(base asm.Register, offset uintptr, size asm.Size) operand {
		return operand{kind: query.Integer, base: base, offset: sampleAt(offset), size: size}
	}
	address := func(offset uintptr) operand {
		return operand{kind: query.Address, base: asm.R6, offset: sampleAt(keyAt + offset)}
	}
	return map[string]operand{
		"src":          address(unsafe.Offsetof(sample.Key.Src)),
		"dst":          address(unsafe.Offsetof(sample.Key.Dst)),
		"proto":        integer(asm.R6, keyAt+unsafe.Offsetof(sample.Key.Proto), asm.Byte),
		"sport":        integer(asm.R6, keyAt+unsafe.Offsetof(sample.Key.Sport), asm.Half),
		"dport":        integer(asm.R6, keyAt+unsafe.Offsetof(sample.Key.Dport), asm.Half),
		"length":       integer(asm.R7, unsafe.Offsetof(piece.Length), asm.Word),
		"flags":        integer(asm.R7, unsafe.Offsetof(piece.Flags), asm.Byte),
		"ttl":          integer(asm.R6, unsafe.Offsetof(sample.Ttl), asm.Byte),
		"window":       integer(asm.R6, unsafe.Offsetof(sample.Window), asm.Half),
		"dns_type":     integer(asm.R6, unsafe.Offsetof(sample.DnsType), asm.Half),
		"dns_response": integer(asm.R6, unsafe.Offsetof(sample.DnsResponse), asm.Byte),
		"flowlet":      integer(asm.R6, unsafe.Offsetof(sample.Flowlet), asm.Word),
		"payload":      {kind: query.Text},
	}
}

// begin begins a program and the loop over pieces.
func (g *generator) begin() {
	g.instructions, g.label, g.same, g.used, g.maps = nil, "", map[string]string{}, map[string]bool{}, programMaps
	g.emit(asm.StoreMem(asm.RFP, -stackContext, asm.R1, asm.DWord))
	g.zero(asm.RFP, -stackZero)
	g.element(g.tables.maps[omnimonMapScratch])
	g.emit(
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.Mov.Reg(asm.R7, asm.R6),
		asm.Add.Imm(asm.R7, int32(unsafe.Offsetof(sample.Piece))),
		asm.Mov.Imm(asm.R9, 0),
	)
	g.at("piece")
	g.emit(
		asm.LoadMem(asm.R1, asm.R6, sampleAt(unsafe.Offsetof(sample.Ready)), asm.Byte),
		asm.JEq.Imm(asm.R1, 0, toCopies),
	)
}

// element makes R0 the address of the only element of an array, or 0.
func (g *generator) element(m *ebpf.Map) {
	g.emit(
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -stackZero),
		asm.FnMapLookupElem.Call(),
	)
}

// end ends the loop over pieces, and the program. next makes R3 the number of the program that runs
// next, or jumps to the label end; nil: none follows.
func (g *generator) end(next asm.Instructions) {
	g.emit(
		asm.Add.Imm(asm.R7, pieceBytes),
		asm.Add.Imm(asm.R9, 1),
		asm.LoadMem(asm.R1, asm.R6, sampleAt(unsafe.Offsetof(sample.Pieces)), asm.Word),
		asm.JGE.Reg(asm.R9, asm.R1, "done"),
		asm.JLT.Imm(asm.R9, int32(len(sample.Piece)), "piece"),
	)
	g.at("done")
	if next != nil {
		g.emit(next...)
		g.emit(
			asm.LoadMem(asm.R1, asm.RFP, -stackContext, asm.DWord),
			asm.LoadMapPtr(asm.R2, g.tables.maps[omnimonMapQueries].FD()),
			asm.FnTailCall.Call(),
		)
	}
	g.at("end")
	g.emit(asm.Mov.Imm(asm.R0, -1), asm.Return())
}

// mayMatch asks for a copy of packets that the first filters of a step let pass.
func (g *generator) mayMatch(s *query.Step) {
	g.columns, g.slots, g.next = packetColumns(), 0, g.newLabel()
	before, label := len(g.instructions), g.label
	err := func() error {
		for _, o := range s.AtHosts() {
			switch o.Kind {
			case query.Filter:
				if divides(o.Condition) { // a packet that it divides by zero for is counted
					return nil
				}
				if err := g.jump(g.possible(o.Condition, true), g.next, false); err != nil {
					return err
				}
			case query.Map:
				if slices.ContainsFunc(o.Columns, func(c query.Column) bool { return divides(c.Expression) }) {
					return nil
				}
				if err := g.project(o); err != nil {
					return err
				}
			default:
				return nil
			}
		}
		return nil
	}()
	if err != nil || len(g.instructions) > maxCode+maxCode/8 { // copy all
		g.instructions, g.label = g.instructions[:before], label
	}
	g.emit(asm.StoreImm(asm.R6, sampleAt(unsafe.Offsetof(sample.Copy)), 1, asm.Byte))
	g.at(g.next)
}

// divides reports whether an expression may divide by zero.
func divides(e *query.Expression) bool {
	return e != nil && (e.Operation == "/" || divides(e.Left) || divides(e.Right))
}

// possible returns a condition that the kernel can evaluate and that is true at least where e is;
// with up false, one that is false at least where e is.
func (g *generator) possible(e *query.Expression, up bool) *query.Expression {
	switch e.Operation {
	case "!":
		return &query.Expression{Operation: "!", Left: g.possible(e.Left, !up)}
	case "&&", "||":
		return &query.Expression{Operation: e.Operation, Left: g.possible(e.Left, up), Right: g.possible(e.Right, up)}
	}
	if !g.readsPayload(e) {
		return e
	}
	return &query.Expression{Operation: strconv.FormatBool(up)}
}

func (g *generator) readsPayload(e *query.Expression) bool {
	if e == nil {
		return false
	}
	if e.Operation == "" && e.Constant == nil {
		o := g.columns[e.Field]
		return o.kind == query.Text && o.constant == nil
	}
	return g.readsPayload(e.Left) || g.readsPayload(e.Right)
}

// step writes a step, and creates its maps.
func (g *generator) step(s *query.Step) error {
	g.columns, g.slots, g.next = packetColumns(), 0, g.newLabel()
	g.undefined, g.dropped = g.newLabel(), g.newLabel()
	g.kept = &rows{step: s}
	if err := g.operators(s.AtHosts()); err != nil {
		return err
	}
	g.failures()
	g.at(g.next)
	return nil
}

func (g *generator) operators(all []*query.Operator) error {
	names := fieldNames(query.PacketFields())
	for i, o := range all {
		switch o.Kind {
		case query.Filter:
			if err := g.jump(o.Condition, g.next, false); err != nil {
				return err
			}
			continue
		case query.Reduce:
			return g.reduce(o)
		}
		if err := g.project(o); err != nil {
			return err
		}
		names = nil
		for _, c := range o.Columns {
			names = append(names, c.Name.Text)
		}
		if o.Kind == query.Distinct {
			if err := g.distinct(names); err != nil {
				return err
			}
			if i == len(all)-1 {
				return g.newFront()
			}
		}
	}
	g.kept.repeated = true
	return g.keep(names, []string{"count"})
}

func fieldNames(fields []query.Field) (names []string) {
	for _, f := range fields {
		names = append(names, f.Name)
	}
	return names
}

// project computes the columns of map or distinct.
func (g *generator) project(o *query.Operator) error {
	next := map[string]operand{}
	for _, c := range o.Columns {
		v, ok := g.direct(c.Expression)
		if !ok {
			if g.slots == maxSlots {
				return unsupported("it computes more than " + strconv.Itoa(maxSlots) + " values")
			}
			if err := g.integer(c.Expression, 0); err != nil {
				return err
			}
			g.slots++
			v = operand{kind: query.Integer, base: asm.RFP, offset: int16(-stackTemps - 8*g.slots), size: asm.DWord}
			g.emit(asm.StoreMem(v.base, v.offset, asm.R1, asm.DWord))
		}
		next[c.Name.Text] = v
	}
	g.columns = next
	return nil
}

// direct returns the operand that an expression without operation is.
func (g *generator) direct(e *query.Expression) (operand, bool) {
	switch {
	case e.Operation != "":
		return operand{}, false
	case e.Constant != nil:
		return operand{constant: e.Constant, kind: e.Constant.Type}, true
	}
	o, ok := g.columns[e.Field]
	return o, ok
}

// load makes a register an integer operand.
func (g *generator) load(to asm.Register, o operand) {
	if o.constant != nil {
		g.emit(asm.LoadImm(to, o.constant.Int, asm.DWord))
	} else {
		g.emit(asm.LoadMem(to, o.base, o.offset, o.size))
	}
}

// integer makes R1 the value of an expression, or jumps to the label undefined. temps of the stack
// are in use.
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

// both makes R1 and R2 the operands of an operation on integers.
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
		if (e.Operation == "||") == when { // one of both suffices
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

// static jumps to a label if a value that is known has another one.
func (g *generator) static(value bool, to string, when bool) {
	if value == when {
		g.goTo(to)
	}
}

// jumpSpecial is jump for comparisons of addresses and text, which are operands.
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

// compareConstants returns whether constants are equal, one is in the other or contains it.
func compareConstants(operation string, left, right *query.Value) bool {
	switch operation {
	case "in":
		return right.Prefix.Contains(left.Address)
	case "contains":
		return strings.Contains(left.Text, right.Text)
	}
	return *left == *right
}

// stackKey is the begin of the key of a map on the stack.
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
	for i, n := range names { // the largest first, so that all are aligned
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

// newFront creates the map front, of which all steps need at least the header.
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

// lookup makes R0 the value of the key on the stack, or 0.
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

// keep adds the values on the stack to the group of a tuple. Those of count are not there yet, and
// a sum is that of all packets of a piece.
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

// reaches is the comparison of a maximum or minimum with a value that does not change it.
func reaches(function string) asm.JumpOp {
	if function == "max" {
		return asm.JSGE
	}
	return asm.JSLE
}

// loadTag makes a register the epoch plus one.
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

// compareAndSwap replaces R0 in memory by a register, and makes R0 what was there. Version 0.22 of
// the library encodes the operation only if it is in Constant.
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
