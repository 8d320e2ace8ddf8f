// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/hostagent/omnimon/query"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
)

// Every value of every flow at every host and switch, and every loss, is what happened.
func TestExact(t *testing.T) {
	for _, tt := range []struct {
		name string
		drop func(s *sim) func(string) bool
	}{
		{"no loss", func(*sim) func(string) bool { return never }},
		{"a lossy spine and a lossy link", func(s *sim) func(string) bool {
			return func(e string) bool {
				return e == "spine1" && s.random.IntN(50) == 0 || e == "leaf2/3~h3" && s.random.IntN(40) == 0
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := start(t, allRows)
			s := newSim(t, 5, 0, nil)
			s.drop = tt.drop(s)
			indexes := make([]uint32, 4)
			for range 500 {
				s.add(indexes)
			}
			first := h.Analyze(s.epoch(numbersOf(t, h.Settings())))
			out := settle(t, h, 5)
			compare(t, s, first, out)
			alerts := sdktest.Rows(t, out, alertList)
			if len(alerts) != len(s.lost) {
				t.Errorf("alerts %v, losses %v", alerts, s.lost)
			}
			for name := range s.lost {
				if alerts[name+" PACKETS_LOST"] == nil {
					t.Errorf("no alert of %s: %v", name, alerts)
				}
			}
		})
	}
}

// settle plays the four epochs after an epoch without packets that are lost. Before it is settled,
// nothing begins an alert.
func settle(t *testing.T, h *sdktest.Harness, number uint64) (out *sdk.Results) {
	t.Helper()
	for n := range uint64(settleEpochs) {
		if out != nil {
			for alert := range sdktest.Rows(t, out, alertList) {
				if strings.Contains(alert, "PACKETS_LOST") || strings.Contains(alert, "BLACKHOLE") {
					t.Errorf("%s before the epoch is settled", alert)
				}
			}
		}
		out = h.Analyze(newSim(t, number+1+n, 10, never).epoch(numbersOf(t, h.Settings())))
	}
	return out
}

// sure reports whether all qualities of a row are EXACT. A row without one is not.
func sure(row map[string]any) bool {
	found := false
	for leaf, q := range row {
		if leaf == "quality" || strings.HasSuffix(leaf, "-quality") {
			if found = true; q != "EXACT" {
				return false
			}
		}
	}
	return found
}

// loadSure is sure for the packets and bytes of a link or switch.
func loadSure(row map[string]any) bool { return row["packets-quality"] == "EXACT" }

// rowsOf returns the rows of a list in an epoch, those with missing packets as they are settled.
func rowsOf(t *testing.T, out, settled *sdk.Results, list string) map[string]map[string]any {
	t.Helper()
	rows := sdktest.Rows(t, out, list)
	provisional := sdktest.Rows(t, out, summaryList)[""]["final"] == false
	for key, row := range rows {
		if located := list == lossList || list == linkList || list == switchList; provisional && located &&
			row["quality"] == "EXACT" {
			t.Errorf("%s %s may change and is exact: %v", list, key, row)
		}
	}
	for key, row := range sdktest.Rows(t, settled, settledOf(list)) {
		if rows[key] == nil || row["lost-packets-quality"] == "UPPER_BOUND" {
			t.Errorf("settled %s %s: %v, before %v", list, key, row, rows[key])
		}
		rows[key] = row
	}
	return rows
}

// compare compares the results of an epoch, and those of the epoch that settles it.
func compare(t *testing.T, s *sim, out, settled *sdk.Results) {
	t.Helper()
	summary, later := sdktest.Rows(t, out, summaryList)[""], sdktest.Rows(t, settled, settledList)[""]
	total := int64(0)
	for _, n := range s.lost {
		total += n
	}
	if later["last-epoch"] != s.number || !sure(later) || later["lost-packets"] != total {
		t.Fatalf("settled %v, %d packets were lost", later, total)
	}
	if waits := total > 0; sure(summary) == waits || summary["final"] == waits ||
		summary["flows"] != uint64(len(s.flows)) || summary["determined-share"] != 1.0 ||
		summary["status"] != "COMPLETE" {
		t.Fatalf("summary %v", summary)
	}
	flows, hops, losses := rowsOf(t, out, settled, flowList), rowsOf(t, out, settled, hopList),
		rowsOf(t, out, settled, lossList)
	links := map[string]uint64{}
	for _, f := range s.flows {
		row := flows[f.key.String()]
		if row["packets"] != uint64(f.sent[wire.Packets]) || row["bytes"] != uint64(f.sent[wire.Bytes]) ||
			row["received-packets"] != uint64(f.received[wire.Packets]) || !sure(row) {
			t.Fatalf("flow %v: %v, sent %v", f.key, row, f.sent)
		}
		for i := range f.at {
			hop := hops[f.key.String()+" "+f.elements[2*i+1]]
			want := uint64(f.at[i][wire.Packets])
			if hop["packets-low"] != want || hop["packets-high"] != want || hop["position"] != uint64(i+1) ||
				hop["link"] != f.elements[2*i] || !sure(hop) {
				t.Fatalf("flow %v at %s: %v, want %d", f.key, f.elements[2*i+1], hop, want)
			}
		}
		left := uint64(f.sent[wire.Packets])
		for i, e := range f.elements {
			if i%2 == 0 {
				links[e] += left
			}
			lost := uint64(f.lost[e])
			left -= lost
			if row := losses[f.key.String()+" "+e]; lost > 0 != (row != nil) ||
				lost > 0 && (row["lost-packets-low"] != int64(lost) ||
					row["lost-packets-high"] != int64(lost) || !sure(row)) {
				t.Fatalf("flow %v lost %d at %s: %v", f.key, lost, e, row)
			}
		}
	}
	if alerts := sdktest.Rows(t, out, alertList); len(alerts) > 0 {
		t.Errorf("alerts %v", alerts)
	}
	for name, row := range rowsOf(t, out, settled, linkList) {
		if row["packets"] != links[name] || row["lost-packets-low"] != s.lost[name] || !sure(row) {
			t.Errorf("link %s: %v, want %d packets, %d lost", name, row, links[name], s.lost[name])
		}
	}
	for name, row := range rowsOf(t, out, settled, switchList) {
		if row["lost-packets-high"] != s.lost[name] || row["status"] != "COMPLETE" || !sure(row) {
			t.Errorf("switch %s: %v, want %d lost", name, row, s.lost[name])
		}
	}
	compareLinkFlows(t, s, out, settled, true)
}

// TestExtremes: the maximum of a flow at a switch is the maximum of the packets that arrived there.
// It is absent if a packet that raised it was lost before the switch.
func TestExtremes(t *testing.T) {
	l := layoutOf(1)
	h := sdktest.Start(t, New(), sdktest.Options{Network: simNetworkOf(l),
		Config: `{"extremes": [{"field": "length"}], ` + allRows[1:]})
	numbers := numbersOf(t, h.Settings())
	random := rand.New(rand.NewPCG(8, 8))
	s := newSimOf(t, l, 5, 200, func(e string) bool { return e == "spine1" && random.IntN(8) == 0 })
	s.flows[0].untagged.Packets = 1
	out := h.Analyze(s.epoch(numbers))
	for number := uint64(6); number < 10; number++ {
		settled := h.Analyze(newSimOf(t, l, number, 0, never).epoch(numbers))
		if sdktest.Rows(t, settled, settledList)[""]["last-epoch"] != s.number {
			continue
		}
		absent := 0
		flows, hops := rowsOf(t, out, settled, flowList), rowsOf(t, out, settled, hopList)
		for i, f := range s.flows {
			key := f.key.String()
			want := any(uint64(f.sent[wire.FirstExtreme]))
			if i == 0 {
				want = nil // a packet without a header can be the longest
			}
			if row := flows[key]; row["max-length"] != want || row["min-length"] != nil {
				t.Errorf("flow %s: %v, want %v", key, row, want)
			}
			for hop, longest := range f.longest {
				row := hops[key+" "+f.elements[2*hop+1]]
				switch v := row["max-length"]; {
				case v == nil && i > 0 && (longest == f.sent[wire.FirstExtreme] && f.lost["spine1"] == 0):
					t.Errorf("flow %s: %v, the longest packet has %d bytes", key, row, longest)
				case v == nil:
					absent++
				case v != uint64(longest):
					t.Errorf("flow %s: %v, the longest packet has %d bytes", key, row, longest)
				}
			}
		}
		if absent < 5 {
			t.Errorf("%d flows lost a packet that raised the maximum, too few", absent)
		}
		return
	}
	t.Fatal("the epoch was not settled")
}

// TestLossesOfUntaggedPackets: what is known of the losses of a flow that sent packets without a
// header is a lower bound alone, because these packets may be lost, too.
func TestLossesOfUntaggedPackets(t *testing.T) {
	h := start(t, allRows)
	random := rand.New(rand.NewPCG(9, 9))
	s := newSim(t, 5, 200, func(e string) bool { return e == "spine1" && random.IntN(8) == 0 })
	for i, f := range s.flows {
		if i%2 == 0 {
			f.untagged.Packets = 1
		}
	}
	out := h.Analyze(s.epoch(numbersOf(t, h.Settings())))
	rows, lower := rowsOf(t, out, settle(t, h, 5), lossList), 0
	for key, row := range rows {
		if is := row["quality"] == "LOWER_BOUND"; is == (row["lost-packets-high"] != nil) {
			t.Errorf("%s: %v", key, row)
		} else if is {
			lower++
		}
	}
	if lower == 0 || lower == len(rows) {
		t.Errorf("%d of %d rows have a lower bound alone", lower, len(rows))
	}
}

// compareLinkFlows compares the listed flows of each link with what each flow sent on it: bounds
// contain the true number, never exceed what the switch in front of the link received, and rank the
// flows. If all is determined, the largest flows are listed, and no other.
func compareLinkFlows(t *testing.T, s *sim, out, settled *sdk.Results, determined bool) {
	t.Helper()
	sent := map[string]map[string]uint64{} // by link and flow
	for _, f := range s.flows {
		left := uint64(f.sent[wire.Packets])
		for i, e := range f.elements {
			if i%2 == 0 && left > 0 {
				if sent[e] == nil {
					sent[e] = map[string]uint64{}
				}
				sent[e][f.key.String()] = left
			}
			left -= uint64(f.lost[e])
		}
	}
	hops, links := sdktest.Rows(t, out, hopList), sdktest.Rows(t, out, linkList)
	before := map[string]uint64{} // most packets that the hop in front of a link received, by link and flow
	for _, f := range s.flows {
		for i := 2; i < len(f.elements); i += 2 {
			if hop := hops[f.key.String()+" "+f.elements[i-1]]; hop != nil {
				before[f.elements[i]+" "+f.key.String()] = most(t, hop)
			}
		}
	}
	ranks := map[string]map[uint64][3]uint64{} // by link: low, high, true number
	for key, row := range rowsOf(t, out, settled, linkFlowList) {
		link, flow, _ := strings.Cut(key, " ")
		n, low, high := sent[link][flow], row["packets-low"].(uint64), most(t, row)
		if low > n || n > high || high == 0 || sure(row) && low != high {
			t.Errorf("%s: %v, sent %d", key, row, n)
		}
		if arrived, ok := before[key]; ok && high > arrived && high != unbounded {
			t.Errorf("%s: %v, at most %d arrived in front of it", key, row, arrived)
		}
		if total := links[link]["packets"].(uint64); high > total && high != unbounded {
			t.Errorf("%s: %v on a link of %d packets", key, row, total)
		}
		if determined && !sure(row) {
			t.Errorf("%s is not determined: %v", key, row)
		}
		if ranks[link] == nil {
			ranks[link] = map[uint64][3]uint64{}
		}
		ranks[link][row["rank"].(uint64)] = [3]uint64{low, high, n}
	}
	for link, rows := range ranks {
		for rank := uint64(1); rank <= uint64(len(rows)); rank++ {
			if row, ok := rows[rank]; !ok || rank > 1 && (rows[rank-1][0] < row[0] ||
				rows[rank-1][0] == row[0] && rows[rank-1][1] < row[1] && row[1] != unbounded) {
				t.Errorf("link %s, rank %d: %v", link, rank, rows)
			}
		}
		largest := slices.Sorted(maps.Values(sent[link]))
		slices.Reverse(largest)
		if want := min(len(largest), 10); determined && (len(rows) != want || rows[uint64(want)][2] != largest[want-1]) {
			t.Errorf("link %s: %d rows %v, expected %v", link, len(rows), rows, largest[:want])
		}
	}
	if len(ranks) == 0 || determined && len(ranks) != len(sent) {
		t.Errorf("%d links with flows, expected %d", len(ranks), len(sent))
	}
}

// unbounded is what most returns of a row without an upper bound.
const unbounded = math.MaxUint64

// most returns the upper bound of the packets of a row. A row has none if and only if its quality
// is LOWER_BOUND.
func most(t *testing.T, row map[string]any) uint64 {
	t.Helper()
	high, ok := row["packets-high"].(uint64)
	if lower := row["quality"] == "LOWER_BOUND"; ok == lower {
		t.Errorf("quality and upper bound of packets: %v", row)
	}
	if !ok {
		return unbounded
	}
	return high
}

// TestLinkFlows: which flows are large on a link is answered by what they sent on this link,
// whatever is missing, and not by what their sources sent.
func TestLinkFlows(t *testing.T) {
	spine := func(e string) bool { return e == "leaf1/1~spine1/1" } // the link that loses all packets
	for name, tt := range map[string]struct {
		drop       func(s *sim) func(string) bool
		change     func(e *sdk.Epoch)
		determined bool
	}{
		"a dead link": {func(*sim) func(string) bool { return spine }, nil, true},
		"a dead link before a missing switch": {func(*sim) func(string) bool { return spine }, func(e *sdk.Epoch) {
			e.Devices = slices.DeleteFunc(e.Devices, func(d sdk.DeviceData) bool { return d.Name == "leaf1" })
			e.Missing = []sdk.Missing{{Name: "leaf1", Reason: "no session"}}
		}, false},
		"losses at missing switches": {func(s *sim) func(string) bool {
			return func(string) bool { return s.random.IntN(8) == 0 }
		}, func(e *sdk.Epoch) {
			e.Devices = nil
			for _, name := range []string{"leaf1", "leaf2", "spine1", "spine2"} {
				e.Missing = append(e.Missing, sdk.Missing{Name: name, Reason: "no session"})
			}
		}, false},
		"losses of flows to a missing host": {func(s *sim) func(string) bool {
			return func(string) bool { return s.random.IntN(20) == 0 }
		}, func(e *sdk.Epoch) {
			e.Hosts = e.Hosts[1:]
			e.Missing = []sdk.Missing{{Name: "h1", Reason: "no session", Host: true}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, allRows)
			s := newSim(t, 5, 0, nil)
			s.drop = tt.drop(s)
			indexes := make([]uint32, 4)
			for range 300 {
				s.add(indexes)
			}
			e := s.epoch(numbersOf(t, h.Settings()))
			if tt.change != nil {
				tt.change(e)
			}
			out := h.Analyze(e)
			compareLinkFlows(t, s, out, settle(t, h, s.number), tt.determined)
		})
	}
}

// TestTooManyHosts: a network with more hosts than the plugin numbers is refused, with the way out.
func TestTooManyHosts(t *testing.T) {
	network := sdk.Network{}
	for n := range maxHosts + 1 {
		network.Hosts = append(network.Hosts, sdk.Host{Name: fmt.Sprintf("h%d", n), Agent: true,
			Addresses: []string{fmt.Sprintf("10.0.%d.%d", n>>8, n&255)}})
	}
	_, err := New().Configure(t.Context(), sdk.Config{EpochLength: time.Second}, network)
	if err == nil || !strings.Contains(err.Error(), "at most 16384 are possible") {
		t.Errorf("error %v", err)
	}
	network.Hosts = network.Hosts[:maxHosts]
	if _, err = New().Configure(t.Context(), sdk.Config{EpochLength: time.Second}, network); err != nil {
		t.Error(err)
	}
}

// TestTenThousandHosts: the settings of 10,000 hosts share one table of addresses in memory and in
// messages, and the values of their flows and losses are what happened.
func TestTenThousandHosts(t *testing.T) {
	l := largeLayout(0, 100, 100, 128)
	memory := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	network := simNetworkOf(l)
	before, began := memory(), time.Now()
	h := sdktest.Start(t, New(), sdktest.Options{Network: network, Timeout: 5 * time.Minute, Config: `{"shares": 20000,
		"limits": {"flows": 100000, "hops": 100000, "losses": 100000, "link-flows": 204000}}`})
	took, settings := time.Since(began), h.Settings()
	after := memory()
	numbers := numbersOf(t, settings)
	if slices.Sort(numbers); len(numbers) != 10_000 || numbers[0] != 0 || numbers[9999] != 9999 {
		t.Errorf("%d numbers, from %d to %d", len(numbers), numbers[0], numbers[9999])
	}
	numbers = numbersOf(t, settings)
	size, table := proto.Size(settings.Plan.Proto()), len(settings.Plan.Hosts[1].Tail)
	t.Logf("%d hosts configured in %v: %d KiB, plan of %d KiB with a table of %d KiB", len(numbers), took,
		(int(after)-int(before))>>10, size>>10, table>>10)
	if size > 1<<20 || after > before+64<<20 {
		t.Errorf("a plan of %d bytes, %d bytes of memory", size, int(after)-int(before))
	}
	s := newSimOf(t, l, 5, 0, nil)
	s.drop = func(e string) bool {
		return strings.HasSuffix(e, "~h4242") && s.random.IntN(3) == 0 || e == "leaf33" && s.random.IntN(40) == 0
	}
	indexes := make([]uint32, l.hosts())
	for range 30_000 {
		s.add(indexes)
	}
	epoch := s.epoch(numbers)
	began = time.Now()
	first := h.Analyze(epoch)
	t.Logf("%d flows analyzed in %v", len(s.flows), time.Since(began))
	var out *sdk.Results
	for n := range uint64(settleEpochs) {
		out = h.Analyze(newSimOf(t, l, 6+n, 10, never).epoch(numbers))
	}
	compare(t, s, first, out)
	if len(s.lost) != 2 {
		t.Errorf("losses at %v", s.lost)
	}
}

// Where another controller owns the routes of some or all switches, paths follow from the slots.
func TestOtherRoutes(t *testing.T) {
	for name, other := range map[string][]string{"all": {"leaf1", "leaf2", "spine1", "spine2"}, "one": {"leaf2"}} {
		for _, drop := range []func(string) bool{never, func(e string) bool { return e == "leaf1/2~spine2/1" }} {
			network := simNetwork()
			for i := range network.Devices {
				if d := &network.Devices[i]; slices.Contains(other, d.Name) {
					d.Forwarding = nil
				}
			}
			h := sdktest.Start(t, New(), sdktest.Options{Network: network, Config: `{"single-path": true, ` + allRows[1:]})
			numbers := numbersOf(t, h.Settings())
			s := newSim(t, 5, 60, drop)
			if len(s.lost) == 0 {
				first := h.Analyze(s.epoch(numbers))
				compare(t, s, first, settle(t, h, 5))
				continue
			}
			// Of some flows the link loses all packets, so nothing shows by which spine they went.
			e := s.epoch(numbers)
			for _, f := range s.flows {
				e.Watched = append(e.Watched, sdk.RowKey{List: flowList, Keys: map[string]string{"flow": f.key.String()}})
			}
			out := h.Analyze(e)
			settled := settle(t, h, 5)
			unplaced := 0
			flows, hops, links := rowsOf(t, out, settled, flowList), rowsOf(t, out, settled, hopList),
				rowsOf(t, out, settled, linkList)
			for _, f := range s.flows {
				row := flows[f.key.String()]
				if row["packets"] != uint64(f.sent[wire.Packets]) || !sure(row) ||
					row["received-packets"] != uint64(f.received[wire.Packets]) {
					t.Fatalf("%s: flow %v: %v", name, f.key, row)
				}
				if row["path"] == "" {
					unplaced++
					continue
				}
				for i := range f.at {
					hop := hops[f.key.String()+" "+f.elements[2*i+1]]
					if hop["position"] != uint64(i+1) || hop["packets-low"].(uint64) > uint64(f.at[i][wire.Packets]) ||
						most(t, hop) < uint64(f.at[i][wire.Packets]) {
						t.Fatalf("%s: flow %v at %s: %v", name, f.key, f.elements[2*i+1], hop)
					}
				}
			}
			compareLinkFlows(t, s, out, settled, false)
			summary := sdktest.Rows(t, out, summaryList)[""]
			if summary["unplaced-flows"] != uint64(unplaced) || !sure(sdktest.Rows(t, settled, settledList)[""]) ||
				unplaced != map[string]int{"all": 12, "one": 0}[name] {
				t.Errorf("%s: %d flows of %d without a path: %v", name, unplaced, len(s.flows), summary)
			}
			for link, row := range links {
				if row["lost-packets-low"] != s.lost[link] || row["lost-packets-high"] != s.lost[link] ||
					unplaced > 0 && loadSure(row) && !strings.Contains(link, "h") {
					t.Errorf("%s: link %s: %v, lost %d", name, link, row, s.lost[link])
				}
			}
		}
	}
}

// Unknown values of a host, a switch or a flow make no other value inexact, and no inexact value is
// published as exact.
func TestInexact(t *testing.T) {
	const all, none = "all", "none"
	for _, tt := range []struct {
		name            string
		change          func(e *sdk.Epoch)
		status, problem string
		flows           string // flows that are exact: all, none, or all but the flows of the host with this name
		alert           string
		element         string // a switch or link that is not exact
	}{
		{"a missing host", func(e *sdk.Epoch) {
			e.Hosts = e.Hosts[1:]
			e.Missing = []sdk.Missing{{Name: "h1", Reason: "no session", Host: true}}
		}, "PARTIAL", "1 hosts are missing, such as h1: no session", "h1", "h1 HOST_MISSING", ""},
		{"a host that joined", func(e *sdk.Epoch) {
			e.Hosts = e.Hosts[1:]
			e.Missing = []sdk.Missing{{Name: "h1", Reason: "joined", Host: true, Joined: true}}
		}, "PARTIAL", "1 hosts are missing", "h1", "", ""},
		{"a truncated report", func(e *sdk.Epoch) { e.Hosts[1].Data = e.Hosts[1].Data[:40] }, "PARTIAL",
			"1 hosts are missing", "h2", "h2 HOST_MISSING", ""},
		{"a late report", func(e *sdk.Epoch) {
			e.Hosts[2].Data = slices.Clone(e.Hosts[2].Data)
			e.Hosts[2].Data[3]--
		}, "PARTIAL", "1 hosts are missing", "h3", "h3 HOST_MISSING", ""},
		{"two agents of one name", func(e *sdk.Epoch) { e.Hosts = append(e.Hosts, e.Hosts[3]) }, "PARTIAL",
			"1 hosts are missing, such as h4: two agents have its name", "h4", "h4 HOST_MISSING", ""},
		{"a switch without data", func(e *sdk.Epoch) {
			e.Devices = e.Devices[1:]
			e.Missing = []sdk.Missing{{Name: "leaf1", Reason: "no session"}}
		}, "PARTIAL", "switch leaf1: no session", all, "leaf1 SWITCH_MISSING", "leaf1"},
		{"a slot that counted too much", func(e *sdk.Epoch) {
			cells := slices.Clone(e.Device("spine1").Object("omnimon_counts").Uint32s())
			cells[0]++
			e.Put("spine1", sdk.CellsOf("omnimon_counts", cells))
		}, "COMPLETE", "switches counted packets of flows that no host reported", all, "spine1 INEXACT", "spine1"},
		{"a slot that counted too little", func(e *sdk.Epoch) {
			cells := slices.Clone(e.Device("spine1").Object("omnimon_counts").Uint32s())
			cells[slices.IndexFunc(cells[:layoutOf(0).arrived], func(v uint32) bool { return v > 0 })/simWords*simWords]--
			e.Put("spine1", sdk.CellsOf("omnimon_counts", cells))
		}, "COMPLETE", "", all, "spine1 INEXACT", "spine1"},
		{"cells that are missing", func(e *sdk.Epoch) {
			e.Put("spine1", sdk.CellsOf("omnimon_counts", make([]uint32, 10)))
		}, "PARTIAL", "switch spine1: omnimon_counts: 10 cells", all, "spine1 SWITCH_MISSING", "spine1"},
		{"slots that do not exist", func(e *sdk.Epoch) {
			cells := make([]uint32, 256)
			cells[129] = 3
			e.Put("leaf2", sdk.CellsOf("uncounted", cells))
		}, "COMPLETE", "", all, "leaf2 INEXACT", "leaf2"},
		{"an accuracy warning of a switch", func(e *sdk.Epoch) {
			e.AccuracyWarnings = []sdk.AccuracyWarning{{Device: "leaf1", Reason: "late"}}
		}, "COMPLETE", "", all, "leaf1 INEXACT", "leaf1"},
		{"an accuracy warning of all switches", func(e *sdk.Epoch) {
			e.AccuracyWarnings = []sdk.AccuracyWarning{{Reason: "late"}}
		}, "COMPLETE", "all devices: late", none, "network INEXACT", "leaf2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := start(t, "")
			s := newSim(t, 5, 200, never)
			e := s.epoch(numbersOf(t, h.Settings()))
			tt.change(e)
			out := h.Analyze(e)
			summary := sdktest.Rows(t, out, summaryList)[""]
			problem, _ := summary["problem"].(string)
			if summary["status"] != tt.status || !strings.HasPrefix(problem, tt.problem) ||
				tt.problem == "" && problem != "" && summary["final"] == true ||
				// Hosts count the flows: sums over them are exact without a switch.
				sure(summary) != (problem == "" || summary["reason"] == "SWITCH_MISSING") ||
				(summary["reason"] == nil) != (problem == "") {
				t.Errorf("summary %v", summary)
			}
			if a := sdktest.Rows(t, out, alertList); tt.alert != "" && a[tt.alert]["active"] != true ||
				tt.alert == "" && len(a) > 0 {
				t.Errorf("alerts %v", sdktest.Rows(t, out, alertList))
			}
			numbers := numbersOf(t, h.Settings())
			next := h.Analyze(newSim(t, 6, 200, never).epoch(numbers))
			if row := sdktest.Rows(t, next, summaryList)[""]; !sure(row) {
				t.Errorf("the next epoch: %v", row)
			}
			var settled *sdk.Results
			for n := uint64(7); n <= 5+settleEpochs; n++ {
				settled = h.Analyze(newSim(t, n, 200, never).epoch(numbers))
			}
			flows := 0
			for key, row := range rowsOf(t, out, settled, flowList) {
				exact := tt.flows == all || tt.flows != none && row["source-node"] != tt.flows &&
					row["destination-node"] != tt.flows
				if sure(row) != exact || (row["problem"] == nil) != exact || exact && row["received-packets"] != row["packets"] {
					t.Fatalf("flow %s: %v", key, row)
				}
				if exact {
					flows++
				}
			}
			if flows < 80 && tt.flows != none {
				t.Errorf("%d exact flows", flows)
			}
			for name, row := range rowsOf(t, out, settled, switchList) {
				if want := name != tt.element && tt.flows != none; loadSure(row) != want || want && !sure(row) {
					t.Errorf("switch %s: %v", name, row)
				}
			}
			for name, row := range rowsOf(t, out, settled, linkList) {
				touched := tt.flows == none || tt.flows != all && slices.Contains(strings.Split(name, "~"), tt.flows)
				if touched && row["quality"] == "EXACT" || !touched && tt.flows != all && row["quality"] != "EXACT" {
					t.Errorf("link %s: %v", name, row)
				}
			}
		})
	}
}

// Each counter of what a host could not measure concerns the flows of this host that it may be part
// of, and is named.
func TestInexactCounters(t *testing.T) {
	lossy := func(e string) bool { return e == "leaf1/4~h2" }
	incoming := func(f *simFlow) bool { return f.to == 1 } // flows to h2 with losses
	for c, touched := range map[wire.Counter]func(f *simFlow) bool{
		wire.NotIP: nil, wire.Foreign: nil, wire.NoHeader: nil, wire.Malformed: nil, wire.Missed: nil,
		wire.NoLease: nil, wire.NoRoom: nil, // of flows with untagged packets
		wire.Late: nil, wire.UnknownHost: nil,
		wire.Untracked:    func(f *simFlow) bool { return f.from == 1 && f.age == 0 },
		wire.UnknownEpoch: incoming, wire.BadIndex: incoming, wire.Forged: incoming, wire.IngressFull: incoming,
		wire.Restarted: func(f *simFlow) bool { return f.to == 1 },
	} {
		h := start(t, "")
		s := newSim(t, 5, 100, lossy)
		for i, f := range s.flows {
			f.age = uint64(i % 3)
		}
		s.counters[c], s.counting = 3, []int{1}
		out := h.Analyze(s.epoch(numbersOf(t, h.Settings())))
		settled := settle(t, h, 5)
		row := sdktest.Rows(t, settled, settledList)[""]
		if problem := fmt.Sprint(row["problem"]); touched != nil && (sure(row) ||
			!strings.Contains(problem, "h2: 3 packets "+c.String()) && c != wire.Restarted) {
			t.Errorf("%v: %v, problem %q", c, row["quality"], problem)
		}
		flows := rowsOf(t, out, settled, flowList)
		for _, f := range s.flows {
			row, inexact := flows[f.key.String()], touched != nil && touched(f)
			if c == wire.Restarted && f.from == 1 { // unknown
				if row != nil {
					t.Fatalf("%v: flow %v", c, row)
				}
			} else if sure(row) == inexact {
				t.Fatalf("%v: flow %v", c, row)
			}
		}
	}
}

// Packets without a header make their flow inexact and no other; what its source sent is known.
func TestUntagged(t *testing.T) {
	h := start(t, "")
	s := newSim(t, 5, 100, never)
	x := s.flows[7]
	x.untagged = wire.Untagged{Packets: 4, Bytes: 400}
	only := &simFlow{key: x.key, from: x.from, to: x.to, index: 1000, slots: x.slots,
		untagged: wire.Untagged{Packets: 9, Bytes: 900},
		elements: x.elements}
	only.key.SrcPort = 9
	s.flows = append(s.flows, only)
	out := h.Analyze(s.epoch(numbersOf(t, h.Settings())))
	summary := sdktest.Rows(t, out, summaryList)[""]
	if sure(summary) || summary["inexact-flows"] != uint64(2) || summary["untagged-packets"] != uint64(13) ||
		summary["lossy-flows"] != uint64(0) {
		t.Errorf("summary %v", summary)
	}
	flows, hops := sdktest.Rows(t, out, flowList), sdktest.Rows(t, out, hopList)
	for _, f := range s.flows {
		row, hop := flows[f.key.String()], hops[f.key.String()+" "+f.elements[1]]
		if n := uint64(f.sent[wire.Packets]); row["packets"] != n+f.untagged.Packets || row["received-packets"] != n ||
			sure(row) != (f.untagged.Packets == 0) || !sure(row) && row["quality"] != "LOWER_BOUND" ||
			row["untagged-packets"] != f.untagged.Packets ||
			hop["packets-low"] != n || hop["packets-high"] != n+f.untagged.Packets || sure(hop) != sure(row) ||
			!sure(hop) && hop["quality"] != "BOUNDED" {
			t.Fatalf("flow %v, %v", row, hop)
		}
	}
	for name, row := range sdktest.Rows(t, out, linkList) {
		if touched := slices.Contains(x.elements, name); loadSure(row) == touched || row["quality"] != "EXACT" {
			t.Errorf("link %s: %v", name, row)
		}
	}
	for name, row := range sdktest.Rows(t, out, switchList) {
		if !sure(row) {
			t.Errorf("switch %s: %v", name, row)
		}
	}
}

// A flow of a host that is missing, or that had no entry, has a row with the reason instead of
// none.
func TestUnknownFlows(t *testing.T) {
	h := start(t, "")
	s := newSim(t, 5, 100, never)
	s.counters[wire.Untracked], s.counting = 3, []int{2}
	e := s.epoch(numbersOf(t, h.Settings()))
	e.Hosts = e.Hosts[1:]
	e.Missing = []sdk.Missing{{Name: "h1", Reason: "no session", Host: true}}
	for _, key := range []string{"10.0.0.1,10.0.0.2,udp,1,2", "10.0.0.3,10.0.0.2,udp,1,2", "10.0.0.4,10.0.0.2,udp,1,2"} {
		e.Watched = append(e.Watched, sdk.RowKey{List: flowList, Keys: map[string]string{"flow": key}})
	}
	flows := sdktest.Rows(t, h.Analyze(e), flowList)
	for key, want := range map[string]string{"10.0.0.1,10.0.0.2,udp,1,2": "host h1, its source, is missing",
		"10.0.0.3,10.0.0.2,udp,1,2": "host h3: 3 packets untracked"} {
		if row := flows[key]; row["quality"] != nil || row["problem"] != want || row["packets"] != nil ||
			row["lost-packets"] != nil {
			t.Errorf("flow %v", row)
		}
	}
	if row := flows["10.0.0.4,10.0.0.2,udp,1,2"]; !sure(row) || row["packets"] != uint64(0) {
		t.Errorf("flow %v", row)
	}
}

// An alert of a loss begins when the loss is settled. Late packets of its epoch, and a reason that
// concerns the element, let alerts neither begin nor end.
func TestSettledLosses(t *testing.T) {
	const link, linkAlert, spineAlert = "leaf2/3~h3", "leaf2/3~h3 PACKETS_LOST", "spine1 BLACKHOLE"
	drop := func(elements ...string) func(string) bool {
		return func(e string) bool { return slices.Contains(elements, e) }
	}
	h := start(t, "")
	for i, tt := range []struct {
		drop        func(string) bool
		late        uint64 // epochs before this one
		warned      string // device
		link, spine bool   // the alert is active
	}{
		{drop: drop(link)},                       // epoch 10
		{drop: drop(link)},                       // epoch 11
		{drop: never, late: 2},                   // epoch 12: packets of epoch 10 arrive late, so that they were not lost
		{drop: drop(link, "spine1")},             // epoch 13
		{drop: never},                            // epoch 14: the losses of epoch 10 were withdrawn
		{drop: never, link: true},                // epoch 15: alert on the losses of epoch 11
		{drop: drop("spine1"), warned: "spine1"}, // epoch 16: epoch 12 had no losses
		{drop: never, link: true, spine: true},   // epoch 17: alerts on the losses of epoch 13
		{drop: never},                            // epoch 18
		{drop: never, late: 9},                   // epoch 19
		{drop: never},                            // epoch 20: nothing is sure about spine1 in epoch 16
	} {
		s := newSim(t, uint64(10+i), 200, tt.drop)
		if tt.late > 0 {
			s.counters[wire.Late], s.counting, s.late = 17, []int{2}, []wire.LateEpoch{{Epoch: s.number - tt.late, Packets: 17}}
		}
		e := s.epoch(numbersOf(t, h.Settings()))
		if tt.warned != "" {
			e.AccuracyWarnings = []sdk.AccuracyWarning{{Device: tt.warned, Reason: "late"}}
		}
		out := h.Analyze(e)
		alerts := sdktest.Rows(t, out, alertList)
		if (alerts[linkAlert]["active"] == true) != tt.link || (alerts[spineAlert]["active"] == true) != tt.spine {
			t.Errorf("epoch %d: %v", s.number, alerts)
		}
		if row := sdktest.Rows(t, out, summaryList)[""]; sure(row) != (row["final"] == true) {
			t.Errorf("epoch %d: %v", s.number, row)
		}
	}
}

// An epoch with losses is not settled as exact if a later report, a late report, or a switch has
// packets of it. If they come after it was settled, it is withdrawn. The list outlives the process.
func TestWithdrawals(t *testing.T) {
	lossy := func(e string) bool { return e == "leaf2/3~h3" }
	h := start(t, "")
	numbers := numbersOf(t, h.Settings())
	lateReport := func(number, counted uint64) sdk.LateReport {
		s := newSim(t, number, 0, never)
		s.counters[wire.Late] = counted
		return sdk.LateReport{Epoch: number, HostReport: sdk.HostReport{Host: "h2", Role: wire.Role,
			Data: s.report(1, numbers[1], numbers)}}
	}
	lateAt := func(epochs ...uint64) (out []sdk.LateWarning) {
		for _, n := range epochs {
			out = append(out, sdk.LateWarning{Epoch: n,
				AccuracyWarning: sdk.AccuracyWarning{Device: "leaf1", Reason: "2 packets arrived after it was read"}})
		}
		return out
	}
	var out *sdk.Results
	for _, tt := range []struct {
		number  uint64
		change  func(e *sdk.Epoch)
		settled string // why the epoch four before is not exact; "exact" if it is
		want    string // withdrawn epochs by index, with the epoch that showed it
	}{
		{19, func(e *sdk.Epoch) { *e = *newSim(t, 19, 100, never).epoch(numbers) }, "no epoch", ""},
		{20, nil, "no epoch", ""},
		{21, nil, "no epoch", ""},
		{22, func(e *sdk.Epoch) { e.AccuracyWarnings = []sdk.AccuracyWarning{{Reason: "unread"}} }, "no epoch", ""},
		{23, nil, "exact", ""}, // 19 had no losses
		{24, func(e *sdk.Epoch) { e.Late = []sdk.LateReport{lateReport(22, 0)} }, "exact", ""},
		{25, func(e *sdk.Epoch) { e.Late = []sdk.LateReport{lateReport(22, 3)} }, "at host h2 after", "0: 20 25"},
		{26, nil, "all devices: unread", "0: 20 25"},
		{27, func(e *sdk.Epoch) { e.LateWarnings = lateAt(22, 23) }, "leaf1: 2 packets arrived after it was read",
			"0: 20 25"},
		{28, nil, "exact", "0: 20 25"},
		{29, func(e *sdk.Epoch) { e.LateWarnings = lateAt(24, 23) }, "exact", "0: 20 25, 1: 24 29"},
		{25, nil, "no epoch", "0: 20 25, 1: 24 29"}, // the collector's clock went back
		{26, func(e *sdk.Epoch) { e.Hosts[2].Data = newSim(t, 26, 0, never).lateCounts(2, numbers) }, "no epoch",
			"0: 20 25, 1: 24 29"},
		{27, nil, "no epoch", "0: 20 25, 1: 24 29"},
		{28, nil, "no epoch", "0: 20 25, 1: 24 29"},
		{29, nil, "at host h3 after", "0: 20 25, 1: 24 29"},
	} {
		e := newSim(t, tt.number, 100, lossy).epoch(numbers)
		if tt.change != nil {
			tt.change(e)
		}
		out = h.Analyze(e)
		row, rows := sdktest.Rows(t, out, settledList)[""], sdktest.Rows(t, out, settledOf(linkList))
		if exact := tt.settled == "exact"; sure(row) != exact || exact == (len(rows) == 0) ||
			!exact && !strings.Contains(fmt.Sprint(row["problem"]), tt.settled) {
			t.Errorf("epoch %d settles %v, %d links; want %q", tt.number, row, len(rows), tt.settled)
		}
		got := ""
		withdrawn := sdktest.Rows(t, out, withdrawalList)
		for _, k := range slices.Sorted(maps.Keys(withdrawn)) {
			got += fmt.Sprintf(", %s: %v %v", k, withdrawn[k]["withdrawn-epoch"], withdrawn[k]["found-in"])
		}
		if got = strings.TrimPrefix(got, ", "); got != tt.want {
			t.Errorf("epoch %d: withdrawn %q; want %q", tt.number, got, tt.want)
		}
	}
	if row := sdktest.Rows(t, out, withdrawalList)["1"]; row["problem"] != "leaf1: 2 packets arrived after it was read" {
		t.Errorf("epoch 24: %v", row)
	}
	again := sdktest.Start(t, New(), sdktest.Options{Network: simNetwork(), State: out.State})
	out = again.Analyze(newSim(t, 30, 0, never).epoch(numbers))
	if n := len(sdktest.Rows(t, out, withdrawalList)); n != 2 {
		t.Errorf("%d withdrawn epochs after a restart, 2 before", n)
	}
	if row := sdktest.Rows(t, out, settledList)[""]; row["quality"] != nil || row["problem"] == nil {
		t.Errorf("after a restart: %v", row)
	}
}

// The rows that limits leave out are counted, and those of watched flows are published in addition.
func TestOmittedRows(t *testing.T) {
	lossy := func(e string) bool { return e == "leaf2/3~h3" || e == "spine1/2~leaf2/1" }
	play := func(config string, watched ...sdk.RowKey) (rows int, omitted uint64, out *sdk.Results) {
		h := start(t, config)
		numbers := numbersOf(t, h.Settings())
		e := newSim(t, 5, 200, lossy).epoch(numbers)
		e.Watched = watched
		out = h.Analyze(e)
		for _, list := range []string{flowList, hopList, linkFlowList, lossList} {
			rows += len(sdktest.Rows(t, out, list))
		}
		return rows, sdktest.Rows(t, out, summaryList)[""]["omitted-rows"].(uint64), out
	}
	all, omitted, out := play(`{"limits": {"flows": 1000, "hops": 1000, "link-flows": 100000}}`)
	if omitted != 0 {
		t.Errorf("%d of %d rows are left out without limits", omitted, all)
	}
	last := sdk.RowKey{List: flowList}
	for key, row := range sdktest.Rows(t, out, flowList) { // no longer listed with limits
		if row["packets"] == uint64(1) {
			last.Keys = map[string]string{"flow": key}
		}
	}
	ends := strings.Split(last.Keys["flow"], ",")
	silent := sdk.RowKey{List: hopList, Keys: map[string]string{"flow": ends[0] + "," + ends[1] + ",udp,1,2"}}
	limits := `{"limits": {"flows": 20, "hops": 5, "losses": 3, "link-flows": 48}}`
	some, omitted, out := play(limits)
	if n := len(sdktest.Rows(t, out, linkFlowList)); some+int(omitted) != all || n != 48 {
		t.Errorf("%d rows of %d are published, 48 of them expected in link-flows and %d found, and %d left out", some,
			all, n, omitted)
	}
	more, left, out := play(limits, last, silent)
	row := sdktest.Rows(t, out, flowList)[last.Keys["flow"]]
	hops := len(strings.Fields(fmt.Sprint(row["path"]))) // of both watched flows
	if row == nil || more <= some || left >= omitted ||
		len(sdktest.Rows(t, out, flowList)) != 22 || more-some+int(left) != int(omitted)+1+hops {
		t.Errorf("with two watched flows %d rows for %d, and %d left out for %d: %v", more, some, left, omitted, row)
	}
}

// A withdrawn epoch keeps its row. If all rows are used, a newer epoch takes that of the oldest.
func TestRowsOfWithdrawals(t *testing.T) {
	h := &history{}
	for n := range uint64(maxWithdrawn) {
		h.add(withdrawal{Epoch: 1000 - n})
	}
	before := slices.Clone(h.Withdrawn) // from 901 on
	h.add(withdrawal{Epoch: 1001})
	h.add(withdrawal{Epoch: 900}) // older than all
	if want := append(before[1:], withdrawal{Index: maxWithdrawn - 1, Epoch: 1001}); !slices.Equal(h.Withdrawn, want) {
		t.Errorf("got %v, want %v", h.Withdrawn, want)
	}
	if err := h.check(); err != nil {
		t.Error(err)
	}
	h.Withdrawn[1].Index = h.Withdrawn[0].Index
	if h.check() == nil {
		t.Error("two rows have the same index")
	}
}

// An epoch with losses is settled as exact four epochs later, if all hosts reported since and none
// had late packets.
func TestSettledEpochs(t *testing.T) {
	const query = "x = losses.filter(lost > 1).reduce(keys=(location), n=sum(lost))"
	h := start(t, fmt.Sprintf(`{"queries": [{"name": "q", "text": %q}]}`, query))
	numbers := numbersOf(t, h.Settings())
	exact := []uint64{20, 21, 28, 29, 30, 31}
	for number := uint64(20); number < 36; number++ {
		s := newSim(t, number, 100, func(e string) bool { return e == "leaf2/3~h3" && number != 31 })
		if number == 28 {
			s.counters[wire.Late] = 1 // of 24 to 27
		}
		e := s.epoch(numbers)
		if number == 26 { // 22 to 25 may have packets in the report that is missing
			e.Hosts = e.Hosts[1:]
			e.Status = sdk.StatusPartial
		}
		out := h.Analyze(e)
		row, want := sdktest.Rows(t, out, settledList)[""], slices.Contains(exact, number-settleEpochs)
		if sure(row) != want {
			t.Errorf("epoch %d: settled %v, want %v", number, row, want)
		}
		link := sdktest.Rows(t, out, settledOf(linkList))["leaf2/3~h3"]
		if want != sure(link) {
			t.Errorf("epoch %d: the settled link: %v", number, link)
		}
		answer, result := sdktest.Rows(t, out, queryList)["q"], sdktest.Rows(t, out, resultList)["q leaf2/3~h3"]
		if sure(answer) != want || want && (answer["last-epoch"] != number-settleEpochs ||
			link["lost-packets-low"].(int64) > 0 != (result != nil)) {
			t.Errorf("epoch %d: query %v, result %v, link %v", number, answer, result, link)
		}
	}
}

// Losses of an epoch whose fourth epoch after it was never sealed begin an alert all the same.
func TestSettleAfterSkip(t *testing.T) {
	h := start(t, "")
	numbers, alerts := numbersOf(t, h.Settings()), []uint64{}
	for number := uint64(20); number < 32; number++ {
		if number == 26 || number == 27 {
			continue
		}
		s := newSim(t, number, 100, func(e string) bool { return e == "leaf2/3~h3" && number == 22 })
		out := h.Analyze(s.epoch(numbers))
		if row := sdktest.Rows(t, out, alertList)["leaf2/3~h3 PACKETS_LOST"]; row != nil && row["active"] == true {
			alerts = append(alerts, number)
		}
	}
	if !slices.Equal(alerts, []uint64{28}) {
		t.Errorf("the loss of epoch 22 is an alert in epochs %v, want 28", alerts)
	}
}

// Numbers and shares stay with their hosts across restarts and when a host joins, and a watched
// flow has a row without packets.
func TestState(t *testing.T) {
	h := start(t, `{"limits": {"flows": 0, "hops": 0}}`)
	numbers := numbersOf(t, h.Settings())
	s := newSim(t, 5, 50, never)
	out := h.Analyze(s.epoch(numbers))
	network := simNetwork()
	network.Hosts = append([]sdk.Host{{Name: "a", Addresses: []string{"10.0.0.9"}, Agent: true}}, network.Hosts...)
	network.Links = append(network.Links, sdk.Link{A: sdk.Endpoint{Node: "a"}, B: sdk.Endpoint{Node: "leaf1", Port: 5}})
	again := sdktest.Start(t, New(), sdktest.Options{Network: network, State: out.State})
	settings := again.Settings()
	settings.Plan.Hosts = slices.DeleteFunc(settings.Plan.Hosts, func(h sdk.HostSetting) bool { return h.Host == "a" })
	if got := numbersOf(t, settings); !slices.Equal(got, numbers) {
		t.Errorf("numbers %v after a restart, %v before", got, numbers)
	}
	of, err := wire.ParseSettings(settings.Plan.Hosts[0].Whole())
	if err != nil || of.Shares != 16 {
		t.Errorf("%d shares of the mappings with a host more, %v; want 16", of.Shares, err)
	}
	e := newSim(t, 6, 50, never).epoch(numbers)
	key := s.flows[0].key.String()
	silent := strings.TrimSuffix(key, "80") + "81"
	for _, f := range []string{key, silent} {
		e.Watched = append(e.Watched, sdk.RowKey{List: flowList, Keys: map[string]string{"flow": f}})
	}
	flows := sdktest.Rows(t, h.Analyze(e), flowList)
	if len(flows) != 2 || flows[silent]["packets"] != uint64(0) || flows[silent]["path"] == "" ||
		!sure(flows[key]) {
		t.Errorf("watched flows %v", flows)
	}
}

// queriesOf returns what hosts run after a plan.
func queriesOf(t *testing.T, hosts []sdk.HostSetting) []wire.Query {
	t.Helper()
	settings, err := wire.ParseSettings(hosts[0].Whole())
	if err != nil {
		t.Fatal(err)
	}
	return settings.Queries
}

// A query of the configuration runs in every epoch, and one of a client while it is watched.
func TestQueries(t *testing.T) {
	h := start(t, `{"queries": [{"name": "fan-out",
		"text": "x = packets.filter(ttl >= 0).distinct(src, dst).reduce(keys=(src), hosts=count())"}]}`)
	numbers := numbersOf(t, h.Settings())
	running := queriesOf(t, h.Settings().Plan.Hosts)
	analyze := func(number uint64, texts ...string) (*sdk.Results, *sim) {
		s := newSim(t, number, 100, never)
		s.queries = running
		e := s.epoch(numbers)
		for _, text := range texts {
			e.Watched = append(e.Watched, sdk.RowKey{List: requestList, Keys: map[string]string{"text": text}})
		}
		out := h.Analyze(e)
		for _, p := range out.Plans {
			if p.FromEpoch != number+1 {
				t.Errorf("a plan from epoch %d in epoch %d", p.FromEpoch, number)
			}
			running = queriesOf(t, p.Hosts)
		}
		return out, s
	}
	out, _ := analyze(5)
	results := sdktest.Rows(t, out, resultList)
	for h := range 4 {
		if row := results["fan-out "+simAddress(h).String()]; row["value"] != int64(3) {
			t.Errorf("host %d: %v", h+1, row)
		}
	}
	if row := sdktest.Rows(t, out, queryList)["fan-out"]; !sure(row) || row["result-count"] != uint64(4) ||
		row["source"] != "CONFIGURATION" {
		t.Errorf("query %v", row)
	}

	const text = "# flows\nflows = packets\n  .filter(ttl >= 0)\n  .distinct(src, dst, sport)\n" +
		"  .reduce(keys=(dst), flows=count())\n"
	name := query.ClientName(text)
	out, _ = analyze(6, text, "x = packets.filter(")
	if row := sdktest.Rows(t, out, requestList)[text]; row["name"] != name || row["status"] != "RUNNING" ||
		len(running) != 2 {
		t.Errorf("request %v, hosts run %v", row, running)
	}
	if row := sdktest.Rows(t, out, requestList)["x = packets.filter("]; row["status"] != "FAILED" ||
		row["problem"] == nil {
		t.Errorf("request %v", row)
	}
	if row := sdktest.Rows(t, out, queryList)[name]; sure(row) || row["result-count"] != nil {
		t.Errorf("the query before hosts run it: %v", row)
	}
	out, s := analyze(7, text)
	want := map[string]int64{}
	for _, f := range s.flows {
		want[f.key.DstAddr().String()]++
	}
	results = sdktest.Rows(t, out, resultList)
	for address, n := range want {
		if row := results[name+" "+address]; row["value"] != n {
			t.Errorf("%s: %v, want %d flows", address, row, n)
		}
	}
	if row := sdktest.Rows(t, out, queryList)[name]; !sure(row) || row["source"] != "CLIENT" {
		t.Errorf("query %v", row)
	}
	if out, _ = analyze(8); len(running) != 1 || sdktest.Rows(t, out, queryList)[name] != nil {
		t.Errorf("hosts run %v after the client left", running)
	}
}

// A query is not exact if hosts sent packets that it did not see and may have matched.
func TestUnseen(t *testing.T) {
	h := start(t, `{"queries": [
		{"name": "all", "text": "x = packets.reduce(keys=(dst), n=count())"},
		{"name": "within",
		 "text": "x = packets.filter((src == 10.0.0.1 || src == 10.0.0.2) && dst == 10.0.0.3).distinct(src)"},
		{"name": "outside", "text": "x = packets.filter(dst == 192.0.2.1).distinct(src, sport)"}]}`)
	numbers := numbersOf(t, h.Settings())
	for i, tt := range []struct {
		counter wire.Counter
		unseen  []string
	}{{wire.NotIP, nil}, {wire.Foreign, []string{"all", "outside"}},
		{wire.NoHeader, []string{"all", "outside"}},
		{wire.Untracked, []string{"all", "within", "outside"}}} {
		s := newSim(t, uint64(5+i), 100, never)
		s.queries = queriesOf(t, h.Settings().Plan.Hosts)
		s.counters[tt.counter], s.counting = 7, []int{2}
		for name, row := range sdktest.Rows(t, h.Analyze(s.epoch(numbers)), queryList) {
			problem, want := fmt.Sprint(row["problem"]), slices.Contains(tt.unseen, name)
			if sure(row) == want || (row["unseen-packets"] == uint64(7)) != want ||
				want && !strings.HasPrefix(problem, "7 packets that it may have matched were not seen: 7 ") {
				t.Errorf("%v, %s: %v", tt.counter, name, row)
			}
		}
	}
}

// A query sees packets without a header, and says which host copies packets for it.
func TestQueriesSeeUntaggedPackets(t *testing.T) {
	h := start(t, `{"queries": [
		{"name": "all", "text": "x = packets.filter(ttl >= 0).reduce(keys=(dst), n=count())"}]}`)
	s := newSim(t, 5, 100, never)
	s.queries, s.copied = queriesOf(t, h.Settings().Plan.Hosts), "it reads the payload"
	s.flows[7].untagged = wire.Untagged{Packets: 4, Bytes: 400}
	row := sdktest.Rows(t, h.Analyze(s.epoch(numbersOf(t, h.Settings()))), queryList)["all"]
	if !sure(row) || row["unseen-packets"] != uint64(0) ||
		row["copied"] != "host h1 runs x in its agent: it reads the payload" {
		t.Errorf("query %v", row)
	}
}

// TestRecordedQueries: hosts do not run a query that the recorded values of flows answer. It is
// exact from the first epoch on, unless a report is missing.
func TestRecordedQueries(t *testing.T) {
	h := start(t, `{"queries": [{"name": "sizes", "text":
		"x = packets.filter(sport > 0).reduce(keys=(dst), n=count(), bytes=sum(length))"}]}`)
	if running := queriesOf(t, h.Settings().Plan.Hosts); len(running) > 0 {
		t.Errorf("hosts run %v", running)
	}
	numbers := numbersOf(t, h.Settings())
	s := newSim(t, 5, 100, never)
	s.flows[7].untagged = wire.Untagged{Packets: 4, Bytes: 400}
	out := h.Analyze(s.epoch(numbers))
	type sum struct{ packets, bytes int64 }
	want := map[string]sum{}
	flows, results := sdktest.Rows(t, out, flowList), sdktest.Rows(t, out, resultList)
	for i := range s.flows {
		row, dst := flows[s.flows[i].key.String()], s.flows[i].key.DstAddr().String()
		was := want[dst]
		want[dst] = sum{was.packets + int64(row["packets"].(uint64)), was.bytes + int64(row["bytes"].(uint64))}
	}
	if len(results) != len(want) {
		t.Errorf("%d results, want %d", len(results), len(want))
	}
	for dst, w := range want {
		text := fmt.Sprintf("dst=%s n=%d bytes=%d", dst, w.packets, w.bytes)
		if row := results[fmt.Sprintf("sizes %s %d", dst, w.packets)]; row["tuple"] != text {
			t.Errorf("%s: %v, want %s", dst, row, text)
		}
	}
	if row := sdktest.Rows(t, out, queryList)["sizes"]; !sure(row) || row["result-count"] != uint64(len(want)) {
		t.Errorf("query %v", row)
	}
	s, e := newSim(t, 6, 100, never), (*sdk.Epoch)(nil)
	if e = s.epoch(numbers); len(e.Hosts) < 2 {
		t.Fatalf("%d reports", len(e.Hosts))
	}
	e.Hosts = e.Hosts[1:]
	if row := sdktest.Rows(t, h.Analyze(e), queryList)["sizes"]; sure(row) ||
		!strings.Contains(fmt.Sprint(row["problem"]), "is missing") {
		t.Errorf("query without a host: %v", row)
	}
}

// A sequence of switches takes units, as long as some are free.
func TestUnits(t *testing.T) {
	const tcp = "x = packets.filter(proto == TCP && dport != 22).reduce(keys=(dst), n=count(), bytes=sum(length))"
	h := start(t, `{"queries": [{"name": "one", "text": "x = packets.reduce(keys=(src), n=count())"}]}`)
	writes := h.Settings().Plan.Writes
	if len(writes) != 4 || writes[0].Entry.Table != "ingress.omnimon.unit0.filter" || len(writes[0].Entry.Matches) > 0 ||
		writes[0].Entry.Action != "ingress.omnimon.unit0.add_one" || writes[0].Op != sdk.Insert {
		t.Errorf("writes %+v", writes)
	}
	numbers := numbersOf(t, h.Settings())
	analyze := func(number uint64, texts ...string) *sdk.Results {
		e := newSim(t, number, 100, never).epoch(numbers)
		for _, text := range texts {
			e.Watched = append(e.Watched, sdk.RowKey{List: requestList, Keys: map[string]string{"text": text}})
		}
		return h.Analyze(e)
	}
	out := analyze(5, tcp)
	if row := sdktest.Rows(t, out, requestList)[tcp]; row["status"] != "FAILED" ||
		!strings.Contains(row["problem"].(string), "needs 2 more units of each switch, 1 of 2 are free") {
		t.Errorf("request %v", row)
	}
	counts, switches := sdktest.Rows(t, out, countList), sdktest.Rows(t, out, switchList)
	for _, name := range []string{"leaf1", "leaf2", "spine1", "spine2"} {
		if sum := counts["one "+name+" x.n"]["sum"]; sum != switches[name]["packets"] {
			t.Errorf("unit of %s: %v, want %v packets", name, sum, switches[name]["packets"])
		}
	}
	if row := sdktest.Rows(t, out, queryList)["one"]; row["units"] != uint64(1) || row["units-free"] != uint64(1) {
		t.Errorf("query %v", row)
	}
	const one = "x = packets.filter(dport != 22 && src in 10.0.0.0/8).reduce(keys=(dst), bytes=sum(length))"
	out = analyze(6, one)
	if len(out.Plans) != 1 || len(out.Plans[0].Writes) != 8 {
		t.Fatalf("plans %+v", out.Plans)
	}
	if w := out.Plans[0].Writes[0]; w.Entry.Action != "ingress.omnimon.unit1.add_length" || w.Entry.Priority != 2 ||
		len(w.Entry.Matches) != 2 || string(w.Entry.Matches[0].High) != "\x00\x15" {
		t.Errorf("write %+v", w)
	}
	if out = analyze(7); len(out.Plans) != 1 || out.Plans[0].Writes[0].Op != sdk.Delete || len(out.Plans[0].Writes) != 8 {
		t.Errorf("plans %+v", out.Plans)
	}
}

// The counts of units in egress give the packets of each group that waited in queues: exactly if
// flows of different groups share no slot, else the lower bound.
func TestQueue(t *testing.T) {
	const text = "result = packets.filter(queue > 48).reduce(keys=(dst), waiting=count()).filter(waiting > 3)"
	h := start(t, fmt.Sprintf(`{"queries": [{"name": "incast", "text": %q}]}`, text))
	settings := h.Settings()
	if w := settings.Plan.Writes; len(w) != 4 || w[0].Entry.Table != "egress.omnimon.unit0.filter" ||
		w[0].Entry.Action != "egress.omnimon.unit0.add_one" || len(w[0].Entry.Matches) != 1 ||
		w[0].Entry.Matches[0].Field != "queue" || string(w[0].Entry.Matches[0].Value) != "\x00\x00\x31" ||
		string(w[0].Entry.Matches[0].High) != "\x07\xff\xff" {
		t.Errorf("writes %+v", w)
	}
	numbers := numbersOf(t, settings)
	analyze := func(s *sim, change func(*sdk.Epoch)) (query map[string]any, results map[string]map[string]any,
		waited map[string]int64) {
		waited = map[string]int64{}
		for _, f := range s.flows {
			waited[f.key.DstAddr().String()] += f.waited
		}
		e := s.epoch(numbers)
		if change != nil {
			change(e)
		}
		out := h.Analyze(e)
		return sdktest.Rows(t, out, queryList)["incast"], sdktest.Rows(t, out, resultList), waited
	}
	if row, results, _ := analyze(newSim(t, 3, 12, never), nil); sure(row) || len(results) > 0 {
		t.Errorf("before the entries are in force: %v, %v", row, results)
	}
	row, results, waited := analyze(newSim(t, 4, 6, never), nil)
	if !sure(row) || row["units"] != uint64(1) || row["units-free"] != uint64(0) {
		t.Errorf("few flows: %v", row)
	}
	for to, n := range waited {
		got, ok := results["incast "+to]["value"]
		if n <= 3 && ok || n > 3 && got != n {
			t.Errorf("%s: %v, want %d", to, got, n)
		}
	}
	row, results, waited = analyze(newSim(t, 5, 300, never), nil)
	if problem, _ := row["problem"].(string); sure(row) || !strings.Contains(problem, "share slots") {
		t.Errorf("many flows: %v", row)
	}
	for to, n := range waited {
		if got := results["incast "+to]["value"].(int64); got > n || got == 0 {
			t.Errorf("%s: lower bound %d of %d", to, got, n)
		}
	}
	random := rand.New(rand.NewPCG(6, 6))
	row, results, waited = analyze(newSim(t, 6, 6, func(string) bool { return random.IntN(10) == 0 }), nil)
	for to, n := range waited {
		if got, _ := results["incast "+to]["value"].(int64); sure(row) || n > 3 && got != n {
			t.Errorf("with losses, %s: %v, want %d, %v", to, got, n, row)
		}
	}
	for want, change := range map[string]func(*sdk.Epoch){
		"host h1 is missing": func(e *sdk.Epoch) { e.Hosts = e.Hosts[1:] },
		"switch spine1 is missing": func(e *sdk.Epoch) {
			e.Devices = slices.DeleteFunc(e.Devices, func(d sdk.DeviceData) bool { return d.Name == "spine1" })
		},
		"switch leaf2 did not have": func(e *sdk.Epoch) {
			e.States = []sdk.DeviceState{{Device: "leaf1", Plan: 9}, {Device: "leaf2", Plan: 9, Mixed: true}}
		},
		"in egress, its flows can have added": func(e *sdk.Epoch) {
			cells := e.Device("leaf1").Object("omnimon_counts").Uint32s()
			cells[statistics+2] = 100_000
			e.Put("leaf1", sdk.CellsOf("omnimon_counts", cells))
		},
	} {
		row, _, _ := analyze(newSim(t, 7, 12, never), change)
		if problem, _ := row["problem"].(string); sure(row) || !strings.Contains(problem, want) {
			t.Errorf("%v, want %s", row, want)
		}
	}
	if row, _, _ := analyze(newSim(t, 8, 12, never), func(e *sdk.Epoch) {
		e.Plans = []sdk.PlanOutcome{{Plan: settings.Plan.ID, Device: "leaf2", Status: sdk.PlanFailed}}
	}); sure(row) || !strings.Contains(row["problem"].(string), "leaf2 did not apply") {
		t.Errorf("a plan that failed: %v", row)
	}
	e := newSim(t, 9, 12, never).epoch(numbers)
	for _, text := range queueProblems {
		e.Watched = append(e.Watched, sdk.RowKey{List: requestList, Keys: map[string]string{"text": text}})
	}
	requests := sdktest.Rows(t, h.Analyze(e), requestList)
	for problem, text := range queueProblems {
		if row := requests[text]; row["status"] != "FAILED" || !strings.Contains(row["problem"].(string), problem) {
			t.Errorf("%v, want %s", row, problem)
		}
	}
}

// queueProblems are queries that switches cannot run, by a part of the problem.
var queueProblems = map[string]string{
	"1 more units in egress of each switch, 0 of 1": "x = packets.filter(queue > 9).reduce(keys=(src), n=count())",
	"runs at hosts: has distinct":                   "x = packets.filter(queue > 9).distinct(src, dst)",
	"add up one, length":                            "x = packets.reduce(keys=(dst), n=sum(queue))",
	"make two queries": "a = packets.reduce(keys=(dst), n=count())\nb = packets.filter(queue > 9)" +
		".reduce(keys=(dst), w=count())\nx = a.join(b, keys=(dst))",
}

// Errors of the configuration name their fields.
func TestConfiguration(t *testing.T) {
	for config, want := range map[string]string{
		`{"slots-per-flow": 5}`:                     "slots-per-flow: ",
		`{"idle-time": "soon"}`:                     "idle-time: ",
		`{"udp-idle-time": "-1s"}`:                  "udp-idle-time: ",
		`{"flowlet-gap": "0s"}`:                     "flowlet-gap: ",
		`{"extremes": [{"field": "x"}]}`:            "extremes[0].field: ",
		`{"slots": 1}`:                              "slots: ",
		`{"shares": 3}`:                             "shares: is 3; expected at least 4",
		`{"queries": [{"name": "-", "text": "x"}]}`: "queries[0].name: ",
		`{"queries": [{"name": "a", "text": "x = packets.filter("}]}`: "queries[0].text: a:1:",
		`{"limits": {"flows": -1}}`:                                   "limits.flows: ",
		`{"unknown": 1}`:                                              `unknown key "unknown"`,
	} {
		_, err := New().Configure(t.Context(), sdk.Config{JSON: []byte(config)}, simNetwork())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", config, err, want)
		}
	}
	first, err := New().Configure(t.Context(), sdk.Config{EpochLength: 2 * time.Second}, simNetwork())
	if err != nil {
		t.Fatal(err)
	}
	if hosts, err := wire.ParseSettings(first.Plan.Hosts[0].Whole()); err != nil || hosts.UDPIdleEpochs != 30 ||
		hosts.IdleEpochs != 900 {
		t.Errorf("settings %+v, %v", hosts, err)
	}
	s, err := New().Configure(t.Context(), sdk.Config{JSON: []byte(`{"slots-per-flow": 3}`)}, simNetwork())
	if err != nil || len(s.Missing) == 0 || !strings.Contains(s.Missing[0].Consequence, "set slots-per-flow") {
		t.Errorf("another count of slots per flow than the program: %+v, %v", s.Missing, err)
	}
}

// A report of any bytes is refused or makes the epoch inexact, and never a crash.
func FuzzReport(f *testing.F) {
	t := &testing.T{}
	p := New()
	settings, err := p.Configure(f.Context(), sdk.Config{}, simNetwork())
	if err != nil {
		f.Fatal(err)
	}
	numbers := numbersOf(t, settings)
	s := newSim(t, 5, 20, never)
	f.Add(s.report(1, numbers[1], numbers))
	f.Fuzz(func(t *testing.T, report []byte) {
		e := s.epoch(numbers)
		e.Hosts[1].Data = report
		if _, err := p.Analyze(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	})
}

// A saved state of any bytes is refused or usable.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"Shares":16,"Hosts":["h1","h2"],"Plans":3,"Alerts":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := New()
		if p.RestoreState(sdk.State{Version: stateVersion, Data: data}) != nil {
			return
		}
		_, _ = p.Configure(t.Context(), sdk.Config{}, simNetwork())
	})
}

// Numbers of annotations are read as in P4, where a leading zero does not mean octal.
func TestNumbers(t *testing.T) {
	for text, want := range map[string]int{"10": 10, "010": 10, "0x10": 16, "0": 0, "0o10": 8} {
		got := -1
		o := &sdk.Object{Annotations: sdk.Annotations{annotation: {"bad_slot": text}}}
		if err := number(o, "bad_slot", &got); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
}
