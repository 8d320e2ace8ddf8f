// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/p4/bmv2"
)

// lightguardianScenario is two leaves and two spines with agents on all hosts.
func lightguardianScenario(tb testing.TB, epochs int, more string) *scenario.Scenario {
	tb.Helper()
	s, err := scenario.Parse("lightguardian.yaml", fmt.Appendf(nil, `
name: lightguardian
seed: 47
epochs: %d
epoch: 200ms
program: lightguardian
topology: {kind: leaf-spine, leaves: 2, spines: 2, hosts-per-leaf: 2}
agents: [lightguardian]
algorithms:
  - {plugin: lightguardian, config: {probability: 0.4, copies: 0}}
%s`, epochs, more))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// TestLightGuardian: a switch drops packets in one interval, then has wrong routes in another one,
// and both are found one interval later. Then half of the agents die: fewer columns arrive, an
// alert says so, and no fault is found.
func TestLightGuardian(t *testing.T) {
	s := lightguardianScenario(t, 7, `
traffic:
  - {name: web, rate: 225000, flows: 40, udp: 0.3}
faults:
  - {switch: spine1, loss: 0.4, from: 400ms, until: 600ms}
  - {switch: spine1, to: h1, via: leaf2, from: 600ms, until: 800ms}
  - {host: h2, kill: true, from: 1s}
  - {host: h4, kill: true, from: 1s}
expect:
  - {measure: hop-size-are, at-most: 0.01}
  - {measure: fault-alert-f1, dimension: PACKETS_LOST, at-least: 1}
  - {measure: fault-alert-f1, dimension: LOOP, at-least: 1}
  - {measure: alert-intervals, at-most: 1}
`)
	var covered []float64
	active := map[string][]int{} // epochs of the run, by alert
	r := playWith(t, s, scenario.Options{Virtual: true, OnEpoch: func(run *scenario.Run) error {
		i := len(run.Report().Epochs) - 1
		p := run.Report().Epochs[i].Results["lightguardian"].Published
		for _, rows := range p["summary"] {
			covered = append(covered, rows[""].Value("coverage"))
		}
		for _, rows := range p["alert"] {
			for key, row := range rows {
				if row.Is("active") {
					active[key] = append(active[key], i)
				}
			}
		}
		return nil
	}})
	check(t, r, s.Epochs)
	if len(covered) != 7 || covered[2] < 0.3 || covered[6] > 0.92*covered[2] || covered[6] < 0.1 {
		t.Errorf("shares of columns %v; want less without two hosts", covered)
	}
	for key, epochs := range active {
		missing := strings.HasPrefix(key, "HOST_MISSING/h") || key == "FEW_SKETCHLETS/network"
		if fault := epochs[0] == 3 || epochs[0] == 4; !missing && (!fault || len(epochs) > 1) {
			t.Errorf("alert %s is active in epochs %v of the run", key, epochs)
		}
	}
	for _, host := range []string{"h2", "h4"} {
		if epochs := active["HOST_MISSING/"+host]; len(epochs) == 0 || epochs[len(epochs)-1] != 6 {
			t.Errorf("host %s is missing in epochs %v of the run", host, epochs)
		}
	}
}

// TestLightGuardianUnreached: the collector does not reach one switch while two intervals begin,
// and another one while three do. What these switches send of the intervals is counted and not
// used: no hop lacks packets, but for those on their way when an interval begins. Two intervals
// later their columns count again.
func TestLightGuardianUnreached(t *testing.T) {
	s := lightguardianScenario(t, 9, `
traffic:
  - {name: web, rate: 40000, flows: 40}
faults:
  - {switch: spine1, refuse-calls: true, from: 500ms, until: 900ms}
  - {switch: spine2, refuse-calls: true, from: 500ms, until: 1100ms}
`)
	last := map[string]string{}
	hops, dropped := 0, map[string]int{} // epochs with sketchlets that are not used
	r := playWith(t, s, scenario.Options{Virtual: true, OnEpoch: func(run *scenario.Run) error {
		last = leaves(t, run.Address(), "lightguardian", "coverage")
		for at, n := range last {
			if strings.HasSuffix(at, "/unmeasured-sketchlets") && n != "0" {
				dropped[strings.TrimSuffix(at, "unmeasured-sketchlets")]++
			}
		}
		for at, n := range leaves(t, run.Address(), "lightguardian", "hops") {
			if strings.HasSuffix(at, "/lost-packets") {
				if hops++; len(strings.TrimPrefix(n, "-")) > 1 { // flows have 200 packets
					t.Errorf("epoch %d of the run: %s is %s", len(run.Report().Epochs), at, n)
				}
			}
		}
		return nil
	}})
	check(t, r, s.Epochs)
	if hops < 100 {
		t.Errorf("%d hops with packets", hops)
	}
	for name, want := range map[string]bool{"leaf1": false, "leaf2": false, "spine1": true, "spine2": true} {
		at := "/lightguardian/coverage/interval[" + name + "]/state/"
		if last[at+"received-columns"] == "0" || dropped[at] > 0 != want {
			t.Errorf("%s: %s columns of the last interval, sketchlets dropped in %d epochs", name,
				last[at+"received-columns"], dropped[at])
		}
	}
}

// TestLightGuardianExamples: the scenarios of examples/lightguardian, which `make
// lightguardian-faults` plays, can be read.
func TestLightGuardianExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/lightguardian/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v (%v)", files, err)
	}
	for _, f := range files {
		if _, err := scenario.Load(f); err != nil {
			t.Error(err)
		}
	}
}

// TestLightGuardianOnBMv2 compares what is published of one interval over BMv2 and over soft
// switches: all but times.
func TestLightGuardianOnBMv2(t *testing.T) {
	if _, err := exec.LookPath(bmv2.Program); err != nil {
		t.Skipf("%v: the scenario is played on soft switches only", err)
	}
	s := lightguardianScenario(t, 3, `
traffic:
  - {name: web, rate: 3000, flows: 10, udp: 0.3}
expect:
  - {measure: hop-size-are, at-most: 0}
  - {measure: partial-epochs, at-most: 0}
`)
	var results []map[string]string
	for _, external := range [][]string{nil, {"edge", "transit"}} {
		last := map[string]string{}
		r := playWith(t, s, scenario.Options{Virtual: true, BMv2: external, OnEpoch: func(run *scenario.Run) error {
			for _, list := range []string{"flows", "hops", "coverage", "node-summaries", "hosts"} {
				maps.Copy(last, leaves(t, run.Address(), "lightguardian", list))
			}
			return nil
		}})
		check(t, r, s.Epochs)
		maps.DeleteFunc(last, func(at, _ string) bool {
			leaf := at[strings.LastIndexByte(at, '/')+1:]
			return leaf == "gap" || leaf == "last-arrival" || leaf == "slow" || leaf == "faults" ||
				strings.HasPrefix(leaf, "latency") ||
				strings.HasSuffix(leaf, "epoch")
		})
		results = append(results, last)
	}
	if diff := gocmp.Diff(results[0], results[1]); diff != "" || len(results[0]) < 300 {
		t.Errorf("%d leaves (-soft switches, +BMv2):\n%.4000s", len(results[0]), diff)
	}
}
