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
	Sent Counts
	Lost map[Loss]uint64 // packets
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
		e = &JournalEpoch{Sent: Counts{}, Lost: map[Loss]uint64{}}
		j.epochs[epoch] = e
	}
	return e
}

// Send counts a packet that a host sent in an epoch, modulo 65,536.
func (j *Journal) Send(epoch uint16, k flow.Key) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.at(epoch).Sent[k]++
}

// Lose counts a packet that was lost.
func (j *Journal) Lose(epoch uint16, k flow.Key, element string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.at(epoch).Lost[Loss{k, element}]++
}

// Take returns an epoch and removes it from the journal.
func (j *Journal) Take(epoch uint16) *JournalEpoch {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.at(epoch)
	delete(j.epochs, epoch)
	return e
}
