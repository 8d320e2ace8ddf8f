// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

// Epoch returns a complete epoch of one second without data, whose number is its start in seconds.
// Epoch.Put adds cells to it, and SetReport the report of a host.
func Epoch(number uint64) *sdk.Epoch {
	start := time.Unix(int64(number), 0)
	return &sdk.Epoch{Number: number, Start: start, End: start.Add(time.Second), Status: sdk.StatusComplete}
}

// SetReport replaces the report of a host's role in an epoch; nil data removes it.
func SetReport(e *sdk.Epoch, host, role string, data []byte) {
	e.Hosts = slices.DeleteFunc(e.Hosts, func(r sdk.HostReport) bool { return r.Host == host && r.Role == role })
	if data != nil {
		e.Hosts = append(e.Hosts, sdk.HostReport{Host: host, Role: role, Data: data})
	}
}

// Rows returns the rows of the first table of a list by their keys, joined by spaces. A row holds
// its leaves by name; names of leaves below state lack this prefix.
func Rows(tb testing.TB, r *sdk.Results, list string) map[string]map[string]any {
	tb.Helper()
	for _, t := range r.Tables {
		if t.Table.List == list {
			return RowsOf(t.Table)
		}
	}
	tb.Fatalf("no table of %s", list)
	return nil
}

// RowsOf returns the rows of a table as Rows does.
func RowsOf(t *table.Table) map[string]map[string]any {
	out := map[string]map[string]any{}
	for i := range t.Rows() {
		var keys []string
		for _, k := range t.Keys {
			keys = append(keys, fmt.Sprint(k.Value(i)))
		}
		row := map[string]any{}
		for _, c := range t.Values {
			row[strings.TrimPrefix(c.Name, "state/")] = c.Value(i)
		}
		out[strings.Join(keys, " ")] = row
	}
	return out
}

// Expect compares leaves of one of the rows. In leaves, an int means a uint64.
func Expect(tb testing.TB, rows map[string]map[string]any, key string, leaves map[string]any) {
	tb.Helper()
	row, ok := rows[key]
	if !ok {
		tb.Errorf("no row %q in %v", key, slices.Sorted(maps.Keys(rows)))
		return
	}
	for name, want := range leaves {
		if n, ok := want.(int); ok {
			want = uint64(n)
		}
		if row[name] != want {
			tb.Errorf("%s: %s is %v, want %v", key, name, row[name], want)
		}
	}
}
