// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/settings"
)

// ElectionID is P4Runtime's 128-bit bid to be the primary controller, written as 5 or, with its
// high half, as 1:5.
type ElectionID struct{ High, Low uint64 }

// UnmarshalText reads LOW or HIGH:LOW.
func (e *ElectionID) UnmarshalText(text []byte) error {
	high, low, two := strings.Cut(string(text), ":")
	if !two {
		high, low = "0", high
	}
	h, errHigh := strconv.ParseUint(high, 0, 64)
	l, errLow := strconv.ParseUint(low, 0, 64)
	if err := cmp.Or(settings.Decimal(high), settings.Decimal(low)); err != nil {
		return err
	}
	if errHigh != nil || errLow != nil {
		return fmt.Errorf("expected an election ID such as 5, or 1:5 with its high half; found %q", text)
	}
	if h == 0 && l == 0 {
		return errors.New("election ID 0 is reserved by P4Runtime; expected 1 or more")
	}
	*e = ElectionID{h, l}
	return nil
}

// String returns the form that UnmarshalText reads.
func (e ElectionID) String() string {
	if e == (ElectionID{}) {
		return ""
	}
	if e.High == 0 {
		return strconv.FormatUint(e.Low, 10)
	}
	return fmt.Sprintf("%d:%d", e.High, e.Low)
}

// MAC is a 48-bit Ethernet address, zero if not given.
type MAC [6]byte

// UnmarshalText reads 02:00:00:00:00:01.
func (m *MAC) UnmarshalText(text []byte) error {
	hw, err := net.ParseMAC(string(text))
	if err != nil || len(hw) != 6 {
		return fmt.Errorf("expected an Ethernet address such as 02:00:00:00:00:01; found %q", text)
	}
	*m = MAC(hw)
	return nil
}

// String returns the form that UnmarshalText reads.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// SHA256 is a pinned checksum, zero if not given.
type SHA256 [32]byte

// UnmarshalText reads 64 hexadecimal digits, as sha256sum prints them.
func (h *SHA256) UnmarshalText(text []byte) error {
	if len(text) != 64 {
		return fmt.Errorf("expected 64 hexadecimal digits, as sha256sum prints them; found %d characters", len(text))
	}
	if _, err := hex.Decode(h[:], text); err != nil {
		return fmt.Errorf("expected 64 hexadecimal digits, as sha256sum prints them: %w", err)
	}
	if h.IsZero() {
		return errors.New("expected the checksum of a file, as sha256sum prints it; found zeros only. " +
			"Leave the key out to start any binary")
	}
	return nil
}

// IsZero reports whether no checksum is given.
func (h SHA256) IsZero() bool { return h == SHA256{} }

// String returns the hexadecimal form, empty without a checksum.
func (h SHA256) String() string {
	if h.IsZero() {
		return ""
	}
	return hex.EncodeToString(h[:])
}

// PortRef is a port of a switch, written as SWITCH/PORT.
type PortRef struct {
	Switch string
	Port   uint32
}

// UnmarshalText reads SWITCH/PORT.
func (p *PortRef) UnmarshalText(text []byte) error {
	s := string(text)
	cut := strings.LastIndexByte(s, '/')
	if cut > 0 {
		if port, err := strconv.ParseUint(s[cut+1:], 10, 32); err == nil {
			*p = PortRef{s[:cut], uint32(port)}
			return nil
		}
	}
	return fmt.Errorf("expected SWITCH/PORT, such as leaf1/1; found %q", text)
}

// String returns the form that UnmarshalText reads.
func (p PortRef) String() string { return fmt.Sprintf("%s/%d", p.Switch, p.Port) }

// UnmarshalText reads the name of a built-in pipeline.
func (p *Pipeline) UnmarshalText(text []byte) error {
	*p = Pipeline{Name: string(text)}
	return nil
}

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
