// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"time"
)

// Report is all that a run came to. It marshals to one JSON object.
type Report struct {
	OK       bool      `json:"ok"`
	Scenario string    `json:"scenario"`
	Error    string    `json:"error,omitempty"`
	Clock    string    `json:"clock"` // wall or virtual
	Switches int       `json:"switches"`
	Hosts    int       `json:"hosts"`
	Program  string    `json:"program"`
	GNMI     string    `json:"gnmi"` // address of the collector's gNMI server
	Started  time.Time `json:"started"`

	Epochs   []EpochScore `json:"epochs"`
	Totals   []Total      `json:"totals"`
	Expected []Verdict    `json:"expected"`
	Network  NetworkStats `json:"network"`
	Latency  *Latency     `json:"latency,omitempty"`
}

// NetworkStats are counts over the whole run.
type NetworkStats struct {
	Sent     uint64 `json:"packets_sent"`
	Received uint64 `json:"packets_received"`
	Lost     uint64 `json:"packets_lost_on_links"`
	LagNS    int64  `json:"lag_ns"` // how late the newest packet was on the wall clock
}

// Latency is from the end of an epoch to the first gNMI update at this subscriber,
// over all epochs of the run.
type Latency struct {
	MedianNS int64 `json:"median_ns"`
	WorstNS  int64 `json:"worst_ns"`
	Epochs   int   `json:"epochs"`
}

// finish computes what depends on all epochs.
func (r *Report) finish(bounds []Bound) {
	if r.Epochs == nil {
		r.Epochs = []EpochScore{} // an array in JSON too
	}
	r.Totals = totals(r.Epochs)
	r.Expected = judge(bounds, r.Totals)
	r.OK = r.Error == "" && len(r.Epochs) > 0
	for _, v := range r.Expected {
		r.OK = r.OK && v.OK
	}
}
