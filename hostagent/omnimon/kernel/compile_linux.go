// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"slices"
	"strconv"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/netsketch/netsketch/hostagent/omnimon/query"
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
	label        string            // label of the next instruction
	same         map[string]string // by label: another label of the same instruction, which replaces it
	maps         int               // number of maps of the program
	labels       int
	used         map[string]bool // labels that instructions jump to

	// The fields below are about the current step.
	columns                  map[string]operand
	slots                    int    // slots of the stack that are used
	undefined, dropped, next string // labels that count the packet as undefined or dropped, or go on with the next step
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
	maxCode       = 24_000 // most instructions of one program; jumps reach 32,767
	maxMaps       = 64     // most maps of one program, in the kernel
	programMaps   = 2      // maps of each program besides its steps': scratch and queries
	frontBytes    = 32 << 10
	frontHeader   = 32 // bytes of the value epoch + 1 and of the counts of undefined and dropped packets
	frontEntries  = 128
	entryHeader   = 8                   // bytes of the value epoch + 1
	hashFactor    = -0x61c8864680b583eb // same factor as in bpf/common.h
	valueAttempts = 8                   // attempts to change a value that other processors change
)

// unsupported says why the kernel does not run a step.
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
	size     asm.Size // size of an integer
}

// rows are the results of a step in one generation.
type rows struct {
	step          *query.Step
	front, groups *ebpf.Map // groups has the results; nil if the last map of seen has them
	seen          []*ebpf.Map
	key           int        // bytes
	values        []string   // functions
	entries       int        // entries of map front
	columns       []rowValue // columns of tuples
	repeated      bool       // the only value is the count of equal tuples
}

// rowValue is the place of a column of a tuple: a constant, a part of the key, or one of the
// values.
type rowValue struct {
	operand
	inValues bool
	at       int // bytes of the key, or number of the value
	family   int // bytes of an address in the key
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

// generated are the programs of a set in one generation, with the results of its steps, nil for the
// steps that the agent runs.
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

// refused says why the kernel does not load a program.
type refused struct{ error }

// generate loads the programs of steps, which take the numbers from number on in map queries.
// copied has, for each step, the reason for which the kernel does not run it; generate completes
// copied.
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

// goTo jumps to a label. The kernel must not notice that the instructions behind the jump cannot be
// reached.
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

// element writes instructions that set R0 to the address of the only element of an array, or to 0.
func (g *generator) element(m *ebpf.Map) {
	g.emit(
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -stackZero),
		asm.FnMapLookupElem.Call(),
	)
}

// end ends the loop over pieces, and the program. next puts the number of the program that runs
// next into R3, or jumps to the label end; it is nil if no program follows.
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

// possible returns a condition that the kernel can evaluate. With up, the condition is true
// wherever e is true; otherwise it is false wherever e is false.
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
