// SPDX-License-Identifier: Apache-2.0

package switchgnmi

import (
	"fmt"
	"testing"

	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/lldp"
)

// BenchmarkRefresh reads a switch of 32 ports into the store.
func BenchmarkRefresh(b *testing.B) {
	sw := softswitch.New(softswitch.Config{Name: "leaf"})
	defer sw.Close()
	for i := range 32 {
		if err := sw.AddPort(uint32(i+1), softswitch.Port{Name: fmt.Sprintf("Ethernet%d", i+1)}); err != nil {
			b.Fatal(err)
		}
	}
	agent := lldp.New(sw, lldp.Config{SystemName: "leaf"})
	defer agent.Close()
	s, err := New(sw, Options{Name: "leaf", LLDP: agent})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(b.Context())
	b.ReportAllocs()
	for b.Loop() {
		s.refresh()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "refreshes/s")
}
