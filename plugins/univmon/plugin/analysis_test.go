// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/hostagent/univmon/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
	"github.com/netsketch/netsketch/yang/table"
)

var update = flag.Bool("update", false, "write golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The sketches of program univmon-300k.
var layouts = map[string]universal.Layout{
	"src":     {Key: flow.Src, Levels: 16, Rows: 3, Columns: 512, Ways: 4, Slots: 32},
	"5-tuple": {Key: flow.FiveTuple, Levels: 16, Rows: 3, Columns: 512, Ways: 4, Slots: 64},
}

var controls = map[string]string{"src": "ingress.univmon_src", "5-tuple": "ingress.univmon_5t"}

func objects() []sdk.Object {
	var out []sdk.Object
	for name, l := range layouts {
		common := func(more ...string) sdk.Annotations {
			m := map[string]string{"key": name, "levels": strconv.Itoa(l.Levels), "banks": "2"}
			for i := 0; i < len(more); i += 2 {
				m[more[i]] = more[i+1]
			}
			return sdk.Annotations{annotation: m}
		}
		out = append(out,
			sdk.Object{Name: controls[name] + ".counters", Cells: l.CounterCells() + 256, Width: 32, Banks: 2,
				Annotations: common("part", "counters", "rows", strconv.Itoa(l.Rows), "columns",
					strconv.Itoa(l.Columns), "packets", strconv.Itoa(l.CounterCells()))},
			sdk.Object{Name: controls[name] + ".heavy", Cells: l.HeavyCells(), Width: 32, Banks: 2,
				Annotations: common("part", "heavy", "ways", strconv.Itoa(l.Ways), "slots", strconv.Itoa(l.Slots),
					"words", strconv.Itoa(l.Words()))})
	}
	slices.SortFunc(out, func(a, b sdk.Object) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// leafSpine is two leaves with a host each, and a spine.
func leafSpine() sdk.Network {
	end := func(node string) sdk.Endpoint { return sdk.Endpoint{Node: node} }
	return sdk.Network{
		Version: 1,
		Devices: []sdk.Device{
			{Name: "leaf1", Role: "edge", Objects: objects()},
			{Name: "leaf2", Role: "edge", Objects: objects()},
			{Name: "spine1", Role: "transit", Objects: objects()},
		},
		Hosts: []sdk.Host{{Name: "h1"}, {Name: "h2"}},
		Links: []sdk.Link{{A: end("h1"), B: end("leaf1")}, {A: end("leaf1"), B: end("spine1")},
			{A: end("spine1"), B: end("leaf2")}, {A: end("h2"), B: end("leaf2")}},
	}
}

// switchesOf says which switches a packet crosses: from h1 it enters at leaf1, and every
// second flow leaves there again.
func switchesOf(k *flow.Key) []string {
	if k.SrcPort%2 == 0 {
		return []string{"leaf1"}
	}
	return []string{"leaf1", "spine1", "leaf2"}
}

type fabric map[string]map[string]*universal.Sketch // by device, by dimension

func newFabric(tb testing.TB, devices ...string) fabric {
	f := make(fabric)
	for _, d := range devices {
		f[d] = make(map[string]*universal.Sketch)
		for name, l := range layouts {
			s, err := universal.New(l)
			if err != nil {
				tb.Fatal(err)
			}
			f[d][name] = s
		}
	}
	return f
}

func (f fabric) send(k flow.Key, n int) {
	for _, d := range switchesOf(&k) {
		for _, s := range f[d] {
			for range n {
				s.Update(&k)
			}
		}
	}
}

// epoch seals what the fabric recorded; devices that are absent are missing from it.
func (f fabric) epoch(number uint64, absent ...string) *sdk.Epoch {
	start := time.Unix(1_700_000_000, 0).Add(time.Duration(number) * time.Second)
	e := &sdk.Epoch{Number: number, Start: start, End: start.Add(time.Second), Status: sdk.StatusComplete}
	for device, sketches := range f {
		e.Expected = append(e.Expected, device)
		if slices.Contains(absent, device) {
			e.Missing = append(e.Missing, sdk.Missing{Name: device, Reason: "no answer"})
			e.Status = sdk.StatusPartial
			continue
		}
		for name, s := range sketches {
			counters := make([]uint32, len(s.Counters())+256)
			copy(counters, s.Counters())
			copy(counters[len(s.Counters()):], s.Packets())
			e.Put(device, sdk.CellsOf(controls[name]+".counters", counters))
			e.Put(device, sdk.CellsOf(controls[name]+".heavy", slices.Clone(s.Heavy())))
		}
	}
	slices.Sort(e.Expected)
	return e
}

func key(tb testing.TB, src, dst string, port uint16) flow.Key {
	tb.Helper()
	k, err := flow.New(netip.MustParseAddr(src), netip.MustParseAddr(dst), 6, port, 443)
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

// background sends 400 flows of 1 to 60 packets, the same ones in each epoch.
func (f fabric) background(tb testing.TB) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		src := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 0x0a010000+r.Uint32N(200))))
		k := key(tb, src.String(), fmt.Sprintf("10.2.0.%d", 1+i%50), uint16(1024+i))
		f.send(k, 1+60/(1+i%60))
	}
}

// rows returns a table's rows as maps from column to text.
func rows(r *sdk.Results, list string) []map[string]string {
	var out []map[string]string
	for _, t := range r.Tables {
		if t.Table.List != list {
			continue
		}
		for row := range t.Table.Rows() {
			m := make(map[string]string)
			for _, columns := range [][]table.Column{t.Table.Keys, t.Table.Values} {
				for i := range columns {
					if !columns[i].Null(row) {
						m[columns[i].Name] = string(columns[i].AppendText(nil, row))
					}
				}
			}
			out = append(out, m)
		}
	}
	return out
}

func find1(t *testing.T, rows []map[string]string, want ...string) map[string]string {
	t.Helper()
	for _, row := range rows {
		hit := true
		for i := 0; i < len(want); i += 2 {
			hit = hit && row[want[i]] == want[i+1]
		}
		if hit {
			return row
		}
	}
	t.Fatalf("no row with %v in %v", want, rows)
	return nil
}

// TestResults follows three epochs: quiet, with an elephant and a flood, quiet again.
func TestResults(t *testing.T) {
	h := sdktest.Start(t, New(WithFunction("elephants", func(x float64) float64 {
		if x < 1000 {
			return 0
		}
		return x
	})), sdktest.Options{Network: leafSpine(), Config: `{
		"heavy-hitters": {"share": 0.05}, "heavy-changes": {"share": 0.2}, "ddos-victims": {"sources": 300},
		"functions": [{"name": "flows of at most 3 packets", "from": 1, "to": 3}]}`})
	elephant := key(t, "2001:db8::1", "2001:db8::2", 5001)
	watched := []sdk.RowKey{
		{List: flowList, Keys: map[string]string{"node": "leaf2", "dimension": "5-tuple", "flow": elephant.String()}},
		{List: flowList, Keys: map[string]string{"node": "network", "dimension": "src", "flow": "2001:db8::1"}},
		{List: flowList, Keys: map[string]string{"node": "leaf1", "dimension": "src", "flow": "203.0.113.9"}},
	}
	var all []*sdk.Results
	for number := uint64(7); number < 10; number++ {
		f := newFabric(t, "leaf1", "leaf2", "spine1")
		f.background(t)
		if number == 8 {
			f.send(elephant, 3000)
			for i := range 600 { // one packet each, half of them across the spine
				f.send(key(t, fmt.Sprintf("198.18.%d.%d", i/250, 1+i%250), "10.2.0.99", uint16(i)), 1)
			}
		}
		e := f.epoch(number)
		e.Watched = watched
		all = append(all, h.Analyze(e))
	}
	sdktest.Golden(t, "testdata/results.golden", *update, all...)

	second := all[1]
	if row := find1(t, rows(second, hitterList), "node", Network, "dimension", "5-tuple", "flow",
		elephant.String()); row["state/packets"] != "3000" {
		t.Errorf("the elephant crosses three switches and counts once in the network; got %v", row)
	}
	if row := find1(t, rows(second, changeList), "node", "leaf2", "dimension", "src", "flow",
		"2001:db8::1"); row["state/delta"] != "3000" || row["state/kind"] != "INCREASE" {
		t.Errorf("change %v", row)
	}
	if row := find1(t, rows(all[2], changeList), "node", Network, "dimension",
		"5-tuple"); row["state/delta"] != "-3000" || row["state/kind"] != "DECREASE" {
		t.Errorf("change %v", row)
	}
	row := find1(t, rows(second, victimList), "node", Network, "destination-address", "10.2.0.99")
	// The flood's flows of one packet come after the background's and find its slots taken, so they
	// are counted too low.
	if n, _ := strconv.Atoi(row["state/distinct-sources"]); math.Abs(float64(n)-600) > 150 {
		t.Errorf("%d sources, want about 600", n)
	}
	if got := rows(all[0], victimList); len(got) != 0 {
		t.Errorf("victims in a quiet epoch: %v", got)
	}
	if row := find1(t, rows(second, flowList), "node", "leaf2"); row["state/packets"] != "3000" {
		t.Errorf("watched %v", row)
	}
	if row := find1(t, rows(second, functionList), "node", "leaf1", "dimension", "5-tuple", "name",
		"elephants"); row["state/value"] != "3000" {
		t.Errorf("function %v", row)
	}
	if got := rows(all[0], changeList); len(got) != 0 {
		t.Errorf("changes in the first epoch: %v", got)
	}

	for _, key := range watched {
		tables, err := h.Query(key)
		if err != nil || len(tables) != 1 || tables[0].Rows() != 1 {
			t.Fatalf("Query of %v: %v, %v", key, tables, err)
		}
		got := rows(&sdk.Results{Tables: []sdk.TableResult{{Table: tables[0]}}}, flowList)[0]
		published := find1(t, rows(all[2], flowList), "node", key.Keys["node"], "dimension", key.Keys["dimension"])
		if diff := cmp.Diff(published, got); diff != "" {
			t.Errorf("Query of %v differs from the published row (-published +queried):\n%s", key, diff)
		}
	}
	if tables, err := h.Query(sdk.RowKey{List: flowList,
		Keys: map[string]string{"node": "leaf9", "dimension": "src", "flow": "10.0.0.1"}}); err != nil ||
		tables != nil {
		t.Errorf("Query of a switch without data: %v, %v", tables, err)
	}
	if _, err := h.Query(sdk.RowKey{List: hitterList, Keys: watched[0].Keys}); err == nil ||
		!strings.Contains(err.Error(), "cannot be queried") {
		t.Errorf("Query of a list that is not watchable: %v", err)
	}
	if _, err := h.Query(sdk.RowKey{List: flowList,
		Keys: map[string]string{"node": "leaf1", "dimension": "src", "flow": "leaf"}}); err == nil ||
		!strings.Contains(err.Error(), "not an IP address") {
		t.Errorf("Query of a flow that is none: %v", err)
	}
}

// TestIcebergs: a flow is a global iceberg by the packets that all nodes together count of it,
// though it is heavy at none of them (paper, section 4.3); the threshold is that of the network.
func TestIcebergs(t *testing.T) {
	h := sdktest.Start(t, New(), sdktest.Options{Network: leafSpine(), Config: `{"dimensions": ["src"],
		"heavy-hitters": {"packets": 1000}, "icebergs": {"share": 0.000001, "packets": 1100}}`})
	f := newFabric(t, "leaf1", "leaf2", "spine1")
	f.background(t)
	for i, packets := range []int{600, 525} { // at each leaf, of the sources 192.0.2.1 and 192.0.2.2
		k := key(t, fmt.Sprint("192.0.2.", 1+i), "10.2.0.1", 80)
		for range packets {
			f["leaf1"]["src"].Update(&k)
			f["leaf2"]["src"].Update(&k)
		}
	}
	var found []string
	for _, row := range rows(h.Analyze(f.epoch(1)), hitterList) {
		found = append(found, row["node"]+" "+row["flow"]+" "+row["state/packets"])
	}
	if want := []string{"network 192.0.2.1 1200"}; !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
}

// TestPartialEpochs: what is missing from an epoch, and what then still holds.
func TestPartialEpochs(t *testing.T) {
	quiet := func(number uint64, absent ...string) *sdk.Epoch {
		f := newFabric(t, "leaf1", "leaf2", "spine1")
		f.background(t)
		return f.epoch(number, absent...)
	}
	summary := func(r *sdk.Results, device string) map[string]string {
		return find1(t, rows(r, summaryList), "node", device, "dimension", "src")
	}
	h := sdktest.Start(t, New(), sdktest.Options{Network: leafSpine()})
	complete := summary(h.Analyze(quiet(1)), Network)
	if complete["state/status"] != "COMPLETE" || complete["state/packets"] == "" {
		t.Errorf("network %v", complete)
	}
	if _, has := complete["state/changes"]; has {
		t.Errorf("the first epoch has changes: %v", complete)
	}
	if row := summary(h.Analyze(quiet(2)), Network); row["state/changes"] != "0" {
		t.Errorf("an epoch like the one before: %v", row)
	}

	r := h.Analyze(quiet(3, "leaf2"))
	if row := summary(r, Network); row["state/status"] != "PARTIAL" || row["state/changes"] != "" {
		t.Errorf("without a leaf the network is %v", row)
	}
	if row := summary(r, "leaf1"); row["state/status"] != "COMPLETE" || row["state/changes"] != "0" {
		t.Errorf("a leaf that is there is %v", row)
	}
	expectLost := func(r *sdk.Results, device, problem string) {
		t.Helper()
		row := summary(r, device)
		if row["state/status"] != "LOST" || row["state/packets"] != "" || !strings.Contains(row["state/problem"], problem) {
			t.Errorf("%s has no data, and its row is %v; expected lost with %q", device, row, problem)
		}
	}
	expectLost(r, "leaf2", "no answer")
	if !strings.Contains(sdktest.Text(r), "src of network: results rest on 2 of 3 devices; missing: leaf2") {
		t.Errorf("no event names the missing switch: %s", sdktest.Text(r))
	}
	if r = h.Analyze(quiet(4, "leaf2")); len(r.Events) != 0 {
		t.Errorf("the same problem is logged again: %v", r.Events)
	} else if row := summary(r, Network); row["state/changes"] != "0" {
		t.Errorf("two epochs of the same switches do compare: %v", row)
	}

	r = h.Analyze(quiet(5, "spine1"))
	if row := summary(r, Network); row["state/status"] != "LOST" || row["state/packets"] != "" {
		t.Errorf("packets are counted twice without the spine, so the network is lost; got %v", row)
	}
	expectLost(r, "spine1", "no answer")
	r = h.Analyze(quiet(6))
	if row := summary(r, "spine1"); row["state/status"] != "COMPLETE" || row["state/changes"] != "" {
		t.Errorf("there is nothing to compare with the epoch after a gap: %v", row)
	}
	if row := summary(r, "leaf1"); row["state/changes"] != "0" {
		t.Errorf("leaf1 has no gap: %v", row)
	}
	if row := summary(h.Analyze(quiet(8)), "leaf1"); row["state/changes"] != "" {
		t.Errorf("epoch 7 never came: %v", row)
	}

	// All of a switch's objects but one, and cells that are too few.
	e := quiet(9)
	e.Missing, e.Status = []sdk.Missing{{Name: "leaf1", Reason: "read-out cut short"}}, sdk.StatusPartial
	for i := range e.Devices {
		if e.Devices[i].Name == "leaf1" {
			e.Devices[i].Objects = slices.DeleteFunc(e.Devices[i].Objects,
				func(c sdk.Cells) bool { return c.Object == "ingress.univmon_src.heavy" })
		}
	}
	e.Put("leaf2", sdk.CellsOf("ingress.univmon_src.counters", make([]uint32, 10)))
	r = h.Analyze(e)
	text := sdktest.Text(r)
	for _, want := range []string{
		"src of leaf1: no results: ingress.univmon_src.heavy was not delivered",
		"src of leaf2: no results: ingress.univmon_src.counters: 10 cells of 32 bits delivered, expected 15360 of 32",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("not logged: %s\n%s", want, text)
		}
	}
	if row := find1(t, rows(r, summaryList), "node", "leaf1", "dimension",
		"5-tuple"); row["state/status"] != "PARTIAL" {
		t.Errorf("%v", row)
	}

	expectLost(r, "leaf1", "read-out cut short")
	expectLost(r, "leaf2", "10 cells of 32 bits delivered")

	empty := &sdk.Epoch{Number: 10, Start: e.End, End: e.End.Add(time.Second), Status: sdk.StatusLost,
		Expected: e.Expected}
	r = h.Analyze(empty)
	for _, name := range []string{Network, "leaf1", "leaf2", "spine1"} {
		expectLost(r, name, "no")
	}
}

func unparsedObject(reasons string) sdk.Object {
	return sdk.Object{Name: "ingress.unparsed", Cells: 256, Width: 32, Banks: 2,
		Annotations: sdk.Annotations{annotation: {"part": "unparsed", "reasons": reasons}}}
}

// putUnparsed adds the packets of a device for two reasons to an epoch.
func putUnparsed(e *sdk.Epoch, device string, first, second uint32) {
	cells := make([]uint32, 256)
	cells[1], cells[2] = first, second
	e.Put(device, sdk.CellsOf("ingress.unparsed", cells))
}

// TestUnparsed: packets that switches cannot parse are listed by reason and are in the totals of
// switches and network. Those of a switch that does not count them, or whose object is missing, are
// not known.
func TestUnparsed(t *testing.T) {
	network := leafSpine()
	for i := range network.Devices[:2] {
		network.Devices[i].Objects = append(network.Devices[i].Objects, unparsedObject("truncated,not-ip"))
	}
	h := sdktest.Start(t, New(), sdktest.Options{Network: network,
		Config: `{"network": {"weights": {"leaf1": 1, "leaf2": 1}}}`})
	if b := (sdk.Binding{Device: "leaf2", Object: "ingress.unparsed"}); !slices.Contains(h.Settings().Bindings, b) {
		t.Errorf("%v is not bound: %v", b, h.Settings().Bindings)
	}
	f := newFabric(t, "leaf1", "leaf2", "spine1")
	f.send(key(t, "10.0.0.1", "10.0.0.2", 81), 20)
	epoch := func(number uint64, devices ...string) *sdk.Epoch {
		e := f.epoch(number)
		for i, d := range devices {
			putUnparsed(e, d, uint32(3+i), uint32(4*i))
		}
		return e
	}
	check := func(r *sdk.Results, device, unparsed, total string) {
		t.Helper()
		row := find1(t, rows(r, summaryList), "node", device, "dimension", "src")
		if row["state/unparsed-packets"] != unparsed || row["state/total-packets"] != total {
			t.Errorf("%s: %v; expected %s unparsed packets, %s in total", device, row, unparsed, total)
		}
	}
	r := h.Analyze(epoch(1, "leaf1", "leaf2"))
	check(r, "leaf1", "3", "23")
	check(r, "leaf2", "8", "28")
	check(r, "spine1", "", "")
	check(r, Network, "11", "51")
	for _, want := range [][3]string{{"leaf2", "NOT_IP", "4"}, {Network, "TRUNCATED", "7"}, {Network, "TOO_DEEP", "0"}} {
		if row := find1(t, rows(r, unparsedList), "node", want[0], "reason", want[1]); row["state/packets"] != want[2] {
			t.Errorf("%v; expected %v", row, want)
		}
	}
	if text := sdktest.Text(r); !strings.Contains(text, "leaf2: packets or epochs are not counted: truncated 4") {
		t.Errorf("no event has the packets that are not counted: %s", text)
	}
	r = h.Analyze(epoch(2, "leaf1"))
	check(r, "leaf1", "3", "23")
	check(r, "leaf2", "", "")
	check(r, Network, "", "")

	network.Devices[0].Objects[len(network.Devices[0].Objects)-1] = unparsedObject("truncated,beautiful")
	settings, err := h.Configure(`{}`, network, time.Second)
	if err != nil || !slices.ContainsFunc(settings.Missing, func(m sdk.MissingObject) bool {
		return m.Device == "leaf1" && strings.Contains(m.Consequence, "no unparsed packets")
	}) {
		t.Errorf("an unknown reason: %v, %v", settings.Missing, err)
	}
}

// TestInner: the encapsulation is written once per change to each switch that has the choice, and
// hosts get it, too. Packets with a fault in a tunnel are added and subtracted like sketches.
func TestInner(t *testing.T) {
	network := leafSpine()
	network.Hosts = append(network.Hosts, sdk.Host{Name: "h1", Agent: true})
	for i := range network.Devices {
		if network.Devices[i].Name == "spine1" {
			continue // of another pipeline
		}
		o := unparsedObject("not-ip,truncated")
		o.Annotations[annotation]["forwarded"] = "8"
		network.Devices[i].Objects = append(network.Devices[i].Objects, o)
	}
	written := func(plan *sdk.Plan) (out []string) {
		if plan == nil {
			return nil
		}
		for _, w := range plan.Writes {
			if w.Op != sdk.SetDefault || w.Entry.Table != "ingress.encapsulation.choice" {
				t.Errorf("write %+v", w)
			}
			out = append(out, w.Device+" "+w.Entry.Action)
		}
		return out
	}
	h := sdktest.Start(t, New(), sdktest.Options{Network: network,
		Config: `{"encapsulation": "inner", "hosts": {"packets": "sent"}}`})
	settings := h.Settings()
	const outer, inner = " ingress.encapsulation.outer", " ingress.encapsulation.inner"
	if got := written(settings.Plan); !slices.Contains(got, "leaf1"+inner) || slices.Contains(got, "spine1"+inner) {
		t.Errorf("plan %v", got)
	}
	if !slices.ContainsFunc(settings.Missing, func(m sdk.MissingObject) bool {
		return m.Device == "spine1" && strings.Contains(m.Consequence, "outer flows only")
	}) || slices.ContainsFunc(settings.Bindings, func(b sdk.Binding) bool { return b.Device == "spine1" }) {
		t.Errorf("spine1 has no inner flows: %+v", settings.Missing)
	}
	hosts, err := wire.ParseSettings(settings.Plan.Hosts[0].Data)
	if err != nil || hosts.Encapsulation != wire.EncapsulationSwitchInner {
		t.Errorf("settings of hosts %+v, %v", hosts, err)
	}
	again, err := h.Configure(`{}`, network, time.Second)
	if got := written(again.Plan); err != nil || !slices.Contains(got, "leaf1"+outer) ||
		slices.Contains(got, "spine1"+outer) {
		t.Errorf("plan %v, %v", got, err)
	}

	edge, transit := unparsed{}, unparsed{}
	edge.ended[wire.NotIP], edge.forwarded[wire.Truncated] = 3, 10
	transit.ended[wire.NotIP], transit.forwarded[wire.Truncated] = 2, 4
	if got := edge.less(&transit); got.of(wire.NotIP) != 5 || got.of(wire.Truncated) != 6 || got.sum() != 11 {
		t.Errorf("unparsed packets of the network: %+v", got)
	}
	if got := transit.less(&edge); got.of(wire.Truncated) != 0 {
		t.Errorf("fewer than none: %+v", got)
	}
}

// TestHosts: hosts with agents are devices, and without switches the network is their sum. Settings
// are sent once; a report of other settings is no result.
func TestHosts(t *testing.T) {
	network := sdk.Network{Hosts: []sdk.Host{{Name: "h1", Agent: true}, {Name: "h2"}, {Name: "h3", Agent: true}}}
	h := sdktest.Start(t, New(), sdktest.Options{Network: network,
		Config: `{"hosts": {"packets": "sent", "encapsulation": "inner"}}`})
	plan := h.Settings().Plan
	if plan == nil || len(plan.Hosts) != 2 || plan.Hosts[0].Host != "h1" || plan.Hosts[1].Host != "h3" {
		t.Fatalf("plan %+v", plan)
	}
	settings, err := wire.ParseSettings(plan.Hosts[0].Data)
	if err != nil || !settings.Sent || settings.Received || settings.Encapsulation != wire.EncapsulationInner ||
		!slices.Equal(settings.Sketches, wire.Sketches()) {
		t.Fatalf("settings %+v, %v", settings, err)
	}
	packets := settings.Packets
	report := func(count int, sketches []universal.Layout) []byte {
		r := wire.Report{Packets: packets}
		r.Counters[wire.Truncated], r.Counters[wire.NotIP] = 3, 4
		k := key(t, "10.0.0.1", "10.0.0.2", 80)
		for _, l := range sketches {
			s, err := universal.New(l)
			if err != nil {
				t.Fatal(err)
			}
			for range count {
				s.Update(&k)
			}
			r.Sketches = append(r.Sketches, s)
		}
		return r.Append(nil)
	}
	epoch := func(number uint64, hosts ...sdk.HostReport) *sdk.Epoch {
		start := time.Unix(1_700_000_000, 0).Add(time.Duration(number) * time.Second)
		return &sdk.Epoch{Number: number, Start: start, End: start.Add(time.Second), Status: sdk.StatusComplete,
			ExpectedHosts: []string{"h1", "h3"}, Hosts: hosts}
	}
	check := func(r *sdk.Results, device, status, packets string) {
		t.Helper()
		for _, dimension := range []string{"src", "dst", "5-tuple"} {
			row := find1(t, rows(r, summaryList), "node", device, "dimension", dimension)
			if row["state/status"] != status || row["state/packets"] != packets {
				t.Errorf("%s by %s: %v; expected %s, %q packets", device, dimension, row, status, packets)
			}
		}
	}
	all := wire.Sketches()
	r := h.Analyze(epoch(1, sdk.HostReport{Host: "h1", Role: wire.Role, Data: report(20, all)},
		sdk.HostReport{Host: "h3", Role: wire.Role, Data: report(30, all)}))
	check(r, "h1", "COMPLETE", "20")
	check(r, "h3", "COMPLETE", "30")
	check(r, Network, "COMPLETE", "50")
	for device, want := range map[string][3]string{"h1": {"3", "7", "27"}, Network: {"6", "14", "64"}} {
		row := find1(t, rows(r, unparsedList), "node", device, "reason", "TRUNCATED")
		sum := find1(t, rows(r, summaryList), "node", device, "dimension", "dst")
		if row["state/packets"] != want[0] || sum["state/unparsed-packets"] != want[1] ||
			sum["state/total-packets"] != want[2] {
			t.Errorf("unparsed packets of %s: %v, %v; expected %v", device, row, sum, want)
		}
	}
	if text := sdktest.Text(r); !strings.Contains(text, "h1: packets or epochs are not counted: truncated 3") {
		t.Errorf("no event has the packets that are not counted: %s", text)
	}
	if len(r.Plans) > 0 {
		t.Errorf("hosts receive their settings again: %+v", r.Plans)
	}
	other := slices.Clone(all)
	other[2].Slots--
	other[1].Rows++
	other[0].Levels--
	missing := epoch(2, sdk.HostReport{Host: "h3", Role: wire.Role, Data: report(30, other)})
	missing.Missing = []sdk.Missing{{Name: "h1", Reason: "no session", Host: true}}
	r = h.Analyze(missing)
	missed := r
	check(r, "h1", "LOST", "")
	check(r, "h3", "LOST", "")
	check(r, Network, "LOST", "")
	packets.Encapsulation = wire.EncapsulationOuter
	r = h.Analyze(epoch(3, sdk.HostReport{Host: "h1", Role: wire.Role, Data: report(20, all)}))
	check(r, "h1", "LOST", "")
	if row := find1(t, rows(r, summaryList), "node", "h1", "dimension", "src"); !strings.Contains(row["state/problem"],
		"other packets") {
		t.Errorf("%v", row)
	}
	packets.Encapsulation = wire.EncapsulationSwitch
	for _, dimension := range []string{"src+dst", "dst+dst-port", "proto"} {
		_, err := h.Configure(`{"dimensions": ["`+dimension+`"], "hosts": {"packets": "sent"}}`, network, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		fields, err := flow.ParseFields(dimension)
		if err != nil {
			t.Fatal(err)
		}
		k := key(t, "10.0.0.1", "10.0.0.2", 80).Project(fields)
		got := h.Analyze(epoch(4, sdk.HostReport{Host: "h1", Role: wire.Role,
			Data: report(7, []universal.Layout{wire.Sketch(fields)})}))
		hitter := find1(t, rows(got, hitterList), "node", "h1", "dimension", dimension)
		if hitter["flow"] != k.String() || hitter["state/packets"] != "7" {
			t.Errorf("%s: %v; expected %v with 7 packets", dimension, hitter, k)
		}
	}
	none, err := h.Configure(`{"hosts": {"packets": "none"}}`, network, time.Second)
	if err != nil || none.Plan == nil || len(none.Plan.Hosts) != 2 {
		t.Fatalf("hosts go on: %+v, %v", none.Plan, err)
	}
	for i, s := range none.Plan.Hosts {
		if s.Host != []string{"h1", "h3"}[i] || s.Role != wire.Role || len(s.Data) > 0 {
			t.Errorf("setting %+v does not end the role of a host", s)
		}
	}
	row := find1(t, rows(missed, summaryList), "node", "h3", "dimension", "src")
	if row["state/problem"] == "" || !strings.Contains(row["state/problem"], "of other settings") {
		t.Errorf("%v", row)
	}
}

func TestConfiguration(t *testing.T) {
	tests := []struct {
		name, config string
		want         []string // parts of the error
	}{
		{"unknown key", `{"heavyhiters": {}}`, []string{`unknown key "heavyhiters": did you mean "heavy-hitters"?`}},
		{"type", `{"heavy-hitters": {"share": "half"}}`, []string{"heavy-hitters.share", "expected a number"}},
		{"share", `{"heavy-hitters": {"share": 5}}`, []string{"heavy-hitters.share", "5 is", "at most 1"}},
		{"several", `{"heavy-changes": {"share": 0}, "ddos-victims": {"sources": 1}, "dimensions": ["src", "port"]}`,
			[]string{"heavy-changes.share", "ddos-victims.sources"}},
		{"fields", `{"dimensions": ["src", "port"]}`,
			[]string{`dimensions[1]: "port" is not a flow definition; expected 5-tuple or fields of it in their order`}},
		{"order", `{"dimensions": ["dst+src"]}`, []string{`dimensions[0]: "dst+src" is not a flow definition; expected`}},
		{"twice", `{"dimensions": ["src", "src"]}`, []string{`dimensions[1]: src is given twice`}},
		{"power", `{"functions": [{"name": "cubes", "power": 3}]}`,
			[]string{"functions[0].power", "3 is out of range; expected 0 to 2"}},
		{"name", `{"functions": [{"name": "a"}, {"name": "a"}, {"power": 1}]}`,
			[]string{"functions[1].name", "functions[2].name"}},
		{"weight", `{"network": {"weights": {"edge": 2}}}`,
			[]string{"network.weights.edge", "2 is out of range; expected -1 to 1"}},
		{"role", `{"network": {"weights": {"core": 1}}}`,
			[]string{"network.weights", "core: no switch has this name or role"}},
		{"hosts", `{"hosts": {"packets": "some"}}`, []string{"hosts.packets", `expected one of none, sent`}},
		{"encapsulation", `{"hosts": {"packets": "sent", "encapsulation": "iner"}}`,
			[]string{"hosts.encapsulation", `expected one of switch, outer, inner; found "iner"`}},
		{"switches", `{"encapsulation": "switch"}`, []string{"encapsulation", `expected outer or inner; found "switch"`}},
		{"encapsulations", `{"hosts": {"packets": "sent", "encapsulation": "outer"}, "network": {"weights": {"h3": 1}}}`,
			[]string{"hosts.encapsulation", `is "outer"; expected "switch"`}},
		{"icebergs", `{"icebergs": {"limit": 10}}`, []string{"icebergs.share", "is missing"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			network := leafSpine()
			network.Hosts = append(network.Hosts, sdk.Host{Name: "h3", Agent: true})
			_, err := New().Configure(context.Background(), sdk.Config{JSON: []byte(tc.config)}, network)
			var fields settings.KeyErrors
			if !errors.As(err, &fields) {
				t.Fatalf("got %v, want KeyErrors", err)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q lacks %q", err, w)
				}
			}
		})
	}
}

// TestBinding: what the plugin reads, and what it says is missing.
func TestBinding(t *testing.T) {
	without := func(change func(*sdk.Network)) sdk.Network {
		n := leafSpine()
		change(&n)
		return n
	}
	tests := []struct {
		name, config string
		network      sdk.Network
		bindings     int
		want         string // in what is missing
	}{
		{"all", "", leafSpine(), 12, ""},
		{"one dimension", `{"dimensions": ["src"]}`, leafSpine(), 6, ""},
		{"not measured", `{"dimensions": ["src", "dst"]}`, leafSpine(), 6, "no results for dst"},
		{"no heavy keys", "", without(func(n *sdk.Network) { n.Devices[0].Objects = n.Devices[0].Objects[:1] }), 8,
			"no results for 5-tuple: the pipeline has no heavy keys"},
		{"spine does not measure", "", without(func(n *sdk.Network) { n.Devices[2].Objects = nil }), 8,
			"spine1 is on paths of packets and does not measure"},
		{"ring", "", without(func(n *sdk.Network) {
			n.Links = append(n.Links, sdk.Link{A: sdk.Endpoint{Node: "leaf1"}, B: sdk.Endpoint{Node: "leaf2"}})
		}), 12, "leaf1 and leaf2 are linked and equally far from hosts"},
		{"no hosts", "", without(func(n *sdk.Network) { n.Links = n.Links[1:3] }), 12, "no host attached to a switch"},
		{"weights instead", `{"network": {"weights": {"edge": 1, "spine1": -1}}}`,
			without(func(n *sdk.Network) { n.Links = nil }), 12, ""},
		{"layouts differ", "", without(func(n *sdk.Network) {
			n.Devices[1].Objects[0].Annotations[annotation]["columns"] = "256"
			n.Devices[1].Objects[0].Annotations[annotation]["packets"] = strconv.Itoa(10 * 3 * 256)
		}), 12, "differs from others"},
		{"all levels alike", "", without(func(n *sdk.Network) { // 16 levels of 512 columns each
			n.Devices[1].Objects[0].Annotations[annotation]["packets"] = strconv.Itoa(16 * 3 * 512)
			n.Devices[1].Objects[0].Cells = 16*3*512 + 256
		}), 10, "has 24832 cells, and the packets by level at 24576; expected 15360 for"},
		{"nonsense", "", without(func(n *sdk.Network) {
			n.Devices[1].Objects[0].Annotations[annotation]["columns"] = "many"
		}), 10,
			`ingress.univmon_5t.counters: the annotation @netsketch_univmon: columns is "many"`},
		{"too few cells", "", without(func(n *sdk.Network) { n.Devices[1].Objects[0].Cells = 100 }), 10,
			"has 100 cells, too few"},
		{"nothing", "", without(func(n *sdk.Network) {
			for i := range n.Devices {
				n.Devices[i].Objects = nil
			}
		}), 0, "no results"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s, err := New().Configure(context.Background(), sdk.Config{JSON: []byte(tc.config)}, tc.network)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Bindings) != tc.bindings {
				t.Errorf("%d bindings, want %d: %v", len(s.Bindings), tc.bindings, s.Bindings)
			}
			text := fmt.Sprint(s.Missing)
			if (tc.want == "") != (len(s.Missing) == 0) || !strings.Contains(text, tc.want) {
				t.Errorf("missing %s, want %q", text, tc.want)
			}
		})
	}
}

// TestFatTreeWeights: edge, aggregation and core switches by turns.
func TestFatTreeWeights(t *testing.T) {
	n := sdk.Network{}
	link := func(a, b string) {
		n.Links = append(n.Links, sdk.Link{A: sdk.Endpoint{Node: a}, B: sdk.Endpoint{Node: b}})
	}
	for pod := range 4 {
		for i := range 2 {
			edge, agg := fmt.Sprintf("edge%d%d", pod, i), fmt.Sprintf("agg%d%d", pod, i)
			n.Devices = append(n.Devices, sdk.Device{Name: edge}, sdk.Device{Name: agg})
			link(fmt.Sprintf("host%d%d", pod, i), edge)
			for j := range 2 {
				link(edge, fmt.Sprintf("agg%d%d", pod, j))
				link(agg, fmt.Sprintf("core%d", 2*i+j))
			}
		}
	}
	for i := range 4 {
		n.Devices = append(n.Devices, sdk.Device{Name: fmt.Sprintf("core%d", i)})
	}
	weights, err := Weights(&n, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for name, w := range weights {
		if want := map[byte]int{'e': 1, 'a': -1, 'c': 1}[name[0]]; w != want {
			t.Errorf("%s has weight %d, want %d", name, w, want)
		}
	}
	if len(weights) != 20 {
		t.Errorf("%d weights, want 20", len(weights))
	}
}

func TestAnalyseStopsWithItsContext(t *testing.T) {
	f := newFabric(t, "leaf1", "leaf2", "spine1")
	p := New()
	if _, err := p.Configure(context.Background(), sdk.Config{}, leafSpine()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.Analyze(ctx, f.epoch(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
