// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/hostv1"
)

// helloInterval is the interval at which an agent shows its address until the collector replies.
const helloInterval = 100 * time.Millisecond

// datagrams sends and receives the epochs of one session over UDP.
type datagrams struct {
	conn    *net.UDPConn
	session uint64
	key     []byte
	reached atomic.Bool // a datagram of the collector has arrived
}

// openDatagrams opens the UDP service at the collector's address.
func openDatagrams(offer *hostv1.UDP, collector net.Addr) (*datagrams, error) {
	at, ok := collector.(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("the session does not use TCP: %v", collector)
	}
	conn, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: at.IP, Zone: at.Zone, Port: int(offer.GetPort())})
	if err != nil {
		return nil, err
	}
	return &datagrams{conn: conn, session: offer.GetSession(), key: bytes.Clone(offer.GetKey())}, nil
}

// announce shows the host's address to the collector until it replies, or until ctx ends.
func (d *datagrams) announce(ctx context.Context) {
	tick := time.NewTicker(helloInterval)
	defer tick.Stop()
	for !d.reached.Load() {
		_ = d.send(0) // a lost datagram is sent again
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (d *datagrams) send(e uint64) error {
	_, err := d.conn.Write(epoch.Datagram{Session: d.session, Epoch: e}.Append(nil, d.key))
	return err
}

// receive passes epochs of the collector to advance until close. Other datagrams are ignored.
func (d *datagrams) receive(advance func(uint64)) {
	b := make([]byte, epoch.DatagramSize+1)
	for {
		n, err := d.conn.Read(b)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // an ICMP error: the stream brings the epoch
		}
		m, err := epoch.OpenDatagram(b[:n], func(session uint64) []byte {
			if session != d.session {
				return nil
			}
			return d.key
		})
		if err == nil && m.Down {
			d.reached.Store(true)
			advance(m.Epoch)
		}
	}
}

func (d *datagrams) close() { _ = d.conn.Close() }
