// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// stateFile is a plugin's state as it lies on disk, so that it outlives the collector.
type stateFile struct {
	Format  int       `json:"format"` // 1
	Plugin  string    `json:"plugin"` // as the configuration names it
	Saved   time.Time `json:"saved"`
	Epoch   uint64    `json:"epoch"`
	Version uint32    `json:"version"`
	Data    []byte    `json:"data"`
}

// stateEvery is how often a state is written at most; the newest is written when the plugin is stopped.
const stateEvery = time.Second

// maxStateFile bounds what is read: a state in base64, and the rest.
const maxStateFile = sdk.MaxState*4/3 + 4096

// statePath is where an instance's state is kept; empty where none is.
func (p *plugins) statePath(instance string) string {
	folder := p.c.Config().Plugins.StateDirectory
	if folder == "" {
		return ""
	}
	return filepath.Join(folder, instance+".state.json")
}

// savedState reads what an instance saved in an earlier life of the collector; nil when there is nothing. Nothing in
// it is trusted: the plugin checks what it takes back.
func (p *plugins) savedState(instance, plugin string) *sdk.State {
	path := p.statePath(instance)
	if path == "" {
		return nil
	}
	s, err := readState(path, plugin)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		p.log.Warn("saved state of a plugin is not used", "plugin", instance, "file", path, "error", err)
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
		return nil, fmt.Errorf("it is of the plugin %q; expected %q", s.Plugin, plugin)
	case len(s.Data) > sdk.MaxState:
		return nil, fmt.Errorf("it has %d bytes; expected at most %d", len(s.Data), sdk.MaxState)
	}
	return &sdk.State{Epoch: s.Epoch, Version: s.Version, Data: s.Data}, nil
}

// writeState replaces a file at once, so that a crash leaves the old or the new one.
func writeState(path, plugin string, s *sdk.State) error {
	data, err := json.Marshal(stateFile{Format: 1, Plugin: plugin, Saved: time.Now().UTC(), Epoch: s.Epoch, Version: s.Version, Data: s.Data})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	next := path + ".next"
	_ = os.Remove(next) // whatever it is
	f, err := os.OpenFile(next, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next) // half a state on a full disk helps nobody
	}
	return err
}

// keepState writes the instance's newest state, unless that was done a moment ago; now does it all the same. It
// belongs to the instance's goroutine, or comes after its end.
func (r *pluginRun) keepState(now bool) {
	cfg := r.config()
	path := r.p.statePath(cfg.Name)
	s := r.inst.State()
	if path == "" || s == nil || s.Epoch == r.kept || !now && time.Since(r.keptAt) < stateEvery {
		return
	}
	err := writeState(path, cfg.Plugin, s)
	switch {
	case err != nil && !r.unkept:
		r.p.log.Error("the state of a plugin cannot be kept; until it can, a restarted collector goes on from the last that was, if any: make room, or name another plugins.state-directory",
			"plugin", cfg.Name, "error", err)
	case err == nil && r.unkept:
		r.p.log.Info("the state of a plugin is kept again", "plugin", cfg.Name)
	}
	r.unkept, r.kept, r.keptAt = err != nil, s.Epoch, time.Now()
}
