// SPDX-License-Identifier: Apache-2.0

package parity_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
	hostunivmon "github.com/netsketch/netsketch/hostagent/univmon"
	"github.com/netsketch/netsketch/hostagent/univmon/wire"
	"github.com/netsketch/netsketch/internal/test/packettest"
	"github.com/netsketch/netsketch/internal/test/switchtest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
)

// plugins is a directory with the built-in plugins.
var plugins string

func TestMain(m *testing.M) {
	testkit.MainWithPlugins(m, &plugins, "chamelemon", "omnimon", "sketchint", "lightguardian")
}

const packets = 10_000

// frames returns the first packets of a source.
func frames(t *testing.T, s traffic.Source) [][]byte {
	t.Helper()
	var out [][]byte
	for len(out) < packets {
		p, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, bytes.Clone(p.Frame))
	}
	return out
}

func generated(t *testing.T) [][]byte {
	t.Helper()
	s, err := traffic.Generate(
		traffic.Generated{Name: "parity", Seed: 3, Rate: 10_000, Flows: 3000, Zipf: 1.1, V6Share: 0.3, UDP: 0.2,
			Bytes: 128, Until: 2 * time.Second},
		[]traffic.Host{
			{V4: netip.MustParsePrefix("10.0.0.0/24"), V6: netip.MustParsePrefix("fd00:0:0:1::/64")},
			{V4: netip.MustParsePrefix("10.0.1.0/24"), V6: netip.MustParsePrefix("fd00:0:0:2::/64")},
		})
	if err != nil {
		t.Fatal(err)
	}
	return frames(t, s)
}

// encapsulated returns generated packets, a quarter of them with encapsulations, of which some are
// damaged, or have more than switches parse.
func encapsulated(t *testing.T) [][]byte {
	t.Helper()
	out, r := generated(t), rand.New(rand.NewPCG(5, 6))
	for i := 0; i < len(out); i += 4 {
		f := packettest.Random(r).Bytes
		switch r.IntN(6) {
		case 0:
			f = f[:r.IntN(len(f))]
		case 1:
			f[12+r.IntN(len(f)-12)] ^= 1 << r.IntN(8)
		case 2:
			f = packettest.Deep(r)
		}
		out[i] = f
	}
	return out
}

// real returns real packets, broken ones among them.
func real(t *testing.T) [][]byte {
	t.Helper()
	trace, err := traffic.OpenTrace(filepath.Join("..", "..", "..", "shared", "traces", "mixed-165k.pcap.gz"), nil, false)
	if err != nil {
		t.Skipf("the shared trace is not here: %v", err)
	}
	defer trace.Close()
	return frames(t, trace)
}

// call is an action with its parameters.
func call(action string, params ...uint64) softswitch.Action {
	a := softswitch.Action{Kind: softswitch.ActionCall, Name: action}
	for _, p := range params {
		a.Params = append(a.Params, p4values.Uint(p))
	}
	return a
}

func insert(t *testing.T, sw *softswitch.Switch, table string, e softswitch.Entry) {
	t.Helper()
	if err := sw.InsertEntry(table, e); err != nil {
		t.Fatal(err)
	}
}

// mirror is a sketch of sketch/universal with the registers that it mirrors.
type mirror struct {
	key             string
	banks           [2]*universal.Sketch
	counters, heavy *p4values.Register
}

// mirrors makes a mirror for each UnivMon in a program, from the program's annotations.
func mirrors(t *testing.T, p *compiled.Program) []*mirror {
	t.Helper()
	catalog, err := p4values.NewCatalog(p.P4Info)
	if err != nil {
		t.Fatal(err)
	}
	byKey := make(map[string]*mirror)
	for _, r := range catalog.Registers.All() {
		univmon, ok := r.Annotations.Find("netsketch_univmon")
		key := univmon.Values["key"]
		if !ok || key == "" {
			continue
		}
		if byKey[key] == nil {
			byKey[key] = &mirror{key: key}
		}
		if univmon.Values["part"] == "counters" {
			byKey[key].counters = r
		} else {
			byKey[key].heavy = r
		}
	}
	var out []*mirror
	for key, m := range byKey {
		fields, err := flow.ParseFields(key)
		if err != nil {
			t.Fatal(err)
		}
		l := universal.Layout{
			Key: fields, Levels: number(t, m.counters, "levels"), Rows: number(t, m.counters, "rows"),
			Columns: number(t, m.counters, "columns"), Ways: number(t, m.heavy, "ways"),
			Slots: number(t, m.heavy, "slots"),
		}
		for bank := range m.banks {
			if m.banks[bank], err = universal.New(l); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, m)
	}
	return out
}

func number(t *testing.T, r *p4values.Register, key string) int {
	t.Helper()
	for _, a := range r.Annotations {
		if n, err := a.Int(key); err == nil {
			return int(n)
		}
	}
	t.Fatalf("%s: no annotation has a number %s", r.Name, key)
	return 0
}

// cells returns what a bank of the mirror should look like in the register.
func (m *mirror) cells(t *testing.T, bank int) (counters, heavy []uint32) {
	t.Helper()
	s := m.banks[bank]
	counters = make([]uint32, m.counters.Readout.Cells)
	copy(counters, s.Counters())
	copy(counters[number(t, m.counters, "packets"):], s.Packets())
	return counters, s.Heavy()
}

// hosts returns a host for each bank, with the sketches of the mirrors.
func hosts(t *testing.T, all []*mirror, e wire.Encapsulation) (out [2]*agent.RolePath) {
	t.Helper()
	s := wire.Settings{Packets: wire.Packets{Sent: true, Encapsulation: e}}
	for _, m := range all {
		s.Sketches = append(s.Sketches, m.banks[0].Layout())
	}
	settings, err := s.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	for bank := range out {
		out[bank] = agent.NewRolePath(func(c *epoch.Clock) role.Role { return hostunivmon.New(c) })
		if err := out[bank].Apply(settings); err != nil {
			t.Fatal(err)
		}
		out[bank].Advance(1)
	}
	return out
}

// compareHost compares the cells of a bank's host with those of the mirrors, and its packets
// without a flow with those of the switch.
func compareHost(t *testing.T, host *agent.RolePath, bank int, all []*mirror, unparsed []uint64) {
	t.Helper()
	host.Advance(2)
	sealed, err := host.Seal(1)
	if err != nil {
		t.Fatal(err)
	}
	report, err := wire.ParseReport(sealed.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	for c := wire.NotIP; c <= wire.TooDeep; c++ {
		i := c - wire.NotIP + 1
		if got := unparsed[i] + unparsed[i+8]; got != report.Counters[c] {
			t.Errorf("bank %d: the switch has %d packets that are %v, the host %d", bank, got, c, report.Counters[c])
		}
	}
	for i, m := range all {
		got, want := report.Sketches[i], m.banks[bank]
		if !slices.Equal(got.Counters(), want.Counters()) || !slices.Equal(got.Heavy(), want.Heavy()) ||
			!slices.Equal(got.Packets(), want.Packets()) {
			t.Errorf("%s, bank %d: the cells of the host differ from the switch's", m.key, bank)
		}
	}
}

// TestRegistersMatchModel sends packets while the bank is flipped every 2,500 of them, and
// compares all cells of all registers and banks, also those of a host that sends the packets.
func TestRegistersMatchModel(t *testing.T) {
	for _, tc := range []struct {
		name   string
		frames func(*testing.T) [][]byte
	}{{"generated", encapsulated}, {"real", real}} {
		t.Run(tc.name, func(t *testing.T) {
			sent := tc.frames(t)
			if len(sent) != packets {
				t.Fatalf("%d packets, want %d", len(sent), packets)
			}
			compared := 0
			for _, name := range compiled.Names() {
				program, err := compiled.Load(name)
				if err != nil {
					t.Fatal(err)
				}
				if len(mirrors(t, program)) == 0 {
					continue // no universal sketch
				}
				compared++
				for _, flows := range measured {
					t.Run(name+" "+flows.choice, func(t *testing.T) { compare(t, name, flows, mirrors(t, program), sent) })
				}
			}
			if compared == 0 {
				t.Error("no program has a universal sketch")
			}
		})
	}
}

// flows selects which flows switches measure for packets in tunnels.
type flows struct {
	choice string // action of the switch
	host   wire.Encapsulation
	truth  truth.Rule
}

var measured = []flows{{"outer", wire.EncapsulationSwitch, truth.ParseEncapsulated},
	{"inner", wire.EncapsulationSwitchInner, truth.ParseInner}}

func compare(t *testing.T, name string, of flows, all []*mirror, sent [][]byte) {
	sw := switchtest.New(t, "parity", name)
	if err := sw.SetDefault("ingress.encapsulation.choice", &softswitch.Action{Kind: softswitch.ActionCall,
		Name: "ingress.encapsulation." + of.choice}); err != nil {
		t.Fatal(err)
	}
	if err := sw.AddPort(1, softswitch.Port{Name: "1", Tx: func([]byte, time.Duration) {}}); err != nil {
		t.Fatal(err)
	}
	counted := 0
	senders := hosts(t, all, of.host)
	for i, frame := range sent {
		bank := i / 2500 % 2
		if i%2500 == 0 {
			flip := &softswitch.Action{Kind: softswitch.ActionCall, Name: "ingress.bank.set_bank",
				Params: [][]byte{{byte(bank)}}}
			if err := sw.SetDefault("ingress.bank.bank", flip); err != nil {
				t.Fatal(err)
			}
		}
		sw.Inject(1, frame, time.Duration(i)*time.Microsecond)
		senders[bank].Out([]*packet.Frame{packet.NewFrame(frame)})
		if key, ok := of.truth(frame); ok {
			counted++
			for _, m := range all {
				m.banks[bank].Update(&key)
			}
		}
	}
	t.Logf("%d of %d packets belong to flows; %d sketches", counted, len(sent), len(all))
	for bank, host := range senders {
		unparsed, err := sw.ReadRegister("ingress.unparsed", 256*bank, 256*(bank+1))
		if err != nil {
			t.Fatal(err)
		}
		compareHost(t, host, bank, all, unparsed)
	}
	for _, m := range all {
		for bank := range m.banks {
			counters, heavy := m.cells(t, bank)
			same(t, sw, m.counters, bank, counters)
			same(t, sw, m.heavy, bank, heavy)
		}
	}
}

// same compares a bank of a register with the cells that it should have.
func same(t *testing.T, sw *softswitch.Switch, r *p4values.Register, bank int, want []uint32) {
	t.Helper()
	from := bank * r.Readout.Cells
	got, err := sw.ReadRegister(r.Name, from, from+r.Readout.Cells)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%s: a bank has %d cells, the mirror %d", r.Name, len(got), len(want))
	}
	if !slices.ContainsFunc(want, func(v uint32) bool { return v != 0 }) {
		t.Errorf("%s, bank %d: all cells are zero, so nothing was compared", r.Name, bank)
	}
	wrong := 0
	for i := range want {
		if uint64(want[i]) != got[i] {
			if wrong++; wrong <= 3 {
				t.Errorf("%s, bank %d, cell %d: the switch has %d, the mirror %d", r.Name, bank, i, got[i], want[i])
			}
		}
	}
	if wrong > 3 {
		t.Errorf("%s, bank %d: %d cells differ", r.Name, bank, wrong)
	}
}
