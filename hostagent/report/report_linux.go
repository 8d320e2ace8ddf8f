// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/role"
)

const (
	// batch is the largest count of datagrams that one system call reads.
	batch = 64
	// bufferBytes is the receive buffer of a socket: 400 ms of 200,000 small datagrams a second.
	bufferBytes = 64 << 20
	// maxDatagram is the largest payload of UDP.
	maxDatagram = 1<<16 - 1
)

// socket is one socket with its batch of datagrams.
type socket struct {
	conn      *net.UDPConn
	reader    *ipv4.PacketConn // reads batches of either IP version
	messages  []ipv4.Message
	datagrams []role.Datagram
	stats     Stats
}

// open opens a socket. The first one chooses the port if the address has port 0.
func open(address string) (*socket, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = setUp(int(fd)) }), err)
	}}
	c, err := config.ListenPacket(context.Background(), "udp", address)
	if err != nil {
		return nil, fmt.Errorf("telemetry reports: %w", err)
	}
	conn := c.(*net.UDPConn)
	s := &socket{conn: conn, reader: ipv4.NewPacketConn(conn), messages: make([]ipv4.Message, batch),
		datagrams: make([]role.Datagram, batch)}
	for i := range s.messages {
		s.messages[i].Buffers, s.messages[i].OOB = [][]byte{make([]byte, maxDatagram)}, make([]byte, unix.CmsgSpace(4))
	}
	return s, nil
}

func setUp(fd int) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bufferBytes) != nil { // needs CAP_NET_ADMIN
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bufferBytes) // the kernel may allow less
	}
	return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1))
}

// next waits for datagrams and returns the ones that have arrived. They are valid until the next
// call.
func (s *socket) next() ([]role.Datagram, error) {
	n, err := s.reader.ReadBatch(s.messages, 0)
	if err != nil {
		return nil, err
	}
	for i := range n {
		m := &s.messages[i]
		from := netip.IPv6Unspecified()
		if a, ok := m.Addr.(*net.UDPAddr); ok {
			from = a.AddrPort().Addr().Unmap().WithZone("")
		}
		s.datagrams[i] = role.Datagram{From: from, Payload: m.Buffers[0][:m.N]}
	}
	if n > 0 {
		s.stats.Received += uint64(n)
		s.dropped(&s.messages[n-1])
	}
	return s.datagrams[:n], nil
}

// dropped reads the count of datagrams that the kernel dropped before this one, modulo 2^32.
func (s *socket) dropped(m *ipv4.Message) {
	messages, err := unix.ParseSocketControlMessage(m.OOB[:m.NN])
	if err != nil {
		return
	}
	for _, c := range messages {
		if c.Header.Level == unix.SOL_SOCKET && c.Header.Type == unix.SO_RXQ_OVFL && len(c.Data) >= 4 {
			s.stats.Dropped += uint64(binary.NativeEndian.Uint32(c.Data) - uint32(s.stats.Dropped))
		}
	}
}

// Run receives until ctx ends.
func (r Receiver) Run(ctx context.Context, roles ...Path) (Stats, error) {
	sockets, err := r.open()
	defer func() {
		for _, s := range sockets {
			s.conn.Close()
		}
	}()
	if err != nil {
		return Stats{}, err
	}
	return serve(ctx, sockets, roles)
}

// serve receives from open sockets until ctx ends.
func serve(ctx context.Context, sockets []*socket, roles []Path) (Stats, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	errs := make([]error, len(sockets))
	for i, s := range sockets {
		stop := context.AfterFunc(ctx, func() { _ = s.conn.SetReadDeadline(time.Now()) })
		defer stop()
		work.Go(func() {
			defer cancel()
			errs[i] = s.run(roles)
		})
	}
	work.Wait()
	var total Stats
	for _, s := range sockets {
		total.Received += s.stats.Received
		total.Dropped += s.stats.Dropped
	}
	return total, errors.Join(errs...)
}

// run passes datagrams on until the deadline of the socket.
func (s *socket) run(roles []Path) error {
	for {
		datagrams, err := s.next()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return fmt.Errorf("telemetry reports on %v: %w", s.conn.LocalAddr(), err)
		}
		for _, p := range roles {
			p.Receive(datagrams)
		}
	}
}

// open opens all sockets. On an error it returns the sockets that are open.
func (r Receiver) open() (sockets []*socket, err error) {
	address := r.Address
	for range max(r.Sockets, 1) {
		s, err := open(address)
		if err != nil {
			return sockets, err
		}
		sockets = append(sockets, s)
		address = s.conn.LocalAddr().String()
	}
	if r.Logger != nil {
		r.Logger.Info("receiving telemetry reports", "address", address, "sockets", len(sockets))
	}
	return sockets, nil
}

// Check returns what would make Run fail.
func (r Receiver) Check() error {
	r.Logger = nil
	sockets, err := r.open()
	for _, s := range sockets {
		s.conn.Close()
	}
	return err
}
