// SPDX-License-Identifier: Apache-2.0

package grafana

import (
	"slices"
	"strings"

	"github.com/netsketch/netsketch/yang/table"
)

// sketchint returns an interval of a network with an inflated latency and a changed path.
func (s *sample) sketchint(n uint64) {
	const flow = "10.0.0.1,10.0.0.2,tcp,1000,80"
	// one adds a row with the given keys and values. numbers are further keys, with the value 1.
	one := func(list, keys, numbers string, texts map[string]string) {
		b := table.NewBuilder("/netsketch-sketchint:sketchint/" + list)
		for name := range strings.FieldsSeq(keys) {
			switch name {
			case "lower", "queue", "node-id", "hardware":
				b.UintKey(name).Append(1)
			case "flow":
				b.TextKey(name).Append(flow)
			case "kind", "address", "reason":
				b.TextKey(name).Append(texts[name])
			case "dimension":
				b.TextKey(name).Append("5-tuple")
			default:
				if strings.HasPrefix(list, "ranges") || strings.Contains(keys, "dimension") {
					b.TextKey(name).Append("network")
					continue
				}
				b.TextKey(name).Append("leaf1")
			}
		}
		for name := range strings.FieldsSeq(numbers) {
			switch name {
			case "entropy", "occupancy-avg", "bytes-ratio":
				b.Float("state/" + name).Append(0.025)
			case "rank":
				b.Uint("state/" + name).Append(1)
			default:
				b.Uint("state/" + name).Append(n + 1)
			}
		}
		for name, value := range texts {
			switch {
			case slices.Contains(strings.Fields(keys), name):
			case value == "true":
				b.Bool("state/" + name).Append(true)
			default:
				b.Text("state/" + name).Append(value)
			}
		}
		s.build(b)
	}
	type m = map[string]string
	path := "leaf1 spine1 leaf2"
	one("summary", "", "active-alerts packets with-int flows heavy-flows", m{"status": "COMPLETE"})
	one("flows/flow", "flow", "packets latency-avg", m{"path": path, "reporting-node": "h1"})
	one("inflations/inflation", "flow node", "packets latency-max latency-avg since-epoch", nil)
	one("heavy-hitters/heavy-hitter", "node dimension flow", "packets rank", nil)
	one("heavy-changes/heavy-change", "node dimension flow", "previous current", nil)
	one("path-changes/path-change", "flow", "", m{"node": "leaf1", "previous-path": path, "path": "leaf1 spine2 leaf2"})
	one("node-summaries/node-summary", "node dimension", "entropy", nil)
	one("ranges/range", "node lower", "flows", nil)
	one("switches/switch", "node", "latency-avg latency-max inflated-packets dropped-packets", nil)
	one("queues/queue", "node queue", "occupancy-avg", nil)
	one("hosts/host", "node", "packets with-int mtu-exceeded", m{"status": "COMPLETE", "problem": "3 heavy-full"})
	one("faults/fault", "node address reason", "packets", m{"address": "10.0.0.9", "reason": "TRUNCATED"})
	one("sources/source", "node address node-id hardware", "received lost late restarts", m{"address": "10.0.0.8"})
	one("cost", "", "bytes passport-bytes bytes-ratio", nil)
	one("alerts/alert", "location kind", "since-epoch count", m{"kind": "LATENCY_INFLATED", "active": "true",
		"severity": "MAJOR", "text": "9 packets of 1 flows"})
}
