// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/netsketch/netsketch/yang/table"
)

// Batch is a set of tables that become visible together. The batch and its tables must not be
// changed after publication. Tables must be well-formed: made by a table.Builder or validated
// against the schema.
type Batch struct {
	// Target is the gNMI target of the rows; if empty, the store's default target.
	Target string
	// Time is the end of the epoch that was measured. It becomes the timestamp of every leaf of the
	// tables. Leaves that a row keeps from an earlier batch keep their timestamps.
	Time time.Time
	// Epoch is the number of the epoch; 0 if the rows belong to no epoch.
	Epoch uint64
	// Member is the collector of the cluster that made the batch; empty for this collector.
	Member string
	// Own is set if the batch describes this collector only, so that it is not sent to other
	// collectors of the cluster.
	Own bool
	// Tables are applied in order.
	Tables []Publication
}

// Publication is one table of a Batch and how it changes its list.
type Publication struct {
	Table *table.Table
	// Replace makes the table replace all rows of the list and target. Without Replace a row
	// replaces the row with the same keys: columns that the table does not have keep their values,
	// and a null cell removes a leaf.
	Replace bool
	// Delete removes the rows with the table's keys. Value columns are ignored.
	Delete bool
}

// check validates the batch. Its error names the table.
func (b *Batch) check() error {
	if b.Time.IsZero() {
		return errors.New("store: a batch has no time; set it to the end of the epoch")
	}
	for i := range b.Tables {
		p := &b.Tables[i]
		if p.Table == nil {
			return fmt.Errorf("store: publication %d of %d has no table", i+1, len(b.Tables))
		}
		if p.Delete && p.Replace {
			return fmt.Errorf("store: table %s has both Replace and Delete; it can do one", p.Table.List)
		}
	}
	return nil
}

// fits returns an error if the publication does not fit the list. kinds holds the kinds of the
// list's columns after the previous publications, and is updated; with nil, any kind fits.
func (p *Publication) fits(l *List, kinds map[string]table.Kind) error {
	if err := l.sameKeys(p.Table); err != nil {
		return err
	}
	if p.Delete || kinds == nil {
		return nil
	}
	if p.Replace {
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
