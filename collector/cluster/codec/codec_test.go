// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// sample is an epoch with everything that a part can hold.
func sample() *epoch.Epoch {
	cells := func(object string, n int) sdk.Cells {
		v := make([]uint32, n)
		for i := range v {
			v[i] = uint32(i % 7)
		}
		return sdk.CellsOf(object, v)
	}
	return &epoch.Epoch{
		Number: 7, Start: t0, End: t0.Add(time.Second),
		Sources: []epoch.Outcome{
			{Name: "h1", Sealing: epoch.SealedBySource, Began: t0.Add(time.Second).Local(), Reading: &epoch.Reading{
				Hosts:        []sdk.HostReport{{Host: "h1", Role: "a", Data: []byte("report")}},
				MissingRoles: map[string]error{"b": errors.New("refused")}}},
			{Name: "h2", Sealing: epoch.SealedBySource, Err: epoch.ErrJoining},
			{Name: "s1", Sealing: epoch.SealedByCollector, Flip: time.Millisecond, Read: time.Second,
				Reading: &epoch.Reading{Objects: []sdk.Cells{cells("r1", 300_000), cells("r2", 3)}}},
			{Name: "s2", Sealing: epoch.SealedByPackets, Err: errors.New("no session")},
		},
		Warnings: []epoch.AccuracyWarning{{Reason: "all"}, {Source: "s1", Reason: "one"}},
		LateWarnings: []epoch.LateWarning{{Epoch: 6,
			AccuracyWarning: epoch.AccuracyWarning{Source: "s1", Reason: "then"}}},
		Late:    []sdk.LateReport{{Epoch: 5, HostReport: sdk.HostReport{Host: "h1", Role: "a", Data: []byte("late")}}},
		Timings: epoch.Timings{Flips: &epoch.Flips{First: time.Microsecond, Last: time.Millisecond}},
	}
}

func encode(t testing.TB) []byte {
	t.Helper()
	var payload bytes.Buffer
	merged := Merged{"p", &sdk.Epoch{Expected: []string{"s1"}}}
	merged.Epoch.Put("s1", sdk.CellsOf("r3", []uint8{1}))
	wanted := func(_, object string) bool { return object != "r2" }
	if err := WritePart(&payload, sample(), 2, 1<<30, wanted, merged); err != nil {
		t.Fatal(err)
	}
	return payload.Bytes()
}

// split returns the chunks of a transfer.
func split(member string, number uint64, payload []byte) (chunks [][]byte) {
	c := NewChunker(member, number, func(chunk []byte, _ bool) error {
		chunks = append(chunks, bytes.Clone(chunk))
		return nil
	})
	_, _ = c.Write(payload)
	_ = c.Close()
	return chunks
}

// decode decodes a part that arrives in pieces.
func decode(payload []byte, limit, piece int) (*Part, error) {
	d := NewPartDecoder(limit)
	for len(payload) > 0 {
		n := min(piece, len(payload))
		if _, err := d.Write(payload[:n]); err != nil {
			return nil, err
		}
		payload = payload[n:]
	}
	return d.Part()
}

func buffers() *bytes.Buffer { return new(bytes.Buffer) }

// A part arrives as it was sent, in chunks, without the registers that are not wanted.
func TestPart(t *testing.T) {
	payload := encode(t)
	j := NewJoiner(1<<24, func() *PartDecoder { return NewPartDecoder(1 << 24) })
	var whole *Transfer[*PartDecoder]
	chunks := split("c1", 3, payload)
	for i, chunk := range chunks {
		got, err := j.Add(chunk)
		if last := i == len(chunks)-1; err != nil || (got != nil) != last {
			t.Errorf("chunk %d completes the transfer: %v, want %v; error %v", i, got != nil, last, err)
		}
		whole = got
	}
	if len(chunks) != 3 || whole.Member != "c1" || whole.Number != 3 {
		t.Fatalf("%d chunks, transfer %d of %s", len(chunks), whole.Number, whole.Member)
	}
	part, err := whole.Sink.Part()
	if err != nil {
		t.Fatal(err)
	}
	from := sample()
	want := &Part{Epoch: 7, Fence: 2, Flips: from.Timings.Flips, Warnings: []string{"all"},
		Late: from.Late, Sources: []Source{
			{Name: "h1", Host: true, Result: epoch.Result{Began: t0.Add(time.Second), Reading: from.Sources[0].Reading}},
			{Name: "h2", Host: true, Err: epoch.ErrJoining},
			{Name: "s1", Result: epoch.Result{
				Reading: &epoch.Reading{
					Objects: []sdk.Cells{from.Sources[2].Reading.Objects[0], sdk.CellsOf("r3", []uint8{1})},
					Merged:  []*epoch.Merged{{Plugin: "p", Devices: []string{"s1"}}}},
				Warnings: []string{"one"}, LateWarnings: from.LateWarnings}},
			{Name: "s2", Err: errors.New("no session")},
		}}
	if diff := cmp.Diff(want, part, cmp.Comparer(bytes.Equal), cmp.Comparer(func(a, b error) bool {
		return fmt.Sprint(a) == fmt.Sprint(b) && errors.Is(a, epoch.ErrJoining) == errors.Is(b, epoch.ErrJoining)
	})); diff != "" {
		t.Errorf("part differs (-want +got):\n%s", diff)
	}
}

// A part that is cut short anywhere is an error, not a smaller part.
func TestPartCutShort(t *testing.T) {
	payload := encode(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		n := rnd.IntN(len(payload))
		if part, err := decode(payload[:n], 1<<24, 1+rnd.IntN(len(payload))); err == nil {
			t.Errorf("%d of %d bytes are the part %+v", n, len(payload), part)
		}
	}
	if _, err := decode(payload, 1<<20, len(payload)); !errors.Is(err, sdk.ErrEpochTooLarge) {
		t.Errorf("a part over the limit: %v", err)
	}
	if _, err := decode(append(payload, 0), 1<<24, len(payload)); err == nil {
		t.Error("a part with a message after its end is accepted")
	}
	long := binary.AppendUvarint(nil, maxMessage+1)
	if _, err := decode(long, 1<<24, 1); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a message over the limit: %v", err)
	}
}

// Merged devices have a reading in the part.
func TestMergedRefused(t *testing.T) {
	for want, devices := range map[string][]string{
		"merged and missing": {"s1", "s2"}, "merged twice": {"s1", "s1"}, "not among its sources": {"s1", "s9"},
	} {
		var payload bytes.Buffer
		if err := WritePart(&payload, sample(), 2, 1<<30, func(string, string) bool { return false },
			Merged{"p", &sdk.Epoch{Expected: devices}}); err != nil {
			t.Fatal(err)
		}
		if _, err := decode(payload.Bytes(), 1<<20, payload.Len()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("devices %v: error %v; want %q", devices, err, want)
		}
	}
}

// Chunks that are lost, repeated, or too large are refused by reason; other transfers go on.
func TestJoinerRefuses(t *testing.T) {
	payload := bytes.Repeat([]byte("x"), 3*ChunkBytes)
	first, second := split("c1", 1, payload), split("c1", 2, payload)
	large := split("c1", 3, append(payload, 'x'))
	j := NewJoiner(len(payload), buffers)
	for i, step := range []struct {
		chunk []byte
		want  error
		done  bool
	}{
		{chunk: first[0]},
		{chunk: first[2], want: ErrCutShort}, // the second one is lost
		{chunk: first[1], want: ErrRefused},
		{chunk: split("c2", 1, []byte("y"))[0], done: true},
		{chunk: second[0]},
		{chunk: first[0], want: ErrRepeated},
		{chunk: second[1]},
		{chunk: second[2], done: true},
		{chunk: second[2], want: ErrRepeated},
		{chunk: large[0]},
		{chunk: large[1]},
		{chunk: large[2]},
		{chunk: large[3], want: ErrTooLarge},
		{chunk: split("c1", 4, nil)[0], done: true},
	} {
		got, err := j.Add(step.chunk)
		if !errors.Is(err, step.want) || (got != nil) != step.done {
			t.Errorf("step %d: transfer %v, error %v; want %v, %v", i, got != nil, err, step.done, step.want)
		}
	}
}

// Results arrive as they were published.
func TestBatch(t *testing.T) {
	b := table.NewBuilder("/netsketch-univmon:univmon/flows/flow")
	flow, packets := b.TextKey("flow"), b.Uint("state/packets")
	for i := range 5 {
		flow.Append(string(rune('a' + i)))
		packets.Append(uint64(i))
	}
	tab, err := b.Table()
	if err != nil {
		t.Fatal(err)
	}
	want := store.Batch{Target: "s1", Time: t0, Epoch: 4, Tables: []store.Publication{{Table: tab, Replace: true},
		{Table: tab}}}
	payload, err := EncodeBatch(&want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeBatch(payload, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	rows := cmp.Transformer("rows", func(t *table.Table) (rows []string) {
		for row := range t.Rows() {
			rows = append(rows, fmt.Sprint(t.RowPath(row), " ", t.Values[0].Value(row)))
		}
		return rows
	})
	if diff := cmp.Diff(want, got, rows); diff != "" {
		t.Errorf("results differ (-want +got):\n%s", diff)
	}
	for n := range payload {
		if _, err := DecodeBatch(payload[:n], 1<<20); err == nil {
			t.Errorf("%d of %d bytes are results", n, len(payload))
		}
	}
	want.Tables[0].Delete = true
	if _, err := EncodeBatch(&want); err == nil {
		t.Error("a batch that deletes rows is encoded")
	}
}

// FuzzTransfer decodes what another process may send.
func FuzzTransfer(f *testing.F) {
	small := sample()
	small.Sources[2].Reading.Objects = small.Sources[2].Reading.Objects[1:]
	var payload bytes.Buffer
	if err := WritePart(&payload, small, 1, 1<<30, func(string, string) bool { return true }); err != nil {
		f.Fatal(err)
	}
	f.Add(split("c1", 1, payload.Bytes())[0])
	f.Fuzz(func(t *testing.T, chunk []byte) {
		whole, err := NewJoiner(1<<20, buffers).Add(chunk)
		if whole == nil {
			return
		}
		if err != nil || whole.Member == "" {
			t.Errorf("transfer %+v with error %v", whole, err)
		}
		for _, piece := range []int{1, len(chunk)} {
			if part, err := decode(whole.Sink.Bytes(), 1<<20, piece); (part == nil) != (err != nil) && err == nil {
				t.Errorf("part %+v, error %v", part, err)
			}
		}
		_, _ = DecodeBatch(whole.Sink.Bytes(), 1<<20)
	})
}
