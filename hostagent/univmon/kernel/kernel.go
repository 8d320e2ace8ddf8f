// SPDX-License-Identifier: Apache-2.0

// Package kernel is UnivMon's host role in the Linux kernel: TCX programs that count packets in the
// sketches of package hostagent/univmon and change none, and the part of the role that need not see
// packets.
//
//	received ◀── stack ◀── TCX: program receive ◀── device
//	                             │
//	           two groups of cells for each processor
//	                             │
//	sent ──────▶ stack ──▶ TCX: program send ─────▶ device
//
// The programs end with the agent. docs/univmon.md describes the data path.
package kernel

import (
	"fmt"
	"log/slog"
	"net"
)

// Config configures a data path.
type Config struct {
	// Interface is the name of the network interface that the packets pass. Empty: the programs are
	// loaded and not attached.
	Interface string
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
