// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"maps"
	"slices"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/yang"
)

// Form is the way in which requests to a switch write their paths, and ask for values. Switches
// understand different forms.
type Form struct {
	// Origin is the origin of every path; "" for none.
	Origin string
	// Wildcards is set if omitted keys are written as [key=*].
	Wildcards bool
	// Target is the target in the prefix; "" for no prefix.
	Target string
	// Modules is set if the first element has the name of its OpenConfig module.
	Modules bool
	// Encoding is the encoding of the values.
	Encoding gpb.Encoding
}

// forms are the ways to write paths that a session tries, in this order. The specification
// recommends an origin (section 2.7.1), and lemming sends no values for paths without an origin.
// Servers built on openconfig/gnmi, and Stratum, match only list elements with keys. Old servers
// may accept neither origins nor wildcards. The telemetry server of older SONiC releases needs a
// target, and still older ones need the name of the module, too. Servers that keep the values of
// several devices need the device as a target; * stands for all.
var forms = []Form{
	{Origin: "openconfig", Wildcards: true},
	{Wildcards: true},
	{Origin: "openconfig"},
	{},
	{Origin: "openconfig", Wildcards: true, Target: "OC-YANG"},
	{Origin: "openconfig", Wildcards: true, Target: "OC-YANG", Modules: true},
	{Origin: "openconfig", Wildcards: true, Target: "*"},
}

// encodings are all encodings that a session can ask for, the best first.
var encodings = []gpb.Encoding{gpb.Encoding_PROTO, gpb.Encoding_JSON_IETF, gpb.Encoding_JSON}

// DefaultForm returns the form to try first if nothing is known of a switch.
func DefaultForm() Form {
	f := forms[0]
	f.Encoding = gpb.Encoding_JSON_IETF
	return f
}

// Forms returns the forms to try: a known one, all ways to write paths in its encoding, the first
// way in the other encodings, and then the other ways in these. Junos lists encodings in which it
// then sends no value.
func Forms(known Form) []Form {
	out := []Form{known}
	ways := func(encoding gpb.Encoding, some []Form) {
		for _, f := range some {
			f.Encoding = encoding
			out = append(out, f)
		}
	}
	ways(known.Encoding, forms)
	for _, e := range encodings {
		ways(e, forms[:1])
	}
	for _, e := range encodings {
		ways(e, forms)
	}
	seen := map[Form]bool{}
	return slices.DeleteFunc(out, func(f Form) bool {
		again := seen[f]
		seen[f] = true
		return again
	})
}

// String describes the form for the log.
func (f Form) String() string {
	s := "no origin"
	if f.Origin != "" {
		s = "origin " + f.Origin
	}
	if f.Wildcards {
		s += ", keys as wildcards"
	} else {
		s += ", keys omitted"
	}
	if f.Target != "" {
		s += ", target " + f.Target
	}
	if f.Modules {
		s += ", names of modules"
	}
	return s + ", " + f.Encoding.String()
}

// Prefix returns the prefix of requests; nil without a target, because Huawei's devices refuse an
// empty prefix.
func (f Form) Prefix() *gpb.Path {
	if f.Target == "" {
		return nil
	}
	return &gpb.Path{Target: f.Target}
}

// EncodingRefused reports whether a device refuses a request because of its encoding.
func EncodingRefused(err error) bool {
	return err != nil && endOf(err) == refused && strings.Contains(strings.ToLower(err.Error()), "encoding")
}

// modules maps top-level containers to their OpenConfig modules. The map is needed because the
// collector's schema defines some of these containers in modules of its own.
var modules = map[string]string{"interfaces": "openconfig-interfaces", "components": "openconfig-platform",
	"lldp": "openconfig-lldp", "system": "openconfig-system"}

// Path returns a path as requests to the switch write it. Path keeps the path's own origin and
// keys. It looks up the names of omitted keys in the schema, and keeps elements that the schema
// does not have.
func (f Form) Path(schema *yang.Schema, p *gpb.Path) *gpb.Path {
	out := &gpb.Path{Origin: p.GetOrigin(), Elem: make([]*gpb.PathElem, len(p.GetElem()))}
	if out.Origin == "" {
		out.Origin = f.Origin
	}
	node := schema.Root()
	for i, e := range p.GetElem() {
		out.Elem[i] = e
		if node != nil {
			node = node.Child(e.GetName())
		}
		if node == nil || !f.Wildcards || node.Kind != yang.ListNode {
			continue
		}
		keys := maps.Clone(e.GetKey())
		if keys == nil {
			keys = map[string]string{}
		}
		for _, k := range node.KeyNames() {
			if _, ok := keys[k]; !ok {
				keys[k] = "*"
			}
		}
		out.Elem[i] = &gpb.PathElem{Name: e.GetName(), Key: keys}
	}
	if first := p.GetElem(); f.Modules && len(first) > 0 && modules[first[0].GetName()] != "" {
		out.Elem[0] = &gpb.PathElem{Name: modules[first[0].GetName()] + ":" + first[0].GetName(), Key: first[0].GetKey()}
	}
	return out
}
