// SPDX-License-Identifier: Apache-2.0

// The key of a flow as a person writes it.

package flow

import (
	"errors"
	"fmt"
	"strings"
)

// spellings are how other programs write a part of a flow.
var spellings = strings.NewReplacer("[", "", "]", "", "icmpv6", "ipv6-icmp", "icmp6", "ipv6-icmp")

// Forms returns the canonical text of a flow key in each dimension whose keys have its form.
// Commas or spaces separate its fields, and upper case does not matter. The error names the wrong
// field.
func Forms(text string) (map[string]string, error) {
	separator := ""
	if !strings.Contains(text, ",") {
		separator = ","
	}
	text = spellings.Replace(strings.ToLower(strings.Join(strings.Fields(text), separator)))
	fields := strings.Split(text, ",")
	out := map[string]string{}
	for dimension := Fields(1); dimension <= FiveTuple; dimension++ {
		k, err := Parse(dimension, text)
		if err == nil {
			out[dimension.String()] = k.String()
		} else if len(fields) == FiveTuple.Count() && dimension == FiveTuple {
			return nil, errors.New(strings.TrimPrefix(err.Error(), "flow: "))
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	if len(fields) == 1 {
		return nil, fmt.Errorf("%.100q is neither an IP address nor a protocol nor a port", text)
	}
	for _, field := range fields {
		if _, err := Forms(field); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%.100q has its fields in another order or number than a flow: source address, "+
		"destination address, protocol, source port, destination port; some of them may be left out", text)
}
