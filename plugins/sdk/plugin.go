// SPDX-License-Identifier: Apache-2.0

// The interfaces between a plugin and the SDK.

package sdk

import (
	"context"

	"github.com/netsketch/netsketch/yang/table"
)

// ProtocolVersion is the version of the contract (package netsketch.plugin.v1) that this SDK
// implements. The collector refuses a plugin of another version.
const ProtocolVersion = 1

// Plugin is a measurement algorithm.
type Plugin interface {
	// Describe returns the objects that the plugin reads and the lists that it publishes. The result
	// depends only on the binary. Describe returns at once and may be called several times, also in a
	// process that is never configured.
	Describe() Description

	// Configure applies a configuration and a network, and returns the objects to read and a first
	// plan. It is called before the first Analyze and again when the configuration or the network
	// changes; the plugin keeps state that remains valid. An error about configuration keys is a
	// settings.KeyErrors. After any error the previous configuration, if any, stays in force.
	Configure(ctx context.Context, config Config, network Network) (Settings, error)

	// Analyze returns the results of one sealed epoch. The plugin may keep and change the epoch and
	// its cells. After an error the results of this epoch are missing; the next epoch is delivered
	// as usual.
	Analyze(ctx context.Context, epoch *Epoch) (*Results, error)
}

// Querier is a Plugin that answers queries for single rows from the newest epochs that it has
// analyzed.
type Querier interface {
	// Query returns tables that contain the row, and the epoch that they belong to. It returns no
	// table if the plugin has no data for the row, and an error if the request is invalid. It may
	// run concurrently with Analyze.
	Query(ctx context.Context, row RowKey) (tables []*table.Table, epoch uint64, err error)
}

// NetworkUpdater is a Plugin that takes network changes without another call of Configure.
type NetworkUpdater interface {
	// NetworkChanged receives the whole network model, which applies to all following epochs.
	NetworkChanged(ctx context.Context, network Network)
}

// Merger is a Plugin that merges cells of several devices. If several collectors share a network,
// each merges the cells of its own devices before it sends them to the collector that analyzes the
// epoch.
type Merger interface {
	// Merge returns a part of an epoch, the devices that one collector has read, with fewer cells.
	// Analyze, possibly in another process with the same configuration, must return the same results
	// with the merged part. Objects may have other cells than the read objects; objects of other
	// devices, or with other names, are dropped. The devices of the result either all arrive at
	// Analyze or are all missing. Merge may change the part and its cells. It is called if
	// Settings.Merge is set, and may run concurrently with Analyze.
	Merge(ctx context.Context, part *Epoch) (*Epoch, error)
}

// Stateful is a Plugin that continues after a restart. The collector keeps its newest state and
// passes it to the next process; the plugin writes no file.
type Stateful interface {
	// SaveState returns the state after the newest analyzed epoch. It is called after each successful
	// Analyze, within the deadline of the epoch and never concurrently with Analyze. The SDK sets
	// State.Epoch. If the state has no data or SaveState fails, the collector keeps the previous
	// state; an error is logged.
	SaveState() (State, error)
	// RestoreState restores the state that an earlier process saved, possibly with another version of
	// the plugin. It is called before the first Configure if there is saved state. If it fails, the
	// error is logged, and the plugin starts without state. Since State.Epoch, epochs may have passed
	// and the network may have changed.
	RestoreState(state State) error
}

// MaxState is the largest state, in bytes.
const MaxState = 16 << 20

// State is the data that a plugin saves for its next process.
type State struct {
	// Epoch is the newest epoch that the state includes.
	Epoch uint64
	// Version is the version of the format of Data; the plugin defines it.
	Version uint32
	// Data is in the plugin's own format, at most MaxState bytes.
	Data []byte
}

// Drainer is a Plugin that finishes work before it is stopped.
type Drainer interface {
	// Drain returns when the plugin may be stopped. It receives no further epochs.
	Drain(ctx context.Context) error
}

// Description describes a plugin.
type Description struct {
	// Name is short and unique: lower-case letters, digits and '-', at most 63.
	Name string `json:"name"`
	// Version is the plugin's own version, such as "1.2.0".
	Version string `json:"version"`
	// Summary describes the plugin's measurement in one sentence.
	Summary string `json:"summary,omitempty"`
	// Programs are data-plane programs that contain the objects that the plugin reads.
	Programs []ProgramNeed `json:"programs,omitempty"`
	// Objects are the objects that the plugin reads from devices in each epoch.
	Objects []ObjectNeed `json:"objects,omitempty"`
	// ConfigSchema is a JSON Schema (2020-12) of the plugin's configuration; sdktest.ConfigSchema
	// generates it. If a configuration does not fit, the collector refuses it, with the name of the
	// field, before the plugin receives it. If empty, any configuration is passed on.
	ConfigSchema string `json:"configSchema,omitempty"`
	// Modules are the YANG modules that the plugin brings.
	Modules []Module `json:"modules,omitempty"`
	// Lists are all lists that the plugin may publish; the collector refuses tables of other lists.
	Lists []List `json:"lists,omitempty"`
	// Capabilities are the optional interfaces that the plugin implements. The SDK sets them.
	Capabilities Capabilities `json:"capabilities"`
	// SDK is the name of the SDK that the plugin was built with. The SDK sets it.
	SDK string `json:"sdk,omitempty"`
}

// ProgramNeed names a P4 program for devices of a role.
type ProgramNeed struct {
	Role    string `json:"role,omitempty"` // "edge", "transit", …; empty: every device
	Program string `json:"program"`
}

// ObjectNeed selects objects of pipelines. An object matches if it matches every field that is set.
type ObjectNeed struct {
	// Name is the full P4Info name or the alias; '*' matches any run of characters. An empty name
	// matches every object.
	Name string `json:"name,omitempty"`
	// Annotation is the name of an annotation that the object must have; empty if it needs none.
	Annotation string `json:"annotation,omitempty"`
	// Values are values that this annotation must have, by key; an empty value matches any value.
	Values map[string]string `json:"values,omitempty"`
	// Role restricts the need to devices with this role; empty means every device.
	Role string `json:"role,omitempty"`
	// Optional is set if the plugin works without the object.
	Optional bool `json:"optional,omitempty"`
	// Shared is set if the plugin reads along with another plugin. Without it, the collector refuses
	// two plugins that read the same object.
	Shared bool `json:"shared,omitempty"`
}

// Module is a YANG module (RFC 7950).
type Module struct {
	Name string `json:"name"` // without the revision
	Text string `json:"text"`
}

// List is a YANG list, or a container outside of lists, that a plugin publishes.
type List struct {
	// Path is the schema path without keys, with the module's name at the top:
	// "/netsketch-univmon:univmon/heavy-hitters/heavy-hitter".
	Path string `json:"path"`
	// Summary is one sentence about a row.
	Summary string `json:"summary,omitempty"`
	// Watchable is set if clients can subscribe to and query rows that are not published by default.
	Watchable bool `json:"watchable,omitempty"`
}

// Capabilities are the optional parts of the contract that a plugin implements.
type Capabilities struct {
	Query bool `json:"query"`
	Merge bool `json:"merge"`
	Drain bool `json:"drain"`
	// the plugin has watchable lists, and publishes their watched rows in each epoch
	Watch          bool `json:"watch"`
	NetworkUpdates bool `json:"networkUpdates"`
	State          bool `json:"state"`
}

// RowKey identifies one row of a list by all of its keys.
type RowKey struct {
	// List is the schema path of the list.
	List string `json:"list"`
	// Target is the gNMI target: a device's name, or empty for the collector.
	Target string `json:"target,omitempty"`
	// Keys has a value for every key leaf, in YANG's text form.
	Keys map[string]string `json:"keys"`
}
