// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"fmt"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
)

// Program is a compiled BMv2 JSON: immutable, and usable by any number of switches.
type Program struct {
	info programInfo

	code     []instr
	fns      []func(*packet)
	headers  []*header
	deparse  []*header
	selects  []*selectOp
	calcs    []*calculation
	locks    int // of registers, see locking.go
	deferred []deferred

	slots      []uint64   // what all slots of a packet start with: zeros, then the constants
	phv        int        // slots of headers and metadata
	zero       []slotSpan // of them, those to clear for each packet
	params     int        // where an action's parameters go
	keyScratch int        // room for two keys
	padBytes   int        // longest header

	parserPC, ingressPC, egressPC, deparserPC uint32

	std       stdFields
	noError   uint64
	coreError [errBase]uint64

	metadata   [][2]int // slots of metadata headers: from, to
	tables     []*tableDef
	profiles   []*profileDef
	digests    []digestDef
	fieldLists map[int][]fieldCopy
}

// fieldCopy is one field that a clone, resubmit or recirculation preserves.
type fieldCopy struct{ slot, words int }

type digestDef struct {
	DigestInfo
	fields []fieldCopy
}

type stdField struct {
	slot int
	mask uint64
}

// spans is the field's slot, or nothing.
func (f stdField) spans() []slotSpan {
	if f.slot < 0 {
		return nil
	}
	return []slotSpan{slot1(uint32(f.slot))}
}

// stdFields are the fields v1model's switch reads and writes by itself; a slot of -1 is one the program does not have.
type stdFields struct {
	ingressPort, egressSpec, egressPort, instanceType, packetLength stdField
	parserError, checksumError, mcastGrp, egressRid, priority, qid  stdField
	ingressTS, egressTS                                             stdField
	enqTS, enqDepth, deqDelta, deqDepth                             stdField
}

type programInfo struct {
	tables   []TableInfo
	actions  []ActionInfo
	regs     []RegisterInfo
	counters []CounterInfo
	meters   []MeterInfo
	profiles []ProfileInfo
	digests  []DigestInfo
	vsets    []ValueSetInfo
}

// Compile makes a program of a BMv2 JSON (p4c-bm2-ss, format version 2.x). What it cannot run it refuses: the error wraps
// ErrInvalid or ErrNotImplemented and names the construct and its place in the P4 source.
func Compile(json []byte) (*Program, error) { return compile(json, true) }

func compile(json []byte, optimize bool) (*Program, error) {
	file, err := bmv2json.Parse(json)
	if err != nil {
		return nil, fmt.Errorf("compiling: %w: %w", ErrInvalid, err)
	}
	b := &builder{
		file: file, plain: !optimize, prog: &Program{fieldLists: map[int][]fieldCopy{}},
		types: map[string]*headerLayout{}, headerNamed: map[string]*header{}, stacks: map[string]*stack{}, unions: map[string]*union{},
		unionStacks: map[string]*unionStack{}, consts: map[string]uint32{},
		objectNames: objectNames{
			actionByID: map[int]*action{}, regs: map[string]int{}, counters: map[string]int{}, meters: map[string]int{},
			directMtr: map[string]*directMeterDef{}, calcs: map[string]*calculation{}, profiles: map[string]int{}, tables: map[string]int{},
			vsets: map[string]int{}, vsetWidths: map[string][]int{}, digestID: map[int]int{}, fieldLists: map[int][]fieldCopy{},
		},
	}
	for _, step := range []func() error{b.layout, b.places, b.declare, b.declareTables, b.generate} {
		err := step()
		if err == nil {
			err = b.err
		}
		if err != nil {
			return nil, fmt.Errorf("compiling: %w", err)
		}
	}
	return b.prog, nil
}

// places decides where parameters, temporaries and constants begin.
func (b *builder) places() error {
	b.params = b.phv
	if err := b.declareActions(); err != nil {
		return err
	}
	widest := 1
	for _, h := range b.headers {
		for i := range h.t.fields {
			widest = max(widest, h.t.fields[i].words)
		}
	}
	b.tempCap = 1024 + 16*widest
	b.constAt = b.temps + b.tempCap
	return nil
}

// declare makes the objects that code refers to.
func (b *builder) declare() error {
	p := b.prog
	b.what = "standard metadata"
	if err := b.standardFields(); err != nil {
		return err
	}
	for i := range b.file.Registers {
		r := &b.file.Registers[i]
		if _, dup := b.regs[r.Name]; dup {
			return refuse(fmt.Sprintf("register %q", r.Name), r.Source, "is declared twice")
		}
		if words := (r.Width + 63) / 64; r.Size > maxRegisterWords/words {
			return refuse(fmt.Sprintf("register %q", r.Name), r.Source, "%d cells of %d bits; at most %d cells are supported", r.Size, r.Width, maxRegisterWords/words)
		}
		b.regs[r.Name] = len(p.info.regs)
		p.info.regs = append(p.info.regs, RegisterInfo{Name: r.Name, Width: r.Width, Size: r.Size})
	}
	for i := range b.file.Counters {
		c := &b.file.Counters[i]
		if _, dup := b.counters[c.Name]; dup {
			return refuse(fmt.Sprintf("counter %q", c.Name), c.Source, "is declared twice")
		}
		info := CounterInfo{Name: c.Name, Size: c.Size}
		if c.Direct {
			info.Table = c.Binding
		}
		b.counters[c.Name] = len(p.info.counters)
		p.info.counters = append(p.info.counters, info)
	}
	for i := range b.file.Meters {
		if err := b.declareMeter(&b.file.Meters[i]); err != nil {
			return err
		}
	}
	for i := range b.file.Calculations {
		c := &b.file.Calculations[i]
		if b.calcs[c.Name] != nil {
			return refuse(fmt.Sprintf("calculation %q", c.Name), c.Source, "is declared twice")
		}
		calc, err := b.calculation(c.Name, c.Algo, c.Inputs, c.Source)
		if err != nil {
			return err
		}
		b.calcs[c.Name] = calc
	}
	for i := range b.file.ValueSets {
		v := &b.file.ValueSets[i]
		if _, dup := b.vsets[v.Name]; dup {
			return refuse(fmt.Sprintf("value set %q", v.Name), v.Source, "is declared twice")
		}
		b.vsets[v.Name] = len(p.info.vsets)
		p.info.vsets = append(p.info.vsets, ValueSetInfo{Name: v.Name, Size: v.Size, Widths: []int{v.Width}})
	}
	for i := range b.file.LearnLists {
		l := &b.file.LearnLists[i]
		b.what, b.src = fmt.Sprintf("digest %q", l.Name), l.Source
		d := digestDef{DigestInfo: DigestInfo{Name: l.Name, ID: uint32(l.ID)}}
		if _, dup := b.digestID[l.ID]; dup {
			return refuse(b.what, l.Source, "id %d is declared twice", l.ID)
		}
		for _, e := range l.Elements {
			slot, words, width, ok := b.anyField(e)
			if !ok {
				return b.err
			}
			d.fields = append(d.fields, fieldCopy{slot, words})
			d.Widths = append(d.Widths, width)
		}
		b.digestID[l.ID] = len(p.digests)
		p.digests = append(p.digests, d)
		p.info.digests = append(p.info.digests, d.DigestInfo)
	}
	for i := range b.file.FieldLists {
		l := &b.file.FieldLists[i]
		b.what, b.src = fmt.Sprintf("field list %d %q", l.ID, l.Name), nil
		var list []fieldCopy
		for _, e := range l.Elements {
			slot, words, _, ok := b.anyField(e)
			if !ok {
				return b.err
			}
			list = append(list, fieldCopy{slot, words})
		}
		b.fieldLists[l.ID], p.fieldLists[l.ID] = list, list
	}
	return nil
}

const maxRegisterWords = 1 << 28

// anyField is a field or a header's validity.
func (b *builder) anyField(e *bmv2json.Expr) (slot, words, width int, ok bool) {
	if e.Field == validField {
		h := b.headerNamed[e.Name]
		if h == nil {
			b.failf("header %q is not declared", e.Name)
			return 0, 0, 0, false
		}
		return int(b.validSlot(h)), 1, 1, true
	}
	h, f, ok := b.fieldAt(e)
	if !ok {
		return 0, 0, 0, false
	}
	return h.base + f.slot, f.words, f.width, true
}

func (b *builder) declareMeter(m *bmv2json.Meter) error {
	what := fmt.Sprintf("meter %q", m.Name)
	if _, dup := b.meters[m.Name]; dup {
		return refuse(what, m.Source, "is declared twice")
	}
	if m.Size > 1<<22 {
		return refuse(what, m.Source, "%d cells; at most %d are supported", m.Size, 1<<22)
	}
	info := MeterInfo{Name: m.Name, Size: m.Size}
	if m.Type == "bytes" {
		info.Unit = MeterBytes
	}
	i := len(b.prog.info.meters)
	b.meters[m.Name] = i
	if m.Direct {
		info.Table = m.Binding
		b.what, b.src = what, m.Source
		d := &directMeterDef{info: i, unit: info.Unit}
		if m.Target == nil {
			return refuse(what, m.Source, "a direct meter without a field for its result")
		}
		h, f, ok := b.fieldTarget(m.Target)
		if !ok {
			return b.err
		}
		d.slot, d.mask = h.base+f.slot, maskOf(f.width)
		b.directMtr[m.Name] = d
	}
	b.prog.info.meters = append(b.prog.info.meters, info)
	return nil
}

// standardFields finds v1model's fields, under the names BMv2 knows or the file's aliases for them.
func (b *builder) standardFields() error {
	alias := map[string]*bmv2json.Expr{}
	for i := range b.file.Aliases {
		alias[b.file.Aliases[i].From] = b.file.Aliases[i].Target
	}
	find := func(header, field string, must bool) stdField {
		e := alias[header+"."+field]
		if e == nil {
			e = &bmv2json.Expr{Type: "field", Name: header, Field: field}
		}
		if h := b.headerNamed[e.Name]; h != nil && h.metadata {
			if f, ok := h.t.field(e.Field); ok && f.slot >= 0 && f.words == 1 {
				return stdField{h.base + f.slot, maskOf(f.width)}
			}
		}
		if must {
			b.failf("the program has no %s.%s: it is not compiled for v1model", header, field)
		}
		return stdField{slot: -1}
	}
	s := &b.prog.std
	const std, intr, q = "standard_metadata", "intrinsic_metadata", "queueing_metadata"
	s.ingressPort = find(std, "ingress_port", true)
	s.egressSpec = find(std, "egress_spec", true)
	s.egressPort = find(std, "egress_port", true)
	s.instanceType = find(std, "instance_type", true)
	s.packetLength = find(std, "packet_length", true)
	s.parserError = find(std, "parser_error", false)
	s.checksumError = find(std, "checksum_error", false)
	s.mcastGrp = find(intr, "mcast_grp", false)
	s.egressRid = find(intr, "egress_rid", false)
	s.priority = find(intr, "priority", false)
	s.ingressTS = find(intr, "ingress_global_timestamp", false)
	s.egressTS = find(intr, "egress_global_timestamp", false)
	s.enqTS = find(q, "enq_timestamp", false)
	s.enqDepth = find(q, "enq_qdepth", false)
	s.deqDelta = find(q, "deq_timedelta", false)
	s.deqDepth = find(q, "deq_qdepth", false)
	s.qid = find(q, "qid", false)
	return b.err
}

// generate makes the code: 0 is the end of every pipeline, then actions, parser, controls, deparser.
func (b *builder) generate() error {
	p := b.prog
	b.emit(instr{op: opEnd})
	b.groupRegisters()
	for i := range b.file.Actions {
		a := b.actionByID[b.file.Actions[i].ID]
		a.pc = b.here()
		b.body(a, a.locals)
		b.emit(instr{op: opRet})
		if b.err != nil {
			return b.err
		}
	}
	p.parserPC = b.here()
	if err := b.parser(); err != nil {
		return err
	}
	var err error
	if p.ingressPC, err = b.pipeline("ingress"); err != nil {
		return err
	}
	if p.egressPC, err = b.pipeline("egress"); err != nil {
		return err
	}
	p.deparserPC = b.here()
	if err := b.deparser(); err != nil {
		return err
	}
	for _, e := range b.file.Errors {
		for i, n := range coreErrors {
			if n == e.Name {
				p.coreError[i] = uint64(e.Value)
			}
		}
		if e.Name == "NoError" {
			p.noError = uint64(e.Value)
		}
	}
	p.fns, p.headers = b.fns, b.headers
	p.phv, p.params = b.phv, b.params
	p.keyScratch = b.constAt + len(b.constVal)
	p.slots = make([]uint64, p.keyScratch+2*b.maxKey)
	copy(p.slots[b.constAt:], b.constVal)
	for _, h := range b.headers {
		p.padBytes = max(p.padBytes, h.t.bytes+16)
		if h.metadata {
			p.metadata = append(p.metadata, [2]int{h.base, h.base + h.t.slots})
		}
	}
	b.compact()
	if !b.plain {
		b.eliminate()
		b.deferActions()
	}
	b.clearing()
	p.code = b.code
	for name, i := range b.vsets {
		if w, ok := b.vsetWidths[name]; ok {
			p.info.vsets[i].Widths = w
		}
	}
	for _, t := range p.tables {
		t.ConstEntries = t.ConstEntries || len(t.entries) > 0
		p.info.tables = append(p.info.tables, t.TableInfo)
	}
	for _, pr := range p.profiles {
		p.info.profiles = append(p.info.profiles, pr.ProfileInfo)
	}
	for i := range p.info.counters {
		for _, t := range p.tables {
			if c := &p.info.counters[i]; c.Table != "" && c.Table == t.Name {
				c.Size = t.Size
			}
		}
	}
	return b.err
}

// deparser makes the code that runs before headers are emitted: checksum updates, then statements of the deparser itself.
func (b *builder) deparser() error {
	var def *bmv2json.Deparser
	for i := range b.file.Deparsers {
		if b.file.Deparsers[i].Name == "deparser" {
			def = &b.file.Deparsers[i]
		}
	}
	if def == nil {
		return refuse("program", nil, "has no deparser named \"deparser\"")
	}
	for _, n := range def.Order {
		h := b.headerNamed[n]
		if h == nil || h.metadata {
			return refuse("deparser", nil, "header %q is not declared", n)
		}
		b.prog.deparse = append(b.prog.deparse, h)
	}
	b.noRegisters = true
	defer func() { b.noRegisters = false }()
	if err := b.checksums(false); err != nil {
		return err
	}
	b.code = b.code[:len(b.code)-1] // its opEnd
	for i := range def.Primitives {
		b.what, b.src = fmt.Sprintf("deparser, statement %d (%s)", i, def.Primitives[i].Op), def.Primitives[i].Source
		b.freeTemps()
		b.primitive(&def.Primitives[i])
	}
	b.emit(instr{op: opEnd})
	return b.err
}

func (in *instr) jumps() bool {
	return in.op >= opJmp && in.op <= opJGeS || in.op == opCallP || in.op == opExtract || in.op == opState
}

// compact makes jumps to jumps go to where those go, drops jumps to what follows, and moves everything up.
func (b *builder) compact() {
	p := b.prog
	code := b.code
	final := func(pc uint32) uint32 {
		for range 64 {
			if code[pc].op != opJmp {
				break
			}
			pc = code[pc].d
		}
		return pc
	}
	for i := range code {
		if code[i].jumps() {
			code[i].d = final(code[i].d)
		}
	}
	moved := make([]uint32, len(code)+1)
	n := uint32(0)
	for i := range code {
		moved[i] = n
		if code[i].op == opJmp && code[i].d == uint32(i+1) {
			continue
		}
		n++
	}
	moved[len(code)] = n
	to := func(pc uint32) uint32 { return moved[final(pc)] }
	out := make([]instr, 0, n)
	for i := range code {
		in := code[i]
		if in.op == opJmp && in.d == uint32(i+1) {
			continue
		}
		if in.jumps() {
			in.d = moved[in.d]
		}
		out = append(out, in)
	}
	for _, s := range p.selects {
		s.def = to(s.def)
		for i := range s.cases {
			s.cases[i].next = to(s.cases[i].next)
		}
	}
	for _, t := range p.tables {
		t.onHit, t.onMiss, t.missPC = to(t.onHit), to(t.onMiss), to(t.missPC)
		for id, pc := range t.next {
			t.next[id] = to(pc)
		}
	}
	for _, a := range b.actionByID {
		a.pc = to(a.pc)
	}
	p.parserPC, p.ingressPC, p.egressPC, p.deparserPC = to(p.parserPC), to(p.ingressPC), to(p.egressPC), to(p.deparserPC)
	b.code = out
}

// The lists below are in the program's order and belong to the program: callers do not change them. Counters and Meters
// include the direct ones.

// Tables lists the tables, those p4c makes for statements outside of tables ("tbl_…", never in P4Info) included.
func (p *Program) Tables() []TableInfo { return p.info.tables }

// Actions lists the actions.
func (p *Program) Actions() []ActionInfo { return p.info.actions }

// Registers lists the register arrays.
func (p *Program) Registers() []RegisterInfo { return p.info.regs }

// Counters lists the counters.
func (p *Program) Counters() []CounterInfo { return p.info.counters }

// Meters lists the meters.
func (p *Program) Meters() []MeterInfo { return p.info.meters }

// Profiles lists the action profiles and selectors.
func (p *Program) Profiles() []ProfileInfo { return p.info.profiles }

// Digests lists the digests.
func (p *Program) Digests() []DigestInfo { return p.info.digests }

// ValueSets lists the parser value sets.
func (p *Program) ValueSets() []ValueSetInfo { return p.info.vsets }

// Table finds a table by name.
func (p *Program) Table(name string) (TableInfo, bool) {
	for _, t := range p.info.tables {
		if t.Name == name {
			return t, true
		}
	}
	return TableInfo{}, false
}

// Action finds an action by name.
func (p *Program) Action(name string) (ActionInfo, bool) {
	for _, a := range p.info.actions {
		if a.Name == name {
			return a, true
		}
	}
	return ActionInfo{}, false
}
