// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// edit returns a test program with something changed in its tree.
func edit(t *testing.T, name string, change func(tree object)) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var tree object
	if err := json.Unmarshal(b, &tree); err != nil {
		t.Fatal(err)
	}
	change(tree)
	if b, err = json.Marshal(tree); err != nil {
		t.Fatal(err)
	}
	return b
}

type object = map[string]any

func items(v any, key string) []any { return v.(object)[key].([]any) }

// named finds the element of a list by name.
func named(l []any, name string) object {
	for _, v := range l {
		if v.(object)["name"] == name {
			return v.(object)
		}
	}
	return nil
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	ingress := func(tree object) object { return named(items(tree, "pipelines"), "ingress") }
	statement := func(tree object, action string, i int) object {
		return items(named(items(tree, "actions"), action), "primitives")[i].(object)
	}
	for _, tt := range []struct {
		name   string
		change func(tree object)
		kind   error
		want   []string
	}{
		{
			"primitive", func(tree object) { statement(tree, "I.wide", 0)["op"] = "teleport" },
			ErrNotImplemented, []string{`action "I.wide", statement 0 (teleport)`, "services.p4:",
				`primitive "teleport"`},
		},
		{
			"operand", func(tree object) { statement(tree, "I.wide", 0)["parameters"] = []any{} },
			ErrInvalid, []string{`action "I.wide"`, "takes 2 parameters, has 0"},
		},
		{
			"field", func(tree object) {
				items(statement(tree, "I.wide", 0), "parameters")[0].(object)["value"] = []any{"x", "nothing"}
			},
			ErrInvalid, []string{`action "I.wide"`, `header "x" has no field "nothing"`},
		},
		{
			"parameter", func(tree object) {
				items(statement(tree, "I.to_port", 0), "parameters")[1].(object)["value"] = 7
			},
			ErrInvalid, []string{`action "I.to_port"`, "parameter 7 of an action with 2"},
		},
		{
			"hash", func(tree object) {
				ingress(tree)["action_profiles"].([]any)[1].(object)["selector"].(object)["algo"] = "sha512"
			},
			ErrNotImplemented, []string{"sha512", "services.p4:"},
		},
		{
			"cycle", func(tree object) {
				tables := items(ingress(tree), "tables")
				for k := range named(tables, "I.selected")["next_tables"].(object) {
					named(tables, "I.selected")["next_tables"].(object)[k] = "I.exacts"
				}
				named(tables, "I.selected")["base_default_next"] = "I.exacts"
			},
			ErrInvalid, []string{`pipeline "ingress"`, "leads back to itself"},
		},
		{
			"next node", func(tree object) { ingress(tree)["init_table"] = "I.nowhere" },
			ErrInvalid, []string{`node "I.nowhere"`, "is not declared"},
		},
		{
			"table action", func(tree object) {
				named(items(ingress(tree), "tables"),
					"I.lpm4")["action_ids"] = []any{999}
			},
			ErrInvalid, []string{`table "I.lpm4"`, "services.p4:", "action id 999"},
		},
		{
			"default", func(tree object) {
				named(items(ingress(tree), "tables"),
					"I.exacts")["default_entry"].(object)["action_data"] = []any{"0x1ff0", "0x0"}
			},
			ErrInvalid, []string{`table "I.exacts", default entry`, "does not fit 9 bits"},
		},
		{
			"parse state", func(tree object) {
				s := items(items(tree, "parsers")[0], "parse_states")[0].(object)
				items(s, "transitions")[1].(object)["next_state"] = "lost"
			},
			ErrInvalid, []string{`parse state "start"`, `next state "lost"`},
		},
		{
			"parser statement", func(tree object) {
				s := items(items(tree, "parsers")[0], "parse_states")[0].(object)
				items(s, "parser_ops")[0].(object)["op"] = "guess"
			},
			ErrInvalid, []string{"parser_ops[0]", `parser operation "guess" is not known`},
		},
		{
			"select width", func(tree object) {
				s := items(items(tree, "parsers")[0], "parse_states")[0].(object)
				tr := items(s, "transitions")[0].(object)
				tr["type"], tr["value"] = "hexstr", "0x010203"
			},
			ErrInvalid, []string{`parse state "start", select`, "longer than the key"},
		},
		{
			"no egress", func(tree object) { tree["pipelines"] = items(tree, "pipelines")[:1] },
			ErrInvalid, []string{`no pipeline named "egress"`, "v1model"},
		},
		{
			"no standard metadata", func(tree object) {
				named(items(tree, "headers"), "standard_metadata")["name"] = "other"
			},
			ErrInvalid, []string{"standard_metadata.ingress_port"},
		},
		{
			"deparser", func(tree object) { items(tree, "deparsers")[0].(object)["order"] = []any{"ghost"} },
			ErrInvalid, []string{"deparser", `header "ghost"`},
		},
		{
			"register size", func(tree object) {
				tree["register_arrays"] = []any{object{"name": "r", "id": 0, "size": 1 << 28, "bitwidth": 128}}
			},
			ErrInvalid, []string{`register "r"`, "at most"},
		},
		{
			"twice", func(tree object) {
				tree["counter_arrays"] = append(items(tree, "counter_arrays"), items(tree, "counter_arrays")[0])
			},
			ErrInvalid, []string{`counter "I.counted"`, "declared twice"},
		},
		{
			"jump out", func(tree object) {
				a := named(items(tree, "actions"), "I.wide")
				a["primitives"] = append(items(a, "primitives"),
					object{"op": "_jump", "parameters": []any{object{"type": "hexstr", "value": "0x63"}}})
			},
			ErrInvalid, []string{`action "I.wide", statement 2 (_jump)`, "a jump to statement 99, but the action has 3"},
		},
		{
			"header length", func(tree object) {
				items(tree, "header_types")[1].(object)["fields"] = []any{[]any{"a", 3}}
			},
			ErrInvalid, []string{},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Compile(edit(t, "services", tt.change))
			if !errors.Is(err, tt.kind) {
				t.Fatalf("error %v, want %v", err, tt.kind)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q has no %q", err, w)
				}
			}
		})
	}
}

func TestProgramInfo(t *testing.T) {
	t.Parallel()
	p := load(t, "services")
	sel, ok := p.Table("I.selected")
	if !ok || sel.Implementation != "I.groups" || !sel.Selector || len(sel.Keys) != 1 ||
		sel.Keys[0] != (KeyInfo{Name: "hdr.x.key", Kind: MatchExact, Width: 16}) {
		t.Errorf("%+v", sel)
	}
	ex, _ := p.Table("I.exacts")
	if !ex.DirectCounter || !ex.IdleTimeout || ex.Size != 4 || ex.ConstEntries || ex.WantsPriority {
		t.Errorf("%+v", ex)
	}
	if tern, _ := p.Table("I.ternaries"); !tern.WantsPriority || tern.Keys[1].Kind != MatchRange {
		t.Errorf("%+v", tern)
	}
	if a, ok := p.Action("I.to_port"); !ok || len(a.Params) != 2 || a.Params[0] != (ParamInfo{Name: "port", Width: 9}) {
		t.Errorf("%+v", a)
	}
	if m := p.Info.Meters; len(m) != 2 || m[0].Unit != MeterPackets || m[1].Table != "I.metered_table" ||
		m[1].Unit != MeterBytes {
		t.Errorf("%+v", m)
	}
	if c := p.Info.Counters; len(c) != 2 || c[1].Table != "I.exacts" {
		t.Errorf("%+v", c)
	}
	if d := p.Info.Digests; len(d) != 1 || d[0].Name != "learn_t" || len(d[0].Widths) != 3 {
		t.Errorf("%+v", d)
	}
	if v := p.Info.ValueSets; len(v) != 1 || v[0].Size != 4 {
		t.Errorf("%+v", v)
	}
	if pr := p.Info.Profiles; len(pr) != 2 || pr[1].Size != 32 || !pr[1].Selector {
		t.Errorf("%+v", pr)
	}
}

// FuzzCompile: no JSON makes Compile panic, and what compiles runs packets without panic.
func FuzzCompile(f *testing.F) {
	names, _ := filepath.Glob("testdata/*.json")
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			f.Fatal(err)
		}
		// smaller seeds mutate better
		var small any
		if json.Unmarshal(b, &small) == nil {
			dropSources(small)
			if c, err := json.Marshal(small); err == nil {
				b = c
			}
		}
		f.Add(b, []byte(
			"\x01a packet that is long enough for the headers of all programs ........................................."))
	}
	f.Fuzz(func(_ *testing.T, js, pkt []byte) {
		runHostile(js, pkt, pkt, pkt)
	})
}

func dropSources(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "source_info")
		for _, x := range v {
			dropSources(x)
		}
	case []any:
		for _, x := range v {
			dropSources(x)
		}
	}
}

// FuzzPacket: no packet makes a program panic, and what leaves is what came in with headers
// changed.
func FuzzPacket(f *testing.F) {
	f.Add(uint8(0), []byte{})
	f.Add(uint8(0), udp(1, 2, 3, 4))
	f.Add(uint8(255), readOutRequest(1, 0, 0, 0))
	f.Add(uint8(1), append([]byte{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 0x81, 0, 0, 1, 0x86, 0xdd, 0x60},
		make([]byte, 60)...))
	univmon := router(f, "univmon", Config{})
	univmon.SetPacketIn(func([]byte) {})
	parsing := New(Config{})
	f.Cleanup(parsing.Close)
	if err := parsing.Load(load(f, "parsing")); err != nil {
		f.Fatal(err)
	}
	if err := parsing.AddPort(0, Port{}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, port uint8, pkt []byte) {
		if len(pkt) > maxPacket {
			return
		}
		if port == DefaultCPUPort {
			if err := univmon.PacketOut(pkt); err != nil {
				t.Fatal(err)
			}
		} else {
			univmon.Inject(uint32(port%4), pkt, 0)
		}
		parsing.Inject(0, pkt, 0)
	})
}
