// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/lab/truth"
)

// TestTunnel: packets in tunnels carry the packets of the source, between the first addresses of
// their networks.
func TestTunnel(t *testing.T) {
	generate := func() traffic.Source {
		s, err := traffic.Generate(traffic.Generated{Name: "flows", Seed: 1, Rate: 1000, Flows: 50, V6Share: 0.5, UDP: 0.5,
			Until: time.Second},
			[]traffic.Host{{V4: netip.MustParsePrefix("10.0.0.0/24"), V6: netip.MustParsePrefix("fd00:0:0:1::/64")},
				{V4: netip.MustParsePrefix("10.0.1.0/24"), V6: netip.MustParsePrefix("fd00:0:0:2::/64")}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ends := map[string]bool{"10.0.0.1": true, "10.0.1.1": true, "fd00:0:0:1::1": true, "fd00:0:0:2::1": true}
	for kind, protocols := range map[string][2]uint8{"ip": {4, 41}, "gre": {47, 47}, "vxlan": {17, 17}} {
		bare := generate()
		tunnels, err := traffic.Tunnel(generate(), kind)
		if err != nil {
			t.Fatal(err)
		}
		for range 500 {
			want, err := bare.Next()
			if err != nil {
				t.Fatal(err)
			}
			got, err := tunnels.Next()
			if err != nil {
				t.Fatal(err)
			}
			key, _ := truth.Parse(want.Frame)
			inner, ok := truth.ParseInner(got.Frame)
			outer, _ := truth.ParseEncapsulated(got.Frame)
			protocol := protocols[0]
			if key.V6 {
				protocol = protocols[1]
			}
			if !ok || inner != key || outer.Proto != protocol || outer.V6 != key.V6 || got.Host != want.Host ||
				got.At != want.At || !ends[outer.SrcAddr().String()] || !ends[outer.DstAddr().String()] {
				t.Fatalf("%s: %v in %v from host %d; expected %v", kind, inner, outer, got.Host, key)
			}
		}
	}
	if _, err := traffic.Tunnel(generate(), "gue"); err == nil {
		t.Error("an unknown tunnel is accepted")
	}
}
