// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/devconfig"
)

// Records are a bucket with what the collectors of a cluster wrote to each device over gNMI. The
// type implements devconfig.Records.
type Records struct {
	bus    *bus.Bus
	bucket bucket
}

// NewRecords returns the records of a cluster.
func NewRecords(b *bus.Bus) *Records {
	return &Records{bus: b, bucket: bucket{name: "devices", holds: "what was written to each device over gNMI"}}
}

// Load implements devconfig.Records.
func (r *Records) Load(ctx context.Context, device string) (data []byte, revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	kv, err := r.bucket.on(ctx, r.bus)
	if err != nil {
		return nil, 0, r.failed(err)
	}
	entry, err := kv.Get(ctx, token(device))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return nil, 0, nil
	case err != nil:
		return nil, 0, r.failed(err)
	}
	data, err = io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(entry.Value())), maxMessage+1))
	if err == nil && len(data) > maxMessage {
		err = fmt.Errorf("more than %d bytes", maxMessage)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("key %s of bucket %s: %w", token(device), kv.Bucket(), err)
	}
	return data, entry.Revision(), nil
}

// Save implements devconfig.Records.
func (r *Records) Save(ctx context.Context, device string, data []byte, revision uint64) (next uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	kv, err := r.bucket.on(ctx, r.bus)
	if err != nil {
		return 0, r.failed(err)
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err == nil {
		_, err = w.Write(data)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return 0, err
	}
	if revision == 0 {
		next, err = kv.Create(ctx, token(device), packed.Bytes())
	} else {
		next, err = kv.Update(ctx, token(device), packed.Bytes(), revision)
	}
	switch {
	case errors.Is(err, jetstream.ErrKeyExists):
		return 0, devconfig.ErrDeposed
	case err != nil:
		return 0, r.failed(err)
	}
	return next, nil
}

// failed makes the next call open the bucket again.
func (r *Records) failed(err error) error {
	r.bucket.failed()
	return fmt.Errorf("cluster: %w", bus.Unanswered(err))
}
