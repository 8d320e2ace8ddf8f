// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestManHasPageOfEachCommand(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	dir := filepath.Join(t.TempDir(), "man1")
	if _, err := command(t, "", "man", dir); err != nil {
		t.Fatal(err)
	}
	var check func(*cobra.Command)
	check = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" {
			return
		}
		name := strings.ReplaceAll(c.CommandPath(), " ", "-")
		page, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil {
			t.Error(err)
		}
		for _, want := range []string{`"Sep 2001"`, strings.Fields(c.Short)[0], "SH SYNOPSIS"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s.1 has no %q", name, want)
			}
		}
		for _, below := range c.Commands() {
			check(below)
		}
	}
	check(root())
}

// TestCompletion checks the suggestions for the word that was typed last.
func TestCompletion(t *testing.T) {
	for _, test := range []struct {
		typed, want string // the last line is the directive, as in cobra.ShellCompDirective
	}{
		{"collector --config ", ":0"},
		{"config check ", ":0"},
		{"collector ", ":4"},
		{"demo --gnmi ", ":4"},
		{"demo --log w", "warn\n:4"},
		{"switch --program forw", "forwarding\n:4"},
		{"plugin list --plugins ", ":16"},
		{"yang export ", ":16"},
		{"plugin describe --plugins " + plugins + " u", "univmon\n:4"},
		{"replay r --plugins " + plugins + " --plugin u", "univmon\n:4"},
		{"yang show netsketch-coll", "netsketch-collector\n:4"},
		{"query /collector/dev", "/collector/devices/device\n/collector/devices/device/configuration/leaves/leaf\n:4"},
		{"yang show --plugins " + plugins + "/missing netsketch-coll", ":1"},
		{"plugin describe --plugins " + plugins + "/missing u", ":1"},
	} {
		out, err := command(t, "", append([]string{"__complete"}, strings.Split(test.typed, " ")...)...)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(out, test.want) {
			t.Errorf("%q: %q, expected %q", test.typed, out, test.want)
		}
	}
}
