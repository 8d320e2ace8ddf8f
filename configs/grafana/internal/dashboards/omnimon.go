// SPDX-License-Identifier: Apache-2.0

//go:build dashboards

package dashboards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// omnimon returns the dashboard of OmniMon: exactness, losses, load of links, hosts and queries.
func omnimon() (dashboard.Dashboard, error) {
	summary := func(alias, field string) Query {
		return lines(alias, fmt.Sprintf(`SELECT mean("%s") `, field)+from("omnimon/summary",
			`time($__interval) fill(null)`))
	}
	by := func(measurement, tag, function string) Query {
		return lines("$tag_"+tag, "SELECT "+function+" "+from(measurement, fmt.Sprintf(`time($__interval), "%s" fill(null)`,
			tag)))
	}
	return frame("netsketch-omnimon", "netsketch: OmniMon",
		"Every flow at every host and switch, and where packets are lost.").
		WithVariable(choice("target", "Collector", "omnimon/summary", "target")).
		WithRow(dashboard.NewRowBuilder("State")).
		WithPanel(states(about{"Exactness", "Exact: all values of the epoch are exact. Complete: all hosts and switches " +
			"delivered their data.", "", 16, 5},
			rows(`SELECT "status", "exact" `+from("omnimon/summary", "")))).
		WithPanel(number(about{"Alerts", "Active in the newest epoch.", "none", 4, 5},
			summary("alerts", "active-alerts"))).
		WithPanel(number(about{"Determined", "Share of the numbers of lost packets that have one possible value.",
			"percentunit", 4, 5}, summary("determined", "determined-share"))).
		WithPanel(list(about{"Alerts by kind", "The newest state of each alert.", "", 24, 8},
			rows(`SELECT last("active") AS "active", last("severity") AS "severity", last("since-epoch") AS "since-epoch", `+
				`last("count") AS "count", last("text") AS "text" `+from("omnimon/alert", `"subject", "kind"`)))).
		WithRow(dashboard.NewRowBuilder("Losses")).
		WithPanel(chart(about{"Lost packets", "Packets that did not arrive at their destination.", "short", 12, 8}, false,
			summary("lost packets", "lost-packets"))).
		WithPanel(chart(about{"Flows", "Flows with packets, and flows of which packets were lost.", "short", 12, 8}, false,
			summary("flows", "flows"), summary("lossy flows", "lossy-flows"))).
		WithPanel(chart(about{"Lost by switch", "Packets that each switch lost; an upper bound if not determined.",
			"short", 12, 8}, false, by("omnimon/switch", "device", `max("lost-high")`))).
		WithPanel(chart(about{"Lost by link", "Packets that each link lost; an upper bound if not determined.",
			"short", 12, 8}, false, by("omnimon/link", "link", `max("lost-high")`))).
		WithPanel(list(about{"Largest losses", "Losses of a flow at a switch or link, the largest of the time range.", "",
			24, 10},
			rows(`SELECT top("lost-high", "flow", "element", 20) AS "lost-high", "lost-low", "determined", "kind" `+
				from("omnimon/loss", "")),
			column{"lost-high", "short", true}, column{"lost-low", "short", false})).
		WithRow(dashboard.NewRowBuilder("Traffic")).
		WithPanel(chart(about{"Packets between hosts", "Packets from host to host with a header.", "short", 12, 8}, false,
			summary("packets", "packets"))).
		WithPanel(chart(about{"Bytes by link", "Bytes of the IP packets sent on each link in an epoch.", "bytes", 12, 8},
			false, by("omnimon/link", "link", `max("bytes")`))).
		WithPanel(list(about{
			"Flows with the most packets", "The largest flows of the time range, each at its largest epoch.", "", 12, 10,
		},
			rows(`SELECT top("packets", "flow", 20) AS "packets", "bytes", "lost-packets", "path" `+
				from("omnimon/flow", "")),
			column{"packets", "short", true}, column{"bytes", "bytes", false})).
		WithPanel(list(about{"Top flows of links", "The flow with the most packets of each link.", "", 12, 10},
			rows(`SELECT last("packets") AS "packets", last("bytes") AS "bytes" `+where(from("omnimon/link-flow",
				`"link", "flow"`), `"rank" = 1`)), column{"packets", "short", true})).
		WithPanel(chart(about{"Ended flows by duration", "Flows that ended, by their duration in epochs, rounded up to a " +
			"power of two.", "short", 24, 8}, true, by("omnimon/completion", "epochs", `max("flows")`))).
		WithRow(dashboard.NewRowBuilder("Hosts and queries")).
		WithPanel(chart(about{"Mappings in use", "Mappings of flows to slots, at all hosts.", "short", 12, 8}, false,
			summary("used", "mappings-used"), summary("owned", "mappings-owned"))).
		WithPanel(chart(about{"Times", "Time of the collective analysis, and the time between the first and the last " +
			"device that began the next epoch.", "ns", 12, 8}, false, summary("analysis", "analysis-time"),
			summary("epoch deviation", "epoch-deviation"))).
		WithPanel(list(about{"Hosts", "Newest state of each host.", "", 12, 9},
			rows(`SELECT last("status") AS "status", last("problem") AS "problem", last("flows") AS "flows", `+
				`last("untracked") AS "untracked", last("late") AS "late" `+from("omnimon/host", `"host"`)))).
		WithPanel(list(about{"Queries", "Newest state of each query.", "", 12, 9},
			rows(`SELECT last("status") AS "status", last("exact") AS "exact", last("results") AS "results", `+
				`last("problem") AS "problem" `+from("omnimon/query", `"name"`)))).
		Build()
}
