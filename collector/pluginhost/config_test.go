// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"strings"
	"testing"
)

// No error about a plugin's configuration contains the text of a value.
func TestConfigErrorsHideValues(t *testing.T) {
	const schema = `{"type": "object", "additionalProperties": false, "properties": {
		"name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 40},
		"peer": {"type": "string", "format": "ipv4"},
		"token": {"type": "string", "enum": ["a", "b"]},
		"auth": {"type": "object", "properties": {"user": {"type": "string"}}, "additionalProperties": false}}}`
	for settings, want := range map[string]string{
		`{"name": "Hunter2"}`:           `name: does not match the pattern "^[a-z]+$"`,
		`{"token": "Hunter2"}`:          "token: is not valid",
		`{"token": {"Hunter2": 1}}`:     "token: is not valid",
		`{"auth": {"Hunter2": 1}}`:      "auth: is not valid",
		`{"auth": "Hunter2"}`:           "auth: is not valid",
		`{"peer": 7, "nme": "Hunter2"}`: `did you mean "name"?`,
	} {
		err := validateConfig(schema, []byte(settings))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Hunter2") {
			t.Errorf("%s: %v, want %q", settings, err, want)
		}
	}
}
