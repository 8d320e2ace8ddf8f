// SPDX-License-Identifier: Apache-2.0

package yang_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/yang"
)

// ours returns the schema of the modules that ship with netsketch and of the modules of its
// examples.
func ours(t *testing.T) *yang.Schema {
	t.Helper()
	modules := yangtest.Modules()
	for _, file := range []string{"../examples/plugin-hello/acme-hello.yang", "../lab/faults/acme-faulty.yang",
		"../examples/plugin-python/busiest/acme-busiest.yang", "../examples/cocosketch/acme-cocosketch.yang"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		modules = append(modules, yang.Module{Name: strings.TrimSuffix(filepath.Base(file), ".yang"),
			Text: string(text), Source: "examples"})
	}
	s, err := yang.Load(modules...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRules: the modules that ship with netsketch and its examples follow the rules for modules of
// results. Modules with leaves of OpenConfig have the units of OpenConfig.
func TestRules(t *testing.T) {
	s := ours(t)
	openconfig := []string{"netsketch-lldp", "netsketch-p4rt-ids", "netsketch-platform", "netsketch-system"}
	for _, m := range s.Models() {
		if !strings.HasPrefix(m.Name, "netsketch-") && !strings.HasPrefix(m.Name, "acme-") {
			continue
		}
		for _, text := range s.Warnings(m.Name) {
			units := slices.Contains(openconfig, m.Name) && strings.HasSuffix(text, "is a number without units")
			// The agent of a host does not know the network, and each switch has intervals of its own. The
			// plugin of the fault suite numbers its rows on purpose.
			numbered := m.Name == "acme-faulty" && strings.Contains(text, "changes in each epoch")
			host := m.Name == "netsketch-host" && (strings.Contains(text, "no leafref into /topology") ||
				strings.Contains(text, "the grouping range"))
			if !units && !numbered && !host {
				t.Error(text)
			}
		}
	}
	for _, l := range s.Lists() {
		if strings.HasPrefix(l.Path, "/netsketch-") || strings.HasPrefix(l.Path, "/acme-") {
			if err := s.CheckResults(l.Path); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestReferences: the leaves of plugins that name a switch, a host or a link are references into
// the lists of /topology, and have the same name everywhere. A location may be a node or a link:
// YANG 1 has no leafref for this, but the text is the same.
func TestReferences(t *testing.T) {
	s := ours(t)
	const topology = "/netsketch-topology:topology/"
	old := strings.Fields("device switch host sender receiver source destination entry exit after origin element")
	found := map[string]int{}
	var visit func(n *yang.Node)
	visit = func(n *yang.Node) {
		if n.Leaf != nil && n.Leaf.Type.Base == yang.String && n.Parent.Name == "state" {
			want := ""
			switch {
			case n.Name == "node" || strings.HasSuffix(n.Name, "-node"):
				want = topology + "nodes/node/state/name"
			case n.Name == "link":
				want = topology + "links/link/state/name"
			case slices.Contains(old, n.Name) && n.Path != "/netsketch-omnimon:omnimon/queries/query/state/source":
				t.Errorf("%s: a switch or host is a node", n.Path)
			}
			if want != "" {
				if n.Leaf.Target != want {
					t.Errorf("%s refers to %q, want %q", n.Path, n.Leaf.Target, want)
				}
				found[n.Name]++
			}
		}
		for _, c := range n.Children() {
			visit(c)
		}
	}
	for _, plugin := range []string{"chamelemon", "lightguardian", "omnimon", "sketchint", "univmon", "collector"} {
		n, err := s.Node("/netsketch-" + plugin + ":" + plugin)
		if err != nil {
			t.Fatal(err)
		}
		visit(n)
	}
	if found["link"] != 13 || found["node"] < 40 || found["source-node"] < 4 || found["exit-node"] != 2 {
		t.Errorf("too few leaves are compared: %v", found)
	}
}

// TestBrokenRules: each rule finds its violation, and names module and line.
func TestBrokenRules(t *testing.T) {
	const module = `module bad {
  namespace "urn:bad"; prefix "b";
  import netsketch-topology { prefix t; }
  container bad {
    %s
    description "d";
    list Row_s {
      %s
      description "d";
      leaf id { type string; description "d"; }
      container state { description "d";
        leaf n { type uint32; }
        leaf epoch { type uint64; units "epoch"; description "d"; }
        leaf share { type decimal64 { fraction-digits 2; } units "share"; description "d"; }
        leaf kind { type enumeration { enum GOOD_1; enum bad; enum worse; } description "d"; }
        leaf one { type union { type uint8; type enumeration { enum NO-DASH; } } description "d"; }
      }
      leaf other { type string; description "d"; }
      container found { description "d"; container state { description "d";
        leaf exact { type boolean; description "d"; }
        leaf quality { type string; description "d"; }
        leaf lost-packets { type uint64; units "packets"; description "d"; } } }
      container values { description "d"; container state { description "d";
        leaf switch { type string; description "d"; } container more { description "d";
          leaf deep { type string; description "d"; } }
        leaf sender { type t:node-ref; description "d"; } leaf link { type t:link-ref; description "d"; } } }
    }
    list alert { key "kind"; description "d";
      leaf kind { type leafref { path "../state/kind"; } description "d"; }
      container state { description "d"; leaf kind { type string; description "d"; } } }
    list early { key "first-epoch"; description "d";
      leaf first-epoch { type leafref { path "../state/first-epoch"; } description "d"; }
      container state { description "d"; leaf first-epoch { type uint64; units "epoch"; description "d"; } } }
  }
}`
	load := func(config, key string) *yang.Schema {
		s, err := yang.Load(yang.Module{Name: "bad", Text: fmt.Sprintf(module, config, key), Source: "plugin bad"})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const list, row = "/bad:bad/Row_s", " /bad:bad/Row_s"
	place := func(line, column int) string { return fmt.Sprintf("plugin bad: bad.yang:%d:%d:", line, column) }
	alert := func(leaf string) string {
		return place(28, 5) + " /bad:bad/alert has no leaf " + leaf + "; use the grouping alert of netsketch-results"
	}
	s := load("config false;", `key "id";`)
	if err := s.CheckResults(list); err != nil {
		t.Error(err)
	}
	want := []string{
		place(7, 5) + row + " is not in lower case with dashes",
		place(10, 7) + row + "/id is a key and no leafref to a leaf in the state of its entry",
		place(20, 9) + row + "/found/state/exact says in a word of its own how good values are; use the groupings " +
			"quality, coverage and confidence of netsketch-results",
		place(22, 9) + row + "/found/state/lost-packets is not the leaf of this name of netsketch-results; use its " +
			"grouping lost-packets",
		place(21, 9) + row + "/found/state/quality is not the leaf of this name of netsketch-results; use its grouping " +
			"quality",
		place(18, 7) + row + "/other is neither a key nor in a container state",
		place(13, 9) + row + "/state/epoch changes in each epoch, so that subscribers on change get each row " +
			"in each epoch; " +
			"the timestamp of a row is the end of its epoch, and a container summary with the grouping range of " +
			"netsketch-results has the number",
		place(15, 9) + row + "/state/kind has the value bad, which is not in upper case with underscores",
		place(12, 9) + row + "/state/n has no description",
		place(12, 9) + row + "/state/n is a number without units",
		place(16, 9) + row + "/state/one has the value NO-DASH, which is not in upper case with underscores",
		place(26, 59) + row + "/values/state/link names a link, and its row does not have the port; use the grouping " +
			"port-ref of netsketch-results",
		place(26, 9) + row + "/values/state/sender names a node; call it node, or sender-node, as in the lists of all " +
			"plugins",
		place(24, 9) + row + "/values/state/switch has the name of one of device, switch, host, node, link, and is no " +
			"leafref into /topology; use the type ns-topo:node-ref or ns-topo:link-ref of netsketch-topology",
		alert("location"), alert("active"), alert("severity"), alert("since-epoch"), alert("last-change"),
		alert("count"),
		place(33, 42) + " /bad:bad/early/state/first-epoch is a key, so that each epoch has new rows, and databases new " +
			"series; use a key that stays, such as the age",
	}
	if diff := cmp.Diff(want, s.Warnings("bad")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, tt := range []struct{ config, key, want string }{
		{"", `key "id";`, "yang: " + place(20, 9) + row + "/found/state/exact is configuration"},
		{"config false;", "", "yang: " + place(7, 5) + row + " has no key"},
	} {
		if err := load(tt.config, tt.key).CheckResults(list); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("error %v, want %s", err, tt.want)
		}
	}
	if err := s.CheckResults("/bad/rows"); err == nil {
		t.Error("a list that does not exist may be published")
	}
}

// TestConfigurationOfGrouping: the error about configuration names the plugin's module, also if the
// leaf is from a grouping of another one.
func TestConfigurationOfGrouping(t *testing.T) {
	s, err := yang.Load(append(yangtest.Modules(), yang.Module{Name: "bad", Source: "plugin bad", Text: `module bad {
  namespace "urn:bad"; prefix "b"; import netsketch-results { prefix r; }
  container bad {
    container summary { container state { uses r:range; } } } }`})...)
	if err != nil {
		t.Fatal(err)
	}
	want := "yang: plugin bad: bad.yang:4:25: /bad:bad/summary/state/"
	if err := s.CheckResults("/bad:bad/summary"); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}
