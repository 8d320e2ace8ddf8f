// SPDX-License-Identifier: Apache-2.0

package epoch_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/collector/epoch"
)

// hung makes the next flips or read-outs of some switches not end before they are released or given up.
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

// over lets what begins from now on through. What hangs goes on hanging.
func (h hung) over() {
	for _, f := range h.fakes {
		f.set(func(f *fake) { f.hold, f.holdFlip = nil, nil })
	}
}

// release lets what hangs go on, and waits until the engine has seen it.
func (h hung) release() {
	h.over()
	close(h.hold)
	h.b.join()
}

// After what makes epochs late, only those are lost that it touches and at most two more; those that follow are whole, every
// switch is in step, and no other switch's numbers are doubted for a read-out that was late.
func TestRecoveryCostsTwoEpochsAtMost(t *testing.T) {
	tests := map[string]struct {
		fault  func(b *bench, s3 *fake)
		lost   []uint64 // epochs that are not complete
		doubts bool     // epochs may have some
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
				b.join() // each has been read again
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
		"the collector stands still over two boundaries": {
			func(b *bench, _ *fake) { b.end = b.end.Add(2 * time.Second); b.step(1) },
			[]uint64{3}, true,
		},
		"the collector stands still over three boundaries": {
			func(b *bench, _ *fake) { b.end = b.end.Add(3 * time.Second); b.step(1) },
			[]uint64{4, 5}, true,
		},
		"one switch stands still for three epochs": {
			func(b *bench, s3 *fake) {
				h := b.hangFlips(s3)
				b.step(1)
				b.step(1)
				b.step(1)
				h.release()
			},
			[]uint64{1, 2, 3, 4}, true,
		},
		"all switches stand still for three epochs": {
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
			b.each = func(ep *epoch.Epoch[int]) {
				if ep.Status != epoch.Complete {
					lost = append(lost, ep.Number)
				}
				if len(ep.Doubts) > 0 && (!test.doubts || len(lost) == 0 || ep.Number > lost[len(lost)-1]+1) {
					t.Errorf("epoch %d: doubts %v", ep.Number, ep.Doubts)
				}
			}
			test.fault(b, b.fakes[2])
			for range 8 {
				got := b.step(5)
				if number, _ := b.e.Current(); !slices.Contains(lost, number-1) {
					b.expect(got, fmt.Sprintf("%d complete s1=5 s2=5 s3=5 s4=5", number-1))
				}
				b.inStep()
				b.join() // read-outs that were given up have ended
			}
			if diff := cmp.Diff(test.lost, lost); diff != "" {
				t.Errorf("lost epochs, want (-), got (+): %s", diff)
			}
		})
	}
}

// Packets that are counted in a bank after it was sealed are a doubt, for the epoch and for the next one in the banks that
// they may have reached; their own bank is cleared again.
func TestPacketsInASealedBankAreADoubt(t *testing.T) {
	b := newBench(t, 0, "s1", "s2")
	var doubts [][]epoch.Doubt
	b.each = func(ep *epoch.Epoch[int]) { doubts = append(doubts, ep.Doubts) }
	b.fakes[1].set(func(f *fake) { f.inexact = &epoch.InexactError{Reason: "flips late"} })
	for i := 1; i <= 5; i++ {
		b.expect(b.step(i), fmt.Sprintf("%d complete s1=%d s2=%d", i, i, i))
		b.join() // it is read again
	}
	if diff := cmp.Diff([][]epoch.Doubt{
		{{Member: "s2", Reason: "flips late"}}, nil, {{Member: "s2", Reason: "was out of step in epoch 2: what it sent then may have been counted in this one"}}, nil, nil,
	}, doubts); diff != "" {
		t.Error(diff)
	}
}
