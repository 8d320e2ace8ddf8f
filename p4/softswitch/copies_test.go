// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMulticast(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.check(b.InsertMulticastGroup(MulticastGroup{ID: 7,
		Replicas: []Replica{{Port: 1, Instance: 1}, {Port: 2, Instance: 5}, {Port: 1, Instance: 2}}}))
	out := b.send(request{op: opMulticast, session: 7, v: 4, tail: "xyz"})
	if len(out) != 3 {
		t.Fatalf("%d copies", len(out))
	}
	for i, want := range []Replica{{Port: 1, Instance: 1}, {Port: 2, Instance: 5}, {Port: 1, Instance: 2}} {
		a := b.answer(out[i])
		if out[i].port != want.Port || a.rid != want.Instance || a.typ != instanceReplicated || a.kept != 4 ||
			!bytes.HasSuffix(out[i].pkt, []byte("xyz")) {
			t.Errorf("copy %d: %+v %+v", i, out[i], a)
		}
	}
	if out := b.send(request{op: opMulticast, session: 8}); len(out) != 0 || b.Stats().GroupDrops != 1 {
		t.Error("a group that is not there made copies")
	}
	b.wantErr(b.InsertMulticastGroup(MulticastGroup{ID: 7}), ErrExists, "group 7")
	b.wantErr(b.InsertMulticastGroup(MulticastGroup{}), ErrInvalid, "1 to 65535")
	b.wantErr(b.InsertMulticastGroup(MulticastGroup{ID: 8,
		Replicas: []Replica{{Port: 1, Instance: 1}, {Port: 1, Instance: 1}}}), ErrInvalid, "twice")
	b.check(b.ModifyMulticastGroup(MulticastGroup{ID: 7, Replicas: []Replica{{Port: 3, Instance: 0}}}))
	if s, _ := b.one(request{op: opMulticast, session: 7}); s.port != 3 {
		t.Errorf("%+v", s)
	}
	b.check(b.DeleteMulticastGroup(7))
	b.wantErr(b.DeleteMulticastGroup(7), ErrNotFound, "group 7")
}

func TestClones(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.check(b.InsertCloneSession(CloneSession{ID: 5, Replicas: []Replica{{Port: 2, Instance: 9}}, PacketLength: 40}))
	out := b.send(request{op: opClone, session: 5, v: 6, tail: "abcdefghij"})
	if len(out) != 2 || out[0].port != 2 || out[1].port != 1 {
		t.Fatalf("%+v", out)
	}
	if len(out[0].pkt) != 40 || len(out[1].pkt) != 36+48+10 {
		t.Errorf("lengths %d, %d", len(out[0].pkt), len(out[1].pkt))
	}
	b.check(b.ModifyCloneSession(CloneSession{ID: 5, Replicas: []Replica{{Port: 2, Instance: 9}}}))
	out = b.send(request{op: opClone, session: 5, v: 6})
	a := b.answer(out[0])
	if a.typ != instanceIngressClone || a.kept != 6 || a.lost != 0 || a.rid != 9 || a.ran != 0 || a.inPort != 0 {
		t.Errorf("ingress clone: %+v", a)
	}
	if a := b.answer(out[1]); a.typ != instanceNormal || a.lost != 6 {
		t.Errorf("original: %+v", a)
	}
	out = b.send(request{op: opCloneEgress, session: 5, v: 6})
	if len(out) != 2 || out[0].port != 1 || out[1].port != 2 {
		t.Fatalf("%+v", out)
	}
	// The clone carries the header that egress added; its egress sets the fields anew.
	if a := b.answer(out[1]); a.typ != instanceEgressClone || a.kept != 6 || a.lost != 0 {
		t.Errorf("egress clone: %+v", a)
	}
	out = b.send(request{op: opCloneForever, session: 5})
	if len(out) > 2*defaultMaxLoops || b.Stats().LoopDrops == 0 {
		t.Errorf("%d clones of clones, %+v", len(out), b.Stats())
	}
	// If each clone were cloned twice, there would be 2^64 packets.
	b.check(b.ModifyCloneSession(CloneSession{ID: 5,
		Replicas: []Replica{{Port: 2, Instance: 1}, {Port: 3, Instance: 1}}}))
	if out = b.send(request{op: opCloneForever, session: 5}); len(out) > maxCopies+1 {
		t.Errorf("%d clones of clones", len(out))
	}
	if out := b.send(request{op: opClone, session: 6}); len(out) != 1 {
		t.Errorf("a session that is not there made clones: %d", len(out))
	}
	b.wantErr(b.InsertCloneSession(CloneSession{ID: 1 << 15}), ErrInvalid, "32767")
	b.check(b.DeleteCloneSession(5))
	if got := b.ReadCloneSessions(); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestLoopsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{MaxLoops: 5})
	for _, op := range []byte{opLoop, opResubmitForever} {
		before := b.Stats()
		if out := b.send(request{op: op, tail: "x"}); len(out) != 0 {
			t.Errorf("op %d: %d packets left", op, len(out))
		}
		after := b.Stats()
		if after.LoopDrops-before.LoopDrops != 1 ||
			after.Resubmits+after.Recirculations-before.Resubmits-before.Recirculations != 5 {
			t.Errorf("op %d: %+v", op, after)
		}
	}
}

func TestDigests(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	c, stop := b.SubscribeDigests(2)
	for i := range uint16(3) {
		b.one(request{op: opDigest, key: 0x102 + i, addr: [16]byte{1, 2, 15: 3}})
	}
	d := <-c
	want := [][]byte{{1, 2}, {0, 0}, {1, 2, 15: 3}}
	if d.Name != "learn_t" || !slices.EqualFunc(d.Values, want, bytes.Equal) {
		t.Errorf("%+v", d)
	}
	if st := b.Stats(); st.Digests != 3 || st.DigestDrops != 1 {
		t.Errorf("%+v", st)
	}
	stop()
	stop()
	<-c
	if _, open := <-c; open {
		t.Error("still open")
	}
}

func TestValueSets(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	const set = "P.keys"
	if _, a := b.one(request{key: 0x1234}); a.inSet != 0 {
		t.Error("a set without members matched")
	}
	b.check(b.SetValueSet(set, [][]Match{{exact(0x1234, 2)},
		{{Kind: MatchTernary, Value: []byte{0x80, 0}, Mask: []byte{0xf0, 0}}}}))
	for key, want := range map[uint16]byte{0x1234: 1, 0x1235: 0, 0x8123: 1, 0x9123: 0} {
		if _, a := b.one(request{key: key}); a.inSet != want {
			t.Errorf("%x: %d, want %d", key, a.inSet, want)
		}
	}
	m, err := b.ReadValueSet(set)
	if err != nil || len(m) != 2 {
		t.Errorf("%v %v", m, err)
	}
	b.wantErr(b.SetValueSet(set, make([][]Match, 5)), ErrFull, "it holds 4")
	b.wantErr(b.SetValueSet(set, [][]Match{{}}), ErrInvalid, "has 0 elements")
}

func TestIdleTimeouts(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	e := Entry{Match: []Match{exact(1, 2), exact(1, 4)}, Action: toPort(1, 1), IdleTimeout: time.Second}
	b.check(b.InsertEntry("I.exacts", e))
	sweep := func() (n int) {
		b.SweepIdle(func(table string, e Entry) {
			if table != "I.exacts" || e.SinceLastHit < time.Second {
				t.Errorf("%s %+v", table, e)
			}
			n++
		})
		return n
	}
	b.now = 900 * time.Millisecond
	b.one(request{key: 1, flow: 1})
	b.now = 1500 * time.Millisecond
	if n := sweep(); n != 0 {
		t.Errorf("%d idle too early", n)
	}
	b.now = 1900 * time.Millisecond
	if n := sweep(); n != 1 {
		t.Errorf("%d idle", n)
	}
	if n := sweep(); n != 0 {
		t.Errorf("reported twice")
	}
	b.now = 2900 * time.Millisecond
	if n := sweep(); n != 1 {
		t.Errorf("not reported again: %d", n)
	}
}

func TestRandomIsSeeded(t *testing.T) {
	t.Parallel()
	draw := func(seed uint64) (out []uint32) {
		b := newBench(t, Config{Seed: seed})
		for range 50 {
			_, a := b.one(request{op: opRandom})
			if a.rand < 10 || a.rand > 20 {
				t.Errorf("%d is not in 10..20", a.rand)
			}
			out = append(out, a.rand)
		}
		return out
	}
	if a, b := draw(1), draw(1); !slices.Equal(a, b) {
		t.Error("the same seed gave other numbers")
	}
	if a, b := draw(1), draw(2); slices.Equal(a, b) {
		t.Error("another seed gave the same numbers")
	}
}

func TestAssertAndLog(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	b := newBench(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Name: "leaf1"})
	b.one(request{op: opAssert, v: 99})
	if out := b.send(request{op: opAssert, v: 100}); len(out) != 0 || b.Stats().AssertFailures != 1 {
		t.Errorf("%d packets left, %+v", len(out), b.Stats())
	}
	b.one(request{op: opLog, key: 5, v: 77})
	for _, want := range []string{"assert failed", "services.p4:", "key 5 and value 77", "switch=leaf1"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log has no %q:\n%s", want, log.String())
		}
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	var seen []PortStatus
	stop := b.WatchPorts(func(s PortStatus) { seen = append(seen, s) })
	b.check(b.AddPort(9, Port{Name: "uplink", Speed: 10e9, Down: true}))
	b.check(b.SetPortUp(9, true))
	b.check(b.SetPortUp(9, true))
	b.check(b.RemovePort(9))
	stop()
	b.check(b.SetPortUp(1, false))
	if len(seen) != 3 || seen[0].Up || !seen[1].Up || !seen[2].Removed || seen[0].Name != "uplink" {
		t.Errorf("%+v", seen)
	}
	if out := b.send(request{}); len(out) != 0 {
		t.Error("a packet left by a port that is down")
	}
	b.check(b.SetPortUp(1, true))
	b.check(b.SetPortUp(0, false))
	if out := b.send(request{}); len(out) != 0 {
		t.Error("a packet came in by a port that is down")
	}
	b.check(b.SetPortUp(0, true))
	b.send(request{op: opFar})
	b.Inject(77, request{}.bytes(), 0)
	if st := b.Stats(); st.NoPortDrops != 3 {
		t.Errorf("%+v", st)
	}
	b.one(request{tail: "12"})
	in, _ := b.PortStatus(0)
	out, _ := b.PortStatus(1)
	if c := in.Counters; c.InPackets != 3 || c.InOctets != 36+36+38 || c.InDiscards != 1 {
		t.Errorf("%+v", c)
	}
	if c := out.Counters; c.OutPackets != 1 || c.OutOctets != 36+48+2 || c.OutDiscards != 1 {
		t.Errorf("%+v", c)
	}
	b.wantErr(b.AddPort(1, Port{}), ErrExists, "port 1")
	b.wantErr(b.AddPort(255, Port{}), ErrInvalid, "CPU port")
	b.wantErr(b.AddPort(511, Port{}), ErrInvalid, "0 to 510")
	b.wantErr(b.RemovePort(40), ErrNotFound, "port 40")
	if n := len(b.Ports()); n != 4 {
		t.Errorf("%d ports", n)
	}
}

func TestPacketIO(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.send(request{op: opToCPU})
	if b.Stats().NoPortDrops != 1 {
		t.Errorf("%+v", b.Stats())
	}
	var in [][]byte
	b.SetPacketIn(func(p []byte) { in = append(in, bytes.Clone(p)) })
	b.send(request{op: opToCPU, tail: "up"})
	if len(in) != 1 || !bytes.HasSuffix(in[0], []byte("up")) {
		t.Fatalf("%x", in)
	}
	b.out = nil
	b.check(b.PacketOut(request{tail: "down"}.bytes()))
	if len(b.out) != 1 || b.answer(b.out[0]).inPort != DefaultCPUPort {
		t.Errorf("%+v", b.out)
	}
	if st := b.Stats(); st.PacketIns != 1 || st.PacketOuts != 1 || st.Packets != 3 {
		t.Errorf("%+v", st)
	}
	b.wantErr(b.PacketOut(make([]byte, maxPacket+1)), ErrInvalid, "at most")
}

func TestWithoutProgramAndClosed(t *testing.T) {
	t.Parallel()
	b := &bench{t: t, Switch: New(Config{})}
	b.check(b.AddPort(0, Port{}))
	b.Inject(0, []byte{1}, 0)
	if b.Stats().NoProgramDrops != 1 || b.Program() != nil {
		t.Errorf("%+v", b.Stats())
	}
	b.wantErr(b.PacketOut(nil), ErrNoProgram, "packet-out")
	_, err := b.ReadEntries("t")
	b.wantErr(err, ErrNoProgram, `table "t"`)
	b.wantErr(b.Load(nil), ErrInvalid, "no program")
	b.check(b.Load(load(t, "services")))
	c, _ := b.SubscribeDigests(1)
	b.Close()
	b.Close()
	b.Inject(0, []byte{1}, 0)
	b.wantErr(b.Load(load(t, "services")), ErrClosed, "closed")
	b.wantErr(b.AddPort(3, Port{}), ErrClosed, "closed")
	if _, open := <-c; open {
		t.Error("digests still open")
	}
}

// TestLoadClears: loading a program clears entries, groups and counters, and keeps the ports.
func TestLoadClears(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.check(b.InsertEntry("I.exacts", Entry{Match: []Match{exact(1, 2), exact(2, 4)}, Action: toPort(2, 7)}))
	b.check(b.InsertMulticastGroup(MulticastGroup{ID: 7}))
	b.one(request{session: 1})
	b.check(b.Load(b.Program()))
	e, err := b.ReadEntries("I.exacts")
	c, _ := b.ReadCounter("I.counted", 1, 2)
	if err != nil || len(e) > 0 || len(b.ReadMulticastGroups()) > 0 || c[0].Packets != 0 || b.Stats().Packets != 0 ||
		len(b.Ports()) != 4 {
		t.Error("something of the old program is left")
	}
}
