// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
	"github.com/netsketch/netsketch/sketch/flow"
)

func simNetwork() sdk.Network {
	return sdktest.LeafSpine("sketchint", func(h int) netip.Addr { return simAddress(h, h%2 == 1) })
}

// Every second host has an IPv6 address.
func simAddress(h int, v6 bool) netip.Addr {
	if v6 {
		return netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", h+1))
	}
	return netip.AddrFrom4([4]byte{10, 0, 0, byte(h + 1)})
}

// Node ids, in the order of names.
const (
	leaf1 = iota + 1
	leaf2
	spine1
	spine2
)

// simFlow is the packets of a flow to a host in one interval, each with the same latencies.
type simFlow struct {
	to, port  int // destination host; source port
	path      []uint32
	packets   uint32
	latencies []uint32
	changes   uint32
	slow      uint32 // packets with ten times the latency at the last switch
}

func (f *simFlow) key() flow.Key {
	v6 := f.to%2 == 1
	k, err := flow.New(simAddress(100, v6), simAddress(f.to, v6), 6, uint16(f.port), 80)
	if err != nil {
		panic(err)
	}
	return k
}

// simReport is the report of a host as its role makes it, for an interval of the plugin's settings.
func simReport(t testing.TB, s *wire.Settings, first, last uint64, flows []simFlow) *wire.Report {
	t.Helper()
	r := &wire.Report{First: first, Last: last}
	var err error
	if r.Flows, r.Latencies, err = s.NewTowers(); err != nil {
		t.Fatal(err)
	}
	nodes := map[uint32]*wire.Node{}
	for i := range flows {
		f := &flows[i]
		k := f.key()
		r.Flows.Add(k.AppendBinary(nil), f.packets)
		r.Counters[wire.Packets] += uint64(f.packets)
		r.Problems[inband.None] += uint64(f.packets)
		r.Counters[wire.Hops] += uint64(f.packets) * uint64(len(f.path))
		if len(f.path) > 0 {
			r.Counters[wire.WithINT] += uint64(f.packets)
			r.Counters[wire.INTBytes] += uint64(f.packets) * uint64(16+8*len(f.path))
		}
		if f.packets >= s.Heavy {
			r.Heavy = append(r.Heavy, wire.Heavy{Key: k, Path: f.path, Changes: f.changes})
		}
		for j, node := range f.path {
			n := nodes[node]
			if n == nil {
				n = &wire.Node{ID: node}
				nodes[node] = n
			}
			sum, worst := uint64(f.packets)*uint64(f.latencies[j]), f.latencies[j]
			if j == len(f.path)-1 && f.slow > 0 {
				worst *= 10
				sum += uint64(f.slow) * uint64(worst-f.latencies[j])
				r.Inflated = append(r.Inflated, wire.Inflated{Key: k, Node: node, Packets: f.slow, Worst: worst})
			}
			r.Latencies.Add(wire.AppendKey(nil, &k, node), f.packets, sum)
			n.Packets, n.Sum, n.Worst = n.Packets+uint64(f.packets), n.Sum+sum, max(n.Worst, worst)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		r.Nodes = append(r.Nodes, *nodes[id])
	}
	return r
}

// simEpoch is the last epoch of an interval of five in which hosts received flows.
func simEpoch(t testing.TB, h *sdktest.Harness, interval uint64, flows []simFlow) *sdk.Epoch {
	t.Helper()
	e := &sdk.Epoch{Number: 5*interval + 4, Status: sdk.StatusComplete, Start: time.Unix(int64(5*interval), 0),
		End: time.Unix(int64(5*interval+5), 0)}
	for i := range 4 {
		var own []simFlow
		for _, f := range flows {
			if f.to == i {
				own = append(own, f)
			}
		}
		name := fmt.Sprintf("h%d", i+1)
		e.ExpectedHosts = append(e.ExpectedHosts, name)
		setReport(t, e, name, simReport(t, settingsOf(t, h, name), 5*interval, e.Number, own))
	}
	return e
}

// setReport sets the report of a host.
func setReport(t testing.TB, e *sdk.Epoch, host string, r *wire.Report) {
	t.Helper()
	data, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	setData(e, host, data)
}

func setData(e *sdk.Epoch, host string, data []byte) { sdktest.SetReport(e, host, wire.Role, data) }

// settingsOf are the settings that the plugin sends to a host.
func settingsOf(t testing.TB, h *sdktest.Harness, host string) *wire.Settings {
	t.Helper()
	hosts := h.Settings().Plan.Hosts
	i := slices.IndexFunc(hosts, func(s sdk.HostSetting) bool { return s.Host == host && s.Role == wire.Role })
	if i < 0 {
		t.Fatalf("no settings of host %s in %v", host, hosts)
	}
	s, err := wire.ParseSettings(hosts[i].Data)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func start(t testing.TB, config string) *sdktest.Harness {
	t.Helper()
	return sdktest.Start(t, New(), sdktest.Options{Config: config, Network: simNetwork(), EpochLength: time.Second})
}

var rows, rowsOf, expect = sdktest.Rows, sdktest.RowsOf, sdktest.Expect
