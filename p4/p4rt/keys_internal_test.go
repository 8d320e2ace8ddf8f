// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"testing"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// TestFieldsThatMatchAnything: a key leaves out fields of any kind that match anything.
func TestFieldsThatMatchAnything(t *testing.T) {
	table := &p4values.Table{Match: []p4values.Field{{ID: 1, Width: 12}}}
	ternary := func(value, mask []byte) *p4v1.FieldMatch {
		return &p4v1.FieldMatch{FieldId: 1, FieldMatchType: &p4v1.FieldMatch_Ternary_{
			Ternary: &p4v1.FieldMatch_Ternary{Value: value, Mask: mask}}}
	}
	ranged := func(low, high []byte) *p4v1.FieldMatch {
		return &p4v1.FieldMatch{FieldId: 1, FieldMatchType: &p4v1.FieldMatch_Range_{
			Range: &p4v1.FieldMatch_Range{Low: low, High: high}}}
	}
	for name, m := range map[string]*p4v1.FieldMatch{
		"zero mask": ternary([]byte{9}, []byte{0, 0}), "empty mask": ternary(nil, nil),
		"full range": ranged([]byte{0}, []byte{0x0f, 0xff}), "full range, longer": ranged(nil, []byte{0, 0x0f, 0xff}),
		"no kind": {FieldId: 1}, "optional without value": {FieldId: 1,
			FieldMatchType: &p4v1.FieldMatch_Optional_{Optional: &p4v1.FieldMatch_Optional{}}},
	} {
		if got := canonicalField(table, m); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	for name, m := range map[string]*p4v1.FieldMatch{
		"a bit": ternary([]byte{9}, []byte{1}), "from 1": ranged([]byte{1}, []byte{0x0f, 0xff}),
		"to 4094": ranged([]byte{0}, []byte{0x0f, 0xfe}), "an optional zero": {FieldId: 1,
			FieldMatchType: &p4v1.FieldMatch_Optional_{Optional: &p4v1.FieldMatch_Optional{Value: []byte{0}}}},
	} {
		if canonicalField(table, m) == nil {
			t.Errorf("%s: left out", name)
		}
	}
}

// TestFieldsOfTexts: a field of a translated type that has no value matches anything.
func TestFieldsOfTexts(t *testing.T) {
	table := &p4values.Table{Match: []p4values.Field{{ID: 1, String: true}}}
	for text, out := range map[string]bool{"": true, "a": false} {
		m := &p4v1.FieldMatch{FieldId: 1, FieldMatchType: &p4v1.FieldMatch_Optional_{
			Optional: &p4v1.FieldMatch_Optional{Value: []byte(text)}}}
		if got := canonicalField(table, m); (got == nil) != out {
			t.Errorf("%q: %v", text, got)
		}
	}
	if got := canonicalField(table, &p4v1.FieldMatch{FieldId: 1}); got != nil {
		t.Errorf("no kind: %v", got)
	}
}
