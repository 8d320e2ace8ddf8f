// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/yang"
)

// maxMessage bounds one message of a switch, in bytes.
const maxMessage = 16 << 20

// Bounds of the messages that wait for the session's goroutine: their number, and their total
// bytes.
const (
	queueLength = 64
	queueBytes  = 32 << 20
)

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

// factSubscriptions are the subscriptions of every session.
func factSubscriptions() []Subscription {
	state := func(leaf string) *gpb.Path { return path("interfaces", "interface", "state", leaf) }
	var out []Subscription
	for _, p := range []*gpb.Path{
		state("oper-status"), state("admin-status"), state("last-change"), state("enabled"), state("ifindex"),
		state("type"), state("description"), state("id"), state("hardware-port"),
		path("lldp", "state", "chassis-id"), path("lldp", "state", "chassis-id-type"),
		path("lldp", "state", "system-name"), path("lldp", "state", "enabled"),
		path("lldp", "interfaces", "interface", "neighbors"),
		path("components", "component", "integrated-circuit", "state", "node-id"),
		path("system", "state", "hostname"),
	} {
		out = append(out, Subscription{p, OnChange, 0})
	}
	return out
}

// stream is one Subscribe call.
type stream struct {
	source
	group  *group
	cancel context.CancelFunc
	closed bool // closed by the session, which ignores the stream's remaining events
}

// samples reports whether the first value of a notification is of a path that the stream samples.
func (st *stream) samples(n *gpb.Notification) bool {
	if len(n.GetUpdate()) == 0 {
		return false
	}
	elems := local(slices.Concat(yang.Elems(n.GetPrefix()), yang.Elems(n.GetUpdate()[0].GetPath())))
	return slices.ContainsFunc(st.subs, func(sub Subscription) bool {
		return sub.Mode == Sample && selected([]Subscription{sub}, elems)
	})
}

// event is a message of a stream, or its end.
type event struct {
	stream *stream
	resp   *gpb.SubscribeResponse
	size   int64 // size of resp in bytes
	err    error
}

// streamer opens the streams of one connection and collects their messages.
type streamer struct {
	ctx    context.Context
	api    gpb.GNMIClient
	form   Form
	schema *yang.Schema
	events chan event
	bytes  *semaphore.Weighted // limits the bytes of messages in events
	work   sync.WaitGroup
}

// open starts a stream.
func (m *streamer) open(g *group, parts []*part, bit uint64) *stream {
	st := &stream{group: g, source: source{bit: bit}}
	for _, p := range parts {
		st.subs = append(st.subs, p.subscription())
	}
	ctx, cancel := context.WithCancel(m.ctx)
	st.cancel = cancel
	m.work.Go(func() {
		defer cancel()
		err := m.receive(ctx, st)
		m.pass(ctx, event{stream: st, err: err})
	})
	return st
}

// pass hands an event to the session's goroutine, unless the stream is canceled.
func (m *streamer) pass(ctx context.Context, e event) bool {
	select {
	case m.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// receive receives a stream's messages until it ends.
func (m *streamer) receive(ctx context.Context, st *stream) error {
	call, err := m.api.Subscribe(ctx)
	if err != nil {
		return err
	}
	answered := false
	if err := call.Send(m.request(st)); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for {
		resp, err := call.Recv()
		switch {
		case errors.Is(err, io.EOF) && !answered:
			return status.Error(codes.Unimplemented, "the switch ended the stream without an answer")
		case errors.Is(err, io.EOF):
			return status.Error(codes.Unavailable, "the switch ended the stream")
		case err != nil:
			return err
		}
		answered = true
		size := min(int64(proto.Size(resp)), queueBytes)
		if err := m.bytes.Acquire(ctx, size); err != nil {
			return err
		}
		if !m.pass(ctx, event{stream: st, resp: resp, size: size}) {
			return ctx.Err()
		}
	}
}

func (m *streamer) request(st *stream) *gpb.SubscribeRequest {
	list := &gpb.SubscriptionList{Mode: gpb.SubscriptionList_STREAM, Encoding: m.form.Encoding, Prefix: m.form.Prefix()}
	for _, sub := range st.subs {
		x := &gpb.Subscription{Path: m.form.Path(m.schema, sub.Path)}
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

// encoding selects an encoding that the switch supports; JSON_IETF if it does not implement
// Capabilities, or accepts the connection and does not answer in time.
func (s *Session) encoding(ctx context.Context, conn *grpc.ClientConn) (gpb.Encoding, error) {
	call, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	caps, err := gpb.NewGNMIClient(conn).Capabilities(call, &gpb.CapabilityRequest{}, grpc.WaitForReady(false))
	slow := status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil && conn.GetState() == connectivity.Ready
	if err != nil && endOf(err) == refused || slow {
		return gpb.Encoding_JSON_IETF, nil
	}
	if err != nil {
		return 0, fmt.Errorf("gNMI Capabilities of %s: %w", s.cfg.Address, err)
	}
	for _, e := range encodings {
		if slices.Contains(caps.GetSupportedEncodings(), e) {
			return e, nil
		}
	}
	return gpb.Encoding_JSON, nil
}

// errNoData is wrapped when a switch accepts the subscriptions and sends no value.
var errNoData = errors.New("the switch accepts the subscriptions and sends no value that the collector has a model of")

// session runs one session until it fails or ctx ends. It tries the forms of requests until the
// switch sends values, and begins with the form that worked last.
func (s *Session) session(ctx context.Context) error {
	conn, err := s.cfg.Dial(s.cfg.DialOptions...)
	if err != nil {
		return err
	}
	defer conn.Close()
	api := gpb.NewGNMIClient(conn)
	encoding, err := s.encoding(ctx, conn)
	if err != nil {
		return err
	}
	var refusal error
	var empty *Form // first form whose subscriptions are accepted
	known, proven := s.Form()
	if !proven {
		known.Encoding = encoding
	}
	tried, wrong := map[Form]bool{}, map[gpb.Encoding]bool{}
	try := Forms(known)
	if s.refusals > 0 { // the switch refused all forms: it gets one of them in each session, in turn
		try = try[(s.refusals-1)%len(try):][:1]
		s.refusals++
	}
	for _, f := range try {
		way := f
		switch {
		case f.Encoding == known.Encoding:
		case empty != nil:
			way = *empty
		case !wrong[known.Encoding]: // a path that was refused in one encoding will be refused in another one, too
			way = forms[0]
		}
		way.Encoding = f.Encoding
		if f = way; tried[f] || wrong[f.Encoding] {
			continue
		}
		tried[f] = true
		err := s.follow(ctx, api, f, false)
		switch {
		case EncodingRefused(err) && errors.Is(err, errNotServed):
			wrong[f.Encoding], refusal = true, err
		case errors.Is(err, errNoData):
			if empty == nil {
				empty = &f
			}
		case errors.Is(err, errNotServed):
			refusal = err
		default:
			s.refusals = 0
			return err
		}
		s.log.Debug("device does not answer requests of a form with values", "form", f.String(), "error", err)
	}
	if empty == nil {
		s.mu.Lock()
		s.proven = false // the device may run other software than before
		s.mu.Unlock()
		s.refusals = max(s.refusals, 1)
		return refusal
	}
	s.refusals = 0
	return s.follow(ctx, api, *empty, true)
}

// errNotServed is wrapped when a switch refuses all subscriptions.
var errNotServed = errors.New("the switch serves none of the subscribed paths")

// follow subscribes in one form and processes the messages until the session fails. It fails with
// errNotServed if the switch refuses all subscriptions, and with errNoData if it sends no value:
// at once, or after some time if patient is set.
func (s *Session) follow(ctx context.Context, api gpb.GNMIClient, form Form, patient bool) error {
	ctx, cancel := context.WithCancel(ctx)
	m := &streamer{ctx: ctx, api: api, form: form, schema: s.cfg.Schema(), events: make(chan event, queueLength),
		bytes: semaphore.NewWeighted(queueBytes)}
	defer m.work.Wait()
	defer cancel()
	f := &following{Session: s, streamer: m, patient: patient}
	f.groups = groups{
		open: f.open, shut: f.shut, rested: f.rested, lasting: s.cfg.Lasting, syncTimeout: s.cfg.SyncTimeout,
		tryTimeout: s.cfg.CallTimeout,
		newWait:    func() *backoff.ExponentialBackOff { return newBackOff(s.cfg.BackoffBase, s.cfg.BackoffMax) },
	}
	var parts []*part
	for _, sub := range slices.Concat(factSubscriptions(), s.cfg.Subscriptions) {
		parts = append(parts, &part{Subscription: sub})
	}
	if s.Status().State != NoData {
		s.set(Syncing, nil)
	}
	f.groups.start(parts)
	return f.run(ctx)
}

// following is the state of one call of Session.follow.
type following struct {
	*Session
	streamer *streamer
	groups   groups
	patient  bool
	used     uint64    // bits of streams whose leaves are in the cache
	dead     uint64    // bits of ended streams
	since    time.Time // since when every value has been older than the cached one; zero if newer values arrive
}

func (f *following) open(g *group, parts []*part) *stream {
	if f.used == 1<<64-1 {
		f.sweep()
	}
	bit := ^f.used & (f.used + 1)
	f.used |= bit
	return f.streamer.open(g, parts, bit)
}

func (f *following) shut(st *stream) {
	st.closed = true
	st.cancel()
	f.dead |= st.bit
}

// sweep withdraws the leaves that only ended streams have delivered.
func (f *following) sweep() {
	if f.dead != 0 {
		f.cache.forget(f.dead)
		f.used &^= f.dead
		f.dead = 0
	}
}

// rested logs why a group begins to wait, once for each reason.
func (f *following) rested(g *group) {
	message := map[end]string{
		refused: "device does not serve a path", limited: "device has no stream or subscription left for a path",
		broken: "device ended the stream of a path",
	}[g.cause]
	f.warnOnce(message+g.String(), message+"; trying again later", "path", g.String(), "error", g.err)
}

func (f *following) run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var give <-chan time.Time // ends the wait for the first value
	for {
		next := f.groups.tick(time.Now())
		if f.groups.lost != nil {
			return fmt.Errorf("gNMI of %s: %w", f.cfg.Address, f.groups.lost)
		}
		if f.groups.settled() {
			f.sweep()
		}
		f.publish(f.cache.flush(f.cfg.Now()))
		waits, err := f.judge()
		if err != nil {
			return err
		}
		if waits && give == nil {
			give = time.After(f.wait())
		}
		if at := f.lastsAt(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-give:
			if !f.cache.accepted {
				return errNoData
			}
		case <-timer.C:
		case e := <-f.streamer.events:
			f.take(e)
			f.drain()
		}
	}
}

// drain takes the messages that have arrived, so that they are published together.
func (f *following) drain() {
	for range queueLength {
		select {
		case e := <-f.streamer.events:
			f.take(e)
		default:
			return
		}
	}
}

// judge updates the state of the session. It returns whether the session waits for the first value,
// or why it fails.
func (f *following) judge() (waits bool, err error) {
	missing, example := f.groups.missing()
	f.degraded(missing)
	switch {
	case f.groups.encoding != nil:
		return false, fmt.Errorf("gNMI of %s: %w: %w", f.cfg.Address, errNotServed, f.groups.encoding)
	case f.groups.failed():
		if example.cause == refused {
			return false, fmt.Errorf("gNMI of %s: %w; error for %s: %w", f.cfg.Address, errNotServed, example, example.err)
		}
		return false, fmt.Errorf("gNMI of %s: %s is %s: %w", f.cfg.Address, example, example.cause, example.err)
	case f.groups.serving() == 0 && f.Status().State == Synced:
		f.set(Syncing, nil)
		return false, nil
	case f.groups.serving() == 0 || f.Status().State != Synced && !f.groups.settled():
		if example != nil && f.Status().State == Syncing { // shows the reason while other forms are tried
			f.set(Syncing, fmt.Errorf("%s is %s: %w", example, example.cause, example.err))
		}
		return false, nil
	case !f.cache.accepted && !f.patient:
		return false, errNoData
	case !f.cache.accepted:
		err := errNoData
		if o := f.cache.foreign; o != "" {
			err = fmt.Errorf("%w: its values are of the origin %.100q, which is not OpenConfig's", err, o)
		}
		f.set(NoData, err)
		return true, nil
	}
	if f.since = f.stepped(f.since); !f.since.IsZero() && time.Since(f.since) > clockWait {
		return false, fmt.Errorf("gNMI of %s: for %v all values were older than earlier ones: the device's clock was "+
			"set back", f.cfg.Address, clockWait)
	}
	if f.Status().State != Synced || f.cache.newFacts {
		f.updateFacts()
	}
	var fault error
	if example != nil {
		fault = fmt.Errorf("%d subscriptions have no stream; %s is %s: %w", missing, example, example.cause, example.err)
	}
	f.knows(f.streamer.form)
	f.set(Synced, fault)
	if at := f.lastsAt(); !at.IsZero() && !at.After(time.Now()) {
		f.steady()
	}
	return false, nil
}

// clockWait is how long a session goes on although every value is older than the cached one,
// because the switch's clock was set back.
const clockWait = time.Minute

// stepped returns since when every value has been older than the cached one; since is the earlier
// result.
func (f *following) stepped(since time.Time) time.Time {
	switch {
	case f.cache.stale == 0:
		return time.Time{}
	case since.IsZero():
		return time.Now()
	}
	return since
}

// wait is how long a switch that serves the subscriptions may take for its first value.
func (f *following) wait() time.Duration {
	wait := f.cfg.BackoffMax
	for _, g := range f.groups.all {
		wait = max(wait, g.quiet())
	}
	return wait
}

// take handles one event: a response of the device, or the end of its stream.
func (f *following) take(e event) {
	if e.resp != nil {
		defer f.streamer.bytes.Release(e.size)
	}
	st, now := e.stream, time.Now()
	if st.closed {
		return
	}
	switch {
	case e.err != nil:
		st.closed = true
		f.dead |= st.bit
		f.groups.ended(st.group, e.err, now)
	case e.resp.GetSyncResponse():
		f.groups.message(st.group, true, false, now)
	default:
		f.handle(e)
		f.groups.message(st.group, false, st.samples(e.resp.GetUpdate()), now)
	}
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
func (f *following) handle(e event) {
	n := e.resp.GetUpdate()
	if n == nil {
		return
	}
	stop := func() bool { return f.streamer.ctx.Err() != nil }
	f.count(f.cache.apply(f.cfg.Schema(), n, e.stream.source, f.cfg.Now(), stop, f.dropped))
}

// dropped logs a dropped leaf, once for each path. Leaves without a model are common.
func (f *following) dropped(leaf string, err error) {
	if errors.Is(err, yang.ErrUnknownPath) {
		f.logOnce(slog.LevelDebug, "leaf"+leaf, "dropped a leaf without a model", "leaf", leaf, "error", err)
		return
	}
	f.logOnce(slog.LevelWarn, "leaf"+leaf, "dropped an invalid value", "leaf", leaf, "error", err)
}
