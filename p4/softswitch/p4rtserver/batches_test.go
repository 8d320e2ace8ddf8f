// SPDX-License-Identifier: Apache-2.0

package p4rtserver_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"

	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
)

// Packets see all of an atomic batch or nothing: batches switch two tables between two states, some
// batches fail, and no packet sees one table in each state.
func TestDataplaneAtomic(t *testing.T) {
	r, c := pipelined(t)
	source := r.entity(`table_entry { table_id: $lpm_t match { field_id: 1 lpm { value: "\x02\x00\x00\x00\x00\x09"
		prefix_len: 48 } } action { action { action_id: $paced params { param_id: 1 value: "\x01" } } } }`)
	// keyless_t counts in cell 0 or 1 of packets_in, const_t in neither for this frame, ternary_t
	// in cell 4 or 5.
	first := func(cell int) *p4v1.Entity {
		return r.entity(fmt.Sprintf(`table_entry { table_id: $keyless_t is_default_action: true action { action {
			action_id: $count params { param_id: 1 value: "\x%02x" } } } }`, cell))
	}
	second := func(cell int) *p4v1.Entity {
		return r.entity(fmt.Sprintf(`table_entry { table_id: $ternary_t priority: 1 action { action { action_id: $count
			params { param_id: 1 value: "\x%02x" } } } }`, cell))
	}
	r.must(c, insert(source), modify(first(0)), insert(second(4)))
	stop := make(chan struct{})
	var packets sync.WaitGroup
	packets.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				r.sw.Inject(1, frame(9, 9, 0x9999), 0)
			}
		}
	})
	const rounds = 300
	for i := range rounds {
		n := i % 2
		batch := []*p4v1.Update{modify(first(n)), modify(second(4 + n))}
		if i%3 == 0 { // a batch that fails at its last update
			batch = []*p4v1.Update{modify(first(1 - n)), modify(second(5 - n)), insert(source)}
			if errs := r.writeAs(c, p4v1.WriteRequest_DATAPLANE_ATOMIC,
				batch...); codes.Code(errs[2].GetCanonicalCode()) != codes.AlreadyExists {
				t.Fatal(errs)
			}
			continue
		}
		for _, err := range r.writeAs(c, p4v1.WriteRequest_DATAPLANE_ATOMIC, batch...) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	packets.Wait()
	cells, err := r.sw.ReadCounter("I.packets_in", 0, -1)
	r.ok(err)
	if cells[0].Packets != cells[4].Packets || cells[1].Packets != cells[5].Packets || cells[0].Packets == 0 ||
		cells[1].Packets == 0 {
		t.Errorf("%d and %d packets were counted by one table in the two states, %d and %d by the other",
			cells[0].Packets, cells[1].Packets, cells[4].Packets, cells[5].Packets)
	}
	if n := len(r.read(r.entity(`table_entry { table_id: $lpm_t }`))); n != 1 {
		t.Errorf("%d entries", n)
	}
}

// A running write of the old primary ends before the new primary is informed.
func TestWritesFinishBeforeTheNextPrimary(t *testing.T) {
	compiling, goOn := make(chan struct{}), make(chan struct{})
	var hold sync.Once
	r := newRig(t, p4rtserver.Options{Compile: func(json []byte) (*softswitch.Program, error) {
		hold.Do(func() {
			close(compiling)
			<-goOn
		})
		return softswitch.Compile(json)
	}})
	old := r.primary(1)
	cfg := r.entities(1)
	finished := make(chan error, 1)
	go func() {
		_, err := r.rpc.SetForwardingPipelineConfig(context.WithoutCancel(t.Context()),
			&p4v1.SetForwardingPipelineConfigRequest{
				DeviceId: 1, ElectionId: old.id, Action: push, Config: cfg,
			})
		finished <- err
	}()
	<-compiling
	next := r.join("", 2)
	old.advised(codes.AlreadyExists, 2) // the old primary is informed at once, and writes no more
	_, err := r.rpc.Write(t.Context(), &p4v1.WriteRequest{DeviceId: 1, ElectionId: old.id})
	r.refused(err, codes.PermissionDenied, "not the primary")
	_, err = r.rpc.Write(t.Context(), &p4v1.WriteRequest{DeviceId: 1, ElectionId: next.id})
	r.refused(err, codes.PermissionDenied, "not the primary") // nor may the next primary write yet
	select {
	case m := <-next.in:
		t.Errorf("with a write under way the next primary received %v", m)
	case <-finished:
		t.Error("the write is over")
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	r.ok(<-finished)
	next.advised(codes.OK, 2)
	r.must(next, insert(r.entity(`table_entry { table_id: $exact_t match { field_id: 1 exact { value: "\x01" } }
		action { action { action_id: $drop } } }`)))
}

// Backup replicas take over while a port is down, in their order, and stop when the port is up
// again.
func TestBackupReplicas(t *testing.T) {
	r, c := pipelined(t)
	group := r.entity(`packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 3
		replicas { port: "\x01" instance: 1 backup_replicas { port: "\x02" instance: 5 } backup_replicas { port: "\x03"
		instance: 6 } } replicas { port: "\x04" } } }`)
	session := r.entity(`packet_replication_engine_entry { clone_session_entry { session_id: 3 replicas { port: "\x02"
		backup_replicas { port: "\x03" } } } }`)
	flood := `table_entry { table_id: $exact_t match { field_id: 1 exact { value: "\x02\x00\x00\x00\x00\x01" } }
		action { action { action_id: $flood params { param_id: 1 value: "\x03" } } } }`
	r.must(c, insert(group), insert(session), insert(r.entity(flood)))
	r.readsBack(r.entity(`packet_replication_engine_entry { multicast_group_entry { } }`), group)
	r.readsBack(r.entity(`packet_replication_engine_entry { clone_session_entry { } }`), session)
	var sent [5]uint64
	for _, step := range []struct {
		port uint32
		up   bool
		want uint32 // the port that takes the first replica; 0: no port takes it
	}{{2, true, 1}, {1, false, 2}, {2, false, 3}, {3, false, 0}, {3, true, 3}, {1, true, 1}} {
		r.ok(r.sw.SetPortUp(step.port, step.up))
		r.sw.Inject(4, frame(1, 2, 0x9999), 0)
		sent[4]++
		if step.want > 0 {
			sent[step.want]++
		}
		for _, p := range r.sw.Ports() {
			if p.Counters.OutPackets != sent[p.ID] {
				t.Fatalf("port %d up %v: port %d has sent %d packets, not %d", step.port, step.up, p.ID,
					p.Counters.OutPackets, sent[p.ID])
			}
		}
	}
	r.must(c, modify(r.entity(`packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 3
		replicas { port: "\x02" } } }`)))
}

// A one-shot group that chooses by chance gives packets of one flow to all its actions.
func TestOneShotRandomMode(t *testing.T) {
	r, c := pipelined(t)
	for mode, want := range map[string]int{"HASH": 1, "RANDOM": 2} {
		e := r.entity(`table_entry { table_id: $selected_t match { field_id: 1 exact { value: "\x99\x99" } } action {
			action_profile_action_set {
			action_profile_actions { action { action_id: $forward params { param_id: 1 value: "\x01" } } weight: 1 }
			action_profile_actions { action { action_id: $forward params { param_id: 1 value: "\x02" } } weight: 1 }
			action_selection_mode: ` + mode + ` } } }`)
		r.must(c, insert(e), insert(r.entity(`table_entry { table_id: $exact_t match { field_id: 1 exact {
			value: "\x02\x00\x00\x00\x00\x01" } } action { action { action_id: $flood params { param_id: 1
			value: "\x00" } } } }`)))
		r.readsBack(r.entity(`table_entry { table_id: $selected_t }`), e)
		before := map[uint32]uint64{}
		for _, p := range r.sw.Ports() {
			before[p.ID] = p.Counters.OutPackets
		}
		for range 100 {
			r.sw.Inject(4, frame(1, 2, 0x9999), 0)
		}
		taken := 0
		for _, p := range r.sw.Ports() {
			if p.Counters.OutPackets > before[p.ID] {
				taken++
			}
		}
		if taken != want {
			t.Errorf("%s: %d ports took packets of one flow, not %d", mode, taken, want)
		}
		r.must(c, remove(e), remove(r.entity(`table_entry { table_id: $exact_t match { field_id: 1 exact {
			value: "\x02\x00\x00\x00\x00\x01" } } }`)))
	}
}
