// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The network of a case: namespaces, links, switches, the router, the collector and agents.

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/internal/test/netns"
	"github.com/netsketch/netsketch/lab/programs"
)

const (
	collectorAddress = "10.255.0.1"
	// A switch sends to the Ethernet address of the next switch, which the collector derives from the
	// position in its file. The router answers to both.
	macS1, macS2 = "02:01:00:00:00:00", "02:01:00:00:00:01"
)

// host is one of the four hosts.
type host struct {
	name, device string // device and port of the switch
	port         int
	v4, v6       netip.Addr
}

var hosts = []host{
	{"h1", "s1", 2, netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("fd00:0:0:1::1")},
	{"h2", "s2", 2, netip.MustParseAddr("10.0.2.1"), netip.MustParseAddr("fd00:0:0:2::1")},
	{"c1", "s1", 3, netip.MustParseAddr("10.0.1.2"), netip.MustParseAddr("fd00:0:0:1::2")},
	{"c2", "s2", 3, netip.MustParseAddr("10.0.2.2"), netip.MustParseAddr("fd00:0:0:2::2")},
}

func hostOf(name string) host {
	for _, h := range hosts {
		if h.name == name {
			return h
		}
	}
	panic("no host " + name)
}

// address returns an address of a host.
func address(host string, six bool) netip.Addr {
	if six {
		return hostOf(host).v6
	}
	return hostOf(host).v4
}

// mac is the Ethernet address of a host.
func (h host) mac() string { return fmt.Sprintf("02:00:00:00:%s:0%d", h.device[1:]+"0", h.port) }

// world is the network of a case.
type world struct {
	dir, bin string
	settings settings
	epoch    time.Duration
	running  map[string]*programs.Program
	router   []*routerFilter
}

// settings are the settings in which cases differ.
type settings struct {
	// carrier is the carrier of the network; empty: the file names no carrier.
	carrier string
	// bridged: the device between the switches is a bridge, which forwards every EtherType.
	bridged bool
	// mtu is the MTU of all links, 9000 if 0. Routes of hosts have 1500 unless mtu is smaller.
	mtu int
	// unpinned agents leave nothing behind when they end.
	unpinned bool
	// programs are the pipelines of switches other than omnimon.
	programs map[string]string
	// plain hosts have no `agent: true` in the collector's file at first.
	plain []string
	// cabled hosts are attached through a bridge, so that the switch keeps its port while the
	// interface of the host is deleted.
	cabled bool
	// ahead is how many epochs the clock of h2's agent is ahead.
	ahead int
	// late hosts have no running agent at first.
	late []string
	// many: a host without a running agent has more addresses than hosts hold leases for, so that
	// leases are on demand.
	many bool
}

// isolate prepares this process, which has namespaces of its own.
func isolate(dir string) error {
	for _, m := range []struct{ kind, at string }{{"proc", "/proc"}, {"tmpfs", "/run"}, {"sysfs", "/sys"},
		{"bpf", "/sys/fs/bpf"}, {"bpf", filepath.Join(dir, "bpf")}} {
		if m.kind == "proc" {
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return fmt.Errorf("private mounts: %w", err)
			}
		}
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount of %s: %w", m.at, err)
		}
	}
	return nil
}

// run runs commands, one a line, whose words are separated by spaces.
func run(format string, args ...any) error {
	for line := range strings.Lines(fmt.Sprintf(format, args...)) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, out)
		}
	}
	return nil
}

// build makes namespaces and links. This process's own namespace has the switches and the
// collector.
func (w *world) build() error {
	if err := run(`ip link set dev lo up
		ip link add name mgmt type bridge
		ip addr add %s/24 dev mgmt
		ip link set dev mgmt up
		sysctl -qw net.ipv6.conf.default.disable_ipv6=1`, collectorAddress); err != nil {
		return err
	}
	for i, h := range hosts {
		if err := run(`ip netns add %[1]s
			ip -n %[1]s link set dev lo up
			ip netns exec %[1]s sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0
			ip link add name %[1]s-m type veth peer name mgmt netns %[1]s
			ip link set dev %[1]s-m master mgmt up
			ip -n %[1]s addr add 10.255.0.%[2]d/24 dev mgmt
			ip -n %[1]s link set dev mgmt up`, h.name, 11+i); err != nil {
			return err
		}
		if w.settings.cabled {
			if err := run(`ip link add name %[1]s-b type bridge mcast_snooping 0
				ip link set dev %[1]s-b up mtu %[2]d
				ip link add name %[1]s-sw mtu %[2]d type veth peer name %[1]s-c mtu %[2]d
				ip link set dev %[1]s-c master %[1]s-b up
				ip link set dev %[1]s-sw up`, h.name, w.mtu()); err != nil {
				return err
			}
		}
		if err := w.plug(h); err != nil {
			return err
		}
	}
	if w.settings.bridged {
		return run(`ip netns add r
			ip -n r link add name b type bridge mcast_snooping 0
			ip -n r link set dev b up mtu %[1]d
			ip link add name s1-r mtu %[1]d type veth peer name s1 mtu %[1]d netns r
			ip link add name s2-r mtu %[1]d type veth peer name s2 mtu %[1]d netns r
			ip link set dev s1-r up
			ip link set dev s2-r up
			ip -n r link set dev s1 master b up
			ip -n r link set dev s2 master b up`, w.mtu())
	}
	// Each side of the router has the address of the switch behind the other side.
	return run(`ip netns add r
		ip link add name s1-r mtu %[1]d type veth peer name s1 mtu %[1]d netns r
		ip link add name s2-r mtu %[1]d type veth peer name s2 mtu %[1]d netns r
		ip link set dev s1-r up
		ip link set dev s2-r up
		ip netns exec r sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
		ip netns exec r sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv4.icmp_msgs_per_sec=100000 net.ipv4.icmp_msgs_burst=1000
		ip netns exec r sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv6.icmp.ratelimit=0
		ip -n r link set dev s1 address %[3]s up
		ip -n r link set dev s2 address %[2]s up
		ip netns exec r ethtool -K s1 tx off tso off gso off gro off
		ip netns exec r ethtool -K s2 tx off tso off gso off gro off
		ip -n r addr add 10.0.3.1/24 dev s1
		ip -n r addr add 10.0.4.1/24 dev s2
		ip -n r addr add fd00:0:0:3::1/64 dev s1 nodad
		ip -n r addr add fd00:0:0:4::1/64 dev s2 nodad
		ip -n r neigh add 10.0.3.2 lladdr %[2]s dev s1
		ip -n r neigh add 10.0.4.2 lladdr %[3]s dev s2
		ip -n r neigh add fd00:0:0:3::2 lladdr %[2]s dev s1
		ip -n r neigh add fd00:0:0:4::2 lladdr %[3]s dev s2
		ip -n r route add 10.0.1.0/24 via 10.0.3.2
		ip -n r route add 10.0.2.0/24 via 10.0.4.2
		ip -n r route add fd00:0:0:1::/64 via fd00:0:0:3::2
		ip -n r route add fd00:0:0:2::/64 via fd00:0:0:4::2`, w.mtu(), macS1, macS2)
}

func (w *world) mtu() int {
	if w.settings.mtu > 0 {
		return w.settings.mtu
	}
	return 9000
}

// plug creates the interface of a host to its switch.
func (w *world) plug(h host) error {
	peer := h.name + "-sw"
	if w.settings.cabled {
		peer = h.name + "-x"
	}
	route := ""
	if w.mtu() > 1500 {
		route = "mtu 1500"
	}
	if err := run(`ip link add name %[1]s mtu %[2]d type veth peer name eth0 mtu %[2]d netns %[3]s
		ip -n %[3]s link set dev eth0 addrgenmode none address %[4]s`, peer, w.mtu(), h.name, h.mac()); err != nil {
		return err
	}
	if w.settings.cabled {
		if err := run(`ip link set dev %s master %s-b`, peer, h.name); err != nil {
			return err
		}
	}
	// The switch reads frames as they are: the host computes checksums and segments itself.
	return run(`ip netns exec %[1]s ethtool -K eth0 tx off tso off gso off
		ip link set dev %[2]s up
		ip -n %[1]s link set dev eth0 up
		ip -n %[1]s addr add %[3]s/32 dev eth0
		ip -n %[1]s -6 addr add %[4]s/128 dev eth0 nodad
		ip -n %[1]s neigh add 10.0.0.254 lladdr 02:00:00:00:00:fe dev eth0
		ip -n %[1]s neigh add fe80::fe lladdr 02:00:00:00:00:fe dev eth0
		ip -n %[1]s route add default via 10.0.0.254 dev eth0 onlink %[5]s
		ip -n %[1]s -6 route add default via fe80::fe dev eth0 onlink %[5]s`, h.name, peer, h.v4, h.v6, route)
}

// unplug deletes the interface of a host.
func (w *world) unplug(h host) error { return run("ip -n %s link del dev eth0", h.name) }

// start starts a program, in the namespace of a host or, if host is empty, in the namespace of this
// process.
func (w *world) start(name, host string, command ...string) error {
	if host != "" {
		command = append([]string{"ip", "netns", "exec", host}, command...)
	}
	var environment []string
	if name == "h2" && w.settings.ahead != 0 {
		environment = []string{"NETSKETCH_HARM_AHEAD=" + (time.Duration(w.settings.ahead) * w.epoch).String()}
	}
	p, err := programs.Start(w.dir, name, environment, command...)
	if err == nil {
		w.running[name] = p
	}
	return err
}

// end ends a program by a signal and waits for its end.
func (w *world) end(name string, s syscall.Signal) error {
	p := w.running[name]
	if p == nil {
		return fmt.Errorf("%s does not run", name)
	}
	delete(w.running, name)
	return p.End(s)
}

// gone waits for the end of a program.
func (w *world) gone(name string) error {
	p := w.running[name]
	delete(w.running, name)
	return p.Wait()
}

// ended returns an error if a program that should run has ended.
func (w *world) ended() error {
	var errs []error
	for name, p := range w.running {
		if p.Ended() {
			errs = append(errs, fmt.Errorf("%s has ended by itself: see its log", name))
		}
	}
	return errors.Join(errs...)
}

// startSwitch starts a switch, which waits for the collector's pipeline.
func (w *world) startSwitch(name string) error {
	id := name[1:]
	args := []string{filepath.Join(w.bin, "netsketch"), "switch", "--name", name, "--device-id", id,
		"--listen", collectorAddress + ":956" + id, "--port", "1=@" + name + "-r"}
	for _, h := range hosts {
		if h.device == name {
			args = append(args, "--port", fmt.Sprintf("%d=@%s-sw", h.port, h.name))
		}
	}
	return w.start(name, "", args...)
}

// configure writes the collector's file, which a running collector reads again.
func (w *world) configure() error {
	var b strings.Builder
	fmt.Fprintf(&b, `name: netsketch
epoch: {interval: %s, drain: 400ms}
device-defaults: {pipeline: omnimon, forwarding: managed, tls: {plaintext: true}}
devices:
`, w.epoch)
	for i, s := range []string{"s1", "s2"} {
		pipeline := ""
		if p := w.settings.programs[s]; p != "" {
			pipeline = ", pipeline: " + p
		}
		fmt.Fprintf(&b, "  - {name: %s, address: \"%s:956%d\", device-id: %d%s}\n", s, collectorAddress, i+1, i+1, pipeline)
	}
	b.WriteString("links:\n  - {from: s1/1, to: s2/1}\nhosts:\n")
	for _, h := range hosts {
		agent := ""
		if w.hasAgent(h.name) {
			agent = ", agent: true"
		}
		fmt.Fprintf(&b, "  - {name: %s, port: %s/%d, mac: %q, addresses: [%q, %q]%s}\n", h.name, h.device, h.port, h.mac(),
			h.v4, h.v6, agent)
	}
	if w.settings.many {
		b.WriteString("  - {name: many, port: s1/9, agent: true, addresses: [")
		for i := range 400 {
			fmt.Fprintf(&b, "10.9.%d.%d, ", i/200, i%200+1)
		}
		b.WriteString("]}\n")
	}
	config := "config: {limits: {flows: 1000}"
	if w.settings.carrier != "" {
		config += ", carrier: " + w.settings.carrier
	}
	fmt.Fprintf(&b, `agents: {address: "%[1]s:9350", tls: {plaintext: true}}
plugins:
  directory: %[2]s/plugins
  instances:
    - plugin: omnimon
      %[3]s
outputs:
  - {type: gnmi, address: "%[1]s:9339", tls: {plaintext: true}}
`, collectorAddress, w.bin, config+"}")
	next := w.collectorFile() + ".next"
	if err := os.WriteFile(next, []byte(b.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(next, w.collectorFile())
}

// hasAgent reports whether the collector's file says that a host has an agent. The control pair has
// none, unless a case adds it.
func (w *world) hasAgent(host string) bool {
	for _, p := range w.settings.plain {
		if p == host {
			return false
		}
	}
	return true
}

func (w *world) collectorFile() string { return filepath.Join(w.dir, "collector.yaml") }

func (w *world) startCollector() error {
	return w.start("collector", "", filepath.Join(w.bin, "netsketch"), "collector", "--config", w.collectorFile())
}

// agentCommand is the program of host agents.
func (w *world) agentCommand(host string, args ...string) []string {
	program := "netsketch-agent"
	if host == "h2" && w.settings.ahead != 0 {
		program = wrongClock
	}
	return append([]string{filepath.Join(w.bin, program)}, args...)
}

func (w *world) agentFile(host string) string { return filepath.Join(w.dir, host+".yaml") }

func (w *world) pins(host string) string { return filepath.Join(w.dir, "bpf", host) }

// startAgent writes the file of a host's agent and starts it.
func (w *world) startAgent(host string) error {
	pin := w.pins(host)
	if w.settings.unpinned {
		pin = ""
	}
	text := fmt.Sprintf(`host: %s
collector: {address: "%s:9350", tls: {plaintext: true}}
roles: [omnimon]
packets: {source: kernel, interface: eth0, disable-offloads: true, pin: %q}
`, host, collectorAddress, pin)
	if err := os.WriteFile(w.agentFile(host), []byte(text), 0o644); err != nil {
		return err
	}
	return w.start(host, host, w.agentCommand(host, "--config", w.agentFile(host))...)
}

// command runs a command of the agent's program in the namespace of a host.
func (w *world) command(host, name string) error {
	words := append([]string{"ip", "netns", "exec", host}, w.agentCommand(host, name, "--config", w.agentFile(host))...)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, out)
	}
	return nil
}

// removeAgent runs the command that removes the agent of a host, and waits for the agent's end.
func (w *world) removeAgent(host string) error {
	if err := w.command(host, "remove"); err != nil {
		return err
	}
	return w.gone(host)
}

// unpin removes all that an agent has pinned, as a reboot does.
func (w *world) unpin(host string) error { return os.RemoveAll(w.pins(host)) }

// unread is how many frames the switches could not take from their ports in time.
func (w *world) unread() (frames int, err error) {
	for _, s := range []string{"s1", "s2"} {
		lists, err := netns.Query(filepath.Join(w.bin, "netsketch"), "/interfaces/interface/state/counters",
			collectorAddress+":956"+s[1:])
		if err != nil {
			return 0, fmt.Errorf("counters of %s: %w", s, err)
		}
		for _, r := range lists["/interfaces/interface"] {
			frames += int(r.Number("counters/in-discards"))
		}
	}
	return frames, nil
}
