// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/yang"
)

// maxMessage bounds one message of a switch, in bytes.
const maxMessage = 16 << 20

// queued is the number of messages buffered for the session's goroutine.
const queued = 64

// DefaultSubscriptions are republished for a switch whose configuration has no subscriptions:
// interfaces with their counters every 10 s, components, and the system.
func DefaultSubscriptions() []Subscription {
	return []Subscription{
		{path("interfaces", "interface", "state", "counters"), Sample, 10 * time.Second},
		{path("interfaces", "interface", "config"), OnChange, 0},
		{path("interfaces", "interface", "ethernet", "state", "port-speed"), OnChange, 0},
		{path("components"), OnChange, 0},
		{path("system", "state"), Sample, 10 * time.Second},
		{path("lldp", "interfaces", "interface", "state"), Sample, 10 * time.Second},
	}
}

func path(elems ...string) *gpb.Path {
	p := &gpb.Path{}
	for _, e := range elems {
		p.Elem = append(p.Elem, &gpb.PathElem{Name: e})
	}
	return p
}

// stream is one Subscribe call.
type stream struct {
	subscriptions []Subscription
	parts         []*stream // streams to try instead if the switch refuses this stream
	synced, gone  bool      // owned by the session's goroutine
}

func (st *stream) String() string { return yang.PathString(st.subscriptions[0].Path.GetElem()) }

// factStreams are the subscriptions of every session, in streams that a switch may refuse one by
// one.
func factStreams() []*stream {
	group := func(paths ...*gpb.Path) *stream {
		st := &stream{}
		for _, p := range paths {
			st.subscriptions = append(st.subscriptions, Subscription{p, OnChange, 0})
		}
		return st
	}
	state := func(leaf string) *gpb.Path { return path("interfaces", "interface", "state", leaf) }
	return []*stream{
		group(state("oper-status"), state("admin-status")),
		group(state("last-change"), state("enabled"), state("ifindex"), state("type"), state("description")),
		group(state("id")),
		group(state("hardware-port")),
		group(path("lldp", "state", "chassis-id"), path("lldp", "state", "chassis-id-type"),
			path("lldp", "state", "system-name"),
			path("lldp", "state", "enabled"), path("lldp", "interfaces", "interface", "neighbors")),
		group(path("components", "component", "integrated-circuit", "state", "node-id")),
		group(path("system", "state", "hostname")),
	}
}

// event is a message of a stream, or its end.
type event struct {
	stream *stream
	resp   *gpb.SubscribeResponse
	split  bool // the switch refused the stream: try its parts
	err    error
}

// session runs one session until it fails or ctx ends, and reports whether it was synced.
func (s *Session) session(ctx context.Context) (synced bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var streaming sync.WaitGroup
	defer streaming.Wait()
	defer cancel()
	conn, err := s.cfg.Dial(s.cfg.DialOptions...)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	api := gpb.NewGNMIClient(conn)
	encoding, err := s.encoding(ctx, api)
	if err != nil {
		return false, err
	}
	all := &stream{parts: factStreams()}
	for _, sub := range s.cfg.Subscriptions {
		all.parts = append(all.parts, &stream{subscriptions: []Subscription{sub}})
	}
	for _, part := range all.parts {
		all.subscriptions = append(all.subscriptions, part.subscriptions...)
	}
	events := make(chan event, queued)
	start := func(streams ...*stream) []*stream {
		for _, st := range streams {
			streaming.Go(func() { st.run(ctx, api, encoding, events) })
		}
		return streams
	}
	s.set(Syncing, nil)
	return s.follow(ctx, start, all, events)
}

// encoding selects an encoding that the switch supports; JSON_IETF if it does not implement
// Capabilities.
func (s *Session) encoding(ctx context.Context, api gpb.GNMIClient) (gpb.Encoding, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	caps, err := api.Capabilities(ctx, &gpb.CapabilityRequest{}, grpc.WaitForReady(false))
	if status.Code(err) == codes.Unimplemented {
		return gpb.Encoding_JSON_IETF, nil
	}
	if err != nil {
		return 0, fmt.Errorf("gNMI Capabilities of %s: %w", s.cfg.Address, err)
	}
	for _, e := range []gpb.Encoding{gpb.Encoding_PROTO, gpb.Encoding_JSON_IETF} {
		if slices.Contains(caps.GetSupportedEncodings(), e) {
			return e, nil
		}
	}
	return gpb.Encoding_JSON, nil
}

// run receives a stream's messages until it ends. If a switch refuses ON_CHANGE, run falls back to
// TARGET_DEFINED.
func (st *stream) run(ctx context.Context, api gpb.GNMIClient, encoding gpb.Encoding, events chan<- event) {
	send := func(e event) bool {
		select {
		case events <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
	received, err := st.receive(ctx, api, encoding, send)
	if !received && refusal(err) && len(st.parts) > 0 {
		send(event{stream: st, split: true})
		return
	}
	if !received && refusal(err) && st.subscriptions[0].Mode == OnChange {
		soft := &stream{subscriptions: slices.Clone(st.subscriptions)}
		for i := range soft.subscriptions {
			soft.subscriptions[i].Mode = TargetDefined
		}
		_, err = soft.receive(ctx, api, encoding, func(e event) bool {
			e.stream = st
			return send(e)
		})
	}
	send(event{stream: st, err: err})
}

func (st *stream) receive(ctx context.Context, api gpb.GNMIClient, encoding gpb.Encoding,
	send func(event) bool,
) (received bool, err error) {
	call, err := api.Subscribe(ctx)
	if err != nil {
		return false, err
	}
	if err := call.Send(st.request(encoding)); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	for {
		resp, err := call.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = status.Error(codes.Unavailable, "the switch ended the stream")
			}
			return received, err
		}
		received = true
		if !send(event{stream: st, resp: resp}) {
			return received, ctx.Err()
		}
	}
}

func (st *stream) request(encoding gpb.Encoding) *gpb.SubscribeRequest {
	list := &gpb.SubscriptionList{Mode: gpb.SubscriptionList_STREAM, Encoding: encoding}
	for _, sub := range st.subscriptions {
		x := &gpb.Subscription{Path: sub.Path}
		switch sub.Mode {
		case OnChange:
			x.Mode = gpb.SubscriptionMode_ON_CHANGE
		case Sample:
			x.Mode, x.SampleInterval = gpb.SubscriptionMode_SAMPLE, uint64(sub.SampleInterval)
		default:
			x.Mode = gpb.SubscriptionMode_TARGET_DEFINED
		}
		list.Subscription = append(list.Subscription, x)
	}
	return &gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: list}}
}

// refusal reports whether an error concerns the subscribed paths, not the session.
func refusal(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.Unimplemented, codes.NotFound, codes.OutOfRange, codes.FailedPrecondition,
		codes.PermissionDenied:
		return true
	}
	return false
}

// quiet is how long a sampling switch may stay silent before the session is reopened; 0 without
// sampling.
func quiet(streams []*stream) time.Duration {
	var longest time.Duration
	for _, st := range streams {
		for _, sub := range st.subscriptions {
			if sub.Mode == Sample && !st.gone {
				longest = max(longest, sub.SampleInterval)
			}
		}
	}
	if longest == 0 {
		return 0
	}
	return max(3*longest, 30*time.Second)
}

// follow starts one stream with all subscriptions, or its parts if the switch refuses it, and
// processes their messages until the session fails.
func (s *Session) follow(ctx context.Context, start func(...*stream) []*stream, all *stream,
	events <-chan event,
) (synced bool, err error) {
	streams := start(all)
	limit := time.NewTimer(s.cfg.SyncTimeout)
	defer limit.Stop()
	any := false
	for {
		var e event
		select {
		case <-ctx.Done():
			return synced, ctx.Err()
		case <-limit.C:
			if synced {
				return synced, fmt.Errorf("gNMI of %s: no message for %v, although the switch samples", s.cfg.Address,
					quiet(streams))
			}
			if !any {
				return synced, fmt.Errorf("gNMI of %s: no message within %v, not even sync_response", s.cfg.Address,
					s.cfg.SyncTimeout)
			}
			s.warnOnce("sync", "device sends no sync_response; the session counts as synced without it", "address",
				s.cfg.Address)
			for _, st := range streams {
				st.synced = true
			}
			synced = s.settle(streams, synced)
			arm(limit, quiet(streams))
			continue
		case e = <-events:
		}
		// Process all messages that have arrived before publishing.
		for n := 0; ; n++ {
			switch {
			case e.split:
				streams = start(e.stream.parts...)
			case e.err != nil:
				if !refusal(e.err) {
					return synced, fmt.Errorf("gNMI subscription to %s of %s: %w", e.stream, s.cfg.Address, e.err)
				}
				e.stream.gone = true
				s.warnOnce("stream"+e.stream.String(), "device does not serve a path", "path", e.stream.String(),
					"error", e.err)
			default:
				any = true
				s.handle(e)
			}
			more := false
			if n < queued {
				select {
				case e = <-events:
					more = true
				default:
				}
			}
			if !more {
				break
			}
		}
		s.publish(s.cache.flush(s.cfg.Now()))
		if !slices.ContainsFunc(streams, func(st *stream) bool { return !st.gone }) {
			return synced, fmt.Errorf("gNMI of %s: the switch serves none of the subscribed paths; error for "+
				"the last one: %w", s.cfg.Address, e.err)
		}
		was := synced
		synced = s.settle(streams, synced)
		if synced {
			arm(limit, quiet(streams))
		}
		if was && s.cache.newFacts {
			s.updateFacts()
		}
	}
}

func arm(t *time.Timer, d time.Duration) {
	if d == 0 {
		t.Stop()
		return
	}
	t.Reset(d)
}

// settle reports whether all streams are synced, and updates the state the first time.
func (s *Session) settle(streams []*stream, synced bool) bool {
	if synced || slices.ContainsFunc(streams, func(st *stream) bool { return !st.gone && !st.synced }) {
		return synced
	}
	s.updateFacts()
	s.set(Synced, nil)
	return true
}

// updateFacts takes the facts from the cache and reports a change.
func (s *Session) updateFacts() {
	s.cache.newFacts = false
	f := s.cache.facts()
	s.mu.Lock()
	f.Number = s.facts.Number + 1
	changed := !f.equal(s.facts)
	if changed {
		s.facts = f
	}
	s.mu.Unlock()
	if changed {
		s.notify()
	}
}

// handle enters a message into the cache.
func (s *Session) handle(e event) {
	if e.resp.GetSyncResponse() {
		e.stream.synced = true
		return
	}
	n := e.resp.GetUpdate()
	if n == nil {
		return
	}
	add := s.cache.apply(s.cfg.Schema(), n, s.cfg.Now(), func(err error) {
		if errors.Is(err, yang.ErrUnknownPath) { // common: devices have more models than the collector
			s.log.Debug("dropped a leaf without a model", "error", err)
			return
		}
		s.warnOnce(yang.PathString(n.GetPrefix().GetElem()), "dropped an invalid value", "error", err)
	})
	s.count(add)
}
