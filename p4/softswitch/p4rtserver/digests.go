// SPDX-License-Identifier: Apache-2.0

package p4rtserver

import (
	"maps"
	"slices"
	"sync"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver/p4data"
)

// Limits of queued digests.
const (
	digestBuffer  = 4096 // messages of the switch that may wait
	digestListMax = 1024 // messages in a list if the controller sets no limit
	digestCache   = 1 << 16
)

// digester collects the digests of a pipeline in lists. Its goroutine runs from the first digest
// that is enabled until stop.
type digester struct {
	s   *Server
	cat *p4values.Catalog

	mu      sync.Mutex // guards the fields below
	byName  map[string]*gatherer
	lists   uint64
	running bool
	over    chan struct{} // closed by stop
	changed chan struct{}
}

// gatherer holds one digest's lists. Guarded by digester.mu.
type gatherer struct {
	digest *p4values.Digest
	cfg    *p4v1.DigestEntry_Config
	buffer []*p4v1.P4Data
	keys   map[string]bool // keys of the buffered messages
	since  time.Time       // arrival of the first buffered message
	sent   map[string]bool // messages that were sent, not acknowledged and not timed out
	lists  map[uint64]sentList
}

type sentList struct {
	keys []string
	at   time.Time
}

func newDigester(s *Server, cat *p4values.Catalog) *digester {
	return &digester{s: s, cat: cat, byName: map[string]*gatherer{}, over: make(chan struct{}),
		changed: make(chan struct{}, 1)}
}

func (g *digester) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.over:
	default:
		close(g.over)
	}
}

// configure enables, changes or (with nil) disables a digest.
func (g *digester) configure(d *p4values.Digest, cfg *p4v1.DigestEntry_Config) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if cfg == nil {
		delete(g.byName, d.Name)
		return
	}
	if have, ok := g.byName[d.Name]; ok {
		have.cfg = cfg
	} else {
		g.byName[d.Name] = &gatherer{digest: d, cfg: cfg, keys: map[string]bool{}, sent: map[string]bool{},
			lists: map[uint64]sentList{}}
	}
	if !g.running && g.s.startBackground(1) {
		g.running = true
		in, cancel := g.s.sw.SubscribeDigests(digestBuffer)
		go func() {
			defer g.s.bg.Done()
			defer cancel()
			g.run(in)
		}()
	}
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// run receives messages and handles the timeouts.
func (g *digester) run(in <-chan softswitch.Digest) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(g.tick(time.Now()))
		select {
		case m, ok := <-in:
			if !ok {
				return
			}
			g.take(m, time.Now())
		case <-timer.C:
		case <-g.changed:
		case <-g.over:
			return
		case <-g.s.ctx.Done():
			return
		}
	}
}

// take adds a message to the buffer of its digest, unless an equal message is in the buffer or
// waits for its acknowledgement.
func (g *digester) take(m softswitch.Digest, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, ok := g.byName[m.Name]
	if !ok {
		return
	}
	key := ""
	for _, v := range m.Values {
		key += string(v) + "\x00"
	}
	if d.keys[key] || d.sent[key] {
		return
	}
	data := p4data.Encode(g.cat.P4Info().GetTypeInfo(), d.digest.Type, m.Values)
	if len(d.buffer) == 0 {
		d.since = now
	}
	d.buffer, d.keys[key] = append(d.buffer, data), true
	limit := int(d.cfg.GetMaxListSize())
	if limit == 0 || limit > digestListMax {
		limit = digestListMax
	}
	if d.cfg.GetMaxTimeoutNs() == 0 || len(d.buffer) >= limit {
		g.send(d, now)
	}
}

// tick sends the lists that are due, drops unacknowledged messages after their timeout, and returns
// the time of the next call.
func (g *digester) tick(now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := time.Hour
	for _, d := range g.byName {
		if len(d.buffer) > 0 {
			if left := time.Duration(d.cfg.GetMaxTimeoutNs()) - now.Sub(d.since); left <= 0 {
				g.send(d, now)
			} else {
				next = min(next, left)
			}
		}
		for id, l := range d.lists {
			if left := time.Duration(d.cfg.GetAckTimeoutNs()) - now.Sub(l.at); left <= 0 {
				d.forget(id)
			} else {
				next = min(next, left)
			}
		}
	}
	return max(next, time.Millisecond)
}

// send sends a buffer as a list to the primaries. The caller holds mu.
func (g *digester) send(d *gatherer, now time.Time) {
	g.lists++
	l := &p4v1.DigestList{DigestId: d.digest.ID, ListId: g.lists, Data: d.buffer, Timestamp: now.UnixNano()}
	keys := slices.Collect(maps.Keys(d.keys))
	d.buffer, d.keys = nil, map[string]bool{}
	took := false
	for _, st := range g.s.primaries(nil) {
		took = st.offer(&p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Digest{Digest: l}}) || took
	}
	if !took {
		g.s.stats.digestsDropped.Add(uint64(len(keys)))
		return
	}
	if d.cfg.GetAckTimeoutNs() > 0 && len(d.sent) < digestCache {
		d.lists[l.ListId] = sentList{keys: keys, at: now}
		for _, k := range keys {
			d.sent[k] = true
		}
	}
}

func (d *gatherer) forget(list uint64) {
	for _, k := range d.lists[list].keys {
		delete(d.sent, k)
	}
	delete(d.lists, list)
}

func (g *digester) ack(d *p4values.Digest, list uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if have, ok := g.byName[d.Name]; ok {
		have.forget(list)
	}
}

// digestAck handles a controller's acknowledgement.
func (s *Server) digestAck(st *stream, m *p4v1.DigestListAck) error {
	if !s.isPrimary(st) {
		return status.Error(codes.PermissionDenied, "only the primary controller acknowledges digests")
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.live == nil {
		return status.Error(codes.FailedPrecondition, "no pipeline has been set")
	}
	d, ok := s.live.Catalog().Digests.ID(m.GetDigestId())
	if !ok {
		return status.Errorf(codes.InvalidArgument, "the program has no digest with id %#x", m.GetDigestId())
	}
	s.digests.ack(d, m.GetListId())
	return nil
}
