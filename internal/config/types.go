// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Secret is text that never appears in a log: it prints as "(redacted)" everywhere. Write it as
// ${VARIABLE} to keep it out of the file, too.
type Secret string

const redacted = "(redacted)"

// Reveal returns the text.
func (s Secret) Reveal() string { return string(s) }

// String returns "(redacted)", or nothing for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// LogValue hides the secret from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the secret from JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Size is a number of bytes, written as 512, 64KiB, 10MB or 1.5GiB.
type Size int64

var sizeUnits = []struct {
	suffix string
	bytes  float64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12}, {"b", 1}, {"", 1},
}

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(text []byte) error {
	lower := strings.ToLower(strings.TrimSpace(string(text)))
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(lower, u.suffix)
		if !ok {
			continue
		}
		x, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err != nil || x < 0 || math.IsNaN(x) || x*u.bytes >= math.MaxInt64 {
			break
		}
		*s = Size(x * u.bytes)
		return nil
	}
	return fmt.Errorf("expected a size in bytes, such as 65536, 64KiB or 10MB; found %q", text)
}

// String returns the size with the largest binary unit that divides it.
func (s Size) String() string {
	for _, u := range []struct {
		name  string
		bytes Size
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if s != 0 && s%u.bytes == 0 {
			return fmt.Sprintf("%d%s", s/u.bytes, u.name)
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

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
	if err := cmp.Or(decimal(high), decimal(low)); err != nil {
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

// Prefix is an address or a prefix; an address is a prefix of full length.
type Prefix struct{ netip.Prefix }

// UnmarshalText reads an address or a prefix. Host bits of a prefix must be zero.
func (p *Prefix) UnmarshalText(text []byte) error {
	if addr, err := netip.ParseAddr(string(text)); err == nil && addr.Zone() == "" {
		p.Prefix = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen())
		return nil
	}
	prefix, err := netip.ParsePrefix(string(text))
	if err != nil {
		return fmt.Errorf("expected an address such as 10.0.0.1 or a prefix such as 10.0.0.0/24 or 2001:db8::/64; "+
			"found %q", text)
	}
	if prefix.Masked() != prefix {
		return fmt.Errorf("%q has bits set after its length; expected %s", text, prefix.Masked())
	}
	p.Prefix = prefix
	return nil
}

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
