// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/role"
)

// recorder counts the numbers that it receives.
type recorder struct {
	mu       sync.Mutex
	numbers  map[uint64]int
	received chan int
}

func (r *recorder) Receive(datagrams []role.Datagram) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range datagrams {
		if d.From.IsLoopback() && len(d.Payload) == 8 {
			r.numbers[binary.BigEndian.Uint64(d.Payload)]++
		}
	}
	r.received <- len(datagrams)
}

// TestReceiver: several sockets receive every datagram of several senders once, over IPv4 and IPv6,
// and none is dropped, since the senders wait.
func TestReceiver(t *testing.T) {
	for _, network := range []string{"127.0.0.1", "[::1]"} {
		const senders, rounds, burst = 5, 20, 50
		sockets, err := Receiver{Address: network + ":0", Sockets: 3}.open()
		if err != nil {
			t.Fatal(err)
		}
		address := sockets[0].conn.LocalAddr()
		rec := &recorder{numbers: map[uint64]int{}, received: make(chan int, senders*burst)}
		ctx, cancel := context.WithCancel(context.Background())
		type result struct {
			stats Stats
			err   error
		}
		ended := make(chan result, 1)
		go func() {
			stats, err := serve(ctx, sockets, []Path{rec})
			ended <- result{stats, err}
		}()
		number := uint64(0)
		for range senders {
			c, err := net.Dial("udp", address.String())
			if err != nil {
				t.Fatal(err)
			}
			for range rounds {
				sent := 0
				for range burst {
					if _, err := c.Write(binary.BigEndian.AppendUint64(nil, number)); err == nil {
						number, sent = number+1, sent+1
					}
				}
				for sent > 0 {
					sent -= <-rec.received
				}
			}
			c.Close()
		}
		cancel()
		got := <-ended
		for _, s := range sockets {
			s.conn.Close()
		}
		if got.err != nil || got.stats != (Stats{Received: number}) || len(rec.numbers) != int(number) {
			t.Errorf("%s: %+v, %v, %d different; want %d", network, got.stats, got.err, len(rec.numbers), number)
		}
	}
}

// TestDropped: what a full buffer drops is counted.
func TestDropped(t *testing.T) {
	s, err := open("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.conn.Close()
	if err := s.conn.SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("udp", s.conn.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const sent = 200
	send := func(n int) {
		for range n {
			if _, err := c.Write(make([]byte, 500)); err != nil {
				t.Fatal(err)
			}
		}
	}
	send(sent)
	for s.stats.Received+s.stats.Dropped < sent { // a datagram states the drops before it
		if _, err := s.next(); err != nil {
			t.Fatal(err)
		}
		send(1)
	}
	if s.stats.Dropped == 0 || s.stats.Dropped >= sent {
		t.Errorf("%+v", s.stats)
	}
}

func TestBadAddress(t *testing.T) {
	for _, address := range []string{"nowhere", "192.0.2.1:1", "127.0.0.1:99999"} {
		if _, err := (Receiver{Address: address}).Run(context.Background()); err == nil ||
			!strings.Contains(err.Error(), "telemetry reports") {
			t.Errorf("%s: %v", address, err)
		}
		if (Receiver{Address: address}).Check() == nil {
			t.Errorf("%s passes the check", address)
		}
	}
}

type nothing struct{}

func (nothing) Receive([]role.Datagram) {}

// BenchmarkReceive is the processor time of one datagram of 128 bytes in the receiver. Datagrams
// are sent in bursts that the buffer of the socket holds, outside of the measurement.
func BenchmarkReceive(b *testing.B) {
	s, err := open("127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer s.conn.Close()
	c, err := net.Dial("udp", s.conn.LocalAddr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	const burst = 2000
	payload := make([]byte, 128)
	var spent time.Duration
	for n := 0; n < b.N; n += burst {
		for range burst {
			if _, err := c.Write(payload); err != nil {
				b.Fatal(err)
			}
		}
		before := processorTime(b)
		for got := 0; got < burst; {
			datagrams, err := s.next()
			if err != nil {
				b.Fatal(err)
			}
			nothing{}.Receive(datagrams)
			got += len(datagrams)
		}
		spent += processorTime(b) - before
	}
	if s.stats.Dropped > 0 {
		b.Errorf("%d dropped", s.stats.Dropped)
	}
	b.ReportMetric(float64(s.stats.Received)/1e6/spent.Seconds(), "Mdatagrams/cpu-s")
}

func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
