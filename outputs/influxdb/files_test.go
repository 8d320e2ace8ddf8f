// SPDX-License-Identifier: Apache-2.0

package influxdb

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/netsketch/netsketch/internal/config"
)

// Relative names of files are relative to the directory of the configuration file.
func TestFilesAreRelativeToTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	text := "outputs: [{type: influxdb, url: \"http://x\", bucket: b, ca-file: ca.pem, spool: {dir: waiting}}]\n"
	file := filepath.Join(dir, "netsketch.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	var settings Config
	if err := c.Outputs[0].Settings.Decode(&settings); err != nil {
		t.Fatal(err)
	}
	if settings.CAFile != filepath.Join(dir, "ca.pem") || settings.Spool.Dir != filepath.Join(dir, "waiting") {
		t.Errorf("files %q and %q", settings.CAFile, settings.Spool.Dir)
	}
}
