// SPDX-License-Identifier: Apache-2.0

package overtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	testbed "github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/lab"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
)

// edges is the number of edge switches of the paper's testbed.
const edges = 4

// Overhead has the figures about the exchange of a controller with the edge switches: 21 and 22.
func Overhead() suite.Paper {
	return suite.Paper{Subcommand: "overhead", Prefix: "chamelemon-",
		Suites: []suite.Suite{bandwidth(), reconfiguration()}}
}

// bench is an edge switch with the program, and a session with it over TCP whose bytes are counted.
type bench struct {
	network        *lab.Network
	client         *p4rt.Client
	received, sent atomic.Int64 // bytes that the collector received and sent
	packets        uint64
}

// counted is a connection that adds up its bytes.
type counted struct {
	net.Conn
	b *bench
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.b.received.Add(int64(n))
	return n, err
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.b.sent.Add(int64(n))
	return n, err
}

func newBench(ctx context.Context) (*bench, error) {
	program, err := compiled.Load("chamelemon")
	if err != nil {
		return nil, err
	}
	fabric, err := lab.Graph([][2]string{{"edge1", "edge2"}}, 1, time.Microsecond)
	if err != nil {
		return nil, err
	}
	b := &bench{}
	if b.network, err = lab.New(lab.Config{Fabric: fabric, Program: program}); err != nil {
		return nil, err
	}
	d := b.network.Devices()[0]
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		return counted{c, b}, err
	}
	b.client, err = p4rt.Dial(ctx, p4rt.Config{Target: d.Address, DeviceID: d.DeviceID,
		Program:     &p4rt.Program{Name: "chamelemon", DeviceConfig: program.JSON, P4Info: program.P4Info},
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial)}})
	if err == nil {
		err = b.client.WaitReady(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) close() error {
	if b.client != nil {
		return errors.Join(b.client.Close(), b.network.Close())
	}
	return b.network.Close()
}

// registers are the registers that are read in each epoch; without IPv6, only registers that count
// IPv4 packets.
func (b *bench) registers(ipv6 bool) ([]*p4values.Register, error) {
	cat, err := b.client.Catalog()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(cat.Readouts(), func(r *p4values.Register) bool {
		a, _ := r.Annotations.Find("netsketch_chamelemon")
		return !ipv6 && a.Values["family"] == "6"
	}), nil
}

// exchange returns the least bytes of three reads, because the number of bytes depends on which
// frames share a write.
func (b *bench) exchange(ctx context.Context, ipv6 bool) (received, sent int64, err error) {
	received, sent = math.MaxInt64, math.MaxInt64
	for range 3 {
		in, out, err := b.read(ctx, ipv6)
		if err != nil {
			return 0, 0, err
		}
		received, sent = min(received, in), min(sent, out)
	}
	return received, sent, nil
}

// read reads a bank in which packets were counted, and returns the bytes on the connection.
func (b *bench) read(ctx context.Context, ipv6 bool) (received, sent int64, err error) {
	all, err := b.registers(true)
	if err != nil {
		return 0, 0, err
	}
	some, err := b.registers(ipv6)
	if err != nil {
		return 0, 0, err
	}
	const bank = 1
	b.packets++
	for _, r := range some {
		if c := r.Readout.Counter; c != nil {
			if err := b.network.Switch(0).WriteCounter(c.Name, bank, softswitch.CounterData{Packets: b.packets}); err != nil {
				return 0, 0, err
			}
		}
	}
	var names []string
	for _, r := range all {
		names = append(names, r.Name)
	}
	received, sent = b.received.Load(), b.sent.Load()
	_, err = b.client.ReadBanks(ctx, bank, names...)
	return b.received.Load() - received, b.sent.Load() - sent, err
}

// rate is the bandwidth of four edge switches in Mbit/s.
func rate(bytes, epoch float64) float64 { return edges * bytes * 8 / (epoch / 1e3) / 1e6 }

func bandwidth() suite.Suite {
	const x, task, paper = "epoch (ms)", "collection", 317
	families := []struct {
		name string
		ipv6 bool
	}{{"IPv4", false}, {"IPv4 and IPv6", true}}
	at := func(epoch float64) string { return fmt.Sprintf("%s %g", x, epoch) }
	return suite.New(suite.Suite{
		Name: "chamelemon-21",
		Measure: func(ctx context.Context, _ *trace.Trace, _ suite.Options) (rows []suite.Row, err error) {
			b, err := newBench(ctx)
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, b.close()) }()
			if _, _, err := b.read(ctx, true); err != nil { // the earlier contents of the banks are unknown
				return nil, err
			}
			for _, f := range families {
				received, sent, err := b.exchange(ctx, f.ipv6)
				if err != nil {
					return nil, err
				}
				registers, err := b.registers(f.ipv6)
				if err != nil {
					return nil, err
				}
				bits := 0
				for _, r := range registers {
					bits += r.Readout.Cells * r.Width
				}
				for _, l := range []struct {
					structure string
					bytes     float64
				}{{"registers, " + f.name, float64(bits) / 8}, {"read-out, " + f.name, float64(received)},
					{"requests, " + f.name, float64(sent)}} {
					for _, epoch := range []float64{50, 100, 200, 500, 1000} {
						rows = append(rows, suite.Row{Structure: l.structure, Variant: at(epoch), Memory: int(l.bytes), Task: task,
							Metric: "bandwidth", Value: rate(l.bytes, epoch), Unit: "Mbit/s"})
					}
				}
			}
			return rows, nil
		},
	})
}

// reconfigurations is the number of random configurations, as in the paper.
const reconfigurations = 10_000

// configuration returns updates that set random thresholds and a random division, of both families.
// first inserts the entries.
func configuration(r *rand.Rand, shape *testbed.Shape, bit uint64, first bool) (updates []p4rt.Update) {
	put := func(table, action string, match []p4rt.Match, params ...p4rt.Param) {
		e := p4rt.Entry{Table: table, Match: match, Action: action, Params: params}
		if first {
			updates = append(updates, p4rt.Insert(e))
			return
		}
		updates = append(updates, p4rt.Modify(e))
	}
	when := p4rt.Exact("time", p4values.Uint(bit))
	ill := first || r.IntN(2) == 0
	tl := uint64(1)
	if ill {
		tl = 2 + r.Uint64N(100)
	}
	put("ingress.chamelemon.thresholds", "ingress.chamelemon.classify", []p4rt.Match{when},
		p4rt.Uint("th", tl+r.Uint64N(5000)), p4rt.Uint("tl", tl), p4rt.Uint("sample", 1+r.Uint64N(1<<16)),
		p4rt.Uint("seed", r.Uint64N(1<<32)|1))
	for f, suffix := range []string{"", "_ipv6"} {
		ll := 0
		if ill {
			ll = 1 + r.IntN(shape.Down[f]/2)
		}
		hl := 1 + r.IntN(shape.Down[f]-ll)
		at := 0
		for i, buckets := range []int{ll, hl, shape.Up[f] - ll - hl} {
			for _, side := range []string{"ingress", "egress"} {
				if buckets == 0 || side == "egress" && i == 2 {
					continue // packets that leave are only in LL and HL
				}
				put(side+".chamelemon.division"+suffix, side+".chamelemon.encode"+suffix,
					[]p4rt.Match{when, p4rt.Exact("hierarchy", p4values.Uint(uint64(i+1)))},
					p4rt.Uint("first", uint64(at)), p4rt.Uint("buckets", uint64(buckets)))
			}
			at += buckets
		}
	}
	return updates
}

func reconfiguration() suite.Suite {
	const x, task = "share of the reconfigurations (%)", "reconfiguration"
	shares := []float64{1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 99, 100}
	return suite.New(suite.Suite{
		Name: "chamelemon-22",
		Measure: func(ctx context.Context, _ *trace.Trace, o suite.Options) (rows []suite.Row, err error) {
			b, err := newBench(ctx)
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, b.close()) }()
			r, shape := rand.New(rand.NewPCG(o.Seed, 22)), testbed.Paper()
			for bit := range uint64(2) {
				if err := b.client.Write(ctx, configuration(r, &shape, bit, true)...); err != nil {
					return nil, err
				}
			}
			n := reconfigurations
			if o.Decodings > 1 {
				n = min(n, o.Decodings)
			}
			var times []time.Duration
			least, most := 1<<10, 0
			for i := range n {
				c := configuration(r, &shape, uint64(i&1), false)
				least, most = min(least, len(c)), max(most, len(c))
				begin := testbed.ProcessorTime()
				if err := b.client.Write(ctx, c...); err != nil {
					return nil, err
				}
				times = append(times, testbed.ProcessorTime().Sub(begin))
			}
			slices.Sort(times)
			for _, share := range shares {
				i := max(int(share*float64(n)/100)-1, 0)
				rows = append(rows, suite.Row{Structure: "soft switch", Variant: fmt.Sprintf("%s %g", x, share), Task: task,
					Metric: "time", Value: times[i].Seconds() * 1e3, Unit: "ms"})
			}
			return append(rows,
				suite.Row{Structure: "soft switch", Variant: "entries", Task: task, Metric: "fewest", Value: float64(least),
					Unit: "entries"},
				suite.Row{Structure: "soft switch", Variant: "entries", Task: task, Metric: "most", Value: float64(most),
					Unit: "entries"}), nil
		},
	})
}
