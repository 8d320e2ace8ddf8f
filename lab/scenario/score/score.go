// SPDX-License-Identifier: Apache-2.0

// Package score is what the scoring of every algorithm has in common: what a scorer is, how what it
// finds in an epoch is pooled into the measures of a run, and how it is shown.
//
// A scenario reads an algorithm's results over gNMI, as any client does, and hands them to the
// algorithm's Scorer together with the exact truth of the epoch. An algorithm is added by an
// Algorithm in a package of its own and a line in the list that the scenario goes by; nothing else
// knows what it measures.
//
// A Scorer and what it returns are for one goroutine.
package score

import (
	"encoding/json"
	"net/netip"
	"time"

	"github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/lab/plot"
	"github.com/netsketch/netsketch/lab/truth"
)

// Network is the device of results for the network as a whole.
const Network = "network"

// Algorithm says how the results of a plugin are scored.
type Algorithm struct {
	// Plugin is the plugin's name.
	Plugin string
	// Measures are what a scenario can bound.
	Measures []string
	// New begins the scoring of a run. The error is about the plugin's configuration.
	New func(Setting) (Scorer, error)
}

// Setting is the run that is scored.
type Setting struct {
	// Config is the plugin's configuration; nil where the scenario has none.
	Config json.RawMessage
	// Edges are the switches that hosts are attached to.
	Edges []string
	// Home is the one of them that an address is attached to, "" when none is.
	Home func(netip.Addr) string
	// Changes are the epochs of the run, from 0, in which traffic or faults change.
	Changes []int
	// Watch is of how many flows the sizes are to be asked for.
	Watch int
}

// Scorer scores the epochs of a run, in their order.
type Scorer interface {
	// Subtrees are the gNMI paths, by the names of their elements, that Score needs.
	Subtrees() [][]string
	// Marker is the path of a leaf that holds the number of the newest epoch with results.
	Marker() []string
	// Score sets what was read beside the truth.
	Score(*Epoch) (Result, error)
	// Totals are measures of the run so far that are no pool of the epochs'.
	Totals() []Total
	// Draw shows the newest epoch.
	Draw(*Canvas)
	// Commands are lines that read the results of a collector that serves gNMI at an address.
	Commands(addr string) []string
}

// Watcher is a Scorer of an algorithm that tells some rows only when they are asked for.
type Watcher interface {
	// Watch are the rows to subscribe to from now on, once they are known; nil before and afterwards.
	Watch() []*gnmi.Path
}

// Result is an epoch beside the truth. It marshals to JSON.
type Result interface {
	// Samples are what the epoch adds to the measures.
	Samples() []Sample
	// Missing is how many of how many results are not there.
	Missing() (n, of int)
}

// Figures are the charts of a run, from above to below, and their numbers.
type Figures struct {
	Title   string
	Text    string // of the page: what is shown, what it is compared with
	Charts  []plot.Chart
	Columns []string
	Rows    [][]string
}

// Illustrator is a Scorer that draws figures of a run.
type Illustrator interface {
	Figures() Figures
}

// Epoch is an epoch's results and its truth.
type Epoch struct {
	Number uint64
	Index  int    // in the run, from 0
	Status string // complete, partial or lost
	// Collection is how long the read-out took, Analysis the plugin, of real time on every clock.
	Collection, Analysis time.Duration
	Leaves               []Leaf
	Truth                Truth
}

// Leaf is a leaf as read.
type Leaf struct {
	Path []*gnmi.PathElem
	At   time.Time
	// Number is a numeric value, and a boolean as 0 or 1; Text is that of another.
	Number float64
	Text   string
}

// Truth is what really happened in an epoch.
type Truth struct {
	// Devices are the switches whose bank was flipped at both ends of the epoch.
	Devices map[string]*Device
	// Complete says that these are all switches that have banks.
	Complete bool
	// Network is what entered, nil unless all edge switches are among Devices; Lost is what of it did
	// not leave.
	Network, Lost truth.Counts
}

// Device is what a switch saw in the epoch that it had stamped.
type Device struct {
	All     truth.Counts // 5-tuples of all packets that arrived
	Entered truth.Counts // from hosts
	Lost    truth.Counts // of those that entered, what did not leave the network
}
