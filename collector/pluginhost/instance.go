// SPDX-License-Identifier: Apache-2.0

// An instance: a plugin that is kept running.

package pluginhost

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/record"
)

// Instance is a supervised plugin.
type Instance struct {
	host *Host
	name string
	spec Spec
	logs *logSink

	// turn holds a token while Analyse runs.
	turn     chan struct{}
	recorder *record.Writer // who has the turn uses it
	// stopping ends the supervisor.
	stopping context.Context
	stop     context.CancelFunc
	stopped  chan struct{} // closed when the supervisor has ended
	stopOnce sync.Once

	mu          sync.Mutex
	description sdk.Description
	settings    sdk.Settings
	config      []byte
	network     sdk.Network
	watched     map[string]sdk.Watch
	session     *session
	state       *sdk.State    // the newest that the plugin handed over
	changed     chan struct{} // closed and replaced when session or state changes
	status      Status
}

// Start starts a plugin, configures it, and keeps it running from then on. The
// error is a StartError: the plugin did not even start once, and nothing is left of
// it. ctx bounds this call only.
func (h *Host) Start(ctx context.Context, spec Spec) (*Instance, error) {
	name := cmp.Or(spec.Name, fileName(spec.Path))
	if err := h.enter(); err != nil {
		return nil, &StartError{Name: name, Path: spec.Path, Err: err}
	}
	defer h.leave()
	path, err := absolute(spec.Path)
	if err != nil {
		return nil, &StartError{Name: name, Path: spec.Path, Err: err}
	}
	spec.Path = path
	inst := &Instance{
		host: h, name: name, spec: spec, config: spec.Config, network: spec.Network,
		state: spec.State,
		logs:  newLogSink(h.opts.Logger.With("plugin", name), h.opts.LogLinesPerSec, h.opts.LogLinesAtOnce),
		turn:  make(chan struct{}, 1), changed: make(chan struct{}), stopped: make(chan struct{}),
		status: Status{Name: name, Path: path, State: StateStarting},
	}
	inst.stopping, inst.stop = context.WithCancel(context.Background())
	s, err := inst.bringUp(ctx)
	if err != nil {
		inst.stop()
		return nil, err
	}
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
		name: i.name, path: i.spec.Path, sha256: i.spec.SHA256, logs: i.logs,
		env: append([]string{sdk.EnvLogLevel + "=" + strings.ToLower(i.spec.LogLevel.String())}, i.spec.Env...),
	})
	if err != nil {
		return nil, err
	}
	settings, err := i.ready(ctx, s, config, network, state)
	if err != nil {
		s.fail(err)
		<-s.dead
		err = s.obituary() // the first reason, should it have died meanwhile
		return nil, &StartError{Name: i.name, Path: i.spec.Path, Err: err}
	}
	i.mu.Lock()
	i.description, i.settings, i.session = s.description, settings, s
	i.status.Version, i.status.PID, i.status.Plugin = s.description.Version, s.proc.pid(), s.description.Name
	i.mu.Unlock()
	i.setState(StateRunning, nil)
	if i.spec.OnSettings != nil {
		i.spec.OnSettings(settings)
	}
	return s, nil
}

// ready takes a new process from its description to an open stream.
func (i *Instance) ready(ctx context.Context, s *session, config []byte, network sdk.Network, state *sdk.State) (sdk.Settings, error) {
	i.mu.Lock()
	before := i.description
	i.mu.Unlock()
	if before.Name != "" && !sameSchema(before, s.description) {
		return sdk.Settings{}, fmt.Errorf("%w: the file was exchanged for one with other YANG modules or lists (version %s, before %s); restart the collector to take it up",
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

// supervise restarts the plugin until it is to stop.
func (i *Instance) supervise(s *session) {
	defer close(i.stopped)
	failures, up := 0, time.Now()
	for {
		select {
		case <-s.dead:
		case <-i.stopping.Done():
			return // Stop or Kill ends the session
		}
		if time.Since(up) >= i.host.opts.Backoff.StableAfter {
			failures = 0
		}
		err := s.obituary()
		for {
			failures++
			delay := i.host.opts.Backoff.delay(failures)
			i.down(err, failures, delay)
			if !sleep(i.stopping, delay) {
				return
			}
			i.setState(StateStarting, err)
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

// down notes that the plugin has died or did not start.
func (i *Instance) down(err error, failures int, delay time.Duration) {
	state := StateWaiting
	if failures >= i.host.opts.Backoff.FailedAfter {
		state = StateFailed
	}
	i.mu.Lock()
	i.session = nil
	i.status.Restarts++
	i.status.PID = 0
	i.mu.Unlock()
	if delay == 0 {
		state = StateStarting
	}
	i.logs.flushDrops()
	i.logs.logger.Error("plugin is down", "error", err, "restart_in", delay, "failures", failures)
	i.setState(state, err)
}

// sleep waits for d; it returns false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// setState changes the state, wakes who waits for it, and tells the observer.
func (i *Instance) setState(state State, err error) {
	i.mu.Lock()
	if i.status.State == StateStopped {
		i.mu.Unlock()
		return
	}
	i.status.State, i.status.Since = state, time.Now()
	if err != nil {
		i.status.LastError = err.Error()
	}
	close(i.changed)
	i.changed = make(chan struct{})
	i.mu.Unlock()
	if i.host.opts.OnChange != nil {
		i.host.opts.OnChange(i.Status())
	}
}

// current returns the running session. While the plugin is being started it waits;
// while its next start is not due it fails at once.
func (i *Instance) current(ctx context.Context) (*session, error) {
	for {
		if i.stopping.Err() != nil {
			return nil, ErrStopped
		}
		i.mu.Lock()
		s, changed, status := i.session, i.changed, i.status
		i.mu.Unlock()
		if s != nil {
			select {
			case <-s.dead: // the supervisor is about to notice
			default:
				return s, nil
			}
		}
		switch status.State {
		case StateWaiting, StateFailed:
			return nil, fmt.Errorf("%w: %s", ErrNotRunning, status.LastError)
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

// Analyse gives the plugin one sealed epoch and returns its results, checked
// against the lists that it declared and against Options.Validate. The error is an
// EpochError: the epoch is lost for this plugin, and the next one can be given at
// once. It returns when ctx ends; a plugin that is still at work soon after that is
// killed. Without a deadline in ctx Options.AnalyseTimeout holds.
//
// The epoch is read until Analyse returns, or, when it returns early, until the
// process is gone; its cells must not be changed afterwards. Epoch.Watched does not
// count: see SetWatched. Results.Events have been logged already.
func (i *Instance) Analyse(ctx context.Context, epoch *sdk.Epoch) (*sdk.Results, error) {
	results, err := i.analyse(ctx, epoch)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		i.status.EpochsLost++
		i.status.LastError = err.Error()
		return nil, &EpochError{Plugin: i.name, Epoch: epoch.Number, Err: err}
	}
	i.status.EpochsAnalysed++
	if results.State != nil {
		i.state = results.State
	}
	i.status.LastEpoch, i.status.LastStats = epoch.Number, results.Stats
	return results, nil
}

func (i *Instance) analyse(ctx context.Context, epoch *sdk.Epoch) (*sdk.Results, error) {
	if err := checkEpoch(epoch); err != nil {
		return nil, fmt.Errorf("the epoch is unsound: %w", err)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, i.host.opts.AnalyseTimeout)
		defer cancel()
	}
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: it is busy with another epoch", timeoutOr(ctx))
	}
	for {
		s, err := i.current(ctx)
		if err != nil {
			return nil, err
		}
		ready, err := s.reserve(ctx)
		if err != nil {
			return nil, err
		}
		if !ready {
			continue
		}
		i.mu.Lock()
		watched, network, config := i.watched, i.network, i.config
		i.mu.Unlock()
		i.record(epoch, watched, network, config)
		return s.analyse(ctx, epoch, watched, network)
	}
}

// record adds the epoch to the recording, if there is one.
func (i *Instance) record(epoch *sdk.Epoch, watched map[string]sdk.Watch, network sdk.Network, config []byte) {
	if i.spec.Record == nil {
		return
	}
	var err error
	if i.recorder == nil {
		i.recorder, err = record.NewWriter(i.spec.Record, record.Header{Config: config, EpochLength: i.spec.EpochLength, Network: network})
	}
	if err == nil {
		with := *epoch
		with.Watched = slices.Collect(maps.Values(watched))
		err = i.recorder.Write(&with)
	}
	if err != nil {
		i.logs.logger.Error("recording of epochs ends", "error", err)
		i.spec.Record = nil
	}
}

// SetWatched replaces the set of rows that the plugin shall publish besides the
// usual ones, from the next epoch on, and over restarts.
func (i *Instance) SetWatched(rows []sdk.Watch) {
	set := make(map[string]sdk.Watch, len(rows))
	for _, row := range rows {
		set[row.ID()] = row
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.watched = set
}

// SetNetwork replaces the network model. A plugin that takes updates gets it with
// the next epoch; any other is configured again, and its new settings are returned
// and given to Spec.OnSettings. The model's version must have grown.
func (i *Instance) SetNetwork(ctx context.Context, network sdk.Network) (sdk.Settings, error) {
	i.mu.Lock()
	if i.description.Capabilities.NetworkUpdates {
		i.network = network
		settings := i.settings
		i.mu.Unlock()
		return settings, nil
	}
	config := i.config
	i.mu.Unlock()
	return i.Configure(ctx, config, network)
}

// Configure gives the running plugin another configuration and network. After an
// error, which wraps ErrConfig when the plugin refused, the earlier ones hold.
func (i *Instance) Configure(ctx context.Context, config []byte, network sdk.Network) (sdk.Settings, error) {
	s, err := i.current(ctx)
	if err != nil {
		return sdk.Settings{}, fmt.Errorf("plugin %s: %w", i.name, err)
	}
	if err := validateConfig(s.description.ConfigSchema, config); err != nil {
		return sdk.Settings{}, fmt.Errorf("plugin %s: %w", i.name, err)
	}
	settings, err := s.configure(ctx, config, network, i.spec.EpochLength, nil)
	if err != nil {
		return sdk.Settings{}, fmt.Errorf("plugin %s: %w", i.name, err)
	}
	i.mu.Lock()
	i.config, i.network, i.settings = config, network, settings
	i.mu.Unlock()
	if i.spec.OnSettings != nil {
		i.spec.OnSettings(settings)
	}
	return settings, nil
}

// Stop drains the plugin and ends it, at the latest after Options.StopGrace or when
// ctx ends. No process is left when it returns.
func (i *Instance) Stop(ctx context.Context) { i.end(func(s *session) { s.stop(ctx) }) }

// Kill ends the plugin at once, or waits for a Stop that has begun. No process is
// left when it returns.
func (i *Instance) Kill() { i.end(func(s *session) { s.fail(ErrStopped); <-s.dead }) }

func (i *Instance) end(finish func(*session)) {
	i.stopOnce.Do(func() {
		i.stop()
		<-i.stopped // no restart any more
		i.mu.Lock()
		s := i.session
		i.mu.Unlock()
		if s != nil {
			finish(s)
		}
		i.setState(StateStopped, nil)
		i.logs.flushDrops()
		i.host.remove(i)
	})
}

// Name returns the instance's name.
func (i *Instance) Name() string { return i.name }

// Describe returns the plugin's description.
func (i *Instance) Describe() sdk.Description {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.description
}

// State returns the newest state that the plugin handed over, or nil.
func (i *Instance) State() *sdk.State {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.state
}

// Settings returns what the plugin asked of the network when it was last
// configured.
func (i *Instance) Settings() sdk.Settings {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.settings
}

var _ slog.LogValuer = Status{}
