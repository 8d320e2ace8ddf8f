// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/record"
)

func epoch(number uint64) *sdk.Epoch {
	e := &sdk.Epoch{Number: number, Start: time.Unix(int64(number), 0), End: time.Unix(int64(number)+1, 0),
		Status: sdk.StatusComplete}
	e.Put("s1", sdk.CellsOf("r", []uint32{1, 2, 3}))
	e.Put("s2", sdk.CellsOf("r", []uint32{10, 20, 30}))
	return e
}

// count reads a recording to its end, and returns the number of its epochs.
func count(t *testing.T, in io.Reader) (epochs int) {
	t.Helper()
	r, err := record.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	for {
		e, _, err := r.Next()
		if errors.Is(err, io.EOF) {
			return epochs
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Device("s2").Object("r").At(2) != 30 {
			t.Errorf("epoch %d has other cells", e.Number)
		}
		epochs++
	}
}

// disk is a file with room for a number of bytes.
type disk struct {
	bytes.Buffer
	room int
}

func (d *disk) Write(p []byte) (int, error) {
	if len(p) > d.room-d.Len() {
		n, _ := d.Buffer.Write(p[:d.room-d.Len()])
		return n, syscall.ENOSPC
	}
	return d.Buffer.Write(p)
}

func (d *disk) Truncate(size int64) error { d.Buffer.Truncate(int(size)); return nil }
func (d *disk) Close() error              { return nil }

// TestRecordingEndsWithAWholeEpoch fills a disk and reaches the limit.
func TestRecordingEndsWithAWholeEpoch(t *testing.T) {
	fill := func(room int, limit int64) (*disk, error) {
		d := &disk{room: room}
		var tp tape
		if err := tp.begin(d); err != nil {
			t.Fatal(err)
		}
		for n := range uint64(1000) {
			if err := tp.write(Epoch{record.Setup{Network: sdk.Network{Version: 1}}, epoch(n)},
				limit); err != nil {
				if closing := tp.end(); closing != nil {
					t.Error(closing)
				}
				if int64(d.Len()) != tp.whole || d.Len() > int(limit) {
					t.Errorf("%d bytes, %d of whole epochs, the limit is %d", d.Len(), tp.whole, limit)
				}
				return d, err
			}
		}
		t.Fatal("nothing ended the recording")
		return nil, nil
	}
	for name, tt := range map[string]struct {
		room  int
		limit int64
		want  error
	}{"full disk": {5000, 1 << 30, syscall.ENOSPC}, "limit": {1 << 30, 5000, errFull}} {
		d, err := fill(tt.room, tt.limit)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v", name, err)
		}
		if got := count(t, &d.Buffer); got < 5 {
			t.Errorf("%s: %d epochs in 5,000 bytes", name, got)
		}
	}
}

// TestSlowDisk checks that a full queue drops epochs and does not block.
func TestSlowDisk(t *testing.T) {
	var log testkit.Log
	r := &Recorder{logger: log.Logger(), done: make(chan struct{}), queue: make(chan Epoch, 1)}
	for n := range uint64(4) {
		r.Add(Epoch{Epoch: epoch(n)})
	}
	close(r.done) // no goroutine reads the queue
	r.Close()
	r.Add(Epoch{Epoch: epoch(5)}) // ignored after close
	if r.dropped != 3 || strings.Count(log.String(), "the disk is too slow") != 1 {
		t.Errorf("%d dropped, log %s", r.dropped, log.String())
	}
}
