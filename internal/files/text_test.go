// SPDX-License-Identifier: Apache-2.0

package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadText(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	for text, want := range map[string]struct{ text, err string }{
		"a\r\n":                     {"a\r\n", ""},
		"\ufeffa":                   {"a", ""},
		"\ufeff\ufeffa\ufeff":       {"a\ufeff", ""},
		"\ufeff":                    {"", ""},
		"\xef\xbba":                 {"\xef\xbba", ""},
		"\xff\xfea\x00":             {"", " is UTF-16; save it as UTF-8"},
		"\xfe\xff\x00a":             {"", " is UTF-16; save it as UTF-8"},
		"\xff\xfe\x00\x00a\x00\x00": {"", " is UTF-32; save it as UTF-8"},
		"\x00\x00\xfe\xff":          {"", " is UTF-32; save it as UTF-8"},
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadText(file)
		message := ""
		if err != nil {
			message = strings.TrimPrefix(err.Error(), file)
		}
		if string(got) != want.text || message != want.err {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
}
