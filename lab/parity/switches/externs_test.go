// SPDX-License-Identifier: Apache-2.0

package switches

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netsketch/netsketch/internal/test/p4tap"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// local loads a program of testdata.
func local(t *testing.T, name string) *p4rt.Program {
	t.Helper()
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	info := &configv1.P4Info{}
	if err := prototext.Unmarshal(read(name+".p4info.txtpb"), info); err != nil {
		t.Fatal(err)
	}
	return &p4rt.Program{Name: name, DeviceConfig: read(name + ".json"), P4Info: info}
}

// objects finds a program's objects by their names.
type objects struct {
	t   *testing.T
	cat *p4values.Catalog
}

func objectsOf(t *testing.T, p *p4rt.Program) objects {
	t.Helper()
	cat, err := p4values.NewCatalog(p.P4Info)
	if err != nil {
		t.Fatal(err)
	}
	return objects{t, cat}
}

// lookup finds one object, or ends the test.
func lookup[T any](t *testing.T, x interface{ Name(string) (T, error) }, name string) T {
	t.Helper()
	v, err := x.Name(name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// call is an action with its parameters in the order of the program.
func (o objects) call(action string, params ...uint64) *p4v1.Action {
	o.t.Helper()
	a := lookup(o.t, o.cat.Actions, action)
	call := &p4v1.Action{ActionId: a.ID}
	for i, v := range params {
		call.Params = append(call.Params, &p4v1.Action_Param{ParamId: a.Params[i].ID, Value: p4values.Uint(v)})
	}
	return call
}

func (o objects) member(profile string, id uint32, action string, params ...uint64) *p4v1.Entity {
	o.t.Helper()
	return &p4v1.Entity{Entity: &p4v1.Entity_ActionProfileMember{ActionProfileMember: &p4v1.ActionProfileMember{
		ActionProfileId: lookup(o.t, o.cat.Profiles, profile).ID, MemberId: id, Action: o.call(action, params...),
	}}}
}

// group makes a group of members and their weights, listed alternately.
func (o objects) group(profile string, id uint32, members ...uint32) *p4v1.Entity {
	o.t.Helper()
	g := &p4v1.ActionProfileGroup{ActionProfileId: lookup(o.t, o.cat.Profiles, profile).ID, GroupId: id}
	for i := 0; i < len(members); i += 2 {
		g.Members = append(g.Members, &p4v1.ActionProfileGroup_Member{MemberId: members[i],
			Weight: int32(members[i+1])})
	}
	return &p4v1.Entity{Entity: &p4v1.Entity_ActionProfileGroup{ActionProfileGroup: g}}
}

// meter configures a meter that never fills again, so that its colors do not depend on the clock:
// after this number of units all is yellow, and then red.
func (o objects) meter(name string, index int64, green, all int64) *p4v1.Entity {
	o.t.Helper()
	return &p4v1.Entity{Entity: &p4v1.Entity_MeterEntry{MeterEntry: &p4v1.MeterEntry{
		MeterId: lookup(o.t, o.cat.Meters, name).ID, Index: &p4v1.Index{Index: index},
		Config: &p4v1.MeterConfig{Cburst: green, Pburst: all},
	}}}
}

// replicas makes replicas of ports and instances, listed alternately.
func replicas(pairs ...uint32) (out []*p4v1.Replica) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, &p4v1.Replica{PortKind: &p4v1.Replica_EgressPort{EgressPort: pairs[i]}, Instance: pairs[i+1]})
	}
	return out
}

func multicast(id uint32, to []*p4v1.Replica) *p4v1.Entity {
	return &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{
		PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
			Type: &p4v1.PacketReplicationEngineEntry_MulticastGroupEntry{
				MulticastGroupEntry: &p4v1.MulticastGroupEntry{MulticastGroupId: id, Replicas: to}},
		}}}
}

// cloning makes a clone session for whole packets, because BMv2 cuts none.
func cloning(id uint32, to []*p4v1.Replica) *p4v1.Entity {
	return &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{
		PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
			Type: &p4v1.PacketReplicationEngineEntry_CloneSessionEntry{
				CloneSessionEntry: &p4v1.CloneSessionEntry{SessionId: id, Replicas: to},
			},
		}}}
}

// externs sets up testdata/externs.p4.
func externs(t *testing.T) *program {
	t.Helper()
	p := local(t, "externs")
	o := objectsOf(t, p)
	entities := []*p4v1.Entity{
		multicast(6, replicas(1, 31, 2, 32, 9, 33, 9, 34)),
		cloning(1, replicas(12, 1, 13, 2, 13, 3)), cloning(2, replicas(14, 4, 15, 5)), cloning(3, replicas(8, 6)),
		o.member("I.profile", 1, "I.point", 101), o.member("I.profile", 2, "I.point", 102),
		o.member("I.profile", 9, "NoAction"),
		o.member("I.ranges", 1, "I.point", 103), o.member("I.ranges", 2, "I.point", 104),
		o.member("I.ranges", 9, "NoAction"),
	}
	for m := range uint64(6) {
		entities = append(entities, o.member("I.group", uint32(m+1), "I.to_member", 1+m, 200+m))
	}
	entities = append(entities, o.member("I.group", 7, "I.drop"),
		o.group("I.group", 1, 1, 1, 2, 2, 3, 1), o.group("I.group", 2, 5, 1, 4, 1, 1, 3), o.group("I.group", 3, 6, 1),
		o.group("I.group", 4, 2, 5, 7, 1))
	byByte := func(table, field string, v byte, e p4rt.Entry) p4rt.Entry {
		e.Table, e.Match = table, []p4rt.Match{p4rt.Exact(field, []byte{v})}
		return e
	}
	var entries []p4rt.Entry
	mode := func(priority int32, value, mask uint32, mode uint64) {
		match := []p4rt.Match{p4rt.Exact("hdr.from_cpu.$valid$", []byte{0})}
		if mask != 0 {
			match = append(match, p4rt.Ternary("hdr.ip.dst", binary.BigEndian.AppendUint32(nil, value),
				binary.BigEndian.AppendUint32(nil, mask)))
		}
		entries = append(entries, p4rt.Entry{Table: "I.modes", Priority: priority, Action: "I.set_mode",
			Params: []p4rt.Param{p4rt.Uint("mode", mode)}, Match: match})
	}
	mode(100, 0xc0000201, 0xffffffff, 15)
	for m := range uint32(16) {
		if m == 12 { // keeps the number of packet-ins low
			mode(20, m, 0x7f, uint64(m))
		} else {
			mode(10, m, 0xf, uint64(m))
		}
	}
	indirect := func(e p4rt.Entry, action *p4v1.TableAction) {
		entity, err := e.BuildKey(o.cat)
		if err != nil {
			t.Fatal(err)
		}
		entity.GetTableEntry().Action = action
		entities = append(entities, entity)
	}
	toMember := func(id uint32) *p4v1.TableAction {
		return &p4v1.TableAction{Type: &p4v1.TableAction_ActionProfileMemberId{ActionProfileMemberId: id}}
	}
	for n := range byte(14) {
		action := &p4v1.TableAction{Type: &p4v1.TableAction_ActionProfileGroupId{ActionProfileGroupId: []uint32{4, 1,
			2}[n%3]}}
		switch n {
		case 10:
			action = toMember(6)
		case 11:
			action = &p4v1.TableAction{Type: &p4v1.TableAction_ActionProfileGroupId{ActionProfileGroupId: 3}}
		}
		indirect(byByte("I.balance", "hdr.ip.dst[11:8]", n, p4rt.Entry{}), action)
	}
	chosen := func(member uint64, weight int32) *p4v1.ActionProfileAction {
		return &p4v1.ActionProfileAction{Action: o.call("I.choose", member), Weight: weight}
	}
	oneOf := func(n byte, actions ...*p4v1.ActionProfileAction) {
		indirect(byByte("I.spread", "hdr.ip.dst[9:8]", n, p4rt.Entry{}),
			&p4v1.TableAction{Type: &p4v1.TableAction_ActionProfileActionSet{
				ActionProfileActionSet: &p4v1.ActionProfileActionSet{ActionProfileActions: actions},
			}})
	}
	oneOf(0, chosen(301, 3), chosen(302, 1), &p4v1.ActionProfileAction{Action: o.call("NoAction"), Weight: 1})
	oneOf(1, chosen(311, 1))
	oneOf(2, chosen(322, 2), chosen(321, 5))
	for i, v := range []struct {
		value byte
		bits  int32
	}{{0, 1}, {0x80, 2}, {10, 8}, {192, 8}} {
		indirect(p4rt.Entry{Table: "I.by_prefix", Match: []p4rt.Match{p4rt.LPM("hdr.ip.src", []byte{v.value, 0, 0, 0},
			v.bits)}}, toMember([]uint32{1, 2, 9, 2}[i]))
	}
	for i, v := range [][2]byte{{3, 40}, {30, 90}, {200, 255}} {
		indirect(p4rt.Entry{Table: "I.by_range", Priority: int32(5 - i),
			Match: []p4rt.Match{p4rt.Range("hdr.ip.dst[15:8]", v[:1], v[1:])}}, toMember([]uint32{1, 2, 9}[i]))
	}
	class := func(priority int32, class uint64, ports byte, match ...p4rt.Match) {
		entries = append(entries, p4rt.Entry{
			Table: "I.classify", Priority: priority, Action: "I.set_class",
			Params: []p4rt.Param{p4rt.Uint("class", class)},
			Match:  append(match, p4rt.Exact("hdr.ports.$valid$", []byte{ports})),
		})
	}
	total := func(low, high uint16) p4rt.Match {
		return p4rt.Range("hdr.ip.total", binary.BigEndian.AppendUint16(nil, low),
			binary.BigEndian.AppendUint16(nil, high))
	}
	class(90, 1, 1, total(40, 60), p4rt.Optional("hdr.ip.protocol", []byte{6}))
	class(80, 2, 1, total(0, 128), p4rt.LPM("hdr.ip.src", []byte{0, 0, 0, 0}, 1))
	class(70, 3, 1, total(64, 64))
	class(60, 4, 1, p4rt.Optional("hdr.ip.protocol", []byte{17}),
		p4rt.Ternary("hdr.ip.id[7:0]", []byte{0x30}, []byte{0xf0}))
	class(50, 5, 1, total(129, 0xffff), p4rt.Ternary("hdr.ip.id[7:0]", []byte{1}, []byte{1}))
	class(40, 6, 0, total(0, 0x7fff))
	class(95, 7, 0, p4rt.Optional("hdr.ip.protocol", []byte{1}))
	for n := range byte(12) {
		e := p4rt.Entry{Action: "I.limit"}
		if n%3 == 0 {
			e = p4rt.Entry{Action: "I.limit_and_add", Params: []p4rt.Param{p4rt.Uint("n", 16)}}
		}
		entries = append(entries, byByte("I.limits_by_source", "hdr.ip.src[3:0]", n, e))
	}
	var settings []*p4v1.Entity
	for n := range int64(12) {
		settings = append(settings, o.meter("I.by_packets", n, 40*n, 60*n+5),
			o.meter("I.by_bytes", n, 9_000*n, 11_111*n+70))
		entry, err := byByte("I.limits_by_source", "hdr.ip.src[3:0]", byte(n),
			p4rt.Entry{Action: "I.limit"}).Build(o.cat)
		if err != nil {
			t.Fatal(err)
		}
		if n == 5 {
			continue // not set up: all its packets are green
		}
		settings = append(settings,
			&p4v1.Entity{Entity: &p4v1.Entity_DirectMeterEntry{DirectMeterEntry: &p4v1.DirectMeterEntry{
				TableEntry: &p4v1.TableEntry{TableId: entry.GetTableEntry().GetTableId(),
					Match: entry.GetTableEntry().GetMatch()},
				Config: &p4v1.MeterConfig{Cburst: 30 * n, Pburst: 100 * n},
			}}})
	}
	settings = append(settings, o.group("I.group", 2, 5, 2, 6, 1, 1, 1)) // a group that is modified later
	return &program{
		Program: p, inFrames: true, entries: entries, entities: entities, settings: settings,
		packetOut: func(port uint32) []p4tap.Field { return metadata("egress_port", port) },
	}
}
