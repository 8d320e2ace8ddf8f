// SPDX-License-Identifier: Apache-2.0

package devconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Status is how far a desired leaf is in effect.
type Status string

// The states of a desired leaf.
const (
	// InEffect: the device's configuration, if it has the leaf, and its state have the value.
	InEffect Status = "IN_EFFECT"
	// Configured: the configuration has the value, and the state does not have it.
	Configured Status = "CONFIGURED"
	// Missing: the device has no value, or a different one, and the collector has never written the
	// leaf.
	Missing Status = "MISSING"
	// Drifted: somebody else has changed the value that the collector wrote.
	Drifted Status = "DRIFTED"
	// Refused: the collector does not write the leaf, for a reason.
	Refused Status = "REFUSED"
)

// LeafState is a desired leaf beside the device's value.
type LeafState struct {
	Path    string `json:"path"`
	Desired string `json:"desired,omitempty"`
	Actual  string `json:"actual,omitempty"`
	Status  Status `json:"status"`
	Reason  string `json:"reason,omitempty"`
}

// Change is a change of one leaf. Before and After are values; nil is no value.
type Change struct {
	Path   string  `json:"path"`
	Before *string `json:"before"`
	After  *string `json:"after"`
	// Entry is the key leaf that creates the list entry, if the device does not have it.
	Entry string `json:"entry,omitempty"`
	// Restores is set if After is the device's value before the collector first wrote the leaf.
	Restores bool `json:"restores,omitempty"`
	// Rewritten is the value that the device stored instead of After; nil if it stored After.
	Rewritten *string `json:"rewritten,omitempty"`
}

// leaf returns the leaf of the table.
func (c Change) leaf() (Leaf, error) {
	l, ok := leafAt(c.Path)
	if !ok {
		return l, fmt.Errorf("%s is not a leaf that the collector may set", c.Path)
	}
	if c.After != nil {
		return l, l.check(*c.After, c.Restores)
	}
	return l, nil
}

// identity reports whether the change concerns a number by which controllers know the device.
func (c Change) identity() bool {
	l, _ := leafAt(c.Path)
	return l.setting().identity
}

// Plan is how a device becomes as the file says.
type Plan struct {
	Device  string      `json:"device"`
	Leaves  []LeafState `json:"leaves"`
	Changes []Change    `json:"changes"`
	// Error says why the device cannot be read.
	Error string `json:"error,omitempty"`
	// Digest identifies the changes; "" if there are none, or if a leaf is refused.
	Digest string `json:"digest,omitempty"`
}

// Refused reports whether a leaf is refused. Nothing of a device is changed then.
func (p *Plan) Refused() bool { return p.refusal() != "" }

// refusal returns the first leaf that is refused, with the reason; "" if none is.
func (p *Plan) refusal() string {
	for _, l := range p.Leaves {
		if l.Status == Refused {
			return l.Path + ": " + l.Reason
		}
	}
	return ""
}

// Drifted reports whether somebody else has changed a leaf that the collector wrote.
func (p *Plan) Drifted() bool {
	return slices.ContainsFunc(p.Leaves, func(l LeafState) bool { return l.Status == Drifted })
}

// sessionCloses reports whether the P4Runtime session is closed while the changes are made.
func sessionCloses(changes []Change) bool { return slices.ContainsFunc(changes, Change.identity) }

// Diff compares the file's values for a device with the device's values. written are the leaves
// that the collector wrote, by path.
func Diff(device string, w Wanted, s *Snapshot, written map[string]Written) *Plan {
	p := &Plan{Device: device}
	desired, refused := w.desires(s)
	for _, r := range refused {
		p.Leaves = append(p.Leaves, LeafState{Path: r.path, Status: Refused, Reason: r.reason})
	}
	isDesired := map[string]bool{}
	for _, d := range desired {
		isDesired[d.Path()] = true
	}
	p.restore(s, written, isDesired)
	freed := map[Leaf]bool{} // device ids and port numbers that the plan deletes, so that other leaves can have them
	for _, c := range p.Changes {
		if l, _ := leafAt(c.Path); c.After == nil {
			freed[l] = true
		}
	}
	for _, d := range desired {
		p.add(d, s, written, freed, desired)
	}
	slices.SortStableFunc(p.Changes, func(a, b Change) int {
		x, _ := leafAt(a.Path)
		y, _ := leafAt(b.Path)
		return x.compare(y)
	})
	p.digest()
	return p
}

// restore adds the changes of leaves that the file no longer has and that still hold the
// collector's value.
func (p *Plan) restore(s *Snapshot, written map[string]Written, desired map[string]bool) {
	for _, path := range slices.Sorted(maps.Keys(written)) {
		l, ok := leafAt(path)
		if v, has := s.value(l); ok && !desired[path] && has && v == written[path].Value {
			p.Changes = append(p.Changes, Change{Path: path, Before: &v, After: written[path].Before, Restores: true})
		}
	}
}

// add compares one desired leaf with the device.
func (p *Plan) add(d desire, s *Snapshot, written map[string]Written, freed map[Leaf]bool, all []desire) {
	configured, hasConfig := s.value(d.Leaf)
	state, hasState := s.state(d.Leaf)
	ours, wrote := written[d.Path()]
	x := LeafState{Path: d.Path(), Desired: d.value, Actual: configured}
	if !hasConfig {
		x.Actual = state
	}
	quiet := d.setting().quiet
	switch {
	case hasConfig && configured == d.value && (hasState && state == d.value || !hasState && quiet):
		x.Status = InEffect
	case hasConfig && configured == d.value:
		x.Status = Configured
	case !hasConfig && hasState && state == d.value, // a device without the leaf in its configuration
		!hasConfig && !hasState && d.kind == portLLDP: // the model's default is true
		x.Status = InEffect
	case d.setting().identity:
		x.Status, x.Reason = identityStatus(configured, state, ours.Value)
	case wrote && hasConfig && configured != ours.Value || wrote && !hasConfig:
		x.Status = Drifted
	default:
		x.Status = Missing
	}
	if reason := duplicate(d, s, freed, all); reason != "" && x.Status != Refused {
		x.Status, x.Reason = Refused, reason
	}
	if x.Status == Missing || x.Status == Drifted {
		c := Change{Path: d.Path(), After: &d.value}
		switch {
		case hasConfig:
			c.Before = &configured
		case hasState && !d.setting().identity:
			c.Before = &state // without the leaf, a device may choose another value
		}
		if entry := d.entry(); entry != "" && !s.entries[entry] {
			c.Entry = entry
		}
		p.Changes = append(p.Changes, c)
	}
	p.Leaves = append(p.Leaves, x)
}

// identityStatus returns the status of a device id or port number that differs from the desired
// one, or the reason why the collector does not write it.
func identityStatus(configured, state, ours string) (Status, string) {
	switch has := configured; {
	case has != "" && has != ours:
		return Refused, fmt.Sprintf("somebody else has set %s; write %s into the file, or delete the leaf on the device",
			has, has)
	case has == "" && state != "":
		return Refused, fmt.Sprintf("the device has %s, and not from its gNMI configuration; write %s into the file, or "+
			"change it where the device gets it from", state, state)
	case has == "" && ours != "":
		return Drifted, ""
	}
	return Missing, ""
}

// duplicate returns why a device id or port number is refused: another component or interface has
// the same number and keeps it. It returns "" if none has.
func duplicate(d desire, s *Snapshot, freed map[Leaf]bool, all []desire) string {
	if !d.setting().identity {
		return ""
	}
	for _, other := range s.twins(d.Leaf, d.value) {
		if freed[other] || slices.ContainsFunc(all, func(x desire) bool { return x.Leaf == other }) {
			continue
		}
		what, key := "interface", "gnmi.ports"
		if d.kind == nodeID {
			what, key = "component", "gnmi.component"
		}
		return fmt.Sprintf("%s %s has the number %s already; correct %s, or delete %s on the device", what, other.name,
			d.value, key, other.Path())
	}
	return ""
}

// digest sets the digest of the changes, unless they must not be made.
func (p *Plan) digest() {
	if len(p.Changes) == 0 || p.Refused() {
		return
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q\n", p.Device)
	text := func(v *string) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%q", *v)
	}
	for _, c := range p.Changes {
		fmt.Fprintf(h, "%q %s %s\n", c.Path, text(c.Before), text(c.After))
	}
	p.Digest = hex.EncodeToString(h.Sum(nil)[:8])
}

// Digest identifies the changes of several plans; "" if there are none. With one plan that has
// changes, it is that plan's digest.
func Digest(plans []*Plan) string {
	var digests []string
	for _, p := range plans {
		if p.Digest != "" {
			digests = append(digests, p.Digest)
		}
	}
	if len(digests) < 2 {
		return strings.Join(digests, "")
	}
	slices.Sort(digests)
	sum := sha256.Sum256([]byte(strings.Join(digests, "\n")))
	return hex.EncodeToString(sum[:8])
}

// undo returns the changes that take a plan's changes back on a device as it is now: only leaves
// that hold the value that the collector wrote.
func undo(changes []Change, s *Snapshot) (back []Change) {
	for _, c := range slices.Backward(changes) {
		l, ok := leafAt(c.Path)
		v, has := s.value(l)
		ours := holds(c, v, has) || has && c.Rewritten != nil && v == *c.Rewritten
		if ok && ours && !same(c.Before, c.After) {
			change := Change{Path: c.Path, Before: c.After, After: c.Before, Restores: true}
			if has {
				change.Before = &v
			}
			back = append(back, change)
		}
	}
	return back
}

// rewritten records which values the device has stored in another form than the changes have. It
// reports whether the device has carried out all changes, at least one of them in another form.
// Call it right after the Set, because a value that changes later was written by somebody else.
func rewritten(changes []Change, s *Snapshot) bool {
	any, all := false, true
	for i, c := range changes {
		l, _ := leafAt(c.Path)
		v, has := s.value(l)
		switch {
		case holds(c, v, has):
		case has && c.After != nil && (c.Before == nil || v != *c.Before):
			changes[i].Rewritten, any = &v, true
		default:
			all = false
		}
	}
	return any && all
}

// remade lists the values that the device has stored in another form than the changes have.
func remade(changes []Change) string {
	var out []string
	for _, c := range changes {
		if c.Rewritten != nil {
			out = append(out, fmt.Sprintf("%s has %q instead of %q", c.Path, *c.Rewritten, *c.After))
		}
	}
	return strings.Join(out, ", ")
}

// foreign lists the leaves whose value is not the one from before the changes, with the value they
// have; "" if there are none.
func foreign(changes []Change, s *Snapshot) string {
	var out []string
	for _, c := range changes {
		l, _ := leafAt(c.Path)
		v, has := s.value(l)
		if !has && c.Before != nil { // Before may be the value in the leaf's state
			v, has = s.state(l)
		}
		before := c.Before
		if has && v != "" && (before == nil && !isDefault(c.Path, v) || before != nil && v != *before) {
			out = append(out, fmt.Sprintf("%s has %q", c.Path, v))
		} else if !has && before != nil && *before != "" {
			out = append(out, c.Path+" has no value")
		}
	}
	return strings.Join(out, ", ")
}

// holds reports whether a leaf has the value of a change. A deleted leaf may have its default.
func holds(c Change, v string, has bool) bool {
	if c.After == nil {
		return !has || isDefault(c.Path, v)
	}
	return has && v == *c.After
}

// isDefault reports whether a value is the default of its leaf: devices may show it in the
// configuration after the leaf was deleted. In the models each leaf "enabled" has the default true.
func isDefault(path, v string) bool {
	l, ok := leafAt(path)
	return ok && v != "" && v == l.setting().only
}

func same(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// taken reports whether the configuration of a device has all changes, and whether it has any.
func taken(changes []Change, s *Snapshot) (all, any bool) {
	all = true
	for _, c := range changes {
		l, _ := leafAt(c.Path)
		v, has := s.value(l)
		if holds(c, v, has) {
			any = true
		} else {
			all = false
		}
	}
	return all, any
}

// outstanding returns the path of a change that the device's state does not show yet; "" if it
// shows all. The state need not show a restored value, because that value may never have been in
// effect.
func outstanding(changes []Change, s *Snapshot) string {
	for _, c := range changes {
		l, _ := leafAt(c.Path)
		v, has := s.state(l)
		if c.After != nil && !c.Restores && (has && v != *c.After || !has && !l.setting().quiet) {
			return l.State()
		}
	}
	return ""
}
