// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Streams of numbered packets, and the result of each packet.

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/netsketch/netsketch/internal/checksum"
	"golang.org/x/sys/unix"
)

const (
	packetRate = 50 // packets a second of each stream
	udpPort    = 7000
	tcpPort    = 7001
	// margin is the time around a lost packet of the control pair in which the path counts as broken.
	margin = 100 * time.Millisecond
)

// in runs f in the network namespace of a host: what f opens belongs to that namespace.
func in(host string, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread is never unlocked: it ends with the goroutine, and its namespace with it
		space, err := os.Open("/run/netns/" + host)
		if err != nil {
			result <- err
			return
		}
		defer space.Close()
		if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("namespace %s: %w", host, err)
			return
		}
		result <- f()
	}()
	return <-result
}

// stream is numbered packets from one host to another.
type stream struct {
	name     string
	from, to string // hosts
	id       uint32
	size     int // bytes of the IP packet
	ping     bool
	conn     net.PacketConn
	target   net.Addr
	port     uint16 // source port

	mu      sync.Mutex
	sent    []time.Time // times of sending, by number
	arrived []int       // number of received copies, by packet number
	refused map[int]error
	damaged int
}

// payload is the content of packet number n: its number, and bytes that follow from it.
func (s *stream) payload(n int) []byte {
	b := make([]byte, s.length())
	binary.BigEndian.PutUint32(b, s.id)
	binary.BigEndian.PutUint64(b[4:], uint64(n))
	for i := 12; i < len(b); i++ {
		b[i] = byte(i*7 + n)
	}
	return b
}

// length is the length of the payload: without the IP header and 8 bytes of UDP or ICMP.
func (s *stream) length() int {
	if address(s.from, s.six()).Is6() {
		return s.size - 48
	}
	return s.size - 28
}

func (s *stream) six() bool { return s.name[0] == '6' }

// send sends the next packet.
func (s *stream) send() {
	s.mu.Lock()
	n := len(s.sent)
	s.sent = append(s.sent, time.Now())
	s.arrived = append(s.arrived, 0)
	s.mu.Unlock()
	b := s.payload(n)
	if s.ping {
		b = echo(s.id, n, b)
	}
	if _, err := s.conn.WriteTo(b, s.target); err != nil {
		s.mu.Lock()
		s.refused[n] = err
		s.mu.Unlock()
	}
}

// take counts an arrived payload.
func (s *stream) take(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int(binary.BigEndian.Uint64(b[4:]))
	if n >= len(s.arrived) || !bytes.Equal(b, s.payload(n)) {
		s.damaged++
		return
	}
	s.arrived[n]++
}

// echo is an ICMP echo request.
func echo(id uint32, n int, payload []byte) []byte {
	b := append([]byte{8, 0, 0, 0, byte(id >> 8), byte(id), byte(n >> 8), byte(n)}, payload...)
	binary.BigEndian.PutUint16(b[2:], ^checksum.Sum(0, b))
	return b
}

// count counts the packets of streams by their result.
type count struct{ sent, lost, outage, refused, copies, damaged int }

func (c *count) add(d count) {
	c.sent += d.sent
	c.lost += d.lost
	c.outage += d.outage
	c.refused += d.refused
	c.copies += d.copies
	c.damaged += d.damaged
}

// account distinguishes packets that telemetry lost from those lost while the control stream lost
// packets, too. control is nil for the control stream itself, whose packets all count as lost.
func (s *stream) account(control *stream) (c count, lostAt []time.Time) {
	var outages []time.Time
	if control != nil {
		control.mu.Lock()
		for n, copies := range control.arrived {
			if copies == 0 {
				outages = append(outages, control.sent[n])
			}
		}
		control.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.sent, c.damaged = len(s.sent), s.damaged
	for n, copies := range s.arrived {
		c.copies += max(0, copies-1)
		if copies > 0 {
			continue
		}
		at := s.sent[n]
		i, _ := slices.BinarySearchFunc(outages, at.Add(-margin), time.Time.Compare)
		if i < len(outages) && outages[i].Before(at.Add(margin)) {
			c.outage++
			continue
		}
		c.lost++
		if s.refused[n] != nil {
			c.refused++
		}
		lostAt = append(lostAt, at)
	}
	return c, lostAt
}

// traffic is all streams of the case.
type traffic struct {
	mu      sync.Mutex
	streams map[uint32]*stream
	tcp     []*transfer
	stop    chan struct{}
	senders sync.WaitGroup
}

func newTraffic() *traffic { return &traffic{streams: map[uint32]*stream{}, stop: make(chan struct{})} }

// listen receives the packets of all streams to a host.
func (t *traffic) listen(host string) error {
	return in(host, func() error {
		for _, six := range []bool{false, true} {
			at := netip.AddrPortFrom(address(host, six), udpPort)
			c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
			if err != nil {
				return err
			}
			if err := bigBuffer(c); err != nil {
				return err
			}
			go t.receive(c, 0)
			l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(address(host, six), tcpPort)))
			if err != nil {
				return err
			}
			go serve(l)
		}
		return nil
	})
}

func bigBuffer(c syscall.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	}), err)
}

// receive counts what arrives at a socket. skip is the length of the header in front of the
// payload.
func (t *traffic) receive(c net.PacketConn, skip int) {
	b := make([]byte, 1<<16)
	for {
		n, _, err := c.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < skip+12 || skip > 0 && b[0] != 0 { // 0 is an echo reply
			continue
		}
		t.mu.Lock()
		s := t.streams[binary.BigEndian.Uint32(b[skip:])]
		t.mu.Unlock()
		if s != nil {
			s.take(b[skip:n])
		}
	}
}

// open prepares a stream.
func (t *traffic) open(name, from, to string, size int) (*stream, error) {
	s := &stream{name: name, from: from, to: to, size: size, refused: map[int]error{}}
	s.ping = name[1] == 'p'
	t.mu.Lock()
	s.id = uint32(len(t.streams)) + 1
	t.streams[s.id] = s
	t.mu.Unlock()
	return s, in(from, func() error {
		target := netip.AddrPortFrom(address(to, s.six()), udpPort)
		if s.ping {
			c, err := net.ListenPacket("ip4:icmp", address(from, false).String())
			if err != nil {
				return err
			}
			s.conn, s.target = c, &net.IPAddr{IP: target.Addr().AsSlice()}
			go t.receive(c, 8)
			return bigBuffer(c.(*net.IPConn))
		}
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(address(from, s.six()), 0)))
		if err != nil {
			return err
		}
		s.conn, s.target = c, net.UDPAddrFromAddrPort(target)
		s.port = uint16(c.LocalAddr().(*net.UDPAddr).Port)
		return nil
	})
}

// start sends packets of a stream until the traffic stops, or until it has sent the given number.
func (t *traffic) start(s *stream, packets int) {
	t.senders.Go(func() {
		tick := time.NewTicker(time.Second / packetRate)
		defer tick.Stop()
		for n := 0; packets == 0 || n < packets; n++ {
			select {
			case <-t.stop:
				return
			case <-tick.C:
				s.send()
			}
		}
	})
}

// transfer is TCP between two hosts: one connection throughout, and a short one each second.
type transfer struct {
	from, to string
	six      bool

	mu      sync.Mutex
	bytes   int64
	stall   time.Duration // longest time without progress
	short   int           // short connections that ended well
	slowest time.Duration // slowest short connection
	errs    []error
}

func (x *transfer) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.errs = append(x.errs, err)
}

// content returns the content of a connection, by its seed.
func content(seed uint64) *rand.ChaCha8 {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	return rand.NewChaCha8(key)
}

// serve answers each block of a connection with a byte if the block has the content of the seed. A
// connection begins with its seed; its blocks have blockSize bytes.
func serve(l *net.TCPListener) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var seed [8]byte
			if _, err := io.ReadFull(c, seed[:]); err != nil {
				return
			}
			source := content(binary.LittleEndian.Uint64(seed[:]))
			got, want := make([]byte, blockSize), make([]byte, blockSize)
			for {
				if _, err := io.ReadFull(c, got); err != nil {
					return
				}
				_, _ = source.Read(want) // never fails
				answer := []byte{1}
				if !bytes.Equal(got, want) {
					answer[0] = 0
				}
				if _, err := c.Write(answer); err != nil {
					return
				}
			}
		}()
	}
}

const (
	blockSize = 8 << 10
	// endless bounds the time of a block: a connection without progress for so long has failed.
	endless = time.Minute
)

// dial connects from one host to the other.
func (x *transfer) dial() (c net.Conn, err error) {
	err = in(x.from, func() error {
		d := net.Dialer{Timeout: endless, LocalAddr: &net.TCPAddr{IP: address(x.from, x.six).AsSlice()}}
		c, err = d.Dial("tcp", netip.AddrPortFrom(address(x.to, x.six), tcpPort).String())
		return err
	})
	return c, err
}

// blocks sends blocks and waits for the answer to each, until next returns false.
func (x *transfer) blocks(seed uint64, next func() bool, done func(time.Duration)) error {
	c, err := x.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	source := content(seed)
	b := make([]byte, blockSize)
	first := binary.LittleEndian.AppendUint64(nil, seed)
	for next() {
		_, _ = source.Read(b)
		begin := time.Now()
		_ = c.SetDeadline(begin.Add(endless)) // fails on a closed connection, as the next calls then do
		if _, err := c.Write(append(first, b...)); err != nil {
			return err
		}
		first = nil
		answer := []byte{0}
		if _, err := io.ReadFull(c, answer); err != nil {
			return fmt.Errorf("no answer after %v: %w", time.Since(begin).Round(time.Second), err)
		}
		if answer[0] != 1 {
			return errors.New("the content that arrived is another one")
		}
		done(time.Since(begin))
	}
	return nil
}

// startTCP runs a transfer until the traffic stops.
func (t *traffic) startTCP(x *transfer) {
	t.tcp = append(t.tcp, x)
	wait := func(d time.Duration) bool {
		select {
		case <-t.stop:
			return false
		case <-time.After(d):
			return true
		}
	}
	t.senders.Go(func() {
		err := x.blocks(1, func() bool { return wait(blockSize * time.Second / (300 << 10)) }, func(took time.Duration) {
			x.mu.Lock()
			x.bytes, x.stall = x.bytes+blockSize, max(x.stall, took)
			x.mu.Unlock()
		})
		if err != nil {
			x.fail(fmt.Errorf("the connection from %s to %s: %w", x.from, x.to, err))
		}
	})
	t.senders.Go(func() {
		for seed := uint64(2); wait(time.Second); seed++ {
			left, begin := 3, time.Now()
			err := x.blocks(seed, func() bool { left--; return left >= 0 }, func(time.Duration) {})
			if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENETUNREACH) {
				continue // the case has deleted the interface
			}
			if err != nil {
				x.fail(fmt.Errorf("connection %d from %s to %s: %w", seed, x.from, x.to, err))
				return
			}
			x.mu.Lock()
			x.short, x.slowest = x.short+1, max(x.slowest, time.Since(begin))
			x.mu.Unlock()
		}
	})
}

// end stops all senders, waits for their connections, and for packets in flight.
func (t *traffic) end() {
	close(t.stop)
	t.senders.Wait()
	time.Sleep(500 * time.Millisecond) // longer than a packet takes, also through a busy switch
}
