// SPDX-License-Identifier: Apache-2.0

// Package kernel is OmniMon's host role in the Linux kernel: two eBPF programs that insert, remove
// and count as package hostagent/omnimon does, and the part of the role that need not see packets.
//
//	sent ──▶ stack ──▶ TCX or clsact: program egress ──▶ device
//	received ◀── stack ◀── TCX or clsact: program ingress ◀── device
//	                    │
//	        maps, shared with Path: seals epochs, reports, ends flows
//
// Programs, links and maps are pinned, so that the programs go on without the agent. Open adopts
// them. docs/hostagent.md describes the data path.
package kernel

import (
	"fmt"
	"log/slog"
	"net"
)

const (
	// DefaultGenerations is the default of Config.Generations.
	DefaultGenerations = 8
	// MaxGenerations is its largest value.
	MaxGenerations = 32
	// MaxMatch is the largest length of wire.Settings.Match in bytes.
	MaxMatch = 255
)

// Config configures a data path.
type Config struct {
	// Interface is the name of the network interface that the packets pass. Empty: the programs are
	// loaded and not attached.
	Interface string
	// Pin is a directory of a BPF file system for this data path, such as
	// /sys/fs/bpf/netsketch/eth0. It is created. Empty: nothing is pinned, and Close removes the data
	// path.
	Pin string
	// Generations is the number of epochs that the maps hold: epochs that packets may belong to, and
	// epochs that wait for the agent. It is a power of two, 8 to MaxGenerations; 0 is
	// DefaultGenerations.
	Generations int
	// Generic selects XDP in the network stack instead of XDP in the driver.
	Generic bool
	// Clsact attaches the egress program to clsact even if the kernel has TCX.
	Clsact bool
	// DisableOffloads turns off the features of the interface that would damage packets with a header:
	// segmentation and checksums by the device. Otherwise Apply fails if they are on. With maxima,
	// minima or a string to match it also ends segmentation by the kernel (gso_max_segs 1), because
	// those need every packet. So do queries that read the payload.
	DisableOffloads bool
	// State is a file for the settings in force, which Strip needs after a start of the system. Empty:
	// they are not kept.
	State string
	// Logger receives state changes; nil disables logging.
	Logger *slog.Logger

	manual bool // tests call maintain
}

func (c *Config) check() error {
	switch n := c.Generations; {
	case n == 0:
		c.Generations = DefaultGenerations
	case n < 8 || n > MaxGenerations || n&(n-1) != 0:
		return fmt.Errorf("generations: %d: a power of two from 8 to %d", n, MaxGenerations)
	}
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
