// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	"encoding/binary"
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
		"src":     {Key: flow.Src, Levels: 10, Rows: 3, Columns: 2048, Ways: 4, Slots: 64},
		"dst":     {Key: flow.Dst, Levels: 10, Rows: 3, Columns: 896, Ways: 4, Slots: 64},
		"5-tuple": {Key: flow.FiveTuple, Levels: 10, Rows: 3, Columns: 2048, Ways: 4, Slots: 128},
	}
	saved, savedControls := layouts, controls
	layouts = l1
	controls = map[string]string{"src": "ingress.univmon_src", "dst": "ingress.univmon_dst", "5-tuple": "ingress.univmon_5t"}
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
	epoch := f.epoch(1)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		e := *epoch
		e.Number = uint64(i + 1)
		if _, err := p.Analyse(context.Background(), &e); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(b.N), "ms/epoch")
}
