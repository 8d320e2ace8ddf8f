// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/netsketch/netsketch/internal/test/trace"
	"github.com/netsketch/netsketch/sketch/flow"
)

// attack returns packets from sources sources to one destination, each source with some flows of
// one packet.
func attack(t *testing.T, sources, flows int, victim string) []trace.Packet {
	t.Helper()
	dst := netip.MustParseAddr(victim)
	r := rand.New(rand.NewPCG(11, 12))
	var out []trace.Packet
	for range sources {
		src := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, r.Uint32())))
		for range flows {
			k, err := flow.New(src, dst, 6, uint16(r.Uint32()), 80)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, trace.Packet{Key: k})
		}
	}
	return out
}

func TestFanIns(t *testing.T) {
	background := trace.Zipf(6, 300_000, 60_000, 1.1)
	for _, tc := range []struct {
		name           string
		sources, flows int
		limit          float64
	}{
		{"a flood of single packets", 3000, 1, 0.25},
		{"a large flood", 30_000, 1, 0.15},
		{"four flows a source", 3000, 4, 0.5},
		{"thirty flows a source", 1500, 30, 0.5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			packets := append(attack(t, tc.sources, tc.flows, "192.0.2.1"), background...)
			e := measure(t, fiveTuple1M, packets).Reading().Estimate()
			found := e.FanIns(1000)
			if len(found) != 1 || found[0].Destination.String() != "192.0.2.1" {
				t.Fatalf("found %+v, want 192.0.2.1 alone", found)
			}
			t.Logf("%+v", found[0])
			if math.Abs(found[0].Sources/float64(tc.sources)-1) > tc.limit {
				t.Errorf("%.0f sources, want %d", found[0].Sources, tc.sources)
			}
		})
	}
	t.Run("one source with many flows", func(t *testing.T) {
		packets := append(attack(t, 1, 5000, "192.0.2.1"), background...)
		if found := measure(t, fiveTuple1M, packets).Reading().Estimate().FanIns(500); len(found) != 0 {
			t.Errorf("found %+v, want none", found)
		}
	})
	t.Run("real packets are exact when all are known", func(t *testing.T) {
		p := epochs(realPackets(t))[9]
		sources := make(map[flow.Key]map[flow.Key]bool)
		for i := range p {
			d := p[i].Key.Project(flow.Dst)
			if sources[d] == nil {
				sources[d] = make(map[flow.Key]bool)
			}
			sources[d][p[i].Key.Project(flow.Src)] = true
		}
		found := measure(t, fiveTuple1M, p).Reading().Estimate().FanIns(5)
		if len(found) == 0 {
			t.Error("no destination has 5 sources")
		}
		for _, f := range found {
			if want := float64(len(sources[f.Destination])); math.Abs(f.Sources-want) > 0.5 {
				t.Errorf("%v: %.1f sources, want %v", f.Destination, f.Sources, want)
			}
		}
	})
}
