// SPDX-License-Identifier: Apache-2.0

package questions

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// scrape is one answer of /metrics/results, as Prometheus stores it.
type scrape []storage.Series

// newScrape reads an exposition at a time.
func newScrape(t *testing.T, url string, at time.Time) (out scrape) {
	t.Helper()
	resp, err := http.Get(url)
	for range 10 { // a busy machine answers after the time that a scrape may take
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
			break
		}
		resp.Body.Close()
		resp, err = http.Get(url)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", url, resp.Status)
	}
	read := expfmt.NewTextParser(model.LegacyValidation)
	families, err := read.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			pairs := []string{model.MetricNameLabel, name}
			for _, l := range m.GetLabel() {
				pairs = append(pairs, l.GetName(), l.GetValue())
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
			out = append(out, storage.NewListSeries(labels.FromStrings(pairs...),
				[]chunks.Sample{sample{at.UnixMilli(), value}}))
		}
	}
	return out
}

// query evaluates PromQL at a time, with the engine of Prometheus.
func (s scrape) query(t *testing.T, text string, at time.Time) promql.Vector {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute,
		Parser: parser.NewParser(parser.Options{})})
	defer engine.Close()
	q, err := engine.NewInstantQuery(t.Context(), s, nil, text, at)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer q.Close()
	v, err := q.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return slices.Clone(v)
}

func (s scrape) Querier(_, _ int64) (storage.Querier, error) { return s, nil }

func (s scrape) Select(_ context.Context, _ bool, _ *storage.SelectHints, by ...*labels.Matcher) storage.SeriesSet {
	var found []storage.Series
	for _, x := range s {
		if !slices.ContainsFunc(by, func(m *labels.Matcher) bool { return !m.Matches(x.Labels().Get(m.Name)) }) {
			found = append(found, x)
		}
	}
	return &seriesSet{left: found}
}

func (scrape) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher,
) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (scrape) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher,
) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (scrape) Close() error { return nil }

// sample is a value at a time in milliseconds.
type sample struct {
	t int64
	f float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// seriesSet iterates over series.
type seriesSet struct {
	left []storage.Series
	at   storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.at, s.left = s.left[0], s.left[1:]
	return true
}

func (s *seriesSet) At() storage.Series              { return s.at }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }
