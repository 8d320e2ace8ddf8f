// SPDX-License-Identifier: Apache-2.0

// gNMI paths as text.

package yang

import (
	"fmt"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
)

// ParsePath parses a gNMI path in text form, "/interfaces/interface[name=eth0]/state". In keys,
// "\]" is a bracket and "\\" a backslash; in names, "\/" and "\[" are a slash and a bracket. "/" is
// the root. PathString is its inverse.
func ParsePath(text string) (*gpb.Path, error) {
	if !strings.HasPrefix(text, "/") {
		return nil, fmt.Errorf("yang: path %.100q does not begin with /", text)
	}
	p := &gpb.Path{}
	rest := text[1:]
	for rest != "" {
		e := &gpb.PathElem{}
		var err error
		if e.Name, rest, err = until(rest, "/["); err != nil {
			return nil, fmt.Errorf("yang: path %.100q: %w", text, err)
		}
		if e.Name == "" {
			return nil, fmt.Errorf("yang: path %.100q has an element without a name", text)
		}
		for strings.HasPrefix(rest, "[") {
			key, value, after := "", "", ""
			key, after, err = until(rest[1:], "=]")
			given := strings.HasPrefix(after, "=")
			if err == nil && given {
				value, after, err = until(after[1:], "]")
			}
			if err != nil || key == "" || !given || !strings.HasPrefix(after, "]") {
				return nil, fmt.Errorf("yang: path %.100q: expected [key=value] after %s", text, e.Name)
			}
			if _, twice := e.Key[key]; twice {
				return nil, fmt.Errorf("yang: path %.100q: key %s occurs twice", text, key)
			}
			if e.Key == nil {
				e.Key = map[string]string{}
			}
			e.Key[key] = value
			rest = after[1:]
		}
		p.Elem = append(p.Elem, e)
		switch {
		case rest == "":
		case rest[0] != '/':
			return nil, fmt.Errorf("yang: path %.100q: expected / after %s", text, e.Name)
		case rest == "/":
			rest = ""
		default:
			rest = rest[1:]
		}
	}
	return p, nil
}

// until returns the text up to the first character in stop that no backslash escapes. It resolves
// the escapes.
func until(s, stop string) (text, rest string, err error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 == len(s):
			return "", "", fmt.Errorf("a backslash must be followed by a character, as in \\\\ or \\]")
		case s[i] == '\\':
			i++
			b.WriteByte(s[i])
		case strings.IndexByte(stop, s[i]) >= 0:
			return b.String(), s[i:], nil
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), "", nil
}
