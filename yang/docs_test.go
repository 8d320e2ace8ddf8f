// SPDX-License-Identifier: Apache-2.0

package yang

import (
	"os"
	"strings"
	"testing"
)

// The module in the documentation compiles, and has the properties that the text describes.
func TestDocumentedModule(t *testing.T) {
	text, err := os.ReadFile("../docs/yang.md")
	if err != nil {
		t.Fatal(err)
	}
	_, module, _ := strings.Cut(string(text), "```yang\n")
	module, _, _ = strings.Cut(module, "```")
	s, err := Load(Module{Text: module, Source: "docs/yang.md"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.List("/acme-loss:losses/loss")
	if err != nil || l.Leaf("state/packets") == nil || l.Keys[0].RefersTo[0] != "state/node" {
		t.Errorf("%+v %v", l, err)
	}
	reference, err := os.ReadFile("../docs/paths.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/univmon/heavy-hitters/heavy-hitter[node][dimension][flow]",
		"/chamelemon/flows/flow[node][flow]", "/collector/epoch"} {
		if !strings.Contains(string(reference), "- `"+path+"`") {
			t.Errorf("the reference lacks %s; run make generate", path)
		}
	}
}
