// SPDX-License-Identifier: Apache-2.0

package p4rtserver_test

import (
	"testing"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
)

const (
	verify    = p4v1.SetForwardingPipelineConfigRequest_VERIFY
	save      = p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_SAVE
	push      = p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT
	commit    = p4v1.SetForwardingPipelineConfigRequest_COMMIT
	reconcile = p4v1.SetForwardingPipelineConfigRequest_RECONCILE_AND_COMMIT
)

func (r *rig) pipeline(part p4v1.GetForwardingPipelineConfigRequest_ResponseType) *p4v1.ForwardingPipelineConfig {
	r.t.Helper()
	got, err := r.rpc.GetForwardingPipelineConfig(r.t.Context(),
		&p4v1.GetForwardingPipelineConfigRequest{DeviceId: 1, ResponseType: part})
	r.ok(err)
	return got.GetConfig()
}

func TestGetPipeline(t *testing.T) {
	r := newRig(t, p4rtserver.Options{})
	if cfg := r.pipeline(p4v1.GetForwardingPipelineConfigRequest_ALL); cfg != nil {
		t.Errorf("before any: %v", cfg)
	}
	c := r.primary(1)
	want := r.entities(42)
	r.ok(r.set(push, c.id, want))
	if got := r.pipeline(p4v1.GetForwardingPipelineConfigRequest_ALL); !proto.Equal(got, want) {
		t.Error("what is read is not what was written")
	}
	for part, has := range map[p4v1.GetForwardingPipelineConfigRequest_ResponseType][2]bool{
		p4v1.GetForwardingPipelineConfigRequest_COOKIE_ONLY:              {false, false},
		p4v1.GetForwardingPipelineConfigRequest_P4INFO_AND_COOKIE:        {true, false},
		p4v1.GetForwardingPipelineConfigRequest_DEVICE_CONFIG_AND_COOKIE: {false, true},
	} {
		got := r.pipeline(part)
		if (got.GetP4Info() != nil) != has[0] || (len(got.GetP4DeviceConfig()) > 0) != has[1] ||
			got.GetCookie().GetCookie() != 42 {
			t.Errorf("%v has the wrong parts", part)
		}
	}
	without := r.entities(0)
	without.Cookie = nil
	r.ok(r.set(push, c.id, without))
	if got := r.pipeline(p4v1.GetForwardingPipelineConfigRequest_COOKIE_ONLY); got.GetCookie() != nil {
		t.Errorf("a cookie out of nothing: %v", got)
	}
	_, err := r.rpc.GetForwardingPipelineConfig(t.Context(), &p4v1.GetForwardingPipelineConfigRequest{DeviceId: 2})
	r.refused(err, codes.NotFound, "no device 2")
	_, err = r.rpc.GetForwardingPipelineConfig(t.Context(),
		&p4v1.GetForwardingPipelineConfigRequest{DeviceId: 1, ResponseType: 99})
	r.refused(err, codes.InvalidArgument, "99")
}

func TestSetPipelineActions(t *testing.T) {
	r := newRig(t, p4rtserver.Options{})
	c := r.primary(1)
	entry := func() *p4v1.Entity {
		return r.entity(`table_entry { table_id: $exact_t match { field_id: 1 exact { value: "\x01" } } action {
			action { action_id: $drop } } }`)
	}
	cfg := r.entities(1)
	r.ok(r.set(verify, c.id, cfg))
	if r.pipeline(0) != nil {
		t.Error("VERIFY changed the switch")
	}
	r.refused(r.set(commit, c.id, nil), codes.NotFound, "VERIFY_AND_SAVE")
	r.ok(r.set(push, c.id, cfg))
	r.must(c, insert(entry()))
	r.ok(r.set(verify, c.id, cfg))
	r.readsBack(r.entity(`table_entry { table_id: $exact_t }`), entry())
	r.ok(r.set(push, c.id, cfg)) // clears
	r.readsBack(r.entity(`table_entry { table_id: $exact_t }`))

	// A pipeline is saved: reads and writes use it, and the switch runs on with the old one.
	r.must(c, insert(entry()))
	saved := r.entities(2)
	r.ok(r.set(save, c.id, saved))
	if got := r.pipeline(p4v1.GetForwardingPipelineConfigRequest_COOKIE_ONLY); got.GetCookie().GetCookie() != 1 {
		t.Errorf("the cookie is %v before COMMIT", got.GetCookie())
	}
	r.readsBack(r.entity(`table_entry { table_id: $exact_t }`))
	two := r.entity(`table_entry { table_id: $exact_t match { field_id: 1 exact { value: "\x02" } } action { action {
		action_id: $drop } } }`)
	r.must(c, insert(two))
	if held, err := r.sw.ReadEntries("I.exact_t"); err != nil || len(held) != 1 || held[0].Match[0].Value[5] != 1 {
		t.Errorf("the switch holds %v, %v", held, err)
	}
	r.refused(r.set(commit, c.id, cfg), codes.InvalidArgument, "takes no configuration")
	r.ok(r.set(commit, c.id, nil))
	r.readsBack(r.entity(`table_entry { table_id: $exact_t }`), two)
	if got := r.pipeline(p4v1.GetForwardingPipelineConfigRequest_COOKIE_ONLY); got.GetCookie().GetCookie() != 2 {
		t.Errorf("the cookie is %v after COMMIT", got.GetCookie())
	}
	r.refused(r.set(commit, c.id, nil), codes.NotFound, "VERIFY_AND_SAVE")
	for _, action := range []p4v1.SetForwardingPipelineConfigRequest_Action{verify, save, push, reconcile} {
		r.refused(r.set(action, c.id, nil), codes.InvalidArgument, "needs a configuration")
	}
	r.refused(r.set(p4v1.SetForwardingPipelineConfigRequest_UNSPECIFIED, c.id, cfg), codes.InvalidArgument,
		"UNSPECIFIED")
}

func TestReconcileAndCommit(t *testing.T) {
	r, c := pipelined(t)
	state := []*p4v1.Entity{
		r.entity(`action_profile_member { action_profile_id: $spread member_id: 1 action { action_id: $drop } }`),
		r.entity(`action_profile_group { action_profile_id: $spread group_id: 1 max_size: 4 members { member_id: 1
			weight: 2 } }`),
		r.entity(`table_entry { table_id: $selected_t match { field_id: 1 exact { value: "\x08" } } action {
			action_profile_group_id: 1 } }`),
		r.entity(`packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 3 replicas {
			port: "\x01" instance: 1 } metadata: "m" } }`),
		r.entity(`packet_replication_engine_entry { clone_session_entry { session_id: 3 replicas { port: "\x01" } } }`),
	}
	for _, e := range state {
		r.must(c, insert(e))
	}
	def := r.entity(`table_entry { table_id: $exact_t is_default_action: true action { action {
		action_id: $only_default } } metadata: "d" }`)
	reg := r.entity(`register_entry { register_id: $words index { index: 3 } data { bitstring: "\x07" } }`)
	count := r.entity(`counter_entry { counter_id: $packets_in index { index: 2 } data { packet_count: 5
		byte_count: 500 } }`)
	r.must(c, modify(def), modify(reg), modify(count))
	r.ok(r.set(reconcile, c.id, r.entities(9)))
	r.readsBack(r.entity(`action_profile_member { }`), state[0])
	r.readsBack(r.entity(`action_profile_group { }`), state[1])
	r.readsBack(r.entity(`table_entry { table_id: $selected_t }`), state[2])
	r.readsBack(r.entity(`packet_replication_engine_entry { multicast_group_entry { } }`), state[3])
	r.readsBack(r.entity(`packet_replication_engine_entry { clone_session_entry { } }`), state[4])
	r.readsBack(r.entity(`table_entry { table_id: $exact_t is_default_action: true }`), def)
	r.readsBack(r.entity(`register_entry { register_id: $words index { index: 3 } }`), reg)
	r.readsBack(r.entity(`counter_entry { counter_id: $packets_in index { index: 2 } }`), count)

	// A pipeline that cannot keep the entries is refused, and nothing changes.
	other := r.entities(10)
	id, _ := r.cat.Tables.Name("selected_t")
	for _, x := range other.P4Info.Tables {
		if x.GetPreamble().GetId() == id.ID {
			x.Preamble.Id++
		}
	}
	for _, p := range other.P4Info.ActionProfiles {
		for i := range p.TableIds {
			if p.TableIds[i] == id.ID {
				p.TableIds[i]++
			}
		}
	}
	r.refused(r.set(reconcile, c.id, other), codes.InvalidArgument, "cannot be kept")
	r.entities(9) // back to the right ids
	r.readsBack(r.entity(`table_entry { table_id: $selected_t }`), state[2])
	if got := r.pipeline(p4v1.GetForwardingPipelineConfigRequest_COOKIE_ONLY); got.GetCookie().GetCookie() != 9 {
		t.Errorf("the cookie is %v", got.GetCookie())
	}
}

// TestPipelineRefused: a pipeline is refused if P4Info and JSON are of different programs, and the
// error names the difference.
func TestPipelineRefused(t *testing.T) {
	table := func(i *p4configv1.P4Info, name string) *p4configv1.Table {
		for _, x := range i.GetTables() {
			if x.GetPreamble().GetAlias() == name {
				return x
			}
		}
		t.Fatalf("no table %s", name)
		return nil
	}
	for name, tc := range map[string]struct {
		spoil func(*p4v1.ForwardingPipelineConfig)
		says  string
	}{
		"no P4Info":        {func(c *p4v1.ForwardingPipelineConfig) { c.P4Info = nil }, "no P4Info"},
		"no device config": {func(c *p4v1.ForwardingPipelineConfig) { c.P4DeviceConfig = nil }, "BMv2 JSON"},
		"JSON cut short": {func(c *p4v1.ForwardingPipelineConfig) { c.P4DeviceConfig = c.P4DeviceConfig[:5000] },
			"p4_device_config"},
		"not JSON": {func(c *p4v1.ForwardingPipelineConfig) { c.P4DeviceConfig = []byte{0, 1, 2} },
			"p4_device_config"},
		"unknown table": {func(c *p4v1.ForwardingPipelineConfig) {
			table(c.P4Info,
				"exact_t").Preamble.Name = "I.nope"
		}, `table "I.nope"`},
		"key width": {func(c *p4v1.ForwardingPipelineConfig) {
			table(c.P4Info,
				"exact_t").MatchFields[0].Bitwidth = 47
		}, "47 bits in P4Info and 48"},
		"key kind": {func(c *p4v1.ForwardingPipelineConfig) {
			table(c.P4Info, "exact_t").MatchFields[0].Match = &p4configv1.MatchField_MatchType_{
				MatchType: p4configv1.MatchField_LPM}
		}, "is LPM in P4Info and exact in the program"},
		"key fields": {func(c *p4v1.ForwardingPipelineConfig) { table(c.P4Info, "exact_t").MatchFields = nil },
			"0 key fields in P4Info"},
		"table's actions": {func(c *p4v1.ForwardingPipelineConfig) {
			table(c.P4Info, "keyless_t").ActionRefs = table(c.P4Info, "exact_t").ActionRefs
		}, "P4Info gives it action"},
		"action": {func(c *p4v1.ForwardingPipelineConfig) { c.P4Info.Actions[0].Preamble.Name = "I.nope" },
			"I.nope"},
		"register size": {func(c *p4v1.ForwardingPipelineConfig) { c.P4Info.Registers[0].Size++ },
			"17 cells in P4Info and 16 in the program"},
		"register width": {func(c *p4v1.ForwardingPipelineConfig) {
			c.P4Info.Registers[0].TypeSpec.GetBitstring().GetBit().Bitwidth = 31
		}, "31 bits in P4Info"},
		"counter size": {func(c *p4v1.ForwardingPipelineConfig) { c.P4Info.Counters[0].Size++ }, "9 cells in P4Info"},
		"meter": {func(c *p4v1.ForwardingPipelineConfig) { c.P4Info.Meters[0].Preamble.Name = "I.nope" },
			`meter "I.nope"`},
		"profile": {func(c *p4v1.ForwardingPipelineConfig) { c.P4Info.ActionProfiles[0].Preamble.Name = "I.nope" },
			"action profile"},
		"digest": {func(c *p4v1.ForwardingPipelineConfig) { c.P4Info.Digests[0].Preamble.Name = "nope" },
			`digest "nope"`},
		"value set": {func(c *p4v1.ForwardingPipelineConfig) { c.P4Info.ValueSets[0].Preamble.Name = "nope" },
			`value set "nope"`},
		"broken P4Info": {func(c *p4v1.ForwardingPipelineConfig) { c.P4Info.Tables[0].Preamble.Id = 0 }, "has no id"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, p4rtserver.Options{})
			c := r.primary(1)
			cfg := r.entities(1)
			tc.spoil(cfg)
			for _, action := range []p4v1.SetForwardingPipelineConfigRequest_Action{verify, push} {
				r.refused(r.set(action, c.id, cfg), codes.InvalidArgument, tc.says)
			}
			if r.pipeline(0) != nil {
				t.Error("it runs all the same")
			}
		})
	}
}
