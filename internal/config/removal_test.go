// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"strings"
	"testing"
)

// whole ends with the document end marker.
const whole = `
devices: [{name: s1, address: "h:1", device-id: 1}, {name: s2, address: "h:2", device-id: 2}]
links: [{from: s1/1, to: s2/1}]
hosts:
  - {name: h1, port: s1/2, addresses: [10.0.1.1, "2001:db8::1"]}
  - {name: h2, port: s2/2, addresses: [10.0.2.1]}
  - {name: h3, port: s2/3, addresses: [10.0.3.1]}
...
`

// CheckComplete refuses a file that was cut.
func TestCheckComplete(t *testing.T) {
	c := parse(t, whole)
	for name, test := range map[string]struct{ text, want string }{
		"the same":       {whole, ""},
		"a comment":      {"# changed" + whole, ""},
		"no marker":      {strings.TrimSuffix(whole, "...\n"), `document end marker "..."`},
		"no line end":    {strings.TrimSuffix(whole, "\n"), "no line end"},
		"no devices":     {"name: x\n...\n", "no devices, and 2 are in use"},
		"nothing at all": {"", "no devices"},
	} {
		err := c.CheckComplete(parse(t, test.text))
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
	if err := parse(t, "name: x").CheckComplete(parse(t, "name: y")); err != nil {
		t.Errorf("a file without line end and marker, as the one before: %v", err)
	}
}

// Removal counts the removals that delete routes, and never allows the last entry of a kind to be
// removed.
func TestRemoval(t *testing.T) {
	for name, test := range map[string]struct{ old, new, with, want string }{
		"one host of three": {"  - {name: h3, port: s2/3, addresses: [10.0.3.1]}\n", "", "", ""},
		"the only link":     {"links: [{from: s1/1, to: s2/1}]\n", "", "", "1 of 1 links (s1/1-s2/1)"},
		"an address of a host and another host": {
			`, "2001:db8::1"]}` + "\n  - {name: h2, port: s2/2, addresses: [10.0.2.1]}", "]}", "",
			"2 of 3 hosts (h2, h1)"},
		"the last section": {whole, whole[:strings.Index(whole, "hosts:")], "",
			"3 of 3 hosts (h1, h2, h3), the last section of the file (hosts)"},
		"any with a bound of 0": {"  - {name: h3, port: s2/3, addresses: [10.0.3.1]}\n", "", "reload: {max-removal: 0}",
			"1 of 3 hosts (h3)"},
		"all with a bound of 1": {"links: [{from: s1/1, to: s2/1}]\n", "", "reload: {max-removal: 1}", ""},
	} {
		text := test.with + whole
		next := strings.Replace(text, test.old, test.new, 1)
		if got := parse(t, text).Removal(parse(t, next)); got != test.want {
			t.Errorf("%s: removes %q, want %q", name, got, test.want)
		}
	}
}
