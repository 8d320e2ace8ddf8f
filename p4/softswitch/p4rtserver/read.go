// SPDX-License-Identifier: Apache-2.0

package p4rtserver

import (
	"iter"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver/entities"
)

// maxResponse bounds the messages of a read in bytes; clients accept 4 MB.
const maxResponse = 1 << 20

// Read streams entities. They are a consistent snapshot between two writes, and are sent after the
// lock is released.
func (s *Server) Read(r *p4v1.ReadRequest, rpc p4v1.P4Runtime_ReadServer) error {
	if err := s.checkDevice(r.GetDeviceId()); err != nil {
		return err
	}
	results, errs, err := s.snapshot(r)
	if err != nil {
		return err
	}
	out := &p4v1.ReadResponse{}
	size := 0
	flush := func() error {
		if len(out.Entities) == 0 {
			return nil
		}
		err := rpc.Send(out)
		out, size = &p4v1.ReadResponse{}, 0
		return err
	}
	for _, seq := range results {
		for e := range seq {
			n := proto.Size(e) + 6
			if size+n > maxResponse {
				if err := flush(); err != nil {
					return err
				}
			}
			out.Entities, size = append(out.Entities, e), size+n
		}
	}
	if err := flush(); err != nil {
		return err
	}
	return entities.BatchError("read requests", errs)
}

// snapshot answers all requests of a read with the lock held.
func (s *Server) snapshot(r *p4v1.ReadRequest) ([]iter.Seq[*p4v1.Entity], []error, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	d, err := s.target()
	if err != nil {
		return nil, nil, err
	}
	results := make([]iter.Seq[*p4v1.Entity], 0, len(r.GetEntities()))
	errs := make([]error, len(r.GetEntities()))
	for i, q := range r.GetEntities() {
		seq, err := d.Query(q, r.GetRole())
		if errs[i] = err; err == nil {
			results = append(results, seq)
		}
	}
	return results, errs, nil
}
