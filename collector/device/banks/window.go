// SPDX-License-Identifier: Apache-2.0

package banks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
)

// WindowSwitch is a switch that counts each packet in the bank of the packet's epoch: epoch n in
// bank n modulo Banks. It counts only the epochs of its window, which has at most as many epochs
// as the switch has banks; Flip is not used. Packets carry the collector's epoch numbers, possibly
// cut to fewer bits.
type WindowSwitch interface {
	Switch
	// Windowed reports whether the pipeline has a window; constant for an incarnation.
	Windowed() bool
	// SetWindow makes the switch count epochs first to first+size-1 and no others. If it fails, the
	// window is unknown.
	SetWindow(ctx context.Context, first uint64, size int) error
	// Uncounted returns, from a reading of bank b, the numbers of packets that arrived while their
	// epoch was not in the window. Element i counts packets of epochs n with n modulo Banks = b and n
	// / Banks = i, modulo the length. empty reports that no packet was counted in the bank.
	Uncounted(r *epoch.Reading) (packets []uint32, empty bool)
}

// window is a switch whose packets select the bank.
//
// The bank of an epoch is read after the epoch has left the window, so no packet changes the bank
// meanwhile. An epoch enters the window when its bank is clean, and at the earliest when the epoch
// before it is open. If that comes too late, the switch is missing from the epoch. Packets that
// arrive before or after are counted apart and become accuracy warnings of their own epoch, late
// ones if it has been delivered.
type window struct {
	g  *Group
	sw WindowSwitch
	io chan struct{} // holds a token while the window is changed or a bank is read

	mu          sync.Mutex
	incarnation Incarnation
	isIn        bool          // first, size and banks are known
	in          chan struct{} // closed when isIn becomes true; replaced when it becomes false
	joining     bool
	joinErr     error  // why the latest join failed
	tried       bool   // an earlier join of this incarnation began, so its banks are no longer clean
	first, size uint64 // the window
	from        uint64 // all epochs from this one on have been in the window
	banks       []content
	found       []int             // banks that held packets when the switch joined before the first epoch
	missed      map[uint64]uint64 // packets that were not counted, for epochs that have not ended
	unsure      map[uint64]string // reasons for which packets of an epoch may be missing, by epoch
	delivered   map[uint64]bool   // epochs with a reading
	late        map[uint64]uint64 // packets of delivered epochs that arrived later and are not reported yet
	offered     *Handover         // state from the previous collector; nil if there was none or it was used
}

// content describes the packets in a bank.
type content struct {
	epoch uint64 // the epoch of the packets; 0 if the bank is empty
	dirty error  // why the bank may hold packets of other epochs; nil if it does not
}

func newWindow(g *Group, sw WindowSwitch) *window {
	return &window{g: g, sw: sw, io: make(chan struct{}, 1), in: make(chan struct{}),
		missed: map[uint64]uint64{}, unsure: map[uint64]string{}, delivered: map[uint64]bool{},
		late: map[uint64]uint64{}}
}

// Name is the name of the switch.
func (w *window) Name() string { return w.sw.Name() }

// Sealing returns SealedByPackets: packets carry their epoch.
func (w *window) Sealing() epoch.Sealing { return epoch.SealedByPackets }

// Begin starts a boundary.
func (w *window) Begin(b epoch.Boundary) (epoch.Part, []string) {
	_ = w.g.begin(b.Number + 1) // the window bounds the time of each call
	return &windowPart{w, b}, nil
}

// windowPart is a window at one boundary.
type windowPart struct {
	*window
	epoch.Boundary
}

// Seal is not called: packets seal the epoch.
func (p *windowPart) Seal(context.Context) error { return nil }

// Collect moves the window past the epoch and reads the epoch's bank. It continues after the
// deadline, so that the bank is clean for a later epoch. At the opening, it opens the window.
func (p *windowPart) Collect(ctx context.Context, drained epoch.Drained) (epoch.Result, error) {
	var late error
	if !p.Opening {
		late = drained(ctx)
	}
	io, cancel := context.WithTimeout(p.g.ctx, p.g.readLimit())
	defer cancel()
	if err := p.acquire(io); err != nil {
		return epoch.Result{}, err
	}
	defer p.release()
	inc, err := p.sw.Ready()
	if err != nil {
		p.leave()
		return epoch.Result{}, err
	}
	if in, joinErr := p.joined(inc); !in {
		return epoch.Result{}, cmp.Or(joinErr, epoch.ErrJoining)
	}
	if p.Opening {
		return epoch.Result{}, p.start(io, p.Number+1)
	}
	reading, err := p.advance(io, p.Number)
	result := epoch.Result{Reading: reading}
	result.Warnings, result.LateWarnings = p.warnings(p.Number, reading != nil)
	var inexact *InexactError
	if errors.As(err, &inexact) {
		result.Warnings = append(result.Warnings, inexact.Reason)
		err = nil
	}
	return result, cmp.Or(err, late)
}

// acquire waits until no other goroutine changes the window or reads a bank. Methods below that
// take a context must be called between acquire and release.
func (w *window) acquire(ctx context.Context) error {
	select {
	case w.io <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *window) release() { <-w.io }

// start opens the first epoch, which has already begun.
func (w *window) start(ctx context.Context, first uint64) error {
	w.clear(ctx, first)
	w.mu.Lock()
	w.first, w.size = first, 0
	for _, bank := range w.found {
		w.unsure[w.next(first-1, bank)] = discarded
	}
	w.found = nil
	w.mu.Unlock()
	if err := w.extend(ctx, first, first); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.size == 0 {
		return ErrUnread
	}
	return nil
}

// advance ends an epoch: it removes the epoch from the window, reads its bank, clears other banks
// that are not clean, and adds epochs whose banks are free.
func (w *window) advance(ctx context.Context, number uint64) (reading *epoch.Reading, err error) {
	w.mu.Lock()
	first, end := w.first, w.first+w.size
	w.mu.Unlock()
	if first <= number {
		if err := w.set(ctx, number+1, max(end, number+1)); err != nil {
			return nil, err
		}
	}
	if err = w.counted(number); err == nil {
		reading, err = w.read(ctx, number, w.bankOf(number))
	}
	w.clear(ctx, number)
	return reading, cmp.Or(err, w.extend(ctx, number+1, w.g.openNumber()+1))
}

// Reasons why packets of an epoch may be missing.
const (
	discarded = "its first packets may have been counted, and discarded, before the switch joined"
	unread    = "packets may have arrived while the switch did not count the epoch; a failed read-out lost their number"
)

// next returns the first epoch after number that uses a bank.
func (w *window) next(number uint64, bank int) uint64 {
	banks := uint64(len(w.banks))
	return number + 1 + (uint64(bank)+banks-(number+1)%banks)%banks
}

func (w *window) bankOf(number uint64) int { return int(number % uint64(len(w.banks))) }

// counted returns an error if the bank of an epoch that has left the window may not hold exactly
// the packets of that epoch.
func (w *window) counted(number uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch b := w.banks[w.bankOf(number)]; {
	case number < w.from:
		return epoch.ErrJoining
	case b.epoch != number:
		return ErrUnread
	default:
		return b.dirty
	}
}

// extend adds epochs to the window from first on, as long as their banks are clean. It adds no
// epoch before earliest, because packets of earlier epochs were not counted. An empty window moves
// to first.
func (w *window) extend(ctx context.Context, first, earliest uint64) error {
	w.mu.Lock()
	if w.size == 0 {
		w.first = max(w.first, first, earliest)
		w.from = w.first
	}
	end := w.first + w.size
	for end >= earliest && end < w.first+uint64(len(w.banks)) && w.banks[w.bankOf(end)] == (content{}) {
		w.banks[w.bankOf(end)].epoch = end
		end++
	}
	first, same := w.first, end == w.first+w.size
	w.mu.Unlock()
	if same {
		return nil
	}
	return w.set(ctx, first, end)
}

// set sets the window to the epochs from first up to, but not including, end. If it fails, the
// switch joins again.
func (w *window) set(ctx context.Context, first, end uint64) error {
	if err := w.sw.SetWindow(ctx, first, int(end-first)); err != nil {
		w.leave()
		w.g.goDo(w.check)
		return fmt.Errorf("setting the window to %d epochs from %d on: %w", end-first, first, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.first, w.size = first, end-first
	return nil
}

// read reads a bank that is not in the window, and records the packets that were not counted;
// number is the epoch that ends. After an InexactError, the reading is valid, but the bank is not
// clean.
func (w *window) read(ctx context.Context, number uint64, bank int) (*epoch.Reading, error) {
	reading, err := w.sw.Read(ctx, bank, noDrain)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.banks[bank] = content{}
	if err != nil {
		w.banks[bank].dirty = ErrUnread
	}
	if reading != nil {
		packets, _ := w.sw.Uncounted(reading)
		w.note(number, bank, packets)
	} else {
		w.unsure[w.next(number, bank)] = unread
	}
	if inexact := (*InexactError)(nil); err != nil && !errors.As(err, &inexact) {
		return nil, fmt.Errorf("reading bank %d: %w", bank, err)
	}
	return reading, err
}

// note assigns the uncounted packets of a bank's reading to their epochs. Each element stands for
// several epochs; note assumes the epoch nearest to number. The caller holds w.mu.
func (w *window) note(number uint64, bank int, uncounted []uint32) {
	banks := int64(len(w.banks))
	period := banks * int64(len(uncounted))
	maps.DeleteFunc(w.delivered, func(n uint64, _ bool) bool { return int64(n)+period/2 < int64(number) })
	for i, packets := range uncounted {
		if packets == 0 {
			continue
		}
		from := int64(number) - period/2
		n := from + ((int64(i)*banks+int64(bank)-from)%period+period)%period
		switch {
		case n >= int64(number):
			w.missed[uint64(n)] += uint64(packets)
		case w.delivered[uint64(n)]:
			w.late[uint64(n)] += uint64(packets)
		}
	}
}

// warnings returns why the ending epoch, and earlier ones, may be inexact. delivered reports
// whether the ending epoch has a reading.
func (w *window) warnings(number uint64, delivered bool) (all []string, late []epoch.LateWarning) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delivered {
		w.delivered[number] = true
	}
	if packets := w.missed[number]; packets > 0 && delivered {
		all = append(all, fmt.Sprintf("%d packets of the epoch arrived while the switch did not count the epoch", packets))
	}
	if reason := w.unsure[number]; reason != "" && delivered {
		all = append(all, reason)
	}
	maps.DeleteFunc(w.missed, func(n, _ uint64) bool { return n <= number })
	maps.DeleteFunc(w.unsure, func(n uint64, _ string) bool { return n <= number })
	for _, n := range slices.Sorted(maps.Keys(w.late)) {
		late = append(late, epoch.LateWarning{Epoch: n, AccuracyWarning: epoch.AccuracyWarning{Reason: fmt.Sprintf(
			"%d packets arrived after it was read: epoch.drain is too short, or their epoch is wrong", w.late[n])}})
	}
	clear(w.late)
	return all, late
}

// clear reads and discards the banks that are not in the window and not clean, at most twice.
func (w *window) clear(ctx context.Context, number uint64) {
	for bank := range w.banks {
		for try := 0; try < 2 && w.unclean(bank); try++ {
			_, _ = w.read(ctx, number, bank) // the switch's state reports errors
		}
	}
}

// unclean reports whether a bank is not in the window and not clean.
func (w *window) unclean(bank int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.banks[bank]
	return b != content{} && (b.epoch < w.first || b.epoch >= w.first+w.size)
}

// check starts a join if the switch is ready and has not joined in this incarnation.
func (w *window) check() {
	inc, err := w.sw.Ready()
	if err != nil {
		w.leave()
		return
	}
	_, _ = w.joined(inc) // an epoch from which the switch is missing states the error
}

// joined reports whether the switch has joined in this incarnation, and starts a join if it has
// not. err is the latest join's error.
func (w *window) joined(inc Incarnation) (in bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.incarnation.ID != inc.ID {
		w.leaveLocked()
		w.incarnation, w.tried, w.joinErr = inc, false, nil
	}
	if !w.isIn && !w.adopt(inc) && !w.joining {
		w.joining = true
		isClean := inc.Clean && !w.tried
		w.tried = true
		if !w.g.goDo(func() { w.join(inc, isClean) }) {
			w.joining = false
		}
	}
	return w.isIn, w.joinErr
}

// leave marks window and banks as unknown.
func (w *window) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaveLocked()
}

func (w *window) leaveLocked() {
	if w.isIn {
		w.isIn, w.in = false, make(chan struct{})
	}
}

// join closes the window, clears all banks, and adds epochs that have not begun. Before the first
// epoch, start adds them.
func (w *window) join(inc Incarnation, isClean bool) {
	ctx, cancel := context.WithTimeout(w.g.ctx, w.g.readLimit())
	defer cancel()
	err := w.acquire(ctx)
	if err == nil {
		err = w.enter(ctx, inc, isClean)
		w.release()
	}
	w.mu.Lock()
	w.joining, w.joinErr = false, err
	again := w.incarnation.ID != inc.ID
	w.mu.Unlock()
	if again {
		w.check()
	}
}

func (w *window) enter(ctx context.Context, inc Incarnation, isClean bool) error {
	if err := w.sw.SetWindow(ctx, 0, 0); err != nil {
		return fmt.Errorf("closing the window: %w", err)
	}
	open := w.g.openNumber()
	w.mu.Lock()
	w.first, w.size, w.from, w.banks, w.found = 0, 0, open+1, make([]content, max(w.sw.Banks(), 2)), nil
	w.mu.Unlock()
	if !isClean {
		if err := w.g.pause(ctx, w.g.cfg.Guard+w.g.cfg.Drain); err != nil {
			return err
		}
		for bank := range w.banks {
			reading, err := w.read(ctx, open, bank)
			if err != nil {
				return err
			}
			if _, empty := w.sw.Uncounted(reading); empty {
				continue
			}
			w.mu.Lock()
			if w.found = append(w.found, bank); open > 0 {
				w.unsure[w.next(open, bank)] = discarded
			}
			w.mu.Unlock()
		}
	}
	w.mu.Lock()
	// A packet is at most as many epochs ahead as there are banks; counts of other epochs are left
	// over from a time without a collector. The discarded packets of a bank are assigned in the
	// same way, to the next epoch of that bank.
	ahead := open + uint64(len(w.banks))
	maps.DeleteFunc(w.missed, func(n, _ uint64) bool { return open == 0 || n <= open || n > ahead })
	same := w.incarnation.ID == inc.ID
	if same {
		w.isIn = true
		close(w.in)
	}
	w.mu.Unlock()
	if !same {
		return epoch.ErrJoining
	}
	if open = w.g.openNumber(); open == 0 {
		return nil
	}
	return w.extend(ctx, open+1, open+1)
}

// wait waits until the switch has joined and no bank is being read, or until the switch was
// removed. It returns false if ctx ends first.
func (w *window) wait(ctx context.Context) bool {
	again := time.NewTicker(recheck)
	defer again.Stop()
	for w.g.has(w) {
		w.check()
		w.mu.Lock()
		in, isIn := w.in, w.isIn
		w.mu.Unlock()
		if isIn && w.acquire(ctx) == nil {
			w.release()
			return true
		}
		select {
		case <-in:
		case <-again.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
