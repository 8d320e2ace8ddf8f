// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"math"
	"testing"
)

// FuzzAnswer: what a peer prints is refused, or gives times and an error that are finite.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{"about x\ninsertion 10 5e3\nquery 3 100\nARE 0.5\n", "about x\n", "insertion 10 1\n",
		"about x\nARE Inf\n", "about a|b\n", "about x\nquery 3 1e300\n", "about x\ninsertion 0x10 1\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseAnswer(text, 10, 3)
		if err != nil {
			return
		}
		for task, x := range a.seconds {
			if task != insertion && task != query || !(x > 0) || math.IsInf(x, 0) {
				t.Errorf("%q: %s takes %v", text, task, x)
			}
		}
		if a.about == "" || !(a.are >= 0) || math.IsInf(a.are, 0) {
			t.Errorf("%q: %+v", text, a)
		}
	})
}
