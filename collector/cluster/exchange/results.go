// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/netsketch/netsketch/collector/cluster/codec"
	"github.com/netsketch/netsketch/internal/store"
)

const (
	// tapBatches bounds the batches that wait to be sent.
	tapBatches = 64
	// maxBatch bounds the tables of a batch in bytes, as the store bounds a list.
	maxBatch = 256 << 20
	// pullBytes bounds the messages of the stream that wait here in bytes.
	pullBytes = 8 << 20
)

// results is the state of the results' stream.
type results struct {
	mu     sync.Mutex
	newest map[string]origin // newest batch that was published here, by subject
	seen   atomic.Pointer[position]
}

// origin names the epoch of results and the collector that computed them.
type origin struct {
	epoch  uint64
	member string
}

// sendResults sends the results of epochs that this collector made until Stop.
func (c *Component) sendResults(tap *store.Tap) {
	defer tap.Close()
	var dropped uint64
	for {
		select {
		case b, ok := <-tap.C():
			if !ok {
				return
			}
			if b.Member != "" || b.Own || b.Epoch == 0 {
				continue
			}
			err := c.sendBatch(b)
			if err != nil {
				c.n.batchesFailed.Add(1)
			} else {
				c.n.batchesSent.Add(1)
			}
			c.note("results", err)
		case <-c.ctx.Done():
			return
		}
		if n := tap.Dropped(); n > dropped {
			c.n.batchesFailed.Add(n - dropped)
			dropped = n
		}
	}
}

// subject returns the subject of batches with the same target and lists: on the stream, a batch
// replaces an earlier one with the same subject.
func (c *Component) subject(b *store.Batch) (subject string, replaces bool) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(b.Target))
	replaces = true
	for _, p := range b.Tables {
		_, _ = h.Write([]byte{0})
		_, _ = h.Write([]byte(p.Table.List))
		replaces = replaces && p.Replace
	}
	return c.deps.Bus.Subject("results", strconv.FormatUint(h.Sum64(), 16)), replaces
}

// sendBatch publishes a batch to the stream. The first chunk removes the batch before, if this one
// replaces it.
func (c *Component) sendBatch(b *store.Batch) error {
	subject, replaces := c.subject(b)
	c.results.mu.Lock()
	c.results.newest[subject] = origin{b.Epoch, c.cfg.Member}
	c.results.mu.Unlock()
	payload, err := codec.EncodeBatch(b)
	if err != nil {
		return err
	}
	// a larger batch would drop its own first chunks from the stream
	if limit := c.cfg.MaxResults / 16 * 15; int64(len(payload)) > limit {
		return fmt.Errorf("results of epoch %d have %d bytes; the other collectors serve at most %d", b.Epoch, len(payload),
			limit)
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.AckTimeout)
	defer cancel()
	first := true
	var acks []jetstream.PubAckFuture
	out := codec.NewChunker(c.cfg.Member, c.transfers.Add(1), func(chunk []byte, _ bool) error {
		m := &nats.Msg{Subject: subject, Data: bytes.Clone(chunk)} // JetStream may send the message again
		if first && replaces {
			m.Header = nats.Header{jetstream.MsgRollup: []string{jetstream.MsgRollupSubject}}
		}
		first = false
		c.n.batchBytesSent.Add(uint64(len(chunk)))
		ack, err := c.deps.Bus.JetStream().PublishMsgAsync(m)
		acks = append(acks, ack)
		return err
	})
	if _, err := out.Write(payload); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return fmt.Errorf("results of epoch %d: %w", b.Epoch, err)
		case <-ctx.Done():
			return fmt.Errorf("results of epoch %d: no acknowledgement: %w", b.Epoch, ctx.Err())
		}
	}
	return nil
}

// receiveResults follows the stream of results until Stop, from the newest of each subject on. It
// makes the stream if need be.
func (c *Component) receiveResults() {
	join := codec.NewJoiner(maxBatch+maxBatch/8, func() *bytes.Buffer { return new(bytes.Buffer) })
	for {
		c.results.seen.Store(nil)
		stop, err := c.follow(join)
		c.note("results of other collectors", err)
		if err == nil {
			c.note("results of other collectors", c.untilLost(c.ctx, c.deps.Bus.Bucket("results"),
				&c.results.seen))
			stop()
		}
		if !c.pause() {
			return
		}
	}
}

// checkEvery is the time between two checks whether a stream has been lost.
const checkEvery = 5 * time.Second

// errLost says that the NATS servers have lost a stream, so that it must be followed from its
// start.
var errLost = errors.New("the NATS servers have lost them")

// position is the place on a stream of the newest message that was received.
type position struct {
	sequence uint64
	at       time.Time
}

// untilLost waits until NATS servers have lost a stream in their memory, because all of them were
// restarted, or ctx ends. The stream is gone then, or counts from 1 again, and a consumer would
// wait for the number after the newest that it has seen.
func (c *Component) untilLost(ctx context.Context, name string, seen *atomic.Pointer[position]) error {
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	for {
		select {
		case <-check.C:
		case <-ctx.Done():
			return nil
		}
		asking, cancel := context.WithTimeout(ctx, c.cfg.AckTimeout)
		stream, err := c.deps.Bus.JetStream().Stream(asking, name)
		cancel()
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound), err == nil && seen.Load().lostIn(stream.CachedInfo()):
			return errLost
		}
	}
}

// lostIn reports whether a stream was lost since the position was noted: the stream was created
// later, or has a newer message at an earlier place.
func (p *position) lostIn(info *jetstream.StreamInfo) bool {
	s := info.State
	return p != nil && (info.Created.After(p.at) || s.LastSeq < p.sequence ||
		s.Msgs > 0 && s.FirstSeq <= p.sequence && s.FirstTime.After(p.at))
}

// batchJoiner joins the chunks of results.
type batchJoiner = codec.Joiner[*bytes.Buffer]

// follow opens the stream and consumes it in the background until stop.
func (c *Component) follow(join *batchJoiner) (stop func(), err error) {
	ctx, cancel := context.WithTimeout(c.ctx, 4*c.cfg.AckTimeout)
	defer cancel()
	js := c.deps.Bus.JetStream()
	name := c.deps.Bus.Bucket("results")
	stream, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Description: "results of netsketch cluster " + c.deps.Bus.Name(),
			Subjects: []string{c.deps.Bus.Subject("results", "*")}, AllowRollup: true, Storage: jetstream.MemoryStorage,
			MaxBytes: c.cfg.MaxResults, Discard: jetstream.DiscardOld, Replicas: c.deps.Bus.Replicas(),
		})
	}
	if err != nil {
		return nil, err
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, err
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) { c.receiveBatch(join, m) },
		jetstream.PullMaxBytes(pullBytes))
	if err != nil {
		return nil, err
	}
	return func() {
		consuming.Stop()
		<-consuming.Closed()
	}, nil
}

// receiveBatch takes a chunk of results and publishes them with the last one.
func (c *Component) receiveBatch(join *batchJoiner, m jetstream.Msg) {
	if meta, err := m.Metadata(); err == nil {
		c.results.seen.Store(&position{meta.Sequence.Stream, meta.Timestamp})
	}
	whole, err := join.Add(m.Data())
	if errors.Is(err, codec.ErrCutShort) || errors.Is(err, codec.ErrRepeated) || errors.Is(err, codec.ErrRefused) {
		return // a newer batch has replaced the rest, or the stream is read again
	}
	if whole != nil && whole.Member == c.cfg.Member && whole.Number > c.begun {
		return // the batch is this collector's own
	}
	if err == nil && whole != nil {
		err = c.publish(m.Subject(), whole)
	}
	if err != nil {
		c.n.batchesRefused.Add(1)
		c.note("some results of other collectors", err)
	}
}

// publish puts results of another collector, or of this one before its restart, into the store,
// unless the store has newer results.
func (c *Component) publish(subject string, whole *codec.Transfer[*bytes.Buffer]) error {
	b, err := codec.DecodeBatch(whole.Sink.Bytes(), maxBatch)
	if err != nil {
		return fmt.Errorf("collector %s: %w", whole.Member, err)
	}
	for _, p := range b.Tables {
		if err := c.deps.Validate(p.Table); err != nil {
			return fmt.Errorf("collector %s: results of epoch %d: %w", whole.Member, b.Epoch, err)
		}
	}
	b.Member = whole.Member
	next := origin{b.Epoch, whole.Member}
	c.results.mu.Lock()
	before := c.results.newest[subject]
	old := before.epoch > next.epoch || before.epoch == next.epoch && before.member != next.member
	if !old {
		c.results.newest[subject] = next
	}
	c.results.mu.Unlock()
	if old {
		c.n.batchesOld.Add(1)
		return nil
	}
	if err := c.deps.Store.Publish(b); err != nil {
		return fmt.Errorf("collector %s: %w", whole.Member, err)
	}
	c.n.batchesReceived.Add(1)
	return nil
}
