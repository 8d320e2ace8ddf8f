// SPDX-License-Identifier: Apache-2.0

package compiled_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/netsketch/netsketch/p4/compiled/internal/sources"
)

func tree() fstest.MapFS {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	return fstest.MapFS{
		"one.p4":       file("#include <core.p4>\n#include \"lib/a.p4\"\n"),
		"two.p4":       file("control two {}\n"),
		"lib/a.p4":     file("#ifdef X\n # include \"b.p4\"\n#endif\n"),
		"lib/b.p4":     file("#include \"a.p4\"\n#include \"b.p4\" // itself\n"),
		"lib/spare.p4": file(""),
	}
}

func TestFiles(t *testing.T) {
	programs, err := sources.Programs(tree())
	if err != nil || !slices.Equal(programs, []string{"one", "two"}) {
		t.Fatalf("Programs = %v, %v, want one and two", programs, err)
	}
	files, err := sources.Files(tree(), "one")
	if want := []string{"lib/a.p4", "lib/b.p4", "one.p4"}; err != nil || !slices.Equal(files, want) {
		t.Errorf("Files(one) = %v, %v, want %v", files, err, want)
	}
	if _, err := sources.Files(tree(), "three"); err == nil || !strings.Contains(err.Error(), "three") {
		t.Errorf("Files(three): error %v, want one that names the program", err)
	}
}

func TestDigestFollowsIncludedFiles(t *testing.T) {
	digest := func(fsys fstest.MapFS, program string) string {
		t.Helper()
		d, err := sources.Digest(fsys, program)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	before, changed := tree(), tree()
	changed["lib/b.p4"] = &fstest.MapFile{Data: []byte("// changed\n")}
	changed["lib/spare.p4"] = &fstest.MapFile{Data: []byte("// changed\n")}
	if digest(before, "one") == digest(changed, "one") {
		t.Error("program one includes lib/b.p4, and its digest did not change with it")
	}
	if digest(before, "two") != digest(changed, "two") {
		t.Error("program two includes nothing, and its digest changed")
	}
}

// TestSizesAreParameters: the sizes in these programs are defaults, which -D at the compiler
// replaces.
func TestSizesAreParameters(t *testing.T) {
	for _, program := range []string{"chamelemon", "lightguardian", "omnimon", "sketchint", "sketchint-edge"} {
		text, err := os.ReadFile("../programs/" + program + ".p4")
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		for i, line := range lines {
			words := strings.Fields(line)
			if len(words) < 3 || words[0] != "#define" || words[1] == "NS_BANKS" {
				continue
			}
			if want := "#ifndef " + words[1]; lines[i-1] != want {
				t.Errorf("%s.p4, line %d: %s is not preceded by %s", program, i+1, line, want)
			}
		}
	}
}
