// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"strings"
	"testing"

	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/score"
)

// On a ring of five switches, which no weights suit, manifests count each packet once: exactly, as
// each epoch's packets have crossed the network when it ends. When a switch refuses calls, two
// epochs are partial and say so; then others count what it did.
func TestUnivMonManifests(t *testing.T) {
	s, err := scenario.Parse("ring.yaml", []byte(`
name: ring
epochs: 9
warm-up: 2
epoch: 100ms
deadline: 80ms
program: univmon-300k
topology: {kind: graph, hosts-per-leaf: 1, latency: 10us, links: [A-B, B-C, C-D, D-E, E-A]}
traffic:
  - {name: flows, exact: true, flows: 300, max-packets: 20, workload: hadoop, ipv6: 0.3}
faults:
  - {switch: C, refuse-calls: true, from: 400ms}
algorithms:
  - {plugin: univmon, config: {switches: false, network: {scheme: manifest}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	r := play(t, s)
	if len(r.Epochs) != s.Epochs {
		t.Fatalf("%d epochs were scored, expected %d", len(r.Epochs), s.Epochs)
	}
	sent := ""
	for i, e := range r.Epochs[s.WarmUp:] {
		n := i + s.WarmUp
		result := e.Results["univmon"]
		for _, dimension := range []string{"src", "5-tuple"} {
			view := score.View{Device: score.Network, Dimension: dimension}
			row, actual := result.Published.Row("summary", view, ""), result.Truth.Row("summary", view, "")
			if n == s.WarmUp && actual != nil {
				sent = actual.Text("packets") // the same in each epoch; unknown while a switch does not flip
			}
			if row == nil {
				t.Errorf("epoch %d, %s: no result", n, dimension)
				continue
			}
			status, problem := row.Text("status"), row.Text("problem")
			want := "complete"
			if n == 4 || n == 5 {
				want = "partial"
			}
			if status != want || want == "partial" && !strings.Contains(problem, "C") {
				t.Errorf("epoch %d, %s: %s, %q; expected %s", n, dimension, status, problem, want)
			}
			if got := row.Text("packets"); want == "complete" && got != sent {
				t.Errorf("epoch %d, %s: %s packets of %s; problem %q", n, dimension, got, sent, problem)
			}
		}
	}
}
