// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"
	"testing"

	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
)

// TestCrowdedTower: with more flows than a row of the tower has counters, or so many packets that
// sizes can be above a threshold by chance, results are absent or called inexact. With few flows
// they are there.
func TestCrowdedTower(t *testing.T) {
	for _, tc := range []struct {
		name           string
		flows, packets uint32
		known          bool
		want           []string
	}{
		{"few flows", 500, 1, true, nil},
		{"many flows", 5000, 1, false, []string{"host h2: too many flows share the 3264 counters of a row"}},
		{"many packets", 500, 1000, true, []string{"host h2: sizes of flows may be ", "below the thresholds may be listed"}},
	} {
		h := start(t, `{"flow-tower": "4KiB"}`)
		e := simEpoch(t, h, 1, nil)
		r := simReport(t, settingsOf(t, h, "h2"), 5, 9, nil)
		for i := range tc.flows {
			r.Flows.Add([]byte{byte(i), byte(i >> 8), 3, 4}, tc.packets)
		}
		r.Counters[wire.Packets] = uint64(tc.flows) * uint64(tc.packets)
		setReport(t, e, "h2", r)
		out := h.Analyze(e)
		row := rows(t, out, summariesList)["h2 5-tuple"]
		if known := row["entropy"] != nil; known != tc.known {
			t.Errorf("%s: entropy known %v: %v", tc.name, known, row)
		}
		alerts := rows(t, out, alertList)
		text, _ := alerts["network INEXACT"]["text"].(string)
		for _, want := range tc.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: alert %q, want %q", tc.name, text, want)
			}
		}
		if tc.want == nil && text != "" {
			t.Errorf("%s: alert %q", tc.name, text)
		}
	}
}
