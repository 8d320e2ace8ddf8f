// SPDX-License-Identifier: Apache-2.0

package sweep_test

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/parquet-go/parquet-go"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/groundtruth"
	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/scenario/sweep"
)

// plugins is a directory with the plugin of the tests.
var plugins string

func TestMain(m *testing.M) { testkit.MainWithPlugins(m, &plugins, "univmon") }

func TestParseAxis(t *testing.T) {
	for text, want := range map[string][]string{
		"traffic[0].flows=1000, 5000":       {"1000", "5000"},
		"agents=[a,b],[]":                   {"[a,b]", "[]"},
		"traffic=[{rate: 1, flows: [2,3]}]": {"[{rate: 1, flows: [2,3]}]"},
	} {
		a, err := sweep.ParseAxis(text)
		if key, _, _ := strings.Cut(text, "="); err != nil || a.Key != key || !slices.Equal(a.Values, want) {
			t.Errorf("%s: %q, %v", text, a, err)
		}
	}
	for _, text := range []string{"", "x", "x=", "=1", "x=1,,2", "x=[1", "x=1,2,1"} {
		if a, err := sweep.ParseAxis(text); err == nil {
			t.Errorf("%q is read as %v", text, a)
		}
	}
	axes := []sweep.Axis{{Key: "epochs"}, {Key: "seed"}, {Key: "epochs"}}
	if err := sweep.CheckKeys(axes); err == nil || !strings.Contains(err.Error(), "epochs is there twice") {
		t.Error(err)
	}
	if err := sweep.CheckKeys(axes[:2]); err != nil {
		t.Error(err)
	}
}

func TestChanges(t *testing.T) {
	const text = "epochs: 5\nname: n\ntraffic: [{name: a, rate: 100, flows: 10}]\nalgorithms: [{plugin: univmon}]\n"
	load := func(key, value string) (*scenario.Scenario, error) {
		return scenario.Parse("s.yaml", []byte(text), scenario.Change{Key: key, Value: value})
	}
	s, err := load("traffic[0].flows", "20")
	if err != nil || s.Traffic[0].Flows != 20 || s.Traffic[0].Rate != 100 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err = load("topology.loss", "0.5"); err == nil {
		t.Error("a key was added below a key that does not exist")
	}
	if s, err = load("topology", "{loss: 0.5}"); err != nil || s.Topology.Loss != 0.5 {
		t.Errorf("%+v, %v", s, err)
	}
	for change, want := range map[string]string{
		"traffic[1].flows=1": "[1]: expected the index of one of 1 elements",
		"traffic[0].flow=1":  `s.yaml:3:11: traffic[0]: unknown key "flow": did you mean "flows"?`,
		"traffic[0].flows=x": "expected a whole number",
		"epochs=-1":          "s.yaml:1:9: epochs: expected 0 or more; found -1",
		"name.x=1":           "this value has no keys",
		"name={":             "name={",
	} {
		key, value, _ := strings.Cut(change, "=")
		if _, err := load(key, value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", change, err, want)
		}
	}
}

func TestConfidence(t *testing.T) {
	for _, test := range []struct {
		values     []float64
		mean, half float64
	}{
		{nil, math.NaN(), math.NaN()}, {[]float64{3}, 3, math.NaN()}, {[]float64{2, 2, 2}, 2, 0},
		{[]float64{1, 3}, 2, 12.706}, {[]float64{4, 6, 8, 10}, 7, 4.1084},
	} {
		mean, half, n := sweep.Confidence(test.values)
		near := func(a, b float64) bool { return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) < 1e-3 }
		if !near(mean, test.mean) || !near(half, test.half) || n != len(test.values) {
			t.Errorf("%v: %v ± %v", test.values, mean, half)
		}
	}
}

// A sweep plays each combination with each seed. Its ground truth counts each packet at each
// switch, and has the paths, delays and losses of flows. A run that cannot be played does not end
// the sweep.
func TestSweep(t *testing.T) {
	const text = `epochs: 2
traffic: [{name: a, exact: true, flows: 20, scale: 30}]
topology: {leaves: 2, spines: 1, hosts-per-leaf: 1, loss: 0}
algorithms: [{plugin: univmon}]
expect: [{measure: partial-epochs, at-most: 0}]
`
	w := sweep.Sweep{
		Axes: []sweep.Axis{{Key: "topology.loss", Values: []string{"0", "0.2"}},
			{Key: "program", Values: []string{"univmon", "none"}}},
		Seeds: 2,
		Load: func(changes ...scenario.Change) (*scenario.Scenario, error) {
			return scenario.Parse("s.yaml", []byte(text), changes...)
		},
		Options: scenario.Options{Virtual: true, PluginDir: plugins, Listen: "127.0.0.1:0"},
	}
	csvFile, parquetFile := filepath.Join(t.TempDir(), "truth.csv"), filepath.Join(t.TempDir(), "truth.PARQUET")
	truth, err := groundtruth.Create(csvFile, "topology.loss", "program")
	if err != nil {
		t.Fatal(err)
	}
	w.Options.GroundTruth = truth
	var runs []sweep.Played
	if err := w.Play(t.Context(), func(p sweep.Played) error {
		runs = append(runs, p)
		if ok := p.Values[1] == "univmon"; ok != p.Report.OK || p.Run != len(runs) || p.Of != 8 {
			t.Errorf("run %d of %d, %v: %v %s", p.Run, p.Of, p.Values, p.Report.OK, p.Report.Error)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(runs) != 8 || runs[1].Seed != 2 || !slices.Equal(runs[7].Values, []string{"0.2", "none"}) {
		t.Errorf("%d runs: %+v", len(runs), runs)
	}
	if line := runs[2].Line(w.Axes); line != "run 3 of 8: topology.loss=0, program=none, seed 1: failed: "+
		runs[2].Report.Error || runs[2].Report.Error == "" {
		t.Error(line)
	}
	if line := runs[1].Line(w.Axes); line != "run 2 of 8: topology.loss=0, program=univmon, seed 2: ok" {
		t.Error(line)
	}
	var all []sweep.Row
	for _, p := range runs {
		all = append(all, p.Rows()...)
	}
	for _, s := range sweep.Summarize(all) {
		if s.Runs != 2 || s.Values[1] != "univmon" || math.IsNaN(s.Half) {
			t.Errorf("summary %+v", s)
		}
	}
	if err := truth.Close(); err != nil {
		t.Fatal(err)
	}
	rows := readCSV(t, csvFile)
	// Parquet has the same rows.
	if w.Options.GroundTruth, err = groundtruth.Create(parquetFile, "topology.loss", "program"); err != nil {
		t.Fatal(err)
	}
	if err := w.Play(t.Context(), func(sweep.Played) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := w.Options.GroundTruth.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rows, readParquet(t, parquetFile)); diff != "" {
		t.Errorf("Parquet differs from CSV: %s", diff)
	}
	at := func(row []string, column string) string { return row[slices.Index(rows[0], column)] }
	packets, lost, spine := map[string]int{}, map[string]int{}, 0
	for _, row := range rows[1:] {
		n, err := strconv.Atoi(at(row, "packets"))
		if err != nil {
			t.Fatal(err)
		}
		run := at(row, "topology.loss") + "/" + at(row, "seed") + "/" + at(row, "epoch")
		switch at(row, "node") {
		case "network":
			packets[run] += n
			l, _ := strconv.Atoi(at(row, "lost"))
			lost[run] += l
		case "spine1":
			spine++
			if at(row, "hop") != "1" || at(row, "delay-mean-ns") == "" || at(row, "entered") != "" {
				t.Fatalf("a flow at the spine: %q", row)
			}
		default:
			if l := at(row, "lost"); l != "" && l != "0" && !strings.Contains(at(row, "lost-at"), "spine1") {
				t.Fatalf("losses at no link: %q", row)
			}
		}
	}
	if len(packets) != 8 || spine == 0 { // 2 epochs, 2 seeds, 2 rates of loss
		t.Errorf("packets of %v, %d flows at the spine", packets, spine)
	}
	for run, n := range packets {
		if n != 600 || (lost[run] > 0) != strings.HasPrefix(run, "0.2") {
			t.Errorf("%s: %d packets, %d lost", run, n, lost[run])
		}
	}
}

func readCSV(t *testing.T, path string) [][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// readParquet returns the names of the columns and the rows, absent values as empty texts. Numbers
// have the type of their column.
func readParquet(t *testing.T, path string) [][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := parquet.OpenFile(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	var names, types []string
	for _, f := range file.Schema().Fields() {
		names, types = append(names, f.Name()), append(types, f.Type().String())
	}
	want := strings.Fields("STRING STRING INT(64,false) INT(64,false) STRING STRING STRING INT(8,false) " +
		"INT(16,false) INT(16,false) INT(64,false) INT(64,false) INT(64,false) STRING INT(32,false) INT(64,false) " +
		"INT(64,false)")
	if !slices.Equal(types, want) {
		t.Errorf("types of columns: %v", types)
	}
	out := [][]string{names}
	reader := parquet.NewReader(file)
	defer reader.Close()
	for buffer := make([]parquet.Row, 100); ; {
		n, err := reader.ReadRows(buffer)
		for _, row := range buffer[:n] {
			texts := make([]string, len(row))
			for i, v := range row {
				switch {
				case v.IsNull():
				case v.Kind() == parquet.ByteArray:
					texts[i] = string(v.ByteArray())
				default:
					texts[i] = strconv.FormatUint(v.Uint64(), 10)
				}
			}
			out = append(out, texts)
		}
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Rows that are read from files are those that were written; several files are one sweep.
func TestRows(t *testing.T) {
	dir := t.TempDir()
	total := func(measure string, value float64) score.Total {
		return score.Total{Algorithm: "a", Measure: measure, Dimension: "src+dst", Value: value, Worst: value / 3, Views: 4}
	}
	row := func(flows, loss string, seed uint64, t score.Total) sweep.Row {
		return sweep.Row{Values: []string{flows, loss}, Seed: seed, OK: seed != 3, Total: t}
	}
	axes := []sweep.Axis{{Key: "traffic[0].flows", Values: []string{"10", "a, \"b\""}},
		{Key: "loss", Values: []string{"0"}}}
	first := []sweep.Row{row("10", "0", 1, total("f1", 1.0/3)), row("10", "0", 1, total("error", math.NaN())),
		row("a, \"b\"", "0", 1, total("f1", 1e-300))}
	second := []sweep.Row{row("10", "0", 3, total("f1", 1))}
	write := func(name string, axes []sweep.Axis, rows []sweep.Row) string {
		var b bytes.Buffer
		w, err := sweep.NewRowWriter(&b, axes)
		if err == nil {
			err = w.Write(rows)
		}
		if err != nil {
			t.Fatal(err)
		}
		return put(t, dir, name, b.String())
	}
	one, two := write("1.csv", axes, first), write("2.csv", axes, second)
	gotAxes, got, err := sweep.ReadRows(one, two)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(append(first, second...), got, cmpopts.EquateNaNs()) + cmp.Diff(axes, gotAxes); diff != "" {
		t.Error(diff)
	}
	if s := sweep.Summarize(got)[0]; s.Runs != 2 || math.Abs(s.Mean-2.0/3) > 1e-9 {
		t.Errorf("%+v", s)
	}
	names, err := sweep.Charts(filepath.Join(dir, "new", "charts"), gotAxes, sweep.Summarize(got))
	if err != nil || len(names) != 2 || filepath.Base(names[0]) != "f1.svg" {
		t.Errorf("%v, %v", names, err)
	}
	if text, err := os.ReadFile(names[0]); err != nil || !strings.Contains(string(text), ">a src+dst 0</text>") {
		t.Errorf("%s, %v", text, err)
	}
	text, err := os.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	if axes, _, err := sweep.ReadRows(put(t, dir, "mark.csv", "\ufeff"+string(text)), two); err != nil ||
		axes[0].Key != gotAxes[0].Key {
		t.Errorf("a file with a byte order mark: %v, %v", axes, err)
	}
	none := write("3.csv", nil, []sweep.Row{{Seed: 1, Total: total("f1", 1)}})
	if axes, rows, err := sweep.ReadRows(none); err != nil {
		t.Error(err)
	} else if _, err := sweep.Charts(dir, axes, sweep.Summarize(rows)); err == nil ||
		!strings.Contains(err.Error(), "set --sweep") {
		t.Errorf("a chart without an axis: %v", err)
	}
	head := "flows,seed,ok,algorithm,measure,dimension,value,worst,views\n"
	line := "1,1,true,a,b,,1,1,1\n"
	file := func(name, text string) []string { return []string{put(t, dir, name, text)} }
	for want, files := range map[string][]string{
		"2.csv: line 2: this run with seed 3 is":             {two, two},
		"3.csv: it has a sweep of []":                        {one, none},
		"truth.csv: no rows of a sweep: expected the":        file("truth.csv", "seed,node\n1,x\n"),
		"empty.csv: no rows of a sweep":                      file("empty.csv", ""),
		"head.csv: no run has a row":                         file("head.csv", head),
		"cut.csv: record on line 3: wrong number":            file("cut.csv", head+line+"1,1,tr"),
		"seed.csv: line 2: strconv.ParseUint: parsing \"x\"": file("seed.csv", head+"1,x"+line[3:]),
		"path.csv: line 2: measure \"../b\"":                 file("path.csv", head+"1,1,true,a,../b,,1,1,1\n"),
		"infinite.csv: line 2: value +Inf: expected":         file("infinite.csv", head+"1,1,true,a,b,,Inf,1,1\n"),
		"wide.csv is UTF-16; save it as UTF-8":               file("wide.csv", "\xff\xfef\x00"),
		"absent.csv: no such file":                           {filepath.Join(dir, "absent.csv")},
	} {
		if _, _, err := sweep.ReadRows(files...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", files, err, want)
		}
	}
	if _, _, err := sweep.ReadRows("/dev/zero"); err == nil || !strings.Contains(err.Error(), "/dev/zero") {
		t.Errorf("a file without an end: %v", err)
	}
}

// put writes a file and returns its path.
func put(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// A chart has each value of the first axis, a line for each algorithm, dimension and other value,
// and the ends of the confidence intervals.
func TestChart(t *testing.T) {
	axes := []sweep.Axis{{Key: "flows", Values: []string{"10", "20"}}, {Key: "loss", Values: []string{"0", "<1"}}}
	summary := func(flows, loss, measure string, mean, half float64) sweep.Summary {
		return sweep.Summary{Values: []string{flows, loss}, Algorithm: "a", Measure: measure, Dimension: "src", Mean: mean,
			Half: half, Runs: 3}
	}
	var b bytes.Buffer
	if err := sweep.Chart(&b, axes, "f1", []sweep.Summary{summary("10", "0", "f1", 1, 0.5),
		summary("10", "<1", "f1", 2, math.NaN()), summary("20", "0", "f1", 1.5, 0.5), summary("20", "0", "error", 9, 1),
		summary("20", "<1", "f1", math.NaN(), math.NaN())}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{">10</text>", ">20</text>", ">flows</text>", ">f1</text>", ">a src 0</text>",
		">a src &lt;1</text>", ">2</text>", "M188.0 105.0L188.0 255.0"} { // the bar from 1.5 to 0.5
		if !strings.Contains(text, want) {
			t.Errorf("the chart has no %s:\n%s", want, text)
		}
	}
	long := summary("10", "0", "f1", 1, 0)
	long.Algorithm = strings.Repeat("m", 50)
	var wide bytes.Buffer
	if err := sweep.Chart(&wide, axes, "f1", []sweep.Summary{long}); err != nil ||
		!strings.HasPrefix(text, `<svg xmlns="http://www.w3.org/2000/svg" width="810"`) ||
		!strings.Contains(wide.String(), `width="1048"`) { // 550 + 50 + 8 for each letter of the name
		t.Errorf("the width does not follow the legend: %v\n%s", err, wide.String())
	}
	if strings.Count(text, "<circle") != 3 || strings.Contains(text, "NaN") {
		t.Errorf("points of other measures, or without a value:\n%s", text)
	}
	decoder := xml.NewDecoder(&b)
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
