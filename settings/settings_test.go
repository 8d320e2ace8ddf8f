// SPDX-License-Identifier: Apache-2.0

package settings_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/settings/yaml"
)

// everything has a field for each tag that package config does not use.
type everything struct {
	Share  float64         `yaml:"share" default:"0.5" range:">0..1"`
	Delays []time.Duration `yaml:"delays" default:"50us 100us" length:"1..3" range:"1us..1s"`
	Words  []string        `yaml:"words" oneof:"a b c" unique:"true"`
	Text   string          `yaml:"text" length:"0..4"`
	Nodes  []struct {
		Name string `yaml:"name" form:"name" required:"a name" unique:"true"`
		ID   uint32 `yaml:"id" range:"1.." unique:"true"`
	} `yaml:"nodes"`
	Ports map[string][]uint32 `yaml:"ports" range:"0..511"`
}

func (e *everything) Validate() error {
	var errs settings.KeyErrors
	if len(e.Text) == 3 {
		errs.Add("text", "has 3 bytes")
	}
	return errs.Err()
}

func TestDefaultsOfListsAndTexts(t *testing.T) {
	var got everything
	if err := settings.DecodeJSON([]byte(`{"text": null, "ports": {"s.1": [1, 2]}, "share": "1e-3"}`), &got); err != nil {
		t.Fatal(err)
	}
	want := everything{Share: 0.001, Delays: []time.Duration{50 * time.Microsecond, 100 * time.Microsecond},
		Ports: map[string][]uint32{"s.1": {1, 2}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Each error names the key, the value and what is allowed.
func TestErrorsOfJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"share": 0}`:   "share: 0 is out of range; expected above 0, at most 1",
		`{"share": 2}`:   "share: 2 is out of range; expected above 0, at most 1",
		`{"share": [1]}`: "share: expected a number; found a list",
		`{"delays": []}`: "delays: the count of elements, 0 is out of range; expected 1 to 3",
		`{"delays": ["2s", "5"]}`: "delays[0]: 2s is out of range; expected 1us to 1s; " +
			`delays[1]: expected a duration with its unit, such as 100ms or 1s; found "5"`,
		`{"words": ["a", "d"]}`:    `words[1]: expected one of a, b, c; found "d": did you mean "a"?`,
		`{"words": ["a", "a"]}`:    "words[1]: a is given twice, first in words[0]",
		`{"text": "12345"}`:        "text: the count of bytes, 5 is out of range; expected 0 to 4",
		`{"text": "123"}`:          "text: has 3 bytes",
		`{"nodes": [{"id": 1}]}`:   "nodes[0].name: is missing; expected a name",
		`{"ports": {"s1": [512]}}`: "ports.s1[0]: 512 is out of range; expected 0 to 511",
		`{"sharee": 1}`:            `unknown key "sharee": did you mean "share"?`,
		`[]`:                       "the configuration is not a JSON object",
		`{} {}`:                    "the configuration has text after its JSON object",
		`{"nodes": [{"name": "a", "id": 1}, {"name": "b", "id": 1}, {"name": "a", "id": 2}]}`: "nodes[2].name: a is given " +
			"twice, first in nodes[0]; nodes[1].id: 1 is given twice, first in nodes[0]",
	} {
		err := settings.DecodeJSON([]byte(text), &everything{})
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n%v, want\n%s", text, err, want)
		}
		if !errors.As(err, new(settings.KeyErrors)) {
			t.Errorf("%s: %T is no KeyErrors", text, err)
		}
	}
}

// The message about a value that an environment variable gave does not show the value.
func TestProblemHidesEnvironmentVariables(t *testing.T) {
	r := settings.NewReport("n.yaml", []byte("token: ${TOKEN}\n'10.0.0.0/8': [x]\n"))
	root := yaml.Parse(r, []byte("token: ${TOKEN}\n'10.0.0.0/8': [x]\n"),
		func(string) (string, bool) { return "s3cret", true })
	s := settings.NewSection(r, root)
	for message, want := range map[string]string{
		`"s3cret" is not valid; expected 1 to 64`:       "the value of ${TOKEN} is not valid here; expected 1 to 64",
		`expected a whole number; found "s3cret"`:       "the value of ${TOKEN} is not valid here; expected a whole number",
		`"s3cret" is wrong`:                             "the value of ${TOKEN} is not valid here",
		`is wrong; expected something like "s3cret" or`: "the value of ${TOKEN} is not valid here",
	} {
		if got := s.Problem("token", message).Error(); got != "n.yaml:1:8: token: "+want {
			t.Errorf("%s: %s", message, got)
		}
	}
	if got := s.Problem("10.0.0.0/8[0]", "is wrong").Error(); got != "n.yaml:2:16: 10.0.0.0/8[0]: is wrong" {
		t.Error(got)
	}
}

// A plugin receives numbers and booleans of environment variables as such, and texts in quotes as
// texts.
func TestVariablesHaveTypes(t *testing.T) {
	text := []byte("n: \"${N}\"\na: ${N}\nb: ${T}\nc: ${F}\nd: ${Z}\ne: x${N}\n")
	values := map[string]string{"N": "64", "T": "true", "F": "1.5e3", "Z": "010"}
	r := settings.NewReport("n.yaml", text)
	root := yaml.Parse(r, text, func(name string) (string, bool) { return values[name], true })
	got, err := settings.NewSection(r, root).JSON()
	if want := `{"a":64,"b":true,"c":1500,"d":"010","e":"x64","n":"64"}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// TestLeadingZeros: a number with a leading zero is refused wherever a number is expected, and is a
// text elsewhere, also in the section of a plugin.
func TestLeadingZeros(t *testing.T) {
	type numbers struct {
		Whole    int              `yaml:"whole"`
		Share    float64          `yaml:"share"`
		Size     settings.Size    `yaml:"size"`
		Text     string           `yaml:"text"`
		Settings settings.Section `yaml:"settings"`
	}
	for text, want := range map[string]string{
		"whole: 010": "begins with 0", "whole: -08": "begins with 0", "whole: 0x10": "", "whole: 0": "",
		"whole: 0_10": "begins with 0", "whole: 1_0": "",
		"share: 010": "begins with 0", "share: 01.5": "begins with 0", "share: 0.5": "", "share: 08": "begins with 0",
		"size: 010": "begins with 0", "size: 08KiB": "begins with 0", "size: 0.5KiB": "", "size: 1.5": "expected a size",
		"text: 010": "", "settings: {a: 010, b: -010, c: 08, d: 10}": "",
	} {
		r := settings.NewReport("n.yaml", []byte(text))
		var n numbers
		settings.NewDecoder(r).Decode(yaml.Parse(r, []byte(text), func(string) (string, bool) { return "", false }), &n)
		if err := r.Err(); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if key, value, ok := strings.Cut(text, ": "); ok && strings.Contains(want, "begins") {
			r := settings.NewReport("n.yaml", []byte(key+": ${N}"))
			root := yaml.Parse(r, []byte(key+": ${N}"), func(string) (string, bool) { return value, true })
			settings.NewDecoder(r).Decode(root, &n)
			if err := r.Err(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), value) {
				t.Errorf("%s from a variable: %v, want %q", text, err, want)
			}
		}
		if strings.HasPrefix(text, "text") && n.Text != "010" {
			t.Errorf("%s: %q", text, n.Text)
		}
		if !strings.HasPrefix(text, "settings") {
			continue
		}
		got, err := n.Settings.JSON()
		if want := `{"a":"010","b":"-010","c":"08","d":10}`; err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
		var numbers struct {
			A int `yaml:"a"`
		}
		if err := settings.DecodeJSON([]byte(`{"a":"010"}`), &numbers); err == nil ||
			!strings.Contains(err.Error(), "begins with 0") {
			t.Errorf("a plugin's number: %v", err)
		}
	}
}

func FuzzDecodeJSON(f *testing.F) {
	f.Add(`{"share": 0.25, "delays": ["1ms"], "words": "a", "nodes": [{"name": "x", "id": 7}], "ports": {"a": [1]}}`)
	f.Add(strings.Repeat("[", 70))
	f.Fuzz(func(t *testing.T, text string) {
		var e everything
		if err := settings.DecodeJSON([]byte(text), &e); err != nil {
			return
		}
		if !(e.Share > 0 && e.Share <= 1) || len(e.Delays) < 1 || len(e.Delays) > 3 || len(e.Text) > 4 {
			t.Fatalf("accepted %s", fmt.Sprint(e))
		}
	})
}
