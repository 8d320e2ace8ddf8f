// SPDX-License-Identifier: Apache-2.0

// Package omnimon declares how the results of the plugin omnimon are scored: the packets and bytes
// of every published flow at its source, its destination and every switch between them, and every
// lost packet by its flow and the switch or link that lost it.
package omnimon

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/plugins/omnimon/plugin"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Measures that a scenario can bound.
const (
	FlowsExact    = "flows-exact"    // share of the published flows that are exact at both hosts
	HopsPublished = "hops-published" // share of the flows and switches on their paths that are published
	HopsExact     = "hops-exact"     // share of the published hops that are exact
	LossF1        = "loss-f1"        // flows and elements that lost packets
	LossesExact   = "losses-exact"   // share of the published losses with the exact packets and bytes
	SwitchesExact = "switches-exact" // share of the switches with exact losses
	LinksExact    = "links-exact"    // share of the links with exact losses
	// LinkFlowsBounded is the share of the published flows of links whose number of packets on the
	// link is within the published bounds.
	LinkFlowsBounded = "link-flows-bounded"
	LostPackets      = "lost-packets-error"
	Determined       = "determined" // share of the unknowns that are determined, mean over the epochs
	// SettledExact is losses-exact of the epochs that are settled.
	SettledExact = "settled-exact"
	FalseClaims  = "false-claims" // values published as exact that are not, mean over the epochs
	LostResults  = "lost"         // share of epochs without a complete result
)

// Lists of the plugin.
const (
	summary  = "summary"
	flows    = "flow"
	hops     = "hop"
	losses   = "loss"
	switches = "switch"
	links    = "link"
	linkRows = "link-flow"
)

// settled are the lists of the settled epoch, by the names of the lists of the newest epoch, with
// their claims.
var settled = []score.Claim{
	{List: flows, Quality: "quality", Leaves: []string{"packets", "bytes"}},
	{List: flows, Quality: "lost-packets-quality", Leaves: []string{"lost-packets"}},
	{List: hops, Quality: "quality", Leaves: []string{"packets"}},
	{List: losses, Quality: "quality", Leaves: []string{"lost-packets"}},
	{List: switches, Quality: "quality", Leaves: []string{"lost-packets"}},
	{List: links, Quality: "quality", Leaves: []string{"lost-packets"}},
	{List: linkRows, Quality: "quality", Leaves: []string{"packets"}},
}

// The bounds of lost packets.
const (
	lostLow  = "lost-packets-low"
	lostHigh = "lost-packets-high"
)

// rows is the number of rows in the report and on the screen.
const rows = 8

// Algorithm declares how OmniMon is scored.
func Algorithm() score.Algorithm {
	of := func(name, list string, stat score.Stat, leaves ...string) score.Measure {
		return score.Measure{Name: name, List: list, Stat: stat, Leaves: leaves,
			Dimension: func(*score.Epoch, score.View) (string, bool) { return "", true }}
	}
	claims := append(slices.Clone(settled),
		score.Claim{List: summary, Quality: "quality", Leaves: []string{"packets", "flows"}},
		score.Claim{List: summary, Quality: "lost-packets-quality", Leaves: []string{"lost-packets", "lossy-flows"}},
		score.Claim{List: score.Settled, Quality: "quality", Leaves: []string{"lost-packets", "lossy-flows"}})
	for _, c := range settled {
		c.List = score.Settled + "/" + c.List
		claims = append(claims, c)
	}
	return score.Algorithm{
		Plugin: "omnimon", Root: "omnimon",
		Summary: summary, Status: "status", Lost: LostResults, FalseClaims: FalseClaims,
		Views:       func(*score.Setting) []score.View { return []score.View{{Device: score.Network}} },
		GroundTruth: groundTruth, Header: layout,
		Measures: []score.Measure{
			of(FlowsExact, flows, score.Some(score.FoundCorrect), "packets", "bytes", "received-packets", "received-bytes",
				"lost-packets"),
			of(HopsPublished, hops, score.Some(score.Recall)),
			of(HopsExact, hops, score.Some(lower(score.FoundCorrect, "packets")), "position", "packets-low", "packets-high",
				"bytes"),
			of(LossF1, losses, score.F1),
			of(LossesExact, losses, lower(score.Correct, "lost-packets"), lostLow, lostHigh, "lost-bytes"),
			of(SwitchesExact, switches, score.Correct, lostLow, lostHigh),
			of(LinksExact, links, score.Correct, lostLow, lostHigh),
			of(LinkFlowsBounded, linkRows, bounded, "packets-low", "packets-high"),
			of(SettledExact, score.Settled+"/"+losses, lower(score.Correct, "lost-packets"), lostLow, lostHigh, "lost-bytes"),
			of(LostPackets, summary, score.RelativeError, "lost-packets"),
			of(Determined, summary, func(m *score.Measure, published, _ score.Rows) (score.Score, bool) {
				return score.ShareOf(published[""].Value(m.Leaves[0])), true
			}, "determined-share"),
		},
		Claims: claims,
		Report: []string{summary, switches, links, "alert"},
		Top: []score.Top{{Title: "lost packets, by flow and location", List: losses, Leaf: lostLow, Rows: rows,
			Shown: rows}},
		Screen: score.Screen{
			Columns: []score.Column{
				{Head: "packets", Width: 9, Cell: score.Measured(summary, "packets")},
				{Head: "flows", Width: 8, Cell: score.Measured(summary, "flows")},
				{Head: "lossy", Width: 6, Cell: score.Measured(summary, "lossy-flows")},
				{Head: "lost", Width: 6, Cell: score.Measured(summary, "lost-packets")},
			},
			Commands: []string{
				"gnmic -a %s --insecure -e proto --format flat get --path /omnimon/losses/loss",
				"gnmic -a %s --insecure -e proto --format flat subscribe --mode stream --path /omnimon/links/link",
			},
		},
	}
}

// layout is the header of packets.
func layout(s *score.Setting) (*header.Layout, error) {
	var c plugin.Configuration
	if err := settings.DecodeJSON(s.Config, &c); err != nil {
		return nil, err
	}
	return &header.Layout{Carrier: c.Carrier, EtherType: c.EtherType, Slots: c.SlotsPerFlow,
		Differences: len(c.Extremes)}, nil
}

// groundTruth returns the function that computes the ground truth of an epoch and of the one that
// is settled in it.
func groundTruth(*score.Setting) (func(*score.Epoch) score.Tables, error) {
	past := map[uint64]score.Tables{} // by epoch
	return func(e *score.Epoch) score.Tables {
		t, network := tables(e), score.View{Device: score.Network}
		past[e.Number] = t
		n := uint64(e.Published.Row(score.Settled, network, "").Value("last-epoch"))
		before, ok := past[n]
		if !ok || n == e.Number {
			return t
		}
		t = maps.Clone(t)
		t[score.Settled] = before[summary]
		for _, c := range settled {
			t[score.Settled+"/"+c.List] = before[c.List]
		}
		maps.DeleteFunc(past, func(k uint64, _ score.Tables) bool { return k < n })
		return t
	}, nil
}

// tables are the ground truth of an epoch.
func tables(e *score.Epoch) score.Tables {
	t, network := score.Tables{}, score.View{Device: score.Network}
	j := e.Truth.Journal
	if j == nil {
		return t
	}
	lost, byFlow, byElement := uint64(0), map[flow.Key]uint64{}, map[string]uint64{}
	bounds := func(n uint64) score.Leaves {
		return score.Leaves{"lost-packets": score.Number(n), lostLow: score.Number(n), lostHigh: score.Number(n)}
	}
	for l, n := range j.Lost {
		lost += n.Packets
		byFlow[l.Flow] += n.Packets
		byElement[l.Element] += n.Packets
		row := t.Rows(losses, network).Add(l.Flow.String()+"/"+l.Element, bounds(n.Packets))
		row.Leaves["lost-bytes"] = score.Number(n.Bytes)
	}
	t.Rows(losses, network) // without losses no row may be published
	sent := uint64(0)
	for k, n := range j.Sent {
		sent += n.Packets
		received := j.Received[k]
		t.Rows(flows, network).Add(k.String(), score.Leaves{
			"packets": score.Number(n.Packets), "bytes": score.Number(n.Bytes),
			"received-packets": score.Number(received.Packets), "received-bytes": score.Number(received.Bytes),
			"lost-packets": score.Number(byFlow[k])})
	}
	for key, row := range e.Published[flows][network] {
		if untagged, _ := row.Number("untagged-packets"); untagged > 0 {
			of := t.Rows(flows, network)[key]
			if of == nil {
				of = t.Rows(flows, network).Add(key, score.Leaves{})
				of.Optional = true
			}
			of.Leaves["packets"], of.Leaves["bytes"] = unknown, unknown
		}
	}
	for h, n := range j.Entered {
		t.Rows(hops, network).Add(h.Flow.String()+"/"+h.Switch, score.Leaves{
			"position": score.Number(uint64(h.Number) + 1), "bytes": score.Number(n.Bytes),
			"packets": score.Number(n.Packets), "packets-low": score.Number(n.Packets),
			"packets-high": score.Number(n.Packets)})
	}
	linkFlows(e, t.Rows(linkRows, network), network)
	for _, list := range []string{switches, links} {
		for name := range e.Published[list][network] {
			t.Rows(list, network).Add(name, bounds(byElement[name]))
		}
	}
	t.Rows(summary, network).Add("", score.Leaves{"packets": score.Number(sent),
		"flows": score.Number(len(j.Sent)), "lost-packets": score.Number(lost),
		"lossy-flows": score.Number(len(byFlow))})
	return t
}

// linkFlows adds what each flow sent on each link: what the next switch or the destination received
// of the flow, and what the link lost of it. The rows of flows name the hosts of addresses.
func linkFlows(e *score.Epoch, out score.Rows, network score.View) {
	type ends struct{ from, to string }
	names := map[ends]string{}
	for name := range e.Published[links][network] {
		from, to := sdk.LinkNodes(name)
		names[ends{from, to}] = name
	}
	hosts := map[netip.Addr]string{}
	for key, row := range e.Published[flows][network] {
		if k, err := flow.Parse(flow.FiveTuple, key); err == nil {
			hosts[k.SrcAddr()], hosts[k.DstAddr()] = row.Text("source-node"), row.Text("destination-node")
		}
	}
	j, sent := e.Truth.Journal, map[truth.Loss]uint64{}
	paths := map[flow.Key]map[uint8]truth.Hop{}
	for h := range j.Entered {
		if paths[h.Flow] == nil {
			paths[h.Flow] = map[uint8]truth.Hop{}
		}
		paths[h.Flow][h.Number] = h
	}
	for k, path := range paths {
		node := hosts[k.SrcAddr()]
		for n := range uint8(len(path)) {
			to := path[n].Switch
			sent[truth.Loss{Flow: k, Element: names[ends{node, to}]}] = j.Entered[path[n]].Packets
			node = to
		}
		sent[truth.Loss{Flow: k, Element: names[ends{node, hosts[k.DstAddr()]}]}] = j.Received[k].Packets
	}
	for l, n := range j.Lost {
		sent[l] += n.Packets
	}
	lost := map[flow.Key]uint64{}
	for l, n := range j.Lost {
		lost[l.Flow] += n.Packets
	}
	for l, n := range sent {
		out.Add(l.Flow.String()+"/"+l.Element, score.Leaves{"packets": score.Number(n),
			"packets-low": score.Number(n), "packets-high": score.Number(n)}).Optional = true
	}
	for key := range e.Published[linkRows][network] {
		text, _, _ := strings.Cut(key, "/")
		k, _ := flow.Parse(flow.FiveTuple, text)
		untagged, listed := e.Published[flows][network][text].Number("untagged-packets")
		without := !listed || untagged > 0
		onTheWay := j.Sent[k].Packets != j.Received[k].Packets+lost[k] // packets are on their way
		if !without && !onTheWay {
			continue
		}
		of := out[key]
		if of == nil {
			of = out.Add(key, score.Leaves{})
			of.Optional = true
		}
		if of.Leaves["packets"] = unknown; without {
			of.Leaves[untracked] = score.Number(1)
		}
	}
}

// unknown is a true value that the ground truth does not have: packets without a header, and
// packets on their way. No bound contradicts it, and no exact value is right.
var unknown = score.Number(math.NaN())

// untracked marks a flow that sent packets without a header, which the ground truth lacks, or that
// may have sent some, because the results do not list it.
const untracked = "untracked"

// lower returns the measure of, for which a row of quality LOWER_BOUND is right if its lower bound
// of the leaf is the true number: the row has no upper bound.
func lower(of score.Stat, leaf string) score.Stat {
	return func(m *score.Measure, published, truth score.Rows) (score.Score, bool) {
		rows := maps.Clone(published)
		for key, row := range rows {
			if hasOnlyLower(row, leaf) {
				filled := *row
				filled.Leaves = maps.Clone(row.Leaves)
				filled.Leaves[leaf+"-high"] = row.Leaves[leaf+"-low"]
				rows[key] = &filled
			}
		}
		return of(m, rows, truth)
	}
}

// hasOnlyLower reports whether a row bounds a leaf only from below.
func hasOnlyLower(row *score.Row, leaf string) bool {
	_, ok := row.Number(leaf + "-high")
	return !ok && row.Text("quality") == string(sdk.LowerBound)
}

// bounded returns the share of the published rows whose bounds contain the true number, without
// those of untracked flows. A row without a true number must have 0 as its lower bound.
func bounded(_ *score.Measure, published, truth score.Rows) (score.Score, bool) {
	right, rows := 0, 0
	for key, row := range published {
		if truth[key].Is(untracked) {
			continue
		}
		rows++
		n := truth[key].Value("packets-low")
		low, high := row.Value("packets-low"), row.Value("packets-high")
		if low <= n && (n <= high || hasOnlyLower(row, "packets")) {
			right++
		}
	}
	return score.ShareOf(float64(right) / float64(max(rows, 1))), rows > 0
}
