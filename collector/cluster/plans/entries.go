// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// ErrDeposed is returned by Store if another collector has taken the device since.
var ErrDeposed = errors.New("another collector has taken the device")

// held are the entries of plans at a device, as its owner stored them.
type held struct {
	// From is the incarnation of the owner. Only it may replace the entries, until the next owner
	// has put its own.
	From    string       `json:"from"`
	Entries []p4rt.Entry `json:"entries"`
	// Absent are entries that the owner was about to delete.
	Absent []p4rt.Entry `json:"absent,omitempty"`
	// Split is where all of that is, if it does not fit one message.
	Split *split `json:"split,omitempty"`
}

// known is the newest known version of the entries of a device.
type known struct {
	revision uint64 // 0: there are none
	split    *split // nil: they are one message
}

// desired returns the entries.
func (h held) desired() p4rt.Desired { return p4rt.Desired{Entries: h.Entries, Absent: h.Absent} }

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
		if h.From == c.deps.Incarnation {
			c.setKnown(device, k)
			return h.desired(), true, nil
		}
		err = c.put(ctx, bucket, device, k, h.desired())
		if !errors.Is(err, jetstream.ErrKeyExists) { // otherwise the owner before was faster
			return h.desired(), false, err
		}
	}
}

// Store replaces the entries of plans at a device. The error wraps ErrDeposed if another collector
// has taken them.
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
			var h held
			if h, k, err = stored(ctx, bucket, device); err == nil && k.revision != 0 && h.From != c.deps.Incarnation {
				err = ErrDeposed
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
	data, err := encode(held{From: c.deps.Incarnation, Entries: entries.Entries, Absent: entries.Absent})
	if err == nil && len(data) > chunkBytes {
		if next.split, err = c.putSplit(ctx, bucket, device, k.split, data); err == nil {
			data, err = encode(held{From: c.deps.Incarnation, Split: next.split})
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
			next.split.remove(ctx, bucket, device)
		}
		return err
	}
	c.setKnown(device, next)
	if k.split != nil {
		k.split.remove(ctx, bucket, device)
	}
	return nil
}

// stored reads the entries of a device.
func stored(ctx context.Context, bucket jetstream.KeyValue, device string) (h held, k known, err error) {
	entry, err := bucket.Get(ctx, entryKey(device))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return held{}, known{}, nil
	}
	if err != nil {
		return held{}, known{}, err
	}
	err = decode(entry.Value(), &h)
	k = known{entry.Revision(), h.Split}
	if from := h.From; err == nil && h.Split != nil {
		var data []byte
		if data, err = h.Split.get(ctx, bucket, device); err == nil {
			h = held{}
			err = decode(data, &h)
		}
		h.From = from
	}
	if err != nil {
		return held{}, known{}, fmt.Errorf("they cannot be read: %w", err)
	}
	return h, k, nil
}

func (c *Component) setKnown(device string, k known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[device] = k
}

// noteEntries counts and logs when the entries of a device begin to fail, and work again.
func (c *Component) noteEntries(device string, err error) {
	err = bus.Unanswered(err)
	if err != nil {
		c.entriesFailed.Add(1)
		c.entriesOf.failed()
	}
	if c.ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before, failing := c.faults[device]
	switch {
	case err == nil && failing:
		delete(c.faults, device)
		c.log.Info("cluster: entries of plans are shared again", "device", device)
	case err != nil && before != err.Error():
		c.faults[device] = err.Error()
		c.log.Warn("cluster: entries of plans are not shared with the other collectors", "device", device, "error", err)
	}
}

// EntriesFailed counts the calls of Take and Store that failed.
func (c *Component) EntriesFailed() uint64 { return c.entriesFailed.Load() }
