// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"strings"
	"testing"

	"github.com/netsketch/netsketch/internal/config"
)

// A checksum of zeros is refused: it would mean that the binary is not pinned.
func TestPinOfZerosIsRefused(t *testing.T) {
	text := "plugins:\n  instances:\n    - {plugin: univmon, sha256: \"" + strings.Repeat("0", 64) + "\"}\n"
	if _, err := config.Parse("c.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "c.yaml:3") ||
		!strings.Contains(err.Error(), "sha256") {
		t.Errorf("error %v does not name file, line and key", err)
	}
}
