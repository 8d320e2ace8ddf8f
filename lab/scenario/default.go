// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	_ "embed"

	"github.com/netsketch/netsketch/lab/traffic"
)

//go:embed default.yaml
var defaultYAML []byte

// Default returns the demo's own scenario with changes.
func Default(changes ...Change) (*Scenario, error) {
	return Parse("default.yaml (built in)", defaultYAML, changes...)
}

// UseTrace replaces all traffic with the packets of a capture file, again and again.
func (s *Scenario) UseTrace(path string) {
	s.Traffic = []Component{{Name: "trace", Trace: path, Repeat: true}}
	s.Faults, s.Story, s.Loop = nil, nil, Loop{}
}

// PlayTraceOnce plays the capture file of UseTrace once, instead of again and again. It reads the
// file for its length.
func (s *Scenario) PlayTraceOnce() error {
	length, err := traffic.Length(s.Traffic[0].Trace)
	if err != nil {
		return err
	}
	s.Traffic[0].Repeat = false
	s.Epochs = int(length/s.Epoch) + 2 // the last packets may still be on their way when their epoch ends
	return nil
}
