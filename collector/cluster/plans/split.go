// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
)

// chunkBytes is the size above which a value is divided. It is half of the default max_payload of a
// NATS server.
const chunkBytes = 512 << 10

// chunkKey is the key of a chunk of a split.
func chunkKey(s *clusterv1.Split, key string, chunk uint32) string {
	return fmt.Sprintf("%s.%s.%d.%d", key, token(s.GetMember()), s.GetSlot(), chunk)
}

// stored is a message that may be divided.
type stored interface {
	proto.Message
	GetProtocol() uint32
	GetFrom() string
	GetSplit() *clusterv1.Split
}

// pack encodes a message. If the message is too large for one value, pack writes it in chunks, and
// encodes head, which refers to the chunks. before is the value that the key has now.
func (c *Component) pack(ctx context.Context, bucket jetstream.KeyValue, key string, before *clusterv1.Split, m stored,
	head func(*clusterv1.Split) stored,
) (data []byte, split *clusterv1.Split, err error) {
	data, err = encode(m)
	if err == nil && len(data) > chunkBytes {
		if split, err = c.putSplit(ctx, bucket, key, before, data); err == nil {
			data, err = encode(head(split))
		}
	}
	return data, split, err
}

// unpack decodes a message that pack encoded, and returns where its chunks are.
func unpack(ctx context.Context, bucket jetstream.KeyValue, key string, data []byte, m stored) (
	*clusterv1.Split, error,
) {
	err := decodeStored(data, m)
	split := m.GetSplit()
	if err == nil && split != nil {
		if data, err = getSplit(ctx, bucket, key, split); err == nil {
			err = decodeStored(data, m)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("key %s of bucket %s cannot be read: %w", key, bucket.Bucket(), err)
	}
	return split, nil
}

// decodeStored reads a stored message of this version.
func decodeStored(data []byte, m stored) error {
	if err := decode(data, m); err != nil {
		return err
	}
	if m.GetFrom() == "" {
		return errors.New("it does not name the collector that stored it")
	}
	return clusterv1.CheckVersion(m.GetProtocol())
}

// putSplit writes chunks to a slot that the current chunks do not use.
func (c *Component) putSplit(ctx context.Context, bucket jetstream.KeyValue, key string, before *clusterv1.Split,
	data []byte,
) (*clusterv1.Split, error) {
	sum := sha256.Sum256(data)
	s := &clusterv1.Split{Member: c.deps.Member, Sum: sum[:]}
	if before != nil && before.GetMember() == s.GetMember() {
		s.Slot = 1 - before.GetSlot()
	}
	for ; len(data) > 0; s.Chunks++ {
		n := min(len(data), chunkBytes)
		if _, err := bucket.Put(ctx, chunkKey(s, key, s.GetChunks()), data[:n]); err != nil {
			return nil, fmt.Errorf("chunk %d of a value: %w", s.GetChunks(), err)
		}
		data = data[n:]
	}
	return s, nil
}

// getSplit reads the chunks.
func getSplit(ctx context.Context, bucket jetstream.KeyValue, key string, s *clusterv1.Split) ([]byte, error) {
	var data []byte
	for i := range s.GetChunks() {
		entry, err := bucket.Get(ctx, chunkKey(s, key, i))
		if err != nil {
			return nil, fmt.Errorf("chunk %d of a value: %w", i, err)
		}
		if data = append(data, entry.Value()...); len(data) > maxMessage {
			return nil, fmt.Errorf("more than %d bytes", maxMessage)
		}
	}
	if sum := sha256.Sum256(data); !bytes.Equal(sum[:], s.GetSum()) {
		return nil, errors.New("the chunks are of different times")
	}
	return data, nil
}

// removeSplit deletes chunks that are not in use any more. A chunk that cannot be deleted is
// overwritten later.
func removeSplit(ctx context.Context, bucket jetstream.KeyValue, key string, s *clusterv1.Split) {
	for i := range s.GetChunks() {
		if bucket.Delete(ctx, chunkKey(s, key, i)) != nil {
			return
		}
	}
}
