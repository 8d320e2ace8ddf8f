// SPDX-License-Identifier: Apache-2.0

package host

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	hostepoch "github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/hostv1"
)

// readBuffer is the receive buffer in bytes. It must hold a datagram of every host, because the
// clocks of all hosts begin an epoch at the same time.
const readBuffer = 4 << 20

// datagrams sends and receives epochs over UDP. The agent receives its session's key over the gRPC
// stream.
type datagrams struct {
	conn *net.UDPConn

	mu       sync.Mutex
	sessions map[uint64]*channel
	ids      map[*session]uint64
}

// channel is the UDP end of a session.
type channel struct {
	s       *session
	key     []byte
	address netip.AddrPort // address of the agent; invalid before its first datagram
}

func (c *Component) listenUDP(at net.Addr) (*datagrams, error) {
	tcp := at.(*net.TCPAddr)
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: tcp.IP, Port: tcp.Port, Zone: tcp.Zone})
	if err != nil {
		return nil, fmt.Errorf("cannot listen on UDP port %d of agents.address: %w", tcp.Port, err)
	}
	_ = conn.SetReadBuffer(readBuffer) // the system may allow less
	return &datagrams{conn: conn, sessions: map[uint64]*channel{}, ids: map[*session]uint64{}}, nil
}

// open makes a key for a session.
func (d *datagrams) open(s *session) *hostv1.UDP {
	b := make([]byte, 8+32)
	_, _ = rand.Read(b) // never fails
	id := binary.BigEndian.Uint64(b)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sessions[id], d.ids[s] = &channel{s: s, key: b[8:]}, id
	port := d.conn.LocalAddr().(*net.UDPAddr).Port
	return &hostv1.UDP{Port: uint32(port), Session: id, Key: b[8:]}
}

func (d *datagrams) forget(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sessions, d.ids[s])
	delete(d.ids, s)
}

// send sends an epoch to an agent, and reports whether it succeeded.
func (d *datagrams) send(s *session, number uint64) bool {
	d.mu.Lock()
	id := d.ids[s]
	x := d.sessions[id]
	if x == nil || !x.address.IsValid() {
		d.mu.Unlock()
		return false
	}
	address, key := x.address, x.key
	d.mu.Unlock()
	b := hostepoch.Datagram{Session: id, Down: true, Epoch: number}.Append(make([]byte, 0, hostepoch.DatagramSize), key)
	_, err := d.conn.WriteToUDPAddrPort(b, address)
	return err == nil
}

// receive reads datagrams until close. It ignores datagrams that are not authentic.
func (d *datagrams) receive() {
	b := make([]byte, hostepoch.DatagramSize+1)
	for {
		n, from, err := d.conn.ReadFromUDPAddrPort(b)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		switch s, number := d.take(b[:n], from); {
		case s == nil:
		case number > 0:
			s.epochBegan(number)
		default: // the datagram only shows the agent's address
			d.send(s, s.c.newest.Load())
		}
	}
}

// take verifies a datagram, and records the sender's address.
func (d *datagrams) take(b []byte, from netip.AddrPort) (*session, uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, err := hostepoch.OpenDatagram(b, func(id uint64) []byte {
		if x := d.sessions[id]; x != nil {
			return x.key
		}
		return nil
	})
	if err != nil || m.Down {
		return nil, 0
	}
	x := d.sessions[m.Session]
	if x.address != from {
		x.address = from
		x.s.agent.usesUDP()
	}
	return x.s, m.Epoch
}

func (d *datagrams) close() { _ = d.conn.Close() }
