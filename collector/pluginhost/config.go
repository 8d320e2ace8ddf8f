// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/netsketch/netsketch/internal/suggest"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/settings"
)

// validateConfig checks a configuration, which is a JSON object or empty, against the JSON Schema
// that the plugin declares. The error wraps ErrConfig and an sdk.FieldErrors.
func validateConfig(schema string, config []byte) error {
	if len(bytes.TrimSpace(config)) == 0 {
		config = []byte("{}")
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(config))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, sdk.FieldErrors{{Message: "is not JSON: " + err.Error()}})
	}
	if schema == "" {
		return nil
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		return fmt.Errorf("%w: its configuration schema is not JSON: %w", ErrDescription, err)
	}
	const url = "netsketch:///config.schema.json"
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(jsonschema.SchemeURLLoader{}) // must not load files or from the network
	if err := compiler.AddResource(url, document); err != nil {
		return fmt.Errorf("%w: its configuration schema: %w", ErrDescription, err)
	}
	compiled, err := compiler.Compile(url)
	if err != nil {
		return fmt.Errorf("%w: its configuration schema: %w", ErrDescription, err)
	}
	err = compiled.Validate(value)
	var invalid *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid):
		return fmt.Errorf("%w: %w", ErrConfig, fieldErrors(compiler, invalid))
	}
	return fmt.Errorf("%w: %w", ErrConfig, err)
}

// fieldErrors lists the innermost causes of a validation error, which are the fields to correct.
func fieldErrors(c *jsonschema.Compiler, e *jsonschema.ValidationError) sdk.FieldErrors {
	if i := slices.IndexFunc(e.InstanceLocation, settings.SecretKey); i >= 0 {
		return sdk.FieldErrors{{Field: strings.Join(e.InstanceLocation[:i+1], "."), Message: "is not valid"}}
	}
	if unknown, ok := e.ErrorKind.(*kind.AdditionalProperties); ok {
		return unknownFields(c, e, unknown.Properties)
	}
	if len(e.Causes) == 0 {
		return sdk.FieldErrors{{Field: strings.Join(e.InstanceLocation, "."), Message: problem(e)}}
	}
	var all sdk.FieldErrors
	for _, cause := range e.Causes {
		all = append(all, fieldErrors(c, cause)...)
	}
	return all
}

// problem returns why a value is not valid. It contains no text from the configuration, which may
// be a secret.
func problem(e *jsonschema.ValidationError) string {
	switch k := e.ErrorKind.(type) {
	case *kind.Pattern:
		return fmt.Sprintf("does not match the pattern %q", k.Want)
	case *kind.Format:
		return "is not a valid " + k.Want
	case *kind.ContentEncoding, *kind.ContentMediaType:
		return "is not valid"
	}
	return e.ErrorKind.LocalizedString(message.NewPrinter(language.English))
}

// unknownFields reports each field that the schema does not have, with the most similar field of
// the schema.
func unknownFields(c *jsonschema.Compiler, e *jsonschema.ValidationError, unknown []string) sdk.FieldErrors {
	var known []string
	if object, err := c.Compile(e.SchemaURL); err == nil {
		known = slices.Sorted(maps.Keys(object.Properties))
	}
	hint := "expected one of " + strings.Join(known, ", ")
	if len(known) == 0 {
		hint = "no key is expected here"
	}
	var all sdk.FieldErrors
	for _, name := range unknown {
		h := hint
		if near := suggest.Nearest(name, known); near != "" {
			h = fmt.Sprintf("did you mean %q?", near)
		}
		all = append(all, sdk.FieldError{Field: strings.Join(e.InstanceLocation, "."),
			Message: fmt.Sprintf("unknown key %q: %s", name, h)})
	}
	return all
}
