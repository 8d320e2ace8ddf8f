// SPDX-License-Identifier: Apache-2.0

package bmv2json

import (
	"math"
	"math/big"
)

func table(n *node) Table {
	t := Table{
		Name: n.at("name").str(), MatchType: n.at("match_type").str(), Type: n.at("type").str(),
		WithCounters: n.at("with_counters").boolean(false), SupportTimeout: n.at("support_timeout").boolean(false),
		DirectMeter: n.at("direct_meters").optStr(), MaxSize: n.at("max_size").optInt(0, maxSize, 1024),
		Profile: n.at("action_profile").optStr(), BaseDefault: n.at("base_default_next").optStr(), Source: source(n),
	}
	switch t.MatchType {
	case "exact", "lpm", "ternary", "range":
	default:
		n.at("match_type").fail("match type %q is not known", clip(t.MatchType))
	}
	switch t.Type {
	case "simple":
	case "indirect", "indirect_ws":
		if t.Profile == "" {
			n.fail("a table of type %q needs an action_profile", t.Type)
		}
	default:
		n.at("type").fail("table type %q is not known", clip(t.Type))
	}
	t.Key = each(n.at("key"), keyField)
	t.ActionIDs = ids(n.at("action_ids"))
	if n.at("action_ids").v == nil {
		n.fail("no action_ids: the file was written by a compiler that is too old")
	}
	next := n.at("next_tables")
	t.Next = map[string]string{}
	for k := range next.object() {
		t.Next[k] = next.at(k).optStr()
	}
	_, hit := t.Next["__HIT__"]
	_, miss := t.Next["__MISS__"]
	if hit != miss || hit && len(t.Next) != 2 {
		next.fail("expected __HIT__ and __MISS__ and nothing else, or neither")
	}
	t.HitMiss = hit
	if n.has("default_entry") {
		d := n.at("default_entry")
		t.Default = &DefaultEntry{
			ActionID: d.at("action_id").id(), ActionConst: d.at("action_const").boolean(false),
			EntryConst: d.at("action_entry_const").boolean(false), Data: each(d.at("action_data"), (*node).hex),
		}
	}
	if n.has("entries") {
		t.HasEntries = true
		t.Entries = each(n.at("entries"), entry)
	}
	return t
}

func keyField(n *node) KeyField {
	k := KeyField{MatchType: n.at("match_type").str(), Name: n.at("name").optStr()}
	target := n.at("target")
	switch k.MatchType {
	case "valid":
		k.Target = &Expr{Type: "header", Name: target.str()}
		if k.Name == "" {
			k.Name = k.Target.Name
		}
	case "exact", "lpm", "ternary", "range":
		target.tuple(2)
		k.Target = &Expr{Type: "field", Name: target.index(0).str(), Field: target.index(1).str()}
		if k.Name == "" {
			k.Name = k.Target.Name + "." + k.Target.Field
		}
	default:
		n.fail("match type %q is not known", clip(k.MatchType))
	}
	if n.has("mask") {
		k.Mask = n.at("mask").hexBytes()
	}
	return k
}

func entry(n *node) Entry {
	e := Entry{Priority: n.at("priority").optInt(math.MinInt32, math.MaxInt32, 0), Source: source(n)}
	e.Match = each(n.at("match_key"), func(n *node) EntryMatch {
		m := EntryMatch{MatchType: n.at("match_type").str()}
		switch m.MatchType {
		case "valid":
			m.Key = big.NewInt(0)
			if n.at("key").boolean(false) {
				m.Key = big.NewInt(1)
			}
		case "exact":
			m.Key = n.at("key").hex()
		case "lpm":
			m.Key, m.Prefix = n.at("key").hex(), n.at("prefix_length").integer(0, MaxWidth)
		case "ternary":
			m.Key, m.Mask = n.at("key").hex(), n.at("mask").hex()
		case "range":
			m.Key, m.Mask = n.at("start").hex(), n.at("end").hex()
		default:
			n.fail("match type %q is not known", clip(m.MatchType))
		}
		return m
	})
	a := n.at("action_entry")
	e.ActionID, e.Data = a.at("action_id").id(), each(a.at("action_data"), (*node).hex)
	return e
}
