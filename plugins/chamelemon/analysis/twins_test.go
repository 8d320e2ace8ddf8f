// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	lab "github.com/netsketch/netsketch/lab/chamelemon"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
)

// pairOf finds two flows from edge1 to edge2 that share all buckets of arrays of the given width, or,
// with a width of 0, the classifier's hash.
func pairOf(t *testing.T, r *rand.Rand, width int) (x, y lab.Flow) {
	t.Helper()
	cols := family.NewRange(uint32(width))
	seen := make(map[[arrays]uint32]flow.Key)
	for range 3_000_000 {
		key, err := flow.New(netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(2)), byte(r.IntN(256))}), netip.AddrFrom4([4]byte{10, 1, byte(r.IntN(2)), byte(r.IntN(256))}), 17, uint16(r.Uint32()), uint16(r.Uint32()))
		if err != nil {
			t.Fatal(err)
		}
		d := family.Digest[wide](0, key.AppendBinary(nil))
		at := [arrays]uint32{uint32(d)}
		if width > 0 {
			family.Columns[wide](d, &cols, at[:])
		}
		if other, ok := seen[at]; ok && other != key {
			return lab.Flow{Key: other, Raw: other.AppendBinary(nil), Exit: 1}, lab.Flow{Key: key, Raw: key.AppendBinary(nil), Exit: 1}
		}
		seen[at] = key
	}
	t.Fatal("no pair found")
	return x, y
}

// TestTwins: flows that share all buckets of an HH part leave every lost packet known, unless
// both lost some and are twins in HL, too; then nothing is called exact.
func TestTwins(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 1))
	f := newFabric(t, 51, `{}`)
	const n, reserve = 3000, 513
	x, y := pairOf(t, r, lab.Paper().Up[0]-reserve)
	for _, tc := range []struct {
		name         string
		lostX, lostY int64
		exact        bool
	}{
		{"nothing lost", 0, 0, true},
		{"one lost some", 3, 0, true},
		{"both lost some", 2, 3, true},
		{"one lost all", 20, 0, true},
		{"one lost some, the other all", 3, 7, true},
		{"both lost all", 20, 7, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			flows := f.flows(n, 0.1, 0)
			x.Packets, y.Packets, x.Lost, y.Lost = 20, 7, tc.lostX, tc.lostY
			flows = append(flows, x, y)
			res := f.play(flows)
			attention := row(t, res, attentionList)
			if hh := row(t, res, encoderList, "device", "edge1", "part", "hh", "family", "ipv4"); hh["decoded"] != "false" || hh["buckets"] != "10749" {
				t.Fatalf("they are no twins: %v", hh)
			}
			if s := row(t, res, summaryList, "device", "edge1"); s["status"] != "partial" || s["problem"] == "" {
				t.Errorf("edge1: %v", s)
			}
			if next := row(t, res, thresholdList, "device", "edge1"); next["next-high-threshold"] != "1" {
				t.Errorf("Th goes up: %v", next)
			}
			if tc.exact {
				if attention["decoded"] != "true" {
					t.Fatalf("attention: %v", attention)
				}
				exactLosses(t, f, lab.Rows(res, victimList), flows)
				return
			}
			if attention["decoded"] != "false" || attention["problem"] == "" {
				t.Errorf("attention: %v", attention)
			}
			for _, v := range lab.Rows(res, victimList) {
				if v["exact"] == "true" || v["flow"] == x.Key.String() || v["flow"] == y.Key.String() {
					t.Errorf("told: %v", v)
				}
			}
		})
	}
}

// TestSameHash: flows that the classifier cannot tell apart are flows of their own in the encoders.
func TestSameHash(t *testing.T) {
	f := newFabric(t, 52, `{}`)
	x, y := pairOf(t, rand.New(rand.NewPCG(52, 1)), 0)
	x.Packets, y.Packets, x.Lost, y.Lost = 20, 7, 2, 7
	flows := append(f.flows(3000, 0.1, 0), x, y)
	res := f.play(flows)
	if attention := row(t, res, attentionList); attention["decoded"] != "true" {
		t.Fatalf("attention: %v", attention)
	}
	exactLosses(t, f, lab.Rows(res, victimList), flows)
}
