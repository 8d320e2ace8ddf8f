// SPDX-License-Identifier: Apache-2.0

package banks_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// slotted is a switch whose packets select the bank. The first cell of a bank counts its packets,
// and the other cells count packets of epochs outside of the window.
type slotted struct {
	name string

	mu          sync.Mutex
	life        banks.Incarnation
	down        error
	first, size uint64
	banks       [4][1 + uncounted]int
	readErr     error
	errs        int // number of reads that fail with readErr; 0 means all
	setErr      error
	inexact     error // error of the next reading; its packets are in the reading after that
}

const uncounted = 8 // number of epochs with a cell of their own, in each bank

func newSlotted(name string) *slotted {
	return &slotted{name: name, life: banks.Incarnation{ID: 1, Clean: true}}
}

func (f *slotted) Name() string   { return f.name }
func (f *slotted) Banks() int     { return len(f.banks) }
func (f *slotted) Windowed() bool { return true }

func (f *slotted) Flip(context.Context, int) error { return errors.New("has no bank table") }

func (f *slotted) Ready() (banks.Incarnation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.life, f.down
}

func (f *slotted) SetWindow(_ context.Context, first uint64, size int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.setErr != nil {
		return f.setErr
	}
	f.first, f.size = first, uint64(size)
	return nil
}

func (f *slotted) Read(_ context.Context, bank int, _ epoch.Drained) (*epoch.Reading, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readErr != nil {
		err := f.readErr
		if f.errs--; f.errs == 0 {
			f.readErr = nil
		}
		return nil, err
	}
	r := reading(f.banks[bank][:]...)
	clear(f.banks[bank][:])
	err := f.inexact
	if f.inexact = nil; err != nil {
		f.banks[bank][0] = 100
	}
	return r, err
}

func (f *slotted) Uncounted(r *epoch.Reading) (out []uint32, empty bool) {
	for i := range uncounted {
		out = append(out, uint32(r.Objects[0].At(1+i)))
	}
	return out, count(r) == 0
}

// packet makes n packets of an epoch pass.
func (f *slotted) packet(number uint64, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := &f.banks[number%4]
	if number >= f.first && number < f.first+f.size {
		b[0] += n
	} else {
		b[1+number/4%uncounted] += n
	}
}

func (f *slotted) set(change func(*slotted)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// windowBench is a network on virtual time with one switch whose packets select the bank.
type windowBench struct {
	*bench
	sw *slotted
}

func newWindowBench(t *testing.T, sw *slotted) *windowBench {
	t.Helper()
	b := &bench{t: t, clock: epoch.NewVirtual(t0, 0), log: &testkit.Log{}, end: t0}
	b.network = newNetwork(epoch.Config{Interval: time.Second, Guard: time.Millisecond, Drain: 10 * time.Millisecond,
		Deadline: 800 * time.Millisecond}, epoch.Dependencies{Clock: b.clock, Logger: b.log.Logger()})
	t.Cleanup(b.stop)
	b.add(sw)
	b.join()
	return &windowBench{b, sw}
}

func (b *windowBench) open() *windowBench {
	b.t.Helper()
	if err := b.e.Open(context.Background(), t0, b.wait); err != nil {
		b.t.Fatal(err)
	}
	return b
}

// close ends the open epoch and returns it in one line, with its warnings.
func (b *windowBench) close() string {
	b.t.Helper()
	var warnings []string
	b.each = func(ep *epoch.Epoch) {
		for _, w := range ep.AllWarnings() {
			warnings = append(warnings, w.Reason)
		}
	}
	return strings.Join(append([]string{b.step(0)}, warnings...), "; ")
}

// Packets of four epochs are counted at the same time, each in its own epoch.
func TestWindow(t *testing.T) {
	b := newWindowBench(t, newSlotted("s1")).open()
	for n := range uint64(4) {
		b.sw.packet(1+n, int(10+n))
	}
	b.expect(b.close(), "1 COMPLETE s1=10")
	b.sw.packet(5, 14)
	b.sw.packet(2, 100)
	b.expect(b.close(), "2 COMPLETE s1=111")
	for n := uint64(3); n < 40; n++ {
		b.sw.packet(n+3, int(13+n))
		want := int(10 + n)
		if n < 6 {
			want = int(9 + n)
		}
		b.expect(b.close(), fmt.Sprintf("%d COMPLETE s1=%d", n, want))
	}
}

// Packets outside of the window make their epochs inexact.
func TestWindowReportsUncountedPackets(t *testing.T) {
	b := newWindowBench(t, newSlotted("s1"))
	b.sw.packet(1, 3) // before the opening
	b.open()
	b.sw.packet(1, 1)
	b.sw.packet(7, 9) // too far ahead
	b.expect(b.close(), "1 COMPLETE s1=1; 3 packets of the epoch arrived while the switch did not count the epoch")
	b.sw.packet(1, 2) // too late
	for n := 2; n < 5; n++ {
		b.expect(b.close(), fmt.Sprintf("%d COMPLETE s1=0", n))
	}
	b.expect(b.close(), "5 COMPLETE s1=0; epoch 1: 2 packets arrived after it was read: epoch.drain is too short, or "+
		"their epoch is wrong")
	b.expect(b.close(), "6 COMPLETE s1=0")
	b.expect(b.close(), "7 COMPLETE s1=0; 9 packets of the epoch arrived while the switch did not count the epoch")
	b.expect(b.close(), "8 COMPLETE s1=0")
}

// A new session finds a switch that has a window and packets of another collector.
func TestWindowJoinsWithStaleBanks(t *testing.T) {
	sw := newSlotted("s1")
	sw.life.Clean = false
	sw.first, sw.size = 1, 4
	for n := range uint64(64) {
		sw.packet(n, 5)
	}
	b := newWindowBench(t, sw).open()
	b.sw.packet(1, 7)
	const unsure = "; its first packets may have been counted, and discarded, before the switch joined"
	b.expect(b.close(), "1 COMPLETE s1=7"+unsure)
	b.sw.packet(2, 8)
	// The collector's session is lost; packets continue, and another controller moves the window.
	b.sw.set(func(f *slotted) { f.down = errors.New("session is down") })
	b.expect(b.close(), "2 LOST s1=error")
	b.sw.set(func(f *slotted) { f.first, f.size = 2, 4 })
	for n := uint64(2); n < 7; n++ {
		b.sw.packet(n, 1)
	}
	b.sw.set(func(f *slotted) { f.down, f.life = nil, banks.Incarnation{ID: 2} })
	b.g.Check("s1")
	b.join()
	b.sw.packet(3, 1)
	b.sw.packet(4, 4)
	b.expect(b.close(), "3 LOST s1=joining")
	b.expect(b.close(), "4 COMPLETE s1=4"+unsure)
	b.expect(b.close(), "5 COMPLETE s1=0"+unsure)
	b.expect(b.close(), "6 COMPLETE s1=0; 1 packets of the epoch arrived while the switch did not count the epoch"+unsure)
	b.expect(b.close(), "7 COMPLETE s1=0"+unsure)
	b.expect(b.close(), "8 COMPLETE s1=0")
	// A rebooted switch is clean: the next epoch is complete.
	b.sw.set(func(f *slotted) {
		*f = slotted{name: f.name, life: banks.Incarnation{ID: 3, Clean: true}}
		f.mu.Lock()
	})
	b.g.Check("s1")
	b.join()
	b.sw.packet(9, 1)
	b.sw.packet(10, 2)
	b.expect(b.close(), "9 LOST s1=joining")
	b.expect(b.close(), "10 COMPLETE s1=2")
}

// A bank that was not read completely is cleared before packets count in it again.
func TestWindowAfterFailedReadOut(t *testing.T) {
	b := newWindowBench(t, newSlotted("s1")).open()
	count := func(n uint64) { b.sw.packet(n, int(n)) }
	count(1)
	b.sw.set(func(f *slotted) { f.readErr, f.errs = errors.New("a range was lost"), 1 })
	b.expect(b.close(), "1 LOST s1=error") // the bank is cleared at once, so that epoch 5 is counted
	const unsure = "; packets may have arrived while the switch did not count the epoch; " +
		"a failed read-out lost their number"
	for n := uint64(2); n < 5; n++ {
		count(n)
		b.expect(b.close(), fmt.Sprintf("%d COMPLETE s1=%d", n, n))
	}
	count(5)
	b.expect(b.close(), "5 COMPLETE s1=5"+unsure)
	count(6)
	b.sw.set(func(f *slotted) { f.readErr = errors.New("the port is full") })
	b.expect(b.close(), "6 LOST s1=error")
	b.sw.set(func(f *slotted) { f.readErr = nil })
	for n := uint64(7); n < 12; n++ {
		count(n)
		want := fmt.Sprintf("%d COMPLETE s1=%d", n, n)
		if n == 10 {
			want += unsure
		}
		b.expect(b.close(), want)
	}
	b.sw.set(func(f *slotted) { f.inexact = &banks.InexactError{Reason: "packets after the end"} })
	count(12)
	b.expect(b.close(), "12 COMPLETE s1=12; packets after the end")
	for n := uint64(13); n < 18; n++ {
		count(n)
		b.expect(b.close(), fmt.Sprintf("%d COMPLETE s1=%d", n, n))
	}
	b.sw.set(func(f *slotted) { f.setErr = errors.New("refused") })
	b.expect(b.close(), "18 LOST s1=error")
	b.sw.set(func(f *slotted) { f.setErr = nil })
	b.join()
	b.expect(b.close(), "19 LOST s1=joining")
	count(20)
	count(21)
	b.expect(b.close(), "20 COMPLETE s1=20")
	b.expect(b.close(), "21 COMPLETE s1=21")
}

// Epochs that the collector skipped are discarded; later epochs are exact.
func TestWindowSkippedBoundaries(t *testing.T) {
	b := newWindowBench(t, newSlotted("s1")).open()
	for n := uint64(1); n < 5; n++ {
		b.sw.packet(n, int(n))
	}
	b.end = b.end.Add(2 * time.Second)
	b.expect(b.close(), "3 COMPLETE s1=3")
	b.expect(b.close(), "4 COMPLETE s1=4")
	b.end = b.end.Add(9 * time.Second)
	b.sw.packet(14, 1)
	b.expect(b.close(), "14 LOST s1=unread")
	b.sw.packet(15, 1)
	b.sw.packet(16, 1)
	b.expect(b.close(), "15 LOST s1=joining")
	b.expect(b.close(), "16 COMPLETE s1=1")
}

// TestWindowIsExactOrSaysSo lets packets of random epochs pass while the collector, the session and
// the read-out fail at random. An epoch without a warning and without a late warning has counted
// exactly its packets.
func TestWindowIsExactOrSaysSo(t *testing.T) {
	exact := 0
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 0))
		b := newWindowBench(t, newSlotted("s1")).open()
		sent, got := map[uint64]int{}, map[uint64]int{}
		b.each = func(ep *epoch.Epoch) {
			for _, w := range ep.LateWarnings {
				delete(got, w.Epoch)
			}
			if o := ep.Sources[0]; o.Err == nil && len(ep.Warnings) == 0 {
				got[ep.Number] = count(o.Reading)
			}
		}
		life := uint64(1)
		for range 200 {
			number, _ := b.e.Current()
			for range r.IntN(12) {
				n := number + uint64(r.IntN(3))
				if r.IntN(30) == 0 {
					n = number + uint64(r.IntN(5)) - min(number-1, uint64(r.IntN(5)))
				}
				b.sw.packet(n, 1)
				sent[n]++
			}
			switch r.IntN(25) {
			case 0:
				b.end = b.end.Add(time.Duration(1+r.IntN(6)) * time.Second)
			case 1:
				b.sw.set(func(f *slotted) { f.readErr, f.errs = errors.New("lost"), 1+r.IntN(5) })
			case 2:
				b.sw.set(func(f *slotted) { f.setErr = errors.New("refused") })
			case 3:
				life++
				b.sw.set(func(f *slotted) { f.life = banks.Incarnation{ID: life} })
				b.g.Check("s1")
				b.join()
			case 4:
				b.sw.set(func(f *slotted) { f.down = errors.New("down") })
			}
			b.step(0)
			b.sw.set(func(f *slotted) { f.setErr, f.down = nil, nil })
			if r.IntN(2) == 0 {
				b.join()
			}
		}
		for range 40 { // late packets are reported when their bank is read again
			b.step(0)
		}
		for n, packets := range got {
			if packets != sent[n] {
				t.Errorf("seed %d: epoch %d has %d packets instead of %d", seed, n, packets, sent[n])
			}
		}
		exact += len(got)
	}
	if exact < 400 {
		t.Errorf("%d epochs of 1,200 were exact", exact)
	}
}
