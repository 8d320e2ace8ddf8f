// SPDX-License-Identifier: Apache-2.0

package influxdb

import (
	"os"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/internal/config"
)

// The example in the documentation is a valid configuration.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/influxdb.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(text), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	cfg, err := config.ParseEnv("docs/influxdb.md", []byte(example), func(string) (string, bool) { return "t", true })
	if err != nil {
		t.Fatal(err)
	}
	var c Config
	if err := cfg.Outputs[0].Settings.Decode(&c); err != nil {
		t.Error(err)
	}
	if c.URL == "" || c.Bucket != "netsketch" || c.Token.Reveal() != "t" || c.BatchPoints != 5000 {
		t.Errorf("%+v", c)
	}
}
