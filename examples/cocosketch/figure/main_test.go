// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// In the same packets and memory, the example, CocoSketch, finds the heavy hitters of six keys, and
// more of them than UnivMon.
func TestPlay(t *testing.T) {
	s := setting{packets: 100_000, flows: 20_000, memory: 64 << 10, share: 1e-3}
	coco, univmon := s.play(1, keys)
	if coco < 0.9 || coco <= univmon {
		t.Errorf("F1 of CocoSketch %.3f, of UnivMon %.3f", coco, univmon)
	}
}

func TestDraw(t *testing.T) {
	var b strings.Builder
	err := draw(&b, map[string][][]float64{"CocoSketch": {{1, 1, 1, 1, 0.5}}, "UnivMon": {{0, 0, 0, 0, 0}}})
	if err != nil || !strings.Contains(b.String(), `d="M60 95.5V-15.5"`) {
		t.Errorf("%v\n%s", err, b.String())
	}
}
