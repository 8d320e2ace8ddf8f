// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	lab "github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/lab/traffic"
)

// TestSampleCoverage: in an ill network, the sample of the light victim flows is drawn anew in each
// epoch. Victims that lose a packet in every epoch are all reported after enough epochs, as many as
// random samples report, and the error of the estimated number of victims does not repeat.
func TestSampleCoverage(t *testing.T) {
	t.Parallel()
	single := []traffic.SizePoint{{Packets: 1, Share: 1}}
	for _, config := range []string{`{"victims": {"limit": 100000}}`,
		`{"victims": {"limit": 100000}, "control": false, "start": {"high": 2, "low": 2, "sample": 0.08}}`} {
		f := newSmall(t, 71, config)
		flows := f.bed.Flows(lab.Traffic{Sizes: single, Flows: 12_500, Victims: 0.3, Loss: 1})
		var keys []string // keys of the victims
		for i := range flows {
			if flows[i].Lost > 0 {
				keys = append(keys, flows[i].Key.String())
			}
		}
		missed := make(map[string]float64) // probability that random samples have missed a victim so far
		for _, key := range keys {
			missed[key] = 1
		}
		seen := make(map[string]bool)
		var errors []float64
		for range 60 {
			r := f.play(flows)
			a := row(t, r, attentionList)
			if a["network-state"] != "ILL" || a["status"] != "COMPLETE" {
				continue
			}
			rate := float(a["sample-rate"])
			for _, v := range lab.Rows(r, victimList) {
				seen[v["flow"]] = true
			}
			for key := range missed {
				missed[key] *= 1 - rate
			}
			errors = append(errors, float(a["victims"])/float64(len(keys))-1)
		}
		expected, invisible := 0.0, 0
		for _, key := range keys {
			expected += missed[key]
			if !seen[key] {
				invisible++
			}
		}
		mean, largest := 0.0, 0.0
		for _, e := range errors {
			mean += e / float64(len(errors))
			largest = max(largest, math.Abs(e))
		}
		t.Logf("%d epochs: %d of %d victims were never reported, random samples miss %.1f; the estimate is off by %.4f on "+
			"average, at most by %.3f", len(errors), invisible, len(keys), expected, mean, largest)
		if len(errors) < 40 || float64(invisible) > expected+4*math.Sqrt(expected)+1 {
			t.Errorf("%d epochs: %d victims were never reported, random samples miss %.1f", len(errors), invisible, expected)
		}
		if math.Abs(mean) > 0.03 {
			t.Errorf("the estimate is off by %.4f on average", mean)
		}
	}
}

// TestSeeds: the samples of two epochs are independent of each other, and each has the share of the
// flows that the sample rate says.
func TestSeeds(t *testing.T) {
	const keys, rate = 20_000, 10_158 // 0.155
	in := func(epoch uint64, i int) bool {
		a := Attention{Sample: rate, Seed: seedOf(epoch)}
		return a.sampled(fmt.Appendf(nil, "%013d", i))
	}
	const p = float64(rate) / Sampled
	for epoch := uint64(1); epoch <= 40; epoch++ {
		for _, other := range []uint64{epoch + 1, epoch + 2, epoch + 64} {
			one, both := 0.0, 0.0
			for i := range keys {
				if in(epoch, i) {
					one++
					if in(other, i) {
						both++
					}
				}
			}
			for _, x := range []struct{ got, share float64 }{{one, p}, {both, p * p}} {
				deviation := math.Sqrt(keys * x.share * (1 - x.share))
				if math.Abs(x.got-keys*x.share) > 5*deviation {
					t.Errorf("epochs %d and %d: %.0f flows, expected %.0f ± %.0f", epoch, other, x.got, keys*x.share, deviation)
				}
			}
		}
	}
}

// TestFingerprint: in parts that are too full to be decoded, the fingerprint (paper, appendix A.4)
// keeps mixtures of flows that differ in a few bits only, as flows to one port do, from being taken
// for flows.
func TestFingerprint(t *testing.T) {
	for f, length := range keyBytes {
		spurious := 0
		for seed := range uint64(300) {
			r := rand.New(rand.NewPCG(seed, 1))
			part, err := newPart(f, 81)
			if err != nil {
				t.Fatal(err)
			}
			added := make(map[string]int64)
			for range 191 + r.IntN(40) { // loads of 0.786 to 0.95
				key := make([]byte, length)
				key[0], key[length/3-1], key[length-5] = 10, byte(r.IntN(64)), 17
				binary.BigEndian.PutUint16(key[length-4:], uint16(40_000+r.IntN(256)))
				binary.BigEndian.PutUint16(key[length-2:], 4791)
				n := int64(1 + r.IntN(3))
				added[string(key)] += n
				if err := part.Add(key, n); err != nil {
					t.Fatal(err)
				}
			}
			result, err := part.Decode()
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range result.Flows {
				if added[string(x.Key)] == 0 {
					spurious++
				}
			}
		}
		if t.Logf("family %d: %d spurious flows", f, spurious); spurious > 0 {
			t.Errorf("family %d: %d flows were decoded that no packet had", f, spurious)
		}
	}
}
