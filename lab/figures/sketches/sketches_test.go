// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"bytes"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/sketch/fermat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func small(t *testing.T, spec string) *Trace {
	t.Helper()
	tr, err := Load(spec, 100_000, 3)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// TestSuites runs every figure on a small trace: rows are complete and finite, each plot
// of a figure has rows and is well-formed, the page names it, and a second run gives the
// same rows, but for times and speeds.
func TestSuites(t *testing.T) {
	tr, err := Load("zipf:1.1", 40_000, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range Suites() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			o := Options{Seed: 1, Runs: 1, Decodings: 20}
			rows, err := s.Run(t.Context(), tr, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rows {
				if r.Structure == "" || r.Variant == "" || r.Task == "" || r.Metric == "" || r.Unit == "" ||
					r.Trace == "" || math.IsNaN(r.Value) || math.IsInf(r.Value, 0) {
					t.Errorf("%+v", r)
				}
			}
			page := s.Page(rows, "command")
			if strings.Contains(page, "%!") || len(rows) > 0 && strings.Contains(page, "NaN") {
				t.Errorf("page: %s", page)
			}
			for _, p := range s.Plots {
				svg := p.SVG(rows)
				// whose losses need more flows than this trace has
				if svg == nil && !strings.HasPrefix(s.Name, "chamelemon-") {
					t.Errorf("plot %s has no rows", p.File)
				}
				if svg == nil {
					continue
				}
				for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
					if _, err := d.Token(); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						t.Fatalf("plot %s: %v", p.File, err)
					}
				}
				if strings.Contains(string(svg), "NaN") || !strings.Contains(page, p.File+".svg") {
					t.Errorf("plot %s", p.File)
				}
			}
			if s.Name == "speed" {
				return
			}
			again, err := s.Run(t.Context(), tr, o)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(repeatable(rows), repeatable(again)); d != "" {
				t.Errorf("another run differs: %s", d)
			}
		})
	}
}

// repeatable are the rows that come out the same each time.
func repeatable(rows []Row) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Unit == "ms" || r.Unit == "Mpackets/s" })
}

// TestOrderings: with the same memory the errors of flow sizes are in the papers' order,
// TowerCU < TowerCM < CU < SuMax < CM, on Zipf 0.8 to 1.4. The distances are many times what a
// run differs by (about 3 %).
func TestOrderings(t *testing.T) {
	for _, spec := range []string{"zipf:0.8", "zipf:1.1", "zipf:1.4"} {
		tr := small(t, spec)
		memory := 6 * tr.Flows() // some 6 bytes a flow, as 900 KB for the paper's 170,000
		last, name := 0.0, ""
		for _, k := range []kind{towerKind(true, "TowerCU"), towerKind(false, "TowerCM"), countMin(true, "CU"),
			sumaxKind(), countMin(false, "CM")} {
			rows, err := k.accuracy(tr, memory, 1, papers)
			if err != nil {
				t.Fatal(err)
			}
			if are := rows[0].Value; are <= last {
				t.Errorf("%s: ARE of %s is %.4f, of %s %.4f", spec, k.name, are, name, last)
			} else {
				last, name = are, k.name
			}
		}
	}
}

// scaled measures structures on 200,000 packets with the bytes a flow that they have in a figure at
// this memory; the tasks' errors differ a little for that, their orders do not.
func scaled(t *testing.T, memory int, sources bool, kinds ...kind) Values {
	t.Helper()
	tr, err := Load("zipf:1.1", 200_000, 5)
	if err != nil {
		t.Fatal(err)
	}
	if sources {
		tr = tr.Sources()
	}
	rows, err := accuracy(t.Context(), tr, Options{Seed: 1, Runs: 3}, kinds, []int{memory * tr.Flows() / 124_041},
		sixTasks)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		rows[i].Memory = memory
	}
	return rows
}

// TestKeyOrders: the orders that the figures are about hold on a tenth of the traffic with a tenth
// of the memory.
func TestKeyOrders(t *testing.T) {
	v := scaled(t, 600_000, false, countMin(false, "CM"), countMin(true, "CU"), towerKind(false, "TowerCM"),
		towerKind(true, "TowerCU"), elasticKind())
	c := scaled(t, 400_000, true, towerFermat[fermat.Prime32](), countMin(false, "CM"), countMin(true, "CU"),
		univmonKind(), elasticSwitch(), fcmKind(), coco(), mrac())
	for _, tc := range []struct {
		v            Values
		memory       int
		task, metric string
		order        []string // the best first
		factor       float64  // by which each is better than the next, at the least
	}{
		{v, 600_000, "flow size", "ARE", []string{"TowerCU", "TowerCM", "Elastic", "CU", "CM"}, 1.2},
		{v, 600_000, "flow size", "AAE", []string{"TowerCU", "TowerCM", "CU", "CM"}, 1.2},
		{v, 600_000, "flow size distribution", "WMRE", []string{"TowerCU", "CU"}, 2},
		{v, 600_000, "entropy", "RE", []string{"TowerCU", "CU"}, 2},
		{c, 400_000, "flow size", "ARE", []string{"Tower+Fermat", "CU", "CM"}, 1.2},
		{c, 400_000, "flow size", "ARE", []string{"Tower+Fermat", "Elastic"}, 1.1},
		{c, 400_000, "flow size distribution", "WMRE", []string{"Tower+Fermat", "MRAC"}, 1},
		{c, 400_000, "cardinality", "RE", []string{"Tower+Fermat", "UnivMon"}, 1},
	} {
		for i := range tc.order[1:] {
			better, worse := tc.v.Get(tc.order[i], tc.memory, tc.task, tc.metric),
				tc.v.Get(tc.order[i+1], tc.memory, tc.task, tc.metric)
			if !(better*tc.factor <= worse) {
				t.Errorf("%s %s: %s %.5f, %s %.5f", tc.task, tc.metric, tc.order[i], better, tc.order[i+1], worse)
			}
		}
	}
	for _, name := range []string{"UnivMon", "Coco"} {
		if ours, theirs := c.Get("Tower+Fermat", 400_000, "heavy hitters", "F1"),
			c.Get(name, 400_000, "heavy hitters", "F1"); ours < 0.99 || theirs > ours {
			t.Errorf("heavy hitters: Tower+Fermat %.4f, %s %.4f", ours, name, theirs)
		}
	}
}

// TestFigures500KB: Tower+Fermat on the figures' trace and memory, compared with the authors': flow
// size ARE 0.421, AAE 0.659, heavy hitters F1 0.997, cardinality RE 0.0037, WMRE 0.036,
// entropy RE 0.0077. The seeds are fixed; AAE is
// allowed 3 % for another draw of the trace.
func TestFigures500KB(t *testing.T) {
	if testing.Short() {
		t.Skip("two million packets")
	}
	tr, err := Load("zipf:1.1", 2_000_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := towerFermat[fermat.Prime32]().accuracy(tr, 500<<10, 1, papers)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		t.Logf("%s %s %.5f", r.Task, r.Metric, r.Value)
		limit, ok := map[string]float64{
			"flow size ARE": 0.421, "flow size AAE": 0.68, "cardinality RE": 0.006,
			"flow size distribution WMRE": 0.036, "entropy RE": 0.0077,
		}[r.Task+" "+r.Metric]
		if ok && r.Value > limit || r.Metric == "F1" && r.Value < 0.967 {
			t.Errorf("%s %s: %.5f", r.Task, r.Metric, r.Value)
		}
	}
}

// TestLeast: the least memory at which 99.9 % decode follows from probability. Two of n flows meet
// in all three rows of M buckets with probability n²/2·(3/M)³ (which comes to 24·n^(2/3) buckets
// for 0.1 %). 10,000 tries measure 0.1 % to 0.03 %, and so the memory to 10 %; the limits are two
// and a half of that.
func TestLeast(t *testing.T) {
	r := &recorders[0]
	for _, tc := range []struct {
		flows  int
		lo, hi float64 // of 24·n^(2/3) buckets
	}{{30, 0.75, 1.25}} {
		l := losses{}
		for i := range tc.flows {
			l.flows = append(l.flows, Flow{Key: string(binary.BigEndian.AppendUint32(nil, uint32(i)*2654435761)),
				Packets: 100})
			l.lost = append(l.lost, 3)
		}
		o := Options{Seed: 1, Decodings: 10_000}
		if n := r.tries(l, o); n != 10_000 {
			t.Fatalf("%d tries", n)
		}
		memory, err := r.least(t.Context(), l, o)
		if err != nil {
			t.Fatal(err)
		}
		want := 24 * math.Pow(float64(tc.flows), 2./3) * 8
		t.Logf("%d flows: %d bytes, probability requires %.0f", tc.flows, memory, want)
		if x := float64(memory) / want; x < tc.lo || x > tc.hi {
			t.Errorf("%d flows: %d bytes, probability requires %.0f", tc.flows, memory, want)
		}
	}
	l := losses{flows: []Flow{{Key: "abcd", Packets: 100_000}}, lost: []uint32{70_000}}
	if memory, err := recorders[2].least(t.Context(), l, Options{Seed: 1, Decodings: 20}); err != nil || memory != 0 {
		t.Errorf("LossRadar, 70,000 packets of one flow: %d bytes (%v), want none", memory, err)
	}
}

func TestBracket(t *testing.T) {
	for _, limit := range []int{300, 5000, 100_000, 3_000_000} {
		lo, hi, err := bracket(256, 1<<22, func(m int) (bool, error) { return m >= limit, nil })
		if err != nil || lo >= limit || hi < limit || float64(hi) > 1.03*float64(limit)+16 {
			t.Errorf("limit %d: %d to %d (%v)", limit, lo, hi, err)
		}
	}
	if _, hi, err := bracket(256, 1<<20, func(int) (bool, error) { return false, nil }); err != nil || hi != 0 {
		t.Errorf("nothing is enough: %d (%v)", hi, err)
	}
	if _, _, err := bracket(256, 1<<20, func(int) (bool, error) { return false, io.ErrClosedPipe }); !errors.Is(err,
		io.ErrClosedPipe) {
		t.Errorf("%v", err)
	}
}

// TestMixedTrace: a capture keeps its IPv6 flows. All keys then have 37 bytes, IPv4 addresses are
// mapped, and every structure counts both.
func TestMixedTrace(t *testing.T) {
	const name = "../../../../shared/traces/mixed-165k.pcap.gz"
	if _, err := os.Stat(name); err != nil {
		t.Skip("needs the shared capture: ", err)
	}
	tr, err := Load("pcap:"+name, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if tr.KeyBytes() != 37 || tr.Left.IPv6 == 0 || tr.Left.Out == 0 || tr.Len()+tr.Left.Out != 164_600 ||
		!strings.Contains(tr.Name, "5984 packets of IPv6, 4552 left out") {
		t.Fatalf("%d packets, keys of %d bytes, %+v", tr.Len(), tr.KeyBytes(), tr.Left)
	}
	t.Logf("%d packets, %d flows, %+v", tr.Len(), tr.Flows(), tr.Left)
	for i := range tr.Len() {
		k := tr.Key(i)
		if back := tr.appendKey(nil, tr.parse(k)); !bytes.Equal(back, k) {
			t.Fatalf("packet %d: %x comes back as %x", i, k, back)
		}
	}
	s := tr.Sources()
	if s.KeyBytes() != 16 || s.Flows() >= tr.Flows() {
		t.Errorf("%d sources of %d bytes", s.Flows(), s.KeyBytes())
	}
	for _, k := range []kind{countMin(true, "CU"), towerKind(true, "TowerCU"), towerFermat[fermat.Prime32](),
		univmonKind(), elasticSwitch(), fcmKind(), hashPipe(), coco(), countHeap()} {
		for _, on := range []*Trace{tr, s} {
			rows, err := k.accuracy(on, 2_000_000, 1, papers)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rows {
				if r.Task == "heavy hitters" && r.Metric == "F1" && r.Value < 0.9 {
					t.Errorf("%s, keys of %d bytes: F1 %.3f", k.name, on.KeyBytes(), r.Value)
				}
			}
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	good := write("good", "# sizes\n1 0.5\n10 0.9\n1000 1\n")
	tr := small(t, "cdf:"+good)
	if tr.Len() != 100_000 || tr.Flows() < 1000 || len(tr.flows) != tr.Flows() {
		t.Errorf("%d packets, %d flows", tr.Len(), tr.Flows())
	}
	again := small(t, "cdf:"+good)
	if !bytes.Equal(tr.keys, again.keys) {
		t.Error("the same seed gives other packets")
	}
	for _, spec := range []string{
		"", "zipf", "zipf:x", "zipf:-1", "zipf:NaN", "cdf:", "cdf:" + dir, "cdf:" + write("a", "5 0.5\n4 1\n"),
		"cdf:" + write("b", "5 0.5\n"), "cdf:" + write("c", "x y\n"),
		"cdf:" + write("d", "0 1\n"), "cdf:" + write("e", "NaN 1\n"), "pcap:" + good, "records:" + good,
		"records:" + write("f", ""), "other:1",
	} {
		if _, err := Load(spec, 1000, 1); err == nil {
			t.Errorf("%q: no error", spec)
		}
	}
	if _, err := Load("zipf:1", 0, 1); err == nil {
		t.Error("no packets, no error")
	}
	if _, err := Select([]string{"no-such"}); err == nil {
		t.Error("a figure that does not exist")
	}
}

func TestReadRecords(t *testing.T) {
	var b []byte
	for i := range 10 {
		b = append(b, "thirteenbytes"...)
		b = binary.LittleEndian.AppendUint64(b, uint64(1000+i))
	}
	tr, err := ReadRecords("x", bytes.NewReader(b))
	if err != nil || tr.Len() != 10 || tr.Flows() != 1 || tr.at[9] != 10 {
		t.Fatalf("%+v %v", tr, err)
	}
	if _, err := ReadRecords("x", bytes.NewReader(b[:50])); !errors.Is(err, io.ErrUnexpectedEOF) ||
		!strings.Contains(err.Error(), "record 2") {
		t.Errorf("cut: %v", err)
	}
}

func TestCSV(t *testing.T) {
	var b bytes.Buffer
	if err := WriteCSV(&b, []Row{{"A", "b, c", 5, "t", "m", 0.25, "u", "x"}}); err != nil {
		t.Fatal(err)
	}
	if want := "structure,variant,memory,task,metric,value,unit,trace\nA,\"b, c\",5,t,m,0.25,u,x\n"; b.String() != want {
		t.Errorf("%q", b.String())
	}
}

func FuzzReadRecords(f *testing.F) {
	f.Add(make([]byte, 42))
	f.Fuzz(func(t *testing.T, b []byte) {
		if tr, err := ReadRecords("x", bytes.NewReader(b)); err == nil && tr.Len() != len(b)/21 {
			t.Errorf("%d packets of %d bytes", tr.Len(), len(b))
		}
	})
}
