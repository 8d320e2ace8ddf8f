// SPDX-License-Identifier: Apache-2.0

package yang

import "testing"

func TestParsePath(t *testing.T) {
	for text, want := range map[string]string{
		"/":                          "/",
		"/a":                         "/a",
		"/a/":                        "/a",
		"/a/b[k=v]/c":                "/a/b[k=v]/c",
		"/m:a/b[k=1/0/1][j=x y]/...": "/m:a/b[j=x y][k=1/0/1]/...",
		`/a[k=\]\\[]/*`:              `/a[k=\]\\[]/*`,
		"/a[k=]":                     "/a[k=]",
		"":                           "!",
		"a/b":                        "!",
		"/a//b":                      "!",
		"/a[k]":                      "!",
		"/a[k=v":                     "!",
		"/a[k=v]b":                   "!",
		"/a[=v]":                     "!",
		"/a[k=v][k=w]":               "!",
		`/a\`:                        "!",
	} {
		p, err := ParsePath(text)
		got := "!"
		if err == nil {
			got = PathString(p.GetElem())
		}
		if got != want {
			t.Errorf("%s: %s, %v; expected %s", text, got, err, want)
		}
	}
}

func FuzzParsePath(f *testing.F) {
	f.Add("/a/b[k=v]/c")
	f.Add(`/a[k=\]\\[]/*`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePath(text)
		if err != nil || len(text) > 200 {
			return
		}
		for _, e := range p.GetElem() {
			if e.GetName() == "" {
				t.Fatal("an element without a name")
			}
		}
	})
}
