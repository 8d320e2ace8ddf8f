// SPDX-License-Identifier: Apache-2.0

// Subscribe in mode STREAM: the sending loop.

package server

import (
	"errors"
	"io"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/internal/store"
)

// pullRows is the number of rows pulled from the store at once.
const pullRows = 512

// feed is one group of a running stream.
type feed struct {
	group
	sub       *store.Subscription
	next      time.Time // time of the next sample; zero means on change
	heartbeat time.Time // time of the next heartbeat; zero for none
}

// serveStream sends initial values, the sync response, and then changes and samples, until the
// client cancels or the server stops.
func (s *Server) serveStream(stream gpb.GNMI_SubscribeServer, w *writer, req *request) error {
	s.stream(1)
	defer s.stream(-1)
	s.refresh()
	changed := make(chan struct{}, 1)
	feeds := make([]*feed, 0, len(req.groups))
	defer func() {
		for _, f := range feeds {
			f.sub.Close()
		}
	}()
	for _, g := range req.groups {
		o := store.SubscribeOptions{Queries: g.queries, Rendering: req.encoding.String(), UpdatesOnly: req.updatesOnly}
		if g.sample == 0 {
			o.Notify = changed
		}
		sub, err := s.opts.Store.Subscribe(o)
		if errors.Is(err, store.ErrClosed) {
			return errStopping
		}
		if err != nil {
			return err
		}
		feeds = append(feeds, &feed{group: g, sub: sub})
	}
	if !req.updatesOnly {
		for _, f := range feeds {
			for f.sub.Initial() {
				if _, err := w.pull(f, new(store.Meta)); err != nil {
					return err
				}
			}
			if err := w.finish(f.queries); err != nil {
				return err
			}
		}
	}
	if err := w.message(syncResponse, 0); err != nil {
		return err
	}
	return s.follow(stream, w, feeds, changed, receive(stream))
}

// receive reports when the client's side ends the stream, by an invalid message or a broken
// connection. A client that closes only its sending side keeps its stream.
func receive(stream gpb.GNMI_SubscribeServer) <-chan error {
	bad := make(chan error, 1)
	go func() {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
		case err != nil:
			bad <- err
		case m.GetSubscribe() != nil:
			bad <- errSecondList
		case m.GetPoll() != nil:
			bad <- invalid("Subscribe: a Poll on a subscription that is not in mode POLL")
		default:
			bad <- invalid("Subscribe: a message that is neither a SubscriptionList nor a Poll")
		}
	}()
	return bad
}

// follow serves the stream after its sync response.
func (s *Server) follow(stream gpb.GNMI_SubscribeServer, w *writer, feeds []*feed, changed <-chan struct{},
	bad <-chan error,
) error {
	start := time.Now()
	for _, f := range feeds {
		if f.sample > 0 {
			f.next = start.Add(f.sample)
		}
		if f.group.heartbeat > 0 {
			f.heartbeat = start.Add(f.group.heartbeat)
		}
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due := nextDue(feeds)
		if due.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(due))
		}
		var err error
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.stopping:
			return errStopping
		case err := <-bad:
			return err
		case <-changed:
			for _, f := range feeds {
				if f.sample == 0 && err == nil {
					err = s.drain(stream, w, f)
				}
			}
		case now := <-timer.C:
			err = s.tick(stream, w, feeds, now)
		}
		if err != nil {
			return err
		}
	}
}

func nextDue(feeds []*feed) time.Time {
	var due time.Time
	for _, f := range feeds {
		for _, t := range []time.Time{f.next, f.heartbeat} {
			if !t.IsZero() && (due.IsZero() || t.Before(due)) {
				due = t
			}
		}
	}
	return due
}

// tick sends the samples and heartbeats that are due.
func (s *Server) tick(stream gpb.GNMI_SubscribeServer, w *writer, feeds []*feed, now time.Time) error {
	refreshed := false
	for _, f := range feeds {
		sample, beat := isDue(&f.next, f.sample, now), isDue(&f.heartbeat, f.group.heartbeat, now)
		if !sample && !beat {
			continue
		}
		if !refreshed {
			refreshed = true
			s.refresh()
		}
		f.sub.Sync()
		if beat || sample && !f.suppress {
			f.sub.QueueAll()
		}
		if err := s.drain(stream, w, f); err != nil {
			return err
		}
	}
	return nil
}

// isDue reports whether a time has passed, and moves it to the next one after now.
func isDue(at *time.Time, every time.Duration, now time.Time) bool {
	if at.IsZero() || at.After(now) {
		return false
	}
	*at = at.Add(every)
	if !at.After(now) {
		*at = now.Add(every)
	}
	return true
}

// drain sends all pending rows of a feed.
func (s *Server) drain(stream gpb.GNMI_SubscribeServer, w *writer, f *feed) error {
	var newest store.Meta
	for more := true; more; {
		var err error
		if more, err = w.pull(f, &newest); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.stopping:
			return errStopping
		default:
		}
	}
	if err := w.finish(f.queries); err != nil {
		return err
	}
	if f.sample == 0 && !newest.Time.IsZero() {
		s.delivered(newest)
	}
	return nil
}

// pull writes the next rows of a feed, and reports whether there are more. It sets newest to the
// latest time among them.
func (w *writer) pull(f *feed, newest *store.Meta) (bool, error) {
	w.quiet = f.sample > 0
	deltas, more := f.sub.Pull(pullRows)
	for i := range deltas {
		if err := w.delta(&deltas[i]); err != nil {
			return false, err
		}
		if deltas[i].Meta.Time.After(newest.Time) {
			*newest = deltas[i].Meta
		}
	}
	return more, nil
}
