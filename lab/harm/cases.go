// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The table of cases.

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// startAgents returns a function that starts agents of hosts.
func startAgents(names ...string) func(*trial) error {
	return func(t *trial) error {
		for _, name := range names {
			if err := t.world.startAgent(name); err != nil {
				return err
			}
		}
		return nil
	}
}

// ends returns a function that ends programs by a signal.
func ends(s syscall.Signal, names ...string) func(*trial) error {
	return func(t *trial) error { return t.signal(s, names...) }
}

// also returns a function that calls functions one after the other until one fails.
func also(fs ...func(*trial) error) func(*trial) error {
	return func(t *trial) error {
		for _, f := range fs {
			if err := f(t); err != nil {
				return err
			}
		}
		return nil
	}
}

func startCollector(t *trial) error { return t.world.startCollector() }

// unpins returns a function that removes what the agent of a host has pinned.
func unpins(host string) func(*trial) error {
	return func(t *trial) error { return t.world.unpin(host) }
}

// option, shim and tunnel are the settings of a network with a carrier. A router drops frames with
// an EtherType that it does not know, so the carrier shim needs a bridge.
var (
	option = settings{carrier: "option"}
	shim   = settings{carrier: "shim", bridged: true}
	tunnel = settings{carrier: "tunnel"}
)

func unpinned(s settings) settings { s.unpinned = true; return s }

func late(s settings, hosts ...string) settings { s.late = hosts; return s }

func cabled(s settings) settings { s.cabled = true; return s }

func mtu(s settings, mtu int) settings { s.mtu = mtu; return s }

func many(s settings) settings { s.many = true; return s }

// ahead is a network in which the clock of h2's agent is wrong.
func ahead(s settings) settings { s.ahead = 10; return s }

// foreign is a network in which s2 runs another program.
func foreign(s settings) settings { s.programs = map[string]string{"s2": other}; return s }

// other is a program that does not count OmniMon's packets.
const other = "univmon-300k"

// setProgram changes the program of s2 in the collector's file.
func setProgram(program string) func(*trial) error {
	return func(t *trial) error {
		t.world.settings.programs = map[string]string{"s2": program}
		return t.world.configure()
	}
}

// setAgent changes whether the collector's file says that a host has an agent.
func setAgent(host string, agent bool) func(*trial) error {
	return func(t *trial) error {
		plain := slices.DeleteFunc(slices.Clone(t.world.settings.plain), func(h string) bool { return h == host })
		if !agent {
			plain = append(plain, host)
		}
		t.world.settings.plain = plain
		return t.world.configure()
	}
}

// leaves returns a function that waits until a running agent has removed its programs and pins.
func leaves(host string) func(*trial) error {
	return func(t *trial) error {
		return t.await("the agent of "+host+" removes its programs", func() bool {
			_, err := os.Stat(filepath.Join(t.world.pins(host), "omnimon"))
			return errors.Is(err, os.ErrNotExist)
		})
	}
}

// routerMTU sets the MTU of both links of the device between the switches, at once: a packet
// between two changes would make the device send ICMP to one host of a pair, which then sends
// fragments.
func routerMTU(mtu int) func(*trial) error {
	return func(*trial) error {
		set := exec.Command("ip", "-n", "r", "-batch", "-")
		set.Stdin = strings.NewReader(fmt.Sprintf("link set dev s1 mtu %[1]d\nlink set dev s2 mtu %[1]d\n", mtu))
		if out, err := set.CombinedOutput(); err != nil {
			return fmt.Errorf("mtu %d: %w: %s", mtu, err, out)
		}
		return nil
	}
}

var scenarios = slices.Concat(eachCarrier(), []scenario{
	{name: "stopped-unpinned", what: "the agent of h2 ends by SIGTERM, and has pinned nothing",
		settings: unpinned(option), fail: ends(syscall.SIGTERM, "h2"), heal: startAgents("h2"), to: []string{"h2"},
		silent: []string{"h2"}},
	{name: "rebooted-with-unit", what: "as rebooted, and the unit that strips when the system starts runs at once",
		settings: option, fail: also(ends(syscall.SIGKILL, "h2"), unpins("h2"),
			func(t *trial) error { return t.world.command("h2", "strip") }), heal: startAgents("h2"), to: []string{"h2"},
		silent: []string{"h2"}},
	{name: "killed-both", what: "the agents of both hosts end by SIGKILL, and have pinned nothing",
		settings: unpinned(option), fail: ends(syscall.SIGKILL, "h1", "h2"), heal: startAgents("h1", "h2"),
		to: []string{"h1", "h2"}, silent: []string{"h1", "h2"}},
	{name: "restarted-without-collector",
		what:     "the agent of h2 is restarted, without pins, while the collector is down",
		settings: unpinned(option), fail: also(ends(syscall.SIGKILL, "collector", "h2"), startAgents("h2")),
		heal: startCollector, to: []string{"h1", "h2"}, silent: []string{"h1", "h2"}},
	{name: "removed", what: "the agent of h2 is removed by netsketch-agent remove", settings: option,
		fail: func(t *trial) error { return t.world.removeAgent("h2") },
		heal: startAgents("h2"), silent: []string{"h2"}, hold: 4 * lease},
	{name: "collector-killed", what: "the collector ends by SIGKILL", quick: true, settings: option,
		fail: ends(syscall.SIGKILL, "collector"), heal: startCollector},
	{name: "collector-and-agent-killed", what: "the collector and the agent of h2 end by SIGKILL", settings: option,
		fail: ends(syscall.SIGKILL, "collector", "h2"), heal: also(startCollector, startAgents("h2")), to: []string{"h2"},
		silent: []string{"h2"}},
	{name: "interface-recreated", what: "the interface of h2 is deleted and created again", settings: cabled(option),
		fail: func(t *trial) error {
			// The outage of the control pair encloses the outage of h2.
			for _, name := range []string{"c2", "h2"} {
				if err := t.world.unplug(hostOf(name)); err != nil {
					return err
				}
			}
			for _, name := range []string{"h2", "c2"} {
				if err := t.world.plug(hostOf(name)); err != nil {
					return err
				}
			}
			return nil
		}, to: []string{"h2"}},
	{name: "mtu-1500", what: "all links and routes have an MTU of 1500: full packets have no room for a carrier",
		settings: mtu(option, 1500), after: exactTCP},
	{name: "switch-foreign", what: "s2 runs another program from the start", settings: foreign(option), inexact: true},
	{name: "switch-foreign-shim",
		what:     "as before, with the carrier shim, which programs pass unread",
		settings: foreign(shim), inexact: true},
	{name: "host-added", what: "c2 gets `agent: true` in the collector's file, and no agent", settings: option,
		fail: setAgent("c2", true), heal: setAgent("c2", false)},
	{name: "agent-false", what: "h2 loses `agent: true` in the collector's file", settings: option,
		fail: also(setAgent("h2", false), leaves("h2")), heal: setAgent("h2", true), silent: []string{"h2"},
		hold: 4 * lease},
	{name: "forged-unknown", what: "25 packets from an address of no host, each four epochs ahead of the one before",
		quick: true, settings: option, fail: func(t *trial) error { return t.world.forge(netip.MustParseAddr("10.0.1.9")) }},
	{name: "forged-known", what: "the same from the address of h1", settings: option,
		fail: func(t *trial) error { return t.world.forge(hostOf("h1").v4) }},
	{name: "clock-ahead", what: "the clock of h2 is ten epochs ahead", settings: ahead(option),
		inexact: true, ahead: 4},
	{name: "options-dropped", what: "the router drops packets with IP options", quick: true, settings: option,
		before: func(t *trial) error { return t.world.dropOptions() }, untagged: true, inexact: true},
	{name: "options-dropped-later", what: "the router begins to drop packets with IP options", settings: option,
		fail: func(t *trial) error { return t.world.dropOptions() },
		heal: func(t *trial) error { return t.world.passOptions() },
		to:   []string{"h1", "h2"}, silent: []string{"h1", "h2"}},
	{name: "ethertypes-dropped", what: "the router drops frames with an EtherType that it does not know",
		settings: settings{carrier: "shim"}, untagged: true, inexact: true},
})

// eachCarrier returns the cases that run with each carrier.
func eachCarrier() (all []scenario) {
	for _, s := range []settings{option, shim, tunnel} {
		cases := []scenario{
			{name: "started", what: "nothing fails; agents start while traffic runs", quick: true, settings: s},
			{name: "never-started", what: "the agent of h2 does not start until the end", quick: true,
				settings: late(s, "h2"), heal: startAgents("h2"), silent: []string{"h2"}},
			{name: "killed", what: "the agent of h2 ends by SIGKILL; its programs stay", quick: true,
				settings: s, fail: ends(syscall.SIGKILL, "h2"), heal: startAgents("h2"), silent: []string{"h2"}},
			{name: "killed-on-demand", what: "as killed, in a network in which leases are on demand",
				settings: many(s), fail: ends(syscall.SIGKILL, "h2"), heal: startAgents("h2"), silent: []string{"h2"}},
			{name: "killed-unpinned", what: "the agent of h2 ends by SIGKILL, and has pinned nothing",
				settings: unpinned(s), fail: ends(syscall.SIGKILL, "h2"), heal: startAgents("h2"), to: []string{"h2"},
				silent: []string{"h2"}},
			{name: "stopped", what: "the agent of h2 ends by SIGTERM",
				settings: s, fail: ends(syscall.SIGTERM, "h2"), heal: startAgents("h2"), silent: []string{"h2"}},
			{name: "rebooted", what: "the agent of h2 ends by SIGKILL, and its pins are removed",
				settings: s, fail: also(ends(syscall.SIGKILL, "h2"), unpins("h2")), heal: startAgents("h2"),
				to: []string{"h2"}, silent: []string{"h2"}},
			{name: "mtu-reduced", what: "the MTU of the router becomes 1400, then as before",
				settings: s, fail: routerMTU(1400), heal: routerMTU(9000), to: []string{"h1", "h2"}},
			{name: "switch-replaced", what: "s2 gets another program, then OmniMon's again",
				settings: s, fail: setProgram(other), heal: setProgram("omnimon"), to: []string{"h1", "h2"}},
		}
		for _, c := range cases {
			c.name += "-" + s.carrier
			c.quick = c.quick && s.carrier == "option"
			all = append(all, c)
		}
	}
	return all
}
