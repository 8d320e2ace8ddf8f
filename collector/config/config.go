// SPDX-License-Identifier: Apache-2.0

// Package config turns the collector's YAML file into typed configuration.
//
// Load and Parse report everything that is wrong at once, each Problem with its file, line, key
// and what was expected. What the collector itself does not understand (the settings of outputs
// and plugins) stays a Section with its positions, which its owner decodes with errors of the
// same quality. Compare says what a changed file means for a running collector, and Watch follows
// the file.
//
// A Config is read-only once parsed and may be shared between goroutines.
package config

import (
	"log/slog"
	"net/netip"
	"time"
)

// Config is the whole file.
type Config struct {
	// Name is the collector's name: the gNMI target its results are served under.
	Name string `yaml:"name"`
	// Epoch is the network's clock.
	Epoch Epoch `yaml:"epoch"`
	// DeviceDefaults holds values that every entry of devices starts from.
	DeviceDefaults Device `yaml:"device-defaults"`
	// Devices are the switches to collect from.
	Devices []Device `yaml:"devices"`
	// Links connect ports of two switches; needed where the collector installs routes.
	Links []Link `yaml:"links"`
	// Hosts are attached to switches; their addresses are what routes lead to.
	Hosts []Host `yaml:"hosts"`
	// Plugins are the measurement algorithms.
	Plugins Plugins `yaml:"plugins"`
	// Outputs are the ways results leave, by name (gnmi, influxdb); each output documents its own keys.
	Outputs map[string]Section `yaml:"outputs"`
	// Log says what is logged and how.
	Log Log `yaml:"log"`
	// Metrics says where the collector's own state is published.
	Metrics Metrics `yaml:"metrics"`
}

// Epoch is the rhythm in which switches are read.
type Epoch struct {
	// Interval is the length of an epoch.
	Interval time.Duration `yaml:"interval"`
	// Guard is the wait between flipping the banks and reading the sealed one, for packets still in the pipelines; not given, it is at most a fifth of the interval.
	Guard time.Duration `yaml:"guard"`
	// Drain is how long a packet may be on its way through the network: what packets are counted in where they leave it is read that much after the guard; not given, it is at most a fifth of the interval.
	Drain time.Duration `yaml:"drain"`
	// Deadline counts from the end of the epoch: what has not been read by then is missing, and the epoch partial; 80 % of the interval when 0, or 90 % up to 100 ms.
	Deadline time.Duration `yaml:"deadline"`
	// ParallelReads is how many switches are read at the same time; 8 for each processor, at least 16, when 0.
	ParallelReads int `yaml:"parallel-reads"`
	// Align puts boundaries on multiples of the interval since 1970-01-01T00:00Z, so that collectors agree on epoch numbers; otherwise epoch 1 begins at the start.
	Align bool `yaml:"align"`
}

// SetDefaults fills in what a configuration need not say.
func (e *Epoch) SetDefaults() {
	*e = Epoch{Interval: time.Second, Guard: 10 * time.Millisecond, Drain: 10 * time.Millisecond, Align: true}
}

// Mode is how a session behaves towards other controllers of the switch.
type Mode string

// The modes of a session.
const (
	// ModePrimary bids to be the switch's primary controller: pipeline, banks and read-out need it.
	ModePrimary Mode = "primary"
	// ModeBackup never bids: it watches the switch and measures nothing.
	ModeBackup Mode = "backup"
)

// UnmarshalText reads a mode.
func (m *Mode) UnmarshalText(text []byte) error { return word(m, text, ModePrimary, ModeBackup) }

// Role is a switch's place in the network.
type Role string

// The roles of a switch.
const (
	// RoleEdge switches have hosts attached.
	RoleEdge Role = "edge"
	// RoleTransit switches connect other switches only.
	RoleTransit Role = "transit"
)

// UnmarshalText reads a role.
func (r *Role) UnmarshalText(text []byte) error { return word(r, text, RoleEdge, RoleTransit) }

// Forwarding says who writes a switch's forwarding tables.
type Forwarding string

// Who writes the forwarding tables.
const (
	// ForwardingManaged means that the collector installs routes from links and hosts.
	ForwardingManaged Forwarding = "managed"
	// ForwardingNone means that another controller owns forwarding: the collector never writes those tables.
	ForwardingNone Forwarding = "none"
)

// UnmarshalText reads a forwarding setting.
func (f *Forwarding) UnmarshalText(text []byte) error {
	return word(f, text, ForwardingManaged, ForwardingNone)
}

// Device is one switch.
type Device struct {
	// Name is the switch's name in results, links and hosts; unique.
	Name string `yaml:"name"`
	// Address is the switch's P4Runtime server, host:port.
	Address string `yaml:"address"`
	// DeviceID is P4Runtime's device_id; 0 asks the switch's gNMI server for it.
	DeviceID uint64 `yaml:"device-id"`
	// Role is edge or transit; when not given, edge if a host is attached and transit otherwise.
	Role Role `yaml:"role"`
	// Mode is primary, or backup to only watch.
	Mode Mode `yaml:"mode"`
	// ElectionID is the bid to be primary, 128 bits as LOW or HIGH:LOW; the highest bid wins. When not given it is 1, and a controller that has it already is left alone until it is gone.
	ElectionID ElectionID `yaml:"election-id"`
	// P4RuntimeRole is the P4Runtime role name; empty is the default role, with full access.
	P4RuntimeRole string `yaml:"p4runtime-role"`
	// Pipeline is the program to run: the name of a built-in one, or files.
	Pipeline Pipeline `yaml:"pipeline"`
	// Forwarding is managed when the collector installs routes, none when another controller does.
	Forwarding Forwarding `yaml:"forwarding"`
	// Timeout bounds one unary call to the switch.
	Timeout time.Duration `yaml:"timeout"`
	// TLS secures the session.
	TLS TLS `yaml:"tls"`
	// GNMI is a second session, by which ports, neighbours and counters are learned.
	GNMI GNMI `yaml:"gnmi"`
}

// SetDefaults fills in what a configuration need not say.
func (d *Device) SetDefaults() {
	*d = Device{
		Mode: ModePrimary, Pipeline: Pipeline{Name: "univmon"},
		Forwarding: ForwardingNone, Timeout: 5 * time.Second,
	}
}

// TLS is a client's side of a secured session.
type TLS struct {
	// Plaintext turns TLS off.
	Plaintext bool `yaml:"plaintext"`
	// CAFile holds the PEM certificates to trust; the system's when empty.
	CAFile string `yaml:"ca-file"`
	// CertFile is the PEM certificate to present, for mutual TLS.
	CertFile string `yaml:"cert-file"`
	// KeyFile is the PEM private key of cert-file.
	KeyFile string `yaml:"key-file"`
	// ServerName is the name the switch's certificate must carry; the host of address when empty.
	ServerName string `yaml:"server-name"`
}

// GNMI is a session with a switch's gNMI server.
type GNMI struct {
	// Address is the gNMI server, host:port; without it there is no gNMI session.
	Address string `yaml:"address"`
	// Username is sent with every call, as metadata; needs a password.
	Username string `yaml:"username"`
	// Password goes with the username.
	Password Secret `yaml:"password"`
	// TLS secures the gNMI session; it does not follow the tls of P4Runtime.
	TLS TLS `yaml:"tls"`
	// Subscriptions are republished under the device's name as target; interfaces with counters, LLDP, components and system when not given.
	Subscriptions []Subscription `yaml:"subscriptions"`
}

// Subscription is a path of a switch to subscribe to.
type Subscription struct {
	// Path is a gNMI path, such as /interfaces/interface[name=*]/state/counters.
	Path string `yaml:"path"`
	// Mode is on-change, sample, or target-defined.
	Mode SubscriptionMode `yaml:"mode"`
	// SampleInterval is the time between samples; only for mode sample.
	SampleInterval time.Duration `yaml:"sample-interval"`
}

// SetDefaults fills in what a configuration need not say.
func (s *Subscription) SetDefaults() {
	*s = Subscription{Mode: ModeTargetDefined, SampleInterval: 10 * time.Second}
}

// SubscriptionMode is when a switch sends the values of a path.
type SubscriptionMode string

// The modes of a subscription.
const (
	ModeOnChange      SubscriptionMode = "on-change"
	ModeSample        SubscriptionMode = "sample"
	ModeTargetDefined SubscriptionMode = "target-defined"
)

// UnmarshalText reads a mode.
func (m *SubscriptionMode) UnmarshalText(text []byte) error {
	return word(m, text, ModeOnChange, ModeSample, ModeTargetDefined)
}

// Link joins ports of two switches.
type Link struct {
	// From is one end, SWITCH/PORT.
	From PortRef `yaml:"from"`
	// To is the other end, SWITCH/PORT.
	To PortRef `yaml:"to"`
}

// Host is what is attached to an edge port.
type Host struct {
	// Name is the host's name; unique among hosts and switches.
	Name string `yaml:"name"`
	// Port is where the host is attached, SWITCH/PORT.
	Port PortRef `yaml:"port"`
	// MAC is the host's Ethernet address.
	MAC MAC `yaml:"mac"`
	// Addresses are the host's IPv4 and IPv6 addresses (10.0.0.1) or the prefixes behind it (10.0.0.0/24).
	Addresses []Prefix `yaml:"addresses"`
}

// Prefix is an address or a prefix; an address is a prefix of full length.
type Prefix struct{ netip.Prefix }

// Plugins says which algorithms run.
type Plugins struct {
	// Directory is searched for plugin binaries.
	Directory string `yaml:"directory"`
	// StateDirectory keeps what plugins want to know again when the collector is restarted; nothing is kept when empty.
	StateDirectory string `yaml:"state-directory"`
	// Restart says when a plugin that died is started again; the first time it is at once.
	Restart Restart `yaml:"restart"`
	// Instances are the plugin processes to run.
	Instances []Plugin `yaml:"instances"`
}

// Plugin is one plugin process.
type Plugin struct {
	// Name is the instance's name in logs and metrics; unique; the plugin's name when empty.
	Name string `yaml:"name"`
	// Plugin is the binary: the plugin's name in the plugin directory, or a path with a slash; each runs once.
	Plugin string `yaml:"plugin"`
	// SHA256 pins the binary's checksum; any binary is started when empty.
	SHA256 SHA256 `yaml:"sha256"`
	// Devices selects switches by name, with * and ?; all of them when empty.
	Devices []string `yaml:"devices"`
	// Deadline bounds the analysis of one epoch, counted from the hand-over of its data; the epoch interval when 0.
	Deadline time.Duration `yaml:"deadline"`
	// Environment is what the process gets besides a minimal environment; values are not logged.
	Environment map[string]Secret `yaml:"environment"`
	// Config is the plugin's own configuration; each plugin documents its keys.
	Config Section `yaml:"config"`
}

// Restart is the backoff between starts of a plugin that keeps dying.
type Restart struct {
	// Initial is the wait before the second restart in a row.
	Initial time.Duration `yaml:"initial"`
	// Maximum is the longest wait; each wait doubles the one before.
	Maximum time.Duration `yaml:"maximum"`
}

// LogFormat is how a log line is written.
type LogFormat string

// The log formats.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// UnmarshalText reads a log format.
func (f *LogFormat) UnmarshalText(text []byte) error { return word(f, text, LogText, LogJSON) }

// Log says what is logged and how.
type Log struct {
	// Level is the least severe level logged: debug, info, warn or error.
	Level slog.Level `yaml:"level"`
	// Format is text, or json for one object per line.
	Format LogFormat `yaml:"format"`
}

// Metrics says where the collector's own state is published.
type Metrics struct {
	// Enabled publishes stage latencies, epochs, devices and plugins under /netsketch-collector:collector.
	Enabled bool `yaml:"enabled"`
}

// SetDefaults fills in what a configuration need not say.
func (c *Config) SetDefaults() {
	*c = Config{Name: "netsketch", Log: Log{Level: slog.LevelInfo, Format: LogText}, Metrics: Metrics{Enabled: true}}
	c.Epoch.SetDefaults()
	c.DeviceDefaults.SetDefaults()
	c.Plugins = Plugins{Directory: "plugins", Restart: Restart{Initial: time.Second, Maximum: 2 * time.Minute}}
}
