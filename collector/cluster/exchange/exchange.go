// SPDX-License-Identifier: Apache-2.0

// Package exchange carries measurements and results from one collector of a cluster to the others:
//
//	engine ─ HandOver ─▶ part ─▶ NATS, acknowledged ─▶ Source ─▶ engine of the plugin's home
//	store ─ Tap ─▶ results ─▶ stream with the newest ─▶ stores of all collectors
//	analysis ─ Keep ─▶ object store of JetStream ─ State ─▶ the plugin's next home
//	analysis ─ Watch ─▶ key-value bucket ─ Watched ─▶ plugins, which report the rows
//	analysis ─ Query ─▶ NATS request ─ Answer ─▶ the plugin at its home
//
// The home of a plugin is the collector that analyzes its epochs. Each collector sends every other
// home at most one part per epoch, with the registers that the plugins there read, or with merged
// registers for plugins that merge the cells of several devices. A part that does not arrive by the
// deadline of the epoch is of no use, so it is not stored: the epoch is partial.
//
// # Concurrency
//
// Methods of Component may be called from any goroutine. Stop waits for all goroutines.
package exchange

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

// Config configures a Component.
type Config struct {
	// Member is the name of this collector.
	Member string
	// MaxPart bounds the cells and reports of a part in bytes; 256 MiB if 0.
	MaxPart int
	// MaxResults bounds the stream of results in bytes; 256 MiB if 0.
	MaxResults int64
	// AckTimeout bounds the wait for the acknowledgement of a part; a second if 0.
	AckTimeout time.Duration
}

// Dependencies are what New needs from its caller. All but Logger are required.
type Dependencies struct {
	Bus    *bus.Bus
	Logger *slog.Logger
	Store  *store.Store
	// Validate checks a table against the schema.
	Validate func(*table.Table) error
	// View returns the membership.
	View func() cluster.View
	// Wanted returns the registers that each plugin reads, by plugin and device.
	Wanted func() map[string]map[string]map[string]bool
	// Merge returns the registers that a plugin reads as it merges them, for the devices in Expected;
	// nil if it does not.
	Merge func(ctx context.Context, plugin string, ep *epoch.Epoch) (*sdk.Epoch, error)
	// Answer answers a query for a row of a plugin here. The code identifies the error.
	Answer func(ctx context.Context, plugin string, row sdk.RowKey) (tables []sdk.TableResult, epoch uint64,
		code string, err error)
	// Late receives the reports of hosts of other collectors on epochs that were delivered without
	// them. It returns false if it drops the report.
	Late func(sdk.LateReport) bool
	// OnWatched is called when the rows that subscribers of other collectors watch have changed. It
	// must not block.
	OnWatched func()
}

// Stats are the counters of the exchange since the start.
type Stats struct {
	// PartsSent counts parts that were acknowledged, PartsFailed parts that were not. PartBytesSent
	// counts the bytes of parts on the bus.
	PartsSent, PartsFailed, PartBytesSent uint64
	// PartsReceived counts accepted parts. PartsRepeated counts parts of an epoch of which the
	// collector had sent a part before, PartsLate parts that arrived after the delivery of their
	// epoch, PartsRefused parts that cannot be read or come from an unknown collector, and
	// PartsDeposed parts from a collector that had lost its lease.
	PartsReceived, PartBytesReceived                     uint64
	PartsRepeated, PartsLate, PartsRefused, PartsDeposed uint64
	// SourcesDropped counts readings of devices and hosts that another collector had delivered
	// already, or that came from a collector that does not own the device or host.
	SourcesDropped uint64
	// BatchesSent and BatchesReceived count sets of results that became visible. BatchesFailed counts
	// sets that could not be sent; the next epoch replaces them. BatchesRefused counts sets that could
	// not be read or published, BatchesOld sets older than the published results.
	BatchesSent, BatchesFailed, BatchBytesSent, BatchesReceived, BatchesRefused, BatchesOld uint64
	// StatesFailed counts states of plugins that could not be stored or read.
	StatesFailed uint64
}

// counters are the atomic form of Stats.
type counters struct {
	partsSent, partsFailed, partBytesSent, partsReceived, partBytesReceived, partsRepeated, partsLate, partsRefused,
	partsDeposed, sourcesDropped, batchesSent, batchesFailed, batchBytesSent, batchesReceived, batchesRefused, batchesOld,
	statesFailed atomic.Uint64
}

// Component is the exchange of one collector.
type Component struct {
	cfg  Config
	deps Dependencies
	log  *slog.Logger
	n    counters

	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	work   sync.WaitGroup

	begun     uint64        // number of the first transfer: a time, so that it grows over restarts
	transfers atomic.Uint64 // number of the newest transfer

	outbox  chan *epoch.Epoch
	inbox   inbox
	results results
	states  states
	watches watches

	mu     sync.Mutex
	faults map[string]string // reasons of the failures that were logged, by operation
}

// New returns a component that exchanges nothing before Start.
func New(cfg Config, deps Dependencies) *Component {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxPart == 0 {
		cfg.MaxPart = 256 << 20
	}
	if cfg.MaxResults == 0 {
		cfg.MaxResults = 256 << 20
	}
	if cfg.AckTimeout == 0 {
		cfg.AckTimeout = time.Second
	}
	c := &Component{cfg: cfg, deps: deps, log: deps.Logger, outbox: make(chan *epoch.Epoch, 2),
		faults: map[string]string{}}
	c.inbox.init()
	c.results.newest = map[string]origin{}
	c.states.next, c.states.wake = map[string]kept{}, make(chan struct{}, 1)
	c.watches.others, c.watches.wake = map[string][]store.Watch{}, make(chan struct{}, 1)
	c.begun = uint64(time.Now().UnixMicro())
	c.transfers.Store(c.begun)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start begins to exchange. NATS may be away.
func (c *Component) Start() error {
	sub, err := c.deps.Bus.Conn().SubscribeSync(c.deps.Bus.Subject("part", c.cfg.Member))
	if err == nil {
		err = sub.SetPendingLimits(-1, 2*c.cfg.MaxPart)
	}
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	queries, err := c.deps.Bus.Conn().SubscribeSync(c.deps.Bus.Subject("query", c.cfg.Member))
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	tap := c.deps.Store.Tap(tapBatches)
	c.work.Go(func() { c.receiveParts(sub) })
	c.work.Go(c.sendParts)
	c.work.Go(func() { c.sendResults(tap) })
	c.work.Go(c.receiveResults)
	c.work.Go(c.storeStates)
	c.work.Go(func() { c.answerQueries(queries) })
	c.work.Go(c.followWatches)
	return nil
}

// Stop ends the exchange.
func (c *Component) Stop() {
	c.cancel()
	c.work.Wait()
}

// Stats returns the counters since the start.
func (c *Component) Stats() Stats {
	n := &c.n
	return Stats{
		PartsSent: n.partsSent.Load(), PartsFailed: n.partsFailed.Load(), PartBytesSent: n.partBytesSent.Load(),
		PartsReceived: n.partsReceived.Load(), PartBytesReceived: n.partBytesReceived.Load(),
		PartsRepeated: n.partsRepeated.Load(), PartsLate: n.partsLate.Load(), PartsRefused: n.partsRefused.Load(),
		PartsDeposed: n.partsDeposed.Load(), SourcesDropped: n.sourcesDropped.Load(),
		BatchesSent: n.batchesSent.Load(), BatchesFailed: n.batchesFailed.Load(), BatchBytesSent: n.batchBytesSent.Load(),
		BatchesReceived: n.batchesReceived.Load(), BatchesRefused: n.batchesRefused.Load(), BatchesOld: n.batchesOld.Load(),
		StatesFailed: n.statesFailed.Load(),
	}
}

// note logs when an operation begins to fail, fails for another reason, and works again.
func (c *Component) note(what string, err error) {
	if c.ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before, failing := c.faults[what]
	switch {
	case err == nil && failing:
		delete(c.faults, what)
		c.log.Info("cluster: " + what + " are exchanged again")
	case err != nil && before != err.Error():
		c.faults[what] = err.Error()
		if !failing {
			c.log.Warn("cluster: "+what+" are not exchanged", "error", err)
		}
	}
}

// pause waits before a further attempt; false if the component stops.
func (c *Component) pause() bool {
	select {
	case <-time.After(retryEvery):
		return true
	case <-c.ctx.Done():
		return false
	}
}

// retryEvery is the time between attempts while NATS is away.
const retryEvery = 500 * time.Millisecond
