// SPDX-License-Identifier: Apache-2.0

// Package schema holds the YANG schema of everything the collector can publish. It starts with the
// modules of the collector and its switches and grows as plugins bring theirs.
//
// All methods of Registry are safe for concurrent use. Reads take no lock.
package schema

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// Registry is the schema of all modules. It implements store.Schema.
type Registry struct {
	compiled atomic.Pointer[compiled]

	widening sync.Mutex
	modules  []yang.Module // guarded by widening
}

// compiled is an immutable schema with the lookups that the store needs.
type compiled struct {
	schema *yang.Schema
	keys   map[string]listKeys          // list keys by the names of the path's elements, joined by "/"
	copies map[string]map[string]string // keys that leaves repeat, by list and name of the leaf
}

type listKeys struct {
	path string
	keys []string
}

// New compiles the modules.
func New(modules []yang.Module) (*Registry, error) {
	r := &Registry{}
	return r, r.widen(modules, nil)
}

// Current returns the schema with all modules added so far.
func (r *Registry) Current() *yang.Schema { return r.compiled.Load().schema }

// widen adds modules to the schema and checks that they define the plugin's lists as state. After
// an error the schema is unchanged.
func (r *Registry) widen(modules []yang.Module, lists []sdk.List) error {
	r.widening.Lock()
	defer r.widening.Unlock()
	all := slices.Concat(r.modules, modules)
	schema, err := yang.Load(all...)
	if err != nil {
		return err
	}
	errs := []error{schema.CheckNames()}
	for _, l := range lists {
		if err := schema.CheckResults(l.Path); err != nil {
			errs = append(errs, fmt.Errorf("the plugin publishes %s: %w", l.Path, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	c := &compiled{schema: schema, keys: map[string]listKeys{}, copies: map[string]map[string]string{}}
	for _, l := range schema.Lists() {
		lk := listKeys{path: l.Path}
		copies := map[string]string{}
		for _, k := range l.Keys {
			lk.keys = append(lk.keys, k.Name)
			for _, leaf := range k.RefersTo {
				copies[leaf] = k.Name
			}
		}
		c.keys[elementNames(strings.Split(strings.TrimPrefix(l.Path, "/"), "/"))] = lk
		c.copies[l.Path] = copies
	}
	r.modules = all
	r.compiled.Store(c)
	return nil
}

// elementNames joins names without their module prefixes.
func elementNames(elems []string) string {
	names := make([]string, len(elems))
	for i, e := range elems {
		names[i] = e
		if _, local, ok := strings.Cut(e, ":"); ok {
			names[i] = local
		}
	}
	return strings.Join(names, "/")
}

// Adopt adds the modules that a plugin brings. For lists whose module the plugin does not bring,
// Adopt adds the built-in module. It fails if a list of the plugin has no schema.
func (r *Registry) Adopt(d sdk.Description) error {
	var modules []yang.Module
	included := map[string]bool{}
	for _, m := range d.Modules {
		modules = append(modules, yang.Module{Name: m.Name, Text: m.Text, Source: "plugin " + d.Name})
		included[m.Name] = true
	}
	for _, l := range d.Lists {
		name, _, ok := strings.Cut(strings.TrimPrefix(l.Path, "/"), ":")
		if !ok || included[name] {
			continue
		}
		included[name] = true
		if _, err := r.Current().List(l.Path); err == nil {
			continue
		}
		bundled, err := yang.Bundled(name)
		if err != nil {
			return fmt.Errorf("list %s: the plugin brings no module %s, and none is built in", l.Path, name)
		}
		modules = append(modules, bundled...)
	}
	return r.widen(modules, d.Lists)
}

// Validate checks a table against the schema.
func (r *Registry) Validate(t *table.Table) error { return r.Current().Validate(t) }

// ListKeys implements store.Schema.
func (r *Registry) ListKeys(elems []string) (string, []string, bool) {
	lk, ok := r.compiled.Load().keys[elementNames(elems)]
	return lk.path, lk.keys, ok && len(lk.keys) > 0
}

// KeyLeaves implements store.Schema.
func (r *Registry) KeyLeaves(list string) map[string]string { return r.compiled.Load().copies[list] }
