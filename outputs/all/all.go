// SPDX-License-Identifier: Apache-2.0

// Package all makes the outputs that a configuration names: the one place that knows
// every kind. A section of the configuration is an output, and its name is the kind.
package all

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/collector/config"
	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/outputs/gnmi"
	"github.com/netsketch/netsketch/outputs/influxdb"
	"github.com/netsketch/netsketch/yang"
)

// Collector is what outputs need of a collector.
type Collector interface {
	Store() *store.Store
	Schema() *yang.Schema
	// ObserveSubscribers takes a function that tells how many subscriptions are open,
	// and how long the newest epoch took from its end to its first update.
	ObserveSubscribers(func() (streams int, first time.Duration))
}

// kinds makes an output of each kind from its section.
var kinds = map[string]func(name string, s config.Section, c Collector, logger *slog.Logger) (outputs.Output, error){
	"gnmi": func(name string, s config.Section, c Collector, logger *slog.Logger) (outputs.Output, error) {
		settings := gnmi.DefaultConfig()
		if err := s.Decode(&settings); err != nil {
			return nil, err
		}
		o, err := gnmi.New(name, settings, c.Schema, logger)
		if err != nil {
			return nil, err
		}
		c.ObserveSubscribers(func() (int, time.Duration) {
			stats := o.Stats()
			return stats.Streams, stats.Delivery
		})
		return o, nil
	},
	"influxdb": func(name string, s config.Section, _ Collector, logger *slog.Logger) (outputs.Output, error) {
		settings := influxdb.DefaultConfig()
		if err := s.Decode(&settings); err != nil {
			return nil, err
		}
		return influxdb.New(name, settings, logger)
	},
}

// Set is a group of outputs.
type Set struct {
	*outputs.Group
	outputs []outputs.Output
}

// Check reports what is wrong with the sections, all at once, and starts nothing.
func Check(sections map[string]config.Section) error {
	_, err := build(sections, nil, slog.New(slog.DiscardHandler))
	return err
}

// Open makes the outputs of a collector. The error joins all that is wrong with the
// sections.
func Open(sections map[string]config.Section, c Collector, logger *slog.Logger) (*Set, error) {
	outs, err := build(sections, c, logger)
	if err != nil {
		return nil, err
	}
	group, err := outputs.NewGroup(c.Store(), logger, 0, outs...)
	if err != nil {
		return nil, err
	}
	return &Set{group, outs}, nil
}

// unbound is a collector for outputs that are only checked.
type unbound struct{ Collector }

func (unbound) Schema() *yang.Schema                           { return nil }
func (unbound) ObserveSubscribers(func() (int, time.Duration)) {}

func build(sections map[string]config.Section, c Collector, logger *slog.Logger) ([]outputs.Output, error) {
	if c == nil {
		c = unbound{}
	}
	var outs []outputs.Output
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		make, ok := kinds[name]
		if !ok {
			errs = append(errs, fmt.Errorf("%v: outputs.%s: there is no such output; expected one of %s",
				sections[name].Position(), name, strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")))
			continue
		}
		o, err := make(name, sections[name], c, logger)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		outs = append(outs, o)
	}
	return outs, errors.Join(errs...)
}

// Address returns where the output of that name listens, "" where there is none that
// does.
func (s *Set) Address(name string) string {
	for _, o := range s.outputs {
		if x, ok := o.(interface{ Address() string }); ok && o.Name() == name {
			return x.Address()
		}
	}
	return ""
}
