// SPDX-License-Identifier: Apache-2.0

// Package kernel is LightGuardian's host role in the Linux kernel: an XDP program that removes
// sketchlets as package hostagent/lightguardian does, and the part of the role that need not see
// packets. It stands for the kernel module of the paper (section 7.2).
//
//	received ◀── stack ◀── XDP: program receive ◀── device
//	                    │        │
//	        two groups of counts └── sketchlets: a buffer that Path reads
//	                    │
//	sent ──▶ stack ──▶ TCX: program send ──▶ device
//
// Pinned programs outlive the agent: they go on to remove sketchlets, and the next agent reports
// what their maps hold. docs/lightguardian.md describes the data path.
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
	// Pin is a directory of a BPF file system for this data path, such as
	// /sys/fs/bpf/netsketch/eth0. It is created. Empty: nothing is pinned, and Close ends the removal
	// of sketchlets.
	Pin string
	// Generic selects XDP in the network stack instead of XDP in the driver.
	Generic bool
	// AtOnce attaches the programs when the data path opens, and not with its first settings.
	AtOnce bool
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
