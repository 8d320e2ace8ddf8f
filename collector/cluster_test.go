// SPDX-License-Identifier: Apache-2.0

package collector_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
)

// clustered is a collector of a cluster on the wall clock.
type clustered struct {
	*collector.Collector
	name string
	log  *testkit.Log
}

// startClustered starts a collector that shares switches with others and runs UnivMon; stop ends
// it.
func startClustered(t *testing.T, name, nats string, switches []*realSwitch, clock ...epoch.Clock) (c clustered,
	stop func(),
) {
	t.Helper()
	var yaml strings.Builder
	fmt.Fprintf(&yaml, "epoch: {interval: 250ms, guard: 1ms}\n"+
		"cluster: {name: fabric, member: %s, nats: {addresses: [\"%s\"], tls: {plaintext: true}}}\ndevices:\n", name, nats)
	for i, sw := range switches {
		fmt.Fprintf(&yaml, "  - {name: s%d, address: \"%s\", device-id: 1, pipeline: univmon-300k, tls: {plaintext: true}}\n",
			i+1, sw.address)
	}
	fmt.Fprintf(&yaml, "plugins: {directory: %s, instances: [{plugin: univmon, deadline: 10s}]}\n", plugins(t))
	c, stop = startMember(t, name, yaml.String(), clock...)
	if got := c.Config().Cluster.NATS.Addresses; !slices.Equal(got, []string{nats}) {
		t.Errorf("the configuration has the addresses %q, want %q", got, nats)
	}
	return c, stop
}

// startMember starts a collector of a cluster; stop ends it. It uses the wall clock unless the
// caller passes another clock.
func startMember(t *testing.T, name, yaml string, clock ...epoch.Clock) (c clustered, stop func()) {
	t.Helper()
	cfg, err := config.Parse("netsketch.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	c = clustered{name: name, log: &testkit.Log{}}
	deps := collector.Dependencies{Programs: programs, Version: "test", Logger: slog.New(slog.NewTextHandler(c.log, nil))}
	if len(clock) > 0 {
		deps.Clock = clock[0]
	}
	c.Collector, err = collector.New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, c.log)
		}
	})
	return c, stop
}

// connections returns the state of the session of each switch, by name.
func (c clustered) connections() map[string]string {
	out := map[string]string{}
	c.Store().View().Rows(store.ParseQuery("", "/collector/devices/device"))(func(r *store.Row, _ store.Meta) bool {
		for i, l := range r.List.Leaves {
			if l.Name == "state/connection" && !r.Values[i].Absent() {
				out[r.Entry.Keys[0].String()] = r.Values[i].String()
			}
		}
		return true
	})
	return out
}

// owns lists the switches whose sessions are ready.
func (c clustered) owns() (names []string) {
	for name, state := range c.connections() {
		if state == "READY" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// pair is two collectors, c1 and c2, that share switches s1, s2 and so on. Each has connections of
// its own to the NATS server.
type pair struct {
	members  map[string]clustered
	stop     map[string]func()
	cut      map[string]func() // by member: cuts its connections to NATS, and returns a function that allows them again
	switches []*realSwitch
	server   string
}

// startPair starts two collectors at the same time, the second one with another clock if one is
// given, and waits until each has a switch.
func startPair(t *testing.T, clock ...epoch.Clock) *pair {
	t.Helper()
	p := &pair{members: map[string]clustered{}, stop: map[string]func(){}, cut: map[string]func(){},
		server: bustest.Server(t)}
	for range 3 {
		p.switches = append(p.switches, startSwitch(t, "127.0.0.1:0"))
	}
	var mu sync.Mutex
	var starts sync.WaitGroup
	for i, name := range []string{"c1", "c2"} {
		proxy, cut := bustest.Proxy(t, p.server)
		starts.Go(func() {
			c, stop := startClustered(t, name, proxy, p.switches, clock[:min(i, len(clock))]...)
			mu.Lock()
			defer mu.Unlock()
			p.members[name], p.stop[name], p.cut[name] = c, stop, cut
		})
	}
	starts.Wait()
	if len(p.members) < 2 {
		t.FailNow()
	}
	testkit.Until(t, "each switch has one owner", p.shared)
	return p
}

// shared reports whether each switch has a session with its owner only, and each collector owns at
// least one switch. Before the members know of each other, both may have sessions with the same
// switch.
func (p *pair) shared() bool {
	view := cluster.View{Members: []cluster.Member{{Name: "c1", State: cluster.Active, Weight: 1},
		{Name: "c2", State: cluster.Active, Weight: 1}}}
	owned := map[string][]string{}
	for i := range p.switches {
		name := fmt.Sprint("s", i+1)
		owned[view.Device(name)] = append(owned[view.Device(name)], name)
	}
	return slices.Equal(p.members["c1"].owns(), owned["c1"]) && slices.Equal(p.members["c2"].owns(), owned["c2"])
}

// logged counts the lines with a text in the logs of both collectors.
func (p *pair) logged(text string) int {
	return strings.Count(p.members["c1"].log.String(), text) + strings.Count(p.members["c2"].log.String(), text)
}

// Two collectors share three switches. When NATS is cut off from one of them, the other takes its
// switches with a higher election id, and the first does not disturb them. When NATS is back, the
// other hands the same switches over to the first. A collector that stops leaves its switches at
// once.
func TestCollectorsShareSwitches(t *testing.T) {
	p := startPair(t)
	a, b := p.members["c1"], p.members["c2"]
	ofB, all := b.owns(), []string{"s1", "s2", "s3"}

	admin := bustest.Connect(t, "fabric", "admin", p.server)
	handedOver := func() uint64 {
		counts, err := cluster.Counted(t.Context(), admin, "c2")
		if err != nil {
			t.Error(err)
		}
		return counts.HandedOver
	}
	before := handedOver()
	for range 3 { // on a busy machine, a handover may be put off too often
		begin := time.Now()
		p.cut["c2"]()
		testkit.Until(t, "a owns all", func() bool { return slices.Equal(a.owns(), all) })
		if took := time.Since(begin); took > 5*time.Second {
			t.Logf("a owns all after %v", took)
		}
		testkit.Until(t, "b is outbid", func() bool {
			for _, name := range ofB {
				if b.connections()[name] != "BACKUP" {
					return false
				}
			}
			return true
		})
		p.cut["c2"]()
		testkit.Until(t, "b has its switches again", func() bool { return slices.Equal(b.owns(), ofB) && p.shared() })
		if handedOver() > before {
			break
		}
	}
	if n := handedOver(); n == before {
		t.Errorf("%d switches were handed over to b, as before it was cut off", n)
	}
	p.stop["c2"]()
	testkit.Until(t, "a owns all when b has stopped", func() bool { return slices.Equal(a.owns(), all) })
	p.switches[0].send(1, 5)
	testkit.Until(t, "a measures", func() bool {
		_, end := a.Epoch()
		return !end.IsZero() && strings.Contains(a.log.String(), "device is measured")
	})
}

// A controller that is not of the cluster takes a switch with a higher election id. The owner is
// deposed and names the id, the switch is missing from epochs, which are counted, and no member
// bids against the other controller. When that controller has gone, the owner measures the switch
// again. A next owner can then outbid it, and the two do not outbid each other repeatedly.
func TestForgedElectionID(t *testing.T) {
	p := startPair(t)
	// with lists the members at which the leaves of the switch contain certain texts.
	with := func(leaves map[string]string) (names []string) {
		for _, name := range slices.Sorted(maps.Keys(p.members)) {
			has := true
			for leaf, want := range leaves {
				has = has && strings.Contains(leafIn(p.members[name].Store().View(), "/collector/devices/device[node=s1]",
					"state/"+leaf), want)
			}
			if has {
				names = append(names, name)
			}
		}
		return names
	}
	ready := map[string]string{"connection": "READY"}
	logged := func(text string) func() bool { return func() bool { return p.logged(text+" device=s1") > 0 } }
	owned := func(by ...string) func() bool { return func() bool { return slices.Equal(with(ready), by) } }
	// measured waits until the open epoch and the following ones include the switch.
	measured := func(what string) {
		t.Helper()
		var open uint64
		for _, m := range p.members {
			number, _ := m.Epoch()
			open = max(open, number)
		}
		testkit.Until(t, what, func() bool {
			for _, m := range p.members {
				const row = "/univmon/node-summaries/node-summary[node=s1][dimension=src]"
				view := m.Store().View()
				epoch, _ := strconv.ParseUint(leafIn(view, "/univmon/summary", "state/last-epoch"), 10, 64)
				if epoch >= open && leafIn(view, row, "state/status") == "COMPLETE" {
					return true
				}
			}
			return false
		})
	}
	testkit.Until(t, "the switch is measured", logged(`msg="device is measured"`))
	var owner string
	testkit.Until(t, "it has one owner", func() bool {
		names := with(ready)
		owner = strings.Join(names, ",")
		return len(names) == 1
	})
	next := map[string]string{"c1": "c2", "c2": "c1"}[owner]

	forged := &p4v1.Uint128{High: 1 << 63, Low: 9}
	conn, err := grpc.NewClient(p.switches[0].address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := p4v1.NewP4RuntimeClient(conn).StreamChannel(t.Context())
	if err == nil {
		err = stream.Send(&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
			Arbitration: &p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: forged}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	reply, err := stream.Recv()
	if err != nil || reply.GetArbitration().GetStatus().GetCode() != int32(codes.OK) {
		t.Fatalf("the switch answers %v, error %v", reply, err)
	}
	testkit.Until(t, "the owner names the id", func() bool {
		return len(with(map[string]string{"connection": "BACKUP", "last-error": "9223372036854775808:9"})) > 0
	})
	testkit.Until(t, "no member has a session", owned())
	lost := func() (sum int) {
		for _, m := range p.members {
			n, _ := strconv.Atoi(leafIn(m.Store().View(), "/collector/devices/device[node=s1]", "state/epochs-lost"))
			sum += n
		}
		return sum
	}
	before := lost()
	testkit.Until(t, "epochs without the switch are counted", func() bool { return lost() >= before+3 })
	testkit.Until(t, "it is named", logged(`msg="device is missing from the epoch"`))
	if names := with(ready); len(names) > 0 {
		t.Errorf("members %q have a session, too", names)
	}
	write := &p4v1.WriteRequest{DeviceId: 1, ElectionId: forged}
	if _, err := p4v1.NewP4RuntimeClient(conn).Write(t.Context(), write); err != nil {
		t.Errorf("the other controller is not the primary any more: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the owner is the primary again", owned(owner))
	measured("the switch is measured again")

	outbid := func() int {
		return p.logged(`msg="session is standby" device=s1 address=` + p.switches[0].address +
			` reason="not the primary controller: another controller was elected with `)
	}
	gone := func() int { return p.logged(`msg="cluster: a member is gone"`) }
	outbidBefore, goneBefore := outbid(), gone()
	begin := time.Now()
	p.cut[owner]() // the owner's session stays, with an election id above the forged one
	testkit.Until(t, "the next owner outbids it", owned(next))
	t.Logf("the next owner has outbid it %v after it was cut off", time.Since(begin))
	measured("the next owner measures the switch")
	p.cut[owner]()
	testkit.Until(t, "the owner has its switch again", owned(owner))
	measured("the owner that is back measures the switch")
	// A busy machine makes it look as if more members were gone.
	if n, members := outbid()-outbidBefore, gone()-goneBefore; n == 0 || n > members {
		t.Errorf("owners were outbid %d times, want once for each of the %d times that a member was gone", n, members)
	}
	p.stop[owner]()
	testkit.Until(t, "the next owner has the switch", owned(next))
	measured("the next owner measures the switch again")
}

// ahead is a wall clock with a constant error.
type ahead struct {
	epoch.Wall
	by time.Duration
}

// Now implements epoch.Clock.
func (c ahead) Now() time.Time { return c.Wall.Now().Add(c.by) }

// The clock of one of two members is 2 s ahead, which is eight epochs: its offset is published,
// each epoch has a warning that names it, and parts that are too far from the epochs of their home
// are refused. No packet counts twice.
func TestCollectorsWithOtherClocks(t *testing.T) {
	p := startPair(t, ahead{by: 2 * time.Second})
	a, b := p.members["c1"], p.members["c2"]
	tap := a.Store().Tap(1000)
	defer tap.Close()
	warning := regexp.MustCompile(`^the clock of collector (c[12]) is (\S+) ahead of that of c[12], more than`)
	for _, m := range []clustered{a, b} {
		testkit.Until(t, "the row of epochs of "+m.name+" names the clock and its offset", func() bool {
			row := leafIn(m.Store().View(), "/collector/epoch/state", "accuracy-warnings")
			found := warning.FindStringSubmatch(row)
			if found == nil {
				return false
			}
			by, err := time.ParseDuration(found[2])
			want := map[string]time.Duration{"c1": -2 * time.Second, "c2": 2 * time.Second}[found[1]]
			if err != nil || (by-want).Abs() > time.Second {
				t.Errorf("%s has the warning %q", m.name, row)
			}
			return strings.Contains(m.log.String(), `msg="epochs may be inexact" device="" reason="the clock of collector c`)
		})
	}
	admin := bustest.Connect(t, "fabric", "admin", p.server)
	testkit.Until(t, "the offset is published", func() bool {
		members, err := cluster.Members(t.Context(), admin)
		offsets := map[string]time.Duration{}
		for _, m := range members {
			offsets[m.Name] = m.Offset
		}
		return err == nil && (offsets["c2"]-offsets["c1"]-2*time.Second).Abs() < time.Second
	})
	refused := func(m clustered) bool {
		text := m.log.String()
		return strings.Contains(text, "the epoch is in the future; are the clocks apart?") ||
			strings.Contains(text, "the epoch has been delivered")
	}
	testkit.Until(t, "parts are refused", func() bool { return refused(a) || refused(b) })
	sent, last := uint64(0), uint64(0)
	counted, total := map[string]uint64{}, map[string]uint64{}  // packets by switch and epoch, and by switch
	testkit.Until(t, "packets of an epoch count", func() bool { // a busy machine may lose epochs
		if number, _ := a.Epoch(); number != last {
			last, sent = number, sent+100
			for _, sw := range p.switches {
				sw.send(1, 100)
			}
		}
		for len(tap.C()) > 0 {
			count(t, <-tap.C(), counted, total)
		}
		return max(total["s1"], total["s2"], total["s3"]) >= 300
	})
	for name, n := range total {
		if n > sent {
			t.Errorf("%s has %d packets in all epochs, %d were sent", name, n, sent)
		}
	}
	if n := tap.Dropped(); n > 0 {
		t.Errorf("%d batches are not in the test", n)
	}
}

// count adds the packets in results to the sums by switch and epoch, and by switch.
func count(t *testing.T, results *store.Batch, epochs, total map[string]uint64) {
	t.Helper()
	for _, p := range results.Tables {
		if p.Table.List != "/netsketch-univmon:univmon/node-summaries/node-summary" {
			continue
		}
		for key, row := range sdktest.RowsOf(p.Table) {
			device, dimension, _ := strings.Cut(key, " ")
			packets, _ := row["packets"].(uint64)
			if dimension != "src" || packets == 0 {
				continue
			}
			epoch := fmt.Sprint(key, " ", results.Epoch)
			if before, again := epochs[epoch]; again && before != packets {
				t.Errorf("%s has %d packets, and had %d before", epoch, packets, before)
			}
			total[device] += packets - epochs[epoch]
			epochs[epoch] = packets
		}
	}
}
