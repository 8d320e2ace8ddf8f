// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/netsketch/netsketch/internal/test/netns"
)

// lateEpochs is the most epochs that a report is late, or that later reports count as dropped.
const lateEpochs = 4

// account has the published reasons for missing results.
type account struct {
	epochs         map[int64]bool     // epochs with results
	problems       map[int64][]string // problems of the reports of hosts, by epoch
	unmeasured     map[string]int64   // unused sketchlets by switch
	newest, length int64              // first epoch of the newest interval with results, and the epochs of one
	missed         int64              // epochs whose results the collector did not send to this program
	lost, atFirst  map[string]int64   // epochs without results, by the counter that counts them, now and at the restart
}

func (a *account) restart() {
	*a = account{epochs: map[int64]bool{}, problems: map[int64][]string{}, unmeasured: map[string]int64{},
		newest: a.newest, length: a.length, lost: a.lost, atFirst: maps.Clone(a.lost)}
	if a.lost == nil {
		a.lost, a.atFirst = map[string]int64{}, map[string]int64{}
	}
}

// take handles a row; missed changes of the row did not arrive.
func (a *account) take(list string, r netns.Row, missed int64) {
	switch list {
	case "/lightguardian/summary":
		a.newest = r.Number("first-epoch")
		a.length = r.Number("last-epoch") - a.newest + 1
		a.epochs[r.Number("epoch")] = true
		a.missed += missed
	case "/lightguardian/hosts/host":
		if problem := r.Text("problem"); problem != "" {
			e := r.Number("epoch")
			a.problems[e] = append(a.problems[e], r.Text("node")+": "+problem)
		}
	case "/lightguardian/coverage/interval":
		name := r.Text("node")
		a.unmeasured[name] = max(a.unmeasured[name], r.Number("unmeasured-sketchlets"))
	case "/collector/plugins/plugin", "/collector":
		name := list + " " + r.Text("name")
		a.lost[name] = r.Number("epochs-lost")
		if _, known := a.atFirst[name]; !known {
			a.atFirst[name] = a.lost[name]
		}
	}
}

// explain prints, for each interval whose row in flows is missing or has no count of packets, the
// reasons that the collector states. It returns an error if a row without a count has no reason, or
// if the collector counts fewer epochs without results than there are.
func (a *account) explain(flows map[string]netns.Row) error {
	counted := map[int64]bool{}
	first, end := int64(math.MaxInt64), int64(0)
	for _, r := range flows {
		from := r.Number("first-epoch")
		counted[from] = r["received-packets"] != nil
		first, end = min(first, from), max(end, from+a.length)
	}
	explained, silent := 0, map[int64]bool{}
	for from := first; from < end; from += a.length {
		has, listed := counted[from]
		if has {
			continue
		}
		var reasons []string
		for e := from; e < min(from+a.length+lateEpochs, a.newest+a.length); e++ { // excludes epochs to come
			for _, problem := range a.problems[e] {
				reasons = append(reasons, fmt.Sprintf("epoch %d: %s", e, problem))
			}
			if !a.epochs[e] {
				reasons = append(reasons, fmt.Sprintf("epoch %d: no results", e))
				silent[e] = true
			}
		}
		switch {
		case len(reasons) > 0:
			explained++
			fmt.Printf("no count in the interval from epoch %d, of %d reasons the first: %s\n", from, len(reasons),
				strings.Join(reasons[:min(len(reasons), 3)], ", "))
		case listed:
			return fmt.Errorf("the interval from epoch %d has no count of packets, and no reason", from)
		}
	}
	known := a.missed
	for name, n := range a.lost {
		known += n - a.atFirst[name]
	}
	switch {
	case explained == 0:
		return errors.New("each interval has a count of packets")
	case int64(len(silent)) > known:
		return fmt.Errorf("%d epochs have no results, and the collector counts %d", len(silent), known)
	}
	return nil
}
