// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/netsketch/netsketch/collector/pluginhost/recorder"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// Options are a host's settings. A zero field means the default in its comment.
type Options struct {
	// Logger receives the lines of the host and of the plugins; default slog.Default.
	Logger *slog.Logger
	// SocketDir is the parent of the host's private directory; the default is the system's directory
	// for temporary files. Its path must be short (about 40 characters).
	SocketDir string
	// OnChange is called when the state of an instance changes. It must neither block nor call the
	// instance.
	OnChange func(Status)

	// IOLimit returns how long to wait for a plugin that should reply within d; nil returns d. It
	// applies to StartTimeout, CallTimeout and HealthTimeout.
	IOLimit func(d time.Duration) time.Duration

	StartTimeout   time.Duration // from the start of a process to its handshake; default 10 s
	CallTimeout    time.Duration // limit of Describe, Configure and Query; default 10 s
	StopGrace      time.Duration // limit of Drain and an orderly end together; default 5 s
	HealthInterval time.Duration // between health checks; default 5 s
	HealthTimeout  time.Duration // limit of one check; default 2 s
	HealthFailures int           // failed checks in a row after which the plugin is killed; default 3
	Backoff        Backoff       // between restarts
	MaxResultBytes int           // bytes of columns in one epoch; default 256 MiB
	MaxEpochEvents int           // events of one epoch; default 100
	LogLinesPerSec float64       // sustained log rate of a plugin; default 100
	LogLinesAtOnce int           // log burst of a plugin; default 1,000
}

// Backoff is the pace of restarts. The first restart follows at once and the second after Base;
// each further delay is twice the previous one, at most Max. After a plugin has run for
// StableAfter, the pace starts again with the first restart.
type Backoff struct {
	Base        time.Duration // default 1 s
	Max         time.Duration // default 2 min
	StableAfter time.Duration // default 30 s
	FailedAfter int           // failures in a row after which the state is StateFailed; default 5
}

// Delays returns the sequence of delays after the first restart.
func (b Backoff) Delays() *backoff.ExponentialBackOff {
	d := &backoff.ExponentialBackOff{InitialInterval: b.Base, Multiplier: 2, MaxInterval: b.Max}
	d.Reset()
	return d
}

// inherited are the environment variables that plugins inherit.
var inherited = []string{"PATH", "HOME", "TMPDIR", "TZ", "LANG"}

func (o Options) withDefaults() Options {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.IOLimit == nil {
		o.IOLimit = func(d time.Duration) time.Duration { return d }
	}
	o.StartTimeout = o.IOLimit(cmp.Or(o.StartTimeout, 10*time.Second))
	o.CallTimeout = o.IOLimit(cmp.Or(o.CallTimeout, 10*time.Second))
	o.StopGrace = cmp.Or(o.StopGrace, 5*time.Second)
	o.HealthInterval = cmp.Or(o.HealthInterval, 5*time.Second)
	o.HealthTimeout = o.IOLimit(cmp.Or(o.HealthTimeout, 2*time.Second))
	o.HealthFailures = cmp.Or(o.HealthFailures, 3)
	o.Backoff.Base = cmp.Or(o.Backoff.Base, time.Second)
	o.Backoff.Max = cmp.Or(o.Backoff.Max, 2*time.Minute)
	o.Backoff.StableAfter = cmp.Or(o.Backoff.StableAfter, 30*time.Second)
	o.Backoff.FailedAfter = cmp.Or(o.Backoff.FailedAfter, 5)
	o.MaxResultBytes = cmp.Or(o.MaxResultBytes, 256<<20)
	o.MaxEpochEvents = cmp.Or(o.MaxEpochEvents, 100)
	o.LogLinesPerSec = cmp.Or(o.LogLinesPerSec, 100)
	o.LogLinesAtOnce = cmp.Or(o.LogLinesAtOnce, 1000)
	return o
}

// cancelGrace returns how long after the deadline of an epoch an unfinished plugin is killed. limit
// is the time that the plugin had for the epoch. On a busy machine, waiting for the plugin costs
// less than a restart.
func cancelGrace(limit time.Duration) time.Duration {
	return min(max(limit, 250*time.Millisecond), 2*time.Second)
}

// Host starts and supervises plugins.
type Host struct {
	opts        Options
	confiner    confiner
	sockets     *socketDirs
	spawner     *spawner
	stopReaping func()

	mu        sync.Mutex
	closed    bool
	starting  sync.WaitGroup // calls that may start a process
	instances []*Instance    // instances that are not stopped
}

// New returns a host. It makes a private directory for sockets and removes directories that dead
// hosts left behind.
func New(opts Options) (*Host, error) {
	opts = opts.withDefaults()
	confiner, noCgroup := newConfiner()
	sockets, err := newSocketDirs(opts.SocketDir, confiner.sweep)
	if err != nil {
		return nil, fmt.Errorf("plugin host: %w", err)
	}
	if noCgroup != nil {
		opts.Logger.Info("plugins run without cgroups of their own; resource limits bound their memory", "reason",
			noCgroup)
	}
	return &Host{opts: opts, confiner: confiner, sockets: sockets, spawner: newSpawner(), stopReaping: reapOrphans()},
		nil
}

// enter registers a call that may start a process; leave ends it.
func (h *Host) enter() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return errors.New("plugin host is closed")
	}
	h.starting.Add(1)
	return nil
}

func (h *Host) leave() { h.starting.Done() }

func (h *Host) remove(inst *Instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.instances = slices.DeleteFunc(h.instances, func(i *Instance) bool { return i == inst })
}

// Close drains and stops all plugins in parallel, and returns when their processes have ended. If
// ctx ends first, the remaining plugins are killed.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	h.mu.Unlock()
	h.starting.Wait()
	h.mu.Lock()
	instances := slices.Clone(h.instances)
	h.mu.Unlock()
	var all sync.WaitGroup
	for _, inst := range instances {
		all.Go(func() { inst.Stop(ctx) })
	}
	all.Wait()
	h.spawner.close()
	h.stopReaping()
	return h.sockets.remove()
}

// Spec says which plugin to run, and how.
type Spec struct {
	// Name is the instance's name in logs, errors and metrics; if empty, the plugin's own name. Two
	// instances may run the same plugin.
	Name string
	// Path is the binary.
	Path string
	// SHA256 is the binary's checksum in hexadecimal, which is compared before every start; if empty,
	// it is not compared.
	SHA256 string
	// Config is the plugin's configuration, a JSON object; empty means no configuration.
	Config []byte
	// Network is the network model.
	Network sdk.Network
	// EpochLength is the interval between boundaries.
	EpochLength time.Duration
	// Env is added to the environment, "NAME=value" each.
	Env []string
	// LogLevel is the lowest level that the plugin logs; default info.
	LogLevel slog.Level
	// MemoryLimit is the most memory in bytes that the plugin may use; 0 means no limit. A cgroup
	// bounds the process and its descendants together if the collector's cgroup is delegated;
	// otherwise, resource limits bound each process.
	MemoryLimit int64
	// State is the state that an earlier process of the plugin saved; nil for the first process.
	// SetState replaces it.
	State *sdk.State
	// OnSettings, if set, receives the plugin's settings each time the plugin was configured, also
	// after a restart. It must not call the instance. The first call is made before Start returns.
	OnSettings func(sdk.Settings)
	// Record says where to record the epochs that the plugin receives; without a path, they are not
	// recorded.
	Record recorder.Recording
}
