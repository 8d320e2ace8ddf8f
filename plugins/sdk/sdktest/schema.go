// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"os"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/settings/reference"
)

// ConfigSchema fails if a file, which the plugin embeds as Description.ConfigSchema, is not the
// JSON Schema of the struct that the plugin decodes its configuration into. UPDATE=1 in the
// environment writes the file. The schema has the keys, defaults and ranges of the fields' tags,
// and the fields' comments, each of which begins with the field's name.
func ConfigSchema(t testing.TB, file, title string, configuration any) {
	t.Helper()
	want, err := reference.Schema(title, reflect.TypeOf(configuration))
	if err != nil {
		t.Fatal(err)
	}
	GoldenText(t, file, string(want))
}

// GoldenText fails if a file has another text. UPDATE=1 in the environment writes the file.
func GoldenText(t testing.TB, file, want string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; write it with UPDATE=1 go test", err)
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("%s is out of date (-file +generated); write it with UPDATE=1 go test:\n%s", file, diff)
	}
}
