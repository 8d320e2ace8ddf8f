// SPDX-License-Identifier: Apache-2.0

//go:build dashboards

package dashboards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// lightguardian returns the dashboard of LightGuardian: faults with flow and switch, coverage of
// switches, flows at the switches of their paths, sizes, and hosts.
func lightguardian() (dashboard.Dashboard, error) {
	summary := func(alias, field string) Query {
		return lines(alias, fmt.Sprintf(`SELECT mean("%s") `, field)+from("lightguardian/summary",
			`time($__interval) fill(null)`))
	}
	by := func(measurement, tag, function string) Query {
		return lines("$tag_"+tag, "SELECT "+function+" "+from(measurement, fmt.Sprintf(`time($__interval), "%s" fill(null)`,
			tag)))
	}
	return frame("netsketch-lightguardian", "netsketch: LightGuardian",
		"Faults of flows, and sizes, delays and gaps of flows at every switch of their paths.").
		WithVariable(choice("target", "Collector", "lightguardian/summary", "target")).
		WithRow(dashboard.NewRowBuilder("State")).
		WithPanel(states(about{"Intervals", "Complete: all hosts reported the flows of the interval, and columns of all " +
			"switches arrived.", "", 12, 5},
			rows(`SELECT "status" `+from("lightguardian/summary", "")))).
		WithPanel(number(about{"Alerts", "Active in the newest interval.", "none", 4, 5},
			summary("alerts", "active-alerts"))).
		WithPanel(number(about{"Received", "Share of the columns of all switches that have been received.",
			"percentunit", 4, 5}, summary("received", "received"))).
		WithPanel(number(about{"Valid", "Share of the switches on the paths of flows at which the flow is measured.",
			"percentunit", 4, 5}, summary("valid", "valid"))).
		WithPanel(list(about{"Alerts by kind", "The newest state of each alert.", "", 24, 8},
			rows(`SELECT last("active") AS "active", last("severity") AS "severity", last("since-epoch") AS "since-epoch", `+
				`last("count") AS "count", last("text") AS "text" `+from("lightguardian/alert", `"subject", "kind"`)))).
		WithPanel(list(about{"Faults", "Faults of flows at switches in the time range.", "", 24, 10},
			rows(`SELECT last("value") AS "value", last("after") AS "after", last("since-epoch") AS "since-epoch", `+
				`last("sent") AS "sent", last("received-packets") AS "received-packets" `+
				from("lightguardian/fault", `"flow", "device", "kind"`)), column{"sent", "short", true})).
		WithRow(dashboard.NewRowBuilder("Coverage")).
		WithPanel(chart(about{"Received columns by switch", "Share of the columns of the newest interval.", "percentunit",
			12, 8}, false, by("lightguardian/switch", "device", `mean("received")`))).
		WithPanel(chart(about{"In-band bytes", "Bytes of sketchlets that hosts removed from packets.", "bytes", 12, 8},
			false, summary("bytes", "in-band-bytes"))).
		WithPanel(list(about{"Intervals by switch", "Columns that have been received, late ones included.", "", 24, 8},
			rows(`SELECT last("received") AS "received", last("received-columns") AS "columns", `+
				`last("late-columns") AS "late", last("disagreeing-columns") AS "disagreeing", `+
				`last("unmeasured-sketchlets") AS "unmeasured", last("final") AS "final" `+
				from("lightguardian/coverage/interval", `"first-epoch", "device"`)), column{"received", "percentunit", false})).
		WithRow(dashboard.NewRowBuilder("Flows")).
		WithPanel(list(about{"Flows with the most packets", "The largest flows of the time range, each at its largest " +
			"interval.", "", 24, 10},
			rows(`SELECT top("sent", "flow", 20) AS "sent", "received-packets", "lost", "path", "sender", "receiver" `+
				from("lightguardian/flow", "")), column{"sent", "short", true}, column{"lost", "short", false})).
		WithPanel(list(about{"Flows at switches", "The hops with the most packets that were lost before them.", "", 24, 10},
			rows(`SELECT top("lost", "flow", "device", 20) AS "lost", "packets", "slow", "gap" `+
				from("lightguardian/hop", "")), column{"lost", "short", true}, column{"slow", "percentunit", false},
			column{"gap", "ns", false})).
		WithPanel(chart(about{"Packets by switch", "Packets that left the switch, as estimated.", "short", 12, 8}, false,
			by("lightguardian/switch", "device", `mean("packets")`))).
		WithPanel(chart(about{"Flows by switch", "Flows, as estimated.", "short", 12, 8}, false,
			by("lightguardian/switch", "device", `mean("flows")`))).
		WithPanel(chart(about{"Entropy by switch", "Entropy of packets over flows, in bits.", "short", 12, 8}, false,
			by("lightguardian/switch", "device", `mean("entropy")`))).
		WithPanel(chart(about{"Sizes of flows", "Flows of switches by their packets, from a power of two on.", "short",
			12, 8}, true, lines("$tag_first", `SELECT sum("flows") `+from("lightguardian/distributions/range",
			`time($__interval), "first" fill(null)`)))).
		WithRow(dashboard.NewRowBuilder("Hosts")).
		WithPanel(list(about{"Hosts", "Newest state of each host.", "", 24, 9},
			rows(`SELECT last("status") AS "status", last("problem") AS "problem", last("packets") AS "packets", `+
				`last("sketchlets") AS "sketchlets", last("bad-check") AS "bad-check", last("full") AS "full" `+
				from("lightguardian/host", `"host"`)))).
		Build()
}
