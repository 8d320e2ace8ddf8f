// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"testing"

	"github.com/netsketch/netsketch/internal/config"
)

// A plugin beside a configuration file that is named without a directory stays a path.
func TestPluginBesideTheFile(t *testing.T) {
	t.Chdir(t.TempDir())
	const text = "plugins: {instances: [{plugin: ./netsketch-plugin-x}]}\n"
	if err := os.WriteFile("c.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load("c.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Plugins.Instances[0].Plugin; got != "./netsketch-plugin-x" {
		t.Errorf("%q is no path", got)
	}
}
