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
	"github.com/parquet-go/parquet-go"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/groundtruth"
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
	for _, s := range sweep.Summarize(runs) {
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
