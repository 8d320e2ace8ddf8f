// SPDX-License-Identifier: Apache-2.0

package p4rtserver

import (
	"context"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
)

// Write applies a batch of updates in the order given. Errors are reported for each update, OKs
// included.
func (s *Server) Write(_ context.Context, r *p4v1.WriteRequest) (*p4v1.WriteResponse, error) {
	done, err := s.beginWrite(r.GetDeviceId(), r.GetRole(), r.GetElectionId())
	if err != nil {
		return nil, err
	}
	defer done()
	s.mu.Lock()
	defer s.mu.Unlock()
	d, err := s.target()
	if err != nil {
		return nil, err
	}
	if err := d.Write(r); err != nil {
		return nil, err
	}
	return &p4v1.WriteResponse{}, nil
}
