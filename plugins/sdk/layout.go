// SPDX-License-Identifier: Apache-2.0

// The layout of an array as a struct.

package sdk

import (
	"fmt"
	"reflect"
	"strconv"
)

// Layout reads the values of an annotation of the object into the fields of the struct that layout
// points to. The tag key names a field's value. Without the tag default the value is required:
//
//	var layout struct {
//		Rows    int    `key:"rows"`
//		Columns int    `key:"columns"`
//		Keys    string `key:"keys" default:"5-tuple"`
//	}
//	err := object.Layout("mysketch_counters", &layout)
//
// Fields have the type int or string. Values of the annotation without a field are ignored.
func (o *Object) Layout(annotation string, layout any) error {
	values, ok := o.Annotations[annotation]
	if !ok {
		return fmt.Errorf("register %s has no annotation @%s", o.Name, annotation)
	}
	fields := reflect.ValueOf(layout).Elem()
	for i := range fields.NumField() {
		tag := fields.Type().Field(i).Tag
		key := tag.Get("key")
		text, ok := values[key]
		if !ok {
			if text, ok = tag.Lookup("default"); !ok {
				return fmt.Errorf("register %s: the annotation @%s has no value %s", o.Name, annotation, key)
			}
		}
		switch to := fields.Field(i).Addr().Interface().(type) {
		case *string:
			*to = text
		case *int:
			n, err := strconv.Atoi(text)
			if err != nil {
				return fmt.Errorf("register %s: the annotation @%s: %s is %q; expected a whole number", o.Name, annotation, key,
					text)
			}
			*to = n
		default:
			return fmt.Errorf("field %s of the layout is a %T; expected int or string", fields.Type().Field(i).Name, to)
		}
	}
	return nil
}
