// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// known is the newest known version of the entries of a device.
type known struct {
	revision uint64           // revision of the entry; 0 if the bucket has none for the device
	split    *clusterv1.Split // where the chunks are; nil if the entries are one message
}

// token makes a part of a key of a name, which may have characters that a key may not.
func token(name string) string { return base64.RawURLEncoding.EncodeToString([]byte(name)) }

// Take makes this collector the owner of the entries of plans at a device, and returns them as the
// last owner stored them. From then on, a former owner can no longer store entries. own reports
// whether this collector was the last owner.
func (c *Component) Take(ctx context.Context, device string) (out intent.Held, own bool, err error) {
	defer func() { c.noteEntries(device, err) }()
	bucket, err := c.entriesOf.on(ctx, c.deps.Bus)
	if err != nil {
		return out, false, err
	}
	for {
		h, k, err := readEntries(ctx, bucket, device)
		if err != nil {
			return out, false, err
		}
		out.Desired = p4rt.Desired{Entries: entriesFrom(h.GetEntries()), Absent: entriesFrom(h.GetAbsent())}
		out.Done = each(h.GetDone(), outcomeFrom)
		if h.GetFrom() == c.deps.Incarnation {
			c.setKnown(device, k)
			return out, true, nil
		}
		err = c.put(ctx, bucket, device, k, out)
		if !errors.Is(err, jetstream.ErrKeyExists) { // an existing key means that the former owner was faster
			return out, false, err
		}
	}
}

// Store replaces the entries of plans at a device. The error wraps intent.ErrDeposed if another
// collector has taken them.
func (c *Component) Store(ctx context.Context, device string, held intent.Held) (err error) {
	defer func() { c.noteEntries(device, err) }()
	bucket, err := c.entriesOf.on(ctx, c.deps.Bus)
	if err != nil {
		return err
	}
	for {
		c.mu.Lock()
		k, ok := c.known[device]
		c.mu.Unlock()
		if !ok { // the latest Store failed, and may have been written
			var h *clusterv1.StoredEntries
			if h, k, err = readEntries(ctx, bucket, device); err == nil && k.revision != 0 && h.GetFrom() != c.deps.Incarnation {
				err = intent.ErrDeposed
			}
		}
		if err == nil {
			err = c.put(ctx, bucket, device, k, held)
		}
		if !ok || !errors.Is(err, jetstream.ErrKeyExists) {
			return err
		}
	}
}

// put writes the entries of a device if the known ones are the newest.
func (c *Component) put(ctx context.Context, bucket jetstream.KeyValue, device string, k known, held intent.Held,
) error {
	next := known{}
	data, split, err := c.pack(ctx, bucket, token(device), k.split, &clusterv1.StoredEntries{Protocol: clusterv1.Version,
		From: c.deps.Incarnation, Entries: entriesProto(held.Entries), Absent: entriesProto(held.Absent),
		Done: each(held.Done, outcomeProto)}, func(s *clusterv1.Split) stored {
		return &clusterv1.StoredEntries{Protocol: clusterv1.Version, From: c.deps.Incarnation, Split: s}
	})
	next.split = split
	switch {
	case err != nil:
		return fmt.Errorf("%d entries: %w", len(held.Entries), err)
	case k.revision == 0:
		next.revision, err = bucket.Create(ctx, token(device), data)
	default:
		next.revision, err = bucket.Update(ctx, token(device), data, k.revision)
	}
	if err != nil {
		c.mu.Lock()
		delete(c.known, device)
		c.mu.Unlock()
		if errors.Is(err, jetstream.ErrKeyExists) && next.split != nil {
			removeSplit(ctx, bucket, token(device), next.split)
		}
		return err
	}
	c.setKnown(device, next)
	if k.split != nil {
		removeSplit(ctx, bucket, token(device), k.split)
	}
	return nil
}

// readEntries reads the entries of a device. Those that cannot be read are an error, which names
// their key.
func readEntries(ctx context.Context, bucket jetstream.KeyValue, device string) (
	h *clusterv1.StoredEntries, k known, err error,
) {
	entry, err := bucket.Get(ctx, token(device))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, known{}, nil
	}
	if err != nil {
		return nil, known{}, err
	}
	h = &clusterv1.StoredEntries{}
	split, err := unpack(ctx, bucket, token(device), entry.Value(), h)
	return h, known{entry.Revision(), split}, err
}

func (c *Component) setKnown(device string, k known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[device] = k
}

// noteEntries is note for the entries of a device.
func (c *Component) noteEntries(device string, err error) {
	if err = bus.Unanswered(err); err != nil {
		c.entriesOf.failed()
	}
	c.note("entries of plans", "device", device, err)
}

// note counts failures to share data of a device or plugin, and logs when sharing begins to fail,
// and when it works again.
func (c *Component) note(what, kind, name string, err error) {
	if err != nil {
		c.entriesFailed.Add(1)
	}
	if c.ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := what + " " + name
	before, failing := c.faults[key]
	switch {
	case err == nil && failing:
		delete(c.faults, key)
		c.log.Info("cluster: "+what+" are shared again", kind, name)
	case err != nil && before != err.Error():
		c.faults[key] = err.Error()
		c.log.Warn("cluster: "+what+" are not shared with the other collectors", kind, name, "error", err)
	}
}

// EntriesFailed counts the calls of Take and Store that failed, and settings that cannot be read.
func (c *Component) EntriesFailed() uint64 { return c.entriesFailed.Load() }
