// SPDX-License-Identifier: Apache-2.0

//go:build dashboards

// The dashboards.

package dashboards

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// Files returns the dashboards as JSON, by file name.
func Files() (map[string][]byte, error) {
	out := map[string][]byte{}
	for name, build := range map[string]func() (dashboard.Dashboard, error){
		"netsketch-univmon.json":       univmon,
		"netsketch-chamelemon.json":    chamelemon,
		"netsketch-omnimon.json":       omnimon,
		"netsketch-sketchint.json":     sketchint,
		"netsketch-lightguardian.json": lightguardian,
		"netsketch-collector.json":     collector,
	} {
		d, err := build()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		number := uint32(0)
		for i := range d.Panels { // links and alerts refer to panels by number
			number++
			if p := d.Panels[i].Panel; p != nil {
				p.Id = cog.ToPtr(number)
			} else {
				d.Panels[i].RowPanel.Id = number
			}
		}
		text, err := json.MarshalIndent(d, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = append(text, '\n')
	}
	return out, nil
}

// frame returns a dashboard with the settings that all share.
func frame(uid, title, description string) *dashboard.DashboardBuilder {
	return dashboard.NewDashboardBuilder(title).
		Uid(uid).
		Description(description).
		Tags([]string{"netsketch"}).
		Editable().
		Time("now-15m", "now").
		Refresh("5s").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Database").Type("influxdb")).
		Link(dashboard.NewDashboardLinkBuilder("netsketch").Type(dashboard.DashboardLinkTypeDashboards).Tags(
			[]string{"netsketch"}).IncludeVars(true).KeepTime(true))
}

// from returns the clauses of a query on UnivMon's results after the fields: the rows and their
// groups. It omits tags that the measurement does not have.
func from(measurement, group string, tags ...string) string {
	var where []string
	for _, t := range append([]string{"target"}, tags...) {
		where = append(where, fmt.Sprintf(`"%s" =~ /^${%s:regex}$/`, t, t))
	}
	where = append(where, "$timeFilter")
	q := fmt.Sprintf(`FROM "%s" WHERE %s`, measurement, strings.Join(where, " AND "))
	if group != "" {
		q += " GROUP BY " + group
	}
	return q
}

const (
	perScope = `time($__interval), "device", "dimension" fill(null)`
	scope    = "$tag_device $tag_dimension"
)

func univmon() (dashboard.Dashboard, error) {
	summary := func(field string) Query {
		return lines(scope, fmt.Sprintf(`SELECT mean("%s") `, field)+from("univmon/summary", perScope, "device",
			"dimension"))
	}
	both := []string{"device", "dimension"}
	return frame("netsketch-univmon", "netsketch: UnivMon",
		"Traffic statistics of UnivMon: every value is an estimate over one epoch, per switch and for the whole network.").
		WithVariable(choice("target", "Collector", "univmon/summary", "target")).
		WithVariable(deviceChoice("univmon/summary")).
		WithVariable(choice("dimension", "Flows by", "univmon/summary", "dimension")).
		WithRow(dashboard.NewRowBuilder("Totals")).
		WithPanel(number(about{"Packets", "Packets of the newest epoch; exact.", "short", 6, 5}, summary("packets"))).
		WithPanel(number(about{"Distinct flows", "Different flows in the newest epoch.", "short", 6, 5},
			summary("distinct-flows"))).
		WithPanel(number(about{"Entropy", "Entropy of packets over flows in the newest epoch, in bits.", "none", 6, 5},
			summary("entropy"))).
		WithPanel(number(about{"Heavy hitters", "Flows over the heavy-hitter threshold in the newest epoch.", "short",
			6, 5}, summary("heavy-hitters"))).
		WithPanel(chart(about{"Packets per epoch", "Packets counted in each epoch.", "short", 12, 8}, false,
			summary("packets"))).
		WithPanel(chart(about{"Distinct flows", "Different flows in each epoch.", "short", 12, 8}, false,
			summary("distinct-flows"))).
		WithPanel(chart(about{"Entropy", "Entropy of packets over flows, in bits: it decreases when few flows dominate, " +
			"and increases in a scan or a flood from many sources.", "none", 12, 8}, false, summary("entropy"))).
		WithPanel(chart(about{"Second moment (F2)", "Sum of the squared sizes of all flows: how skewed the traffic is.",
			"short", 12, 8}, false, summary("second-moment"))).
		WithRow(dashboard.NewRowBuilder("Largest flows")).
		WithPanel(list(about{"Largest flows", "The largest flows of the time range, each at its largest epoch.", "", 12,
			10},
			rows(`SELECT top("packets", "device", "dimension", "flow", 20) AS "packets" `+from("univmon/heavy-hitter",
				"", both...)),
			column{"packets", "short", true})).
		WithPanel(chart(about{"Largest flows over time",
			"Packets per epoch of the flows that were among the ten largest of their device.", "short", 12, 10}, false,
			lines("$tag_device $tag_flow", `SELECT max("packets") `+strings.Replace(from("univmon/heavy-hitter",
				`time($__interval), "device", "flow" fill(null)`, both...), " AND $timeFilter",
				` AND "rank" <= 10 AND $timeFilter`, 1)))).
		WithPanel(chart(about{"Share of the largest flow", "Part of all packets that belong to the largest flow.",
			"percentunit", 12, 8}, false,
			lines(scope, `SELECT max("share") `+from("univmon/heavy-hitter", perScope, both...)))).
		WithPanel(chart(about{"Heavy hitters and heavy changes", "Number of flows over the thresholds.", "short", 12,
			8}, false,
			lines("hitters "+scope, `SELECT mean("heavy-hitters") `+from("univmon/summary", perScope, both...)),
			lines("changes "+scope, `SELECT mean("changes") `+from("univmon/summary", perScope, both...)))).
		WithRow(dashboard.NewRowBuilder("Changes and attacks")).
		WithPanel(list(about{"Heavy changes", "Flows that changed most from one epoch to the next, newest first.", "",
			12, 10},
			rows(`SELECT "device", "dimension", "flow", "kind", "previous", "current", "delta" `+from("univmon/heavy-change", "",
				both...)+" ORDER BY time DESC LIMIT 100"),
			column{"previous", "short", false}, column{"current", "short", false}, column{"delta", "short", false})).
		WithPanel(chart(about{"Change of the largest changes", "Difference in packets from the epoch before.", "short",
			12, 10}, false,
			lines("$tag_device $tag_flow", `SELECT mean("delta") `+strings.Replace(from("univmon/heavy-change",
				`time($__interval), "device", "flow" fill(null)`, both...), " AND $timeFilter",
				` AND "rank" <= 5 AND $timeFilter`, 1)))).
		WithPanel(list(about{"DDoS victims", "Destinations with the most different sources in the time range.", "", 12,
			8},
			rows(`SELECT top("distinct-sources", "device", "destination", 20) AS "distinct-sources" `+from("univmon/ddos-victim",
				"", "device")),
			column{"distinct-sources", "short", true})).
		WithPanel(chart(about{"Sources per victim", "Different source addresses of each victim.", "short", 12, 8},
			false,
			lines("$tag_device $tag_destination", `SELECT max("distinct-sources") `+from("univmon/ddos-victim",
				`time($__interval), "device", "destination" fill(null)`, "device")))).
		WithRow(dashboard.NewRowBuilder("Watched flows and functions")).
		WithPanel(chart(about{"Watched flows", "Packets per epoch of flows with a subscriber.", "short", 12, 8}, false,
			lines("$tag_device $tag_flow", `SELECT mean("packets") `+from("univmon/flow",
				`time($__interval), "device", "flow" fill(null)`, both...)))).
		WithPanel(chart(about{"Functions", "Registered functions of the flow sizes.", "short", 12, 8}, false,
			lines("$tag_name $tag_device $tag_dimension",
				`SELECT mean("value") `+from("univmon/function",
					`time($__interval), "name", "device", "dimension" fill(null)`, both...)))).
		Build()
}

func collector() (dashboard.Dashboard, error) {
	const each = `time($__interval), "target" fill(null)`
	of := func(measurement, alias, field string) Query {
		return lines(alias, fmt.Sprintf(`SELECT mean("%s") `, field)+from(measurement, each))
	}
	tag := func(measurement string) string {
		if measurement == "collector/device" {
			return "device"
		}
		return "name"
	}
	byName := func(measurement, alias, function string) Query {
		return lines(alias+"$tag_"+tag(measurement), "SELECT "+function+" "+from(measurement,
			fmt.Sprintf(`time($__interval), "%s" fill(null)`, tag(measurement))))
	}
	rate := func(measurement, alias, field string) Query {
		return byName(measurement, alias, fmt.Sprintf(`non_negative_derivative(max("%s"), 1s)`, field))
	}
	newest := func(measurement string, fields ...string) Query {
		for i, f := range fields {
			fields[i] = fmt.Sprintf(`last("%s") AS "%s"`, f, f)
		}
		return rows("SELECT " + strings.Join(fields, ", ") + " " +
			from(measurement, fmt.Sprintf(`"target", "%s"`, tag(measurement))))
	}
	return frame("netsketch-collector", "netsketch: collector",
		"State of the collector: epochs and their stages, devices, plugins and outputs.").
		WithVariable(choice("target", "Collector", "collector/epoch", "target")).
		WithRow(dashboard.NewRowBuilder("Epochs")).
		WithPanel(number(about{"Complete", "Epochs with data of all devices.", "short", 4, 5},
			of("collector", "$tag_target", "epochs-complete"))).
		WithPanel(number(about{"Partial", "Epochs with data of some devices.", "short", 4, 5},
			of("collector", "$tag_target", "epochs-partial"))).
		WithPanel(number(about{"Lost", "Epochs without data.", "short", 4, 5},
			of("collector", "$tag_target", "epochs-lost"))).
		WithPanel(number(about{"Epoch end to results", "From the epoch's end until its results were in the store.",
			"ns", 6, 5}, of("collector/epoch", "$tag_target", "total-time"))).
		WithPanel(number(about{"Epoch end to first update",
			"From the epoch's end to the first gNMI update at a subscriber.", "ns", 6, 5},
			of("collector/epoch", "$tag_target", "first-update-time"))).
		WithPanel(chart(about{"Stages of an epoch", "Stages between an epoch's end and its results.", "ns", 12, 9},
			true,
			of("collector/epoch", "flip", "flip-time"), of("collector/epoch", "wait", "wait-time"),
			of("collector/epoch", "read-out", "readout-time"),
			of("collector/epoch", "plugins", "plugin-time"), of("collector/epoch", "publish", "publish-time"))).
		WithPanel(chart(about{"Devices per epoch", "Devices that took part and devices that were missing.", "short", 12,
			9}, false,
			of("collector/epoch", "expected", "devices-expected"), of("collector/epoch", "present", "devices-present"),
			of("collector/epoch", "missing", "devices-missing"))).
		WithPanel(list(about{"Incomplete epochs", "Partial and lost epochs with the missing devices.", "", 12, 8},
			rows(`SELECT "number", "status", "devices-missing", "missing" `+strings.Replace(from("collector/epoch", ""),
				"$timeFilter", `"status" <> 'complete' AND $timeFilter`, 1)+" ORDER BY time DESC LIMIT 50"))).
		WithPanel(chart(about{"Results and memory", "List entries in the store, and the collector's heap.", "short", 12,
			8}, false,
			of("collector", "rows", "rows"), of("collector", "subscriptions", "subscriptions"),
			of("collector", "watched flows", "watched-flows"), of("collector", "heap (bytes)", "heap"))).
		WithRow(dashboard.NewRowBuilder("Devices")).
		WithPanel(list(about{"Devices", "State of each device.", "", 24, 9},
			newest("collector/device", "address", "connection", "mastership", "readout-method", "readout-time",
				"epochs-complete", "epochs-lost", "reconnects", "packet-ins-dropped", "last-error"),
			column{"readout-time", "ns", false})).
		WithPanel(chart(about{"Read-out", "Time to read a bank, per device.", "ns", 12, 8}, false,
			byName("collector/device", "", `mean("readout-time")`))).
		WithPanel(chart(about{"Epochs lost per device", "Epochs without data of a device, since the collector started.",
			"short", 12, 8}, false, byName("collector/device", "", `max("epochs-lost")`))).
		WithRow(dashboard.NewRowBuilder("Plugins")).
		WithPanel(list(about{"Plugins", "State of each plugin.", "", 12, 8},
			newest("collector/plugin", "version", "status", "pid", "restarts", "epochs-analyzed", "epochs-lost",
				"rows-refused", "last-error"))).
		WithPanel(chart(about{"Analysis", "Time of a plugin for an epoch.", "ns", 12, 8}, false,
			byName("collector/plugin", "", `mean("analysis-time")`))).
		WithRow(dashboard.NewRowBuilder("Outputs")).
		WithPanel(list(about{"Outputs", "State of each output.", "", 24, 6},
			newest("collector/output", "type", "status", "sent", "dropped", "queued", "spooled", "last-error"),
			column{"spooled", "bytes", false})).
		WithPanel(chart(about{"Sent", "Leaf updates or points per second.", "short", 12, 8}, false,
			rate("collector/output", "", "sent"))).
		WithPanel(chart(about{"Queued and dropped", "Queued for delivery, and dropped since the collector started.",
			"short", 12, 8}, false,
			byName("collector/output", "queued ", `max("queued")`),
			byName("collector/output", "dropped ", `max("dropped")`))).
		Build()
}
