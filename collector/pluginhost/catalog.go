// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"fmt"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// Entry is a plugin in a catalog, or a file that could not be used as one.
type Entry struct {
	// Name is the name in the plugin's description, or the file's name if Err is set.
	Name string
	Path string
	// SHA256 is the file's digest in hexadecimal.
	SHA256 string
	// Description is the plugin's description.
	Description sdk.Description
	// Err is a StartError that says why the file cannot be used. Other entries are not affected.
	Err error
}

// Catalog starts every plugin in dir to get its description, and ends it. Entries are in the order
// of their file names; an entry whose file cannot be used has Err set. If two plugins report the
// same name, one entry has Err set: the one whose file name differs from the plugin's name, or the
// second one if both or none differ. Catalog fails if the directory cannot be used.
func (h *Host) Catalog(ctx context.Context, dir string) ([]Entry, error) {
	found, rejected, err := Discover(dir)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	usable := make(map[string]int) // indexes of entries, by name
	for _, c := range found {
		entries = append(entries, h.Fingerprint(ctx, c.Path))
		this := len(entries) - 1
		name := entries[this].Name
		if entries[this].Err != nil {
			continue
		}
		other, taken := usable[name]
		if !taken || c.Name == name {
			usable[name] = this
		}
		if !taken {
			continue
		}
		if usable[name] == this {
			this, other = other, this
		}
		path := entries[this].Path
		entries[this].Err = &StartError{Name: name, Path: path,
			Err: fmt.Errorf("%w: %s has the same name; remove one of them", ErrDescription, entries[other].Path)}
	}
	for _, r := range rejected {
		entries = append(entries, Entry{Name: fileName(r.Path), Path: r.Path,
			Err: &StartError{Name: fileName(r.Path), Path: r.Path, Err: r.Err}})
	}
	return entries, nil
}

// Fingerprint starts the plugin at path, gets its description and ends it.
func (h *Host) Fingerprint(ctx context.Context, path string) Entry {
	entry := Entry{Name: fileName(path), Path: path}
	if err := h.enter(); err != nil {
		entry.Err = err
		return entry
	}
	defer h.leave()
	path, err := absolute(path)
	if err == nil {
		entry.Path = path
		err = verify(path, "")
	}
	if err == nil {
		entry.SHA256, err = digest(path)
	}
	if err != nil {
		entry.Err = &StartError{Name: entry.Name, Path: path, Err: err}
		return entry
	}
	logs := newLogSink(h.opts.Logger.With("plugin", entry.Name), h.opts.LogLinesPerSec, h.opts.LogLinesAtOnce)
	s, err := h.launch(ctx, launch{name: entry.Name, path: path, sha256: entry.SHA256, logs: logs})
	if err != nil {
		entry.Err = err
		return entry
	}
	entry.Name, entry.Description = s.description.Name, s.description
	s.proc.kill() // no state to save
	<-s.dead
	return entry
}
