// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/netsketch/netsketch/lab"
)

func TestFabricShapes(t *testing.T) {
	fat := func(k, pods, cores int) func() (*lab.Fabric, error) {
		return func() (*lab.Fabric, error) { return lab.FatTree(k, pods, cores, time.Microsecond) }
	}
	tests := []struct {
		name                   string
		build                  func() (*lab.Fabric, error)
		switches, hosts, links int
	}{
		{"leaf-spine", func() (*lab.Fabric, error) { return lab.LeafSpine(4, 2, 3, 0) }, 6, 12, 8},
		{"4-ary fat tree", fat(4, 0, 0), 20, 16, 32},
		{"8-ary fat tree", fat(8, 0, 0), 80, 128, 256},
		{"two pods of a 4-ary fat tree", fat(4, 2, 0), 12, 8, 16},
		{"ChameleMon's testbed", fat(4, 2, 2), 10, 8, 12},
		{"triangle with a tail", func() (*lab.Fabric, error) {
			return lab.Graph([][2]string{{"A", "B"}, {"B", "C"}, {"C", "A"}, {"C", "D"}}, 2, 0)
		}, 4, 8, 4},
	}
	for _, tt := range tests {
		f, err := tt.build()
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if len(f.Switches) != tt.switches || len(f.Hosts) != tt.hosts || len(f.Links) != tt.links {
			t.Errorf("%s: %d switches, %d hosts, %d links; want %d, %d, %d",
				tt.name, len(f.Switches), len(f.Hosts), len(f.Links), tt.switches, tt.hosts, tt.links)
		}
		used := map[string]string{}
		use := func(sw int, port uint32, by string) {
			at := fmt.Sprintf("%s/%d", f.Switches[sw].Name, port)
			if other, twice := used[at]; twice {
				t.Errorf("%s: port %s is used by %s and %s", tt.name, at, other, by)
			}
			used[at] = by
		}
		for _, h := range f.Hosts {
			use(h.Switch, h.Port, h.Name)
			if f.Switches[h.Switch].Role != lab.RoleEdge {
				t.Errorf("%s: host %s is at %s, which is no edge switch", tt.name, h.Name, f.Switches[h.Switch].Name)
			}
		}
		for _, l := range f.Links {
			use(l.A, l.PortA, f.LinkName(l))
			use(l.B, l.PortB, f.LinkName(l))
		}
	}
}

func TestFabricRefusesWhatCannotBe(t *testing.T) {
	for name, build := range map[string]func() (*lab.Fabric, error){
		"odd k":         func() (*lab.Fabric, error) { return lab.FatTree(3, 0, 0, 0) },
		"too many pods": func() (*lab.Fabric, error) { return lab.FatTree(4, 5, 0, 0) },
		"uneven cores":  func() (*lab.Fabric, error) { return lab.FatTree(4, 2, 3, 0) },
		"one leaf":      func() (*lab.Fabric, error) { return lab.LeafSpine(1, 1, 1, 0) },
		"port numbers":  func() (*lab.Fabric, error) { return lab.LeafSpine(300, 1, 1, 0) },
	} {
		if _, err := build(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
