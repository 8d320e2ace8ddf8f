// SPDX-License-Identifier: Apache-2.0

// Batches: what is published.

package store

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/netsketch/netsketch/yang/table"
)

// Batch is a set of tables that become visible together. The store takes it over:
// neither it nor its tables may be changed once published.
type Batch struct {
	// Target is the gNMI target that the rows belong to; empty stands for the
	// store's default target (Options.DefaultTarget).
	Target string
	// Time is when the values were true: the end of their epoch. It becomes the
	// timestamp of every row.
	Time time.Time
	// Epoch is the number of the epoch, 0 for rows that belong to none.
	Epoch uint64
	// Tables are applied in order.
	Tables []Publication
}

// Publication is one table of a Batch and how it changes its list.
type Publication struct {
	Table *table.Table
	// Replace makes the table replace every earlier row of the list for the target,
	// or, with a Scope, every earlier row in the scope; rows that are gone are
	// deleted. Without Replace a row replaces the row with the same keys: columns
	// that the table does not have keep their values, and a null cell is a leaf
	// that is gone.
	Replace bool
	// Scope narrows Replace to rows whose keys have these values, e.g. the rows of
	// one device.
	Scope []KeyValue
	// Delete removes the rows with the table's keys. Value columns are ignored.
	Delete bool
}

// KeyValue names a key leaf and its value in YANG's text form.
type KeyValue struct {
	Key, Value string
}

// check reports what is wrong with a batch, naming the table.
func (b *Batch) check() error {
	if b.Time.IsZero() {
		return errors.New("store: a batch has no time; it is the end of the epoch that the rows rest on")
	}
	for i := range b.Tables {
		p := &b.Tables[i]
		if p.Table == nil {
			return fmt.Errorf("store: publication %d of %d has no table", i+1, len(b.Tables))
		}
		if err := p.Table.Check(); err != nil {
			return fmt.Errorf("store: publication %d of %d: %w", i+1, len(b.Tables), err)
		}
		if p.Delete && p.Replace {
			return fmt.Errorf("store: table %s is to replace and to delete rows; it can do one", p.Table.List)
		}
		if len(p.Scope) > 0 && !p.Replace {
			return fmt.Errorf("store: table %s has a scope but does not replace", p.Table.List)
		}
		for _, kv := range p.Scope {
			i := slices.IndexFunc(p.Table.Keys, func(c table.Column) bool { return c.Name == kv.Key })
			if i < 0 {
				return fmt.Errorf("store: table %s: its scope names %q, which is not a key of it", p.Table.List, kv.Key)
			}
			if _, ok := parseKey(p.Table.Keys[i].Kind, kv.Value); !ok {
				return fmt.Errorf("store: table %s: its scope has %s=%q, which is no %s", p.Table.List, kv.Key, kv.Value, p.Table.Keys[i].Kind)
			}
		}
	}
	return nil
}

// fits reports a publication that its list cannot take. kinds has the kinds of the
// list's columns as the publications before this one leave them, and is brought up
// to date.
func (p *Publication) fits(l *List, kinds map[string]table.Kind) error {
	if err := l.sameKeys(p.Table); err != nil {
		return err
	}
	if p.Delete {
		return nil
	}
	whole := p.Replace && len(p.Scope) == 0
	if whole {
		clear(kinds)
	}
	for i := range p.Table.Values {
		c := &p.Table.Values[i]
		if old, ok := kinds[c.Name]; ok && old != c.Kind {
			return fmt.Errorf("store: table %s: column %s is of kind %s, the rows that stay have %s",
				p.Table.List, c.Name, c.Kind, old)
		}
		kinds[c.Name] = c.Kind
	}
	return nil
}
