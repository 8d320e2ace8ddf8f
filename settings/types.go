// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"log/slog"
	"math"
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
		digits = strings.TrimSpace(digits)
		x, err := strconv.ParseFloat(digits, 64)
		if err != nil || x < 0 || math.IsNaN(x) || x*u.bytes >= math.MaxInt64 || u.bytes == 1 && x != math.Trunc(x) {
			break
		}
		if err := Decimal(digits); err != nil {
			return fmt.Errorf("expected a size in bytes, such as 65536, 64KiB or 10MB; found %q: %w", text, err)
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
