// SPDX-License-Identifier: Apache-2.0

// Switch processes, the links between them, and numbered packets.

package faults

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/p4/softswitch/dataplane"
)

// devices are the switches of every trial: h1 - leaf1 - spine1 - leaf2 - h2.
var devices = []string{"leaf1", "leaf2", "spine1"}

// port is a port of a switch.
type port struct {
	device string
	number uint32
}

// links are both directions of each link.
var links = map[port]port{
	{"leaf1", 1}: {"spine1", 1}, {"spine1", 1}: {"leaf1", 1},
	{"leaf2", 1}: {"spine1", 2}, {"spine1", 2}: {"leaf2", 1},
}

// network moves packets between the switch processes, over their gRPC ports.
type network struct {
	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup

	mu       sync.Mutex
	clients  map[string]*dataplane.Client // clients with an open stream
	injected map[string]uint64            // packets that arrived at a switch
	sent     uint64                       // packets that h1 sent
	received uint64                       // packets that h2 received
	paused   bool
}

// device is a switch process.
type device struct {
	*process
	name, address string
	id            int
}

// startSwitch starts the process of a device, again after it has ended.
func (t *trial) startSwitch(d *device) {
	t.Helper()
	d.process = t.start(d.name, t.bin.netsketch, append([]string{"switch", "--name", d.name, "--listen", d.address,
		"--device-id", strconv.Itoa(d.id), "--grpc-ports", "4"}, t.needs.switchFlags...)...)
	testkit.Until(t, d.name+" listens", func() bool { return listening(d.address) || !d.running() })
	if !d.running() {
		t.Fatalf("%s has ended: %s", d.name, d.text())
	}
}

// startNetwork starts the switches and the links; packets flow from the first pipeline on.
func (t *trial) startNetwork() {
	t.Helper()
	n := &network{clients: map[string]*dataplane.Client{}, injected: map[string]uint64{}, paused: true}
	n.ctx, n.stop = context.WithCancel(context.Background())
	t.network = n
	for i, name := range devices {
		d := &device{name: name, address: freeAddress(t), id: i + 1}
		t.devices[name] = d
		t.startSwitch(d)
		n.work.Go(func() { n.attach(d) })
	}
	n.work.Go(n.traffic)
	t.Cleanup(func() {
		n.stop()
		n.work.Wait()
	})
}

// attach keeps a packet stream to a switch open.
func (n *network) attach(d *device) {
	conn, err := grpc.NewClient(d.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
	if err != nil {
		panic(err) // the address is well-formed
	}
	defer conn.Close()
	for n.ctx.Err() == nil {
		if c, err := dataplane.Open(n.ctx, conn, uint64(d.id)); err == nil {
			n.set(d.name, c)
			for p := range c.Packets() {
				n.leave(port{d.name, p.Port}, p.Frame)
			}
			n.set(d.name, nil)
			c.Close()
		}
		conn.ResetConnectBackoff()
		select {
		case <-n.ctx.Done():
		case <-time.After(20 * time.Millisecond): // the next attempt
		}
	}
}

func (n *network) set(device string, c *dataplane.Client) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clients[device] = c
}

// arrive lets a packet arrive at a switch; without a stream to it, it is lost on the link.
func (n *network) arrive(p port, frame []byte) {
	n.mu.Lock()
	c := n.clients[p.device]
	n.mu.Unlock()
	if c == nil || c.Inject(p.number, frame, 0) != nil {
		return
	}
	n.mu.Lock()
	n.injected[p.device]++
	n.mu.Unlock()
}

// leave takes a packet that leaves a switch.
func (n *network) leave(p port, frame []byte) {
	if peer, ok := links[p]; ok {
		n.arrive(peer, frame)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.received++
}

// traffic sends packets of 40 flows from h1 to h2.
func (n *network) traffic() {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for i := uint16(0); ; i++ {
		select {
		case <-n.ctx.Done():
			return
		case <-tick.C:
		}
		n.mu.Lock()
		paused := n.paused
		if !paused {
			n.sent++
		}
		n.mu.Unlock()
		if paused {
			continue
		}
		n.arrive(port{"leaf1", 2}, traffic.BuildFrame(traffic.FrameSpec{
			Src: netip.MustParseAddr("10.0.1.1"), Dst: netip.MustParseAddr("10.0.2.1"), Proto: 17,
			SrcPort: 1000 + i%40, DstPort: 53, Length: 100,
		}))
	}
}

// counts is a snapshot of a network's counters.
type counts struct {
	sent, received uint64
	injected       map[string]uint64
}

func (n *network) counts() counts {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := counts{n.sent, n.received, map[string]uint64{}}
	for d, v := range n.injected {
		c.injected[d] = v
	}
	return c
}

func (n *network) pause(paused bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paused = paused
}

// attached reports whether packets can enter all switches.
func (n *network) attached() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range devices {
		if n.clients[d] == nil {
			return false
		}
	}
	return true
}

// lost formats a count of a total.
func lost(missing, total uint64, what string) string {
	return fmt.Sprintf("%d of %d %s", missing, total, what)
}
