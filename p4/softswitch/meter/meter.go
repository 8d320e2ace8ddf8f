// SPDX-License-Identifier: Apache-2.0

// Package meter colors packets by two token buckets, as BMv2's meters do: the buckets start full
// when the meter is configured and fill on the clock of packets.
package meter

import (
	"sync"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/control"
)

// Colors of packets, as v1model numbers them.
const (
	Green = iota
	Yellow
	Red
)

// Meter is one meter. It is safe for concurrent use; the zero value is a meter of packets without
// configuration, which colors all packets green.
type Meter struct {
	Unit control.MeterUnit

	mu    sync.Mutex
	set   bool
	cfg   control.MeterConfig
	start time.Duration
	rates [2]bucket // peak first

	counts control.Colors
}

type bucket struct {
	perMicro float64
	burst    uint64
	tokens   uint64
	last     uint64
}

// Check refuses rates that do not fit together.
func Check(object string, c *control.MeterConfig) error {
	if c != nil && (c.PIR < c.CIR || c.PBurst == 0 && c.PIR > 0) {
		return control.Errorf(control.ErrInvalid, object,
			"meter rates: peak rate %d has to be at least the committed rate %d, and its burst above 0", c.PIR, c.CIR)
	}
	return nil
}

// Configure sets the rates and fills the buckets; nil removes the configuration.
func (m *Meter) Configure(cfg *control.MeterConfig, now time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if cfg == nil {
		m.set = false
		return
	}
	m.set, m.cfg, m.start = true, *cfg, now
	m.rates[0] = bucket{perMicro: float64(cfg.PIR) / 1e6, burst: cfg.PBurst, tokens: cfg.PBurst}
	m.rates[1] = bucket{perMicro: float64(cfg.CIR) / 1e6, burst: cfg.CBurst, tokens: cfg.CBurst}
}

// Config returns the configuration; nil if there is none.
func (m *Meter) Config() *control.MeterConfig {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.set {
		return nil
	}
	c := m.cfg
	return &c
}

// Configured reports whether there is a configuration.
func (m *Meter) Configured() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.set
}

// Execute returns the color of a packet, and counts it.
func (m *Meter) Execute(now time.Duration, bytes int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.color(now, bytes)
	m.counts[c].Packets++
	m.counts[c].Bytes += uint64(bytes)
	return c
}

// Counts returns the packets by color.
func (m *Meter) Counts() control.Colors {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts
}

// SetCounts replaces the counts.
func (m *Meter) SetCounts(c control.Colors) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts = c
}

func (m *Meter) color(now time.Duration, bytes int) int {
	if !m.set {
		return Green
	}
	micros := max(0, (now - m.start).Microseconds())
	cost := uint64(1)
	if m.Unit == control.MeterBytes {
		cost = uint64(bytes)
	}
	for i := range m.rates {
		r := &m.rates[i]
		since := uint64(float64(micros) * r.perMicro)
		if since > r.last { // packets of several ports may be out of order
			r.tokens = min(r.tokens+(since-r.last), r.burst)
			r.last = since
		}
		if r.tokens < cost {
			return Red - i
		}
		r.tokens -= cost
	}
	return Green
}
