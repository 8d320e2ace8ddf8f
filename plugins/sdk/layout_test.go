// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"strings"
	"testing"
)

func TestLayout(t *testing.T) {
	type layout struct {
		Rows int    `key:"rows"`
		Part string `key:"part" default:"all"`
		Duty int    `key:"duty" default:"-1"`
	}
	of := func(values map[string]string) (layout, error) {
		o := Object{Name: "ingress.cells", Annotations: Annotations{"mine": values}}
		var l layout
		return l, o.Layout("mine", &l)
	}
	o := Object{Name: "ingress.cells", Annotations: Annotations{"mine": {"rows": "3", "part": "heavy", "else": "x"}}}
	var l layout
	if err := o.Layout("mine", &l); err != nil || l != (layout{Rows: 3, Part: "heavy", Duty: -1}) {
		t.Errorf("%+v, %v", l, err)
	}
	for want, err := range map[string]error{
		"@mine has no value rows":                         second(of(map[string]string{"part": "heavy"})),
		`@mine: rows is "three"; expected a whole number`: second(of(map[string]string{"rows": "three"})),
		"ingress.cells has no annotation @other":          o.Layout("other", &l),
		"field Rows of the layout is a *float64": o.Layout("mine", &struct {
			Rows float64 `key:"rows"`
		}{}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func second[T any](_ T, err error) error { return err }
