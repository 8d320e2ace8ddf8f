// SPDX-License-Identifier: Apache-2.0

package grafana

import (
	"fmt"

	"github.com/netsketch/netsketch/yang/table"
)

const chamelemonTop = "/netsketch-chamelemon:chamelemon"

// chamelemon returns an epoch of an ill network.
func (s *sample) chamelemon(n uint64) {
	b := table.NewBuilder(chamelemonTop + "/attention")
	b.Text("state/network-state").Append([]string{"HEALTHY", "ILL"}[n/10%2])
	b.Text("state/next-state").Append([]string{"HEALTHY", "ILL"}[(n+2)/10%2])
	b.Text("state/status").Append(map[bool]string{true: "COMPLETE", false: "PARTIAL"}[n%7 != 0])
	b.Bool("state/configuration-known").Append(true)
	b.Uint("state/low-threshold").Append(5)
	b.Uint("state/highest-threshold").Append(57)
	b.Float("state/sample-rate").Append(0.25)
	b.Uint("state/victims").Append(8000)
	b.Uint("state/changes").Append(4)
	b.Uint("state/response-time").Append(9_000_000)
	b.Uint("state/analysis-time").Append(15_000_000)
	s.build(b)

	b = table.NewBuilder(chamelemonTop + "/summary")
	b.Uint("state/active-alerts").Append(2)
	s.build(b)

	b = table.NewBuilder(chamelemonTop + "/node-summaries/node-summary")
	device, dimension, status := b.TextKey("node"), b.TextKey("dimension"), b.Text("state/status")
	packets, exact, distinct := b.Uint("state/packets"), b.Text("state/packets-quality"), b.Uint("state/distinct-flows")
	entropy, hitters, changes := b.Float("state/entropy"), b.Uint("state/heavy-hitters"), b.Uint("state/changes")
	known, lost := b.Text("state/victims-quality"), b.Int("state/lost-packets")
	for i, d := range devices {
		device.Append(d)
		dimension.Append("5-tuple")
		status.Append("COMPLETE")
		packets.Append(uint64(10_000*i) + n)
		exact.Append("EXACT")
		distinct.Append(777)
		entropy.Append(9.5)
		hitters.Append(31)
		changes.Append(7)
		if d != "network" {
			continue
		}
		known.Append(map[bool]string{true: "EXACT", false: "ESTIMATE"}[n < 10])
		lost.Append(12_345)
	}
	s.build(b)

	b = table.NewBuilder(chamelemonTop + "/encoders/encoder")
	device, family, part := b.TextKey("node"), b.TextKey("family"), b.TextKey("part")
	buckets, memory := b.Uint("state/buckets"), b.Uint("state/memory")
	flows, load, quality := b.Uint("state/flows"), b.Float("state/load-factor"), b.Text("state/quality")
	for _, x := range []struct {
		device, part   string
		buckets, flows uint64
	}{{"network", "HL", 7677, 5200}, {"network", "LL", 1536, 1000}, {"leaf-1", "HH", 3075, 2000},
		{"leaf-2", "HH", 3075, 2001}} {
		device.Append(x.device)
		family.Append("IPV4")
		part.Append(x.part)
		buckets.Append(x.buckets)
		memory.Append(20 * x.buckets)
		flows.Append(x.flows)
		load.Append(float64(1000*x.flows/x.buckets) / 1000)
		quality.Append("EXACT")
	}
	s.build(b)

	b = table.NewBuilder(chamelemonTop + "/thresholds/threshold")
	device, high := b.TextKey("node"), b.Uint("state/high-threshold")
	for i, d := range devices[:2] {
		device.Append(d)
		high.Append(uint64(56 + i))
	}
	s.build(b)

	b = table.NewBuilder(chamelemonTop + "/alerts/alert")
	location, kind := b.TextKey("location"), b.TextKey("kind")
	active, severity, text := b.Bool("state/active"), b.Text("state/severity"), b.Text("state/text")
	since, at, count := b.Uint("state/since-epoch"), b.Uint("state/last-change"), b.Uint("state/count")
	for _, x := range [][2]string{{"leaf-1", "SWITCH_MISSING"}, {"network", "NETWORK_ILL"}} {
		location.Append(x[0])
		kind.Append(x[1])
		active.Append(n > 5)
		severity.Append("MAJOR")
		text.Append("nothing was delivered")
		since.Append(6)
		at.Append(1_700_000_000_000_000_000)
		count.Append(1)
	}
	s.build(b)

	b = table.NewBuilder(chamelemonTop + "/victims/victim")
	flow, rank := b.TextKey("flow"), b.Uint("state/rank")
	lost, sure, how, packets := b.Int("state/lost-packets"), b.Text("state/quality"), b.Text("state/kind"),
		b.Uint("state/packets")
	entry, exit := b.Text("state/entry-node"), b.Text("state/exit-node")
	for r := range uint64(30) {
		flow.Append(fmt.Sprintf("10.0.0.%d,10.1.0.1,udp,4000,53", r))
		rank.Append(r + 1)
		lost.Append(309 - int64(r))
		sure.Append([]string{"EXACT", "LOWER_BOUND"}[r/20])
		how.Append([]string{"HEAVY", "LIGHT"}[r/20])
		packets.Append(4000 - r)
		entry.Append("leaf-1")
		exit.Append("leaf-2")
	}
	s.build(b)

	b = table.NewBuilder(chamelemonTop + "/heavy-hitters/heavy-hitter")
	device, dimension, flow = b.TextKey("node"), b.TextKey("dimension"), b.TextKey("flow")
	rank, packets, sure, share := b.Uint("state/rank"), b.Uint("state/packets"),
		b.Text("state/quality"), b.Float("state/share")
	for i, d := range devices {
		for r := range uint64(30) {
			device.Append(d)
			dimension.Append("5-tuple")
			flow.Append(fmt.Sprintf("10.0.%d.%d,10.1.0.1,udp,4000,53", i, r))
			rank.Append(r + 1)
			packets.Append(uint64(1000*(i+1)) - r)
			sure.Append("BOUNDED")
			share.Append(0.01)
		}
	}
	s.build(b)

	b = table.NewBuilder(chamelemonTop + "/heavy-changes/heavy-change")
	device, dimension, flow = b.TextKey("node"), b.TextKey("dimension"), b.TextKey("flow")
	rank, previous, current, delta, change := b.Uint("state/rank"),
		b.Uint("state/previous"), b.Uint("state/current"), b.Int("state/delta"), b.Text("state/kind")
	device.Append("network")
	dimension.Append("5-tuple")
	flow.Append("10.0.0.1,10.1.0.1,udp,4000,53")
	rank.Append(1)
	previous.Append(10)
	current.Append(500)
	delta.Append(490)
	change.Append("INCREASE")
	s.build(b)

	b = table.NewBuilder(chamelemonTop + "/ranges/range")
	device, from, to, number := b.TextKey("node"), b.UintKey("lower"),
		b.Uint("state/upper"), b.Float("state/flows")
	for x := uint64(1); x < 4; x++ {
		device.Append("network")
		from.Append(x)
		to.Append(x)
		number.Append(1000.5 / float64(x))
	}
	s.build(b)

	b = table.NewBuilder(chamelemonTop + "/flows/flow")
	device, flow, packets, sure = b.TextKey("node"), b.TextKey("flow"),
		b.Uint("state/packets"), b.Text("state/quality")
	device.Append("network")
	flow.Append("10.0.0.1,10.1.0.1,udp,4000,53")
	packets.Append(13)
	sure.Append("EXACT")
	s.build(b)
}
