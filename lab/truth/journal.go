// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"sync"

	"github.com/netsketch/netsketch/sketch/flow"
)

// Journal is the ground truth of packets that carry their epoch: what hosts sent, and where it was
// lost. Its methods may be called from any goroutine.
type Journal struct {
	mu     sync.Mutex
	epochs map[uint16]*JournalEpoch
}

// JournalEpoch is one epoch of a Journal.
type JournalEpoch struct {
	Sent, Received map[flow.Key]Volume // volumes counted by hosts
	Entered        map[Hop]Volume      // volumes that entered switches
	Lost           map[Loss]Volume
}

// Volume is the size of traffic.
type Volume struct{ Packets, Bytes uint64 }

func (v Volume) add(bytes int) Volume { return Volume{v.Packets + 1, v.Bytes + uint64(bytes)} }

// Hop is a switch on the path of a flow, numbered from 0.
type Hop struct {
	Flow   flow.Key
	Number uint8
	Switch string
}

// Loss names the flow of lost packets and the switch or link that lost them.
type Loss struct {
	Flow    flow.Key
	Element string
}

// at returns an epoch. j.mu is held.
func (j *Journal) at(epoch uint16) *JournalEpoch {
	if j.epochs == nil {
		j.epochs = map[uint16]*JournalEpoch{}
	}
	e := j.epochs[epoch]
	if e == nil {
		e = &JournalEpoch{Sent: map[flow.Key]Volume{}, Received: map[flow.Key]Volume{}, Entered: map[Hop]Volume{},
			Lost: map[Loss]Volume{}}
		j.epochs[epoch] = e
	}
	return e
}

// Send counts a packet that a host sent. epoch is the epoch in its header, modulo 65,536, and bytes
// the length of the IP packet.
func (j *Journal) Send(epoch uint16, k flow.Key, bytes int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := j.at(epoch).Sent
	m[k] = m[k].add(bytes)
}

// Enter counts a packet that entered the pipeline of a switch.
func (j *Journal) Enter(epoch uint16, h Hop, bytes int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := j.at(epoch).Entered
	m[h] = m[h].add(bytes)
}

// Lose counts a packet that was lost.
func (j *Journal) Lose(epoch uint16, l Loss, bytes int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := j.at(epoch).Lost
	m[l] = m[l].add(bytes)
}

// Receive counts a packet that arrived at a host.
func (j *Journal) Receive(epoch uint16, k flow.Key, bytes int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := j.at(epoch).Received
	m[k] = m[k].add(bytes)
}

// Take returns an epoch and removes it from the journal.
func (j *Journal) Take(epoch uint16) *JournalEpoch {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.at(epoch)
	delete(j.epochs, epoch)
	return e
}
