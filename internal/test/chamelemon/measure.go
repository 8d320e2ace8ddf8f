// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

// Lists of module netsketch-chamelemon.
const (
	Root          = "/netsketch-chamelemon:chamelemon/"
	attentionList = Root + "attention"
	thresholdList = Root + "thresholds/threshold"
	encoderList   = Root + "encoders/encoder"
	VictimList    = Root + "victims/victim"
	HitterList    = Root + "heavy-hitters/heavy-hitter"
	SummaryList   = Root + "node-summaries/node-summary"
)

// Network is the device name of results that concern the whole network.
const Network = "network"

// Measured is the attention that a plugin published in an epoch.
type Measured struct {
	State   string // "healthy" or "ill", of the measured epoch
	Next    string // attention that the plugin decided for the epoch after the next
	Decoded bool   // whether all parts were decoded
	Settled bool
	Problem string
	Tl      float64
	Th      float64 // mean over the edge switches
	Sample  float64 // share of LL candidates that are encoded; 1 without candidates
	Victims float64 // estimated or exact number of flows that lost packets
	// Buckets of the IPv4 parts, summed over all arrays; BucketsHH counts one edge switch.
	BucketsHH, BucketsHL, BucketsLL float64
	// Flows that were decoded or, where Decoded is false, estimated: HH candidates per edge switch
	// (mean), HL and sampled LL of the whole network (Figure 7b).
	HH, HL, LL float64
	// Response is the time until the plugin decided the next configuration, Analysis the time until
	// its results were complete, both by the plugin's clock.
	Response, Analysis time.Duration
	// Load factors of the IPv4 parts; LoadHH is the mean over the edge switches.
	LoadHH, LoadHL, LoadLL float64
	// FailedHH, FailedHL and FailedLL report that a part of any family was not decoded, FailedHH at
	// one edge switch or more.
	FailedHH, FailedHL, FailedLL bool
}

// Sum returns the number of decoded flows of an upstream encoder, as the paper counts them.
func (m *Measured) Sum() float64 { return m.HH + m.HL + m.LL }

// Load returns Sum divided by the buckets of an upstream encoder of the paper's size, the paper's
// load factor.
func (m *Measured) Load() float64 { return m.Sum() / (Arrays * UpstreamBuckets) }

// Rows returns a list's rows of an epoch's results as maps of leaf to text; leaves of a container
// "state" omit its name, and absent leaves are missing.
func Rows(r *sdk.Results, list string) (out []map[string]string) {
	for i := range r.Tables {
		t := r.Tables[i].Table
		if t.List != list {
			continue
		}
		for row := range t.Rows() {
			m := make(map[string]string)
			for _, columns := range [][]table.Column{t.Keys, t.Values} {
				for c := range columns {
					if !columns[c].Null(row) {
						m[strings.TrimPrefix(columns[c].Name, "state/")] = string(columns[c].AppendText(nil, row))
					}
				}
			}
			out = append(out, m)
		}
	}
	return out
}

// Measure reads the plugin's results. The error names an absent leaf.
func Measure(r *sdk.Results) (*Measured, error) {
	rows := Rows(r, attentionList)
	if len(rows) != 1 {
		return nil, fmt.Errorf("%d rows of %s, expected 1", len(rows), attentionList)
	}
	a := rows[0]
	m := &Measured{State: strings.ToLower(a["network-state"]), Next: strings.ToLower(a["next-state"]),
		Decoded: a["status"] == "COMPLETE", Settled: a["configuration-known"] == "true", Problem: a["problem"]}
	read := reader{}
	m.Response, m.Analysis = time.Duration(read.number(a, "response-time")),
		time.Duration(read.number(a, "analysis-time"))
	m.Tl, m.Sample = read.number(a, "low-threshold"), read.number(a, "sample-rate")
	if m.Tl <= 1 {
		m.Sample = 1
	}
	m.Victims, _ = strconv.ParseFloat(a["victims"], 64) // absent if there is no result
	edges := 0.0
	for _, t := range Rows(r, thresholdList) {
		m.Th += read.number(t, "high-threshold")
		edges++
	}
	m.Th /= max(edges, 1)
	hh := 0.0
	for _, e := range Rows(r, encoderList) {
		failed := e["quality"] == "ESTIMATE"
		switch e["part"] {
		case "HH":
			m.FailedHH = m.FailedHH || failed && e["node"] != Network
		case "HL":
			m.FailedHL = m.FailedHL || failed && e["node"] == Network
		case "LL":
			m.FailedLL = m.FailedLL || failed && e["node"] == Network
		}
		if e["family"] != "IPV4" {
			continue
		}
		buckets, flows, load := read.number(e, "buckets"), read.number(e, "flows"), read.number(e, "load-factor")
		switch part := e["part"]; {
		case part == "HH" && e["node"] != Network:
			m.HH, m.LoadHH, m.BucketsHH = m.HH+flows, m.LoadHH+load, buckets
			hh++
		case part == "HL" && e["node"] == Network:
			m.HL, m.LoadHL, m.BucketsHL = flows, load, buckets
		case part == "LL" && e["node"] == Network:
			m.LL, m.LoadLL, m.BucketsLL = flows, load, buckets
		}
	}
	m.HH, m.LoadHH = m.HH/max(hh, 1), m.LoadHH/max(hh, 1)
	return m, read.err
}

// reader reads leaves; an absent leaf has the value 0.
type reader struct{ err error }

func (r *reader) number(row map[string]string, leaf string) float64 {
	text, ok := row[leaf]
	if !ok {
		return 0
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("leaf %s: %w", leaf, err)
	}
	return v
}
