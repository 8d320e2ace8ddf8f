// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/netsketch/netsketch/lab/switchgnmi"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/lldp"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
)

// backend is the switch of a node: a soft switch of this process, or BMv2.
type backend interface {
	// services registers the switch's services; gnmi reports whether it serves gNMI next to
	// P4Runtime.
	services(rpc *grpc.Server) (gnmi bool, err error)
	serverOptions() []grpc.ServerOption
	// inject delivers a frame to a port. It returns when all copies have left by the node's wires.
	inject(port uint32, frame []byte, at time.Duration)
	// drops returns the packets that the switch has dropped so far, by reason.
	drops() dropCounts
	// neighbor delivers an LLDP frame to a port.
	neighbor(port uint32, frame []byte, at time.Duration)
	// speak runs the switch's control software, such as LLDP, until ctx ends.
	speak(ctx context.Context)
	// watch calls changed when a port is disabled, or enabled again, by its configuration.
	watch(port uint32, changed func(disabled bool))
	disabled(port uint32) (bool, error)
	setPortUp(port uint32, up bool) error
	portUp(port uint32) bool
	// close frees everything; the services have stopped.
	close() error
}

// linkSpeed is the speed that the emulated ports report, in bits a second.
const linkSpeed = 10_000_000_000

// soft is a soft switch with its servers.
type soft struct {
	net  *Network
	nd   *node
	sw   *softswitch.Switch
	p4rt *p4rtserver.Server
	gnmi *switchgnmi.Server
	lldp *lldp.Agent
}

// PortName is the name of a soft switch's port.
func PortName(port uint32) string { return fmt.Sprintf("Ethernet%d", port) }

func (n *Network) newSoft(nd *node, seed uint64) (*soft, error) {
	log := n.log.With("switch", nd.spec.Name)
	s := &soft{net: n, nd: nd, sw: softswitch.New(softswitch.Config{Name: nd.spec.Name, Clock: n.clock.Now, Seed: seed,
		Drop: nd.queue, Depart: nd.depart, Logger: log})}
	for port, w := range nd.out {
		err := s.sw.AddPort(port, n.cfg.Fabric.Queue.port(PortName(port),
			func(pkt []byte, at time.Duration) { n.leave(nd, w, pkt, at) }))
		if err != nil {
			s.sw.Close()
			return nil, fmt.Errorf("port %d: %w", port, err)
		}
	}
	if nd.depth > 0 {
		nd.lines = map[uint32]*line{}
		for port := range nd.out {
			nd.lines[port] = new(line)
		}
	}
	s.lldp = lldp.New(s.sw, lldp.Config{
		SystemName: nd.spec.Name, SystemDescription: "netsketch soft switch in a lab",
		Management: netip.AddrFrom4([4]byte{127, 0, 0, 1}),
		Logger:     log,
	})
	return s, nil
}

func (s *soft) serverOptions() []grpc.ServerOption { return p4rtserver.ServerOptions() }

func (s *soft) services(rpc *grpc.Server) (bool, error) {
	log := s.net.log.With("switch", s.nd.spec.Name)
	unconfigured := slices.Contains(s.net.cfg.Unconfigured, s.nd.spec.Name)
	s.p4rt = p4rtserver.New(s.sw, p4rtserver.Options{DeviceID: s.nd.deviceID, NoDeviceID: unconfigured, Logger: log,
		Compile: s.net.cfg.Compiler.Compile})
	s.p4rt.Register(rpc)
	var err error
	s.gnmi, err = switchgnmi.New(s.sw, switchgnmi.Options{
		Name: s.nd.spec.Name, DeviceID: s.nd.deviceID, LLDP: s.lldp, Interval: time.Second,
		SetDeviceID: s.p4rt.SetDeviceID, Unconfigured: unconfigured, Logger: log,
	})
	if err != nil {
		return false, fmt.Errorf("gNMI: %w", err)
	}
	s.gnmi.Register(rpc)
	return true, nil
}

func (s *soft) inject(port uint32, frame []byte, at time.Duration) { s.sw.Inject(port, frame, at) }

func (s *soft) drops() dropCounts {
	c := s.sw.Stats()
	return dropCounts{
		dropNoProgram: c.NoProgramDrops, dropTrap: c.Trapped, dropTooLong: c.TooLong, dropGroup: c.GroupDrops,
		dropQueue: c.QueueDrops, dropPort: c.NoPortDrops, dropLoop: c.LoopDrops,
		dropEgress: c.EgressDrops, dropIngress: c.IngressDrops,
	}
}

func (s *soft) neighbor(port uint32, frame []byte, at time.Duration) { s.sw.Inject(port, frame, at) }

func (s *soft) speak(ctx context.Context) { s.lldp.Run(ctx) }

func (s *soft) watch(port uint32, changed func(disabled bool)) {
	s.sw.WatchPorts(func(st softswitch.PortStatus) {
		if st.ID == port && !st.Removed {
			changed(st.Disabled)
		}
	})
}

func (s *soft) disabled(port uint32) (bool, error) {
	st, err := s.sw.PortStatus(port)
	return st.Disabled, err
}

func (s *soft) setPortUp(port uint32, up bool) error { return s.sw.SetPortUp(port, up) }

func (s *soft) portUp(port uint32) bool { return s.sw.PortUp(port) }

func (s *soft) close() error {
	var errs []error
	s.lldp.Close()
	if s.gnmi != nil {
		errs = append(errs, s.gnmi.Close(context.Background()))
	}
	if s.p4rt != nil {
		s.p4rt.Close()
	}
	s.sw.Close()
	return errors.Join(errs...)
}
