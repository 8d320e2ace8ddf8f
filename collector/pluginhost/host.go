// SPDX-License-Identifier: Apache-2.0

// The host: what all plugins share.

package pluginhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

// Options are a host's settings. The zero value of each field stands for the
// default named in its comment.
type Options struct {
	// Logger takes the host's and the plugins' lines; default: slog.Default.
	Logger *slog.Logger
	// SocketDir is the folder that the host's private folder is made in;
	// default: the system's folder for temporary files. Its path must be
	// short (about 40 characters).
	SocketDir string
	// TrustedUIDs may own plugin files, besides root and the own user.
	TrustedUIDs []int
	// Validate checks a table of results against the schema; nil: not checked.
	// It is called from several goroutines.
	Validate func(*table.Table) error
	// OnChange is told when an instance changes its state. It must not block
	// and not call the instance.
	OnChange func(Status)

	StartTimeout    time.Duration // from start to handshake; default 10 s
	CallTimeout     time.Duration // for Describe, Configure, Query; default 10 s
	AnalyseTimeout  time.Duration // for an epoch whose context has no deadline; default 30 s
	CancelGrace     time.Duration // from an epoch's deadline until a plugin that does not stop is killed; default 250 ms
	StopGrace       time.Duration // for Drain and an orderly end together; default 5 s
	HealthInterval  time.Duration // between health checks; default 5 s
	HealthTimeout   time.Duration // for one check; default 2 s
	HealthFailures  int           // checks in a row that fail until the plugin is killed; default 3
	Backoff         Backoff       // between restarts
	MaxResultBytes  int           // columns of one epoch; default 256 MiB
	MaxEpochEvents  int           // events of one epoch; default 100
	LogLinesPerSec  float64       // that a plugin may log in the long run; default 100
	LogLinesAtOnce  int           // that it may log in one go; default 1,000
	PassEnvironment []string      // names of variables plugins inherit; default PATH, HOME, TMPDIR, TZ, LANG
}

// Backoff says when a plugin that died is started again: at once the first time,
// then after Base, doubling up to Max. A plugin that stays up for StableAfter
// begins anew.
type Backoff struct {
	Base        time.Duration // default 1 s
	Max         time.Duration // default 2 min
	StableAfter time.Duration // default 30 s
	FailedAfter int           // failures in a row after which the state is StateFailed; default 5
}

// delay returns how long to wait before a start after failures failures in a row.
func (b Backoff) delay(failures int) time.Duration {
	if failures <= 1 {
		return 0
	}
	delay := b.Base
	for range failures - 2 {
		if delay >= b.Max/2 {
			return b.Max
		}
		delay *= 2
	}
	return min(delay, b.Max)
}

func (o Options) withDefaults() Options {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.StartTimeout = cmp.Or(o.StartTimeout, 10*time.Second)
	o.CallTimeout = cmp.Or(o.CallTimeout, 10*time.Second)
	o.AnalyseTimeout = cmp.Or(o.AnalyseTimeout, 30*time.Second)
	o.CancelGrace = cmp.Or(o.CancelGrace, 250*time.Millisecond)
	o.StopGrace = cmp.Or(o.StopGrace, 5*time.Second)
	o.HealthInterval = cmp.Or(o.HealthInterval, 5*time.Second)
	o.HealthTimeout = cmp.Or(o.HealthTimeout, 2*time.Second)
	o.HealthFailures = cmp.Or(o.HealthFailures, 3)
	o.Backoff.Base = cmp.Or(o.Backoff.Base, time.Second)
	o.Backoff.Max = cmp.Or(o.Backoff.Max, 2*time.Minute)
	o.Backoff.StableAfter = cmp.Or(o.Backoff.StableAfter, 30*time.Second)
	o.Backoff.FailedAfter = cmp.Or(o.Backoff.FailedAfter, 5)
	o.MaxResultBytes = cmp.Or(o.MaxResultBytes, 256<<20)
	o.MaxEpochEvents = cmp.Or(o.MaxEpochEvents, 100)
	o.LogLinesPerSec = cmp.Or(o.LogLinesPerSec, 100)
	o.LogLinesAtOnce = cmp.Or(o.LogLinesAtOnce, 1000)
	if o.PassEnvironment == nil {
		o.PassEnvironment = []string{"PATH", "HOME", "TMPDIR", "TZ", "LANG"}
	}
	return o
}

// Host starts and supervises plugins.
type Host struct {
	opts    Options
	sockets *socketFolder
	spawner *spawner

	mu        sync.Mutex
	closed    bool
	starting  sync.WaitGroup // calls that may start a process
	instances []*Instance
}

// New returns a host. It makes a private folder for sockets and removes those
// that dead hosts left behind.
func New(opts Options) (*Host, error) {
	sockets, err := newSocketFolder(opts.SocketDir)
	if err != nil {
		return nil, fmt.Errorf("plugin host: %w", err)
	}
	return &Host{opts: opts.withDefaults(), sockets: sockets, spawner: newSpawner()}, nil
}

// enter notes a call that may start a process; leave ends it.
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

// Instances returns the instances that have not been stopped, in the order of
// their start.
func (h *Host) Instances() []*Instance {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.instances)
}

func (h *Host) remove(inst *Instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.instances = slices.DeleteFunc(h.instances, func(i *Instance) bool { return i == inst })
}

// Close drains and stops all plugins, at the same time, and returns when their
// processes have ended. Plugins that are not done when ctx ends are killed.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	h.mu.Unlock()
	h.starting.Wait()
	var all sync.WaitGroup
	for _, inst := range h.Instances() {
		all.Go(func() { inst.Stop(ctx) })
	}
	all.Wait()
	h.spawner.close()
	return h.sockets.remove()
}

// Spec says which plugin to run and how.
type Spec struct {
	// Name is the instance's name in logs, errors and metrics; empty: the
	// plugin's own name. Two instances may run the same plugin.
	Name string
	// Path is the binary.
	Path string
	// SHA256 pins the binary, in hexadecimal; empty: any. It is checked
	// before every start.
	SHA256 string
	// Config is the plugin's configuration, a JSON object; empty: none.
	Config []byte
	// Network is the network model.
	Network sdk.Network
	// EpochLength is how long an epoch lasts.
	EpochLength time.Duration
	// Env is added to the environment, "NAME=value" each.
	Env []string
	// LogLevel is the least level that the plugin logs at; default info.
	LogLevel slog.Level
	// State is what an earlier process of the plugin saved; nil: nothing. From then
	// on the newest is kept, and given to each process that follows.
	State *sdk.State
	// OnSettings is given what the plugin asks of the network each time it has
	// been configured, also after a restart; nil: nobody. It must not call the
	// instance. The first settings are there when Start returns.
	OnSettings func(sdk.Settings)
	// Record takes a recording (package record) of every epoch the plugin is
	// given, for a test to replay; nil: none. Writing to it takes from the epoch's
	// time; the first error ends the recording, and is logged. The caller closes
	// it after Stop.
	Record io.Writer
}
