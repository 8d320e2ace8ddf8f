// SPDX-License-Identifier: Apache-2.0

package softswitch

// Burst calls f, which injects packets that are there at once. Ports may put off sending what becomes of them until f has returned.
func (s *Switch) Burst(f func()) {
	s.bursts.Add(1)
	f()
	s.bursts.Add(-1)
	if all := s.flushers.Load(); all != nil {
		for _, pt := range *all {
			pt.cfg.Flush()
		}
	}
}

// Bursting tells whether a Burst is under way: what a Tx function puts off now is sent by Port.Flush. It is to ask after it has put something
// off, and to send itself where there is none.
func (s *Switch) Bursting() bool { return s.bursts.Load() > 0 }

// listFlushers lists the ports that Burst has to flush. The caller holds portsMu.
func (s *Switch) listFlushers() {
	var all []*port
	for _, pt := range s.ports.Load() {
		if pt != nil && pt.cfg.Flush != nil {
			all = append(all, pt)
		}
	}
	s.flushers.Store(&all)
}
