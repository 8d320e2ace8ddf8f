// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// Operations of testdata/services.p4, the first byte of a packet.
const (
	opPlain = iota
	opClone
	opMulticast
	opDigest
	opCloneEgress
	opCloneForever
	opLoop
	opRandom
	opAssert
	opLog
	opMeter
	opToCPU
	opFar
	opResubmitForever
)

type sent struct {
	port uint32
	pkt  []byte
	at   time.Duration
}

// bench is a switch with services.p4 and ports 0 to 3. It keeps the packets that leave.
type bench struct {
	*Switch
	t   testing.TB
	now time.Duration
	out []sent
}

func newBench(t testing.TB, cfg Config) *bench {
	t.Helper()
	b := &bench{t: t}
	if cfg.Clock == nil {
		cfg.Clock = func() time.Duration { return b.now }
	}
	b.Switch = New(cfg)
	t.Cleanup(b.Close)
	b.check(b.Load(load(t, "services")))
	for i := range uint32(4) {
		b.check(b.AddPort(i, Port{Tx: b.tx(i)}))
	}
	return b
}

func (b *bench) tx(id uint32) func([]byte, time.Duration) {
	return func(pkt []byte, at time.Duration) { b.out = append(b.out, sent{id, bytes.Clone(pkt), at}) }
}

func (b *bench) check(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// request is a packet of services.p4.
type request struct {
	op, session byte
	key         uint16
	flow, v     uint32
	addr        [16]byte
	tail        string
}

func (r request) bytes() []byte {
	p := []byte{r.op, r.session}
	p = binary.BigEndian.AppendUint16(p, r.key)
	p = binary.BigEndian.AppendUint32(p, r.flow)
	p = binary.BigEndian.AppendUint32(p, r.v)
	p = append(p, make([]byte, 8)...)
	p = append(p, r.addr[:]...)
	return append(p, r.tail...)
}

// answer holds the fields that services.p4 adds to a packet.
type answer struct {
	ran, color, direct, inSet  byte
	rid, typ                   uint16
	kept, lost                 uint32
	inTS, outTS                uint64
	enqTS, deqDelta            uint32
	enqDepth, deqDepth, inPort int
	rand                       uint32
}

func (b *bench) answer(s sent) answer {
	b.t.Helper()
	const at = 36
	p := s.pkt[at:]
	u48 := func(p []byte) uint64 { return binary.BigEndian.Uint64(append([]byte{0, 0}, p[:6]...)) }
	depths := u48(p[36:42])
	return answer{
		ran: p[0], color: p[1], direct: p[2], inSet: p[3], rid: binary.BigEndian.Uint16(p[4:]),
		typ:  binary.BigEndian.Uint16(p[6:]),
		kept: binary.BigEndian.Uint32(p[8:]), lost: binary.BigEndian.Uint32(p[12:]), inTS: u48(p[16:]),
		outTS: u48(p[22:]),
		enqTS: binary.BigEndian.Uint32(p[28:]), deqDelta: binary.BigEndian.Uint32(p[32:]),
		enqDepth: int(depths >> 29), deqDepth: int(depths >> 10 & 0x7ffff),
		inPort: int(binary.BigEndian.Uint16(p[42:])),
		rand:   binary.BigEndian.Uint32(p[44:]),
	}
}

// send injects a packet on port 0 and returns the packets that leave.
func (b *bench) send(r request) []sent {
	b.out = b.out[:0]
	b.Inject(0, r.bytes(), b.now)
	return b.out
}

// one is send for requests after which exactly one packet leaves.
func (b *bench) one(r request) (sent, answer) {
	b.t.Helper()
	out := b.send(r)
	if len(out) != 1 {
		b.t.Fatalf("%+v: %d packets left, want 1; %+v", r, len(out), b.Stats())
	}
	return out[0], b.answer(out[0])
}

func (b *bench) wantErr(err, kind error, text string) {
	b.t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), text) {
		b.t.Errorf("error %v; want %v with %q", err, kind, text)
	}
}

func u(v uint64, n int) []byte {
	b := binary.BigEndian.AppendUint64(nil, v)
	return b[8-n:]
}

func toPort(port, mark uint64) Action {
	return Action{Name: "I.to_port", Params: [][]byte{u(port, 2), u(mark, 1)}}
}

func exact(v uint64, n int) Match { return Match{Kind: MatchExact, Value: u(v, n)} }

func TestExactEntries(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	const table = "I.exacts"
	key := func(k, f uint64) []Match { return []Match{exact(k, 2), exact(f, 4)} }
	b.check(b.InsertEntry(table, Entry{Match: key(1, 2), Action: toPort(2, 7), IdleTimeout: time.Second,
		Metadata: []byte("x")}))
	b.wantErr(b.InsertEntry(table, Entry{Match: key(1, 2), Action: toPort(3, 8)}), ErrExists, "hdr.x.key=0001")
	if s, a := b.one(request{key: 1, flow: 2}); s.port != 2 || a.ran != 7 {
		t.Errorf("hit: %+v %+v", s, a)
	}
	if s, a := b.one(request{key: 1, flow: 3}); s.port != 1 || a.ran != 0 {
		t.Errorf("miss: %+v %+v", s, a)
	}
	b.check(b.ModifyEntry(table, Entry{Match: key(1, 2), Action: toPort(3, 9), IdleTimeout: time.Second}))
	if s, a := b.one(request{key: 1, flow: 2, tail: "abc"}); s.port != 3 || a.ran != 9 ||
		!bytes.HasSuffix(s.pkt, []byte("abc")) {
		t.Errorf("modified: %+v %+v", s, a)
	}
	e, err := b.ReadEntry(table, Entry{Match: key(1, 2)})
	b.check(err)
	if e.Counter.Packets != 2 || e.Counter.Bytes != 36+39 || e.Action.Name != "I.to_port" ||
		!bytes.Equal(e.Action.Params[0], []byte{0, 3}) {
		t.Errorf("read %+v %+v", e, e.Counter)
	}
	if c, err := b.DirectCounter(table, nil); err != nil || c.Packets != 1 {
		t.Errorf("misses %+v %v", c, err)
	}
	for i := range uint64(3) {
		b.check(b.InsertEntry(table, Entry{Match: key(10+i, 0), Action: Action{Name: "I.drop"}}))
	}
	b.wantErr(b.InsertEntry(table, Entry{Match: key(20, 0), Action: Action{Name: "I.drop"}}), ErrFull, "4 entries")
	if out := b.send(request{key: 11}); len(out) != 0 || b.Stats().IngressDrops != 1 {
		t.Errorf("%d packets left, %+v", len(out), b.Stats())
	}
	all, err := b.ReadEntries(table)
	if err != nil || len(all) != 4 || !bytes.Equal(all[1].Match[0].Value, []byte{0, 10}) {
		t.Errorf("entries %+v %v", all, err)
	}
	b.check(b.DeleteEntry(table, Entry{Match: key(1, 2)}))
	b.wantErr(b.DeleteEntry(table, Entry{Match: key(1, 2)}), ErrNotFound, "no entry")
	if s, _ := b.one(request{key: 1, flow: 2}); s.port != 1 {
		t.Errorf("after delete: %+v", s)
	}
	d := toPort(2, 44)
	b.check(b.SetDefault(table, &d))
	if s, a := b.one(request{key: 1, flow: 2}); s.port != 2 || a.ran != 44 {
		t.Errorf("default: %+v %+v", s, a)
	}
	b.check(b.SetDefault(table, nil))
	if a, err := b.Default(table); err != nil || a.Name != "I.to_port" || !bytes.Equal(a.Params[0], []byte{0, 1}) {
		t.Errorf("default %+v %v", a, err)
	}
}

func TestEntryErrors(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	good := []Match{exact(1, 2), exact(2, 4)}
	for _, tt := range []struct {
		name, table string
		e           Entry
		kind        error
		text        string
	}{
		{"table", "I.nothing", Entry{}, ErrNotFound, `table "I.nothing"`},
		{"fields", "I.exacts", Entry{Match: good[:1], Action: toPort(1, 1)}, ErrInvalid, "1 match fields"},
		{"kind", "I.exacts", Entry{Match: []Match{{Kind: MatchTernary, Value: []byte{1}, Mask: []byte{1}}, good[1]},
			Action: toPort(1, 1)}, ErrInvalid, "ternary match for a field that is exact"},
		{"left out", "I.exacts", Entry{Match: []Match{{}, good[1]}, Action: toPort(1, 1)}, ErrInvalid,
			"cannot be left out"},
		{"value", "I.exacts", Entry{Match: []Match{exact(1<<16, 3), good[1]}, Action: toPort(1, 1)}, ErrInvalid,
			"010000 does not fit 16 bits"},
		{"empty", "I.exacts", Entry{Match: []Match{{Kind: MatchExact}, good[1]}, Action: toPort(1, 1)}, ErrInvalid,
			"is empty"},
		{"priority", "I.exacts", Entry{Match: good, Priority: 3, Action: toPort(1, 1)}, ErrInvalid, "has to be 0"},
		{"action", "I.exacts", Entry{Match: good, Action: Action{Name: "I.wide"}}, ErrNotFound,
			`"I.wide" is not one of its actions`},
		{"params", "I.exacts", Entry{Match: good, Action: Action{Name: "I.to_port"}}, ErrInvalid,
			"takes 2 parameters, has 0"},
		{"param", "I.exacts", Entry{Match: good, Action: toPort(512, 0)}, ErrInvalid,
			`"port" of action "I.to_port": 0200 does not fit 9 bits`},
		{"member", "I.exacts", Entry{Match: good, Action: Action{Kind: ActionMember}}, ErrInvalid, "no action profile"},
		{"no member", "I.profiled", Entry{Match: good[:1], Action: Action{Kind: ActionMember, Member: 3}}, ErrNotFound,
			"member 3"},
		{"direct", "I.profiled", Entry{Match: good[:1], Action: toPort(1, 1)}, ErrInvalid, "it has an action profile"},
		{"group", "I.profiled", Entry{Match: good[:1], Action: Action{Kind: ActionGroup}}, ErrInvalid, "has no groups"},
		{"timeout", "I.lpm4", Entry{Match: []Match{{}}, Action: toPort(1, 1), IdleTimeout: 1}, ErrInvalid,
			"idle timeout"},
		{"counter", "I.lpm4", Entry{Match: []Match{{}}, Action: toPort(1, 1), Counter: &CounterData{}}, ErrInvalid,
			"no direct counter"},
		{"prefix", "I.lpm4", Entry{Match: []Match{{Kind: MatchLPM, Value: []byte{1}, PrefixLen: 33}},
			Action: toPort(1, 1)}, ErrInvalid, "prefix length 33"},
		{"range", "I.ternaries", Entry{Match: []Match{{}, {Kind: MatchRange, Value: []byte{9}, Mask: []byte{3}}, {}},
			Priority: 1, Action: toPort(1, 1)}, ErrInvalid, "is empty"},
		{"no priority", "I.ternaries", Entry{Match: []Match{{}, {}, {}}, Action: toPort(1, 1)}, ErrInvalid, "above 0"},
		{"meter", "I.metered_table", Entry{Match: good[:1], Action: Action{Name: "NoAction"},
			Meter: &MeterConfig{CIR: 2, PIR: 1}}, ErrInvalid, "peak rate 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := b.InsertEntry(tt.table, tt.e)
			if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v; want %v with %q", err, tt.kind, tt.text)
			}
		})
	}
	b.wantErr(b.SetDefault("tbl_services154", nil), ErrConst, "default action")
	for _, table := range b.Program().Info.Tables {
		if e, err := b.ReadEntries(table.Name); err != nil || len(e) > 0 {
			t.Errorf("%s has %d entries after errors: %v", table.Name, len(e), err)
		}
	}
}

func TestLPM(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	put := func(v uint32, bits int, mark uint64) Entry {
		return Entry{Match: []Match{{Kind: MatchLPM, Value: u(uint64(v), 4), PrefixLen: bits}}, Action: toPort(1, mark)}
	}
	routes := map[int]uint32{0: 0, 8: 0x0a000000, 9: 0x0a800000, 16: 0x0a010000, 24: 0x0a010200, 32: 0x0a010203}
	for bits, v := range routes {
		b.check(b.InsertEntry("I.lpm4", put(v, bits, uint64(bits)+1)))
	}
	ask := func() {
		t.Helper()
		for v, want := range map[uint32]byte{
			0: 1, 0x09ffffff: 1, 0x0a000000: 9, 0x0a800001: 10, 0x0affffff: 10, 0x0b000000: 1, 0x0a010000: 17,
			0x0a0101ff: 17, 0x0a010200: 25,
			0x0a010203: 33, 0x0a010204: 25, 0x0a0102ff: 25, 0x0a010300: 17, 0xffffffff: 1,
		} {
			if _, a := b.one(request{flow: v}); a.ran != want {
				t.Errorf("%08x: %d, want %d", v, a.ran, want)
			}
		}
	}
	ask()
	// Many routes change the structure, and the answers must not.
	for i := range uint32(600) {
		b.check(b.InsertEntry("I.lpm4", put(0xc0000000|i<<8, 24, 99)))
	}
	ask()
	for i := range uint32(600) {
		if _, a := b.one(request{flow: 0xc0000000 | i<<8 | 5}); a.ran != 99 {
			t.Fatalf("route %d: %d", i, a.ran)
		}
		b.check(b.DeleteEntry("I.lpm4", put(0xc0000000|i<<8, 24, 0)))
	}
	ask()
	b.check(b.DeleteEntry("I.lpm4", put(0x0a010200, 24, 0)))
	if _, a := b.one(request{flow: 0x0a010204}); a.ran != 17 {
		t.Errorf("after delete: %d", a.ran)
	}

	wide := func(key uint64, addr [16]byte, bits int, mark uint64) Entry {
		return Entry{
			Match:  []Match{exact(key, 2), {Kind: MatchLPM, Value: addr[:], PrefixLen: bits}},
			Action: Action{Name: "I.wide", Params: [][]byte{bytes.Repeat([]byte{0xab}, 16), u(mark, 1)}},
		}
	}
	a6 := [16]byte{0x20, 1, 0xd, 0xb8, 0, 0, 0, 1}
	b.check(b.InsertEntry("I.lpm6", wide(5, a6, 32, 1)))
	b.check(b.InsertEntry("I.lpm6", wide(5, a6, 64, 2)))
	b.check(b.InsertEntry("I.lpm6", wide(6, a6, 128, 3)))
	host := a6
	host[15] = 1
	for _, tt := range []struct {
		key  uint16
		addr [16]byte
		want byte
	}{{5, a6, 2}, {5, host, 2}, {5, [16]byte{0x20, 1, 0xd, 0xb8, 1}, 1}, {6, a6, 3}, {6, host, 0}, {7, a6, 0}} {
		s, a := b.one(request{key: tt.key, addr: tt.addr, flow: 0xf0000000})
		if want := tt.want; want == 0 && a.ran != 1 || want != 0 &&
			(a.ran != want || !bytes.Equal(s.pkt[20:36], bytes.Repeat([]byte{0xab}, 16))) {
			t.Errorf("%+v: %+v", tt, a)
		}
	}
}

func TestTernaryPriorities(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	addr := [16]byte{0xaa}
	put := func(prio int32, mark uint64, m ...Match) {
		t.Helper()
		b.check(b.InsertEntry("I.ternaries", Entry{Match: m, Priority: prio, Action: toPort(1, mark)}))
	}
	mask := make([]byte, 16)
	mask[0] = 0xf0
	put(10, 1, Match{}, Match{}, Match{})
	put(30, 3, Match{Kind: MatchTernary, Value: addr[:], Mask: mask}, Match{}, Match{})
	put(20, 2, Match{}, Match{Kind: MatchRange, Value: []byte{10}, Mask: []byte{1, 0}}, Match{})
	put(40, 4, Match{}, Match{Kind: MatchRange, Value: []byte{10}, Mask: []byte{10}},
		Match{Kind: MatchOptional, Value: []byte{7}})
	for _, tt := range []struct {
		r    request
		want byte
	}{
		{request{}, 1}, {request{key: 9}, 1}, {request{key: 10}, 2}, {request{key: 256}, 2}, {request{key: 257}, 1},
		{request{key: 10, v: 7}, 4}, {request{key: 10, v: 8}, 2}, {request{key: 10, addr: [16]byte{0xa5}}, 3},
		{request{addr: [16]byte{0xb5}}, 1},
	} {
		if _, a := b.one(tt.r); a.ran != tt.want {
			t.Errorf("%+v: %d, want %d", tt.r, a.ran, tt.want)
		}
	}
	all, err := b.ReadEntries("I.ternaries")
	b.check(err)
	if m := all[1].Match[0]; m.Kind != MatchTernary || m.Value[0] != 0xa0 || m.Mask[0] != 0xf0 {
		t.Errorf("read %+v", m)
	}
	if all[1].Match[1].Kind != MatchDontCare || all[1].Priority != 30 {
		t.Errorf("read %+v", all[1])
	}
}

func TestProfilesAndSelectors(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	member := func(id uint32, mark uint64) Member {
		a := toPort(uint64(id%4), mark)
		return Member{ID: id, Action: a.Name, Params: a.Params}
	}
	b.check(b.InsertMember("I.members", member(5, 50)))
	b.check(b.InsertEntry("I.profiled", Entry{Match: []Match{exact(9, 2)},
		Action: Action{Kind: ActionMember, Member: 5}}))
	if s, a := b.one(request{key: 9}); s.port != 1 || a.ran != 50 {
		t.Errorf("%+v %+v", s, a)
	}
	b.check(b.ModifyMember("I.members", member(5, 51)))
	if _, a := b.one(request{key: 9}); a.ran != 51 {
		t.Errorf("modified: %+v", a)
	}
	b.wantErr(b.DeleteMember("I.members", 5), ErrInUse, "member 5 is used by 1")
	b.wantErr(b.InsertGroup("I.members", Group{ID: 1}), ErrInvalid, "no groups")

	const sel = "I.groups"
	for i := range uint32(3) {
		b.check(b.InsertMember(sel, member(i, uint64(100+i))))
	}
	b.check(b.InsertGroup(sel, Group{ID: 1, Members: []GroupMember{{Member: 0, Weight: 1}, {Member: 1, Weight: 1},
		{Member: 2, Weight: 2, Watch: WatchPort{Set: true, Port: 2}}}}))
	b.check(b.InsertEntry("I.selected", Entry{Match: []Match{exact(9, 2)},
		Action: Action{Kind: ActionGroup, Group: 1}}))
	got := map[byte]int{}
	for i := range uint32(2000) {
		v := i * 0x9e3779b1
		_, a := b.one(request{key: 9, flow: i, v: v})
		got[a.ran]++
		in := append(u(uint64(i), 4), u(uint64(v), 4)...)
		if want := []byte{100, 101, 102, 102}[program.Algorithms["crc16"](in)%4]; a.ran != want {
			t.Fatalf("flow %d: member %d, want %d by hash", i, a.ran, want)
		}
	}
	if got[100] < 400 || got[101] < 400 || got[102] < 800 {
		t.Errorf("uneven: %v", got)
	}
	b.check(b.SetPortUp(2, false))
	for i := range uint32(200) {
		if _, a := b.one(request{key: 9, flow: i}); a.ran == 102 {
			t.Fatal("a member whose port is down was chosen")
		}
	}
	b.check(b.SetPortUp(2, true))
	b.wantErr(b.DeleteGroup(sel, 1), ErrInUse, "group 1")
	b.wantErr(b.DeleteMember(sel, 0), ErrInUse, "member 0")
	b.check(b.ModifyGroup(sel, Group{ID: 1, Members: []GroupMember{{Member: 1, Weight: 1}}}))
	b.check(b.DeleteMember(sel, 0))
	if _, a := b.one(request{key: 9}); a.ran != 101 {
		t.Errorf("modified group: %+v", a)
	}
	b.wantErr(b.ModifyGroup(sel, Group{ID: 1, Members: []GroupMember{{Member: 0, Weight: 1}}}), ErrNotFound, "member 0")
	act := toPort(3, 77)
	b.check(b.ModifyEntry("I.selected", Entry{Match: []Match{exact(9, 2)},
		Action: Action{Kind: ActionSet, Set: []WeightedAction{{Name: act.Name, Params: act.Params, Weight: 2}}}}))
	if s, a := b.one(request{key: 9}); s.port != 3 || a.ran != 77 {
		t.Errorf("one-shot: %+v %+v", s, a)
	}
	b.check(b.DeleteGroup(sel, 1))
	if g, err := b.ReadGroups(sel); err != nil || len(g) != 0 {
		t.Errorf("groups %v %v", g, err)
	}
	if m, err := b.ReadMembers(sel); err != nil || len(m) != 2 || m[0].ID != 1 {
		t.Errorf("members %v %v", m, err)
	}
}

func TestCounters(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	for range 3 {
		b.one(request{session: 2, tail: "1234"})
	}
	b.one(request{session: 200}) // out of range: nothing
	c, err := b.ReadCounter("I.counted", 1, 3)
	if err != nil || c[0] != (CounterData{}) || c[1] != (CounterData{Packets: 3, Bytes: 120}) {
		t.Errorf("%+v %v", c, err)
	}
	if b.Stats().IndexErrors != 1 {
		t.Errorf("%+v", b.Stats())
	}
	b.check(b.WriteCounter("I.counted", 2, CounterData{Packets: 9}))
	if c, _ := b.ReadCounter("I.counted", 0, -1); len(c) != 8 || c[2].Packets != 9 || c[2].Bytes != 0 {
		t.Errorf("%+v", c)
	}
	_, err = b.ReadCounter("I.counted", 0, 9)
	b.wantErr(err, ErrNotFound, "it has 8")
	_, err = b.ReadCounter("I.direct_counts", 0, 1)
	b.wantErr(err, ErrInvalid, "direct counter of table")
}

func TestMeters(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	colors := func(n int) (s string) {
		for range n {
			_, a := b.one(request{op: opMeter, session: 1})
			s += string("GYR"[a.color])
		}
		return s
	}
	if got := colors(3); got != "GGG" {
		t.Errorf("unconfigured: %s", got)
	}
	b.check(b.WriteMeter("I.cells", 1, &MeterConfig{CIR: 10, CBurst: 2, PIR: 20, PBurst: 4}))
	if got := colors(6); got != "GGYYRR" {
		t.Errorf("burst: %s", got)
	}
	b.now += 200 * time.Millisecond // 2 committed, 4 peak
	if got := colors(6); got != "GGYYRR" {
		t.Errorf("refilled: %s", got)
	}
	b.now += 50 * time.Millisecond // half a committed, one peak
	if got := colors(2); got != "YR" {
		t.Errorf("half: %s", got)
	}
	b.check(b.WriteMeter("I.cells", 1, nil))
	if got := colors(2); got != "GG" {
		t.Errorf("reset: %s", got)
	}
	m, err := b.ReadMeter("I.cells", 0, -1)
	if err != nil || len(m) != 8 || m[1] != nil {
		t.Errorf("%v %v", m, err)
	}

	const table = "I.metered_table"
	e := Entry{Match: []Match{exact(3, 2)}, Action: Action{Name: "I.metered", Params: [][]byte{{2}}},
		Meter: &MeterConfig{CIR: 36, CBurst: 72, PIR: 72, PBurst: 100}}
	b.check(b.InsertEntry(table, e))
	got := ""
	for range 3 {
		s, a := b.one(request{key: 3})
		if s.port != 2 {
			t.Errorf("%+v", s)
		}
		got += string("GYR"[a.direct])
	}
	if got != "GGR" {
		t.Errorf("bytes: %s", got)
	}
	read, err := b.ReadEntry(table, e)
	if err != nil || *read.Meter != *e.Meter {
		t.Errorf("%+v %v", read.Meter, err)
	}
	b.check(b.SetDirectMeter(table, &e, nil))
	if _, a := b.one(request{key: 3}); a.direct != 0 {
		t.Errorf("%+v", a)
	}
}
