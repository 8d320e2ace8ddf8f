// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

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
		h, revision, err := stored(ctx, bucket, device)
		if err != nil {
			return out, false, err
		}
		if h.From == c.deps.Incarnation {
			c.setRevision(device, revision)
			return h.desired(), true, nil
		}
		err = c.put(ctx, bucket, device, revision, h.desired())
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
	c.mu.Lock()
	revision := c.revisions[device]
	c.mu.Unlock()
	err = c.put(ctx, bucket, device, revision, entries)
	if !errors.Is(err, jetstream.ErrKeyExists) {
		return err
	}
	h, revision, err := stored(ctx, bucket, device)
	switch {
	case err != nil:
		return err
	case revision != 0 && h.From != c.deps.Incarnation:
		return ErrDeposed
	}
	return c.put(ctx, bucket, device, revision, entries) // a reply was lost, or the bucket
}

// put writes the entries of a device if revision is the newest; 0: there are none.
func (c *Component) put(ctx context.Context, bucket jetstream.KeyValue, device string, revision uint64,
	entries p4rt.Desired,
) error {
	data, err := encode(held{From: c.deps.Incarnation, Entries: entries.Entries, Absent: entries.Absent})
	if err != nil {
		return err
	}
	if limit := c.deps.Bus.Conn().MaxPayload(); int64(len(data)) > limit {
		return fmt.Errorf("%d entries have %d bytes; max_payload of the NATS servers is %d", len(entries.Entries), len(data),
			limit)
	}
	if revision == 0 {
		revision, err = bucket.Create(ctx, entryKey(device), data)
	} else {
		revision, err = bucket.Update(ctx, entryKey(device), data, revision)
	}
	if err == nil {
		c.setRevision(device, revision)
	}
	return err
}

// stored reads the entries of a device; the revision is 0 if there are none.
func stored(ctx context.Context, bucket jetstream.KeyValue, device string) (h held, revision uint64, err error) {
	entry, err := bucket.Get(ctx, entryKey(device))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return held{}, 0, nil
	}
	if err != nil {
		return held{}, 0, err
	}
	if err := decode(entry.Value(), &h); err != nil {
		return held{}, 0, fmt.Errorf("they cannot be read: %w", err)
	}
	return h, entry.Revision(), nil
}

func (c *Component) setRevision(device string, revision uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revisions[device] = revision
}

// noteEntries counts and logs when the entries of a device begin to fail, and work again.
func (c *Component) noteEntries(device string, err error) {
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
