// SPDX-License-Identifier: Apache-2.0

package yang_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/yang"
)

// mutations are changes of OmniMon's module, each of which breaks one rule.
var mutations = []struct {
	rule, old, new string
	want           string // a part of the message
	refused        bool   // whether the collector refuses the module; otherwise it warns
}{
	{"results are state", "      config false;\n", "", "is configuration, so a Get of type STATE does", true},
	{"rows have keys", `          key "flow node";`, "", "has no key, so its rows cannot be told apart", true},
	{"numbers have units", `      units "position";`, "", "is a number without units", false},
	{"enumerations are in upper case", "enum RUNNING {", "enum running {", "the value running, which is not in", false},
	{"enumerations have no dashes", "enum LINK {", "enum A-LINK {", "the value A-LINK, which is not in", false},
	{"nodes are leafrefs", "leaf source-node {\n      type ns-topo:node-ref;", "leaf host {\n      type string;",
		"is no leafref into /topology", false},
	{"references to nodes are named so", "leaf source-node {", "leaf source {", "call it node, or source-node", false},
	{"links are leafrefs", "    uses ns-results:port-ref;\n\n    leaf flow {",
		"    leaf link { type string; }\n    leaf flow {",
		"is no leafref into /topology", false},
	{"keys are leafrefs", "            leaf flow {\n              type leafref {\n" +
		"                path \"../state/flow\";\n              }", "            leaf flow {\n              type string;",
		"is a key and no leafref", false},
	{"rows have no epoch", "    leaf position {", "    leaf epoch { type uint64; units \"epoch\"; description \"d\"; }\n" +
		"    leaf position {", "changes in each epoch", false},
	{"leaves are in state", "          container state {", "          leaf beside { type string; description \"d\"; }\n" +
		"          container state {", "is neither a key nor in a container state", false},
	{"nodes have descriptions", "      description\n        \"Position of the switch on the path, from 1.\";\n", "",
		"has no description", false},
	{"names are in lower case", "leaf position {", "leaf Position {", "is not in lower case with dashes", false},
	{"flow-ref is used", "    uses ns-results:flow-ref;\n", "", "use the grouping flow-ref", false},
	{"port-ref is used", "    uses ns-results:port-ref;\n\n    leaf flow {",
		"    leaf link { type ns-topo:link-ref; description \"d\"; }\n    leaf flow {", "use the grouping port-ref", false},
	{"quality is used", "    uses ns-results:packets-bounds;\n    uses ns-results:quality;",
		"    uses ns-results:packets-bounds;",
		"has no quality", false},
	{"quality has no other words", "    leaf position {", "    leaf exact { type boolean; description \"d\"; }\n" +
		"    leaf position {", "use the groupings quality, coverage and confidence", false},
	{"lost packets are signed", "    uses ns-results:lost-packets;",
		"    leaf lost-packets { type uint64; units \"packets\"; description \"d\"; }",
		"use its grouping lost-packets", false},
	{"packets have a grouping", "    uses ns-results:packets;", "    leaf packets { type uint32; units \"packets\"; " +
		"description \"d\"; }", "use its grouping packets", false},
	{"alert is used", "    uses ns-results:alert;", "    leaf location { type ns-topo:location; description \"d\"; }\n" +
		"    leaf kind { type string; description \"d\"; }", "use the grouping alert", false},
	{"range is used", "    uses ns-results:range;", "    leaf status { type string; description \"d\"; }",
		"use the grouping range", false},
}

// TestMutatedModule: the module of OmniMon follows all rules. Each mutation of it breaks one, and
// the message names the module and the line.
func TestMutatedModule(t *testing.T) {
	const name, file = "netsketch-omnimon", "../plugins/omnimon/plugin/netsketch-omnimon.yang"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	others := slices.DeleteFunc(yangtest.Modules(), func(m yang.Module) bool { return m.Name == name })
	check := func(text string) (refused, warned []string) {
		s, err := yang.Load(append(slices.Clone(others), yang.Module{Name: name, Text: text, Source: "plugin omnimon"})...)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range s.Lists() {
			if strings.HasPrefix(l.Path, "/"+name) {
				if err := s.CheckResults(l.Path); err != nil {
					refused = append(refused, err.Error())
				}
			}
		}
		return refused, s.Warnings(name)
	}
	if refused, warned := check(string(text)); len(refused)+len(warned) > 0 {
		t.Fatal(refused, warned)
	}
	for _, m := range mutations {
		t.Run(m.rule, func(t *testing.T) {
			if !strings.Contains(string(text), m.old) {
				t.Fatalf("the module has no %q", m.old)
			}
			found, warned := check(strings.Replace(string(text), m.old, m.new, 1))
			if !m.refused {
				found, warned = warned, found
			}
			at := slices.IndexFunc(found, func(text string) bool { return strings.Contains(text, m.want) })
			if at < 0 {
				t.Fatalf("found %q and %q", found, warned)
			}
			if !strings.Contains(found[at], "plugin omnimon: netsketch-omnimon.yang:") {
				t.Errorf("%q does not name the module and the line", found[at])
			}
		})
	}
}
