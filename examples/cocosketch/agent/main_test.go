// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/flow"

	"example.com/netsketch-plugin-cocosketch/slots"
)

// The role reports the slots of what arrived at the host in an epoch.
func TestRole(t *testing.T) {
	p := agent.NewRolePath(newRole)
	p.Advance(7)
	if err := p.Apply([]byte("none")); err == nil {
		t.Error("settings without a number are accepted")
	}
	if err := p.Apply([]byte("64")); err != nil {
		t.Fatal(err)
	}
	ipv4 := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0x66, 0xcf, 10, 0, 0, 1, 10, 0, 0, 2, 4, 210, 0, 53, 0, 8, 0, 0}
	frame := append(make([]byte, 12, 64), 8, 0)
	p.In([]*packet.Frame{packet.NewFrame(append(frame, ipv4...)), packet.NewFrame([]byte{1})})
	p.Advance(8)
	r, err := p.Seal(7)
	if err != nil || r == nil {
		t.Fatal(r, err)
	}
	k, err := flow.New(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), 17, 1234, 53)
	if err != nil {
		t.Fatal(err)
	}
	want := slots.New(64, 7)
	want.Count(&k)
	if got := (sdk.Cells{Width: 32, Packed: r.Append(nil)}).Uint32s(); !slices.Equal(got, want.Cells) {
		t.Error("the report has other cells")
	}
}
