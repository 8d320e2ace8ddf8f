// SPDX-License-Identifier: Apache-2.0

package devconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Written is a leaf that the collector wrote.
type Written struct {
	// Before is the value before the collector first wrote the leaf; nil is none.
	Before *string `json:"before"`
	// Value is the value that the collector wrote last.
	Value string `json:"value"`
}

// Record is the collector's file about a device.
type Record struct {
	Format int    `json:"format"`
	Device string `json:"device"`
	// Address is the gNMI server to which the leaves were written.
	Address string `json:"address"`
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
	// Failure says why the change is taken back; "" while the change goes on.
	Failure string `json:"failure,omitempty"`
}

// recordFormat is the version of the file's form.
const recordFormat = 1

// maxRecord bounds a record's file, in bytes.
const maxRecord = 64 << 20

// done records changes that are in effect.
func (r *Record) done(changes []Change) {
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

// records is a directory of records.
type records string

func (d records) path(device string) string { return filepath.Join(string(d), device+".json") }

// load returns the record of a device, which is empty if there is no file.
func (d records) load(device string) (*Record, error) {
	empty := &Record{Format: recordFormat, Device: device, Written: map[string]Written{}}
	if d == "" {
		return empty, nil
	}
	info, err := os.Stat(d.path(device))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return empty, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // opening a pipe would wait for a writer
		return nil, fmt.Errorf("%s is not a regular file", d.path(device))
	}
	f, err := os.Open(d.path(device))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxRecord {
		return nil, fmt.Errorf("%s is larger than %d bytes", d.path(device), maxRecord)
	}
	r, err := parseRecord(data)
	if err == nil && r.Device != device {
		err = fmt.Errorf("the record is of device %q", r.Device)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.path(device), err)
	}
	return r, nil
}

// parseRecord reads a record and checks that it names only leaves of the table.
func parseRecord(data []byte) (*Record, error) {
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, err
	}
	if r.Format != recordFormat {
		return nil, fmt.Errorf("the record has format %d; expected %d", r.Format, recordFormat)
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

// save writes the record, so that it survives a crash of the system.
func (d records) save(r *Record) error {
	if d == "" {
		return nil
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(string(d), "."+r.Device+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), d.path(r.Device)); err != nil {
		return err
	}
	dir, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
