// SPDX-License-Identifier: Apache-2.0

// Segment files: layout, reading, and handling of damage.
//
// A segment begins with "nsspool1" and the number of its first record (8 bytes). A record is
// checksum (4 bytes, CRC-32C of the rest), length of the data (4), items (4), time in nanoseconds
// (8), number (8), data. Integers are little-endian.

package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	magic        = "nsspool1"
	headerBytes  = 16
	recordHeader = 28
	maxRecord    = 64 << 20
	smallSegment = 16 << 10 // least value of the size at which a new segment begins
	keepCorrupt  = 4        // damaged segments kept
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// segment is one file. Guarded by Queue.mu.
type segment struct {
	path    string
	file    *os.File // nil while it is closed: only the oldest and the newest segment are open
	first   uint64   // number of the segment's first record
	records uint64
	items   uint64
	size    int64
	newest  time.Time

	readSeq   uint64 // next record to read
	readAt    int64
	itemsRead uint64
	nextSize  int64 // size of the record that Next returned; 0 without one
	nextItems uint32
}

func (s *segment) open() (err error) {
	if s.file == nil {
		s.file, err = os.OpenFile(s.path, os.O_RDWR, 0)
	}
	return err
}

func (s *segment) close() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}

// count adds a record of the file.
func (s *segment) count(r Record) {
	s.records++
	s.items += uint64(r.Items)
	if r.Time.After(s.newest) {
		s.newest = r.Time
	}
}

func (s *segment) skip(r Record, size int64) {
	s.readSeq++
	s.readAt += size
	s.itemsRead += uint64(r.Items)
	s.nextSize = 0
}

func encode(r Record) []byte {
	b := make([]byte, recordHeader+len(r.Data))
	binary.LittleEndian.PutUint32(b[4:], uint32(len(r.Data)))
	binary.LittleEndian.PutUint32(b[8:], r.Items)
	binary.LittleEndian.PutUint64(b[12:], uint64(r.Time.UnixNano()))
	binary.LittleEndian.PutUint64(b[20:], r.Seq)
	copy(b[recordHeader:], r.Data)
	binary.LittleEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return b
}

// errDamaged is the error for bytes that are not a valid record. torn means that they look like the
// unfinished last write of a process or machine that stopped.
type errDamaged struct {
	at   int64
	torn bool
	why  string
}

func (e *errDamaged) Error() string { return fmt.Sprintf("at byte %d: %s", e.at, e.why) }

// read returns the record at an offset and its size in the file.
func (s *segment) read(at int64) (Record, int64, error) {
	if err := s.open(); err != nil {
		return Record{}, 0, err
	}
	var h [recordHeader]byte
	n, err := s.file.ReadAt(h[:], at)
	if err != nil && !errors.Is(err, io.EOF) {
		return Record{}, 0, err
	}
	if n < len(h) {
		return Record{}, 0, &errDamaged{at, true, fmt.Sprintf("a record's header has %d of %d bytes", n, len(h))}
	}
	size := binary.LittleEndian.Uint32(h[4:])
	if size > maxRecord {
		return Record{}, 0, &errDamaged{at, false, fmt.Sprintf("a record has a length of %d bytes", size)}
	}
	if left := s.size - at - recordHeader; int64(size) > left {
		return Record{}, 0, &errDamaged{at, true, fmt.Sprintf("a record has %d of %d bytes", left, size)}
	}
	b := make([]byte, recordHeader+int(size))
	copy(b, h[:])
	if _, err := s.file.ReadAt(b[recordHeader:], at+recordHeader); err != nil &&
		!(size == 0 && errors.Is(err, io.EOF)) {
		return Record{}, 0, err
	}
	end := at+int64(len(b)) == s.size
	if crc32.Checksum(b[4:], castagnoli) != binary.LittleEndian.Uint32(b) {
		return Record{}, 0, &errDamaged{at, end, "a record's checksum is wrong"}
	}
	return Record{
		Seq:   binary.LittleEndian.Uint64(b[20:]),
		Time:  time.Unix(0, int64(binary.LittleEndian.Uint64(b[12:]))),
		Items: binary.LittleEndian.Uint32(b[8:]),
		Data:  b[recordHeader:],
	}, int64(len(b)), nil
}

func segmentName(first uint64) string { return fmt.Sprintf("%016x.seg", first) }

// create creates a segment.
func (q *Queue) create(first uint64) (*segment, error) {
	s := &segment{path: filepath.Join(q.opts.Dir, segmentName(first)), first: first, size: headerBytes, readSeq: first,
		readAt: headerBytes}
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	var h [headerBytes]byte
	copy(h[:], magic)
	binary.LittleEndian.PutUint64(h[8:], first)
	if _, err := q.opts.write(f, h[:], 0); err != nil {
		f.Close()
		_ = os.Remove(s.path) // without records
		return nil, err
	}
	s.file = f
	q.syncDir()
	return s, nil
}

// syncDir syncs the names of new files. It ignores errors.
func (q *Queue) syncDir() {
	if d, err := os.Open(q.opts.Dir); err == nil {
		_ = d.Sync()
		d.Close()
	}
}

// load opens the existing segments in order.
func (q *Queue) load() error {
	entries, err := os.ReadDir(q.opts.Dir)
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".seg") && e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	for i, name := range names {
		path := filepath.Join(q.opts.Dir, name)
		s, err := scan(path)
		var damage *errDamaged
		switch {
		case err == nil:
		case !errors.As(err, &damage):
			if s != nil {
				s.close()
			}
			return err
		case damage.torn && i == len(names)-1 && s == nil:
			// A process was killed while it created the segment, which has no records yet.
			if err := os.Remove(path); err != nil {
				return err
			}
		case damage.torn && i == len(names)-1:
			// The last write of a process that was killed.
			q.opts.Logger.Info("spool drops an unfinished record at the end", "segment", path, "damage", damage)
			if err := s.file.Truncate(s.size); err != nil {
				s.close()
				return err
			}
		default:
			if s, err = q.salvage(path, s, damage); err != nil {
				return err
			}
		}
		if s == nil {
			continue
		}
		s.close()
		if n := len(q.segments); s.records == 0 || n > 0 && s.first < q.segments[n-1].first+q.segments[n-1].records {
			// This package writes no segment that is empty or repeats the records of another one.
			move := os.Remove
			if s.records > 0 {
				move = q.aside
			}
			if err := move(path); err != nil {
				return err
			}
			continue
		}
		q.segments = append(q.segments, s)
	}
	// Skip acknowledged records.
	for _, s := range q.segments {
		for s.readSeq < min(q.acked, s.first+s.records) {
			r, size, err := s.read(s.readAt)
			if err != nil {
				return err
			}
			s.skip(r, size)
		}
	}
	return nil
}

// scan opens a segment and reads all of it. If it is damaged, scan returns the error and, with a
// valid header, the segment up to the damage.
func scan(path string) (*segment, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	s := &segment{path: path, file: f, size: info.Size(), readAt: headerBytes}
	var h [headerBytes]byte
	if n, err := f.ReadAt(h[:], 0); err != nil && !errors.Is(err, io.EOF) {
		f.Close()
		return nil, err
	} else if n < len(h) || !bytes.HasPrefix(h[:], []byte(magic)) {
		torn := n < len(h) || zeros(f, 0, s.size)
		f.Close()
		return nil, &errDamaged{0, torn, "not a segment header"}
	}
	s.first = binary.LittleEndian.Uint64(h[8:])
	s.readSeq = s.first
	if filepath.Base(path) != segmentName(s.first) {
		f.Close()
		return nil, &errDamaged{0, false, fmt.Sprintf("the header belongs to segment %s", segmentName(s.first))}
	}
	at := int64(headerBytes)
	for at < s.size {
		r, size, err := s.read(at)
		if err == nil && r.Seq != s.first+s.records {
			err = &errDamaged{at, false, fmt.Sprintf("its number is %d, expected %d", r.Seq, s.first+s.records)}
		}
		if err != nil {
			var damage *errDamaged
			if errors.As(err, &damage) && !damage.torn {
				damage.torn = zeros(f, at, s.size)
			}
			s.size = at
			return s, err
		}
		s.count(r)
		at += size
	}
	return s, nil
}

// zeros reports whether only zero bytes follow: space that a file system allocated before it wrote
// the data.
func zeros(f *os.File, at, end int64) bool {
	b := make([]byte, 64<<10)
	for at < end {
		n, err := f.ReadAt(b[:min(int64(len(b)), end-at)], at)
		if n == 0 && err != nil || bytes.Count(b[:n], []byte{0}) != n {
			return false
		}
		at += int64(n)
	}
	return true
}

// salvage sets a damaged segment aside and writes the records before the damage to a new file with
// its name. It returns nil if the segment has no such records.
func (q *Queue) salvage(path string, s *segment, damage *errDamaged) (*segment, error) {
	var good []byte
	if s != nil {
		if s.records > 0 {
			good = make([]byte, s.size)
			if _, err := s.file.ReadAt(good, 0); err != nil {
				s.close()
				return nil, err
			}
		}
		s.close()
	}
	q.opts.Logger.Error("spool sets a damaged segment aside", "segment", path, "as", path+".corrupt", "damage", damage)
	q.stats.Corrupt++
	if err := q.aside(path); err != nil {
		return nil, err
	}
	if good == nil {
		return nil, nil
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		return nil, err
	}
	return scan(path)
}

// setAside drops the rest of a segment that has become unreadable.
func (q *Queue) setAside(i int, err error) {
	s := q.segments[i]
	lost := q.lose(s, &q.stats.DroppedCorrupt)
	q.opts.Logger.Error("spool sets a damaged segment aside", "segment", s.path, "as", s.path+".corrupt", "error", err,
		"items", lost)
	q.stats.Corrupt++
	s.close()
	if err := q.aside(s.path); err != nil {
		q.opts.Logger.Error("cannot set a spool segment aside", "segment", s.path, "error", err)
	}
	q.acked = s.first + s.records
	q.segments = append(q.segments[:i], q.segments[i+1:]...)
}

// aside renames a damaged segment and removes the oldest damaged ones beyond keepCorrupt.
func (q *Queue) aside(path string) error {
	if err := os.Rename(path, path+".corrupt"); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(q.opts.Dir, "*.seg.corrupt"))
	if err != nil {
		return err
	}
	slices.Sort(old)
	for len(old) > keepCorrupt {
		if err := os.Remove(old[0]); err != nil {
			return err
		}
		old = old[1:]
	}
	return nil
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
