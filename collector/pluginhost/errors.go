// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"errors"
	"fmt"
)

// Reasons why a plugin does not start; wrapped by StartError.
var (
	// ErrUntrusted: the mode, owner or directory of the file does not allow to run it.
	ErrUntrusted = errors.New("not safe to run")
	// ErrChecksum: the file is not the pinned one.
	ErrChecksum = errors.New("SHA-256 differs from the pinned one")
	// ErrNotPlugin: instead of the plugin handshake, the program ended or wrote something else.
	ErrNotPlugin = errors.New("not a netsketch plugin")
	// ErrProtocolVersion: the plugin was built for another version of the contract.
	ErrProtocolVersion = errors.New("another protocol version")
	// ErrStartTimeout: the program runs, but sends no handshake.
	ErrStartTimeout = errors.New("no handshake in time")
	// ErrDescription: the plugin's description cannot be used.
	ErrDescription = errors.New("unusable description")
	// ErrConfig: the plugin refused its configuration; the chain has a settings.KeyErrors.
	ErrConfig = errors.New("configuration refused")
)

// Reasons why a plugin has no results for an epoch, or no reply to a query.
var (
	// ErrNotRunning: the plugin is down and its next start is not due yet.
	ErrNotRunning = errors.New("plugin is not running")
	// ErrCrashed: the process ended while it worked on the epoch.
	ErrCrashed = errors.New("plugin died")
	// ErrOutOfMemory: the process exceeded Spec.MemoryLimit.
	ErrOutOfMemory = errors.New("it exceeded its memory limit")
	// errKilled: the process was killed, but not by the collector. This does not count as a failure
	// of the plugin.
	errKilled = errors.New("killed from outside")
	// ErrTimeout: the plugin returned no results before the deadline.
	ErrTimeout = errors.New("plugin gave no results in time")
	// ErrFailed: the plugin reports that it failed.
	ErrFailed = errors.New("plugin failed")
	// ErrInvalidResults: the plugin's results are malformed or too large.
	ErrInvalidResults = errors.New("plugin sent invalid results")
	// ErrProtocol: the plugin broke the contract.
	ErrProtocol = errors.New("plugin broke the contract")
	// ErrUnhealthy: the plugin did not answer its health checks.
	ErrUnhealthy = errors.New("plugin does not answer health checks")
	// ErrStopped: the collector stopped the plugin.
	ErrStopped = errors.New("plugin was stopped")
	// ErrNoCapability: the plugin does not implement this optional part of the contract.
	ErrNoCapability = errors.New("the plugin does not implement this function")
	// ErrRefused: the plugin replies to a query with an error of its own.
	ErrRefused = errors.New("the plugin refuses the query")
)

// StartError says why a plugin did not start.
type StartError struct {
	Name string // Spec's name, or the name of the file
	Path string
	Err  error // wraps one of the reasons above, or a system error
	// Output is the end of the program's output.
	Output string
}

func (e *StartError) Error() string {
	text := fmt.Sprintf("plugin %s (%s): %v", e.Name, e.Path, e.Err)
	if e.Output != "" {
		text += "; it wrote: " + e.Output
	}
	return text
}

func (e *StartError) Unwrap() error { return e.Err }
