// SPDX-License-Identifier: Apache-2.0

// Package score compares the published results of a plugin with the ground truth.
//
// A scenario reads an algorithm's results over gNMI, as any client does, and a Scorer arranges them
// in Tables: lists, views and rows. The algorithm's ground-truth function computes tables of the
// same shape from the packets that passed; it never uses the plugin's code. Measures and claims,
// declared in the Algorithm, compare the two. To add an algorithm, write its Algorithm in a package
// of its own and add it to scenario.Algorithms.
//
// A Scorer and its results belong to one goroutine.
package score

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Algorithm declares how the results of a plugin are scored.
type Algorithm struct {
	Plugin string // name of the plugin
	Root   string // container of all results
	// Marker is the leaf of the container Root/summary/state with the number of the newest epoch; "":
	// DefaultMarker.
	Marker string
	// ViewKeys are the keys of lists that name the View of a row: "node", or "node" and "dimension".
	// The other keys, without "dimension", name the row in its view.
	ViewKeys []string
	// Summary is the list in which every view with results has one row. Status is the leaf of the list
	// that reads "COMPLETE" if nothing is missing; "" for none.
	Summary, Status string
	// Views are the views that must have results in every epoch; nil for the views that had results
	// before.
	Views func(*Setting) []View
	// Due returns the views that must have results from an epoch on; nil: those with a row in Summary.
	Due func(published, truth Tables) []View
	// GroundTruth checks the plugin's configuration and returns the function that computes the
	// ground truth of an epoch.
	GroundTruth func(*Setting) (func(*Epoch) Tables, error)
	// Rule returns the rule for the flows of packets. A nil function or a nil rule stands for the rule
	// of the programs.
	Rule func(*Setting) (truth.Rule, error)
	// Header is the header that hosts with the plugin's settings put into packets; nil: no header.
	Header func(*Setting) (*header.Layout, error)
	// BankEpochs is how many epochs switches count in a bank; nil: one.
	BankEpochs func(*Setting) (int, error)
	Measures   []Measure
	// Lost names the measure for the share of views without a complete result.
	Lost string
	// Settles is the number of epochs in which the row of each view in Summary should be complete at
	// least once, by its leaf status; 0: any number. A run without one fails, unless it bounds Lost.
	Settles int
	Claims  []Claim
	// FalseClaims names the measure for the number of claims in an epoch that are not true; "" for
	// none.
	FalseClaims string
	// RunMeasures are measures of a whole run.
	RunMeasures map[string]func(*History) (Total, bool)
	// Report names the lists whose rows are part of the report.
	Report []string
	Top    []Top
	Screen Screen
	// Watch returns rows to subscribe to, for results that are published only on request. It is
	// called in every epoch until it returns some.
	Watch func(*Epoch) []*gnmi.Path
}

// MeasureNames returns the measures that a scenario can bound.
func (a *Algorithm) MeasureNames() []string {
	names := []string{a.Lost}
	for _, m := range a.Measures {
		names = append(names, m.Name)
	}
	if a.FalseClaims != "" {
		names = append(names, a.FalseClaims)
	}
	for name := range a.RunMeasures {
		names = append(names, name)
	}
	return names
}

// Shares returns the measures whose values are between 0 and 1: the measures of counts, and Lost.
func (a *Algorithm) Shares() []string {
	names := []string{a.Lost}
	for i := range a.Measures {
		m := &a.Measures[i]
		leaves := Leaves{}
		for _, leaf := range m.Leaves {
			leaves[leaf] = Value{Number: 1}
		}
		same := Rows{"": &Row{Leaves: leaves}}
		if s, _ := m.Stat(m, same, same); s.pool != nil {
			names = append(names, m.Name)
		}
	}
	return names
}

// CheckBounds returns an error if bounds of a measure hold for all its values, or for none. share
// names one more measure between 0 and 1, which every scenario has.
func CheckBounds(algorithms []Algorithm, share, measure string, atLeast, atMost *float64) error {
	shares := []string{share}
	for i := range algorithms {
		shares = append(shares, algorithms[i].Shares()...)
	}
	for _, bound := range []*float64{atLeast, atMost} {
		switch {
		case bound == nil:
		case *bound < 0:
			return fmt.Errorf("%v bounds nothing: no measure is negative; expected a number from 0 on", *bound)
		case *bound > 1 && slices.Contains(shares, measure):
			return fmt.Errorf("%s is a share, so that it is at most 1; expected a number from 0 to 1, found %v", measure, *bound)
		}
	}
	if atLeast != nil && atMost != nil && *atLeast > *atMost {
		return fmt.Errorf("no value is at least %v and at most %v", *atLeast, *atMost)
	}
	return nil
}

// Setting describes the run that is scored.
type Setting struct {
	Config  json.RawMessage         // configuration of the plugin; nil if the scenario has none
	Epoch   time.Duration           // length of an epoch
	Edges   []string                // switches with hosts
	Home    func(netip.Addr) string // the edge switch of an address, "" for an unknown one
	Changes []int                   // epochs of the run, from 0, in which traffic or faults change
	Watch   int                     // number of flows to watch
}

// Epoch is one epoch: the published results and the ground truth.
type Epoch struct {
	*Setting
	Number    uint64
	Index     int    // index of the epoch in the run, from 0
	Status    string // complete, partial or lost
	Leaves    []Leaf
	Truth     *Truth
	Before    *Truth // ground truth of the epoch before; nil if unknown
	Published Tables // rows of this epoch only; set by the Scorer
}

// Truth is the ground truth of an epoch.
type Truth struct {
	// Devices are the switches whose bank was flipped at both ends of the epoch; if epochs share a
	// bank, at the end of the epoch and at the beginning of the first one in the bank.
	Devices map[string]*Device
	// Complete reports that Devices has all switches with banks.
	Complete bool
	// Rerouted reports that routes changed as planned, so that other paths of flows are no fault.
	Rerouted bool
	// Network counts the packets that entered the network; nil unless Devices has all edge switches.
	// Lost counts the entered packets that did not leave.
	Network, Lost truth.Counts
	// Journal has the packets that carry the epoch; nil if hosts do not mark packets.
	Journal *truth.JournalEpoch
	// Stays has the packets that arrived at hosts with the role sketchint; nil without it.
	Stays *truth.StaysEpoch
}

// Device counts the packets that one switch received in the epoch that it stamped.
type Device struct {
	All     truth.Counts // 5-tuples of all packets that arrived
	Entered truth.Counts // 5-tuples of the packets that arrived from hosts
	Lost    truth.Counts // 5-tuples of the packets that entered and did not leave the network
	// Departed are the packets of All that left the switch, and Losses the packets of Entered by what
	// lost them; nil unless packets are tracked.
	Departed map[flow.Key]truth.Departures
	Losses   map[truth.Loss]uint64
}

// Measure compares a list of the published results with the ground truth, view by view.
type Measure struct {
	Name   string
	List   string
	Stat   Stat
	Leaves []string
	// Truth is the table of the ground truth to compare with; "" for the table of List.
	Truth string
	// Where restricts the published rows to those with these texts, by leaf.
	Where map[string]string
	// Tolerance is the relative error up to which values of leaves are equal.
	Tolerance float64
	// Dimensions are the dimensions of which the list must have rows in a run, if the ground truth
	// has flows.
	Dimensions []string
	// Dimension names the dimension under which a view counts; ok is false for views that do not
	// count. nil stands for the view's own dimension, of views with a row in Summary.
	Dimension func(*Epoch, View) (name string, ok bool)
}

// Claim is what published rows state about their true values.
type Claim struct {
	List string
	// Quality is the leaf with the quality of the leaves; "" if every row is exact in the leaves that
	// it has.
	Quality string
	// Leaves must be what the quality says: the true value within the relative Tolerance, or a bound
	// of it. The leaves LEAF-low and LEAF-high, if a row has them, must be bounds.
	Leaves    []string
	Tolerance float64
	// Of names a list, if the claim is about all rows of it in the same view: no row is missing, and
	// none is false.
	Of string
}

// Top is a table of the largest true rows of a list, with the published values next to them.
type Top struct {
	Title string // %s is replaced by the view
	List  string
	Leaf  string
	Rows  int // number of rows in the report
	Shown int // on the screen
}

// Screen is the live view of an algorithm.
type Screen struct {
	Head     func(*Canvas, *History) // above the table; may be nil
	Columns  []Column                // columns of the table with a row for each view
	Rows     int                     // at most; 0 for all
	Commands []string                // lines that read the results; %s is replaced by the gNMI address
}

// Column is a column of the table of views.
type Column struct {
	Head  string
	Width int // negative: left-aligned
	Cell  func(*Result, View) string
}

// History is a run so far.
type History struct {
	*Setting
	Results []*Result // results in order; never empty
}

// Newest returns the result of the newest epoch.
func (h *History) Newest() *Result { return h.Results[len(h.Results)-1] }

// Result is one epoch compared with the ground truth.
type Result struct {
	Index  int    `json:"index"` // index of the epoch in the run, from 0
	Status string `json:"status"`
	// Scores are the measures of this epoch.
	Scores []Score `json:"scores"`
	// FalseClaims are claims of exactness that are not true.
	FalseClaims []string `json:"false_claims,omitempty"`
	// Missing are views without a complete result; Views counts all that should have one.
	Missing []View `json:"missing,omitempty"`
	Views   int    `json:"views"`
	// Published and Truth hold the lists that are part of the report, by list, view, row and leaf.
	Published Tables    `json:"published"`
	Truth     Tables    `json:"true"`
	Top       []TopRows `json:"top,omitempty"`
}

// Score is a measure in one view of one epoch.
type Score struct {
	Measure   string     `json:"measure"`
	Dimension string     `json:"dimension,omitempty"`
	View      View       `json:"view"`
	Value     float64    `json:"value"`
	Counts    *Confusion `json:"counts,omitempty"`
	Figure    *Figure    `json:"figure,omitempty"`
	// Near has the Counts of rows near a threshold alone.
	Near *Confusion `json:"near,omitempty"`
	// False are the keys of published rows that are not true, and Missed the keys of true rows that
	// are not published. Rows near a threshold are in neither.
	False, Missed []string `json:"-"`
	// Reported are the keys of all published rows. Actual are the keys of the true rows and of the
	// rows near a threshold. Both are set only for F1.
	Reported, Actual map[string]bool `json:"-"`

	pool  func(Confusion) float64 // nil: values are averaged
	least bool                    // the least value of all is the worst, as it is with a pool
}

// TopRows are the largest rows of a view.
type TopRows struct {
	List string       `json:"list"`
	View View         `json:"view"`
	Rows []FlowFigure `json:"rows"`
}

// Score returns a measure in a view, nil if it was not measured there.
func (r *Result) Score(measure string, view View) *Score {
	for i := range r.Scores {
		if s := &r.Scores[i]; s.Measure == measure && s.View == view {
			return s
		}
	}
	return nil
}

// Figure returns a leaf of a view's only row with its true value; ok is false if either is unknown.
func (r *Result) Figure(list string, view View, leaf string) (f Figure, ok bool) {
	measured, ok := r.Published.Row(list, view, "").Number(leaf)
	actual, known := r.Truth.Row(list, view, "").Number(leaf)
	return Figure{measured, actual}, ok && known
}

// Scored reports whether a view has results and a ground truth.
func (r *Result) Scored(list string, view View) bool {
	return r.Published.Row(list, view, "") != nil && r.Truth.Row(list, view, "") != nil
}
