// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang"
)

// settleTime is how long Discovery waits for further changes after a change before it acts. Later
// changes do not prolong it, because a port that goes up and down may never come to rest.
const settleTime = 200 * time.Millisecond

// Dependencies are what New needs from its caller. Schema, Publish, Certificates and Exclusive are
// required.
type Dependencies struct {
	// Schema returns the current schema: leaves outside of it are dropped and counted.
	Schema func() *yang.Schema
	// Publish passes a batch to the store.
	Publish func(store.Batch) error
	// Certificates loads the certificates of sessions.
	Certificates *certs.Store
	// Exclusive runs f unless the configuration is being changed or the collector stops, and reports
	// whether f ran. The methods of Network are called within f.
	Exclusive func(f func()) bool
	// OnChange, when set, is called when a session or a link has changed. It must not block.
	OnChange func()
	// OnSync, when set, is called when a switch has sent its values in its first session, and again
	// in each session after a lost one. It must not block.
	OnSync func(device string)
	// Logger receives changes; nil disables logging.
	Logger *slog.Logger
}

// Network receives discovered links and device ids.
type Network interface {
	// Add replaces a device whose device-id its gNMI server reported.
	Add(config.Device) error
	// SetTopology replaces the topology, whenever discovered links or disabled ports have changed.
	SetTopology(*topology.Topology)
}

// Discovery owns the gNMI sessions of all switches, and discovers their device ids and links.
// Create it with New.
type Discovery struct {
	deps    Dependencies
	network Network
	log     *slog.Logger
	ctx     context.Context // context of the sessions
	cancel  context.CancelFunc
	work    sync.WaitGroup
	wake    chan struct{}
	opened  chan struct{} // closed when the sessions of the configuration are open

	mu         sync.Mutex
	cfg        *config.Config
	sessions   map[string]*Session
	identified map[string]bool // switches whose device id was reported to the network
	links      []Link          // result of the latest comparison
	added      []topology.Link // discovered links that are part of the topology
	// disabled are the ports that routes do not use, because their switches report them as disabled.
	disabled map[topology.Port]bool
	acted    map[string]uint64 // by switch: Number of the facts that are part of the topology
	// peers are the switches at the other ends of ports, also where LLDP no longer reports the link
	peers    map[topology.Port]string
	problems map[string]string // by subject: the problem that was logged last
}

// New returns a Discovery of the configured switches. An error names every switch whose gNMI
// section cannot work.
func New(cfg *config.Config, deps Dependencies) (*Discovery, error) {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Discovery{
		deps: deps, log: deps.Logger, cfg: cfg, wake: make(chan struct{}, 1), opened: make(chan struct{}),
		sessions: map[string]*Session{}, identified: map[string]bool{}, problems: map[string]string{},
		peers: map[topology.Port]string{}, acted: map[string]uint64{},
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	if base, err := topology.Of(cfg); err == nil { // the network's own check reports the error
		d.learn(Links(base, nil))
	}
	return d, d.Check(cfg.Devices)
}

// SetNetwork sets what receives discovered ids and links. Call it before Start.
func (d *Discovery) SetNetwork(n Network) { d.network = n }

// Check fails if the gNMI section of a switch cannot work. The error names every such switch.
func (d *Discovery) Check(devices []config.Device) error {
	var errs []error
	for _, dev := range devices {
		_, err := d.sessionConfig(dev)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// CheckSessions subscribes to every switch that has a gNMI section, all at the same time. The error
// names each one that sends no values before ctx ends, and the reason.
func (d *Discovery) CheckSessions(ctx context.Context) error {
	devices := d.config().Devices
	errs := make([]error, len(devices))
	var work sync.WaitGroup
	for i, dev := range devices {
		sc, err := d.sessionConfig(dev)
		if err != nil || sc == nil {
			errs[i] = err
			continue
		}
		sc.Logger = nil
		work.Go(func() { errs[i] = Check(ctx, *sc) })
	}
	work.Wait()
	return errors.Join(errs...)
}

// sessionConfig translates the configuration of a switch; nil if it has no gNMI session.
func (d *Discovery) sessionConfig(dev config.Device) (*SessionConfig, error) {
	g := dev.GNMI
	if g.Address == "" {
		return nil, nil
	}
	endpoint, err := EndpointOf(dev, d.deps.Certificates)
	if err != nil {
		return nil, err
	}
	sc := &SessionConfig{
		Name: dev.Name, Endpoint: endpoint, CallTimeout: dev.Timeout,
		Schema: d.deps.Schema, Publish: d.deps.Publish, Logger: d.log,
	}
	synced := false
	sc.OnChange = func(s *Session) {
		was := synced
		if synced = s.Status().State == Synced; synced && !was && d.deps.OnSync != nil {
			d.deps.OnSync(s.Name())
		}
		d.changed()
	}
	for _, sub := range g.Subscriptions {
		p, err := sub.ParsePath()
		if err != nil {
			return nil, fmt.Errorf("device %s: gnmi: %w", dev.Name, err)
		}
		x := Subscription{Path: p, Mode: Mode(sub.Mode)}
		if x.Mode == Sample {
			x.SampleInterval = sub.SampleInterval
		}
		sc.Subscriptions = append(sc.Subscriptions, x)
	}
	return sc, nil
}

// Start opens the sessions and follows their changes until Stop. A switch whose session cannot be
// opened is logged.
func (d *Discovery) Start() {
	for _, dev := range d.config().Devices {
		if err := d.add(dev); err != nil {
			d.log.Error("no gNMI session", "device", dev.Name, "error", err)
		}
	}
	close(d.opened)
	d.work.Go(d.follow)
	d.changed() // links of the configuration need no session
}

// Stop closes all sessions, withdraws their published leaves, and waits.
func (d *Discovery) Stop() {
	d.cancel()
	for _, s := range d.all() {
		s.Close()
	}
	d.work.Wait()
}

// Reload applies a changed configuration: it opens and closes sessions. The errors of switches
// whose session cannot be opened are joined.
func (d *Discovery) Reload(next *config.Config, changes config.Changes) error {
	d.mu.Lock()
	d.cfg = next
	d.mu.Unlock()
	for _, name := range changes.DevicesRemoved {
		d.remove(name)
	}
	for _, dev := range changes.DevicesChanged {
		d.remove(dev.Name)
	}
	var errs []error
	for _, dev := range slices.Concat(changes.DevicesChanged, changes.DevicesAdded) {
		errs = append(errs, d.add(dev))
	}
	d.changed()
	return errors.Join(errs...)
}

// add opens the session of a switch that has one.
func (d *Discovery) add(dev config.Device) error {
	sc, err := d.sessionConfig(dev)
	if err != nil || sc == nil {
		return err
	}
	s, err := NewSession(*sc)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.sessions[dev.Name] = s
	d.mu.Unlock()
	s.Start(d.ctx)
	return nil
}

// remove closes the session of a switch.
func (d *Discovery) remove(name string) {
	d.mu.Lock()
	s := d.sessions[name]
	delete(d.sessions, name)
	delete(d.identified, name)
	delete(d.acted, name)
	d.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

func (d *Discovery) config() *config.Config {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cfg
}

// all returns the sessions, sorted by name.
func (d *Discovery) all() []*Session {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]*Session, 0, len(d.sessions))
	for _, s := range d.sessions {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *Session) int { return strings.Compare(a.Name(), b.Name()) })
	return out
}

// Session returns the session of a switch, or nil.
func (d *Discovery) Session(name string) *Session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sessions[name]
}

// Form returns the form of requests in which a switch sends values, and false if that is not known.
func (d *Discovery) Form(name string) (Form, bool) {
	if s := d.Session(name); s != nil {
		return s.Form()
	}
	return Form{}, false
}

// PortName returns the interface name of a switch's P4Runtime port, "" if it is not known.
func (d *Discovery) PortName(name string, number uint32) string {
	if s := d.Session(name); s != nil {
		for _, p := range s.Facts().Ports {
			if p.ID == number {
				return p.Name
			}
		}
	}
	return ""
}

// Isolated reports whether no packet of a switch can reach another switch: the neighbors report the
// ports of all its links as down, as they do when it is off. If a neighbor has no session, the
// neighbor's other neighbors decide.
func (d *Discovery) Isolated(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen, down := map[string]bool{name: true}, false
	for next := []string{name}; len(next) > 0; next = next[1:] {
		for port, peer := range d.peers {
			if peer != next[0] || seen[port.Switch] {
				continue
			}
			s := d.sessions[port.Switch]
			if s == nil || s.Status().State != Synced {
				seen[port.Switch] = true
				next = append(next, port.Switch)
				continue
			}
			facts := s.Facts()
			i := slices.IndexFunc(facts.Ports, func(p Port) bool { return p.ID == port.Number })
			if i < 0 || !facts.Ports[i].Down {
				return false
			}
			down = true
		}
	}
	return down
}

// Links returns both ends of all links as of the latest comparison, sorted by port. The result must
// not be changed.
func (d *Discovery) Links() []Link {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.links
}

// changed wakes follow.
func (d *Discovery) changed() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
	d.notify()
}

func (d *Discovery) notify() {
	if d.deps.OnChange != nil {
		d.deps.OnChange()
	}
}

// follow acts on changes until Stop.
func (d *Discovery) follow() {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	pending := false // the timer runs
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-d.wake:
			if !pending {
				timer.Reset(settleTime)
			}
			pending = true
		case <-timer.C:
			pending = false
			if !d.deps.Exclusive(d.act) { // waiting for a reload could block: the reload may wait for this goroutine
				timer.Reset(settleTime)
				pending = true
			}
		}
	}
}

// act updates device ids, links and the topology from the facts of all switches.
func (d *Discovery) act() {
	if d.ctx.Err() != nil {
		return
	}
	cfg := d.config()
	facts := map[string]Facts{}
	for _, s := range d.all() {
		facts[s.Name()] = s.Facts()
	}
	d.identify(cfg, facts)
	defer d.taken(facts)
	base, err := topology.Of(cfg)
	if err != nil {
		d.warn("topology", "no topology can be built from the configuration", err.Error())
		return
	}
	links := Links(base, facts)
	d.logLinks(links)
	added, disabled := discoveredLinks(base, links), disabledPorts(cfg, facts)
	d.mu.Lock()
	changed := !slices.Equal(d.added, added) || !maps.Equal(d.disabled, disabled)
	d.links, d.added, d.disabled = links, added, disabled
	d.learn(links)
	d.mu.Unlock()
	if changed {
		d.rebuild(cfg)
	}
	d.notify()
}

// disabledPorts returns the ports that their switches report as disabled. A port whose switch does
// not report its number has the number of the configuration.
func disabledPorts(cfg *config.Config, facts map[string]Facts) map[topology.Port]bool {
	out := map[topology.Port]bool{}
	for _, dev := range cfg.Devices {
		numbers := map[string]uint32{}
		for _, p := range dev.GNMI.Ports {
			numbers[p.Interface] = p.Number
		}
		for _, p := range facts[dev.Name].Ports {
			if number := cmp.Or(p.ID, numbers[p.Name]); p.Disabled && number != 0 {
				out[topology.Port{Switch: dev.Name, Number: number}] = true
			}
		}
	}
	return out
}

// taken records that the facts of switches are part of the topology.
func (d *Discovery) taken(facts map[string]Facts) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, f := range facts {
		d.acted[name] = f.Number
	}
}

// Known waits until the ports of a switch are part of the topology, so that routes do not use those
// that are disabled. It returns if the switch has no session after Start, or cannot be read, and at
// the latest when ctx ends.
func (d *Discovery) Known(ctx context.Context, name string) {
	select {
	case <-ctx.Done():
		return
	case <-d.opened:
	}
	tick := time.NewTicker(settleTime / 4)
	defer tick.Stop()
	for {
		s := d.Session(name)
		if s == nil {
			return
		}
		st, facts := s.Status(), s.Facts().Number
		d.mu.Lock()
		known := facts > 0 && d.acted[name] >= facts
		d.mu.Unlock()
		if known || (st.State == Down || st.State == NoData) && st.LastError != "" {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// learn remembers the switch at the other end of each link. The caller holds d.mu, unless no other
// goroutine uses d yet.
func (d *Discovery) learn(links []Link) {
	for _, l := range links {
		d.peers[l.Port] = cmp.Or(l.Discovered.Switch, l.Configured.Switch)
	}
}

// discoveredLinks returns the discovered links that can extend a topology: configured ports keep
// their configured links, and a port has one peer.
func discoveredLinks(base *topology.Topology, links []Link) []topology.Link {
	var out []topology.Link
	used := map[topology.Port]bool{}
	for _, l := range links {
		_, from := base.Peer(l.Port)
		_, to := base.Peer(l.Discovered)
		if l.Status == Discovered && !from && !to && !used[l.Port] && !used[l.Discovered] {
			used[l.Port], used[l.Discovered] = true, true
			out = append(out, topology.Link{A: l.Port, B: l.Discovered})
		}
	}
	return out
}

// Topology returns the topology of a configuration, extended by the discovered links. Its routes do
// not use disabled ports.
func (d *Discovery) Topology(cfg *config.Config) (*topology.Topology, error) {
	d.mu.Lock()
	disabled := d.disabled
	d.mu.Unlock()
	topo, err := d.linked(cfg)
	if err != nil {
		return nil, err
	}
	return topo.Avoiding(disabled), nil
}

// linked returns the topology of a configuration, extended by the discovered links.
func (d *Discovery) linked(cfg *config.Config) (*topology.Topology, error) {
	d.mu.Lock()
	added := slices.Clone(d.added)
	d.mu.Unlock()
	base, err := topology.Of(cfg)
	if err != nil || len(added) == 0 {
		return base, err
	}
	added = slices.DeleteFunc(added, func(l topology.Link) bool {
		_, a := base.Peer(l.A)
		_, b := base.Peer(l.B)
		_, from := base.Switch(l.A.Switch)
		_, to := base.Switch(l.B.Switch)
		return a || b || !from || !to
	})
	topo, err := topology.Of(cfg, added...)
	if err != nil { // the ends of a link report different peers
		d.warn("topology", "the links that LLDP reports contradict each other; using the configured topology",
			err.Error())
		return base, nil
	}
	return topo, nil
}

// rebuild reports the topology with the current links.
func (d *Discovery) rebuild(cfg *config.Config) {
	topo, err := d.Topology(cfg)
	if err != nil {
		return // act has already built the topology from the same configuration
	}
	d.network.SetTopology(topo)
	d.mu.Lock()
	disabled := len(d.disabled)
	d.mu.Unlock()
	d.log.Info("links or disabled ports have changed the routes", "links", len(topo.Links()), "disabled-ports", disabled)
}

// identify reports device ids that are not configured, and compares configured ids with the
// reported ones.
func (d *Discovery) identify(cfg *config.Config, facts map[string]Facts) {
	for _, dev := range cfg.Devices {
		f := facts[dev.Name]
		subject := "device-id of " + dev.Name
		d.mu.Lock()
		done := d.identified[dev.Name]
		d.mu.Unlock()
		switch {
		case f.Number == 0 || done:
		case dev.DeviceID != 0 && len(f.DeviceIDs) > 0 && !slices.Contains(f.DeviceIDs, dev.DeviceID):
			d.warn(subject, "configured device-id differs from the reported one",
				fmt.Sprintf("device %s: configured %d, reported %v", dev.Name, dev.DeviceID, f.DeviceIDs))
		case dev.DeviceID != 0:
		case len(f.DeviceIDs) != 1:
			d.warn(subject, "device-id cannot be discovered; set it in the configuration",
				fmt.Sprintf("device %s reports %v", dev.Name, f.DeviceIDs))
		default:
			dev.DeviceID = f.DeviceIDs[0]
			if err := d.network.Add(dev); err != nil {
				d.warn(subject, "device cannot be used", err.Error())
				continue
			}
			d.mu.Lock()
			d.identified[dev.Name] = true
			d.mu.Unlock()
			d.log.Info("device-id discovered", "device", dev.Name, "device-id", dev.DeviceID)
		}
	}
}

// logLinks logs links that no longer match the configuration, or match it again.
func (d *Discovery) logLinks(links []Link) {
	for _, l := range links {
		subject := "link at " + l.Port.String()
		switch l.Status {
		case Mismatch:
			d.warn(subject, "LLDP reports another peer than configured",
				fmt.Sprintf("%s: configured %s, discovered %s", l.Port, l.Configured, l.Discovered))
		case Missing:
			d.warn(subject, "LLDP does not report a configured link",
				fmt.Sprintf("%s: configured %s", l.Port, l.Configured))
		case Confirmed:
			d.mu.Lock()
			_, logged := d.problems[subject]
			delete(d.problems, subject)
			d.mu.Unlock()
			if logged {
				d.log.Info("link matches the configuration again", "port", l.Port.String(), "peer",
					l.Configured.String())
			}
		}
	}
}

// warn logs a problem unless it was the last one logged for the subject.
func (d *Discovery) warn(subject, message, detail string) {
	d.mu.Lock()
	logged := d.problems[subject] == detail
	d.problems[subject] = detail
	d.mu.Unlock()
	if !logged {
		d.log.Warn(message, "detail", detail)
	}
}
