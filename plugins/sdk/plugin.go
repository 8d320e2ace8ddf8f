// SPDX-License-Identifier: Apache-2.0

// The interfaces between a plugin and the SDK.

package sdk

import (
	"context"

	"github.com/netsketch/netsketch/yang/table"
)

// ProtocolVersion is the version of the contract (package netsketch.plugin.v1)
// that this SDK speaks. The collector refuses a plugin of another version.
const ProtocolVersion = 1

// Plugin is a measurement algorithm.
type Plugin interface {
	// Describe says what the plugin is and publishes. It depends on nothing but
	// the binary and returns at once; it may be called several times, also
	// before anything else and in a process that is never configured.
	Describe() Description

	// Configure takes over configuration and network and returns what the
	// plugin wants of the network. It is called before the first Analyse and
	// again when either changes; state that still fits should be kept. An error
	// that names fields is a FieldErrors; after any error the earlier
	// configuration, if there was one, holds.
	Configure(ctx context.Context, config Config, network Network) (Settings, error)

	// Analyse turns one sealed epoch into results. The epoch, its cells
	// included, is the plugin's to keep or change. An error loses this epoch's
	// results and nothing else: the next epoch is delivered as usual.
	Analyse(ctx context.Context, epoch *Epoch) (*Results, error)
}

// Querier is a Plugin that can tell about one row at any time, from the newest
// epochs it has analysed.
type Querier interface {
	// Query returns tables that hold the row, or none when it cannot tell.
	// It may run beside Analyse.
	Query(ctx context.Context, row Watch) (tables []*table.Table, epoch uint64, err error)
}

// Watcher is a Plugin that wants to know at once when the set of watched rows
// changes. Others find the set in Epoch.Watched.
type Watcher interface {
	// WatchesChanged is given the whole set, sorted.
	WatchesChanged(ctx context.Context, watched []Watch)
}

// NetworkUpdater is a Plugin that takes changes of the network without being
// configured anew.
type NetworkUpdater interface {
	// NetworkChanged is given the whole model; epochs that follow are of it.
	NetworkChanged(ctx context.Context, network Network)
}

// Merger is a Plugin whose inputs add up: it reduces the epochs that several
// collectors gathered from disjoint parts of the network to one.
type Merger interface {
	// Merge returns one epoch that gives the same results as the parts would
	// together. It may run beside Analyse.
	Merge(ctx context.Context, parts []*Epoch) (*Epoch, error)
}

// Stateful is a Plugin that goes on after a restart where it was. The collector
// keeps the newest state and hands it to the next process; the plugin writes no file.
type Stateful interface {
	// SaveState returns what a new process needs to go on after the epoch that was
	// analysed last. It is called after each Analyse that succeeded, in the time that
	// the plugin has for the epoch, and never beside it; State.Epoch is filled in by
	// the SDK. A state without data, or an error, which is logged, leaves the collector
	// with the one before.
	SaveState() (State, error)
	// RestoreState takes up what an earlier process saved, perhaps of another version
	// of the plugin. It is called before the first Configure, and not at all when there
	// is nothing. After an error, which is logged, the plugin begins anew. What was
	// saved is known to be of the epoch State.Epoch and of an earlier time: the network
	// may have changed, and epochs may have passed.
	RestoreState(state State) error
}

// MaxState is the largest state, in bytes.
const MaxState = 1 << 20

// State is what a plugin wants to know again after a restart.
type State struct {
	// Epoch is the newest epoch that went into it.
	Epoch uint64
	// Version of the form that Data is in, the plugin's own count.
	Version uint32
	// Data is the plugin's own form, at most MaxState bytes.
	Data []byte
}

// Drainer is a Plugin that has something to finish before it is stopped.
type Drainer interface {
	// Drain returns when the plugin may be stopped. It may run beside Analyse.
	Drain(ctx context.Context) error
}

// Description is what a plugin says of itself.
type Description struct {
	// Name is short and unique: lower-case letters, digits and '-'.
	Name string `json:"name"`
	// Version is the plugin's own, for people: "1.2.0".
	Version string `json:"version"`
	// Summary is one sentence on what it measures.
	Summary string `json:"summary,omitempty"`
	// Programs are data-plane programs that carry what it reads.
	Programs []ProgramNeed `json:"programs,omitempty"`
	// Objects are what it reads on devices each epoch.
	Objects []ObjectNeed `json:"objects,omitempty"`
	// ConfigSchema is a JSON Schema (2020-12) of its configuration. With one
	// the collector refuses a configuration that does not fit, naming the
	// field, before the plugin sees it. Empty: anything goes.
	ConfigSchema string `json:"configSchema,omitempty"`
	// Modules are YANG modules it brings, besides those the collector knows.
	Modules []Module `json:"modules,omitempty"`
	// Lists are all lists it may publish; others are refused.
	Lists []List `json:"lists,omitempty"`
	// Capabilities are the optional interfaces it implements; the SDK fills
	// them in.
	Capabilities Capabilities `json:"capabilities"`
	// SDK names the SDK it was built with; the SDK fills it in.
	SDK string `json:"sdk,omitempty"`
}

// ProgramNeed names a P4 program that serves devices of a role.
type ProgramNeed struct {
	Role    string `json:"role,omitempty"` // "edge", "transit", …; empty: every device
	Program string `json:"program"`
}

// ObjectNeed selects objects of devices' pipelines: those that match every
// field that is set.
type ObjectNeed struct {
	// Name is the full P4Info name or the alias; '*' stands for any run of
	// characters. Empty: any name.
	Name string `json:"name,omitempty"`
	// Annotations that the object must have; an empty value means any value.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Role of the devices that need it; empty: every device.
	Role string `json:"role,omitempty"`
	// Optional: the plugin does without where it is missing.
	Optional bool `json:"optional,omitempty"`
}

// Module is a YANG module (RFC 7950).
type Module struct {
	Name string `json:"name"` // without revision
	Text string `json:"text"`
}

// List is a YANG list, or a container outside of lists, that a plugin publishes.
type List struct {
	// Path is the schema path without keys, with the module's name at the top:
	// "/netsketch-univmon:univmon/heavy-hitters/heavy-hitter".
	Path string `json:"path"`
	// Summary is one sentence on what a row is.
	Summary string `json:"summary,omitempty"`
	// Watchable: rows that are not published by default can be asked for.
	Watchable bool `json:"watchable,omitempty"`
}

// Capabilities are the optional parts of the contract that a plugin fulfils.
type Capabilities struct {
	Query          bool `json:"query"`
	Merge          bool `json:"merge"`
	Drain          bool `json:"drain"`
	Watch          bool `json:"watch"` // watched rows are published each epoch
	NetworkUpdates bool `json:"networkUpdates"`
	HostRole       bool `json:"hostRole"`
	State          bool `json:"state"`
}

// Watch is a row that somebody is interested in: a fully keyed path.
type Watch struct {
	// List is the schema path of the list.
	List string `json:"list"`
	// Target is a device's name, or empty for the collector itself.
	Target string `json:"target,omitempty"`
	// Keys has a value for every key leaf, in YANG's text form.
	Keys map[string]string `json:"keys"`
}
