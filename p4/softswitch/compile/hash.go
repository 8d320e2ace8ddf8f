// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
	"github.com/netsketch/netsketch/p4/softswitch/program"
)

func (b *builder) calculation(name, algo string, inputs []bmv2json.CalcInput,
	src *bmv2json.Source,
) (*program.Hash, error) {
	b.what, b.src = fmt.Sprintf("calculation %q", name), src
	c := &program.Hash{Name: name, Algo: algo, Word: -1}
	if c.Func = program.Algorithms[algo]; c.Func == nil && algo != "random" {
		return nil, unsupported(b.what, src, "hash algorithm %q", algo)
	}
	bit := 0
	seen := map[int]bool{}
	t := program.HeaderType{Variable: -1}
	for i := range inputs {
		in := &inputs[i]
		switch in.Type {
		case "payload":
			c.Payload = true
		case "hexstr":
			v := in.Value.Int
			if v.Sign() < 0 || v.BitLen() > in.Width {
				return nil, refuse(b.what, src, "constant input %v does not fit its %d bits", v, in.Width)
			}
			words := (in.Width + 63) / 64
			item := program.HashInput{Slot: int(b.Constant(v, words)), Words: words, Width: in.Width}
			c.Items = append(c.Items, item)
			t.Wire(item.Slot, bit, item.Width)
			bit += in.Width
		case "header":
			h := b.headerNamed[in.Value.Name]
			if h == nil || h.Metadata || bit%8 != 0 {
				return nil, refuse(b.what, src, "header %q is not declared, or does not begin at a byte", in.Value.Name)
			}
			c.Items = append(c.Items, program.HashInput{Header: h, Whole: true})
			if h.Type.Variable >= 0 {
				c.Absent = append(c.Absent, h.Base)
				break
			}
			for _, p := range h.Type.Parts {
				t.Wire(h.Base+p.Slot, bit+p.Bit, p.Width)
			}
			bit += h.Type.Bits
			if !h.Metadata && !seen[h.Base] {
				seen[h.Base] = true
				c.Valid = append(c.Valid, h.Base)
			}
		case "field":
			if in.Value.Field == validField {
				return nil, unsupported(b.what, src, "a header's validity as input")
			}
			h, f, ok := b.fieldAt(in.Value)
			if !ok {
				return nil, b.err
			}
			item := program.HashInput{Header: h, Slot: h.Base + f.Slot, Words: f.Words, Width: f.Width}
			c.Items = append(c.Items, item)
			if f.Width == h.Type.MaxVariable && h.Type.Variable >= 0 && &h.Type.Fields[h.Type.Variable] == f {
				absent := h.Base
				if h.Metadata { // p4c's copy of a field, which has no validity
					absent += h.Type.VariableLen
				}
				c.Absent = append(c.Absent, absent)
				break
			}
			t.Wire(item.Slot, bit, f.Width)
			bit += f.Width
			if !h.Metadata && !seen[h.Base] {
				seen[h.Base] = true
				c.Valid = append(c.Valid, h.Base)
			}
		}
	}
	if bit > program.MaxHeaderBits {
		return nil, refuse(b.what, src, "input of %d bits; at most %d are supported", bit, program.MaxHeaderBits)
	}
	t.FinishEmits()
	c.Emits, c.Bytes = t.Emits, (bit+7)/8
	if len(c.Items) == 1 && c.Items[0].Width == 32 && len(c.Valid)+len(c.Absent) == 0 && !c.Payload &&
		c.Algo == "crc32" {
		c.Word = c.Items[0].Slot
	}
	return c, nil
}
