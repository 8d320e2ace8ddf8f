// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"sync/atomic"
)

// portCounts are the counters of a port in one lane. Each lane has cache lines of its own.
type portCounts struct {
	inPackets, inOctets, inErrors, inDiscards     atomic.Uint64
	outPackets, outOctets, outErrors, outDiscards atomic.Uint64

	inMulticast, inBroadcast, outMulticast, outBroadcast atomic.Uint64

	_ [32]byte
}

// counters adds up the lanes and the frames lost outside of them.
func (pt *Port) counters() (t Counters) {
	for i := range pt.counts {
		c := &pt.counts[i]
		t.InPackets += c.inPackets.Load()
		t.InOctets += c.inOctets.Load()
		t.InErrors += c.inErrors.Load()
		t.InDiscards += c.inDiscards.Load()
		t.OutPackets += c.outPackets.Load()
		t.OutOctets += c.outOctets.Load()
		t.OutErrors += c.outErrors.Load()
		t.OutDiscards += c.outDiscards.Load()
		t.InMulticast += c.inMulticast.Load()
		t.InBroadcast += c.inBroadcast.Load()
		t.OutMulticast += c.outMulticast.Load()
		t.OutBroadcast += c.outBroadcast.Load()
	}
	if pt.cfg.Lost != nil {
		in, out := pt.cfg.Lost()
		t.InDiscards += in
		t.OutDiscards += out
	}
	return t
}

// Multicast and broadcast frames are counted apart; unicast is the rest.

func (c *portCounts) countIn(pkt []byte) {
	c.inPackets.Add(1)
	c.inOctets.Add(uint64(len(pkt)))
	if len(pkt) > 5 && pkt[0]&1 != 0 {
		if isBroadcast(pkt) {
			c.inBroadcast.Add(1)
		} else {
			c.inMulticast.Add(1)
		}
	}
}

func (c *portCounts) countOut(pkt []byte) {
	c.outPackets.Add(1)
	c.outOctets.Add(uint64(len(pkt)))
	if len(pkt) > 5 && pkt[0]&1 != 0 {
		if isBroadcast(pkt) {
			c.outBroadcast.Add(1)
		} else {
			c.outMulticast.Add(1)
		}
	}
}

func isBroadcast(pkt []byte) bool { return [6]byte(pkt) == [6]byte{255, 255, 255, 255, 255, 255} }
