// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// TestFlows: the configured number of victims, each with its share of lost packets, and every flow
// with its own key between two hosts.
func TestFlows(t *testing.T) {
	bed := New(Config{Seed: 5})
	sizes, err := traffic.Workload("HADOOP")
	if err != nil {
		t.Fatal(err)
	}
	flows := bed.Flows(Traffic{Sizes: sizes, Flows: 20_000, Victims: 0.1, Loss: 0.05, IPv6: 0.2})
	seen, victims, six := make(map[string]bool), 0, 0
	for i := range flows {
		x := &flows[i]
		if seen[string(x.Raw)] {
			t.Fatalf("%s twice", x.Key)
		}
		seen[string(x.Raw)] = true
		if len(x.Raw) == keyBytes[1] {
			six++
		}
		if x.Lost > 0 {
			victims++
			if x.Lost > x.Packets || x.Lost > 1 && float64(x.Lost) > 0.05*float64(x.Packets)+1 {
				t.Errorf("%d of %d packets lost", x.Lost, x.Packets)
			}
		}
		if x.Key.SrcAddr() == x.Key.DstAddr() {
			t.Errorf("%s is from a host to itself", x.Key)
		}
	}
	if victims != 2000 || six < 3700 || six > 4300 {
		t.Errorf("%d victims, %d IPv6 flows", victims, six)
	}
	sent, lost := int64(0), int64(0)
	if _, err := bed.Record(flows); err != nil {
		t.Fatal(err)
	}
	for i := range flows {
		x := &flows[i]
		if x.left != 0 || x.leftLost != 0 {
			t.Fatalf("%d packets and %d losses left over", x.left, x.leftLost)
		}
		for code := range codes {
			sent += x.in[code]
			lost += x.in[code] - x.out[code]
		}
	}
	if sent <= 0 || lost <= 0 {
		t.Errorf("%d packets, %d lost", sent, lost)
	}
}

// TestAmong: parts always add up to the whole and have the mean of the
// hypergeometric distribution, drawn either way.
func TestAmong(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 1))
	for _, tc := range []struct{ part, all, lost int64 }{{1, 10, 3}, {5, 10, 3}, {10, 10, 3}, {3, 10, 10},
		{50, 100_000, 1000}, {40_000, 100_000, 50}, {30_000, 100_000, 2000}} {
		sum := 0.0
		const n = 4000
		for range n {
			k := among(r, tc.part, tc.all, tc.lost)
			if k < 0 || k > tc.part || k > tc.lost || tc.lost-k > tc.all-tc.part {
				t.Fatalf("%+v: %d", tc, k)
			}
			sum += float64(k) / n
		}
		want := float64(tc.lost) * float64(tc.part) / float64(tc.all)
		// Five standard errors of the mean, the variance being at most the mean's.
		if d := sum - want; d*d > 25*want/n+1e-9 {
			t.Errorf("%+v: mean %.4f, expected %.4f", tc, sum, want)
		}
	}
}

// TestApply: invalid entries are refused with an error that names the field.
func TestApply(t *testing.T) {
	bed := New(Config{Seed: 7})
	write := func(device, name string, op sdk.WriteOp, values ...any) error {
		w := sdk.DeviceWrite{Device: device, Op: op, Entry: sdk.TableEntry{Table: name}}
		for i := 0; i < len(values); i += 2 {
			field, v := values[i].(string), []byte{byte(values[i+1].(int) >> 16), byte(values[i+1].(int) >> 8),
				byte(values[i+1].(int))}
			w.Entry.Matches = append(w.Entry.Matches, sdk.FieldMatch{Field: field, Value: v})
			w.Entry.Params = append(w.Entry.Params, sdk.ActionParam{Name: field, Value: v})
		}
		return bed.Apply(sdk.Plan{Writes: []sdk.DeviceWrite{w}})
	}
	const thresholds, division = "ingress.chamelemon.thresholds", "ingress.chamelemon.division"
	for _, tc := range []struct {
		err  error
		want string
	}{
		{write("edge9", thresholds, sdk.Insert), "edge9"},
		{write("edge1", "ingress.chamelemon.nothing", sdk.Insert), "nothing"},
		{write("edge1", thresholds, sdk.Delete, "time", 0, "th", 1, "tl", 1), "insertions"},
		{write("edge1", thresholds, sdk.Insert, "time", 0, "th", 2, "tl", 3), "Tl 3"},
		{write("edge1", thresholds, sdk.Insert, "time", 0, "th", 3, "tl", 2, "sample", 9, "seed", 4), "seed 4"},
		{write("edge1", thresholds, sdk.Insert, "time", 2, "th", 2, "tl", 1), "time 2"},
		{write("edge1", division, sdk.Insert, "time", 0, "hierarchy", 2, "first", 4000, "buckets", 97), "4096"},
		{write("edge1", division+"_ipv6", sdk.Insert, "time", 0, "hierarchy", 2, "first", 0, "buckets", 1025), "1024"},
		{write("edge1", division, sdk.Insert, "time", 0, "hierarchy", 2, "first", 0, "buckets", 0), "part"},
	} {
		if tc.err == nil || !strings.Contains(tc.err.Error(), tc.want) {
			t.Errorf("%v, expected an error with %q", tc.err, tc.want)
		}
	}
	if err := write("edge2", thresholds, sdk.Insert, "time", 1, "th", 9, "tl", 2, "sample", 77, "seed", 5); err != nil ||
		bed.Setting(1, 1).Th != 9 || bed.Setting(1, 1).Sample != 77 || bed.Setting(1, 0).Th != 0 {
		t.Errorf("%v, %+v", err, bed.Setting(1, 1))
	}
	if err := write("edge2", "ingress.chamelemon.entry_port", sdk.Insert, "port", 2); err != nil ||
		!bed.HasPort(1, "ingress.chamelemon.entry_port", 2) || bed.HasPort(1, "ingress.chamelemon.entry_port", 1) {
		t.Errorf("%v", err)
	}
}
