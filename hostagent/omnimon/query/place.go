// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
)

// Place is where a sequence runs.
type Place string

// The places.
const (
	Switches  Place = "switches"
	Hosts     Place = "hosts"
	Collector Place = "collector"
)

// Step is a sequence and its place.
type Step struct {
	*Sequence
	Place Place
	// Reason says why the sequence runs at that element.
	Reason string
	// Local is the count of operators that run at the place. The collector runs the others on the
	// values of the epoch.
	Local int
	// Arrays and Entries are the units of a switch that the sequence needs: statistic arrays, and
	// entries of the filter table in front of each.
	Arrays, Entries int
}

// Plan is the placement of a query.
type Plan struct{ Steps []Step }

// Place assigns each sequence of operators to one kind of element (paper, section 6.2): a sequence
// with join to the collector, a sequence with distinct to the hosts, every other one to the
// switches. A sequence that switches cannot run goes to the hosts, and a sequence over results to
// the collector. A sequence that only filters and maps packets becomes a part of the sequences that
// read it, so that hosts need not report each packet.
func (q *Query) Place() *Plan {
	p := &Plan{}
	packets := map[string]*Sequence{} // sequences that only filter and map packets
	for i, s := range q.Sequences {
		if from := packets[s.Source]; from != nil {
			whole := *s
			whole.Source, whole.Operators = from.Source, slices.Concat(from.Operators, s.Operators)
			s = &whole
		}
		if s.Source == "packets" && !slices.ContainsFunc(s.Operators, func(o *Operator) bool {
			return o.Kind != Filter && o.Kind != Map
		}) {
			packets[s.Name] = s
			if i < len(q.Sequences)-1 && !q.joins(s.Name) {
				continue
			}
		}
		p.Steps = append(p.Steps, place(s))
	}
	if p.Recorded() {
		for i := range p.Steps {
			if s := &p.Steps[i]; s.Source == "packets" {
				s.Reason += "; computed from what hosts record of each flow"
			}
		}
	}
	return p
}

// joins reports whether an operator joins a sequence.
func (q *Query) joins(name string) bool {
	return slices.ContainsFunc(q.Sequences, func(s *Sequence) bool {
		return slices.ContainsFunc(s.Operators, func(o *Operator) bool { return o.Kind == Join && o.Other.Text == name })
	})
}

func place(s *Sequence) Step {
	step := Step{Sequence: s, Place: Collector, Local: len(s.Operators)}
	has := func(k Kind) bool {
		return slices.ContainsFunc(s.Operators, func(o *Operator) bool { return o.Kind == k })
	}
	switch {
	case has(Join):
		step.Reason = "has join"
		return step
	case s.Source == "losses":
		step.Reason = "losses are inferred by the collector"
		return step
	case s.Source != "packets":
		step.Reason = "its source is the sequence " + s.Source
		return step
	}
	step.Place, step.Local = Hosts, local(s.Operators)
	if has(Distinct) {
		step.Reason = "has distinct"
		if n := shared(s.Operators); n > 0 && n < step.Local {
			step.Local = n
			step.Reason += " without src: the collector removes what several hosts have"
		}
		return step
	}
	if step.Reason = step.switches(); step.Reason == "" {
		step.Place, step.Reason = Switches, "updates values only"
	}
	return step
}

// shared is the count of operators up to the first distinct that may give the same tuple at several
// hosts; 0 if there is no such distinct. A packet is counted at its source, so a tuple with the
// source address is at one host only.
func shared(operators []*Operator) int {
	source := "src" // the field that holds the source address
	for i, o := range operators {
		if o.Kind != Map && o.Kind != Distinct {
			continue
		}
		at := slices.IndexFunc(o.Columns, func(c Column) bool { return c.Expression.Field == source })
		switch {
		case at >= 0:
			source = o.Columns[at].Name.Text
		case o.Kind == Distinct:
			return i + 1
		default:
			source = ""
		}
	}
	return 0
}

// local is the count of operators up to the first reduce, or all without reduce.
func local(operators []*Operator) int {
	if i := slices.IndexFunc(operators, func(o *Operator) bool { return o.Kind == Reduce }); i >= 0 {
		return i + 1
	}
	return len(operators)
}

// Between reports whether filters leave only packets from and to addresses that are known. Then no
// packet from or to another address can change the results.
func (p *Plan) Between(known func(netip.Addr) bool) bool {
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Source != "packets" {
			continue
		}
		src, dst := false, false
		for _, o := range s.Operators {
			if o.Kind != Filter {
				break // other operators may rename fields
			}
			src, dst = src || pins(o.Condition, "src", known), dst || pins(o.Condition, "dst", known)
		}
		if !src || !dst {
			return false
		}
	}
	return true
}

// pins reports whether a condition is met only if a field is one of the known addresses.
func pins(e *Expression, field string, known func(netip.Addr) bool) bool {
	switch e.Operation {
	case "&&":
		return pins(e.Left, field, known) || pins(e.Right, field, known)
	case "||":
		return pins(e.Left, field, known) && pins(e.Right, field, known)
	case "==":
		left, right := e.Left, e.Right
		if left.Constant != nil {
			left, right = right, left
		}
		return left.Field == field && right.Constant != nil && right.Constant.Type == Address && known(right.Constant.Address)
	}
	return false
}

// switches computes the units of a sequence at a switch, or returns why a switch cannot run it.
func (s *Step) switches() (reason string) {
	defined := map[string]*Expression{} // fields of the tuple in terms of the packet
	for _, f := range packetFields {
		defined[f.Name] = &Expression{Field: f.Name, kind: f.Type}
	}
	filters := 1
	for _, o := range s.Operators[:s.Local] {
		switch o.Kind {
		case Filter:
			n, reason := entries(substitute(o.Condition, defined), false)
			if reason != "" {
				return reason
			}
			filters *= n
		case Map:
			next := map[string]*Expression{}
			for _, c := range o.Columns {
				next[c.Name.Text] = substitute(c.Expression, defined)
			}
			defined = next
		case Reduce:
			for _, k := range o.Keys {
				e := defined[k.Text]
				if !slices.ContainsFunc(packetFields[:keyFields], func(f Field) bool { return e.Field == f.Name }) {
					return fmt.Sprintf("groups by %s, which is not in the flow key", k.Text)
				}
			}
			for _, c := range o.Columns {
				if c.Function == "max" || c.Function == "min" {
					return c.Function + " is not additive"
				}
				if c.Expression == nil {
					continue
				}
				if reason := addend(substitute(c.Expression, defined)); reason != "" {
					return reason
				}
			}
			s.Arrays, s.Entries = len(o.Columns), filters
		}
	}
	if s.Arrays == 0 {
		return "has no reduce"
	}
	return ""
}

// switchFields are fields that the switch program matches and adds.
var switchFields = []string{"src", "dst", "proto", "sport", "dport", "length", "ttl", "flags", "window", "queue"}

// substitute replaces fields by their definitions.
func substitute(e *Expression, defined map[string]*Expression) *Expression {
	if e.Operation == "" {
		if e.Constant == nil {
			return defined[e.Field]
		}
		return e
	}
	out := *e
	out.Left = substitute(e.Left, defined)
	if e.Right != nil {
		out.Right = substitute(e.Right, defined)
	}
	return &out
}

// addend returns why a switch cannot add the value, if it cannot.
func addend(e *Expression) (reason string) {
	switch {
	case e.Constant != nil:
		return ""
	case e.Operation != "":
		return "adds up the result of " + e.Operation
	case !slices.Contains(switchFields, e.Field):
		return e.Field + " is known to hosts only"
	}
	return ""
}

// maxEntries bounds the entries of one filter.
const maxEntries = 64

// entries is the count of table entries that match a condition: each entry is a conjunction of
// ternary and range matches. negated: the condition is the opposite.
func entries(e *Expression, negated bool) (n int, reason string) {
	switch e.Operation {
	case "!":
		return entries(e.Left, !negated)
	case "&&", "||":
		left, reason := entries(e.Left, negated)
		if reason != "" {
			return 0, reason
		}
		right, reason := entries(e.Right, negated)
		if reason != "" {
			return 0, reason
		}
		if (e.Operation == "&&") == negated {
			n = left + right
		} else {
			n = left * right
		}
		if n > maxEntries {
			return 0, fmt.Sprintf("needs more than %d filter entries", maxEntries)
		}
		return n, ""
	}
	field, constant := e.Left, e.Right
	if field == nil || constant == nil {
		return 0, "filters by a condition without comparison"
	}
	if field.Constant != nil {
		field, constant = constant, field
	}
	differs := (e.Operation == "!=") != negated // whether the field must differ from a value, a mask or a prefix
	if field.Operation == "&" && field.Right.Constant != nil && (e.Operation == "==" || e.Operation == "!=") {
		if n = 1; differs {
			n = bits.OnesCount64(uint64(field.Right.Constant.Int)) // one entry for each bit that may differ
		}
		field = field.Left
	}
	switch {
	case constant.Constant == nil:
		return 0, "compares two fields"
	case field.Operation != "" || field.Constant != nil:
		return 0, "compares the result of an expression"
	case !slices.Contains(switchFields, field.Field):
		return 0, field.Field + " is known to hosts only"
	case n > 0:
		return n, ""
	case differs && slices.Contains([]string{"==", "!=", "in"}, e.Operation):
		return 2, "" // the ranges below and above
	}
	return 1, ""
}

// Queue reports whether the query uses the queue depth. It returns an error if switches, which
// alone measure it, cannot run each of its sequences over packets.
func (p *Plan) Queue() (used bool, err error) {
	used = slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Uses("queue") })
	for i := range p.Steps {
		s := &p.Steps[i]
		if !used || s.Source != "packets" {
			continue
		}
		switch _, ok := s.Units(); {
		case !s.Uses("queue"):
			return true, fmt.Errorf("sequence %s does not use the field queue, another sequence of the query does: make two "+
				"queries of them", s.Name)
		case s.Place != Switches:
			return true, fmt.Errorf("sequence %s uses the field queue, which only switches have, and runs at %s: %s", s.Name,
				s.Place, s.Reason)
		case !ok:
			return true, fmt.Errorf("sequence %s uses the field queue, which only switches have, and their filters cannot "+
				"express it: compare fields with constants, and add up one, length, ttl or window", s.Name)
		}
	}
	return used, nil
}

// Units are the numbers of counter arrays and filter entries that a pipeline has for queries.
type Units struct{ Arrays, Entries int }

// Fit returns the units that remain free after the plan, or an error that names the missing units.
func (p *Plan) Fit(free Units) (Units, error) {
	need := Units{}
	for _, s := range p.Steps {
		need.Arrays += s.Arrays
		need.Entries += s.Entries * s.Arrays
	}
	if need.Arrays > free.Arrays || need.Entries > free.Entries {
		return free, fmt.Errorf("the query needs %d statistic arrays and %d filter entries; %d and %d are free: end "+
			"another query first",
			need.Arrays, need.Entries, free.Arrays, free.Entries)
	}
	return Units{free.Arrays - need.Arrays, free.Entries - need.Entries}, nil
}

// String prints the plan: each sequence with its place, reason and units, and its operators.
func (p *Plan) String() string {
	var b strings.Builder
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "%s at %s: %s", s.Name, s.Place, s.Reason)
		if s.Place == Switches {
			fmt.Fprintf(&b, "; statistic arrays %d, filter entries %d", s.Arrays, s.Entries*s.Arrays)
		}
		fmt.Fprintf(&b, "\n  %s\n", s.Source)
		for i, o := range s.Operators {
			if i == s.Local {
				b.WriteString("  at the collector, after the epoch:\n")
			}
			fmt.Fprintf(&b, "  .%v\n", o)
		}
	}
	return b.String()
}
