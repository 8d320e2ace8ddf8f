// SPDX-License-Identifier: Apache-2.0

package p4rtserver_test

import (
	"fmt"
	"strings"
	"testing"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Written entities are read back, message for message. Updates of the wrong kind, and inserts of an
// entity that exists, are refused.
func TestReadWriteSymmetry(t *testing.T) {
	r, c := pipelined(t)
	exact := `table_entry { table_id: $exact_t match { field_id: 1 exact { value: "\x01" } } action { action { %s } }`
	for name, tc := range map[string]struct{ wildcard, insert, modify string }{
		"exact": {`table_entry { table_id: $exact_t }`,
			fmt.Sprintf(exact, `action_id: $forward params { param_id: 1 value: "\x01\xff" }`) + `}`,
			fmt.Sprintf(exact, `action_id: $flood params { param_id: 1 value: "\x00" }`) +
				` controller_metadata: 77 metadata: "\x00me" }`},
		"lpm": {`table_entry { table_id: $lpm_t meter_config {} }`,
			`table_entry { table_id: $lpm_t match { field_id: 1 lpm { value: "\x02\x00\x00\x00\x00\x00"
				prefix_len: 8 } } action { action { action_id: $drop } } }`,
			`table_entry { table_id: $lpm_t match { field_id: 1 lpm { value: "\x02\x00\x00\x00\x00\x00"
				prefix_len: 8 } } action { action { action_id: $paced params { param_id: 1 value: "\x02" } } }
				meter_config { cir: 1 cburst: 2 pir: 3 pburst: 4 } }`},
		"ternary": {`table_entry { table_id: $ternary_t }`,
			`table_entry { table_id: $ternary_t priority: 7 match { field_id: 1 ternary { value: "\x08\x00"
				mask: "\xff\x00" } } match { field_id: 2 range { low: "\x01" high: "\x01\x00" } } match { field_id: 3
				optional { value: "\x01" } } action { action { action_id: $learn } } }`,
			`table_entry { table_id: $ternary_t priority: 7 match { field_id: 1 ternary { value: "\x08\x00"
				mask: "\xff\x00" } } match { field_id: 2 range { low: "\x01" high: "\x01\x00" } } match { field_id: 3
				optional { value: "\x01" } } action { action { action_id: $mirror params { param_id: 1
				value: "\x05" } } } }`},
		"don't care": {`table_entry { table_id: $ternary_t priority: 8 }`,
			`table_entry { table_id: $ternary_t priority: 8 action { action { action_id: $learn } } }`,
			`table_entry { table_id: $ternary_t priority: 8 action { action { action_id: $NoAction } } }`},
		"idle": {`table_entry { table_id: $idle_t }`,
			`table_entry { table_id: $idle_t match { field_id: 1 exact { value: "\x00" } } action { action {
				action_id: $NoAction } } idle_timeout_ns: 3600000000000 }`,
			`table_entry { table_id: $idle_t match { field_id: 1 exact { value: "\x00" } } action { action {
				action_id: $count params { param_id: 1 value: "\x01" } } } idle_timeout_ns: 1 }`},
		"one shot": {`table_entry { table_id: $selected_t }`,
			`table_entry { table_id: $selected_t match { field_id: 1 exact { value: "\x08" } } action {
				action_profile_action_set { action_profile_actions { action { action_id: $drop } weight: 2
				watch_port: "\x01" } action_profile_actions { action { action_id: $drop } weight: 2
				watch_port: "\x01" } } } }`,
			`table_entry { table_id: $selected_t match { field_id: 1 exact { value: "\x08" } } action {
				action_profile_action_set { action_profile_actions { action { action_id: $forward params { param_id: 1
				value: "\x03" } } weight: 1 } } } }`},
		"member": {`action_profile_member { action_profile_id: $profile }`,
			`action_profile_member { action_profile_id: $profile member_id: 5 action { action_id: $NoAction } }`,
			`action_profile_member { action_profile_id: $profile member_id: 5 action { action_id: $forward params {
				param_id: 1 value: "\x01" } } }`},
		"multicast": {`packet_replication_engine_entry { multicast_group_entry { } }`,
			`packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 9 replicas { port: "\x01"
				instance: 1 } replicas { port: "\x01" instance: 2 } metadata: "m" } }`,
			`packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 9 replicas {
				port: "\x00" } } }`},
		"clone": {`packet_replication_engine_entry { clone_session_entry { } }`,
			`packet_replication_engine_entry { clone_session_entry { session_id: 9 replicas { port: "\x01\x00"
				instance: 65535 } class_of_service: 3 packet_length_bytes: 64 } }`,
			`packet_replication_engine_entry { clone_session_entry { session_id: 9 replicas { port: "\x01" } } }`},
		"digest": {`digest_entry { }`,
			`digest_entry { digest_id: $learned_t config { max_timeout_ns: 1 max_list_size: 2 ack_timeout_ns: 3 } }`,
			`digest_entry { digest_id: $learned_t config { max_list_size: 1 } }`},
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			first, second, all := r.entity(tc.insert), r.entity(tc.modify), r.entity(tc.wildcard)
			r.mustNot(c, codes.NotFound, "", modify(first))
			r.mustNot(c, codes.NotFound, "", remove(first))
			r.must(c, insert(first))
			r.mustNot(c, codes.AlreadyExists, "", insert(second))
			r.readsBack(all, first)
			r.must(c, modify(second))
			r.readsBack(all, second)
			key := proto.Clone(second).(*p4v1.Entity)
			if te := key.GetTableEntry(); te != nil { // all but the key is ignored
				te.Action, te.Metadata, te.MeterConfig = nil, []byte("other"), nil
			}
			r.must(c, remove(key))
			r.readsBack(all)
		})
	}
}

// Each case is one update that the specification says must be refused, and the expected error.
func TestWriteRefuses(t *testing.T) {
	r, c := pipelined(t)
	r.must(c, insert(r.entity(`action_profile_member { action_profile_id: $profile member_id: 1 action {
		action_id: $NoAction } }`)))
	action := ` action { action { action_id: $NoAction } }`
	ternary := func(s string) string { return `table_entry { table_id: $ternary_t ` + s + action + ` }` }
	exact := func(s string) string { return `table_entry { table_id: $exact_t ` + s + ` }` }
	one := `match { field_id: 1 exact { value: "\x01" } } `
	for name, tc := range map[string]struct {
		kind   p4v1.Update_Type
		entity string
		code   codes.Code
		says   string
	}{
		"no type":               {0, ternary(`priority: 1`), codes.InvalidArgument, "update type"},
		"no entity":             {1, ``, codes.InvalidArgument, "no entity"},
		"extern":                {1, `extern_entry { extern_id: 1 }`, codes.Unimplemented, "externs"},
		"no table":              {1, `table_entry { }`, codes.InvalidArgument, "no table id"},
		"unknown table":         {1, `table_entry { table_id: 5 }`, codes.NotFound, "0x5"},
		"priority missing":      {1, ternary(``), codes.InvalidArgument, "priority above 0"},
		"priority negative":     {1, ternary(`priority: -1`), codes.InvalidArgument, "priority above 0"},
		"priority not possible": {1, exact(one + `priority: 1` + action), codes.InvalidArgument, "must be 0"},
		"unknown field": {1, ternary(`priority: 1 match { field_id: 9 exact { value: "\x01" } }`),
			codes.InvalidArgument, "id 9"},
		"field twice":   {1, exact(one + one + action), codes.InvalidArgument, "twice"},
		"field missing": {1, exact(action), codes.InvalidArgument, "is missing"},
		"no match type": {1, exact(`match { field_id: 1 }` + action), codes.InvalidArgument,
			"no match is given"},
		"wrong match type": {1, exact(`match { field_id: 1 lpm { value: "\x01" prefix_len: 1 } }` + action),
			codes.InvalidArgument, "EXACT, not LPM"},
		"empty value": {1, exact(`match { field_id: 1 exact { } }` + action), codes.InvalidArgument,
			"empty byte string"},
		"value too great": {1, exact(`match { field_id: 1 exact { value: "\x01\x00\x00\x00\x00\x00\x00" } }` +
			action), codes.InvalidArgument, "out of range"},
		"lpm of nothing": {1, `table_entry { table_id: $lpm_t match { field_id: 1 lpm { value: "\x00" } }` +
			action + `}`, codes.InvalidArgument, "leave the field out"},
		"lpm too long": {1, `table_entry { table_id: $lpm_t match { field_id: 1 lpm { value: "\x00"
			prefix_len: 49 } }` + action + `}`, codes.InvalidArgument, "does not fit"},
		"lpm bits": {1, `table_entry { table_id: $lpm_t match { field_id: 1 lpm { value: "\x01"
			prefix_len: 8 } }` + action + `}`, codes.InvalidArgument, "beyond its prefix"},
		"ternary of nothing": {1, ternary(`priority: 1 match { field_id: 1 ternary { value: "\x00" mask: "\x00" } }`),
			codes.InvalidArgument, "leave the field out"},
		"ternary bits": {1, ternary(`priority: 1 match { field_id: 1 ternary { value: "\x03" mask: "\x01" } }`),
			codes.InvalidArgument, "outside of its mask"},
		"ternary without mask": {1, ternary(`priority: 1 match { field_id: 1 ternary { value: "\x03" } }`),
			codes.InvalidArgument, "mask: empty"},
		"range backwards": {1, ternary(`priority: 1 match { field_id: 2 range { low: "\x02" high: "\x01" } }`),
			codes.InvalidArgument, "is empty"},
		"range of all": {1, ternary(`priority: 1 match { field_id: 2 range { low: "\x00" high: "\x01\xff" } }`),
			codes.InvalidArgument, "leave the field out"},
		"no action":      {1, exact(one), codes.InvalidArgument, "needs an action"},
		"empty action":   {1, exact(one + `action { }`), codes.InvalidArgument, "action is empty"},
		"unknown action": {1, exact(one + `action { action { action_id: 5 } }`), codes.InvalidArgument, "0x5"},
		"another's action": {1, exact(one + `action { action { action_id: $mirror params { param_id: 1
			value: "\x01" } } }`), codes.InvalidArgument, "no action with id"},
		"default-only action": {1, exact(one + `action { action { action_id: $only_default } }`),
			codes.PermissionDenied, "@defaultonly"},
		"table-only as default": {2, exact(`is_default_action: true action { action { action_id: $only_entry } }`),
			codes.PermissionDenied, "@tableonly"},
		"parameter missing": {1, exact(one + `action { action { action_id: $forward } }`), codes.InvalidArgument,
			`"port" is missing`},
		"parameter unknown": {1, exact(one + `action { action { action_id: $drop params { param_id: 1
			value: "\x01" } } }`), codes.InvalidArgument, "no parameter"},
		"parameter twice": {1, exact(one + `action { action { action_id: $forward params { param_id: 1
			value: "\x01" } params { param_id: 1 value: "\x01" } } }`), codes.InvalidArgument, "twice"},
		"parameter empty": {1, exact(one + `action { action { action_id: $forward params { param_id: 1 } } }`),
			codes.InvalidArgument, "empty byte string"},
		"parameter too great": {1, exact(one + `action { action { action_id: $forward params { param_id: 1
			value: "\x02\x00" } } }`), codes.InvalidArgument, "out of range"},
		"member in direct": {1, exact(one + `action { action_profile_member_id: 1 }`), codes.InvalidArgument,
			"no action profile"},
		"action in indirect": {1, `table_entry { table_id: $profiled_t ` + one + action + `}`, codes.InvalidArgument,
			"call no action themselves"},
		"group in profile": {1, `table_entry { table_id: $profiled_t ` + one +
			` action { action_profile_group_id: 1 } }`, codes.InvalidArgument, "no groups"},
		"member not there": {1, `table_entry { table_id: $profiled_t ` + one +
			` action { action_profile_member_id: 9 } }`, codes.NotFound, ""},
		"group not there": {1, `table_entry { table_id: $selected_t ` + one +
			` action { action_profile_group_id: 9 } }`, codes.NotFound, ""},
		"keyless": {1, `table_entry { table_id: $keyless_t` + action + `}`, codes.InvalidArgument,
			"only a default action"},
		"is_const": {1, exact(one + `is_const: true` + action), codes.InvalidArgument, "is_const"},
		"idle timeout": {1, exact(one + `idle_timeout_ns: 1` + action), codes.InvalidArgument,
			"no idle timeout"},
		"time since hit": {1, exact(one + `time_since_last_hit { }` + action), codes.InvalidArgument,
			"not for writing"},
		"no direct counter": {1, `table_entry { table_id: $idle_t ` + one + `counter_data { }` + action + `}`,
			codes.InvalidArgument, "no direct counter"},
		"no direct meter": {1, exact(one + `meter_config { }` + action), codes.InvalidArgument,
			"no direct meter"},
		"negative counter": {1, exact(one + `counter_data { packet_count: -1 }` + action), codes.InvalidArgument,
			"negative"},
		"default inserted": {1, exact(`is_default_action: true` + action), codes.InvalidArgument,
			"only be modified"},
		"default deleted": {3, exact(`is_default_action: true`), codes.InvalidArgument, "only be modified"},
		"default with match": {2, exact(`is_default_action: true ` + one + action), codes.InvalidArgument,
			"no match"},
		"default with priority": {2, exact(`is_default_action: true priority: 1` + action), codes.InvalidArgument,
			"no match and no priority"},
		"default with timeout": {2, `table_entry { table_id: $idle_t is_default_action: true idle_timeout_ns: 1` +
			action + `}`, codes.InvalidArgument, "no idle timeout"},
		"const default": {2, `table_entry { table_id: $ternary_t is_default_action: true` + action + `}`,
			codes.PermissionDenied, "constant"},
		"default of indirect": {2, `table_entry { table_id: $profiled_t is_default_action: true` + action + `}`,
			codes.PermissionDenied, "constant"},
		"const table insert": {1, `table_entry { table_id: $const_t priority: 1 match { field_id: 1 ternary {
			value: "\x01" mask: "\x01" } }` + action + `}`, codes.PermissionDenied, "constant"},
		"const table modify": {2, `table_entry { table_id: $const_t priority: 2 match { field_id: 1 ternary {
			value: "\x08\x00" mask: "\xff\xff" } }` + action + `}`, codes.PermissionDenied, "constant"},
		"const table delete": {3, `table_entry { table_id: $const_t priority: 2 match { field_id: 1 ternary {
			value: "\x08\x00" mask: "\xff\xff" } } }`, codes.PermissionDenied, "constant"},

		"profile id 0": {1, `action_profile_member { member_id: 1 }`, codes.InvalidArgument,
			"no action profile id"},
		"profile unknown": {1, `action_profile_member { action_profile_id: 5 member_id: 1 }`, codes.NotFound, "0x5"},
		"member id 0": {1, `action_profile_member { action_profile_id: $profile action { action_id: $NoAction } }`,
			codes.InvalidArgument, "id 0"},
		"member's action": {1, `action_profile_member { action_profile_id: $profile member_id: 2 }`,
			codes.InvalidArgument, "no action"},
		"member's bad one": {1, `action_profile_member { action_profile_id: $profile member_id: 2 action {
			action_id: $mirror } }`, codes.InvalidArgument, "no action with id"},
		"group in a profile": {1, `action_profile_group { action_profile_id: $profile group_id: 2 }`,
			codes.InvalidArgument, "no groups"},
		"group id 0": {1, `action_profile_group { action_profile_id: $spread }`, codes.InvalidArgument, "id 0"},
		"group's member": {1, `action_profile_group { action_profile_id: $spread group_id: 2 members { member_id: 99
			weight: 1 } }`, codes.NotFound, "member 99"},

		"counter insert": {1, `counter_entry { counter_id: $packets_in }`, codes.InvalidArgument,
			"only be modified"},
		"counter delete": {3, `counter_entry { counter_id: $packets_in }`, codes.InvalidArgument,
			"only be modified"},
		"counter unknown": {2, `counter_entry { counter_id: 5 }`, codes.NotFound, "0x5"},
		"counter index": {2, `counter_entry { counter_id: $packets_in index { index: 8 } }`, codes.OutOfRange,
			"8 cells"},
		"counter negative": {2, `counter_entry { counter_id: $packets_in index { index: -1 } }`,
			codes.InvalidArgument, "negative"},
		"counter direct": {2, `counter_entry { counter_id: $hits index { index: 0 } }`, codes.InvalidArgument,
			"is direct"},
		"meter insert": {1, `meter_entry { meter_id: $rates }`, codes.InvalidArgument, "only be modified"},
		"meter index":  {2, `meter_entry { meter_id: $rates index { index: 4 } }`, codes.OutOfRange, "4 cells"},
		"meter negative": {2, `meter_entry { meter_id: $rates index { index: -4 } }`, codes.InvalidArgument,
			"negative"},
		"meter rate": {2, `meter_entry { meter_id: $rates index { } config { cir: -1 } }`,
			codes.InvalidArgument, "negative"},
		"meter excess burst": {2, `meter_entry { meter_id: $rates index { } config { eburst: 1 } }`,
			codes.InvalidArgument, "excess"},
		"meter's colors": {2, `meter_entry { meter_id: $rates index { } counter_data { red { packet_count: 1 } } }`,
			codes.InvalidArgument, "colors"},
		"entry's colors": {1, `table_entry { table_id: $lpm_t action { action { action_id: $drop } }
			meter_counter_data { green { byte_count: 1 } } }`, codes.InvalidArgument, "colors"},
		"direct colors": {2, `direct_meter_entry { table_entry { table_id: $lpm_t } counter_data { yellow {
			byte_count: 1 } } }`, codes.InvalidArgument, "colors"},
		"default's match": {2, `direct_meter_entry { table_entry { table_id: $lpm_t is_default_action: true
			priority: 1 } }`, codes.InvalidArgument, "no priority"},
		"default's counter": {2, `table_entry { table_id: $lpm_t is_default_action: true counter_data { } }`,
			codes.InvalidArgument, "no direct counter"},
		"default's meter": {2, `table_entry { table_id: $lpm_t is_default_action: true meter_config { cir: -1 } }`,
			codes.InvalidArgument, "negative"},
		"register insert": {1, `register_entry { register_id: $words data { bitstring: "\x01" } }`,
			codes.InvalidArgument, "only be modified"},
		"register unknown": {2, `register_entry { register_id: 5 data { bitstring: "\x01" } }`, codes.NotFound,
			"0x5"},
		"register index": {2, `register_entry { register_id: $words index { index: 16 } data {
			bitstring: "\x01" } }`, codes.OutOfRange, "16 cells"},
		"register negative": {2, `register_entry { register_id: $words index { index: -1 } data {
			bitstring: "\x01" } }`, codes.InvalidArgument, "negative"},
		"register no data": {2, `register_entry { register_id: $words index { } }`, codes.InvalidArgument,
			"data is none"},
		"register type": {2, `register_entry { register_id: $words index { } data { bool: true } }`,
			codes.InvalidArgument, "data is none"},
		"register width": {2, `register_entry { register_id: $narrow index { } data { bitstring: "\x10\x00" } }`,
			codes.InvalidArgument, "out of range"},
		"register signed": {2, `register_entry { register_id: $signed_words index { } data {
			bitstring: "\x00\x80\x00" } }`, codes.InvalidArgument, "out of range"},

		"direct counter insert": {1, `direct_counter_entry { table_entry { table_id: $exact_t ` + one + ` } }`,
			codes.InvalidArgument, "only be modified"},
		"direct counter no entry": {2, `direct_counter_entry { }`, codes.InvalidArgument, "no table entry"},
		"direct counter gone": {2, `direct_counter_entry { table_entry { table_id: $exact_t match { field_id: 1
			exact { value: "\x63" } } } data { } }`, codes.NotFound, ""},
		"direct counter of none": {2, `direct_counter_entry { table_entry { table_id: $idle_t ` + one +
			` } data { } }`, codes.InvalidArgument, "no direct counter"},
		"direct meter insert": {1, `direct_meter_entry { table_entry { table_id: $lpm_t } }`, codes.InvalidArgument,
			"only be modified"},
		"direct meter gone": {2, `direct_meter_entry { table_entry { table_id: $lpm_t match { field_id: 1 lpm {
			value: "\x02\x00\x00\x00\x00\x00" prefix_len: 8 } } } }`, codes.NotFound, ""},

		"group 0": {1, `packet_replication_engine_entry { multicast_group_entry { } }`,
			codes.InvalidArgument, "1 to"},
		"group too great": {1, `packet_replication_engine_entry { multicast_group_entry {
			multicast_group_id: 65536 } }`, codes.InvalidArgument, "1 to"},
		"replica twice": {1, `packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1
			replicas { port: "\x01" } replicas { port: "\x01" } } }`, codes.InvalidArgument, "twice"},
		"replica instance": {1, `packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1
			replicas { port: "\x01" instance: 65536 } } }`, codes.InvalidArgument, "instance"},
		"replica port": {1, `packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1
			replicas { port: "\x02\x00" } } }`, codes.InvalidArgument, "ports are 0 to"},
		"replica portless": {1, `packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1
			replicas { } } }`, codes.InvalidArgument, "needs a port"},
		"backup replica": {1, `packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1
			replicas { port: "\x01" backup_replicas { port: "\x01" instance: 1 } } } }`, codes.InvalidArgument,
			"same port"},
		"backup twice": {1, `packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1
			replicas { port: "\x01" backup_replicas { port: "\x02" } } replicas { port: "\x02" } } }`,
			codes.InvalidArgument, "twice"},
		"backup port": {1, `packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1
			replicas { port: "\x01" backup_replicas { port: "\x02\x00" } } } }`, codes.InvalidArgument,
			"ports are 0 to"},
		"session 0": {1, `packet_replication_engine_entry { clone_session_entry { } }`, codes.InvalidArgument,
			"1 to"},
		"session too great": {1, `packet_replication_engine_entry { clone_session_entry { session_id: 32768 } }`,
			codes.InvalidArgument, "1 to"},
		"session's class": {1, `packet_replication_engine_entry { clone_session_entry { session_id: 1
			class_of_service: 8 } }`, codes.InvalidArgument, "class of service"},
		"neither":        {1, `packet_replication_engine_entry { }`, codes.InvalidArgument, "neither"},
		"digest unknown": {1, `digest_entry { digest_id: 5 }`, codes.NotFound, "0x5"},
		"digest negative": {1, `digest_entry { digest_id: $learned_t config { ack_timeout_ns: -1 } }`,
			codes.InvalidArgument, "negative"},
		"value set insert": {1, `value_set_entry { value_set_id: $control_types }`, codes.InvalidArgument,
			"only be modified"},
		"value set unknown": {2, `value_set_entry { value_set_id: 5 }`, codes.NotFound, "0x5"},
		"value set too full": {2, `value_set_entry { value_set_id: $control_types members { } members { } members { }
			members { } members { } }`, codes.ResourceExhausted, "room for 4"},
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			r.mustNot(c, tc.code, tc.says, &p4v1.Update{Type: tc.kind, Entity: r.entity(tc.entity)})
		})
	}
}

func TestTableIsFull(t *testing.T) {
	r, c := pipelined(t)
	entry := func(i int) *p4v1.Entity {
		return r.entity(fmt.Sprintf(`table_entry { table_id: $exact_t match { field_id: 1 exact { value: "\x%02x" } }
			action { action { action_id: $drop } } }`, i))
	}
	for i := 1; i <= 4; i++ {
		r.must(c, insert(entry(i)))
	}
	r.mustNot(c, codes.ResourceExhausted, "I.exact_t", insert(entry(5)))
	r.must(c, remove(entry(1)), insert(entry(5)))
}

func TestDefaultEntry(t *testing.T) {
	r, c := pipelined(t)
	query := r.entity(`table_entry { table_id: $exact_t is_default_action: true }`)
	own := r.entity(`table_entry { table_id: $exact_t is_default_action: true action { action { action_id: $drop } } }`)
	r.readsBack(query, own)
	changed := r.entity(`table_entry { table_id: $exact_t is_default_action: true action { action { action_id: $forward
		params { param_id: 1 value: "\x02" } } } controller_metadata: 3 metadata: "x" }`)
	r.must(c, modify(changed))
	r.readsBack(query, changed)
	r.readsBack(r.entity(`table_entry { table_id: $exact_t }`)) // no default entry in a wildcard read
	r.must(c, modify(r.entity(`table_entry { table_id: $exact_t is_default_action: true }`)))
	r.readsBack(query, own)
	r.readsBack(r.entity(`table_entry { table_id: $ternary_t is_default_action: true }`),
		r.entity(`table_entry { table_id: $ternary_t is_default_action: true action { action { action_id: $NoAction } }
			is_const: true }`))
}

// A default entry has direct resources as other entries have.
func TestDefaultDirectResources(t *testing.T) {
	r, c := pipelined(t)
	const key = `table_entry { table_id: $lpm_t is_default_action: true `
	paced := `action { action { action_id: $paced params { param_id: 1 value: "\x02" } } } `
	meter := `meter_config { cburst: 2 pburst: 3 } `
	r.must(c, modify(r.entity(key+paced+meter+`}`)))
	for range 4 {
		r.sw.Inject(1, frame(9, 9, 0x9999), 0)
	}
	r.readsBack(r.entity(key+`meter_config { } }`), r.entity(key+paced+meter+`}`))
	r.readsBack(r.entity(key+`meter_counter_data { } }`),
		r.entity(key+paced+`meter_counter_data { green { packet_count: 2 byte_count: 128 } yellow { packet_count: 1
			byte_count: 64 } red { packet_count: 1 byte_count: 64 } } }`))
	r.readsBack(r.entity(`direct_meter_entry { `+key+`} }`),
		r.entity(`direct_meter_entry { `+key+`} config { cburst: 2 pburst: 3 } }`))
	r.must(c, modify(r.entity(`direct_meter_entry { `+key+`} config { cir: 1 cburst: 5 pir: 6 pburst: 7 }
		counter_data { } }`)))
	r.readsBack(r.entity(`direct_meter_entry { `+key+`} counter_data { } }`),
		r.entity(`direct_meter_entry { `+key+`} config { cir: 1 cburst: 5 pir: 6 pburst: 7 } counter_data { green { }
			yellow { } red { } } }`))
	r.must(c, modify(r.entity(key+`}`))) // back to the program's own
	r.readsBack(r.entity(`direct_meter_entry { `+key+`} }`), r.entity(`direct_meter_entry { `+key+`} }`))

	const counted = `table_entry { table_id: $exact_t is_default_action: true `
	counter := r.entity(`direct_counter_entry { ` + counted + `} data { packet_count: 40 byte_count: 5 } }`)
	r.must(c, modify(counter))
	r.readsBack(r.entity(`direct_counter_entry { `+counted+`} }`), counter)
	r.sw.Inject(1, frame(9, 9, 0x9999), 0)
	r.readsBack(r.entity(`direct_counter_entry { `+counted+`} }`),
		r.entity(`direct_counter_entry { `+counted+`} data { packet_count: 41 byte_count: 69 } }`))
	dropped := `action { action { action_id: $only_default } } `
	r.must(c, modify(r.entity(counted+dropped+`counter_data { packet_count: 1 } }`)))
	r.readsBack(r.entity(counted+`counter_data { } }`), r.entity(counted+dropped+`counter_data { packet_count: 1 } }`))
	errs := r.writeAs(c, p4v1.WriteRequest_ROLLBACK_ON_ERROR,
		modify(r.entity(counted+`counter_data { packet_count: 9 } }`)),
		modify(r.entity(`direct_meter_entry { `+key+`} config { cir: 2 cburst: 5 pir: 6 pburst: 7 } }`)),
		remove(r.entity(counted+`}`)))
	if codes.Code(errs[0].GetCanonicalCode()) != codes.Aborted {
		t.Errorf("%v", errs)
	}
	r.readsBack(r.entity(counted+`counter_data { } }`), r.entity(counted+dropped+`counter_data { packet_count: 1 } }`))
	r.readsBack(r.entity(`direct_meter_entry { `+key+`} }`), r.entity(`direct_meter_entry { `+key+`} }`))
	// Entries that a new pipeline keeps.
	r.must(c, modify(r.entity(`direct_meter_entry { `+key+`} config { cir: 1 cburst: 5 pir: 6 pburst: 7 } }`)))
	r.ok(r.set(p4v1.SetForwardingPipelineConfigRequest_RECONCILE_AND_COMMIT, c.id, r.entities(8)))
	r.readsBack(r.entity(counted+`counter_data { } }`), r.entity(counted+dropped+`counter_data { packet_count: 1 } }`))
	r.readsBack(r.entity(`direct_meter_entry { `+key+`} }`),
		r.entity(`direct_meter_entry { `+key+`} config { cir: 1 cburst: 5 pir: 6 pburst: 7 } }`))
}

func TestConstTable(t *testing.T) {
	r, _ := pipelined(t)
	r.readsBack(r.entity(`table_entry { table_id: $const_t }`),
		r.entity(`table_entry { table_id: $const_t priority: 2 match { field_id: 1 ternary { value: "\x08\x00"
			mask: "\xff\xff" } } action { action { action_id: $count params { param_id: 1 value: "\x00" } } }
			is_const: true }`),
		r.entity(`table_entry { table_id: $const_t priority: 1 match { field_id: 1 ternary { value: "\x86\xdd"
			mask: "\xff\xff" } } action { action { action_id: $count params { param_id: 1 value: "\x01" } } }
			is_const: true }`))
}

// Values of any length are accepted; the entry is stored once and returned in the shortest form.
func TestCanonicalValuesOnReadBack(t *testing.T) {
	r, c := pipelined(t)
	long := r.entity(`table_entry { table_id: $exact_t match { field_id: 1 exact {
		value: "\x00\x00\x00\x00\x00\x00\x00\x05" } } action { action { action_id: $forward params { param_id: 1
		value: "\x00\x00\x03" } } } }`)
	short := r.entity(`table_entry { table_id: $exact_t match { field_id: 1 exact { value: "\x05" } } action { action {
		action_id: $forward params { param_id: 1 value: "\x03" } } } }`)
	r.must(c, insert(long))
	r.mustNot(c, codes.AlreadyExists, "", insert(short))
	r.readsBack(r.entity(`table_entry { table_id: $exact_t }`), short)
	r.must(c, modify(r.entity(`register_entry { register_id: $words index { index: 1 } data {
		bitstring: "\x00\x00\x00\x00\x09" } }`)))
	r.readsBack(r.entity(`register_entry { register_id: $words index { index: 1 } }`),
		r.entity(`register_entry { register_id: $words index { index: 1 } data { bitstring: "\x09" } }`))
}

func TestTableWildcardReads(t *testing.T) {
	r, c := pipelined(t)
	a := r.entity(`table_entry { table_id: $ternary_t priority: 1 action { action { action_id: $learn } }
		metadata: "a" }`)
	b := r.entity(`table_entry { table_id: $ternary_t priority: 2 match { field_id: 1 ternary { value: "\x01"
		mask: "\x01" } } action { action { action_id: $NoAction } } metadata: "b" }`)
	d := r.entity(`table_entry { table_id: $ternary_t priority: 2 match { field_id: 1 ternary { value: "\x02"
		mask: "\x02" } } action { action { action_id: $NoAction } } controller_metadata: 4 }`)
	e := r.entity(`table_entry { table_id: $exact_t match { field_id: 1 exact { value: "\x01" } } action { action {
		action_id: $drop } } }`)
	r.must(c, insert(a), insert(b), insert(d), insert(e))
	consts := r.read(r.entity(`table_entry { table_id: $const_t }`))
	r.readsBack(r.entity(`table_entry { }`), append(consts, a, b, d, e)...)
	r.readsBack(r.entity(`table_entry { table_id: $ternary_t }`), a, b, d)
	r.readsBack(r.entity(`table_entry { table_id: $ternary_t priority: 2 }`), b, d)
	r.readsBack(r.entity(`table_entry { table_id: $ternary_t metadata: "b" }`), b)
	r.readsBack(r.entity(`table_entry { table_id: $ternary_t controller_metadata: 4 }`), d)
	r.readsBack(r.entity(`table_entry { table_id: $ternary_t action { action { action_id: $learn } } }`), a)
	r.readsBack(r.entity(`table_entry { table_id: $ternary_t priority: 2 match { field_id: 1 ternary { value: "\x02"
		mask: "\x02" } } }`), d)
	if n := len(r.read(r.entity(`table_entry { is_default_action: true }`))); n < 6 {
		t.Errorf("%d default entries", n)
	}
}

// A read continues after a request that fails, and reports each failure.
func TestReadErrors(t *testing.T) {
	r, c := pipelined(t)
	e := r.entity(`table_entry { table_id: $exact_t match { field_id: 1 exact { value: "\x01" } } action { action {
		action_id: $drop } } }`)
	r.must(c, insert(e))
	got, err := r.tryRead(&p4v1.ReadRequest{DeviceId: 1, Entities: []*p4v1.Entity{
		r.entity(`table_entry { table_id: $exact_t }`), r.entity(`table_entry { table_id: 5 }`),
		r.entity(`table_entry { table_id: $exact_t }`), r.entity(``),
	}})
	st := status.Convert(err)
	if len(got) != 2 || st.Code() != codes.Unknown || len(st.Details()) != 4 {
		t.Fatalf("%d entities, %v", len(got), err)
	}
	for i, want := range []codes.Code{codes.OK, codes.NotFound, codes.OK, codes.InvalidArgument} {
		if e := st.Details()[i].(*p4v1.Error); codes.Code(e.GetCanonicalCode()) != want {
			t.Errorf("request %d: %v", i, e)
		}
	}
	for _, q := range []string{
		`counter_entry { counter_id: 5 }`, `meter_entry { meter_id: 5 }`, `register_entry { register_id: 5 }`,
		`digest_entry { digest_id: 5 }`,
		`value_set_entry { value_set_id: 5 }`, `action_profile_member { action_profile_id: 5 }`,
		`action_profile_group { action_profile_id: $spread group_id: 5 }`,
		`packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 5 } }`,
		`packet_replication_engine_entry { clone_session_entry { session_id: 5 } }`,
		`direct_counter_entry { table_entry { table_id: $exact_t match { field_id: 1 exact { value: "\x63" } } } }`,
		`action_profile_member { action_profile_id: $profile member_id: 5 }`,
	} {
		if _, err := r.tryRead(&p4v1.ReadRequest{DeviceId: 1, Entities: []*p4v1.Entity{r.entity(q)}}); err == nil ||
			!strings.Contains(err.Error(), "failed") ||
			codes.Code(status.Convert(err).Details()[0].(*p4v1.Error).GetCanonicalCode()) != codes.NotFound {
			t.Errorf("%s: %v", q, err)
		}
	}
	if got := r.read(r.entity(`extern_entry { }`)); len(got) != 0 {
		t.Errorf("externs %v", got)
	}
}

func TestWriteReportsEachUpdate(t *testing.T) {
	r, c := pipelined(t)
	entry := func(i int) *p4v1.Update {
		return insert(r.entity(fmt.Sprintf(`table_entry { table_id: $exact_t match { field_id: 1 exact {
			value: "\x%02x" } } action { action { action_id: $drop } } }`, i)))
	}
	_, err := r.rpc.Write(t.Context(), &p4v1.WriteRequest{DeviceId: 1, ElectionId: c.id,
		Updates: []*p4v1.Update{entry(1), entry(1), entry(2)}})
	st := status.Convert(err)
	if st.Code() != codes.Unknown || len(st.Details()) != 3 {
		t.Fatalf("%v", err)
	}
	for i, want := range []codes.Code{codes.OK, codes.AlreadyExists, codes.OK} {
		e := st.Details()[i].(*p4v1.Error)
		if codes.Code(e.GetCanonicalCode()) != want || want == codes.OK &&
			(e.GetMessage() != "" || e.GetSpace() != "" || e.GetCode() != 0) {
			t.Errorf("update %d: %v", i, e)
		}
	}
	if n := len(r.read(r.entity(`table_entry { table_id: $exact_t }`))); n != 2 {
		t.Errorf("%d entries", n)
	}
}

func TestAtomicity(t *testing.T) {
	r, c := pipelined(t)
	e := func(i int, action string) *p4v1.Entity {
		return r.entity(fmt.Sprintf(`table_entry { table_id: $exact_t match { field_id: 1 exact { value: "\x%02x" } }
			action { action { action_id: $%s } } }`, i, action))
	}
	kept := []*p4v1.Entity{
		r.entity(`action_profile_member { action_profile_id: $spread member_id: 1 action { action_id: $drop } }`),
		r.entity(`action_profile_group { action_profile_id: $spread group_id: 1 max_size: 4 members { member_id: 1
			weight: 2 } }`),
		r.entity(`packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 3 replicas {
			port: "\x01" } } }`),
		r.entity(`packet_replication_engine_entry { clone_session_entry { session_id: 3 replicas { port: "\x01" } } }`),
		r.entity(`digest_entry { digest_id: $learned_t config { max_list_size: 1 } }`),
		e(1, "drop "), e(2, "drop "),
	}
	for _, k := range kept {
		r.must(c, insert(k))
	}
	all := func() string {
		var s strings.Builder
		for _, q := range []string{`table_entry { table_id: $exact_t counter_data { } }`,
			`table_entry { table_id: $exact_t is_default_action: true }`, `action_profile_member { }`,
			`action_profile_group { }`, `packet_replication_engine_entry { multicast_group_entry { } }`,
			`packet_replication_engine_entry { clone_session_entry { } }`,
			`digest_entry { }`, `register_entry { register_id: $words }`, `counter_entry { counter_id: $packets_in }`,
			`meter_entry { meter_id: $rates }`, `value_set_entry { }`} {
			for _, x := range r.read(r.entity(q)) {
				b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(x)
				s.Write(b)
			}
		}
		return s.String()
	}
	before := all()
	bad := insert(e(2, "drop "))
	errs := r.writeAs(c, p4v1.WriteRequest_ROLLBACK_ON_ERROR,
		insert(e(3, "drop ")), modify(e(1, "only_entry ")), remove(e(2, "drop ")), insert(e(2, "drop ")),
		modify(r.entity(`table_entry { table_id: $exact_t is_default_action: true action { action {
			action_id: $only_default } } }`)),
		modify(r.entity(`direct_counter_entry { table_entry { table_id: $exact_t match { field_id: 1 exact {
			value: "\x01" } } } data { packet_count: 9 } }`)),
		modify(r.entity(`register_entry { register_id: $words data { bitstring: "\x05" } }`)),
		modify(r.entity(`counter_entry { counter_id: $packets_in index { index: 1 } data { packet_count: 5 } }`)),
		modify(r.entity(`meter_entry { meter_id: $rates config { cir: 5 cburst: 5 pir: 5 pburst: 5 } }`)),
		modify(r.entity(`value_set_entry { value_set_id: $control_types members { match { field_id: 1 exact {
			value: "\x08" } } } }`)),
		modify(r.entity(`action_profile_group { action_profile_id: $spread group_id: 1 max_size: 4 }`)),
		remove(r.entity(`action_profile_group { action_profile_id: $spread group_id: 1 }`)),
		remove(r.entity(`action_profile_member { action_profile_id: $spread member_id: 1 }`)),
		modify(r.entity(`packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 3 } }`)),
		remove(r.entity(`packet_replication_engine_entry { clone_session_entry { session_id: 3 } }`)),
		remove(r.entity(`digest_entry { digest_id: $learned_t }`)),
		bad, insert(e(4, "drop ")))
	for i, e := range errs {
		want := codes.Aborted
		if i == 16 {
			want = codes.AlreadyExists
		}
		if codes.Code(e.GetCanonicalCode()) != want {
			t.Errorf("update %d: %v", i, e)
		}
	}
	if all() != before {
		t.Error("the batch left something behind")
	}
	if errs := r.writeAs(c, p4v1.WriteRequest_ROLLBACK_ON_ERROR, insert(e(3, "drop ")),
		modify(e(3, "only_entry "))); errs[0] != nil {
		t.Errorf("a batch without errors: %v", errs)
	}
	if errs := r.writeAs(c, p4v1.WriteRequest_DATAPLANE_ATOMIC, modify(e(3, "drop "))); errs[0] != nil {
		t.Errorf("a single update is atomic: %v", errs)
	}
	before = all()
	errs = r.writeAs(c, p4v1.WriteRequest_DATAPLANE_ATOMIC, remove(e(3, "drop ")), insert(e(7, "drop ")),
		remove(e(8, "drop ")))
	if codes.Code(errs[0].GetCanonicalCode()) != codes.Aborted ||
		codes.Code(errs[2].GetCanonicalCode()) != codes.NotFound || all() != before {
		t.Errorf("an atomic batch with an error: %v", errs)
	}
	if errs := r.writeAs(c, p4v1.WriteRequest_DATAPLANE_ATOMIC, remove(e(1, "drop ")),
		remove(e(2, "drop "))); errs[0] != nil || errs[1] != nil {
		t.Errorf("an atomic batch: %v", errs)
	}
	_, err := r.rpc.Write(t.Context(), &p4v1.WriteRequest{DeviceId: 1, ElectionId: c.id, Atomicity: 9})
	r.refused(err, codes.InvalidArgument, "9")
}
