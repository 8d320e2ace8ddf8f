// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/lab"
	"github.com/netsketch/netsketch/lab/scenario"
)

// mixed is a fat tree whose switches run the programs of all algorithms, drawn by a seed, with the
// plugins of all, and agents with all roles.
func mixed(t *testing.T, seed uint64, carrier string) (*scenario.Scenario, *lab.Fabric) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 21))
	f, err := lab.FatTree(4, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	programs := []string{"omnimon", "omnimon", "univmon", "forwarding", "chamelemon", "lightguardian", "sketchint",
		"sketchint-edge"}
	drawn := []string{f.Switches[0].Name + ": omnimon"} // without such a switch, hosts get no settings
	for _, s := range f.Switches[1:] {
		drawn = append(drawn, s.Name+": "+programs[rng.IntN(len(programs))])
	}
	s, err := scenario.Parse("mixed.yaml", fmt.Appendf(nil, `
name: mixed
seed: %d
epochs: 6
epoch: 200ms
program: omnimon
programs: {%s}
topology: {kind: fat-tree, k: 4, latency: 10us}
agents: [univmon, lightguardian, sketchint, omnimon]
traffic:
  - {name: web, rate: 3000, flows: 300, zipf: 1.0, udp: 0.3, ipv6: 0.2}
algorithms:
  - {plugin: univmon, config: {hosts: {packets: all}}}
  - {plugin: chamelemon}
  - {plugin: lightguardian}
  - {plugin: sketchint, config: {interval: 200ms, heavy: 10}}
  - {plugin: omnimon, config: {carrier: %s, limits: {flows: 1000, hops: 1000, losses: 100000, link-flows: 2000}}}
expect:
  - {measure: false-claims, algorithm: omnimon, at-most: 0}
`, seed+1, strings.Join(drawn, ", "), carrier))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d, %s, %s", seed, carrier, drawn)
	return s, f
}

// reasons counts why results of OmniMon are not exact, its alerts, and why hosts have no lease.
func reasons(t *testing.T, run *scenario.Run) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, list := range []string{"omnimon/summary", "omnimon/flows", "omnimon/switches", "omnimon/links",
		"omnimon/hosts", "omnimon/losses", "omnimon/alerts"} {
		for path, v := range leaves(t, run.Address(), strings.Split(list, "/")...) {
			// The summary names a switch that runs another program: paths through it are incomplete.
			other := list == "omnimon/summary" && strings.HasSuffix(v, ": its program does not measure")
			if strings.HasSuffix(path, "/problem") && v != "" && !other || strings.HasSuffix(path, "/text") {
				out[list+": "+v]++
			}
		}
	}
	for path, v := range leaves(t, run.Address(), "collector", "hosts") {
		if strings.HasSuffix(path, "/no-lease") && v != "" {
			out[path+": "+v]++
		}
	}
	return out
}

// bounds counts the values of SketchINT and LightGuardian that are said to be upper bounds.
func bounds(t *testing.T, run *scenario.Run) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, list := range []string{"sketchint/flows", "sketchint/heavy-hitters", "lightguardian/hops",
		"lightguardian/delays"} {
		plugin, _, _ := strings.Cut(list, "/")
		for _, v := range leaves(t, run.Address(), strings.Split(list, "/")...) {
			if v == "UPPER_BOUND" {
				out[plugin]++
			}
		}
	}
	return out
}

// TestOmniMonMixed: in a healthy network with programs of all algorithms every flow of OmniMon is
// exact at every switch, it has no alert, and every packet arrives as it was sent. SketchINT and
// LightGuardian publish bounds of the packets of flows unless the carrier hides flows from them.
func TestOmniMonMixed(t *testing.T) {
	for _, carrier := range []string{"option", "shim", "tunnel"} {
		t.Run(carrier, func(t *testing.T) {
			s, _ := mixed(t, rand.Uint64N(1<<32), carrier)
			for _, m := range []string{"flows-exact", "hops-exact", "switches-exact", "links-exact", "losses-exact"} {
				one := 1.0
				s.Expect = append(s.Expect, scenario.Bound{Measure: m, AtLeast: &one})
			}
			var examples []string
			bounded := map[string]int{}
			r := playWith(t, s, scenario.Options{Virtual: true, OnEpoch: func(run *scenario.Run) error {
				for reason, n := range reasons(t, run) {
					t.Errorf("%d times %s", n, reason)
				}
				for plugin, n := range bounds(t, run) {
					bounded[plugin] += n
				}
				_, examples = run.Network().Altered()
				return nil
			}})
			check(t, r, s.Epochs)
			if n := bounded["sketchint"] + bounded["lightguardian"]; (n > 0) != (carrier == "option") {
				t.Errorf("%v values are said to be upper bounds", bounded)
			}
			if r.Network.Altered != 0 {
				t.Errorf("%d packets arrived other than they were sent, such as\n%s", r.Network.Altered,
					strings.Join(examples, "\n"))
			}
			if n := r.Network; n.Lost != 0 || len(n.Dropped) != 0 || n.Received+n.InFlight != n.Sent {
				t.Errorf("%+v", n)
			}
		})
	}
}

// TestOmniMonMixedFailures: links lose packets, up to 20 % on a link, and agents come and go. Each
// published reason is one that these failures can cause, and nothing is published that is not true.
func TestOmniMonMixedFailures(t *testing.T) {
	for _, carrier := range []string{"option", "shim", "tunnel"} {
		t.Run(carrier, func(t *testing.T) {
			seed := rand.Uint64N(1 << 32)
			s, f := mixed(t, seed, carrier)
			rng := rand.New(rand.NewPCG(seed, 22))
			for range 3 {
				s.Faults = append(s.Faults,
					scenario.Fault{Link: f.LinkName(f.Links[rng.IntN(len(f.Links))]), Loss: 0.2 * rng.Float64()})
			}
			gone := []string{}
			for n := range 2 {
				host, from := fmt.Sprintf("h%d", 1+2*rng.IntN(8)+n), time.Duration(1+n)*s.Epoch+s.Epoch/3
				gone = append(gone, host)
				s.Faults = append(s.Faults, scenario.Fault{Host: host, Kill: true, From: from, Until: from + 2*s.Epoch})
			}
			about := "(" + strings.Join(gone, "|") + ")"
			allowed := regexp.MustCompile(`^(` + strings.Join([]string{
				`omnimon/(flows|links|summary|losses): .*host ` + about + `\b.*`,
				`omnimon/summary: \d hosts are missing, such as ` + about + `: .*`,
				`omnimon/hosts: (no session with the agent|the agent joined during the epoch).*`,
				`omnimon/(flows|summary|losses): .*packets were sent without a header`,
				`omnimon/(flows|links|summary|losses): packets are missing and may be late: .*`,
				`omnimon/links: flows on it are not exact`,
				`omnimon/links: it is not determined where flows on it lost packets`,
				`omnimon/links: flows that no host reported may have passed it`,
				`omnimon/alerts: .*lost .* packets in epoch.*`,
				`omnimon/alerts: .*(no report|agent|missing).*`,
				`/collector/hosts/host\[h\d+\]/state/no-lease: (` + about + ` \([0-9a-f.:]+\): .*|.*no session.*)`,
			}, "|") + `)$`)
			r := playWith(t, s, scenario.Options{Virtual: true, OnEpoch: func(run *scenario.Run) error {
				all := reasons(t, run)
				for _, reason := range slices.Sorted(maps.Keys(all)) {
					if !allowed.MatchString(reason) {
						t.Errorf("killed %v: %d times %s", gone, all[reason], reason)
					}
				}
				return nil
			}})
			check(t, r, s.Epochs)
		})
	}
}
