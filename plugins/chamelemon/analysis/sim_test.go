// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
	"github.com/netsketch/netsketch/sketch/fermat"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/tower"
	"github.com/netsketch/netsketch/yang/table"
)

// The registers of program chamelemon, and of an edge switch of the test.
const (
	towerA, towerB = "ingress.chamelemon.tower8", "ingress.chamelemon.tower16"
	edges          = 4
	hostsPerEdge   = 2
)

var (
	upNames   = [families]string{"ingress.chamelemon.upstream", "ingress.chamelemon.upstream_ipv6"}
	downNames = [families]string{"chamelemon_downstream", "chamelemon_downstream_ipv6"}
	upSize    = [families]int{4096, 1024}
	downSize  = [families]int{3072, 768}
)

func objects() []sdk.Object {
	out := []sdk.Object{
		{Name: towerA, Cells: 32768, Width: 8, Banks: 2, Annotations: map[string]string{"part": "classifier", "row": "0", "bits": "8", "counters": "32768"}},
		{Name: towerB, Cells: 16384, Width: 16, Banks: 2, Annotations: map[string]string{"part": "classifier", "row": "1", "bits": "16", "counters": "16384"}},
	}
	for f := range families {
		words := 1 + (keyBytes[f]+3)/4
		for _, s := range []struct {
			name, side string
			buckets    int
		}{{upNames[f], "upstream", upSize[f]}, {downNames[f], "downstream", downSize[f]}} {
			out = append(out, sdk.Object{Name: s.name, Cells: arrays * s.buckets * words, Width: 32, Banks: 2, Annotations: map[string]string{
				"part": "encoder", "side": s.side, "family": []string{"4", "6"}[f], "buckets": strconv.Itoa(s.buckets), "words": strconv.Itoa(words),
				"arrays": "3", "fragment": "32", "prime": "4294967291", "flow": "5-tuple",
			}})
		}
	}
	return out
}

func edgeName(i int) string { return fmt.Sprintf("edge%d", i+1) }

// network is two pods of a 4-ary fat tree, of which only the edge switches measure.
func network() sdk.Network {
	n := sdk.Network{Version: 1}
	for i := range edges {
		n.Devices = append(n.Devices, sdk.Device{Name: edgeName(i), Role: "edge", Program: "chamelemon", Objects: objects()})
		for h := range hostsPerEdge {
			name := fmt.Sprintf("h%d%d", i+1, h+1)
			n.Hosts = append(n.Hosts, sdk.Host{Name: name, Addresses: []string{fmt.Sprintf("10.%d.%d.0/24", i, h), fmt.Sprintf("fd00:%d:%d::/48", i, h)}})
			n.Links = append(n.Links, sdk.Link{A: sdk.Endpoint{Node: name}, B: sdk.Endpoint{Node: edgeName(i), Port: uint32(1 + h)}})
		}
	}
	n.Devices = append(n.Devices, sdk.Device{Name: "core1", Role: "transit", Program: "forwarding"})
	return n
}

// part is an entry of a division table.
type span struct{ first, buckets int }

// edgeSwitch is a model of an edge switch: its tables by time bit.
type edgeSwitch struct {
	th, tl, sample [2]uint32
	up, down       [2][families][4]span
	ports          map[string]bool
}

// fabric is a model of the data plane, driven by the plans of the plugin.
type fabric struct {
	tb     testing.TB
	h      *sdktest.Harness
	config string
	sw     map[string]*edgeSwitch
	number uint64
	plans  []sdk.Plan
	r      *rand.Rand

	shift uint64 // of banks
	// account: the epochs say what became of plans, as a collector's do.
	account  bool
	fails    func(sdk.Plan) sdk.PlanStatus // what becomes of a plan; nil: it is applied
	applied  map[string][2]uint64          // newest plan by switch and bank
	outcomes []sdk.PlanOutcome
}

func newFabric(tb testing.TB, seed uint64, config string) *fabric {
	f := &fabric{tb: tb, config: config, sw: make(map[string]*edgeSwitch), r: rand.New(rand.NewPCG(seed, 7)), applied: make(map[string][2]uint64)}
	for i := range edges {
		f.sw[edgeName(i)] = &edgeSwitch{ports: make(map[string]bool)}
	}
	f.h = sdktest.Start(tb, New(), sdktest.Options{Config: config, Network: network()})
	f.apply(*f.h.Settings().Plan)
	f.begun(*f.h.Settings().Plan)
	for name, s := range f.sw {
		for _, want := range []string{"ingress.chamelemon.entry_port 1", "egress.chamelemon.exit_port 2"} {
			if !s.ports[want] {
				tb.Errorf("%s: no entry for %s", name, want)
			}
		}
	}
	return f
}

func value(b []byte) (v uint64) {
	for _, x := range b {
		v = v<<8 | uint64(x)
	}
	return v
}

func (f *fabric) apply(p sdk.Plan) {
	f.tb.Helper()
	for _, w := range p.Writes {
		s := f.sw[w.Device]
		if s == nil || w.Op != sdk.Insert {
			f.tb.Fatalf("a write to %q, kind %d", w.Device, w.Op)
		}
		match, params := make(map[string]uint64), make(map[string]uint64)
		for _, m := range w.Entry.Matches {
			match[m.Field] = value(m.Value)
		}
		for _, q := range w.Entry.Params {
			params[q.Name] = value(q.Value)
		}
		bit := match["time"]
		fam := 0
		if strings.HasSuffix(w.Entry.Table, "_ipv6") {
			fam = 1
		}
		switch strings.TrimSuffix(w.Entry.Table, "_ipv6") {
		case "ingress.chamelemon.entry_port", "egress.chamelemon.exit_port":
			s.ports[fmt.Sprint(w.Entry.Table, " ", match["port"])] = true
		case "ingress.chamelemon.thresholds":
			s.th[bit], s.tl[bit], s.sample[bit] = uint32(params["th"]), uint32(params["tl"]), uint32(params["sample"])
			if s.tl[bit] > s.th[bit] {
				f.tb.Errorf("%s: Tl %d is above Th %d", w.Device, s.tl[bit], s.th[bit])
			}
		case "ingress.chamelemon.division", "egress.chamelemon.division":
			to, size := &s.up, upSize[fam]
			if strings.HasPrefix(w.Entry.Table, "egress") {
				to, size = &s.down, downSize[fam]
			}
			sp := span{int(params["first"]), int(params["buckets"])}
			if sp.buckets < 1 || sp.first+sp.buckets > size {
				f.tb.Errorf("%s: part %+v does not fit %d buckets of %s", w.Device, sp, size, w.Entry.Table)
			}
			to[bit][fam][match["hierarchy"]] = sp
		default:
			f.tb.Fatalf("a write to table %s", w.Entry.Table)
		}
	}
}

// carryOut does with a plan what a collector does.
func (f *fabric) carryOut(p sdk.Plan) {
	status := sdk.PlanApplied
	if f.fails != nil {
		status = f.fails(p)
	}
	bank := (p.FromEpoch + f.shift) % 2
	touched := make(map[string]bool)
	for _, w := range p.Writes {
		touched[w.Device] = true
		if m := w.Entry.Matches; !p.Ahead || len(m) == 0 || m[0].Field != "time" || value(m[0].Value) != bank {
			f.tb.Errorf("a plan for epoch %d, bank %d, writes to %+v", p.FromEpoch, bank, w.Entry)
		}
	}
	for name := range touched {
		f.outcomes = append(f.outcomes, sdk.PlanOutcome{Plan: p.ID, FromEpoch: p.FromEpoch, Device: name, Status: status, Reason: map[bool]string{true: "it came too late"}[status != sdk.PlanApplied]})
		if status == sdk.PlanApplied {
			x := f.applied[name]
			x[bank] = p.ID
			f.applied[name] = x
		}
	}
	if status == sdk.PlanApplied {
		f.apply(p)
	}
}

// restart is the death of the plugin's process and the start of another, with what the collector
// has kept of the first one's state.
func (f *fabric) restart(state *sdk.State) {
	f.h = sdktest.Start(f.tb, New(), sdktest.Options{Config: f.config, Network: network(), State: state})
	plan := *f.h.Settings().Plan
	f.apply(plan)
	f.begun(plan)
}

// begun notes the plan of a configuration, which is for both banks.
func (f *fabric) begun(p sdk.Plan) {
	if p.ID == 0 {
		return
	}
	for i := range edges {
		f.applied[edgeName(i)] = [2]uint64{p.ID, p.ID}
	}
}

// flowOf is a flow of the test.
type flowOf struct {
	key         flow.Key
	raw         []byte
	entry, exit int
	packets     int
	lost        int
}

// flows makes n flows with heavy-tailed sizes, a share of which lose packets.
func (f *fabric) flows(n int, victims, v6 float64) []flowOf {
	out := make([]flowOf, n)
	for i := range out {
		x := &out[i]
		x.entry, x.exit = f.r.IntN(edges), f.r.IntN(edges)
		addr := func(e int) netip.Addr {
			h, b := byte(f.r.IntN(hostsPerEdge)), byte(f.r.IntN(256))
			return netip.AddrFrom4([4]byte{10, byte(e), h, b})
		}
		src, dst := addr(x.entry), addr(x.exit)
		if f.r.Float64() < v6 {
			to6 := func(a netip.Addr) netip.Addr {
				b := a.As4()
				return netip.AddrFrom16([16]byte{0xfd, 0, 0, b[1], 0, b[2], 15: b[3]})
			}
			src, dst = to6(src), to6(dst)
		}
		key, err := flow.New(src, dst, 17, uint16(1024+i%60000), uint16(f.r.IntN(1<<16)))
		if err != nil {
			f.tb.Fatal(err)
		}
		x.key, x.raw = key, key.AppendBinary(nil)
		x.packets = min(int(math.Pow(1-f.r.Float64(), -1/1.05)), 3000)
		if f.r.Float64() < victims {
			x.lost = 1 + f.r.IntN(max(x.packets/10, 1))
		}
	}
	return out
}

type side [families][4]*encoder

func newSide(tb testing.TB, spans *[families][4]span) (s side) {
	for fam := range families {
		for code, sp := range spans[fam] {
			if sp.buckets == 0 {
				continue
			}
			e, err := fermat.New[hashes, fermat.Prime32](fermat.Config{Rows: arrays, Width: sp.buckets, KeyBytes: keyBytes[fam], FragmentBits: 32})
			if err != nil {
				tb.Fatal(err)
			}
			s[fam][code] = e
		}
	}
	return s
}

// bank returns the cells of an encoder's bank.
func (s *side) bank(fam int, spans *[families][4]span, size int) []uint32 {
	words := 1 + (keyBytes[fam]+3)/4
	cells := make([]uint32, arrays*size*words)
	for code, e := range s[fam] {
		if e == nil {
			continue
		}
		for row := range arrays {
			for col := range e.Config().Width {
				n, sums, _ := e.Bucket(row, col)
				b := cells[(row*size+spans[fam][code].first+col)*words:]
				if n != 0 {
					b[0] = uint32(n)
				}
				for i, v := range sums {
					if v != 0 {
						b[1+i] = uint32(v)
					}
				}
			}
		}
	}
	return cells
}

// record passes the flows through the data plane and returns the sealed epoch.
func (f *fabric) record(flows []flowOf) *sdk.Epoch {
	f.number++
	e := &sdk.Epoch{Number: f.number, BankShift: f.shift, Status: sdk.StatusComplete}
	bit := e.BankOf(f.number, 2)
	f.plans = slices.DeleteFunc(f.plans, func(p sdk.Plan) bool {
		if p.FromEpoch > f.number {
			return false
		}
		f.carryOut(p)
		return true
	})
	e.Plans, f.outcomes = f.outcomes, nil
	if f.account {
		for i := range edges {
			e.States = append(e.States, sdk.DeviceState{Device: edgeName(i), Plan: f.applied[edgeName(i)][bit]})
		}
	}
	towers := make([]*tower.Sketch[hashes], edges)
	ups, downs := make([]side, edges), make([]side, edges)
	for i := range edges {
		s := f.sw[edgeName(i)]
		towers[i], _ = tower.New[hashes](tower.Config{Rows: tower.ChameleMon()})
		ups[i], downs[i] = newSide(f.tb, &s.up[bit]), newSide(f.tb, &s.down[bit])
	}
	for i := range flows {
		x := &flows[i]
		s := f.sw[edgeName(x.entry)]
		fam := 0
		if len(x.raw) > 13 {
			fam = 1
		}
		var in, out [4]int64
		left := x.lost
		for k := range x.packets {
			code := 0
			switch size := towers[x.entry].InsertQuery(x.raw); {
			case size >= s.th[bit]:
				code = codeHH
			case size >= s.tl[bit]:
				code = codeHL
			case sampled(x.raw, s.sample[bit]):
				code = codeLL
			}
			in[code]++
			if f.r.IntN(x.packets-k) < left {
				left--
				continue
			}
			out[min(code, codeHL)]++
		}
		for code := codeLL; code <= codeHH; code++ {
			if in[code] > 0 && ups[x.entry][fam][code] != nil {
				_ = ups[x.entry][fam][code].Add(x.raw, in[code])
			}
			if out[code] > 0 && downs[x.exit][fam][code] != nil {
				_ = downs[x.exit][fam][code].Add(x.raw, out[code])
			}
		}
	}
	start := time.Unix(1_700_000_000, 0).Add(time.Duration(f.number) * 50 * time.Millisecond)
	e.Start, e.End = start, start.Add(50*time.Millisecond)
	for i := range edges {
		name := edgeName(i)
		s := f.sw[name]
		e.Expected = append(e.Expected, name)
		small, large := towers[i].Row(0), towers[i].Row(1)
		a, b := make([]uint8, len(small)), make([]uint16, len(large))
		for j, v := range small {
			a[j] = uint8(min(v, 255))
		}
		for j, v := range large {
			b[j] = uint16(min(v, 65535))
		}
		e.Put(name, sdk.CellsOf(towerA, a))
		e.Put(name, sdk.CellsOf(towerB, b))
		for fam := range families {
			e.Put(name, sdk.CellsOf(upNames[fam], ups[i].bank(fam, &s.up[bit], upSize[fam])))
			e.Put(name, sdk.CellsOf(downNames[fam], downs[i].bank(fam, &s.down[bit], downSize[fam])))
		}
	}
	return e
}

// play records an epoch, has the plugin analyse it, and takes up its plans.
func (f *fabric) play(flows []flowOf) *sdk.Results {
	f.tb.Helper()
	return f.analyse(f.record(flows))
}

func (f *fabric) analyse(e *sdk.Epoch) *sdk.Results {
	f.tb.Helper()
	r := f.h.Analyse(e)
	f.plans = append(f.plans, r.Plans...)
	return r
}

// rows returns a list's rows as maps of leaf to text, keys included.
func rows(tb testing.TB, r *sdk.Results, list string) (out []map[string]string) {
	tb.Helper()
	for _, t := range r.Tables {
		if t.Table.List != list {
			continue
		}
		for i := range t.Table.Rows() {
			m := make(map[string]string)
			for _, cols := range [][]table.Column{t.Table.Keys, t.Table.Values} {
				for c := range cols {
					if !cols[c].Null(i) {
						m[strings.TrimPrefix(cols[c].Name, "state/")] = string(cols[c].AppendText(nil, i))
					}
				}
			}
			out = append(out, m)
		}
	}
	return out
}

// row returns the one row with these leaves.
func row(tb testing.TB, r *sdk.Results, list string, with ...string) map[string]string {
	tb.Helper()
	for _, m := range rows(tb, r, list) {
		ok := true
		for i := 0; i < len(with); i += 2 {
			ok = ok && m[with[i]] == with[i+1]
		}
		if ok {
			return m
		}
	}
	tb.Fatalf("%s has no row with %v", list, with)
	return nil
}

func float(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return math.NaN()
	}
	return v
}
