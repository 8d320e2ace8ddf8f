// SPDX-License-Identifier: Apache-2.0

// Package plans carries what plugins plan from their home to the collectors that own the devices
// and hosts:
//
//	intent at the home ─ Apply ─▶ request to the owner ─▶ intent there ─▶ switch
//	                   ◀─ result ─ reply
//	intent at the home ─ Settings ─▶ bucket with the newest of each plugin ─▶ intents of all
//	intent at the owner of a host ─ Outcome ─▶ intent at the home
//	intent at the owner ─ Store ─▶ bucket with the entries of each device ─ Take ─▶ the next owner
//
// An owner takes the parts of a plan only from the member that is the plugin's home in its own
// view, and keeps what undoes them for undoTime.
//
// # Concurrency
//
// Methods of Component may be called from any goroutine. Stop waits for all goroutines.
package plans

import (
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
)

const (
	// maxWrites bounds the parts that are written at the same time, and maxMessage the bytes of one
	// that is not compressed.
	maxWrites  = 64
	maxMessage = 32 << 20
	// undoTime is how long a part can be undone.
	undoTime = 30 * time.Second
	// maxOwners bounds the collectors that a part is sent to, while its device moves between them.
	maxOwners = 3
	// defaultTimeout bounds a part if the caller has no deadline.
	defaultTimeout = 5 * time.Second
	// presence is how often a request that waits looks whether the owner is still there. The device of
	// an owner that is gone takes no other write before the request ends.
	presence = 50 * time.Millisecond
)

var errGone = errors.New("it cannot be reached any more")

// Dependencies are what New needs from its caller. All but Logger and Epoch are
// required.
type Dependencies struct {
	Bus    *bus.Bus
	Logger *slog.Logger
	// Member is the name of this collector, and View the membership.
	Member string
	View   func() cluster.View
	// Incarnation identifies this start of the collector.
	Incarnation string
	// Epoch returns the number of the open epoch; nil: plugins do not move at epochs.
	Epoch func() uint64
	// Write writes a part to a device of this collector; see intent.Component.Write.
	Write func(ctx context.Context, device string, updates []p4rt.Update) (undo func(context.Context) error, err error)
	// Settings takes the settings of hosts that a plugin planned at another collector.
	Settings func(ctx context.Context, plugin string, plan sdk.Plan)
	// Outcome takes the outcome of a setting at a host of another collector; false: it is sent again
	// later.
	Outcome func(intent.HostOutcome) bool
}

// Component sends and takes plans.
type Component struct {
	deps   Dependencies
	log    *slog.Logger
	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	work   sync.WaitGroup
	places chan struct{} // taken by parts that are being written
	number atomic.Uint64 // number of the newest request

	mu       sync.Mutex
	stopped  bool            // whether new requests are refused
	undos    map[string]undo // undos, by member and number of the request
	settings map[string]kept
	changed  chan struct{} // settings have changed
	outcomes map[outcomeKey]intent.HostOutcome
	reported chan struct{} // signals new outcomes

	settingsOf, entriesOf bucket
	known                 map[string]known  // entries known to this member, by device
	faults                map[string]string // reasons of failures to share, by subject
	entriesFailed         atomic.Uint64
}

// undo undoes a part that was written.
type undo struct {
	do func(context.Context) error
	at time.Time
}

// New returns a component that takes nothing before Start.
func New(deps Dependencies) *Component {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Component{deps: deps, log: deps.Logger, places: make(chan struct{}, maxWrites), undos: map[string]undo{},
		settings: map[string]kept{}, changed: make(chan struct{}, 1),
		outcomes: map[outcomeKey]intent.HostOutcome{}, reported: make(chan struct{}, 1),
		settingsOf: bucket{name: "settings", holds: "newest settings of hosts by plugin"},
		entriesOf:  bucket{name: "entries", holds: "entries of plans by device"},
		known:      map[string]known{}, faults: map[string]string{}}
	c.number.Store(uint64(time.Now().UnixNano())) // a restarted collector repeats no number
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start begins to take plans of other members.
func (c *Component) Start() error {
	_, err := c.deps.Bus.Conn().Subscribe(c.deps.Bus.Subject("plan", c.deps.Member), c.receive)
	if err == nil {
		_, err = c.deps.Bus.Conn().Subscribe(c.deps.Bus.Subject("outcome", c.deps.Member), c.takeOutcome)
	}
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	c.work.Go(c.sendOutcomes)
	c.work.Go(c.shareSettings)
	c.work.Go(c.takeSettings)
	return nil
}

// Stop ends writes in progress.
func (c *Component) Stop() {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.cancel()
	c.work.Wait()
}

// Ready returns why the owner of a device cannot write to it.
func (c *Component) Ready(owner string) error {
	v := c.deps.View()
	if !v.Leased || !v.Present(owner) {
		return fmt.Errorf("%w: collector %s of the cluster cannot be reached", p4rt.ErrNotReady, owner)
	}
	return nil
}

// movedError says that an owner does not write because another collector has the device.
type movedError struct {
	error
	to string
}

// Unwrap returns the reason.
func (e *movedError) Unwrap() error { return e.error }

// Apply makes the owner of a device write a part of a plan, as a whole or not at all. While the
// device moves, that is the collector which has it. undo reverts it. An error wraps
// p4rt.ErrNotReady if nothing was sent to the switch because it is away, and
// intent.ErrPartiallyApplied if it may hold some of the entries.
func (c *Component) Apply(ctx context.Context, plugin, owner, device string, updates []p4rt.Update) (
	undo func(context.Context) error, err error,
) {
	if err := c.Ready(owner); err != nil {
		return nil, err
	}
	r := &clusterv1.PlanRequest{From: c.deps.Member, Number: c.number.Add(1), Plugin: plugin, Device: device,
		Updates: each(updates, updateProto)}
	for asked := 1; ; asked++ {
		err := c.send(ctx, owner, r)
		var moved *movedError
		if errors.As(err, &moved) && asked < maxOwners && c.Ready(moved.to) == nil {
			owner = moved.to
			continue
		}
		if err != nil {
			return nil, err
		}
		break
	}
	return func(ctx context.Context) error {
		r.Undo, r.Updates = true, nil
		return c.send(ctx, owner, r)
	}, nil
}

// send sends a request and waits for the reply.
func (c *Component) send(ctx context.Context, owner string, r *clusterv1.PlanRequest) error {
	timeout := defaultTimeout
	if end, ok := ctx.Deadline(); ok {
		timeout = time.Until(end)
	}
	r.TimeoutNs = int64(timeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	data, err := encode(r)
	if limit := c.deps.Bus.Conn().MaxPayload(); err == nil && limit > 0 && int64(len(data)) > limit {
		err = fmt.Errorf("the part has %d bytes, and the NATS server takes %d: raise its max_payload", len(data), limit)
	}
	if err != nil {
		return fmt.Errorf("a plan for collector %s: %w", owner, err)
	}
	ctx, leave := context.WithCancelCause(ctx)
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		for c.Ready(owner) == nil {
			select {
			case <-time.After(presence):
			case <-ctx.Done():
				return
			}
		}
		leave(errGone)
	}()
	m, err := c.deps.Bus.Conn().RequestWithContext(ctx, c.deps.Bus.Subject("plan", owner), data)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	leave(nil)
	<-waits
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, nats.ErrReconnectBufExceeded):
		return fmt.Errorf("%w: collector %s of the cluster: %w", p4rt.ErrNotReady, owner, err)
	case err != nil: // the request may have arrived
		return fmt.Errorf("%w: collector %s of the cluster: %w", intent.ErrPartiallyApplied, owner, err)
	}
	var x clusterv1.PlanReply
	if err := clusterv1.Unmarshal(m.Data, &x); err != nil {
		return fmt.Errorf("%w: collector %s of the cluster: %w", intent.ErrPartiallyApplied, owner, err)
	}
	switch {
	case x.GetError() == "":
		return nil
	case x.GetPartial():
		return fmt.Errorf("%w: collector %s: %s", intent.ErrPartiallyApplied, owner, x.GetError())
	case x.GetNotReady():
		err := fmt.Errorf("%w: collector %s: %s", p4rt.ErrNotReady, owner, x.GetError())
		if x.GetOwner() != "" && x.GetOwner() != c.deps.Member {
			err = &movedError{err, x.GetOwner()}
		}
		return err
	}
	return fmt.Errorf("collector %s: %s", owner, x.GetError())
}

// receive takes a request of another member.
func (c *Component) receive(m *nats.Msg) {
	arrived := time.Now()
	select {
	case c.places <- struct{}{}:
	default:
		c.respond(m, &clusterv1.PlanReply{NotReady: true,
			Error: fmt.Sprintf("%d parts of plans are being written", maxWrites)})
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	c.work.Go(func() {
		defer func() { <-c.places }()
		r, err := decodeRequest(m.Data)
		if err != nil {
			c.respond(m, &clusterv1.PlanReply{Error: "the request cannot be read: " + err.Error()})
			return
		}
		ctx, cancel := context.WithDeadline(c.ctx, arrived.Add(time.Duration(r.GetTimeoutNs())))
		defer cancel()
		c.respond(m, c.take(ctx, r))
	})
}

func (c *Component) respond(m *nats.Msg, reply proto.Message) {
	data, err := proto.Marshal(reply)
	if err == nil {
		err = m.Respond(data)
	}
	if err != nil && c.ctx.Err() == nil {
		c.log.Warn("cluster: a request was not answered", "error", err)
	}
}

// take writes or undoes a part.
func (c *Component) take(ctx context.Context, r *clusterv1.PlanRequest) *clusterv1.PlanReply {
	view := c.deps.View()
	if home := view.Plugin(r.GetPlugin()); home != r.GetFrom() && !c.wasHome(view, r.GetPlugin(), r.GetFrom()) {
		return &clusterv1.PlanReply{NotReady: true, Error: fmt.Sprintf("plugin %s is at home at %q, and the plan is from %q",
			r.GetPlugin(), home, r.GetFrom())}
	}
	key := r.GetFrom() + " " + strconv.FormatUint(r.GetNumber(), 10)
	if r.GetUndo() {
		c.mu.Lock()
		u, ok := c.undos[key]
		delete(c.undos, key)
		c.mu.Unlock()
		if !ok {
			return &clusterv1.PlanReply{Error: "it is too late to undo the plan", Partial: true}
		}
		return c.result(u.do(ctx))
	}
	revert, err := c.deps.Write(ctx, r.GetDevice(), each(r.GetUpdates(), updateFrom))
	if err != nil {
		return c.result(err)
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, u := range c.undos {
		if now.Sub(u.at) > undoTime {
			delete(c.undos, k)
		}
	}
	c.undos[key] = undo{revert, now}
	return &clusterv1.PlanReply{}
}

// wasHome reports whether a member analyzes the newest epochs of a plugin that moves.
func (c *Component) wasHome(view cluster.View, plugin, member string) bool {
	if c.deps.Epoch == nil {
		return false
	}
	open := c.deps.Epoch()
	return view.In(open).Plugin(plugin) == member || open > 0 && view.In(open-1).Plugin(plugin) == member
}

func (c *Component) result(err error) *clusterv1.PlanReply {
	if err == nil {
		return &clusterv1.PlanReply{}
	}
	reply := &clusterv1.PlanReply{Error: err.Error(), Partial: errors.Is(err, intent.ErrPartiallyApplied),
		NotReady: errors.Is(err, p4rt.ErrNotReady)}
	var foreign *intent.ForeignError
	if errors.As(err, &foreign) {
		reply.Owner = foreign.Owner
	}
	return reply
}

// encode compresses a message of at most maxMessage bytes: names of tables and fields repeat.
func encode(message proto.Message) ([]byte, error) {
	text, err := proto.Marshal(message)
	if err == nil && len(text) > maxMessage {
		err = fmt.Errorf("%d bytes; at most %d are shared", len(text), maxMessage)
	}
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err == nil {
		_, err = w.Write(text)
		err = errors.Join(err, w.Close())
	}
	return b.Bytes(), err
}

// decode reads a message of at most maxMessage bytes.
func decode(data []byte, message proto.Message) error {
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(data)), maxMessage+1))
	switch {
	case err != nil:
		return err
	case len(text) > maxMessage:
		return fmt.Errorf("more than %d bytes", maxMessage)
	}
	return clusterv1.Unmarshal(text, message)
}

// decodeRequest reads a request.
func decodeRequest(data []byte) (*clusterv1.PlanRequest, error) {
	r := &clusterv1.PlanRequest{}
	if err := decode(data, r); err != nil {
		return nil, err
	}
	if r.GetFrom() == "" || r.GetPlugin() == "" || r.GetDevice() == "" || r.GetTimeoutNs() <= 0 {
		return nil, fmt.Errorf("from %q, plugin %q, device %q and timeout %v; expected all of them", r.GetFrom(),
			r.GetPlugin(), r.GetDevice(), time.Duration(r.GetTimeoutNs()))
	}
	return r, nil
}
