// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/netsketch/netsketch/hostagent/packet"
)

// mostExamples bounds the examples of packets that are kept.
const mostExamples = 20

// altered records packets that arrived at hosts in another form than they were sent.
type altered struct {
	mu       sync.Mutex
	packets  uint64
	examples []string
	sent     []byte // reused memory
	received []byte
}

// Altered returns how many packets a host received changed, and descriptions of the first ones. A
// packet is changed if it differs from the packet that the sender's application sent in more than
// routers change: link-layer addresses, TTL and the checksum of IPv4. The comparison comes after
// the data paths of hosts have removed their headers.
func (n *Network) Altered() (packets uint64, examples []string) {
	n.altered.mu.Lock()
	defer n.altered.mu.Unlock()
	return n.altered.packets, n.altered.examples
}

// compare records a packet that a host received if it differs from the packet that was sent.
// Packets of others, such as a switch's telemetry report about the packet, have other addresses and
// are left out.
func (a *altered) compare(host string, sent, received []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var routed bool
	if a.sent, routed = appendUnrouted(a.sent[:0], sent); !routed {
		return
	}
	a.received, routed = appendUnrouted(a.received[:0], received)
	if routed && (bytes.Equal(a.sent, a.received) || !bytes.Equal(addresses(a.sent), addresses(a.received))) {
		return
	}
	a.packets++
	if len(a.examples) < mostExamples {
		a.examples = append(a.examples, fmt.Sprintf("%s received %s instead of %s", host, hex.EncodeToString(received),
			hex.EncodeToString(sent)))
	}
}

// appendUnrouted appends an IP packet without what routers change. It reports false if the frame
// is no IP packet with whole headers.
func appendUnrouted(b, frame []byte) ([]byte, bool) {
	link, err := packet.ParseLink(frame)
	if err != nil {
		return b, false
	}
	ip := frame[link.TypeAt+2:]
	var parsed packet.IP
	if parsed.Parse(link.Type, ip) != nil {
		return b, false
	}
	start := len(b)
	b = append(b, ip...)
	if ip = b[start:]; link.Type == packet.EtherTypeIPv4 {
		ip[8], ip[10], ip[11] = 0, 0, 0
	} else {
		ip[7] = 0
	}
	return b, true
}

// addresses returns the addresses of an IP packet.
func addresses(ip []byte) []byte {
	if ip[0]>>4 == 4 {
		return ip[12:20]
	}
	return ip[8:40]
}
