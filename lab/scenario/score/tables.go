// SPDX-License-Identifier: Apache-2.0

package score

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/sketch/flow"
)

// Network is the device of results about the whole network.
const Network = "network"

// View names what rows are about: a switch or the network and, in lists that have it, a dimension.
type View struct{ Device, Dimension string }

// String returns "leaf1 src".
func (v View) String() string { return strings.TrimSpace(v.Device + " " + v.Dimension) }

// MarshalText makes a view the key of a JSON object.
func (v View) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Value is the value of a leaf: a text, or a number. Booleans are 0 and 1.
type Value struct {
	Number float64
	Text   string
}

// MarshalJSON writes the text if there is one, the number otherwise.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.Text != "" {
		return json.Marshal(v.Text)
	}
	return json.Marshal(v.Number)
}

// Number is the value of a numeric leaf.
func Number[N int | uint64 | float64](x N) Value { return Value{Number: float64(x)} }

// Text is the value of a leaf with a text.
func Text(s string) Value { return Value{Text: s} }

// Leaves are the values of a row by the names of their leaves.
type Leaves map[string]Value

// Row is a row of a list.
type Row struct {
	Leaves
	// Unwanted marks a row of the ground truth that the list should not hold. Its values are
	// compared if the list holds it.
	Unwanted bool
	// Optional marks a row of the ground truth that the list may or may not hold.
	Optional bool
	// Near marks a row whose value is within 1.5 times of a threshold (Margin).
	Near bool
}

// MarshalJSON writes the leaves.
func (r *Row) MarshalJSON() ([]byte, error) { return json.Marshal(r.Leaves) }

// Number returns a numeric leaf; ok is false if the row or the leaf does not exist.
func (r *Row) Number(leaf string) (x float64, ok bool) {
	if r == nil {
		return 0, false
	}
	v, ok := r.Leaves[leaf]
	return v.Number, ok
}

// Value returns a numeric leaf, 0 if the row or the leaf does not exist.
func (r *Row) Value(leaf string) float64 {
	x, _ := r.Number(leaf)
	return x
}

// Text returns the text of a leaf, "" if the row or the leaf does not exist.
func (r *Row) Text(leaf string) string {
	if r == nil {
		return ""
	}
	return r.Leaves[leaf].Text
}

// Is reports whether a boolean leaf is true.
func (r *Row) Is(leaf string) bool {
	x, ok := r.Number(leaf)
	return ok && x == 1
}

// Margin is the ratio up to which a value is near a threshold.
const Margin = 1.5

// Near reports whether a value is near a threshold.
func Near(value, threshold float64) bool {
	return value >= threshold/Margin && value < threshold*Margin
}

// Rows are the rows of one view, such as the flows of one switch, by the keys that the view leaves
// open. Several keys are joined with "/", sorted by name. A view without open keys has one row, "".
type Rows map[string]*Row

// where returns the rows with the given texts, by leaf.
func (r Rows) where(texts map[string]string) Rows {
	if texts == nil {
		return r
	}
	out := maps.Clone(r)
	maps.DeleteFunc(out, func(_ string, row *Row) bool {
		for leaf, text := range texts {
			if row.Text(leaf) != text {
				return true
			}
		}
		return false
	})
	return out
}

// Add adds a row.
func (r Rows) Add(key string, leaves Leaves) *Row {
	r[key] = &Row{Leaves: leaves}
	return r[key]
}

// Tables are rows by list (or container) and view. The published results and the ground truth have
// this shape.
type Tables map[string]map[View]Rows

// Rows returns the rows of a view, made if they do not exist.
func (t Tables) Rows(list string, view View) Rows {
	if t[list] == nil {
		t[list] = map[View]Rows{}
	}
	rows := t[list][view]
	if rows == nil {
		rows = Rows{}
		t[list][view] = rows
	}
	return rows
}

// Row returns a row, nil if it does not exist.
func (t Tables) Row(list string, view View, key string) *Row { return t[list][view][key] }

// Views returns the views of a list in order.
func (t Tables) Views(list string) []View {
	return slices.SortedFunc(maps.Keys(t[list]), compareViews)
}

func compareViews(a, b View) int { return strings.Compare(a.String(), b.String()) }

// only returns the tables of some lists.
func (t Tables) only(lists []string) Tables {
	out := Tables{}
	for _, list := range lists {
		if t[list] != nil {
			out[list] = t[list]
		}
	}
	return out
}

// Leaf is one leaf as read over gNMI.
type Leaf struct {
	Path []*gnmi.PathElem
	At   time.Time
	Value
}

// Settled is the container of results of an earlier epoch, which are final.
const Settled = "settled"

// DefaultMarker is the leaf of a plugin's summary with the number of the newest epoch.
const DefaultMarker = "last-epoch"

// Read arranges the leaves of one epoch: …/LIST[keys]/state/LEAF and …/CONTAINER/state/LEAF. Lists
// below the container Settled are named settled/LIST. If the leaf marker of the container summary
// has the number of another epoch, Read drops all other lists. viewKeys are the keys that name
// views. A row whose key flow is no flow of its dimension is an error: it could be compared with
// nothing.
func Read(leaves []Leaf, marker string, epoch uint64, viewKeys []string) (Tables, error) {
	t := Tables{}
	for i := range leaves {
		p := leaves[i].Path
		if len(p) < 3 || p[len(p)-2].GetName() != "state" {
			continue // the key leaves next to the state container
		}
		entry := p[len(p)-3]
		view, key := keysOf(entry.GetKey(), viewKeys)
		name := entry.GetName()
		if len(p) > 4 && p[1].GetName() == Settled {
			name = Settled + "/" + name
		}
		rows := t.Rows(name, view)
		if rows[key] == nil {
			if err := checkFlow(entry.GetKey()); err != nil {
				return nil, fmt.Errorf("score: list %s: %w", name, err)
			}
			rows[key] = &Row{Leaves: Leaves{}}
		}
		rows[key].Leaves[p[len(p)-1].GetName()] = leaves[i].Value
	}
	if t.Row("summary", View{Device: Network}, "").Value(marker) != float64(epoch) {
		maps.DeleteFunc(t, func(name string, _ map[View]Rows) bool { return !strings.HasPrefix(name, Settled) })
	}
	return t, nil
}

// checkFlow returns an error if the key flow of a list entry is no flow of its dimension.
func checkFlow(keys map[string]string) error {
	text, ok := keys["flow"]
	if !ok {
		return nil
	}
	fields, err := flow.FiveTuple, error(nil)
	if dimension, ok := keys["dimension"]; ok {
		if fields, err = flow.ParseFields(dimension); err != nil {
			return err
		}
	}
	if _, err := flow.Parse(fields, text); err != nil {
		return fmt.Errorf("flow %q: %w", text, err)
	}
	return nil
}

// keysOf splits the keys of a list entry. Entries without a node are about the network.
func keysOf(keys map[string]string, viewKeys []string) (View, string) {
	view := View{Device: Network}
	var rest []string
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		switch inView := slices.Contains(viewKeys, name); {
		case name == "node" && inView:
			view.Device = keys[name]
		case name == "dimension" && inView:
			view.Dimension = keys[name]
		case name != "dimension":
			rest = append(rest, keys[name])
		}
	}
	return view, strings.Join(rest, "/")
}
