// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
)

// chunkBytes is the size above which the entries of a device are divided: max_payload of a NATS
// server is at least twice as much, if it is the default.
const chunkBytes = 512 << 10

// chunkKey is the key of a chunk of a split.
func chunkKey(s *clusterv1.Split, device string, chunk uint32) string {
	return fmt.Sprintf("%s.%s.%d.%d", entryKey(device), entryKey(s.GetMember()), s.GetSlot(), chunk)
}

// putSplit writes the chunks of entries to a slot that the earlier entries do not use.
func (c *Component) putSplit(ctx context.Context, bucket jetstream.KeyValue, device string, before *clusterv1.Split,
	data []byte,
) (*clusterv1.Split, error) {
	sum := sha256.Sum256(data)
	s := &clusterv1.Split{Member: c.deps.Member, Sum: sum[:]}
	if before != nil && before.GetMember() == s.GetMember() {
		s.Slot = 1 - before.GetSlot()
	}
	for ; len(data) > 0; s.Chunks++ {
		n := min(len(data), chunkBytes)
		if _, err := bucket.Put(ctx, chunkKey(s, device, s.GetChunks()), data[:n]); err != nil {
			return nil, fmt.Errorf("chunk %d of entries: %w", s.GetChunks(), err)
		}
		data = data[n:]
	}
	return s, nil
}

// getSplit reads the chunks.
func getSplit(ctx context.Context, bucket jetstream.KeyValue, device string, s *clusterv1.Split) ([]byte, error) {
	var data []byte
	for i := range s.GetChunks() {
		entry, err := bucket.Get(ctx, chunkKey(s, device, i))
		if err != nil {
			return nil, fmt.Errorf("chunk %d of entries: %w", i, err)
		}
		if data = append(data, entry.Value()...); len(data) > maxMessage {
			return nil, fmt.Errorf("more than %d bytes of entries", maxMessage)
		}
	}
	if sum := sha256.Sum256(data); !bytes.Equal(sum[:], s.GetSum()) {
		return nil, errors.New("chunks of entries are of different times")
	}
	return data, nil
}

// removeSplit deletes chunks that are not in use any more. What cannot be deleted is overwritten
// later.
func removeSplit(ctx context.Context, bucket jetstream.KeyValue, device string, s *clusterv1.Split) {
	for i := range s.GetChunks() {
		if bucket.Delete(ctx, chunkKey(s, device, i)) != nil {
			return
		}
	}
}
