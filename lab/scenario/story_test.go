// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/lab/scenario"
)

// A burst in the second of four epochs. A run until Ctrl-C has it in the second of every three.
const bursts = `
name: bursts
summary: a burst
program: univmon
epochs: 4
topology: {kind: leaf-spine, leaves: 2, spines: 1, hosts-per-leaf: 1}
traffic:
  - {name: burst, rate: 500, flows: 10, from: 1s, until: 2s}
faults:
  - {link: leaf1-spine1, loss: 0.5, from: 0s, until: 1s}
algorithms:
  - plugin: univmon
story:
  - {of: burst, text: hosts send, look: /univmon/heavy-hitters/heavy-hitter}
  - {of: leaf1-spine1, text: a link loses packets, look: /univmon/node-summaries/node-summary}
loop:
  repeat: 3s
  times:
    leaf1-spine1: {from: 2s, until: 2500ms}
`

// A scenario that is played on begins anew, and each epoch's screen says what happens in it, where
// that is seen, and what comes next.
func TestPlayOn(t *testing.T) {
	const send, now = "next, at hosts send", "now: hosts send; next, at a link loses packets"
	const lossy = "now: a link loses packets; " + send
	for _, tt := range []struct {
		on     bool
		epochs int
		bursts []int // epochs with packets
		story  []string
	}{
		{false, 4, []int{1}, []string{lossy, "now: hosts send", "", ""}},
		{true, 7, []int{1, 4}, []string{send, now, lossy, send, now, lossy, send}},
	} {
		s, err := scenario.Parse("bursts.yaml", []byte(bursts))
		if err != nil {
			t.Fatal(err)
		}
		if tt.on {
			s.PlayOn()
			if s.Epochs != 0 {
				t.Errorf("a scenario that is played on has %d epochs", s.Epochs)
			}
		}
		s.Epochs = tt.epochs
		var screen bytes.Buffer
		view := scenario.ViewWriter{W: &screen}
		var story []string
		var sent []uint64
		playWith(t, s, scenario.Options{Virtual: true, OnEpoch: func(run *scenario.Run) error {
			sent = append(sent, run.Network().Stats().Sent)
			screen.Reset()
			err := view.Epoch(run)
			story = append(story, storyOf(screen.String()))
			if strings.Contains(screen.String(), "now: hosts") &&
				!strings.Contains(screen.String(), "query --address "+run.Address()+" /univmon/heavy-hitters/heavy-hitter\n") {
				t.Errorf("the screen does not say how to see the burst:\n%s", screen.String())
			}
			return err
		}})
		var with []int
		for i, before := 0, uint64(0); i < len(sent); i++ {
			if sent[i]-before > 100 { // the first packets of an epoch are played with its boundary
				with = append(with, i)
			}
			before = sent[i]
		}
		if !slices.Equal(with, tt.bursts) {
			t.Errorf("on %t: packets %d, so epochs %d have bursts, want %d", tt.on, sent, with, tt.bursts)
		}
		if !slices.Equal(story, tt.story) {
			t.Errorf("on %t: the screens have %q, want %q", tt.on, story, tt.story)
		}
	}
}

// storyOf returns what a screen says about the story, without times.
func storyOf(screen string) string {
	var out []string
	for line := range strings.Lines(screen) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), ", until ")
		if strings.HasPrefix(line, "now: ") {
			out = append(out, line)
		}
		if rest, ok := strings.CutPrefix(line, "next, at "); ok {
			out = append(out, "next, at "+rest[len("15:04:05: "):])
		}
	}
	return strings.Join(out, "; ")
}

// A story names components, links and lists that exist. Its faults end before the scenario repeats.
func TestStoryIsChecked(t *testing.T) {
	for change, want := range map[string]string{
		"of: burst, text|of: bust, text":         `no component and no link of a fault is called "bust"`,
		"look: /univmon/node|look: univmon/node": "expected the gNMI path of a list",
		"repeat: 3s|repeat: 3500ms":              "expected a multiple of the epoch",
		"until: 2500ms|until: 3s":                "both before repeat",
		"leaf1-spine1: {|leaf1-spine9: {":        `called "leaf1-spine9"`,
		"from: 0s, until: 1s|from: 0s":           "expected an end before the scenario begins anew",
	} {
		before, after, _ := strings.Cut(change, "|")
		if !strings.Contains(bursts, before) {
			t.Fatal(before)
		}
		_, err := scenario.Parse("bursts.yaml", []byte(strings.Replace(bursts, before, after, 1)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", change, err, want)
		}
	}
}

// Played until Ctrl-C, the events of the built-in scenario come one after the other, with time
// before each.
func TestDefaultStory(t *testing.T) {
	s, err := scenario.Default()
	if err != nil {
		t.Fatal(err)
	}
	s.PlayOn()
	end := time.Duration(0)
	for _, e := range s.Story {
		i := slices.IndexFunc(s.Traffic, func(c scenario.Component) bool { return c.Name == e.Of })
		if c := s.Traffic[i]; c.From < end+10*time.Second || c.Until < c.From+10*time.Second {
			t.Errorf("%s: from %v until %v, after an event that ends at %v", e.Of, c.From, c.Until, end)
		} else {
			end = c.Until
		}
	}
}
