// SPDX-License-Identifier: Apache-2.0

package all

import (
	"flag"
	"os"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/outputs/gnmi"
	"github.com/netsketch/netsketch/outputs/influxdb"
	"github.com/netsketch/netsketch/outputs/web"
	"github.com/netsketch/netsketch/settings/reference"
)

var update = flag.Bool("update", false, "rewrite the reference of keys")

// reference.md is generated from the tags and comments of the configuration's fields. `make
// generate` runs this test with -update.
func TestReference(t *testing.T) {
	golden(t, "reference.md", generate(t))
}

func golden(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s differs from the fields (-want +got); run `make generate`:\n%s", file, diff)
	}
}

func generate(t *testing.T) string {
	tables, err := reference.Tables("##",
		reference.Section{Type: reflect.TypeFor[config.Config]()},
		reference.Section{Type: reflect.TypeFor[gnmi.Config](), Path: "outputs[] of type gnmi"},
		reference.Section{Type: reflect.TypeFor[influxdb.Config](), Path: "outputs[] of type influxdb"},
		reference.Section{Type: reflect.TypeFor[web.Config](), Path: "outputs[] of type web"})
	if err != nil {
		t.Fatal(err)
	}
	return "# Configuration keys\n" + tables
}
