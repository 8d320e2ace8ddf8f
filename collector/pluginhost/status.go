// SPDX-License-Identifier: Apache-2.0

package pluginhost

import "time"

// State is the state of an instance. The YANG models publish its text.
type State uint8

// The states of an instance.
const (
	StateStarting State = iota + 1 // a process is being started and configured
	StateRunning                   // the plugin analyzes epochs
	StateWaiting                   // the plugin is down and will be started again after a delay
	StateFailed                    // like StateWaiting, but after many failures in a row
	StateStopped                   // the plugin was stopped and is not started again
)

// String returns "STARTING", "RUNNING", "BACKOFF", "FAILED" or "STOPPED".
func (s State) String() string {
	switch s {
	case StateRunning:
		return "RUNNING"
	case StateWaiting:
		return "BACKOFF"
	case StateFailed:
		return "FAILED"
	case StateStopped:
		return "STOPPED"
	}
	return "STARTING"
}

// MemoryMethod is the mechanism that limits a plugin's memory. The YANG models publish its text.
type MemoryMethod uint8

// The ways to limit the memory of a plugin.
const (
	MemoryUnlimited MemoryMethod = iota // no limit
	MemoryCgroup                        // a cgroup of its own
	MemoryRlimit                        // resource limits of each process
)

// String returns "NONE", "CGROUP" or "RLIMIT".
func (m MemoryMethod) String() string { return [...]string{"NONE", "CGROUP", "RLIMIT"}[m] }

// Status is a snapshot of an instance's process.
type Status struct {
	Version string // version that the plugin reports
	State   State
	PID     int // 0 without a process
	// Restarts counts how often the plugin went down and was due to be started again.
	Restarts uint64
	// MemoryLimit is the limit of the process in bytes, and MemoryMethod the mechanism that enforces
	// it.
	MemoryLimit  int64
	MemoryMethod MemoryMethod
	// OutOfMemoryKills counts the processes that ended because they exceeded their memory limit.
	OutOfMemoryKills uint64
	// LastError says why the process was last down, and LastErrorTime when. Both are empty if the
	// process was never down.
	LastError     string
	LastErrorTime time.Time
	// LogLinesDropped counts log lines and events beyond the rate limit, LogLinesCut log lines that
	// were shortened.
	LogLinesDropped, LogLinesCut uint64
}

// Status returns a snapshot.
func (i *Instance) Status() Status {
	i.mu.Lock()
	status := i.status
	i.mu.Unlock()
	status.LogLinesDropped, status.LogLinesCut = i.logs.dropped.Load(), i.logs.truncated.Load()
	return status
}
