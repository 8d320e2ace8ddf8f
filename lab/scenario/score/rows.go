// SPDX-License-Identifier: Apache-2.0

package score

import (
	"reflect"
	"sync"
)

// Fill sets the field of row, a pointer to a struct, that is tagged `leaf:"NAME"` with the name of
// the leaf; a leaf that no field asks for is passed over. Fields are numbers, booleans, texts, or
// pointers to numbers, which are nil until their leaf is told.
func (l *Leaf) Fill(row any) {
	v := reflect.ValueOf(row).Elem()
	at, ok := fieldsOf(v.Type())[l.Path[len(l.Path)-1].GetName()]
	if !ok {
		return
	}
	field := v.FieldByIndex(at)
	if field.Kind() == reflect.Pointer {
		field.Set(reflect.New(field.Type().Elem()))
		field = field.Elem()
	}
	switch {
	case field.Kind() == reflect.String:
		field.SetString(l.Text)
	case field.Kind() == reflect.Bool:
		field.SetBool(l.Number == 1)
	case field.CanInt():
		field.SetInt(int64(l.Number))
	case field.CanUint():
		field.SetUint(uint64(l.Number))
	default:
		field.SetFloat(l.Number)
	}
}

// tagged remembers fieldsOf: there are as many leaves as flows.
var tagged sync.Map // reflect.Type: map[string][]int

// fieldsOf returns where a struct has which leaf.
func fieldsOf(t reflect.Type) map[string][]int {
	if known, ok := tagged.Load(t); ok {
		return known.(map[string][]int)
	}
	fields := map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		if name, ok := f.Tag.Lookup("leaf"); ok {
			fields[name] = f.Index
		}
	}
	tagged.Store(t, fields)
	return fields
}

// Entry returns m[k], made when it is not there.
func Entry[K comparable, V any](m map[K]*V, k K) *V {
	v := m[k]
	if v == nil {
		v = new(V)
		m[k] = v
	}
	return v
}

// Inner returns the map m[a], made when it is not there.
func Inner[A, B comparable, V any](m map[A]map[B]V, a A) map[B]V {
	v := m[a]
	if v == nil {
		v = map[B]V{}
		m[a] = v
	}
	return v
}
