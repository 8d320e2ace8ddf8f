// SPDX-License-Identifier: Apache-2.0

// Checks that concern several keys, or that a tag cannot express.

package config

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/yang"
)

// checker adds problems that concern several keys to the problems found while reading the file.
type checker struct {
	*settings.Decoder
	read int // count of problems found while reading
}

// reject adds a problem, unless the value at path could not be read.
func (k checker) reject(path, format string, args ...any) {
	if k.readable(path) {
		k.Add(k.Position(path), path, format, args...)
	}
}

func (k checker) readable(path string) bool {
	return !slices.ContainsFunc(k.Problems[:k.read], func(p settings.Problem) bool { return p.Path == path })
}

// unique rejects a name that is in use; inUse maps names to their paths.
func (k checker) unique(path, name string, inUse map[string]string) {
	other, taken := inUse[name]
	switch {
	case name == "":
	case taken:
		k.reject(path, "%q is already the name of %s; expected unique names", name, other)
	default:
		inUse[name] = strings.TrimSuffix(path, ".name")
	}
}

func (c *Config) check(k checker) {
	c.Epoch.check(k)
	switches := c.checkDevices(k)
	c.checkNetwork(k, switches)
	c.Agents.check(k, c.AgentHosts())
	c.checkPlugins(k, switches)
	c.HTTP.check(k)
	c.Cluster.check(k, c.Epoch, c.Agents)
	outputs := map[string]string{}
	for i, o := range c.Outputs {
		k.unique(fmt.Sprintf("outputs[%d].name", i), o.Name, outputs)
	}
}

func (h HTTP) check(k checker) {
	for i, list := range h.Results {
		at := fmt.Sprintf("http.results[%d]", i)
		if !strings.HasPrefix(list, "/") || strings.HasSuffix(list, "/") || strings.ContainsAny(list, "[:") {
			k.reject(at, "expected the path of a list without keys and modules, such as "+
				"/univmon/node-summaries/node-summary; found %q",
				list)
		}
		for j, other := range h.Results {
			if i != j && strings.HasPrefix(list+"/", other+"/") && (list != other || i > j) {
				k.reject(at, "%q is a part of http.results[%d]; expected each list once", list, j)
			}
		}
	}
}

func (e Epoch) check(k checker) {
	if !k.readable("epoch.interval") {
		return // further checks need the devices
	}
	if e.Deadline > e.Interval {
		k.reject("epoch.deadline", "%s is out of range; expected at most the interval, %s", e.Deadline, e.Interval)
	}
	switch {
	case e.Guard >= e.Deadline:
		k.reject("epoch.guard", "%s leaves no time to read before the deadline, %s", e.Guard, e.Deadline)
	case e.Drain >= 3*e.Interval:
		k.reject("epoch.drain", "%s is out of range; expected less than three intervals, %s, because switches have banks "+
			"for four epochs", e.Drain, 3*e.Interval)
	case e.Guard+e.Drain%e.Interval >= e.Deadline:
		k.reject("epoch.drain", "%s after a guard of %s leaves no time to read before the deadline, %s%s", e.Drain,
			e.Guard, e.Deadline, after(e.Drain/e.Interval))
	}
}

// after describes a number of further epochs before a deadline.
func after(epochs time.Duration) string {
	if epochs == 0 {
		return ""
	}
	return fmt.Sprintf(", %d epochs later", epochs)
}

// checkDevices returns the path of each switch by name.
func (c *Config) checkDevices(k checker) map[string]string {
	type session struct {
		address string
		id      uint64
		role    string
	}
	names, sessions := map[string]string{}, map[session]string{}
	for i, dev := range c.Devices {
		at := fmt.Sprintf("devices[%d]", i)
		k.unique(at+".name", dev.Name, names)
		k.node(at+".name", dev.Name)
		if dev.DeviceID == 0 && dev.GNMI.Address == "" {
			k.reject(at+".device-id", "is missing or 0; expected the P4Runtime device_id of the switch, from 1, "+
				"or a gnmi address to get it from")
		}
		s := session{dev.Address, dev.DeviceID, dev.P4RuntimeRole}
		if other, taken := sessions[s]; taken && dev.Address != "" && dev.DeviceID != 0 {
			k.reject(at+".address", "%s with device-id %d is already %s", dev.Address, dev.DeviceID, other)
		}
		sessions[s] = at
		dev.Pipeline.check(k, at+".pipeline")
		dev.TLS.check(k, at+".tls")
		dev.GNMI.check(k, at+".gnmi")
		if (dev.GNMI.Configure == ConfigureApply || dev.GNMI.Configure == ConfigureEnforce) &&
			c.DeviceConfiguration.Directory == "" {
			k.reject("device-configuration.directory", "is missing; expected a directory that keeps what devices had before, "+
				"because %s.gnmi.configure is %s", at, dev.GNMI.Configure)
		}
		if dev.Mode == ModeBackup && dev.Forwarding == ForwardingManaged {
			k.reject(at+".forwarding", "managed needs mode primary: a backup may not write; expected none")
		}
		if dev.Forwarding == ForwardingManaged && len(c.Hosts) == 0 && k.read == 0 {
			k.reject(at+".forwarding", "managed without hosts deletes all routes of the switch; expected hosts, or none")
		}
	}
	return names
}

func (p Pipeline) check(k checker, at string) {
	files := p.P4Info != "" || p.DeviceConfig != ""
	switch {
	case p.Name != "" && files:
		k.reject(at, "has both a built-in program and files; expected one of the two")
	case p.Keep && p.DeviceConfig != "":
		k.reject(at, "keep never pushes a pipeline, so device-config is not used; expected one of the two")
	case files && (p.P4Info == "" || p.DeviceConfig == "") && !p.Keep:
		k.reject(at, "p4info and device-config belong together; one is missing")
	case p.Name == "" && !files && !p.Keep:
		k.reject(at, "is missing; expected the name of a built-in program such as univmon, or p4info and device-config")
	}
}

func (t TLS) check(k checker, at string) {
	if t.Plaintext && t != (TLS{Plaintext: true}) {
		k.reject(at+".plaintext", "turns TLS off, yet other TLS keys are given; expected one or the other")
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		k.reject(at, "cert-file and key-file belong together; one is missing")
	}
}

func (g GNMI) check(k checker, at string) {
	if g.Address == "" {
		for _, key := range []string{"username", "password", "tls", "subscriptions", "configure", "component", "ports"} {
			if k.Given(at + "." + key) {
				k.reject(at+".address", "is missing; expected host:port of the switch's gNMI server, such as 192.0.2.1:9339")
				break
			}
		}
	}
	if (g.Username == "") != (g.Password == "") {
		k.reject(at+".username", "expected username and password, or neither")
	}
	g.TLS.check(k, at+".tls")
	numbers, interfaces := map[uint32]int{}, map[string]int{}
	for i, p := range g.Ports {
		where := fmt.Sprintf("%s.ports[%d]", at, i)
		if other, taken := numbers[p.Number]; taken && p.Number != 0 {
			k.reject(where+".number", "%d is already the number of ports[%d]; expected unique numbers", p.Number, other)
		}
		if other, taken := interfaces[p.Interface]; taken && p.Interface != "" {
			k.reject(where+".interface", "%q is already ports[%d]; expected unique interfaces", p.Interface, other)
		}
		numbers[p.Number], interfaces[p.Interface] = i, i
	}
	for i, s := range g.Subscriptions {
		s.check(k, fmt.Sprintf("%s.subscriptions[%d]", at, i))
	}
}

func (a Agents) check(k checker, hosts []string) {
	switch {
	case a.Address == "" && len(hosts) > 0:
		k.reject("agents.address", "is missing; host %s has an agent: expected host:port, such as :9350", hosts[0])
	case a.Address == "":
		return
	case a.TLS.Plaintext && a.TLS != (AgentsTLS{Plaintext: true}):
		k.reject("agents.tls.plaintext", "turns TLS off, yet other TLS keys are given; expected one or the other")
	case a.TLS.Plaintext:
	case a.TLS.CertFile == "":
		k.reject("agents.tls.cert-file",
			"is missing; expected a file with the server's certificate, or tls: {plaintext: true}")
	case a.TLS.KeyFile == "":
		k.reject("agents.tls.key-file", "is missing; expected a file with the certificate's private key")
	case a.TLS.ClientCAFile == "":
		k.reject("agents.tls.client-ca-file", "is missing; expected a file with the certificates to trust for agents")
	}
}

func (s Subscription) check(k checker, at string) {
	if _, err := s.ParsePath(); err != nil && s.Path != "" {
		k.reject(at+".path", "%s", err)
	}
	if s.Mode != ModeSample && k.Given(at+".sample-interval") {
		k.reject(at+".sample-interval", "is for mode sample; the mode is %s", s.Mode)
	}
}

// switchSchema holds the paths of a switch that can be republished.
//
// It is a function and not a variable: the linker then leaves the compiler of YANG out of programs
// that only read their own file, as netsketch-agent does.
func switchSchema() (*yang.Schema, error) {
	switches.Do(func() { switches.schema, switches.err = yang.Load(yang.SwitchModules()...) })
	return switches.schema, switches.err
}

var switches struct {
	sync.Once
	schema *yang.Schema
	err    error
}

// ParsePath returns the path of a subscription, or an error if it is not a path or cannot be
// republished.
func (s Subscription) ParsePath() (*gpb.Path, error) {
	p, err := yang.ParsePath(s.Path)
	if err != nil {
		return nil, fmt.Errorf("expected a gNMI path; %s", strings.TrimPrefix(err.Error(), "yang: "))
	}
	schema, err := switchSchema()
	if err != nil {
		return nil, err
	}
	if err := schema.CheckPath(nil, p); err != nil {
		return nil, fmt.Errorf("no model of a switch has it: %s", strings.TrimPrefix(err.Error(), "yang: "))
	}
	return p, nil
}

func (c *Config) checkNetwork(k checker, switches map[string]string) {
	ports := map[PortRef]string{}
	for i, l := range c.Links {
		at := fmt.Sprintf("links[%d]", i)
		checkPort(k, at+".from", l.From, switches, ports)
		checkPort(k, at+".to", l.To, switches, ports)
	}
	hosts := map[string]string{}
	owners := map[settings.Prefix]string{}
	for i, h := range c.Hosts {
		at := fmt.Sprintf("hosts[%d]", i)
		k.unique(at+".name", h.Name, hosts)
		k.node(at+".name", h.Name)
		if other, taken := switches[h.Name]; taken {
			k.reject(at+".name", "%q is already the name of %s; expected unique names", h.Name, other)
		}
		checkPort(k, at+".port", h.Port, switches, ports)
		for j, p := range h.Addresses {
			if owner, taken := owners[p]; taken && p.IsValid() {
				k.reject(fmt.Sprintf("%s.addresses[%d]", at, j), "%s already belongs to host %s", p, owner)
			}
			owners[p] = h.Name
		}
	}
}

// node rejects a switch or host that is called "network", the name of all switches together.
func (k checker) node(path, name string) {
	if name == "network" {
		k.reject(path, "%q is the name of the whole network in results; expected another name", name)
	}
}

// checkPort checks one end of a link or the port of a host; used holds the ports in use.
func checkPort(k checker, at string, p PortRef, switches map[string]string, used map[PortRef]string) {
	_, known := switches[p.Switch]
	switch other, taken := used[p]; {
	case p == (PortRef{}): // the decoder has reported the missing port
	case !known:
		k.reject(at, "%q is not one of the devices: %s", p.Switch,
			settings.Suggestion(p.Switch, slices.Sorted(maps.Keys(switches))))
	case p.Port == 0:
		k.reject(at, "%s: port numbers start at 1", p)
	case taken:
		k.reject(at, "port %s is already used by %s", p, other)
	default:
		used[p] = at
	}
}

func (c *Config) checkPlugins(k checker, switches map[string]string) {
	if r := c.Plugins.Restart; r.Maximum < r.Initial {
		k.reject("plugins.restart.maximum", "%s is out of range; expected at least initial, %s", r.Maximum, r.Initial)
	}
	names, binaries, records := map[string]string{}, map[string]string{}, map[string]string{}
	for i, p := range c.Plugins.Instances {
		at := fmt.Sprintf("plugins.instances[%d]", i)
		binary := p.Binary()
		if other, taken := binaries[binary]; taken && p.Plugin != "" {
			k.reject(at+".plugin", "%s is already %s, and each would replace the other's results; "+
				"expected one instance with the devices of both", binary, other)
		} else {
			k.unique(at+".name", p.Name, names)
		}
		binaries[binary] = at
		if err := settings.CheckName(p.Name); err != nil && p.Plugin != "" {
			k.reject(at+".name", "%s", err)
		}
		if other, taken := records[p.Record]; taken && p.Record != "" {
			k.reject(at+".record", "%s is already the recording of %s; expected a file of its own", p.Record, other)
		}
		records[p.Record] = at
		for j, pattern := range p.Devices {
			where := fmt.Sprintf("%s.devices[%d]", at, j)
			if _, err := path.Match(pattern, "x"); err != nil {
				k.reject(where, "%q is not a pattern; expected a switch name with * and ?", pattern)
			} else if len(switches) > 0 && !matchesAny(pattern, switches) {
				k.reject(where, "%q matches none of the devices", pattern)
			}
		}
	}
}

func matchesAny(pattern string, names map[string]string) bool {
	for name := range names {
		if ok, _ := path.Match(pattern, name); ok {
			return true
		}
	}
	return false
}

// Selects reports whether the plugin measures a switch.
func (p Plugin) Selects(device string) bool {
	return len(p.Devices) == 0 || slices.ContainsFunc(p.Devices, func(pattern string) bool {
		ok, _ := path.Match(pattern, device)
		return ok
	})
}
