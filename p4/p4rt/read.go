// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
)

// Read reads entities: each one given is a query, whose fields left at zero match everything. It needs no mastership. The sequence
// ends after an error; the order of entities is the switch's, and one may come more than once.
func (c *Client) Read(ctx context.Context, queries ...*p4v1.Entity) iter.Seq2[*p4v1.Entity, error] {
	s, err := c.useToRead()
	if err != nil {
		return func(yield func(*p4v1.Entity, error) bool) { yield(nil, err) }
	}
	return s.read(ctx, queries)
}

// ReadEntries reads all entries of a table, its default entry not among them.
func (c *Client) ReadEntries(ctx context.Context, table string) ([]*p4v1.TableEntry, error) {
	cat, err := c.Catalog()
	if err != nil {
		return nil, err
	}
	t, err := cat.Tables.Name(table)
	if err != nil {
		return nil, err
	}
	var out []*p4v1.TableEntry
	for e, err := range c.Read(ctx, &p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: &p4v1.TableEntry{TableId: t.ID}}}) {
		if err != nil {
			return nil, fmt.Errorf("read table %s: %w", t.Name, err)
		}
		out = append(out, e.GetTableEntry())
	}
	return out, nil
}

func (s *session) read(ctx context.Context, queries []*p4v1.Entity) iter.Seq2[*p4v1.Entity, error] {
	return func(yield func(*p4v1.Entity, error) bool) {
		ctx, cancel := context.WithTimeout(ctx, s.c.cfg.ReadTimeout)
		defer cancel()
		stream, err := s.rpc.Read(ctx, &p4v1.ReadRequest{DeviceId: s.c.cfg.DeviceID, Role: s.c.cfg.Role, Entities: queries})
		if err != nil {
			yield(nil, s.readError(queries, err))
			return
		}
		for {
			answer, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, s.readError(queries, err))
				return
			}
			for _, e := range answer.GetEntities() {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// readError says which query the switch refused, where it says so.
func (s *session) readError(queries []*p4v1.Entity, err error) error {
	if s.ctx.Err() != nil {
		return fmt.Errorf("p4rt %s: read: %w", s.c.cfg.Target, s.lost(err))
	}
	details := perUpdate(err, len(queries))
	p := s.program()
	for i, d := range details {
		if codes.Code(d.GetCanonicalCode()) != codes.OK && p != nil {
			return fmt.Errorf("p4rt %s: read of %s: %v: %s: %w", s.c.cfg.Target, DescribeEntity(p.catalog, queries[i]), codes.Code(d.GetCanonicalCode()), d.GetMessage(), err)
		}
	}
	return fmt.Errorf("p4rt %s: read: %w", s.c.cfg.Target, err)
}
