// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// stateFile is the file format of a plugin's state.
type stateFile struct {
	Format  int       `json:"format"` // 1
	Plugin  string    `json:"plugin"` // plugin's name in the configuration
	Saved   time.Time `json:"saved"`
	Epoch   uint64    `json:"epoch"`
	Version uint32    `json:"version"`
	Data    []byte    `json:"data"`
}

// stateInterval is the least time between writes. stateRate bounds the average number of bytes
// written per second. When the plugin stops, its newest state is written in any case.
const (
	stateInterval = time.Second
	stateRate     = 1 << 20
)

// maxStateFile bounds the size of a state file, which holds the state in base64 and the other
// fields.
const maxStateFile = sdk.MaxState*4/3 + 4096

// statePath returns the file of an instance's state, or "" if states are not saved.
func (c *Component) statePath(instance string) string {
	directory := c.config().Plugins.StateDirectory
	if directory == "" {
		return ""
	}
	return filepath.Join(directory, instance+".state.json")
}

// newestState returns the newest state that an instance saved, in its file or in the cluster, or
// nil.
func (c *Component) newestState(ctx context.Context, cfg config.Plugin) *sdk.State {
	s := c.savedState(cfg.Name, cfg.Plugin)
	if c.deps.Cluster == nil {
		return s
	}
	if other := c.deps.Cluster.State(ctx, cfg.Name, cfg.Plugin); other != nil && (s == nil || other.Epoch > s.Epoch) {
		return other
	}
	return s
}

// savedState returns the state that an instance saved before the collector was restarted, or nil.
// The plugin checks the content itself.
func (c *Component) savedState(instance, plugin string) *sdk.State {
	path := c.statePath(instance)
	if path == "" {
		return nil
	}
	s, err := readState(path, plugin)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		c.log.Warn("saved state of a plugin is not used", "plugin", instance, "file", path, "error", err)
		return nil
	}
	return s
}

func readState(path, plugin string) (*sdk.State, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file") // opening a pipe would wait for a writer
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxStateFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxStateFile {
		return nil, fmt.Errorf("it is larger than %d bytes", maxStateFile)
	}
	var s stateFile
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	switch {
	case s.Format != 1:
		return nil, fmt.Errorf("it has format %d; expected 1", s.Format)
	case s.Plugin != plugin:
		return nil, fmt.Errorf("it belongs to the plugin %q; expected %q", s.Plugin, plugin)
	case len(s.Data) > sdk.MaxState:
		return nil, fmt.Errorf("it has %d bytes; expected at most %d", len(s.Data), sdk.MaxState)
	}
	return &sdk.State{Epoch: s.Epoch, Version: s.Version, Data: s.Data}, nil
}

// writeState replaces a file atomically: after a crash, the file has either the old or the new
// content.
func writeState(path, plugin string, s *sdk.State) error {
	data, err := json.Marshal(stateFile{Format: 1, Plugin: plugin, Saved: time.Now().UTC(), Epoch: s.Epoch,
		Version: s.Version, Data: s.Data})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	next := path + ".next"
	_ = os.Remove(next) // left behind by a crash
	f, err := os.OpenFile(next, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next) // a partial file would take space on a full disk
	}
	return err
}

// savedState tracks the newest state that was written to the state file of a plugin.
type savedState struct {
	epoch   uint64
	next    time.Time // earliest time of the next write
	failing bool      // whether the last write failed
}

// saveState writes the plugin's newest state to disk, at most once per stateInterval unless now is
// set.
func (p *plugin) saveState(now bool) {
	path := p.c.statePath(p.name)
	p.mu.Lock()
	s := p.state
	p.mu.Unlock()
	if path == "" || s == nil || s.Epoch == p.saved.epoch || !now && time.Now().Before(p.saved.next) {
		return
	}
	err := writeState(path, p.config().Plugin, s)
	switch {
	case err != nil && !p.saved.failing:
		p.c.log.Error("the state of a plugin cannot be saved; a restarted collector continues from the last saved state,  "+
			"if any; free space or set another plugins.state-directory",
			"plugin", p.name, "error", err)
	case err == nil && p.saved.failing:
		p.c.log.Info("the state of a plugin is saved again", "plugin", p.name)
	}
	pause := max(stateInterval, time.Duration(len(s.Data))*time.Second/stateRate)
	p.saved = savedState{epoch: s.Epoch, next: time.Now().Add(pause), failing: err != nil}
}
