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
)

// sample is a packet or loss of the test traffic in Go, for ground truth.
type sample struct {
	src, dst                                             string
	proto, sport, dport, length, flags, rrType, response int64
	flowlet, queue                                       int64
	payload                                              string
}

func (p sample) tuple() Tuple {
	n := func(v int64) Value { return Value{Type: Integer, Int: v} }
	a := func(s string) Value { return Value{Type: Address, Address: netip.MustParseAddr(s)} }
	return Tuple{a(p.src), a(p.dst), n(p.proto), n(p.sport), n(p.dport), n(p.length), n(64), n(p.flags), n(1000),
		{Type: Text, Text: p.payload}, n(p.rrType), n(p.response), n(p.flowlet), n(p.queue)}
}

func (p sample) flow() string {
	return fmt.Sprintf("%s %s %d %d %d", p.src, p.dst, p.proto, p.sport, p.dport)
}

// traffic is background traffic with every anomaly that the example queries look for.
func traffic() (packets []sample) {
	r := rand.New(rand.NewPCG(8, 8))
	host := func(n int) string { return fmt.Sprintf("10.0.%d.%d", n/200, n%200+1) }
	add := func(n int, make func(i int) sample) {
		for i := range n {
			packets = append(packets, make(i))
		}
	}
	add(20_000, func(int) sample {
		flags := []int64{2, 18, 16, 16, 16, 24, 17}[r.IntN(7)]
		return sample{src: host(r.IntN(60)), dst: host(r.IntN(60)), proto: []int64{6, 6, 17}[r.IntN(3)],
			sport: 1000 + r.Int64N(9),
			dport: []int64{80, 443, 53}[r.IntN(3)], length: 40 + r.Int64N(1400), flags: flags, flowlet: r.Int64N(3),
			queue: r.Int64N(49)}
	})
	for i := range packets {
		if packets[i].proto == 17 {
			packets[i].flags = 0
		}
	}
	tcp := func(src, dst string, sport, dport, length, flags int64) sample {
		return sample{src: src, dst: dst, proto: 6, sport: sport, dport: dport, length: length, flags: flags}
	}
	add(90, func(i int) sample {
		return tcp(host(300+i), "10.9.0.1", 5000, 80, 40, 2)
	}) // new connections, SYN flood
	add(90, func(i int) sample { return tcp("10.9.0.1", host(300+i), 80, 5000, 40, 18) })      // its answers
	add(3, func(i int) sample { return tcp(host(300+i), "10.9.0.1", 5000, 80, 40, 16) })       // few complete
	add(2, func(i int) sample { return tcp(host(300+i), "10.9.0.1", 5000, 80, 40, 17) })       // fewer end
	add(70, func(i int) sample { return tcp(host(500+i), "10.9.0.2", 22, 22, 120, 24) })       // SSH
	add(80, func(i int) sample { return tcp("10.9.0.3", "10.9.0.4", 999, int64(i+1), 40, 2) }) // port scan
	add(60, func(i int) sample { return tcp(host(700), "10.9.0.5", int64(i), 80, 44, 24) })    // slowloris
	add(50, func(i int) sample { return tcp(host(800), "10.9.0.6", 7, 23, 52, 24) })           // telnet probes
	add(70, func(i int) sample { return tcp(host(801), "10.9.0.7", 7, 23, 52, 24) })           // without command
	add(30, func(i int) sample { return tcp(host(900+i), "10.9.0.8", 7, 80, 40, []int64{2, 17}[i%2]) })
	add(60, func(i int) sample { return tcp(host(900+i/2), "10.9.0.9", 7, 80, 40, []int64{2, 17}[i%2]) })
	add(1, func(int) sample { p := tcp(host(800), "10.9.0.6", 7, 23, 60, 24); p.payload = "sh zorro"; return p })
	add(40, func(i int) sample { p := tcp(host(5), "10.9.0.10", int64(i), 80, 1500, 16); p.queue = 60; return p })
	add(150, func(i int) sample {
		return sample{src: "10.9.0.11", dst: host(3), proto: 17, sport: 53, dport: 3333, length: 90, response: 1, rrType: 1}
	})
	add(60, func(i int) sample {
		return sample{src: "10.9.0.12", dst: host(4), proto: 17, sport: 53, dport: 3333, length: 1400, response: 1,
			rrType: 46}
	})
	return packets
}

// loss is a loss of the test traffic.
type loss struct {
	flow sample
	lost int64
}

func losses(packets []sample) (out []loss) {
	for i, p := range packets[:4000] {
		if i%40 == 0 {
			out = append(out, loss{p, int64(i%3) + 1})
		}
	}
	return out
}

type counts map[string]int64

// count adds up f over all packets by the key that it returns; an empty key leaves a packet out.
func count(packets []sample, f func(p sample) (key string, n int64)) counts {
	c := counts{}
	for _, p := range packets {
		if k, n := f(p); k != "" {
			c[k] += n
		}
	}
	return c
}

// distinct counts different second results by the first one.
func distinct(packets []sample, f func(p sample) (key, member string)) counts {
	seen, c := map[[2]string]bool{}, counts{}
	for _, p := range packets {
		if k, m := f(p); k != "" && !seen[[2]string{k, m}] {
			seen[[2]string{k, m}] = true
			c[k]++
		}
	}
	return c
}

func (c counts) above(n int64) (rows []string) {
	for k, v := range c {
		if v > n {
			rows = append(rows, fmt.Sprintf("%s %d", k, v))
		}
	}
	return rows
}

func when(ok bool, key string) string {
	if ok {
		return key
	}
	return ""
}

// groundTruth computes the result of each example query in Go, without the query language.
var groundTruth = map[string]func(packets []sample) []string{
	"new-tcp-connections": func(ps []sample) []string { return syns(ps).above(40) },
	"ssh-brute-force": func(ps []sample) []string {
		return distinct(ps, func(p sample) (string, string) {
			return when(p.proto == 6 && p.dport == 22, fmt.Sprintf("%s %d", p.dst, p.length)), p.src
		}).above(40)
	},
	"superspreader": func(ps []sample) []string {
		return distinct(ps, func(p sample) (string, string) { return p.src, p.dst }).above(40)
	},
	"port-scan": func(ps []sample) []string {
		return distinct(ps, func(p sample) (string, string) {
			return when(p.proto == 6, p.src), fmt.Sprint(p.dport)
		}).above(40)
	},
	"ddos": func(ps []sample) []string {
		return distinct(ps, func(p sample) (string, string) { return p.dst, p.src }).above(40)
	},
	"syn-flood": func(ps []sample) (rows []string) {
		s := syns(ps)
		answers := count(ps, func(p sample) (string, int64) { return when(p.proto == 6 && p.flags == 18, p.src), 1 })
		acks := count(ps, func(p sample) (string, int64) { return when(p.proto == 6 && p.flags == 16, p.dst), 1 })
		for host, n := range s {
			if open := n + answers[host] - 2*acks[host]; open > 40 && answers[host] > 0 && acks[host] > 0 {
				rows = append(rows, fmt.Sprintf("%s %d", host, open))
			}
		}
		return rows
	},
	"tcp-incomplete-flows": func(ps []sample) (rows []string) {
		f := fins(ps)
		for host, n := range syns(ps) {
			if f[host] > 0 && n-f[host] > 40 {
				rows = append(rows, fmt.Sprintf("%s %d", host, n-f[host]))
			}
		}
		return rows
	},
	"completed-flows": func(ps []sample) (rows []string) {
		f := fins(ps)
		for host, n := range syns(ps) {
			if n > 20 && 10*f[host] >= 9*n {
				rows = append(rows, fmt.Sprintf("%s %d %d", host, n, f[host]))
			}
		}
		return rows
	},
	"slowloris": func(ps []sample) (rows []string) {
		flows := distinct(ps, func(p sample) (string, string) {
			return when(p.proto == 6, p.dst), fmt.Sprint(p.src, p.sport)
		})
		for host, n := range count(ps, func(p sample) (string, int64) { return when(p.proto == 6, p.dst), p.length }) {
			if flows[host] > 40 && n/flows[host] < 100 {
				rows = append(rows, fmt.Sprintf("%s %d", host, n/flows[host]))
			}
		}
		return rows
	},
	"zorro": func(ps []sample) []string {
		probes := count(ps, func(p sample) (string, int64) {
			return when(p.proto == 6 && p.dport == 23, fmt.Sprintf("%s %d", p.dst, p.length)), 1
		})
		hosts := counts{}
		for k, n := range probes {
			host, _, _ := strings.Cut(k, " ")
			for _, p := range ps {
				if n > 40 && p.dst == host && p.dport == 23 && strings.Contains(p.payload, "zorro") {
					hosts[host] = 1
				}
			}
		}
		var rows []string
		for host := range hosts {
			rows = append(rows, host)
		}
		return rows
	},
	"packet-counts": func(ps []sample) []string {
		return count(ps, func(p sample) (string, int64) { return p.flow(), 1 }).above(0)
	},
	"flowlet-size-histogram": func(ps []sample) []string {
		c := counts{}
		for _, n := range count(ps, func(p sample) (string, int64) { return fmt.Sprint(p.flow(), " ", p.flowlet), 1 }) {
			c[fmt.Sprint(n)]++
		}
		return c.above(0)
	},
	"cardinality": func(ps []sample) []string {
		c := counts{}
		for _, p := range ps {
			c[p.flow()] = 1
		}
		return []string{fmt.Sprint(len(c))}
	},
	"lossy-connections": func(ps []sample) (rows []string) {
		sent := count(ps, func(p sample) (string, int64) { return p.flow(), 1 })
		lost := counts{}
		for _, l := range losses(ps) {
			lost[l.flow.flow()] += l.lost
		}
		for k, n := range lost {
			if 100*n > sent[k] {
				rows = append(rows, fmt.Sprintf("%s %d %d", k, sent[k], n))
			}
		}
		return rows
	},
	"tcp-incast": func(ps []sample) []string {
		return count(ps, func(p sample) (string, int64) { return when(p.proto == 6 && p.queue > 48, p.dst), 1 }).above(20)
	},
	"dns-tunneling": func(ps []sample) (rows []string) {
		opened := count(ps, func(p sample) (string, int64) { return when(p.proto == 6 && p.flags == 2, p.src), 1 })
		for host, n := range count(ps, func(p sample) (string, int64) {
			return when(p.proto == 17 && p.sport == 53, p.dst), 1
		}) {
			if opened[host] > 0 && n-opened[host] > 40 {
				rows = append(rows, fmt.Sprintf("%s %d", host, n-opened[host]))
			}
		}
		return rows
	},
	"reflection-dns": func(ps []sample) []string {
		return count(ps, func(p sample) (string, int64) {
			return when(p.proto == 17 && p.sport == 53 && p.response == 1 && p.rrType == 46, p.dst), 1
		}).above(40)
	},
}

func syns(ps []sample) counts {
	return count(ps, func(p sample) (string, int64) { return when(p.proto == 6 && p.flags == 2, p.dst), 1 })
}

func fins(ps []sample) counts {
	return count(ps, func(p sample) (string, int64) { return when(p.proto == 6 && p.flags&1 == 1, p.dst), 1 })
}

// TestExamples runs every example query on traffic with every anomaly and compares the result with
// ground truth, and its plan with the golden file.
func TestExamples(t *testing.T) {
	packets := traffic()
	var in Streams
	for _, p := range packets {
		in.Packets = append(in.Packets, p.tuple())
	}
	for _, l := range losses(packets) {
		in.Losses = append(in.Losses, append(slices.Clone(l.flow.tuple()[:5]), Value{Type: Text, Text: "leaf-1"},
			Value{Type: Integer, Int: l.lost}))
	}
	files, err := filepath.Glob("../../../examples/omnimon/queries/*.query")
	if err != nil || len(files) != len(groundTruth) {
		t.Fatalf("%d queries, ground truth of %d, %v", len(files), len(groundTruth), err)
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
				var words []string
				for _, v := range tuple {
					words = append(words, v.String())
				}
				got = append(got, strings.Join(words, " "))
			}
			want := groundTruth[name](packets)
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
		in.Losses = append(in.Losses, append(sample{src: "::1", dst: "::2"}.tuple()[:5:5], Value{Type: Text},
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
		l.Add(p.tuple())
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
	p := traffic()[0].tuple()
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
