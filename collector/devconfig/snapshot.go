// SPDX-License-Identifier: Apache-2.0

package devconfig

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/collector/southbound"
	"github.com/netsketch/netsketch/internal/suggest"
	"github.com/netsketch/netsketch/yang"
)

// maxLeaves bounds the leaves that are read of a device.
const maxLeaves = 500_000

// Snapshot is the configuration and state of a device, read at one time.
type Snapshot struct {
	// Values are leaves by path: the leaves of the table, in config and in state.
	Values map[string]string
	// Interfaces are the interfaces that the device has.
	Interfaces map[string]bool
	// Components are the components that the device has, and Circuits the ones that are integrated
	// circuits.
	Components, Circuits map[string]bool
	// LLDP is set if the device has LLDP.
	LLDP bool

	leaves  int
	times   map[string]int64    // timestamps of values by path
	entries map[string]bool     // key leaves of the list entries that the configuration has
	numbers map[string][]string // interfaces by number; computed on first use
}

// NewSnapshot returns an empty snapshot.
func NewSnapshot() *Snapshot {
	return &Snapshot{Values: map[string]string{}, Interfaces: map[string]bool{}, Components: map[string]bool{},
		Circuits: map[string]bool{}, entries: map[string]bool{}, times: map[string]int64{}}
}

// add enters the leaves of a notification. It ignores leaves that the schema does not have; from
// leaves that this package does not use it takes only the names in their paths.
func (s *Snapshot) add(schema *yang.Schema, n *gpb.Notification) error {
	r := &yang.UpdateReader{Schema: schema, Skip: func(string, error) {}, Found: func(u yang.LeafUpdate) error {
		if s.leaves++; s.leaves > maxLeaves {
			return fmt.Errorf("the device reports more than %d leaves", maxLeaves)
		}
		s.found(u, n.GetTimestamp())
		return nil
	}}
	r.Entry = func(entry []*gpb.PathElem) {
		if entry[0].GetName() == "interfaces" {
			s.Interfaces[strings.Clone(entry[1].GetKey()["name"])] = true
		}
	}
	if southbound.Foreign(n.GetPrefix()) {
		return nil
	}
	for _, u := range n.GetUpdate() {
		if southbound.Foreign(u.GetPath()) {
			continue
		}
		if err := r.Read(slices.Concat(yang.Elems(n.GetPrefix()), yang.Elems(u.GetPath())), u.GetVal()); err != nil {
			return err
		}
	}
	return nil
}

// found enters a leaf, unless a newer value is known: gNMI promises no order of notifications.
func (s *Snapshot) found(u yang.LeafUpdate, at int64) {
	name, leaf := strings.Clone(u.Elems[1].GetKey()["name"]), u.Elems[len(u.Elems)-1].GetName()
	switch u.Elems[0].GetName() { // every leaf of the schema is in a container at least
	case "interfaces":
		s.Interfaces[name] = true
	case "lldp":
		s.LLDP = true
	case "components":
		s.Components[name] = true
		if u.Elems[len(u.Elems)-2].GetName() == "state" && leaf == "type" {
			if kind, _ := u.Value.(string); strings.HasSuffix(kind, "INTEGRATED_CIRCUIT") {
				s.Circuits[name] = true
			}
			return
		}
		if leaf == "node-id" {
			s.Circuits[name] = true
		}
	}
	if i := slices.IndexFunc(u.Elems, func(e *gpb.PathElem) bool { return len(e.GetKey()) > 0 }); i >= 0 &&
		slices.ContainsFunc(u.Elems, func(e *gpb.PathElem) bool { return e.GetName() == "config" }) {
		s.entries[yang.PathString(u.Elems[:i+1])+"/config/name"] = true
	}
	// Keys are escaped as the paths of this package are.
	path := yang.PathString(u.Elems)
	if at > 0 && at < s.times[path] {
		return
	}
	s.Values[path], s.times[path] = fmt.Sprint(u.Value), at
}

// circuit returns the component of the integrated circuit, or why it is not known.
func (s *Snapshot) circuit(configured string) (name, refused string) {
	names := slices.Sorted(maps.Keys(s.Circuits))
	switch {
	case configured != "" && len(names) > 0 && !s.Components[configured]:
		way := "it has " + strings.Join(names, ", ")
		if near := suggest.Nearest(configured, names); near != "" {
			way = fmt.Sprintf("did you mean %s?", near)
		}
		return configured, fmt.Sprintf("the device has no component %q; correct gnmi.component: %s", configured, way)
	case configured != "":
		return configured, ""
	case len(names) == 1:
		return names[0], ""
	case len(names) == 0:
		return "*", "the device lists no integrated circuit; set gnmi.component to the name of its component"
	}
	return "*", fmt.Sprintf("the device has the integrated circuits %s; set gnmi.component to one of them",
		strings.Join(names, ", "))
}

// interfaceOf returns the interface of a port, or why it is not known.
func (s *Snapshot) interfaceOf(p Port) (name, refused string) {
	if p.Interface != "" {
		if s.Interfaces[p.Interface] {
			return p.Interface, ""
		}
		names := slices.Sorted(maps.Keys(s.Interfaces))
		way := "the device reports no interface"
		if near := suggest.Nearest(p.Interface, names); near != "" {
			way = fmt.Sprintf("did you mean %s?", near)
		} else if len(names) > 0 {
			way = "it has " + strings.Join(names[:min(len(names), 8)], ", ")
			if len(names) > 8 {
				way += ", …"
			}
		}
		return "", fmt.Sprintf("the device has no interface %q; correct gnmi.ports: %s", p.Interface, way)
	}
	switch names := s.numbered(fmt.Sprint(p.Number)); len(names) {
	case 1:
		return names[0], ""
	case 0:
	default:
		return "", fmt.Sprintf("the interfaces %s have the number %d; delete it on the device where it is wrong",
			strings.Join(names, " and "), p.Number)
	}
	return "", fmt.Sprintf("no interface of the device has the number %d; add its name to gnmi.ports: "+
		"{number: %d, interface: NAME}", p.Number, p.Number)
}

// number is the P4Runtime number of an interface or a component; "" if it has none.
func (s *Snapshot) number(l Leaf) string { return cmp.Or(s.identity(l.Path()), s.identity(l.State())) }

// twins returns the leaves of other interfaces or components with a number, sorted.
func (s *Snapshot) twins(l Leaf, number string) (out []Leaf) {
	names := s.numbered(number)
	if l.kind == nodeID {
		names = slices.Sorted(maps.Keys(s.Circuits))
	}
	for _, name := range names {
		if other := (Leaf{l.kind, name}); name != l.name && s.number(other) == number {
			out = append(out, other)
		}
	}
	return out
}

// numbered returns the interfaces with a number, sorted.
func (s *Snapshot) numbered(number string) []string {
	if s.numbers == nil {
		s.numbers = map[string][]string{}
		for _, name := range slices.Sorted(maps.Keys(s.Interfaces)) {
			n := s.number(Leaf{portID, name})
			s.numbers[n] = append(s.numbers[n], name)
		}
	}
	return s.numbers[number]
}

// identity returns the value of a device id or port number; "" if it is 0, because several devices
// report 0 for none.
func (s *Snapshot) identity(path string) string {
	if v := s.Values[path]; v != "0" {
		return v
	}
	return ""
}

// value returns the configured value of a leaf; ok is false if there is none.
func (s *Snapshot) value(l Leaf) (v string, ok bool) {
	if l.setting().identity {
		v = s.identity(l.Path())
		return v, v != ""
	}
	v, ok = s.Values[l.Path()]
	return v, ok
}

// state returns the value of a leaf in the device's state; ok is false if there is none.
func (s *Snapshot) state(l Leaf) (v string, ok bool) {
	if l.setting().identity {
		v = s.identity(l.State())
		return v, v != ""
	}
	v, ok = s.Values[l.State()]
	return v, ok
}
