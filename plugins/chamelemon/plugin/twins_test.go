// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	lab "github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
)

// pairOf finds two flows from edge1 to edge2 that share all buckets of arrays of the given width,
// or, with a width of 0, the classifier's hash.
func pairOf(t *testing.T, r *rand.Rand, width int) (x, y lab.Flow) {
	t.Helper()
	cols := family.NewRange(uint32(width))
	seen := make(map[[arrays]uint32]flow.Key)
	for range 3_000_000 {
		key, err := flow.New(netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(2)), byte(r.IntN(256))}),
			netip.AddrFrom4([4]byte{10, 1, byte(r.IntN(2)), byte(r.IntN(256))}), 17, uint16(r.Uint32()),
			uint16(r.Uint32()))
		if err != nil {
			t.Fatal(err)
		}
		d := family.Digest[wide](0, key.AppendBinary(nil))
		at := [arrays]uint32{uint32(d)}
		if width > 0 {
			family.Columns[wide](d, &cols, at[:])
		}
		if other, ok := seen[at]; ok && other != key {
			return lab.Flow{Key: other, Raw: other.AppendBinary(nil), Exit: 1},
				lab.Flow{Key: key, Raw: key.AppendBinary(nil), Exit: 1}
		}
		seen[at] = key
	}
	t.Fatal("no pair found")
	return x, y
}

// TestTwins: if one of two flows that share all buckets of an HH part left the network, the other
// one is decoded, too, and the part is complete; otherwise nothing is exact.
func TestTwins(t *testing.T) {
	const n, reserve = 3000, 513
	const known = "both lost all, known from the epoch before"
	x, y := pairOf(t, rand.New(rand.NewPCG(51, 1)), lab.Paper().Up[0]-reserve)
	for _, tc := range []struct {
		name         string
		lostX, lostY int64
		exact        bool
	}{
		{"both lost all, unknown", 20, 7, false},
		{"one lost all", 20, 0, true},
		{"nothing lost", 0, 0, true},
		{"one lost some", 3, 0, true},
		{"both lost some", 2, 3, true},
		{"one lost some, the other all", 3, 7, true},
		{known, 20, 7, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFabric(t, 51, `{}`)
			x.Packets, y.Packets, x.Lost, y.Lost = 20, 7, 0, 0
			if tc.name == known {
				f.play(append(f.flows(n, 0.1, 0), x, y))
			}
			x.Lost, y.Lost = tc.lostX, tc.lostY
			flows := append(f.flows(n, 0.1, 0), x, y)
			res := f.play(flows)
			hh := row(t, res, encoderList, "node", "edge1", "part", "HH", "family", "IPV4")
			if hh["buckets"] != "10749" {
				t.Fatalf("the pair is for another part: %v", hh)
			}
			if next := row(t, res, thresholdList, "node", "edge1"); next["next-high-threshold"] != "1" {
				t.Errorf("Th goes up: %v", next)
			}
			if isExact(t, hh, "quality") != tc.exact {
				t.Errorf("HH part: %v", hh)
			}
			if s := row(t, res, summaryList, "node", "edge1"); (s["status"] == "COMPLETE") != tc.exact ||
				(s["problem"] == "") != tc.exact {
				t.Errorf("edge1: %v", s)
			}
			checkVictims(t, f, res, flows, tc.exact, false)
		})
	}
}

// checkVictims checks that all victims are reported with their exact losses or, without exact, that
// the epoch is not decoded and the last two flows are not reported; the others are exact if others
// is set.
func checkVictims(t *testing.T, f *fabric, res *sdk.Results, flows []lab.Flow, exact, others bool) {
	t.Helper()
	attention := row(t, res, attentionList)
	if (attention["status"] == "COMPLETE") != exact || (attention["problem"] == "") != exact {
		t.Fatalf("attention: %v", attention)
	}
	if exact {
		exactLosses(t, f, lab.Rows(res, victimList), flows)
		return
	}
	if others {
		exactLosses(t, f, lab.Rows(res, victimList), flows[:len(flows)-2])
		return
	}
	for _, v := range lab.Rows(res, victimList) {
		if isExact(t, v, "quality") || v["flow"] == flows[len(flows)-1].Key.String() ||
			v["flow"] == flows[len(flows)-2].Key.String() {
			t.Errorf("reported: %v", v)
		}
	}
}

// TestVictimTwins: victims that share all buckets of the HL part are decoded if one of them is in
// an HH part. Otherwise they alone are missing, and the division stays.
func TestVictimTwins(t *testing.T) {
	x, y := pairOf(t, rand.New(rand.NewPCG(53, 1)), 513)
	for _, tc := range []struct {
		name         string
		high         int
		sizeX, sizeY int64
		lostX, lostY int64
		exact        bool
	}{
		{"every flow known", 1, 2446, 28, 25, 1, true},
		{"a packet each", 1, 1, 1, 1, 1, true},
		{"one known", 100, 200, 9, 3, 2, true},
		{"the other known", 100, 9, 200, 9, 1, true},
		{"none known", 100, 20, 9, 3, 2, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFabric(t, 53, fmt.Sprintf(`{"control": false, "start": {"high": %d}}`, tc.high))
			x.Packets, y.Packets, x.Lost, y.Lost = tc.sizeX, tc.sizeY, tc.lostX, tc.lostY
			flows := append(f.flows(2000, 0.1, 0), x, y)
			res := f.play(flows)
			if hl := row(t, res, encoderList, "node", Network, "part", "HL", "family",
				"IPV4"); hl["buckets"] != "1539" {
				t.Fatalf("the pair is for another part: %v", hl)
			}
			checkVictims(t, f, res, flows, tc.exact, true)
		})
	}
}

// TestLightTwins: victims that share all buckets of the LL part are missing alone, and the number
// of victims has them.
func TestLightTwins(t *testing.T) {
	x, y := pairOf(t, rand.New(rand.NewPCG(55, 1)), 512)
	f := newFabric(t, 55, `{"start": {"high": 20, "low": 20, "sample": 1}}`)
	x.Packets, y.Packets, x.Lost, y.Lost = 9, 7, 2, 1
	var flows []lab.Flow
	for _, v := range f.flows(4000, 0.25, 0) {
		if v.Packets < 20 || v.Lost == 0 {
			flows = append(flows, v)
		}
	}
	flows = append(flows, x, y)
	res := f.play(flows)
	if ll := row(t, res, encoderList, "node", Network, "part", "LL", "family", "IPV4"); ll["buckets"] != "1536" ||
		ll["quality"] != "ESTIMATE" {
		t.Fatalf("LL part: %v", ll)
	}
	checkVictims(t, f, res, flows, false, true)
	victims := 0
	for i := range flows {
		if flows[i].Lost > 0 {
			victims++
		}
	}
	if a := row(t, res, attentionList); a["victims"] != fmt.Sprint(victims) || a["problem"] !=
		"2 flows of the IPv4 LL parts share all their buckets; the other "+fmt.Sprint(victims-2)+" were decoded" {
		t.Errorf("%d victims: %v", victims, a)
	}
}

// TestAlmostDecoded: HH parts close to the limit of decoding are decoded or not, without an alert
// of the kind bad-cells and without false exactness.
func TestAlmostDecoded(t *testing.T) {
	f := newFabric(t, 54, `{"control": false, "start": {"high": 1}}`)
	decoded := 0
	for n := 8400; n < 9000; n += 40 {
		flows := f.flows(n, 0.02, 1)
		res := f.play(flows)
		attention := row(t, res, attentionList)
		if attention["edge-switches-delivered"] != "4" {
			t.Errorf("%d flows: %v, %v", n, attention, row(t, res, summaryList, "node", Network))
		}
		if attention["status"] == "COMPLETE" {
			decoded++
			exactLosses(t, f, lab.Rows(res, victimList), flows)
		}
	}
	if decoded < 3 || decoded > 12 {
		t.Errorf("%d of 15 epochs decoded: it should be near the limit", decoded)
	}
}

// TestSameHash: flows that the classifier cannot tell apart are flows of their own in the encoders.
func TestSameHash(t *testing.T) {
	f := newFabric(t, 52, `{}`)
	x, y := pairOf(t, rand.New(rand.NewPCG(52, 1)), 0)
	x.Packets, y.Packets, x.Lost, y.Lost = 20, 7, 2, 7
	flows := append(f.flows(3000, 0.1, 0), x, y)
	res := f.play(flows)
	if attention := row(t, res, attentionList); attention["status"] != "COMPLETE" {
		t.Fatalf("attention: %v", attention)
	}
	exactLosses(t, f, lab.Rows(res, victimList), flows)
}
