// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// The next owner of a device receives its entries, and the former owner can no longer replace them.
func TestEntries(t *testing.T) {
	server := bustest.Server(t)
	a, b := start(t, server, "c1", members), start(t, server, "c2", members)
	device := "leaf 1.é"
	entries := func(n byte) (out intent.Held) {
		for i := range n {
			out.Entries = append(out.Entries, route(i)[0].Entry)
			out.Absent = append(out.Absent, route(n + i)[0].Entry)
		}
		return out
	}
	take := func(s *side, want intent.Held, wantOwn bool) {
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
	if err := a.Store(t.Context(), device, entries(3)); !errors.Is(err, intent.ErrDeposed) {
		t.Errorf("the owner before stores entries: %v", err)
	}
	take(b, entries(2), true)
	b.setKnown(device, known{}) // as if replies had been lost
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

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Store(ended, device, intent.Held{}); err == nil {
		t.Error("a call whose context has ended succeeds")
	}
}

// Entries that cannot be read, or are of another version, are counted, and logged once with their
// key. They are not treated as missing, and nothing overwrites them.
func TestEntriesThatCannotBeRead(t *testing.T) {
	a := start(t, bustest.Server(t), "c1", members)
	log := &testkit.Log{}
	a.log = slog.New(slog.NewTextHandler(log, nil))
	bucket, err := a.entriesOf.on(t.Context(), a.deps.Bus)
	if err != nil {
		t.Fatal(err)
	}
	encoded := func(m *clusterv1.StoredEntries, unknown ...byte) []byte {
		m.ProtoReflect().SetUnknown(unknown)
		data, err := encode(m)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	later := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)
	for device, test := range map[string]struct {
		data []byte
		want string
	}{
		"s1": {[]byte("garbage"), "flate"},
		"s2": {encoded(&clusterv1.StoredEntries{Protocol: clusterv1.Version + 1, From: "c2"}),
			fmt.Sprintf("they are in version %d", clusterv1.Version+1)},
		"s3": {encoded(&clusterv1.StoredEntries{Protocol: clusterv1.Version, From: "c2"}, later...), "field 99 of Stored"},
		"s4": {encoded(&clusterv1.StoredEntries{}), "does not name the collector"},
	} {
		revision, err := bucket.Put(t.Context(), token(device), test.data)
		if err != nil {
			t.Fatal(err)
		}
		before := a.EntriesFailed()
		for range 2 {
			got, _, err := a.Take(t.Context(), device)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: entries %v, error %v; want %q", device, got, err, test.want)
			}
			if err := a.Store(t.Context(), device, intent.Held{}); err == nil {
				t.Errorf("%s: entries are replaced that cannot be read", device)
			}
		}
		now, err := bucket.Get(t.Context(), token(device))
		if err != nil || now.Revision() != revision || a.EntriesFailed() != before+4 {
			t.Errorf("%s: revision %d, error %v, %d failures; want revision %d and 4 failures", device, now.Revision(), err,
				a.EntriesFailed()-before, revision)
		}
		if n := strings.Count(log.String(), "key "+token(device)+" of bucket"); n != 1 {
			t.Errorf("%s: %d lines with the key, want 1:\n%s", device, n, log)
		}
	}
}

// The next owner receives each field of an entry and of an outcome.
func TestEntryForm(t *testing.T) {
	e := p4rt.Entry{Table: "t", Priority: 1, Default: true, Action: "a",
		Params: []p4rt.Param{{Name: "p", Value: []byte{1}}},
		Match: []p4rt.Match{{Field: "f", Kind: p4values.Ternary, Value: []byte{2}, Mask: []byte{3}, High: []byte{4},
			PrefixLen: 5}}}
	o := intent.Outcome{Plugin: "p", Plan: 1, Maker: "c1", Number: 2, Device: "s1", Host: "h1", Role: "r",
		Result: intent.Late, Begin: 3, From: 4, Reason: "why"}
	for _, v := range []any{e, e.Match[0], e.Params[0], o} {
		for i := range reflect.TypeOf(v).NumField() {
			if reflect.ValueOf(v).Field(i).IsZero() {
				t.Errorf("%T: this test does not set field %s", v, reflect.TypeOf(v).Field(i).Name)
			}
		}
	}
	if diff := cmp.Diff(e, entryFrom(entryProto(e))) + cmp.Diff(o, outcomeFrom(outcomeProto(o))); diff != "" {
		t.Errorf("entry differs (-want +got):\n%s", diff)
	}
}

// Entries that do not fit one message are divided. Chunks in use stay until others replace them,
// even while a deposed owner writes; then they are deleted.
func TestLargeEntries(t *testing.T) {
	server := bustest.Server(t)
	a, b := start(t, server, "c1", members), start(t, server, "c2", members)
	entries := func(seed byte, size int) intent.Held {
		value := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(value) // never fails
		return intent.Held{Desired: p4rt.Desired{Entries: []p4rt.Entry{{Params: []p4rt.Param{p4rt.Bytes("large", value)}}}}}
	}
	const device, large = "s1", 3 << 20
	take := func(s *side, want intent.Held) {
		t.Helper()
		if got, _, err := s.Take(t.Context(), device); err != nil || !reflect.DeepEqual(want, got) {
			t.Errorf("%d entries are taken, error %v", len(got.Entries), err)
		}
	}
	store := func(s *side, entries intent.Held) {
		t.Helper()
		if err := s.Store(t.Context(), device, entries); err != nil {
			t.Error(err)
		}
	}
	take(a, intent.Held{})
	for seed := range byte(3) {
		store(a, entries(seed, large))
		take(a, entries(seed, large))
	}
	take(b, entries(2, large))
	if err := a.Store(t.Context(), device, entries(3, large)); !errors.Is(err, intent.ErrDeposed) {
		t.Errorf("the owner before stores entries: %v", err)
	}
	take(b, entries(2, large))
	store(b, entries(4, large))
	take(a, entries(4, large))
	if err := a.Store(t.Context(), device, entries(5, maxMessage)); err == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf("at most %d are shared", maxMessage)) {
		t.Errorf("entries above the limit: %v", err)
	}
	take(b, entries(4, large))
	store(b, entries(6, 10))
	take(a, entries(6, 10))
	bucket, err := a.entriesOf.on(t.Context(), a.deps.Bus)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := bucket.Keys(t.Context())
	if err != nil || len(keys) != 1 {
		t.Errorf("the keys of small entries are %q, error %v", keys, err)
	}
	store(a, entries(7, large))
	if err := bucket.Delete(t.Context(), chunkKey(a.known[device].split, token(device), 1)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Take(t.Context(), device); err == nil || !strings.Contains(err.Error(), "chunk 1 of a value") {
		t.Errorf("entries without a chunk are taken: %v", err)
	}
}

// Servers that cannot write to their disks do not answer. A call then ends with its context, and
// the failure is counted and named. Calls succeed when the servers answer again.
func TestEntriesWithoutAnAnswer(t *testing.T) {
	a := start(t, bustest.Server(t), "c1", members)
	log := &testkit.Log{}
	a.log = slog.New(slog.NewTextHandler(log, nil))
	if _, _, err := a.Take(t.Context(), "s1"); err != nil {
		t.Fatal(err)
	}
	b := a.deps.Bus
	if err := b.JetStream().DeleteKeyValue(t.Context(), b.Bucket("entries")); err != nil {
		t.Fatal(err)
	}
	silent, err := b.Conn().SubscribeSync("$KV." + b.Bucket("entries") + ".>")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := a.Store(ctx, "s1", intent.Held{}); !errors.Is(err, context.DeadlineExceeded) || a.EntriesFailed() != 1 ||
		!strings.Contains(log.String(), "JetStream does not answer; see the disks and the logs") {
		t.Errorf("error %v, %d failures, log:\n%s", err, a.EntriesFailed(), log)
	}
	if err := silent.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	if err := a.Store(t.Context(), "s1", intent.Held{}); err != nil ||
		!strings.Contains(log.String(), "are shared again") {
		t.Errorf("error %v, log:\n%s", err, log)
	}
}

// Several owners take a device at the same time. The last one can store entries, and the others
// cannot.
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
			if err := s.Store(t.Context(), device, intent.Held{}); err == nil {
				stored++
			} else if !errors.Is(err, intent.ErrDeposed) {
				t.Error(err)
			}
		}
		if stored != 1 {
			t.Errorf("%s: %d owners store, want 1", device, stored)
		}
	}
}
