// SPDX-License-Identifier: Apache-2.0

package p4rt_test

import (
	"strings"
	"testing"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

func catalogOf(t testing.TB, p *p4rt.Program) *p4values.Catalog {
	t.Helper()
	cat, err := p4values.NewCatalog(p.P4Info)
	if err != nil {
		t.Fatal(err)
	}
	return cat
}

func TestObligation12DontCareAndPriority(t *testing.T) {
	cat := catalogOf(t, entities(t))
	mac := []byte{2, 0, 0, 0, 0, 1}
	ternary := func(prio int32, ms ...p4rt.Match) p4rt.Entry {
		return p4rt.Entry{Table: "ternary_t", Match: ms, Priority: prio, Action: "NoAction"}
	}
	for name, tc := range map[string]struct {
		entry p4rt.Entry
		want  string // the match in text, or the error
	}{
		"ternary is masked": {ternary(1, p4rt.Ternary("hdr.ethernet.type", []byte{0x08, 0xff},
			[]byte{0xff, 0x00})), `field_id:1 ternary:{value:"\x08\x00" mask:"\xff\x00"}`},
		"zero mask is left out": {ternary(1, p4rt.Ternary("hdr.ethernet.type", []byte{8, 0}, []byte{0, 0})), ``},
		"range": {ternary(1, p4rt.Range("sm.ingress_port", []byte{1}, []byte{1, 0})),
			`field_id:2 range:{low:"\x01" high:"\x01\x00"}`},
		"full range is left out": {ternary(1, p4rt.Range("sm.ingress_port", []byte{0}, []byte{1, 255})), ``},
		"optional": {ternary(1, p4rt.Optional("hdr.ethernet.dst", mac)),
			`field_id:3 optional:{value:"\x02\x00\x00\x00\x00\x01"}`},
		"nothing matches all": {ternary(1), ``},
		"fields in the key's order": {ternary(1, p4rt.Optional("hdr.ethernet.dst", mac),
			p4rt.Ternary("hdr.ethernet.type", []byte{6}, []byte{6})),
			`field_id:1 ternary:{value:"\x06" mask:"\x06"} field_id:3 optional:{value:"\x02\x00\x00\x00\x00\x01"}`},
		"no priority":   {ternary(0), "a priority above 0 is needed"},
		"empty range":   {ternary(1, p4rt.Range("sm.ingress_port", []byte{2}, []byte{1})), "is empty"},
		"unknown field": {ternary(1, p4rt.Exact("nope", mac)), `no key field "nope"`},
		"field twice": {ternary(1, p4rt.Optional("hdr.ethernet.dst", mac),
			p4rt.Optional("hdr.ethernet.dst", mac)), "given twice"},
		"another kind": {ternary(1, p4rt.Exact("hdr.ethernet.dst", mac)), "the field is OPTIONAL"},
		"lpm is masked": {p4rt.Entry{Table: "lpm_t",
			Match: []p4rt.Match{p4rt.LPM("hdr.ethernet.src", []byte{2, 0xff, 0, 0, 0, 1}, 8)}, Action: "drop"},
			`field_id:1 lpm:{value:"\x02\x00\x00\x00\x00\x00" prefix_len:8}`},
		"lpm /0 is left out": {p4rt.Entry{Table: "lpm_t",
			Match: []p4rt.Match{p4rt.LPM("hdr.ethernet.src", mac, 0)}, Action: "drop"}, ``},
		"lpm too long": {p4rt.Entry{Table: "lpm_t",
			Match: []p4rt.Match{p4rt.LPM("hdr.ethernet.src", mac, 49)}, Action: "drop"}, "49 bits does not fit 48"},
		"lpm with priority": {p4rt.Entry{Table: "lpm_t", Priority: 3, Action: "drop"},
			"priority 3 is not possible"},
		"exact cannot be left out": {p4rt.Entry{Table: "exact_t", Action: "drop"},
			`exact key field "hdr.ethernet.dst" is missing`},
		"kind of the field": {ternary(1, p4rt.Match{Field: "sm.ingress_port", Value: []byte{1},
			High: []byte{2}}), `field_id:2 range:{low:"\x01" high:"\x02"}`},
		"mask is missing": {ternary(1, p4rt.Match{Field: "hdr.ethernet.type", Value: []byte{1}}), "mask: "},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := tc.entry.Build(cat)
			if err != nil {
				if tc.want == "" || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want %q", err, tc.want)
				}
				return
			}
			want := &p4v1.TableEntry{}
			var text strings.Builder
			for part := range strings.SplitSeq(tc.want, "field_id") {
				if part != "" {
					text.WriteString("match { field_id" + part + "} ")
				}
			}
			if err := prototext.Unmarshal([]byte(text.String()), want); err != nil {
				t.Fatalf("%v in %q", err, text.String())
			}
			if !sameEntries([]*p4v1.TableEntry{want}, []*p4v1.TableEntry{{Match: e.GetTableEntry().GetMatch()}}) {
				t.Errorf("match %v, want %v", e.GetTableEntry().GetMatch(), want.GetMatch())
			}
		})
	}
}

func TestObligation13DefaultAndConstEntries(t *testing.T) {
	cat := catalogOf(t, entities(t))
	forward := []p4rt.Param{p4rt.Uint("port", 3)}
	for name, tc := range map[string]struct {
		entry p4rt.Entry
		want  string
	}{
		"default action":        {p4rt.Entry{Table: "exact_t", Default: true, Action: "only_default"}, ""},
		"back to the program's": {p4rt.Entry{Table: "exact_t", Default: true}, ""},
		"with a match": {p4rt.Entry{Table: "exact_t", Default: true,
			Match: []p4rt.Match{p4rt.Exact("hdr.ethernet.dst", []byte{1})}, Action: "drop"},
			"no match and no priority"},
		"with a priority": {p4rt.Entry{Table: "exact_t", Default: true, Priority: 1, Action: "drop"},
			"no match and no priority"},
		"constant default": {p4rt.Entry{Table: "ternary_t", Default: true, Action: "NoAction"},
			"default action constant"},
		"constant entries": {p4rt.Entry{Table: "const_t", Priority: 1, Action: "NoAction"}, "entries constant"},
		"keyless":          {p4rt.Entry{Table: "keyless_t", Action: "NoAction"}, "takes only a default action"},
		"default-only in an entry": {p4rt.Entry{Table: "exact_t",
			Match: []p4rt.Match{p4rt.Exact("hdr.ethernet.dst", []byte{1})}, Action: "only_default"}, "DEFAULT_ONLY"},
		"entry-only as default": {p4rt.Entry{Table: "exact_t", Default: true, Action: "only_entry"}, "TABLE_ONLY"},
		"not the table's action": {p4rt.Entry{Table: "exact_t", Default: true, Action: "mirror",
			Params: []p4rt.Param{p4rt.Uint("session", 1)}}, "not one of the table's"},
		"parameter missing": {p4rt.Entry{Table: "exact_t", Default: true, Action: "forward"},
			`"port" is missing`},
		"parameter twice": {p4rt.Entry{Table: "exact_t", Default: true, Action: "forward",
			Params: append(forward, forward...)}, "given twice"},
		"unknown parameter": {p4rt.Entry{Table: "exact_t", Default: true, Action: "drop", Params: forward},
			`no parameter "port"`},
		"action in an indirect": {p4rt.Entry{Table: "profiled_t",
			Match: []p4rt.Match{p4rt.Exact("sm.ingress_port", []byte{1})}, Action: "NoAction"}, "action profile"},
		"no action": {p4rt.Entry{Table: "exact_t",
			Match: []p4rt.Match{p4rt.Exact("hdr.ethernet.dst", []byte{1})}}, "no action is given"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tc.entry.Build(cat)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}

	// MODIFY replaces the whole entry, and a default action without a name is the one that the
	// program defines.
	s, c := ready(t, entities(t))
	with := func(port uint64, defaultAction string) p4rt.Desired {
		e := p4rt.Entry{Table: "exact_t", Match: []p4rt.Match{p4rt.Exact("hdr.ethernet.dst", []byte{1})},
			Action: "forward", Params: []p4rt.Param{p4rt.Uint("port", port)}}
		return p4rt.Desired{Entries: []p4rt.Entry{e, {Table: "exact_t", Default: true, Action: defaultAction}},
			Tables: []string{"exact_t"}}
	}
	for port := uint64(1); port < 3; port++ {
		if err := c.Reconcile(t.Context(), with(port, "only_default")); err != nil {
			t.Fatal(err)
		}
	}
	if es := entriesOn(t, s.addr, entities(t), "exact_t"); len(es) != 1 ||
		!p4values.Equal(es[0].GetAction().GetAction().GetParams()[0].GetValue(), []byte{2}) {
		t.Errorf("%v", es)
	}
	if a, err := s.sw.Default("I.exact_t"); err != nil || a == nil || a.Name != "I.only_default" {
		t.Errorf("the default action is %+v, %v", a, err)
	}
	if err := c.Reconcile(t.Context(), p4rt.Desired{Entries: []p4rt.Entry{{Table: "exact_t", Default: true}},
		Tables: []string{"exact_t"}}); err != nil {
		t.Fatal(err)
	}
	if es := entriesOn(t, s.addr, entities(t), "exact_t"); len(es) != 0 {
		t.Errorf("%v", es)
	}
	if a, err := s.sw.Default("I.exact_t"); err != nil || a == nil || a.Name != "I.drop" {
		t.Errorf("the default action is %+v, %v", a, err)
	}
}

// Values translated to strings are sent as they are; values translated to numbers are sent in the
// width of the translation.
func TestObligation18Translation(t *testing.T) {
	info := &p4configv1.P4Info{}
	text := `
tables { preamble { id: 1 name: "t" } action_refs { id: 2 }
  match_fields { id: 1 name: "port" match_type: EXACT type_name { name: "port_t" } }
  match_fields { id: 2 name: "vrf" match_type: EXACT type_name { name: "vrf_t" } } }
actions { preamble { id: 2 name: "a" } params { id: 1 name: "out" type_name { name: "port_t" } } }
type_info { new_types { key: "port_t" value { translated_type { uri: "p" sdn_string {} } } }
            new_types { key: "vrf_t" value { translated_type { uri: "v" sdn_bitwidth: 10 } } } }`
	if err := prototext.Unmarshal([]byte(text), info); err != nil {
		t.Fatal(err)
	}
	cat, err := p4values.NewCatalog(info)
	if err != nil {
		t.Fatal(err)
	}
	entry := func(vrf uint64) p4rt.Entry {
		return p4rt.Entry{Table: "t", Match: []p4rt.Match{p4rt.Exact("port", []byte("\x00Ethernet0")),
			p4rt.Exact("vrf", p4values.Uint(vrf))},
			Action: "a", Params: []p4rt.Param{p4rt.Bytes("out", []byte("Ethernet1"))}}
	}
	e, err := entry(1023).Build(cat)
	if err != nil {
		t.Fatal(err)
	}
	te := e.GetTableEntry()
	if string(te.GetMatch()[0].GetExact().GetValue()) != "\x00Ethernet0" ||
		string(te.GetAction().GetAction().GetParams()[0].GetValue()) != "Ethernet1" {
		t.Errorf("%v", te)
	}
	if _, err := entry(1024).Build(cat); err == nil {
		t.Error("1024 fits 10 bits")
	}
}
