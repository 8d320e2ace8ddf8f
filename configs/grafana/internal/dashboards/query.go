// SPDX-License-Identifier: Apache-2.0

//go:build dashboards

// Package dashboards builds netsketch's Grafana dashboards.
//
// Concurrency: the functions may be called from any goroutine, after Register has returned.
package dashboards

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// Query is an InfluxQL query, as text, of Grafana's InfluxDB data source. The SDK has no type for
// it.
type Query struct {
	RefID        string                `json:"refId"`
	Hide         *bool                 `json:"hide,omitempty"`
	Datasource   *common.DataSourceRef `json:"datasource,omitempty"`
	Query        string                `json:"query"`
	RawQuery     bool                  `json:"rawQuery"`
	ResultFormat string                `json:"resultFormat"` // time_series or table
	Alias        string                `json:"alias,omitempty"`
}

// ImplementsDataqueryVariant makes Query a variants.Dataquery.
func (q Query) ImplementsDataqueryVariant() {}

// DataqueryType is the data source's plugin id.
func (q Query) DataqueryType() string { return "influxdb" }

// Equals reports whether another query is the same.
func (q Query) Equals(other variants.Dataquery) bool {
	a, errA := json.Marshal(q)
	b, errB := json.Marshal(other)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// Validate reports why Grafana would not run the query.
func (q Query) Validate() error {
	switch {
	case q.Query == "" || !q.RawQuery:
		return errors.New("influxdb query: no text")
	case q.ResultFormat != "time_series" && q.ResultFormat != "table":
		return errors.New("influxdb query: result format " + q.ResultFormat)
	}
	return nil
}

// Build makes Query its own builder.
func (q Query) Build() (variants.Dataquery, error) { return q, q.Validate() }

var _ cog.Builder[variants.Dataquery] = Query{}

// Register registers the panels and Query with the SDK, so that it can read the dashboards. The SDK
// has one registry per program.
func Register() {
	r := cog.NewRuntime()
	r.RegisterPanelcfgVariant(stat.VariantConfig())
	r.RegisterPanelcfgVariant(statetimeline.VariantConfig())
	r.RegisterPanelcfgVariant(table.VariantConfig())
	r.RegisterPanelcfgVariant(timeseries.VariantConfig())
	read := func(raw []byte, strict bool) (variants.Dataquery, error) {
		dec := json.NewDecoder(bytes.NewReader(raw))
		if strict {
			dec.DisallowUnknownFields()
		}
		var q Query
		err := dec.Decode(&q)
		return q, err
	}
	r.RegisterDataqueryVariant(variants.DataqueryConfig{
		Identifier:                 "influxdb",
		DataqueryUnmarshaler:       func(raw []byte) (variants.Dataquery, error) { return read(raw, false) },
		StrictDataqueryUnmarshaler: func(raw []byte) (variants.Dataquery, error) { return read(raw, true) },
	})
}
