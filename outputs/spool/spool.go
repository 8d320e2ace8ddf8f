// SPDX-License-Identifier: Apache-2.0

// Package spool is a queue on disk, first in, first out, bounded in size and age. An output keeps
// undelivered points in it.
//
// A Queue is a directory of segment files. Append writes to the newest segment and Next reads from
// the oldest. A segment whose records are all acknowledged is removed, so that an empty queue uses
// no space. Beyond its bound, or on a full disk, the queue drops as many of its oldest segments as
// the new record needs, and counts the items in them. A new segment begins when the newest one has
// 1/16 of the queue, so that a dropped segment is a small part of it. Every record has a checksum.
//
// Durability: when Append returns, the operating system has the record, so a killed process loses
// none. An fsync follows within SyncEvery or SyncBytes, whichever is first, which bounds the loss
// at a power failure. Open drops a record that was cut at the very end. It sets a segment with
// other damage aside as SEGMENT.corrupt, keeps the records before the damage, and continues.
// Records that were delivered shortly before a crash may be delivered again. The counts of dropped
// items continue after a restart.
//
// Concurrency: every method may be called from any goroutine. A lock file keeps a directory to one
// process.
package spool

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// ErrTooLarge is returned for a record that exceeds the size bound of the queue.
var ErrTooLarge = errors.New("the record exceeds the size of the spool")

// ErrClosed is returned after Close.
var ErrClosed = errors.New("the spool is closed")

// Options configure a queue. Only Dir is required.
type Options struct {
	// Dir is the directory, created if it does not exist.
	Dir string
	// MaxBytes bounds the total size of the segments; 1 GiB if 0.
	MaxBytes int64
	// MaxAge bounds the age of records by their Time; older ones are dropped and counted. 0 is no
	// bound.
	MaxAge time.Duration
	// SegmentBytes bounds the size of a segment with more than one record; 1/16 of MaxBytes if 0,
	// at most 1 MiB.
	SegmentBytes int64
	// SyncEvery is the longest time from Append to fsync; 200 ms if 0.
	SyncEvery time.Duration
	// SyncBytes bounds the bytes appended before an fsync; 4 MiB if 0.
	SyncBytes int64
	// Now is the clock for MaxAge; time.Now if nil.
	Now func() time.Time
	// Logger receives damage and drops; nil disables logging.
	Logger *slog.Logger

	// write is WriteAt of a segment; tests replace it by a failing disk.
	write func(f *os.File, b []byte, at int64) (int, error)
}

func (o *Options) defaults() {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 1 << 30
	}
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = min(max(o.MaxBytes/16, smallSegment), 1<<20)
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

// Record is an entry of the queue.
type Record struct {
	// Seq is the record's number, ascending without gaps; Append assigns it.
	Seq uint64
	// Time is the time of the data, from which MaxAge counts.
	Time time.Time
	// Items is the number of points or similar in the record, for the counters.
	Items uint32
	// Data is the content.
	Data []byte
}

// Stats counts the content of the queue, and the drops since its directory was created.
type Stats struct {
	Records uint64 // not acknowledged, including one that was dropped after Next returned it
	Items   uint64 // items in these records
	Bytes   int64  // on disk

	DroppedSize    uint64 // items dropped, or not accepted, because of MaxBytes or a full disk
	DroppedAge     uint64 // items older than MaxAge
	DroppedCorrupt uint64 // items in segments that were set aside
	Corrupt        uint64 // segments set aside
}

// Queue is a queue on disk. See the package comment.
type Queue struct {
	opts Options
	lock *os.File

	mu       sync.Mutex
	segments []*segment // oldest first; the last is written to
	next     uint64     // number of the next record
	acked    uint64     // number of the first record that is not acknowledged
	state    stateFile
	stats    Stats // statistics without Records, Items and Bytes, which Stats sums up
	out      *outstanding
	dirty    int64 // bytes since the last fsync
	closed   bool
	syncErr  error

	unlogged uint64    // dropped items since the last log line about drops
	logged   time.Time // time of the last log line about drops

	stop chan struct{}
	done chan struct{}
}

// outstanding is a record that Next had returned when its segment was dropped. It counts as dropped
// if Next is called again before Ack.
type outstanding struct {
	seq     uint64
	items   uint64
	counter *uint64
}

// Open opens the queue in a directory, or creates one. Damaged segments are set aside and logged;
// they are not an error.
func Open(opts Options) (*Queue, error) {
	opts.defaults()
	if opts.Dir == "" {
		return nil, errors.New("spool: no directory is given")
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
	if err := q.openFiles(); err != nil {
		return err
	}
	q.acked = q.state.saved.Acked
	q.stats = Stats{
		DroppedSize: q.state.saved.DroppedSize, DroppedAge: q.state.saved.DroppedAge,
		DroppedCorrupt: q.state.saved.DroppedCorrupt, Corrupt: q.state.saved.Corrupt,
	}
	if err := q.load(); err != nil {
		return err
	}
	if len(q.segments) > 0 {
		last := q.segments[len(q.segments)-1]
		q.next = last.first + last.records
	}
	// New records continue after the last acknowledged number. Records before the first segment were
	// acknowledged or dropped, although the saved number may be older.
	q.next = max(q.next, q.acked)
	if len(q.segments) > 0 {
		q.acked = max(q.acked, q.segments[0].first)
	}
	q.removeAcked()
	q.save()
	return nil
}

// openFiles opens the lock and the state file.
func (q *Queue) openFiles() (err error) {
	if q.lock, err = lockFile(filepath.Join(q.opts.Dir, "lock")); err != nil {
		return err
	}
	q.state, err = openState(filepath.Join(q.opts.Dir, "state"))
	return err
}

// restore makes the directory, the lock and the state file again if they were removed while the
// queue is in use, and reports whether they were.
func (q *Queue) restore() (removed bool, err error) {
	if q.state.file != nil {
		open, openErr := q.state.file.Stat()
		now, err := os.Stat(filepath.Join(q.opts.Dir, "state"))
		if openErr == nil && err == nil && os.SameFile(open, now) {
			return false, nil
		}
		q.state.file.Close()
	}
	if q.lock != nil {
		q.lock.Close()
	}
	if err := os.MkdirAll(q.opts.Dir, 0o700); err != nil {
		return true, err
	}
	if err := q.openFiles(); err != nil {
		return true, err
	}
	q.opts.Logger.Error("the files of the spool were removed; new ones are made", "dir", q.opts.Dir)
	return true, nil
}

func (q *Queue) release() {
	for _, s := range q.segments {
		s.close()
	}
	if q.state.file != nil {
		q.state.file.Close()
	}
	if q.lock != nil {
		q.lock.Close() // releases the lock
	}
}

// Append adds a record at the end and returns its number; Seq is ignored. If the queue or the disk
// is full, it drops the oldest records and counts them. After an error the record is not in the
// queue, and counts as dropped.
func (q *Queue) Append(r Record) (seq uint64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, ErrClosed
	}
	defer q.save()
	if err := q.append(&r); err != nil {
		q.stats.DroppedSize += uint64(r.Items)
		return 0, fmt.Errorf("spool %s: %w", q.opts.Dir, err)
	}
	return r.Seq, nil
}

// append does the work of Append. The caller holds q.mu.
func (q *Queue) append(r *Record) error {
	r.Seq = q.next
	b := encode(*r)
	n := int64(len(b))
	if n+headerBytes > q.opts.MaxBytes || len(r.Data) > maxRecord {
		return fmt.Errorf("%w: %d bytes of at most %d", ErrTooLarge, n, min(q.opts.MaxBytes, maxRecord))
	}
	q.dropOld()
	for q.bytes()+n+headerBytes > q.opts.MaxBytes {
		q.dropOldest(&q.stats.DroppedSize, "the spool is full")
	}
	for {
		err := q.write(*r, b)
		if err == nil {
			break
		}
		if !isFull(err) || len(q.segments) == 0 {
			return err
		}
		q.dropOldest(&q.stats.DroppedSize, "the disk is full")
	}
	q.next++
	if q.dirty += n; q.dirty >= q.opts.SyncBytes {
		_ = q.sync() // sync logs its error; the record is in the queue nevertheless
	}
	return nil
}

// write appends an encoded record to the last segment, or to a new one.
func (q *Queue) write(r Record, b []byte) error {
	var last *segment
	if n := len(q.segments); n > 0 {
		last = q.segments[n-1]
	}
	removed, err := q.restore()
	if err != nil {
		return err
	}
	limit := min(max(q.bytes()/16, smallSegment), q.opts.SegmentBytes)
	if last == nil || removed || last.size+int64(len(b)) > limit && last.records > 0 {
		if last != nil && !removed { // a removed file can be read as long as it is open
			_ = q.sync() // sync logs its error
			last.close()
		}
		s, err := q.create(r.Seq)
		if err != nil {
			return err
		}
		q.segments = append(q.segments, s)
		last = s
	}
	if err := last.open(); err != nil {
		return err
	}
	if _, err := q.opts.write(last.file, b, last.size); err != nil {
		// Remove the partial record, because a later record behind it would make it count as damage.
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

// Next returns the oldest record that is not acknowledged; false if the queue has none. The record
// remains in the queue until Ack. The caller owns Data.
func (q *Queue) Next() (Record, bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return Record{}, false, ErrClosed
	}
	defer q.save()
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
			q.acked = r.Seq + 1
			continue
		}
		s.nextSize, s.nextItems = size, r.Items
		return r, true, nil
	}
	return Record{}, false, nil
}

// Ack removes the record that Next returned. If the record has been dropped since, it no longer
// counts as dropped.
func (q *Queue) Ack(seq uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.out != nil && q.out.seq == seq {
		q.out = nil
		if !q.closed {
			q.save()
		}
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
	q.acked = seq + 1
	q.removeAcked()
	q.save()
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

// Sync writes all appended records to the disk.
func (q *Queue) Sync() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	return q.sync()
}

// Close syncs and closes the queue.
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

// sync does the work of Sync, and logs its error. The caller holds q.mu.
func (q *Queue) sync() error {
	var err error
	if q.dirty > 0 && len(q.segments) > 0 {
		if err = q.segments[len(q.segments)-1].file.Sync(); err == nil {
			q.dirty = 0
		}
	}
	q.state.sync()
	if err != nil {
		err = fmt.Errorf("spool %s: %w", q.opts.Dir, err)
		if q.syncErr == nil {
			q.opts.Logger.Error("cannot sync the spool", "dir", q.opts.Dir, "error", err)
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
				_ = q.sync() // sync logs its error
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

// dropOld drops segments whose records are all too old.
func (q *Queue) dropOld() {
	for len(q.segments) > 0 && q.segments[0].records > 0 && q.tooOld(q.segments[0].newest) {
		q.dropOldest(&q.stats.DroppedAge, "records are too old")
	}
}

// dropOldest removes the oldest segment and counts its items.
func (q *Queue) dropOldest(counter *uint64, reason string) {
	s := q.segments[0]
	q.unlogged += q.lose(s, counter)
	if now := q.opts.Now(); q.unlogged > 0 && now.Sub(q.logged) >= time.Minute {
		q.opts.Logger.Warn("spool drops its oldest items", "dir", q.opts.Dir, "reason", reason, "items", q.unlogged)
		q.unlogged, q.logged = 0, now
	}
	q.acked = s.first + s.records
	q.save() // first: a crash in between neither loses the count nor keeps the segment
	q.remove(0)
}

// lose counts the remaining items of a segment as dropped, except the items of the outstanding
// record.
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
	s.close()
	if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		q.opts.Logger.Error("cannot remove a spool segment", "segment", s.path, "error", err)
	}
	q.segments = append(q.segments[:i], q.segments[i+1:]...)
}

// removeAcked deletes segments whose records are all acknowledged.
func (q *Queue) removeAcked() {
	for len(q.segments) > 0 {
		s := q.segments[0]
		if s.readSeq != s.first+s.records {
			return
		}
		q.remove(0)
	}
}
