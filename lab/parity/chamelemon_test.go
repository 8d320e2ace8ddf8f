// SPDX-License-Identifier: Apache-2.0

package parity_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/internal/test/switchtest"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/fermat"
	"github.com/netsketch/netsketch/sketch/rowhash"
	"github.com/netsketch/netsketch/sketch/tower"
)

// ChameleMon's configuration in this test, the same for both time bits. Parts are
// buckets of LL, HL and HH, by family.
const (
	cmTh, cmTl, cmSample = 20, 3, 30_000
	cmSeed               = 0xcc9e2d51 // seed of the sample of light flows
	hostPort, otherPort  = 2, 3       // a switch that is an edge, and one that is not
)

var cmParts = [2][]int{{700, 1900, 1496}, {200, 400, 424}}

const (
	light = iota
	heavy
	hitter
)

type encoder = fermat.Sketch[family.P4Wide, fermat.Prime32]

// edge mirrors one bank of the registers of the program chamelemon.
type edge struct {
	tower    *tower.Sketch[family.P4]
	up, down [2]*encoder // by family
	lost     [2]map[string]int64
}

// TestChameleMonMatchesModel holds the registers of ChameleMon's edge switch against
// sketch/tower and sketch/fermat, cell by cell, and has sketch/fermat decode from
// them the packets that came in and did not go out.
func TestChameleMonMatchesModel(t *testing.T) {
	for _, tc := range []struct {
		name   string
		frames func(*testing.T) [][]byte
	}{{"generated", generated}, {"real", real}} {
		t.Run(tc.name, func(t *testing.T) { compareEdge(t, tc.frames(t)) })
	}
}

func compareEdge(t *testing.T, sent [][]byte) {
	program, err := compiled.Load("chamelemon")
	if err != nil {
		t.Fatal(err)
	}
	catalog, err := p4values.NewCatalog(program.P4Info)
	if err != nil {
		t.Fatal(err)
	}
	register := func(name string) *p4values.Register {
		r, err := catalog.Registers.Name(name)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	towers := []*p4values.Register{register("ingress.chamelemon.tower8"), register("ingress.chamelemon.tower16")}
	up := [2]*p4values.Register{register("ingress.chamelemon.upstream"), register("ingress.chamelemon.upstream_ipv6")}
	down := [2]*p4values.Register{register("chamelemon_downstream"), register("chamelemon_downstream_ipv6")}

	sw := switchtest.New(t, "edge", "chamelemon")
	left := uint32(0) // the port that the last packet left by
	for _, port := range []uint32{1, hostPort, otherPort} {
		if err := sw.AddPort(port, softswitch.Port{Name: fmt.Sprint(port),
			Tx: func([]byte, time.Duration) { left = port }}); err != nil {
			t.Fatal(err)
		}
	}
	configureEdge(t, sw)

	var banks [2]*edge
	for i := range banks {
		banks[i] = newEdge(t, number(t, up[0], "buckets"), number(t, up[1], "buckets"), number(t, down[0], "buckets"),
			number(t, down[1], "buckets"))
	}
	for i, frame := range sent {
		bank := i / 2500 % 2
		if i%2500 == 0 {
			flip := &softswitch.Action{Kind: softswitch.ActionCall, Name: "ingress.bank.set_bank",
				Params: [][]byte{{byte(bank)}}}
			if err := sw.SetDefault("ingress.bank.bank", flip); err != nil {
				t.Fatal(err)
			}
		}
		left = 0
		sw.Inject(1, frame, time.Duration(i)*time.Microsecond)
		if key, ok := truth.Parse(frame); ok {
			banks[bank].update(t, key.AppendBinary(nil), left == hostPort)
		}
	}

	var flows [2]int // decoded flows by family
	for bank, e := range banks {
		for row, r := range towers {
			want := e.tower.Row(row)
			for i, v := range want {
				if v == tower.Overflow {
					want[i] = 1<<r.Width - 1
				}
			}
			same(t, sw, r, bank, want)
		}
		for f := range 2 {
			same(t, sw, up[f], bank, cellsOf(t, e.up[f]))
			same(t, sw, down[f], bank, cellsOf(t, e.down[f]))
			got := decodeLosses(t, f, readEncoder(t, sw, up[f], bank, f), readEncoder(t, sw, down[f], bank, f))
			flows[f] += len(got)
			if diff := cmp.Diff(e.lost[f], got); diff != "" {
				t.Errorf("bank %d, family %d: lost packets (-sent and not delivered, +decoded):\n%s", bank, f, diff)
			}
		}
	}
	t.Logf("decoded %d IPv4 and %d IPv6 flows that lost packets", flows[0], flows[1])
	if flows[0] == 0 || flows[1] == 0 {
		t.Error("a family lost nothing, so nothing was compared")
	}
}

// configureEdge makes all packets leave by the host port, except packets to some destinations,
// which leave by a port inside the network and so count as lost there.
func configureEdge(t *testing.T, sw *softswitch.Switch) {
	t.Helper()
	add := func(table, action string, match []softswitch.Match, params ...uint64) {
		t.Helper()
		insert(t, sw, table, softswitch.Entry{Match: match, Action: call(action, params...)})
	}
	exact := func(values ...uint64) (out []softswitch.Match) {
		for _, v := range values {
			out = append(out, softswitch.Match{Kind: softswitch.MatchExact, Value: p4values.Uint(v)})
		}
		return out
	}
	prefix := func(size, length int, address ...byte) []softswitch.Match {
		return []softswitch.Match{{Kind: softswitch.MatchLPM,
			Value: append(address, make([]byte, size-len(address))...), PrefixLen: length}}
	}
	const forward = "ingress.forwarding.forward"
	add("ingress.forwarding.ipv4_lpm", forward, prefix(4, 1), hostPort, 1, 2)
	add("ingress.forwarding.ipv4_lpm", forward, prefix(4, 1, 128), hostPort, 1, 2)
	add("ingress.forwarding.ipv4_lpm", forward, prefix(4, 24, 10, 0, 1), otherPort, 1, 2)
	add("ingress.forwarding.ipv4_lpm", forward, prefix(4, 2, 64), otherPort, 1, 2)
	add("ingress.forwarding.ipv6_lpm", forward, prefix(16, 1), hostPort, 1, 2)
	add("ingress.forwarding.ipv6_lpm", forward, prefix(16, 1, 128), hostPort, 1, 2)
	add("ingress.forwarding.ipv6_lpm", forward, prefix(16, 64, 0xfd, 0, 0, 0, 0, 0, 0, 2), otherPort, 1, 2)
	add("ingress.forwarding.ipv6_lpm", forward, prefix(16, 4, 0x70), otherPort, 1, 2)
	add("ingress.forwarding.ipv6_lpm", forward, prefix(16, 16, 0xfd, 0x42), otherPort, 1, 2)
	add("ingress.chamelemon.entry_port", "ingress.chamelemon.from_host", exact(1))
	add("egress.chamelemon.exit_port", "egress.chamelemon.to_host", exact(hostPort))
	for time := range uint64(2) {
		add("ingress.chamelemon.thresholds", "ingress.chamelemon.classify", exact(time), cmTh, cmTl, cmSample, cmSeed)
		for f, suffix := range []string{"", "_ipv6"} {
			first := 0
			for part, buckets := range cmParts[f] {
				key := exact(time, uint64(1+part))
				add("ingress.chamelemon.division"+suffix, "ingress.chamelemon.encode"+suffix, key, uint64(first),
					uint64(buckets))
				if part != hitter {
					add("egress.chamelemon.division"+suffix, "egress.chamelemon.encode"+suffix, key, uint64(first),
						uint64(buckets))
				}
				first += buckets
			}
		}
	}
}

func newEncoder(t *testing.T, f, buckets int) *encoder {
	t.Helper()
	s, err := fermat.New[family.P4Wide, fermat.Prime32](fermat.Config{Width: buckets, KeyBytes: []int{13, 37}[f],
		FragmentBits: 32, Fingerprint: 20})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newEdge(t *testing.T, up4, up6, down4, down6 int) *edge {
	t.Helper()
	s, err := tower.New[family.P4](tower.Config{Rows: []tower.Row{{Bits: 8, Width: 32768}, {Bits: 16, Width: 16384}}})
	if err != nil {
		t.Fatal(err)
	}
	return &edge{
		tower: s, up: [2]*encoder{newEncoder(t, 0, up4), newEncoder(t, 1, up6)},
		down: [2]*encoder{newEncoder(t, 0, down4), newEncoder(t, 1, down6)},
		lost: [2]map[string]int64{{}, {}},
	}
}

// divide returns the parts of an encoder: the first three upstream, the first two downstream.
func divide(t *testing.T, s *encoder, f, parts int) []*encoder {
	t.Helper()
	out, err := s.Divide(cmParts[f][:parts]...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (e *edge) update(t *testing.T, key []byte, delivered bool) {
	t.Helper()
	f := 0
	if len(key) > 13 {
		f = 1
	}
	part := light
	switch size := e.tower.InsertQuery(key); {
	case size >= cmTh:
		part = hitter
	case size >= cmTl:
		part = heavy
	case rowhash.Mix(rowhash.Key(key), cmSeed)&0xffff >= cmSample:
		return
	}
	if err := divide(t, e.up[f], f, 3)[part].Insert(key); err != nil {
		t.Fatal(err)
	}
	if !delivered {
		e.lost[f][string(key)]++
	} else if err := divide(t, e.down[f], f, 2)[min(part, heavy)].Insert(key); err != nil {
		t.Fatal(err)
	}
}

// cellsOf returns what a bank of an encoder's register should hold.
func cellsOf(t *testing.T, s *encoder) (out []uint32) {
	t.Helper()
	for row := range s.Config().Rows {
		for col := range s.Config().Width {
			n, sums, err := s.Bucket(row, col)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, uint32(n))
			for _, v := range sums {
				out = append(out, uint32(v))
			}
		}
	}
	return out
}

// readEncoder makes a sketch of a bank of a register.
func readEncoder(t *testing.T, sw *softswitch.Switch, r *p4values.Register, bank, f int) *encoder {
	t.Helper()
	from := bank * r.Readout.Cells
	cells, err := sw.ReadRegister(r.Name, from, from+r.Readout.Cells)
	if err != nil {
		t.Fatal(err)
	}
	buckets, words := number(t, r, "buckets"), number(t, r, "words")
	s := newEncoder(t, f, buckets)
	for i := range len(cells) / words {
		b := cells[i*words:][:words]
		if err := s.SetBucket(i/buckets, i%buckets, int64(int32(b[0])), b[1:]); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// decodeLosses does what section 4.2 of the paper says: HH decoded and put into HL, downstream
// subtracted, and both differences decoded.
func decodeLosses(t *testing.T, f int, up, down *encoder) map[string]int64 {
	t.Helper()
	decode := func(s *encoder) []fermat.Flow {
		r, err := s.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if !r.Complete {
			t.Errorf("family %d: %d buckets not decoded", f, r.Left)
		}
		return r.Flows
	}
	parts, delivered := divide(t, up, f, 3), divide(t, down, f, 2)
	for _, flow := range decode(parts[hitter]) {
		if err := parts[heavy].Add(flow.Key, flow.Count); err != nil {
			t.Fatal(err)
		}
	}
	out := map[string]int64{}
	for part := light; part <= heavy; part++ {
		if err := parts[part].Subtract(delivered[part]); err != nil {
			t.Fatal(err)
		}
		for _, flow := range decode(parts[part]) {
			out[string(flow.Key)] += flow.Count
		}
	}
	return out
}
