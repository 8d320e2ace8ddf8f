// SPDX-License-Identifier: Apache-2.0

// Subscribe: its request, and the modes ONCE and POLL.

package server

import (
	"errors"
	"io"
	"math"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/store"
)

// request is a valid SubscriptionList.
type request struct {
	mode        gpb.SubscriptionList_Mode
	encoding    gpb.Encoding
	updatesOnly bool
	filter      filter
	origin      string
	target      string
	queries     []store.Query // queries of all subscriptions
	groups      []group       // subscriptions of a STREAM by trigger
}

// group holds the subscriptions of a STREAM that share a trigger.
type group struct {
	trigger
	queries []store.Query
}

// trigger says when values are sent.
type trigger struct {
	sample    time.Duration // time between samples; 0 means on change
	suppress  bool          // samples omit unchanged values
	heartbeat time.Duration // 0 means no heartbeat
}

// Subscribe serves one stream.
func (s *Server) Subscribe(stream gpb.GNMI_SubscribeServer) error {
	s.stats.requests.Add(1)
	if err := s.enter(); err != nil {
		return s.refused(err)
	}
	defer s.idle.Done()
	c := s.caller(stream.Context())
	first, err := s.first(stream, c)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.streams.take(c); err != nil {
		return s.bounded(Stream, c, err)
	}
	defer s.streams.release(c)
	req, err := s.request(first, c)
	if err != nil {
		return s.refused(err)
	}
	w := &writer{
		server: s, send: stream.Send, encoding: req.encoding, filter: req.filter, origin: req.origin,
		target: req.target,
	}
	switch req.mode {
	case gpb.SubscriptionList_ONCE:
		return s.values(w, req)
	case gpb.SubscriptionList_POLL:
		return s.poll(stream, c, w, req)
	}
	return s.serveStream(stream, w, req)
}

// first returns the first message of a stream. Before its first message, the stream does not count
// in the quota.
func (s *Server) first(stream gpb.GNMI_SubscribeServer, c caller) (*gpb.SubscribeRequest, error) {
	end := s.waiting.add(c)
	defer s.waiting.remove(c, end)
	var first *gpb.SubscribeRequest
	received := make(chan error, 1)
	go func() { // ends with the stream
		m, err := stream.Recv()
		first = m
		received <- err
	}()
	timer := time.NewTimer(s.opts.FirstMessageTimeout)
	defer timer.Stop()
	select {
	case err := <-received:
		return first, err
	case <-timer.C:
		return nil, s.bounded(Stream, c, status.Errorf(codes.DeadlineExceeded,
			"Subscribe of %s ends: no message arrived within %s, the limit of first-message-timeout; "+
				"send the SubscriptionList at once, or raise it", c, s.opts.FirstMessageTimeout))
	case <-end:
		return nil, s.bounded(Stream, c, status.Errorf(codes.ResourceExhausted,
			"Subscribe of %s ends: the address has more than %d streams without a first message, the limit of "+
				"max-streams-per-client; send the SubscriptionList at once, or raise it", c, s.waiting.limit))
	case <-s.stopping:
		return nil, errStopping
	}
}

// bounded counts and logs a call that exceeds a bound, and returns the error.
func (s *Server) bounded(kind Kind, c caller, err error) error {
	s.Refused(kind, c.String(), err)
	return s.refused(err)
}

func (s *Server) refused(err error) error {
	s.stats.refused.Add(1)
	return err
}

// values sends the current values and a sync response, which is the reply to ONCE and to each
// Poll.
func (s *Server) values(w *writer, req *request) error {
	if !req.updatesOnly {
		s.refresh()
		view := s.opts.Store.View()
		var scratch []store.LeafDelta
		var err error
		for row, meta := range view.Rows(req.queries...) {
			if scratch, err = w.row(row, meta, scratch); err != nil {
				return err
			}
		}
		if err := w.finish(req.queries); err != nil {
			return err
		}
	}
	return w.message(syncResponse, 0)
}

// pollGrace is how long the initial values of a POLL subscription wait for the first Poll. The
// reply to a Poll within this time replaces the initial values.
const pollGrace = 100 * time.Millisecond

// poll replies to each Poll until the client closes its side. The specification contradicts
// itself: its text on updates_only, and openconfig's server and client, begin a POLL subscription
// with current values and a sync response; its section on POLL sends values only for a Poll. poll
// serves both kinds of client: a client that waits receives the initial values, and a client that
// polls at once receives them once, as the reply. A stream without a Poll for PollIdleTimeout
// ends.
func (s *Server) poll(stream gpb.GNMI_SubscribeServer, c caller, w *writer, req *request) error {
	next := make(chan error)
	go func() {
		for {
			err := receivePoll(stream)
			select {
			case next <- err:
			case <-stream.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	grace := time.NewTimer(pollGrace)
	defer grace.Stop()
	idle := time.NewTimer(s.opts.PollIdleTimeout)
	defer idle.Stop()
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.stopping:
			return errStopping
		case <-grace.C:
			if err := s.values(w, req); err != nil {
				return err
			}
		case <-idle.C:
			return s.bounded(Stream, c, status.Errorf(codes.DeadlineExceeded,
				"Subscribe of %s ends: no Poll arrived within %s, the limit of poll-idle-timeout; "+
					"subscribe again, or raise it", c, s.opts.PollIdleTimeout))
		case err := <-next:
			grace.Stop()
			idle.Reset(s.opts.PollIdleTimeout)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := s.values(w, req); err != nil {
				return err
			}
		}
	}
}

func receivePoll(stream gpb.GNMI_SubscribeServer) error {
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	if m.GetSubscribe() != nil {
		return errSecondList
	}
	if m.GetPoll() == nil {
		return invalid("Subscribe: a message that is neither a SubscriptionList nor a Poll")
	}
	_, err = extensions(m.GetExtension(), true)
	return err
}

var errSecondList = invalid("Subscribe: a second SubscriptionList; paths cannot be changed on an open stream, " +
	"open another")

// request checks the first message of a stream and returns it as a request.
func (s *Server) request(m *gpb.SubscribeRequest, c caller) (*request, error) {
	l := m.GetSubscribe()
	if l == nil {
		if m.GetPoll() != nil {
			return nil, invalid("Subscribe: a Poll before any SubscriptionList; there is nothing to poll yet")
		}
		return nil, invalid("Subscribe: the first message has no SubscriptionList")
	}
	if len(l.GetSubscription()) == 0 {
		return nil, invalid("Subscribe: the SubscriptionList has no subscription")
	}
	if n := len(l.GetSubscription()); n > s.opts.MaxPaths {
		return nil, status.Errorf(codes.ResourceExhausted,
			"Subscribe: %d subscriptions; expected at most %d on one stream", n, s.opts.MaxPaths)
	}
	if err := checkEncoding(l.GetEncoding()); err != nil {
		return nil, err
	}
	if q := l.GetQos().GetMarking(); q > 63 {
		return nil, invalid("Subscribe: qos marking %d; a DSCP is 0 to 63", q)
	}
	req := &request{mode: l.GetMode(), encoding: l.GetEncoding(), updatesOnly: l.GetUpdatesOnly(),
		target: l.GetPrefix().GetTarget()}
	switch req.mode {
	case gpb.SubscriptionList_STREAM, gpb.SubscriptionList_ONCE, gpb.SubscriptionList_POLL:
	default:
		return nil, invalid("Subscribe: mode %d is not a gNMI mode", int32(req.mode))
	}
	schema := s.opts.Schema()
	var err error
	if req.filter.models, err = models(schema, l.GetUseModels()); err != nil {
		return nil, err
	}
	r, err := s.resolver(schema, c, l.GetPrefix(), m.GetExtension())
	if err != nil {
		return nil, err
	}
	for i, sub := range l.GetSubscription() {
		a, err := r.resolve(sub.GetPath())
		if err != nil {
			return nil, err
		}
		if i == 0 {
			req.origin = a.origin
		} else if a.origin != req.origin {
			req.origin = "" // several names mean the same schema; replies repeat none of the names
		}
		req.queries = append(req.queries, a.query)
		if req.mode != gpb.SubscriptionList_STREAM {
			continue
		}
		t, err := s.trigger(sub)
		if err != nil {
			return nil, err
		}
		req.add(t, a.query)
	}
	return req, nil
}

func (r *request) add(t trigger, q store.Query) {
	for i := range r.groups {
		if r.groups[i].trigger == t {
			r.groups[i].queries = append(r.groups[i].queries, q)
			return
		}
	}
	r.groups = append(r.groups, group{trigger: t, queries: []store.Query{q}})
}

// trigger returns the trigger of a subscription of a STREAM.
func (s *Server) trigger(sub *gpb.Subscription) (trigger, error) {
	var t trigger
	var err error
	if t.heartbeat, err = s.interval("heartbeat_interval", sub.GetHeartbeatInterval()); err != nil {
		return t, err
	}
	switch sub.GetMode() {
	case gpb.SubscriptionMode_ON_CHANGE:
		return t, nil
	case gpb.SubscriptionMode_TARGET_DEFINED:
		// Results change once per epoch, so ON_CHANGE suits all of them.
		if sub.GetSampleInterval() != 0 {
			return t, invalid("sample_interval %d ns with TARGET_DEFINED: the target chooses the interval; leave it out, "+
				"or use SAMPLE", sub.GetSampleInterval())
		}
		return t, nil
	case gpb.SubscriptionMode_SAMPLE:
		if t.sample, err = s.interval("sample_interval", sub.GetSampleInterval()); err != nil {
			return t, err
		}
		if t.sample == 0 {
			t.sample = s.opts.LowestInterval
		}
		t.suppress = sub.GetSuppressRedundant()
		if !t.suppress {
			t.heartbeat = 0 // each sample already sends all values
		}
		return t, nil
	}
	return t, invalid("subscription mode %d is not a gNMI mode", int32(sub.GetMode()))
}

// interval checks an interval in nanoseconds; 0 is valid and remains 0.
func (s *Server) interval(name string, ns uint64) (time.Duration, error) {
	if ns > math.MaxInt64 {
		return 0, invalid("%s %d ns is too long; the longest is %s", name, ns, time.Duration(math.MaxInt64))
	}
	d := time.Duration(ns)
	if d != 0 && d < s.opts.LowestInterval {
		return 0, invalid("%s %s is not supported; the lowest is %s", name, d, s.opts.LowestInterval)
	}
	return d, nil
}
