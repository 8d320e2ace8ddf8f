// SPDX-License-Identifier: Apache-2.0

// Package all makes the outputs of a configuration. It is the only package that imports every type
// of output.
package all

import (
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/collector/selfstate"
	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/outputs/gnmi"
	"github.com/netsketch/netsketch/outputs/gnmi/server"
	"github.com/netsketch/netsketch/outputs/influxdb"
	"github.com/netsketch/netsketch/outputs/web"
	"github.com/netsketch/netsketch/yang"
)

// Reference is a Markdown page with every key of the configuration, including the keys of outputs.
// It is generated from the fields of the configuration types.
//
//go:generate go test . -run TestReference -update
//go:embed reference.md
var Reference string

// Collector is the part of a collector that outputs use.
type Collector interface {
	server.Querier
	// Watchable returns the lists whose plugins compute any row that a client names.
	Watchable() []string
	Store() *store.Store
	Schema() *yang.Schema
	// ObserveOutputs takes the function that returns the state of the outputs, and StateChanged
	// publishes that state again.
	ObserveOutputs(func() selfstate.Outputs)
	StateChanged()
	Certificates() *certs.Store
}

// environment has everything that outputs are made with.
type environment struct {
	Collector
	logger   *slog.Logger
	endpoint func() *web.Endpoint // endpoint of the first gNMI output
}

// kinds makes an output of each type from its settings.
var kinds = map[string]func(config.Output, environment) (outputs.Output, error){
	"gnmi": func(o config.Output, e environment) (outputs.Output, error) {
		var settings gnmi.Config
		if err := o.Settings.Decode(&settings); err != nil {
			return nil, err
		}
		return gnmi.New(o.Name, settings, gnmi.Dependencies{Schema: e.Schema, Querier: e.Collector,
			Certificates: e.Certificates(), Logger: e.logger})
	},
	"influxdb": func(o config.Output, e environment) (outputs.Output, error) {
		var settings influxdb.Config
		if err := o.Settings.Decode(&settings); err != nil {
			return nil, err
		}
		return influxdb.New(o.Name, settings, e.Certificates(), e.logger)
	},
	"web": func(o config.Output, e environment) (outputs.Output, error) {
		var settings web.Config
		if err := o.Settings.Decode(&settings); err != nil {
			return nil, err
		}
		return web.New(o.Name, settings, web.Dependencies{Schema: e.Schema, Querier: e.Collector,
			Watchable: e.Watchable, Certificates: e.Certificates(), Endpoint: e.endpoint,
			Measurement: influxdb.Measurement, Tag: influxdb.Tag, Logger: e.logger})
	},
}

// Set is a group of outputs.
type Set struct {
	*outputs.Group
	outputs []outputs.Output
}

// Check reports all errors in the settings of outputs, and starts nothing. Warnings are about their
// certificates.
func Check(list []config.Output) (warnings []string, err error) {
	c := unbound{store: certs.New(certs.Options{})}
	_, err = build(list, c, slog.New(slog.DiscardHandler))
	return c.store.Warnings(), err
}

// Open makes the outputs of a collector. The error joins all errors in their settings.
func Open(list []config.Output, c Collector, logger *slog.Logger) (*Set, error) {
	outs, err := build(list, c, logger)
	if err != nil {
		return nil, err
	}
	group, err := outputs.NewGroup(c.Store(), logger, c.StateChanged, outs...)
	if err != nil {
		return nil, err
	}
	s := &Set{group, outs}
	c.ObserveOutputs(s.state)
	return s, nil
}

// unbound is a collector for outputs that are only checked.
type unbound struct {
	Collector
	store *certs.Store
}

func (unbound) Schema() *yang.Schema         { return nil }
func (u unbound) Certificates() *certs.Store { return u.store }

func build(list []config.Output, c Collector, logger *slog.Logger) ([]outputs.Output, error) {
	var outs []outputs.Output
	var errs []error
	e := environment{Collector: c, logger: logger, endpoint: func() *web.Endpoint { return endpointOf(outs) }}
	for _, o := range list {
		build, ok := kinds[o.Type]
		if !ok {
			types := strings.Join(slices.Sorted(maps.Keys(kinds)), " or ")
			errs = append(errs, o.Settings.Problem("type",
				fmt.Sprintf("there is no output %q; expected %s", o.Type, types)))
			continue
		}
		out, err := build(o, e)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		outs = append(outs, out)
	}
	return outs, errors.Join(errs...)
}

// endpointOf returns the address of the first gNMI output; nil without one.
func endpointOf(outs []outputs.Output) *web.Endpoint {
	for _, o := range outs {
		if x, ok := o.(*gnmi.Output); ok && x.Address() != "" {
			return &web.Endpoint{Address: x.Address(), Plaintext: x.Plaintext(), Login: x.Login()}
		}
	}
	return nil
}

// state returns the state of all outputs, with the sum of the gNMI outputs' subscriptions, and the
// longest time of a gNMI output to the first update of an epoch.
func (s *Set) state() selfstate.Outputs {
	out := selfstate.Outputs{ByName: s.Declare()}
	for _, o := range s.outputs {
		if x, ok := o.(*gnmi.Output); ok {
			stats := x.Stats()
			out.Streams, out.FirstUpdate = out.Streams+stats.Streams, max(out.FirstUpdate, stats.Delivery)
		}
	}
	return out
}

// ConsoleURL returns the URL of the first web output; empty without one.
func (s *Set) ConsoleURL() string {
	for _, o := range s.outputs {
		if x, ok := o.(*web.Output); ok {
			return x.URL()
		}
	}
	return ""
}

// Address returns the address of the output with a name, empty if it does not listen.
func (s *Set) Address(name string) string {
	for _, o := range s.outputs {
		if x, ok := o.(interface{ Address() string }); ok && o.Name() == name {
			return x.Address()
		}
	}
	return ""
}
