// SPDX-License-Identifier: Apache-2.0

package softswitch

// SubscribeDigests returns a channel with room for buffer digests, and a function that ends the
// subscription and closes the channel. A digest that finds the channel full is dropped and counted
// in Stats.DigestDrops.
func (s *Switch) SubscribeDigests(buffer int) (<-chan Digest, func()) {
	c := make(chan Digest, max(1, buffer))
	s.subsMu.Lock()
	defer s.subsMu.Unlock()
	if s.closed.Load() {
		close(c)
		return c, func() {}
	}
	s.subID++
	id := s.subID
	s.subs[id] = c
	s.listeners.Add(1)
	return c, func() {
		s.subsMu.Lock()
		defer s.subsMu.Unlock()
		if _, open := s.subs[id]; open {
			delete(s.subs, id)
			s.listeners.Add(-1)
			close(c)
		}
	}
}
