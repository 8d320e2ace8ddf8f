// SPDX-License-Identifier: Apache-2.0

package p4values

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
)

// Annotations of the data plane programs (docs/p4.md has their syntax).
const (
	// AnnotationReadout marks a register that can be read by packet: @netsketch_readout(object=N,
	// banks=B, counter=NAME, piece=CELLS, wide=COUNT, deep=CELLS, marker=N, marks=CELL).
	AnnotationReadout = "netsketch_readout"
	// AnnotationBank marks the keyless table whose default action chooses the bank that is written.
	AnnotationBank = "netsketch_bank"
	// AnnotationWindow marks the keyless table whose default action sets the epochs that are counted,
	// in programs where a packet's epoch selects the bank.
	AnnotationWindow = "netsketch_window"
	// AnnotationUncounted marks the register that counts packets of epochs outside of the window.
	AnnotationUncounted = "netsketch_uncounted"
)

func (b *builder) registers() error {
	objects := map[uint8]string{}
	for _, r := range b.info.GetRegisters() {
		o, err := b.preamble("register", r.GetPreamble())
		if err != nil {
			return err
		}
		reg := &Register{Object: o, Size: int(r.GetSize()), Type: r.GetTypeSpec()}
		reg.Width, reg.Signed = b.bitstring(r.GetTypeSpec())
		if a, ok := o.Annotations.Find(AnnotationReadout); ok {
			if reg.Readout, err = readout(a, reg.Size); err != nil {
				return fmt.Errorf("register %q: %w", o.Name, err)
			}
			if other, used := objects[reg.Readout.Object]; used {
				return fmt.Errorf("registers %q and %q have the same read-out object number %d", other, o.Name,
					reg.Readout.Object)
			}
			objects[reg.Readout.Object] = o.Name
			if reg.Readout.Counter, err = b.readoutCounter(a, reg.Readout.Banks); err != nil {
				return fmt.Errorf("register %q: %w", o.Name, err)
			}
		}
		if err := b.cat.Registers.add(reg); err != nil {
			return err
		}
	}
	for _, r := range b.cat.Readouts() {
		a, _ := r.Annotations.Find(AnnotationReadout)
		var err error
		if r.Readout.Pieces, err = b.pieces(a, r); err != nil {
			return fmt.Errorf("register %q: @%s: %w", r.Name, a.Name, err)
		}
	}
	return nil
}

// pieces returns the pieces that a read-out's annotation describes; nil if it describes none.
func (b *builder) pieces(a Annotation, r *Register) (*Pieces, error) {
	if a.Values["piece"] == "" {
		return nil, nil
	}
	var values [3]int64
	for i, key := range []string{"piece", "marker", "marks"} {
		var err error
		if values[i], err = a.Int(key); err != nil {
			return nil, err
		}
	}
	p := &Pieces{Cells: int(values[0]), First: int(values[2])}
	if p.Wide, p.Deep = math.MaxInt32, p.Cells; a.Values["wide"] != "" {
		for key, to := range map[string]*int{"wide": &p.Wide, "deep": &p.Deep} {
			n, err := a.Int(key)
			if err != nil || n < 1 || n > math.MaxInt32 {
				return nil, fmt.Errorf("%s=%s: expected a positive number", key, a.Values[key])
			}
			*to = int(n)
		}
	}
	for _, other := range b.cat.Readouts() {
		if int64(other.Readout.Object) == values[1] {
			p.Marker = other
		}
	}
	cells := r.Readout.Cells
	if p.Marker == r {
		cells = p.First
	}
	for p.Cells > 0 && p.Start(p.Count) < cells && p.Count < r.Readout.Cells {
		p.Count++
	}
	if r.Readout.Counter == nil || p.Cells <= 0 || p.Marker == nil || p.Marker.Readout.Banks != r.Readout.Banks ||
		p.First < 0 || p.First+p.Count > p.Marker.Readout.Cells {
		return nil, fmt.Errorf("piece=%d, marker=%d, marks=%d: expected a counter, and a mark for each piece in the "+
			"register of object %d", values[0], values[1], values[2], values[1])
	}
	return p, nil
}

// bitstring returns the width of a plain number type, following type definitions.
func (b *builder) bitstring(t *p4configv1.P4DataTypeSpec) (width int, signed bool) {
	for range 8 {
		next := b.info.GetTypeInfo().GetNewTypes()[t.GetNewType().GetName()].GetOriginalType()
		if next == nil {
			break
		}
		t = next
	}
	if i := t.GetBitstring().GetInt(); i != nil {
		return int(i.GetBitwidth()), true
	}
	return int(t.GetBitstring().GetBit().GetBitwidth()), false
}

func readout(a Annotation, size int) (*Readout, error) {
	if err := a.Only("object", "banks", "drain", "counter", "piece", "wide", "deep", "marker", "marks"); err != nil {
		return nil, err
	}
	object, err := a.Int("object")
	if err != nil {
		return nil, err
	}
	banks := int64(1)
	if _, ok := a.Values["banks"]; ok {
		if banks, err = a.Int("banks"); err != nil {
			return nil, err
		}
	}
	if object < 0 || object > 255 {
		return nil, fmt.Errorf("@%s: object=%d is not between 0 and 255", a.Name, object)
	}
	if banks < 1 || banks > 256 || size <= 0 || int64(size)%banks != 0 {
		return nil, fmt.Errorf("@%s: %d cells cannot be split in %d banks", a.Name, size, banks)
	}
	return &Readout{Object: uint8(object), Banks: int(banks), Cells: size / int(banks)}, nil
}

// readoutCounter returns the counter that a read-out's annotation names; nil if it names none.
func (b *builder) readoutCounter(a Annotation, banks int) (*Counter, error) {
	name := a.Values["counter"]
	if name == "" {
		return nil, nil
	}
	c, err := b.cat.Counters.Name(name)
	if err != nil {
		return nil, fmt.Errorf("@%s: %w", a.Name, err)
	}
	if c.Table != nil || c.Unit == p4configv1.CounterSpec_BYTES || c.Size < int64(banks) {
		return nil, fmt.Errorf("@%s: counter %q does not count packets in %d cells, one for each bank", a.Name, c.Name,
			banks)
	}
	return c, nil
}

// hash64 hashes parts, each with its length.
func hash64(parts ...[]byte) uint64 {
	h := sha256.New()
	for _, p := range parts {
		_ = binary.Write(h, binary.BigEndian, uint64(len(p)))
		h.Write(p)
	}
	return binary.BigEndian.Uint64(h.Sum(nil))
}
