// SPDX-License-Identifier: Apache-2.0

// What can go wrong with a plugin.

package pluginhost

import (
	"errors"
	"fmt"
)

// Reasons why a plugin does not start; wrapped by StartError.
var (
	// ErrUntrusted: the file's mode, owner or place does not allow to run it.
	ErrUntrusted = errors.New("not safe to run")
	// ErrChecksum: the file is not the one that was pinned.
	ErrChecksum = errors.New("SHA-256 differs from the pinned one")
	// ErrNotPlugin: the program ended, or said something else, instead of the
	// plugin handshake.
	ErrNotPlugin = errors.New("not a netsketch plugin")
	// ErrProtocolVersion: the plugin was built for another version of the contract.
	ErrProtocolVersion = errors.New("another protocol version")
	// ErrStartTimeout: the program runs and keeps silent.
	ErrStartTimeout = errors.New("no handshake in time")
	// ErrDescription: the plugin's description of itself cannot be used.
	ErrDescription = errors.New("unusable description")
	// ErrConfig: the plugin refused its configuration; the chain has an
	// sdk.FieldErrors.
	ErrConfig = errors.New("configuration refused")
)

// Reasons why a plugin has no results for an epoch; wrapped by EpochError.
var (
	// ErrNotRunning: the plugin is down and its next start is not due yet.
	ErrNotRunning = errors.New("plugin is not running")
	// ErrCrashed: the process ended while it worked on the epoch.
	ErrCrashed = errors.New("plugin died")
	// ErrTimeout: no results by the deadline.
	ErrTimeout = errors.New("plugin gave no results in time")
	// ErrFailed: the plugin itself reports that it failed.
	ErrFailed = errors.New("plugin failed")
	// ErrInvalidResults: what the plugin sent is not well-formed, not of a
	// list it declared, or not valid against the schema.
	ErrInvalidResults = errors.New("plugin sent invalid results")
	// ErrProtocol: the plugin broke the contract.
	ErrProtocol = errors.New("plugin broke the contract")
	// ErrUnhealthy: the plugin did not answer its health checks.
	ErrUnhealthy = errors.New("plugin does not answer health checks")
	// ErrStopped: the instance was stopped.
	ErrStopped = errors.New("plugin was stopped")
)

// StartError says why a plugin did not start.
type StartError struct {
	Name string // as in Spec, or the file's name
	Path string
	Err  error // wraps one of the reasons above, or a system error
	// Output is the last of what the program wrote, for a person to read.
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

// EpochError says why a plugin has no results for an epoch.
type EpochError struct {
	Plugin string
	Epoch  uint64
	Err    error // wraps one of the reasons above
}

func (e *EpochError) Error() string {
	return fmt.Sprintf("plugin %s: epoch %d: %v", e.Plugin, e.Epoch, e.Err)
}

func (e *EpochError) Unwrap() error { return e.Err }
