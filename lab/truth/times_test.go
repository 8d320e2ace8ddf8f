// SPDX-License-Identifier: Apache-2.0

package truth

import "testing"

// TestTimes: a time lasts from the first condition that holds until none holds.
func TestTimes(t *testing.T) {
	var x Times
	if x.During(0, 100) {
		t.Error("before the first change")
	}
	x.Change(10, true)
	x.Change(15, true)
	x.Change(20, false)
	if x.During(0, 10) || !x.During(0, 11) || !x.During(30, 40) {
		t.Error("while something holds")
	}
	x.Change(50, false)
	x.Change(70, true)
	if !x.During(45, 55) || x.During(50, 70) || !x.During(0, 100) || !x.During(70, 71) {
		t.Error("after the first change")
	}
}
