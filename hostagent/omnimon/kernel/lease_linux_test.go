// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/lease"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// driver earns and keeps leases for a path, as the agent does.
type driver struct {
	path *Path
	done chan struct{}
	idle sync.WaitGroup

	mu        sync.Mutex
	prober    *lease.Prober
	responder lease.Responder
}

func drive(t testing.TB, path *Path) *driver {
	d := &driver{path: path, done: make(chan struct{}), prober: lease.New(lease.Config{})}
	p, ok := path.Peering()
	if !ok {
		t.Fatal("a path without peers")
	}
	d.prober.SetPeering(path.Now(), p)
	d.prober.SetOnline(path.Now(), true)
	path.OnProbe(func(r lease.Received) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if reply, ok := d.responder.Answer(path.Now(), r); ok {
			_ = path.Send(reply)
		}
		d.prober.Received(path.Now(), r)
	})
	d.idle.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-d.done:
				return
			case <-tick.C:
				d.work()
			}
		}
	})
	return d
}

func (d *driver) work() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.prober.Due(d.path.Now()) {
		_ = d.path.Send(p)
	}
	d.path.SetLeases(d.prober.Leases(d.path.Now()))
}

// end ends the agent: nothing renews or answers any more.
func (d *driver) end() {
	close(d.done)
	d.idle.Wait()
	d.path.OnProbe(func(lease.Received) {})
}

// coarse is more than the kernel's coarse clock is late.
const coarse = 20 * time.Millisecond

// leases is the count of addresses of another host to which a host may tag packets.
func (d *driver) leases(host int) (n int) {
	d.path.mu.Lock()
	defer d.path.mu.Unlock()
	t, now := d.path.tables, d.path.Now()-coarse
	for _, v6 := range []bool{false, true} {
		if time.Duration(t.lease(t.numbers[address(byte(host), v6)]).Until) > now {
			n++
		}
	}
	return n
}

// allLeases are leases for all addresses of settings, for packets of any length, without an end.
func allLeases(s *wire.Settings) (all []lease.Lease) {
	for host, addresses := range s.Hosts {
		for _, a := range addresses {
			all = append(all, lease.Lease{Peer: lease.Peer{Host: host, Address: a}, MaxLength: math.MaxInt32,
				Until: math.MaxInt64})
		}
	}
	return all
}

// TestNoAgentAtPeer: a host sends to a peer whose agent was never there, is there, and has gone
// together with its programs. All packets arrive. The host tags packets while the peer's programs
// strip them, and reports its other packets by flow.
func TestNoAgentAtPeer(t *testing.T) {
	for _, carrier := range []wire.Carrier{wire.CarrierShim, wire.CarrierOption, wire.CarrierTunnel} {
		t.Run(string(carrier), func(t *testing.T) {
			p := newPair(t)
			change := func(_ *Config, s *wire.Settings) { s.Carrier = carrier }
			p.open(0, change)
			p.paths[0].SetLeases(nil)
			a := drive(t, p.paths[0])
			defer a.end()
			both := func() {
				t.Helper()
				p.transfer(1<<18, false)
				p.transfer(1<<18, true)
			}
			both()
			if s := p.seal(0, 100); s.sent != 0 || s.untagged.Packets == 0 || s.untagged.Bytes < 1<<19 ||
				s.counters[wire.NoLease] != s.untagged.Packets {
				t.Errorf("without an agent at the peer: %d packets tagged, %+v not; counters %v", s.sent, s.untagged, s.counters)
			}
			p.open(1, change)
			p.paths[1].SetLeases(nil)
			b := drive(t, p.paths[1])
			testkit.Until(t, "both hosts have leases", func() bool { return a.leases(1)+b.leases(0) == 4 })
			p.paths[0].Advance(102)
			p.paths[1].Advance(102)
			both()
			sent, received := p.seal(0, 102), p.seal(1, 102)
			for index, v := range sent.egress {
				if got := received.ingress[[2]uint32{0, index}]; got != v {
					t.Errorf("flow %d: sent %v, received %v", index, v, got)
				}
			}
			if sent.sent == 0 || sent.untagged.Packets != 0 || sent.counters[wire.Malformed]+sent.counters[wire.NoRoom] != 0 {
				t.Errorf("with leases: %d packets tagged, %+v not; counters %v", sent.sent, sent.untagged, sent.counters)
			}
			b.end()
			if err := p.paths[1].Close(); err != nil { // the programs of the path are gone
				t.Fatal(err)
			}
			p.paths[1] = nil
			testkit.Until(t, "the leases for the peer end", func() bool { return a.leases(1) == 0 })
			p.paths[0].Advance(110)
			both()
			if s := p.seal(0, 110); s.sent != 0 || s.untagged.Packets == 0 {
				t.Errorf("after the agent of the peer: %d packets tagged, %+v not", s.sent, s.untagged)
			}
		})
	}
}
