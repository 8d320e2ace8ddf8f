// SPDX-License-Identifier: Apache-2.0

// Package kernel is SketchINT's host role in the Linux kernel: an XDP program that reads, measures
// and removes INT as package hostagent/sketchint does, and the part of the role that need not see
// packets. It stands for the NIC of the paper (section III, offloading to the NIC).
//
//	received ◀── stack ◀── XDP: program receive ◀── device
//	                    │
//	        two groups of maps, which Path exchanges at the end of an interval and reports
//
// A pinned link outlives the agent: the program goes on to measure and to remove INT.
// docs/sketchint.md describes the data path.
package kernel

import (
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
)

// Config configures a data path.
type Config struct {
	// Interface is the name of the network interface that the packets pass. Empty: the program is
	// loaded and not attached.
	Interface string
	// Pin is a directory of a BPF file system for this data path, such as
	// /sys/fs/bpf/netsketch/eth0. It is created. Empty: nothing is pinned, and Close removes the data
	// path.
	Pin string
	// Generic selects XDP in the network stack instead of XDP in the driver.
	Generic bool
	// Logger receives state changes; nil disables logging.
	Logger *slog.Logger
}

func (c *Config) check() error {
	if c.Interface != "" {
		if _, err := net.InterfaceByName(c.Interface); err != nil {
			return fmt.Errorf("interface %q: %w", c.Interface, err)
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// maxSourceOnly is the count of rows of Marks.SourceOnly that the program has room for.
const maxSourceOnly = 8

// supports returns why the program cannot apply settings.
func supports(s *wire.Settings) error {
	var errs []error
	if s.Conservative {
		errs = append(errs, errors.New("conservative: the kernel has CM insertion only; "+
			"set it to false, or use packets.source: bridge"))
	}
	if n := len(s.Marks.SourceOnly); n > maxSourceOnly {
		errs = append(errs, fmt.Errorf("sourceOnly: %d rows; the kernel has room for %d", n, maxSourceOnly))
	}
	return errors.Join(errs...)
}
