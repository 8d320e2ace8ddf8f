// SPDX-License-Identifier: Apache-2.0

//go:build dashboards

package dashboards

import (
	"fmt"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// chamelemon returns the dashboard of ChameleMon: state of the network, losses, traffic at the
// entrance, and times.
func chamelemon() (dashboard.Dashboard, error) {
	attention := func(alias, field string) Query {
		return lines(alias, fmt.Sprintf(`SELECT mean("%s") `, field)+from("chamelemon/attention",
			`time($__interval) fill(null)`))
	}
	// parts are the parts of the encoders: HH of each switch, HL and LL of the network. Without a
	// group by switch, they are the same on all switches.
	parts := func(field, by string) Query {
		return lines(strings.Join(tagged(by), " "),
			fmt.Sprintf(`SELECT mean("%s") `, field)+from("chamelemon/encoder", "time($__interval), "+by+" fill(null)"))
	}
	summary := func(field string) Query {
		return lines("$tag_device", fmt.Sprintf(`SELECT mean("%s") `, field)+from("chamelemon/summary",
			`time($__interval), "device" fill(null)`, "device"))
	}
	network := func(alias, function string) Query {
		return lines(alias, "SELECT "+function+" "+where(from("chamelemon/summary", `time($__interval) fill(null)`),
			`"device" = 'network'`))
	}
	newest := func(measurement, group string, fields ...string) string {
		for i, f := range fields {
			fields[i] = fmt.Sprintf(`last("%s") AS "%s"`, f, f)
		}
		return "SELECT " + strings.Join(fields, ", ") + " " + from(measurement, group)
	}
	return frame("netsketch-chamelemon", "netsketch: ChameleMon",
		"Which flows lose packets, and how the edge switches' memory shifts between them and the large flows.").
		WithVariable(choice("target", "Collector", "chamelemon/attention", "target")).
		WithVariable(deviceChoice("chamelemon/summary")).
		WithRow(dashboard.NewRowBuilder("State")).
		WithPanel(states(about{"Network state", "Healthy: every victim flow is reported. Ill: heavy victim flows, and a " +
			"sample of the others.", "", 16, 5},
			rows(`SELECT "network-state" AS "measured", "next-state" AS "decided" `+from("chamelemon/attention", "")))).
		WithPanel(number(about{"Alerts", "Active in the newest epoch.", "none", 4, 5},
			attention("alerts", "active-alerts"))).
		WithPanel(number(about{"Changes of state", "Since the plugin was first started.", "none", 4, 5},
			attention("changes", "changes"))).
		WithPanel(states(about{"Epochs", "Decoded: all parts of the encoders were decoded. Settled: the plan that the " +
			"epoch was measured under is certain.", "", 12, 5},
			rows(`SELECT "decoded", "settled" `+from("chamelemon/attention", "")))).
		WithPanel(states(about{"Exactness", "Victims exact: every victim flow is reported with its exact number of lost " +
			"packets.", "", 12, 5},
			rows(`SELECT "status", "victims-exact", "packets-exact" `+where(from("chamelemon/summary", ""),
				`"device" = 'network'`)))).
		WithPanel(list(about{"Alerts by kind", "The newest state of each alert.", "", 12, 9},
			rows(newest("chamelemon/alert", `"subject", "kind"`, "active", "severity", "since-epoch", "count",
				"text")))).
		WithPanel(chart(about{"Epochs with an alert", "By kind and subject. Use this query in an alert rule.", "short",
			12, 9}, false,
			lines("$tag_kind $tag_subject", `SELECT count("active") `+where(from("chamelemon/alert",
				`time($__interval), "kind", "subject" fill(null)`), `"active" = true`)))).
		WithRow(dashboard.NewRowBuilder("Attention")).
		WithPanel(chart(about{"Division of the IPv4 encoders",
			"Buckets of an upstream encoder, all arrays together: heavy hitters (HH), heavy victim flows (HL), light victim " +
				"flows (LL).", "short", 12, 9}, true,
			lines("$tag_part", `SELECT mean("buckets") `+where(from("chamelemon/encoder",
				`time($__interval), "part" fill(null)`), `"family" = 'ipv4'`)))).
		WithPanel(chart(about{"Memory", "Memory of the parts on a switch, upstream.", "bytes", 12, 9}, true,
			parts("memory", `"family", "part"`))).
		WithPanel(chart(about{"Decoded flows", "Flows in each part: HH of each switch, HL and LL of the network.",
			"short", 12, 8}, false, parts("flows", `"part", "family", "device"`))).
		WithPanel(chart(about{"Load factors", "Flows per bucket. The target is 0.6 to 0.7; above 0.81 decoding fails.",
			"none", 12, 8}, false, parts("load-factor", `"part", "family", "device"`))).
		WithPanel(chart(about{"Thresholds", "Tl, the size from which a flow may be a heavy victim flow, and the highest " +
			"Th, the size from which it may be a heavy hitter.", "short", 8, 8}, false,
			attention("Tl", "low-threshold"), attention("Th", "highest-threshold"))).
		WithPanel(chart(about{"Th by switch", "Number of packets from which a flow may be a heavy hitter.", "short", 8,
			8}, false,
			lines("$tag_device", `SELECT mean("high-threshold") `+from("chamelemon/threshold",
				`time($__interval), "device" fill(null)`, "device")))).
		WithPanel(chart(about{"Sample rate", "Fraction of the flows below Tl that is encoded.", "percentunit", 8, 8},
			false, attention("sample rate", "sample-rate"))).
		WithRow(dashboard.NewRowBuilder("Losses")).
		WithPanel(chart(about{"Victims", "Victim flows in an epoch; estimated if not all were decoded.", "short", 12,
			8}, false, attention("victims", "victims"))).
		WithPanel(chart(about{"Lost packets", "Lost packets of the reported victim flows.", "short", 12, 8}, false,
			network("lost packets", `mean("lost-packets")`))).
		WithPanel(list(about{"Top victims", "The flows that lost most packets in an epoch of the time range.", "", 24,
			10},
			rows(`SELECT top("lost-packets", "flow", 20) AS "lost-packets", "packets", "kind", "exact", "entry", "exit" `+from(
				"chamelemon/victim", "")),
			column{"lost-packets", "short", true}, column{"packets", "short", false})).
		WithRow(dashboard.NewRowBuilder("Flows")).
		WithPanel(chart(about{"Packets per epoch", "Packets that entered.", "short", 8, 8}, false, summary("packets"))).
		WithPanel(chart(about{"Distinct flows", "Different flows that entered, by linear counting.", "short", 8, 8},
			false, summary("distinct-flows"))).
		WithPanel(chart(about{"Entropy", "Entropy of packets over flows, in bits.", "none", 8, 8}, false,
			summary("entropy"))).
		WithPanel(list(about{"Heavy hitters", "The largest flows of the time range, each at its largest epoch.", "", 12,
			10},
			rows(`SELECT top("packets", "device", "flow", 20) AS "packets", "share", "exact" `+from("chamelemon/heavy-hitter",
				"", "device")),
			column{"packets", "short", true}, column{"share", "percentunit", false})).
		WithPanel(list(about{"Heavy changes", "Flows with a large change from one epoch to the next, newest first.", "",
			12, 10},
			rows(`SELECT "device", "flow", "kind", "previous", "current", "delta" `+from("chamelemon/heavy-change", "",
				"device")+" ORDER BY time DESC LIMIT 100"),
			column{"previous", "short", false}, column{"current", "short", false}, column{"delta", "short", false})).
		WithPanel(chart(about{"Heavy hitters and heavy changes", "Number of flows over the thresholds.", "short", 12,
			8}, false,
			lines("hitters $tag_device", `SELECT mean("heavy-hitters") `+from("chamelemon/summary",
				`time($__interval), "device" fill(null)`, "device")),
			lines("changes $tag_device", `SELECT mean("changes") `+from("chamelemon/summary",
				`time($__interval), "device" fill(null)`, "device")))).
		WithPanel(chart(about{"Flows by size", "Estimated number of flows in ranges of sizes, named by the smallest.",
			"short", 12, 8}, true,
			lines("$tag_from packets", `SELECT mean("flows") `+where(from("chamelemon/distributions/range",
				`time($__interval), "from" fill(null)`), `"device" = 'network'`)))).
		WithPanel(chart(about{"Watched flows", "Packets per epoch of flows with a subscriber.", "short", 24, 7}, false,
			lines("$tag_device $tag_flow", `SELECT mean("packets") `+from("chamelemon/flow",
				`time($__interval), "device", "flow" fill(null)`, "device")))).
		WithRow(dashboard.NewRowBuilder("Times")).
		WithPanel(chart(about{"Response", "From the end of the read-out until the next configuration was decided, and " +
			"until the results were computed.", "ns", 12, 8}, false,
			attention("decided", "response-time"), attention("results", "analysis-time"))).
		WithPanel(chart(about{"Collection", "Stages of the collector: flip, wait for packets in flight, read-out.",
			"ns", 12, 8}, true,
			lines("flip", `SELECT mean("flip-time") `+from("collector/epoch", `time($__interval) fill(null)`)),
			lines("wait", `SELECT mean("wait-time") `+from("collector/epoch", `time($__interval) fill(null)`)),
			lines("read-out", `SELECT mean("readout-time") `+from("collector/epoch", `time($__interval) fill(null)`)))).
		Build()
}

// where adds a condition to a query.
func where(query, condition string) string {
	return strings.Replace(query, "$timeFilter", condition+" AND $timeFilter", 1)
}

// tagged returns the tags that a query is grouped by, in the form of a legend.
func tagged(by string) (out []string) {
	for _, tag := range strings.Split(by, ", ") {
		out = append(out, "$tag_"+strings.Trim(tag, `"`))
	}
	return out
}
