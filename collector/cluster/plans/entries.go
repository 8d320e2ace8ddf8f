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
	revision uint64           // 0: the bucket has no entry for the device
	split    *clusterv1.Split // nil: the entries are one message
}

// entryKey is the key of a device. A name may have characters that a key may not.
func entryKey(device string) string { return base64.RawURLEncoding.EncodeToString([]byte(device)) }

// Take returns the entries of plans at a device, as its last owner stored them, and makes this
// collector their owner: the owner before can store no others. own reports that it was this one.
func (c *Component) Take(ctx context.Context, device string) (out p4rt.Desired, own bool, err error) {
	defer func() { c.noteEntries(device, err) }()
	bucket, err := c.entriesOf.on(ctx, c.deps.Bus)
	if err != nil {
		return out, false, err
	}
	for {
		h, k, err := stored(ctx, bucket, device)
		if err != nil {
			return out, false, err
		}
		out = p4rt.Desired{Entries: entriesFrom(h.GetEntries()), Absent: entriesFrom(h.GetAbsent())}
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
func (c *Component) Store(ctx context.Context, device string, entries p4rt.Desired) (err error) {
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
			if h, k, err = stored(ctx, bucket, device); err == nil && k.revision != 0 && h.GetFrom() != c.deps.Incarnation {
				err = intent.ErrDeposed
			}
		}
		if err == nil {
			err = c.put(ctx, bucket, device, k, entries)
		}
		if !ok || !errors.Is(err, jetstream.ErrKeyExists) {
			return err
		}
	}
}

// put writes the entries of a device if the known ones are the newest.
func (c *Component) put(ctx context.Context, bucket jetstream.KeyValue, device string, k known, entries p4rt.Desired,
) error {
	next := known{}
	data, err := encode(&clusterv1.StoredEntries{Protocol: clusterv1.Version, From: c.deps.Incarnation,
		Entries: entriesProto(entries.Entries), Absent: entriesProto(entries.Absent)})
	if err == nil && len(data) > chunkBytes {
		if next.split, err = c.putSplit(ctx, bucket, device, k.split, data); err == nil {
			data, err = encode(&clusterv1.StoredEntries{Protocol: clusterv1.Version, From: c.deps.Incarnation,
				Split: next.split})
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("%d entries: %w", len(entries.Entries), err)
	case k.revision == 0:
		next.revision, err = bucket.Create(ctx, entryKey(device), data)
	default:
		next.revision, err = bucket.Update(ctx, entryKey(device), data, k.revision)
	}
	if err != nil {
		c.mu.Lock()
		delete(c.known, device)
		c.mu.Unlock()
		if errors.Is(err, jetstream.ErrKeyExists) && next.split != nil {
			removeSplit(ctx, bucket, device, next.split)
		}
		return err
	}
	c.setKnown(device, next)
	if k.split != nil {
		removeSplit(ctx, bucket, device, k.split)
	}
	return nil
}

// stored reads the entries of a device. An entry that cannot be read is an error, which names its
// key.
func stored(ctx context.Context, bucket jetstream.KeyValue, device string) (
	h *clusterv1.StoredEntries, k known, err error,
) {
	entry, err := bucket.Get(ctx, entryKey(device))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, known{}, nil
	}
	if err != nil {
		return nil, known{}, err
	}
	h, err = decodeEntries(entry.Value())
	k = known{entry.Revision(), h.GetSplit()}
	if from := h.GetFrom(); err == nil && k.split != nil {
		var data []byte
		if data, err = getSplit(ctx, bucket, device, k.split); err == nil {
			h, err = decodeEntries(data)
		}
		if err == nil {
			h.From = from
		}
	}
	if err != nil {
		return nil, known{}, fmt.Errorf("key %s of bucket %s cannot be read: %w", entryKey(device), bucket.Bucket(), err)
	}
	return h, k, nil
}

// decodeEntries reads stored entries of this version.
func decodeEntries(data []byte) (*clusterv1.StoredEntries, error) {
	h := &clusterv1.StoredEntries{}
	if err := decode(data, h); err != nil {
		return nil, err
	}
	if h.GetFrom() == "" {
		return nil, errors.New("they do not name their owner")
	}
	return h, clusterv1.CheckVersion(h.GetProtocol())
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

// note counts failures to share something of a device or plugin, and logs when that begins to fail,
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
