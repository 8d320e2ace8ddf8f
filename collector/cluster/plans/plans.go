// SPDX-License-Identifier: Apache-2.0

// Package plans shares, in key-value buckets of JetStream, what plugins plan, and what is written:
//
//	intent at the home ─ Share ─▶ bucket with the plans of each member ─▶ intents of all
//	intent at the home ─ Settings ─▶ bucket with the settings of each plugin ─▶ intents of all
//	intent at the owner of a device or host ─ Outcome ─▶ intent at the home
//	intent at the owner ─ Store ─▶ bucket with the entries of each device ─ Take ─▶ the next owner
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
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// maxMessage bounds the bytes of a value that is not compressed.
const maxMessage = 32 << 20

// retryEvery is the time between attempts while NATS is away, and callTimeout bounds one of them.
const (
	retryEvery  = 500 * time.Millisecond
	callTimeout = 2 * time.Second
)

var errTooLarge = errors.New("it is too large")

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
	// Epoch returns the number of the open epoch. Without Epoch, plugins do not move at epochs.
	Epoch func() uint64
	// Follow takes the plans of another member; see intent.Component.Follow.
	Follow func(ctx context.Context, member string, plans []intent.SharedPlan)
	// FollowHosts takes the settings of hosts that a plugin planned at another collector.
	FollowHosts func(plugin string, plan sdk.Plan)
	// Outcome takes an outcome of another collector. It returns false if the outcome must be sent
	// again later.
	Outcome func(intent.Outcome) bool
}

// Component shares plans. Create it with New.
type Component struct {
	deps   Dependencies
	log    *slog.Logger
	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	plans    []*clusterv1.StoredPlan // plans of this member that are not concluded
	written  bool                    // the bucket has the plans
	split    *clusterv1.Split        // place of the plans, if they do not fit one value
	settings map[string]keptSettings
	changed  chan struct{} // plans or settings have changed
	outcomes map[outcomeKey]intent.Outcome
	reported chan struct{} // there are new outcomes

	plansOf, entriesOf bucket
	known              map[string]known  // by device
	faults             map[string]string // why something is not shared
	entriesFailed      atomic.Uint64
}

// New returns a component that takes nothing before Start.
func New(deps Dependencies) *Component {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Component{deps: deps, log: deps.Logger, settings: map[string]keptSettings{},
		changed: make(chan struct{}, 1), outcomes: map[outcomeKey]intent.Outcome{}, reported: make(chan struct{}, 1),
		plansOf:   bucket{name: "plans", holds: "plans by member, and settings of hosts by plugin"},
		entriesOf: bucket{name: "entries", holds: "entries of plans by device"},
		known:     map[string]known{}, faults: map[string]string{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start begins to share the plans of this member, and to take the plans of the other members.
func (c *Component) Start() error {
	_, err := c.deps.Bus.Conn().Subscribe(c.deps.Bus.Subject("outcome", c.deps.Member), c.takeOutcome)
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	c.work.Go(c.sendOutcomes)
	c.work.Go(c.sharePlans)
	c.signal() // removes the plans of an earlier start
	c.work.Go(c.takePlans)
	return nil
}

// Stop ends the sharing of plans.
func (c *Component) Stop() {
	c.cancel()
	c.work.Wait()
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

// encode compresses a message of at most maxMessage bytes: names of tables and fields repeat.
func encode(message proto.Message) ([]byte, error) {
	text, err := proto.Marshal(message)
	if err == nil && len(text) > maxMessage {
		err = fmt.Errorf("%w: %d bytes; at most %d are shared", errTooLarge, len(text), maxMessage)
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
