// SPDX-License-Identifier: Apache-2.0

// What can be seen of an instance.

package pluginhost

import (
	"log/slog"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// State is the state of an instance. Its text is what the YANG models publish.
type State uint8

// The states of an instance.
const (
	StateStarting State = iota + 1 // a process is being started and configured
	StateRunning                   // it takes epochs
	StateWaiting                   // it died; the next start is due after a delay
	StateFailed                    // as StateWaiting, after many failures in a row
	StateStopped                   // it was stopped and will not be started again
)

// String returns "starting", "running", "waiting", "failed" or "stopped".
func (s State) String() string {
	switch s {
	case StateStarting:
		return "starting"
	case StateRunning:
		return "running"
	case StateWaiting:
		return "waiting"
	case StateFailed:
		return "failed"
	case StateStopped:
		return "stopped"
	}
	return "unknown"
}

// Status is a snapshot of an instance.
type Status struct {
	Name    string // of the instance
	Plugin  string // the plugin's own name
	Path    string
	Version string
	State   State
	Since   time.Time // of the state
	PID     int       // 0: no process
	// Restarts counts the times that the plugin went down and was to be
	// started again.
	Restarts uint64
	// LastError is why it was last down or without results; empty: never.
	LastError string
	// EpochsAnalysed and EpochsLost count calls of Analyse with and without
	// results.
	EpochsAnalysed, EpochsLost uint64
	LastEpoch                  uint64    // newest with results
	LastStats                  sdk.Stats // of that epoch
	// SavedEpoch is the epoch of the newest state that the plugin saved; 0: none.
	SavedEpoch uint64
	// LogLinesDropped counts log lines and events beyond the rate,
	// LogLinesCut those that were cut for their length.
	LogLinesDropped, LogLinesCut uint64
}

// LogValue implements slog.LogValuer.
func (s Status) LogValue() slog.Value {
	return slog.GroupValue(slog.String("plugin", s.Name), slog.String("state", s.State.String()), slog.Int("pid", s.PID),
		slog.Uint64("restarts", s.Restarts), slog.String("error", s.LastError))
}

// Status returns a snapshot.
func (i *Instance) Status() Status {
	i.mu.Lock()
	status := i.status
	if i.state != nil {
		status.SavedEpoch = i.state.Epoch
	}
	i.mu.Unlock()
	status.LogLinesDropped, status.LogLinesCut = i.logs.dropped.Load(), i.logs.truncated.Load()
	return status
}
