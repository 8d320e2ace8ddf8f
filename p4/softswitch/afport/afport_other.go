// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package afport

import (
	"github.com/netsketch/netsketch/p4/softswitch"
)

// Port is a port of a switch on a network interface; there are none on this system.
type Port struct{}

// Open returns ErrUnsupported.
func Open(*softswitch.Switch, uint32, Config) (*Port, error) { return nil, ErrUnsupported }

// Number returns the port's number in the switch.
func (p *Port) Number() uint32 { return 0 }

// Stats returns the counts.
func (p *Port) Stats() Stats { return Stats{} }

// Close removes the port from the switch.
func (p *Port) Close() error { return nil }
