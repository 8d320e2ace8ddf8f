// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/internal/test/packettest"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/sketch/flow"
)

// TestEncapsulations: frames of a few hundred stacks of headers have the flows that they were made
// of, or a reason.
func TestEncapsulations(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	deep, beyond := 0, 0
	for range 5000 {
		f := packettest.Random(r)
		var got flow.Key
		err := InnerSwitchFlow(&got, f.Bytes)
		if errors.Is(err, ErrDepth) && f.Carried > 8 {
			beyond++
		} else if err != nil || got != f.Inner || f.Carried > 8 {
			t.Fatalf("inner flow of % x at a switch: %v, %v; expected %v with %d headers", f.Bytes, got, err, f.Inner,
				f.Carried)
		}
		for name, c := range map[string]struct {
			flow func(*flow.Key, []byte) error
			want flow.Key
		}{"outer": {OuterFlow, f.Outer}, "inner": {InnerFlow, f.Inner}} {
			var got flow.Key
			err := c.flow(&got, f.Bytes)
			if errors.Is(err, ErrDepth) && len(f.Bytes) > MaxHeaders {
				deep++
				continue
			}
			if err != nil || got != c.want {
				t.Fatalf("%s flow of % x: %v, %v; expected %v", name, f.Bytes, got, err, c.want)
			}
		}
	}
	if deep == 0 || deep > 500 || beyond < 500 || beyond > 2500 {
		t.Errorf("%d of 10,000 flows are too deep, and %d of 5,000 at a switch; expected some", deep, beyond)
	}
}

const (
	testMACs = "020000000001 020000000002 "
	// UDP from port 5 to port 4789, from 10.0.0.1 to 10.0.0.2
	testUDP = "45000000 00000000 4011 66eb 0a000001 0a000002 0005 12b5 0000 0000 "
	testGRE = "45000000 00000000 402f 66cd 0a000001 0a000002 "
	testIP6 = "60000000 0000 %s 40 fd000000000000000000000000000001 fd000000000000000000000000000002 "
)

// TestEncapsulationRules: packets at the edges of the rules.
func TestEncapsulationRules(t *testing.T) {
	const udpFlow, greFlow = "10.0.0.1,10.0.0.2,udp,5,4789", "10.0.0.1,10.0.0.2,gre,0,0"
	v6 := func(protocol, rest string) string {
		return "86dd " + strings.Replace(testIP6, "%s", protocol, 1) + rest
	}
	const fd = "fd00::1,fd00::2,"
	for _, c := range []struct {
		name, frame, outer, inner string
		err                       error // error of both functions, if the packet has no flow
	}{
		{"VXLAN without the flag of an identifier", "0800" + testUDP + "00000000 00000700 ffff", udpFlow, udpFlow, nil},
		{"ARP in VXLAN", "0800" + testUDP + "08000000 00000700 " + testMACs + "0806 0001", udpFlow, udpFlow, nil},
		{"IPv4 of version 5 in VXLAN", "0800" + testUDP + "08000000 00000700 " + testMACs + "0800 55" +
			strings.Repeat("00", 19), udpFlow, "", ErrVersion},
		{"VXLAN that is cut", "0800" + testUDP + "08000000 0000", udpFlow, "", ErrTruncated},
		{"Ethernet in VXLAN that is cut", "0800" + testUDP + "08000000 00000700 " + testMACs, udpFlow, "", ErrTruncated},
		{"GRE of version 1", "0800" + testGRE + "0001 0800", greFlow, greFlow, nil},
		{"GRE with source routes", "0800" + testGRE + "4000 0800", greFlow, greFlow, nil},
		{"ARP in GRE", "0800" + testGRE + "0000 0806", greFlow, greFlow, nil},
		{"GRE that is cut", "0800" + testGRE + "b000 0800 00000000 00000000 0000", greFlow, "", ErrTruncated},
		{"later fragment", v6("2c", "11000010 00000001 0000"), fd + "udp,0,0", fd + "udp,0,0", nil},
		{"encrypted", v6("32", "0000"), fd + "esp,0,0", fd + "esp,0,0", nil},
		{"nothing follows", v6("3b", ""), fd + "59,0,0", fd + "59,0,0", nil},
		{"extension header that is cut", v6("00", "06010000 00000000 0000"), "", "", ErrTruncated},
		{"ports that are cut", v6("3c", "06000000 00000000 0001"), "", "", ErrTruncated},
		{"Ethernet in MPLS", "8847 00010140 0000 0000", "", "", ErrNotIP},
		{"MPLS without a bottom", "8847 00010040", "", "", ErrTruncated},
		{"nothing in MPLS", "8847 00010140", "", "", ErrTruncated},
		{"LCP in PPPoE", "8864 1100 0001 0000 c021", "", "", ErrNotIP},
		{"no session of PPPoE", "8864 1109 0001 0000 0021", "", "", ErrNotIP},
		{"PPPoE that is cut", "8864 1100 0001", "", "", ErrTruncated},
		{"tag that is cut", "8100 0001 88a8 0001 8100", "", "", ErrTruncated},
		{"ARP behind tags", "8100 0001 8100 0001 8100 0001 0806", "", "", ErrNotIP},
		{"no frame", "", "", "", ErrTruncated},
		{"many labels", "8847 " + strings.Repeat("00010040", 80), "", "", ErrDepth},
	} {
		frame, err := hex.DecodeString(strings.ReplaceAll(testMACs+c.frame, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		for name, f := range map[string]struct {
			flow func(*flow.Key, []byte) error
			want string
		}{"outer": {OuterFlow, c.outer}, "inner": {InnerFlow, c.inner}, "inner switch": {InnerSwitchFlow, c.inner}} {
			var got flow.Key
			switch err := f.flow(&got, frame); {
			case f.want == "" && !errors.Is(err, c.err), f.want != "" && (err != nil || got != key(t, f.want)):
				t.Errorf("%s, %s flow: %v, %v; expected %s, %v", c.name, name, got, err, f.want, c.err)
			}
		}
	}
}

// FuzzEncapsulations: what has a flow for switches has one of the same addresses, or is damaged
// behind what switches parse; both flows agree on frames that have none; and the flows of switches
// are those of the ground truth.
func FuzzEncapsulations(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		f.Add(packettest.Random(r).Bytes)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		var outer, inner flow.Key
		outerErr, innerErr := OuterFlow(&outer, frame), InnerFlow(&inner, frame)
		if want, ok := truth.Parse(frame); ok && outerErr == nil && (outer.Src != want.Src || outer.Dst != want.Dst) ||
			ok && outerErr != nil && !want.V6 {
			t.Errorf("% x: %v, %v; expected %v", frame, outer, outerErr, want)
		}
		if outerErr != nil && (innerErr == nil || innerErr.Error() != outerErr.Error()) {
			t.Errorf("% x: no outer flow, %v; inner flow %v, %v", frame, outerErr, inner, innerErr)
		}
		for name, of := range map[string]struct {
			flow  func(*flow.Key, []byte) error
			truth func([]byte) (flow.Key, bool)
		}{"outer": {Flow, truth.ParseEncapsulated}, "inner": {InnerSwitchFlow, truth.ParseInner}} {
			var got flow.Key
			err := of.flow(&got, frame)
			if want, ok := of.truth(frame); ok != (err == nil) || ok && got != want {
				t.Errorf("% x: %s flow %v, %v; expected %v, %v", frame, name, got, err, want, ok)
			}
		}
		for err, k := range map[error]flow.Key{outerErr: outer, innerErr: inner} {
			if back, e := flow.ParseBinary(flow.FiveTuple, k.AppendBinary(nil)); err == nil && (e != nil || back != k) {
				t.Errorf("key %v is not canonical: %v", k, e)
			}
		}
	})
}
