// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
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

func outcomeProto(o intent.Outcome) *clusterv1.Outcome {
	return &clusterv1.Outcome{Plugin: o.Plugin, Plan: o.Plan, Maker: o.Maker, Number: o.Number, Device: o.Device,
		Host: o.Host, Role: o.Role, Result: uint32(o.Result), Begin: o.Begin, From: o.From, Reason: o.Reason}
}

func outcomeFrom(o *clusterv1.Outcome) intent.Outcome {
	return intent.Outcome{Plugin: o.GetPlugin(), Plan: o.GetPlan(), Maker: o.GetMaker(), Number: o.GetNumber(),
		Device: o.GetDevice(), Host: o.GetHost(), Role: o.GetRole(), Result: intent.Result(o.GetResult()),
		Begin: o.GetBegin(), From: o.GetFrom(), Reason: o.GetReason()}
}

// planProto converts a plan without its settings of hosts.
func planProto(p intent.SharedPlan) (*clusterv1.StoredPlan, error) {
	p.Plan.Hosts = nil
	data, err := proto.Marshal(p.Plan.Proto())
	return &clusterv1.StoredPlan{Number: p.Number, Plugin: p.Plugin, Undo: p.Undo, Plan: data}, err
}

func planFrom(p *clusterv1.StoredPlan) (out intent.SharedPlan, err error) {
	var m pluginv1.Plan
	if err = clusterv1.Unmarshal(p.GetPlan(), &m); err == nil {
		out.Plan, err = sdk.PlanFrom(&m)
	}
	out.Number, out.Plugin, out.Undo = p.GetNumber(), p.GetPlugin(), p.GetUndo()
	return out, err
}
