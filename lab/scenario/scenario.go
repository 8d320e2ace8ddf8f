// SPDX-License-Identifier: Apache-2.0

// Package scenario reads and plays scenario files: topology, traffic over time,
// faults, algorithms, and the errors that results must stay under, all in one YAML
// file. The demo, tests and a figure use them.
//
// Load reports everything that is wrong in a file at once, with line and key. Open
// builds the network, starts a collector against it as a user would (a generated
// configuration, P4Runtime and gNMI over TCP), and Run plays the traffic epoch by
// epoch, reads the results back over gNMI and compares them with the ground truth.
package scenario

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/lab"
	"github.com/netsketch/netsketch/lab/scenario/scoring"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/settings/yaml"
	"github.com/netsketch/netsketch/yang"
)

// Scenario is a whole file.
type Scenario struct {
	// Name is a short name of the scenario.
	Name string `yaml:"name"`
	// Summary describes the scenario in one line.
	Summary string `yaml:"summary"`
	// Notes are texts for the page of the scenario's figures.
	Notes string `yaml:"notes"`
	// Seed makes traffic, losses and hashing the same in every run.
	Seed uint64 `yaml:"seed"`
	// Epochs is how many epochs are played; 0 plays until interrupted.
	Epochs int `yaml:"epochs"`
	// Epoch is the length of an epoch.
	Epoch time.Duration `yaml:"epoch"`
	// Program is the compiled P4 program the switches run: a name, or the .json file that p4c wrote,
	// relative to the scenario's file.
	Program string `yaml:"program"`
	// Programs names the programs of single switches, by switch name or by role (edge, transit).
	Programs map[string]string `yaml:"programs"`
	// Guard is the time between the flips and the read-out; the collector's own when 0.
	Guard time.Duration `yaml:"guard"`
	// Drain is the further delay before egress counters are read; the
	// collector's own when 0.
	Drain time.Duration `yaml:"drain"`
	// Deadline counts from an epoch's end until all must have been read; the collector's own when
	// 0.
	Deadline time.Duration `yaml:"deadline"`
	// ScoreEvery is the distance of epochs that are read and scored, for long runs; 0: every epoch.
	// The status of all epochs is reported.
	ScoreEvery int `yaml:"score-every"`
	// WarmUp is the number of epochs at the beginning that are played and not scored, such as those
	// before plugins have configured switches.
	WarmUp int `yaml:"warm-up"`
	// Watch is the number of flows of the first epoch whose sizes are requested and scored.
	Watch int `yaml:"watch"`
	// Topology is the network.
	Topology Topology `yaml:"topology"`
	// Traffic lists the components of the traffic that hosts send, each with its own start and end.
	Traffic []Component `yaml:"traffic"`
	// Faults happen to links and switches.
	Faults []Fault `yaml:"faults"`
	// Agents are the roles of the agents that run on every host (omnimon, sketchint, lightguardian,
	// univmon, or the path of an agent's program with a role of its own); none by default. With agents
	// a host has one address of each family.
	Agents []string `yaml:"agents"`
	// Unconfigured are switches that start without a P4Runtime device id and without numbers of ports:
	// the collector sets these over gNMI.
	Unconfigured []string `yaml:"unconfigured"`
	// Receiver is the host whose agent receives telemetry reports instead of packets. Only this agent
	// measures.
	Receiver string `yaml:"receiver"`
	// Algorithms are the plugins, each as the collector's configuration has it (plugins.instances).
	// The path of a binary is relative to the scenario's file.
	Algorithms []settings.Section `yaml:"algorithms"`
	// Scoring declares how the results of plugins of one's own are scored.
	Scoring []scoring.Scoring `yaml:"scoring"`
	// Outputs are further outputs of the collector, as its configuration has them; gNMI is always
	// on.
	Outputs []config.Output `yaml:"outputs"`
	// Expect are the bounds that results must keep.
	Expect []Bound `yaml:"expect"`
	// Story is a text that explains the scenario to a person.
	Story []Event `yaml:"story"`
	// Loop states the changes if the scenario is played until interrupted.
	Loop Loop `yaml:"loop"`

	looping bool             // the scenario is played until interrupted: PlayOn
	dir     string           // of the scenario's file; "": paths are relative to the working directory
	section settings.Section // the file, for the places of errors
}

// Event is a part of the traffic or a fault that a person can follow.
type Event struct {
	// Of is the name of the component, or the link of the fault.
	Of string `yaml:"of"`
	// Text describes the event in a few words.
	Text string `yaml:"text"`
	// Look is the gNMI path of a list that shows it.
	Look string `yaml:"look"`
}

// Loop lets people follow a scenario that is played until interrupted.
type Loop struct {
	// Repeat is the time after which traffic and faults begin anew; 0 never repeats them.
	Repeat time.Duration `yaml:"repeat"`
	// Times are other times of components and faults, by the names of events.
	Times map[string]Times `yaml:"times"`
}

// Times are when a component or fault begins and ends, as its own from and until.
type Times struct {
	From  time.Duration `yaml:"from"`
	Until time.Duration `yaml:"until"`
}

// times returns where the times of an event are; nil if there is no component or fault of the name.
func (s *Scenario) times(of string) (from, until *time.Duration) {
	for i := range s.Traffic {
		if c := &s.Traffic[i]; c.Name == of {
			return &c.From, &c.Until
		}
	}
	for i := range s.Faults {
		if x := &s.Faults[i]; x.Link == of {
			return &x.From, &x.Until
		}
	}
	return nil, nil
}

// PlayOn makes the scenario one that is played until interrupted: without end, and with the times
// of loop.
func (s *Scenario) PlayOn() {
	s.Epochs, s.looping = 0, true
	for of, t := range s.Loop.Times {
		if from, until := s.times(of); from != nil {
			*from, *until = t.From, t.Until
		}
	}
}

// repeat returns after how long traffic and faults begin anew; 0 if they do not.
func (s *Scenario) repeat() time.Duration {
	if !s.looping {
		return 0
	}
	return s.Loop.Repeat
}

// checkStory checks story and loop.
func (s *Scenario) checkStory(errs *settings.KeyErrors) {
	for i, e := range s.Story {
		key := fmt.Sprintf("story[%d]", i)
		if from, _ := s.times(e.Of); from == nil {
			errs.Add(key, "of: no component and no link of a fault is called %q", e.Of)
		}
		if _, err := yang.ParsePath(e.Look); err != nil || e.Look == "" {
			errs.Add(key, "look: expected the gNMI path of a list; found %q", e.Look)
		}
	}
	if s.Loop.Repeat < 0 || s.Loop.Repeat%s.Epoch != 0 {
		errs.Add("loop", "repeat: expected a multiple of the epoch, %v; found %v", s.Epoch, s.Loop.Repeat)
	}
	for _, of := range slices.Sorted(maps.Keys(s.Loop.Times)) {
		t := s.Loop.Times[of]
		if from, _ := s.times(of); from == nil {
			errs.Add("loop", "times: no component and no link of a fault is called %q", of)
		}
		if t.From < 0 || t.From >= t.Until || s.Loop.Repeat > 0 && t.Until >= s.Loop.Repeat {
			errs.Add("loop", "times: expected from before until, and both before repeat; found %v and %v of %s", t.From,
				t.Until, of)
		}
	}
	for i, x := range s.Faults {
		if s.Loop.Repeat > 0 && (x.Until == 0 || x.Until >= s.Loop.Repeat) {
			errs.Add(fmt.Sprintf("faults[%d]", i), "until: expected an end before the scenario begins anew, after %v",
				s.Loop.Repeat)
		}
	}
}

// SetDefaults sets the defaults of absent keys.
func (s *Scenario) SetDefaults() {
	*s = Scenario{Seed: 1, Epoch: time.Second, Program: "univmon"}
	s.Topology.SetDefaults()
}

// Topology describes the network.
type Topology struct {
	// Kind is leaf-spine, fat-tree or graph.
	Kind string `yaml:"kind"`
	// Leaves is the number of leaf switches of a leaf-spine network.
	Leaves int `yaml:"leaves"`
	// Spines is the number of its spine switches.
	Spines int `yaml:"spines"`
	// HostsPerLeaf is the number of hosts at each leaf, or at each switch of a graph.
	HostsPerLeaf int `yaml:"hosts-per-leaf"`
	// K is the arity of a fat tree: k pods of k/2 edge and k/2 aggregation switches.
	K int `yaml:"k"`
	// Pods is the number of pods of a fat tree; 0: all.
	Pods int `yaml:"pods"`
	// Cores is the number of core switches of a fat tree, a multiple of k/2; 0: all (k/2)².
	Cores int `yaml:"cores"`
	// Links are the links of a graph, such as CHCG-CLEV: the names of two switches, which contain no
	// hyphens.
	Links []string `yaml:"links"`
	// Latency is the latency of every link between switches.
	Latency time.Duration `yaml:"latency"`
	// Loss is the share of packets every link between switches loses, 0 to 1.
	Loss float64 `yaml:"loss"`
	// QueueRate is the packets a second that leave each port of a switch; 0: they leave at once.
	QueueRate uint64 `yaml:"queue-rate"`
	// QueueDepth bounds the packets that wait at a port; 64 when 0.
	QueueDepth int `yaml:"queue-depth"`
}

// SetDefaults is the smallest network with a choice of paths.
func (t *Topology) SetDefaults() {
	*t = Topology{Kind: "leaf-spine", Leaves: 2, Spines: 2, HostsPerLeaf: 2, K: 4, Latency: 10 * time.Microsecond}
}

// Component is one part of the traffic.
type Component struct {
	// Name is the component's name in errors.
	Name string `yaml:"name"`
	// Trace replays a capture file (pcap, gzipped or not) instead of generating packets.
	Trace string `yaml:"trace"`
	// Repeat plays the trace again when it ends.
	Repeat bool `yaml:"repeat"`
	// From is when the component begins, counted from the first epoch.
	From time.Duration `yaml:"from"`
	// Until is when it ends; never when 0.
	Until time.Duration `yaml:"until"`
	// Rate is the mean number of packets a second.
	Rate float64 `yaml:"rate"`
	// Exact makes every flow send exactly its number of packets in each epoch, instead of a rate.
	Exact bool `yaml:"exact"`
	// Fresh makes new flows in every epoch. Only for exact flows.
	Fresh bool `yaml:"fresh"`
	// Workload draws flow sizes from a published distribution: dctcp, hadoop, vl2 or cache.
	Workload string `yaml:"workload"`
	// Scale multiplies the sizes of exact flows, and is the size of all if there
	// is no distribution; 1 when 0.
	Scale float64 `yaml:"scale"`
	// MaxPackets is the largest size of an exact flow; no limit when 0.
	MaxPackets int `yaml:"max-packets"`
	// Victims are exact flows that lose packets between the switch where they enter and that where
	// they leave.
	Victims traffic.Victims `yaml:"victims"`
	// Changes are later changes of exact flows; times count from the first epoch.
	Changes []traffic.Change `yaml:"changes"`
	// Flows is the number of flows.
	Flows int `yaml:"flows"`
	// Zipf makes flow sizes fall with their rank to this power; 0 makes all alike.
	Zipf float64 `yaml:"zipf"`
	// CDF draws flow sizes from a cumulative distribution, instead of zipf.
	CDF []traffic.SizePoint `yaml:"cdf"`
	// IPv6 is the share of flows that are IPv6.
	IPv6 float64 `yaml:"ipv6"`
	// UDP is the share of flows that are UDP; the others are TCP.
	UDP float64 `yaml:"udp"`
	// Bytes is the length of each frame.
	Bytes int `yaml:"bytes"`
	// Tunnel puts each packet into a tunnel: ip, gre or vxlan; none when empty.
	Tunnel string `yaml:"tunnel"`
	// Senders are the hosts that send, by name; all when empty.
	Senders []string `yaml:"senders"`
	// Receivers are the hosts that receive, by name; all when empty.
	Receivers []string `yaml:"receivers"`
	// Target is the one destination address of all flows: an attack.
	Target netip.Addr `yaml:"target"`
	// Source is the one source address of all flows: a scan.
	Source netip.Addr `yaml:"source"`
}

// Fault is a temporary failure.
type Fault struct {
	// Link is the link that fails, such as leaf1-spine2.
	Link string `yaml:"link"`
	// Loss is the share of packets lost, 0 to 1.
	Loss float64 `yaml:"loss"`
	// Flows is the share of flows that Loss is about, chosen by a hash of the flow: a grey failure.
	// All when 0.
	Flows float64 `yaml:"flows"`
	// Down takes the link down.
	Down bool `yaml:"down"`
	// Avoid removes the link from the collector's configuration: routes avoid it, while it works.
	Avoid bool `yaml:"avoid"`
	// Switch is the switch that fails permanently, unless Loss, Refuse, Late or To set another fault.
	// With Loss it counts the packets that it loses.
	Switch string `yaml:"switch"`
	// Refuse makes the switch refuse all calls of its controllers, while it forwards packets.
	Refuse bool `yaml:"refuse-calls"`
	// Late is the delay with which the switch flips its bank.
	Late time.Duration `yaml:"late"`
	// To is the host to which the switch has wrong routes, and Via the neighbor that they lead to.
	To  string `yaml:"to"`
	Via string `yaml:"via"`
	// Stall lets packets wait on the link until the end of the fault.
	Stall bool `yaml:"stall"`
	// From is when it begins, counted from the first epoch.
	From time.Duration `yaml:"from"`
	// Host is the host whose agent or clock fails.
	Host string `yaml:"host"`
	// Clock is the time by which the host's clock is ahead of the collector's.
	Clock time.Duration `yaml:"clock"`
	// Kill ends the host's agent with its data path; it starts again at Until, without its earlier
	// measurements.
	Kill bool `yaml:"kill"`
	// Until is when all is as before; never when 0.
	Until time.Duration `yaml:"until"`
}

// Bound is one thing that results must keep.
type Bound struct {
	// Measure names the measure; see Measures.
	Measure string `yaml:"measure"`
	// Algorithm is the plugin with this measure; all that have it when empty.
	Algorithm string `yaml:"algorithm"`
	// Dimension is a flow key (src, dst, 5-tuple); every one that is measured when empty.
	Dimension string `yaml:"dimension"`
	// AtLeast is the lowest value allowed.
	AtLeast *float64 `yaml:"at-least"`
	// AtMost is the highest value allowed.
	AtMost *float64 `yaml:"at-most"`
}

// mostWatched is how many flows a scenario can watch: each at its switch and of the network, on one
// stream.
const mostWatched = 5000

// Load reads a scenario file and applies changes; the error lists every problem with its line.
func Load(path string, changes ...Change) (*Scenario, error) {
	section, err := yaml.Load(path)
	s, err := decode(section, err, changes)
	if err == nil {
		err = s.locate(filepath.Dir(path))
	}
	return s, err
}

// Parse is Load for a text, without environment variables; name stands for the file in errors.
func Parse(name string, data []byte, changes ...Change) (*Scenario, error) {
	section, err := yaml.Section(name, string(data))
	return decode(section, err, changes)
}

// decode makes changes to a section, unless it could not be read.
func decode(section settings.Section, err error, changes []Change) (*Scenario, error) {
	for i := 0; err == nil && i < len(changes); i++ {
		section, err = changes[i].apply(section)
	}
	if err != nil {
		return nil, err
	}
	s := &Scenario{}
	s.SetDefaults()
	if err := section.Decode(s); err != nil {
		return nil, err
	}
	s.section = section
	return s, nil
}

// Validate checks what types cannot express.
func (s *Scenario) Validate() error {
	var errs settings.KeyErrors
	if len(s.Traffic) == 0 {
		errs.Add("traffic", "there is none, so nothing would be measured; expected at least one component")
	}
	if s.Epochs < 0 {
		errs.Add("epochs", "expected 0 or more; found %d", s.Epochs)
	}
	if s.WarmUp < 0 || s.Epochs > 0 && s.WarmUp >= s.Epochs {
		errs.Add("warm-up", "expected 0 or more epochs, and fewer than there are; found %d", s.WarmUp)
	}
	if s.Watch < 0 || s.Watch > mostWatched {
		errs.Add("watch", "expected 0 to %d flows; found %d", mostWatched, s.Watch)
	}
	if s.Epoch < 10*time.Millisecond || s.Epoch > 24*time.Hour {
		errs.Add("epoch", "expected 10ms to 24h; found %v", s.Epoch)
	}
	f, err := s.fabric()
	if err != nil {
		errs.Add("topology", "%v", err)
		return errs.Err()
	}
	for name := range s.Programs {
		if name != string(lab.RoleEdge) && name != string(lab.RoleTransit) && f.Find(name) < 0 {
			errs.Add("programs", "no switch is called %q, and it is no role: edge or transit", name)
		}
	}
	for i, name := range s.Unconfigured {
		if f.Find(name) < 0 || s.avoids() {
			errs.Add(fmt.Sprintf("unconfigured[%d]", i), "expected a switch, in a scenario whose routes avoid no link; "+
				"found %q", name)
		}
	}
	if s.Receiver != "" && (findHost(f, s.Receiver) < 0 || len(s.Agents) == 0) {
		errs.Add("receiver", "expected a host, h1 to h%d, in a scenario with agents; found %q", len(f.Hosts), s.Receiver)
	}
	for i, name := range s.Agents {
		switch plugins := s.plugins(); {
		case slices.Index(s.Agents, name) < i:
			errs.Add(fmt.Sprintf("agents[%d]", i), "%s is there twice; each host runs an agent once", name)
		case isAgentFile(name):
		case hostRoles[name] == nil:
			errs.Add(fmt.Sprintf("agents[%d]", i), "no role is called %q; there are %v, or a path with a slash of an agent's "+
				"program", name, slices.Sorted(maps.Keys(hostRoles)))
		case !slices.Contains(plugins, name) && allScored(plugins):
			errs.Add(fmt.Sprintf("agents[%d]", i), "the plugin %s, which sends the role its settings, is not among the "+
				"algorithms: %v", name, plugins)
		}
	}
	for i, c := range s.Traffic {
		key := fmt.Sprintf("traffic[%d]", i)
		if c.Trace == "" && (!c.Exact && c.Rate <= 0 || c.Flows <= 0) {
			errs.Add(key, "expected a trace, a rate and a number of flows above 0, or exact and a number of flows")
		}
		if c.Rate > traffic.MaxRate {
			errs.Add(key, "expected a rate of at most %d packets a second; found %v", traffic.MaxRate, c.Rate)
		}
		if c.Flows > traffic.MaxFlows {
			errs.Add(key, "expected at most %d flows; found %d", traffic.MaxFlows, c.Flows)
		}
		if err := c.check(s.Epoch); err != nil {
			errs.Add(key, "%v", err)
		}
		for _, h := range slices.Concat(c.Senders, c.Receivers) {
			if findHost(f, h) < 0 {
				errs.Add(key, "no host is called %q; they are h1 to h%d", h, len(f.Hosts))
			}
		}
	}
	for i, x := range s.Faults {
		if err := x.check(s, f); err != nil {
			errs.Add(fmt.Sprintf("faults[%d]", i), "%v", err)
		}
	}
	s.checkStory(&errs)
	s.checkScoring(&errs)
	measures := s.measures()
	for i, b := range s.Expect {
		key := fmt.Sprintf("expect[%d]", i)
		if !slices.Contains(measures, b.Measure) {
			errs.Add(key, "no measure is called %q%s", b.Measure, otherwise(b.Measure, measures))
		}
		if b.AtLeast == nil && b.AtMost == nil {
			errs.Add(key, "expected at-least, at-most or both")
		}
		s.checkBound(&errs, key, &b)
	}
	return errs.Err()
}

// plugins returns the names of the algorithms' plugins.
func (s *Scenario) plugins() (names []string) {
	for _, a := range s.Algorithms {
		if keys, ok := a.Value().(map[string]any); ok {
			name, _ := keys["plugin"].(string)
			names = append(names, name)
		}
	}
	return names
}

// allScored reports whether all plugins are known here; an unknown plugin may use any role.
func allScored(plugins []string) bool {
	for _, a := range Algorithms() {
		plugins = slices.DeleteFunc(slices.Clone(plugins), func(name string) bool { return name == a.Plugin })
	}
	return len(plugins) == 0
}

// check reports conflicting settings.
func (c *Component) check(epoch time.Duration) error {
	if _, err := c.sizes(); err != nil {
		return err
	}
	if c.Tunnel != "" && !slices.Contains(traffic.Tunnels, c.Tunnel) {
		return fmt.Errorf("no tunnel is called %q; expected one of %v", c.Tunnel, traffic.Tunnels)
	}
	if c.Source.IsValid() && (c.Trace != "" || len(c.Senders) != 1 || c.Target.IsValid()) {
		return errors.New("source: name the one host that sends from this address in senders; flows from one source have " +
			"neither a trace nor a target")
	}
	if !c.Exact {
		if c.Fresh || c.Scale != 0 || c.MaxPackets != 0 || c.Victims != (traffic.Victims{}) || c.Changes != nil {
			return errors.New("fresh, scale, max-packets, victims and changes are for exact flows")
		}
		return nil
	}
	switch {
	case c.Rate != 0 || c.Zipf != 0 || c.Target.IsValid() || c.Source.IsValid() || c.Trace != "":
		return errors.New("exact flows have neither a rate, zipf, a target, a source nor a trace")
	case c.From%epoch != 0 || c.Until%epoch != 0:
		return fmt.Errorf("exact flows begin and end with an epoch; from %v and until %v are no multiples of %v",
			c.From, c.Until, epoch)
	}
	return nil
}

// check reports the faults in the definition of a fault.
func (x *Fault) check(s *Scenario, f *lab.Fabric) error {
	subjects := 0
	for _, name := range []string{x.Link, x.Switch, x.Host} {
		if name != "" {
			subjects++
		}
	}
	switch {
	case subjects != 1:
		return errors.New("expected either a link, a switch or a host")
	case x.Switch != "" && f.Find(x.Switch) < 0:
		return fmt.Errorf("no switch is called %q", x.Switch)
	case x.Link != "" && !slices.ContainsFunc(f.Links, func(l lab.Link) bool { return f.LinkName(l) == x.Link }):
		return fmt.Errorf("no link is called %q; a link's name is both switches', such as %s", x.Link,
			f.LinkName(f.Links[0]))
	case x.Host != "" && findHost(f, x.Host) < 0:
		return fmt.Errorf("no host is called %q; they are h1 to h%d", x.Host, len(f.Hosts))
	case x.Loss < 0 || x.Loss > 1:
		return fmt.Errorf("a loss is a share, 0 to 1; found %v", x.Loss)
	case x.Flows < 0 || x.Flows > 1:
		return fmt.Errorf("flows is a share of them, 0 to 1; found %v", x.Flows)
	case x.Late < 0:
		return fmt.Errorf("expected a delay of 0 or more for late; found %v", x.Late)
	case x.Link == "" && (x.Down || x.Avoid || x.Stall), x.Switch == "" && (x.Refuse || x.Late > 0 || x.To != ""),
		x.Host != "" && x.Loss > 0, x.Host == "" && (x.Clock != 0 || x.Kill):
		return errors.New("down, avoid and stall are faults of a link, loss of a link or switch, refuse-calls, late and to " +
			"of a switch, clock and kill of a host")
	case (x.To == "") != (x.Via == ""):
		return errors.New("wrong routes have a host, to, and a neighbor of the switch, via; expected both")
	case x.To != "" && findHost(f, x.To) < 0:
		return fmt.Errorf("to: no host is called %q; they are h1 to h%d", x.To, len(f.Hosts))
	case x.Via != "" && !slices.ContainsFunc(f.Links, func(l lab.Link) bool {
		return l.A == f.Find(x.Switch) && l.B == f.Find(x.Via) || l.B == f.Find(x.Switch) && l.A == f.Find(x.Via)
	}):
		return fmt.Errorf("via: switch %s has no link to %s; expected a neighbor of it", x.Switch, x.Via)
	case x.Stall && (x.Until == 0 || x.Loss > 0 || x.Down || x.Avoid):
		return errors.New("stall is a fault of its own, and packets wait until it ends; expected until")
	case x.Host != "" && len(s.Agents) == 0:
		return errors.New("a host can fail if it has an agent; expected agents in the scenario")
	case x.Link != "" && x.Loss == 0 && !x.Down && !x.Avoid && !x.Stall:
		return errors.New("nothing happens to the link: expected a loss above 0, down, avoid or stall")
	case x.Avoid && (x.Loss > 0 || x.Down):
		return errors.New("avoid is a fault of its own: a link that routes avoid carries no packets to lose")
	case x.Host != "" && (x.Clock == 0) == !x.Kill:
		return errors.New("expected either clock or kill for a host")
	case x.Flows > 0 && x.Loss == 0:
		return errors.New("flows is the share of flows that a loss is about; expected a loss above 0")
	case x.Until != 0 && x.Until <= x.From:
		return fmt.Errorf("until %v is not after from %v", x.Until, x.From)
	}
	return nil
}

// sizes returns the distribution from which flow sizes are drawn; nil for a component without
// distribution.
func (c *Component) sizes() ([]traffic.SizePoint, error) {
	switch {
	case c.Workload == "":
		return c.CDF, nil
	case c.CDF != nil:
		return nil, errors.New("expected either a workload or a cdf")
	}
	return traffic.Workload(c.Workload)
}

func findHost(f *lab.Fabric, name string) int {
	return slices.IndexFunc(f.Hosts, func(h lab.Host) bool { return h.Name == name })
}

// fabric builds the topology.
func (s *Scenario) fabric() (*lab.Fabric, error) {
	t := s.Topology
	var f *lab.Fabric
	var err error
	switch t.Kind {
	case "leaf-spine":
		f, err = lab.LeafSpine(t.Leaves, t.Spines, t.HostsPerLeaf, t.Latency)
	case "fat-tree":
		f, err = lab.FatTree(t.K, t.Pods, t.Cores, t.Latency)
	case "graph":
		var links [][2]string
		for _, text := range t.Links {
			names := strings.Split(text, "-")
			if len(names) != 2 || names[0] == "" || names[1] == "" {
				return nil, fmt.Errorf("links: %q; expected the names of two switches, such as CHCG-CLEV", text)
			}
			links = append(links, [2]string{names[0], names[1]})
		}
		f, err = lab.Graph(links, t.HostsPerLeaf, t.Latency)
	default:
		return nil, fmt.Errorf("kind %q: expected leaf-spine, fat-tree or graph", t.Kind)
	}
	if err != nil {
		return nil, err
	}
	if t.Loss < 0 || t.Loss > 1 {
		return nil, fmt.Errorf("a loss is a share, 0 to 1; found %v", t.Loss)
	}
	for i := range f.Links {
		f.Links[i].Loss = t.Loss
	}
	f.Queue = lab.Queue{Rate: t.QueueRate, Depth: t.QueueDepth}
	if t.QueueDepth != 0 && t.QueueRate == 0 {
		return nil, errors.New("queue-depth: ports have queues if queue-rate is above 0")
	}
	if len(s.Agents) > 0 {
		oneAddress(f)
	}
	return f, nil
}
