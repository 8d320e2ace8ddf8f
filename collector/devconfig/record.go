// SPDX-License-Identifier: Apache-2.0

package devconfig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"
)

// ErrDeposed is wrapped if another collector has replaced a record.
var ErrDeposed = errors.New("another collector has taken the device over")

// Records keep a record of each device. A cluster has one Records, so that each owner of a device
// continues where the owner before has ended.
type Records interface {
	// Load returns the record of a device and its revision; data is nil if there is none.
	Load(ctx context.Context, device string) (data []byte, revision uint64, err error)
	// Save replaces a record if it still has a revision, and returns the next one. Otherwise the error
	// wraps ErrDeposed.
	Save(ctx context.Context, device string, data []byte, revision uint64) (next uint64, err error)
}

// Written is a leaf that the collector wrote.
type Written struct {
	// Before is the value before the collector first wrote the leaf; nil is none.
	Before *string `json:"before"`
	// Value is the value that the collector wrote last.
	Value string `json:"value"`
}

// Record is what is kept about a device.
type Record struct {
	Format int    `json:"format"`
	Device string `json:"device"`
	// Written are the leaves that the collector wrote, by path.
	Written map[string]Written `json:"written"`
	// Pending is the change in progress; nil if there is none.
	Pending *Pending `json:"pending,omitempty"`
	// Reverts are the times at which somebody else has taken back the collector's values in mode
	// enforce.
	Reverts []time.Time `json:"reverts,omitempty"`
	// Ended is set if mode enforce has ended because others changed the device too often.
	Ended bool `json:"ended,omitempty"`
	// Failure says why the newest change failed; "" if it succeeded.
	Failure string `json:"failure,omitempty"`
}

// Pending is a change in progress.
type Pending struct {
	State   State     `json:"state"`
	Changes []Change  `json:"changes"`
	Started time.Time `json:"started"`
	// Commit is the id of the commit that the device undoes unless it is confirmed; "" if the device
	// does not support the commit extension.
	Commit string `json:"commit,omitempty"`
	// Late is set while the device may still carry out the Set: it has not answered, or has answered
	// OK and does not show the changes.
	Late bool `json:"late,omitempty"`
	// Failure says why the change is taken back; "" while the change goes on.
	Failure string `json:"failure,omitempty"`
}

// recordFormat is the version of the file's form.
const recordFormat = 1

// maxRecord bounds a record's file, in bytes.
const maxRecord = 64 << 20

// done records changes that are in effect.
func (r *Record) done(changes []Change) {
	r.Written = maps.Clone(r.Written)
	for _, c := range changes {
		was, wrote := r.Written[c.Path]
		if c.Restores || c.After == nil {
			delete(r.Written, c.Path)
			continue
		}
		if !wrote {
			was.Before = c.Before
		}
		was.Value = *c.After
		r.Written[c.Path] = was
	}
}

// records are files in a directory, which no other collector uses.
type records string

func (d records) path(device string) string { return filepath.Join(string(d), device+".json") }

// onlyRevision is the revision of all records in files.
const onlyRevision = 1

// Load implements Records.
func (d records) Load(_ context.Context, device string) (data []byte, revision uint64, err error) {
	if d == "" {
		return nil, onlyRevision, nil
	}
	info, err := os.Stat(d.path(device))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, onlyRevision, nil
	case err != nil:
		return nil, 0, err
	case !info.Mode().IsRegular(): // opening a pipe would wait for a writer
		return nil, 0, fmt.Errorf("%s is not a regular file", d.path(device))
	case info.Size() > maxRecord:
		return nil, 0, fmt.Errorf("%s is larger than %d bytes", d.path(device), maxRecord)
	}
	f, err := os.Open(d.path(device))
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	data, err = io.ReadAll(io.LimitReader(f, maxRecord))
	return data, onlyRevision, err
}

// parseRecord reads the record of a device, which is empty without data, and checks that it names
// only leaves of the table.
func parseRecord(device string, data []byte) (*Record, error) {
	if data == nil {
		return &Record{Format: recordFormat, Device: device, Written: map[string]Written{}}, nil
	}
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, err
	}
	switch {
	case r.Format != recordFormat:
		return nil, fmt.Errorf("the record has format %d; expected %d", r.Format, recordFormat)
	case r.Device != device:
		return nil, fmt.Errorf("the record is of device %q", r.Device)
	}
	if r.Written == nil {
		r.Written = map[string]Written{}
	}
	for path := range r.Written {
		if _, ok := leafAt(path); !ok {
			return nil, fmt.Errorf("%s is not a leaf that the collector may set", path)
		}
	}
	if p := r.Pending; p != nil {
		if !p.State.transaction() {
			return nil, fmt.Errorf("a change in state %q; expected one of a change in progress", p.State)
		}
		for _, c := range p.Changes {
			if _, err := c.leaf(); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// Save implements Records. The record survives a crash of the system.
func (d records) Save(_ context.Context, device string, data []byte, _ uint64) (uint64, error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil { // it was removed
		return 0, err
	}
	f, err := os.CreateTemp(string(d), "."+device+".*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return 0, err
	}
	if err := os.Rename(f.Name(), d.path(device)); err != nil {
		return 0, err
	}
	dir, err := os.Open(string(d))
	if err != nil {
		return 0, err
	}
	return onlyRevision, errors.Join(dir.Sync(), dir.Close())
}

// load reads the record, unless the device has its newest revision already.
func (d *device) load(ctx context.Context) error {
	data, revision, err := d.records.Load(ctx, d.name)
	if err == nil && d.record != nil && revision == d.revision {
		return nil
	}
	if err == nil && data == nil && d.record != nil { // the cluster has lost its records: save this collector's copy
		d.revision = revision
		return d.keep(ctx, *d.record)
	}
	if err == nil && data == nil { // this collector may have written a file before it joined the cluster
		data, _, err = records(d.directory).Load(ctx, d.name)
	}
	var r *Record
	if err == nil {
		r, err = parseRecord(d.name, data)
	}
	if err != nil {
		return fmt.Errorf("device %s: the record of what was written cannot be read: %w", d.name, err)
	}
	d.record, d.revision, d.interrupted = r, revision, r.Pending != nil
	if !d.interrupted && d.state().transaction() { // the last record of the change was saved
		d.enter(Unread, "")
	}
	return nil
}

// keep saves a record, and makes it the record of the device. If it fails, the record may have been
// saved nevertheless: load reads it again.
func (d *device) keep(ctx context.Context, r Record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	next, err := d.records.Save(ctx, d.name, data, d.revision)
	if err != nil {
		d.record = nil
		return err
	}
	d.record, d.revision = &r, next
	if d.deps.Records != nil {
		_ = os.Remove(records(d.directory).path(d.name)) // an old file must not be read later
	}
	return nil
}
