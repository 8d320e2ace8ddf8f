// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// claim is a published and located fault of a flow.
type claim struct {
	kind       string
	confidence float64
	right      bool
	text       string
}

// claims plays a network with a fault and returns the located faults of all intervals.
func (d *drawn) claims(t *testing.T, kind string) (out []claim) {
	t.Helper()
	p := New()
	config := sdk.Config{JSON: []byte("{}"), EpochLength: time.Duration(d.epoch) * time.Microsecond}
	if _, err := p.Configure(t.Context(), config, d.model); err != nil {
		t.Fatal(err)
	}
	f, ok := d.draw(kind, 4)
	if !ok {
		return nil
	}
	d.faults = append(d.faults, f)
	flows := map[string]int{}
	for i, f := range d.flows {
		flows[f.key.String()] = i
	}
	sent := make([]uint64, len(d.flows))
	for e := range int(math.Ceil(f.until/d.epoch)) + 2 {
		at, lost := d.at, d.lost
		for i, f := range d.flows {
			sent[i] = f.sent
		}
		d.play()
		r, err := p.Analyze(t.Context(), d.analyzed(t, p, uint64(1000+e)))
		if err != nil {
			t.Fatal(err)
		}
		d.follow(t, r.Plans)
		if at == nil {
			continue
		}
		for key, row := range rows(t, r, faultList) {
			if row["located"] != true {
				continue
			}
			var flow, node, kind string
			if _, err := fmt.Sscan(key, &flow, &node, &kind); err != nil {
				t.Fatal(err)
			}
			i := flows[flow]
			if kind != "LOOP" && d.circles(i, float64(sent[i]), at) {
				continue // packets are lost at any switch of a loop
			}
			s := slices.IndexFunc(d.model.Devices, func(x sdk.Device) bool { return x.Name == node })
			c := claim{kind, row["confidence"].(float64), false, fmt.Sprintf("epoch %d: %s %v; %v", e, key, row, &f)}
			c.right = d.has(kind, i, s, row["value"].(float64), float64(sent[i]), at, lost)
			out = append(out, c)
		}
	}
	return out
}

// circles reports whether a flow is in a loop.
func (d *drawn) circles(i int, sent float64, at map[[2]int]*drawnHop) bool {
	for k, h := range at {
		if k[0] == i && float64(h.packets) >= 2*sent {
			return true
		}
	}
	return false
}

// has reports whether a flow has a fault of about the value at a switch.
func (d *drawn) has(kind string, i, s int, value, sent float64, at map[[2]int]*drawnHop, lost map[[2]int]uint64) bool {
	h, n := at[[2]int{i, s}], float64(lost[[2]int{i, s}])
	switch kind {
	case "PACKETS_LOST":
		return n > 0.5*value*sent
	case "BLACKHOLE":
		return n > 0 && (h == nil || n > float64(h.packets))
	}
	if h == nil {
		return false
	}
	switch kind {
	case "LOOP":
		return float64(h.packets) >= 2*sent
	case abnormalPath:
		return !slices.Contains(d.flows[i].path, s)
	}
	gap := 0.0 // of an abnormal jitter
	for k, before := range at {
		if k[0] == i && before.order < h.order {
			gap = max(gap, before.gap)
		}
	}
	return h.gap > 2*gap
}

// TestConfidence: of the located faults with a confidence of at least c, a share of at least c is
// right. With -drawn, -drawn-seeds and -drawn-show it plays other networks and shows what is wrong.
func TestConfidence(t *testing.T) {
	type network struct {
		kind, topology string
		seed           uint64
	}
	// Other flows look like a loop, or hide that packets are lost at the switch before.
	networks := []network{{"BLACKHOLE", "ring", 106}, {"BLACKHOLE", "mesh", 5002},
		{"BLACKHOLE", "mesh", 5003}, {"BLACKHOLE", "leaf-spine", 108}, {"PACKETS_LOST", "leaf-spine", 108},
		{"LOOP", "mesh", 5001},
		{"LOOP", "fat-tree", 5002}, {"ABNORMAL_JITTER", "mesh", 101}, {abnormalPath, "fat-tree", 102}}
	if *drawnSeed != 0 {
		networks = nil
		for seed := *drawnSeed; seed < *drawnSeed+uint64(*drawnSeeds); seed++ {
			for _, kind := range drawnKinds {
				if *drawnKind != "" && *drawnKind != kind {
					continue
				}
				for _, topology := range []string{"ring", "mesh", "leaf-spine", "fat-tree"} {
					networks = append(networks, network{kind, topology, seed})
				}
			}
		}
	}
	all := map[string][]claim{}
	for _, n := range networks {
		d := newDrawn(t, n.topology, n.seed)
		d.packets *= d.between(0.1, 1)
		for _, c := range d.claims(t, n.kind) {
			all[c.kind] = append(all[c.kind], c)
			if *drawnShow && !c.right && c.confidence >= 0.9 {
				t.Logf("%s %d: %s", n.topology, n.seed, c.text)
			}
		}
	}
	for _, kind := range drawnKinds {
		for _, least := range []float64{0.5, 0.9, 0.99, 0.999} {
			said, right := 0, 0
			for _, c := range all[kind] {
				if c.confidence >= least {
					if said++; c.right {
						right++
					}
				}
			}
			t.Logf("%s: %d of %d with a confidence of at least %v are right", kind, right, said, least)
			if float64(right) < least*float64(said) || *drawnSeed == 0 && said == 0 {
				t.Errorf("%s: %d of %d with a confidence of at least %v are right", kind, right, said, least)
			}
		}
	}
}
