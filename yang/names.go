// SPDX-License-Identifier: Apache-2.0

package yang

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/yang/table"
)

// Plural reports whether a container's name is the plural of the name of the list in it, as in
// heavy-hitters/heavy-hitter. Flat names leave this container out.
func Plural(container, list string) bool {
	stem, y := strings.CutSuffix(list, "y")
	return container == list+"s" || container == list+"es" || y && container == stem+"ies"
}

// FlatName returns the name under which a database keeps the rows of a list: the path without
// module names and without the container around the list if its name is the plural of the list's,
// unless that is the top container, which names the plugin. It omits a container named state, too,
// so that a table of it has the same rows as a table of the container around it.
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

// metricTypes are words that Prometheus keeps for types of metrics, with what names have instead.
var metricTypes = map[string]string{"counter": "counters", "gauge": "gauges", "histogram": "histograms",
	"summary": "summaries", "untyped": "untyped_values"}

// MetricName returns the name of a metric for elements of a path, with underscores for dashes. It
// has no word that names a type of metrics, nor the end of a name that a histogram has.
func MetricName(elements ...string) string {
	words := strings.Split(strings.ReplaceAll(strings.Join(elements, "_"), "-", "_"), "_")
	for i, w := range words {
		if other, ok := metricTypes[w]; ok {
			words[i] = other
		}
	}
	switch words[len(words)-1] {
	case "count", "sum", "bucket":
		words = append(words, "value")
	}
	return strings.Join(words, "_")
}

// CheckNames returns an error for each pair of lists or leaves that a database or a monitoring
// system cannot tell apart, naming both paths: databases keep lists by their FlatName, and metrics
// have their MetricName.
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
	}
	metrics := map[string]string{}
	var visit func(n *Node, names []string)
	visit = func(n *Node, names []string) {
		around := len(names) > 0 && len(n.children) == 1 && n.children[0].Kind == ListNode &&
			Plural(n.Name, n.children[0].Name)
		if n.Kind != RootNode && n.Name != "state" && !around {
			names = append(names[:len(names):len(names)], n.Name)
		}
		key := n.Parent != nil && slices.Contains(n.Parent.keys, n.Name)
		text := n.Leaf != nil && n.Leaf.Kind() == table.String && n.Leaf.Type.Base != Enumeration
		if n.Leaf != nil && !n.Config && !key && !text { // it is a metric
			name := MetricName(names...)
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
