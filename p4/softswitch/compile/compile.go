// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"

	"github.com/netsketch/netsketch/p4/softswitch/asm"
	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// Program compiles a BMv2 JSON (p4c-bm2-ss, format version 2.x). A construct that the engine cannot
// run is an error that wraps ErrInvalid or ErrNotImplemented and names the construct and its place
// in the P4 source.
func Program(json []byte) (*program.Program, error) {
	file, err := bmv2json.Parse(json)
	if err != nil {
		return nil, fmt.Errorf("compiling: %w: %w", control.ErrInvalid, err)
	}
	b := &builder{
		Builder: &asm.Builder{Prog: &program.Program{FieldLists: map[int][]program.FieldCopy{}},
			Consts: map[string]uint32{}}, file: file,
		types: map[string]*program.HeaderType{}, headerNamed: map[string]*program.Header{},
		stacks: map[string]*program.Stack{}, unions: map[string]*program.Union{},
		unionStacks: map[string]*program.UnionStack{},
		objectNames: objectNames{
			actionByID: map[int]*actionDef{}, regs: map[string]int{}, counters: map[string]int{},
			meters:    map[string]int{},
			directMtr: map[string]*program.DirectMeter{}, calcs: map[string]*program.Hash{}, profiles: map[string]int{},
			tables: map[string]int{},
			vsets:  map[string]int{}, vsetWidths: map[string][]int{}, digestID: map[int]int{},
			fieldLists: map[int][]program.FieldCopy{},
		},
	}
	b.Fail = b.failf
	for _, step := range []func() error{b.layout, b.places, b.declare, b.declareTables, b.generate} {
		err := step()
		if err == nil {
			err = b.err
		}
		if err != nil {
			return nil, fmt.Errorf("compiling: %w", err)
		}
	}
	return b.Prog, nil
}

// places assigns the first slots of parameters, temporaries and constants.
func (b *builder) places() error {
	b.params = b.phv
	if err := b.declareActions(); err != nil {
		return err
	}
	widest := 1
	for _, h := range b.Prog.Headers {
		for i := range h.Type.Fields {
			widest = max(widest, h.Type.Fields[i].Words)
		}
	}
	b.TempCap = 1024 + 16*widest
	b.ConstAt = b.Temps + b.TempCap
	return nil
}

// declare creates the objects that code refers to.
func (b *builder) declare() error {
	p := b.Prog
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
			return refuse(fmt.Sprintf("register %q", r.Name), r.Source,
				"%d cells of %d bits; at most %d cells are supported", r.Size, r.Width, maxRegisterWords/words)
		}
		b.regs[r.Name] = len(p.Info.Registers)
		p.Info.Registers = append(p.Info.Registers, control.RegisterInfo{Name: r.Name, Width: r.Width, Size: r.Size})
	}
	for i := range b.file.Counters {
		c := &b.file.Counters[i]
		if _, dup := b.counters[c.Name]; dup {
			return refuse(fmt.Sprintf("counter %q", c.Name), c.Source, "is declared twice")
		}
		info := control.CounterInfo{Name: c.Name, Size: c.Size}
		if c.Direct {
			info.Table = c.Binding
		}
		b.counters[c.Name] = len(p.Info.Counters)
		p.Info.Counters = append(p.Info.Counters, info)
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
		b.vsets[v.Name] = len(p.Info.ValueSets)
		p.Info.ValueSets = append(p.Info.ValueSets,
			control.ValueSetInfo{Name: v.Name, Size: v.Size, Widths: []int{v.Width}})
	}
	for i := range b.file.LearnLists {
		l := &b.file.LearnLists[i]
		b.what, b.src = fmt.Sprintf("digest %q", l.Name), l.Source
		d := program.Digest{DigestInfo: control.DigestInfo{Name: l.Name, ID: uint32(l.ID)}}
		if _, dup := b.digestID[l.ID]; dup {
			return refuse(b.what, l.Source, "id %d is declared twice", l.ID)
		}
		for _, e := range l.Elements {
			slot, words, width, ok := b.anyField(e)
			if !ok {
				return b.err
			}
			d.Fields = append(d.Fields, program.FieldCopy{Slot: slot, Words: words})
			d.Widths = append(d.Widths, width)
		}
		b.digestID[l.ID] = len(p.Digests)
		p.Digests = append(p.Digests, d)
		p.Info.Digests = append(p.Info.Digests, d.DigestInfo)
	}
	for i := range b.file.FieldLists {
		l := &b.file.FieldLists[i]
		b.what, b.src = fmt.Sprintf("field list %d %q", l.ID, l.Name), nil
		var list []program.FieldCopy
		for _, e := range l.Elements {
			slot, words, _, ok := b.anyField(e)
			if !ok {
				return b.err
			}
			list = append(list, program.FieldCopy{Slot: slot, Words: words})
		}
		b.fieldLists[l.ID], p.FieldLists[l.ID] = list, list
	}
	return nil
}

const maxRegisterWords = 1 << 28

// anyField returns the place of a field or of a header's validity.
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
	return h.Base + f.Slot, f.Words, f.Width, true
}

func (b *builder) declareMeter(m *bmv2json.Meter) error {
	what := fmt.Sprintf("meter %q", m.Name)
	if _, dup := b.meters[m.Name]; dup {
		return refuse(what, m.Source, "is declared twice")
	}
	if m.Size > 1<<22 {
		return refuse(what, m.Source, "%d cells; at most %d are supported", m.Size, 1<<22)
	}
	info := control.MeterInfo{Name: m.Name, Size: m.Size}
	if m.Type == "bytes" {
		info.Unit = control.MeterBytes
	}
	i := len(b.Prog.Info.Meters)
	b.meters[m.Name] = i
	if m.Direct {
		info.Table = m.Binding
		b.what, b.src = what, m.Source
		d := &program.DirectMeter{Info: i, Unit: info.Unit}
		if m.Target == nil {
			return refuse(what, m.Source, "a direct meter without a field for its result")
		}
		h, f, ok := b.fieldTarget(m.Target)
		if !ok {
			return b.err
		}
		d.Slot, d.Mask = h.Base+f.Slot, wide.Mask(f.Width)
		b.directMtr[m.Name] = d
	}
	b.Prog.Info.Meters = append(b.Prog.Info.Meters, info)
	return nil
}

// standardFields finds v1model's metadata fields, under BMv2's names or the file's aliases for
// them.
func (b *builder) standardFields() error {
	alias := map[string]*bmv2json.Expr{}
	for i := range b.file.Aliases {
		alias[b.file.Aliases[i].From] = b.file.Aliases[i].Target
	}
	find := func(header, field string, must bool) program.StdField {
		e := alias[header+"."+field]
		if e == nil {
			e = &bmv2json.Expr{Type: "field", Name: header, Field: field}
		}
		f := program.StdField{Slot: -1}
		if h := b.headerNamed[e.Name]; h != nil && h.Metadata {
			f = metadataField(h, e.Field)
		}
		if must && f.Slot < 0 {
			b.failf("the program has no %s.%s: it is not compiled for v1model", header, field)
		}
		return f
	}
	s := &b.Prog.Std
	const std, intr, q = "standard_metadata", "intrinsic_metadata", "queueing_metadata"
	s.IngressPort = find(std, "ingress_port", true)
	s.EgressSpec = find(std, "egress_spec", true)
	s.EgressPort = find(std, "egress_port", true)
	s.InstanceType = find(std, "instance_type", true)
	s.PacketLength = find(std, "packet_length", true)
	s.ParserError = find(std, "parser_error", false)
	s.ChecksumError = find(std, "checksum_error", false)
	s.McastGroup = find(intr, "mcast_grp", false)
	s.EgressRID = find(intr, "egress_rid", false)
	s.Priority = find(intr, "priority", false)
	s.IngressTimestamp = find(intr, "ingress_global_timestamp", false)
	s.EgressTimestamp = find(intr, "egress_global_timestamp", false)
	s.EnqTimestamp = find(q, "enq_timestamp", false)
	s.EnqDepth = find(q, "enq_qdepth", false)
	s.DeqDelta = find(q, "deq_timedelta", false)
	s.DeqDepth = find(q, "deq_qdepth", false)
	s.QID = find(q, "qid", false)
	return b.err
}

// metadataField returns the place of a field of one word; its slot is -1 if the program has no such
// field.
func metadataField(h *program.Header, name string) program.StdField {
	if f, ok := h.Type.Field(name); ok && f.Slot >= 0 && f.Words == 1 {
		return program.StdField{Slot: h.Base + f.Slot, Mask: wide.Mask(f.Width)}
	}
	return program.StdField{Slot: -1}
}

// generate generates the code: the end of every pipeline at 0, then actions, parser, controls,
// deparser.
func (b *builder) generate() error {
	p := b.Prog
	b.Emit(program.Instr{Op: program.OpEnd})
	b.groupRegisters()
	for i := range b.file.Actions {
		a := b.actionByID[b.file.Actions[i].ID]
		a.PC = b.Here()
		b.body(a, a.locals)
		b.Emit(program.Instr{Op: program.OpRet})
		if b.err != nil {
			return b.err
		}
	}
	p.ParserPC = b.Here()
	if err := b.parser(); err != nil {
		return err
	}
	var err error
	if p.IngressPC, err = b.pipeline("ingress"); err != nil {
		return err
	}
	if p.EgressPC, err = b.pipeline("egress"); err != nil {
		return err
	}
	p.DeparserPC = b.Here()
	if err := b.deparser(); err != nil {
		return err
	}
	for _, e := range b.file.Errors {
		for i, n := range coreErrors {
			if n == e.Name {
				p.CoreError[i] = uint64(e.Value)
			}
		}
		if e.Name == "NoError" {
			p.NoError = uint64(e.Value)
		}
	}
	p.Fields, p.Params, p.Consts = b.phv, b.params, b.ConstAt
	p.KeyScratch = b.ConstAt + len(b.ConstVal)
	p.Slots = make([]uint64, p.KeyScratch+2*b.MaxKey)
	copy(p.Slots[b.ConstAt:], b.ConstVal)
	for _, h := range b.Prog.Headers {
		p.PadBytes = max(p.PadBytes, h.Type.Bytes+16)
		if h.Metadata {
			p.Metadata = append(p.Metadata, [2]int{h.Base, h.Base + h.Type.Slots})
		}
	}
	b.Compact()
	p.Code = b.Code
	for name, i := range b.vsets {
		if w, ok := b.vsetWidths[name]; ok {
			p.Info.ValueSets[i].Widths = w
		}
	}
	for _, t := range p.Tables {
		t.ConstEntries = t.ConstEntries || len(t.Seeds) > 0
		p.Info.Tables = append(p.Info.Tables, t.TableInfo)
	}
	for _, pr := range p.Profiles {
		p.Info.Profiles = append(p.Info.Profiles, pr.ProfileInfo)
	}
	for i := range p.Info.Counters {
		for _, t := range p.Tables {
			if c := &p.Info.Counters[i]; c.Table != "" && c.Table == t.Name {
				c.Size = t.Size
			}
		}
	}
	return b.err
}

// deparser generates the code that runs before headers are emitted: checksum updates, then
// statements of the deparser.
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
		if h == nil || h.Metadata {
			return refuse("deparser", nil, "header %q is not declared", n)
		}
		b.Prog.Deparse, b.Prog.Emitted = append(b.Prog.Deparse, h), append(b.Prog.Emitted, uint32(h.Base))
	}
	b.noRegisters = true
	defer func() { b.noRegisters = false }()
	if err := b.checksums(false); err != nil {
		return err
	}
	b.Code = b.Code[:len(b.Code)-1] // drops the OpEnd
	for i := range def.Primitives {
		b.what, b.src = fmt.Sprintf("deparser, statement %d (%s)", i, def.Primitives[i].Op), def.Primitives[i].Source
		b.FreeTemps()
		b.primitive(&def.Primitives[i])
	}
	b.Emit(program.Instr{Op: program.OpEnd})
	return b.err
}
