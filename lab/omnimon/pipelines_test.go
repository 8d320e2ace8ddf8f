// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
	"github.com/netsketch/netsketch/plugins/omnimon/analysis"
)

// The layout of the program omnimon (docs/omnimon-p4.md).
const (
	words    = 12
	arrived  = 8192 * words
	departed = arrived + 512
	cpuPort  = 255

	statistics = 7
)

// pipelines are soft switches with the compiled program, their sessions and an epoch engine.
type pipelines struct {
	t        *testing.T
	switches []*softswitch.Switch
	devices  []*device.Device
	clock    *epoch.Virtual
	engine   *epoch.Engine
	left     []departure // departures of the packet that is being processed
}

type departure struct {
	port  uint32
	frame []byte
}

// portOf is the port of a switch that a link ends or begins at: hosts first, then switches.
func portOf(sw, link int) uint32 {
	l := links[link]
	if int(l.From) == sw {
		l.From, l.To = l.To, l.From
	}
	switch {
	case l.From != analysis.Host && sw < leaves:
		return uint32(hosts/leaves + 1 + int(l.From) - leaves)
	case l.From != analysis.Host:
		return uint32(1 + l.From)
	}
	for h := range hosts {
		if linkIDs[[2]int{h, hosts + sw}] == link&^1 && h/3 == sw {
			return uint32(1 + h%3)
		}
	}
	return 0
}

// first is the first epoch of a test.
const first = 10

func newPipelines(t *testing.T) *pipelines {
	t.Helper()
	origin := time.Unix(0, 0)
	at := origin.Add((first - 1) * length * time.Millisecond)
	p := &pipelines{t: t, clock: epoch.NewVirtual(at, 2*time.Minute)}
	cfg := epoch.Config{Interval: length * time.Millisecond, Deadline: length * time.Millisecond, Origin: origin}
	p.engine = epoch.New(cfg, epoch.Dependencies{Clock: p.clock})
	group := banks.New(banks.Config{Interval: cfg.Interval}, p.clock)
	t.Cleanup(func() { group.Stop(); p.engine.Shutdown() })
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	for i := range switches {
		d := p.start(ctx, i)
		p.devices = append(p.devices, d)
		p.engine.Add(group.Add(d))
	}
	if missing := group.WaitJoined(ctx); missing != nil {
		t.Fatalf("%v did not join", missing)
	}
	if err := p.engine.Open(ctx, at, p.wait); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pipelines) wait(context.Context, time.Duration) error { return nil }

// compiler compiles each program once for all switches of the tests.
var compiler softswitch.Compiler

// start starts a switch and its session, with its routes.
func (p *pipelines) start(ctx context.Context, i int) *device.Device {
	t := p.t
	t.Helper()
	// On the wall clock a timer would serve the queues.
	sw := softswitch.New(softswitch.Config{CPUPort: cpuPort, Clock: func() time.Duration { return 0 }})
	t.Cleanup(func() { sw.Close() })
	for port := range uint32(8) {
		if err := sw.AddPort(port, softswitch.Port{Tx: func(pkt []byte, _ time.Duration) {
			p.left = append(p.left, departure{port, slices.Clone(pkt)})
		}}); err != nil {
			t.Fatal(err)
		}
	}
	p.switches = append(p.switches, sw)
	server := p4rtserver.New(sw, p4rtserver.Options{DeviceID: 1, Compile: compiler.Compile})
	t.Cleanup(func() { server.Close() })
	rpc := grpc.NewServer(p4rtserver.ServerOptions()...)
	server.Register(rpc)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = rpc.Serve(l) // ends with Stop
	}()
	t.Cleanup(func() { rpc.Stop(); <-done })

	program, err := compiled.Load("omnimon")
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{}, 1)
	d, err := device.New(device.Config{Name: fmt.Sprintf("s%d", i), Session: p4rt.Config{Target: l.Addr().String(),
		DeviceID: 1, Program: &p4rt.Program{Name: program.Name, DeviceConfig: program.JSON, P4Info: program.P4Info}}},
		device.Dependencies{OnChange: func(d *device.Device) {
			if _, err := d.Ready(); err == nil {
				select {
				case ready <- struct{}{}:
				default:
				}
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	select {
	case <-ready:
	case <-ctx.Done():
		t.Fatalf("switch %d: %v", i, ctx.Err())
	}
	if err := d.Reconcile(ctx, p4rt.Desired{Entries: routes(i)}); err != nil {
		t.Fatal(err)
	}
	return d
}

// routes are the forwarding entries of a switch.
func routes(sw int) (out []p4rt.Entry) {
	forward := func(port uint32) []p4rt.Param {
		return []p4rt.Param{p4rt.Uint("port", uint64(port)), p4rt.Uint("src_mac", 1), p4rt.Uint("dst_mac", 2)}
	}
	for m := range spines {
		if sw < leaves {
			out = append(out, p4rt.Entry{Table: "ecmp_members", Match: []p4rt.Match{p4rt.Exact("meta.ecmp_group", []byte{1}),
				p4rt.Exact("meta.ecmp_member", []byte{byte(m)})}, Action: "forward",
				Params: forward(portOf(sw, linkIDs[[2]int{hosts + sw, hosts + leaves + m}]))})
		}
	}
	for h := range hosts {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(h + 1)}), 32)
		e := p4rt.Entry{Table: "ipv4_lpm", Match: []p4rt.Match{p4rt.Prefix("hdr.ipv4.dst", prefix)}, Action: "forward"}
		switch {
		case h/3 == sw:
			e.Params = forward(portOf(sw, linkIDs[[2]int{hosts + sw, h}]))
		case sw < leaves:
			e.Action, e.Params = "ecmp", []p4rt.Param{p4rt.Uint("group", 1), p4rt.Uint("size", spines)}
		default:
			e.Params = forward(portOf(sw, linkIDs[[2]int{hosts + sw, hosts + h/3}]))
		}
		out = append(out, e)
	}
	return out
}

func (p *pipelines) values() int    { return statistics }
func (p *pipelines) extremes() bool { return false }

// receive passes a packet to a switch and takes what the switch sends. To make the switch lose the
// packet, receive sets its TTL to 1.
func (p *pipelines) receive(sw int, f *packet.Frame, link, next int, lose bool) {
	if lose {
		ip := f.Bytes()[14+layout.Size():]
		ip[8] = 1
		sumIPv4(ip[:20])
	}
	p.left = p.left[:0]
	p.switches[sw].Inject(portOf(sw, link), f.Bytes(), 0)
	switch {
	case lose && len(p.left) == 0:
	case !lose && len(p.left) == 1 && p.left[0].port == portOf(sw, next):
		f.Set(p.left[0].frame)
	default:
		p.t.Fatalf("switch %d: a packet for port %d left as %v", sw, portOf(sw, next), p.left)
	}
}

// close closes the engine's epoch, which reads the switches.
func (p *pipelines) close(e uint64) []epoch.Outcome {
	end := time.Unix(0, 0).Add(time.Duration(e) * length * time.Millisecond)
	p.clock.AdvanceTo(end)
	ep, err := p.engine.Close(context.Background(), end, p.wait)
	if err != nil {
		p.t.Fatal(err)
	}
	if ep.Number != e || ep.Status != epoch.Complete || len(ep.Warnings) > 0 {
		p.t.Fatalf("epoch %d instead of %d is %v, warnings %v, sources %+v", ep.Number, e, ep.Status, ep.Warnings, ep.Sources)
	}
	return ep.Sources
}

// collect adds what the switches counted in an epoch.
func (p *pipelines) collect(e uint64, in *analysis.Epoch) {
	for sw, o := range p.close(e) {
		for _, cells := range o.Reading.Objects {
			if cells.Object != "omnimon_counts" {
				continue
			}
			var recorded []int64
			for i := range slots * statistics {
				recorded = append(recorded, int64(cells.At(i/statistics*words+i%statistics)))
			}
			in.Recorded = append(in.Recorded, recorded)
			for i, l := range links {
				if int(l.To) == sw {
					in.Arrived[i] += int64(cells.At(arrived + int(portOf(sw, i))))
				}
				if int(l.From) == sw {
					in.Departed[i] += int64(cells.At(departed + int(portOf(sw, i))))
				}
			}
		}
	}
}

// sumIPv4 sets the checksum of an IPv4 header.
func sumIPv4(h []byte) {
	h[10], h[11] = 0, 0
	var sum uint32
	for i := 0; i < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum))
}
