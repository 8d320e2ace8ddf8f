// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/lease"
	"github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/query"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
)

// needBPF skips a test where programs cannot be loaded.
func needBPF(t testing.TB) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1,
		InnerMap: &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		t.Skipf("eBPF programs cannot be loaded here (uid %d): %v", os.Getuid(), err)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = m.Close()
}

// ipFrame returns an Ethernet frame with an IP packet of TCP or UDP.
func ipFrame(src, dst netip.Addr, proto byte, sport, dport uint16, flags byte, window uint16, payload []byte) []byte {
	transport := []byte{byte(sport >> 8), byte(sport), byte(dport >> 8), byte(dport)}
	if proto == packet.ProtocolTCP {
		transport = append(transport, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, byte(window>>8), byte(window), 0, 0, 0, 0)
	} else {
		transport = append(transport, 0, 0, 0, 0)
	}
	transport = append(transport, payload...)
	f := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}
	if src.Is4() {
		f = append(f, 8, 0, 0x45, 0)
		f = binary.BigEndian.AppendUint16(f, uint16(20+len(transport)))
		f = append(f, 0, 0, 0, 0, 64, proto, 0, 0)
	} else {
		f = append(f, 0x86, 0xdd, 0x60, 0, 0, 0)
		f = binary.BigEndian.AppendUint16(f, uint16(len(transport)))
		f = append(f, proto, 64)
	}
	f = append(append(f, src.AsSlice()...), dst.AsSlice()...)
	return append(f, transport...)
}

// defaults are the settings of one of three hosts with addresses 10.0.0.1 to 10.0.0.3.
func defaults(host int) *wire.Settings {
	s := &wire.Settings{EtherType: header.DefaultEtherType, Slots: 64, SlotsPerFlow: 2, Shares: 4, Host: host,
		Flows: 1024, IngressSlots: 4096, IdleEpochs: 1000}
	for i := range byte(3) {
		s.Hosts = append(s.Hosts, []netip.Addr{address(i, false), address(i, true)})
	}
	return s
}

func address(host byte, v6 bool) netip.Addr {
	if v6 {
		return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: host + 1})
	}
	return netip.AddrFrom4([4]byte{10, 0, 0, host + 1})
}

func encoded(t testing.TB, s *wire.Settings) []byte {
	t.Helper()
	data, err := s.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// newPath returns a data path that is not attached and begins in epoch 100.
func newPath(t testing.TB, cfg Config, s *wire.Settings) *Path {
	t.Helper()
	return newPathAt(t, cfg, s, 100)
}

// newPathAt is newPath for another epoch.
func newPathAt(t testing.TB, cfg Config, s *wire.Settings, epoch uint64) *Path {
	t.Helper()
	cfg.manual = true
	p, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	p.Advance(epoch)
	p.SetLeases(allLeases(s))
	if err := p.Apply(encoded(t, s)); err != nil {
		t.Fatal(err)
	}
	return p
}

// run runs a program on a frame and returns the frame that leaves it.
func run(t testing.TB, prog *ebpf.Program, frame []byte, pass uint32) []byte {
	t.Helper()
	out := make([]byte, len(frame)+256)
	opts := &ebpf.RunOptions{Data: frame, DataOut: out}
	got, err := prog.Run(opts)
	if err != nil {
		t.Fatalf("%d bytes: %v", len(frame), err)
	}
	if got != pass {
		t.Fatalf("verdict %d for %x", got, frame)
	}
	return opts.DataOut
}

const tcNext = 0xffffffff

// twin is a host in the kernel and in Go, or in Go alone.
type twin struct {
	t      testing.TB
	kernel *Path // nil if the role runs in Go alone
	clock  *epoch.Clock
	role   *omnimon.Role
	tuples map[uint64]int // results of queries, by their number
	sent   time.Time      // when the kernel sent the packet that the role receives
	leased bool           // packets need leases
	// queries are the texts of queries by their number, for errors.
	queries map[uint64]string
}

func newTwin(t testing.TB, s *wire.Settings) *twin {
	w := inGo(t, s)
	w.kernel = newPath(t, Config{}, s)
	return w
}

// lease gives a host leases for the addresses of the others.
func (w *twin) lease(leases []lease.Lease) {
	w.role.SetLeases(leases)
	if w.kernel != nil {
		w.kernel.SetLeases(leases)
	}
}

// inGo returns a host without the data path in the kernel.
func inGo(t testing.TB, s *wire.Settings) *twin {
	w := &twin{t: t, clock: epoch.NewClock(1, 100), tuples: map[uint64]int{}, sent: time.Unix(0, 0)}
	w.role = omnimon.New(w.clock, func() time.Duration { return w.sent.Sub(time.Unix(0, 0)) })
	if s.Carrier != "" {
		w.role.NeedLeases(math.MaxInt32, nil)
		w.leased = true
	}
	if err := w.role.Apply(encoded(t, s)); err != nil {
		t.Fatal(err)
	}
	return w
}

// compare compares what the data paths made of a frame. The kernel moves the first VLAN tag of a
// frame that it changes out of the packet.
func (w *twin) compare(in, kernel, goRole []byte, what string) {
	w.t.Helper()
	if tagged(goRole, 12) && len(kernel)+4 == len(goRole) {
		goRole = slices.Concat(goRole[:12], goRole[16:])
	}
	if !bytes.Equal(kernel, goRole) {
		w.t.Fatalf("%s %x\nkernel %x\nGo     %x", what, in, kernel, goRole)
	}
}

// tagged reports whether a frame has a VLAN tag at an offset.
func tagged(frame []byte, at int) bool {
	if len(frame) < at+4 {
		return false
	}
	t := binary.BigEndian.Uint16(frame[at:])
	return t == packet.EtherTypeVLAN || t == packet.EtherTypeQinQ
}

// testable reports whether both data paths treat a frame alike and BPF_PROG_TEST_RUN accepts it.
// The kernel refuses a frame with the EtherType of IP that is shorter than an IP header, and does
// not know VLAN tags of type 0x9100.
func testable(frame []byte) bool {
	for at := 12; at <= 16; at += 4 {
		if len(frame) >= at+2 && binary.BigEndian.Uint16(frame[at:]) == packet.EtherTypeQinQOld {
			return false
		}
	}
	switch binary.BigEndian.Uint16(frame[12:]) {
	case packet.EtherTypeIPv4:
		return len(frame) >= 14+20
	case packet.EtherTypeIPv6:
		return len(frame) >= 14+40
	}
	return true
}

func (w *twin) out(frame []byte) []byte {
	w.t.Helper()
	if !testable(frame) {
		return frame
	}
	f := packet.NewFrame(frame)
	if w.kernel == nil {
		w.sent = w.sent.Add(time.Microsecond)
		w.role.Out([]*packet.Frame{f})
		return f.Bytes()
	}
	got := run(w.t, w.kernel.tables.egress, frame, tcNext)
	if last := newest(w.kernel); last > 0 {
		w.sent = time.Unix(0, int64(last))
	}
	w.role.Out([]*packet.Frame{f})
	w.compare(frame, got, f.Bytes(), "sent")
	return f.Bytes()
}

func (w *twin) in(frame []byte) []byte {
	w.t.Helper()
	if !testable(frame) {
		return frame
	}
	f := packet.NewFrame(frame)
	w.role.In([]*packet.Frame{f})
	if w.kernel == nil {
		return f.Bytes()
	}
	got := run(w.t, w.kernel.tables.ingress, frame, tcNext)
	w.compare(frame, got, f.Bytes(), "received")
	w.maintain()
	return f.Bytes()
}

func (w *twin) maintain() {
	w.t.Helper()
	w.kernel.mu.Lock()
	defer w.kernel.mu.Unlock()
	if err := w.kernel.maintain(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *twin) advance(e uint64) {
	w.t.Helper()
	w.clock.Advance(e)
	w.role.Out(nil)
	if w.kernel == nil {
		return
	}
	w.kernel.Advance(e)
	w.maintain()
	if k, g := w.kernel.Epoch(), w.clock.Current(); k != g {
		w.t.Fatalf("epoch %d in the kernel, %d in Go", k, g)
	}
}

// seal compares and returns the reports of an epoch; nil: there is none.
func (w *twin) seal(e uint64) []byte {
	w.t.Helper()
	g := w.role.Seal(e)
	if w.kernel == nil {
		if g != nil {
			g.Release()
		}
		return nil
	}
	k, err := w.kernel.Seal(e)
	if err != nil {
		w.t.Fatal(err)
	}
	if (g == nil) != (k == nil) {
		w.t.Fatalf("epoch %d: report in Go: %v, in the kernel: %v", e, g != nil, k != nil)
	}
	if g == nil {
		return nil
	}
	want, got := g.Append(nil), k.Append(nil)
	got = bytes.ReplaceAll(got, append([]byte{byte(len(errPayload))}, errPayload...), []byte{0}) // QueryRow.Copied
	if !bytes.Equal(want, got) {
		w.compareQueries(want, got)
		w.t.Fatalf("epoch %d\nkernel %s\nGo     %s", e, text(w.t, got), text(w.t, want))
	}
	g.Release()
	k.Release()
	w.count(got)
	return got
}

// compareQueries prints which query has different results.
func (w *twin) compareQueries(want, got []byte) {
	w.t.Helper()
	a, b := queryRows(w.t, want), queryRows(w.t, got)
	for i := range min(len(a), len(b)) {
		if reflect.DeepEqual(a[i], b[i]) {
			continue
		}
		text := w.queries[a[i].ID]
		list := func(row wire.QueryRow) (all []string) {
			if row.Problem != "" {
				return nil
			}
			dropped := row.Dropped
			row.Dropped = 0
			for _, t := range tuplesOf(w.t, &row, text) {
				all = append(all, fmt.Sprint(t))
			}
			return append(all, fmt.Sprintf("undefined %d, dropped %d", row.Undefined, dropped))
		}
		x, y := list(a[i]), list(b[i])
		only := func(x, y []string) []string {
			return slices.DeleteFunc(slices.Clone(x), func(s string) bool { return slices.Contains(y, s) })
		}
		w.t.Fatalf("%s\nproblem in Go: %s\nproblem in the kernel: %s\nonly in Go: %q\nonly in the kernel: %q",
			text, a[i].Problem, b[i].Problem, only(x, y), only(y, x))
	}
}

// count adds the tuples of a report's queries to the sums of all reports.
func (w *twin) count(data []byte) {
	w.t.Helper()
	r, err := wire.Open(data)
	if err != nil {
		w.t.Fatal(err)
	}
	r.SkipEgress()
	for _, ok := r.NextHost(); ok; _, ok = r.NextHost() {
		for in := new(wire.IngressRow); r.NextIngress(in); {
		}
	}
	var row wire.QueryRow
	for r.NextQuery(&row) {
		n, _ := binary.Uvarint(row.Tuples)
		w.tuples[row.ID] += int(n)
		if row.Problem == "" && row.Dropped > 0 {
			w.t.Errorf("query %d: %d packets dropped", row.ID, row.Dropped)
		}
	}
	if r.Err() != nil {
		w.t.Fatal(r.Err())
	}
}

var _ role.Report = (*report)(nil)

// text is a readable report.
func text(t testing.TB, data []byte) string {
	r, err := wire.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%+v\n", r.Summary)
	var row wire.EgressRow
	var v wire.Values
	for r.NextEgress(&row) {
		_ = v.Decode(row.Values)
		fmt.Fprintf(&b, "  %d %s age %d slots %v untagged %v: %v\n", row.Index, row.Key, row.Age, row.Slots, row.Untagged, v)
	}
	for {
		host, ok := r.NextHost()
		if !ok {
			break
		}
		var in wire.IngressRow
		for r.NextIngress(&in) {
			_ = v.Decode(in.Values)
			fmt.Fprintf(&b, "  from %d: %d check %x: %v\n", host, in.Index, in.Check, v)
		}
	}
	for q := new(wire.QueryRow); r.NextQuery(q); {
		fmt.Fprintf(&b, "  query %+v\n", *q)
	}
	if r.Err() != nil {
		fmt.Fprintln(&b, r.Err())
	}
	return b.String()
}

// newest is when the newest packet of any flow was sent, or 0 if no query reads flowlets.
func newest(p *Path) (last uint64) {
	for i := range p.tables.flowlets[:p.tables.fresh()] {
		last = max(last, p.tables.flowlets[i].Last)
	}
	return last
}

// queries use all fields that hosts have, and one that they do not have.
var queries = []string{
	`x = packets.filter(proto == TCP && flags & SYN == SYN).distinct(src, dport, ttl).reduce(keys=(src), n=count())`,
	`x = packets.reduce(keys=(dst, dport), bytes=sum(length), most=max(window))`,
	`x = packets.filter(payload contains "abab").distinct(src, sport, length)`,
	`x = packets.filter(dns_response == 1).reduce(keys=(dns_type), n=count())`,
	`x = packets.filter(queue > 1).reduce(keys=(dst), n=count())`,
}

// TestSameQueries: random queries, which change while packets are sent, have the same results in
// the kernel as in Go.
func TestSameQueries(t *testing.T) {
	needBPF(t)
	id := uint64(0)
	for _, seed := range []uint64{1, 2, 3} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 9))
			s := defaults(0)
			s.Carrier, s.FlowletGap = wire.CarrierOption, time.Nanosecond
			w := newTwin(t, s)
			w.queries = map[uint64]string{}
			w.lease(randomLeases(r, 0))
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var processors unix.CPUSet
			if err := unix.SchedGetaffinity(0, &processors); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.SchedSetaffinity(0, &processors) }()
			for e := uint64(100); e < 140; e++ {
				s.Queries = nil
				count := 1 + r.IntN(6)
				if e == 120 {
					count = 40 // more than one program
				}
				for range count {
					id++
					w.queries[id] = randomQuery(r)
					s.Queries = append(s.Queries, wire.Query{ID: id, Text: w.queries[id]})
				}
				for range 1 + r.IntN(2) { // once or twice in an epoch
					if err := errors.Join(w.role.Apply(encoded(t, s)), w.kernel.Apply(encoded(t, s))); err != nil {
						t.Fatal(err)
					}
				}
				w.advance(e + 1)
				for range r.IntN(400) {
					if r.IntN(16) == 0 {
						one := unix.CPUSet{}
						one.Set(r.IntN(runtime.NumCPU()))
						_ = unix.SchedSetaffinity(0, &one)
					}
					w.out(randomFrame(r))
				}
				if len(w.seal(e)) > 0 && e > 100 && w.seal(e) != nil {
					t.Fatal("a second report")
				}
			}
		})
	}
}

// randomFrame returns a packet of host 0: TCP, UDP, ICMP or DNS, fragments, and damaged ones.
func randomFrame(r *rand.Rand) []byte {
	v6 := r.IntN(3) == 0
	proto, ports, data := byte(packet.ProtocolTCP), [2]uint16{uint16(r.IntN(40)), uint16(r.IntN(3))}, []byte{}
	if r.IntN(2) == 0 {
		proto = packet.ProtocolUDP
	}
	for range r.IntN(40) {
		data = append(data, "ab"[r.IntN(2)])
	}
	if r.IntN(4) == 0 {
		proto, ports[r.IntN(2)] = packet.ProtocolUDP, 53
		data = append([]byte{0, 0, byte(r.IntN(2)) << 7, 0, 0, byte(r.IntN(3)), 11: 0}, 1, 'a', 0, 0, byte(r.IntN(3)))
		data = data[:r.IntN(len(data)+1)]
	}
	f := ipFrame(address(0, v6), address(byte(1+r.IntN(2)), v6), proto, ports[0], ports[1], byte(r.IntN(64)),
		uint16(r.IntN(1000)), data)
	ttl, next := 14+8, 14+9
	if v6 {
		ttl, next = 14+7, 14+6
	}
	f[ttl] = byte(60 + r.IntN(4))
	switch n := r.IntN(12); {
	case n == 0:
		f[next] = 1 // ICMP
	case n == 1 && !v6:
		binary.BigEndian.PutUint16(f[14+6:], uint16(r.IntN(2))<<13|uint16(r.IntN(2)))
	case n == 1:
		fragment := []byte{f[next], 0, 0, byte(r.IntN(2)<<3 | r.IntN(2)), 0, 0, 0, 1}
		f[next] = 44
		binary.BigEndian.PutUint16(f[14+4:], uint16(len(f)-14-40+8))
		f = slices.Concat(f[:54], fragment, f[54:])
	case n == 2:
		f = damage(r, f)
	}
	return f
}

// randomQuery returns a query with operators that hosts run.
func randomQuery(r *rand.Rand) string {
	type field struct {
		name string
		kind query.Type
	}
	var fields []field
	for _, f := range query.PacketFields() {
		if f.Name != "queue" && (f.Name != "payload" || r.IntN(6) == 0) {
			fields = append(fields, field{f.Name, f.Type})
		}
	}
	names := 0
	name := func() string { names++; return fmt.Sprint("v", names) }
	pick := func(kind query.Type) string {
		var all []string
		for _, f := range fields {
			if f.kind == kind {
				all = append(all, f.name)
			}
		}
		if len(all) == 0 {
			return ""
		}
		return all[r.IntN(len(all))]
	}
	constant := func() string {
		return []string{"0", "1", "2", "6", "17", "40", "(0-3)", "0x10", "9223372036854775807", "(0-9223372036854775807-1)",
			fmt.Sprint(r.IntN(70))}[r.IntN(11)]
	}
	var integer func(depth int) string
	integer = func(depth int) string {
		f := pick(query.Integer)
		switch n := r.IntN(10); {
		case f == "" || n == 0:
			return constant()
		case n < 6 || depth == 0:
			return f
		}
		left, right := integer(depth-1), integer(depth-1)
		return fmt.Sprintf("(%s %s %s)", left, []string{"+", "-", "*", "/", "&", "|"}[r.IntN(6)], right)
	}
	addresses := []string{"10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::3", "::ffff:10.0.0.1"}
	prefixes := []string{"10.0.0.0/31", "0.0.0.0/0", "2001:db8::/32", "::/0", "2001:db8::2/127", "10.0.0.2/32"}
	var condition func(depth int) string
	condition = func(depth int) string {
		a, text := pick(query.Address), pick(query.Text)
		switch n := r.IntN(12); {
		case depth > 0 && n < 3:
			return fmt.Sprintf("(%s %s %s)", condition(depth-1), []string{"&&", "||"}[r.IntN(2)], condition(depth-1))
		case depth > 0 && n == 3:
			return "!(" + condition(depth-1) + ")"
		case a != "" && n == 4:
			return a + []string{" == ", " != "}[r.IntN(2)] + addresses[r.IntN(len(addresses))]
		case a != "" && n == 5:
			return a + " in " + prefixes[r.IntN(len(prefixes))]
		case a != "" && n == 6:
			return a + []string{" == ", " != "}[r.IntN(2)] + pick(query.Address)
		case text != "" && n < 9:
			return text + []string{` contains "ab"`, ` == "a"`, ` != ""`}[r.IntN(3)]
		}
		return integer(2) + " " + []string{"==", "!=", "<", "<=", ">", ">="}[r.IntN(6)] + " " + integer(2)
	}
	text := "x = packets"
	for range r.IntN(4) {
		if r.IntN(2) == 0 {
			text += ".filter(" + condition(3) + ")"
			continue
		}
		var columns []string
		var next []field
		for range 1 + r.IntN(4) {
			f := fields[r.IntN(len(fields))]
			e := f.name
			if f.kind == query.Integer {
				e = integer(2)
			} else if r.IntN(8) == 0 {
				e = map[query.Type]string{query.Address: addresses[0], query.Text: `"ab"`}[f.kind]
			}
			n := name()
			columns, next = append(columns, n+" = "+e), append(next, field{n, f.kind})
		}
		fields = next
		text += []string{".map(", ".distinct("}[r.IntN(2)] + strings.Join(columns, ", ") + ")"
	}
	if len(fields) > 6 && r.IntN(4) > 0 || r.IntN(3) > 0 {
		var keys []string
		for _, f := range fields {
			if r.IntN(len(fields)) < 3 {
				keys = append(keys, f.name)
			}
		}
		var values []string
		for range 1 + r.IntN(4) {
			value := integer(2) + ")"
			values = append(values, name()+"="+[]string{"count()", "sum(" + value, "max(" + value, "min(" + value}[r.IntN(4)])
		}
		text += ".reduce(keys=(" + strings.Join(keys, ", ") + "), " + strings.Join(values, ", ") + ")"
	}
	// Any sequence may be the last but one.
	return text + []string{"\ny = x", "\ny = x.reduce(keys=(), n=count())"}[r.IntN(2)]
}

// TestSameAsGo: random traffic of three hosts, with flows that begin and end, delays, losses and
// damaged frames, gives the same bytes and the same reports in the kernel as in Go. One host is in
// the kernel, a different one in each case: the kernel takes long to check its programs.
func TestSameAsGo(t *testing.T) {
	needBPF(t)
	all := []wire.Extreme{{Field: wire.FieldLength}, {Field: wire.FieldLength, Min: true}, {Field: wire.FieldTTL},
		{Field: wire.FieldWindow, Min: true}}
	for name, change := range map[string]func(*wire.Settings){
		"plain": func(*wire.Settings) {},
		"few mappings, other EtherType": func(s *wire.Settings) {
			s.Slots, s.Flows, s.IdleEpochs = 6, 64, 3
			s.EtherType, s.SlotsPerFlow = 0x88b6, 3
		},
		"one slot, two extremes": func(s *wire.Settings) { s.SlotsPerFlow, s.Extremes = 1, all[:2] },
		"four slots, all extremes, match": func(s *wire.Settings) {
			s.SlotsPerFlow, s.Extremes, s.Match = 4, all, "abab"
		},
		"queries": func(s *wire.Settings) {
			for id, text := range queries {
				s.Queries = append(s.Queries, wire.Query{ID: uint64(id), Text: text})
			}
		},
		"tiny tables, flowlets": func(s *wire.Settings) {
			s.Flows, s.IngressSlots, s.IdleEpochs, s.FlowletGap = 70, 128, 1, time.Nanosecond
			s.Queries = []wire.Query{{Text: `x = packets.reduce(keys=(src, dst, sport, dport, flowlet), n=count())`}}
		},
		"option": func(s *wire.Settings) { s.Carrier = wire.CarrierOption },
		"tunnel": func(s *wire.Settings) { s.Carrier, s.UDPIdleEpochs = wire.CarrierTunnel, 2 },
		"option, three slots, extremes": func(s *wire.Settings) {
			s.Carrier, s.SlotsPerFlow, s.Extremes = wire.CarrierOption, 3, all[2:]
		},
		"tunnel, three slots, one extreme": func(s *wire.Settings) {
			s.Carrier, s.SlotsPerFlow, s.Extremes = wire.CarrierTunnel, 3, all[:1]
		},
		"shim with leases": func(s *wire.Settings) { s.Carrier, s.UDPIdleEpochs = wire.CarrierShim, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, change, uint64(len(name)))
		})
	}
}

func simulate(t *testing.T, change func(*wire.Settings), seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	var hosts [3]*twin
	both := int(seed % 3)
	for i := range hosts {
		s := defaults(i)
		change(s)
		if i == both {
			hosts[i] = newTwin(t, s)
		} else {
			hosts[i] = inGo(t, s)
		}
		if hosts[i].leased {
			hosts[i].lease(randomLeases(r, i))
		}
	}
	var flight [][]byte
	var to []int
	now := [3]uint64{100, 100, 100}
	rows := 0
	for range 9000 {
		host := r.IntN(3)
		switch n := r.IntN(100); {
		case n < 45:
			dst := r.IntN(4) // host 3 has no agent
			v6 := r.IntN(3) == 0
			proto, dport := byte(packet.ProtocolTCP), uint16(80)
			if r.IntN(4) == 0 {
				proto = packet.ProtocolUDP
			}
			flags := []byte{packet.SYN, packet.ACK, packet.ACK, packet.SYN | packet.ACK, packet.FIN | packet.ACK, packet.RST,
				packet.PSH | packet.ACK, 0}[r.IntN(8)]
			payload := make([]byte, r.IntN(200))
			for i := range payload {
				payload[i] = "ab"[r.IntN(2)]
			}
			switch r.IntN(6) {
			case 0, 1:
				payload = nil
			case 2:
				proto, dport = packet.ProtocolUDP, 53
				payload = append([]byte{0, 0, byte(r.IntN(2)) << 7, 0, 0, 1, 11: 0}, 1, 'a', 0, 0, byte(r.IntN(3)))
			}
			f := ipFrame(address(byte(host), v6), address(byte(dst), v6), proto, uint16(r.IntN(60)), dport, flags,
				uint16(r.IntN(1000)), payload)
			if proto == packet.ProtocolTCP && flags&packet.SYN != 0 && r.IntN(2) == 0 {
				f = withOptions(r, f, v6)
			}
			for range r.IntN(3) {
				f = append(f[:12:12], append([]byte{[]byte{0x81, 0x88}[r.IntN(2)], 0, 0, 9}, f[12:]...)...)
				if f[12] == 0x88 {
					f[13] = 0xa8
				}
			}
			if r.IntN(10) == 0 {
				f = damage(r, f)
			}
			f = hosts[host].out(f)
			if dst < 3 && r.IntN(20) > 0 {
				if r.IntN(10) == 0 {
					f = damage(r, f)
				}
				flight, to = append(flight, f), append(to, dst)
			}
		case n < 90 && len(flight) > 0:
			i := r.IntN(min(len(flight), 40))
			hosts[to[i]].in(flight[i])
			flight, to = append(flight[:i], flight[i+1:]...), append(to[:i], to[i+1:]...)
		case n < 95:
			now[host] = max(now[host], hosts[host].clock.Current()) + 1 + uint64(r.IntN(2))
			hosts[host].advance(now[host])
		case n < 96 && hosts[host].leased:
			hosts[host].lease(randomLeases(r, host))
		default:
			e := hosts[host].clock.Current() - uint64(r.IntN(6))
			if data := hosts[host].seal(e); data != nil {
				rows += len(data)
			}
		}
	}
	for _, h := range hosts {
		end := h.clock.Current() + 1
		h.advance(end)
		for e := uint64(100); e < end; e++ {
			h.seal(e)
		}
	}
	if rows < 1000 {
		t.Errorf("reports of %d bytes: the simulation tests nothing", rows)
	}
	for _, q := range hosts[both].kernel.settings.Queries {
		if n := hosts[both].tuples[q.ID]; (n > 0) == strings.Contains(q.Text, "queue") {
			t.Errorf("%d tuples of %s", n, q.Text)
		}
	}
}

// randomLeases returns leases for addresses of other hosts, of which some are over, and lengths
// that some packets exceed.
func randomLeases(r *rand.Rand, host int) (all []lease.Lease) {
	for i := range 3 {
		for _, v6 := range []bool{false, true} {
			l := lease.Lease{Peer: lease.Peer{Host: i, Address: address(byte(i), v6)}, MaxLength: 60 + r.IntN(1000),
				Until: math.MaxInt64}
			if r.IntN(8) == 0 {
				l.Until = 0
			}
			if i != host && r.IntN(8) > 0 {
				all = append(all, l)
			}
		}
	}
	return all
}

// withOptions adds options to the TCP header of a frame without VLAN tags, the MSS among them, or
// not.
func withOptions(r *rand.Rand, f []byte, v6 bool) []byte {
	ip, tcp := 14, 14+20
	if v6 {
		tcp = 14 + 40
	}
	var options []byte
	for range r.IntN(4) {
		options = append(options, [][]byte{{1}, {4, 2}, {3, 3, 7}, {2, 3, 9}, {byte(r.IntN(5))}}[r.IntN(5)]...)
	}
	if r.IntN(4) > 0 {
		options = append(options, 2, 4, byte(r.IntN(8)), byte(r.Uint32()))
	}
	options = append(options, make([]byte, (4-len(options)%4)%4)...)
	f[tcp+12] = byte(20+len(options)) / 4 << 4
	length := f[ip+2:]
	if v6 {
		length = f[ip+4:]
	}
	binary.BigEndian.PutUint16(length, binary.BigEndian.Uint16(length)+uint16(len(options)))
	return slices.Concat(f[:tcp+20], options, f[tcp+20:])
}

// damage changes bytes, or cuts the frame.
func damage(r *rand.Rand, f []byte) []byte {
	f = bytes.Clone(f)
	for range 1 + r.IntN(3) {
		f[r.IntN(min(len(f), 64))] = byte(r.Uint32())
	}
	if r.IntN(2) == 0 {
		f = f[:14+r.IntN(len(f)-13)]
	}
	return f
}

// TestBadInput: each kind of bad packet is counted, in the kernel as in Go.
func TestBadInput(t *testing.T) {
	needBPF(t)
	s := defaults(0)
	s.Flows, s.IngressSlots = 64, 64 // one page of incoming flows
	w := newTwin(t, s)
	var want [wire.Counters]uint64
	plain := func(src, dst byte, port uint16) []byte {
		return ipFrame(address(src, false), address(dst, false), packet.ProtocolUDP, port, 9, 0, 0, nil)
	}
	in := func(why wire.Counter, h header.Header, src byte, port uint16) []byte {
		l := header.Layout{EtherType: s.EtherType, Slots: s.SlotsPerFlow}
		f := packet.NewFrame(plain(src, 0, port))
		l.Insert(f, packet.Link{TypeAt: 12, Type: packet.EtherTypeIPv4}, &h)
		w.in(f.Bytes())
		if why < wire.Counters {
			want[why]++
		}
		return f.Bytes()
	}
	const good = wire.Counters
	frame := in(good, header.Header{Epoch: 100, HostIndex: 3}, 1, 1)
	in(wire.Forged, header.Header{Epoch: 100, HostIndex: 3}, 1, 2)
	in(wire.UnknownEpoch, header.Header{Epoch: 105, HostIndex: 3}, 1, 1)
	in(wire.Late, header.Header{Epoch: 95, HostIndex: 3}, 1, 1)
	in(wire.Late, header.Header{Epoch: 99, HostIndex: 3}, 1, 1)
	in(wire.UnknownHost, header.Header{Epoch: 100, HostIndex: 3}, 9, 1)
	in(wire.BadIndex, header.Header{Epoch: 100, HostIndex: 64}, 1, 1)
	in(wire.BadIndex, header.Header{Epoch: 100, HostIndex: header.MaxHostIndex}, 1, 1)
	in(wire.IngressFull, header.Header{Epoch: 100, HostIndex: 3}, 2, 1)
	for n := 14; n < len(frame); n++ { // the header, IP and UDP, each cut anywhere
		w.in(frame[:n])
		want[wire.Malformed]++
	}
	w.in(plain(1, 0, 1))
	want[wire.NoHeader]++
	w.out(append(make([]byte, 12), 8, 6, 0, 1))
	want[wire.NotIP]++
	w.out(plain(0, 9, 1))
	w.out(plain(1, 0, 1))
	want[wire.Foreign] += 2
	for port := range uint16(64 + 5) {
		w.out(plain(0, 1, port))
	}
	want[wire.Untracked] += 5
	w.out(plain(0, 1, 7)[:40])
	want[wire.Malformed]++
	w.advance(101)
	r, err := wire.Open(w.seal(100))
	if err != nil {
		t.Fatal(err)
	}
	if r.Counters != want {
		t.Errorf("counters %v, want %v", r.Counters, want)
	}
	if r.EgressRows != 64 {
		t.Errorf("%d flows, want 64", r.EgressRows)
	}
}

// TestCut: the data paths in the kernel and in Go take a packet in each carrier alike, wherever it
// ends.
func TestCut(t *testing.T) {
	needBPF(t)
	for _, carrier := range []wire.Carrier{wire.CarrierShim, wire.CarrierOption, wire.CarrierTunnel} {
		t.Run(string(carrier), func(t *testing.T) {
			from, to := defaults(1), defaults(0)
			from.Carrier, to.Carrier = carrier, carrier
			sender, receiver := inGo(t, from), newTwin(t, to)
			sender.lease(allLeases(from))
			for _, v6 := range []bool{false, true} {
				for _, proto := range []byte{packet.ProtocolTCP, packet.ProtocolUDP, 1} {
					plain := ipFrame(address(1, v6), address(0, v6), proto, 1, 2, packet.ACK, 3, []byte("data"))
					frame := sender.out(plain)
					if len(frame) == len(plain) {
						t.Fatalf("protocol %d: the packet has no header", proto)
					}
					for n := 14; n <= len(frame); n++ {
						receiver.in(frame[:n:n])
					}
				}
			}
			receiver.advance(101)
			receiver.seal(100)
		})
	}
}

// TestFourEpochsBehind: a packet from four epochs before the current one is in the report of its
// epoch until that is requested, and late afterwards. If the epochs move on by four before the
// agent reads what was counted, the report is dropped, and counted as dropped.
func TestFourEpochsBehind(t *testing.T) {
	needBPF(t)
	s := defaults(0)
	w := newTwin(t, s)
	in := func(epoch uint16, port uint16) {
		t.Helper()
		l := header.Layout{EtherType: s.EtherType, Slots: s.SlotsPerFlow}
		f := packet.NewFrame(ipFrame(address(1, false), address(0, false), packet.ProtocolUDP, port, 9, 0, 0, nil))
		l.Insert(f, packet.Link{TypeAt: 12, Type: packet.EtherTypeIPv4}, &header.Header{Epoch: epoch,
			HostIndex: uint32(port)})
		w.in(f.Bytes())
	}
	expect := func(epoch uint64, packets, late int) {
		t.Helper()
		r, err := wire.Open(w.seal(epoch))
		if err != nil {
			t.Fatal(err)
		}
		r.SkipEgress()
		n := 0
		for _, ok := r.NextHost(); ok; _, ok = r.NextHost() {
			for row := new(wire.IngressRow); r.NextIngress(row); {
				var v wire.Values
				if err := v.Decode(row.Values); err != nil {
					t.Fatal(err)
				}
				n += int(v[wire.Packets])
			}
		}
		if n != packets || r.Counters[wire.Late] != uint64(late) {
			t.Errorf("epoch %d: %d packets, %d late; want %d, %d", epoch, n, r.Counters[wire.Late], packets, late)
		}
	}
	in(100, 1)
	in(104, 1) // the epoch moves by four
	in(100, 1)
	in(100, 2)
	in(99, 1)         // late
	expect(100, 3, 0) // requested while packets of the epoch may still arrive
	in(100, 1)        // late
	w.advance(105)
	in(101, 1)
	w.advance(106) // 101 is complete
	in(101, 1)     // late
	expect(101, 1, 0)
	expect(104, 1, 2)
	in(110, 1) // epochs 102 and 103 wait, without such packets
	expect(102, 0, 0)
	in(106, 1)
	if w.role.Seal(106) == nil {
		t.Error("Go has no report of epoch 106")
	}
	w.kernel.Advance(114) // the kernel may use the slots of 106 again
	if g, err := w.kernel.Seal(106); g != nil || err != nil {
		t.Errorf("report %v, %v; the packet is not in it", g, err)
	}
	g, err := w.kernel.Seal(107)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := wire.Open(g.Append(nil)); err != nil || r.Counters[wire.Missed] != 1 {
		t.Errorf("the next report counts %d as dropped, %v; want 1", r.Counters[wire.Missed], err)
	}
}

// FuzzFrames compares both data paths on any frame, sent and received, and the reports.
func FuzzFrames(f *testing.F) {
	needBPF(f)
	src, dst := address(0, false), address(1, false)
	for _, v6 := range []bool{false, true} {
		frame := ipFrame(address(0, v6), address(1, v6), packet.ProtocolTCP, 1, 2, packet.SYN, 3, []byte("payload"))
		f.Add(true, frame)
		f.Add(true, append(frame[:12:12], append([]byte{0x81, 0, 0, 9}, frame[12:]...)...))
	}
	f.Add(true, ipFrame(src, dst, packet.ProtocolUDP, 1, 2, 0, 0, nil))
	h := header.Layout{EtherType: header.DefaultEtherType, Slots: 2, Differences: 1}
	frame := packet.NewFrame(ipFrame(dst, src, packet.ProtocolTCP, 1, 2, packet.ACK, 3, []byte("ab")))
	h.Insert(frame, packet.Link{TypeAt: 12, Type: packet.EtherTypeIPv4}, &header.Header{Epoch: 100})
	f.Add(false, frame.Bytes())
	s := defaults(0)
	s.Match, s.Extremes = "ab", []wire.Extreme{{Field: wire.FieldLength, Min: true}}
	s.Queries = []wire.Query{{Text: "x = packets.map(src, dst, proto, sport, dport, length, ttl, flags, window, " +
		"dns_type, dns_response) y = x"}}
	w := newTwin(f, s)
	f.Fuzz(func(t *testing.T, out bool, frame []byte) {
		if len(frame) < 14 || len(frame) > 2000 {
			return
		}
		w.t = t
		if out {
			w.out(frame)
		} else {
			w.in(frame)
		}
		e := w.clock.Current()
		w.advance(e + 1)
		w.seal(e)
	})
}
