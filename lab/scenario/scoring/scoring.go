// SPDX-License-Identifier: Apache-2.0

// Package scoring declares how the lists of a user's own plugin are compared with the ground truth.
package scoring

import (
	"slices"
	"strings"

	"github.com/netsketch/netsketch/lab/scenario/groundtruth"
	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Scoring declares how the lists of a user's own plugin are compared with the ground truth.
type Scoring struct {
	// Plugin is the plugin's name.
	Plugin string `yaml:"plugin" required:"the name of a plugin of algorithms"`
	// Root is the container of all results of the plugin. Its summary/state has the leaf last-epoch.
	Root string `yaml:"root" required:"the name of the plugin's top container"`
	// Summary is a list with the key node, which has one row for each switch.
	Summary string `yaml:"summary" required:"the path below root of a list with a row for each switch"`
	// Network states that the results are those of the network, not of single switches: the key node
	// is "network", and the packets are those that entered the network; if only hosts measure, those
	// that arrived at hosts.
	Network bool `yaml:"network" default:"false"`
	// Measures compare lists with the ground truth.
	Measures []Measure `yaml:"measures"`
}

// Measure compares a list of a plugin with a named ground truth, at each switch. The list has
// the keys node and flow, and dimension if there are Dimensions. A flow is the text of its
// fields, joined by commas.
type Measure struct {
	// Name is the name of the measure, for expect and the report.
	Name string `yaml:"name" form:"name" required:"a name of your choice"`
	// List is the name of the list.
	List string `yaml:"list" required:"the name of a list"`
	// Stat compares the flows of the list (f1, precision, recall) or the values of a leaf
	// (relative-error, found-error, wmre, correct, found-correct).
	Stat string `yaml:"stat" required:"f1, precision, recall, relative-error, found-error, wmre, correct or found-correct"`
	// Truth is what is known about each flow: a name of groundtruth.Named, or flow-paths.
	Truth string `yaml:"truth" required:"what the lab knows about each flow, such as flow-sizes"`
	// Leaf is the leaf with the value.
	Leaf string `yaml:"leaf"`
	// Tolerance is the relative error up to which a value is correct.
	Tolerance float64 `yaml:"tolerance" default:"0" range:"0..1"`
	// Dimensions are the keys of flows, such as src or src+dst-port; 5-tuple if empty.
	Dimensions []string `yaml:"dimensions"`
	// AtLeast is the value from which on a flow should be in the list.
	AtLeast uint64 `yaml:"at-least"`
}

// Stats are the values of Measure.Stat, and Values those that compare a leaf.
var (
	Stats = map[string]score.Stat{"f1": score.F1, "precision": score.Precision, "recall": score.Recall,
		"relative-error": score.RelativeError, "found-error": score.FoundError, "wmre": score.WMRE,
		"correct": score.Correct, "found-correct": score.FoundCorrect}
	Values = []string{"relative-error", "found-error", "wmre", "correct", "found-correct"}
)

// Algorithm returns the plugin's scoring. If all switches run one program, each must have results;
// otherwise, switches without results are not compared.
func (c *Scoring) Algorithm(all bool) score.Algorithm {
	summary := c.Summary[strings.LastIndexByte(c.Summary, '/')+1:]
	a := score.Algorithm{Plugin: c.Plugin, Root: c.Root, ViewKeys: []string{"node", "dimension"}, Summary: summary,
		Lost:   c.Plugin + "-lost",
		Report: []string{summary}}
	a.Due = func(published, truth score.Tables) []score.View {
		if all || c.Network {
			return truth.Views(summary)
		}
		return slices.DeleteFunc(published.Views(summary), func(v score.View) bool { return v.Device == score.Network })
	}
	for _, m := range c.Measures {
		a.Measures = append(a.Measures, score.Measure{Name: m.Name, List: m.List, Stat: some(Stats[m.Stat]),
			Leaves: []string{m.Leaf}, Truth: m.table(), Tolerance: m.Tolerance, Dimensions: m.Dimensions,
			Dimension: func(e *score.Epoch, v score.View) (string, bool) {
				measured := e.Published.Row(summary, score.View{Device: v.Device}, "") != nil || len(e.Published[m.List][v]) > 0
				return v.Dimension, all || c.Network || measured
			}})
	}
	a.GroundTruth = func(*score.Setting) (func(*score.Epoch) score.Tables, error) {
		return func(e *score.Epoch) score.Tables {
			t := score.Tables{}
			devices := e.Truth.Devices
			if c.Network {
				devices = nil
				switch network := e.Truth.Network; {
				case groundtruth.OnlyHosts(e.Truth):
					devices = map[string]*score.Device{score.Network: {All: e.Truth.Stays.Packets}}
				case network != nil:
					devices = map[string]*score.Device{score.Network: {All: network, Lost: e.Truth.Lost}}
				}
			}
			through := groundtruth.Passages(e.Truth)
			for name, d := range devices {
				t.Rows(summary, score.View{Device: name}).Add("", score.Leaves{})
				for i := range c.Measures {
					c.Measures[i].add(t, name, &groundtruth.Truth{Device: d, Name: name, Through: through})
				}
			}
			return t
		}, nil
	}
	return a
}

// some returns a stat that skips a view if the list has no flow there and should have none.
func some(stat score.Stat) score.Stat {
	return func(m *score.Measure, published, actual score.Rows) (score.Score, bool) {
		s, ok := stat(m, published, actual)
		return s, ok && (s.Counts == nil || *s.Counts != score.Confusion{})
	}
}

// Tracked reports whether a measure needs the path of each packet.
func (c Scoring) Tracked() bool {
	return slices.ContainsFunc(c.Measures,
		func(m Measure) bool { return m.Truth == groundtruth.Latencies || m.Truth == groundtruth.Paths })
}

// table is the name of the measure's ground truth among the tables.
func (m *Measure) table() string { return "truth of " + m.Name }

// add adds the true rows of a switch.
func (m *Measure) add(t score.Tables, device string, d *groundtruth.Truth) {
	if m.Truth == groundtruth.Paths {
		rows := t.Rows(m.table(), score.View{Device: device})
		for k := range d.All {
			if path := d.Path(k); path != "" {
				rows.Add(k.String(), score.Leaves{m.Leaf: score.Text(path)})
			}
		}
		return
	}
	dimensions := m.Dimensions
	if len(dimensions) == 0 {
		dimensions = []string{""}
	}
	for _, dimension := range dimensions {
		fields, err := flow.ParseFields(dimension)
		if err != nil {
			fields = flow.FiveTuple // "": check refuses others
		}
		rows := t.Rows(m.table(), score.View{Device: device, Dimension: dimension})
		for key, n := range groundtruth.Named[m.Truth](d, fields) {
			rows.Add(key.String(), score.Leaves{m.Leaf: score.Number(n)}).Unwanted = n < m.AtLeast
		}
	}
}
