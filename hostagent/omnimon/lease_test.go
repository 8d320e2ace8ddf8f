// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/lease"
	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

var carriers = []wire.Carrier{wire.CarrierShim, wire.CarrierOption, wire.CarrierTunnel}

// leased returns hosts that tag packets only with a lease, on interfaces with an MTU of 1,500.
func leased(t *testing.T, change func(*wire.Settings)) *network {
	n := newNetwork(t, change)
	for _, r := range n.hosts {
		r.NeedLeases(1500, nil)
	}
	n.now = time.Time{}.Add(time.Hour)
	return n
}

// grant gives a host a lease for an address.
func (n *network) grant(host int, address string, length int, lasts time.Duration) {
	n.hosts[host].SetLeases([]lease.Lease{{Peer: lease.Peer{Address: netip.MustParseAddr(address)}, MaxLength: length,
		Until: n.hosts[host].Now() + lasts}})
}

// TestTagsWithLeaseOnly: a packet leaves as it is without a lease, after its end, or if it is too
// long with the carrier; its flow says so.
func TestTagsWithLeaseOnly(t *testing.T) {
	for _, c := range carriers {
		n := leased(t, func(s *wire.Settings) { s.Carrier = c })
		overhead := n.hosts[0].layout.Overhead(false)
		data := make([]byte, 100)
		frame := tcpFrame("10.0.0.1", "10.0.0.2", 1, 2, 0, data)
		other := tcpFrame("10.0.0.1", "10.0.0.3", 1, 2, 0, data)
		sends := func(what string, frame []byte, want bool) {
			t.Helper()
			if got := !bytes.Equal(n.out(0, frame).Bytes(), frame); got != want {
				t.Errorf("%s: %s: tagged %v, want %v", c, what, got, want)
			}
		}
		sends("no lease", frame, false)
		n.grant(0, "10.0.0.2", 140+overhead, time.Second)
		sends("with a lease", frame, true)
		sends("a byte too long", tcpFrame("10.0.0.1", "10.0.0.2", 1, 2, 0, make([]byte, 101)), false)
		sends("a lease for another address", other, false)
		n.now = n.now.Add(time.Second - 1)
		sends("at the end of the lease", frame, true)
		n.now = n.now.Add(1)
		sends("after the lease", frame, false)
		n.grant(0, "10.0.0.2", 1500, time.Second)
		n.grant(0, "10.0.0.3", 1500, time.Second) // replaces it
		sends("a lease that was revoked", frame, false)
		sends("of another address", other, true)
		got := n.seal(0, 100)
		const flow = "10.0.0.1,10.0.0.2,tcp,1,2"
		if got.egress[flow][wire.Packets] != 2 || got.untagged[flow] != (wire.Untagged{Packets: 4, Bytes: 3*140 + 141}) ||
			got.Counters[wire.NoLease] != 4 || got.Counters[wire.NoRoom] != 1 {
			t.Errorf("%s: %v with, %v without a header, counters %v", c, got.egress[flow], got.untagged[flow], got.Counters)
		}
		if got.untagged["10.0.0.1,10.0.0.3,tcp,1,2"].Packets != 1 || len(got.egress) != 2 {
			t.Errorf("%s: rows %v, without a header %v", c, got.egress, got.untagged)
		}
	}
}

// TestEveryCarrierArrives: a host removes each carrier, whatever its own settings say.
func TestEveryCarrierArrives(t *testing.T) {
	for _, from := range carriers {
		for _, to := range carriers {
			n := newNetwork(t, nil)
			for host, c := range []wire.Carrier{from, to} {
				s := defaults(host)
				s.Carrier = c
				apply(t, n.hosts[host], s)
			}
			for i, frame := range [][]byte{
				tcpFrame("10.0.0.1", "10.0.0.2", 1, 2, packet.ACK, []byte("data")),
				tcpFrame("2001:db8::1", "2001:db8::2", 1, 2, packet.ACK, []byte("data")),
			} {
				f := n.out(0, frame)
				if bytes.Equal(f.Bytes(), frame) {
					t.Fatalf("%s: not tagged", from)
				}
				n.in(1, f)
				if i == 0 { // the IPv4 checksum of the test's frame is wrong, and removing the carrier updates it
					frame = bytes.Clone(frame)
					copy(frame[24:26], f.Bytes()[24:26])
				}
				if !bytes.Equal(f.Bytes(), frame) {
					t.Errorf("%s to %s: %x arrived as %x", from, to, frame, f.Bytes())
				}
			}
			got := n.seal(1, 100)
			if len(got.ingress) != 2 || got.ingress[[2]int{0, 0}] != (wire.Values{1, 44, 0, 0, 0, 1}) ||
				got.ingress[[2]int{0, 1}] != (wire.Values{1, 64, 0, 0, 0, 1}) {
				t.Errorf("%s to %s: received %v, counters %v", from, to, got.ingress, got.Counters)
			}
		}
	}
}

// TestProbes: probes of known hosts reach the agent and nothing else; nothing counts them.
func TestProbes(t *testing.T) {
	for _, c := range carriers {
		n := leased(t, func(s *wire.Settings) { s.Carrier = c })
		q := lease.Probe{Message: lease.Message{Kind: lease.KindProbe, Flags: lease.FlagCarrier, Nonce: lease.Nonce{7}},
			Source: netip.MustParseAddr("10.0.0.1"), Destination: netip.MustParseAddr("10.0.0.2"),
			SourcePort: lease.FirstPort + 3, Length: 1000}
		if n.hosts[0].Probe(q) != nil {
			t.Fatal("a probe to an address whose link layer is not known")
		}
		plain := tcpFrame("10.0.0.1", "10.0.0.2", 1, 2, 0, nil)
		n.in(1, n.out(0, plain))
		frame := n.hosts[0].Probe(q)
		if want := 14 + 1000 + n.hosts[0].layout.Overhead(false); len(frame) != want {
			t.Fatalf("%s: a probe of %d bytes, want %d", c, len(frame), want)
		}
		link, _ := packet.ParseLink(frame)
		var h header.Header
		if err := n.hosts[0].layout.Peek(frame, link, &h); err != nil || h.Hops != header.Probe || h.Epoch != 100 ||
			h.HostIndex != header.MaxHostIndex {
			t.Fatalf("%s: %+v, %v", c, h, err)
		}
		for hops := range 3 { // switches count
			at := bytes.Index(frame, []byte{0xff, 0xff, 0xff, header.Probe})
			passed := bytes.Clone(frame)
			passed[at+3] += byte(hops)
			f := packet.NewFrame(passed)
			n.in(1, f)
			got := n.hosts[1].TakeProbes()
			if !f.Dropped() || len(got) != 1 || !got[0].Carried || int(got[0].CarrierHops) != hops ||
				got[0].Nonce != q.Nonce || got[0].SourcePort != q.SourcePort || got[0].Length != 1000 || got[0].Source != q.Source {
				t.Fatalf("%s: %+v, dropped %v", c, got, f.Dropped())
			}
			var x lease.Responder
			reply, _ := x.Answer(0, got[0])
			back := packet.NewFrame(n.hosts[1].Probe(reply))
			n.in(0, back)
			answers := n.hosts[0].TakeProbes()
			if !back.Dropped() || len(answers) != 1 || answers[0].Flags != lease.FlagCarrier || int(answers[0].Hops) != hops {
				t.Fatalf("%s: answers %+v", c, answers)
			}
		}
		twin := q
		twin.Flags = 0
		f := packet.NewFrame(n.hosts[0].Probe(twin))
		n.in(1, f)
		if got := n.hosts[1].TakeProbes(); !f.Dropped() || len(got) != 1 || got[0].Carried {
			t.Errorf("%s: twin %+v", c, got)
		}
		for what, change := range map[string]func(*lease.Probe){
			"an unknown source":  func(p *lease.Probe) { p.Source = netip.MustParseAddr("10.0.0.9") },
			"its own address":    func(p *lease.Probe) { p.Source = netip.MustParseAddr("10.0.0.2") },
			"to another address": func(p *lease.Probe) { p.Destination = netip.MustParseAddr("10.0.0.3") },
		} {
			other := twin
			change(&other)
			f := packet.NewFrame(other.AppendPacket(bytes.Clone(plain[:14])))
			before := bytes.Clone(f.Bytes())
			n.in(1, f)
			if got := n.hosts[1].TakeProbes(); f.Dropped() || len(got) != 0 || !bytes.Equal(f.Bytes(), before) {
				t.Errorf("%s: a probe with %s was taken: %+v", c, what, got)
			}
		}
		got := n.seal(1, 100)
		want := [wire.Counters]uint64{wire.NoHeader: 4} // with the packet that was sent without a lease
		if got.Counters != want || len(got.ingress) != 0 {
			t.Errorf("%s: counters %v, rows %v", c, got.Counters, got.ingress)
		}
	}
}

// TestMSS: connections between hosts with agents leave room for the carrier, in both directions.
func TestMSS(t *testing.T) {
	syn := func(src, dst string, mss uint16) []byte {
		f := tcpFrame(src, dst, 1, 2, packet.SYN, []byte{2, 4, byte(mss >> 8), byte(mss)})
		at := 14 + 20
		if netip.MustParseAddr(src).Is6() {
			at = 14 + 40
		}
		f[at+12] = 6 << 4 // the payload is an option
		return f
	}
	mssOf := func(frame []byte) int { return int(binary.BigEndian.Uint16(frame[len(frame)-2:])) }
	for _, c := range carriers {
		for _, keep := range []bool{false, true} {
			n := leased(t, func(s *wire.Settings) { s.Carrier, s.KeepMSS = c, keep })
			l := n.hosts[0].layout
			for _, tc := range []struct {
				src, dst string
				headers  int
			}{{"10.0.0.1", "10.0.0.2", 40}, {"2001:db8::1", "2001:db8::2", 60}} {
				want := 1500 - tc.headers - l.Overhead(tc.headers == 60)
				if keep {
					want = 1460
				}
				f := n.out(0, syn(tc.src, tc.dst, 1460))
				if got := mssOf(f.Bytes()); got != want {
					t.Errorf("%s, keep %v: sent an MSS of %d, want %d", c, keep, got, want)
				}
				f = packet.NewFrame(syn(tc.src, tc.dst, 1460))
				n.in(1, f)
				if got := mssOf(f.Bytes()); got != want {
					t.Errorf("%s, keep %v: received an MSS of %d, want %d", c, keep, got, want)
				}
			}
			if got := mssOf(n.out(0, syn("10.0.0.1", "10.9.0.1", 1460)).Bytes()); got != 1460 {
				t.Errorf("an MSS of %d to a host without agent", got)
			}
			if got := mssOf(n.out(0, syn("10.0.0.1", "10.0.0.2", 500)).Bytes()); got != 500 {
				t.Errorf("an MSS of 500 became %d", got)
			}
		}
	}
}

// TestForgedEpochs: packets from addresses of no host, or far ahead of the host's clock, do not
// move a host; nor do many packets, each a little ahead of the one before.
func TestForgedEpochs(t *testing.T) {
	for _, scheduled := range []bool{false, true} {
		n := newNetwork(t, nil)
		limit := uint64(104)
		if scheduled {
			n.clocks[1].Scheduled()
			limit = 101
		}
		good := n.out(0, tcpFrame("10.0.0.1", "10.0.0.2", 1, 2, 0, nil)).Bytes()
		arrives := func(epoch int, source byte) {
			f := packet.NewFrame(good)
			binary.BigEndian.PutUint16(f.Bytes()[14:], uint16(epoch))
			f.Bytes()[14+12+12] = source
			n.in(1, f)
			if len(f.Bytes()) != len(good)-12 {
				t.Errorf("epoch %d: the header was not removed", epoch)
			}
		}
		for e := 101; e < 126; e++ {
			arrives(e, 9)
		}
		if n.clocks[1].Current() != 100 {
			t.Errorf("an address of no host moved the epoch to %d", n.clocks[1].Current())
		}
		for e := 101; e < 126; e++ {
			arrives(e, 10)
		}
		if n.clocks[1].Current() != limit {
			t.Errorf("scheduled %v: packets moved the epoch to %d, want %d", scheduled, n.clocks[1].Current(), limit)
		}
		got := n.seal(1, limit)
		if refused := got.Counters[wire.UnknownEpoch]; refused != 125-limit {
			t.Errorf("scheduled %v: %d packets of unknown epochs, want %d", scheduled, refused, 125-limit)
		}
	}
}

// TestLate: packets that arrive after the report of their epoch are counted by it.
func TestLate(t *testing.T) {
	n := newNetwork(t, nil)
	frames := map[uint64]*packet.Frame{}
	for e := uint64(100); e < 200; e++ {
		n.clocks[0].Advance(e)
		frames[e] = n.out(0, tcpFrame("10.0.0.1", "10.0.0.2", 1, 2, 0, nil))
		n.clocks[1].Advance(e + 1)
		if g := n.hosts[1].Seal(e); g != nil {
			g.Release()
		}
	}
	n.clocks[1].Advance(300)
	for e := uint64(100); e < 200; e++ {
		for range e%3 + 1 {
			n.in(1, packet.NewFrame(frames[e].Bytes()))
		}
	}
	got := n.seal(1, 300)
	if len(got.Late) != wire.MaxLate || got.Counters[wire.Late] != 200 {
		t.Fatalf("%d late packets of %d epochs", got.Counters[wire.Late], len(got.Late))
	}
	for i, l := range got.Late {
		if l != (wire.LateEpoch{Epoch: 100 + uint64(i), Packets: (100+uint64(i))%3 + 1}) {
			t.Errorf("late %+v", l)
		}
	}
}

// TestIdleUDP: flows of UDP end before those of TCP.
func TestIdleUDP(t *testing.T) {
	n := newNetwork(t, func(s *wire.Settings) { s.IdleEpochs, s.UDPIdleEpochs, s.Flows = 40, 5, 64 })
	udp := tcpFrame("10.0.0.1", "10.0.0.2", 3, 4, 0, nil)
	udp[14+9] = packet.ProtocolUDP
	n.out(0, tcpFrame("10.0.0.1", "10.0.0.2", 1, 2, 0, nil))
	n.out(0, udp)
	used := map[uint64]int{}
	for e := uint64(100); e < 160; e++ {
		n.seal(0, e)
		used[e] = n.hosts[0].table.used()
	}
	if used[104] != 2 || used[112] != 1 || used[138] != 1 || used[159] != 0 {
		t.Error(fmt.Sprint("flows by epoch ", used))
	}
}

// TestWanted: a role names each address to which it has sent packets since the last call once, with
// or without a lease, and no other one.
func TestWanted(t *testing.T) {
	n := leased(t, nil)
	role := n.hosts[0]
	send := func(to string) { n.out(0, tcpFrame("10.0.0.1", to, 1, 2, 0, nil)) }
	expect := func(want ...string) {
		t.Helper()
		var got []string
		for _, peer := range role.Wanted() {
			got = append(got, peer.Address.String())
			if a := role.hosts.lookup(peer.Address); a == nil || int(a.host) != peer.Host {
				t.Errorf("%s is said to belong to host %d", peer.Address, peer.Host)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("wanted %s, want %v", got, want)
		}
	}
	expect()
	n.grant(0, "10.0.0.2", 1500, time.Second)
	for range 3 {
		send("10.0.0.2")
		send("10.0.0.3")
		send("10.0.0.99") // has no agent
	}
	expect("10.0.0.2", "10.0.0.3")
	expect()
	send("10.0.0.3")
	n.grant(0, "10.0.0.3", 1500, time.Second)
	expect("10.0.0.3")
	send("10.0.0.3")
	s := defaults(0)
	s.Seed++ // restarts the table
	apply(t, role, s)
	expect()
	send("10.0.0.2")
	expect("10.0.0.2")
}
