// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/netsketch/netsketch/lab/scenario"
)

// TestREADMEScenarios plays the scenarios that README.md names, with a virtual clock: all of their
// bounds hold.
func TestREADMEScenarios(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out whole scenarios, half a minute of processor time")
	}
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`--scenario (\S+\.yaml)`).FindAllSubmatch(text, -1)
	if len(named) == 0 {
		t.Fatal("README.md names no scenario")
	}
	for _, n := range named {
		t.Run(string(n[1]), func(t *testing.T) {
			s, err := scenario.Load(filepath.Join(root, filepath.FromSlash(string(n[1]))))
			if err != nil {
				t.Fatal(err)
			}
			check(t, play(t, s), s.Epochs)
		})
	}
}
