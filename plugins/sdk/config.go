// SPDX-License-Identifier: Apache-2.0

// What Configure takes and returns.

package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Config is a plugin's part of the collector's configuration.
type Config struct {
	// JSON is an object; empty means no configuration was given.
	JSON []byte
	// EpochLength is how long an epoch lasts.
	EpochLength time.Duration
}

// Decode fills in v, a pointer to a struct with json tags that holds the
// defaults. A key that v does not have is an error, and so is a value of the
// wrong type; both are FieldErrors.
func (c Config) Decode(v any) error {
	if len(bytes.TrimSpace(c.JSON)) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(c.JSON))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return fieldErrors(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return FieldErrors{{Message: "text after the configuration's JSON object"}}
	}
	return nil
}

// fieldErrors makes of the JSON decoder's error one that names the field.
func fieldErrors(err error) FieldErrors {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return FieldErrors{{Field: kind.Field, Message: fmt.Sprintf("is a JSON %s; expected %s", kind.Value, kind.Type)}}
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return FieldErrors{{Field: strings.Trim(name, `"`), Message: "is not a key of this plugin's configuration"}}
	}
	return FieldErrors{{Message: err.Error()}}
}

// FieldError is one thing wrong in a configuration.
type FieldError struct {
	// Field is the path with dots between names, "dimensions.0.key"; empty: all of it.
	Field string `json:"field"`
	// Message says what is wrong and what was expected.
	Message string `json:"message"`
}

func (e FieldError) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

// FieldErrors is what is wrong in a configuration; at least one entry.
type FieldErrors []FieldError

func (e FieldErrors) Error() string {
	texts := make([]string, len(e))
	for i, one := range e {
		texts[i] = one.Error()
	}
	return strings.Join(texts, "; ")
}

// Settings is what a plugin wants of the network once it is configured.
type Settings struct {
	// Bindings are the objects to read each epoch. Empty: all that match
	// Description.Objects.
	Bindings []Binding `json:"bindings,omitempty"`
	// Missing is what the network lacks. The plugin works all the same.
	Missing []MissingObject `json:"missing,omitempty"`
	// Plan is what to write before the first epoch, or nil. Its FromEpoch does
	// not count.
	Plan *Plan `json:"plan,omitempty"`
}

// Binding is an object of a device.
type Binding struct {
	Device string `json:"device"`
	Object string `json:"object"` // full P4Info name
}

// MissingObject is something that a plugin needs and the network lacks.
type MissingObject struct {
	Device      string `json:"device,omitempty"` // empty: no device has it
	Object      string `json:"object"`           // name or description
	Consequence string `json:"consequence,omitempty"`
}
