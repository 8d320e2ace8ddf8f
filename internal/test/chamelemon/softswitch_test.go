// SPDX-License-Identifier: Apache-2.0

package chamelemon_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/internal/test/switchtest"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/plugins/chamelemon/plugin"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	hostPort, fabricPort = 1, 2
	root                 = "/netsketch-chamelemon:chamelemon/"
)

// pair is two edge switches and a link between them that loses packets.
type pair struct {
	t         *testing.T
	catalog   *p4values.Catalog
	switches  [2]*softswitch.Switch
	plugin    *sdktest.Harness
	number    uint64
	lose      func() bool
	sending   string           // flow of the packet in the network
	lost      map[string]int64 // lost packets by flow
	delivered int
}

func newPair(t *testing.T, config string) *pair {
	program, err := compiled.Load("chamelemon")
	if err != nil {
		t.Fatal(err)
	}
	catalog, err := p4values.NewCatalog(program.P4Info)
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{t: t, catalog: catalog, lost: make(map[string]int64)}
	var network sdk.Network
	for i := range p.switches {
		name := fmt.Sprintf("edge%d", i+1)
		sw := switchtest.New(t, name, "chamelemon")
		p.switches[i] = sw
		d := sdk.Device{Name: name, Role: "edge", Program: "chamelemon"}
		for _, r := range catalog.Registers.All() {
			if r.Readout != nil {
				d.Objects = append(d.Objects, sdk.Object{Name: r.Name, Alias: r.Alias, Cells: r.Readout.Cells,
					Width: r.Width, Banks: r.Readout.Banks, Annotations: r.Annotations.Values()})
			}
		}
		host := fmt.Sprintf("h%d", i+1)
		network.Devices = append(network.Devices, d)
		network.Hosts = append(network.Hosts, sdk.Host{Name: host,
			Addresses: []string{fmt.Sprintf("10.0.%d.0/24", i), fmt.Sprintf("fd00:%d::/64", i)}})
		network.Links = append(network.Links, sdk.Link{A: sdk.Endpoint{Node: host},
			B: sdk.Endpoint{Node: name, Port: hostPort}})
	}
	network.Links = append(network.Links, sdk.Link{A: sdk.Endpoint{Node: "edge1", Port: fabricPort},
		B: sdk.Endpoint{Node: "edge2", Port: fabricPort}})
	for i, sw := range p.switches {
		other := p.switches[1-i]
		ports := map[uint32]func([]byte, time.Duration){
			hostPort: func([]byte, time.Duration) { p.delivered++ },
			fabricPort: func(b []byte, at time.Duration) {
				if p.lose() {
					p.lost[p.sending]++
					return
				}
				other.Inject(fabricPort, append([]byte{}, b...), at)
			},
		}
		for port, tx := range ports {
			if err := sw.AddPort(port, softswitch.Port{Name: fmt.Sprint(port), Tx: tx}); err != nil {
				t.Fatal(err)
			}
		}
		for to := range p.switches {
			port := uint64(hostPort)
			if to != i {
				port = fabricPort
			}
			p.insert(sw, "ingress.forwarding.ipv4_lpm", "ingress.forwarding.forward",
				[]softswitch.Match{{Kind: softswitch.MatchLPM, Value: []byte{10, 0, byte(to), 0}, PrefixLen: 24}}, port,
				1, 2)
			p.insert(sw, "ingress.forwarding.ipv6_lpm", "ingress.forwarding.forward",
				[]softswitch.Match{{Kind: softswitch.MatchLPM,
					Value: netip.MustParseAddr(fmt.Sprintf("fd00:%d::", to)).AsSlice(), PrefixLen: 64}}, port, 1, 2)
		}
	}
	p.plugin = sdktest.Start(t, plugin.New(), sdktest.Options{Config: config, Network: network})
	if m := p.plugin.Settings().Missing; len(m) > 0 {
		t.Fatalf("missing: %+v", m)
	}
	p.apply(*p.plugin.Settings().Plan)
	return p
}

func (p *pair) insert(sw *softswitch.Switch, table, action string, match []softswitch.Match, params ...uint64) {
	p.t.Helper()
	a := softswitch.Action{Kind: softswitch.ActionCall, Name: action}
	for _, v := range params {
		a.Params = append(a.Params, p4values.Uint(v))
	}
	if err := sw.InsertEntry(table, softswitch.Entry{Match: match, Action: a}); err != nil {
		p.t.Fatalf("%s: %v", table, err)
	}
}

// apply writes a plan as the collector does: by P4Info's names, insertions of existing entries as
// modifications.
func (p *pair) apply(plan sdk.Plan) {
	p.t.Helper()
	for _, w := range plan.Writes {
		sw := p.switches[strings.TrimPrefix(w.Device, "edge")[0]-'1']
		tab, err := p.catalog.Tables.Name(w.Entry.Table)
		if err != nil {
			p.t.Fatal(err)
		}
		for i, m := range w.Entry.Matches {
			if _, ok := tab.Field(m.Field); !ok || len(w.Entry.Matches) != len(tab.Match) ||
				tab.Match[i].Name != m.Field {
				p.t.Fatalf("table %s has the fields %v, not %q in place %d", tab.Name, tab.Match, m.Field, i)
			}
		}
		entry := softswitch.Entry{Action: softswitch.Action{Kind: softswitch.ActionCall, Name: w.Entry.Action}}
		for _, m := range w.Entry.Matches {
			entry.Match = append(entry.Match, softswitch.Match{Kind: softswitch.MatchExact, Value: m.Value})
		}
		action := -1
		for i, a := range tab.Actions {
			if a.Name == w.Entry.Action {
				action = i
			}
		}
		if action < 0 || len(tab.Actions[action].Params) != len(w.Entry.Params) {
			p.t.Fatalf("table %s has no action %s with %d parameters", tab.Name, w.Entry.Action, len(w.Entry.Params))
		}
		for i, q := range w.Entry.Params {
			if tab.Actions[action].Params[i].Name != q.Name {
				p.t.Fatalf("action %s: parameter %d is %s, not %s", w.Entry.Action, i,
					tab.Actions[action].Params[i].Name, q.Name)
			}
			entry.Action.Params = append(entry.Action.Params, q.Value)
		}
		if err := sw.InsertEntry(tab.Name, entry); err != nil {
			if err := sw.ModifyEntry(tab.Name, entry); err != nil {
				p.t.Fatalf("%s: %v", tab.Name, err)
			}
		}
	}
}

// seal ends an epoch: bits flipped, banks of the epoch read and cleared, and then the plan for the
// epoch after the next written.
func (p *pair) seal() *sdk.Results {
	p.t.Helper()
	bank := int(p.number % 2)
	start := time.Unix(1_700_000_000+int64(p.number), 0)
	e := &sdk.Epoch{Number: p.number, Start: start, End: start.Add(time.Second), Status: sdk.StatusComplete,
		Expected: []string{"edge1", "edge2"}}
	p.open(p.number + 1)
	for i, sw := range p.switches {
		for _, r := range p.catalog.Registers.All() {
			if r.Readout == nil {
				continue
			}
			from := bank * r.Readout.Cells
			wide, err := sw.ReadRegister(r.Name, from, from+r.Readout.Cells)
			if err != nil {
				p.t.Fatal(err)
			}
			cells := make([]uint32, len(wide))
			for j, v := range wide {
				if cells[j] = uint32(v); v != 0 {
					if err := sw.WriteRegister(r.Name, from+j, 0); err != nil {
						p.t.Fatal(err)
					}
				}
			}
			e.Put(fmt.Sprintf("edge%d", i+1), sdk.CellsOf(r.Name, cells))
		}
	}
	results := p.plugin.Analyze(e)
	for _, plan := range results.Plans {
		if plan.FromEpoch != e.Number+2 {
			p.t.Errorf("epoch %d: a plan for epoch %d", e.Number, plan.FromEpoch)
		}
		p.apply(plan)
	}
	return results
}

func (p *pair) open(number uint64) {
	p.t.Helper()
	p.number = number
	for _, sw := range p.switches {
		flip := &softswitch.Action{Kind: softswitch.ActionCall, Name: "ingress.bank.set_bank",
			Params: [][]byte{{byte(number % 2)}}}
		if err := sw.SetDefault("ingress.bank.bank", flip); err != nil {
			p.t.Fatal(err)
		}
	}
}

// TestSoftSwitch plays epochs through two soft switches: a healthy network, more IPv6 flows that
// lose packets than their encoders hold, and a healthy one again. Each decoded epoch is compared
// with the lost packets.
func TestSoftSwitch(t *testing.T) {
	p := newPair(t, `{"division": {"reserve": 60}}`)
	r := rand.New(rand.NewPCG(1, 2))
	rate := 0.0
	p.lose = func() bool { return r.Float64() < rate }
	p.open(1)
	decoded, ill, last := 0, 0, ""
	for epoch := 1; epoch <= 14; epoch++ {
		rate = 0.02
		flows, every := 900, 7 // every seventh flow is of IPv6
		if epoch > 4 && epoch <= 10 {
			rate, flows, every = 0.6, 5500, 1
		}
		clear(p.lost)
		sent := 0
		for i := range flows {
			from := i % 2
			to := (i / 2) % 2
			spec := traffic.FrameSpec{
				Src:   netip.AddrFrom4([4]byte{10, 0, byte(from), byte(1 + r.IntN(200))}),
				Dst:   netip.AddrFrom4([4]byte{10, 0, byte(to), byte(1 + r.IntN(200))}),
				Proto: 17, SrcPort: uint16(1000 + i), DstPort: 53,
			}
			if i%every == 0 {
				spec.Src, spec.Dst = netip.MustParseAddr(fmt.Sprintf("fd00:%d::%x", from, 1+r.IntN(200))),
					netip.MustParseAddr(fmt.Sprintf("fd00:%d::%x", to, 1+r.IntN(200)))
			}
			frame := traffic.BuildFrame(spec)
			key, ok := truth.Parse(frame)
			if !ok {
				t.Fatal("the frame has no flow")
			}
			p.sending = key.String()
			for range 1 + r.IntN(1+r.IntN(20)) {
				sent++
				p.switches[from].Inject(hostPort, append([]byte{}, frame...), 0)
			}
		}
		results := p.seal()
		attention := read(t, results, "attention")[0]
		t.Logf("epoch %d: %d packets, %d flows lost some; %v", epoch, sent, len(p.lost), attention)
		if got := read(t, results, "node-summaries/node-summary"); got[0]["node"] != plugin.Network ||
			got[0]["packets"] != fmt.Sprint(sent) {
			t.Errorf("epoch %d: %d packets sent, published %v", epoch, sent, got[0])
		}
		if last = attention["network-state"]; last == "ILL" {
			ill++
		}
		for _, v := range read(t, results, "victims/victim") {
			if want, got := p.lost[v["flow"]], v["lost-packets"]; want == 0 || v["quality"] == "EXACT" &&
				got != fmt.Sprint(want) {
				t.Errorf("epoch %d: %v lost %d", epoch, v, want)
			}
		}
		if attention["status"] != "COMPLETE" {
			continue
		}
		decoded++
		exact := 0
		published := make(map[string]string)
		for _, v := range read(t, results, "victims/victim") {
			published[v["flow"]] = v["lost-packets"]
			if v["quality"] == "EXACT" {
				exact++
			}
		}
		if exact == 0 {
			t.Errorf("epoch %d: nothing is exact", epoch)
		}
		for key := range p.lost {
			if published[key] == "" && attention["network-state"] == "HEALTHY" {
				t.Errorf("epoch %d: %s lost packets and is not published", epoch, key)
			}
		}
	}
	if decoded < 8 || ill < 2 || last != "HEALTHY" {
		t.Errorf("%d of 14 epochs decoded, %d measured as ill, %s at the end", decoded, ill, last)
	}
}

// read returns a list's rows as maps of leaf to text.
func read(t *testing.T, r *sdk.Results, list string) (out []map[string]string) {
	t.Helper()
	for _, tr := range r.Tables {
		if tr.Table.List != root+list {
			continue
		}
		for i := range tr.Table.Rows() {
			m := make(map[string]string)
			for c := range tr.Table.Keys {
				m[tr.Table.Keys[c].Name] = string(tr.Table.Keys[c].AppendText(nil, i))
			}
			for c := range tr.Table.Values {
				if v := &tr.Table.Values[c]; !v.Null(i) {
					m[strings.TrimPrefix(v.Name, "state/")] = string(v.AppendText(nil, i))
				}
			}
			out = append(out, m)
		}
	}
	return out
}
