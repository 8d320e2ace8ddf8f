// SPDX-License-Identifier: Apache-2.0

package scenario

import _ "embed"

//go:embed default.yaml
var defaultYAML []byte

// Default returns the demo's own scenario.
func Default() (*Scenario, error) { return Parse("default.yaml (built in)", defaultYAML) }

// UseTrace replaces all traffic with the packets of a capture file, again and again.
func (s *Scenario) UseTrace(path string) {
	s.Traffic = []Component{{Name: "trace", Trace: path, Repeat: true}}
	s.Faults, s.Story, s.Loop = nil, nil, Loop{}
}
