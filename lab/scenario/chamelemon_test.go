// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/chamelemon"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/settings/yaml"
)

// load reads one of the example scenarios, with fewer epochs.
func load(t *testing.T, name string, epochs int) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Load("../../examples/chamelemon/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	if epochs > 0 {
		s.Epochs = epochs
	}
	return s
}

// The program on four edge switches, the collector and the plugin publish over gNMI every flow that
// lost packets and how many.
func TestChameleMonHealthy(t *testing.T) {
	s := load(t, "small", 5)
	s.Traffic[0].MaxPackets = 6
	r := play(t, s)
	check(t, r, s.Epochs)
	settled := 0
	for i := range r.Epochs {
		e := losses(t, &r.Epochs[i])
		if e.Found.TruePositive != 300 || e.Exact != 300 {
			t.Errorf("epoch %d of the run: %+v, %d exact; 300 flows lost packets", i+1, e.Found, e.Exact)
		}
		if e.Settled {
			settled++
		}
	}
	if settled < s.Epochs-2 {
		t.Errorf("%d of %d epochs are settled", settled, s.Epochs)
	}
}

// All scenarios of the example are read without an error, and its page describes each.
func TestChameleMonExamples(t *testing.T) {
	page, err := os.ReadFile("../../examples/chamelemon/README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../examples/chamelemon/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		load(t, strings.TrimSuffix(filepath.Base(f), ".yaml"), 0)
		if link := "](" + filepath.Base(f) + ")"; !strings.Contains(string(page), link) {
			t.Errorf("the page has no link to %s", f)
		}
	}
}

// The six tasks about what entered, at each switch and of the network: while every flow is a
// heavy-hitter candidate from its first packet on, all of them exactly, flow sizes among them.
func TestChameleMonTasks(t *testing.T) {
	s := load(t, "tasks", 3)
	s.WarmUp = 0 // the first epoch already has the attention of all epochs
	s.Watch, s.Traffic[0].Flows, s.Traffic[1].Flows = 100, 1500, 200
	s.Traffic[0].MaxPackets, s.Traffic[1].MaxPackets = 70, 70 // heavy hitters have 50
	s.Expect = nil
	least, most := 1.0, 0.00001 // entropy is published with six digits
	for _, m := range []string{chamelemon.HeavyHitterF1, chamelemon.HeavyChangeF1, chamelemon.VictimEnds,
		chamelemon.VictimsExact} {
		s.Expect = append(s.Expect, scenario.Bound{Measure: m, AtLeast: &least})
	}
	for _, m := range []string{
		chamelemon.FlowSizeARE, chamelemon.DistributionWMRE, chamelemon.EntropyError, chamelemon.DistinctError,
		chamelemon.PacketsError,
		chamelemon.FalseClaims, scenario.PartialEpochs,
	} {
		s.Expect = append(s.Expect, scenario.Bound{Measure: m, AtMost: &most})
	}
	r := play(t, s)
	check(t, r, s.Epochs)
	for i := 1; i < len(r.Epochs); i++ { // flows are watched, and changed, from the second one on
		e := losses(t, &r.Epochs[i])
		for _, device := range []string{"edge1-1", "edge1-2", "edge2-1", "edge2-2", "network"} {
			v := e.Views[device]
			if v == nil || v.Hitters == nil || v.Hitters.TruePositive == 0 || v.Changes == nil ||
				v.Changes.TruePositive == 0 || v.SizeARE == nil || v.WMRE == nil || v.Entropy == nil ||
				v.Distinct == nil {
				t.Errorf("epoch %d of the run: not all tasks of %s: %+v", i+1, device, v)
			}
		}
	}
}

// Faults of a link: random loss, a dead link, a grey failure. Victims and their losses are
// published exactly.
func TestChameleMonFaults(t *testing.T) {
	for name, least := range map[string]int{"link-loss": 10, "dead-link": 100, "grey-failure": 1} {
		t.Run(name, func(t *testing.T) {
			s := load(t, name, 4)
			s.Faults[0].From = 2 * s.Epoch
			s.Traffic[0].Flows, s.Traffic[0].MaxPackets = 1000, 20
			r := play(t, s)
			check(t, r, s.Epochs)
			for i := range r.Epochs {
				e, begun := losses(t, &r.Epochs[i]), i >= int(s.Faults[0].From/s.Epoch)
				if begun && (e.Found.TruePositive < least || e.Exact != e.Found.TruePositive) || !begun &&
					e.Found.TruePositive > 10 {
					t.Errorf("epoch %d of the run: %+v, %d exact", i+1, e.Found, e.Exact)
				}
			}
		})
	}
}

// victims is the number of flows that lose packets in each epoch of a faulty scenario.
const victims = 100

// faulty is the small scenario with faults and with fewer and smaller flows.
func faulty(t *testing.T, epochs int, faults ...scenario.Fault) *scenario.Scenario {
	t.Helper()
	s := load(t, "small", epochs)
	s.Faults, s.Expect = faults, nil
	s.Traffic[0].Flows, s.Traffic[0].MaxPackets = 10*victims, 6
	allRows, err := yaml.Section("the test", "{plugin: chamelemon, config: {heavy-hitters: {packets: 10, "+
		"share: 0.0001, limit: 10000}, heavy-changes: {packets: 10, limit: 10000}, victims: {limit: 20000}}}")
	if err != nil {
		t.Fatal(err)
	}
	s.Algorithms[0] = allRows
	return s
}

// An edge switch is missing: until it is back no losses are published, and values published as
// exact are exact.
func TestChameleMonWithoutAnEdge(t *testing.T) {
	s := faulty(t, 10, scenario.Fault{Switch: "edge2-1", Refuse: true, From: 200 * time.Millisecond,
		Until: 300 * time.Millisecond})
	r, w := playWatched(t, s, nil)
	var missing []int
	for i := range r.Epochs {
		e := losses(t, &r.Epochs[i])
		if r.Epochs[i].Status == "COMPLETE" {
			if e.State != "NONE" && e.Views["edge2-1"] == nil {
				t.Errorf("epoch %d of the run is complete and has nothing of edge2-1", i+1)
			}
			continue
		}
		missing = append(missing, i)
		if e.Decoded || e.Problem == "" || e.Found != nil && e.Found.TruePositive > 0 {
			t.Errorf("epoch %d of the run is %s, and losses are published: decoded %v, problem %q, %+v", i+1,
				r.Epochs[i].Status, e.Decoded, e.Problem, e.Found)
		}
		if e.Views["edge1-1"] == nil {
			t.Errorf("epoch %d of the run has nothing of edge1-1, which was there", i+1)
		}
	}
	if first, last := losses(t, &r.Epochs[3]), losses(t, &r.Epochs[len(r.Epochs)-1]); len(missing) == 0 ||
		!first.Decoded || !last.Decoded {
		t.Errorf("epochs without the switch: %v; decoded before: %v, at the end: %v", missing, first.Decoded,
			last.Decoded)
	}
	w.alerted(t, r, "edge2-1", "SWITCH_MISSING", "nothing was delivered", missing...)
}

// A switch that flips late, but within the guard, does not change the results.
func TestChameleMonClockWithinTheGuard(t *testing.T) {
	s := faulty(t, 5, scenario.Fault{Switch: "edge1-2", Late: 4 * time.Millisecond})
	s.Guard = 6 * time.Millisecond
	r := play(t, s)
	for i := range r.Epochs {
		if e := losses(t, &r.Epochs[i]); i > 1 && (!e.Sure || !e.Decoded ||
			e.Exact != e.Found.TruePositive+e.Found.FalseNegative || e.Exact == 0) {
			t.Errorf("epoch %d of the run: sure %v, decoded %v, %d exact of %+v", i+1, e.Sure, e.Decoded, e.Exact,
				e.Found)
		}
	}
}

// If a switch flips later than the guard, the epochs have an alert, and no value that needs several
// switches is published as exact.
func TestChameleMonClockBeyondTheGuard(t *testing.T) {
	s := faulty(t, 10, scenario.Fault{Switch: "edge1-2", Late: 8 * time.Millisecond, From: 225 * time.Millisecond,
		Until: 375 * time.Millisecond})
	s.Guard = 2 * time.Millisecond
	r, w := playWatched(t, s, nil)
	// The lab delays the late flip until the other switches have flipped. On a busy machine, their
	// acknowledgments may arrive after the late flip, so that the collector cannot know that the
	// flips were apart.
	var apart []int
	for i, alerts := range w.epochs {
		if alerts["[network][OUT_OF_STEP]"] != "" {
			apart = append(apart, i)
		}
	}
	if len(apart) < 2 || apart[0] < 4 || apart[len(apart)-1] > 6 { // the flows end at 250, 300 and 350 ms
		t.Fatalf("the flips of epochs %v of the run were apart, counted from 0; expected two of 4, 5 and 6", apart)
	}
	w.alerted(t, r, "network", "OUT_OF_STEP", "apart, more than the guard of 2ms", apart...)
	for i := range r.Epochs {
		e := losses(t, &r.Epochs[i])
		late := slices.Contains(apart, i)
		switch {
		case late && (e.Sure || !strings.Contains(e.Problem, "guard")):
			t.Errorf("epoch %d of the run: all victims exact: %v, problem %q; a switch was late", i+1, e.Sure,
				e.Problem)
		case i >= 2 && i < 4 || i > 8:
			if !e.Sure || e.Exact != victims {
				t.Errorf("epoch %d of the run: all victims exact: %v, and are %d: %s", i+1, e.Sure, e.Exact, e.Problem)
			}
		}
	}
}

// A plugin that is stopped for more than an epoch has late plans and loses epochs. Values published
// as exact while it catches up are exact.
func TestChameleMonLatePlan(t *testing.T) {
	s := load(t, "small", 200)
	s.Epoch, s.Expect = 400*time.Millisecond, nil
	s.Traffic[0].Changes, s.Traffic[0].MaxPackets = nil, 6
	for i := range s.Epochs / 2 { // attention moves all the time
		s.Traffic[0].Changes = append(s.Traffic[0].Changes, change(s.Epoch*time.Duration(2*i+1), 1000*(1+i%2*3)))
	}
	const stopAfter, held, least = 3, 3, 4
	pid, stopped, back := 0, 0, 0 // the process, the number of epochs before it was stopped, epochs with results again
	o := scenario.Options{OnEpoch: func(run *scenario.Run) error {
		all := run.Report().Epochs
		switch n := len(all); {
		case n >= stopAfter && stopped == 0:
			// On a busy machine the plugin may be late by itself, and the collector may be starting
			// another process.
			pid = int(leaf(t, run.Address(), pluginPath("chamelemon", "pid")).GetUintVal())
			if pid > 0 && testkit.Signal(pid, syscall.SIGSTOP) == nil {
				stopped = n
			}
		case stopped > 0 && n == stopped+held:
			// The collector may have ended the process meanwhile, and started another one.
			if err := testkit.Signal(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		case stopped > 0 && n > stopped+held && losses(t, &all[n-1]).State != "NONE":
			if back++; back == least {
				return errEnough
			}
		}
		return nil
	}}
	r := playWith(t, s, o)
	var states []string
	without := 0
	for i := range r.Epochs {
		e := losses(t, &r.Epochs[i])
		if e.State == "NONE" {
			without++
		}
		states = append(states, fmt.Sprintf("%s/%v/%v", e.State, e.Decoded, e.Settled))
	}
	t.Log(strings.Join(states, " "))
	if without == 0 || back < least {
		t.Errorf("%d epochs without results, %d with results again; the plugin was stopped for three", without, back)
	}
}

// A plugin that is killed continues with its saved state: the division of the encoders stays, the
// counts of alerts and changes of state go on, and the first epoch that it analyzes again is
// published exactly.
func TestChameleMonKilled(t *testing.T) {
	s := faulty(t, 200)
	// the HL part must grow
	s.Traffic[0].Workload, s.Traffic[0].Scale, s.Traffic[0].Flows, s.Traffic[0].Victims.Share = "", 1, 7000, 0.25
	const killAfter, least = 4, 3
	began, pid, back := "", 0, 0
	count := func(run *scenario.Run) string {
		return leaves(t, run.Address(), "chamelemon",
			"alerts")["/chamelemon/alerts/alert[network][NOT_DECODED]/state/count"]
	}
	run, err := scenario.Open(t.Context(), s, scenario.Options{Compiler: &compiler, PluginDir: plugins,
		Listen: "127.0.0.1:0", Virtual: true, OnEpoch: func(run *scenario.Run) error {
			all := run.Report().Epochs
			switch e := losses(t, &all[len(all)-1]); {
			case len(all) == killAfter:
				began, pid = count(run), int(leaf(t, run.Address(), pluginPath("chamelemon", "pid")).GetUintVal())
				return testkit.Signal(pid, syscall.SIGKILL)
			case len(all) > killAfter && e.State != "NONE":
				if back++; back == least {
					return errEnough
				}
			}
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := run.Play(t.Context())
	if !errors.Is(err, errEnough) {
		t.Errorf("after %d epochs the plugin has answered %d times again: %v", len(r.Epochs), back, err)
	}
	if now := count(run); began != "1" || now != began {
		t.Errorf("it was not decoded %q times before, %q times in all; expected once, at the beginning", began, now)
	}
	if again := leaf(t, run.Address(), pluginPath("chamelemon", "pid")).GetUintVal(); pid == 0 || int(again) == pid {
		t.Errorf("process %d was killed, and %d runs", pid, again)
	}
	if err := run.Close(); err != nil {
		t.Error(err)
	}
	before := losses(t, &r.Epochs[killAfter-1])
	for i := killAfter - 1; i < len(r.Epochs); i++ {
		e := losses(t, &r.Epochs[i])
		if e.State == "NONE" {
			continue
		}
		if !e.Sure || e.Exact != 1750 || e.HL.Buckets != before.HL.Buckets || e.HL.Buckets <= 1539 {
			t.Errorf("epoch %d of the run: all victims exact: %v, %d are; HL %+v, before %+v", i+1, e.Sure, e.Exact,
				e.HL, before.HL)
		}
	}
}

// errEnough ends a run.
var errEnough = errors.New("enough was seen")

// Longer runs, not for every day: `make chamelemon-healthy`.
func TestChameleMonWorkloads(t *testing.T) {
	if os.Getenv("NETSKETCH_CHAMELEMON") == "" {
		t.Skip("takes many minutes: run `make chamelemon-healthy`, which sets NETSKETCH_CHAMELEMON")
	}
	// The factor of flow sizes, so that a machine can play the workload; sizes of CACHE are small
	// already.
	scales := map[string]float64{"dctcp": 0.01, "cache": 1, "vl2": 0.01, "hadoop": 0.1}
	for _, workload := range []string{"dctcp", "cache", "vl2", "hadoop"} {
		for flows := 10_000; flows <= 70_000; flows += 20_000 {
			t.Run(fmt.Sprintf("%s/%d", workload, flows), func(t *testing.T) {
				s := load(t, "healthy", 14)
				s.WarmUp = 8
				s.Expect = slices.DeleteFunc(s.Expect, func(b scenario.Bound) bool {
					return !slices.Contains([]string{chamelemon.FalseClaims, scenario.PartialEpochs,
						chamelemon.VictimF1, chamelemon.VictimsExact}, b.Measure)
				})
				s.Traffic[0].Workload, s.Traffic[0].Flows = workload, flows
				s.Traffic[0].Scale, s.Traffic[0].MaxPackets = scales[workload], 200
				r := play(t, s)
				check(t, r, s.Epochs)
				for i := s.WarmUp; i < len(r.Epochs); i++ {
					if e := losses(t, &r.Epochs[i]); !e.Decoded || e.State != "HEALTHY" || e.Exact != flows/10 {
						t.Errorf("epoch %d of the run: %s, decoded %v, %d of %d victims exact", i+1, e.State, e.Decoded,
							e.Exact, flows/10)
					}
				}
			})
		}
	}
}

func change(from time.Duration, flows int) traffic.Change {
	return traffic.Change{From: from, Flows: flows}
}
