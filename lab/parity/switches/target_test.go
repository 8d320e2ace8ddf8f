// SPDX-License-Identifier: Apache-2.0

package switches

import (
	"context"
	"errors"
	"net"
	"testing"

	"google.golang.org/grpc"

	"github.com/netsketch/netsketch/p4/bmv2"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/dataplane"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
)

const (
	deviceID = 1
	cpuPort  = 255
)

// target is a switch without a program.
type target struct {
	name      string
	p4runtime string // addresses
	data      string

	// addToSet adds to a value set where P4Runtime does not; nil where it does.
	addToSet func(ctx context.Context, name string, value []byte) error

	setQueues func(ctx context.Context, port uint32, rate uint64, depth int) error // sets rate and depth of a port's queue

	// soFar returns the numbers of processed packets and of their results; nil if the switch
	// does not report them.
	soFar func() progress
}

// progress counts what a switch has done since it received its program.
type progress struct{ in, left, packetIns, digests int }

func startSoft(t *testing.T) *target {
	t.Helper()
	sw := softswitch.New(softswitch.Config{CPUPort: cpuPort})
	t.Cleanup(sw.Close)
	var ports []uint32
	for n := range uint32(barrierPort + 1) {
		ports = append(ports, n)
	}
	data, err := dataplane.New(sw, dataplane.Options{DeviceID: deviceID, Ports: ports})
	if err != nil {
		t.Fatal(err)
	}
	control := p4rtserver.New(sw, p4rtserver.Options{DeviceID: deviceID, StreamQueue: 1 << 14})
	rpc := grpc.NewServer(p4rtserver.ServerOptions()...)
	control.Register(rpc)
	data.Register(rpc)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = rpc.Serve(l) // ends with Stop
	}()
	t.Cleanup(func() {
		control.Close()
		if err := data.Close(); err != nil {
			t.Error(err)
		}
		rpc.Stop()
		<-done
	})
	soFar := func() progress {
		s := sw.Stats()
		p := progress{in: int(s.Packets), packetIns: int(s.PacketIns), digests: int(s.Digests)}
		for _, port := range sw.Ports() {
			p.left += int(port.Counters.OutPackets)
		}
		return p
	}
	return &target{"soft switch", l.Addr().String(), l.Addr().String(), nil, softQueues(sw), soFar}
}

// startBMv2 returns nil where BMv2 is not installed.
func startBMv2(t *testing.T) *target {
	t.Helper()
	sw, err := bmv2.Start(t.Context(), bmv2.Config{DeviceID: deviceID, CPUPort: cpuPort})
	if errors.Is(err, bmv2.ErrNotInstalled) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-sw.Ended():
			t.Errorf("BMv2 has died:\n%s", sw.Log())
		default:
		}
		sw.Close()
	})
	return &target{"BMv2", sw.P4Runtime(), sw.DataPlane(), sw.AddToValueSet, sw.SetQueues, nil}
}
