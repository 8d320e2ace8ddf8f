// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// TestSelectOnLastIndex: p4c compiles lastIndex, and a whole last header, to expressions that BMv2
// does not run.
func TestSelectOnLastIndex(t *testing.T) {
	t.Parallel()
	sw := New(Config{})
	t.Cleanup(sw.Close)
	if err := sw.Load(load(t, "lastindex")); err != nil {
		t.Fatal(err)
	}
	var left []byte
	if err := sw.AddPort(0, Port{}); err != nil {
		t.Fatal(err)
	}
	if err := sw.AddPort(1, Port{Tx: func(pkt []byte, _ time.Duration) { left = bytes.Clone(pkt) }}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ in, out []byte }{
		{[]byte{0, 9}, []byte{0, 0, 0, 9}},
		{[]byte{1, 10, 9}, []byte{1, 0, 10, 9}},
		{[]byte{2, 10, 20, 9}, []byte{2, 0, 20, 9}},
		{[]byte{3, 10, 20, 30, 9}, []byte{3, 1, 30, 9}},
		{[]byte{200, 10, 20, 30, 40}, []byte{3, 3, 30, 40}},
	} {
		left = nil
		sw.Inject(0, tt.in, 0)
		if !bytes.Equal(left, tt.out) {
			t.Errorf("% x became % x, want % x", tt.in, left, tt.out)
		}
	}
}

// TestLoopsInActionsAreBounded: a packet in an endless loop is dropped.
func TestLoopsInActionsAreBounded(t *testing.T) {
	t.Parallel()
	for _, lanes := range []int{1, 2} {
		sw := New(Config{Parallel: lanes})
		t.Cleanup(sw.Close)
		if err := errors.Join(sw.Load(load(t, "rounds")), sw.AddPort(0, Port{})); err != nil {
			t.Fatal(err)
		}
		for _, n := range []byte{30, 31, 130} {
			sw.Inject(0, []byte{9, n, 0, 0, 0}, 0)
		}
		if s := sw.Stats(); s.LoopDrops != 1 || s.IngressDrops != 1 || s.Packets != 3 {
			t.Errorf("%d lanes: %+v", lanes, s)
		}
	}
}
