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

// read reads the entities that match the queries; fields of a query that are zero match
// everything. The sequence ends after an error. Entities come in the switch's order, and may come
// more than once.
func (s *session) read(ctx context.Context, queries []*p4v1.Entity) iter.Seq2[*p4v1.Entity, error] {
	return func(yield func(*p4v1.Entity, error) bool) {
		ctx, cancel := context.WithTimeout(ctx, s.c.cfg.ReadTimeout)
		defer cancel()
		stream, err := s.rpc.Read(ctx, &p4v1.ReadRequest{DeviceId: s.c.cfg.DeviceID, Role: s.c.cfg.Role,
			Entities: queries})
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

// readError names the query that the switch refused, if the error has details.
func (s *session) readError(queries []*p4v1.Entity, err error) error {
	if s.ctx.Err() != nil {
		return fmt.Errorf("p4rt %s: read: %w", s.c.cfg.Target, s.lost(err))
	}
	details := perUpdate(err, len(queries))
	p := s.program()
	for i, d := range details {
		if codes.Code(d.GetCanonicalCode()) != codes.OK && p != nil {
			return fmt.Errorf("p4rt %s: read of %s: %v: %s: %w", s.c.cfg.Target,
				describeEntity(p.catalog, queries[i]), codes.Code(d.GetCanonicalCode()), d.GetMessage(), err)
		}
	}
	return fmt.Errorf("p4rt %s: read: %w", s.c.cfg.Target, err)
}
