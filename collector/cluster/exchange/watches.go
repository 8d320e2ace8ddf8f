// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/collector/cluster/codec"
	"github.com/netsketch/netsketch/internal/store"
)

// watches are the rows that subscribers watch, one by one. Each collector keeps its own in a
// key-value bucket, which the others follow.
type watches struct {
	wake chan struct{}

	mu     sync.Mutex
	own    []store.Watch
	others map[string][]store.Watch // rows that other collectors watch, by collector
}

// Watch replaces the rows that subscribers of this collector watch. It does not block.
func (c *Component) Watch(rows []store.Watch) {
	c.watches.mu.Lock()
	c.watches.own = rows
	c.watches.mu.Unlock()
	select {
	case c.watches.wake <- struct{}{}:
	default:
	}
}

// Watched returns the rows that subscribers of the other collectors watch.
func (c *Component) Watched() (rows []store.Watch) {
	view := c.deps.View()
	c.watches.mu.Lock()
	defer c.watches.mu.Unlock()
	for _, member := range slices.Sorted(maps.Keys(c.watches.others)) {
		if _, present := view.Member(member); present {
			rows = append(rows, c.watches.others[member]...)
		}
	}
	return rows
}

// followWatches keeps the watched rows of this collector in the bucket and follows the rows of the
// others, until Stop.
func (c *Component) followWatches() {
	for {
		err := c.exchangeWatches()
		if c.ctx.Err() != nil {
			return
		}
		c.note("watched rows", err)
		if !c.pause() {
			return
		}
	}
}

func (c *Component) exchangeWatches() error {
	bucket, err := c.openWatches()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	updates, err := bucket.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = updates.Stop() }() // the connection may be closed
	lost, seen := make(chan error, 1), &atomic.Pointer[position]{}
	c.work.Go(func() { lost <- c.untilLost(ctx, "KV_"+bucket.Bucket(), seen) })
	err = c.putWatches(bucket)
	for err == nil {
		c.note("watched rows", nil)
		select {
		case entry, ok := <-updates.Updates():
			if !ok {
				return errors.New("the bucket is not followed any more")
			}
			if entry != nil {
				seen.Store(&position{entry.Revision(), entry.Created()})
			}
			if entry != nil && entry.Key() != c.cfg.Member {
				c.takeWatches(entry)
			}
		case <-c.watches.wake:
			err = c.putWatches(bucket)
		case err = <-lost:
		case <-c.ctx.Done():
			return nil
		}
	}
	return err
}

func (c *Component) openWatches() (jetstream.KeyValue, error) {
	ctx, cancel := context.WithTimeout(c.ctx, 4*c.cfg.AckTimeout)
	defer cancel()
	js := c.deps.Bus.JetStream()
	name := c.deps.Bus.Bucket("watched")
	bucket, err := js.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		bucket, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: name, Description: "rows watched by subscribers of netsketch cluster " + c.deps.Bus.Name(),
			Storage: jetstream.MemoryStorage, Replicas: c.deps.Bus.Replicas(), MaxBytes: maxMembers * codec.ChunkBytes,
		})
	}
	return bucket, err
}

// maxMembers bounds the bucket of watched rows.
const maxMembers = 128

// putWatches writes the rows of this collector. Rows that do not fit into one chunk are left out,
// and logged.
func (c *Component) putWatches(bucket jetstream.KeyValue) error {
	c.watches.mu.Lock()
	rows := c.watches.own
	c.watches.mu.Unlock()
	data, err := encodeWatches(rows)
	for n := len(rows); err == nil && len(data) > codec.ChunkBytes; {
		n /= 2
		data, err = encodeWatches(rows[:n])
		c.note("some watched rows", fmt.Errorf("%d of %d have more than %d bytes", len(rows)-n, len(rows), codec.ChunkBytes))
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, 2*c.cfg.AckTimeout)
	defer cancel()
	_, err = bucket.Put(ctx, c.cfg.Member, data)
	return err
}

func encodeWatches(rows []store.Watch) ([]byte, error) {
	m := &clusterv1.Watches{}
	for _, w := range rows {
		m.Rows = append(m.Rows, &clusterv1.Row{Target: w.Target, List: w.List, Keys: w.Keys})
	}
	return proto.Marshal(m)
}

func decodeWatches(data []byte) (rows []store.Watch, err error) {
	var m clusterv1.Watches
	if err := clusterv1.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	for _, r := range m.GetRows() {
		rows = append(rows, store.Watch{Target: r.GetTarget(), List: r.GetList(), Keys: r.GetKeys()})
	}
	return rows, nil
}

// takeWatches takes the watched rows of another collector. If they cannot be read, the earlier rows
// stay.
func (c *Component) takeWatches(entry jetstream.KeyValueEntry) {
	rows, err := decodeWatches(entry.Value())
	c.note("watched rows of collector "+entry.Key(), err)
	if err != nil {
		return
	}
	c.watches.mu.Lock()
	c.watches.others[entry.Key()] = rows
	c.watches.mu.Unlock()
	c.deps.OnWatched()
}

// oneLine joins the lines of a text for a header.
func oneLine(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r", " "), "\n", "; ")
}
