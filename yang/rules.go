// SPDX-License-Identifier: Apache-2.0

// Rules for modules of results, beyond what YANG requires.

package yang

import (
	"fmt"
	"slices"
	"strings"
)

// CheckResults returns an error if rows of the list at a path would mislead clients: leaves of a
// row are configuration, so that a Get of type STATE does not return them, or the list has no key,
// so that rows cannot be told apart. A list may have leaves of configuration in containers named
// config, which a table of results leaves empty.
func (s *Schema) CheckResults(path string) error {
	l, err := s.List(path)
	if err != nil {
		return err
	}
	if l.Node.Kind == ListNode && len(l.Keys) == 0 {
		return fmt.Errorf("yang: %s%s has no key, so its rows cannot be told apart; add a key statement",
			s.place(l.Node), l.Path)
	}
	for _, leaf := range l.Leaves {
		if leaf.Config() && !strings.Contains("/"+leaf.Name, "/config/") {
			return fmt.Errorf("yang: %s%s is configuration, so a Get of type STATE does not return it; add config false "+
				"to the container of the results", s.placeIn(leaf.Node, l.Node.Module), leaf.Node.Path)
		}
	}
	return nil
}

// Warnings returns what makes the data nodes of a module harder to use than they need be, one text
// for each node, with module and line:
//
//   - a node has no description;
//   - a name is not in lower case with dashes;
//   - a number has no unit;
//   - a value of an enumeration is not in upper case with underscores;
//   - a key is no leafref to a leaf in the entry's state or config;
//   - a leaf of an entry is neither a key nor in or below a container state or config;
//   - a leaf is named like a node or link and is no reference into the list of nodes or links;
//   - a reference to a node is not named node, or SOMETHING-node, as in the lists of all plugins;
//   - a leaf of an entry has the number of its epoch, so that each row changes in every epoch;
//   - a leaf is named like one of a grouping of netsketch-results and has another type or unit, a
//     list of alerts lacks leaves of the grouping alert, a row with a link lacks those of the
//     grouping port-ref, one with a flow those of flow-ref, values of a flow or link lack their
//     quality, a summary lacks the grouping range, or a boolean or a share says in words of its own
//     how good values are.
func (s *Schema) Warnings(module string) []string {
	var out []string
	warn := func(n *Node, text string, args ...any) {
		out = append(out, s.placeIn(n, module)+n.Path+" "+fmt.Sprintf(text, args...))
	}
	var visit func(n *Node)
	visit = func(n *Node) {
		if n.Module == module {
			if n.Description == "" {
				warn(n, "has no description")
			}
			if n.Name != strings.ToLower(n.Name) || strings.Contains(n.Name, "_") {
				warn(n, "is not in lower case with dashes")
			}
			if n.Leaf != nil {
				s.checkLeaf(n, warn)
			}
			if state := n.Child("state"); n.Name == "summary" && state != nil && !state.Config &&
				state.Child("end-time") == nil {
				warn(n, "does not say which time results cover; use the grouping range of netsketch-results in its state")
			}
		}
		for _, c := range n.children {
			visit(c)
		}
	}
	visit(s.root)
	return out
}

// topologyPath is the container of the network that results refer to.
const topologyPath = "/netsketch-topology:topology/"

// checkLeaf warns of a leaf.
func (s *Schema) checkLeaf(n *Node, warn func(n *Node, text string, args ...any)) {
	if n.Leaf.Type.numeric() && n.Leaf.Units == "" {
		warn(n, "is a number without units")
	}
	for _, value := range n.Leaf.Type.enumeration() {
		if value != strings.ToUpper(value) || strings.Contains(value, "-") {
			warn(n, "has the value %s, which is not in upper case with underscores", value)
			break
		}
	}
	if n.Parent.Kind == ListNode && slices.Contains(n.Parent.keys, n.Name) {
		if len(n.Leaf.RefersTo) == 0 || n.Leaf.Target == "" {
			warn(n, "is a key and no leafref to a leaf in the state of its entry")
		}
		return
	}
	holder := n.Parent
	for holder.Kind == ContainerNode && holder.Name != "state" && holder.Name != "config" && holder.Parent.Parent != nil {
		holder = holder.Parent
	}
	// A leaf of configuration cannot refer to /topology, which is state.
	if names := "device, switch, host, node, link"; n.Leaf.Type.Base == String && !n.Config &&
		slices.Contains(strings.Split(names, ", "), n.Name) && !strings.HasPrefix(n.Leaf.Target, topologyPath) {
		warn(n, "has the name of one of %s, and is no leafref into /topology; use the type ns-topo:node-ref or "+
			"ns-topo:link-ref of netsketch-topology", names)
	}
	if n.Leaf.Target == topologyPath+"nodes/node/state/name" && n.Name != "node" && !strings.HasSuffix(n.Name, "-node") {
		warn(n, "names a node; call it node, or %s-node, as in the lists of all plugins", n.Name)
	}
	if list := holder.Parent; holder.Name == "state" && list.Kind == ListNode {
		key := slices.Contains(list.keys, n.Name)
		switch {
		case key && (n.Name == "epoch" || strings.HasSuffix(n.Name, "-epoch")):
			warn(n, "is a key, so that each epoch has new rows, and databases new series; use a key that stays, such as the age")
		case !key && n.Name == "epoch":
			warn(n, "changes in each epoch, so that subscribers on change get each row in each epoch; the timestamp of a row "+
				"is the end of its epoch, and a container summary with the grouping range of netsketch-results has the number")
		}
	}
	if holder.Name == "state" && !n.Config {
		checkGroupings(n, warn)
	}
	switch {
	case holder.Name != "config" && holder.Name != "state":
		warn(n, "is neither a key nor in a container state")
	case n.Config != (holder.Name == "config"):
		warn(n, "has the config statement %v in a container %s", n.Config, holder.Name)
	}
}

// grouped are the leaves of groupings of netsketch-results, with the name of the type, or its base
// for a type without a name of its own, and the units.
var grouped = map[string]struct{ grouping, of, units string }{
	"quality":           {"quality", "quality", ""},
	"coverage":          {"coverage", "share", "share"},
	"confidence":        {"confidence", "share", "share"},
	"packets":           {"packets", "uint64", "packets"},
	"packets-low":       {"packets-bounds", "uint64", "packets"},
	"packets-high":      {"packets-bounds", "uint64", "packets"},
	"lost-packets":      {"lost-packets", "int64", "packets"},
	"lost-packets-low":  {"lost-packets-bounds", "int64", "packets"},
	"lost-packets-high": {"lost-packets-bounds", "int64", "packets"},
	"latency-avg":       {"latency", "nanoseconds", "nanoseconds"},
	"latency-min":       {"latency", "nanoseconds", "nanoseconds"},
	"latency-max":       {"latency", "nanoseconds", "nanoseconds"},
	"latency-avg-low":   {"latency-bounds", "nanoseconds", "nanoseconds"},
	"latency-avg-high":  {"latency-bounds", "nanoseconds", "nanoseconds"},
	"port-number":       {"port-ref", "uint32", "port"},
	"interface":         {"port-ref", "string", ""},
	"flow":              {"flow-ref", "flow-key", ""},
	"severity":          {"alert", "enumeration", ""},
}

// alertLeaves are leaves of the grouping alert that clients need.
var alertLeaves = []string{"location", "kind", "active", "severity", "since-epoch", "last-change", "count"}

// checkGroupings warns of a leaf of results whose form differs from the leaf of the same name in
// netsketch-results.
func checkGroupings(n *Node, warn func(n *Node, text string, args ...any)) {
	t := n.Leaf.Type
	if g, ok := grouped[n.Name]; ok && (t.Name != g.of || n.Leaf.Units != g.units) {
		warn(n, "is not the leaf of this name of netsketch-results; use its grouping %s", g.grouping)
	}
	if (n.Name == "link" && n.Leaf.Target == topologyPath+"links/link/state/name" || t.Name == "location") &&
		n.Parent.Child("port-number") == nil {
		warn(n, "names a link, and its row does not have the port; use the grouping port-ref of netsketch-results")
	}
	if n.Name == "flow" && t.Name == "flow-key" && n.Parent.Child("source-address") == nil {
		warn(n, "is a flow, and its row does not have the fields of the flow; use the grouping flow-ref of netsketch-results")
	}
	values := []string{"packets", "packets-low", "lost-packets", "lost-packets-low", "latency-avg", "latency-avg-low"}
	if ofTraffic := n.Parent.Child("flow") != nil || n.Parent.Child("link") != nil; ofTraffic &&
		slices.Contains(values, n.Name) && n.Parent.Child("quality") == nil && n.Parent.Child(n.Name+"-quality") == nil {
		warn(n, "has no quality; use the grouping quality of netsketch-results")
	}
	if strings.HasSuffix(n.Name, "-quality") && t.Name != "quality" {
		warn(n, "has another type than the quality of netsketch-results")
	}
	words := []string{"exact", "inexact", "determined", "certain", "valid", "decoded", "settled",
		"provisional", "received"}
	last := n.Name[strings.LastIndexByte(n.Name, '-')+1:]
	if (t.Base == Boolean || t.Name == "share") && slices.Contains(words, last) {
		warn(n, "says in a word of its own how good values are; use the groupings quality, coverage and confidence of "+
			"netsketch-results")
	}
	if list := n.Parent.Parent; n.Name == "kind" && list.Kind == ListNode && list.Name == "alert" {
		for _, name := range alertLeaves {
			if n.Parent.Child(name) == nil {
				warn(list, "has no leaf %s; use the grouping alert of netsketch-results", name)
			}
		}
	}
}

// numeric reports whether values are numbers that need a unit.
func (t *Type) numeric() bool {
	switch t.Base {
	case Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64, Decimal64:
		return true
	}
	return false
}

// enumeration returns the values of an enumeration, or of the enumerations in a union.
func (t *Type) enumeration() (values []string) {
	if t.Base == Enumeration {
		return t.Values
	}
	for _, m := range t.Members {
		values = append(values, m.enumeration()...)
	}
	return values
}

// placeIn returns the place of a node, or of the closest node above it that is in the text of a
// module: a node can come from a grouping of another module.
func (s *Schema) placeIn(n *Node, module string) string {
	for at := n; at != nil; at = at.Parent {
		if p := s.place(at); strings.HasPrefix(p, module+".yang:") || strings.Contains(p, " "+module+".yang:") {
			return p
		}
	}
	return s.place(n)
}

// place returns "module:line: " of a node of a module that was passed with its source, "" for other
// nodes.
func (s *Schema) place(n *Node) string {
	if p := s.places[n]; p != "" {
		return p + ": "
	}
	return ""
}
