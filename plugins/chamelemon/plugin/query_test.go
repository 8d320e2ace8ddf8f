// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"
	"testing"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
)

// TestQuery checks that a query returns the row that the same epoch publishes for a watched flow,
// and that it reads the newest epoch.
func TestQuery(t *testing.T) {
	f := newSmall(t, 5, `{}`)
	row := func(device, key string) sdk.RowKey {
		return sdk.RowKey{List: flowList, Keys: map[string]string{"node": device, "flow": key}}
	}
	flows := f.flows(1000, 0.1, 0.2)
	x := &flows[7]
	entry := row(edgeName(x.Entry), x.Key.String())
	if tables, err := f.h.Query(entry); err != nil || tables != nil {
		t.Errorf("before the first epoch: %v, %v", tables, err)
	}
	f.play(f.flows(1000, 0.1, 0.2))
	for range 2 {
		e := f.record(flows)
		e.Watched = []sdk.RowKey{entry, row(Network, x.Key.String()), row(Network, "198.51.100.1,198.51.100.2,tcp,1,2")}
		r := f.analyze(e)
		if len(r.Tables) == 0 {
			t.Fatal("no tables")
		}
		for _, key := range e.Watched {
			tables, err := f.h.Query(key)
			if err != nil || len(tables) != 1 || tables[0].Rows() != 1 {
				t.Fatalf("%v: %v, %v", key, tables, err)
			}
			got := sdktest.Text(&sdk.Results{Tables: []sdk.TableResult{{Table: tables[0]}}})
			lines := strings.Split(strings.TrimSpace(got), "\n")
			line := lines[len(lines)-1]
			if published := sdktest.Text(r); !strings.Contains(published, line) {
				t.Errorf("%v: the query returns %s, which is not among the published rows", key, line)
			}
		}
	}
	if tables, err := f.h.Query(row("core1", x.Key.String())); err != nil || tables != nil {
		t.Errorf("a switch without data: %v, %v", tables, err)
	}
	for want, key := range map[string]sdk.RowKey{
		"cannot be queried": {List: victimList, Keys: map[string]string{"flow": x.Key.String()}},
		"flow":              row(Network, "leaf"),
	} {
		if _, err := f.h.Query(key); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %q", key, err, want)
		}
	}
}
