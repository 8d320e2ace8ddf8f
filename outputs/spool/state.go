// SPDX-License-Identifier: Apache-2.0

// The state file: the position and the counters that survive a restart.

package spool

import (
	"encoding/binary"
	"hash/crc32"
	"os"
)

// position is the content of the state file.
type position struct {
	Generation uint64 // generation of the content; the newest valid one counts
	Acked      uint64
	// Counters of Stats with the same names.
	DroppedSize, DroppedAge, DroppedCorrupt, Corrupt uint64
}

// stateFile is a file with two slots that are written in turn, so that one is always valid. They
// are written in place: this needs no space on a full disk.
type stateFile struct {
	file   *os.File
	saved  position
	dirty  bool // written since the last fsync
	failed bool // whether the last write failed
}

const slotDistance = 4096

// openState opens the file, or creates one, and reads the newest valid slot. Without a valid slot,
// all records are delivered again, so that none is lost.
func openState(path string) (stateFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return stateFile{}, err
	}
	s := stateFile{file: f}
	for slot := range int64(2) {
		b := make([]byte, binary.Size(position{})+crc32.Size)
		if _, err := f.ReadAt(b, slot*slotDistance); err != nil {
			_, _ = f.WriteAt(b, slot*slotDistance) // reserves the space if the disk has room
			continue
		}
		var p position
		n, err := binary.Decode(b, binary.LittleEndian, &p)
		if err == nil && binary.LittleEndian.Uint32(b[n:]) == crc32.Checksum(b[:n], castagnoli) &&
			p.Generation >= s.saved.Generation {
			s.saved = p
		}
	}
	return s, nil
}

// save writes the position and the counters if they have changed. It does not sync: after a power
// failure some records are delivered again. A record that was dropped while it is outstanding is
// saved as dropped until Ack: if the process ends before, nothing delivers it.
func (q *Queue) save() {
	s, counts := &q.state, q.stats
	if q.out != nil {
		*q.out.counter += q.out.items
		counts = q.stats
		*q.out.counter -= q.out.items
	}
	p := position{
		Generation: s.saved.Generation, Acked: q.acked,
		DroppedSize: counts.DroppedSize, DroppedAge: counts.DroppedAge,
		DroppedCorrupt: counts.DroppedCorrupt, Corrupt: counts.Corrupt,
	}
	if p == s.saved {
		return
	}
	p.Generation++
	b, err := binary.Append(nil, binary.LittleEndian, p)
	if err == nil {
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
		_, err = s.file.WriteAt(b, int64(p.Generation%2)*slotDistance)
	}
	if err != nil && !s.failed {
		q.opts.Logger.Warn("cannot save the spool's position; a restart would deliver records again", "dir", q.opts.Dir,
			"error", err)
	}
	if s.failed = err != nil; !s.failed {
		s.saved, s.dirty = p, true
	}
}

func (s *stateFile) sync() {
	if s.dirty && s.file.Sync() == nil {
		s.dirty = false
	}
}
