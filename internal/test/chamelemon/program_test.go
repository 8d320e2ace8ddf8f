// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/switchtest"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/plugins/chamelemon/plugin"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
)

// program is the testbed's edge switches as soft switches that run the program. A packet that one
// sends into the network reaches the other, unless it is lost.
type program struct {
	t        *testing.T
	catalog  *p4values.Catalog
	switches []*softswitch.Switch
	lose     bool // whether the network loses the current packet
}

// ports of each switch: two hosts, and the network.
const inside = 3

func newProgram(t *testing.T, bed *Testbed) *program {
	loaded, err := compiled.Load("chamelemon")
	if err != nil {
		t.Fatal(err)
	}
	p := &program{t: t}
	if p.catalog, err = p4values.NewCatalog(loaded.P4Info); err != nil {
		t.Fatal(err)
	}
	for i, e := range bed.edges {
		sw := switchtest.New(t, e.name, "chamelemon")
		p.switches = append(p.switches, sw)
		tx := map[uint32]func([]byte, time.Duration){1: func([]byte, time.Duration) {},
			2: func([]byte, time.Duration) {}, inside: func(b []byte, at time.Duration) {
				if !p.lose {
					p.switches[1-i].Inject(inside, append([]byte{}, b...), at)
				}
			}}
		for port, f := range tx {
			if err := sw.AddPort(port, softswitch.Port{Name: fmt.Sprint(port), Tx: f}); err != nil {
				t.Fatal(err)
			}
		}
		for h := range bed.hosts {
			port := uint64(inside)
			if bed.hosts[h].edge == i {
				port = uint64(1 + h%hostsPerEdge)
			}
			for f, table := range []string{"ingress.forwarding.ipv4_lpm", "ingress.forwarding.ipv6_lpm"} {
				a := bed.hosts[h].addr[f]
				action := softswitch.Action{Kind: softswitch.ActionCall, Name: "ingress.forwarding.forward",
					Params: [][]byte{p4values.Uint(port), {1}, {2}}}
				entry := softswitch.Entry{Match: []softswitch.Match{{Kind: softswitch.MatchLPM, Value: a.AsSlice(),
					PrefixLen: a.BitLen()}}, Action: action}
				if err := sw.InsertEntry(table, entry); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return p
}

// apply writes a plan into the switches' tables.
func (p *program) apply(plan sdk.Plan) {
	p.t.Helper()
	for _, w := range plan.Writes {
		entry := softswitch.Entry{Action: softswitch.Action{Kind: softswitch.ActionCall, Name: w.Entry.Action}}
		for _, m := range w.Entry.Matches {
			entry.Match = append(entry.Match, softswitch.Match{Kind: softswitch.MatchExact, Value: m.Value})
		}
		for _, q := range w.Entry.Params {
			entry.Action.Params = append(entry.Action.Params, q.Value)
		}
		sw := p.switches[w.Device[len(w.Device)-1]-'1']
		if err := sw.InsertEntry(w.Entry.Table, entry); err != nil {
			if err := sw.ModifyEntry(w.Entry.Table, entry); err != nil {
				p.t.Fatalf("%s: %v", w.Entry.Table, err)
			}
		}
	}
}

func (p *program) flip(bit uint64) {
	for _, sw := range p.switches {
		if err := sw.SetDefault("ingress.bank.bank",
			&softswitch.Action{Kind: softswitch.ActionCall, Name: "ingress.bank.set_bank",
				Params: [][]byte{{byte(bit)}}}); err != nil {
			p.t.Fatal(err)
		}
	}
}

// compare compares every register of the switches with an epoch and clears them.
func (p *program) compare(e *sdk.Epoch) {
	p.t.Helper()
	for i, sw := range p.switches {
		compared := 0
		for _, r := range p.catalog.Registers.All() {
			if r.Readout == nil {
				continue
			}
			compared++
			from := int(e.Number%2) * r.Readout.Cells
			got, err := sw.ReadRegister(r.Name, from, from+r.Readout.Cells)
			if err != nil {
				p.t.Fatal(err)
			}
			c := e.Device(EdgeName(i)).Object(r.Name)
			if c == nil || c.Len() != len(got) {
				p.t.Fatalf("%s is not in the epoch, or of another length", r.Name)
			}
			want := c.Uint32s()
			for j, v := range got {
				if uint32(v) != want[j] {
					p.t.Fatalf("epoch %d, %s of %s: cell %d is %d in the program, %d in the model", e.Number, r.Name,
						EdgeName(i), j, v, want[j])
				}
				if v != 0 {
					if err := sw.WriteRegister(r.Name, from+j, 0); err != nil {
						p.t.Fatal(err)
					}
				}
			}
		}
		if compared != 6 {
			p.t.Fatalf("%d registers compared, expected 6", compared)
		}
	}
}

// TestModelMatchesProgram sends the same packets through the testbed and through the program on
// soft switches, both under the plugin's plans, and compares every cell of every register
// after each epoch: while healthy, and while ill.
func TestModelMatchesProgram(t *testing.T) {
	bed := New(Config{Seed: 1, Edges: 2})
	p := newProgram(t, bed)
	// A small reserve, so that few flows make the network ill.
	h := sdktest.Start(t, plugin.New(), sdktest.Options{Network: bed.Network(),
		Config: `{"division": {"reserve": 30, "ill-hl": 60, "ill-ll": 20}}`})
	apply := func(plan sdk.Plan) {
		if err := bed.Apply(plan); err != nil {
			t.Fatal(err)
		}
		p.apply(plan)
	}
	apply(*h.Settings().Plan)
	sizes := []traffic.SizePoint{{Packets: 1, Share: 0.6}, {Packets: 3, Share: 0.9}, {Packets: 20, Share: 0.99},
		{Packets: 400, Share: 1}}
	var seen [codes]int64
	packets, states := 0, make(map[string]int)
	for epoch := uint64(1); epoch <= 10; epoch++ {
		if err := bed.begin(); err != nil { // plans are applied below
			t.Fatal(err)
		}
		p.flip(epoch % 2)
		d := Traffic{Sizes: sizes, Flows: 500, Victims: 0.1, Loss: 0.3, IPv6: 0.3}
		if epoch > 1 {
			d.Flows, d.Loss, d.IPv6 = 4500, 0.9, 0.9
		}
		flows := bed.Flows(d)
		frames := make([][]byte, len(flows))
		var order []int
		for i := range flows {
			x := &flows[i]
			x.start(&bed.cols)
			frames[i] = traffic.BuildFrame(traffic.FrameSpec{Src: x.Key.SrcAddr(), Dst: x.Key.DstAddr(), Proto: 17,
				SrcPort: x.Key.SrcPort, DstPort: x.Key.DstPort})
			for range x.Packets {
				order = append(order, i)
			}
		}
		bed.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, i := range order {
			x := &flows[i]
			if x.left == 0 {
				continue
			}
			n := min(1+bed.rng.Int64N(20), x.left) // a burst
			// All of a burst is lost, or nothing; at one switch nothing is.
			p.lose = x.Entry != x.Exit && bed.rng.Float64() < d.Loss
			bed.send(x, n, func(part, _, _ int64) int64 {
				if p.lose {
					return part
				}
				return 0
			})
			for range n {
				packets++
				port := uint32(1)
				if x.Key.SrcAddr() == bed.hosts[x.Entry*hostsPerEdge+1].addr[x.hash.family] {
					port = 2
				}
				p.switches[x.Entry].Inject(port, append([]byte{}, frames[i]...), 0)
			}
		}
		for i := range flows {
			for code, n := range flows[i].in {
				seen[code] += n
			}
			bed.finish(&flows[i])
		}
		e := bed.seal()
		p.compare(e)
		r := h.Analyze(e)
		for _, plan := range r.Plans {
			if plan.FromEpoch != epoch+2 {
				t.Errorf("epoch %d: a plan for %d", epoch, plan.FromEpoch)
			}
			apply(plan)
		}
		m, err := Measure(r)
		if err != nil {
			t.Fatal(err)
		}
		states[m.State]++
	}
	t.Logf("%d packets: by hierarchy %v, states %v", packets, seen, states)
	if states["healthy"] == 0 || states["ill"] == 0 || seen[codeNone] == 0 || seen[codeLL] == 0 || seen[codeHL] == 0 ||
		seen[codeHH] == 0 {
		t.Errorf("packets by hierarchy %v, states %v: not everything was compared", seen, states)
	}
}

// TestAddresses: hosts of the testbed are at the places of the network model.
func TestAddresses(t *testing.T) {
	bed := New(Config{Seed: 1})
	n := bed.Network()
	if len(n.Hosts) != 8 || len(n.Devices) != 5 || len(n.Links) != 8 {
		t.Fatalf("%d hosts, %d devices, %d links", len(n.Hosts), len(n.Devices), len(n.Links))
	}
	seen := make(map[netip.Addr]bool)
	for _, h := range bed.hosts {
		for _, a := range h.addr {
			if seen[a] {
				t.Errorf("%s twice", a)
			}
			seen[a] = true
		}
	}
}
