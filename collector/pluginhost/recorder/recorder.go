// SPDX-License-Identifier: Apache-2.0

// Package recorder writes everything that a plugin receives to a file (package record).
package recorder

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/record"
)

// Recording says where to record what a plugin receives.
type Recording struct {
	// Path is the file. An existing file is renamed to Path.old, which replaces an earlier one.
	Path string
	// Limit is the largest size of the file in bytes; 0 means 1 GiB. The recording ends before the
	// epoch that would exceed it.
	Limit int64
}

// recordQueue is the number of epochs that can wait for the disk. They share memory with the
// epochs that the plugin analyzes.
const recordQueue = 4

// Recorder writes epochs in the background, so that a slow disk does not delay the plugin: if the
// queue is full, the epoch is dropped from the recording and counted. At the limit, or after an
// error such as a full disk, the recording ends with its last complete epoch.
type Recorder struct {
	to     Recording
	logger *slog.Logger
	done   chan struct{} // closed when the file is closed

	mu      sync.Mutex
	queue   chan Epoch // nil after close
	dropped int
}

// Epoch is an epoch and the plugin's setup at that time.
type Epoch struct {
	Setup record.Setup
	Epoch *sdk.Epoch
}

// New starts a recorder, or returns nil if no path is configured.
func New(to Recording, logger *slog.Logger) *Recorder {
	if to.Path == "" {
		return nil
	}
	to.Limit = cmp.Or(to.Limit, 1<<30)
	r := &Recorder{to: to, logger: logger.With("recording", to.Path), done: make(chan struct{}),
		queue: make(chan Epoch, recordQueue)}
	go r.run(r.queue)
	return r
}

// Add queues an epoch, which must not change any more. It does not block.
func (r *Recorder) Add(e Epoch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue == nil {
		return
	}
	select {
	case r.queue <- e:
	default:
		if r.dropped++; r.dropped == 1 {
			r.logger.Warn("recording drops epochs: the disk is too slow", "epoch", e.Epoch.Number)
		}
	}
}

// Close writes the epochs in the queue and closes the file.
func (r *Recorder) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	if r.queue != nil {
		close(r.queue)
		r.queue = nil
	}
	r.mu.Unlock()
	<-r.done
}

// run writes the queue to the file until close, the limit or an error.
func (r *Recorder) run(queue <-chan Epoch) {
	defer close(r.done)
	var t tape
	var err error
	for e := range queue {
		if err != nil {
			continue // the recording has ended
		}
		if t.file == nil {
			var file *os.File
			if file, err = create(r.to.Path); err == nil {
				err = t.begin(file)
			}
		}
		if err == nil {
			err = t.write(e, r.to.Limit)
		}
		if errors.Is(err, errFull) {
			r.logger.Warn("recording ended at its limit", "epochs", t.epochs, "bytes", t.whole, "limit", r.to.Limit)
		} else if err != nil {
			r.logger.Error("recording ended", "error", err, "epochs", t.epochs, "bytes", t.whole)
		}
	}
	if closing := t.end(); closing != nil && err == nil {
		r.logger.Error("recording ended", "error", closing, "epochs", t.epochs)
	}
	r.mu.Lock()
	dropped := r.dropped
	r.mu.Unlock()
	r.logger.Info("recording closed", "epochs", t.epochs, "bytes", t.whole, "dropped", dropped)
}

// errFull ends a recording at its limit.
var errFull = errors.New("the recording is at its limit")

// tape is the file of a recording. Only one goroutine uses it.
type tape struct {
	file   recordFile // nil before begin
	buffer *bufio.Writer
	writer *record.Writer
	setup  record.Setup // setup of the newest epoch
	whole  int64        // bytes of complete epochs
	size   int64        // bytes written
	epochs int
}

// recordFile is the part of os.File that a tape needs.
type recordFile interface {
	io.WriteCloser
	Truncate(size int64) error
}

// create makes the file at path. It renames an existing regular file.
func create(path string) (*os.File, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s exists and is not a regular file; name another file", path)
	default:
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, fmt.Errorf("rename the earlier recording: %w", err)
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}

// begin starts a recording in file.
func (t *tape) begin(file recordFile) (err error) {
	t.file = file
	t.buffer = bufio.NewWriterSize(t, 256<<10)
	t.writer, err = record.NewWriter(t.buffer)
	return err
}

// Write counts the bytes that reach the file.
func (t *tape) Write(p []byte) (int, error) {
	n, err := t.file.Write(p)
	t.size += int64(n)
	return n, err
}

// write adds an epoch, preceded by its setup if the setup has changed.
func (t *tape) write(e Epoch, limit int64) error {
	if t.whole+int64(e.Epoch.Bytes()) > limit {
		return errFull
	}
	if s := &e.Setup; t.epochs == 0 || s.Network.Version != t.setup.Network.Version ||
		!bytes.Equal(s.Config, t.setup.Config) {
		if t.epochs > 0 {
			s.State = nil // a plugin receives saved state only once
		}
		if err := t.writer.Configure(*s); err != nil {
			return err
		}
		t.setup = *s
	}
	if err := t.writer.Write(e.Epoch); err != nil {
		return err
	}
	if err := t.buffer.Flush(); err != nil {
		return err
	}
	if t.size > limit {
		return errFull
	}
	t.whole = t.size
	t.epochs++
	return nil
}

// end removes a partly written epoch and closes the file.
func (t *tape) end() error {
	if t.file == nil {
		return nil
	}
	return errors.Join(t.file.Truncate(t.whole), t.file.Close())
}
