// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/internal/test/omnimon/workload"
)

// Streams are the tuples of packets and losses in one epoch, with the fields that packetFields and
// lossFields list.
type Streams struct {
	Packets, Losses []Tuple
}

// Run evaluates a query on the tuples of one epoch, as hosts and switches together must. The result
// is sorted. A tuple for which an expression divides by zero is left out and counted.
func (q *Query) Run(in Streams) (result []Tuple, undefined int) {
	r := &run{streams: map[string][]Tuple{"packets": in.Packets, "losses": in.Losses},
		fields: map[string][]Field{"packets": packetFields, "losses": lossFields}}
	for _, s := range q.Sequences {
		tuples, fields := r.streams[s.Source], r.fields[s.Source]
		for _, o := range s.Operators {
			tuples, fields = r.apply(o, tuples, fields)
		}
		r.streams[s.Name], r.fields[s.Name] = tuples, fields
		result = tuples
	}
	result = slices.Clone(result)
	slices.SortFunc(result, compareTuples)
	return result, r.undefined
}

// traffic is the workload of the tests.
func traffic() []workload.Packet { return workload.Traffic(20_000, 8_000, 60) }

func tuple(p workload.Packet) Tuple {
	n := func(v int64) Value { return Value{Type: Integer, Int: v} }
	a := func(s string) Value { return Value{Type: Address, Address: netip.MustParseAddr(s)} }
	return Tuple{a(p.Src), a(p.Dst), n(p.Proto), n(p.SrcPort), n(p.DstPort), n(p.Length), n(64), n(p.Flags), n(1000),
		{Type: Text, Text: p.Payload}, n(p.DNSType), n(p.Response), n(p.Flowlet), n(p.Queue)}
}

// TestExamples runs every example query on traffic with every anomaly and compares the result with
// ground truth, and its plan with the golden file.
func TestExamples(t *testing.T) {
	packets := traffic()
	var in Streams
	for _, p := range packets {
		in.Packets = append(in.Packets, tuple(p))
	}
	for _, l := range workload.Losses(packets) {
		in.Losses = append(in.Losses, append(slices.Clone(tuple(l.Flow)[:5]), Value{Type: Text, Text: "leaf-1"},
			Value{Type: Integer, Int: l.Lost}))
	}
	files, err := filepath.Glob("../../../examples/omnimon/queries/*.query")
	if err != nil || len(files) != len(workload.Results) {
		t.Fatalf("%d queries, ground truth of %d, %v", len(files), len(workload.Results), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".query")
		t.Run(name, func(t *testing.T) {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			q, err := Parse(filepath.Base(file), string(source))
			if err != nil {
				t.Fatal(err)
			}
			tuples, undefined := q.Run(in)
			var got []string
			for _, tuple := range tuples {
				got = append(got, tuple.String())
			}
			want := workload.Results[name](packets)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) || undefined != 0 {
				t.Errorf("%d rows, %d undefined, want %d rows\n got %.300q\nwant %.300q", len(got), undefined, len(want), got, want)
			}
			if len(want) == 0 {
				t.Error("the traffic has no such anomaly")
			}
			if split, undefined := distributed(t, q, in); undefined != 0 || !slices.EqualFunc(split, tuples,
				func(a, b Tuple) bool { return compareTuples(a, b) == 0 }) {
				t.Errorf("hosts and collector return %d rows, want %d", len(split), len(tuples))
			}
			golden := filepath.Join("testdata", name+".plan")
			plan := q.Place().String()
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(golden, []byte(plan), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if text, err := os.ReadFile(golden); err != nil || string(text) != plan {
				t.Errorf("plan differs from %s (UPDATE_GOLDEN=1 renews it): %v\n%s", golden, err, plan)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	tests := []struct{ source, want string }{
		{"", `q:1:1: the query has no sequence`},
		{"r = packets.filter(proto == TCP", `q:1:32: expected ")" at the end of filter, found the end of the query`},
		{"r = packets\n  .filter(protocol == TCP)", `q:2:11: unknown field "protocol"; this stream has: src, dst, proto`},
		{"r = packets.filter(src == 5)", `q:1:24: == does not apply to an address and an integer`},
		{"r = packets.filter(length)", `q:1:20: a filter's condition must be a condition, this is an integer`},
		{"r = packets.filtre(proto == TCP)", `q:1:13: unknown operator "filtre"`},
		{"r = packets.map(dst, n = 1).map(src)", `q:1:33: unknown field "src"; this stream has: dst, n`},
		{"r = packets.map(dst, dst = 1)", `q:1:22: two fields have the name "dst"`},
		{"r = packets.reduce(keys=(dst))", `q:1:30: expected an aggregate after the keys`},
		{"r = packets.reduce(keys=(dst), n=avg(length))", `q:1:34: unknown function "avg"`},
		{"r = packets.reduce(keys=(dst), n=sum(dst))", `q:1:38: an aggregate of sum must be an integer, this is an address`},
		{"r = packets.filter(payload contains \"x)", `q:1:37: the string has no closing quote`},
		{"r = packets.filter(src in 10.0.0.0/40)", `q:1:27: "10.0.0.0/40" is neither an address nor a prefix`},
		{"r = packets.filter(dport == 010)", `q:1:29: "010" begins with 0: leave the zeros out`},
		{"r = packets.filter(length > 99999999999999999999)", `q:1:29: "99999999999999999999" is no integer`},
		{"r = packets.filter(proto == TCP)", `q:1:1: the result "r" is a stream of packets`},
		{"r = other.distinct(dst)", `q:1:5: unknown source "other"`},
		{"a = packets.distinct(dst)\na = packets.distinct(src)", `q:2:1: the name "a" is taken`},
		{"a = packets.distinct(dst)\nr = packets.distinct(src).join(a, keys=(dst))",
			`q:2:41: unknown field "dst"; this stream has: src`},
		{"a = packets.distinct(dst)\nr = packets.distinct(dst).join(packets, keys=(dst))", `q:2:32: join needs a sequence`},
		{"a = packets.distinct(dst, n=length)\nr = a.join(a, keys=(dst))", `q:2:12: two fields have the name "n"`},
		{"a = packets.distinct(dst)\nr = a.join(b, keys=(dst))", `q:2:12: unknown sequence "b"`},
		{"r = packets.distinct(x = length > 5)", `q:1:33: a field cannot be a condition`},
		{"r = packets.distinct(x = dport + 4 / (1 - 1))", `q:1:36: division by zero`},
		{strings.Repeat("#", 1<<17), `q:1:1: a query of 131072 bytes: at most 65536`},
		{"r = packets.filter(src == fe80::1::2).distinct(src)", `q:1:27: "fe80::1::2" is neither an address`},
		{"r = packets ; .distinct(dst)", `q:1:13: unexpected character ';'`},
		{"r = packets.filter(" + strings.Repeat("(", 200), `the expression is nested more than 100 levels deep`},
	}
	for _, tc := range tests {
		if _, err := Parse("q", tc.source); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q:\n got %v\nwant %s", tc.source, err, tc.want)
		}
	}
}

func TestPlacement(t *testing.T) {
	tests := []struct {
		query, reason string
		place         Place
		entries       int
	}{
		{"packets.distinct(dst, dport).reduce(keys=(dst), n=count())", "without src", Hosts, 0},
		{"packets.map(a = src, b = dport).distinct(b).reduce(keys=(b), n=count())", "without src", Hosts, 0},
		{"packets.reduce(keys=(dst), n=count())", "updates values only", Switches, 1},
		{"packets.filter(proto == TCP && (dport == 80 || dport == 443)).reduce(keys=(dst), n=count())", "updates", Switches,
			2},
		{"packets.filter(!(proto == TCP && dport == 80)).reduce(keys=(dst), n=count())", "updates", Switches, 4},
		{"packets.filter((flags & 18) != 2).reduce(keys=(dst), n=count())", "updates", Switches, 2},
		{"packets.filter(src in 10.0.0.0/8).map(d = dst, l = length).reduce(keys=(d), n=sum(l), m=sum(2))", "updates",
			Switches, 1},
		{"packets.map(a = src, b = dport).distinct(b, c = a).reduce(keys=(c), n=count())", "has distinct", Hosts, 0},
		{"packets.filter(flags == (SYN | 2 * 8)).reduce(keys=(dst), n=sum(3 - 1))", "updates", Switches, 1},
		{"packets.reduce(keys=(ttl), n=count())", "groups by ttl, which is not in the flow key", Hosts, 0},
		{"packets.reduce(keys=(dst), n=max(length))", "max is not additive", Hosts, 0},
		{"packets.reduce(keys=(dst), n=sum(length * 8))", "adds up the result of *", Hosts, 0},
		{"packets.filter(payload contains \"x\").reduce(keys=(dst), n=count())", "payload is known to hosts only", Hosts, 0},
		{"packets.filter(src in fe80::/10 || dst == ::1 || src == 10.0.0.1).reduce(keys=(dst), n=count())", "updates",
			Switches, 3},
		{"packets.filter(length == ttl).reduce(keys=(dst), n=count())", "compares two fields", Hosts, 0},
		{"packets.filter(length + ttl > 5).reduce(keys=(dst), n=count())", "compares the result of an expression", Hosts, 0},
		{"losses.reduce(keys=(dst), n=sum(lost))", "losses are inferred", Collector, 0},
	}
	for _, tc := range tests {
		q, err := Parse("q", "r = "+tc.query)
		if err != nil {
			t.Fatal(err)
		}
		s := q.Place().Steps[0]
		if s.Place != tc.place || !strings.Contains(s.Reason, tc.reason) || s.Entries != tc.entries {
			t.Errorf("%s: at %s, %q, %d entries; want %+v", tc.query, s.Place, s.Reason, s.Entries, tc)
		}
		if s.Place == Hosts && (strings.Contains(s.Reason, "without src") == (s.Local == len(s.Operators))) {
			t.Errorf("%s: %d of %d operators at the hosts, %q", tc.query, s.Local, len(s.Operators), s.Reason)
		}
	}
}

// TestSequencesOverPackets: a sequence that only filters and maps packets becomes a part of the
// sequences that read it. It is a step of its own only if a join reads it.
func TestSequencesOverPackets(t *testing.T) {
	for text, want := range map[string]string{
		`tcp = packets.filter(proto == TCP).map(d = dst, l = length)
			long = tcp.filter(l > 60)
			sizes = long.reduce(keys=(d), n=sum(l))
			r = tcp.reduce(keys=(d), c=count()).join(sizes, keys=(d)).distinct(d)`: "sizes r",
		`tcp = packets.filter(proto == TCP).map(d = dst, l = length)
			sizes = tcp.reduce(keys=(d), n=sum(l))
			counts = tcp.reduce(keys=(d), m=count())
			r = sizes.join(counts, keys=(d)).filter(n > m)`: "sizes counts r",
		`tcp = packets.filter(proto == TCP).map(d = dst, l = length)
			sizes = packets.reduce(keys=(dst), n=sum(length)).map(d = dst, n)
			r = sizes.join(tcp, keys=(d))`: "tcp sizes r",
	} {
		q, err := Parse("q", text)
		if err != nil {
			t.Fatal(err)
		}
		plan := q.Place()
		var names []string
		for _, s := range plan.Steps {
			names = append(names, s.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("steps %s, want %s", got, want)
		}
		r := rand.New(rand.NewPCG(1, 2))
		var packets []Tuple
		for range 200 {
			packet := make(Tuple, len(packetFields))
			for i, f := range packetFields {
				if packet[i].Type = f.Type; f.Type == Address {
					packet[i].Address = netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(4))})
				} else if f.Type == Integer {
					packet[i].Int = int64(r.IntN(100))
				}
			}
			packet[2].Int = int64(6 + r.IntN(2))
			packets = append(packets, packet)
		}
		parts := map[string][]Tuple{}
		for i := range plan.Steps {
			if s := &plan.Steps[i]; s.Source == "packets" {
				l := s.Start(1000)
				for _, packet := range packets {
					l.Add(packet)
				}
				parts[s.Name], _, _ = l.Result()
			}
		}
		got, _ := plan.Finish(parts, nil)
		if want, _ := q.Run(Streams{Packets: packets}); !slices.EqualFunc(got, want, slices.Equal[Tuple]) || len(got) == 0 {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestFit(t *testing.T) {
	q, err := Parse("q", "r = packets.filter(dport == 80 || dport == 443).reduce(keys=(dst), n=count(), b=sum(length))")
	if err != nil {
		t.Fatal(err)
	}
	plan := q.Place()
	left, err := plan.Fit(Units{Arrays: 3, Entries: 10})
	if err != nil || left != (Units{1, 6}) {
		t.Errorf("left %+v, %v", left, err)
	}
	if _, err := plan.Fit(left); err == nil || !strings.Contains(err.Error(), "2 statistic arrays and 4 filter entries; "+
		"1 and 6 are free") {
		t.Errorf("%v", err)
	}
}

func TestDivisionByZeroLeavesTheTupleOut(t *testing.T) {
	q, err := Parse("q", "r = losses.map(dst, x = 10 / lost).filter(x > 0)")
	if err != nil {
		t.Fatal(err)
	}
	in := Streams{Losses: []Tuple{}}
	for _, n := range []int64{0, 5} {
		in.Losses = append(in.Losses, append(tuple(workload.Packet{Src: "::1", Dst: "::2"})[:5:5], Value{Type: Text},
			Value{Type: Integer, Int: n}))
	}
	if rows, undefined := q.Run(in); len(rows) != 1 || rows[0][1].Int != 2 || undefined != 1 {
		t.Errorf("%v, %d undefined", rows, undefined)
	}
}

// FuzzParse: a query that parses prints operators that parse again to the same plan.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("../../../examples/omnimon/queries/*.query")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(source))
	}
	f.Fuzz(func(t *testing.T, source string) {
		q, err := Parse("q", source)
		if err != nil {
			return
		}
		var again strings.Builder
		for _, s := range q.Sequences {
			fmt.Fprintf(&again, "%s = %s", s.Name, s.Source)
			for _, o := range s.Operators {
				fmt.Fprintf(&again, ".%v", o)
			}
			again.WriteByte('\n')
		}
		q2, err := Parse("q", again.String())
		if err != nil {
			t.Fatalf("%q: printed as %q: %v", source, again.String(), err)
		}
		if a, b := q.Place().String(), q2.Place().String(); a != b {
			t.Errorf("%q: plan %q, printed and parsed again %q", source, a, b)
		}
		q.Run(Streams{})
	})
}

// distributed runs a query at its places: each packet at the host that sent it.
func distributed(t *testing.T, q *Query, in Streams) (result []Tuple, undefined int) {
	t.Helper()
	plan, parts := q.Place(), map[string][]Tuple{}
	for i := range plan.Steps {
		s := &plan.Steps[i]
		if s.Source != "packets" {
			continue
		}
		hosts := map[netip.Addr]*Local{}
		for _, p := range in.Packets {
			l := hosts[p[0].Address]
			if l == nil {
				l = s.Start(1 << 16)
				hosts[p[0].Address] = l
			}
			l.Add(p)
		}
		for _, l := range hosts {
			tuples, undefined, dropped := l.Result()
			back, err := s.DecodeTuples(AppendTuples(nil, tuples))
			if err != nil || undefined != 0 || dropped != 0 {
				t.Fatalf("%s: %v, %d undefined, %d dropped", s.Name, err, undefined, dropped)
			}
			parts[s.Name] = append(parts[s.Name], back...)
		}
	}
	return plan.Finish(parts, in.Losses)
}

// Tuples above the limit are counted.
func TestLimit(t *testing.T) {
	q, err := Parse("test", "x = packets.distinct(dst, src)")
	if err != nil {
		t.Fatal(err)
	}
	l := q.Place().Steps[0].Start(10)
	for _, p := range traffic()[:100] {
		l.Add(tuple(p))
	}
	if tuples, _, dropped := l.Result(); len(tuples) != 10 || dropped == 0 {
		t.Errorf("%d tuples, %d dropped", len(tuples), dropped)
	}
}

func FuzzTuples(f *testing.F) {
	q, err := Parse("test", "x = packets.distinct(src, payload, length)")
	if err != nil {
		f.Fatal(err)
	}
	s := &q.Place().Steps[0]
	p := tuple(traffic()[0])
	f.Add(AppendTuples(nil, []Tuple{{p[0], p[9], p[5]}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		tuples, err := s.DecodeTuples(data)
		if err != nil {
			return
		}
		again, err := s.DecodeTuples(AppendTuples(nil, tuples))
		if err != nil || len(again) != len(tuples) {
			t.Errorf("%d tuples, then %d, %v", len(tuples), len(again), err)
		}
	})
}
