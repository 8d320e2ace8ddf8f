// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// EpochLength is the paper's epoch length. The traffic of an epoch does not depend on it.
const EpochLength = 50 * time.Millisecond

// Config is the size of a testbed.
type Config struct {
	Seed  uint64
	Edges int    // edge switches with two hosts each; 0 means the paper's 4
	Shape *Shape // shape of every edge switch; nil means the paper's shape
	// BankShift is added to an epoch's number; the sum's lowest bit is the epoch's time bit.
	BankShift uint64
}

// Scaled returns the shape for a network with 1/n of the flows.
func (z Shape) Scaled(n int) *Shape {
	out := &Shape{Small: z.Small / n, Large: z.Large / n}
	for f := range families {
		out.Up[f], out.Down[f] = z.Up[f]/n, z.Down[f]/n
	}
	return out
}

// Testbed is a network of edge switches, which measure, and hosts.
type Testbed struct {
	shape  Shape
	shift  uint64
	cols   columns
	edges  []*edge
	hosts  []host
	rng    *rand.Rand
	number uint64
	plans  []sdk.Plan // plans for future epochs
	order  []int32
}

const hostsPerEdge = 2

// EdgeName returns the name of an edge switch, counted from 0.
func EdgeName(i int) string { return fmt.Sprintf("edge%d", i+1) }

// New returns a testbed in which no epoch has begun and no table has an entry.
func New(c Config) *Testbed {
	if c.Edges == 0 {
		c.Edges = 4
	}
	t := &Testbed{shape: Paper(), shift: c.BankShift, rng: rand.New(rand.NewPCG(c.Seed, 0x6368616d656c656d))}
	if c.Shape != nil {
		t.shape = *c.Shape
	}
	t.cols = t.shape.columns()
	for i := range c.Edges {
		t.edges = append(t.edges, &edge{name: EdgeName(i), shape: &t.shape, ports: make(map[string]bool)})
		for h := range hostsPerEdge {
			t.hosts = append(t.hosts, host{
				name: fmt.Sprintf("h%d%d", i+1, h+1), edge: i,
				addr: [families]netip.Addr{
					netip.AddrFrom4([4]byte{10, byte(i), byte(h), 2}),
					netip.AddrFrom16([16]byte{0xfd, 0, 0, byte(i), 0, byte(h), 15: 2}),
				},
			})
		}
	}
	return t
}

// Network returns the testbed as a plugin's settings describe it; each host has its own prefix. One
// switch stands for all switches between the edges, which measure nothing.
func (t *Testbed) Network() sdk.Network {
	n := sdk.Network{Version: 1}
	for i, e := range t.edges {
		n.Devices = append(n.Devices, sdk.Device{Name: e.name, Role: "edge", Program: "chamelemon",
			Objects: t.shape.objects()})
		for h := range hostsPerEdge {
			x := &t.hosts[i*hostsPerEdge+h]
			n.Hosts = append(n.Hosts, sdk.Host{Name: x.name,
				Addresses: []string{netip.PrefixFrom(x.addr[0], 24).Masked().String(),
					netip.PrefixFrom(x.addr[1], 48).Masked().String()}})
			n.Links = append(n.Links, sdk.Link{A: sdk.Endpoint{Node: x.name},
				B: sdk.Endpoint{Node: e.name, Port: uint32(1 + h)}})
		}
	}
	n.Devices = append(n.Devices, sdk.Device{Name: "core1", Role: "transit", Program: "forwarding"})
	return n
}

// Number returns the number of the latest recorded epoch, 0 before the first.
func (t *Testbed) Number() uint64 { return t.number }

// Bit returns the time bit of an epoch.
func (t *Testbed) Bit(epoch uint64) uint64 { return (epoch + t.shift) & 1 }

// Setting returns the content of an edge switch's tables for a value of the time bit.
func (t *Testbed) Setting(edge int, bit uint64) Setting { return t.edges[edge].set[bit&1] }

// HasPort reports whether an edge switch's table of entry or exit ports has an entry.
func (t *Testbed) HasPort(edge int, table string, port uint32) bool {
	return t.edges[edge].ports[fmt.Sprint(table, " ", port)]
}

// Apply writes a plan now.
func (t *Testbed) Apply(p sdk.Plan) error {
	for i := range p.Writes {
		w := &p.Writes[i]
		at := slices.IndexFunc(t.edges, func(e *edge) bool { return e.name == w.Device })
		if at < 0 {
			return fmt.Errorf("a write to %q, which is not an edge switch", w.Device)
		}
		if err := t.edges[at].apply(w); err != nil {
			return err
		}
	}
	return nil
}

// Plan schedules plans; each is written before the epoch that it is for. A plan decided from epoch
// N is for epoch N+2 and is written during epoch N+1.
func (t *Testbed) Plan(plans ...sdk.Plan) { t.plans = append(t.plans, plans...) }

// bursts is the largest number of bursts into which a flow's packets are divided.
const bursts = 8

// Record sends flows through the network in the next epoch and returns what the edge switches have
// measured. A flow's packets come in up to eight bursts of equal size, which are in random order
// with the bursts of all other flows; the packets of a burst are consecutive. A victim's lost
// packets are random among its packets.
func (t *Testbed) Record(flows []Flow) (*sdk.Epoch, error) {
	if err := t.begin(); err != nil {
		return nil, err
	}
	t.order = t.order[:0]
	for i := range flows {
		x := &flows[i]
		x.start(&t.cols)
		x.burst = (x.Packets + bursts - 1) / bursts
		for range (x.Packets + x.burst - 1) / max(x.burst, 1) {
			t.order = append(t.order, int32(i))
		}
	}
	t.rng.Shuffle(len(t.order), func(i, j int) { t.order[i], t.order[j] = t.order[j], t.order[i] })
	for _, i := range t.order {
		x := &flows[i]
		t.send(x, min(x.burst, x.left), func(part, all, lost int64) int64 { return among(t.rng, part, all, lost) })
	}
	for i := range flows {
		t.finish(&flows[i])
	}
	return t.seal(), nil
}

// begin begins the next epoch with the plans scheduled for it.
func (t *Testbed) begin() error {
	t.number++
	var err error
	t.plans = slices.DeleteFunc(t.plans, func(p sdk.Plan) bool {
		if p.FromEpoch > t.number || err != nil {
			return false
		}
		err = t.Apply(p)
		return true
	})
	for _, e := range t.edges {
		e.clear()
	}
	return err
}

// start prepares a flow for its first packet.
func (x *Flow) start(c *columns) {
	x.hash = c.hashes(x.Raw)
	x.left, x.leftLost = x.Packets, x.Lost
	x.LostHeavy, x.LostLight = 0, 0
	x.in, x.out = [codes]int64{}, [codes]int64{}
}

// send passes the next n packets of a flow in one burst. lose draws how many of the next part
// packets are lost, if lost of the all remaining packets are.
func (t *Testbed) send(x *Flow, n int64, lose func(part, all, lost int64) int64) {
	s := &t.edges[x.Entry].set[t.Bit(t.number)]
	by := t.edges[x.Entry].classify(&x.hash, s, n)
	for code, k := range by {
		if k == 0 {
			continue
		}
		lost := lose(k, x.left, x.leftLost)
		x.left, x.leftLost = x.left-k, x.leftLost-lost
		x.in[code] += k
		x.out[min(code, codeHL)] += k - lost
		switch code {
		case codeHL, codeHH:
			x.LostHeavy += lost
		case codeLL:
			x.LostLight += lost
		}
	}
}

// finish encodes a flow by its classification. Encoding after the flow's last packet is correct,
// because sums do not depend on the order of packets.
func (t *Testbed) finish(x *Flow) {
	f := x.hash.family
	in, out, bit := t.edges[x.Entry], t.edges[x.Exit], t.Bit(t.number)
	up, down := &in.set[bit].Up[f], &out.set[bit].Down[f]
	for code := codeLL; code < codes; code++ {
		encode(in.up[f], &x.hash, t.shape.Up[f], up[code], x.in[code])
		encode(out.down[f], &x.hash, t.shape.Down[f], down[code], x.out[code])
	}
}

// seal ends the epoch and returns it.
func (t *Testbed) seal() *sdk.Epoch {
	start := time.Unix(1_700_000_000, 0).Add(time.Duration(t.number) * EpochLength)
	e := &sdk.Epoch{Number: t.number, BankShift: t.shift, Start: start, End: start.Add(EpochLength),
		Status: sdk.StatusComplete}
	for _, x := range t.edges {
		e.Expected = append(e.Expected, x.name)
		x.put(e)
	}
	return e
}
