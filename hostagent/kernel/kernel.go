// SPDX-License-Identifier: Apache-2.0

// Package kernel is the common part of the roles' data paths in the Linux kernel. Attachment keeps
// programs attached to the interface with a name, also after the interface was deleted and created
// again. Path is the data path of a role in Go whose packets programs count in two groups of maps.
// Config.Check reports everything that a host lacks, and Remove removes an agent's programs and
// pins from the kernel.
//
// A role adds its settings, its report, its role in Go and its C program.
package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/netsketch/netsketch/hostagent/lease"
)

// Config configures the data path of a role.
type Config struct {
	// Role is the name of the role.
	Role string
	// Interface is the name of the network interface whose packets are measured. Empty: programs
	// are loaded and not attached.
	Interface string
	// Pin is a directory of a BPF file system for this role, such as /sys/fs/bpf/netsketch/omnimon.
	// It is created. Empty: nothing is pinned, and the programs end with the process.
	Pin string
	// Generic selects XDP in the network stack instead of XDP in the driver.
	Generic bool
	// Clsact attaches programs to clsact even if the kernel has TCX.
	Clsact bool
	// AtOnce attaches programs that strip arriving packets when the data path opens, and not with its
	// first settings.
	AtOnce bool
	// DisableOffloads turns off the features of the interface that would damage packets with a
	// header. Otherwise a role refuses its settings if they are on.
	DisableOffloads bool
	// State is a file for the settings in force, which Strip needs after a start of the system.
	// Empty: they are not kept.
	State string
	// Logger receives state changes; nil disables logging.
	Logger *slog.Logger
}

// LeaseTime is longer than any lease that another host holds for this one: after it no packet
// arrives with a header, if this host has stopped to answer probes.
const LeaseTime = lease.Linger

func (c *Config) log() *slog.Logger {
	if c.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Logger
}

// Keep writes the settings in force to the file for them; nil removes the file. An error is logged.
func (c *Config) Keep(settings []byte) {
	if c.State == "" {
		return
	}
	var err error
	if settings == nil {
		if err = os.Remove(c.State); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	} else if old, readErr := os.ReadFile(c.State); readErr != nil || !bytes.Equal(old, settings) {
		err = errors.Join(os.MkdirAll(filepath.Dir(c.State), 0o700), os.WriteFile(c.State+".new", settings, 0o600))
		if err == nil {
			err = os.Rename(c.State+".new", c.State)
		}
	}
	if err != nil {
		c.log().Warn("the settings of a role cannot be kept for the next start of the system", "role", c.Role, "error", err)
	}
}

// HeldError is the error of Lock while another process has the directory.
type HeldError struct {
	Dir string
	PID int // process id; 0: not known
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("process %d uses the pins in %s: one agent runs with them; end it, or set another packets.pin",
		e.PID, e.Dir)
}
