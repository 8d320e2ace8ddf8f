// SPDX-License-Identifier: Apache-2.0

package switches

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/internal/test/p4tap"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// program is a program under test and what is set up for it.
type program struct {
	*p4rt.Program
	entries []p4rt.Entry
	// entities other than table entries with actions, each after the entities that it refers to
	entities  []*p4v1.Entity
	defaults  []defaultAction
	settings  []*p4v1.Entity // entities that are modified after all others were inserted
	bankTable string         // "": the program has no banks
	inFrames  bool           // registers show in the packets that leave, and cannot be read
	serial    bool           // packets are sent one at a time, because each changes the egress of later packets
	valueSets []setMember
	// derives the program's packets from the packets of all programs; nil: unchanged
	frames    func(in []arrival) []arrival
	packetOut func(port uint32) []p4tap.Field
}

type defaultAction struct {
	table, action string
	params        []p4rt.Param
}

// barrierPort is where barrier frames leave; no other entry leads there.
const barrierPort = 16

// barrier is the frame that leaves last.
func barrier() []byte {
	f := append([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}, 8, 0)
	h := []byte{0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0, 192, 0, 2, 2, 192, 0, 2, 1}
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum>>16+sum&0xffff))
	return append(append(f, h...), make([]byte, 26)...)
}

// programs returns the compiled programs of p4/programs, and programs of this package with
// constructs that those do not use.
func programs(t *testing.T, in []arrival) (out []*program) {
	t.Helper()
	for _, name := range compiled.Names() {
		p, err := compiled.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		f := forwarding(&p4rt.Program{Name: name, DeviceConfig: p.JSON, P4Info: p.P4Info}, in)
		// Numbers and times in reports and towers, where this test has no sink; sketches that leave in
		// packets.
		f.inFrames = strings.HasPrefix(name, "sketchint") || name == "lightguardian"
		out = append(out, f)
	}
	return append(out, features(t), externs(t), formats(t))
}

// forwarding sets up routes to destinations that there is traffic to, from a fixed seed.
func forwarding(p *p4rt.Program, in []arrival) *program {
	const group, members, seed = 7, 4, 0x1b873593
	macs := func(port uint64) []p4rt.Param {
		return []p4rt.Param{
			p4rt.Uint("port", port), p4rt.Bytes("src_mac", []byte{2, 0, 0, 0, 1, 1}),
			p4rt.Bytes("dst_mac", []byte{2, 0, 0, 0, 2, byte(port)}),
		}
	}
	route := func(prefix netip.Prefix, action string, params []p4rt.Param) p4rt.Entry {
		e := p4rt.Entry{Table: "ipv4_lpm", Action: "ingress.forwarding." + action, Params: params}
		field := "hdr.ipv4.dst"
		if prefix.Addr().Is6() {
			e.Table, field = "ipv6_lpm", "hdr.ipv6.dst"
		}
		e.Match = []p4rt.Match{p4rt.Prefix(field, prefix)}
		return e
	}
	var entries []p4rt.Entry
	for m := range uint64(members) {
		entries = append(entries, p4rt.Entry{
			Table: "ecmp_members", Action: "forward", Params: macs(10 + m),
			Match: []p4rt.Match{p4rt.Exact("meta.ecmp_group", []byte{group}),
				p4rt.Exact("meta.ecmp_member", []byte{byte(m)})},
		})
	}
	entries = append(entries,
		route(netip.MustParsePrefix("0.0.0.0/0"), "forward", macs(5)),
		route(netip.MustParsePrefix("::/0"), "forward", macs(6)),
		route(netip.MustParsePrefix("192.0.2.1/32"), "forward", macs(barrierPort)),
		p4rt.Entry{Table: "trap", Action: "to_cpu",
			Match: []p4rt.Match{p4rt.Exact("hdr.ethernet.ether_type", []byte{8, 6})}})
	rng := rand.New(rand.NewPCG(3, 1))
	seen := map[netip.Prefix]bool{netip.MustParsePrefix("192.0.2.1/32"): true}
	for _, dst := range destinations(in) {
		if rng.IntN(8) > 0 || len(seen) > 400 {
			continue
		}
		bits := 8 + rng.IntN(dst.BitLen()-7)
		prefix, err := dst.Prefix(bits)
		if err != nil || seen[prefix] {
			continue
		}
		seen[prefix] = true
		switch n := rng.IntN(20); {
		case n == 0:
			entries = append(entries, route(prefix, "drop", nil))
		case n == 1:
			entries = append(entries, route(prefix, "to_cpu", nil))
		case n < 8:
			entries = append(entries, route(prefix, "ecmp",
				[]p4rt.Param{p4rt.Uint("group", group), p4rt.Uint("size", members)}))
		default:
			entries = append(entries, route(prefix, "forward", macs(1+rng.Uint64N(9))))
		}
	}
	entries = append(entries, measuring(p.P4Info)...)
	out := &program{
		Program: p, entries: entries,
		defaults: []defaultAction{{"ecmp_seed", "choose_member", []p4rt.Param{p4rt.Uint("seed", seed)}}},
		packetOut: func(port uint32) []p4tap.Field {
			return metadata("op", 0, "egress_port", port, "object", 0, "bank", 0, "index", 0, "seq", 0)
		},
	}
	for _, table := range p.P4Info.GetTables() {
		switch name := table.GetPreamble().GetName(); name {
		case "ingress.bank.bank":
			out.bankTable = name
		case "ingress.omnimon.window":
			out.defaults = append(out.defaults, defaultAction{name, "set_window",
				[]p4rt.Param{p4rt.Uint("first", 1), p4rt.Uint("size", 3)}})
			out.frames = withHeaders
		case "ingress.lightguardian.carry":
			out.serial, out.frames = true, firstOnes
			out.defaults = append(out.defaults, sketchlets()...)
		}
	}
	return out
}

// sketchlets lets a third of the packets carry sketchlets, in which nothing depends on the clock:
// the unit of time is half an hour, and all delays are in the third of four ranges.
func sketchlets() []defaultAction {
	return []defaultAction{
		{"ingress.lightguardian.carry", "set_carry", []p4rt.Param{p4rt.Uint("device", 0x1234),
			p4rt.Uint("probability", 22_000), p4rt.Uint("chances", 2), p4rt.Uint("seed", 0x2c9277b5)}},
		{"ingress.lightguardian.clock", "set_clock", []p4rt.Param{p4rt.Uint("unit", 31)}},
		{"egress.lightguardian.delays", "set_delays", []p4rt.Param{p4rt.Uint("limit1", 0), p4rt.Uint("limit2", 0),
			p4rt.Uint("limit3", 0xffffffff)}},
	}
}

// firstOnes returns the packets of four intervals, of which the last two have packets with
// sketchlets. More packets would take too long one at a time.
func firstOnes(in []arrival) []arrival { return in[:min(len(in), 4*flipEvery)] }

// withHeaders inserts OmniMon's header into two of three IP packets: of epochs 0 to 7, three of
// them in the window, with up to five hops and any slots.
func withHeaders(in []arrival) []arrival {
	out := slices.Clone(in)
	for i, a := range in {
		if len(a.frame) < 14 || i%3 == 0 {
			continue
		}
		next := binary.BigEndian.Uint16(a.frame[12:])
		if next != 0x0800 && next != 0x86dd {
			continue
		}
		mixed := uint32(i) * 0x9e3779b1
		f := binary.BigEndian.AppendUint16(slices.Clone(a.frame[:12]), header.DefaultEtherType)
		f = binary.BigEndian.AppendUint16(f, uint16(i>>4&7))           // epoch
		f = binary.BigEndian.AppendUint32(f, uint32(i)<<8|uint32(i%5)) // host index, hops
		f = binary.BigEndian.AppendUint32(f, mixed)                    // two slots
		f = binary.BigEndian.AppendUint16(f, next)
		out[i].frame = append(f, a.frame[14:]...)
	}
	return out
}

// measuring sets up algorithms that measure nothing as they come. A program whose cells
// all stay zero fails the test: its algorithm belongs here.
func measuring(info *configv1.P4Info) (out []p4rt.Entry) {
	for _, table := range info.GetTables() {
		switch table.GetPreamble().GetName() {
		case "ingress.chamelemon.thresholds":
			out = append(out, chamelemon()...)
		case "ingress.sketchint.source_ipv4", "ingress.sketchint.source_ipv6":
			out = append(out, telemetry(table.GetPreamble().GetName()))
		}
	}
	return out
}

// telemetry lets half of the flows begin to carry INT, with all metadata but those that depend on
// the clock and on queues.
func telemetry(table string) p4rt.Entry {
	return p4rt.Entry{Table: table, Priority: 1, Action: "ingress.sketchint.start",
		Match:  []p4rt.Match{p4rt.Range("src_port", []byte{0, 0}, []byte{0x9f, 0xff})},
		Params: []p4rt.Param{p4rt.Uint("instructions", 0xc3ff), p4rt.Uint("hops", 5)}}
}

// chamelemon sets up an edge switch with hosts at both ends: what enters by ports 1 to 4 and
// what leaves by ports 1 to 6 is counted.
func chamelemon() (out []p4rt.Entry) {
	add := func(table, action string, match []p4rt.Match, params ...p4rt.Param) {
		side, _, _ := strings.Cut(table, ".")
		out = append(out, p4rt.Entry{Table: table, Action: side + ".chamelemon." + action, Match: match,
			Params: params})
	}
	exact := func(pairs ...any) (out []p4rt.Match) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, p4rt.Exact(pairs[i].(string), []byte{byte(pairs[i+1].(int))}))
		}
		return out
	}
	for port := 1; port <= 4; port++ {
		add("ingress.chamelemon.entry_port", "from_host", exact("port", port))
	}
	for port := 1; port <= 6; port++ {
		add("egress.chamelemon.exit_port", "to_host", exact("port", port))
	}
	for dscp, code := range map[int]int{46: 5, 18: 2} {
		add("ingress.chamelemon.dscp_in", "carry", exact("dscp", dscp), p4rt.Uint("code", uint64(code)))
		add("egress.chamelemon.dscp_out", "restore", exact("code", code), p4rt.Uint("dscp", uint64(dscp)))
	}
	const light, heavy, hitter = 1, 2, 3 // hierarchies
	for time := range 2 {
		th, tl, sample := uint64(12), uint64(3), uint64(20_000)
		if time == 1 {
			th, tl, sample = 5, 2, 65_536
		}
		add("ingress.chamelemon.thresholds", "classify", exact("time", time), p4rt.Uint("th", th), p4rt.Uint("tl", tl),
			p4rt.Uint("sample", sample), p4rt.Uint("seed", 0xcc9e2d51+2*th))
		for _, family := range []struct {
			suffix      string
			all, l1, l2 uint64 // buckets of an array: in all, for LL, for HL
		}{{"", 4096, 256, 1000}, {"_ipv6", 1024, 64, 250}} {
			part := func(side string, hierarchy int, first, buckets uint64) {
				add(side+".chamelemon.division"+family.suffix, "encode"+family.suffix,
					exact("time", time, "hierarchy", hierarchy),
					p4rt.Uint("first", first), p4rt.Uint("buckets", buckets))
			}
			for _, side := range []string{"ingress", "egress"} {
				part(side, light, 0, family.l1)
				part(side, heavy, family.l1, family.l2)
			}
			part("ingress", hitter, family.l1+family.l2, family.all-family.l1-family.l2)
		}
	}
	return out
}

// metadata makes metadata from alternating names and numbers.
func metadata(pairs ...any) (out []p4tap.Field) {
	for i := 0; i < len(pairs); i += 2 {
		v := uint32(0)
		switch n := pairs[i+1].(type) {
		case int:
			v = uint32(n)
		case uint32:
			v = n
		}
		out = append(out, p4tap.Field{Name: pairs[i].(string), Value: binary.BigEndian.AppendUint32(nil, v)})
	}
	return out
}

// destinations returns the IP destinations of untagged packets, in the order of their
// first packets.
func destinations(in []arrival) (out []netip.Addr) {
	seen := map[netip.Addr]bool{}
	for _, a := range in {
		f := a.frame
		var dst netip.Addr
		switch {
		case len(f) >= 34 && f[12] == 8 && f[13] == 0:
			dst = netip.AddrFrom4([4]byte(f[30:34]))
		case len(f) >= 54 && f[12] == 0x86 && f[13] == 0xdd:
			dst = netip.AddrFrom16([16]byte(f[38:54])) // mapped addresses are IPv6 here
		default:
			continue
		}
		if !seen[dst] {
			seen[dst] = true
			out = append(out, dst)
		}
	}
	return out
}

// features sets up testdata/features.p4: the last bits of destinations choose what happens.
func features(t *testing.T) *program {
	t.Helper()
	const flood, session, late = 5, 9, 11
	class := func(priority int32, value, mask uint32, action string, params ...p4rt.Param) p4rt.Entry {
		return p4rt.Entry{
			Table: "classify", Priority: priority, Action: "I." + action, Params: params,
			Match: []p4rt.Match{p4rt.Ternary("hdr.ip.dst", binary.BigEndian.AppendUint32(nil, value),
				binary.BigEndian.AppendUint32(nil, mask))},
		}
	}
	port := func(n uint64) p4rt.Param { return p4rt.Uint("port", n) }
	again := class(90, 6, 7, "forward", port(8))
	again.Match = append(again.Match, p4rt.Ternary("meta.again", []byte{1}, []byte{0xff}))
	icmp := class(40, 1, 3, "punt")
	icmp.Match = append(icmp.Match, p4rt.Ternary("hdr.ip.protocol", []byte{1}, []byte{0xff}))
	entries := []p4rt.Entry{
		class(100, 0xc0000201, 0xffffffff, "forward", port(barrierPort)), again, icmp,
		class(50, 0x1f, 0x1f, "punt"),
		class(10, 0, 7, "flood", p4rt.Uint("group", flood)),
		class(10, 1, 7, "forward", port(1)),
		class(10, 2, 7, "mirror", port(2), p4rt.Uint("session", session)),
		class(10, 3, 7, "mirror_late", port(3), p4rt.Uint("session", late)),
		class(10, 4, 15, "learn", port(4)),
		class(9, 4, 7, "forward", port(5)),
		class(10, 5, 7, "drop"),
		class(10, 6, 7, "twice", port(6)),
		class(1, 0, 0, "forward", port(7)),
	}
	return &program{
		Program: local(t, "features"), inFrames: true,
		entries: entries,
		entities: []*p4v1.Entity{
			multicast(flood, replicas(1, 21, 9, 22, 9, 23, 12, 0)), cloning(session, replicas(13, 1)),
			cloning(late, replicas(14, 2)),
		},
		packetOut: func(port uint32) []p4tap.Field { return metadata("egress_port", port) },
	}
}
