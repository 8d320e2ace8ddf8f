// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"strings"
	"testing"

	"github.com/netsketch/netsketch/lab/scenario/score"
)

// A run in which a plugin lost epochs fails, unless the scenario allows partial epochs.
func TestFailedEpochs(t *testing.T) {
	some := 0.5
	for _, c := range []struct {
		name   string
		failed []map[string]string // errors of plugins, by epoch
		bounds []Bound
		want   string
	}{
		{"none", []map[string]string{nil, {}}, nil, ""},
		{"two plugins", []map[string]string{{"own": "it exited"}, nil, {"own": "it exited", "univmon": "late"}}, nil,
			"no epoch without results of own, univmon"},
		{"allowed", []map[string]string{{"own": "it exited"}, nil}, []Bound{{Measure: PartialEpochs, AtMost: &some}}, ""},
	} {
		r := Report{}
		for _, f := range c.failed {
			r.Epochs = append(r.Epochs, EpochScore{Status: "COMPLETE", Failed: f})
		}
		r.finish(c.bounds, map[string]*score.Scorer{})
		var broken []string
		for _, v := range r.Expected {
			if !v.OK {
				broken = append(broken, v.Bound)
			}
		}
		if got := strings.Join(broken, "; "); got != c.want || r.OK != (c.want == "") {
			t.Errorf("%s: ok %t, broken bounds %q, want %q", c.name, r.OK, got, c.want)
		}
	}
}
