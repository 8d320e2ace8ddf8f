// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of docs/cluster.md, and what scenarios expect")

// Every state has an answer to every event.
func TestEveryPair(t *testing.T) {
	for e := range event(events) {
		for s := range State(states) {
			if !transitions[e][s].given {
				t.Errorf("%v has no answer to %q", s, e)
			}
			if e.String() == "" || s.String() == "" {
				t.Errorf("state %d or event %d has no text", s, e)
			}
		}
	}
}

// page is the page that has the table, between the lines begin and end.
const (
	page  = "../../../docs/cluster.md"
	begin = "<!-- transitions: go test ./collector/cluster/ownership -update -->\n"
	end   = "<!-- end of transitions -->\n"
)

// table returns the transitions as a table in Markdown.
func table() string {
	var b strings.Builder
	b.WriteString("| event |")
	for s := range State(states) {
		b.WriteString(" " + s.String() + " |")
	}
	b.WriteString("\n|---" + strings.Repeat("|---", states) + "|\n")
	for e := range event(events) {
		b.WriteString("| " + e.String() + " |")
		for s := range State(states) {
			tr := transitions[e][s]
			cell := strings.Join(tr.do.names(), ", ")
			if tr.to != s {
				cell = strings.TrimSuffix("**"+tr.to.String()+"**: "+cell, ": ")
			}
			b.WriteString(" " + cell + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// docs/cluster.md has the table of transitions.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	had, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no lines %q and %q", page, begin, end)
	}
	want := "\n" + table() + "\n"
	if had == want {
		return
	}
	if !*update {
		t.Fatalf("%s has another table; go test ./collector/cluster/ownership -update writes it", page)
	}
	if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// names are the names of the actions in the set.
func (a Action) names() (names []string) {
	for i, name := range [actions]string{"open", "open backup", "close", "offer", "accept", "refuse", "adopt banks",
		"count as forced"} {
		if a.Has(1 << i) {
			names = append(names, name)
		}
	}
	return names
}
