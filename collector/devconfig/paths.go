// SPDX-License-Identifier: Apache-2.0

package devconfig

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/yang"
)

// kind is a leaf that the collector may set. Paths has the leaf's paths.
type kind uint8

const (
	nodeID kind = iota
	portID
	portEnabled
	portDescription
	lldpEnabled
	portLLDP

	kinds = iota
)

// setting describes a leaf that the collector may set.
type setting struct {
	// config and state are the leaf's paths; * stands for the name of the component or interface.
	config, state string
	// entry is the key leaf of a list entry that a device may not have yet; "" if the leaf is in no
	// list.
	entry string
	// only is the only value that is ever desired; "" allows every value.
	only string
	// identity is set for numbers by which controllers identify the device and its ports. The
	// collector never replaces a value that somebody else wrote. It deletes its own value before it
	// writes another one, with the P4Runtime session closed.
	identity bool
	// quiet is set for a leaf that devices may leave out of their state.
	quiet bool
	// text is set for a string, number for an unsigned number; otherwise the leaf is a boolean.
	text, number bool
	// wide is set for a number of 64 bits, which is a string in JSON.
	wide bool
}

// Paths is the table of all leaves that the collector may send to a device. It has no container,
// and no value that turns a port off: false is only sent to restore an earlier false.
var paths = [kinds]setting{
	nodeID: {
		config: "/components/component[name=*]/integrated-circuit/config/node-id",
		state:  "/components/component[name=*]/integrated-circuit/state/node-id",
		entry:  "/components/component[name=*]/config/name", identity: true, number: true, wide: true,
	},
	portID: {
		config: "/interfaces/interface[name=*]/config/id", state: "/interfaces/interface[name=*]/state/id",
		entry: "/interfaces/interface[name=*]/config/name", identity: true, number: true,
	},
	portEnabled: {
		config: "/interfaces/interface[name=*]/config/enabled", state: "/interfaces/interface[name=*]/state/enabled",
		entry: "/interfaces/interface[name=*]/config/name", only: "true",
	},
	portDescription: {
		config: "/interfaces/interface[name=*]/config/description",
		state:  "/interfaces/interface[name=*]/state/description",
		entry:  "/interfaces/interface[name=*]/config/name", text: true, quiet: true,
	},
	lldpEnabled: {config: "/lldp/config/enabled", state: "/lldp/state/enabled", only: "true"},
	portLLDP: {
		config: "/lldp/interfaces/interface[name=*]/config/enabled",
		state:  "/lldp/interfaces/interface[name=*]/state/enabled",
		entry:  "/lldp/interfaces/interface[name=*]/config/name", only: "true", quiet: true,
	},
}

// Leaf names one leaf of a device: a row of the table, and the component or interface.
type Leaf struct {
	kind kind
	name string // "" for a leaf that is in no list
}

// at puts a name into a path of the table.
func at(path, name string) string {
	before, after, ok := strings.Cut(path, "*")
	if !ok {
		return path
	}
	return before + escape.Replace(name) + after
}

// escape writes a name as the key of a path.
var escape = strings.NewReplacer(`\`, `\\`, `]`, `\]`)

func (l Leaf) setting() *setting { return &paths[l.kind] }

// Path is the path of the leaf's configuration. State is the path of its state.
func (l Leaf) Path() string { return at(l.setting().config, l.name) }

// State is the path of the leaf's state.
func (l Leaf) State() string { return at(l.setting().state, l.name) }

// entry is the path of the key leaf of the list entry; "" if the leaf is in no list.
func (l Leaf) entry() string { return at(l.setting().entry, l.name) }

// compare orders leaves as they are shown and sent.
func (l Leaf) compare(other Leaf) int {
	return cmp.Or(cmp.Compare(l.kind, other.kind), strings.Compare(l.name, other.name))
}

// leafAt returns the leaf with a configuration path; ok is false if the table does not have it.
func leafAt(path string) (l Leaf, ok bool) {
	p, err := yang.ParsePath(path)
	if err != nil {
		return Leaf{}, false
	}
	for _, e := range p.GetElem() {
		if n, has := e.GetKey()["name"]; has {
			l.name = n
		}
	}
	for k := range paths {
		if l.kind = kind(k); l.Path() == path {
			return l, true
		}
	}
	return Leaf{}, false
}

// check returns an error unless a value may be sent to the leaf. restoring is set if the device had
// the value before.
func (l Leaf) check(value string, restoring bool) error {
	s := l.setting()
	if s.only != "" && value != s.only && !restoring {
		return fmt.Errorf("%s: %q is never sent; expected %s", l.Path(), value, s.only)
	}
	var err error
	switch {
	case s.number:
		_, err = strconv.ParseUint(value, 10, 64)
	case !s.text:
		_, err = strconv.ParseBool(value)
	}
	if err != nil {
		return fmt.Errorf("%s: %q is not a value of the leaf", l.Path(), value)
	}
	return nil
}

// gnmiPath parses a path of this package.
func gnmiPath(text string) *gpb.Path {
	p, err := yang.ParsePath(text)
	if err != nil {
		panic(err) // cannot happen: at escapes names
	}
	return p
}
