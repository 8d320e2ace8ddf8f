// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"strings"
	"testing"
)

func TestPlanCheck(t *testing.T) {
	n := &Network{Devices: []Device{{Name: "s1"}}, Hosts: []Host{{Name: "h1"}}}
	write := func(device, table, action string, op WriteOp) Plan {
		return Plan{FromEpoch: 3, Writes: []DeviceWrite{{Device: device, Op: op,
			Entry: TableEntry{Table: table, Action: action}}}}
	}
	for want, p := range map[string]Plan{
		"":                               write("s1", "t", "a", Insert),
		`the network has no device "s2"`: write("s2", "t", "a", Insert),
		"device s1: it names no table":   write("s1", "", "a", Modify),
		"table t: it names no action":    write("s1", "t", "", SetDefault),
		`the network has no host "h2"`:   {Hosts: []HostSetting{{Host: "h2", Role: "r"}}},
		"host h1: it names no role":      {Hosts: []HostSetting{{Host: "h1"}}},
	} {
		err := p.Check(n)
		if (err == nil) != (want == "") || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if p := write("s1", "t", "", Delete); p.Check(n) != nil {
		t.Error("a delete without an action is refused")
	}
}
