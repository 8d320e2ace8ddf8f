// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
)

// BenchmarkAnalyse is one epoch of one switch with the three sketches of program univmon,
// 1 MB, after 500,000 packets of many flows; changes and the network's view included.
func BenchmarkAnalyse(b *testing.B) {
	l1 := map[string]universal.Layout{
		"src":     {Key: flow.Src, Levels: 16, Rows: 3, Columns: 2048, Ways: 4, Slots: 64},
		"dst":     {Key: flow.Dst, Levels: 16, Rows: 3, Columns: 896, Ways: 4, Slots: 64},
		"5-tuple": {Key: flow.FiveTuple, Levels: 16, Rows: 3, Columns: 2048, Ways: 4, Slots: 128},
	}
	saved, savedControls := layouts, controls
	layouts = l1
	controls = map[string]string{"src": "ingress.univmon_src", "dst": "ingress.univmon_dst",
		"5-tuple": "ingress.univmon_5t"}
	defer func() { layouts, controls = saved, savedControls }()

	f := newFabric(b, "leaf1")
	r := rand.New(rand.NewPCG(5, 6))
	zipf := rand.NewZipf(r, 1.1, 1, 200_000)
	addr := func(n uint32) netip.Addr {
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 0x0a000000+n*2654435761>>8)))
	}
	for range 500_000 {
		n := uint32(zipf.Uint64())
		k, err := flow.New(addr(n), addr(n/7+1), 6, uint16(2*n), 443)
		if err != nil {
			b.Fatal(err)
		}
		f.send(k, 1)
	}
	p := New()
	network := sdk.Network{Devices: []sdk.Device{{Name: "leaf1", Objects: objects()}}}
	if _, err := p.Configure(context.Background(), sdk.Config{}, network); err != nil {
		b.Fatal(err)
	}
	analyze(b, p, f.epoch(1))
}

// BenchmarkAnalyse64 is one epoch of 64 switches, each with the sketches of program
// univmon-300k after 20,000 packets of its own flows.
func BenchmarkAnalyse64(b *testing.B) {
	var names []string
	network := sdk.Network{}
	for i := range 64 {
		name := fmt.Sprintf("leaf%d", i)
		names = append(names, name)
		network.Devices = append(network.Devices, sdk.Device{Name: name, Role: "edge", Objects: objects()})
	}
	f := newFabric(b, names...)
	for i, name := range names {
		zipf := rand.NewZipf(rand.New(rand.NewPCG(5, uint64(i))), 1.1, 1, 20_000)
		for range 20_000 {
			n := uint32(zipf.Uint64())
			var src, dst [4]byte
			binary.BigEndian.PutUint32(src[:], 0x0a000000+uint32(i)<<16+n%1000)
			binary.BigEndian.PutUint32(dst[:], 0x0b000000+n/7)
			k, err := flow.New(netip.AddrFrom4(src), netip.AddrFrom4(dst), 6, uint16(2*n), 443)
			if err != nil {
				b.Fatal(err)
			}
			for _, s := range f[name] {
				s.Update(&k)
			}
		}
	}
	p := New()
	if _, err := p.Configure(context.Background(), sdk.Config{JSON: []byte(`{"network": {"weights": {"edge": 1}}}`)},
		network); err != nil {
		b.Fatal(err)
	}
	analyze(b, p, f.epoch(1))
}

// analyze gives a plugin an epoch again and again.
func analyze(b *testing.B, p *Plugin, epoch *sdk.Epoch) {
	b.ReportAllocs()
	i := uint64(0)
	for b.Loop() {
		i++
		e := *epoch
		e.Number = i
		if _, err := p.Analyze(context.Background(), &e); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(b.N), "ms/epoch")
}
