// SPDX-License-Identifier: Apache-2.0

package local

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/internal/flowref"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/sumax"
	"github.com/netsketch/netsketch/yang/table"
)

// maxFlows is the largest count of flows that are published.
const maxFlows = 1000

// Paths of the lists.
const (
	root       = "/netsketch-host:host"
	flowList   = root + "/flows/flow"
	hopList    = root + "/hops/hop"
	delayList  = root + "/delays/delay"
	switchList = root + "/switches/switch"
)

// device is the sketch of a switch, of which some columns may not have arrived.
type device struct {
	wire.Device
	name     string
	interval uint8
	old      uint64 // sketchlets of other intervals
	sketch   *sumax.Sketch[family.P4]
}

// reconstruct returns the sketches of the switches whose sketchlets are in a report, in the order
// of the switches' names. Of several intervals of a switch, it uses the interval with the most
// sketchlets.
func reconstruct(s *wire.Settings, r *wire.Report) ([]*device, error) {
	if s.Sketch == nil {
		return nil, nil
	}
	var counts = map[uint16]*[256]uint32{}
	for k := range r.All {
		c := counts[k.Device()]
		if c == nil {
			c = new([256]uint32)
			counts[k.Device()] = c
		}
		c[k.Interval()]++
	}
	byID := map[uint16]*device{}
	var all []*device
	for _, d := range s.Devices {
		c := counts[d.ID]
		if c == nil {
			continue
		}
		x := &device{Device: d, name: cmp.Or(d.Name, fmt.Sprintf("device-%d", d.ID))}
		for i, n := range c {
			if x.old += uint64(n); n > c[x.interval] {
				x.interval = uint8(i)
			}
		}
		x.old -= uint64(c[x.interval])
		var err error
		x.sketch, err = sumax.NewPartial[family.P4](sumax.Config{Rows: s.Sketch.Rows, Width: d.Columns,
			Ranges: s.Sketch.Delays, NoSizes: !s.Sketch.Sizes, Intervals: s.Sketch.Gaps, Seed: uint64(d.Seed)})
		if err != nil {
			return nil, fmt.Errorf("switch %s: %w", x.name, err)
		}
		byID[d.ID] = x
		all = append(all, x)
	}
	var cells []uint32
	for k := range r.All {
		x := byID[k.Device()]
		if x == nil || k.Interval() != x.interval {
			continue
		}
		cells = k.Cells(cells[:0])
		if _, err := x.sketch.SetColumn(int(k.Column()), cells); err != nil {
			return nil, fmt.Errorf("switch %s: %w", x.name, err)
		}
	}
	slices.SortFunc(all, func(a, b *device) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// analyze returns the rows of an epoch.
func analyze(host string, s *wire.Settings, r *wire.Report) ([]*table.Table, error) {
	devices, err := reconstruct(s, r)
	if err != nil {
		return nil, err
	}
	flows := slices.Clone(r.Flows)
	slices.SortFunc(flows, func(a, b wire.Flow) int {
		return cmp.Or(cmp.Compare(b.Sent+b.Received, a.Sent+a.Received), a.Key.Compare(b.Key))
	})
	flows = flows[:min(len(flows), maxFlows)]
	var out []*table.Table
	add := func(t *table.Table, e error) {
		out, err = append(out, t), cmp.Or(err, e)
	}
	add(summary(host, s, r, len(flows), len(devices)))
	counted, sketched := "EXACT", "UPPER_BOUND"
	if r.Counters[wire.FlowsFull] > 0 {
		counted = "LOWER_BOUND"
	}
	if r.Counters[wire.Hidden] > 0 {
		counted, sketched = "ESTIMATE", "ESTIMATE"
	}
	add(flowTable(devices, flows, counted))
	hops, delays, e := hopTables(s, devices, flows, sketched)
	add(hops, e)
	add(delays, e)
	add(switchTable(devices))
	if err != nil {
		return nil, err
	}
	return out, nil
}

func summary(host string, s *wire.Settings, r *wire.Report, flows, switches int) (*table.Table, error) {
	b := table.NewBuilder(root + "/summary")
	if host != "" { // without a host name, the certificate names the host
		b.Text("state/node").Append(host)
	}
	one := func(name string, n int) { b.Uint("state/" + name).Append(uint64(n)) }
	b.Uint("state/epoch").Append(r.Epoch)
	one("flows", len(r.Flows))
	one("omitted-flows", len(r.Flows)-flows)
	sketchlets := 0
	for range r.All {
		sketchlets++
	}
	one("sketchlets", sketchlets)
	one("switches", switches)
	return b.Table()
}

func flowTable(devices []*device, flows []wire.Flow, counted string) (*table.Table, error) {
	b := table.NewBuilder(flowList)
	key := b.TextKey("flow")
	fields, quality := flowref.Add(b), b.Text("state/quality")
	sent, received, switches := b.Uint("state/packets"), b.Uint("state/received-packets"), b.Text("state/switches")
	for i := range flows {
		f := &flows[i]
		key.AppendText(&f.Key)
		fields.Append(&f.Key)
		quality.Append(counted)
		sent.Append(f.Sent)
		received.Append(f.Received)
		var names []string
		for _, d := range devices {
			if slices.Contains(f.Devices, d.ID) {
				names = append(names, d.name)
			}
		}
		switches.Append(strings.Join(names, " "))
	}
	return b.Table()
}

func hopTables(s *wire.Settings, devices []*device, flows []wire.Flow, sketched string) (hops,
	ranges *table.Table, err error) {
	h := table.NewBuilder(hopList)
	key, name := h.TextKey("flow"), h.TextKey("node")
	fields, quality := flowref.Add(h), h.Text("state/quality")
	carrier, packets, received := h.Bool("state/carrier"), h.Uint("state/packets"), h.Float("state/coverage")
	gap, last := h.Uint("state/gap"), h.Uint("state/last-arrival")
	d := table.NewBuilder(delayList)
	dKey, dName, lower := d.TextKey("flow"), d.TextKey("node"), d.UintKey("lower")
	dFields, dQuality := flowref.Add(d), d.Text("state/quality")
	upper, dPackets := d.Uint("state/upper"), d.Uint("state/packets")
	var binary []byte
	var delays []uint32
	for i := range flows {
		f := &flows[i]
		text := f.Key.String()
		binary = f.Key.AppendBinary(binary[:0])
		for _, x := range devices {
			n, valid := x.sketch.Query(binary)
			carried := slices.Contains(f.Devices, x.ID)
			if !valid || n == 0 && !carried {
				continue
			}
			key.Append(text)
			name.Append(x.name)
			fields.Append(&f.Key)
			quality.Append(sketched)
			carrier.Append(carried)
			packets.Append(uint64(n))
			received.Append(table.Decimal(x.sketch.Received(), 6))
			unit := uint64(1000) << s.Sketch.Unit // ns
			if interval, end, ok := x.sketch.MaxInterval(binary); ok && n > 0 && end > 0 {
				gap.Append(uint64(interval) * unit)
				last.Append(uint64(end-1) * unit)
			}
			delays, _ = x.sketch.Delays(delays[:0], binary)
			for j, n := range delays {
				if n == 0 {
					continue
				}
				low := uint64(0)
				if j > 0 {
					low = uint64(s.Sketch.Delays[j-1]) * 1000
				}
				dKey.Append(text)
				dName.Append(x.name)
				dFields.Append(&f.Key)
				dQuality.Append(sketched)
				lower.Append(low)
				dPackets.Append(uint64(n))
				if j < len(s.Sketch.Delays) {
					upper.Append(uint64(s.Sketch.Delays[j]) * 1000)
				}
			}
		}
	}
	if hops, err = h.Table(); err == nil {
		ranges, err = d.Table()
	}
	return hops, ranges, err
}

func switchTable(devices []*device) (*table.Table, error) {
	b := table.NewBuilder(switchList)
	name, id := b.TextKey("node"), b.Uint("state/device-id")
	interval, columns := b.Uint("state/interval"), b.Uint("state/columns")
	got, received, old := b.Uint("state/received-columns"), b.Float("state/coverage"), b.Uint("state/old-sketchlets")
	for _, d := range devices {
		name.Append(d.name)
		id.Append(uint64(d.ID))
		interval.Append(uint64(d.interval))
		columns.Append(uint64(d.Columns))
		got.Append(uint64(d.sketch.ReceivedColumns()))
		received.Append(table.Decimal(d.sketch.Received(), 6))
		old.Append(d.old)
	}
	return b.Table()
}
