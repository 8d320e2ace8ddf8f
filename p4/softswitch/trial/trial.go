// SPDX-License-Identifier: Apache-2.0

// Package trial runs a P4 program in a soft switch, and compares what it does with what its P4Info
// says of its registers.
package trial

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
)

// Trial is a soft switch with a program. Create it with New.
type Trial struct {
	program  *p4rt.Program
	compiled *softswitch.Program
	cat      *p4values.Catalog
	sw       *softswitch.Switch
	replies  [][]byte
}

// New loads a program into a soft switch. The error is ErrNotRun if a soft switch cannot run it.
func New(p *p4rt.Program) (*Trial, error) {
	cat, err := p4values.NewCatalog(p.P4Info)
	if err != nil {
		return nil, err
	}
	compiled, err := softswitch.Compile(p.DeviceConfig)
	if err != nil {
		return nil, fmt.Errorf("program %s: %w: %w", p.Name, ErrNotRun, err)
	}
	t := &Trial{program: p, compiled: compiled, cat: cat, sw: softswitch.New(softswitch.Config{Seed: 1})}
	t.sw.SetPacketIn(func(pkt []byte) { t.replies = append(t.replies, bytes.Clone(pkt)) })
	err = t.sw.Load(compiled)
	for port := uint32(1); err == nil && port <= 2; port++ {
		err = t.sw.AddPort(port, softswitch.Port{Tx: func([]byte, time.Duration) {}})
	}
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("program %s: %w: %w", p.Name, ErrNotRun, err)
	}
	return t, nil
}

// ErrNotRun is the error for programs that a soft switch cannot run.
var ErrNotRun = errors.New("a soft switch does not run it")

// Close releases the switch.
func (t *Trial) Close() { t.sw.Close() }

// Check returns what the annotations of a program state and the program contradicts. Programs that
// a soft switch cannot run are not checked.
func Check(p *p4rt.Program) error {
	t, err := New(p)
	if errors.Is(err, ErrNotRun) {
		return nil
	}
	if err != nil {
		return err
	}
	defer t.Close()
	return t.Check()
}

// Check returns what the annotations state and the program contradicts: the read-out of each
// register, and the bank that packets change.
func (t *Trial) Check() error {
	errs := []error{t.checkSizes()}
	if errs[0] == nil && p4rt.ReadsByPacket(t.cat) {
		errs = append(errs, t.checkReadouts())
	}
	if errors.Join(errs...) == nil {
		errs = append(errs, t.checkTraffic())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("program %s: %w", t.program.Name, err)
	}
	return nil
}

// sides returns the banks to try of a register: the first and the last one.
func sides(r *p4values.Register) []int {
	if r.Readout.Banks < 2 {
		return []int{0}
	}
	return []int{0, r.Readout.Banks - 1}
}

// marked returns the largest value of a cell for the cells that mark sets, and 0 for others. Each
// packet has a mark at another place in bank 0 than in other banks. Marks are not negative, because
// programs may extend the sign of narrow cells.
func marked(r *p4values.Register, bank, cell int) uint64 {
	at := 0
	if bank > 0 {
		at = p4rt.ReadoutCells - 1
	}
	if cell%p4rt.ReadoutCells != at && cell != r.Readout.Cells-1 {
		return 0
	}
	if r.Signed && r.Width > 1 {
		return 1<<(r.Width-1) - 1
	}
	return 1<<r.Width - 1
}

// checkSizes returns an error if the P4Info and the device config have registers of other sizes.
func (t *Trial) checkSizes() error {
	for _, r := range t.cat.Readouts() {
		cells, err := t.sw.ReadRegisterBytes(r.Name, 0, -1)
		if err != nil {
			return err
		}
		if width := (r.Width + 7) / 8; len(cells) != r.Size*width {
			return fmt.Errorf("register %s: its P4Info has %d cells of %d bits, and its device config has %d bytes: compile "+
				"both at the same time", r.Name, r.Size, r.Width, len(cells))
		}
	}
	return nil
}

// mark writes marks to the banks to try of each register.
func (t *Trial) mark() error {
	for _, r := range t.cat.Readouts() {
		if err := t.sw.ResetRegister(r.Name); err != nil {
			return err
		}
		for _, bank := range sides(r) {
			for cell := range r.Readout.Cells {
				v := marked(r, bank, cell)
				if v == 0 {
					continue
				}
				if err := t.sw.WriteRegister(r.Name, bank*r.Readout.Cells+cell, v); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// checkReadouts marks cells of all registers, and reads their last banks, and then their first
// ones.
func (t *Trial) checkReadouts() error {
	if err := t.mark(); err != nil {
		return err
	}
	var errs []error
	var read [2]bool // whether the banks at this position have been read
	for position := 1; position >= 0 && errors.Join(errs...) == nil; position-- {
		if t.selectBank(1-position) != nil {
			break // checkTraffic reports it
		}
		for _, r := range t.cat.Readouts() {
			if banks := sides(r); position < len(banks) {
				_, err := t.readBank(r, banks[position], func(cell int) uint64 { return marked(r, banks[position], cell) })
				errs = append(errs, err)
			}
		}
		read[position] = true
		if errors.Join(errs...) != nil {
			break
		}
		for _, r := range t.cat.Readouts() {
			for i, bank := range sides(r) {
				errs = append(errs, t.compare(r, bank, read[i]))
			}
		}
	}
	return errors.Join(errs...)
}

// compare returns an error if a bank does not have its marks, or is not zero if it was read.
func (t *Trial) compare(r *p4values.Register, bank int, read bool) error {
	first := bank * r.Readout.Cells
	cells, err := t.sw.ReadRegister(r.Name, first, first+r.Readout.Cells)
	if err != nil {
		return err
	}
	for cell, v := range cells {
		want := marked(r, bank, cell)
		switch {
		case read && v != 0:
			return fmt.Errorf("register %s: its read-out (object %d) leaves %d in cell %d of bank %d: NS_READ_AND_CLEAR(%s, "+
				"%d) sets the cells that it reads to 0", r.Name, r.Readout.Object, v, cell, bank, r.Alias, r.Readout.Cells)
		case !read && v != want:
			return fmt.Errorf("register %s: cell %d of bank %d is %d after the read-out of other banks, and was %d: packets "+
				"are counted only where hdr.packet_in is not valid, and NS_READ_AND_CLEAR needs %d cells", r.Name, cell, bank,
				v, want, r.Readout.Cells)
		}
	}
	return nil
}

// selectBank makes packets count in the first bank, or in the last one.
func (t *Trial) selectBank(position int) error {
	table, banks := t.bankTable()
	if table == nil {
		return nil
	}
	bank := position * (banks - 1)
	action := table.Actions[0]
	err := t.sw.SetDefault(table.Name, &softswitch.Action{Name: action.Name, Params: [][]byte{{byte(bank)}}})
	if err != nil {
		return fmt.Errorf("table %s: bank %d cannot be selected: %w", table.Name, bank, err)
	}
	return nil
}

// bankTable returns the table that selects the bank, with the number of banks; nil if there is
// none.
func (t *Trial) bankTable() (*p4values.Table, int) {
	tables := t.cat.Annotated(p4values.AnnotationBank)
	if len(tables) != 1 || len(tables[0].Actions) != 1 {
		return nil, 0
	}
	a, _ := tables[0].Annotations.Find(p4values.AnnotationBank)
	banks := int64(2)
	if a.Values["banks"] != "" {
		var err error
		if banks, err = a.Int("banks"); err != nil {
			return nil, 0
		}
	}
	return tables[0], int(banks)
}

// readBank reads all cells of a bank of a register by packet, and returns the time until the last
// reply. A cell that differs from want is an error; if want is nil, any value is right.
func (t *Trial) readBank(r *p4values.Register, bank int, want func(cell int) uint64) (time.Duration, error) {
	out, in := t.cat.PacketOut, t.cat.PacketIn
	began := time.Now()
	for index := 0; index < r.Readout.Cells; index += p4rt.ReadoutCells {
		pkt := make([]byte, out.Len(), out.Len()+4*p4rt.ReadoutCells)
		for name, v := range map[string]int{"op": 1, "object": int(r.Readout.Object), "bank": bank, "index": index} {
			if err := out.Put(pkt, out.ByName(name), binary.BigEndian.AppendUint32(nil, uint32(v))); err != nil {
				return 0, fmt.Errorf("register %s: header packet_out: %w", r.Name, err)
			}
		}
		t.replies = nil
		if err := t.sw.PacketOut(append(pkt, make([]byte, 4*p4rt.ReadoutCells)...)); err != nil {
			return 0, err
		}
		if len(t.replies) != 1 || len(t.replies[0]) != in.Len()+4*p4rt.ReadoutCells ||
			!slices.Equal(in.Get(t.replies[0], in.ByName("reason")), []byte{1}) {
			return 0, fmt.Errorf("register %s: the program does not answer a read-out of object %d, bank %d, from cell %d: an "+
				"action needs NS_READ_AND_CLEAR(%s, %d), called where NS_ASKED(%d, %d) holds and hdr.packet_in is valid", r.Name,
				r.Readout.Object, bank, index, r.Alias, r.Readout.Cells, r.Readout.Object, r.Readout.Cells)
		}
		cells := t.replies[0][in.Len():]
		for i := range min(p4rt.ReadoutCells, r.Readout.Cells-index) {
			if want == nil {
				break
			}
			if v := binary.BigEndian.Uint32(cells[4*i:]); uint64(v) != want(index+i) {
				return 0, fmt.Errorf("register %s: the read-out of object %d, bank %d, has %d for cell %d, which is %d: "+
					"NS_READ_AND_CLEAR(%s, %d) reads this register%s", r.Name, r.Readout.Object, bank, v, index+i, want(index+i),
					r.Alias, r.Readout.Cells, narrow(r))
			}
		}
	}
	return time.Since(began), nil
}

// narrow returns how registers with narrow cells are read.
func narrow(r *p4values.Register) string {
	if r.Width >= 32 {
		return ""
	}
	return fmt.Sprintf(", with cells of %d bits by NS_READ_AND_CLEAR_BY", r.Width)
}

// checkTraffic sends packets while the first bank is selected, and while the last one is. They may
// change this bank only, and the counter of the register must count them.
func (t *Trial) checkTraffic() error {
	table, banks := t.bankTable()
	if table == nil {
		return nil // packets select the bank
	}
	t.forward()
	for position := range 2 {
		bank := position * (banks - 1)
		if err := t.selectBank(position); err != nil {
			return err
		}
		before := make([]uint64, len(t.cat.Readouts()))
		for i, r := range t.cat.Readouts() {
			if err := t.sw.ResetRegister(r.Name); err != nil {
				return err
			}
			before[i] = t.counted(r, bank)
		}
		for i := range trafficPackets {
			t.sw.Inject(1, frame(i), 0)
		}
		for i, r := range t.cat.Readouts() {
			cells, err := t.sw.ReadRegister(r.Name, 0, -1)
			if err != nil {
				return err
			}
			changed := false
			for cell, v := range cells {
				if v == 0 {
					continue
				}
				changed = true
				if at := cell / r.Readout.Cells; at != bank {
					return fmt.Errorf("register %s: packets that are counted in bank %d change cell %d of bank %d: add "+
						"meta.bank * %d to the cell, and give the register %d banks", r.Name, bank, cell%r.Readout.Cells, at,
						r.Readout.Cells, banks)
				}
			}
			if changed && r.Readout.Counter != nil && t.counted(r, bank) == before[i] {
				return fmt.Errorf("register %s: packets change bank %d, and its counter %s does not count them, so that the "+
					"bank would be taken for empty: call %s.count((bit<32>)meta.bank) for each packet that changes the register",
					r.Name, bank, r.Readout.Counter.Name, r.Readout.Counter.Alias)
			}
		}
	}
	return nil
}

// forward makes forwarding the default action of the routing tables, if the program has those of
// netsketch's programs. Packets then leave the switch, and its egress counts them.
func (t *Trial) forward() {
	for _, table := range t.cat.Tables.All() {
		if table.Alias != "ipv4_lpm" && table.Alias != "ipv6_lpm" {
			continue
		}
		for _, a := range table.Actions {
			if a.Alias == "forward" {
				// An action with other parameters is refused, and packets are dropped as before.
				_ = t.sw.SetDefault(table.Name, &softswitch.Action{Name: a.Name, Params: [][]byte{{0, 2}, make([]byte, 6),
					make([]byte, 6)}})
			}
		}
	}
}

// counted returns the packets that the counter of a register counted for a bank.
func (t *Trial) counted(r *p4values.Register, bank int) uint64 {
	if r.Readout.Counter == nil {
		return 0
	}
	c, err := t.sw.ReadCounter(r.Readout.Counter.Name, bank, bank+1)
	if err != nil || len(c) != 1 {
		return 0
	}
	return c[0].Packets
}

const trafficPackets = 64

// frame returns a UDP or TCP packet of a flow, by IPv4 or IPv6.
func frame(flow int) []byte {
	p := make([]byte, 12, 100)
	protocol := byte(17 - 11*(flow/2%2))
	if flow%2 == 0 {
		ip := []byte{0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, byte(flow), 10, 1, 0, byte(flow)}
		sum := uint32(0)
		for i := 0; i < len(ip); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(ip[i:]))
		}
		sum = sum>>16 + sum&0xffff
		binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
		p = append(append(p, 8, 0), ip...)
	} else {
		address := append([]byte{0x20, 1, 0xd, 0xb8}, make([]byte, 12)...)
		address[15] = byte(flow)
		p = append(p, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, protocol, 64)
		p = append(append(p, address...), address...)
	}
	p = binary.BigEndian.AppendUint16(p, uint16(1000+flow))
	p = binary.BigEndian.AppendUint16(p, 53)
	if protocol == 17 {
		return append(append(p, 0, 20, 0, 0), make([]byte, 12)...)
	}
	return append(p, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0)
}
