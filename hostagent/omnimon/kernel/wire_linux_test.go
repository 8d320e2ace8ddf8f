// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"net/netip"
	"testing"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/internal/test/kerneltest"
)

// TestWire: super-packets of each kind count as the packets on the wire, with carriers that pass
// them whole.
func TestWire(t *testing.T) {
	for _, carrier := range []wire.Carrier{wire.CarrierOption, wire.CarrierTunnel} {
		t.Run(string(carrier), func(t *testing.T) {
			kerneltest.Wire(t, func(name string) kerneltest.Counts { return countOn(t, name, carrier) })
		})
	}
}

// countOn runs a data path on an interface. Packets without a header count as received.
func countOn(t *testing.T, name string, carrier wire.Carrier) kerneltest.Counts {
	s := defaults(0)
	s.Carrier = carrier
	s.Hosts = [][]netip.Addr{{netip.MustParseAddr("10.0.1.5"), netip.MustParseAddr("fd00::1")},
		{netip.MustParseAddr("10.0.2.9"), netip.MustParseAddr("fd00::2")}}
	p, err := Open(Config{Interface: name, manual: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	p.Advance(100)
	p.SetLeases(allLeases(s))
	if err := p.Apply(encoded(t, s)); err != nil {
		t.Fatal(err)
	}
	at := &pair{t: t, paths: [2]*Path{p}}
	return func() (sent, received uint64) {
		sum := at.seal(0, p.Epoch())
		if sum.sent == 0 && sum.untagged.Packets > 0 {
			t.Logf("%s on %s: all %d packets went without a header", carrier, name, sum.untagged.Packets)
		}
		return uint64(sum.sent) + sum.untagged.Packets, sum.counters[wire.NoHeader]
	}
}
