// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/netsketch/netsketch/collector/cluster/bus/bustest"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// The entries of a device go to its next owner, and the owner before cannot replace them any more.
func TestEntries(t *testing.T) {
	server := bustest.Server(t)
	a, b := start(t, server, "c1", members), start(t, server, "c2", members)
	device := "leaf 1.é"
	entries := func(n byte) (out p4rt.Desired) {
		for i := range n {
			out.Entries = append(out.Entries, route(i)[0].Entry)
			out.Absent = append(out.Absent, route(n + i)[0].Entry)
		}
		return out
	}
	take := func(s *side, want p4rt.Desired, wantOwn bool) {
		t.Helper()
		got, own, err := s.Take(t.Context(), device)
		if diff := cmp.Diff(want, got); err != nil || own != wantOwn || diff != "" {
			t.Errorf("taken by its owner: %v, want %v, error %v, entries (-want +got):\n%s", own, wantOwn, err, diff)
		}
	}
	store := func(s *side, n byte) {
		t.Helper()
		if err := s.Store(t.Context(), device, entries(n)); err != nil {
			t.Error(err)
		}
	}
	take(a, entries(0), false)
	store(a, 1)
	store(a, 2)
	take(a, entries(2), true)
	take(b, entries(2), false)
	if err := a.Store(t.Context(), device, entries(3)); !errors.Is(err, ErrDeposed) {
		t.Errorf("the owner before stores entries: %v", err)
	}
	take(b, entries(2), true)
	b.setRevision(device, 0) // as if replies had been lost
	store(b, 4)
	take(a, entries(4), false)
	if got := a.EntriesFailed() + b.EntriesFailed(); got != 1 {
		t.Errorf("%d failures, want 1", got)
	}

	js := a.deps.Bus.JetStream()
	if err := js.DeleteKeyValue(t.Context(), a.deps.Bus.Bucket("entries")); err != nil {
		t.Fatal(err)
	}
	err := errors.New("no attempt")
	for range 3 { // the first one finds that the bucket is gone
		if err != nil {
			err = a.Store(t.Context(), device, entries(5))
		}
	}
	if err != nil {
		t.Error(err)
	}
	take(b, entries(5), false)

	bucket, err := js.KeyValue(t.Context(), a.deps.Bus.Bucket("entries"))
	if err == nil {
		_, err = bucket.PutString(t.Context(), entryKey(device), "garbage")
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Take(t.Context(), device); err == nil {
		t.Error("garbage is read")
	}
	large := make([]byte, 2<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(large) // never fails
	tooMuch := p4rt.Desired{Entries: []p4rt.Entry{{Params: []p4rt.Param{p4rt.Bytes("large", large)}}}}
	if err := b.Store(t.Context(), "s2", tooMuch); err == nil {
		t.Error("entries over the limit of a message are stored")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Store(ended, device, p4rt.Desired{}); err == nil {
		t.Error("a call whose context has ended succeeds")
	}
}

// Owners that take a device at the same time: one of them is the last, and only that one stores.
func TestEntriesOfTwoOwners(t *testing.T) {
	server := bustest.Server(t)
	sides := []*side{start(t, server, "c1", members), start(t, server, "c2", members)}
	for n := range 20 {
		device := fmt.Sprint("s", n)
		done := make(chan error)
		for _, s := range sides {
			go func() {
				_, _, err := s.Take(t.Context(), device)
				done <- err
			}()
		}
		if err := errors.Join(<-done, <-done); err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
			t.Error(err)
		}
		stored := 0
		for _, s := range sides {
			if err := s.Store(t.Context(), device, p4rt.Desired{}); err == nil {
				stored++
			} else if !errors.Is(err, ErrDeposed) {
				t.Error(err)
			}
		}
		if stored != 1 {
			t.Errorf("%s: %d owners store, want 1", device, stored)
		}
	}
}
