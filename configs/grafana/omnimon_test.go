// SPDX-License-Identifier: Apache-2.0

package grafana

import (
	"strings"

	"github.com/netsketch/netsketch/yang/table"
)

// omnimon returns an epoch of a network with a lossy switch.
func (s *sample) omnimon(n uint64) {
	const (
		top  = "/netsketch-omnimon:omnimon/"
		flow = "10.0.0.1,10.0.0.2,tcp,1000,80"
	)
	b := table.NewBuilder(top + "summary")
	for _, name := range []string{"flows", "lossy-flows", "packets", "active-alerts",
		"mappings-used", "mappings-owned", "analysis-time", "epoch-deviation"} {
		b.Uint("state/" + name).Append(n + 1)
	}
	b.Text("state/status").Append("COMPLETE")
	b.Int("state/lost-packets").Append(int64(n) + 1)
	b.Text("state/quality").Append("EXACT")
	b.Text("state/lost-packets-quality").Append(map[bool]string{true: "EXACT", false: "UPPER_BOUND"}[n%5 != 0])
	b.Float("state/determined-share").Append(0.99)
	s.build(b)

	// one adds a row with a text for each key, numbers and texts.
	one := func(list string, keys map[string]string, numbers []string, texts map[string]string) {
		b := table.NewBuilder(top + list)
		for _, name := range []string{"link", "flow", "location", "node", "name", "kind"} {
			if value, ok := keys[name]; ok {
				b.TextKey(name).Append(value)
			}
		}
		if list == "completions/completion" {
			b.UintKey("epochs").Append(4)
		}
		for _, name := range numbers {
			if strings.HasPrefix(name, "lost-packets") {
				b.Int("state/" + name).Append(int64(n) + 1)
			} else {
				b.Uint("state/" + name).Append(n + 1)
			}
		}
		if list == "link-flows/link-flow" {
			b.Uint("state/rank").Append(1)
		}
		for name, value := range texts {
			if value == "true" {
				b.Bool("state/" + name).Append(true)
			} else {
				b.Text("state/" + name).Append(value)
			}
		}
		s.build(b)
	}
	type m = map[string]string
	one("alerts/alert", m{"location": "spine1", "kind": "PACKETS_LOST"}, []string{"since-epoch", "count"},
		m{"active": "true", "severity": "MAJOR", "text": "it lost 5 packets"})
	one("switches/switch", m{"node": "spine1"}, []string{"lost-packets-low", "lost-packets-high", "packets"},
		m{"status": "COMPLETE"})
	one("links/link", m{"link": "leaf1/1~spine1/1"},
		[]string{"lost-packets-low", "lost-packets-high", "packets", "bytes"}, nil)
	one("link-flows/link-flow", m{"link": "leaf1/1~spine1/1", "flow": flow},
		[]string{"packets-low", "packets-high"}, nil)
	one("losses/loss", m{"flow": flow, "location": "spine1"}, []string{"lost-packets-low", "lost-packets-high"},
		m{"kind": "SWITCH", "quality": "EXACT"})
	one("flows/flow", m{"flow": flow}, []string{"packets", "bytes", "lost-packets"}, m{"path": "leaf1 spine1 leaf2"})
	one("completions/completion", nil, []string{"flows"}, nil)
	one("hosts/host", m{"node": "h1"}, []string{"flows", "untracked", "late"}, m{"status": "COMPLETE", "problem": "x"})
	one("queries/query", m{"name": "slowloris"}, []string{"result-count"},
		m{"status": "RUNNING", "quality": "EXACT", "problem": "x"})
}
