// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/netsketch/netsketch/collector/cluster/bus"
)

// offsetEvery is the number of renewals between two measurements of the clock.
const offsetEvery = 10

// leases is the bucket of leases.
const leases = "leases"

// lease is the entry of a member in the bucket of members. The bucket drops entries that are not
// renewed.
type lease struct {
	bucket   jetstream.KeyValue // nil while the bucket is not open
	created  uint64             // when the bucket was created, in seconds since 1970
	key      string
	revision uint64    // revision of the entry; 0 without an entry
	newest   uint64    // revision of an entry of this member in the bucket
	lost     bool      // whether the NATS servers have lost the bucket's entries
	at       time.Time // start of the latest renewal

	now                 func() time.Time // clock that is compared with the NATS server's clock
	renewals            int
	offset, uncertainty time.Duration // difference of the clock to the NATS server's clock
}

// held reports whether the member holds its lease: the bucket cannot have dropped the entry yet.
func (l *lease) held(now time.Time, duration time.Duration) bool {
	return !l.at.IsZero() && now.Sub(l.at) < duration
}

// fence is above the fence of every member that renewed its lease before the latest renewal of this
// one, also if the bucket or its entries have been lost.
func (l *lease) fence() uint64 { return l.created<<32 | l.revision&(1<<32-1) }

// renew creates or renews the entry of the lease. After creating it, renew returns the other
// members.
func (l *lease) renew(ctx context.Context, b *bus.Bus, m Member, duration time.Duration) (found []Member, err error) {
	defer func() {
		if err != nil && ctx.Err() == nil {
			l.bucket = nil // the bucket may be gone with the server's memory
		}
	}()
	if err := b.Connected(); err != nil {
		return nil, err
	}
	m.Offset, m.Uncertainty = l.offset, l.uncertainty
	data, err := m.encode()
	if err != nil {
		return nil, err
	}
	if l.bucket == nil {
		if err := l.open(ctx, b, duration); err != nil {
			return nil, err
		}
	}
	l.key = m.Name
	if !l.held(time.Now(), duration) {
		if found, err = members(ctx, l.bucket, m.Name); err != nil {
			return nil, err
		}
	}
	begin, from := time.Now(), l.now()
	revision, err := l.write(ctx, data)
	if errors.Is(err, jetstream.ErrKeyExists) { // the reply of a renewal may have been lost
		if err = l.adopt(ctx, m); err == nil {
			revision, err = l.write(ctx, data)
		}
	}
	if err != nil {
		return nil, err
	}
	if revision < l.newest {
		l.lost = true
		return nil, errors.New("the NATS servers have lost the leases; the next ones are in another bucket")
	}
	l.measure(ctx, revision, from)
	l.revision, l.newest, l.at = revision, revision, begin
	return found, nil
}

// write writes the entry if nobody has changed it since this member last wrote it.
func (l *lease) write(ctx context.Context, data []byte) (revision uint64, err error) {
	if l.revision == 0 {
		return l.bucket.Create(ctx, l.key, data)
	}
	return l.bucket.Update(ctx, l.key, data, l.revision)
}

// adopt takes over the revision of an entry that this member wrote, 0 if there is no entry.
func (l *lease) adopt(ctx context.Context, m Member) error {
	l.revision = 0
	entry, err := l.bucket.Get(ctx, l.key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	other, err := decodeMember(entry.Value())
	if err != nil {
		return fmt.Errorf("another collector, of another version of netsketch, is member %s; it leaves, or its lease ends, "+
			"before this one can join: %w", m.Name, err)
	}
	if other.Incarnation != m.Incarnation {
		return fmt.Errorf("another collector, started at %s, is member %s; it leaves, or its lease ends, before this "+
			"one can join", other.Started.Format(time.RFC3339), m.Name)
	}
	l.revision = entry.Revision()
	return nil
}

// measure compares the clock with the server's clock: the server notes when it wrote an entry,
// between begin and the reply.
func (l *lease) measure(ctx context.Context, revision uint64, begin time.Time) {
	end := l.now()
	if l.renewals++; l.renewals%offsetEvery != 1 {
		return
	}
	entry, err := l.bucket.GetRevision(ctx, l.key, revision)
	if err != nil {
		return // the next measurement tries again
	}
	half := end.Sub(begin) / 2
	l.offset, l.uncertainty = begin.Add(half).Sub(entry.Created()), half
}

// open opens the bucket, and creates it if there is none. The bucket is in memory, so that the full
// disk of a single NATS server stops no lease.
func (l *lease) open(ctx context.Context, b *bus.Bus, duration time.Duration) error {
	var info *jetstream.StreamInfo
	bucket, err := OpenMembers(ctx, b)
	if err == nil {
		info, err = streamOf(ctx, bucket)
	}
	if err == nil && l.emptied(info, duration) {
		if err = b.JetStream().DeleteKeyValue(ctx, b.Bucket(leases)); err == nil {
			err = jetstream.ErrBucketNotFound
		}
	}
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		bucket, err = b.JetStream().CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: b.Bucket(leases), Description: "leases of the members of netsketch cluster " + b.Name(),
			TTL: duration, Storage: jetstream.MemoryStorage, Replicas: b.Replicas(), MaxBytes: 4 << 20,
			MaxValueSize: maxLease,
		})
		if err == nil {
			info, err = streamOf(ctx, bucket)
		}
	}
	if err != nil {
		return err
	}
	if created := uint64(info.Created.Unix()); created != l.created { // the servers have created another bucket
		l.created, l.revision, l.newest, l.lost = created, 0, 0, false
	}
	l.bucket = bucket
	return nil
}

// emptied reports whether the NATS servers have lost the entries of a bucket because all of them
// were restarted. The servers know when the bucket was created, but count its revisions from 1
// again, so that new fences would be below earlier ones.
func (l *lease) emptied(info *jetstream.StreamInfo, duration time.Duration) bool {
	return l.lost && uint64(info.Created.Unix()) == l.created ||
		info.State.LastSeq == 0 && info.TimeStamp.Sub(info.Created) > duration
}

// streamOf describes the stream of a bucket.
func streamOf(ctx context.Context, bucket jetstream.KeyValue) (*jetstream.StreamInfo, error) {
	status, err := bucket.Status(ctx)
	if err != nil {
		return nil, err
	}
	s, ok := status.(*jetstream.KeyValueBucketStatus)
	if !ok {
		return nil, fmt.Errorf("bucket %s is no stream", bucket.Bucket())
	}
	return s.StreamInfo(), nil
}

// OpenMembers opens the bucket of leases.
func OpenMembers(ctx context.Context, b *bus.Bus) (jetstream.KeyValue, error) {
	return b.JetStream().KeyValue(ctx, b.Bucket(leases))
}

// Members returns the members that hold a lease.
func Members(ctx context.Context, b *bus.Bus) ([]Member, error) {
	bucket, err := OpenMembers(ctx, b)
	if err != nil {
		return nil, err
	}
	return members(ctx, bucket, "")
}

// members returns the members of a bucket except one.
func members(ctx context.Context, bucket jetstream.KeyValue, except string) (all []Member, err error) {
	watch, err := bucket.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, err
	}
	defer func() { _ = watch.Stop() }() // the context of the watch ends, too
	for {
		select {
		case entry := <-watch.Updates():
			if entry == nil {
				return all, nil
			}
			m, err := decodeMember(entry.Value())
			if err != nil {
				m = unreadable(entry.Key())
			}
			if m.Name != except {
				all = append(all, m)
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// giveBack deletes the entry of the lease. If the deletion fails, the lease ends by itself.
func (l *lease) giveBack(ctx context.Context, m Member) {
	for range 2 {
		if l.bucket == nil || l.revision == 0 || l.bucket.Delete(ctx, l.key, jetstream.LastRevision(l.revision)) == nil {
			return
		}
		if l.adopt(ctx, m) != nil { // a renewal that was cut short may have been written
			return
		}
	}
}
