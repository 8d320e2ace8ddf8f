// SPDX-License-Identifier: Apache-2.0

package p4rtserver

import (
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver/entities"
)

// watchIdle scans for entries without a hit for their idle timeout while d is the pipeline. It does
// not run for a program whose tables have no idle timeouts. The caller holds mu.
func (s *Server) watchIdle(d *entities.Device) {
	if !d.HasIdleTimeouts() || !s.startBackground(1) {
		return
	}
	over := s.digests.over // closed when another pipeline is loaded
	go func() {
		defer s.bg.Done()
		tick := time.NewTicker(s.opt.IdleScan)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.SweepIdle()
			case <-over:
				return
			case <-s.ctx.Done():
				return
			}
		}
	}()
}

// SweepIdle sends the primaries a notification of the entries that became idle, one message per
// table. The server calls it on the wall clock; the owner of another clock calls it.
func (s *Server) SweepIdle() {
	s.mu.RLock()
	var byTable map[uint32][]*p4v1.TableEntry
	if s.live != nil {
		byTable = s.live.SweepIdle()
	}
	s.mu.RUnlock()
	for _, entries := range byTable {
		m := &p4v1.IdleTimeoutNotification{TableEntry: entries, Timestamp: time.Now().UnixNano()}
		took := false
		for _, st := range s.primaries(nil) {
			took = st.offer(
				&p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_IdleTimeoutNotification{
					IdleTimeoutNotification: m}}) || took
		}
		if !took {
			s.stats.idleDropped.Add(1)
		}
	}
}
