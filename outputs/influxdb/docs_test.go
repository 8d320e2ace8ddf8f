// SPDX-License-Identifier: Apache-2.0

package influxdb

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/collector/config"
)

// The documentation has every key with its default, no other, and an example that
// can be read.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/influxdb.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, line := range strings.Split(string(text[strings.Index(string(text), "## Keys"):]), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) == 5 && strings.HasPrefix(cells[1], " `") {
			documented[strings.Trim(cells[1], " `")] = strings.TrimSpace(cells[2])
		}
	}
	var visit func(v reflect.Value, prefix string)
	visit = func(v reflect.Value, prefix string) {
		for i := range v.NumField() {
			key := prefix + v.Type().Field(i).Tag.Get("yaml")
			if v.Field(i).Kind() == reflect.Struct {
				visit(v.Field(i), key+".")
				continue
			}
			got, ok := documented[key]
			delete(documented, key)
			if !ok {
				t.Errorf("%s is not documented", key)
			} else if v.Field(i).IsZero() && v.Field(i).Kind() != reflect.Bool {
				if strings.HasPrefix(got, "`") {
					t.Errorf("%s: documented default %s, there is none", key, got)
				}
			} else if want := fmt.Sprintf("`%v`", v.Field(i).Interface()); got != want {
				t.Errorf("%s: documented default %s, it is %s", key, got, want)
			}
		}
	}
	visit(reflect.ValueOf(DefaultConfig()), "")
	for key := range documented {
		t.Errorf("%s is documented and does not exist", key)
	}

	_, example, _ := strings.Cut(string(text), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	_, example, ok := strings.Cut(example, "  influxdb:\n")
	if !ok {
		t.Fatal("the example has no section influxdb")
	}
	section, err := config.SectionOf("docs/influxdb.md", strings.ReplaceAll(example, "${INFLUXDB_TOKEN}", "t"))
	if err != nil {
		t.Fatal(err)
	}
	c := DefaultConfig()
	if err := section.Decode(&c); err != nil {
		t.Error(err)
	}
	if c.URL == "" || c.Bucket != "netsketch" || c.Token.Reveal() != "t" || c.BatchPoints != 5000 {
		t.Errorf("%+v", c)
	}
}
