// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"fmt"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// DigestConfig says how a switch gathers the messages of a digest in lists.
type DigestConfig struct {
	MaxTimeout time.Duration // longest wait for more messages; 0: each is sent at once
	MaxSize    int32         // messages in a list; 0: the switch's choice
	AckTimeout time.Duration // a message is not sent again before it was acknowledged or this is over
}

// DigestList is a list of digest messages. Digests may be lost on their way, and that is allowed.
type DigestList struct {
	Digest *p4values.Digest
	ID     uint64
	Data   []*p4v1.P4Data
	At     time.Time // on the switch's clock
	s      *session
}

// Ack tells the switch that the list was acted on. It fails when the session that brought the list is over.
func (l *DigestList) Ack(ctx context.Context) error {
	return l.s.send(ctx, &p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_DigestAck{
		DigestAck: &p4v1.DigestListAck{DigestId: l.Digest.ID, ListId: l.ID},
	}})
}

// Digests makes the switch send a digest, in this session and those after it, and returns a bounded queue of its lists.
// The reader acts on a list, then calls its Ack.
func (c *Client) Digests(ctx context.Context, digest string, cfg DigestConfig, depth int) (*Queue[*DigestList], error) {
	cat, err := c.Catalog()
	if err != nil {
		return nil, err
	}
	d, err := cat.Digests.Name(digest)
	if err != nil {
		return nil, err
	}
	q := subscribe(ctx, &c.subs.digests, depth, func(l *DigestList) bool { return l.Digest.ID == d.ID })
	entry := &p4v1.Entity{Entity: &p4v1.Entity_DigestEntry{DigestEntry: &p4v1.DigestEntry{
		DigestId: d.ID,
		Config:   &p4v1.DigestEntry_Config{MaxTimeoutNs: cfg.MaxTimeout.Nanoseconds(), MaxListSize: cfg.MaxSize, AckTimeoutNs: cfg.AckTimeout.Nanoseconds()},
	}}}
	if err := c.Desire(ctx, "digest "+d.Name, Desired{Entities: []*p4v1.Entity{entry}}); err != nil {
		return nil, fmt.Errorf("enable digest %s: %w", d.Name, err)
	}
	return q, nil
}

// digestList takes a list from the receiver.
func (s *session) digestList(m *p4v1.DigestList) {
	s.c.stats.digestLists.Add(1)
	var taken uint64
	if p := s.program(); p != nil {
		if d, ok := p.catalog.Digests.ID(m.GetDigestId()); ok {
			taken, _ = s.c.subs.digests.publish(&DigestList{Digest: d, ID: m.GetListId(), Data: m.GetData(), At: time.Unix(0, m.GetTimestamp()), s: s})
		}
	}
	if taken == 0 {
		s.c.stats.digestsDropped.Add(1)
	}
}
