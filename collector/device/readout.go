// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// errOtherSealing is the error for a switch whose own pipeline lets packets select the bank: how
// epochs are sealed must be known before the session.
var errOtherSealing = errors.New("packets select the bank in this pipeline: name it as program in the configuration")

// contents identifies a period in which the registers keep their contents.
type contents struct {
	banks.Incarnation
	term uint64 // period in which the collector is the primary controller
}

// Measured reports whether the switch can be a source of epochs. A backup cannot, because only a
// primary may flip banks. A switch whose program has no registers to read cannot either, unless
// the program has more than two banks, with which it numbers its intervals.
func (d *Device) Measured() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	nothing := errors.Is(d.bindErr, ErrNoBanks) ||
		d.bindErr == nil && d.binding != nil && len(d.binding.objects) == 0 && d.binding.banks == 2
	return d.cfg.Session.Mode == p4rt.Primary && (d.cfg.Session.Program == nil || !nothing)
}

// Banks returns the number of banks; 2 until the pipeline is known. If epochs share a bank, each
// epoch counts as a bank of its own.
func (d *Device) Banks() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.binding == nil {
		return 2
	}
	return d.binding.banks * d.bankEpochs()
}

// bankEpochs returns how many epochs are counted in one bank. The caller holds d.mu.
func (d *Device) bankEpochs() int {
	if d.binding == nil || d.binding.banks == 2 || d.binding.windowed || len(d.binding.objects) > 0 {
		return 1
	}
	return min(max(d.epochs, 1), sdk.MaxBankEpochs)
}

// SetBankEpochs sets how many epochs are counted in one bank, up to sdk.MaxBankEpochs; 0 means
// one. It only applies if the program has more than two banks and no registers to read. A changed
// number begins a new incarnation.
func (d *Device) SetBankEpochs(epochs int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.bankEpochs()
	d.epochs = epochs
	if d.bankEpochs() != before {
		d.contents.ID++
		d.contents.Clean = false
	}
}

// Objects lists the registers that can be read, by name; nil until the pipeline is known.
func (d *Device) Objects() []sdk.Object {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.binding == nil {
		return nil
	}
	return slices.Clone(d.binding.objects)
}

// Unread lists the registers with annotations that cannot be read, by name; nil until the pipeline
// is known.
func (d *Device) Unread() []sdk.Object {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.binding == nil {
		return nil
	}
	return slices.Clone(d.binding.unread)
}

// SelectObjects sets the registers to read from now on, by full name; nil means all. Registers
// that were not read before begin a new incarnation, because the contents of their banks are
// unknown.
func (d *Device) SelectObjects(names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if names != nil {
		names = slices.Compact(slices.Sorted(slices.Values(names)))
		if names == nil {
			names = []string{}
		}
	}
	isNew := func(name string) bool { return !slices.Contains(d.selected, name) }
	if d.selected != nil && (names == nil || slices.ContainsFunc(names, isNew)) {
		d.contents.ID++
		d.contents.Clean = false
	}
	d.selected = names
}

// Ready returns the incarnation of the registers, or why the switch cannot be measured now.
func (d *Device) Ready() (banks.Incarnation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.session == nil {
		return banks.Incarnation{}, d.fault
	}
	st := d.session.Status()
	if st.State != p4rt.Ready {
		return banks.Incarnation{}, &p4rt.NotReadyError{Target: d.cfg.Session.Target, Status: st}
	}
	if st.Term != d.contents.term {
		d.newTerm(st)
	}
	if d.bindErr != nil {
		return banks.Incarnation{}, d.bindErr
	}
	if d.binding != nil && d.binding.windowed && d.cfg.Session.Program == nil {
		return banks.Incarnation{}, errOtherSealing
	}
	if d.binding == nil {
		return banks.Incarnation{}, errors.New("the pipeline on the switch is not known yet")
	}
	return d.contents.Incarnation, nil
}

// newTerm begins an incarnation, because another controller may have changed the registers. The
// caller holds d.mu.
func (d *Device) newTerm(st p4rt.Status) {
	d.contents = contents{banks.Incarnation{ID: d.contents.ID + 1, Clean: st.Pushed}, st.Term}
	if d.cfg.Session.Program != nil {
		return
	}
	cat, err := d.session.Catalog()
	if err == nil {
		d.binding, err = bind(cat)
	}
	d.bindErr = err
}

// bound returns the session and the parts of the pipeline to use; an error before both are known.
func (d *Device) bound() (session, *binding, []string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.session == nil || d.binding == nil {
		return nil, nil, nil, fmt.Errorf("device %s: %w", d.cfg.Name, d.fault)
	}
	return d.session, d.binding, d.selected, nil
}

// Windowed reports whether packets select the bank; false until the pipeline is known.
func (d *Device) Windowed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.binding != nil && d.binding.windowed
}

// Flip makes packets count in bank from now on. It must not be called for a pipeline with a
// window. If several epochs share a bank, the switch keeps the bank at the boundaries between
// them.
func (d *Device) Flip(ctx context.Context, bank int) error {
	d.mu.Lock()
	epochs := d.bankEpochs()
	d.mu.Unlock()
	return d.selectBank(ctx, false, uint64(bank/epochs))
}

// SetWindow makes the switch count epochs first to first+size-1 and no others. Packets carry the
// low 16 bits of an epoch.
func (d *Device) SetWindow(ctx context.Context, first uint64, size int) error {
	return d.selectBank(ctx, true, first&0xffff, uint64(size))
}

// selectBank sets the default action of the bank or window table.
func (d *Device) selectBank(ctx context.Context, windowed bool, values ...uint64) error {
	s, b, _, err := d.bound()
	if err != nil {
		return err
	}
	if b.windowed != windowed {
		return fmt.Errorf("device %s: %w", d.cfg.Name, errOtherSealing)
	}
	var params []p4rt.Param
	for i, v := range values {
		params = append(params, p4rt.Uint(b.params[i], v))
	}
	begin := time.Now()
	err = s.SetDefaultAction(ctx, b.table, b.action, params...)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.FlipTime = time.Since(begin)
	if err != nil {
		d.stats.LastError = err.Error()
	}
	return err
}

// Read returns the contents of the bank and clears it. It fails if any cell is lost, because lost
// cells must not be taken for zeros, but still reads the other cells. If the program counts
// packets by bank, and packets were counted in this bank after its read-out began, Read returns
// the reading with a [banks.InexactError].
func (d *Device) Read(ctx context.Context, bank int, drained epoch.Drained) (*epoch.Reading, error) {
	s, b, selected, err := d.bound()
	if err != nil {
		return nil, err
	}
	r := &readout{session: s, bank: bank}
	packets, err := r.read(ctx, b, selected, drained)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.ReadTime, d.stats.LastError = r.took, ""
	switch {
	case err != nil:
		d.stats.LastError = err.Error()
		return nil, err
	case packets > 0:
		err = &banks.InexactError{Reason: fmt.Sprintf("%d packets were counted in bank %d after it was sealed: "+
			"the switch acknowledges flips early, or the guard is too short", packets, bank)}
		d.stats.LastError = err.Error()
	}
	return &epoch.Reading{Objects: r.objects, Release: r.release}, err
}

// Uncounted returns the numbers of packets in a reading that arrived while their epoch was not in
// the window. The index is the epoch divided by the number of banks, modulo the length. empty
// reports that the bank counted no packets.
func (d *Device) Uncounted(r *epoch.Reading) (packets []uint32, empty bool) {
	d.mu.Lock()
	b := d.binding
	d.mu.Unlock()
	empty = true
	for _, o := range r.Objects {
		if b != nil && o.Object == b.uncounted {
			for n := range min(b.epochs, o.Len()) {
				packets = append(packets, uint32(o.At(n)))
			}
			continue
		}
		for n := 0; empty && n < o.Len(); n++ {
			empty = o.At(n) == 0
		}
	}
	return packets, empty
}

// readout reads one bank.
type readout struct {
	session
	bank    int
	cells   []*p4rt.Cells
	objects []sdk.Cells   // same cells, by plugin object
	took    time.Duration // time without the wait for the drain
}

// release returns the memory of the cells.
func (r *readout) release() {
	for _, c := range r.cells {
		c.Release()
	}
}

// read first reads the registers that no packet changes any more and, after the drain, the
// registers that packets in flight change. packets is the number of packets that the bank counted
// meanwhile.
func (r *readout) read(ctx context.Context, b *binding, selected []string,
	drained epoch.Drained,
) (packets uint64, err error) {
	early, late := b.readable(selected)
	first, err := r.registers(ctx, early)
	if len(late) > 0 {
		err = errors.Join(err, drained(ctx))
		_, lateErr := r.registers(ctx, late)
		err = errors.Join(err, lateErr)
		slices.SortFunc(r.objects, func(x, y sdk.Cells) int { return strings.Compare(x.Object, y.Object) })
	}
	if err != nil {
		return 0, err
	}
	return r.Moved(ctx, first...)
}

// registers reads registers.
func (r *readout) registers(ctx context.Context, names []string) ([]*p4rt.Cells, error) {
	if len(names) == 0 {
		return nil, nil
	}
	begin := time.Now()
	cells, err := r.ReadBanks(ctx, r.bank, names...)
	r.took += time.Since(begin)
	if err != nil {
		return nil, err
	}
	r.cells = append(r.cells, cells...)
	for _, c := range cells {
		r.objects = append(r.objects, sdk.Cells{Object: c.Register.Name, Width: 32, Packed: c.Data})
	}
	return cells, nil
}
