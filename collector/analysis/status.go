// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/collector/pluginhost"
)

// Status is the state of a configured plugin: its process, and its work in this component.
type Status struct {
	pluginhost.Status
	Name string // name of the plugin instance
	// EpochsAnalyzed counts epochs with results, EpochsLost epochs without.
	EpochsAnalyzed, EpochsLost uint64
	// SavedEpoch is the epoch of the newest state that the plugin saved; 0 if it saved none.
	SavedEpoch uint64
	// AnalysisTime is the duration of the last analysis.
	AnalysisTime time.Duration
	// Rows counts published rows, RowsRefused rows that were not published.
	Rows, RowsRefused uint64
}

// snapshot returns the plugin's status.
func (p *plugin) snapshot() Status {
	process := p.inst.Status()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.status
	s.Status = process
	switch {
	case p.conflict != nil:
		s.State, s.LastError = pluginhost.StateFailed, p.conflict.Error()
	case p.refusal != nil:
		s.LastError = p.refusal.Error()
	case p.status.LastErrorTime.After(process.LastErrorTime):
		s.LastError = p.status.LastError
	}
	return s
}

// Status returns the state of all configured plugins by name, including plugins that did not start.
// LastError says why a plugin was last down, lost an epoch or refused its configuration.
func (c *Component) Status() []Status {
	var out []Status
	for _, p := range c.running() {
		out = append(out, p.snapshot())
	}
	c.mu.Lock()
	for name, f := range c.failed {
		out = append(out, Status{Name: name, Status: pluginhost.Status{State: pluginhost.StateFailed,
			LastError: f.err.Error()}})
	}
	c.mu.Unlock()
	slices.SortFunc(out, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return out
}
