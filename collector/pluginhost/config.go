// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/netsketch/netsketch/settings"
)

// validateConfig checks a configuration, which is a JSON object or empty, against the JSON Schema
// that the plugin declares. The error wraps ErrConfig and a settings.KeyErrors.
func validateConfig(schema string, config []byte) error {
	if len(bytes.TrimSpace(config)) == 0 {
		config = []byte("{}")
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(config))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, settings.KeyErrors{{Message: "is not JSON: " + err.Error()}})
	}
	if schema == "" {
		return nil
	}
	compiler, compiled, err := compileSchema(schema)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDescription, err)
	}
	err = compiled.Validate(value)
	var invalid *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid):
		return fmt.Errorf("%w: %w", ErrConfig, keyErrors(compiler, value, invalid))
	}
	return fmt.Errorf("%w: %w", ErrConfig, err)
}

// compileSchema compiles the JSON Schema of a plugin's configuration.
func compileSchema(schema string) (*jsonschema.Compiler, *jsonschema.Schema, error) {
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		return nil, nil, fmt.Errorf("its configuration schema is not JSON: %w", err)
	}
	const url = "netsketch:///config.schema.json"
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(jsonschema.SchemeURLLoader{}) // must not load files or from the network
	compiler.RegisterFormat(&jsonschema.Format{Name: duration, Validate: checkDuration})
	compiler.AssertFormat()
	if err := compiler.AddResource(url, document); err != nil {
		return nil, nil, fmt.Errorf("its configuration schema: %w", err)
	}
	compiled, err := compiler.Compile(url)
	if err != nil {
		return nil, nil, fmt.Errorf("its configuration schema: %w", err)
	}
	return compiler, compiled, nil
}

// duration is the format of a text such as 100ms or 1m30s.
const duration = "go-duration"

func checkDuration(value any) error {
	text, ok := value.(string)
	if !ok {
		return nil // another keyword checks the type
	}
	_, err := time.ParseDuration(text)
	return err
}

// keyErrors lists the innermost causes of a validation error, which are the keys to correct.
func keyErrors(c *jsonschema.Compiler, config any, e *jsonschema.ValidationError) (all settings.KeyErrors) {
	for _, cause := range e.Causes {
		all = append(all, keyErrors(c, config, cause)...)
	}
	if len(e.Causes) > 0 {
		return all
	}
	at := settings.KeyErrors{}
	if i := slices.IndexFunc(e.InstanceLocation, settings.SecretKey); i >= 0 {
		path, _ := find(config, e.InstanceLocation[:i+1])
		at.Add(path, "is not valid")
		return at
	}
	path, value := find(config, e.InstanceLocation)
	schema, err := c.Compile(strings.TrimSuffix(e.SchemaURL, "/"))
	if err != nil {
		schema = &jsonschema.Schema{}
	}
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		known := slices.Sorted(maps.Keys(schema.Properties))
		for _, name := range k.Properties {
			at.Add(path, "unknown key %q: %s", name, settings.Suggestion(name, known))
		}
	case *kind.Required:
		for _, name := range k.Missing {
			want := ""
			if s := schema.Properties[name]; s != nil && s.Description != "" {
				want = ": " + s.Description
			}
			at.Add(settings.Join(path, name), "is missing%s", want)
		}
	default:
		at.Add(path, "%s; found %s", expected(schema, k), describe(value))
	}
	return at
}

// find returns the path of a value, such as "dimensions[0].key", and the value.
func find(value any, location []string) (path string, _ any) {
	for _, step := range location {
		switch v := value.(type) {
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				return path, nil
			}
			path, value = fmt.Sprintf("%s[%d]", path, i), v[i]
		case map[string]any:
			path, value = settings.Join(path, step), v[step]
		}
	}
	return path, value
}

// expected states the values that a schema allows, for an error of the given kind.
func expected(s *jsonschema.Schema, k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Enum:
		words := make([]string, len(k.Want))
		for i, w := range k.Want {
			words[i] = fmt.Sprint(w)
		}
		return "expected " + settings.OneOf(words)
	case *kind.Minimum, *kind.Maximum, *kind.ExclusiveMinimum, *kind.ExclusiveMaximum:
		return "is out of range; expected " + rangeOf(s)
	case *kind.Pattern:
		return fmt.Sprintf("does not match the pattern %q", k.Want)
	case *kind.ContentEncoding, *kind.ContentMediaType:
		return "is not valid"
	case *kind.Format, *kind.Type:
		if s.Format != nil && s.Format.Name == duration {
			return "expected a duration with its unit, such as 100ms or 1s"
		}
		if t, ok := k.(*kind.Type); ok {
			return "expected " + settings.OneOf(typeNames(t.Want))
		}
		if f, ok := k.(*kind.Format); ok {
			return "is not a valid " + f.Want
		}
	}
	return k.LocalizedString(message.NewPrinter(language.English))
}

// rangeOf describes the bounds of a number.
func rangeOf(s *jsonschema.Schema) string {
	var parts []string
	for _, b := range []struct {
		word  string
		bound *big.Rat
	}{{"at least", s.Minimum}, {"above", s.ExclusiveMinimum}, {"at most", s.Maximum}, {"below", s.ExclusiveMaximum}} {
		if b.bound != nil {
			parts = append(parts, b.word+" "+strings.TrimSuffix(strings.TrimRight(b.bound.FloatString(9), "0"), "."))
		}
	}
	return strings.Join(parts, ", ")
}

func typeNames(types []string) []string {
	names := map[string]string{"integer": "a whole number", "number": "a number", "boolean": "true or false",
		"string": "text", "array": "a list", "object": "a mapping", "null": "nothing"}
	out := make([]string, len(types))
	for i, t := range types {
		out[i] = names[t]
	}
	return out
}

// describe returns a number or a boolean, or names the kind of another value: a text may be a
// secret that is written at the wrong key.
func describe(value any) string {
	switch v := value.(type) {
	case nil:
		return "nothing"
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	case map[string]any:
		return "a mapping"
	case string:
		return "a text"
	}
	return fmt.Sprint(value)
}
