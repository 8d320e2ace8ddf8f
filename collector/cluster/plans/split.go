// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// chunkBytes is the size above which the entries of a device are divided: max_payload of a NATS
// server is at least twice as much, if it is the default.
const chunkBytes = 512 << 10

// split is where the compressed entries of a device are that do not fit one message. They are
// complete before the key of the device refers to them.
type split struct {
	Member string `json:"member"` // that wrote them
	// Slot is 0 or 1: chunks in use are not overwritten.
	Slot   int    `json:"slot"`
	Chunks int    `json:"chunks"`
	Sum    []byte `json:"sum"` // SHA-256 of all
}

func (s *split) key(device string, chunk int) string {
	return fmt.Sprintf("%s.%s.%d.%d", entryKey(device), entryKey(s.Member), s.Slot, chunk)
}

// putSplit writes the chunks of entries to a slot that the ones before do not use.
func (c *Component) putSplit(ctx context.Context, bucket jetstream.KeyValue, device string, before *split,
	data []byte,
) (*split, error) {
	sum := sha256.Sum256(data)
	s := &split{Member: c.deps.Member, Sum: sum[:]}
	if before != nil && before.Member == s.Member {
		s.Slot = 1 - before.Slot
	}
	for ; len(data) > 0; s.Chunks++ {
		n := min(len(data), chunkBytes)
		if _, err := bucket.Put(ctx, s.key(device, s.Chunks), data[:n]); err != nil {
			return nil, fmt.Errorf("chunk %d of entries: %w", s.Chunks, err)
		}
		data = data[n:]
	}
	return s, nil
}

// get reads the chunks.
func (s *split) get(ctx context.Context, bucket jetstream.KeyValue, device string) ([]byte, error) {
	var data []byte
	for i := range s.Chunks {
		entry, err := bucket.Get(ctx, s.key(device, i))
		if err != nil {
			return nil, fmt.Errorf("chunk %d of entries: %w", i, err)
		}
		if data = append(data, entry.Value()...); len(data) > maxMessage {
			return nil, fmt.Errorf("more than %d bytes of entries", maxMessage)
		}
	}
	if sum := sha256.Sum256(data); !bytes.Equal(sum[:], s.Sum) {
		return nil, errors.New("chunks of entries are of different times")
	}
	return data, nil
}

// remove deletes chunks that are not in use any more. What cannot be deleted is overwritten later.
func (s *split) remove(ctx context.Context, bucket jetstream.KeyValue, device string) {
	for i := range s.Chunks {
		if bucket.Delete(ctx, s.key(device, i)) != nil {
			return
		}
	}
}
