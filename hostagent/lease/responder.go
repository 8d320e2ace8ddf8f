// SPDX-License-Identifier: Apache-2.0

package lease

import "time"

// Responder answers the probes of peers.
type Responder struct {
	// Refuse: the host stops to remove carriers, so peers give up their leases.
	Refuse bool

	replies bucket
}

// repliesPerSecond bounds the replies of a host: to 2,000 addresses of peers that probe it.
const repliesPerSecond = 8000

// Answer returns the reply to a probe; ok is false if the packet is a reply itself or there were
// too many probes. A reply is never longer than its probe, so a forged source gains nothing.
func (r *Responder) Answer(now time.Duration, in Received) (reply Probe, ok bool) {
	if in.Kind != KindProbe {
		return Probe{}, false
	}
	r.replies.rate = repliesPerSecond
	r.replies.refill(now)
	if !r.replies.take(1) {
		return Probe{}, false
	}
	reply = Probe{Source: in.Destination, Destination: in.Source, SourcePort: in.SourcePort,
		Message: Message{Kind: KindReply, Nonce: in.Nonce}, Length: headers(in.Source) + MessageSize}
	if in.Carried {
		reply.Flags |= FlagCarrier
		reply.Hops = in.CarrierHops
	}
	if r.Refuse {
		reply.Flags |= FlagRefuses
	}
	return reply, true
}
