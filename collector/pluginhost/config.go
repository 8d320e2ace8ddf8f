// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// validateConfig checks a configuration, a JSON object or nothing, against the JSON Schema that the
// plugin declares. The error wraps ErrConfig and an sdk.FieldErrors.
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
	compiler.UseLoader(jsonschema.SchemeURLLoader{}) // no references to files or the network
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
		return fmt.Errorf("%w: %w", ErrConfig, fieldErrors(invalid))
	}
	return fmt.Errorf("%w: %w", ErrConfig, err)
}

// fieldErrors lists the innermost causes: the fields to correct.
func fieldErrors(e *jsonschema.ValidationError) sdk.FieldErrors {
	if len(e.Causes) == 0 {
		text := e.ErrorKind.LocalizedString(message.NewPrinter(language.English))
		return sdk.FieldErrors{{Field: strings.Join(e.InstanceLocation, "."), Message: text}}
	}
	var all sdk.FieldErrors
	for _, cause := range e.Causes {
		all = append(all, fieldErrors(cause)...)
	}
	return all
}
