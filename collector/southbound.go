// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/config"
	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/southbound"
	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// listLinks is where links are published.
const listLinks = "/netsketch-collector:collector/links/link"

// settling is how long discovery waits for more news before it acts on some.
const settling = 200 * time.Millisecond

// discovery holds the switches' gNMI sessions, and makes the network's model follow what
// they tell.
type discovery struct {
	c    *Collector
	wake chan struct{}

	mu       sync.Mutex
	sessions map[string]*southbound.Session
	links    []southbound.Link
	added    []topology.Link   // that are in the model because LLDP tells of them
	said     map[string]string // by what it is about: what was logged of it last
}

func newDiscovery(c *Collector) *discovery {
	return &discovery{c: c, wake: make(chan struct{}, 1), sessions: map[string]*southbound.Session{}, said: map[string]string{}}
}

// gnmiConfig translates the configuration of a switch; nil when it has no gNMI session.
func (c *Collector) gnmiConfig(d config.Device) (*southbound.Config, error) {
	if d.GNMI.Address == "" {
		return nil, nil
	}
	g := d.GNMI
	sc := &southbound.Config{
		Name: d.Name, Address: g.Address, Username: g.Username, Password: g.Password.Reveal(), CallTimeout: d.Timeout,
		Schema: func() *yang.Schema { return c.schema.current() }, Publish: c.store.Publish, Logger: c.log,
		OnChange: func(*southbound.Session) {
			c.discovery.changed()
			c.metrics.changed()
		},
	}
	if !g.TLS.Plaintext {
		var err error
		if sc.TLS, err = device.TLS(g.TLS.CAFile, g.TLS.CertFile, g.TLS.KeyFile, g.TLS.ServerName); err != nil {
			return nil, fmt.Errorf("device %s: gnmi: %w", d.Name, err)
		}
	}
	for _, sub := range g.Subscriptions {
		p, err := sub.ParsePath()
		if err != nil {
			return nil, fmt.Errorf("device %s: gnmi: %w", d.Name, err)
		}
		x := southbound.Subscription{Path: p, Mode: southbound.Mode(sub.Mode)}
		if x.Mode == southbound.Sample {
			x.SampleInterval = sub.SampleInterval
		}
		sc.Subscriptions = append(sc.Subscriptions, x)
	}
	return sc, nil
}

// add begins the gNMI session of a switch that has one.
func (y *discovery) add(d config.Device) error {
	sc, err := y.c.gnmiConfig(d)
	if err != nil || sc == nil {
		return err
	}
	s, err := southbound.New(*sc)
	if err != nil {
		return err
	}
	y.mu.Lock()
	y.sessions[d.Name] = s
	y.mu.Unlock()
	s.Start(y.c.ctx)
	return nil
}

// remove ends the gNMI session of a switch and takes back what it published.
func (y *discovery) remove(name string) {
	y.mu.Lock()
	s := y.sessions[name]
	delete(y.sessions, name)
	y.mu.Unlock()
	if s != nil {
		s.Close()
		y.changed()
	}
}

func (y *discovery) close() {
	for _, s := range y.all() {
		s.Close()
	}
}

// all lists the sessions by name.
func (y *discovery) all() []*southbound.Session {
	y.mu.Lock()
	defer y.mu.Unlock()
	out := make([]*southbound.Session, 0, len(y.sessions))
	for _, s := range y.sessions {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *southbound.Session) int { return strings.Compare(a.Name(), b.Name()) })
	return out
}

func (y *discovery) session(name string) *southbound.Session {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.sessions[name]
}

// portName is what a switch calls a port; empty when it has not told.
func (y *discovery) portName(name string, number uint32) string {
	if s := y.session(name); s != nil {
		for _, p := range s.Facts().Ports {
			if p.ID == number {
				return p.Name
			}
		}
	}
	return ""
}

// changed says that there is news.
func (y *discovery) changed() {
	select {
	case y.wake <- struct{}{}:
	default:
	}
}

// follow acts on news until the collector stops.
func (y *discovery) follow() {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-y.c.ctx.Done():
			return
		case <-y.wake:
			timer.Reset(settling)
		case <-timer.C:
			// A reload, or the end, must not be waited for: Stop waits for this goroutine.
			if !y.c.reloading.TryLock() {
				timer.Reset(settling)
				continue
			}
			if !y.c.stopped {
				y.act()
			}
			y.c.reloading.Unlock()
		}
	}
}

// act brings devices and topology in line with what is known. c.reloading is held.
func (y *discovery) act() {
	cfg := y.c.Config()
	facts := map[string]southbound.Facts{}
	for _, s := range y.all() {
		facts[s.Name()] = s.Facts()
	}
	y.identify(cfg, facts)
	base, err := cfg.Topology()
	if err != nil {
		y.say("topology", "the network cannot be modelled", err.Error())
		return
	}
	links := southbound.Links(base, facts)
	y.report(links)
	y.mu.Lock()
	y.links = links
	before := y.added
	y.added = nil
	used := map[topology.Port]bool{}
	for _, l := range links {
		_, from := base.Peer(l.Port)
		_, to := base.Peer(l.Discovered)
		// A port of the configuration stays as it is configured, and a port has one peer.
		if l.Status == southbound.Discovered && !from && !to && !used[l.Port] && !used[l.Discovered] {
			used[l.Port], used[l.Discovered] = true, true
			y.added = append(y.added, topology.Link{A: l.Port, B: l.Discovered})
		}
	}
	same := slices.Equal(before, y.added)
	y.mu.Unlock()
	if !same {
		y.model(cfg)
	}
	y.c.metrics.changed()
}

// topology is the network that a configuration describes, with what LLDP adds to it.
func (y *discovery) topology(cfg *config.Config) (*topology.Topology, error) {
	y.mu.Lock()
	added := slices.Clone(y.added)
	y.mu.Unlock()
	base, err := cfg.Topology()
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
	topo, err := cfg.Topology(added...)
	if err != nil { // two ends hear different things: what is configured is sure
		y.say("topology", "what LLDP tells makes no network; the configured one is used", err.Error())
		return base, nil
	}
	return topo, nil
}

// model makes the topology of now the one in use.
func (y *discovery) model(cfg *config.Config) {
	topo, err := y.topology(cfg)
	if err != nil {
		return
	}
	c := y.c
	c.mu.Lock()
	c.topo = topo
	c.version++
	c.mu.Unlock()
	for _, m := range c.managedDevices() {
		if err := m.SetRoutes(c.ctx, topo.Routes(m.Name())); err != nil && c.ctx.Err() == nil {
			c.log.Error("routes over discovered links", "device", m.Name(), "error", err)
		}
	}
	c.plugins.setNetwork(c.ctx)
	c.log.Info("the network has changed by what LLDP tells", "links", len(topo.Links()))
}

// identify begins the P4Runtime sessions of switches whose device id had to be asked for,
// and compares that of the others.
func (y *discovery) identify(cfg *config.Config, facts map[string]southbound.Facts) {
	for _, d := range cfg.Devices {
		f := facts[d.Name]
		about := "device-id of " + d.Name
		switch {
		case f.Number == 0:
		case d.DeviceID != 0 && len(f.DeviceIDs) > 0 && !slices.Contains(f.DeviceIDs, d.DeviceID):
			y.say(about, "device states another device-id than is configured", fmt.Sprintf("device %s: %d is configured, it states %v", d.Name, d.DeviceID, f.DeviceIDs))
		case d.DeviceID != 0 || y.c.device(d.Name) != nil:
		case len(f.DeviceIDs) != 1:
			y.say(about, "device-id cannot be discovered; give it in the configuration", fmt.Sprintf("device %s states %v", d.Name, f.DeviceIDs))
		default:
			d.DeviceID = f.DeviceIDs[0]
			if err := y.c.addDevice(d); err != nil {
				y.say(about, "device cannot be used", err.Error())
				continue
			}
			y.c.log.Info("device-id discovered", "device", d.Name, "device-id", d.DeviceID)
			y.c.plugins.setNetwork(y.c.ctx)
			y.c.bindAll()
			y.c.startDevice(y.c.device(d.Name))
		}
	}
}

// report logs links whose status has become bad, or good again.
func (y *discovery) report(links []southbound.Link) {
	for _, l := range links {
		about := "link at " + l.Port.String()
		switch l.Status {
		case southbound.Mismatch:
			y.say(about, "LLDP tells of another link than is configured", fmt.Sprintf("%s is configured to lead to %s, and leads to %s", l.Port, l.Configured, l.Discovered))
		case southbound.Missing:
			y.say(about, "LLDP does not tell of a configured link", fmt.Sprintf("%s is configured to lead to %s", l.Port, l.Configured))
		case southbound.Confirmed:
			y.mu.Lock()
			_, bad := y.said[about]
			delete(y.said, about)
			y.mu.Unlock()
			if bad {
				y.c.log.Info("link is as configured again", "port", l.Port.String(), "peer", l.Configured.String())
			}
		}
	}
}

// say logs a problem when it is not the one that was logged last.
func (y *discovery) say(about, message, detail string) {
	y.mu.Lock()
	known := y.said[about] == detail
	y.said[about] = detail
	y.mu.Unlock()
	if !known {
		y.c.log.Warn(message, "detail", detail)
	}
}

// pending lists switches whose device id has to be asked for and is not known.
func (y *discovery) pending() []config.Device {
	var out []config.Device
	for _, d := range y.c.Config().Devices {
		if d.DeviceID == 0 && y.c.device(d.Name) == nil {
			out = append(out, d)
		}
	}
	return out
}

// errNoID is why a switch is not measured.
var errNoID = errors.New("its device-id is not configured, and its gNMI server has not told it")

// gnmiColumns are the columns of a device's gNMI session.
type gnmiColumns struct {
	y                            *discovery
	address, connection, failure *table.TextAppender
	counts                       [5]*table.UintAppender
	ports, neighbors, deviceID   *table.UintAppender
}

func (y *discovery) columns(b *table.Builder) *gnmiColumns {
	g := &gnmiColumns{y: y, address: b.Text("gnmi/state/address"), connection: b.Text("gnmi/state/connection"), failure: b.Text("gnmi/state/last-error")}
	for i, name := range []string{"reconnects", "notifications", "updates", "updates-unknown", "updates-refused"} {
		g.counts[i] = b.Uint("gnmi/state/" + name)
	}
	g.ports, g.neighbors, g.deviceID = b.Uint("gnmi/state/ports"), b.Uint("gnmi/state/neighbors"), b.Uint("gnmi/state/device-id")
	return g
}

// append adds a device's row.
func (g *gnmiColumns) append(name string) {
	s := g.y.session(name)
	if s == nil {
		for _, c := range []interface{ AppendNull() }{g.address, g.connection, g.failure, g.ports, g.neighbors, g.deviceID} {
			c.AppendNull()
		}
		for _, c := range g.counts {
			c.AppendNull()
		}
		return
	}
	st, f := s.Status(), s.Facts()
	g.address.Append(s.Address())
	g.connection.Append(string(st.State))
	g.failure.Append(oneLine(st.LastError))
	for i, v := range []uint64{st.Reconnects, st.Notifications, st.Updates, st.Unknown, st.Refused} {
		g.counts[i].Append(v)
	}
	ports := 0
	for _, p := range f.Ports {
		if p.ID != 0 {
			ports++
		}
	}
	g.ports.Append(uint64(ports))
	g.neighbors.Append(uint64(len(f.Neighbors)))
	if len(f.DeviceIDs) > 0 {
		g.deviceID.Append(f.DeviceIDs[0])
	} else {
		g.deviceID.AppendNull()
	}
}

// table makes the rows of links.
func (y *discovery) table() *table.Builder {
	y.mu.Lock()
	links := y.links
	y.mu.Unlock()
	b := table.NewBuilder(listLinks)
	port, status := b.TextKey("port"), b.Text("state/status")
	configured, discovered := b.Text("state/peer-configured"), b.Text("state/peer-discovered")
	end := func(c *table.TextAppender, p topology.Port) {
		if p == (topology.Port{}) {
			c.AppendNull()
			return
		}
		c.Append(p.String())
	}
	for _, l := range links {
		port.Append(l.Port.String())
		status.Append(string(l.Status))
		end(configured, l.Configured)
		end(discovered, l.Discovered)
	}
	return b
}
