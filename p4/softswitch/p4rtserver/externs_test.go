// SPDX-License-Identifier: Apache-2.0

package p4rtserver_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
)

func TestCounters(t *testing.T) {
	r, c := pipelined(t)
	r.sw.Inject(1, frame(1, 2, 0x9999), 0) // keyless_t counts every packet in cell 2
	r.sw.Inject(1, frame(1, 2, 0x9999), 0)
	two := r.entity(`counter_entry { counter_id: $packets_in index { index: 2 } data { packet_count: 2
		byte_count: 128 } }`)
	r.readsBack(r.entity(`counter_entry { counter_id: $packets_in index { index: 2 } }`), two)
	r.readsBack(r.entity(`counter_entry { counter_id: $only_packets index { index: 2 } }`),
		r.entity(`counter_entry { counter_id: $only_packets index { index: 2 } data { packet_count: 2 } }`))
	if n := len(r.read(r.entity(`counter_entry { counter_id: $packets_in }`))); n != 8 {
		t.Errorf("a wildcard read of one counter gives %d cells", n)
	}
	if n := len(r.read(r.entity(`counter_entry { }`))); n != 12 {
		t.Errorf("a wildcard read of all counters gives %d cells", n)
	}
	r.must(c, modify(r.entity(`counter_entry { counter_id: $packets_in index { index: 2 } }`))) // no data: no change
	r.readsBack(r.entity(`counter_entry { counter_id: $packets_in index { index: 2 } }`), two)
	r.must(c, modify(r.entity(`counter_entry { counter_id: $packets_in data { packet_count: 7 byte_count: 9 } }`)))
	for i := range 8 {
		r.readsBack(r.entity(fmt.Sprintf(`counter_entry { counter_id: $packets_in index { index: %d } }`, i)),
			r.entity(fmt.Sprintf(`counter_entry { counter_id: $packets_in index { index: %d } data { packet_count: 7
				byte_count: 9 } }`, i)))
	}
}

func TestMeters(t *testing.T) {
	r, c := pipelined(t)
	set := r.entity(`meter_entry { meter_id: $rates index { index: 1 } config { cir: 1 cburst: 2 pir: 3 pburst: 4 } }`)
	r.must(c, modify(set))
	r.readsBack(r.entity(`meter_entry { meter_id: $rates index { index: 1 } }`), set)
	r.readsBack(r.entity(`meter_entry { meter_id: $rates index { index: 0 } }`),
		r.entity(`meter_entry { meter_id: $rates index { index: 0 } }`))
	if n := len(r.read(r.entity(`meter_entry { }`))); n != 4 {
		t.Errorf("a wildcard read of all meters gives %d cells", n)
	}
	r.must(c, modify(r.entity(`meter_entry { meter_id: $rates index { index: 2 } config { cburst: 64 pburst: 128 } }`)))
	for range 3 { // keyless_t meters every packet in cell 2
		r.sw.Inject(1, frame(1, 2, 0x9999), 0)
	}
	colors := `counter_data { green { packet_count: 1 byte_count: 64 } yellow { packet_count: 1 byte_count: 64 } red {
		packet_count: 1 byte_count: 64 } } }`
	config := `meter_entry { meter_id: $rates index { index: 2 } config { cburst: 64 pburst: 128 } `
	r.readsBack(r.entity(`meter_entry { meter_id: $rates index { index: 2 } counter_data { } }`),
		r.entity(config+colors))
	r.must(c, modify(r.entity(config+`}`))) // the counts stay
	r.readsBack(r.entity(`meter_entry { meter_id: $rates index { index: 2 } counter_data { } }`),
		r.entity(config+colors))
	r.must(c, modify(r.entity(config+`counter_data { green { } } }`))) // the counts are cleared
	r.readsBack(r.entity(`meter_entry { meter_id: $rates index { index: 2 } counter_data { } }`),
		r.entity(config+`counter_data { green { } yellow { } red { } } }`))
	r.must(c, modify(r.entity(`meter_entry { meter_id: $rates }`))) // no index: all; no config: the default
	r.readsBack(r.entity(`meter_entry { meter_id: $rates index { index: 1 } }`),
		r.entity(`meter_entry { meter_id: $rates index { index: 1 } }`))
}

func TestRegisters(t *testing.T) {
	r, c := pipelined(t)
	r.sw.Inject(1, frame(1, 2, 0x9999), 0)
	for reg, want := range map[string]string{"words": `\x01`, "narrow": `\x01`, "signed_words": `\xff`} {
		r.readsBack(r.entity(`register_entry { register_id: $`+reg+` index { index: 2 } }`),
			r.entity(`register_entry { register_id: $`+reg+` index { index: 2 } data { bitstring: "`+want+`" } }`))
	}
	if n := len(r.read(r.entity(`register_entry { register_id: $words }`))); n != 16 {
		t.Errorf("a wildcard read of one register gives %d cells", n)
	}
	if n := len(r.read(r.entity(`register_entry { }`))); n != 28 {
		t.Errorf("a wildcard read of all registers gives %d cells", n)
	}
	for _, v := range []string{`\x12\x34`, `\x00`} { // wildcard writes
		r.must(c, modify(r.entity(`register_entry { register_id: $words data { bitstring: "`+v+`" } }`)))
		for i := range 16 {
			r.readsBack(r.entity(fmt.Sprintf(`register_entry { register_id: $words index { index: %d } }`, i)),
				r.entity(fmt.Sprintf(`register_entry { register_id: $words index { index: %d } data {
					bitstring: "%s" } }`, i, v)))
		}
	}
	r.must(c, modify(r.entity(`register_entry { register_id: $signed_words index { } data {
		bitstring: "\xff\xff\x80\x00" } }`)))
	r.readsBack(r.entity(`register_entry { register_id: $signed_words index { } }`),
		r.entity(`register_entry { register_id: $signed_words index { } data { bitstring: "\x80\x00" } }`))
}

func TestValueSets(t *testing.T) {
	r, c := pipelined(t)
	empty := r.entity(`value_set_entry { value_set_id: $control_types }`)
	r.readsBack(empty, empty)
	full := r.entity(`value_set_entry { value_set_id: $control_types members { match { field_id: 1 exact {
		value: "\x08\x00" } } } members { match { field_id: 1 exact { value: "\x06" } } } }`)
	r.must(c, modify(full))
	r.readsBack(r.entity(`value_set_entry { }`), full)
	r.mustNot(c, codes.AlreadyExists, "twice", modify(r.entity(`value_set_entry { value_set_id: $control_types
		members { match { field_id: 1 exact { value: "\x08" } } } members { match { field_id: 1 exact {
		value: "\x00\x08" } } } }`)))
	r.must(c, modify(empty))
	r.readsBack(empty, empty)
}

func TestDirectCounters(t *testing.T) {
	r, c := pipelined(t)
	key := `table_entry { table_id: $exact_t match { field_id: 1 exact { value: "\x02\x00\x00\x00\x00\x01" } } `
	r.must(c, insert(r.entity(key+`action { action { action_id: $drop } } counter_data { packet_count: 10
		byte_count: 1 } }`)))
	r.sw.Inject(1, frame(1, 2, 0x9999), 0)
	r.sw.Inject(1, frame(3, 2, 0x9999), 0) // misses
	r.readsBack(r.entity(`table_entry { table_id: $exact_t counter_data { } }`),
		r.entity(key+`action { action { action_id: $drop } } counter_data { packet_count: 11 byte_count: 65 } }`))
	r.readsBack(r.entity(`table_entry { table_id: $exact_t }`),
		r.entity(key+`action { action { action_id: $drop } } }`))
	r.readsBack(r.entity(`table_entry { table_id: $exact_t is_default_action: true counter_data { } }`),
		r.entity(`table_entry { table_id: $exact_t is_default_action: true action { action { action_id: $drop } }
			counter_data { packet_count: 1 byte_count: 64 } }`))
	one := r.entity(`direct_counter_entry { ` + key + `} data { packet_count: 11 byte_count: 65 } }`)
	for _, q := range []string{`direct_counter_entry { ` + key + `} }`,
		`direct_counter_entry { table_entry { table_id: $exact_t } }`, `direct_counter_entry { table_entry { } }`} {
		r.readsBack(r.entity(q), one)
	}
	r.must(c, modify(r.entity(key+`action { action { action_id: $only_entry } } }`))) // no counter_data: untouched
	r.readsBack(r.entity(`direct_counter_entry { `+key+`} }`), one)
	r.must(c, modify(r.entity(key+`counter_data { packet_count: 3 } }`))) // no action: only the counter
	r.readsBack(r.entity(`table_entry { table_id: $exact_t counter_data { } }`),
		r.entity(key+`action { action { action_id: $only_entry } } counter_data { packet_count: 3 } }`))
	r.must(c, modify(r.entity(`direct_counter_entry { `+key+`} data { packet_count: 4 byte_count: 5 } }`)))
	r.readsBack(r.entity(`direct_counter_entry { `+key+`} }`),
		r.entity(`direct_counter_entry { `+key+`} data { packet_count: 4 byte_count: 5 } }`))
	r.must(c, modify(r.entity(`direct_counter_entry { `+key+`} }`))) // no data: no change
	r.readsBack(r.entity(`direct_counter_entry { `+key+`} }`),
		r.entity(`direct_counter_entry { `+key+`} data { packet_count: 4 byte_count: 5 } }`))
}

func TestDirectMeters(t *testing.T) {
	r, c := pipelined(t)
	key := `table_entry { table_id: $lpm_t `
	set := `config { cir: 1 cburst: 2 pir: 3 pburst: 4 } `
	paced := `action { action { action_id: $paced params { param_id: 1 value: "\x01" } } } `
	r.must(c, insert(r.entity(key+paced+`}`)))
	r.readsBack(r.entity(`direct_meter_entry { table_entry { table_id: $lpm_t } }`),
		r.entity(`direct_meter_entry { `+key+`} }`))
	r.must(c, modify(r.entity(`direct_meter_entry { `+key+`} `+set+`}`)))
	r.readsBack(r.entity(`direct_meter_entry { table_entry { } }`), r.entity(`direct_meter_entry { `+key+`} `+set+`}`))
	r.readsBack(r.entity(`table_entry { table_id: $lpm_t meter_config { } }`), r.entity(key+paced+`meter_`+set+`}`))
	r.readsBack(r.entity(`table_entry { table_id: $lpm_t }`), r.entity(key+paced+`}`))
	r.must(c, modify(r.entity(key+paced+`}`))) // MODIFY without meter_config: back to the default
	r.readsBack(r.entity(`table_entry { table_id: $lpm_t meter_config { } }`), r.entity(key+paced+`}`))
	r.must(c, modify(r.entity(`direct_meter_entry { `+key+`} `+set+`}`)),
		modify(r.entity(`direct_meter_entry { `+key+`} }`)))
	r.readsBack(r.entity(`direct_meter_entry { table_entry { table_id: $lpm_t } }`),
		r.entity(`direct_meter_entry { `+key+`} }`))
}

func TestSelectorProgramming(t *testing.T) {
	r, c := pipelined(t)
	member := func(id int) *p4v1.Entity {
		return r.entity(fmt.Sprintf(`action_profile_member { action_profile_id: $spread member_id: %d action {
			action_id: $drop } }`, id))
	}
	group := func(rest string) *p4v1.Entity {
		return r.entity(`action_profile_group { action_profile_id: $spread group_id: 1 ` + rest + `}`)
	}
	entry := r.entity(`table_entry { table_id: $selected_t match { field_id: 1 exact { value: "\x08" } } action {
		action_profile_group_id: 1 } }`)
	oneShot := r.entity(`table_entry { table_id: $selected_t match { field_id: 1 exact { value: "\x09" } } action {
		action_profile_action_set { action_profile_actions { action { action_id: $drop } weight: 1 } } } }`)
	r.must(c, insert(member(1)), insert(member(2)))
	for name, tc := range map[string]struct {
		e    *p4v1.Entity
		code codes.Code
		says string
	}{
		"weight 0":       {group(`members { member_id: 1 }`), codes.InvalidArgument, "weight"},
		"weight below 0": {group(`members { member_id: 1 weight: -1 }`), codes.InvalidArgument, "weight"},
		"member twice": {group(`members { member_id: 1 weight: 1 } members { member_id: 1 weight: 1 }`),
			codes.InvalidArgument, "twice"},
		"member unknown":   {group(`members { member_id: 3 weight: 1 }`), codes.NotFound, "member 3"},
		"max_size below 0": {group(`max_size: -1`), codes.InvalidArgument, "max_size"},
		"larger than max_size": {group(`max_size: 2 members { member_id: 1 weight: 3 }`), codes.InvalidArgument,
			"limit of 2"},
		"watch port unknown": {group(`members { member_id: 1 weight: 1 watch_port: "\x63" }`), codes.InvalidArgument,
			"watch port"},
		"watch port no number": {group(`members { member_id: 1 weight: 1 watch_port: "\x01\x02\x03\x04\x05" }`),
			codes.InvalidArgument, "watch port"},
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			r.mustNot(c, tc.code, tc.says, insert(tc.e))
		})
	}
	r.t = t
	full := group(`max_size: 3 members { member_id: 1 weight: 1 watch_port: "\x01" } members { member_id: 2
		weight: 2 }`)
	r.must(c, insert(full))
	r.must(c, insert(entry))
	r.readsBack(r.entity(`action_profile_group { }`), full)
	r.mustNot(c, codes.InvalidArgument, "cannot change", modify(group(`max_size: 4`)))
	r.mustNot(c, codes.FailedPrecondition, "", remove(member(1)))
	r.mustNot(c, codes.FailedPrecondition, "", remove(group(``)))
	r.mustNot(c, codes.InvalidArgument, "does not mix", insert(oneShot))
	r.must(c, modify(group(`max_size: 3`)))
	r.must(c, remove(member(1)), remove(member(2)), remove(entry))
	r.must(c, remove(group(``)))

	r.must(c, insert(oneShot))
	r.mustNot(c, codes.InvalidArgument, "does not mix", insert(member(1)))
	r.mustNot(c, codes.InvalidArgument, "does not mix", insert(group(``)))
	r.readsBack(r.entity(`action_profile_member { }`)) // a one-shot group is no group of its own
	r.readsBack(r.entity(`action_profile_group { }`))
	mode := proto.Clone(oneShot).(*p4v1.Entity)
	set := mode.GetTableEntry().GetAction().GetActionProfileActionSet()
	set.ActionSelectionMode = p4v1.ActionProfileActionSet_RANDOM
	set.SizeSemantics = p4v1.ActionProfileActionSet_SUM_OF_MEMBERS
	r.must(c, modify(mode))
	r.readsBack(r.entity(`table_entry { table_id: $selected_t }`), mode)
	set.ActionSelectionMode = 3
	r.mustNot(c, codes.InvalidArgument, "selection mode", modify(mode))
	r.must(c, remove(oneShot))
	r.must(c, insert(member(1))) // the member can be inserted again
}

// A large read comes in messages that a client with gRPC's usual limits takes.
func TestReadIsChunked(t *testing.T) {
	r := newRig(t, p4rtserver.Options{})
	c := r.primary(1)
	cfg := r.compiled("univmon")
	r.ok(r.set(p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT, c.id, cfg))
	s, err := r.rpc.Read(t.Context(), &p4v1.ReadRequest{DeviceId: 1,
		Entities: []*p4v1.Entity{{Entity: &p4v1.Entity_RegisterEntry{RegisterEntry: &p4v1.RegisterEntry{}}}}})
	r.ok(err)
	want, n, messages := 0, 0, 0
	for _, reg := range r.cat.Registers.All() {
		want += reg.Size
	}
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		r.ok(err)
		if size := proto.Size(m); size > 2<<20 {
			t.Fatalf("a message of %d bytes", size)
		}
		n += len(m.GetEntities())
		messages++
	}
	if n != want || messages < 2 {
		t.Errorf("%d of %d cells in %d messages", n, want, messages)
	}
}
