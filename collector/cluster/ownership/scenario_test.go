// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Scenarios are files of testdata. Each line is an event at one device of member c1, and then its
// state and the actions. A line that begins with # is a comment. The events:
//
//	view owner=c1 before=c2 present=c1,c2 [unleased] [measured]
//	session primary|backup|deposed        as seen with the newest view
//	offer from=c2 [primary] [early]
//	accepted by=c2
//	epoch [busy] [times=5]
//	reopened
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(text))
			if got == string(text) {
				return
			}
			if !*update {
				t.Fatalf("the scenario ends otherwise:\n%s", got)
			}
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// words are the words of an event: values by name, with the value "" for a word without a value.
type words map[string]string

func (w words) has(name string) bool { _, ok := w[name]; return ok }

// replay runs the events of a scenario. It returns the scenario with the resulting state and
// actions after each event.
func replay(t *testing.T, scenario string) string {
	var b strings.Builder
	d, v := Device{}, View{Self: "c1"}
	for line := range strings.Lines(scenario) {
		line = strings.TrimSuffix(line, "\n")
		text, _, _ := strings.Cut(line, " => ")
		if text = strings.TrimSpace(text); text == "" || text[0] == '#' {
			b.WriteString(line + "\n")
			continue
		}
		fields := strings.Fields(text)
		args := words{}
		for _, f := range fields[1:] {
			name, value, _ := strings.Cut(f, "=")
			args[name] = value
		}
		var do Action
		switch fields[0] {
		case "view":
			if v.Leased = !args.has("unleased"); v.Leased {
				v = View{Self: "c1", Leased: true, Owner: args["owner"], Before: args["before"],
					Present: strings.Split(args["present"], ",")}
			}
			d, do = d.View(v, args.has("measured"))
		case "session":
			d, do = d.Session(Session{Primary: args.has("primary"), Deposed: args.has("deposed")}, v)
		case "offer":
			d, do = d.Offered(args["from"], Session{Primary: args.has("primary")}, !args.has("early"))
		case "accepted":
			d, do = d.Accepted(args["by"])
		case "epoch":
			times, _ := strconv.Atoi(args["times"])
			for range max(times, 1) {
				d, do = d.Epoch(!args.has("busy"))
			}
		case "reopened":
			d, do = d.Reopened()
		default:
			t.Fatalf("%q is no event", text)
		}
		about := ""
		if d.Holder != "" {
			about += " holder " + d.Holder
		}
		if d.Next != "" {
			about += " next " + d.Next
		}
		result := d.State.String() + about + ": " + strings.Join(do.names(), ", ")
		fmt.Fprintf(&b, "%-64s => %s\n", text, strings.TrimSuffix(result, ": "))
	}
	return b.String()
}
