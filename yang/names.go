// SPDX-License-Identifier: Apache-2.0

package yang

import (
	"errors"
	"fmt"
	"math"
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

// unit is a unit that metrics have, and how many of it are one of a leaf's unit.
type unit struct {
	name  string
	scale float64
}

// baseUnits maps units of leaves to the units that Prometheus recommends.
var baseUnits = func() map[string]unit {
	all := map[string]unit{}
	add := func(name string, scale float64, units ...string) {
		for _, u := range units {
			all[u] = unit{name, scale}
		}
	}
	add("seconds", 1, "seconds", "second", "sec", "s")
	add("seconds", 60, "minutes", "minute", "min")
	add("seconds", 3600, "hours", "hour", "h")
	add("seconds", 86400, "days", "day", "d")
	add("seconds", 604800, "weeks", "week")
	add("seconds", 1e-2, "centiseconds")
	add("seconds", 1e-3, "milliseconds", "millisecond", "msec", "ms")
	add("seconds", 1e-6, "microseconds", "microsecond", "usec", "us")
	add("seconds", 1e-9, "nanoseconds", "nanosecond", "nsec", "ns")
	add("bytes", 1, "bytes", "byte", "octets", "octet")
	for i, prefix := range []string{"k", "m", "g", "t"} {
		long := []string{"kilo", "mega", "giga", "tera"}[i]
		add("bytes", math.Pow10(3*i+3), long+"bytes", long+"byte", prefix+"b")
		add("bytes", float64(uint64(1)<<(10*i+10)), long[:2]+"bibytes", long[:2]+"bibyte", prefix+"ib")
	}
	return all
}()

// unitOf returns the unit of a leaf in metrics; ok is false for units that metric names leave out.
func unitOf(leaf *Leaf) (u unit, ok bool) {
	switch {
	case leaf.Type.Name == "timestamp":
		return unit{"seconds", 1e-9}, true
	case leaf.Units == "B":
		return unit{"bytes", 1}, true
	}
	u, ok = baseUnits[strings.ToLower(leaf.Units)]
	return u, ok
}

// MetricScale returns the factor by which the values of a leaf are multiplied for its metric.
func MetricScale(leaf *Leaf) float64 {
	if u, ok := unitOf(leaf); ok {
		return u.scale
	}
	return 1
}

// derivedUnit matches units that Prometheus does not recommend in names.
var derivedUnit = regexp.MustCompile(`^(?:(?:pico|nano|micro|milli|centi|deci|deca|hecto|kilo|kibi|mega|mebi|` +
	`giga|gibi|tera|tebi|peta|pebi)(?:amperes|bytes|celsius|grams|joules|kelvin|meters|metres|seconds|volts)|` +
	`[a-z]*(?:minutes|hours|days|weeks|kelvins|fahrenheit|rankine|inches|yards|miles|bits|calories|pounds|ounces))$`)

// abbreviations maps abbreviated units, which Prometheus does not recommend, to other words.
var abbreviations = map[string]string{"s": "secs", "sec": "secs", "ms": "msecs", "us": "usecs", "ns": "nsecs",
	"b": "b1", "kb": "kbyte", "mb": "mbyte", "gb": "gbyte", "tb": "tbyte", "pb": "pbyte", "m": "m1", "h": "h1", "d": "d1"}

// metricWord returns a word of a leaf's path as metrics have it. The word is empty if it is the
// unit, because metric names end with the unit.
func metricWord(word string, leaf *Leaf) string {
	if other, ok := metricTypes[word]; ok {
		return other
	}
	abbreviation, short := abbreviations[word]
	derived := derivedUnit.MatchString(word)
	if !short && !derived {
		return word
	}
	own, _ := unitOf(leaf)
	if u, ok := baseUnits[word]; ok && u == own {
		return ""
	}
	switch singular, plural := strings.CutSuffix(word, "s"); {
	case short:
		return abbreviation
	case plural:
		return singular
	}
	return word + "s"
}

// MetricName returns the name of the metric of a leaf, for the elements of its path, with
// underscores for dashes and dots. The name ends with the unit, and for a counter with _total. It
// contains no metric type and no other unit, and does not end like a series of another type.
func MetricName(leaf *Leaf, elements ...string) string {
	var words []string
	for _, w := range strings.Split(Underscores(strings.Join(elements, "_")), "_") {
		if other := metricWord(w, leaf); other != "" || w == "" {
			words = append(words, other)
		}
	}
	if len(words) == 0 {
		words = []string{"value"}
	}
	switch words[len(words)-1] {
	case "count", "sum", "bucket":
		words = append(words, "value")
	case "total":
		if words = words[:len(words)-1]; leaf.Type.Name != counter64 {
			words = append(words, "total", "value")
		}
	}
	if leaf.Type.Name == "timestamp" {
		words = append(words, "timestamp")
	}
	if u, ok := unitOf(leaf); ok && (u.name != "seconds" || words[len(words)-1] != u.name) {
		words = append(words, u.name)
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

// derived are the leaves of the groupings flow-ref and port-ref of netsketch-results, each with the
// leaf that shows that a list uses the grouping.
var derived = []struct{ leaf, with string }{{"source-address", "source-address"},
	{"destination-address", "source-address"}, {"protocol", "source-address"}, {"source-port", "source-address"},
	{"destination-port", "source-address"}, {"node", "port-number"}, {"port-number", "port-number"},
	{"interface", "port-number"}, {"link", "port-number"}}

// Derived returns the leaves in the state of a row that its key determines: the fields of its flow,
// and the port of its link or location. Databases can have them as tags or labels without more time
// series. has reports whether rows have a leaf.
func Derived(has func(leaf string) bool) (leaves []string) {
	for _, d := range derived {
		if has(d.leaf) && has(d.with) {
			leaves = append(leaves, d.leaf)
		}
	}
	return leaves
}
