// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"strings"
	"testing"

	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/omnimon"
	"github.com/netsketch/netsketch/lab/scenario/score"
)

// The agents of all hosts, the collector and the plugin's process: in every epoch the packets of
// all flows and the losses of all flows at all links and switches are exact.
func TestOmniMon(t *testing.T) {
	s, err := scenario.Parse("omnimon.yaml", []byte(`
name: omnimon
seed: 5
epochs: 5
epoch: 100ms
program: omnimon
topology: {kind: leaf-spine, leaves: 2, spines: 2, hosts-per-leaf: 2, latency: 10us}
agents: [omnimon]
traffic:
  - {name: web, rate: 6000, flows: 200, zipf: 1.0, udp: 0.3}
faults:
  - {link: leaf1-spine1, loss: 0.05, from: 100ms, until: 400ms}
  - {link: leaf2-spine2, loss: 0.5, flows: 0.2, from: 200ms, until: 400ms}
algorithms:
  - {plugin: omnimon}
expect:
  - {measure: flows-exact, at-least: 1}
  - {measure: links-exact, at-least: 1}
  - {measure: loss-f1, at-least: 1}
  - {measure: losses-exact, at-least: 1}
  - {measure: lost-packets-error, at-most: 0}
  - {measure: false-claims, at-most: 0}
  - {measure: partial-epochs, at-most: 0}
`))
	if err != nil {
		t.Fatal(err)
	}
	r := play(t, s)
	check(t, r, 5)
	network := score.View{Device: score.Network}
	elements, lost, sent := map[string]bool{}, 0.0, 0.0
	for i, e := range r.Epochs {
		o := e.Results["omnimon"]
		if o == nil {
			t.Fatalf("epoch %d of the run has no result of OmniMon", i+1)
		}
		figure := func(leaf string) float64 {
			f, ok := o.Figure("summary", network, leaf)
			if !ok || f.Error() != 0 {
				t.Errorf("epoch %d of the run: %s %+v, published: %v", i+1, leaf, f, ok)
			}
			return f.Measured
		}
		sent, lost = sent+figure("packets"), lost+figure("lost-packets")
		lossy, flows := figure("lossy-flows"), figure("flows")
		if faulty := i >= 1 && i < 4; faulty != (lossy > 0) {
			t.Errorf("epoch %d of the run: %.0f lossy flows, with faults: %v", i+1, lossy, faulty)
		}
		// A list that lacks flows, or an epoch that does not claim to be exact, meets the bounds.
		if n := o.Score(omnimon.FlowsExact, network).Counts.TruePositive; float64(n) != flows || n < 100 {
			t.Errorf("epoch %d of the run: %d exact flows of %.0f", i+1, n, flows)
		}
		if exact, ok := o.Published.Row("summary", network, "").Number("exact"); !ok || exact != 1 {
			t.Errorf("epoch %d of the run is not published as exact", i+1)
		}
		for _, top := range o.Top {
			for _, row := range top.Rows {
				element, _, _ := strings.Cut(row.Flow, "/")
				elements[element] = true
			}
		}
	}
	for _, link := range []string{"leaf1:3-spine1:1", "spine1:1-leaf1:3", "leaf2:4-spine2:2", "spine2:2-leaf2:4"} {
		if !elements[link] {
			t.Errorf("no loss at %s; there are losses at %v", link, elements)
		}
	}
	if len(elements) != 4 {
		t.Errorf("losses at %v, expected the four directions of two links", elements)
	}
	// Links count what they lose apart from the journal. Some packets are sent after the last epoch.
	if n := r.Network; float64(n.Lost) != lost || float64(n.Sent) < sent || sent < 2500 {
		t.Errorf("%.0f packets and %.0f losses in the epochs, of %+v", sent, lost, n)
	}
}
