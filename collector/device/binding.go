// SPDX-License-Identifier: Apache-2.0

package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// binding holds the parts of a pipeline that the collector uses, which annotations identify.
type binding struct {
	table, action string // select the bank, or the window of epochs
	params        []string
	windowed      bool // packets select the bank
	banks         int
	objects       []sdk.Object    // sorted by name
	unread        []sdk.Object    // registers with annotations that cannot be read, sorted by name
	drained       map[string]bool // registers that packets in flight still change
	uncounted     string          // register of packets outside of the window; empty if the pipeline has none
	epochs        int             // number of epochs for which uncounted has a cell
}

// CheckProgram returns why switches with a program cannot be measured; nil if they can, or if the
// program has nothing to measure.
func CheckProgram(p *p4rt.Program) error {
	cat, err := p4values.NewCatalog(p.P4Info)
	if err == nil {
		_, err = bind(cat)
	}
	if err == nil {
		err = checkCounters(p, cat)
	}
	if err == nil || errors.Is(err, ErrNoBanks) {
		return nil
	}
	return fmt.Errorf("program %s: %w", p.Name, err)
}

// Measurement describes what the collector reads from switches that run a program.
type Measurement struct {
	// Table selects the bank, or the window of epochs if Windowed is set.
	Table    string
	Windowed bool
	Banks    int
	// Objects are the registers to read, by name.
	Objects []sdk.Object
	// Unread are the names of the registers without @netsketch_readout, which cannot be read.
	Unread []string
	// ByPacket is set if packets read and clear the registers; otherwise RegisterEntry does.
	ByPacket bool
}

// Inspect returns what the collector reads from switches with a program, or why it cannot measure
// them: ErrNoBanks is wrapped if the program has nothing to measure.
func Inspect(p *p4rt.Program) (*Measurement, error) {
	cat, err := p4values.NewCatalog(p.P4Info)
	if err != nil {
		return nil, err
	}
	m := &Measurement{Unread: unread(cat), ByPacket: p4rt.ReadsByPacket(cat)}
	b, err := bind(cat)
	if err != nil {
		return m, err
	}
	m.Table, m.Windowed, m.Banks, m.Objects = b.table, b.windowed, b.banks, b.objects
	return m, checkCounters(p, cat)
}

// checkCounters returns an error if the counter of a register never increases, so that each of its
// banks would be taken for empty. A device config that is not BMv2 JSON is not checked.
func checkCounters(p *p4rt.Program, cat *p4values.Catalog) error {
	var program struct {
		Actions []struct {
			Primitives []struct {
				Op         string
				Parameters []struct{ Value any }
			}
		}
	}
	if json.Unmarshal(p.DeviceConfig, &program) != nil || len(program.Actions) == 0 {
		return nil
	}
	counted := map[any]bool{}
	for _, action := range program.Actions {
		for _, primitive := range action.Primitives {
			if primitive.Op == "count" && len(primitive.Parameters) > 0 {
				if name, ok := primitive.Parameters[0].Value.(string); ok {
					counted[name] = true
				}
			}
		}
	}
	for _, r := range cat.Readouts() {
		if c := r.Readout.Counter; c != nil && !counted[c.Name] {
			return fmt.Errorf("register %s: no action increases its counter %s, so that each bank would be taken for empty: "+
				"call %s.count((bit<32>)meta.bank) for each packet that changes the register", r.Name, c.Name, c.Alias)
		}
	}
	return nil
}

// Unmeasured returns why switches with a program have nothing to measure; nil if they have
// something to measure.
func Unmeasured(p *p4rt.Program) error {
	m, err := Inspect(p)
	switch {
	case m == nil, err != nil && !errors.Is(err, ErrNoBanks), m.Banks > 2, len(m.Objects) > 0:
		return nil
	case len(m.Unread) == 0:
		return fmt.Errorf("program %s has no registers", p.Name)
	}
	return fmt.Errorf("program %s: no register has @%s; its registers are %s", p.Name, p4values.AnnotationReadout,
		strings.Join(m.Unread, ", "))
}

// unread returns the names of the registers that cannot be read, sorted.
func unread(cat *p4values.Catalog) (names []string) {
	for _, r := range cat.Registers.All() {
		if r.Readout == nil {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return names
}

// bind finds the bank table, or the window table, and the registers of a pipeline. The error is
// ErrNoBanks for a program that has neither such a table nor a register to read.
func bind(cat *p4values.Catalog) (*binding, error) {
	annotation, params := p4values.AnnotationBank, 1
	tables := cat.Annotated(annotation)
	if len(tables) == 0 {
		annotation, params = p4values.AnnotationWindow, 2
		tables = cat.Annotated(annotation)
	}
	if readouts := cat.Readouts(); len(tables) == 0 && len(readouts) > 0 {
		return nil, fmt.Errorf("register %s can be read (@%s), but no table chooses its bank: give the keyless table that "+
			"does @%s, or @%s if packets choose the bank", readouts[0].Name, p4values.AnnotationReadout,
			p4values.AnnotationBank, p4values.AnnotationWindow)
	}
	if len(tables) == 0 {
		return nil, ErrNoBanks
	}
	t := tables[0]
	if len(tables) > 1 || len(t.Match) > 0 || len(t.Actions) != 1 || len(t.Actions[0].Params) != params {
		return nil, fmt.Errorf("table %s, @%s: expected one table without keys whose only action has %d parameters: "+
			"the bank, or the first epoch and the count of epochs", t.Name, annotation, params)
	}
	b := &binding{table: t.Name, action: t.Actions[0].Name, windowed: annotation == p4values.AnnotationWindow, banks: 2,
		drained: map[string]bool{}}
	for _, p := range t.Actions[0].Params {
		b.params = append(b.params, p.Name)
	}
	a, _ := t.Annotations.Find(annotation)
	err := a.Only("banks")
	if err == nil && a.Values["banks"] != "" {
		var n int64
		n, err = a.Int("banks")
		b.banks = int(n)
	}
	if err != nil {
		return nil, fmt.Errorf("bank table %s: %w", t.Name, err)
	}
	if b.banks < 2 || b.banks > 256 {
		return nil, fmt.Errorf("bank table %s: %d banks; expected 2 to 256", t.Name, b.banks)
	}
	for _, r := range cat.Readouts() {
		if r.Readout.Banks != b.banks {
			return nil, fmt.Errorf("register %s has %d banks and the bank table %s has %d", r.Name, r.Readout.Banks,
				t.Name, b.banks)
		}
		if r.Width < 1 || r.Width > 32 {
			return nil, fmt.Errorf("register %s has cells of %d bits; the read-out carries 1 to 32: keep a wider number in "+
				"two cells", r.Name, r.Width)
		}
		if n := r.Readout.Cells; n%p4rt.ReadoutCells != 0 && p4rt.ReadsByPacket(cat) {
			return nil, fmt.Errorf("register %s has %d cells in a bank: a packet reads and clears %d cells, so the last one "+
				"would clear cells of the next bank; give each bank a multiple, such as %d", r.Name, n, p4rt.ReadoutCells,
				(n+p4rt.ReadoutCells-1)/p4rt.ReadoutCells*p4rt.ReadoutCells)
		}
		// An epoch leaves the window after the drain, so its registers do not change any more when they
		// are read.
		readout, _ := r.Annotations.Find(p4values.AnnotationReadout)
		switch v := readout.Values[drainKey]; {
		case v != "" && v != "0" && v != "1":
			return nil, fmt.Errorf("register %s: @%s: %s=%s; expected 0 or 1", r.Name, p4values.AnnotationReadout, drainKey, v)
		case v == "1" && !b.windowed:
			b.drained[r.Name] = true
		}
		if a, ok := r.Annotations.Find(p4values.AnnotationUncounted); ok {
			n, err := a.Int("epochs")
			if err != nil || n < int64(b.banks) || n > int64(r.Readout.Cells) || n&(n-1) != 0 {
				return nil, fmt.Errorf("register %s: @%s[epochs=%s]: a power of two is needed, at most the %d cells of a bank",
					r.Name, p4values.AnnotationUncounted, a.Values["epochs"], r.Readout.Cells)
			}
			b.uncounted, b.epochs = r.Name, int(n)
		}
		b.objects = append(b.objects, sdk.Object{
			Name: r.Name, Alias: r.Alias, Cells: r.Readout.Cells, Width: r.Width, Banks: r.Readout.Banks,
			Annotations: r.Annotations.Values(),
		})
	}
	for _, r := range cat.Registers.All() {
		if r.Readout == nil && len(r.Annotations) > 0 {
			b.unread = append(b.unread, sdk.Object{Name: r.Name, Alias: r.Alias, Cells: r.Size, Width: r.Width, Banks: 1,
				Annotations: r.Annotations.Values()})
		}
	}
	for _, list := range [][]sdk.Object{b.objects, b.unread} {
		slices.SortFunc(list, func(x, y sdk.Object) int { return strings.Compare(x.Name, y.Name) })
	}
	if b.windowed && b.uncounted == "" {
		return nil, fmt.Errorf("table %s: a window needs a register of packets outside of it (@%s)", t.Name,
			p4values.AnnotationUncounted)
	}
	return b, nil
}

// drainKey is the key, in the read-out annotation, that marks registers that packets in flight
// still change.
const drainKey = "drain"

// readable lists the registers to read by full name. Packets in flight change the late ones, but
// not the early ones. nil in selected means all registers; the register of uncounted packets is
// always read.
func (b *binding) readable(selected []string) (early, late []string) {
	for _, o := range b.objects {
		switch {
		case selected != nil && !slices.Contains(selected, o.Name) && o.Name != b.uncounted:
		case b.drained[o.Name]:
			late = append(late, o.Name)
		default:
			early = append(early, o.Name)
		}
	}
	return early, late
}
