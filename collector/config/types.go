// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"time"
)

// Secret is text that never appears in a log: it prints as "(redacted)" everywhere. Give it as
// ${VARIABLE} so that it does not stand in the file either.
type Secret string

const redacted = "(redacted)"

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String hides the secret; an empty one stays empty, to show that it is not set.
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

// Size is a number of bytes, written as 512, 64KiB, 10MB, 1.5GiB.
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

// String gives the size with the largest binary unit that divides it.
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
	if errHigh != nil || errLow != nil {
		return fmt.Errorf("expected an election ID such as 5, or 1:5 with its high half; found %q", text)
	}
	if h == 0 && l == 0 {
		return fmt.Errorf("election ID 0 is reserved by P4Runtime; expected 1 or more")
	}
	*e = ElectionID{h, l}
	return nil
}

// String is the written form.
func (e ElectionID) String() string {
	if e == (ElectionID{}) {
		return ""
	}
	if e.High == 0 {
		return strconv.FormatUint(e.Low, 10)
	}
	return fmt.Sprintf("%d:%d", e.High, e.Low)
}

// MAC is a 48-bit Ethernet address, zero when not given.
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

// String is the written form.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// SHA256 is a pinned checksum, zero when not given.
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
		return errors.New("expected the checksum of a file, as sha256sum prints it; found zeros only: leave the key out to start any binary")
	}
	return nil
}

// IsZero reports whether no checksum was given.
func (h SHA256) IsZero() bool { return h == SHA256{} }

// String is the hexadecimal form, empty for none.
func (h SHA256) String() string {
	if h.IsZero() {
		return ""
	}
	return hex.EncodeToString(h[:])
}

// word reads one of a few names.
func word[T ~string](into *T, text []byte, names ...T) error {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = string(n)
		if string(text) == string(n) {
			*into = n
			return nil
		}
	}
	if near := nearest(string(text), all); near != "" {
		return fmt.Errorf("expected %s; found %q: did you mean %q?", oneOf(all), text, near)
	}
	return fmt.Errorf("expected %s; found %q", oneOf(all), text)
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

// String is the written form.
func (p PortRef) String() string { return fmt.Sprintf("%s/%d", p.Switch, p.Port) }

// seconds prints a duration for a message.
func seconds(d time.Duration) string { return d.String() }
