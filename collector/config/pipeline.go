// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
)

// Pipeline is the P4 program of a switch: a built-in one by name, or compiled files.
type Pipeline struct {
	// Name is a program that is built in, such as univmon.
	Name string `yaml:"name"`
	// P4Info is a file with the program's P4Info, text format or binary.
	P4Info string `yaml:"p4info"`
	// DeviceConfig is a file with what the target loads: for BMv2 its JSON.
	DeviceConfig string `yaml:"device-config"`
	// Keep uses whatever pipeline the switch runs, and never pushes one.
	Keep bool `yaml:"keep"`
}

// Shorthand lets the name alone stand for the mapping.
func (Pipeline) Shorthand() string { return "name" }

// String names the pipeline for a message.
func (p Pipeline) String() string {
	switch {
	case p.Name != "":
		return p.Name
	case p.DeviceConfig != "":
		return p.DeviceConfig
	case p.Keep:
		return "(the switch's own)"
	}
	return "(none)"
}

// UnmarshalText reads an address or a prefix. Host bits of a prefix must be zero.
func (p *Prefix) UnmarshalText(text []byte) error {
	if addr, err := netip.ParseAddr(string(text)); err == nil && addr.Zone() == "" {
		p.Prefix = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen())
		return nil
	}
	prefix, err := netip.ParsePrefix(string(text))
	if err != nil {
		return fmt.Errorf("expected an address such as 10.0.0.1 or a prefix such as 10.0.0.0/24 or 2001:db8::/64; found %q", text)
	}
	if prefix.Masked() != prefix {
		return fmt.Errorf("%q has bits set behind its length; expected %s", text, prefix.Masked())
	}
	p.Prefix = prefix
	return nil
}
