// SPDX-License-Identifier: Apache-2.0

package collector_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// disk is a small file system.
type disk string

// full returns the path of the file that fills a disk.
func (d disk) full() string { return filepath.Join(string(d), "full") }

// mountDisk mounts a disk of 24 MiB. If the process may not mount, the test is skipped, or fails in
// `make full-disks`.
func mountDisk(t *testing.T) disk {
	t.Helper()
	path := t.TempDir()
	if err := syscall.Mount("disk", path, "tmpfs", 0, "size=24m"); err != nil {
		stop := t.Skipf
		if os.Getenv("NETSKETCH_DISKS") != "" {
			stop = t.Fatalf
		}
		stop("a small file system cannot be mounted, which needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return disk(path)
}

// fill fills the disk completely.
func (d disk) fill(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(d.full(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// empty frees the disk again.
func (d disk) empty(t *testing.T) {
	t.Helper()
	if err := os.Remove(d.full()); err != nil {
		t.Fatal(err)
	}
}

// onDisks is a cluster of the collectors c1 and c2 whose NATS servers have a disk each.
type onDisks struct {
	t        *testing.T
	disks    []disk
	nats     *bustest.Cluster
	switches []*realSwitch
	members  map[string]clustered
	stop     map[string]func()
	admin    *bus.Bus
	planned  int // number of the newest entry
}

// startOnDisks starts collectors with one switch each or more, and further sections of their
// configuration. It waits until entries of plans are shared.
func startOnDisks(t *testing.T, interval string, servers, switches int, more string) *onDisks {
	t.Helper()
	x := &onDisks{t: t, members: map[string]clustered{}, stop: map[string]func(){}}
	var directories []string
	for range servers {
		d := mountDisk(t)
		x.disks, directories = append(x.disks, d), append(directories, filepath.Join(string(d), "nats"))
	}
	x.nats = bustest.StartCluster(t, directories...)
	for range switches {
		x.switches = append(x.switches, startSwitch(t, "127.0.0.1:0"))
	}
	addresses := strings.Join(x.nats.Addresses, `", "`)
	for _, name := range []string{"c1", "c2"} {
		yaml := managed(name, interval, addresses, x.switches) + more
		yaml = strings.Replace(yaml, "nats: {", fmt.Sprintf("nats: {replicas: %d, ", servers), 1)
		x.members[name], x.stop[name] = startMember(t, name, yaml)
	}
	var err error
	x.admin, err = bus.Connect(t.Context(), bus.Config{Name: "fabric", Servers: x.nats.Addresses, Replicas: servers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.admin.Close)
	testkit.Until(t, "each collector owns switches", func() bool {
		a, b := len(x.members["c1"].owns()), len(x.members["c2"].owns())
		return a+b == switches && (a > 0 && b > 0 || switches == 1)
	})
	x.shares("before")
	return x
}

// leaf is a leaf of a member's state in the cluster.
func (x *onDisks) leaf(member, name string) string {
	x.members[member].StateChanged()
	return leafIn(x.members[member].Store().View(), "/collector/cluster/state", name)
}

// owner returns the member that owns s1, and the member that does not.
func (x *onDisks) owner() (owner, other string) {
	x.t.Helper()
	testkit.Until(x.t, "s1 has an owner", func() bool {
		for _, name := range []string{"c1", "c2"} {
			if slices.Contains(x.members[name].owns(), "s1") {
				owner = name
			}
		}
		return owner != ""
	})
	return owner, map[string]string{"c1": "c2", "c2": "c1"}[owner]
}

// next begins another entry.
func (x *onDisks) next() { x.planned++ }

// prefix returns the first bytes of the newest entry's address. They are letters and digits, which
// the text form of protocol buffers does not escape.
func (x *onDisks) prefix() []byte {
	const all = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	return []byte{all[x.planned/len(all)], all[x.planned%len(all)]}
}

// plan makes the owner of s1 plan the newest entry, perhaps once more.
func (x *onDisks) plan() {
	owner, _ := x.owner()
	plan := drop("s1", 0)
	plan.ID = uint64(x.planned)
	match := &plan.Writes[0].Entry.Matches[0]
	match.Value, match.PrefixLen = append(x.prefix(), 0, 0), 16
	x.members[owner].Plan(x.t.Context(), "p", plan)
}

// written reports whether s1 has the newest entry.
func (x *onDisks) written() bool {
	return strings.Contains(strings.Join(entries(x.t, x.switches[0]), ""), `"`+string(x.prefix())+`\x00\x00"`)
}

// writes plans another entry, and waits until s1 has it.
func (x *onDisks) writes(when string) {
	x.t.Helper()
	x.next()
	checks := 0
	testkit.Until(x.t, when+": the plan is written", func() bool {
		if checks%200 == 0 { // plans again, because a plan fails if s1 moves meanwhile
			x.plan()
		}
		checks++
		return checks%4 == 0 && x.written() // not at each check, because reading entries takes processor time
	})
}

// revision returns the newest revision of a bucket.
func (x *onDisks) revision(bucket string) uint64 {
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Second)
	defer cancel()
	s, err := x.admin.JetStream().Stream(ctx, "KV_"+x.admin.Bucket(bucket))
	if err != nil {
		return 0
	}
	return s.CachedInfo().State.LastSeq
}

// grows waits until a bucket has newer entries.
func (x *onDisks) grows(when, bucket string) {
	x.t.Helper()
	before := x.revision(bucket)
	testkit.Until(x.t, when+": bucket "+bucket+" has newer entries", func() bool { return x.revision(bucket) > before })
}

// shares plans an entry, and waits until it is written and shared.
func (x *onDisks) shares(when string) {
	x.t.Helper()
	before := x.revision("entries")
	x.writes(when)
	testkit.Until(x.t, when+": entries are shared", func() bool { return x.revision("entries") > before })
}

// epochs waits until a member has begun n more epochs.
func (x *onDisks) epochs(member string, n uint64) {
	x.t.Helper()
	before, _ := x.members[member].Epoch()
	testkit.Until(x.t, fmt.Sprintf("%s begins %d epochs", member, n), func() bool {
		open, _ := x.members[member].Epoch()
		return open >= before+n
	})
}

// measures waits until all members have a complete epoch that begins no earlier than the open one.
func (x *onDisks) measures(when, status string) {
	x.t.Helper()
	for name, m := range x.members {
		open, _ := m.Epoch()
		testkit.Until(x.t, when+": an epoch of "+name+" is "+status, func() bool {
			view := m.Store().View()
			return leafIn(view, "/collector/epoch/state", "number") >= fmt.Sprint(open) &&
				leafIn(view, "/collector/epoch/state", "status") == status
		})
	}
}

// A NATS server whose disk is full: leases, epochs and handovers go on, plans are written, and data
// that cannot be stored is counted and named. When there is room again, the server needs a restart;
// then everything is shared again.
func TestFullDisk(t *testing.T) {
	x := startOnDisks(t, "250ms", 1, 1, "")
	owner, next := x.owner()
	testkit.Until(t, "entries are not shared", func() bool {
		x.disks[0].fill(t)
		x.writes("full")
		return x.leaf(owner, "entries-failed") != "0"
	})
	x.writes("not shared")
	x.grows("full", "leases")
	x.measures("full", "COMPLETE")
	if text := x.members[owner].log.String(); !strings.Contains(text, "see the disks and the logs of the NATS servers") {
		t.Errorf("the log does not say where to look:\n%s", text)
	}
	x.stop[owner]()
	if text := x.members[owner].log.String(); strings.Contains(text, "leaves before it has handed over") {
		t.Errorf("the switch was not handed over:\n%s", text)
	}
	if got, _ := x.owner(); got != next {
		t.Errorf("s1 is owned by %s, want %s", got, next)
	}
	x.next()
	x.plan() // the plan waits, because the entries that the former owner stored are not known
	x.disks[0].empty(t)
	x.nats.Stop(0)
	x.nats.Start(0)
	testkit.Until(t, "the plan is written", x.written)
	x.shares("restarted")
}

// disabled reports whether a server has disabled its JetStream.
func (x *onDisks) disabled(server int) bool {
	return strings.Contains(x.nats.Log(server), "will be DISABLED")
}

// server returns a server that leads the stream of entries if leads is set, otherwise one that does
// not lead it.
func (x *onDisks) server(leads bool) (server int) {
	x.t.Helper()
	testkit.Until(x.t, "the bucket of entries has a leader", func() bool {
		ctx, cancel := context.WithTimeout(x.t.Context(), time.Second)
		defer cancel()
		s, err := x.admin.JetStream().Stream(ctx, "KV_"+x.admin.Bucket("entries"))
		if err != nil || s.CachedInfo().Cluster.Leader == "" {
			return false
		}
		server = int(s.CachedInfo().Cluster.Leader[len("nats")] - '0')
		return true
	})
	if !leads {
		server = (server + 1) % len(x.disks)
	}
	return server
}

// hangs is the time after which a server that has not disabled its JetStream by itself never will;
// see bustest.Cluster.
const hangs = 30 * time.Second

// restart makes room on disks and restarts their servers.
func (x *onDisks) restart(servers ...int) {
	x.t.Helper()
	for _, i := range servers {
		x.disks[i].empty(x.t)
	}
	for _, i := range servers {
		x.nats.Stop(i)
	}
	for _, i := range servers {
		x.nats.Start(i)
	}
}

// lacksLease reports whether a member has lost its lease and has not got another one since.
func (x *onDisks) lacksLease(member string) bool {
	text := x.members[member].log.String()
	const message = `msg="cluster: lease" held=`
	return strings.LastIndex(text, message+"false") > strings.LastIndex(text, message+"true")
}

// The disk of one of three NATS servers is full: that server disables JetStream, and the other two
// serve the leases. When a second disk is full, no member has a lease: the members keep measuring,
// but write no table entries until the disks have room and the servers were restarted.
func TestFullDisksOfThree(t *testing.T) {
	if os.Getenv("NETSKETCH_DISKS") == "" {
		t.Skip("takes a minute or two: run `make full-disks`, which sets NETSKETCH_DISKS")
	}
	x := startOnDisks(t, "1s", 3, 3, fmt.Sprintf(
		"plugins: {directory: %s, instances: [{plugin: univmon, deadline: 10s}]}\n", plugins(t)))
	for _, leads := range []bool{false, true} {
		server := x.server(leads)
		what := fmt.Sprintf("nats%d, which leads the entries: %v, is full", server, leads)
		begin := time.Now()
		testkit.Until(t, what, func() bool {
			x.disks[server].fill(t)
			x.writes(what)
			return x.disabled(server) || time.Since(begin) > hangs
		})
		if !x.disabled(server) {
			t.Logf("%s: it has not disabled its JetStream within %v", what, hangs)
		}
		x.grows(what, "leases")
		x.shares(what)
		x.measures(what, "COMPLETE")
		t.Logf("%s: entries and leases are renewed after %v", what, time.Since(begin).Round(time.Second/10))
		x.restart(server)
		testkit.Until(t, "the server has all entries again", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			s, err := x.admin.JetStream().Stream(ctx, "KV_"+x.admin.Bucket("entries"))
			return err == nil && len(s.CachedInfo().Cluster.Replicas) == 2 &&
				!slices.ContainsFunc(s.CachedInfo().Cluster.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current })
		})
	}
	begin := time.Now()
	members := []string{"c1", "c2"}
	lost := false // a server may keep its JetStream, because it writes only entries
	for lasts := 0; lasts < 20 && !lost; lasts++ {
		for _, d := range x.disks {
			d.fill(t)
		}
		x.next()
		x.plan()
		x.epochs("c1", 1)
		lost = x.lacksLease("c1") && x.lacksLease("c2")
	}
	t.Logf("%v after all disks are full: no member has a lease: %v; servers that disabled their JetStream: %v, %v, %v",
		time.Since(begin).Round(time.Second/10), lost, x.disabled(0), x.disabled(1), x.disabled(2))
	for _, name := range members {
		x.epochs(name, 3)
		testkit.Until(t, "all switches are measured", func() bool {
			return len(x.members["c1"].owns())+len(x.members["c2"].owns()) == len(x.switches)
		})
		testkit.Until(t, name+" counts states that are not stored", func() bool {
			return x.leaf("c1", "states-failed") != "0" || x.leaf("c2", "states-failed") != "0"
		})
	}
	for _, d := range x.disks {
		d.empty(t)
	}
	x.epochs("c1", 10)
	for _, name := range members {
		if lost && !x.lacksLease(name) {
			t.Errorf("%s has a lease without a restart of the servers: docs/cluster.md says otherwise", name)
		}
	}
	for _, d := range x.disks {
		d.fill(t) // restart frees the disk again
	}
	begin = time.Now()
	x.restart(0, 1, 2)
	testkit.Until(t, "leases are back", func() bool { return !x.lacksLease("c1") && !x.lacksLease("c2") })
	x.shares("restarted")
	x.measures("restarted", "COMPLETE")
	t.Logf("all go on %v after the restart", time.Since(begin).Round(time.Second/10))
	owner, next := x.owner()
	if err := cluster.Command(t.Context(), x.admin, owner, cluster.Drain); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the switches of a member move", func() bool { return len(x.members[next].owns()) == 3 })
	if n := x.leaf(next, "devices-handed-over"); n == "0" {
		t.Error("no switch was handed over after the restart")
	}
}
