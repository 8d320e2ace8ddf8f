// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/lab/figures/suite"
)

// records writes n records of 21 bytes: one microsecond apart, of flows of many sizes, and then
// rest bytes.
func records(t *testing.T, n, rest int) string {
	t.Helper()
	var b []byte
	for i := range n {
		key := make([]byte, 13)
		binary.BigEndian.PutUint32(key, uint32(i*i%977)*2654435761)
		key[8] = 17
		b = binary.LittleEndian.AppendUint64(append(b, key...), uint64(1000+i))
	}
	b = append(b, make([]byte, rest)...)
	name := filepath.Join(t.TempDir(), "records.dat")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func runSketchesCommand(t *testing.T, args ...string) (out, progress string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := sketchesCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// TestSketchesJSON: --json prints one array of objects that have structure, variant, memory, task,
// metric, value, unit and trace, in this order, and nothing else; and the same in a second run.
func TestSketchesJSON(t *testing.T) {
	args := []string{"--trace", "records:" + records(t, 3000, 0), "--figures", "sketchint-5", "--runs", "2", "--json"}
	out, _, err := runSketchesCommand(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(strings.NewReader(out))
	token := func() json.Token {
		t.Helper()
		tok, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	if tok := token(); tok != json.Delim('[') {
		t.Fatalf("begins with %v", tok)
	}
	want := []string{"structure", "variant", "memory", "task", "metric", "value", "unit", "trace"}
	rows := 0
	for ; d.More(); rows++ {
		if tok := token(); tok != json.Delim('{') {
			t.Fatalf("row %d begins with %v", rows, tok)
		}
		var names []string
		for d.More() {
			name := token().(string)
			names = append(names, name)
			switch v := token().(type) {
			case string:
				if name == "memory" || name == "value" || v == "" {
					t.Fatalf("row %d: %s is %q", rows, name, v)
				}
			case float64:
				if name != "memory" && name != "value" || name == "memory" && (v < 1 || v != float64(int(v))) {
					t.Fatalf("row %d: %s is %v", rows, name, v)
				}
			default:
				t.Fatalf("row %d: %s is %v", rows, name, v)
			}
		}
		token()
		if !slices.Equal(names, want) {
			t.Fatalf("row %d has %v", rows, names)
		}
	}
	token()
	if _, err := d.Token(); !errors.Is(err, io.EOF) || rows < 5*5*5 {
		t.Errorf("%d rows, then %v", rows, err)
	}
	if again, _, err := runSketchesCommand(t, args...); err != nil || again != out {
		t.Errorf("another run differs (%v)", err)
	}
}

// TestSketchesFiles: --csv and --plots write what --json prints, and charts and a page.
func TestSketchesFiles(t *testing.T) {
	dir := t.TempDir()
	cdf := filepath.Join(dir, "sizes.cdf")
	if err := os.WriteFile(cdf, []byte("1 0.6\n10 0.9\n2000 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, progress, err := runSketchesCommand(t, "--trace", "cdf:"+cdf, "--packets", "20000", "--figures",
		"sketchint-5,univmon-11", "--runs", "1", "--json",
		"--csv", filepath.Join(dir, "all.csv"), "--plots", filepath.Join(dir, "figures"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(progress, "20000 packets") || !strings.Contains(progress, "0 packets are IPv6") {
		t.Errorf("progress: %s", progress)
	}
	var printed []suite.Row
	if err := json.Unmarshal([]byte(out), &printed); err != nil {
		t.Fatal(err)
	}
	read := func(name string) []suite.Row {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		rows, err := suite.ReadCSV(f)
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	if all := read("all.csv"); !slices.Equal(all, printed) {
		t.Errorf("%d rows in the file, %d printed, or other values", len(all), len(printed))
	}
	if parts := append(read("figures/sketchint-5.csv"), read("figures/univmon-11.csv")...); !slices.Equal(parts,
		printed) {
		t.Errorf("%d rows in the figures' files, %d printed, or other values", len(parts), len(printed))
	}
	charts, err := filepath.Glob(filepath.Join(dir, "figures", "*.svg"))
	if err != nil || len(charts) != 8+2 {
		t.Errorf("%d charts (%v)", len(charts), err)
	}
	for _, name := range charts {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := xml.Unmarshal(b, new(struct{})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"sketchint-5-statements.csv", "univmon-11-statements.csv"} {
		if b, err := os.ReadFile(filepath.Join(dir, "figures", name)); err != nil ||
			!bytes.Contains(b, []byte("figure,the paper,")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSketchesBadInput: each is an error that names what is wrong, and prints no result.
func TestSketchesBadInput(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("1 0.5\n2 0.4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"cut record": {[]string{"--trace", "records:" + records(t, 50, 20)},
			"record 50 ends after 20 of 21 bytes"},
		"one byte over":    {[]string{"--trace", "records:" + records(t, 50, 1)}, "record 50 ends after 1 of 21 bytes"},
		"20-byte records":  {[]string{"--trace", "records:" + records(t, 0, 20)}, "record 0 ends after 20 of 21 bytes"},
		"no records":       {[]string{"--trace", "records:" + records(t, 0, 0)}, "no packet"},
		"no file":          {[]string{"--trace", "records:" + filepath.Join(dir, "none")}, "none"},
		"folder":           {[]string{"--trace", "records:" + dir}, dir},
		"not a capture":    {[]string{"--trace", "pcap:" + text}, text},
		"not a CDF":        {[]string{"--trace", "cdf:" + text}, "line 2"},
		"no such kind":     {[]string{"--trace", "tcp:1"}, "zipf:SKEW"},
		"no such figure":   {[]string{"--figures", "sketchint-9"}, "the figures are sketchint-5, sketchint-6, "},
		"no packets":       {[]string{"--packets", "0"}, "0 packets"},
		"too many packets": {[]string{"--packets", "1000000000000"}, "expected 1 to"},
		"no runs":          {[]string{"--runs", "0"}, "--runs"},
		"no decodings":     {[]string{"--decodings", "-1"}, "--decodings"},
		"peer unnamed":     {[]string{"--peer", "=true"}, `--peer "=true"`},
		"peer twice":       {[]string{"--peer", "a=true", "--peer", "a=false"}, `--peer "a=false"`},
		"peer no command":  {[]string{"--peer", "a= "}, `--peer "a= "`},
		"arguments":        {[]string{"zipf:1.1"}, "zipf:1.1"},
	} {
		out, _, err := runSketchesCommand(t, tc.args...)
		if err == nil || !strings.Contains(err.Error(), tc.want) || out != "" {
			t.Errorf("%s: error %v, output %q", name, err, out)
		}
	}
}

// peer writes a program that prints an answer for CM on one thread, and only its name otherwise.
func peer(t *testing.T, answer string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "peer")
	script := `#!/bin/sh
test "$(wc -c < "$2")" = 63000 || { echo "file $2 of other length" >&2; exit 1; }
test "$1" = first && test $# = 6 || { echo "called with $*" >&2; exit 1; }
echo about a test
case "$3 $4 $5 $6" in "CM 5 2097152 1") ` + answer + `;; esac
`
	if err := os.WriteFile(name, []byte(script), 0o700); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	return name
}

// TestSketchesPeer: a peer gets the file of keys and the structure, and its speed and the ratio
// follow from what it prints. There are no rows for structures that it lacks.
func TestSketchesPeer(t *testing.T) {
	args := []string{"--trace", "records:" + records(t, 3000, 0), "--figures", "sketchint-6", "--runs", "1", "--json",
		"--peer", "other=" + peer(t, "echo insertion 3000 1500000") + " first"}
	out, _, err := runSketchesCommand(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	var rows suite.Values
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatal(err)
	}
	const variant, metric = "5 rows, 2 MB", "speed by processor time"
	if x := rows.Variant("CM of other", variant, "insertion", metric); x != 2 { // 3,000 packets in 1.5 ms
		t.Errorf("speed %v", x)
	}
	if x := rows.Variant("other", "a test", "peer", "key"); x != 13 {
		t.Errorf("keys of %v bytes", x)
	}
	ours, ratio := rows.Variant("CM", variant, "insertion", metric), rows.Variant("CM", variant, "insertion",
		"ratio to other")
	if !(ratio > 0.99*ours/2 && ratio < 1.01*ours/2) { // the peer's time is always the same
		t.Errorf("ratio %v of %v and 2", ratio, ours)
	}
	for _, r := range rows {
		if strings.HasSuffix(r.Structure, " of other") && (r.Structure != "CM of other" || r.Task == "query") {
			t.Errorf("%+v, which the peer did not print", r)
		}
	}
}

// TestSketchesBadPeer: an error names the peer and what it did.
func TestSketchesBadPeer(t *testing.T) {
	for answer, want := range map[string]string{
		"echo insertion 2999 1000":               `line "insertion 2999 1000": expected 3000`,
		"echo insertion 3000 0":                  `line "insertion 3000 0"`,
		"echo insertion 3000 NaN":                `line "insertion 3000 NaN"`,
		"echo ARE -1":                            `line "ARE -1"`,
		"echo speed 12":                          `line "speed 12": expected about TEXT`,
		"echo out of memory >&2; exit 3":         "exit status 3: out of memory",
		"echo insertion 3000 1000; echo 'about'": `line "about"`,
	} {
		_, _, err := runSketchesCommand(t, "--trace", "records:"+records(t, 3000, 0), "--figures", "sketchint-6", "--runs",
			"1", "--peer", "other="+peer(t, answer)+" first")
		if err == nil || !strings.Contains(err.Error(), "peer other: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", answer, err, want)
		}
	}
}
