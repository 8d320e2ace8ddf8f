// SPDX-License-Identifier: Apache-2.0

// The parameters and results of Configure.

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
	// JSON is a JSON object; empty if there is no configuration.
	JSON []byte
	// EpochLength is the duration of an epoch.
	EpochLength time.Duration
}

// Decode decodes the configuration into v, a pointer to a struct with json tags that already holds
// the defaults. An unknown key or a value of the wrong type is a FieldErrors.
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

// fieldErrors converts an error of the JSON decoder to an error that names the field.
func fieldErrors(err error) FieldErrors {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return FieldErrors{{Field: kind.Field, Message: fmt.Sprintf("is a JSON %s; expected %s", kind.Value,
			kind.Type)}}
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return FieldErrors{{Field: strings.Trim(name, `"`), Message: "is not a key of this plugin's configuration"}}
	}
	return FieldErrors{{Message: err.Error()}}
}

// FieldError is one error in a configuration.
type FieldError struct {
	// Field is the path of the field, with dots between names, as in "dimensions.0.key"; empty for
	// the whole configuration.
	Field string `json:"field"`
	// Message states the problem and what is expected.
	Message string `json:"message"`
}

func (e FieldError) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

// FieldErrors are the errors in a configuration, at least one.
type FieldErrors []FieldError

func (e FieldErrors) Error() string {
	texts := make([]string, len(e))
	for i, one := range e {
		texts[i] = one.Error()
	}
	return strings.Join(texts, "; ")
}

// Settings are what a configured plugin requests from the collector.
type Settings struct {
	// Bindings are the objects to read in each epoch. If empty, all objects that match
	// Description.Objects are read.
	Bindings []Binding `json:"bindings,omitempty"`
	// Missing lists needed objects that the network lacks. The plugin runs without them.
	Missing []MissingObject `json:"missing,omitempty"`
	// Plan is written before the first epoch; nil if there is no plan. Its FromEpoch is ignored.
	Plan *Plan `json:"plan,omitempty"`
	// BankEpochs is how many epochs a device counts in one bank, up to MaxBankEpochs; 0 means one. It
	// applies to devices whose program has more than two banks and no objects to read. Such a device
	// with n banks counts an epoch in bank Epoch.BankOf(number, n × BankEpochs) / BankEpochs.
	BankEpochs int `json:"bankEpochs,omitempty"`
	// Merge requests that each collector merge the cells of its devices. The plugin must be a Merger.
	Merge bool `json:"merge,omitempty"`
}

// MaxBankEpochs is the largest Settings.BankEpochs.
const MaxBankEpochs = 64

// Binding is an object of a device.
type Binding struct {
	Device string `json:"device"`
	Object string `json:"object"` // full P4Info name
}

// MissingObject is an object that a plugin needs and the network lacks.
type MissingObject struct {
	Device      string `json:"device,omitempty"` // empty if no device has the object
	Object      string `json:"object"`           // name or description of the object
	Consequence string `json:"consequence,omitempty"`
}
