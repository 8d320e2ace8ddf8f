// SPDX-License-Identifier: Apache-2.0

package score_test

import (
	"testing"

	"github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/lab/scenario/score"
)

func TestFill(t *testing.T) {
	type common struct {
		Epoch uint64 `leaf:"epoch"`
	}
	var row struct {
		common
		Share  float64  `leaf:"share"`
		Rank   int      `leaf:"rank"`
		Exact  bool     `leaf:"exact"`
		Status string   `leaf:"status"`
		Lost   *float64 `leaf:"lost"`
		Flows  *float64 `leaf:"flows"`
	}
	for name, l := range map[string]score.Leaf{
		"epoch": {Number: 7}, "share": {Number: 0.5}, "rank": {Number: -2}, "exact": {Number: 1}, "status": {Text: "complete"},
		"lost": {Number: 3}, "unknown": {Number: 9},
	} {
		l.Path = []*gnmi.PathElem{{Name: "state"}, {Name: name}}
		l.Fill(&row)
	}
	if row.Epoch != 7 || row.Share != 0.5 || row.Rank != -2 || !row.Exact || row.Status != "complete" || row.Flows != nil {
		t.Errorf("%+v", row)
	}
	if row.Lost == nil || *row.Lost != 3 {
		t.Errorf("lost: %v", row.Lost)
	}
}

// BenchmarkFill is what a leaf takes beside its way over gNMI.
func BenchmarkFill(b *testing.B) {
	var row struct {
		Status string   `leaf:"status"`
		Lost   *float64 `leaf:"lost"`
	}
	l := score.Leaf{Path: []*gnmi.PathElem{{Name: "lost"}}, Number: 1}
	for b.Loop() {
		l.Fill(&row)
	}
}
