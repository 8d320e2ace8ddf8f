// SPDX-License-Identifier: Apache-2.0

package banks_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/epoch"
)

// hung makes the next flips or read-outs of some switches block until they are released or
// canceled.
type hung struct {
	b     *bench
	hold  chan struct{}
	fakes []*fake
}

func (b *bench) hangReads(fakes ...*fake) hung {
	h := hung{b, make(chan struct{}), fakes}
	for _, f := range fakes {
		f.set(func(f *fake) { f.hold = h.hold })
	}
	return h
}

func (b *bench) hangFlips(fakes ...*fake) hung {
	h := hung{b, make(chan struct{}), fakes}
	for _, f := range fakes {
		f.set(func(f *fake) { f.holdFlip = h.hold })
	}
	return h
}

// over makes new flips and read-outs pass. Calls in progress still block.
func (h hung) over() {
	for _, f := range h.fakes {
		f.set(func(f *fake) { f.hold, f.holdFlip = nil, nil })
	}
}

// release ends the blocked calls, and waits until the switches have joined.
func (h hung) release() {
	h.over()
	close(h.hold)
	h.b.join()
}

// A fault costs the epochs in which it lasts and at most two more. Later epochs are complete, every
// switch is in step, and a late read-out causes no accuracy warning for other switches.
func TestRecoveryCostsTwoEpochsAtMost(t *testing.T) {
	tests := map[string]struct {
		fault  func(b *bench, s3 *fake)
		lost   []uint64 // epochs that are not complete
		warned bool     // epochs may have accuracy warnings
	}{
		"a read-out is late on one switch": {
			func(b *bench, s3 *fake) { h := b.hangReads(s3); b.step(1); h.release() },
			[]uint64{1}, false,
		},
		"a read-out is late on all switches": {
			func(b *bench, _ *fake) { h := b.hangReads(b.fakes...); b.step(1); h.release() },
			[]uint64{1}, false,
		},
		"a read-out on one switch lasts until its bank is written again": {
			func(b *bench, s3 *fake) { h := b.hangReads(s3); b.step(1); h.over() },
			[]uint64{1, 3}, false,
		},
		"a read-out on all switches lasts until their banks are written again": {
			func(b *bench, _ *fake) { h := b.hangReads(b.fakes...); b.step(1); h.over() },
			[]uint64{1, 3}, false,
		},
		"all read-outs on one switch last too long for three epochs": {
			func(b *bench, s3 *fake) { h := b.hangReads(s3); b.step(1); b.step(1); b.step(1); h.over() },
			[]uint64{1, 2, 3, 4, 5}, false,
		},
		"all read-outs on all switches last too long for three epochs": {
			func(b *bench, _ *fake) { h := b.hangReads(b.fakes...); b.step(1); b.step(1); b.step(1); h.over() },
			[]uint64{1, 2, 3, 4, 5}, false,
		},
		"a read-out fails on all switches": {
			func(b *bench, _ *fake) {
				for _, f := range b.fakes {
					f.set(func(f *fake) { f.readErr, f.errs = errors.New("a range was lost"), 1 })
				}
				b.step(1)
				b.join() // the switches are read once more
			},
			[]uint64{1}, false,
		},
		"a read-out fails on all switches, again and again": {
			func(b *bench, _ *fake) {
				for _, f := range b.fakes {
					f.set(func(f *fake) { f.readErr, f.errs = errors.New("a range was lost"), 2 })
				}
				b.step(1)
				b.join()
			},
			[]uint64{1, 3}, false,
		},
		"the collector does not run over two boundaries": {
			func(b *bench, _ *fake) { b.end = b.end.Add(2 * time.Second); b.step(1) },
			[]uint64{3}, true,
		},
		"the collector does not run over three boundaries": {
			func(b *bench, _ *fake) { b.end = b.end.Add(3 * time.Second); b.step(1) },
			[]uint64{4, 5}, true,
		},
		"one switch does not flip for three epochs": {
			func(b *bench, s3 *fake) {
				h := b.hangFlips(s3)
				b.step(1)
				b.step(1)
				b.step(1)
				h.release()
			},
			[]uint64{1, 2, 3, 4}, true,
		},
		"all switches do not flip for three epochs": {
			func(b *bench, _ *fake) {
				h := b.hangFlips(b.fakes...)
				b.step(1)
				b.step(1)
				b.step(1)
				h.release()
			},
			[]uint64{1, 2, 3, 4}, true,
		},
		"flips are refused on all switches": {
			func(b *bench, _ *fake) {
				for _, f := range b.fakes {
					f.set(func(f *fake) { f.flipErr = errors.New("refused") })
				}
				b.step(1)
				b.step(1)
				for _, f := range b.fakes {
					f.set(func(f *fake) { f.flipErr = nil })
				}
				b.join()
			},
			[]uint64{1, 2, 3}, true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 700*time.Millisecond, "s1", "s2", "s3", "s4")
			var lost []uint64
			b.each = func(ep *epoch.Epoch) {
				if ep.Status != epoch.Complete {
					lost = append(lost, ep.Number)
				}
				if len(ep.Warnings) > 0 && (!test.warned || len(lost) == 0 || ep.Number > lost[len(lost)-1]+1) {
					t.Errorf("epoch %d has warnings %v", ep.Number, ep.Warnings)
				}
			}
			test.fault(b, b.fakes[2])
			for range 8 {
				got := b.step(5)
				if number, _ := b.e.Current(); !slices.Contains(lost, number-1) {
					b.expect(got, fmt.Sprintf("%d COMPLETE s1=5 s2=5 s3=5 s4=5", number-1))
				}
				b.inStep()
				b.join() // canceled read-outs have ended
			}
			if diff := cmp.Diff(test.lost, lost); diff != "" {
				t.Errorf("lost epochs, want (-), got (+): %s", diff)
			}
		})
	}
}

// Packets counted in a bank after the bank was sealed cause two warnings: for the epoch, and for
// the next epoch whose bank they may have reached. The sealed bank is cleared once more.
func TestPacketsInASealedBankCauseAWarning(t *testing.T) {
	b := newBench(t, 0, "s1", "s2")
	var warnings [][]epoch.AccuracyWarning
	b.each = func(ep *epoch.Epoch) { warnings = append(warnings, ep.Warnings) }
	b.fakes[1].set(func(f *fake) { f.inexact = &banks.InexactError{Reason: "flips late"} })
	for i := 1; i <= 5; i++ {
		b.expect(b.step(i), fmt.Sprintf("%d COMPLETE s1=%d s2=%d", i, i, i))
		b.join() // the switch is read once more
	}
	if diff := cmp.Diff([][]epoch.AccuracyWarning{
		{{Source: "s2", Reason: "flips late"}}, nil,
		{{Source: "s2", Reason: "the switch was out of step in epoch 2: packets that it sent then may be " +
			"counted in this epoch"}},
		nil, nil,
	}, warnings); diff != "" {
		t.Error(diff)
	}
}
