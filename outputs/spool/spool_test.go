// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("SPOOL_TEST_CHILD"); dir != "" {
		child(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

var start = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)

func data(i uint64) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "record %d ", i), int(i%7)+1)
}

func record(i uint64) Record {
	return Record{Time: start.Add(time.Duration(i) * time.Second), Items: uint32(i%5) + 1, Data: data(i)}
}

func open(tb testing.TB, o Options) *Queue {
	tb.Helper()
	q, err := Open(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { q.Close() })
	return q
}

func appendN(tb testing.TB, q *Queue, from, to uint64) {
	tb.Helper()
	for i := from; i < to; i++ {
		if _, err := q.Append(record(i)); err != nil {
			tb.Fatal(err)
		}
	}
}

// drain removes all records, checks that each record is intact, and returns their numbers.
func drain(tb testing.TB, q *Queue) []uint64 {
	tb.Helper()
	var got []uint64
	for {
		r, ok, err := q.Next()
		if err != nil {
			tb.Fatal(err)
		}
		if !ok {
			return got
		}
		if want := record(r.Seq); !bytes.Equal(r.Data, want.Data) || !r.Time.Equal(want.Time) || r.Items != want.Items {
			tb.Fatalf("record %d came back as %v %d %q", r.Seq, r.Time, r.Items, r.Data)
		}
		got = append(got, r.Seq)
		q.Ack(r.Seq)
	}
}

func wantRange(tb testing.TB, got []uint64, from, to uint64) {
	tb.Helper()
	if uint64(len(got)) != to-from {
		tb.Fatalf("%d records, want %d to %d; got %v", len(got), from, to, got)
	}
	for i, n := range got {
		if n != from+uint64(i) {
			tb.Fatalf("record %d at place %d, want %d", n, i, from+uint64(i))
		}
	}
}

func segments(tb testing.TB, dir string) []string {
	tb.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil {
		tb.Fatal(err)
	}
	return names
}

func TestOrderAcrossReopening(t *testing.T) {
	o := Options{Dir: filepath.Join(t.TempDir(), "a", "b"), SegmentBytes: 500}
	q := open(t, o)
	appendN(t, q, 0, 100)
	if n := len(segments(t, o.Dir)); n < 5 {
		t.Errorf("%d segments", n)
	}
	for range 37 {
		r, _, err := q.Next()
		if err != nil {
			t.Fatal(err)
		}
		q.Ack(r.Seq)
	}
	r, _, _ := q.Next() // delivered, not acknowledged
	if again, _, _ := q.Next(); again.Seq != r.Seq {
		t.Errorf("Next moved on without Ack, to %d", again.Seq)
	}
	q.Ack(r.Seq + 1) // not the outstanding one
	if s := q.Stats(); s.Records != 63 {
		t.Errorf("%+v", s)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Append(record(0)); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	q = open(t, o)
	appendN(t, q, 100, 120)
	want := q.Stats()
	wantRange(t, drain(t, q), 37, 120)
	if s := q.Stats(); s.Records != 0 || s.Items != 0 || s.Bytes != 0 || len(segments(t, o.Dir)) != 0 {
		t.Errorf("drained: %+v, %v", s, segments(t, o.Dir))
	}
	if want.Records != 83 {
		t.Errorf("%+v", want)
	}
	q.Close()
	q = open(t, o) // numbers continue
	appendN(t, q, 120, 121)
	wantRange(t, drain(t, q), 120, 121)
}

func TestSizeBound(t *testing.T) {
	o := Options{Dir: t.TempDir(), MaxBytes: 8 << 10, SegmentBytes: 1 << 10}
	q := open(t, o)
	var items uint64
	for i := range uint64(1000) {
		appendN(t, q, i, i+1)
		items += uint64(record(i).Items)
		var disk int64
		for _, s := range segments(t, o.Dir) {
			info, err := os.Stat(s)
			if err != nil {
				t.Fatal(err)
			}
			disk += info.Size()
		}
		if s := q.Stats(); disk > o.MaxBytes || disk != s.Bytes || s.Items+s.DroppedSize != items {
			t.Fatalf("after %d records: %d bytes on disk, %+v, %d items appended", i, disk, s, items)
		}
	}
	s := q.Stats()
	if s.DroppedSize == 0 || s.Bytes < o.MaxBytes-2*o.SegmentBytes {
		t.Errorf("%+v", s)
	}
	got := drain(t, q)
	wantRange(t, got, 1000-uint64(len(got)), 1000) // the newest
	if _, err := q.Append(Record{Data: make([]byte, 9<<10)}); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

// Ack of a record that was dropped while it was outstanding acknowledges no other record. It counts
// as dropped only if it was not delivered.
func TestDropWhileOut(t *testing.T) {
	for _, delivered := range []bool{true, false} {
		q := open(t, Options{Dir: t.TempDir(), MaxBytes: 1000, SegmentBytes: 300})
		appendN(t, q, 0, 2)
		r, _, _ := q.Next()
		appendN(t, q, 2, 40)
		var items uint64
		for i := range uint64(40) {
			items += uint64(record(i).Items)
		}
		if s := q.Stats(); s.Items+s.DroppedSize != items {
			t.Errorf("while it is out: %+v of %d items", s, items)
		}
		if delivered {
			q.Ack(r.Seq)
			items -= uint64(r.Items)
		}
		got := drain(t, q)
		wantRange(t, got, 40-uint64(len(got)), 40)
		for _, i := range got {
			items -= uint64(record(i).Items)
		}
		if s := q.Stats(); s.DroppedSize != items || s.Items != 0 {
			t.Errorf("delivered %v: %+v, %d items are lost", delivered, s, items)
		}
	}
}

// A record that was dropped while it was outstanding counts as dropped after a restart, unless it
// was delivered before the restart.
func TestRestartWhileOut(t *testing.T) {
	for _, delivered := range []bool{true, false} {
		o := Options{Dir: t.TempDir(), MaxBytes: 1000, SegmentBytes: 300}
		q := open(t, o)
		appendN(t, q, 0, 2)
		r, _, _ := q.Next()
		appendN(t, q, 2, 40)
		var items uint64
		for i := range uint64(40) {
			items += uint64(record(i).Items)
		}
		if delivered {
			q.Ack(r.Seq)
			items -= uint64(r.Items)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		if s := open(t, o).Stats(); s.Items+s.DroppedSize != items {
			t.Errorf("delivered %v: %+v of %d items after a restart", delivered, s, items)
		}
	}
}

func TestAgeBound(t *testing.T) {
	now := start.Add(100 * time.Second)
	o := Options{Dir: t.TempDir(), MaxAge: 10 * time.Second, SegmentBytes: 400, Now: func() time.Time { return now }}
	q := open(t, o)
	appendN(t, q, 90, 101)
	now = now.Add(5 * time.Second) // 90 to 94 are too old
	count := 0
	for {
		r, ok, err := q.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if now.Sub(r.Time) > o.MaxAge {
			t.Errorf("a record of %v at %v", r.Time, now)
		}
		count++
		q.Ack(r.Seq)
	}
	if s := q.Stats(); count != 6 || s.DroppedAge == 0 || s.Items != 0 {
		t.Errorf("%d records, %+v", count, s)
	}
}

// Cutting the newest segment anywhere loses the records that were cut and no other.
func TestTruncation(t *testing.T) {
	dir := t.TempDir()
	q := open(t, Options{Dir: dir})
	appendN(t, q, 0, 10)
	q.Close()
	path := segments(t, dir)[0]
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ends := []int{headerBytes}
	for i := range uint64(10) {
		ends = append(ends, ends[i]+recordHeader+len(data(i)))
	}
	for cut := len(whole); cut >= 0; cut -= 5 {
		sub := filepath.Join(t.TempDir(), "q")
		if err := os.MkdirAll(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sub, filepath.Base(path)), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		q := open(t, Options{Dir: sub})
		n := uint64(0)
		for n < 10 && ends[n+1] <= cut {
			n++
		}
		if _, err := q.Append(record(n)); err != nil { // the spool accepts records after the cut
			t.Fatal(err)
		}
		wantRange(t, drain(t, q), 0, n+1)
		if s := q.Stats(); s.Corrupt != 0 {
			t.Errorf("cut at %d: %+v", cut, s)
		}
		q.Close()
	}
}

// A damaged byte anywhere costs at most the rest of its segment; the file is kept under another
// name, and the queue continues.
func TestDamage(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for round := range 40 {
		o := Options{Dir: t.TempDir(), SegmentBytes: 600}
		q := open(t, o)
		appendN(t, q, 0, 50)
		q.Close()
		segs := segments(t, o.Dir)
		victim := rng.IntN(len(segs) - 1) // not the newest, where damage can look torn
		b, err := os.ReadFile(segs[victim])
		if err != nil {
			t.Fatal(err)
		}
		b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(255))
		if err := os.WriteFile(segs[victim], b, 0o600); err != nil {
			t.Fatal(err)
		}
		q = open(t, o)
		if s := q.Stats(); s.Corrupt != 1 {
			t.Fatalf("round %d: %+v", round, s)
		}
		if aside, _ := filepath.Glob(filepath.Join(o.Dir, "*.corrupt")); len(aside) != 1 {
			t.Errorf("round %d: set aside %v", round, aside)
		}
		appendN(t, q, 50, 55)
		got := drain(t, q)
		if len(got) < 35 || got[len(got)-1] != 54 {
			t.Errorf("round %d: %v", round, got)
		}
		q.Close()
	}
}

// Damage that appears while the queue is open.
func TestDamageWhileOpen(t *testing.T) {
	o := Options{Dir: t.TempDir(), SegmentBytes: 600}
	q := open(t, o)
	appendN(t, q, 0, 50)
	first := segments(t, o.Dir)[0]
	f, err := os.OpenFile(first, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("damage"), headerBytes+recordHeader+len64(data(0))+recordHeader); err != nil {
		t.Fatal(err)
	}
	f.Close()
	got := drain(t, q)
	if s := q.Stats(); got[0] != 0 || got[len(got)-1] != 49 || s.Corrupt != 1 || s.DroppedCorrupt == 0 || s.Items != 0 {
		t.Errorf("%v %+v", got, s)
	}
}

func len64(b []byte) int64 { return int64(len(b)) }

// TestRemovedWhileOpen: after the directory is removed, new records are kept in a new one, also
// across a restart, and no other process may use it.
func TestRemovedWhileOpen(t *testing.T) {
	o := Options{Dir: filepath.Join(t.TempDir(), "a", "spool")}
	q := open(t, o)
	appendN(t, q, 0, 10)
	if err := os.RemoveAll(filepath.Dir(o.Dir)); err != nil {
		t.Fatal(err)
	}
	appendN(t, q, 10, 20)
	if other, err := Open(o); err == nil {
		other.Close()
		t.Error("another process may use the new directory")
	}
	for want := range uint64(15) {
		r, ok, err := q.Next()
		if err != nil || !ok || r.Seq != want {
			t.Fatalf("record %d, %v, %v; expected %d", r.Seq, ok, err, want)
		}
		q.Ack(r.Seq)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q = open(t, o)
	wantRange(t, drain(t, q), 15, 20)
	if s := q.Stats(); s.DroppedSize+s.DroppedCorrupt != 0 {
		t.Errorf("%+v", s)
	}
}

func TestManyDamaged(t *testing.T) {
	o := Options{Dir: t.TempDir(), SegmentBytes: 100}
	q := open(t, o)
	appendN(t, q, 0, 30)
	q.Close()
	segs := segments(t, o.Dir)
	for _, s := range segs[:20] {
		if err := os.WriteFile(s, []byte("this is not a segment"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	q = open(t, o)
	if aside, _ := filepath.Glob(filepath.Join(o.Dir, "*.corrupt")); len(aside) != keepCorrupt {
		t.Errorf("%d segments are kept aside", len(aside))
	}
	if got := drain(t, q); got[len(got)-1] != 29 {
		t.Error(got)
	}
}

// The state file survives a write that was cut: the older slot counts. Without a valid slot the
// records are delivered again instead of lost.
func TestStateFileDamaged(t *testing.T) {
	o := Options{Dir: t.TempDir()}
	q := open(t, o)
	appendN(t, q, 0, 10)
	for range 5 {
		r, _, _ := q.Next()
		q.Ack(r.Seq)
	}
	newest := q.state.saved.Generation % 2
	q.Close()
	damage := func(slot uint64) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(o.Dir, "state"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte("damage"), int64(slot)*slotDistance+3); err != nil {
			t.Fatal(err)
		}
	}
	damage(newest)
	q = open(t, o)
	if r, _, err := q.Next(); err != nil || r.Seq != 4 {
		t.Errorf("record %d, error %v; expected the position before the last one", r.Seq, err)
	}
	q.Close()
	damage(0)
	damage(1)
	wantRange(t, drain(t, open(t, o)), 0, 10)
}

// The counts of dropped items continue after a restart, after an orderly stop as well as after a
// crash.
func TestCountsSurviveRestart(t *testing.T) {
	now := start.Add(300 * time.Second)
	o := Options{Dir: t.TempDir(), MaxBytes: 4000, SegmentBytes: 600, MaxAge: 150 * time.Second,
		Now: func() time.Time { return now }}
	q := open(t, o)
	appendN(t, q, 200, 300)
	if _, err := q.Append(Record{Items: 7, Data: make([]byte, 5000)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error %v", err)
	}
	now = now.Add(140 * time.Second)
	if _, _, err := q.Next(); err != nil {
		t.Fatal(err)
	}
	want := q.Stats()
	if want.DroppedSize < 8 || want.DroppedAge == 0 {
		t.Errorf("%+v", want)
	}
	crashed := o
	crashed.Dir = t.TempDir()
	if err := os.CopyFS(crashed.Dir, os.DirFS(o.Dir)); err != nil {
		t.Fatal(err)
	}
	q.Close()
	for _, o := range []Options{o, crashed} {
		if got := open(t, o).Stats(); got != want {
			t.Errorf("%s: %+v, want %+v", o.Dir, got, want)
		}
	}
}

// fullDisk returns a write function of a disk that has room for a number of bytes of segments. A
// write that does not fit writes what fits.
func fullDisk(tb testing.TB, dir string, room *int64) func(*os.File, []byte, int64) (int, error) {
	return func(f *os.File, b []byte, at int64) (int, error) {
		var used int64
		for _, s := range segments(tb, dir) {
			if s == f.Name() {
				used += at
				continue
			}
			info, err := os.Stat(s)
			if err != nil {
				return 0, err
			}
			used += info.Size()
		}
		if fits := *room - used; fits < int64(len(b)) {
			n, _ := f.WriteAt(b[:max(fits, 0)], at)
			return n, &os.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
		}
		return f.WriteAt(b, at)
	}
}

// On a full disk the newest records are kept, and use nearly all of the space. What is dropped is
// counted; if nothing fits, Append returns the error, and the queue works again when there is room.
func TestFullDisk(t *testing.T) {
	room := int64(300 << 10)
	o := Options{Dir: t.TempDir()}
	o.write = fullDisk(t, o.Dir, &room)
	q := open(t, o)
	var items uint64
	for i := range uint64(6000) {
		appendN(t, q, i, i+1)
		items += uint64(record(i).Items)
		s := q.Stats()
		if s.Bytes > room || s.Items+s.DroppedSize != items {
			t.Fatalf("after %d records: %+v, %d items appended", i+1, s, items)
		}
		if s.DroppedSize > 0 && s.Bytes < room*9/10 {
			t.Fatalf("after %d records: %d of %d bytes are used", i+1, s.Bytes, room)
		}
	}
	if s := q.Stats(); s.DroppedSize == 0 {
		t.Errorf("%+v", s)
	}
	got := drain(t, q)
	wantRange(t, got, 6000-uint64(len(got)), 6000)
	room = 0
	before := q.Stats().DroppedSize
	if _, err := q.Append(record(6000)); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), o.Dir) {
		t.Error(err)
	}
	if s := q.Stats(); s.DroppedSize != before+uint64(record(6000).Items) || len(segments(t, o.Dir)) != 0 {
		t.Errorf("%+v, segments %v", s, segments(t, o.Dir))
	}
	room = 4000
	appendN(t, q, 6000, 6010)
	wantRange(t, drain(t, q), 6000, 6010)
}

// When the disk fills up by other files, the queue gives up as much as the new records need.
func TestDiskFullOfOtherFiles(t *testing.T) {
	room := int64(1 << 40)
	o := Options{Dir: t.TempDir()}
	o.write = fullDisk(t, o.Dir, &room)
	q := open(t, o)
	appendN(t, q, 0, 6000)
	before := q.Stats()
	room = before.Bytes // the disk is full
	appendN(t, q, 6000, 6001)
	if s := q.Stats(); s.DroppedSize == 0 || s.DroppedSize > before.Items/10 {
		t.Errorf("%d of %d items were dropped for one record", s.DroppedSize, before.Items)
	}
	got := drain(t, q)
	wantRange(t, got, 6001-uint64(len(got)), 6001)
}

// A queue on a full file system gives up its oldest records, too.
func TestRealFullDisk(t *testing.T) {
	dir := t.TempDir()
	const size = 4 << 20
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", size), "none",
		dir).CombinedOutput(); err != nil {
		t.Skipf("a file system of %d bytes cannot be mounted, which needs root: %v: %s", size, err, out)
	}
	t.Cleanup(func() {
		if err := exec.Command("umount", dir).Run(); err != nil {
			t.Error(err)
		}
	})
	o := Options{Dir: filepath.Join(dir, "q")}
	q := open(t, o)
	large := func(i uint64) Record {
		return Record{Time: start, Items: 10, Data: bytes.Repeat([]byte{byte(i)}, 10_000)}
	}
	const records = 1000
	for i := range uint64(records) {
		if _, err := q.Append(large(i)); err != nil {
			t.Fatal(err)
		}
		if s := q.Stats(); s.DroppedSize > 0 && s.Bytes < size*8/10 {
			t.Fatalf("after %d records: %d of %d bytes are used", i+1, s.Bytes, size)
		}
	}
	want := q.Stats()
	if want.Items+want.DroppedSize != 10*records || want.DroppedSize == 0 {
		t.Errorf("%+v", want)
	}
	q.Close()
	q = open(t, o) // on the full disk
	if got := q.Stats(); got != want {
		t.Errorf("%+v after a restart, %+v before", got, want)
	}
	for i := records - want.Records; i < records; i++ {
		r, ok, err := q.Next()
		if err != nil || !ok || r.Seq != i || !bytes.Equal(r.Data, large(i).Data) {
			t.Fatalf("record %d, %v, error %v; expected %d", r.Seq, ok, err, i)
		}
		q.Ack(r.Seq)
	}
	if _, more, err := q.Next(); more || err != nil {
		t.Errorf("a record after the newest, or error %v", err)
	}
}

// A large queue has only the oldest and the newest segment open.
func TestOpenFiles(t *testing.T) {
	q := open(t, Options{Dir: t.TempDir(), SegmentBytes: 200})
	appendN(t, q, 0, 300)
	if _, _, err := q.Next(); err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, s := range q.segments {
		if s.file != nil {
			files++
		}
	}
	if len(q.segments) < 100 || files != 2 {
		t.Errorf("%d of %d segments are open", files, len(q.segments))
	}
}

func TestLock(t *testing.T) {
	o := Options{Dir: t.TempDir()}
	q := open(t, o)
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), o.Dir) {
		t.Errorf("opened twice: %v", err)
	}
	q.Close()
	open(t, o)
}

func TestCannotOpen(t *testing.T) {
	if _, err := Open(Options{}); err == nil {
		t.Error("opened nowhere")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: file}); err == nil || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
}

// child appends and acknowledges until it is killed, and prints each step.
func child(dir string) {
	q, err := Open(Options{Dir: dir, SegmentBytes: 2000, SyncEvery: time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := uint64(0); ; i++ {
		if _, err := q.Append(record(i)); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("appended", i)
		if i%3 == 2 {
			r, _, err := q.Next()
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println("delivering", r.Seq)
			q.Ack(r.Seq)
		}
	}
}

// A process killed at any moment loses no record for which Append had returned.
func TestKilled(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 8 {
		dir := t.TempDir()
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "SPOOL_TEST_CHILD="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var appended, delivered uint64
		stop := 50 + 37*round
		sc := bufio.NewScanner(out)
		for n := 0; sc.Scan(); n++ {
			word, number, _ := strings.Cut(sc.Text(), " ")
			v, err := strconv.ParseUint(number, 10, 64)
			if err != nil {
				t.Fatal(sc.Text())
			}
			switch word {
			case "appended":
				appended = v
			case "delivering":
				delivered = v
			}
			if n == stop {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // killed
		q := open(t, Options{Dir: dir})
		got := drain(t, q)
		first, last := got[0], got[len(got)-1]
		if first > delivered+1 || last < appended {
			t.Errorf("round %d: delivered %d and appended %d, found %d to %d", round, delivered, appended, first, last)
		}
		wantRange(t, got, first, last+1)
		if s := q.Stats(); s.Corrupt != 0 {
			t.Errorf("round %d: %+v", round, s)
		}
		q.Close()
	}
}

// The queue opens and works with any content of its directory.
func FuzzOpen(f *testing.F) {
	q, err := Open(Options{Dir: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	appendN(f, q, 0, 4)
	q.Close()
	whole, err := os.ReadFile(segments(f, q.opts.Dir)[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, []byte("state"))
	f.Add(whole[:50], []byte{})
	f.Fuzz(func(t *testing.T, segment, state []byte) {
		dir := t.TempDir()
		for name, b := range map[string][]byte{segmentName(0): segment, segmentName(3): segment, "state": state} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		q, err := Open(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		if _, err := q.Append(Record{Time: start, Data: []byte("last")}); err != nil {
			t.Fatal(err)
		}
		last := ""
		for {
			r, ok, err := q.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			last = string(r.Data)
			q.Ack(r.Seq)
		}
		if last != "last" {
			t.Errorf("the newest record is %q", last)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			q := open(b, Options{Dir: b.TempDir(), MaxBytes: 1 << 30})
			r := Record{Time: time.Now(), Items: 1, Data: make([]byte, size)}
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := q.Append(r); err != nil {
					b.Fatal(err)
				}
				n, _, err := q.Next()
				if err != nil {
					b.Fatal(err)
				}
				q.Ack(n.Seq)
			}
		})
	}
}
