// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/routes"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/sumax"
)

const simColumns = 256

// simConfig is the configuration of the tests, with more keys.
func simConfig(more string) string {
	return fmt.Sprintf(`{"sketch": {"columns": %d} %s}`, simColumns, more)
}

// simNetwork is the network of the tests. h4 has an IPv6 address.
func simNetwork() sdk.Network {
	n := sdktest.LeafSpine("lightguardian", simAddress)
	for i := range n.Devices {
		n.Devices[i].Unread = compiledFor(map[string]string{"columns": strconv.Itoa(simColumns)})
	}
	return n
}

// compiledFor is the sketch of a program that was compiled with the default parameters and others.
func compiledFor(parameters map[string]string) []sdk.Object {
	values := map[string]string{"rows": "3", "columns": "4096", "sizes": "1", "delays": "4", "gaps": "1", "chances": "4"}
	maps.Copy(values, parameters)
	return []sdk.Object{{Name: "lightguardian_sketch", Annotations: sdk.Annotations{annotation: values}}}
}

func simAddress(h int) netip.Addr {
	if h == 3 {
		return netip.MustParseAddr("2001:db8::4")
	}
	return netip.AddrFrom4([4]byte{10, 0, 0, byte(h + 1)})
}

// sim is the network in one interval: the sketches of its switches and what hosts counted.
type sim struct {
	sketches map[string]*sumax.Sketch[family.P4]
	flows    map[int]map[flow.Key]*wire.Flow // by host
}

func newSim(t testing.TB) *sim {
	t.Helper()
	s := &sim{map[string]*sumax.Sketch[family.P4]{}, map[int]map[flow.Key]*wire.Flow{}}
	for _, d := range simNetwork().Devices {
		s.sketches[d.Name] = simSketch(t, d.Name)
	}
	for h := range 4 {
		s.flows[h] = map[flow.Key]*wire.Flow{}
	}
	return s
}

// simSketch is an empty sketch of a switch.
func simSketch(t testing.TB, name string) *sumax.Sketch[family.P4] {
	t.Helper()
	s, err := sumax.New[family.P4](sumax.Config{Rows: 3, Width: simColumns, Ranges: []uint32{50, 100, 200},
		Intervals: true, Seed: uint64(seedOf(name))})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// simKey is a flow from h1 to a host by a spine that its hash selects.
func simKey(t testing.TB, to int, spine string) flow.Key {
	t.Helper()
	return simKeys(t, to, spine, 1)[0]
}

// simKeys returns several flows like simKey's.
func simKeys(t testing.TB, to int, spine string, count int) (keys []flow.Key) {
	t.Helper()
	model := simNetwork()
	from := 0
	if to == 3 {
		t.Fatal("h4 has no IPv4 address")
	}
	for port := range uint16(1000) {
		k, err := flow.New(simAddress(from), simAddress(to), 6, port+1, 80)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(routes.New(&model).Path(&k), spine) {
			if keys = append(keys, k); len(keys) == count {
				return keys
			}
		}
	}
	t.Fatalf("%d flows to h%d by %s, want %d", len(keys), to+1, spine, count)
	return nil
}

// send sends packets of a flow from h1 over switches to a host; -1: they do not arrive.
func (s *sim) send(k flow.Key, to, packets int, path ...string) {
	s.add(0, k).Sent += uint64(packets)
	s.pass(k, packets, 10, 1000, path...)
	if to >= 0 {
		s.add(to, k).Received += uint64(packets)
	}
}

func (s *sim) add(host int, k flow.Key) *wire.Flow {
	if s.flows[host][k] == nil {
		s.flows[host][k] = &wire.Flow{Key: k}
	}
	return s.flows[host][k]
}

// pass lets packets pass switches with a delay and a gap in µs.
func (s *sim) pass(k flow.Key, packets int, delay, gap uint32, path ...string) {
	for _, name := range path {
		for n := range packets {
			s.sketches[name].Record(k.AppendBinary(nil), sumax.Packet{Delay: delay, At: 1 + uint32(n)*gap})
		}
	}
}

// share is which columns a host receives: of columns modulo of, those equal to one of these.
type share struct {
	of    int
	these []int
}

// everything is all columns, each at one of the four hosts.
var everything = map[int]share{0: {4, []int{0}}, 1: {4, []int{1}}, 2: {4, []int{2}}, 3: {4, []int{3}}}

// simEpoch returns the epoch after the interval of s, in which hosts report the given columns of
// that interval, and the flows of next, if it is not nil.
func simEpoch(t testing.TB, h *sdktest.Harness, number uint64, s, next *sim, columns map[int]share) *sdk.Epoch {
	t.Helper()
	e := &sdk.Epoch{Number: number, Status: sdk.StatusComplete, Start: time.Unix(int64(number), 0),
		End: time.Unix(int64(number+1), 0), BankShift: 7}
	settings := settingsOf(t, h)
	for host := range 4 {
		name := fmt.Sprintf("h%d", host+1)
		e.ExpectedHosts = append(e.ExpectedHosts, name)
		r := &wire.Report{Epoch: number}
		if next != nil {
			for _, k := range slices.SortedFunc(maps.Keys(next.flows[host]), flow.Key.Compare) {
				r.Flows = append(r.Flows, *next.flows[host][k])
			}
		}
		if s != nil {
			r.Sketchlets = s.columns(t, settings, e.BankOf(number-1, banks), columns[host])
		}
		setReport(e, name, r)
	}
	return e
}

// carrying is an epoch without packets in which columns of s arrive at h1, with intervals of four
// epochs.
func carrying(t testing.TB, h *sdktest.Harness, number uint64, s *sim, columns share) *sdk.Epoch {
	t.Helper()
	e := simEpoch(t, h, number, nil, nil, nil)
	interval := e.BankOf(number, 4*banks)/4 - 1
	setReport(e, "h1", &wire.Report{Epoch: number, Sketchlets: s.columns(t, settingsOf(t, h), interval, columns)})
	return e
}

// columns returns sketchlets of all switches.
func (s *sim) columns(t testing.TB, settings *wire.Settings, interval int, which share) (b []byte) {
	t.Helper()
	for i, d := range simNetwork().Devices {
		for c := range simColumns {
			if which.of == 0 || !slices.Contains(which.these, c%which.of) {
				continue
			}
			cells, err := s.sketches[d.Name].Column(nil, c)
			if err != nil {
				t.Fatal(err)
			}
			b = wire.Append(b, settings.Devices[i].ID, uint16(c), uint8(interval), cells)
		}
	}
	return b
}

func setReport(e *sdk.Epoch, host string, r *wire.Report) {
	setData(e, host, r.Append(nil))
}

func setData(e *sdk.Epoch, host string, data []byte) { sdktest.SetReport(e, host, wire.Role, data) }

// settingsOf returns the settings that the plugin sends to hosts.
func settingsOf(t testing.TB, h *sdktest.Harness) *wire.Settings {
	t.Helper()
	s, err := wire.ParseSettings(h.Settings().Plan.Hosts[0].Data)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func start(t testing.TB, more string) *sdktest.Harness {
	t.Helper()
	return sdktest.Start(t, New(), sdktest.Options{Config: simConfig(more), Network: simNetwork(),
		EpochLength: time.Second})
}

// play analyzes an interval that all switches measured, and the epoch in which its columns arrive.
func play(t testing.TB, h *sdktest.Harness, number uint64, s *sim) *sdk.Results {
	t.Helper()
	h.Analyze(simEpoch(t, h, number, nil, s, nil))
	return h.Analyze(simEpoch(t, h, number+1, s, nil, everything))
}

var rows, rowsOf, expect = sdktest.Rows, sdktest.RowsOf, sdktest.Expect
