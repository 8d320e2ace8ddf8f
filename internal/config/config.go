// SPDX-License-Identifier: Apache-2.0

// Package config reads the collector's YAML file into typed configuration.
//
// A key is one struct field: its comment documents it, its tags give the default, the range and the
// allowed values (see package settings). outputs/all/reference.md, which `netsketch config
// reference` prints, is generated from the fields.
//
// Load and Parse report all errors at once, each with its file, line, column, key and expected
// value. The settings of outputs and plugins remain a settings.Section, which the output or plugin
// decodes itself; its errors name positions, too. Compare returns the differences between a running
// collector's file and a changed file. Watch reports changes of the file.
//
// A Config is read-only once parsed and may be shared between goroutines.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/settings"
)

// Config is the whole file.
type Config struct {
	// Name is the collector's name: the gNMI target its results are served under.
	Name string `yaml:"name" default:"netsketch" form:"name"`
	// Epoch sets when switches are read.
	Epoch Epoch `yaml:"epoch"`
	// DeviceDefaults holds values that every entry of devices starts from.
	DeviceDefaults Device `yaml:"device-defaults" partial:"true" live:"true"`
	// Devices are the switches to collect from.
	Devices []Device `yaml:"devices" template:"DeviceDefaults" live:"true"`
	// DeviceConfiguration sets where the collector records its changes of devices.
	DeviceConfiguration DeviceConfiguration `yaml:"device-configuration"`
	// Links connect ports of two switches; needed where the collector installs routes.
	Links []Link `yaml:"links" live:"true"`
	// Hosts are attached to switches; routes lead to their addresses.
	Hosts []Host `yaml:"hosts" live:"true"`
	// Agents serves the agents of hosts.
	Agents Agents `yaml:"agents"`
	// Plugins are the measurement algorithms.
	Plugins Plugins `yaml:"plugins"`
	// Outputs deliver results: gNMI servers and databases.
	Outputs []Output `yaml:"outputs"`
	// Reload sets how much a change of the file may remove from a running collector.
	Reload Reload `yaml:"reload" live:"true"`
	// Log sets the level and the format of the log.
	Log Log `yaml:"log"`
	// Metrics sets where the collector's own state is published.
	Metrics Metrics `yaml:"metrics"`
	// HTTP serves /metrics, /metrics/results, /healthz and /readyz to operators.
	HTTP HTTP `yaml:"http"`
	// Cluster shares devices and hosts with other collectors.
	Cluster Cluster `yaml:"cluster"`

	text     outline
	contents contents // contents of the file
}

// Epoch sets when switches are read.
type Epoch struct {
	// Interval is the length of an epoch.
	Interval time.Duration `yaml:"interval" default:"1s" range:"10ms..24h"`
	// Guard is the wait between the bank flip and the read-out of the sealed bank, for packets
	// still in the pipelines. The default is shortened to a fifth of a short interval.
	Guard time.Duration `yaml:"guard" default:"10ms" range:"0s..1m"`
	// Drain is the longest time that a packet takes through the network. Counters at the egress of
	// the network are read this long after the guard. The default is shortened to a fifth of a
	// short interval. Where all switches and hosts run OmniMon, it may be up to three intervals:
	// each epoch is then delivered as many whole intervals later.
	Drain time.Duration `yaml:"drain" default:"10ms" range:"0s..1m"`
	// Deadline counts from the end of the epoch: switches that have not been read by then are
	// missing, and the epoch is partial. If 0, 80 % of the interval, or 90 % up to 100 ms.
	Deadline time.Duration `yaml:"deadline" default:"0s" range:"0s.."`
	// ParallelReads is the number of switches read at the same time. If 0, 8 per processor and at
	// least 16.
	ParallelReads int `yaml:"parallel-reads" default:"0" range:"0.."`
	// Align puts boundaries on multiples of the interval since 1970-01-01T00:00Z, so that
	// collectors agree on epoch numbers. Otherwise epoch 1 begins at the start.
	Align bool `yaml:"align" default:"true"`
}

// Mode is how a session behaves towards other controllers of the switch.
type Mode string

// The modes of a session.
const (
	// ModePrimary bids to be the switch's primary controller: pipeline, banks and read-out need it.
	ModePrimary Mode = "primary"
	// ModeBackup never bids: the session observes the switch and measures nothing.
	ModeBackup Mode = "backup"
)

// Role is a switch's place in the network.
type Role string

// The roles of a switch.
const (
	// RoleEdge switches have hosts attached.
	RoleEdge Role = "edge"
	// RoleTransit switches connect other switches only.
	RoleTransit Role = "transit"
)

// Forwarding is who writes a switch's forwarding tables.
type Forwarding string

// Who writes the forwarding tables.
const (
	// ForwardingManaged means that the collector installs routes from links and hosts.
	ForwardingManaged Forwarding = "managed"
	// ForwardingNone means that another controller owns forwarding: the collector never writes
	// those tables.
	ForwardingNone Forwarding = "none"
)

// Device is one switch.
type Device struct {
	// Name is the switch's name in results, links and hosts; unique.
	Name string `yaml:"name" form:"name" required:"the name of the switch"`
	// Address is the switch's P4Runtime server, host:port.
	Address string `yaml:"address" form:"address" required:"host:port, such as 192.0.2.1:9559"`
	// DeviceID is P4Runtime's device_id. If 0, the collector gets it from the switch's gNMI server.
	DeviceID uint64 `yaml:"device-id" default:"0"`
	// Role is the switch's place in the network. If not given, edge if a host is attached and
	// transit otherwise.
	Role Role `yaml:"role" oneof:"edge transit"`
	// Mode is primary, or backup to only observe the switch.
	Mode Mode `yaml:"mode" default:"primary" oneof:"primary backup"`
	// ElectionID is the bid to be primary, 128 bits as LOW or HIGH:LOW; the highest bid wins. While
	// another controller uses it, the collector is a backup. If not given, it is 1.
	ElectionID ElectionID `yaml:"election-id"`
	// P4RuntimeRole is the P4Runtime role name; empty is the default role, with full access.
	P4RuntimeRole string `yaml:"p4runtime-role"`
	// Pipeline is the P4 program: the name of a built-in one, or files.
	Pipeline Pipeline `yaml:"pipeline" default:"univmon"`
	// Forwarding is managed if the collector installs routes, none if another controller does.
	Forwarding Forwarding `yaml:"forwarding" default:"none" oneof:"managed none"`
	// Timeout bounds one unary call to the switch.
	Timeout time.Duration `yaml:"timeout" default:"5s" range:"1ms..10m"`
	// TLS secures the P4Runtime session.
	TLS TLS `yaml:"tls"`
	// GNMI is a second session, which provides ports, neighbors and counters.
	GNMI GNMI `yaml:"gnmi"`
}

// Pipeline is the P4 program of a switch: a built-in one by name, or compiled files.
type Pipeline struct {
	// Name is a built-in program, such as univmon.
	Name string `yaml:"name"`
	// P4Info is a file with the program's P4Info, text format or binary.
	P4Info string `yaml:"p4info" form:"file"`
	// DeviceConfig is a file with what the target loads: for BMv2 its JSON.
	DeviceConfig string `yaml:"device-config" form:"file"`
	// Keep uses the pipeline that the switch runs, and never pushes one.
	Keep bool `yaml:"keep" default:"false"`
}

// TLS is a client's side of a secured session.
type TLS struct {
	// Plaintext turns TLS off.
	Plaintext bool `yaml:"plaintext" default:"false"`
	// CAFile holds the PEM certificates to trust; the system's if empty.
	CAFile string `yaml:"ca-file" form:"file"`
	// CertFile is the PEM certificate to present, for mutual TLS.
	CertFile string `yaml:"cert-file" form:"file"`
	// KeyFile is the PEM private key of cert-file.
	KeyFile string `yaml:"key-file" form:"file"`
	// ServerName is the name that the server's certificate must have; the host of address if empty.
	ServerName string `yaml:"server-name"`
}

// GNMI is a session with a switch's gNMI server.
type GNMI struct {
	// Address is the gNMI server, host:port; without it there is no gNMI session.
	Address string `yaml:"address" form:"address"`
	// Username is sent with every call, as metadata; needs a password.
	Username string `yaml:"username" form:"line"`
	// Password is sent with the username.
	Password settings.Secret `yaml:"password" form:"line"`
	// TLS secures the gNMI session; it is independent of the tls of P4Runtime.
	TLS TLS `yaml:"tls"`
	// Subscriptions are republished with the device's name as target. If not given: interfaces with
	// counters, LLDP, components and system.
	Subscriptions []Subscription `yaml:"subscriptions"`
	// Configure is whether the collector sets over gNMI what P4Runtime needs: the device id, the
	// numbers of ports, enabled ports. off never compares; check compares and never sets; apply sets
	// what `netsketch devices apply` names; enforce sets whenever the device differs.
	Configure Configure `yaml:"configure" default:"check" oneof:"off check apply enforce"`
	// Component is the component of the integrated circuit that gets the device id; needed if the
	// device lists none or several.
	Component string `yaml:"component"`
	// Ports gives numbers to interfaces. A port of links and hosts that is not listed here is the
	// interface that reports its number.
	Ports []DevicePort `yaml:"ports"`
}

// Configure is whether the collector sets a device's configuration.
type Configure string

// Whether the collector sets a device's configuration.
const (
	ConfigureOff     Configure = "off"
	ConfigureCheck   Configure = "check"
	ConfigureApply   Configure = "apply"
	ConfigureEnforce Configure = "enforce"
)

// DevicePort is a port of a device.
type DevicePort struct {
	// Number is the port's number in P4Runtime, links and hosts.
	Number uint32 `yaml:"number" required:"the number of the port, from 1" range:"1..4294967039"`
	// Interface is the interface's name on the device.
	Interface string `yaml:"interface" required:"the name of the interface, such as Ethernet1/1/1"`
	// Description is set as the interface's description; left as it is if empty.
	Description string `yaml:"description"`
}

// Subscription is a path of a switch to subscribe to.
type Subscription struct {
	// Path is a gNMI path, such as /interfaces/interface[name=*]/state/counters.
	Path string `yaml:"path" required:"a gNMI path such as /interfaces/interface/state/counters"`
	// Mode is when the switch sends values.
	Mode SubscriptionMode `yaml:"mode" default:"target-defined" oneof:"on-change sample target-defined"`
	// SampleInterval is the time between samples; only for mode sample.
	SampleInterval time.Duration `yaml:"sample-interval" default:"10s" range:"1ms..24h"`
}

// SubscriptionMode is when a switch sends the values of a path.
type SubscriptionMode string

// The modes of a subscription.
const (
	ModeOnChange      SubscriptionMode = "on-change"
	ModeSample        SubscriptionMode = "sample"
	ModeTargetDefined SubscriptionMode = "target-defined"
)

// DeviceConfiguration is about the configuration of devices over gNMI.
type DeviceConfiguration struct {
	// Directory keeps what devices had before the collector set them, so that it can be restored
	// after a restart; needed for gnmi.configure: apply or enforce. Commands reach the collector over
	// a socket in it.
	Directory string `yaml:"directory" form:"file"`
	// Interval is the time between two comparisons of a device with the file.
	Interval time.Duration `yaml:"interval" default:"1m" range:"1s..24h"`
}

// Link joins ports of two switches.
type Link struct {
	// From is one end, SWITCH/PORT.
	From PortRef `yaml:"from" required:"SWITCH/PORT, such as leaf1/1"`
	// To is the other end, SWITCH/PORT.
	To PortRef `yaml:"to" required:"SWITCH/PORT, such as leaf1/1"`
}

// Host is attached to an edge port.
type Host struct {
	// Name is the host's name; unique among hosts and switches.
	Name string `yaml:"name" form:"name" required:"the name of the host"`
	// Port is where the host is attached, SWITCH/PORT.
	Port PortRef `yaml:"port" required:"SWITCH/PORT, such as leaf1/1"`
	// MAC is the host's Ethernet address.
	MAC MAC `yaml:"mac"`
	// Addresses are the host's IPv4 and IPv6 addresses (10.0.0.1) or the prefixes behind it
	// (10.0.0.0/24).
	Addresses []settings.Prefix `yaml:"addresses"`
	// Agent expects a netsketch agent on the host, whose certificate has the host's name; needs
	// agents.address.
	Agent bool `yaml:"agent" default:"false"`
}

// Agents serves the agents of hosts.
type Agents struct {
	// Address is where host agents connect: host:port, ":9350" for every interface. Nothing is
	// served if empty.
	Address string `yaml:"address" form:"listen"`
	// TLS identifies the collector and the agents.
	TLS AgentsTLS `yaml:"tls"`
	// Timeout is the time after which an agent that does not reply is disconnected.
	Timeout time.Duration `yaml:"timeout" default:"10s" range:"2s..10m"`
	// MaxReport is the largest report of a role of a host in an epoch; larger ones are refused.
	MaxReport settings.Size `yaml:"max-report" default:"256MiB" range:"64KiB..4GiB"`
	// MaxEpoch bounds the reports of all hosts in one epoch; reports beyond it are refused.
	MaxEpoch settings.Size `yaml:"max-epoch" default:"2GiB" range:"64KiB..256GiB"`
	// UDP sends the numbers of epochs over UDP, too, on the port of address: authentic, and faster
	// than TCP with many hosts. An agent uses it if its own configuration has udp: true.
	UDP bool `yaml:"udp" default:"false"`
}

// AgentsTLS lists the files of the server for agents, in PEM form. Both sides present a
// certificate.
type AgentsTLS struct {
	// Plaintext turns TLS off, so that any agent can state any name: for labs only.
	Plaintext bool `yaml:"plaintext" default:"false"`
	// CertFile is the server's certificate, followed by the intermediate certificates.
	CertFile string `yaml:"cert-file" form:"file"`
	// KeyFile is the certificate's private key.
	KeyFile string `yaml:"key-file" form:"file"`
	// ClientCAFile holds the certificates to trust for agents. A DNS name of an agent's
	// certificate, or its common name if it has no DNS name, is the name of its host.
	ClientCAFile string `yaml:"client-ca-file" form:"file"`
}

// Plugins are the measurement algorithms to run.
type Plugins struct {
	// Directory is searched for plugin binaries.
	Directory string `yaml:"directory" default:"plugins" form:"file"`
	// StateDirectory keeps the state of plugins across restarts of the collector; empty keeps none.
	StateDirectory string `yaml:"state-directory" form:"file"`
	// Restart sets when a plugin that exited is started again; the first restart is immediate.
	Restart Restart `yaml:"restart"`
	// Autoload also runs the plugins of the directory that no instance names, each with its default
	// configuration. The directory is read at the start and when the configuration is reloaded.
	Autoload bool `yaml:"autoload" live:"true"`
	// Watch restarts a plugin when its file is replaced; otherwise it is restarted at a reload. It is
	// for the development of plugins.
	Watch bool `yaml:"watch" live:"true"`
	// Instances are the plugin processes to run.
	Instances []Plugin `yaml:"instances" live:"true"`
}

// WithPlugins returns the configuration with further plugins of the plugin directory, each with the
// default configuration. The error joins why some cannot be added.
func (c *Config) WithPlugins(names []string) (_ *Config, err error) {
	next := *c
	next.Plugins.Instances = slices.Clone(c.Plugins.Instances)
	for _, name := range names {
		p := settings.Default[Plugin]()
		p.Plugin = name
		p.complete()
		switch invalid := settings.CheckName(name); {
		case invalid != nil:
			err = errors.Join(err, fmt.Errorf("plugin %s: %w; rename the file", name, invalid))
		case slices.ContainsFunc(next.Plugins.Instances, func(q Plugin) bool { return q.Name == name }):
			err = errors.Join(err, fmt.Errorf("plugin %s: another plugin has the instance name %s; "+
				"name it in plugins.instances", name, name))
		default:
			next.Plugins.Instances = append(next.Plugins.Instances, p)
		}
	}
	return &next, err
}

// Binary returns the name of the plugin's file without its prefix.
func (p Plugin) Binary() string {
	return strings.TrimPrefix(filepath.Base(p.Plugin), "netsketch-plugin-")
}

// complete derives values that were not given from others.
func (p *Plugin) complete() {
	if p.Name == "" {
		p.Name = p.Binary()
	}
}

// Plugin is one plugin process.
type Plugin struct {
	// Name is the instance's name in logs and metrics; unique. The plugin's name if empty.
	Name string `yaml:"name" form:"name"`
	// Plugin is the binary: the plugin's name in the plugin directory, or a path with a slash. A
	// plugin runs once.
	Plugin string `yaml:"plugin" required:"the name of a plugin in plugins.directory, or a path"`
	// SHA256 pins the binary's checksum; any binary is started if empty.
	SHA256 SHA256 `yaml:"sha256"`
	// Devices selects switches by name, with * and ?; all of them if empty.
	Devices []string `yaml:"devices"`
	// Deadline bounds the analysis of one epoch, counted from the arrival of its data. If 0, the
	// epoch interval.
	Deadline time.Duration `yaml:"deadline" default:"0s" range:"0s..24h"`
	// MemoryLimit is the most memory that the plugin may use. A plugin that exceeds it is ended and
	// restarted. The limit is that of a cgroup of its own if the collector's cgroup is delegated,
	// for the plugin and its descendants together, and otherwise a resource limit of each process.
	MemoryLimit settings.Size `yaml:"memory-limit" default:"2GiB" range:"128MiB..16TiB"`
	// Environment is added to the process's minimal environment; values are not logged.
	Environment map[string]settings.Secret `yaml:"environment"`
	// Record is a file that records what the plugin receives, for "netsketch replay". An existing
	// file is renamed to end in .old. If empty, there is no recording.
	Record string `yaml:"record" form:"file"`
	// RecordLimit is the largest size of the recording, which then ends.
	RecordLimit settings.Size `yaml:"record-limit" default:"1GiB" range:"1MiB..1TiB"`
	// Config is the plugin's own configuration; each plugin documents its keys.
	Config settings.Section `yaml:"config"`
}

// Restart is the backoff between starts of a plugin that keeps exiting.
type Restart struct {
	// Initial is the wait before the second restart in a row.
	Initial time.Duration `yaml:"initial" default:"1s" range:"1ms..1h"`
	// Maximum is the longest wait; each wait doubles the previous one.
	Maximum time.Duration `yaml:"maximum" default:"2m" range:"1ms..24h"`
}

// Output delivers results to subscribers or a database.
type Output struct {
	// Type is the kind of output: gnmi, influxdb or web.
	Type string `yaml:"type" required:"the kind of output, such as gnmi"`
	// Name is the output's name in the collector's state and logs; unique. The type if empty.
	Name string `yaml:"name" form:"name"`
	// Settings are the other keys, which the type of output declares.
	Settings settings.Section `yaml:",inline"`
}

// Reload sets how much a change of the file may remove from a running collector.
type Reload struct {
	// MaxRemoval is the largest share of the devices, links, hosts and plugin instances that a change
	// may remove at once. Unless it is 0, a change may always remove one of each. Only if it is 1, a
	// change may remove all of them, or the last section of the file. A host that loses an address
	// counts as removed.
	MaxRemoval float64 `yaml:"max-removal" default:"0.25" range:"0..1"`
	// ConfirmAfter is how long a change that removes more is held before a SIGHUP confirms it.
	ConfirmAfter time.Duration `yaml:"confirm-after" default:"10s" range:"0s..24h"`
}

// LogFormat is how a log line is written.
type LogFormat string

// The log formats.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// Log sets the level and the format of the log.
type Log struct {
	// Level is the least severe level logged.
	Level slog.Level `yaml:"level" default:"info" oneof:"debug info warn error" live:"true"`
	// Format is text, or json for one object per line.
	Format LogFormat `yaml:"format" default:"text" oneof:"text json"`
}

// Metrics sets where the collector's own state is published.
type Metrics struct {
	// Enabled publishes stage latencies, epochs, devices and plugins under
	// /netsketch-collector:collector.
	Enabled bool `yaml:"enabled" default:"true"`
}

// HTTP serves /metrics, /healthz and /readyz to operators.
type HTTP struct {
	// Address is where the server listens: host:port, ":9340" for every interface. There is no
	// authentication. Nothing is served if empty.
	Address string `yaml:"address" form:"listen"`
	// Results lists the lists of results whose numbers /metrics/results has, such as
	// /univmon/node-summaries/node-summary. Names of flows and devices are labels there.
	Results []string `yaml:"results"`
	// ResultRows bounds the rows of each of these lists; the others are omitted and counted.
	ResultRows int `yaml:"result-rows" default:"1000" range:"1..100000"`
}

// Cluster makes this collector a member of a cluster. All members have the same epochs, devices,
// links, hosts and plugins.
type Cluster struct {
	// Name is the cluster's name on its NATS servers: letters, digits, dashes and underscores. If
	// empty, the collector is alone.
	Name string `yaml:"name"`
	// Member is the name of this collector, unique in the cluster. If empty, the name of this
	// system.
	Member string `yaml:"member" form:"name"`
	// Weight is the share of devices and hosts of this collector, relative to the other members.
	Weight int `yaml:"weight" default:"1" range:"1..1000"`
	// AgentsAddress is where agents of hosts reach this collector, host:port: agents that connect to
	// another member are redirected there. If empty, agents.address, which needs a host then.
	AgentsAddress string `yaml:"agents-address" form:"address"`
	// DrainTimeout bounds the time in which a collector that stops hands over its devices, hosts and
	// plugins; that takes three to five epochs. 0s leaves at once.
	DrainTimeout time.Duration `yaml:"drain-timeout" default:"1m" range:"0s..1h"`
	// NATS is how members reach each other.
	NATS NATS `yaml:"nats"`
}

// NATS is the connection to NATS servers with JetStream.
type NATS struct {
	// Addresses are the NATS servers, host:port; the collector uses any of them. May be empty with an
	// embedded server.
	Addresses []string `yaml:"addresses"`
	// Replicas is the number of servers that hold the state of the cluster; use 3 with three
	// servers or more.
	Replicas int `yaml:"replicas" default:"1" range:"1..5"`
	// Username identifies the collector to the servers.
	Username string `yaml:"username" form:"line"`
	// Password is sent with the username.
	Password settings.Secret `yaml:"password" form:"line"`
	// CredentialsFile holds the JWT and the key of a NATS user.
	CredentialsFile string `yaml:"credentials-file" form:"file"`
	// TLS secures the connection: server-name, or the host of the first address, must be a name in
	// the certificate of each server. With an embedded server, plaintext: true is needed.
	TLS TLS `yaml:"tls"`
	// Embedded runs a NATS server in the collector.
	Embedded Embedded `yaml:"embedded"`
}

// Embedded is a NATS server in the collector.
type Embedded struct {
	// Listen is where the server accepts members, host:port, ":4222" for every interface. If empty,
	// there is no server.
	Listen string `yaml:"listen" form:"listen"`
	// Directory holds the state of the server; unique on the system.
	Directory string `yaml:"directory" form:"file"`
	// RouteListen is where it accepts the other servers, host:port. If empty, it is the only one.
	RouteListen string `yaml:"route-listen" form:"listen"`
	// Routes are the route-listen addresses of all servers, host:port.
	Routes []string `yaml:"routes"`
}

// AgentHosts returns the names of the hosts with agents, in the order of the file.
func (c *Config) AgentHosts() (names []string) {
	for _, h := range c.Hosts {
		if h.Agent {
			names = append(names, h.Name)
		}
	}
	return names
}
