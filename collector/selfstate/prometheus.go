// SPDX-License-Identifier: Apache-2.0

package selfstate

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// leafMetrics is a prometheus.Collector of the state leaves under Root in the store: metrics and
// leaves have the same values.
//
//	leaf                         metric
//	counter64                    counter NAME_total
//	other number, boolean        gauge NAME
//	units nanoseconds            seconds: NAME_seconds; of type timestamp NAME_timestamp_seconds
//	units bytes                  NAME_bytes
//	enumeration                  gauges NAME{state="VALUE"}, 1 for the current value and 0 for others
//	string, config leaf, key     none
//
// NAME is netsketch_ and the leaf's path: /collector/devices/device/state/epochs-lost is
// netsketch_device_epochs_lost_total. List keys are labels. No text is a label, so the number of
// time series is bounded by the number of devices, links, plugins and outputs.
type leafMetrics struct {
	store  *store.Store
	schema func() *yang.Schema

	mu      sync.Mutex
	metrics map[leafKey]*leafMetric // nil for a leaf without a metric
}

// leafKey is a list's path and the name of a leaf in it.
type leafKey struct{ list, leaf string }

// leafMetric describes the metric of a leaf.
type leafMetric struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	scale  float64
	states []string // of an enumeration
}

// Describe sends nothing: the metrics depend on what is published.
func (m *leafMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics of the leaves in the store.
func (m *leafMetrics) Collect(out chan<- prometheus.Metric) {
	top := store.ParseQuery("", Root[strings.LastIndexByte(Root, ':')+1:])
	for row := range m.store.View().Rows(top) {
		labels := make([]string, len(row.Entry.Keys), len(row.Entry.Keys)+1)
		for i, k := range row.Entry.Keys {
			labels[i] = k.String()
		}
		for i, v := range row.Values {
			if v.Absent() {
				continue
			}
			if x := m.metric(row.List, row.List.Leaves[i].Name); x != nil {
				x.send(out, v, labels)
			}
		}
	}
}

// metric returns the metric of a leaf, or nil if it has none.
func (m *leafMetrics) metric(l *store.List, leaf string) *leafMetric {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := leafKey{l.Path, leaf}
	x, known := m.metrics[key]
	if !known {
		x = newLeafMetric(m.schema(), l, leaf)
		m.metrics[key] = x
	}
	return x
}

func newLeafMetric(schema *yang.Schema, l *store.List, name string) *leafMetric {
	list, err := schema.List(l.Path)
	if err != nil {
		return nil
	}
	leaf := list.Leaf(name)
	if leaf == nil || leaf.Config() || list.KeyIndex(name) >= 0 || leaf.Kind() == table.String &&
		leaf.Type.Base != yang.Enumeration {
		return nil
	}
	x := &leafMetric{kind: prometheus.GaugeValue, scale: 1}
	full := metricName(l, name)
	if leaf.Type.Base == yang.Enumeration {
		x.states = leaf.Type.Values
	}
	switch {
	case leaf.Type.Name == "timestamp":
		x.scale, full = 1e-9, full+"_timestamp_seconds"
	case leaf.Units == "nanoseconds":
		x.scale, full = 1e-9, full+"_seconds"
	case leaf.Units == "bytes":
		full += "_bytes"
	}
	if leaf.Type.Name == "counter64" {
		x.kind, full = prometheus.CounterValue, full+"_total"
	}
	var labels []string
	for _, k := range l.Keys {
		label := l.Elems[k.Elem]
		if len(l.KeysAt(k.Elem)) > 1 {
			label += "_" + k.Name
		}
		labels = append(labels, strings.ReplaceAll(label, "-", "_"))
	}
	if x.states != nil {
		labels = append(labels, "state")
	}
	x.desc = prometheus.NewDesc(full, strings.Join(strings.Fields(leaf.Node.Description), " "), labels, nil)
	return x
}

// metricName joins the path of a leaf, without the containers around lists, the containers state,
// and the top container if more names follow.
func metricName(l *store.List, leaf string) string {
	var names []string
	for i, e := range append(l.Elems[:len(l.Elems):len(l.Elems)], strings.Split(leaf, "/")...) {
		aroundList := i+1 < len(l.Elems) && len(l.KeysAt(i+1)) > 0
		if e != "state" && !aroundList {
			names = append(names, e)
		}
	}
	if len(names) > 2 {
		names = names[1:]
	}
	return "netsketch_" + strings.ReplaceAll(strings.Join(names, "_"), "-", "_")
}

// send sends the metrics of a value.
func (x *leafMetric) send(out chan<- prometheus.Metric, v store.Value, labels []string) {
	if x.states != nil {
		for _, s := range x.states {
			out <- prometheus.MustNewConstMetric(x.desc, x.kind, number(store.Bool(s == v.Text())),
				append(labels[:len(labels):len(labels)], s)...)
		}
		return
	}
	out <- prometheus.MustNewConstMetric(x.desc, x.kind, number(v)*x.scale, labels...)
}

// number returns a value as a float.
func number(v store.Value) float64 {
	switch v.Kind() {
	case table.Uint64:
		return float64(v.Uint())
	case table.Int64:
		return float64(v.Int())
	case table.Float64:
		return v.Float()
	}
	if v.Bool() {
		return 1
	}
	return 0
}
