// SPDX-License-Identifier: Apache-2.0

package p4values

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/encoding/prototext"
)

const exampleInfo = `
tables {
  preamble { id: 33554433 name: "I.fwd.ipv4_lpm" alias: "ipv4_lpm" }
  match_fields { id: 1 name: "hdr.ipv4.dst" bitwidth: 32 match_type: LPM }
  action_refs { id: 16777217 }
  action_refs { id: 16777218 scope: DEFAULT_ONLY }
  direct_resource_ids: 318767105
  size: 1024
}
tables {
  preamble { id: 33554434 name: "I.acl" alias: "acl" }
  match_fields { id: 1 name: "port" bitwidth: 9 match_type: TERNARY }
  match_fields { id: 2 name: "name" match_type: EXACT type_name { name: "name_t" } }
  action_refs { id: 16777218 }
  implementation_id: 285212673
  idle_timeout_behavior: NOTIFY_CONTROL
}
actions { preamble { id: 16777217 name: "I.fwd.set" alias: "set" } params { id: 1 name: "port" bitwidth: 9 } }
actions { preamble { id: 16777218 name: "NoAction" alias: "NoAction" } }
action_profiles { preamble { id: 285212673 name: "I.sel" alias: "sel" } with_selector: true size: 64 max_group_size: 8 }
direct_counters { preamble { id: 318767105 name: "I.fwd.c" alias: "c" } spec { unit: BOTH } direct_table_id: 33554433 }
registers {
  preamble { id: 369098753 name: "I.u.cells" alias: "cells"
             annotations: "@netsketch_readout(object = 3 , banks = 2)"
             annotations: "@mine_layout(levels=4, rows=8w5, key=\"src,dst\", fast)" }
  type_spec { bitstring { bit { bitwidth: 32 } } } size: 1000
}
registers {
  preamble { id: 369098754 name: "I.v.cells"
    structured_annotations {
      name: "netsketch_readout" kv_pair_list { kv_pairs { key: "object" value { int64_value: 1 } } }
    } }
  type_spec { bitstring { int { bitwidth: 16 } } } size: 7
}
controller_packet_metadata {
  preamble { id: 81826293 name: "packet_in" }
  metadata { id: 1 name: "reason" bitwidth: 8 } metadata { id: 2 name: "ingress_port" bitwidth: 9 }
  metadata { id: 3 name: "pad" bitwidth: 7 }
}
type_info { new_types { key: "name_t" value { translated_type { uri: "x" sdn_string {} } } } }
`

func parseInfo(t testing.TB, text string) *p4configv1.P4Info {
	t.Helper()
	info := &p4configv1.P4Info{}
	if err := prototext.Unmarshal([]byte(text), info); err != nil {
		t.Fatal(err)
	}
	return info
}

func TestCatalog(t *testing.T) {
	c, err := NewCatalog(parseInfo(t, exampleInfo))
	if err != nil {
		t.Fatal(err)
	}
	lpm, err := c.Tables.Name("ipv4_lpm")
	if err != nil || lpm.Name != "I.fwd.ipv4_lpm" || lpm.NeedsPriority || lpm.DirectCounter == nil || lpm.Size != 1024 {
		t.Errorf("ipv4_lpm: %+v, %v", lpm, err)
	}
	if a, ok := lpm.Action(16777218); !ok || a.Scope != p4configv1.ActionRef_DEFAULT_ONLY {
		t.Errorf("NoAction in ipv4_lpm: %+v, %v", a, ok)
	}
	acl, _ := c.Tables.ID(33554434)
	if !acl.NeedsPriority || acl.Profile == nil || !acl.Profile.Selector || !acl.IdleTimeout || !acl.Match[1].String {
		t.Errorf("acl: %+v", acl)
	}
	cells, err := c.Registers.Name("cells")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Readout{Object: 3, Banks: 2, Cells: 500}, cells.Readout); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]map[string]string{
		"netsketch_readout": {"object": "3", "banks": "2"},
		"mine_layout":       {"levels": "4", "rows": "8w5", "key": "src,dst", "fast": ""},
	}, cells.Annotations.Values()); diff != "" {
		t.Error(diff)
	}
	if r := c.Readouts(); len(r) != 2 || r[0].Name != "I.v.cells" || r[0].Readout.Cells != 7 || !r[0].Signed {
		t.Errorf("read-outs: %+v", r)
	}
	if _, err := c.Tables.Name("nope"); err == nil || !strings.Contains(err.Error(), "I.acl, I.fwd.ipv4_lpm") {
		t.Errorf("unknown table: %v", err)
	}
	h := c.PacketIn
	if h.Len() != 3 || h.ByName("ingress_port") != 1 || c.PacketOut != nil {
		t.Errorf("packet_in: %+v", h)
	}
}

func TestAmbiguousAlias(t *testing.T) {
	c, err := NewCatalog(parseInfo(t, `
registers { preamble { id: 1 name: "a.x" alias: "x" } size: 1 }
registers { preamble { id: 2 name: "b.x" alias: "x" } size: 1 }`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Registers.Name("x"); err == nil || !strings.Contains(err.Error(), "a.x, b.x") {
		t.Errorf("ambiguous alias: %v", err)
	}
}

func TestCatalogRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ info, want string }{
		"id twice": {`actions { preamble { id: 5 name: "a" } } actions { preamble { id: 5 name: "b" } }`,
			"same id"},
		"no id":   {`actions { preamble { name: "a" } }`, "has no id"},
		"no name": {`actions { preamble { id: 5 } }`, "has no name"},
		"name twice": {`actions { preamble { id: 5 name: "a" } } actions { preamble { id: 6 name: "a" } }`,
			`named "a"`},
		"unknown action": {`tables { preamble { id: 5 name: "t" } action_refs { id: 9 } }`,
			`table "t" uses action 0x9`},
		"unknown profile": {`tables { preamble { id: 5 name: "t" } implementation_id: 9 }`, "action profile 0x9"},
		"counter's table": {`direct_counters { preamble { id: 5 name: "c" } direct_table_id: 9 }`, "table 0x9"},
		"meter's table":   {`direct_meters { preamble { id: 5 name: "c" } direct_table_id: 9 }`, "table 0x9"},
		"metadata twice": {
			`controller_packet_metadata { preamble { id: 5 name: "packet_in" } metadata { id: 1 } metadata { id: 1 } }`,
			"used twice",
		},
		"no object number": {
			`registers { preamble { id: 5 name: "r" annotations: "@netsketch_readout(banks=2)" } size: 4 }`,
			`no "object"`,
		},
		"object no number": {
			`registers { preamble { id: 5 name: "r" annotations: "@netsketch_readout(object=x)" } size: 4 }`,
			"not a number",
		},
		"object too great": {
			`registers { preamble { id: 5 name: "r" annotations: "@netsketch_readout(object=256)" } size: 4 }`,
			"between 0 and 255",
		},
		"banks do not part": {
			`registers { preamble { id: 5 name: "r" annotations: "@netsketch_readout(object=1,banks=3)" } size: 4 }`,
			"cannot be split",
		},
		"object twice": {
			`registers { preamble { id: 5 name: "r" annotations: "@netsketch_readout(object=1)" } size: 4 }
			registers { preamble { id: 6 name: "s" annotations: "@netsketch_readout(object=1)" } size: 4 }`,
			"same read-out object",
		},
		"pieces without a counter": {
			`registers { preamble { id: 5 name: "r"
			annotations: "@netsketch_readout(object=1,piece=2,marker=1,marks=2)" } size: 4 }`,
			"expected a counter, and a mark",
		},
		"pieces without marks": {
			`registers { preamble { id: 5 name: "r"
			annotations: "@netsketch_readout(object=1,piece=2,marker=1)" } size: 4 }`,
			`no "marks"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewCatalog(parseInfo(t, tc.info)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestCookieIsStable(t *testing.T) {
	a, err := Cookie([]byte("{}"), parseInfo(t, exampleInfo))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := Cookie([]byte("{}"), parseInfo(t, exampleInfo))
	other, _ := Cookie([]byte("{ }"), parseInfo(t, exampleInfo))
	if a != b || a == other || a == 0 {
		t.Errorf("cookies %x %x %x", a, b, other)
	}
}

func FuzzAnnotation(f *testing.F) {
	for _, s := range []string{"@a", "@a(b=1,c=\"x,y\")", "@a(\"k=v,l=w\")", "@a[1,2]", "@", "@(", "a(b)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if a, ok := parseAnnotation(s); ok && a.Name == "" {
			t.Fatalf("%q has an empty name", s)
		}
	})
}
