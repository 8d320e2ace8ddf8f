// SPDX-License-Identifier: Apache-2.0

package parity_test

import (
	"errors"
	"io"
	"math"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/switchtest"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
	"github.com/netsketch/netsketch/plugins/univmon/plugin"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/yang/table"
)

const univmon = "/netsketch-univmon:univmon/"

// oneSwitch is a switch with program univmon, and the plugin that reads its registers
// directly: all of the measurement without the transport in between.
type oneSwitch struct {
	t         *testing.T
	sw        *softswitch.Switch
	registers []*p4values.Register
	plugin    *sdktest.Harness
	truth     truth.Counts
	number    uint64
}

func newOneSwitch(t *testing.T, config string) *oneSwitch {
	t.Helper()
	program, err := compiled.Load("univmon")
	if err != nil {
		t.Fatal(err)
	}
	catalog, err := p4values.NewCatalog(program.P4Info)
	if err != nil {
		t.Fatal(err)
	}
	o := &oneSwitch{t: t, sw: switchtest.New(t, "s1", "univmon"), truth: make(truth.Counts)}
	if err := o.sw.AddPort(1, softswitch.Port{Name: "1", Tx: func([]byte, time.Duration) {}}); err != nil {
		t.Fatal(err)
	}
	device := sdk.Device{Name: "s1", Program: "univmon"}
	for _, r := range catalog.Registers.All() {
		if r.Readout == nil {
			continue
		}
		o.registers = append(o.registers, r)
		device.Objects = append(device.Objects, sdk.Object{Name: r.Name, Alias: r.Alias, Cells: r.Readout.Cells,
			Width: r.Width, Banks: r.Readout.Banks, Annotations: r.Annotations.Values()})
	}
	o.plugin = sdktest.Start(t, plugin.New(), sdktest.Options{Config: config,
		Network: sdk.Network{Devices: []sdk.Device{device}}})
	return o
}

func (o *oneSwitch) send(frame []byte) {
	o.sw.Inject(1, frame, 0)
	if k, ok := truth.ParseEncapsulated(frame); ok {
		o.truth[k]++
	}
}

// seal ends the epoch: it flips the bank, reads and clears the sealed one, and returns
// the plugin's results and the ground truth.
func (o *oneSwitch) seal() (*sdk.Results, truth.Counts) {
	o.t.Helper()
	bank := int(o.number % 2)
	o.number++
	flip := &softswitch.Action{Kind: softswitch.ActionCall, Name: "ingress.bank.set_bank",
		Params: [][]byte{{byte(1 - bank)}}}
	if err := o.sw.SetDefault("ingress.bank.bank", flip); err != nil {
		o.t.Fatal(err)
	}
	start := time.Unix(1_700_000_000+int64(o.number), 0)
	e := &sdk.Epoch{Number: o.number, Start: start, End: start.Add(time.Second), Status: sdk.StatusComplete,
		Expected: []string{"s1"}}
	for _, r := range o.registers {
		from := bank * r.Readout.Cells
		wide, err := o.sw.ReadRegister(r.Name, from, from+r.Readout.Cells)
		if err != nil {
			o.t.Fatal(err)
		}
		cells := make([]uint32, len(wide))
		for i, v := range wide {
			cells[i] = uint32(v)
			if v != 0 {
				if err := o.sw.WriteRegister(r.Name, from+i, 0); err != nil {
					o.t.Fatal(err)
				}
			}
		}
		e.Put("s1", sdk.CellsOf(r.Name, cells))
	}
	counts := o.truth
	o.truth = make(truth.Counts)
	return o.plugin.Analyze(e), counts
}

// column returns a column of the rows of one device in a list, by the other keys' texts.
func column(t *testing.T, r *sdk.Results, list, device, name string) map[string]float64 {
	t.Helper()
	out := make(map[string]float64)
	for _, tr := range r.Tables {
		if tr.Table.List != univmon+list {
			continue
		}
		c := tr.Table.Column(name)
		if c == nil {
			t.Fatalf("%s has no column %s", list, name)
		}
		for row := range tr.Table.Rows() {
			if tr.Table.Keys[0].Text(row) != device || c.Null(row) {
				continue
			}
			key := ""
			for i := 1; i < len(tr.Table.Keys); i++ {
				key += " " + tr.Table.Keys[i].Text(row)
			}
			if c.Kind == table.Float64 {
				out[key[1:]] = c.Float64(row)
			} else {
				out[key[1:]] = float64(c.Uint64(row))
			}
		}
	}
	return out
}

func relative(got, want float64) float64 { return math.Abs(got-want) / math.Max(want, 1) }

// TestRealPackets: epochs of one second of the shared trace through the switch, with less than 1 MB
// of registers a bank, against the ground truth: heavy hitters above 0.5 % of the packets F1 0.98,
// entropy and distinct flows within 5 %, in every epoch. docs/univmon.md has the results.
func TestRealPackets(t *testing.T) {
	trace, err := traffic.OpenTrace(filepath.Join("..", "..", "..", "shared", "traces", "mixed-165k.pcap.gz"), nil, false)
	if err != nil {
		t.Skipf("the shared trace is not here: %v", err)
	}
	defer trace.Close()
	o := newOneSwitch(t, `{"heavy-hitters": {"share": 0.005}}`)
	check := func() {
		r, counts := o.seal()
		for _, f := range []flow.Fields{flow.Src, flow.Dst, flow.FiveTuple} {
			dimension, flows := f.String(), counts.Project(f)
			if got := column(t, r, "node-summaries/node-summary", "s1",
				"state/packets")[dimension]; got != float64(flows.Packets()) {
				t.Errorf("epoch %d, %s: %v packets, want %d", o.number, dimension, got, flows.Packets())
			}
			distinct := relative(column(t, r, "node-summaries/node-summary", "s1", "state/distinct-flows")[dimension],
				float64(len(flows)))
			entropy := relative(column(t, r, "node-summaries/node-summary", "s1", "state/entropy")[dimension], flows.Entropy())
			want := make(map[string]bool)
			for _, f := range flows.AtLeast(0.005 * float64(flows.Packets())) {
				want[dimension+" "+f.Key.String()] = true
			}
			hits, found := 0, 0
			for key := range column(t, r, "heavy-hitters/heavy-hitter", "s1", "state/packets") {
				if len(key) > len(dimension) && key[:len(dimension)+1] == dimension+" " {
					found++
					if want[key] {
						hits++
					}
				}
			}
			f1 := 2 * float64(hits) / float64(found+len(want))
			t.Logf("epoch %d, %s: %d flows, F1 %.4f of %d, errors of entropy %.5f, distinct flows %.5f", o.number,
				dimension, len(flows), f1, len(want), entropy, distinct)
			if f1 < 0.98 || entropy > 0.05 || distinct > 0.05 {
				t.Errorf("epoch %d, %s: F1 %.4f, errors of entropy %.4f, distinct flows %.4f", o.number, dimension, f1,
					entropy, distinct)
			}
		}
	}
	end := time.Second
	for {
		p, err := trace.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for p.At >= end {
			check()
			end += time.Second
		}
		o.send(p.Frame)
	}
	check()
	if o.number != 10 {
		t.Errorf("%d epochs, the trace has 10 s", o.number)
	}
}

// TestVictim: the plugin reports the destination of a flood from 3,000 sources as the victim, amid
// other traffic without victims.
func TestVictim(t *testing.T) {
	hosts := []traffic.Host{
		{V4: netip.MustParsePrefix("10.0.0.0/16"), V6: netip.MustParsePrefix("fd00:0:0:1::/64")},
		{V4: netip.MustParsePrefix("10.1.0.0/16"), V6: netip.MustParsePrefix("fd00:0:0:2::/64")},
	}
	target := netip.MustParseAddr("10.1.5.80")
	background, err := traffic.Generate(traffic.Generated{Name: "background", Seed: 1, Rate: 15_000, Flows: 4000,
		Zipf: 1.1, V6Share: 0.2, UDP: 0.3, Bytes: 128, Until: 2 * time.Second}, hosts)
	if err != nil {
		t.Fatal(err)
	}
	flood, err := traffic.Generate(traffic.Generated{Name: "flood", Seed: 2, Rate: 10_000, Flows: 3000, Bytes: 78,
		From: time.Second, Until: 2 * time.Second, Senders: []int{0}, Receivers: []int{1}, Target: target}, hosts)
	if err != nil {
		t.Fatal(err)
	}
	o := newOneSwitch(t, `{"ddos-victims": {"sources": 1000}}`)
	source, end := traffic.Merge(background, flood), time.Second
	for {
		p, err := source.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if p.At >= end {
			r, _ := o.seal()
			if victims := column(t, r, "ddos-victims/ddos-victim", "s1", "state/distinct-sources"); len(victims) != 0 {
				t.Errorf("victims before the flood: %v", victims)
			}
			end += time.Second
		}
		o.send(p.Frame)
	}
	r, counts := o.seal()
	sources := make(map[flow.Key]bool)
	for k := range counts {
		if k.DstAddr() == target {
			sources[k.Project(flow.Src)] = true
		}
	}
	victims := column(t, r, "ddos-victims/ddos-victim", "s1", "state/distinct-sources")
	t.Logf("victims %v, want %s with %d sources", victims, target, len(sources))
	if got := victims[target.String()]; len(victims) != 1 || relative(got, float64(len(sources))) > 0.2 {
		t.Errorf("victims %v, want %s with about %d sources", victims, target, len(sources))
	}
}
