// SPDX-License-Identifier: Apache-2.0

package lightguardian

import (
	"testing"

	"github.com/netsketch/netsketch/lab/figures/suite"
)

// TestTasks: Figure 11 with a hundredth of the flows and of the memory.
func TestTasks(t *testing.T) {
	tr, err := workloadOf(0.01, 1)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := byTop(tr, 0.01, 1)
	if err != nil {
		t.Fatal(err)
	}
	get := func(name string) float64 { return suite.Values(rows).Variant(name, "flows 20000", topTask, "ARE") }
	if !(get("CU") < get("SuMax") && get("SuMax") < get("CM")) {
		t.Errorf("ARE of CU %v, SuMax %v, CM %v", get("CU"), get("SuMax"), get("CM"))
	}
	inverse := func(memory int) (float64, error) { return 1 / float64(memory), nil }
	if x, err := least([]int{1, 2, 4, 8}, 0.3, inverse); x != 4 || err != nil {
		t.Errorf("least memory %v (%v)", x, err)
	}
	if x, _ := least([]int{1, 2}, 0.3, inverse); x != 0 {
		t.Errorf("least memory %v of none", x)
	}
}
