// SPDX-License-Identifier: Apache-2.0

package yang_test

import (
	"strings"
	"testing"

	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/yang"
)

func TestFlatName(t *testing.T) {
	for _, tc := range []struct {
		list  string
		keyed bool
		want  string
	}{
		{"/acme:acme/ports/port", true, "acme/port"}, {"/acme:acme/ingress/port", true, "acme/ingress/port"},
		{"/acme:acme/queries/query", true, "acme/query"}, {"/acme:acme/switches/switch", true, "acme/switch"},
		{"/acme:acme/port", true, "acme/port"}, {"/acme:ports/port", true, "ports/port"},
		{"/acme:acme/state", false, "acme"}, {"/acme:acme/ports", false, "acme/ports"},
	} {
		if got := yang.FlatName(tc.list, tc.keyed); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.list, got, tc.want)
		}
	}
}

// TestCheckNames: two lists or leaves that have the same name in a database or as a metric are
// refused, with both paths.
func TestCheckNames(t *testing.T) {
	list := func(name, leaves string) string {
		return "list " + name + ` { key "name"; config false; leaf name { type string; } ` + leaves + "}"
	}
	n := func(leaf string) string { return "leaf " + leaf + " { type uint64; } " }
	// The top container's name is a part of the names of metrics.
	own, err := yang.Load(append(yangtest.Modules(), yang.Module{Name: "results", Text: `module results {
		yang-version 1.1; namespace "urn:r"; prefix r; container results { config false; ` + n("rows") + "} }"})...)
	if err != nil {
		t.Fatal(err)
	}
	if err := own.CheckNames(); err == nil || !strings.Contains(err.Error(), "/results:results/rows") ||
		!strings.Contains(err.Error(), "netsketch_results_rows") {
		t.Errorf("the collector's own metric: %v", err)
	}
	for name, tc := range map[string]struct {
		body string
		want []string // expected errors; empty if the module is accepted
	}{
		"plural and direct": {"container ports { " + list("port", n("a")) + "} " + list("port", n("b")),
			[]string{"/acme:acme/ports/port", "/acme:acme/port", "database"}},
		"dash and underscore": {list("port", n("rx-bytes")+n("rx_bytes")),
			[]string{"/acme:acme/port/rx-bytes", "/acme:acme/port/rx_bytes", "metric"}},
		"camel case": {list("port", n("rx-bytes")+n("rxBytes")),
			[]string{"/acme:acme/port/rx-bytes", "/acme:acme/port/rxBytes", "metric"}},
		"dash and dot": {list("port", n("rx-bytes")+n("rx.bytes")),
			[]string{"/acme:acme/port/rx-bytes", "/acme:acme/port/rx.bytes", "metric"}},
		"dash and slash": {"container a { config false; " + n("b-c") + "container b { " + n("c") + "} }",
			[]string{"/acme:acme/a/b-c", "/acme:acme/a/b/c"}},
		"unit and name": {list("port", "leaf size { type uint64; units bytes; } "+n("size-bytes")),
			[]string{"/acme:acme/port/size", "/acme:acme/port/size-bytes", "metric"}},
		"counter and name": {list("port", "leaf rx { type yang:counter64; } leaf rx-total { type yang:counter64; }"),
			[]string{"/acme:acme/port/rx", "/acme:acme/port/rx-total", "metric"}},
		"counter and gauge": {list("port", "leaf rx { type yang:counter64; } "+n("rx-total")), nil},
		"a list in two containers": {"container ingress { " + list("port", n("rx")) + "} container egress { " +
			list("port", n("rx")) + "}", nil},
		"a text in two containers": {list("port", "leaf a { type string; } container state { leaf a { type string; } }"),
			[]string{"/acme:acme/port/a", "/acme:acme/port/state/a", "database"}},
		"a text with the name of a key": {list("port", "container state { leaf name { type string; } }"),
			nil}, // the values must be equal
		"two keys": {`list port { key "time time-"; config false; leaf time { type string; } leaf time- { type string; } }`,
			[]string{"/acme:acme/port/time", "/acme:acme/port/time-", "database"}},
		"a metric of the collector": {"container results { config false; " + n("rows") + "}", nil},
		"a name that databases change": {list("port", "leaf time { type string; } leaf time- { type string; }"),
			[]string{"/acme:acme/port/time", "/acme:acme/port/time-", "database"}},
		"a key that databases change": {list("port", "leaf name- { type string; }"),
			[]string{"/acme:acme/port/name", "/acme:acme/port/name-", "database"}},
		"texts have no metrics": {list("port", "leaf a-b { type string; } leaf a_b { type string; }"), nil},
	} {
		schema, err := yang.Load(append(yangtest.Modules(), yang.Module{Name: "acme", Text: `module acme {
			yang-version 1.1; namespace "urn:acme"; prefix a;
			import ietf-yang-types { prefix yang; } container acme { ` + tc.body + "} }"})...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		err = schema.CheckNames()
		if len(tc.want) == 0 && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, text := range tc.want {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want %s", name, err, text)
			}
		}
	}
}
