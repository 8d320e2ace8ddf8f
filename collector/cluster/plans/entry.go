// SPDX-License-Identifier: Apache-2.0

package plans

import (
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// each converts the elements of a list.
func each[A, B any](list []A, convert func(A) B) (out []B) {
	for _, e := range list {
		out = append(out, convert(e))
	}
	return out
}

func entriesProto(entries []p4rt.Entry) []*clusterv1.Entry { return each(entries, entryProto) }
func entriesFrom(entries []*clusterv1.Entry) []p4rt.Entry  { return each(entries, entryFrom) }

func entryProto(e p4rt.Entry) *clusterv1.Entry {
	return &clusterv1.Entry{Table: e.Table, Priority: e.Priority, Default: e.Default, Action: e.Action,
		Matches: each(e.Match, func(m p4rt.Match) *clusterv1.Match {
			return &clusterv1.Match{Field: m.Field, Kind: uint32(m.Kind), Value: m.Value, Mask: m.Mask, High: m.High,
				PrefixLen: m.PrefixLen}
		}),
		Params: each(e.Params, func(p p4rt.Param) *clusterv1.Param {
			return &clusterv1.Param{Name: p.Name, Value: p.Value}
		})}
}

func entryFrom(e *clusterv1.Entry) p4rt.Entry {
	return p4rt.Entry{Table: e.GetTable(), Priority: e.GetPriority(), Default: e.GetDefault(), Action: e.GetAction(),
		Match: each(e.GetMatches(), func(m *clusterv1.Match) p4rt.Match {
			return p4rt.Match{Field: m.GetField(), Kind: p4values.MatchKind(m.GetKind()), Value: m.GetValue(),
				Mask: m.GetMask(), High: m.GetHigh(), PrefixLen: m.GetPrefixLen()}
		}),
		Params: each(e.GetParams(), func(p *clusterv1.Param) p4rt.Param {
			return p4rt.Param{Name: p.GetName(), Value: p.GetValue()}
		})}
}

func updateProto(u p4rt.Update) *clusterv1.Update {
	return &clusterv1.Update{Type: uint32(u.Type), Entry: entryProto(u.Entry)}
}

func updateFrom(u *clusterv1.Update) p4rt.Update {
	return p4rt.Update{Type: p4v1.Update_Type(u.GetType()), Entry: entryFrom(u.GetEntry())}
}
