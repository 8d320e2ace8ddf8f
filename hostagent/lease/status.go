// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"slices"
	"time"
)

// Change is a set of changes of leases.
type Change uint8

// The changes: a lease that is only Renewed lasts for a while without being passed on.
const (
	Unchanged Change = iota
	Renewed
	Urgent // begun, revoked, or of another length
)

// Changed returns the changes of leases since Passed was called.
func (p *Prober) Changed() Change { return p.changed }

// Passed states that Leases have been passed on.
func (p *Prober) Passed() { p.changed = Unchanged }

// Leases returns the leases that have not ended, in the order of peers.
func (p *Prober) Leases(now time.Duration) (out []Lease) {
	for _, x := range p.pairs {
		if x.until > now {
			out = append(out, Lease{Peer: x.Peer, MaxLength: x.maxLength, Until: x.until})
		}
	}
	return out
}

// Settled reports whether every pair has had a lease, or has a reason for having none.
func (p *Prober) Settled() bool {
	return p.online && !slices.ContainsFunc(p.pairs, func(x *pair) bool { return !x.settled })
}

// PairStatus is the state of a pair without a lease, or with a short one.
type PairStatus struct {
	Peer
	State State
	// Reason says why there is no lease, or why it is short.
	Reason string
	// MaxLength is the longest packet that the lease allows, 0 without a lease.
	MaxLength int
}

// Status returns how many pairs are in each state, and the first pairs without a lease, at most
// limit. Pairs that are not wanted are not counted, if leases are on demand.
func (p *Prober) Status(now time.Duration, limit int) (counts map[State]int, without []PairStatus) {
	counts = map[State]int{}
	for _, x := range p.pairs {
		counts[x.state]++
		reason, length := x.reason, 0
		if x.until > now {
			if x.maxLength >= p.full(x) {
				continue
			}
			length = x.maxLength
			reason = fmt.Sprintf("a lease for packets of up to %d bytes only: longer ones do not arrive in the carrier", length)
		}
		if len(without) < limit {
			without = append(without, PairStatus{Peer: x.Peer, State: x.state, Reason: reason, MaxLength: length})
		}
	}
	if n := len(p.waiting); n > 0 {
		counts[Waiting] = n
		reason := fmt.Sprintf("more than %d probes a second would be needed", p.cfg.Budget)
		for _, peer := range p.waiting[:min(n, max(limit-len(without), 0))] {
			without = append(without, PairStatus{Peer: peer, State: Waiting, Reason: reason})
		}
	}
	return counts, without
}
