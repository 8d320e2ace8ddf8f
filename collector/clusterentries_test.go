// SPDX-License-Identifier: Apache-2.0

package collector_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// entries reads all tables of a switch.
func entries(t *testing.T, sw *realSwitch) (all []string) {
	t.Helper()
	conn, err := grpc.NewClient(sw.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	read, err := p4v1.NewP4RuntimeClient(conn).Read(t.Context(), &p4v1.ReadRequest{DeviceId: 1,
		Entities: []*p4v1.Entity{{Entity: &p4v1.Entity_TableEntry{TableEntry: &p4v1.TableEntry{}}}}})
	for err == nil {
		var r *p4v1.ReadResponse
		if r, err = read.Recv(); err == nil {
			for _, e := range r.GetEntities() {
				all = append(all, prototext.MarshalOptions{}.Format(e))
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil // the device has no pipeline, or is starting
	}
	slices.Sort(all)
	return all
}

// drop is a plan for a device to drop packets to 8 bits of prefix. The collector manages the table,
// so it removes entries that are not desired.
func drop(device string, prefix byte) sdk.Plan {
	return sdk.Plan{ID: uint64(prefix), Writes: []sdk.DeviceWrite{{Device: device, Op: sdk.Insert, Entry: sdk.TableEntry{
		Table: "ipv4_lpm", Action: "drop", Matches: []sdk.FieldMatch{{Field: "hdr.ipv4.dst",
			Value: []byte{prefix, 0, 0, 0}, PrefixLen: 8}}}}}}
}

// managed is the configuration of a member of a cluster with switches whose entries it manages.
func managed(name, interval, nats string, switches []*realSwitch) string {
	var yaml strings.Builder
	fmt.Fprintf(&yaml, "cluster: {name: fabric, member: %s, nats: {addresses: [\"%s\"], tls: {plaintext: true}}}\n"+
		"epoch: {interval: %s, guard: 1ms}\ndevices:\n", name, nats, interval)
	for i, sw := range switches {
		fmt.Fprintf(&yaml, "  - {name: s%d, address: %q, device-id: 1, pipeline: univmon-300k, forwarding: managed, "+
			"tls: {plaintext: true}}\n", i+1, sw.address)
	}
	yaml.WriteString("hosts: [{name: h1, port: s1/1, addresses: 10.0.1.0/24}]\n")
	return yaml.String()
}

// The entries of plans move with a switch to its next owner, whether the owner is lost or hands the
// switch over: they stay on the switch, and the next owner restores entries that the switch loses.
func TestEntriesOfPlansMove(t *testing.T) {
	for _, lost := range []bool{true, false} {
		t.Run(map[bool]string{true: "lost", false: "handed over"}[lost], func(t *testing.T) {
			server := bustest.Server(t)
			switches := []*realSwitch{startSwitch(t, "127.0.0.1:0"), startSwitch(t, "127.0.0.1:0")}
			type side struct {
				clustered
				stop, cut func()
				plugin    string // the plugin that is at home at this collector
			}
			var view cluster.View
			for _, name := range []string{"c1", "c2"} {
				view.Members = append(view.Members, cluster.Member{Name: name, State: cluster.Active, Weight: 1})
			}
			plugins := map[string]string{} // by home
			for i := 0; len(plugins) < len(view.Members); i++ {
				name := fmt.Sprint("p", i)
				plugins[view.Plugin(name)] = name
			}
			sides := map[string]*side{}
			for _, m := range view.Members {
				s := &side{plugin: plugins[m.Name]}
				var proxy string
				proxy, s.cut = bustest.Proxy(t, server)
				s.clustered, s.stop = startMember(t, m.Name, managed(m.Name, "250ms", proxy, switches))
				sides[m.Name] = s
			}
			a, b := sides[view.Device("s1")], sides["c1"]
			if a == b {
				b = sides["c2"]
			}
			owner := func(s *side) func() bool { return func() bool { return slices.Contains(s.owns(), "s1") } }
			testkit.Until(t, "a owns s1", owner(a))
			before := entries(t, switches[0])
			planned := func(what string, by *side, plan sdk.Plan, done func() bool) { // a busy machine writes some too late
				t.Helper()
				checks := 0
				testkit.Until(t, what, func() bool {
					if checks++; checks%300 == 1 {
						by.Plan(context.WithoutCancel(t.Context()), by.plugin, plan)
					}
					return done()
				})
			}
			planned("the plan of a is applied", a, drop("s1", 11), func() bool { return a.PlanCounts(a.plugin).Applied > 0 })
			planned("the plan of b is applied", b, drop("s1", 12), func() bool { return b.PlanCounts(b.plugin).Applied > 0 })
			want := entries(t, switches[0])
			if len(want) != len(before)+2 {
				t.Fatalf("before the plans %q, after them %q", before, want)
			}
			if lost {
				a.cut()
			} else {
				a.stop()
			}
			testkit.Until(t, "b owns s1", owner(b))
			if diff := cmp.Diff(want, entries(t, switches[0])); diff != "" {
				t.Errorf("entries of the next owner (-want +got):\n%s", diff)
			}
			address := switches[0].address
			switches[0].stop()
			switches[0] = startSwitch(t, address)
			testkit.Until(t, "b repairs the entries", func() bool { return slices.Equal(want, entries(t, switches[0])) })
			planned("b deletes an entry of a", b, sdk.Plan{ID: 1, Writes: []sdk.DeviceWrite{{Device: "s1", Op: sdk.Delete,
				Entry: drop("s1", 11).Writes[0].Entry}}}, func() bool { return len(entries(t, switches[0])) == len(want)-1 })
		})
	}
}

// A switch moves although the store of entries does not answer when they are written. An attempt
// takes a second, which would leave no time in this epoch: see TestTimeToShareEntries.
func TestMovesWithoutAnAnswer(t *testing.T) {
	server := bustest.Server(t)
	const bucket = "netsketch_fabric_entries"
	_, err := bustest.Connect(t, "fabric", "admin", server).JetStream().CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KV_" + bucket, Subjects: []string{"$KV." + bucket + ".>"}, MaxMsgsPerSubject: 1, AllowRollup: true,
		AllowDirect: true, Storage: jetstream.MemoryStorage, NoAck: true})
	if err != nil {
		t.Fatal(err)
	}
	switches := []*realSwitch{startSwitch(t, "127.0.0.1:0")}
	members, stop := map[string]clustered{}, map[string]func(){}
	for _, name := range []string{"c1", "c2"} {
		members[name], stop[name] = startMember(t, name, managed(name, "1250ms", server, switches))
	}
	owner := ""
	testkit.Until(t, "a member owns the switch", func() bool {
		for name, m := range members {
			if slices.Contains(m.owns(), "s1") {
				owner = name
			}
		}
		return owner != ""
	})
	a, b := members[owner], members[map[string]string{"c1": "c2", "c2": "c1"}[owner]]
	before := len(entries(t, switches[0]))
	a.Plan(t.Context(), "p", drop("s1", 11))
	testkit.Until(t, "the plan is written", func() bool { return len(entries(t, switches[0])) == before+1 })
	stop[owner]()
	testkit.Until(t, "the next owner has the switch", func() bool { return slices.Contains(b.owns(), "s1") })
	if text := a.log.String(); strings.Contains(text, "leaves before it has handed over") ||
		!strings.Contains(text, "entries of plans are not shared") {
		t.Errorf("the switch did not move, or the store answered:\n%s", text)
	}
}
