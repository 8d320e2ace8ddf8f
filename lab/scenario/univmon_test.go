// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"fmt"
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
	sent := 0.0
	for i, e := range r.Epochs[s.WarmUp:] {
		n := i + s.WarmUp
		result := e.Results["univmon"]
		for _, dimension := range []string{"src", "5-tuple"} {
			view := score.View{Device: score.Network, Dimension: dimension}
			row, actual := result.Published.Row("node-summary", view, ""), result.Truth.Row("node-summary", view, "")
			if n == s.WarmUp && actual != nil {
				sent = actual.Value("packets") // the same in each epoch; unknown while a switch does not flip
			}
			if row == nil {
				t.Errorf("epoch %d, %s: no result", n, dimension)
				continue
			}
			status, problem := row.Text("status"), row.Text("problem")
			want := "COMPLETE"
			if n == 4 || n == 5 {
				want = "PARTIAL"
			}
			if status != want || want == "PARTIAL" && !strings.Contains(problem, "C") {
				t.Errorf("epoch %d, %s: %s, %q; expected %s", n, dimension, status, problem, want)
			}
			if got := row.Value("packets"); want == "COMPLETE" && (got != sent || sent == 0) {
				t.Errorf("epoch %d, %s: %v packets of %v; problem %q", n, dimension, got, sent, problem)
			}
		}
	}
}

// A switch dies that no packet crosses. Once manifests leave the switch out, the network's results
// are scored again, are exact, and do not report the dead switch.
func TestUnivMonFailover(t *testing.T) {
	s, err := scenario.Parse("dead.yaml", []byte(`
name: dead
epochs: 12
warm-up: 2
epoch: 100ms
deadline: 80ms
program: univmon-300k
topology: {kind: leaf-spine, leaves: 3, spines: 2, hosts-per-leaf: 1, latency: 10us}
traffic:
  - {name: flows, exact: true, flows: 300, max-packets: 20, workload: hadoop, ipv6: 0.3, senders: [h1, h2],
     receivers: [h1, h2]}
faults:
  - {switch: leaf3, from: 450ms}
algorithms:
  - {plugin: univmon, config: {switches: false, network: {scheme: manifest}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	r := play(t, s)
	view := score.View{Device: score.Network, Dimension: "5-tuple"}
	for n, e := range r.Epochs[8:] {
		result := e.Results["univmon"]
		row, actual := result.Published.Row("node-summary", view, ""), result.Truth.Row("node-summary", view, "")
		if row.Text("status") != "COMPLETE" || row.Text("problem") != "" || actual.Value("packets") == 0 ||
			row.Value("packets") != actual.Value("packets") {
			t.Errorf("epoch %d: %s, %q: %v packets of %v", n+8, row.Text("status"), row.Text("problem"),
				row.Value("packets"), actual.Value("packets"))
		}
	}
}

// Packets in tunnels count by the flow that is configured, at switches, by weights and with
// manifests, and at hosts: the network's results are those of the ground truth, exactly.
func TestUnivMonTunnels(t *testing.T) {
	flows := map[string]float64{}
	for _, at := range []struct{ name, keys, config string }{
		{"weights", "program: univmon-300k", "encapsulation: %s, network: {scheme: weights}"},
		{"manifest", "program: univmon-300k", "encapsulation: %s, network: {scheme: manifest}"},
		{"hosts", "program: forwarding\nagents: [univmon]", "hosts: {packets: received, encapsulation: %s}"},
	} {
		t.Run(at.name, func(t *testing.T) {
			for _, encapsulation := range []string{"outer", "inner"} {
				s, err := scenario.Parse("tunnels.yaml", fmt.Appendf(nil, `
name: tunnels
epochs: 5
warm-up: 2
epoch: 100ms
deadline: 80ms
topology: {kind: leaf-spine, leaves: 2, spines: 1, hosts-per-leaf: 2, latency: 10us}
traffic:
  - {name: gre, tunnel: gre, exact: true, flows: 60, max-packets: 20, workload: hadoop, ipv6: 0.3}
  - {name: vxlan, tunnel: vxlan, exact: true, flows: 60, max-packets: 20, workload: hadoop, ipv6: 0.3}
  - {name: ip, tunnel: ip, exact: true, flows: 60, max-packets: 20, workload: hadoop, ipv6: 0.3}
  - {name: plain, exact: true, flows: 60, max-packets: 20, workload: hadoop, ipv6: 0.3}
expect:
  - {measure: heavy-hitter-f1, at-least: 1}
  - {measure: heavy-hitter-error, at-most: 0}
  - {measure: heavy-change-f1, at-least: 1}
  - {measure: distinct-error, at-most: 0.02}
  - {measure: packets-error, at-most: 0}
  - {measure: lost, at-most: 0}
%s
algorithms:
  - {plugin: univmon, config: {dimensions: [5-tuple], switches: false, `+at.config+`}}
`, at.keys, encapsulation))
				if err != nil {
					t.Fatal(err)
				}
				r := play(t, s)
				check(t, r, s.Epochs)
				last := r.Epochs[len(r.Epochs)-1].Results["univmon"]
				view := score.View{Device: score.Network, Dimension: "5-tuple"}
				row, actual := last.Published.Row("node-summary", view, ""), last.Truth.Row("node-summary", view, "")
				if row == nil || actual == nil || row.Value("packets") != actual.Value("packets") {
					t.Fatalf("%s: the network has %v; expected %v", encapsulation, row, actual)
				}
				n := actual.Value("distinct-flows")
				if flows[encapsulation] == 0 {
					flows[encapsulation] = n
				}
				if n != flows[encapsulation] {
					t.Errorf("%s: %v flows; expected %v as before", encapsulation, n, flows[encapsulation])
				}
			}
		})
	}
	if flows["inner"] != 240 || flows["outer"] == flows["inner"] {
		t.Errorf("flows by encapsulation: %v; expected 240 inner flows and others outside", flows)
	}
}
