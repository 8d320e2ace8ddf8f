// SPDX-License-Identifier: Apache-2.0

// Package spool is a queue on disk, first in, first out, bounded in size and age:
// where an output keeps what it cannot deliver for now.
//
// A Queue is a folder of segment files. Records are appended to the newest segment
// and read from the oldest; a segment whose records have all been acknowledged is
// removed, so a drained queue leaves no data behind. Over its bound the queue drops
// its oldest segment and counts what was in it. Every record has a checksum.
//
// What survives: a record is on disk for the operating system when Append returns,
// so a killed process loses none; fsync follows within SyncEvery or SyncBytes,
// whichever is first, so a machine that loses power loses at most that much. A
// record that was cut off at the very end is dropped when the queue is opened. A
// segment that is damaged elsewhere is set aside under the name SEGMENT.corrupt,
// what stands before the damage is kept, and the queue goes on. Records that were
// delivered shortly before a crash may be delivered again.
//
// Concurrency: every method may be called from any goroutine. One process at a time
// has a folder open; a lock file sees to it.
package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// ErrTooLarge is returned for a record that is larger than the queue may be.
var ErrTooLarge = errors.New("the record is larger than the spool may be")

// ErrClosed is returned after Close.
var ErrClosed = errors.New("the spool is closed")

// Options say where a queue is and how large it may become. Only Dir is needed.
type Options struct {
	// Dir is the folder; it is made when it does not exist.
	Dir string
	// MaxBytes bounds the size of all segments together; 1 GiB when 0.
	MaxBytes int64
	// MaxAge bounds the age of records by their Time; older ones are dropped and
	// counted. 0: no bound.
	MaxAge time.Duration
	// SegmentBytes is where a new segment begins, and so the least that is dropped
	// at once; 1/16 of MaxBytes when 0, at most 16 MiB.
	SegmentBytes int64
	// SyncEvery is the longest time from Append to fsync; 200 ms when 0.
	SyncEvery time.Duration
	// SyncBytes is how much is appended at most before fsync; 4 MiB when 0.
	SyncBytes int64
	// Now is the clock that MaxAge is measured by; time.Now when nil.
	Now func() time.Time
	// Logger gets a line about damage and about dropping; silent when nil.
	Logger *slog.Logger

	// write is WriteAt of a segment; tests put failing disks in its place.
	write func(f *os.File, b []byte, at int64) (int, error)
}

func (o *Options) defaults() {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 1 << 30
	}
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = min(max(o.MaxBytes/16, 64<<10), 16<<20)
	}
	o.SegmentBytes = min(o.SegmentBytes, o.MaxBytes)
	if o.SyncEvery <= 0 {
		o.SyncEvery = 200 * time.Millisecond
	}
	if o.SyncBytes <= 0 {
		o.SyncBytes = 4 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.write == nil {
		o.write = (*os.File).WriteAt
	}
}

// Record is what is queued.
type Record struct {
	// Seq is the record's number, ascending without gaps; Append gives it.
	Seq uint64
	// Time is when the data were true; MaxAge counts from it.
	Time time.Time
	// Items is how many points or the like the record has, for the counters.
	Items uint32
	// Data is the record's content.
	Data []byte
}

// Stats counts what is in the queue, and what was dropped since it was opened.
type Stats struct {
	Records uint64 // not acknowledged; also one that was dropped after Next had returned it
	Items   uint64 // in these records
	Bytes   int64  // on disk

	DroppedSize    uint64 // items dropped to stay within MaxBytes, or because the disk is full
	DroppedAge     uint64 // items older than MaxAge
	DroppedCorrupt uint64 // items known to be in segments that were set aside
	Corrupt        uint64 // segments set aside
}

// Queue is a queue on disk. See the package comment.
type Queue struct {
	opts Options
	lock *os.File

	mu       sync.Mutex
	segments []*segment // oldest first; the last is written to
	next     uint64     // number of the next record
	acked    uint64     // records before this one are acknowledged
	ackFile  *os.File
	ackDirty bool
	stats    Stats // Records, Items and Bytes are summed when asked for
	out      *outstanding
	dirty    int64 // bytes since the last fsync
	closed   bool
	syncErr  error

	stop chan struct{}
	done chan struct{}
}

// outstanding is a record that Next had returned when its segment was dropped. It
// counts as dropped when Next is called again before it is acknowledged.
type outstanding struct {
	seq     uint64
	items   uint64
	counter *uint64
}

// Open opens the queue in a folder, or makes one there. Damage is set aside and
// logged, not an error; errors name the folder.
func Open(opts Options) (*Queue, error) {
	opts.defaults()
	if opts.Dir == "" {
		return nil, errors.New("spool: no folder is given")
	}
	q := &Queue{opts: opts, stop: make(chan struct{}), done: make(chan struct{})}
	if err := q.open(); err != nil {
		q.release()
		return nil, fmt.Errorf("spool %s: %w", opts.Dir, err)
	}
	go q.syncLoop()
	return q, nil
}

func (q *Queue) open() error {
	if err := os.MkdirAll(q.opts.Dir, 0o700); err != nil {
		return err
	}
	var err error
	if q.lock, err = lockFile(filepath.Join(q.opts.Dir, "lock")); err != nil {
		return err
	}
	if q.ackFile, err = os.OpenFile(filepath.Join(q.opts.Dir, "acknowledged"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	q.acked = readAck(q.ackFile)
	if err := q.load(); err != nil {
		return err
	}
	if len(q.segments) > 0 {
		last := q.segments[len(q.segments)-1]
		q.next = last.first + last.records
	}
	// Numbers go on after what was ever acknowledged, and what is there was either
	// acknowledged in part or not at all.
	q.next = max(q.next, q.acked)
	if len(q.segments) > 0 {
		q.acked = max(q.acked, q.segments[0].first)
	}
	q.removeAcked()
	return nil
}

func (q *Queue) release() {
	for _, s := range q.segments {
		s.file.Close()
	}
	if q.ackFile != nil {
		q.ackFile.Close()
	}
	if q.lock != nil {
		q.lock.Close() // the lock goes with it
	}
}

// Append puts a record at the end and returns its number; Seq is ignored. When the
// queue is full its oldest records are dropped and counted; when the disk is full too.
// An error means that the record is not in the queue.
func (q *Queue) Append(r Record) (seq uint64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, ErrClosed
	}
	r.Seq = q.next
	b := encode(r)
	n := int64(len(b))
	if n+headerBytes > q.opts.MaxBytes || len(r.Data) > maxRecord {
		return 0, fmt.Errorf("spool %s: %w: %d bytes of at most %d", q.opts.Dir, ErrTooLarge, n, min(q.opts.MaxBytes, maxRecord))
	}
	q.dropOld()
	for q.bytes()+n+headerBytes > q.opts.MaxBytes {
		q.dropOldest(&q.stats.DroppedSize, "it is full")
	}
	for {
		err := q.write(r, b)
		if err == nil {
			break
		}
		if !isFull(err) || len(q.segments) == 0 {
			return 0, fmt.Errorf("spool %s: %w", q.opts.Dir, err)
		}
		q.dropOldest(&q.stats.DroppedSize, "the disk is full")
	}
	q.next++
	if q.dirty += n; q.dirty >= q.opts.SyncBytes {
		_ = q.sync() // logged; the record is in the queue
	}
	return r.Seq, nil
}

// write puts an encoded record into the last segment, or a new one.
func (q *Queue) write(r Record, b []byte) error {
	var last *segment
	if n := len(q.segments); n > 0 {
		last = q.segments[n-1]
	}
	if last == nil || last.size+int64(len(b)) > q.opts.SegmentBytes && last.records > 0 {
		if last != nil {
			_ = q.sync() // logged
		}
		s, err := q.create(r.Seq)
		if err != nil {
			return err
		}
		q.segments = append(q.segments, s)
		last = s
	}
	if _, err := q.opts.write(last.file, b, last.size); err != nil {
		// Half a record must not stay: what follows would be taken for damage.
		if terr := last.file.Truncate(last.size); terr != nil {
			return errors.Join(err, terr)
		}
		if last.records == 0 {
			q.remove(len(q.segments) - 1)
		}
		return err
	}
	last.count(r)
	last.size += int64(len(b))
	return nil
}

// Next returns the oldest record that is not acknowledged; false when there is none.
// It stays until Ack. Data is the caller's.
func (q *Queue) Next() (Record, bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return Record{}, false, ErrClosed
	}
	if q.out != nil {
		*q.out.counter += q.out.items
		q.out = nil
	}
	q.dropOld()
	for len(q.segments) > 0 {
		s := q.segments[0]
		if s.readSeq == s.first+s.records {
			if len(q.segments) == 1 {
				return Record{}, false, nil
			}
			q.remove(0)
			continue
		}
		r, size, err := s.read(s.readAt)
		if err != nil {
			q.setAside(0, err)
			continue
		}
		if q.tooOld(r.Time) {
			q.stats.DroppedAge += uint64(r.Items)
			s.skip(r, size)
			q.ackTo(r.Seq + 1)
			continue
		}
		s.nextSize, s.nextItems = size, r.Items
		return r, true, nil
	}
	return Record{}, false, nil
}

// Ack takes the record that Next returned out of the queue. When the record has been
// dropped in the meantime, it does not count as dropped.
func (q *Queue) Ack(seq uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.out != nil && q.out.seq == seq {
		q.out = nil
		return
	}
	if q.closed || len(q.segments) == 0 {
		return
	}
	s := q.segments[0]
	if s.readSeq != seq || s.nextSize == 0 {
		return
	}
	s.readSeq++
	s.readAt += s.nextSize
	s.itemsRead += uint64(s.nextItems)
	s.nextSize = 0
	q.ackTo(seq + 1)
	q.removeAcked()
}

// Stats returns the counters.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.stats
	for _, s := range q.segments {
		out.Records += s.first + s.records - s.readSeq
		out.Items += s.items - s.itemsRead
		out.Bytes += s.size
	}
	if q.out != nil {
		out.Records++
		out.Items += q.out.items
	}
	return out
}

// Sync waits until everything appended is on the disk.
func (q *Queue) Sync() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	return q.sync()
}

// Close syncs and closes the queue; what is in it is there at the next Open.
func (q *Queue) Close() error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return nil
	}
	err := q.sync()
	q.closed = true
	close(q.stop)
	q.mu.Unlock()
	<-q.done
	q.release()
	return err
}

// sync needs mu held.
func (q *Queue) sync() error {
	var err error
	if q.dirty > 0 && len(q.segments) > 0 {
		if err = q.segments[len(q.segments)-1].file.Sync(); err == nil {
			q.dirty = 0
		}
	}
	if q.ackDirty {
		if e := q.ackFile.Sync(); e == nil {
			q.ackDirty = false
		}
	}
	if err != nil {
		err = fmt.Errorf("spool %s: %w", q.opts.Dir, err)
		if q.syncErr == nil {
			q.opts.Logger.Error("spool cannot be synced to the disk", "dir", q.opts.Dir, "error", err)
		}
	}
	q.syncErr = err
	return err
}

func (q *Queue) syncLoop() {
	defer close(q.done)
	ticker := time.NewTicker(q.opts.SyncEvery)
	defer ticker.Stop()
	for {
		select {
		case <-q.stop:
			return
		case <-ticker.C:
			q.mu.Lock()
			if !q.closed {
				_ = q.sync() // logged
			}
			q.mu.Unlock()
		}
	}
}

func (q *Queue) bytes() int64 {
	var sum int64
	for _, s := range q.segments {
		sum += s.size
	}
	return sum
}

func (q *Queue) tooOld(t time.Time) bool {
	return q.opts.MaxAge > 0 && q.opts.Now().Sub(t) > q.opts.MaxAge
}

// dropOld removes whole segments that are too old.
func (q *Queue) dropOld() {
	for len(q.segments) > 0 && q.segments[0].records > 0 && q.tooOld(q.segments[0].newest) {
		q.dropOldest(&q.stats.DroppedAge, "it is too old")
	}
}

// dropOldest removes the oldest segment and counts what was in it.
func (q *Queue) dropOldest(counter *uint64, why string) {
	s := q.segments[0]
	lost := q.lose(s, counter)
	if lost > 0 {
		q.opts.Logger.Warn("spool drops its oldest segment", "dir", q.opts.Dir, "why", why, "items", lost, "bytes", s.size)
	}
	q.ackTo(s.first + s.records)
	q.remove(0)
}

// lose counts what is left in a segment as dropped, but for a record that is out.
func (q *Queue) lose(s *segment, counter *uint64) uint64 {
	lost := s.items - s.itemsRead
	if s.nextSize > 0 {
		lost -= uint64(s.nextItems)
		q.out = &outstanding{s.readSeq, uint64(s.nextItems), counter}
	}
	*counter += lost
	return lost
}

// remove deletes a segment.
func (q *Queue) remove(i int) {
	s := q.segments[i]
	if i == len(q.segments)-1 {
		q.dirty = 0
	}
	s.file.Close()
	if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		q.opts.Logger.Error("spool cannot remove a segment", "segment", s.path, "error", err)
	}
	q.segments = append(q.segments[:i], q.segments[i+1:]...)
}

// removeAcked deletes the segments of which everything was read.
func (q *Queue) removeAcked() {
	for len(q.segments) > 0 {
		s := q.segments[0]
		if s.readSeq != s.first+s.records {
			return
		}
		q.remove(0)
	}
}

// ackTo notes that records before seq are done with. The write is not synced at
// once: after a crash some records are delivered again.
func (q *Queue) ackTo(seq uint64) {
	if seq <= q.acked {
		return
	}
	q.acked = seq
	var b [12]byte
	binary.LittleEndian.PutUint64(b[:], seq)
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b[:8], castagnoli))
	if _, err := q.ackFile.WriteAt(b[:], 0); err != nil {
		q.opts.Logger.Warn("spool cannot note what was delivered; it would be delivered again after a restart", "dir", q.opts.Dir, "error", err)
		return
	}
	q.ackDirty = true
}

func readAck(f *os.File) uint64 {
	var b [12]byte
	if _, err := f.ReadAt(b[:], 0); err != nil || crc32.Checksum(b[:8], castagnoli) != binary.LittleEndian.Uint32(b[8:]) {
		return 0 // deliver everything again rather than lose something
	}
	return binary.LittleEndian.Uint64(b[:])
}
