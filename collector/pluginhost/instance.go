// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/pluginhost/recorder"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/record"
)

// Instance is a supervised plugin.
type Instance struct {
	host     *Host
	name     string
	spec     Spec
	logs     *logSink
	recorder *recorder.Recorder // nil if nothing is recorded

	attach   bool            // the plugin was started by someone else, and Spec.Path is its socket
	stopping context.Context // when it ends, the supervisor ends
	stop     context.CancelFunc
	stopped  chan struct{} // closed when the supervisor has ended
	stopOnce sync.Once
	wake     chan struct{} // ends the supervisor's delay

	mu          sync.Mutex
	description sdk.Description
	config      []byte
	network     sdk.Network
	watched     map[string]sdk.RowKey
	session     *session
	file        os.FileInfo   // the file that was started last; nil if it is not known
	state       *sdk.State    // state that the next process restores
	changed     chan struct{} // closed and replaced when session or state changes
	status      Status
	downErr     error // why the process was last down
}

// Start starts a plugin, configures it, and keeps it running. If the first start fails, the error
// is a StartError and no process is left. ctx bounds this call only.
func (h *Host) Start(ctx context.Context, spec Spec) (*Instance, error) {
	name := cmp.Or(spec.Name, fileName(spec.Path))
	if err := h.enter(); err != nil {
		return nil, &StartError{Name: name, Path: spec.Path, Err: err}
	}
	defer h.leave()
	path, err := filepath.Abs(spec.Path) // each start follows the symbolic links, which may have changed
	if err != nil {
		return nil, &StartError{Name: name, Path: spec.Path, Err: err}
	}
	spec.Path = path
	inst := &Instance{
		host: h, name: name, spec: spec, config: spec.Config, network: spec.Network, state: spec.State,
		logs:    newLogSink(h.opts.Logger.With("plugin", name), h.opts.LogLinesPerSec, h.opts.LogLinesAtOnce),
		changed: make(chan struct{}), stopped: make(chan struct{}), wake: make(chan struct{}, 1),
		status: Status{State: StateStarting},
	}
	inst.attach = IsSocket(path)
	inst.stopping, inst.stop = context.WithCancel(context.Background())
	s, err := inst.bringUp(ctx)
	if err != nil {
		inst.stop()
		return nil, err
	}
	inst.recorder = recorder.New(spec.Record, inst.logs.logger)
	h.mu.Lock()
	h.instances = append(h.instances, inst)
	h.mu.Unlock()
	go inst.supervise(s)
	return inst, nil
}

// bringUp starts a process, configures it and makes it the current session.
func (i *Instance) bringUp(ctx context.Context) (*session, error) {
	i.mu.Lock()
	config, network, state := i.config, i.network, i.state
	i.mu.Unlock()
	s, err := i.host.launch(ctx, launch{
		name: i.name, path: i.spec.Path, attach: i.attach, sha256: i.spec.SHA256, logs: i.logs,
		memoryLimit: i.spec.MemoryLimit, onStart: i.startedFrom,
		env: append([]string{sdk.EnvLogLevel + "=" + strings.ToLower(i.spec.LogLevel.String())}, i.spec.Env...),
	})
	if err != nil {
		return nil, err
	}
	settings, err := i.ready(ctx, s, config, network, state)
	if err != nil {
		s.fail(err)
		<-s.dead
		// The process's exit error is the original reason, even if the process ended before the call
		// failed.
		return nil, &StartError{Name: i.name, Path: i.spec.Path, Err: s.exitErr}
	}
	i.change(StateRunning, nil, func() {
		i.description, i.session = s.description, s
		i.status.Version, i.status.PID = s.description.Version, s.proc.pid()
		i.status.MemoryLimit, i.status.MemoryMethod = s.proc.confinement.limit, s.proc.confinement.method()
	})
	i.settingsChanged(settings)
	return s, nil
}

// startedFrom records the file of a new process.
func (i *Instance) startedFrom(file os.FileInfo) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.file = file
}

// ready checks the description of a new process, configures the process and opens the stream.
func (i *Instance) ready(ctx context.Context, s *session, config []byte, network sdk.Network,
	state *sdk.State,
) (sdk.Settings, error) {
	before := i.Describe()
	if before.Name != "" && !sameSchema(before, s.description) {
		return sdk.Settings{}, fmt.Errorf("%w: the file was replaced by one with other YANG modules or lists (version %s, "+
			"before %s); restart the collector to load it",
			ErrDescription, s.description.Version, before.Version)
	}
	if err := validateConfig(s.description.ConfigSchema, config); err != nil {
		return sdk.Settings{}, err
	}
	settings, err := s.configure(ctx, config, network, i.spec.EpochLength, state)
	if err != nil {
		return settings, err
	}
	return settings, s.open()
}

func sameSchema(a, b sdk.Description) bool {
	return a.Name == b.Name && reflect.DeepEqual(a.Modules, b.Modules) && reflect.DeepEqual(a.Lists, b.Lists)
}

// settingsChanged passes the plugin's settings to Spec.OnSettings.
func (i *Instance) settingsChanged(settings sdk.Settings) {
	if i.spec.OnSettings != nil {
		i.spec.OnSettings(settings)
	}
}

// supervise restarts the plugin until Stop.
func (i *Instance) supervise(s *session) {
	defer close(i.stopped)
	delays := i.host.opts.Backoff.Delays()
	failures, up := 0, time.Now()
	for {
		select {
		case <-s.dead:
		case <-i.stopping.Done():
			return // Stop ends the session
		}
		if time.Since(up) >= i.host.opts.Backoff.StableAfter {
			failures = 0
			delays.Reset()
		}
		err := s.exitErr
		for {
			if !errors.Is(err, errReplaced) {
				failures++
			}
			delay := time.Duration(0)
			switch {
			case failures > 1 && i.attach: // the developer who debugs the plugin starts it again
				delay = i.host.opts.Backoff.Base
			case failures > 1:
				delay = delays.NextBackOff()
			}
			i.down(err, failures, delay)
			if !i.pause(delay) {
				return
			}
			i.setState(StateStarting)
			if s, err = i.bringUp(i.stopping); err == nil {
				break
			}
			if i.stopping.Err() != nil {
				return
			}
		}
		up = time.Now()
		i.logs.logger.Info("plugin restarted", "pid", s.proc.pid(), "failures", failures)
	}
}

// down records that the plugin has died or did not start.
func (i *Instance) down(err error, failures int, delay time.Duration) {
	i.mu.Lock()
	repeated := i.attach && err.Error() == i.status.LastError
	i.mu.Unlock()
	state := StateWaiting
	switch {
	case delay == 0:
		state = StateStarting
	case failures >= i.host.opts.Backoff.FailedAfter:
		state = StateFailed
	}
	i.change(state, err, func() {
		i.session = nil
		i.status.Restarts++
		i.status.PID = 0
		if errors.Is(err, ErrOutOfMemory) {
			i.status.OutOfMemoryKills++
		}
	})
	i.logs.flushDrops(0)
	if errors.Is(err, errReplaced) {
		i.logs.logger.Info("plugin is restarted", "reason", err)
		return
	}
	if repeated {
		return
	}
	i.logs.logger.Error("plugin is down", "error", err, "restart_in", delay, "failures", failures)
}

// pause waits for d or until a new configuration arrives. It returns false if the instance is
// stopped.
func (i *Instance) pause(d time.Duration) bool {
	if d <= 0 {
		return i.stopping.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-i.wake:
		return true
	case <-i.stopping.Done():
		return false
	}
}

// setState changes the state and nothing else.
func (i *Instance) setState(state State) { i.change(state, nil, func() {}) }

// change sets the state and calls f, which sets what belongs to the state, under one lock, so that
// a snapshot never mixes two states. It wakes goroutines that wait for the state, and calls
// Options.OnChange.
func (i *Instance) change(state State, err error, f func()) {
	i.mu.Lock()
	if i.status.State == StateStopped {
		i.mu.Unlock()
		return
	}
	f()
	i.status.State = state
	if err != nil {
		i.status.LastError, i.status.LastErrorTime, i.downErr = err.Error(), time.Now(), err
	}
	close(i.changed)
	i.changed = make(chan struct{})
	i.mu.Unlock()
	if i.host.opts.OnChange != nil {
		i.host.opts.OnChange(i.Status())
	}
}

// current returns the running session. It waits while the plugin is being started, and fails if
// the next start is not due yet.
func (i *Instance) current(ctx context.Context) (*session, error) {
	for {
		if i.stopping.Err() != nil {
			return nil, ErrStopped
		}
		i.mu.Lock()
		s, changed, state, downErr := i.session, i.changed, i.status.State, i.downErr
		i.mu.Unlock()
		if s != nil {
			select {
			case <-s.dead: // the supervisor will notice soon
			default:
				return s, nil
			}
		}
		switch state {
		case StateWaiting, StateFailed:
			return nil, fmt.Errorf("%w: %w", ErrNotRunning, downErr)
		case StateStopped:
			return nil, ErrStopped
		}
		select {
		case <-changed:
		case <-i.stopping.Done():
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: it is being started", timeoutOr(ctx))
		}
	}
}

// record adds the epoch to the recording, if the plugin is recorded.
func (i *Instance) record(epoch *sdk.Epoch, watched map[string]sdk.RowKey, setup record.Setup) {
	if i.recorder == nil {
		return
	}
	with := *epoch
	with.Watched = slices.Collect(maps.Values(watched))
	i.recorder.Add(recorder.Epoch{Setup: setup, Epoch: &with})
}

// SetWatched replaces the set of watched rows from the next epoch on. Restarts keep the set.
func (i *Instance) SetWatched(rows []sdk.RowKey) {
	set := make(map[string]sdk.RowKey, len(rows))
	for _, row := range rows {
		set[row.ID()] = row
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.watched = set
}

// SetState sets the state that the plugin's next process restores.
func (i *Instance) SetState(state *sdk.State) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.state = state
}

// errReplaced is the reason with which Restart ends a process.
var errReplaced = errors.New("the plugin continues from another state")

// Restart ends the process and starts the next one at once, which restores the state. Restart
// returns when the next process runs or has failed, or when ctx ends.
func (i *Instance) Restart(ctx context.Context, state *sdk.State) {
	i.SetState(state)
	s, err := i.current(ctx)
	if err != nil {
		return // the next process restores the state
	}
	s.fail(errReplaced)
	<-s.dead
	_, _ = i.current(ctx) // the next call of the plugin returns the error
}

// SetNetwork replaces the network model. A plugin that accepts updates receives it with the next
// epoch; any other plugin is configured again. If it refuses the model, its process ends, because
// results for the earlier network would be wrong, and later ones start with the new model. The
// model's version must have grown.
func (i *Instance) SetNetwork(ctx context.Context, network sdk.Network) error {
	i.mu.Lock()
	updates, config := i.description.Capabilities.NetworkUpdates, i.config
	if updates {
		i.network = network
	}
	i.mu.Unlock()
	if updates {
		return nil
	}
	err := i.Configure(ctx, config, network)
	if !errors.Is(err, ErrConfig) {
		return err
	}
	i.mu.Lock()
	i.network = network
	s := i.session
	i.mu.Unlock()
	if s != nil {
		s.fail(err)
	}
	return err
}

// Configure gives the plugin another configuration and network. If the plugin refuses them, the
// error wraps ErrConfig and the earlier ones stay in force. If the plugin is down, they apply from
// its next start; a changed configuration makes the instance start the plugin at once, and
// Configure returns when that start has succeeded or failed.
func (i *Instance) Configure(ctx context.Context, config []byte, network sdk.Network) error {
	schema := i.Describe().ConfigSchema
	if err := validateConfig(schema, config); err != nil {
		return fmt.Errorf("plugin %s: %w", i.name, err)
	}
	s, err := i.current(ctx)
	if errors.Is(err, ErrNotRunning) {
		if err = i.configureNext(ctx, config, network); err != nil {
			return fmt.Errorf("plugin %s: %w", i.name, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("plugin %s: %w", i.name, err)
	}
	settings, err := s.configure(ctx, config, network, i.spec.EpochLength, nil)
	if errors.Is(err, ErrConfig) {
		return fmt.Errorf("plugin %s: %w", i.name, err)
	}
	i.mu.Lock()
	i.config, i.network = config, network
	i.mu.Unlock()
	if err != nil {
		s.fail(err) // the next process gets the new configuration
		return fmt.Errorf("plugin %s: it is restarted with the new configuration: %w", i.name, err)
	}
	i.settingsChanged(settings)
	return nil
}

// configureNext sets the configuration and network that the next process gets.
func (i *Instance) configureNext(ctx context.Context, config []byte, network sdk.Network) error {
	i.mu.Lock()
	same := bytes.Equal(config, i.config)
	i.config, i.network = config, network
	i.mu.Unlock()
	if same {
		return nil
	}
	i.setState(StateStarting)
	select {
	case i.wake <- struct{}{}:
	default:
	}
	_, err := i.current(ctx)
	return err
}

// Stop drains the plugin and ends it, at the latest when Options.StopGrace is over or ctx ends.
// When Stop returns, no process is left.
func (i *Instance) Stop(ctx context.Context) {
	i.stopOnce.Do(func() {
		i.stop()
		<-i.stopped // no more restarts
		i.mu.Lock()
		s := i.session
		i.mu.Unlock()
		if s != nil {
			s.stop(ctx)
		}
		i.recorder.Close()
		i.change(StateStopped, nil, func() { i.status.PID = 0 })
		i.logs.flushDrops(0)
		i.host.remove(i)
	})
}

// Replaced reports whether the plugin's file is not the one that was started last, and has been
// unchanged for the time settled, so that it is complete.
func (i *Instance) Replaced(settled time.Duration) bool {
	i.mu.Lock()
	was := i.file
	i.mu.Unlock()
	return was != nil && Replaced(i.spec.Path, was, settled)
}

// Replaced reports whether the file at the path is not was, and has been unchanged for the time
// settled. was is nil if there was no file.
func Replaced(path string, was os.FileInfo, settled time.Duration) bool {
	now, err := os.Stat(path)
	if err != nil {
		return false
	}
	if age := time.Since(now.ModTime()); age >= 0 && age < settled { // a negative age means that the clock was set back
		return false
	}
	return was == nil || !os.SameFile(now, was) || now.Size() != was.Size() || !now.ModTime().Equal(was.ModTime())
}

// Describe returns the plugin's description.
func (i *Instance) Describe() sdk.Description {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.description
}
