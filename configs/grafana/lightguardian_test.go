// SPDX-License-Identifier: Apache-2.0

package grafana

import (
	"slices"
	"strings"

	"github.com/netsketch/netsketch/yang/table"
)

// lightguardian returns an interval of a network with a fault.
func (s *sample) lightguardian(n uint64) {
	const flow = "10.0.0.1,10.0.0.2,tcp,1000,80"
	// one adds a row with keys and values.
	one := func(list, keys, numbers, shares string, texts map[string]string) {
		b := table.NewBuilder("/netsketch-lightguardian:lightguardian/" + list)
		for name := range strings.FieldsSeq(keys) {
			switch name {
			case "lower", "age":
				b.UintKey(name).Append(1)
			case "flow":
				b.TextKey(name).Append(flow)
			case "dimension":
				b.TextKey(name).Append("5-tuple")
			case "kind":
				b.TextKey(name).Append(texts[name])
			default:
				b.TextKey(name).Append("leaf1")
			}
		}
		for name := range strings.FieldsSeq(numbers) {
			if name == "lost-packets" {
				b.Int("state/" + name).Append(int64(n) + 1)
				continue
			}
			b.Uint("state/" + name).Append(n + 1)
		}
		for name := range strings.FieldsSeq(shares) {
			b.Float("state/" + name).Append(0.625)
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
	one("summary", "", "active-alerts in-band-bytes", "coverage hop-coverage", m{"status": "COMPLETE"})
	one("flows/flow", "flow", "packets received-packets lost-packets", "", m{"path": "leaf1 leaf2",
		"source-node": "h1", "destination-node": "h2"})
	one("hops/hop", "flow node", "packets lost-packets gap", "coverage slow", m{"packets-quality": "UPPER_BOUND"})
	one("faults/fault", "flow node kind", "since-epoch", "value confidence", m{"kind": "LOOP", "located": "true",
		"previous-node": "h1"})
	one("node-summaries/node-summary", "node dimension", "packets distinct-flows", "coverage entropy", nil)
	one("ranges/range", "node lower", "flows", "", nil)
	one("coverage/interval", "node age", "received-columns late-columns disagreeing-columns "+
		"unmeasured-sketchlets", "coverage", m{"final": "true"})
	one("hosts/host", "node", "packets sketchlets bad-check full", "", m{"status": "PARTIAL", "problem": "full"})
	one("alerts/alert", "location kind", "since-epoch count", "", m{"kind": "LOOP", "active": "true", "severity": "MAJOR",
		"text": flow})
}
