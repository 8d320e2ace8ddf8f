// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/test/p4tap"
	"github.com/netsketch/netsketch/internal/test/switchtest"
	"github.com/netsketch/netsketch/p4/bmv2"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/dataplane"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	device   = 3
	patience = 2 * time.Minute
)

// soft is a soft switch behind its services.
type soft struct {
	sw   *softswitch.Switch
	dp   *dataplane.Server
	addr string
}

// compiler compiles each program once for all switches of the tests.
var compiler softswitch.Compiler

func startSoft(t *testing.T, opt dataplane.Options) *soft {
	t.Helper()
	s := &soft{sw: softswitch.New(softswitch.Config{})}
	t.Cleanup(s.sw.Close)
	opt.DeviceID = device
	var err error
	if s.dp, err = dataplane.New(s.sw, opt); err != nil {
		t.Fatal(err)
	}
	p4rtServer := p4rtserver.New(s.sw, p4rtserver.Options{DeviceID: device, Compile: compiler.Compile})
	rpc := grpc.NewServer(p4rtserver.ServerOptions()...)
	p4rtServer.Register(rpc)
	s.dp.Register(rpc)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = rpc.Serve(l) // ends with Stop
	}()
	t.Cleanup(func() {
		p4rtServer.Close()
		if err := s.dp.Close(); err != nil {
			t.Error(err)
		}
		rpc.Stop()
		<-done
	})
	return s
}

func connect(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func open(t *testing.T, addr string) *dataplane.Client {
	t.Helper()
	c, err := dataplane.Open(t.Context(), connect(t, addr), device)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// program pushes the forwarding program and a route to each port from 1 to 9.
func program(t *testing.T, addr string) (*p4rt.Client, *p4tap.Tap) {
	t.Helper()
	p, err := compiled.Load("forwarding")
	if err != nil {
		t.Fatal(err)
	}
	cat, err := p4values.NewCatalog(p.P4Info)
	if err != nil {
		t.Fatal(err)
	}
	tap := p4tap.New(cat, device, 1)
	c, err := p4rt.Dial(t.Context(), p4rt.Config{
		Target: addr, DeviceID: device, DialOptions: tap.DialOptions(),
		Program: &p4rt.Program{Name: p.Name, DeviceConfig: p.JSON, P4Info: p.P4Info},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	var entries []p4rt.Entry
	for port := byte(1); port < 10; port++ {
		entries = append(entries, p4rt.Entry{
			Table: "ipv4_lpm", Match: []p4rt.Match{p4rt.Prefix("hdr.ipv4.dst",
				netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, port, 0}), 24))},
			Action: "ingress.forwarding.forward", Params: []p4rt.Param{
				p4rt.Uint("port", uint64(port)), p4rt.Bytes("src_mac", []byte{2, 0, 0, 0, 0, 1}),
				p4rt.Bytes("dst_mac", []byte{2, 0, 0, 0, 0, port}),
			},
		})
	}
	if err := c.Reconcile(t.Context(), p4rt.Desired{Entries: entries}); err != nil {
		t.Fatal(err)
	}
	return c, tap
}

// frame is an IPv4 packet to 10.0.PORT.1.
func frame(port byte, payload int) []byte {
	f := append(make([]byte, 12), 8, 0)
	h := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, port, 1}
	binary.BigEndian.PutUint16(h[2:], uint16(20+payload))
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum>>16+sum&0xffff))
	return append(append(f, h...), make([]byte, payload)...)
}

func next(t *testing.T, c *dataplane.Client) dataplane.Packet {
	t.Helper()
	select {
	case p, ok := <-c.Packets():
		if !ok {
			t.Fatalf("the stream has ended: %v", c.Err())
		}
		return p
	case <-time.After(patience):
		t.Fatal("nothing left the switch")
	}
	panic("not reached")
}

// TestEitherSwitch makes the same checks on both switches: an injected packet leaves with its id,
// by ports that no configuration names, until a port is down.
func TestEitherSwitch(t *testing.T) {
	t.Run("soft switch", func(t *testing.T) {
		s := startSoft(t, dataplane.Options{})
		conform(t, s.addr, s.addr)
	})
	t.Run("BMv2", func(t *testing.T) {
		sw, err := bmv2.Start(t.Context(), bmv2.Config{DeviceID: device})
		if errors.Is(err, bmv2.ErrNotInstalled) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(sw.Close)
		conform(t, sw.P4Runtime(), sw.DataPlane())
	})
}

func conform(t *testing.T, p4runtime, data string) {
	early, err := dataplane.Open(t.Context(), connect(t, data), device)
	if err == nil {
		<-early.Packets()
		err = early.Err()
		early.Close()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a stream before there is a pipeline: %v", err)
	}
	_, controller := program(t, p4runtime)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	c, err := switchtest.OpenDataPlane(ctx, connect(t, data), device, 1, frame(1, 50))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 200 {
		port := byte(1 + i%9)
		in := frame(port, i)
		if err := c.Inject(100, in, uint64(i)); err != nil {
			t.Fatal(err)
		}
		p := next(t, c)
		want := bytes.Clone(in)
		copy(want, []byte{2, 0, 0, 0, 0, port, 2, 0, 0, 0, 0, 1})
		want[22]--
		want[24]++ // the TTL is one lower, so the checksum's high byte is one higher
		if p.ID != uint64(i) || p.Port != uint32(port) || !bytes.Equal(p.Frame, want) {
			t.Fatalf("packet %d to port %d left as %d by port %d:\n% x, want\n% x", i, port, p.ID, p.Port, p.Frame,
				want)
		}
	}
	second, err := dataplane.Open(t.Context(), connect(t, data), device)
	if err == nil {
		<-second.Packets()
		err = second.Err()
		second.Close()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a second stream: %v", err)
	}

	send := func() {
		t.Helper()
		err := controller.PacketOut(frame(4, 1), p4tap.Field{Name: "op", Value: []byte{0}},
			p4tap.Field{Name: "egress_port", Value: []byte{8}}, p4tap.Field{Name: "object", Value: []byte{0}},
			p4tap.Field{Name: "bank", Value: []byte{0}}, p4tap.Field{Name: "index", Value: []byte{0}},
			p4tap.Field{Name: "seq", Value: []byte{0}})
		if err != nil {
			t.Fatal(err)
		}
	}
	send()
	if p := next(t, c); p.Port != 8 || p.ID != 0 {
		t.Errorf("a packet-out left by port %d with id %d", p.Port, p.ID)
	}

	if err := c.SetPortUp(t.Context(), 2, false); err != nil {
		t.Fatal(err)
	}
	if err := c.Inject(100, frame(2, 7), 2); err != nil { // lost
		t.Fatal(err)
	}
	if err := c.SetPortUp(t.Context(), 3, true); err != nil {
		t.Fatal(err)
	}
	if err := c.Inject(100, frame(3, 8), 3); err != nil {
		t.Fatal(err)
	}
	if p := next(t, c); p.Port != 3 && data == p4runtime { // BMv2 sends by ports that are down
		t.Errorf("a packet left by port %d, which is down", p.Port)
	}
}

func TestCloseSendDeliversTheRest(t *testing.T) {
	s := startSoft(t, dataplane.Options{})
	program(t, s.addr)
	c := open(t, s.addr)
	const packets = 3000
	sent := make(chan error, 1)
	go func() {
		for i := range packets {
			if err := c.Inject(0, frame(byte(1+i%9), 20), uint64(i+1)); err != nil {
				sent <- err
				return
			}
		}
		sent <- c.CloseSend()
	}()
	n := 0
	for p := range c.Packets() {
		if n++; p.ID != uint64(n) {
			t.Fatalf("packet %d has id %d", n, p.ID)
		}
	}
	if err := errors.Join(<-sent, c.Err()); err != nil || n != packets {
		t.Errorf("%d packets of %d, %v", n, packets, err)
	}
	if again := open(t, s.addr); again.Inject(0, frame(1, 1), 9) != nil || next(t, again).ID != 9 {
		t.Error("a stream after the first does not work")
	}
}

// A client that does not read delays its own packets and no others.
func TestClientThatDoesNotRead(t *testing.T) {
	s := startSoft(t, dataplane.Options{Queue: 4})
	controller, _ := program(t, s.addr)
	c := open(t, s.addr)
	stuck := make(chan error, 1)
	go func() {
		for {
			if err := c.Inject(0, frame(1, 1000), 1); err != nil {
				stuck <- err
				return
			}
		}
	}()
	for deadline := time.Now().Add(patience); s.dp.Dropped() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the queue never filled")
		}
		s.sw.Inject(5, frame(2, 1000), s.sw.Now())
	}
	if err := controller.SetDefaultAction(t.Context(), "ecmp_seed", "choose_member", p4rt.Uint("seed", 3)); err != nil {
		t.Error(err)
	}
	c.Close()
	if err := <-stuck; err == nil {
		t.Error("the client's stream was closed, and takes packets")
	}
}

func TestRefusals(t *testing.T) {
	s := startSoft(t, dataplane.Options{Ports: []uint32{1, 2}})
	program(t, s.addr)
	conn := connect(t, s.addr)
	for _, tc := range []struct {
		name   string
		device uint64
		port   uint32
		wants  string
	}{
		{"another device", 99, 1, "there is no device 99 here; this is device 3"},
		{"no such port", device, 7, "port 7: not found"},
	} {
		c, err := dataplane.Open(t.Context(), conn, tc.device)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Inject(tc.port, frame(1, 1), 1); err != nil {
			t.Fatal(err)
		}
		if p, ok := <-c.Packets(); ok || status.Code(c.Err()) != codes.InvalidArgument ||
			!strings.Contains(c.Err().Error(), tc.wants) {
			t.Errorf("%s: %v, %v", tc.name, p, c.Err())
		}
		if err := c.SetPortUp(t.Context(), tc.port, true); status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), tc.wants) {
			t.Errorf("%s, state of the port: %v", tc.name, err)
		}
		for err = nil; err == nil; {
			err = c.Inject(tc.port, frame(1, 1), 1)
		}
		if !strings.Contains(err.Error(), tc.wants) {
			t.Errorf("%s: injecting after the end: %v", tc.name, err)
		}
		c.Close()
	}
	if _, err := dataplane.New(s.sw, dataplane.Options{Ports: []uint32{5, 2}}); !errors.Is(err, softswitch.ErrExists) {
		t.Errorf("a port that is there: %v", err)
	}
	if _, err := s.sw.PortStatus(5); !errors.Is(err, softswitch.ErrNotFound) {
		t.Errorf("a server that was refused leaves port 5: %v", err)
	}
}
