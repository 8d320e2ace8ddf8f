// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/settings"
)

// Schema returns the JSON Schema (2020-12) of a struct, as indented text. Durations such as 100ms
// (format go-duration) and sizes such as 64KiB are texts in it, without their ranges, which only
// package settings checks.
func Schema(title string, typ reflect.Type) ([]byte, error) {
	w := &writer{}
	s := w.object(typ)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"], s["description"] = title, w.comment(typ, "")
	text, err := json.MarshalIndent(s, "", "  ")
	if w.err != nil {
		err = w.err
	}
	return append(text, '\n'), err
}

type object = map[string]any

func (w *writer) object(typ reflect.Type) object {
	defaults := reflect.New(typ)
	settings.NewDecoder(settings.NewReport("", nil)).SetDefaults(defaults.Interface())
	properties := object{}
	var required []string
	for _, f := range settings.Fields(typ) {
		s := w.value(f.Type, f.Tag)
		s["description"] = w.comment(typ, f.Name)
		if text, ok := f.Tag.Lookup("default"); ok {
			s["default"] = defaultOf(defaults.Elem().FieldByIndex(f.Index), text)
		}
		if f.Tag.Get("required") != "" {
			required = append(required, f.Key)
		}
		properties[f.Key] = s
	}
	s := object{"type": "object", "additionalProperties": false, "properties": properties}
	if required != nil {
		s["required"] = required
	}
	return s
}

// value describes a type. tag holds the tags of the struct field with this type, or with a list or
// a mapping of this type.
func (w *writer) value(typ reflect.Type, tag reflect.StructTag) object {
	switch kind := typ.Kind(); {
	case typ == typeDuration:
		return object{"type": "string", "format": "go-duration"}
	case typ == typeSecret:
		return object{"type": "string", "writeOnly": true}
	case typ == typeSize:
		return object{"type": []string{"integer", "string"}, "minimum": 0}
	case reflect.PointerTo(typ).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return object{"type": "string"}
	case kind == reflect.Pointer:
		return w.value(typ.Elem(), tag)
	case kind == reflect.Struct:
		return w.object(typ)
	case kind == reflect.Map:
		return object{"type": "object", "additionalProperties": w.value(typ.Elem(), tag)}
	case kind == reflect.Slice:
		s := object{"type": "array", "items": w.value(typ.Elem(), tag)}
		if tag.Get("unique") != "" {
			s["uniqueItems"] = true
		}
		return bounds(s, tag.Get("length"), "minItems", "maxItems")
	case kind == reflect.Bool:
		return object{"type": "boolean"}
	case kind == reflect.String:
		return text(tag)
	case typ.Bits() > 0 && kind >= reflect.Float32:
		return bounds(object{"type": "number"}, tag.Get("range"), "minimum", "maximum")
	}
	s := object{"type": "integer"}
	if kind := typ.Kind(); kind >= reflect.Uint && kind <= reflect.Uint64 {
		s["minimum"] = 0
		if typ.Bits() < 64 {
			s["maximum"] = uint64(math.MaxUint64) >> (64 - typ.Bits())
		}
	}
	return bounds(s, tag.Get("range"), "minimum", "maximum")
}

func text(tag reflect.StructTag) object {
	s := object{"type": "string"}
	if words := strings.Fields(tag.Get("oneof")); len(words) > 0 {
		return object{"enum": words}
	}
	if tag.Get("form") == "name" {
		s["pattern"] = settings.NamePattern
	}
	if tag.Get("length") == "" && tag.Get("required") != "" {
		s["minLength"] = 1
	}
	return bounds(s, tag.Get("length"), "minLength", "maxLength")
}

// bounds adds the limits of a range or length tag under the keywords low and high.
func bounds(s object, tag, low, high string) object {
	from, to, _ := strings.Cut(tag, "..")
	from, above := strings.CutPrefix(from, ">")
	if above {
		delete(s, low)
		low = "exclusiveM" + low[1:]
	}
	for keyword, text := range map[string]string{low: from, high: to} {
		if text == "" {
			continue
		}
		if n, err := strconv.ParseUint(text, 0, 64); err == nil {
			s[keyword] = n
		} else {
			s[keyword] = json.Number(text)
		}
	}
	return s
}

// defaultOf returns a default as JSON has it; text is its tag.
func defaultOf(v reflect.Value, text string) any {
	switch kind := v.Kind(); {
	case v.Type() == typeDuration, v.Type() == typeSize, kind == reflect.Struct:
		return text
	case kind == reflect.Slice:
		items := make([]any, v.Len())
		for i, word := range strings.Fields(text) {
			items[i] = defaultOf(v.Index(i), word)
		}
		return items
	case kind == reflect.String:
		return v.String()
	}
	return json.RawMessage(fmt.Sprint(v))
}
