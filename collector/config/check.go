// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Names appear in YANG keys, gNMI paths and metrics, so they are plain.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

const nameHint = "expected letters, digits, dots, dashes and underscores, beginning with a letter or digit, at most 63"

// checker collects problems that types alone cannot express.
type checker struct {
	d *decoder
	// read is the number of problems that reading the file gave.
	read int
}

// add says nothing about a path that could not even be read.
func (k checker) add(path, format string, args ...any) {
	for _, p := range k.d.problems[:k.read] {
		if p.Path == path {
			return
		}
	}
	k.d.problems = append(k.d.problems, Problem{Position: k.d.position(path), Path: path, Message: fmt.Sprintf(format, args...)})
}

// given reports whether the file has path, so that one mistake is not reported twice.
func (k checker) given(path string) bool {
	_, ok := k.d.at[path]
	return ok
}

func (k checker) name(path, name string) {
	switch {
	case name == "":
		k.add(path, "is missing; %s", nameHint)
	case !nameForm.MatchString(name):
		k.add(path, "%q is not a name; %s", name, nameHint)
	}
}

// within checks a duration's range, bounds included.
func (k checker) within(path string, d, low, high time.Duration) {
	if d < low || d > high {
		k.add(path, "%s is out of range; expected %s to %s", seconds(d), seconds(low), seconds(high))
	}
}

// check adds the problems of the whole configuration to d.
func (c *Config) check(d *decoder) {
	k := checker{d, len(d.problems)}
	k.name("name", c.Name)
	c.Epoch.check(k)
	switches := c.checkDevices(k)
	c.checkNetwork(k, switches)
	c.checkPlugins(k, switches)
}

func (e Epoch) check(k checker) {
	before := len(k.d.problems)
	k.within("epoch.interval", e.Interval, 10*time.Millisecond, 24*time.Hour)
	if len(k.d.problems) > before {
		return // the others follow from it where they are not given
	}
	k.within("epoch.guard", e.Guard, 0, time.Minute)
	if e.Deadline < 0 || e.Deadline > e.Interval {
		k.add("epoch.deadline", "%s is out of range; expected at most the interval, %s", seconds(e.Deadline), seconds(e.Interval))
	}
	if e.ParallelReads < 0 {
		k.add("epoch.parallel-reads", "%d is negative; expected a number of switches, or 0", e.ParallelReads)
	}
	k.within("epoch.drain", e.Drain, 0, time.Minute)
	switch {
	case e.Guard >= e.Deadline:
		k.add("epoch.guard", "%s leaves no time to read before the deadline, %s", seconds(e.Guard), seconds(e.Deadline))
	case e.Guard+e.Drain >= e.Deadline:
		k.add("epoch.drain", "%s after a guard of %s leaves no time to read before the deadline, %s", seconds(e.Drain), seconds(e.Guard), seconds(e.Deadline))
	}
}

// checkDevices returns the switches' names.
func (c *Config) checkDevices(k checker) map[string]int {
	names := map[string]int{}
	type session struct {
		address string
		id      uint64
		role    string
	}
	sessions := map[session]int{}
	for i, dev := range c.Devices {
		at := fmt.Sprintf("devices[%d]", i)
		k.name(at+".name", dev.Name)
		if first, twice := names[dev.Name]; twice && dev.Name != "" {
			k.add(at+".name", "%q is already the name of devices[%d]; expected unique names", dev.Name, first)
		} else {
			names[dev.Name] = i
		}
		k.address(at+".address", dev.Address)
		if dev.DeviceID == 0 && dev.GNMI.Address == "" {
			k.add(at+".device-id", "is missing or 0; expected the P4Runtime device_id of the switch, from 1, or a gnmi address to ask for it")
		}
		s := session{dev.Address, dev.DeviceID, dev.P4RuntimeRole}
		if first, twice := sessions[s]; twice && dev.Address != "" && dev.DeviceID != 0 {
			k.add(at+".address", "%s with device-id %d is already devices[%d]", dev.Address, dev.DeviceID, first)
		} else {
			sessions[s] = i
		}
		k.within(at+".timeout", dev.Timeout, time.Millisecond, 10*time.Minute)
		dev.Pipeline.check(k, at+".pipeline")
		dev.TLS.check(k, at+".tls")
		dev.GNMI.check(k, at+".gnmi")
		if dev.Mode == ModeBackup && dev.Forwarding == ForwardingManaged {
			k.add(at+".forwarding", "managed needs mode primary: a backup may not write; expected none")
		}
	}
	return names
}

func (k checker) address(path, address string) {
	if address == "" {
		k.add(path, "is missing; expected host:port, such as 192.0.2.1:9559")
		return
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		k.add(path, "%q is not an address; expected host:port, such as 192.0.2.1:9559 or [2001:db8::1]:9559", address)
		return
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		k.add(path, "%q has no valid port; expected host:port with a port from 1 to 65535", address)
	}
	if host == "" {
		k.add(path, "%q names no host; expected host:port", address)
	}
}

func (p Pipeline) check(k checker, at string) {
	files := p.P4Info != "" || p.DeviceConfig != ""
	switch {
	case p.Name != "" && files:
		k.add(at, "names a built-in program and files; expected one of the two")
	case p.Keep && p.DeviceConfig != "":
		k.add(at, "keep never pushes a pipeline, so device-config is not used; expected one of the two")
	case files && (p.P4Info == "" || p.DeviceConfig == "") && !p.Keep:
		k.add(at, "p4info and device-config belong together; one is missing")
	case p.Name == "" && !files && !p.Keep:
		k.add(at, "is missing; expected the name of a built-in program such as univmon, or p4info and device-config")
	}
}

func (t TLS) check(k checker, at string) {
	if t.Plaintext && (t.CAFile != "" || t.CertFile != "" || t.KeyFile != "" || t.ServerName != "") {
		k.add(at+".plaintext", "turns TLS off, yet other TLS keys are given; expected one or the other")
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		k.add(at, "cert-file and key-file belong together; one is missing")
	}
}

func (c *Config) checkNetwork(k checker, switches map[string]int) {
	used := map[PortRef]string{}
	names := make([]string, 0, len(c.Devices))
	for _, d := range c.Devices {
		names = append(names, d.Name)
	}
	port := func(at string, p PortRef) {
		if p == (PortRef{}) {
			if !k.given(at) {
				k.add(at, "is missing; expected SWITCH/PORT, such as leaf1/1")
			}
			return
		}
		if _, ok := switches[p.Switch]; !ok {
			k.add(at, "%q is not one of the devices: %s", p.Switch, suggestion(p.Switch, names))
			return
		}
		if p.Port == 0 {
			k.add(at, "%s: ports count from 1", p)
			return
		}
		if other, taken := used[p]; taken {
			k.add(at, "port %s is already used by %s", p, other)
			return
		}
		used[p] = at
	}
	for i, l := range c.Links {
		at := fmt.Sprintf("links[%d]", i)
		port(at+".from", l.From)
		port(at+".to", l.To)
	}
	hosts := map[string]int{}
	prefixes := map[Prefix]string{}
	for i, h := range c.Hosts {
		at := fmt.Sprintf("hosts[%d]", i)
		k.name(at+".name", h.Name)
		if first, twice := hosts[h.Name]; twice && h.Name != "" {
			k.add(at+".name", "%q is already the name of hosts[%d]; expected unique names", h.Name, first)
		}
		hosts[h.Name] = i
		if first, twice := switches[h.Name]; twice && h.Name != "" {
			k.add(at+".name", "%q is already the name of devices[%d]; expected unique names", h.Name, first)
		}
		port(at+".port", h.Port)
		for j, p := range h.Addresses {
			where := fmt.Sprintf("%s.addresses[%d]", at, j)
			if other, taken := prefixes[p]; taken && p.IsValid() {
				k.add(where, "%s already belongs to host %s", p, other)
			}
			prefixes[p] = h.Name
		}
	}
}

func (c *Config) checkPlugins(k checker, switches map[string]int) {
	names, running := map[string]int{}, map[string]int{}
	r := c.Plugins.Restart
	k.within("plugins.restart.initial", r.Initial, time.Millisecond, time.Hour)
	k.within("plugins.restart.maximum", r.Maximum, r.Initial, 24*time.Hour)
	for i, p := range c.Plugins.Instances {
		at := fmt.Sprintf("plugins.instances[%d]", i)
		if p.Plugin == "" {
			k.add(at+".plugin", "is missing; expected the name of a plugin in %s, or a path", c.Plugins.Directory)
		} else {
			k.name(at+".name", p.Name)
			file := strings.TrimPrefix(filepath.Base(p.Plugin), "netsketch-plugin-")
			if first, twice := running[file]; twice {
				k.add(at+".plugin", "%s is plugins.instances[%d] already, and each would replace the other's results; expected one instance with the devices of both", file, first)
			} else if first, twice := names[p.Name]; twice {
				k.add(at+".name", "%q is already the name of plugins.instances[%d]: give this one a name of its own", p.Name, first)
			}
			running[file], names[p.Name] = i, i
		}
		for j, pattern := range p.Devices {
			where := fmt.Sprintf("%s.devices[%d]", at, j)
			if _, err := path.Match(pattern, "x"); err != nil {
				k.add(where, "%q is not a pattern; expected a switch name with * and ?", pattern)
				continue
			}
			if len(switches) > 0 && !matchesAny(pattern, switches) {
				k.add(where, "%q matches none of the devices", pattern)
			}
		}
		k.within(at+".deadline", p.Deadline, time.Millisecond, 24*time.Hour)
		if _, err := p.Config.Value(); err != nil {
			var inside Problems
			errors.As(err, &inside)
			k.d.problems = append(k.d.problems, inside...)
		}
	}
}

func matchesAny(pattern string, names map[string]int) bool {
	for name := range names {
		if ok, _ := path.Match(pattern, name); ok {
			return true
		}
	}
	return false
}

// Selects reports whether the plugin wants the switch of that name.
func (p Plugin) Selects(device string) bool {
	if len(p.Devices) == 0 {
		return true
	}
	for _, pattern := range p.Devices {
		if ok, _ := path.Match(pattern, device); ok {
			return true
		}
	}
	return false
}
