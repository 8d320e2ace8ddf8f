// SPDX-License-Identifier: Apache-2.0

package switches

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/internal/test/switchtest"
	"github.com/netsketch/netsketch/lab/evidence"
	"github.com/netsketch/netsketch/lab/traffic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "record BMv2's results in testdata, and write docs/evidence/parity.md")

const packets = 50_000

// mixed returns packets evenly taken from all of the shared trace, broken ones among
// them, in their order; nil where the trace is not there.
func mixed(t *testing.T) []arrival {
	t.Helper()
	const total = 164_600
	trace, err := traffic.OpenTrace(filepath.Join("..", "..", "..", "..", "shared", "traces", "mixed-165k.pcap.gz"),
		nil, false)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	var out []arrival
	for i := 0; len(out) < packets; i++ {
		p, err := trace.Next()
		if err != nil {
			t.Fatal(err)
		}
		if i*packets/total >= len(out) {
			out = append(out, arrival{uint32(1 + len(out)%7), bytes.Clone(p.Frame)})
		}
	}
	return out
}

// generated returns packets made from a seed.
func generated(t *testing.T) (out []arrival) {
	t.Helper()
	host := func(n int) traffic.Host {
		return traffic.Host{V4: netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", n)),
			V6: netip.MustParsePrefix(fmt.Sprintf("fd00:0:0:%d::/64", n))}
	}
	s, err := traffic.Generate(
		traffic.Generated{Name: "parity", Seed: 3, Rate: 10_000, Flows: 20_000, Zipf: 1.05, V6Share: 0.3, UDP: 0.2,
			Bytes: 128, Until: 10 * time.Second},
		[]traffic.Host{host(0), host(1), host(2), host(3)})
	if err != nil {
		t.Fatal(err)
	}
	for len(out) < packets {
		p, err := s.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("only %d packets were generated", len(out))
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, arrival{uint32(1 + len(out)%7), bytes.Clone(p.Frame)})
	}
	return out
}

// TestParity runs all programs on the soft switch, and on BMv2 where that is installed.
func TestParity(t *testing.T) {
	version, err := switchtest.BMv2Version(t.Context())
	withBMv2 := err == nil
	if !withBMv2 {
		t.Logf("%v: the soft switch alone runs, against what BMv2 gave when it was recorded", err)
	}
	in, source := mixed(t), "mixed-165k"
	if in == nil {
		t.Log("the shared trace is not here: the packets are generated")
		in, source = generated(t), "generated"
	}
	report, rows := newReport(version), 0
	suite := func(in []arrival, source string) {
		for _, p := range programs(t, in) {
			rows++
			t.Run(p.Name+"/"+source, func(t *testing.T) { parity(t, p, source, in, withBMv2, report) })
		}
	}
	suite(in, source)
	if *update {
		if !withBMv2 || source == "generated" {
			t.Fatal("recording needs BMv2 and the shared trace")
		}
		suite(generated(t), "generated")
		switch {
		case t.Failed():
		case len(report.rows) < rows:
			t.Log("docs/evidence/parity.md stays as it is: -run leaves programs out")
		default:
			report.write(t)
		}
	}
}

func parity(t *testing.T, p *program, source string, in []arrival, withBMv2 bool, report *report) {
	if p.frames != nil {
		in = p.frames(in)
	}
	begin := time.Now()
	soft := drive(t, startSoft(t), p, in, nil)
	report.add(t, p.Name, "soft switch", source, soft, time.Since(begin))
	if s := soft.totals(); s.cells > 0 && s.filled == 0 && !p.inFrames {
		t.Error("all register cells are zero: nothing was compared; set the program up in programs_test.go")
	}
	golden := filepath.Join("testdata", p.Name+"."+source+".golden")
	if withBMv2 {
		begin := time.Now()
		bm := drive(t, startBMv2(t), p, in, soft)
		report.add(t, p.Name, "BMv2", source, bm, time.Since(begin))
		compare(t, soft, bm, in)
		if *update && !t.Failed() {
			if err := os.WriteFile(golden, []byte(strings.Join(bm.lines(), "\n")+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, err := os.ReadFile(golden)
	if errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s is not there: record what BMv2 gives, with BMv2 on the PATH, by go test -run Parity -update",
			golden)
	}
	if err != nil {
		t.Fatal(err)
	}
	compareLines(t, soft.lines(), strings.Split(strings.TrimSpace(string(want)), "\n"))
}

// report collects the rows of docs/evidence/parity.md.
type report struct {
	version string
	rows    []string
}

func newReport(version string) *report { return &report{version: version} }

func (r *report) add(t *testing.T, program, target, source string, res *result, took time.Duration) {
	s := res.totals()
	t.Logf("parity: %-13s %-11s %-10s %v, %.1f s", program, target, source, s, took.Seconds())
	if target == "BMv2" { // the test fails unless the soft switch has the same results
		r.rows = append(r.rows, fmt.Sprintf("| %s | %s | %d | %d | %d | %d |\n",
			program, source, s.packets, s.left, s.cells, s.filled))
	}
}

// write replaces the table of the page.
func (r *report) write(t *testing.T) {
	t.Helper()
	page := filepath.Join("..", "..", "..", "docs", "evidence", "parity.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- rows: written by the test with -update -->\n", "<!-- end -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks around its table", page)
	}
	out := fmt.Sprintf("%s%s\nBMv2 %s and %s. Both switches gave the same for each row: %s.\n\n"+
		"| program | packets | in | out | register cells | of them not 0 |\n|---|---|---|---|---|---|\n%s\n%s%s",
		before, begin, r.version, runtime.Version(), evidence.Run(), strings.Join(r.rows, ""), end, after)
	if err := os.WriteFile(page, []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
}
