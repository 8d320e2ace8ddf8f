// SPDX-License-Identifier: Apache-2.0

package p4rtserver_test

import (
	"fmt"
	"sync"
	"testing"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
)

// Only the role that the program names for an object, and the default role, may access the object.
func TestRolesInTheProgram(t *testing.T) {
	r := newRig(t, p4rtserver.Options{})
	c, mine, other := r.primary(1), r.join("telemetry", 1), r.join("routing", 1)
	mine.advised(codes.OK, 1)
	other.advised(codes.OK, 1)
	cfg := r.entities(1)
	for _, x := range cfg.P4Info.Tables {
		if x.GetPreamble().GetAlias() == "exact_t" {
			x.Preamble.Annotations = append(x.Preamble.Annotations, `@p4runtime_role("telemetry")`)
		}
	}
	r.ok(r.set(push, c.id, cfg))
	entry := func(i int) *p4v1.Entity {
		return r.entity(fmt.Sprintf(`table_entry { table_id: $exact_t match { field_id: 1 exact { value: "\x%02x" } }
			action { action { action_id: $drop } } }`, i))
	}
	r.must(c, insert(entry(1)))
	r.must(mine, insert(entry(2)))
	r.mustNot(other, codes.PermissionDenied, `not of role "routing"`, insert(entry(3)))
	r.must(other, modify(r.entity(`register_entry { register_id: $words data { bitstring: "\x01" } }`)))
	for role, want := range map[string]int{"": 2, "telemetry": 2, "routing": 0} {
		got, err := r.tryRead(&p4v1.ReadRequest{DeviceId: 1, Role: role,
			Entities: []*p4v1.Entity{r.entity(`table_entry { table_id: $exact_t }`)}})
		if err != nil || len(got) != want {
			t.Errorf("role %q reads %d entries, %v", role, len(got), err)
		}
	}
}

// With concurrent writers, readers, pipelines and packets, all replies are ones that the
// specification allows, and the race detector finds no race.
func TestConcurrentRequests(t *testing.T) {
	r, c := pipelined(t)
	const rounds = 60
	entry := r.entity(`table_entry { table_id: $exact_t match { field_id: 1 exact {
		value: "\x02\x00\x00\x00\x00\x01" } } action { action { action_id: $drop } } }`)
	all := []*p4v1.Entity{r.entity(`table_entry { counter_data { } meter_config { } }`), r.entity(`register_entry { }`),
		r.entity(`counter_entry { }`)}
	cfg := r.entities(2)
	var wg sync.WaitGroup
	fine := func(err error, allowed ...codes.Code) {
		for _, a := range append(allowed, codes.OK) {
			if status.Code(err) == a {
				return
			}
		}
		t.Errorf("%v", err)
	}
	loop := func(f func(i int)) {
		wg.Go(func() {
			for i := range rounds {
				f(i)
			}
		})
	}
	for range 2 {
		loop(func(int) {
			for _, kind := range []p4v1.Update_Type{p4v1.Update_INSERT, p4v1.Update_MODIFY, p4v1.Update_DELETE} {
				_, err := r.rpc.Write(t.Context(),
					&p4v1.WriteRequest{DeviceId: 1, ElectionId: c.id,
						Updates: []*p4v1.Update{{Type: kind, Entity: entry}}})
				fine(err, codes.Unknown, codes.PermissionDenied)
			}
		})
		loop(func(int) {
			_, err := r.tryRead(&p4v1.ReadRequest{DeviceId: 1, Entities: all})
			fine(err)
		})
	}
	loop(func(i int) { r.sw.Inject(1, frame(1, byte(i), 0x800), 0) })
	loop(func(i int) {
		if i%10 == 0 {
			_, err := r.rpc.SetForwardingPipelineConfig(t.Context(),
				&p4v1.SetForwardingPipelineConfigRequest{DeviceId: 1, ElectionId: c.id, Action: push, Config: cfg})
			fine(err, codes.PermissionDenied)
		}
	})
	streams := make([]*controller, 8)
	for i := range streams {
		streams[i] = r.open()
	}
	for i, st := range streams {
		wg.Go(func() {
			st.bid(&p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: id128(uint64(10 + i))})
			for range 5 {
				st.send(packetOut(frame(1, 2, 3), []byte{255}, []byte{0}))
			}
		})
	}
	wg.Wait()
	top := r.join("", 99)
	for {
		if a := top.next().GetArbitration(); a != nil {
			if a.GetStatus().GetCode() != 0 {
				t.Errorf("the highest bid received %v", a)
			}
			break
		}
	}
	if _, err := r.rpc.Write(t.Context(), &p4v1.WriteRequest{DeviceId: 1, ElectionId: id128(99)}); err != nil {
		t.Error(err)
	}
}

func BenchmarkWrite(b *testing.B) {
	r := newRig(b, p4rtserver.Options{})
	c := r.primary(1)
	r.ok(r.set(push, c.id, r.compiled("forwarding")))
	const batch = 1000
	var in, out []*p4v1.Update
	for i := range batch {
		e := r.entity(fmt.Sprintf(`table_entry { table_id: $ipv4_lpm match { field_id: 1 lpm {
			value: "\x0a\x%02x\x%02x\x00" prefix_len: 24 } } action { action { action_id: $to_cpu } } }`, i>>8, i&255))
		in, out = append(in, insert(e)), append(out, remove(e))
	}
	b.ResetTimer()
	for b.Loop() {
		r.must(c, in...)
		r.must(c, out...)
	}
	b.ReportMetric(float64(b.N)*2*batch/b.Elapsed().Seconds(), "updates/s")
}
