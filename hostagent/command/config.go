// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/settings/yaml"
)

// Config is the file of a host agent.
type Config struct {
	// Collector is where the agent connects.
	Collector Collector `yaml:"collector"`
	// Host is the name of this host in the collector's configuration. With TLS it equals the name in
	// the certificate, and may be left out.
	Host string `yaml:"host" form:"name"`
	// Roles are the names of the roles to run; if empty, all that run with the source of packets.
	Roles []string `yaml:"roles"`
	// Packets is where packets come from.
	Packets Packets `yaml:"packets"`
	// MaxBuffered bounds the reports that wait for the collector's acknowledgment. Beyond it the
	// oldest are dropped and counted.
	MaxBuffered settings.Size `yaml:"max-buffered" default:"256MiB" range:"1MiB..64GiB"`
	// HoldAbove is the traffic of the interface in a direction, in bytes a second, above which
	// reports wait. 0: they never do.
	HoldAbove settings.Size `yaml:"hold-above" default:"0" range:"0..1TiB"`
	// Local is the address of a socket, such as unix:///run/netsketch/hostagent.sock, at which
	// programs on this host may query the results of a role over gNMI. If empty, queries are not
	// served.
	Local string `yaml:"local"`
	// State is a directory in which the settings of roles are kept for the start of the system: the
	// command strip needs them. If empty, it is systemd's StateDirectory, or with the default of
	// packets.pin the directory of netsketch-agent.service, or else nothing is kept.
	State string `yaml:"state" form:"file"`
	// Log sets the level and the format of the log.
	Log Log `yaml:"log"`

	roles map[string]bool // roles of the program
}

// Collector is where the agent connects.
type Collector struct {
	// Address is the collector's agents.address, host:port.
	Address string `yaml:"address" form:"address" required:"host:port, such as 192.0.2.1:9350"`
	// Others are the agents.address of other collectors of the cluster, host:port. The agent connects
	// to any of them, and is redirected to the collector that serves this host.
	Others []string `yaml:"others"`
	// TLS secures the session; cert-file is the certificate of this host.
	TLS config.TLS `yaml:"tls"`
	// UDP sends the numbers of epochs over UDP if the collector has agents.udp: true.
	UDP bool `yaml:"udp" default:"false"`
}

// Source is where packets come from.
type Source string

// The sources of packets.
const (
	SourceKernel  Source = "kernel"
	SourceBridge  Source = "bridge"
	SourceCapture Source = "capture"
	SourceReports Source = "reports"
)

// Packets is where packets come from.
type Packets struct {
	// Source is kernel for programs in the kernel on one interface, bridge to forward between two
	// interfaces, capture to play a file, or reports to receive telemetry reports of switches.
	Source Source `yaml:"source" default:"kernel" oneof:"kernel bridge capture reports"`
	// Interface is the interface of the kernel's programs.
	Interface string `yaml:"interface"`
	// Pin is a directory of a BPF file system: programs and maps stay there, by role, while the agent
	// is down. If empty, they end with the agent.
	Pin string `yaml:"pin" default:"/sys/fs/bpf/netsketch" form:"file"`
	// DisableOffloads turns off the features of the interface that damage packets with a header, for
	// source kernel. Otherwise a role whose packets they damage refuses its settings.
	DisableOffloads bool `yaml:"disable-offloads" default:"false"`
	// Inside is the interface towards the host, for bridge.
	Inside string `yaml:"inside"`
	// Outside is the interface towards the network, for bridge.
	Outside string `yaml:"outside"`
	// File is a pcap file, for capture.
	File string `yaml:"file" form:"file"`
	// Addresses are the addresses of the host in the file, or prefixes: packets from them leave it.
	Addresses []settings.Prefix `yaml:"addresses"`
	// Receive is the UDP address of telemetry reports, such as :32766, for reports.
	Receive string `yaml:"receive"`
	// Sockets is the count of sockets, and of processors, that receive reports, or for bridge packets
	// from the interface outside.
	Sockets int `yaml:"sockets" default:"1" range:"1..64"`
}

// Log sets the level and the format of the log.
type Log struct {
	// Level is the least severe level logged.
	Level slog.Level `yaml:"level" default:"info" oneof:"debug info warn error"`
	// Format is text, or json for one object per line.
	Format config.LogFormat `yaml:"format" default:"text" oneof:"text json"`
}

// defaultPin is the default of Packets.Pin. Without a BPF file system there, the agent runs without
// pins.
const defaultPin = "/sys/fs/bpf/netsketch"

// defaultState is the StateDirectory of netsketch-agent.service.
const defaultState = "/var/lib/netsketch-agent"

// load reads a file. The error names every problem with its line.
func load(path string, roles []Role) (*Config, error) {
	section, err := yaml.Load(path)
	if err != nil {
		return nil, err
	}
	c := &Config{roles: map[string]bool{}}
	for _, r := range roles {
		c.roles[r.Name] = true
	}
	if err := section.Decode(c); err != nil {
		return nil, err
	}
	c.State = state(c.State, c.Packets.Pin)
	return c, nil
}

// state returns the directory for the settings of roles. An agent with the pins of the service has
// the service's, also if it is run by hand.
func state(configured, pin string) string {
	s := cmp.Or(configured, os.Getenv("STATE_DIRECTORY"))
	if s == "" && pin == defaultPin {
		s = defaultState
	}
	return s
}

// Validate returns the errors that tags cannot express, joined, as settings.KeyErrors.
func (c *Config) Validate() error {
	var errs settings.KeyErrors
	if c.Collector.Address == "" { // the file has no key collector
		errs.Add("collector.address", "is missing; expected host:port, such as 192.0.2.1:9350")
	}
	for i, address := range c.Collector.Others {
		if _, _, err := net.SplitHostPort(address); err != nil {
			errs.Add(fmt.Sprintf("collector.others[%d]", i), "%q is no address; expected host:port, such as 192.0.2.1:9350",
				address)
		}
	}
	t := c.Collector.TLS
	switch {
	case t.Plaintext && t != (config.TLS{Plaintext: true}):
		errs.Add("collector.tls.plaintext", "turns TLS off, yet other TLS keys are given; expected one or the other")
	case t.Plaintext && c.Host == "":
		errs.Add("host", "is missing; expected the name of this host, which no certificate states on plaintext")
	case t.Plaintext:
	case t.CertFile == "":
		errs.Add("collector.tls.cert-file", "is missing; expected a file with the certificate of this host")
	case t.KeyFile == "":
		errs.Add("collector.tls.key-file", "is missing; expected a file with the certificate's private key")
	}
	for _, name := range c.Roles {
		if !c.roles[name] {
			errs.Add("roles", "%q is no role of this program", name)
		}
	}
	p := c.Packets
	for _, k := range []struct {
		source Source
		key    string
		given  bool
		needed bool
	}{
		{SourceKernel, "interface", p.Interface != "", true},
		{SourceKernel, "pin", p.Pin != "" && p.Pin != defaultPin, false},
		{SourceKernel, "disable-offloads", p.DisableOffloads, false},
		{SourceBridge, "inside", p.Inside != "", true}, {SourceBridge, "outside", p.Outside != "", true},
		{SourceCapture, "file", p.File != "", true}, {SourceCapture, "addresses", len(p.Addresses) > 0, true},
		{SourceReports, "receive", p.Receive != "", true},
	} {
		switch {
		case k.source == p.Source && k.needed && !k.given:
			errs.Add("packets."+k.key, "is missing; source %s needs it", p.Source)
		case k.source != p.Source && k.given:
			errs.Add("packets."+k.key, "is for source %s; the source is %s", k.source, p.Source)
		}
	}
	if c.Local != "" && !strings.HasPrefix(c.Local, "unix:///") {
		errs.Add("local", "%q is no socket of this host; expected unix:///run/netsketch/hostagent.sock", c.Local)
	}
	if c.HoldAbove > 0 && p.Source != SourceKernel && p.Source != SourceBridge {
		errs.Add("hold-above", "needs an interface: source kernel or bridge; the source is %s", p.Source)
	}
	if p.Sockets > 1 && p.Source != SourceReports && p.Source != SourceBridge {
		errs.Add("packets.sockets", "is for sources reports and bridge; the source is %s", p.Source)
	}
	if p.Source == SourceBridge && p.Inside != "" && p.Inside == p.Outside {
		errs.Add("packets.outside", "is the interface inside, too; expected two interfaces")
	}
	return errs.Err()
}

// interfaceName is the interface towards the network; empty without one.
func (c *Config) interfaceName() string { return cmp.Or(c.Packets.Interface, c.Packets.Outside) }

// bootID returns the identifier of the boot of this system; empty if it has none.
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // other systems than Linux have no such file
	return strings.TrimSpace(string(b))
}
