// SPDX-License-Identifier: Apache-2.0

package selfstate

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// leafMetrics is a prometheus.Collector of the state leaves under Root in the store: metrics and
// leaves have the same values.
//
//	leaf                         metric
//	counter64                    counter NAME_total
//	other number, boolean        gauge NAME
//	a unit of time               seconds: NAME_seconds; of type timestamp NAME_timestamp_seconds
//	a unit of bytes              NAME_bytes
//	enumeration                  gauges NAME{state="VALUE"}, 1 for the current value and 0 for others
//	string, config leaf, key     none
//	type of a node               none: it is the same in each row of the node
//
// NAME is netsketch_ and the leaf's path: /collector/devices/device/state/epochs-lost is
// netsketch_device_epochs_lost_total. List keys are labels. Texts are never labels, so the number
// of time series is bounded by the number of devices, links, plugins and outputs.
type leafMetrics struct {
	store  *store.Store
	schema func() *yang.Schema

	mu      sync.Mutex
	metrics map[leafKey]*leafMetric // nil for a leaf that has no metric
}

// leafKey identifies a leaf by its list's path and its name.
type leafKey struct{ list, leaf string }

// leafMetric describes the metric of a leaf.
type leafMetric struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	scale  float64
	states []string // values of an enumeration
	one    bool     // only the current value of an enumeration has a time series
}

// Describe sends nothing, because the metrics depend on the published leaves.
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

// metric returns the metric of a leaf, or nil if the leaf has no metric.
func (m *leafMetrics) metric(l *store.List, leaf string) *leafMetric {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := leafKey{l.Path, leaf}
	x, known := m.metrics[key]
	if !known {
		x = newLeafMetric(m.schema(), l, leaf, metricNames(l, leaf), labelsOf(l))
		m.metrics[key] = x
	}
	return x
}

// newLeafMetric returns the metric of a leaf, or nil if the leaf has no metric. names are the
// elements of the metric's name, and labels are the labels for keys.
func newLeafMetric(schema *yang.Schema, l *store.List, name string, names, labels []string) *leafMetric {
	list, err := schema.List(l.Path)
	if err != nil {
		return nil
	}
	leaf := list.Leaf(name)
	if leaf == nil || leaf.Config() || list.KeyIndex(name) >= 0 || leaf.Type.Name == "node-type" ||
		leaf.Kind() == table.String && leaf.Type.Base != yang.Enumeration {
		return nil
	}
	x := &leafMetric{kind: prometheus.GaugeValue, scale: yang.MetricScale(leaf)}
	if leaf.Type.Base == yang.Enumeration {
		x.states = leaf.Type.Values
	}
	if leaf.Type.Name == "counter64" {
		x.kind = prometheus.CounterValue
	}
	if x.states != nil {
		labels = append(labels, "state")
	}
	full := "netsketch_" + yang.MetricName(leaf, names...)
	help := cmp.Or(strings.Join(strings.Fields(leaf.Node.Description), " "), l.Path+"/"+name)
	x.desc = prometheus.NewDesc(full, help, labels, nil)
	return x
}

// labelsOf returns the labels for the keys of a list: "node" for a switch or host, otherwise the
// list's name.
func labelsOf(l *store.List) (labels []string) {
	for _, k := range l.Keys {
		label := l.Elems[k.Elem]
		switch {
		case k.Name == "node":
			label = k.Name
		case len(l.KeysAt(k.Elem)) > 1:
			label += "_" + k.Name
		}
		labels = append(labels, yang.Underscores(label))
	}
	return labels
}

// metricNames returns the elements of a metric's name from the path of a leaf. It leaves out the
// containers around lists, the containers named state, and the top container if more names follow.
func metricNames(l *store.List, leaf string) []string {
	names := namesOf(l, leaf)
	if len(names) > 2 {
		names = names[1:]
	}
	return names
}

// namesOf returns the names in the path of a leaf. It leaves out containers that are the plural of
// the list in them, and containers named state. yang.Schema.CheckNames refuses modules in which
// the remaining names collide.
func namesOf(l *store.List, leaf string) (names []string) {
	for i, e := range append(l.Elems[:len(l.Elems):len(l.Elems)], strings.Split(leaf, "/")...) {
		aroundList := i > 0 && i+1 < len(l.Elems) && len(l.KeysAt(i+1)) > 0 && yang.Plural(e, l.Elems[i+1])
		if e != "state" && !aroundList {
			names = append(names, e)
		}
	}
	return names
}

// send sends the metrics of a value.
func (x *leafMetric) send(out chan<- prometheus.Metric, v store.Value, labels []string) {
	if x.states != nil {
		for _, s := range x.states {
			if current := s == v.Text(); current || !x.one {
				out <- prometheus.MustNewConstMetric(x.desc, x.kind, number(store.Bool(current)),
					append(labels[:len(labels):len(labels)], s)...)
			}
		}
		return
	}
	out <- prometheus.MustNewConstMetric(x.desc, x.kind, number(v)*x.scale, labels...)
}

// resultMetrics is a prometheus.Collector for some lists of results. It follows the rules of
// leafMetrics with these differences: names begin with netsketch_ and the top container, which
// names the plugin. Labels have the names of keys, and of the leaves that the keys determine. An
// enumeration has one time series, with its current value as a label. Any text, such as a flow, can
// be a label, so the number of rows is bounded.
type resultMetrics struct {
	store  *store.Store
	schema func() *yang.Schema
	lists  []string // paths as in a gNMI request
	rows   int      // the largest number of rows of a list
}

var (
	resultRows = prometheus.NewDesc("netsketch_results_rows",
		"Rows of a list of results in this answer.", []string{"list"}, nil)
	resultsOmitted = prometheus.NewDesc("netsketch_results_rows_omitted",
		"Rows of a list of results beyond http.result-rows.", []string{"list"}, nil)
)

// Describe sends nothing, because the metrics depend on the published leaves.
func (m *resultMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics of the newest epoch.
func (m *resultMetrics) Collect(out chan<- prometheus.Metric) {
	view, schema := m.store.View(), m.schema()
	for _, list := range m.lists {
		metrics := map[leafKey]*leafMetric{} // not cached, because a plugin's schema can change
		derived := map[*store.List][]int{}   // leaves that are labels
		sent, omitted := 0, 0
		for row := range view.Rows(store.ParseQuery("", list)) {
			if sent == m.rows {
				omitted++
				continue
			}
			sent++
			of, known := derived[row.List]
			if !known {
				of = derivedLeaves(row.List)
				derived[row.List] = of
			}
			labels := make([]string, 0, len(row.Entry.Keys)+len(of)+1)
			for _, k := range row.Entry.Keys {
				labels = append(labels, strings.ToValidUTF8(k.String(), "?"))
			}
			for _, i := range of {
				text := ""
				if v := row.Values[i]; !v.Absent() {
					text = strings.ToValidUTF8(v.String(), "?")
				}
				labels = append(labels, text)
			}
			for i, v := range row.Values {
				if v.Absent() || slices.Contains(of, i) {
					continue
				}
				name := row.List.Leaves[i].Name
				key := leafKey{row.List.Path, name}
				x, known := metrics[key]
				if !known {
					if x = newLeafMetric(schema, row.List, name, namesOf(row.List, name), resultLabels(row.List)); x != nil {
						x.one = true
					}
					metrics[key] = x
				}
				if x != nil {
					x.send(out, v, labels)
				}
			}
		}
		out <- prometheus.MustNewConstMetric(resultRows, prometheus.GaugeValue, float64(sent), list)
		out <- prometheus.MustNewConstMetric(resultsOmitted, prometheus.GaugeValue, float64(omitted), list)
	}
}

// reservedLabels are labels that enumerations, histograms and summaries use.
var reservedLabels = []string{"state", "le", "quantile"}

// resultLabels returns the labels for the keys of a list of results, and for the leaves that the
// keys determine. A label is the name of the key or leaf, preceded by the list's name if two labels
// would be equal, or if Prometheus reserves the name.
func resultLabels(l *store.List) (labels []string) {
	add := func(name string, elem int) {
		label := yang.Underscores(name)
		before := cmp.Or(strings.TrimLeft(yang.Underscores(l.Elems[elem]), "_"), "list")
		for slices.Contains(labels, label) || slices.Contains(reservedLabels, label) || strings.HasPrefix(label, "__") {
			label = before + "_" + label
		}
		labels = append(labels, label)
	}
	for _, k := range l.Keys {
		add(k.Name, k.Elem)
	}
	for _, i := range derivedLeaves(l) {
		add(strings.TrimPrefix(l.Leaves[i].Name, "state/"), len(l.Elems)-1)
	}
	return labels
}

// derivedLeaves returns the indexes of the leaves whose values follow from the keys of the row,
// such as the addresses in the key of a flow.
func derivedLeaves(l *store.List) (out []int) {
	at := func(leaf string) int {
		return slices.IndexFunc(l.Leaves, func(x store.Leaf) bool { return x.Name == "state/"+leaf && x.KeyOf < 0 })
	}
	for _, leaf := range yang.Derived(func(leaf string) bool { return at(leaf) >= 0 }) {
		out = append(out, at(leaf))
	}
	return out
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
