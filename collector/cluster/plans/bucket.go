// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"
	"errors"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/netsketch/netsketch/collector/cluster/bus"
)

// maxBucket bounds a bucket in bytes.
const maxBucket = 64 << 20

// bucket is a key-value bucket, in files of the NATS servers.
type bucket struct {
	name, holds string

	mu   sync.Mutex
	open jetstream.KeyValue // nil while the bucket is not open
}

// on opens the bucket, and creates it if there is none.
func (k *bucket) on(ctx context.Context, b *bus.Bus) (jetstream.KeyValue, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.open != nil {
		return k.open, nil
	}
	opened, err := b.JetStream().KeyValue(ctx, b.Bucket(k.name))
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		opened, err = b.JetStream().CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: b.Bucket(k.name),
			Description: k.holds + ", of netsketch cluster " + b.Name(), Replicas: b.Replicas(), MaxBytes: maxBucket})
	}
	if err == nil {
		k.open = opened
	}
	return opened, err
}

// failed makes the next call open the bucket again, because the bucket is gone if the servers have
// lost their files.
func (k *bucket) failed() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open = nil
}
