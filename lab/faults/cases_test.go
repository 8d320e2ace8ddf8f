// SPDX-License-Identifier: Apache-2.0

// The table of faults, and what its parts share.

package faults

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/netsketch/netsketch/internal/test/testkit"
)

// cases are all faults, in the order of the page.
var cases = slices.Concat(pluginCases, switchCases, configurationCases, databaseCases, collectorCases, clientCases,
	tlsCases)

// pid returns the process of a plugin.
func (t *trial) pid(plugin string) int {
	t.Helper()
	var pid int
	t.await("plugin "+plugin+" has a process", func() bool {
		var err error
		pid, err = strconv.Atoi(t.plugin(plugin, "pid"))
		return err == nil && pid > 0
	})
	return pid
}

// send sends a signal to a process.
func (t *trial) send(pid int, s syscall.Signal) {
	t.Helper()
	if err := testkit.Signal(pid, s); err != nil {
		t.Fatalf("%v to process %d: %v", s, pid, err)
	}
}

// faulty is a trial in which the plugin that misbehaves runs in a mode.
func faulty(mode string, further ...string) needs {
	return needs{faulty: strings.Join(append(further, `config: {mode: "`+mode+`"}`), "\n")}
}

// unstarted is a trial in which the plugin misbehaves before its handshake.
func unstarted(how string) needs { return faulty("", `environment: {FAULTY: `+how+`}`) }

// epochsPass lets the fault last for some epochs.
func epochsPass(t *trial) { t.pass(4) }

// shows waits until the state of plugin faulty has one of the errors.
func shows(errors ...string) func(*trial) {
	return func(t *trial) {
		t.Helper()
		e := ""
		t.within(30, "plugin faulty's last-error has "+strings.Join(errors, " or "), func() bool {
			e = t.plugin("faulty", "last-error")
			return slices.ContainsFunc(errors, func(x string) bool { return strings.Contains(e, x) })
		})
		t.see("status %s, last-error %q", t.plugin("faulty", "status"), short(e))
	}
}

// small checks that the collector uses no more memory than a healthy one, roughly.
func (t *trial) small(limit int) {
	t.Helper()
	rss := t.collector.rss()
	t.see("the collector uses %d MiB", rss)
	t.require(rss <= limit, "the collector uses %d MiB, promised %d", rss, limit)
}

// child waits for the child of plugin faulty and returns its process.
func (t *trial) child() int {
	t.Helper()
	child := 0
	t.await("a child process", func() bool {
		child = t.number("/faulty/row[name=row0]/state/child")
		return child > 0
	})
	t.Cleanup(func() {
		p, err := os.FindProcess(child) // a handle: a later process of this number is not meant
		if err != nil {
			return
		}
		defer p.Release() //nolint:errcheck // closes the handle
		environment, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", child))
		if strings.Contains(string(environment), "FAULTY=child") {
			_ = p.Kill() // fails if the process has ended
		}
	})
	return child
}

// orphan checks that a child ends.
func (t *trial) orphan(child int) {
	t.Helper()
	gone := false
	t.within(4, "the child has ended", func() bool { gone = !alive(child); return gone })
	t.see("child ended: %v", gone)
}

const spared = "UnivMon and the collector lose nothing; "

var pluginCases = []fault{
	{
		name: "plugin: kill -9", short: true,
		promise: "loses at most the epoch under analysis; is restarted at once, from its saved state",
		needs:   faulty(""), epochs: 1, back: 3,
		inject: func(t *trial) { t.send(t.pid("univmon"), syscall.SIGKILL) },
		check: func(t *trial) {
			t.within(3, "one restart", func() bool { return t.plugin("univmon", "restarts") == "1" })
			t.require(t.plugin("faulty", "epochs-lost") == "0", "the other plugin lost %s epochs",
				t.plugin("faulty", "epochs-lost"))
			// Changes are known if the epoch before has results. The restarted plugin has them from its
			// saved state.
			t.pass(2)
			without, unknown := 0, 0
			for e := t.injected; e < t.recorder.last(); e++ {
				switch r := t.recorder.seen(e); {
				case !r.whole():
					without++
				case !r.changes["leaf1"]:
					unknown++
				}
			}
			t.see("restarts 1, changes unknown in %d epochs", unknown)
			t.require(unknown <= without, "changes are unknown in %d epochs, and %d had no results", unknown, without)
		},
	},
	{
		name:    "plugin: hangs (SIGSTOP)",
		promise: "is killed at its deadline and restarted; loses at most three epochs",
		needs:   faulty(""), epochs: 3, back: 4,
		inject: func(t *trial) {
			pid := t.pid("univmon")
			t.send(pid, syscall.SIGSTOP)
			t.within(4, "the process is killed", func() bool { return !alive(pid) })
		},
		check: func(t *trial) {
			t.require(t.plugin("faulty", "epochs-lost") == "0", "the other plugin lost %s epochs",
				t.plugin("faulty", "epochs-lost"))
			t.see("last-error %q", short(t.plugin("univmon", "last-error")))
		},
	},
	{
		name:    "plugin: hangs for longer than epochs (deadline 40 s)",
		promise: "UnivMon's results are not delayed, and the collector's own tables by three epochs at most",
		needs:   faulty("", "deadline: 40s"), back: 4,
		inject: func(t *trial) {
			pid := t.pid("faulty")
			t.send(pid, syscall.SIGSTOP)
			own := t.recorder.last()
			from := now()
			t.elapse(8)
			epochs, passed := t.recorder.last()-own, now()-from
			t.see("%d epochs of the collector's tables in %d epochs", epochs, passed)
			t.require(epochs+4 >= passed, "%d epochs of the collector's tables in %d epochs", epochs, passed)
			_ = testkit.Signal(pid, syscall.SIGCONT) // failed health checks may have ended it
		},
	},
	{
		name:    "plugin: crashes in every epoch",
		promise: spared + "restarts slow down",
		needs:   faulty("exit"),
		inject:  func(t *trial) { t.pass(8) },
		check: func(t *trial) {
			n := t.number("/collector/plugins/plugin[name=faulty]/state/restarts")
			t.see("%d restarts, status %s", n, t.plugin("faulty", "status"))
			t.require(n >= 2 && n <= 8, "%d restarts", n)
			shows("exited with status 3")(t)
		},
	},
	{
		name:    "plugin: its configuration is fixed while it is in backoff",
		promise: "starts at once with the changed configuration",
		needs:   needs{faulty: `config: {mode: exit}`},
		inject: func(t *trial) {
			t.await("three restarts", func() bool {
				return t.number("/collector/plugins/plugin[name=faulty]/state/restarts") >= 3 &&
					t.plugin("faulty", "status") == "BACKOFF"
			})
			t.edit("mode: exit", "mode: fixed")
			t.within(3, "the plugin publishes with the changed configuration", func() bool {
				return t.get("/faulty/row[name=row0]/state/text") == "fixed"
			})
			t.see("status %s", t.plugin("faulty", "status"))
		},
		back: 3,
	},
	{
		name:    "plugin: floods the log",
		promise: spared + "lines above the rate are dropped and counted",
		needs:   faulty("stderr"), inject: epochsPass,
		check: func(t *trial) {
			t.within(6, "dropped lines are counted", func() bool {
				return t.number("/collector/plugins/plugin[name=faulty]/state/log-lines-dropped") > 1000
			})
			t.see("log-lines-dropped %s, %d KiB of log", t.plugin("faulty", "log-lines-dropped"), len(t.collector.text())>>10)
			t.small(400)
		},
	},
	{
		name:    "plugin: floods standard output",
		promise: spared + "lines above the rate are dropped and counted",
		needs:   faulty("stdout"), inject: epochsPass,
		check: func(t *trial) {
			t.within(6, "dropped lines are counted", func() bool {
				return t.number("/collector/plugins/plugin[name=faulty]/state/log-lines-dropped") > 1000
			})
			t.see("log-lines-dropped %s", t.plugin("faulty", "log-lines-dropped"))
			t.small(400)
		},
	},
	{
		name:    "plugin: output without end instead of a handshake",
		promise: spared + "the start fails with a reason",
		needs:   unstarted("flood"), inject: epochsPass,
		check: func(t *trial) {
			shows("plugin", "handshake")(t)
			t.small(400)
		},
	},
	{
		name:    "plugin: no handshake",
		promise: spared + "the start fails with a reason",
		needs:   unstarted("silent"), inject: epochsPass, check: shows("handshake"),
	},
	{
		name:    "plugin: garbage on its socket",
		promise: spared + "the start fails with a reason",
		needs:   unstarted("socket"), inject: epochsPass,
		check: func(t *trial) {
			t.within(15, "the state has an error", func() bool { return t.plugin("faulty", "last-error") != "" })
			t.see("status %s, last-error %q", t.plugin("faulty", "status"), short(t.plugin("faulty", "last-error")))
			t.small(400)
		},
	},
	{
		name:    "plugin: tables of 276 MB",
		promise: spared + "the results are refused, with the limit and the way out in the error",
		needs:   faulty("huge", "deadline: 30s"), inject: epochsPass,
		check: func(t *trial) {
			shows("(268435456 bytes); configure the plugin to report fewer rows")(t)
			t.small(1000)
		},
	},
	{
		name:    "plugin: a table of another plugin's list",
		promise: spared + "the results are refused",
		needs:   faulty("undeclared"), inject: epochsPass, check: shows("summary"),
	},
	{
		name:    "plugin: NaN",
		promise: spared + "the results are refused, with row and leaf in the error",
		needs:   faulty("nan"), inject: epochsPass, check: shows("NaN"),
	},
	{
		name:    "plugin: infinity",
		promise: spared + "the results are refused, with row and leaf in the error",
		needs:   faulty("infinity"), inject: epochsPass, check: shows("Inf"),
	},
	{
		name:    "plugin: 100,000 events in an epoch",
		promise: spared + "events above the limit are dropped",
		needs:   faulty("events"), inject: epochsPass,
		check: func(t *trial) {
			n := t.collector.logged("event ")
			t.see("%d events in the log", n)
			t.require(n > 0 && n <= 2000, "%d events in the log", n)
		},
	},
	{
		name: "plugin: killed, with a child in another session (setsid)", linux: true,
		promise: spared + "the child ends with the plugin",
		needs:   faulty("child"), back: 3,
		inject: func(t *trial) {
			child := t.child()
			t.send(t.pid("faulty"), syscall.SIGKILL)
			t.orphan(child)
		},
	},
	{
		name: "plugin: uses ever more memory", linux: true,
		promise: spared + "the plugin ends at its memory limit and is restarted",
		needs:   faulty("memory", "memory-limit: 256MiB", "deadline: 20s"), inject: epochsPass,
		check: func(t *trial) {
			shows("memory limit")(t)
			t.see("%s kills, by %s", t.plugin("faulty", "out-of-memory-kills"), t.plugin("faulty", "memory-limit-method"))
			t.small(400)
		},
	},
}

// lostRow reports whether the newest summary of a device shows that its epoch is lost.
func (t *trial) lostRow(device string) bool {
	t.Helper()
	return t.recorder.seen(t.recorder.last()).state[device] == "LOST" ||
		t.recorder.seen(t.recorder.last() - 1).state[device] == "LOST"
}

// missing checks the state while a device is away.
func (t *trial) missing(device string) {
	t.Helper()
	from := t.recorder.last()
	t.within(6, "epochs are partial and name "+device, func() bool {
		e := t.recorder.seen(t.recorder.last())
		return t.recorder.last() > from && e.status == "PARTIAL" && e.missing == device && e.expected == len(devices)
	})
	t.within(3, "the summary of "+device+" is lost", func() bool { return t.lostRow(device) })
	t.see("partial, missing %s: %q", device, short(t.device(device, "last-error")))
}

// quiet requires that the number of the log's warnings about a device is between least and most.
func (t *trial) quiet(device string, least, most int) {
	t.Helper()
	warnings := t.collector.logged("level=WARN", "device="+device) + t.collector.logged("level=ERROR", "device="+device)
	t.see("%d warnings about it", warnings)
	t.require(warnings >= least && warnings <= most, "%d warnings about %s, promised %d to %d", warnings, device, least,
		most)
}

const away = "is missing and named with its reason, with rows of status lost; the other switches lose nothing; "

var switchCases = []fault{
	{
		name:    "switch: kill -9 and a new start",
		promise: away + "gets pipeline and routes again",
		hit:     []string{"spine1"}, back: 6, cut: true,
		inject: func(t *trial) {
			d := t.devices["spine1"]
			d.kill()
			t.missing("spine1")
			t.startSwitch(d)
		},
		check: func(t *trial) {
			before := t.network.counts().received
			t.within(8, "packets reach h2 again", func() bool { return t.network.counts().received > before })
			t.quiet("spine1", 1, 4)
		},
	},
	{
		name:    "switch: hangs (SIGSTOP) for some epochs",
		promise: away + "its stop delays no epoch",
		hit:     []string{"spine1"}, back: 6,
		inject: func(t *trial) {
			d := t.devices["spine1"]
			d.signal(syscall.SIGSTOP)
			t.missing("spine1")
			from, last := now(), t.recorder.last()
			t.elapse(4)
			t.require(t.recorder.last()-last+2 >= now()-from, "%d epochs in the time of %d", t.recorder.last()-last,
				now()-from)
			d.signal(syscall.SIGCONT)
		},
		check: func(t *trial) { t.quiet("spine1", 1, 4) },
	},
	{
		name:    "switch: killed and started three times",
		promise: away + "one line in the log for each change",
		hit:     []string{"spine1"}, back: 6, cut: true,
		inject: func(t *trial) {
			d := t.devices["spine1"]
			for range 3 {
				d.kill()
				t.missing("spine1")
				t.startSwitch(d)
				t.await("spine1 is ready", func() bool { return t.device("spine1", "connection") == "READY" })
			}
		},
		check: func(t *trial) { t.quiet("spine1", 3, 12) },
	},
	{
		name:    "switch: garbage on its P4Runtime port",
		promise: "no epoch is lost",
		back:    3,
		inject: func(t *trial) {
			n := t.garbage(t.devices["spine1"].address)
			t.pass(3)
			t.see("%d connections with garbage", n)
		},
	},
	{
		name:    "switch: its address answers garbage",
		promise: away + "recovers when the switch is back",
		hit:     []string{"spine1"}, back: 8, cut: true,
		inject: func(t *trial) {
			d := t.devices["spine1"]
			d.kill()
			stop := t.answerGarbage(d.address)
			t.missing("spine1")
			t.pass(3)
			stop()
			t.startSwitch(d)
		},
		check: func(t *trial) { t.small(400) },
	},
	{
		name:    "switch: a program marks a copy of the metadata as dropped",
		promise: "no packet leaves, as from BMv2",
		back:    3,
		inject: func(t *trial) {
			left, forwarded := t.dropAll(100)
			t.see("%d of 100 packets leave", left)
			t.require(left == 0, "%d of 100 packets leave", left)
			t.require(forwarded == 100, "%d of 100 other packets leave", forwarded)
		},
	},
	{
		name:    "switch: two collectors with equal election ids",
		promise: "the first stays primary of all switches; the second is a backup and has the reason",
		needs:   needs{device: "election-id: 5"},
		inject: func(t *trial) {
			second := t.second()
			t.pass(4)
			for _, d := range devices {
				t.within(6, "the second is backup of "+d, func() bool {
					return second.get("/collector/devices/device[node="+d+"]/state/connection") == "BACKUP"
				})
				t.require(t.device(d, "mastership") == "PRIMARY", "the first is %s of %s", t.device(d, "mastership"), d)
			}
			t.see("second: %q", short(second.get("/collector/devices/device[node=spine1]/state/last-error")))
			t.pass(2)
			second.collector.kill()
		},
		back: 3,
	},
}

// cuts are ways in which a configuration file may be incomplete.
func cuts(whole string) map[string]string {
	before := func(key string) string { return whole[:strings.Index(whole, key)] }
	return map[string]string{
		"empty": "", "before links": before("links:"), "before hosts": before("hosts:"),
		"within devices": before("  - {name: leaf2"), "within a line": before("name: spine1"), "a newline": "\n",
	}
}

// reload is a leaf about the newest version of the configuration file.
func (t *trial) reload(leaf string) string { return t.get("/collector/reload/state/" + leaf) }

// notApplied waits until the newest version of the file is refused or held, and returns which.
func (t *trial) notApplied() string {
	t.Helper()
	status := ""
	t.within(4, "the file is refused or held", func() bool {
		status = t.reload("status")
		return status == "REFUSED" || status == "HELD"
	})
	return status
}

var configurationCases = []fault{
	{
		name:    "configuration: the file is cut",
		promise: "no switch, route or result is lost while it stays cut; the state has the reason",
		back:    3,
		inject: func(t *trial) {
			whole, seen := t.config(), map[string][]string{}
			for _, how := range slices.Sorted(maps.Keys(cuts(whole))) {
				t.write(cuts(whole)[how])
				status := t.notApplied()
				seen[status] = append(seen[status], how)
				t.pass(2)
				e := t.recorder.seen(t.recorder.last())
				t.require(e.whole(), "%s: epochs are %s with %d devices", how, e.status, e.expected)
				t.write(whole)
				t.within(4, "the whole file is applied", func() bool { return t.reload("status") == "APPLIED" })
			}
			for _, status := range slices.Sorted(maps.Keys(seen)) {
				t.see("%s: %s", status, strings.Join(seen[status], ", "))
			}
		},
	},
	{
		name:    "configuration: a bad pipeline for one switch",
		promise: "the file is refused with the reason, and the earlier one stays in force; a fixed file is applied",
		back:    3,
		inject: func(t *trial) {
			good := `{name: spine1, address: "` + t.devices["spine1"].address + `", device-id: 3}`
			bad := strings.Replace(good, "}", ", pipeline: {p4info: netsketch.yaml, device-config: netsketch.yaml}}", 1)
			t.edit(good, bad)
			t.see("%s: %q", t.notApplied(), short(t.reload("reason")))
			t.require(strings.Contains(t.reload("reason"), "spine1"), "the reason does not name the switch")
			t.pass(3)
			e := t.recorder.seen(t.recorder.last())
			t.require(e.expected == len(devices), "%d devices are expected", e.expected)
			t.require(e.whole() || e.missing == "spine1", "epochs are %s, missing %q", e.status, e.missing)
			t.see("epochs are %s, %d devices expected, missing %q", e.status, e.expected, e.missing)
			t.edit(bad, good)
		},
	},
	{
		name:    "configuration: a switch is removed with its links",
		promise: "more than a quarter of the switches: nothing is removed until SIGHUP confirms it",
		needs:   needs{top: "reload: {confirm-after: 2s}"},
		hit:     []string{"spine1"}, back: 6, cut: true,
		inject: func(t *trial) {
			whole := t.config()
			var without strings.Builder
			for line := range strings.Lines(whole) {
				if !strings.Contains(line, "spine1") && !strings.HasPrefix(line, "links:") {
					without.WriteString(line)
				}
			}
			t.write(without.String())
			t.require(t.notApplied() == "HELD", "the file is %s", t.reload("status"))
			t.see("held: %s", t.reload("removal"))
			t.pass(4)
			e := t.recorder.seen(t.recorder.last())
			t.require(e.whole(), "unconfirmed: epochs are %s with %d devices", e.status, e.expected)
			t.elapse(3) // reload.confirm-after
			t.collector.signal(syscall.SIGHUP)
			t.within(6, "two switches are left after SIGHUP", func() bool {
				return t.recorder.seen(t.recorder.last()).expected == 2
			})
			t.see("three switches until SIGHUP, then two")
			t.write(whole)
		},
	},
	{
		name:    "clock: set back by 6 s while a switch hangs",
		promise: "epochs go on; results have the new time after two epochs with an accuracy warning; one line in the log",
		needs:   needs{before: stepped}, hit: []string{"spine1"}, back: 6,
		inject: func(t *trial) {
			t.devices["spine1"].signal(syscall.SIGSTOP)
			step(t, "-6s")
			t.devices["spine1"].signal(syscall.SIGCONT)
		},
		check: func(t *trial) { stepSeen(t) },
	},
	{
		name:    "clock: set forward by 6.3 s",
		promise: "epochs go on; results have the new time after two epochs with an accuracy warning; one line in the log",
		needs:   needs{before: stepped}, back: 4,
		inject: func(t *trial) { step(t, "6300ms") },
		check:  func(t *trial) { stepSeen(t) },
	},
}

// second is a second collector with the same switches.
func (t *trial) second() *trial {
	t.Helper()
	s := *t
	s.gnmi = freeAddress(t)
	s.dir = filepath.Join(t.dir, "second")
	s.keys = maps.Clone(t.keys)
	s.keys["gnmi"], s.keys["dir"] = s.gnmi, s.dir
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.write(strings.Replace(s.config(), "name: netsketch", "name: second", 1))
	s.startCollector()
	s.conn = s.dial(insecure.NewCredentials())
	return &s
}
