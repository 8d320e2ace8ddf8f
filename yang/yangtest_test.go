// SPDX-License-Identifier: Apache-2.0

package yang_test

import (
	"strings"
	"testing"

	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/yang/bindings"
	"github.com/netsketch/netsketch/yang/table"
)

// Every published list and container, with every leaf set, fits both the run-time schema and the
// generated structs.
func TestEveryLeaf(t *testing.T) {
	s := yangtest.Schema(t)
	lists := s.Lists()
	for _, path := range []string{"/collector", "/collector/epoch"} {
		l, err := s.List(path)
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, l)
	}
	leaves := 0
	for _, l := range lists {
		if l.Nested || strings.Contains(l.Path, "ietf-") {
			continue
		}
		tab := yangtest.Example(l)
		leaves += len(tab.Values)
		t.Run(strings.Trim(l.Path, "/"), func(t *testing.T) { yangtest.Check(t, tab) })
	}
	if leaves < 100 {
		t.Errorf("only %d leaves were tried", leaves)
	}
}

func TestPutRefuses(t *testing.T) {
	device, err := bindings.Schema()
	if err != nil {
		t.Fatal(err)
	}
	tab := &table.Table{
		List:   "/netsketch-collector:collector/devices/device",
		Keys:   []table.Column{table.Strings("node", []string{"leaf-1"})},
		Values: []table.Column{table.Strings("state/connection", []string{"asleep"})},
	}
	if err := yangtest.Put(device, yangtest.Schema(t), tab); err == nil || !strings.Contains(err.Error(), "asleep") {
		t.Errorf("got %v", err)
	}
}
