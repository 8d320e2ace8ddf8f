// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// schemas is the schema of all modules, widened as plugins bring theirs. Reading it takes no lock.
type schemas struct {
	now atomic.Pointer[compiledSchema]

	widening sync.Mutex
	modules  []yang.Module // under widening
}

// compiledSchema is a schema with what the store asks of it, immutable.
type compiledSchema struct {
	schema *yang.Schema
	keys   map[string]listKeys          // by names of the elements, joined by "/"
	copies map[string]map[string]string // by list: leaf to key
}

type listKeys struct {
	path string
	keys []string
}

func newSchemas(modules []yang.Module) (*schemas, error) {
	s := &schemas{}
	return s, s.widen(modules)
}

func (s *schemas) current() *yang.Schema { return s.now.Load().schema }

// widen adds modules. After an error the schema is as before.
func (s *schemas) widen(modules []yang.Module) error {
	s.widening.Lock()
	defer s.widening.Unlock()
	all := append(append([]yang.Module(nil), s.modules...), modules...)
	schema, err := yang.Load(all...)
	if err != nil {
		return err
	}
	c := &compiledSchema{schema: schema, keys: map[string]listKeys{}, copies: map[string]map[string]string{}}
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
	s.modules = all
	s.now.Store(c)
	return nil
}

// elementNames joins names without their modules.
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

// adopt adds what a plugin brings: its own modules, and for lists of modules that it does not bring,
// those that come with the program.
func (s *schemas) adopt(d sdk.Description) error {
	var modules []yang.Module
	brought := map[string]bool{}
	for _, m := range d.Modules {
		modules = append(modules, yang.Module{Name: m.Name, Text: m.Text, Source: "plugin " + d.Name})
		brought[m.Name] = true
	}
	for _, l := range d.Lists {
		name, _, ok := strings.Cut(strings.TrimPrefix(l.Path, "/"), ":")
		if !ok || brought[name] {
			continue
		}
		brought[name] = true
		if _, err := s.current().List(l.Path); err == nil {
			continue
		}
		bundled, err := yang.Bundled(name)
		if err != nil {
			return fmt.Errorf("list %s: the plugin brings no module %s, and none comes with the program", l.Path, name)
		}
		modules = append(modules, bundled...)
	}
	if len(modules) > 0 {
		if err := s.widen(modules); err != nil {
			return err
		}
	}
	for _, l := range d.Lists {
		if _, err := s.current().List(l.Path); err != nil {
			return fmt.Errorf("the plugin publishes %s: %w", l.Path, err)
		}
	}
	return nil
}

// validate checks a table of results.
func (s *schemas) validate(t *table.Table) error { return s.current().Validate(t) }

// ListKeys implements store.Schema.
func (s *schemas) ListKeys(elems []string) (string, []string, bool) {
	lk, ok := s.now.Load().keys[elementNames(elems)]
	return lk.path, lk.keys, ok && len(lk.keys) > 0
}

// KeyLeaves implements store.Schema.
func (s *schemas) KeyLeaves(list string) map[string]string { return s.now.Load().copies[list] }
