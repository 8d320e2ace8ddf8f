// SPDX-License-Identifier: Apache-2.0

//go:build dashboards

package dashboards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// sketchint returns the dashboard of SketchINT: latencies and queues of switches, inflated flows,
// heavy hitters and changes, paths, hosts, and what collection took.
func sketchint() (dashboard.Dashboard, error) {
	summary := func(alias, field string) Query {
		return lines(alias, fmt.Sprintf(`SELECT mean("%s") `, field)+from("sketchint/summary",
			`time($__interval) fill(null)`))
	}
	cost := func(alias, field string) Query {
		return lines(alias, fmt.Sprintf(`SELECT mean("%s") `, field)+from("sketchint/cost",
			`time($__interval) fill(null)`))
	}
	by := func(measurement, tag, function string) Query {
		return lines("$tag_"+tag, "SELECT "+function+" "+from(measurement, fmt.Sprintf(`time($__interval), "%s" fill(null)`,
			tag)))
	}
	return frame("netsketch-sketchint", "netsketch: SketchINT",
		"Latencies of flows at switches, heavy hitters and changes by switch, and paths.").
		WithVariable(choice("target", "Collector", "sketchint/summary", "target")).
		WithRow(dashboard.NewRowBuilder("State")).
		WithPanel(states(about{"Intervals", "Complete: the reports of all hosts were delivered, and include the whole " +
			"interval.", "", 16, 5},
			rows(`SELECT "status" `+from("sketchint/summary", "")))).
		WithPanel(number(about{"Alerts", "Active in the newest interval.", "none", 4, 5},
			summary("alerts", "active-alerts"))).
		WithPanel(number(about{"Cost", "Bytes of collection, as a share of those of INT's passport mode.",
			"percentunit", 4, 5}, cost("cost", "bytes-ratio"))).
		WithPanel(list(about{"Alerts by kind", "The newest state of each alert.", "", 24, 8},
			rows(`SELECT last("active") AS "active", last("severity") AS "severity", last("since-epoch") AS "since-epoch", `+
				`last("count") AS "count", last("text") AS "text" `+from("sketchint/alert", `"subject", "kind"`)))).
		WithRow(dashboard.NewRowBuilder("Latency")).
		WithPanel(chart(about{"Mean latency by switch", "Mean latency of the packets that hosts received.", "ns", 12, 8},
			false, by("sketchint/switch", "device", `mean("latency")`))).
		WithPanel(chart(about{"Worst latency by switch", "Largest latency of a packet.", "ns", 12, 8}, false,
			by("sketchint/switch", "device", `max("worst")`))).
		WithPanel(chart(about{"Inflated packets by switch", "Packets whose latency exceeded the configured multiple of " +
			"the mean of their flow.", "short", 12, 8}, true, by("sketchint/switch", "device", `max("inflated-packets")`))).
		WithPanel(chart(about{"Occupancy of queues", "Mean occupancy that packets found, if they have queue metadata: the " +
			"fullest queue of each switch.", "short", 12, 8}, false, by("sketchint/queue", "device", `max("occupancy")`))).
		WithPanel(list(about{"Inflated flows", "Flows at switches with the most inflated latencies of the time range.", "",
			24, 10},
			rows(`SELECT top("packets", "flow", "device", 20) AS "packets", "worst", "latency", "since-epoch" `+
				from("sketchint/inflation", "")),
			column{"packets", "short", true}, column{"worst", "ns", false}, column{"latency", "ns", false})).
		WithRow(dashboard.NewRowBuilder("Flows")).
		WithPanel(chart(about{"Received packets", "IP packets that hosts received, and those with INT.", "short", 12, 8},
			false, summary("packets", "packets"), summary("with INT", "with-int"))).
		WithPanel(chart(about{"Flows", "Flows that hosts received, and heavy hitters among them.", "short", 12, 8}, false,
			summary("flows", "flows"), summary("heavy flows", "heavy-flows"))).
		WithPanel(list(about{"Flows with the most packets", "The largest flows of the time range, each at its largest " +
			"interval.", "", 24, 10},
			rows(`SELECT top("packets", "flow", 20) AS "packets", "latency", "path", "host" `+from("sketchint/flow", "")),
			column{"packets", "short", true}, column{"latency", "ns", false})).
		WithPanel(list(about{"Largest flow of each switch", "The heavy hitter with the most packets of each host and " +
			"switch.", "", 12, 10},
			rows(`SELECT last("packets") AS "packets" `+where(from("sketchint/heavy-hitter", `"element", "flow"`),
				`"rank" = 1`)), column{"packets", "short", true})).
		WithPanel(list(about{"Changed flows", "Heavy changes of the network in the time range.", "", 12, 10},
			rows(`SELECT last("packets-before") AS "before", last("packets-after") AS "after" `+
				where(from("sketchint/heavy-change", `"flow"`), `"element" = 'network'`)),
			column{"after", "short", true}, column{"before", "short", false})).
		WithPanel(list(about{"Changed paths", "Heavy flows whose path changed in the time range.", "", 24, 8},
			rows(`SELECT last("switch") AS "switch", last("previous-path") AS "previous-path", last("path") AS "path" `+
				from("sketchint/path-change", `"flow"`)))).
		WithPanel(chart(about{"Entropy by host", "Entropy of packets over flows, in bits.", "short", 12, 8}, false,
			by("sketchint/measurement", "element", `mean("entropy")`))).
		WithPanel(chart(about{"Sizes of flows", "Flows of the network by their packets, from a power of two on.", "short",
			12, 8}, true, lines("$tag_first", `SELECT max("flows") `+where(from("sketchint/distributions/range",
			`time($__interval), "first" fill(null)`), `"element" = 'network'`)))).
		WithRow(dashboard.NewRowBuilder("Drops, hosts and collection")).
		WithPanel(chart(about{"Drops by switch", "Dropped packets that switches reported.", "short", 12, 8}, true,
			by("sketchint/switch", "device", `max("drops")`))).
		WithPanel(chart(about{"Bytes of collection", "Bytes that hosts reported, and those of INT's passport mode.",
			"bytes", 12, 8}, false, cost("reported", "bytes"), cost("passport mode", "passport-bytes"))).
		WithPanel(list(about{"Hosts", "Newest state of each host.", "", 24, 9},
			rows(`SELECT last("status") AS "status", last("problem") AS "problem", last("packets") AS "packets", `+
				`last("with-int") AS "with-int", last("mtu-exceeded") AS "mtu-exceeded" `+
				from("sketchint/host", `"host"`)))).
		WithPanel(list(about{"Faults", "Packets whose INT could not be read, by sender.", "", 12, 8},
			rows(`SELECT last("packets") AS "packets" `+from("sketchint/fault", `"host", "address", "problem"`)),
			column{"packets", "short", true})).
		WithPanel(list(about{"Senders of telemetry reports", "Datagrams since the agent started.", "", 12, 8},
			rows(`SELECT last("received") AS "received", last("lost") AS "lost", last("late") AS "late", `+
				`last("restarts") AS "restarts" `+from("sketchint/source", `"host", "address", "node-id"`)),
			column{"lost", "short", true})).
		Build()
}
