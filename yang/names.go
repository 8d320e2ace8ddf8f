// SPDX-License-Identifier: Apache-2.0

package yang

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/yang/table"
)

// Plural reports whether a container's name is the plural of the name of the list in it, as in
// heavy-hitters/heavy-hitter. Flat names leave out such containers.
func Plural(container, list string) bool {
	stem, y := strings.CutSuffix(list, "y")
	return container == list+"s" || container == list+"es" || y && container == stem+"ies"
}

// FlatName returns the name under which a database stores the rows of a list: the path without
// module names, without containers named state, and without the container around the list if its
// name is the plural of the list's name. The top container, which names the plugin, always stays.
func FlatName(list string, keyed bool) string {
	parts := strings.Split(strings.TrimPrefix(list, "/"), "/")
	for i, p := range parts {
		if _, local, ok := strings.Cut(p, ":"); ok {
			parts[i] = local
		}
	}
	switch n := len(parts); {
	case n > 2 && keyed && Plural(parts[n-2], parts[n-1]):
		parts = append(parts[:n-2:n-2], parts[n-1])
	case n > 1 && !keyed && parts[n-1] == "state":
		parts = parts[:n-1]
	}
	return strings.Join(parts, "/")
}

// metricTypes maps words that Prometheus reserves for types of metrics to the words that metric
// names use instead.
var metricTypes = map[string]string{"counter": "counters", "gauge": "gauges", "histogram": "histograms",
	"summary": "summaries", "untyped": "untyped_values"}

// Underscores returns a YANG name as a metric's name or label: with underscores for dashes and
// dots, and rx_bytes for rxBytes.
func Underscores(name string) string {
	return strings.ToLower(notInMetrics.Replace(camelCase.ReplaceAllString(name, "${1}_${2}")))
}

var (
	notInMetrics = strings.NewReplacer("-", "_", ".", "_")
	camelCase    = regexp.MustCompile(`([a-z0-9])([A-Z])`)
)

// MetricName returns the name of the metric of a leaf, for the elements of its path, with
// underscores for dashes and dots. The name ends with the unit, and for a counter with _total. It
// contains no metric type, and does not end like a series of another type.
func MetricName(leaf *Leaf, elements ...string) string {
	words := strings.Split(Underscores(strings.Join(elements, "_")), "_")
	for i, w := range words {
		if other, ok := metricTypes[w]; ok {
			words[i] = other
		}
	}
	switch words[len(words)-1] {
	case "count", "sum", "bucket":
		words = append(words, "value")
	case "total":
		if words = words[:len(words)-1]; leaf.Type.Name != counter64 {
			words = append(words, "total", "value")
		}
	}
	switch {
	case leaf.Type.Name == "timestamp":
		words = append(words, "timestamp", "seconds")
	case leaf.Units == "nanoseconds":
		words = append(words, "seconds")
	case leaf.Units == "bytes":
		words = append(words, "bytes")
	}
	if leaf.Type.Name == counter64 {
		words = append(words, "total")
	}
	return strings.Join(words, "_")
}

// counter64 is the type of counters.
const counter64 = "counter64"

// ownMetrics are metrics of /metrics/results that no leaf has.
var ownMetrics = []string{"results_rows", "results_rows_omitted"}

// fieldName returns the name of a leaf's field in a database without the dashes at its end, which
// databases add to names that they reserve.
func fieldName(leaf string) string { return strings.TrimRight(strings.TrimPrefix(leaf, "state/"), "-") }

// CheckNames returns an error for each pair of lists that have the same FlatName, by which
// databases store them, for each pair of leaves of a list that have the same name as a field, and
// for each pair of leaves that have the same MetricName. The error names both paths. Only the leaf
// that a key refers to may have the key's name.
func (s *Schema) CheckNames() error {
	var errs []error
	flat := map[string]string{}
	for _, l := range s.Lists() {
		path := strings.TrimSuffix(l.Path, "/state")
		name := FlatName(l.Path, len(l.Keys) > 0)
		if other, taken := flat[name]; taken && other != path {
			errs = append(errs, fmt.Errorf("yang: %s and %s have the same name in a database, %q: rename one", other, path,
				name))
		}
		flat[name] = path
		fields := map[string]string{}
		var copies []string
		for _, k := range l.Keys {
			copies = append(copies, k.RefersTo...)
		}
		for _, leaf := range slices.Concat(l.Keys, l.Leaves) {
			name := fieldName(leaf.Name)
			if other, taken := fields[name]; taken && !slices.Contains(copies, leaf.Name) {
				errs = append(errs, fmt.Errorf("yang: %s/%s and %s/%s have the same name in a database, %q: rename one", path,
					other, path, leaf.Name, name))
			}
			fields[name] = leaf.Name
		}
	}
	metrics := map[string]string{}
	for _, name := range ownMetrics {
		metrics[name] = "the metric netsketch_" + name
	}
	var visit func(n *Node, names []string)
	visit = func(n *Node, names []string) {
		around := len(names) > 0 && len(n.children) == 1 && n.children[0].Kind == ListNode &&
			Plural(n.Name, n.children[0].Name)
		if n.Kind != RootNode && n.Name != "state" && !around {
			names = append(names[:len(names):len(names)], n.Name)
		}
		key := n.Parent != nil && slices.Contains(n.Parent.keys, n.Name)
		text := n.Leaf != nil && n.Leaf.Kind() == table.String && n.Leaf.Type.Base != Enumeration
		if n.Leaf != nil && !n.Config && !key && !text { // the leaf becomes a metric
			name := MetricName(n.Leaf, names...)
			if other, taken := metrics[name]; taken {
				errs = append(errs, fmt.Errorf("yang: %s and %s have the same name as a metric, %q: rename one", other, n.Path,
					name))
			}
			metrics[name] = n.Path
		}
		for _, c := range n.children {
			visit(c, names)
		}
	}
	visit(s.root, nil)
	return errors.Join(errs...)
}
