// SPDX-License-Identifier: Apache-2.0

// The parameters and results of Configure.

package sdk

import (
	"time"

	"github.com/netsketch/netsketch/settings"
)

// Config is a plugin's part of the collector's configuration.
type Config struct {
	// JSON is a JSON object; empty if there is no configuration.
	JSON []byte
	// EpochLength is the duration of an epoch.
	EpochLength time.Duration
}

// Decode sets *v, a struct, to the defaults of its tags, and reads the configuration over them. The
// tags declare the keys, as package settings describes. If *v has a method Validate() error, Decode
// calls it when all keys could be read. Errors in values are a settings.KeyErrors.
func (c Config) Decode(v any) error { return settings.DecodeJSON(c.JSON, v) }

// Settings are a configured plugin's requests to the collector.
type Settings struct {
	// Bindings are the objects to read in each epoch. If empty, all objects that match
	// Description.Objects are read.
	Bindings []Binding `json:"bindings,omitempty"`
	// Missing lists needed objects that the network lacks. The plugin runs without them.
	Missing []MissingObject `json:"missing,omitempty"`
	// Plan is written before the first epoch; nil if there is no plan. Its FromEpoch is ignored.
	Plan *Plan `json:"plan,omitempty"`
	// BankEpochs is the number of epochs that a device counts in one bank, up to MaxBankEpochs; 0
	// means one. It applies to devices whose program has more than two banks and no objects to read.
	// Such a device with n banks counts an epoch in bank Epoch.BankOf(number, n × BankEpochs) /
	// BankEpochs.
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
