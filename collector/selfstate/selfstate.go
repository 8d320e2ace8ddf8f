// SPDX-License-Identifier: Apache-2.0

// Package selfstate publishes the collector's own configuration and state: under
// /netsketch-collector:collector in the store, from which all outputs serve it, and as Prometheus
// metrics. It also answers /healthz and /readyz.
//
//	Status of components ─▶ ygot structs (declare.go) ─▶ tables (tables.go) ─▶ store ─▶ outputs
//	                                                                             └────▶ /metrics
//
// Each leaf is declared once, as a field of a struct that ygot generates from module
// netsketch-collector, so the compiler checks names and types. Everything else, paths, columns and
// metric names, is derived. To add a leaf: add it to the module, run "make generate", and set the
// field in declare.go.
//
// # Concurrency
//
// Methods of Component and Server may be called from any goroutine. Component has one goroutine;
// Stop waits for it.
package selfstate

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/analysis"
	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/cluster/exchange"
	"github.com/netsketch/netsketch/collector/devconfig"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/host"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/collector/network"
	"github.com/netsketch/netsketch/collector/schema"
	"github.com/netsketch/netsketch/collector/southbound"
	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang/bindings"
	"github.com/netsketch/netsketch/yang/table"
)

// Root is the schema path under which the collector publishes its configuration and state.
const Root = "/netsketch-collector:collector"

// Topology is the schema path under which the collector publishes the network.
const Topology = "/netsketch-topology:topology"

// Config configures a Component.
type Config struct {
	// Enabled publishes configuration and state.
	Enabled bool
	// Version is the version of the program.
	Version string
}

// Dependencies are the components whose state is published. All are required but Cluster.
type Dependencies struct {
	Clock  epoch.Clock
	Logger *slog.Logger
	Store  *store.Store
	Schema *schema.Registry
	// Config returns the current configuration.
	Config func() *config.Config
	// Reloads returns the outcome of the latest reload.
	Reloads   func() config.ReloadStatus
	Network   *network.Component
	Hosts     *host.Component
	Discovery *southbound.Discovery
	Devconfig *devconfig.Component
	Intent    *intent.Component
	Analysis  *analysis.Component
	// Certificates holds the certificates of all sessions and outputs.
	Certificates *certs.Store
	// Cluster returns the collector's state in its cluster, or nil before the start. The field is
	// nil if the collector is in no cluster.
	Cluster func() *Cluster
}

// Cluster is the state of the collector in its cluster.
type Cluster struct {
	View     cluster.View
	Exchange exchange.Stats
	cluster.Counts
}

// Component publishes the collector's configuration and state with each epoch and after changes.
// Create it with New.
type Component struct {
	cfg     Config
	deps    Dependencies
	started time.Time
	wake    chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup

	mu     sync.Mutex // held during a publication
	tables flattener
	// settings are the config leaves of the configuration in configured.
	settings   *bindings.Collector
	configured *config.Config
	epochs     map[epoch.Status]uint64
	devices    map[string]deviceEpochs // epochs of devices and hosts, whose names never collide
	published  map[string]*table.Table // newest tables in the store, by list
	repeated   uint64                  // number of the epoch with which settings and network were published last
	failed     bool                    // a publication failed, and the failure was logged
	outputs    func() Outputs          // nil without outputs
}

// Outputs is the state of the outputs.
type Outputs struct {
	ByName map[string]*bindings.Collector_Output
	// Streams is the number of open gNMI subscriptions.
	Streams int
	// FirstUpdate is the time from the end of the newest delivered epoch to its first update; 0 if
	// there was none.
	FirstUpdate time.Duration
}

// deviceEpochs counts the epochs of a device or host.
type deviceEpochs struct {
	complete, lost uint64
	last           uint64 // the newest complete epoch; 0 if there is none
}

// New returns a component that is not started.
func New(cfg Config, deps Dependencies) *Component {
	c := &Component{
		cfg: cfg, deps: deps, started: time.Now(), wake: make(chan struct{}, 1), epochs: map[epoch.Status]uint64{},
		devices: map[string]deviceEpochs{}, published: map[string]*table.Table{},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start publishes the state now and after each change until Stop.
func (c *Component) Start() {
	c.work.Go(func() {
		for {
			select {
			case <-c.wake:
				c.mu.Lock()
				c.publish(c.deps.Clock.Now(), nil)
				c.mu.Unlock()
			case <-c.ctx.Done():
				return
			}
		}
	})
	c.Changed()
}

// Stop ends the publication of changes.
func (c *Component) Stop() {
	c.cancel()
	c.work.Wait()
}

// Changed requests that the changed tables be published. It does not block.
func (c *Component) Changed() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// ObserveOutputs sets the function that returns the state of the outputs. f must not block.
func (c *Component) ObserveOutputs(f func() Outputs) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outputs = f
}

// Report counts an epoch and publishes the state with it.
func (c *Component) Report(r *analysis.Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epochs[r.Status]++
	c.epochs[epoch.Lost] += r.Skipped
	for _, reports := range [][]analysis.DeviceReport{r.Devices, r.Hosts} {
		for i := range reports {
			n := c.devices[reports[i].Name]
			if reports[i].Err != nil {
				n.lost++
			} else {
				n.complete++
				n.last = r.Number
			}
			c.devices[reports[i].Name] = n
		}
	}
	c.publish(r.End, r)
}

// repeatEvery is the number of epochs after which settings and network are published again, so that
// an output that started later, or a database that lost its data, gets them too.
const repeatEvery = 60

// publish writes the current state to the store. With a report, it publishes everything, settings
// and network only if they have changed or were published repeatEvery epochs ago. If r is nil, it
// publishes only the tables that have changed. The caller holds c.mu.
func (c *Component) publish(at time.Time, r *analysis.Report) {
	if !c.cfg.Enabled {
		return
	}
	var outputs Outputs
	if c.outputs != nil {
		outputs = c.outputs()
	}
	cfg := c.deps.Config()
	b := store.Batch{Time: at, Own: true}
	state := c.state(cfg, r, outputs)
	if r != nil {
		b.Epoch = r.Number
		state.Epoch = epochState(r, outputs)
	}
	if c.configured != cfg {
		c.configured, c.settings = cfg, configuration(cfg)
	}
	tables, err := c.tables.publications(Root, state, c.settings)
	if err != nil {
		c.fail(err)
		return
	}
	leaves, err := c.leaves(cfg)
	if err != nil {
		c.fail(err)
		return
	}
	network, err := c.network()
	if err != nil {
		c.fail(err)
		return
	}
	repeat := r != nil && (c.repeated == 0 || r.Number >= c.repeated+repeatEvery)
	for _, p := range slices.Concat(tables, network, []store.Publication{leaves}) {
		unchanged := reflect.DeepEqual(p.Table, c.published[p.Table.List])
		lasts := p.Table.List == Root+"/config" || strings.HasPrefix(p.Table.List, Topology)
		if unchanged && (r == nil || lasts && !repeat) {
			continue
		}
		if !unchanged {
			if err := c.deps.Schema.Validate(p.Table); err != nil {
				c.fail(err)
				continue
			}
		}
		b.Tables = append(b.Tables, p)
	}
	if len(b.Tables) == 0 {
		return
	}
	if err := c.deps.Store.Publish(b); err != nil {
		if !errors.Is(err, store.ErrClosed) {
			c.fail(err)
		}
		return
	}
	if repeat {
		c.repeated = r.Number
	}
	for _, p := range b.Tables {
		c.published[p.Table.List] = p.Table
	}
}

// fail logs the first state that cannot be published, which is a defect of this package or of the
// module.
func (c *Component) fail(err error) {
	if !c.failed {
		c.failed = true
		c.deps.Logger.Error("the collector's own state cannot be published", "error", err)
	}
}
