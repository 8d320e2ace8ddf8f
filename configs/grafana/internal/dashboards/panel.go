// SPDX-License-Identifier: Apache-2.0

//go:build dashboards

// The kinds of panels that the dashboards use, in one style.

package dashboards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// datasource is the data source selected by the dashboard's variable of this name.
func datasource() common.DataSourceRef {
	return common.DataSourceRef{Type: cog.ToPtr("influxdb"), Uid: cog.ToPtr("${datasource}")}
}

// lines is a query whose result is drawn over time.
func lines(alias, text string) Query {
	return Query{Query: text, RawQuery: true, ResultFormat: "time_series", Alias: alias,
		Datasource: cog.ToPtr(datasource())}
}

// rows is a query whose result is shown as a table.
func rows(text string) Query {
	return Query{Query: text, RawQuery: true, ResultFormat: "table", Datasource: cog.ToPtr(datasource())}
}

func numbered(queries []Query) []Query {
	for i := range queries {
		queries[i].RefID = string(rune('A' + i))
	}
	return queries
}

// about is the common part of all panels.
type about struct {
	title, description, unit string
	width                    uint32 // of 24
	height                   uint32
}

// chart draws queries over time.
func chart(a about, stacked bool, queries ...Query) cog.Builder[dashboard.Panel] {
	p := timeseries.NewPanelBuilder().
		Title(a.title).Description(a.description).Unit(a.unit).Span(a.width).Height(a.height).
		Datasource(datasource()).
		LineWidth(1).ShowPoints(common.VisibilityModeAuto).
		SpanNulls(common.BoolOrFloat64{Bool: cog.ToPtr(true)}).
		AxisSoftMin(0).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(
			common.LegendPlacementBottom).ShowLegend(true)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	if stacked {
		p.FillOpacity(40).Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
	} else {
		p.FillOpacity(8)
	}
	for _, q := range numbered(queries) {
		p.WithTarget(q)
	}
	return p
}

// number shows the newest value of each series.
func number(a about, queries ...Query) cog.Builder[dashboard.Panel] {
	p := stat.NewPanelBuilder().
		Title(a.title).Description(a.description).Unit(a.unit).Span(a.width).Height(a.height).
		Datasource(datasource()).
		GraphMode(common.BigValueGraphModeArea).Orientation(common.VizOrientationAuto).
		Thresholds(dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).
			Steps([]dashboard.Threshold{{Color: "green"}})). // without them, numbers from 80 on are red
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}).Values(false))
	for _, q := range numbered(queries) {
		p.WithTarget(q)
	}
	return p
}

// states shows texts and booleans over time, as bands.
func states(a about, q Query) cog.Builder[dashboard.Panel] {
	color := func(text, colour string, index int32) dashboard.ValueMapping {
		return dashboard.ValueMapping{ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText,
			Options: map[string]dashboard.ValueMappingResult{
				text: {Color: cog.ToPtr(colour), Index: cog.ToPtr(index)},
			}}}
	}
	return statetimeline.NewPanelBuilder().
		Title(a.title).Description(a.description).Span(a.width).Height(a.height).
		Datasource(datasource()).
		MergeValues(true).
		ShowValue(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(
			common.LegendPlacementBottom).ShowLegend(true)).
		Mappings([]dashboard.ValueMapping{
			color("healthy", "green", 0), color("ill", "red", 1), color("complete", "green", 2),
			color("partial", "orange", 3), color("lost", "red", 4),
			color("true", "green", 5), color("false", "orange", 6),
		}).
		WithTarget(numbered([]Query{q})[0])
}

// column defines how a table shows a field. Rows are sorted by the field with largest set, in
// descending order.
type column struct {
	name, unit string
	largest    bool
}

// list shows a query's rows; columns other than those named have no unit.
func list(a about, q Query, columns ...column) cog.Builder[dashboard.Panel] {
	p := table.NewPanelBuilder().
		Title(a.title).Description(a.description).Span(a.width).Height(a.height).
		Datasource(datasource()).
		ShowHeader(true).
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{"sum"})).
		WithTarget(numbered([]Query{q})[0])
	for _, c := range columns {
		p.OverrideByName(c.name, []dashboard.DynamicConfigValue{{Id: "unit", Value: c.unit}})
		if c.largest {
			p.SortBy([]cog.Builder[common.TableSortByFieldState]{
				common.NewTableSortByFieldStateBuilder().DisplayName(c.name).Desc(true),
			})
		}
	}
	return p
}

// choice is a variable of the dashboard with the values of a tag; all are chosen at first.
func choice(name, label, measurement, tag string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).
		Label(label).
		Datasource(datasource()).
		Query(dashboard.StringOrMap{String: cog.ToPtr(fmt.Sprintf(`SHOW TAG VALUES FROM "%s" WITH KEY = "%s"`,
			measurement, tag))}).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc).
		Multi(true).IncludeAll(true).
		Current(dashboard.VariableOption{
			Selected: cog.ToPtr(true),
			Text:     dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}},
			Value:    dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}},
		})
}

// deviceChoice is the variable of devices; the network as a whole is chosen at first.
func deviceChoice(measurement string) cog.Builder[dashboard.VariableModel] {
	network := dashboard.StringOrArrayOfString{ArrayOfString: []string{"network"}}
	return choice("device", "Device", measurement, "device").
		Current(dashboard.VariableOption{Selected: cog.ToPtr(true), Text: network, Value: network})
}
