// SPDX-License-Identifier: Apache-2.0

package attention

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/lab/evidence"
	"github.com/netsketch/netsketch/lab/figures/chart"
	"github.com/netsketch/netsketch/lab/figures/suite"
)

// mustBeExact returns whether every victim must be published if the network is healthy: with 10,000
// to 70,000 flows, of which 10 % are victims.
func (x *Sample) mustBeExact() bool { return !x.Sweep.Victims && x.Flows <= 70_000 }

// sampleColumns are the columns of the measured epochs in CSV, in order.
var sampleColumns = []struct {
	name string
	of   func(*Sample) *int
}{
	{"figure", func(x *Sample) *int { return &x.Figure }}, {"flows", func(x *Sample) *int { return &x.Flows }},
	{"victims", func(x *Sample) *int { return &x.Judgment.Victims }},
	{"missed", func(x *Sample) *int { return &x.Missed }}, {"false", func(x *Sample) *int { return &x.False }},
	{"lost_tl_hits", func(x *Sample) *int { return &x.HeavyVictims.Hits }},
	{"lost_tl_missed", func(x *Sample) *int { return &x.HeavyVictims.Missed }},
	{"lost_tl_false", func(x *Sample) *int { return &x.HeavyVictims.False }},
	{"recorded_hits", func(x *Sample) *int { return &x.Recorded.Hits }},
	{"recorded_missed", func(x *Sample) *int { return &x.Recorded.Missed }},
	{"recorded_false", func(x *Sample) *int { return &x.Recorded.False }},
}

// sampleMarks are the columns that are 0 or 1, after those.
var sampleMarks = []struct {
	name string
	of   func(*Sample) *bool
}{
	{"decoded", func(x *Sample) *bool { return &x.Decoded }}, {"exact", func(x *Sample) *bool { return &x.Exact }},
	{"others", func(x *Sample) *bool { return &x.Others }},
	{"hh_failed", func(x *Sample) *bool { return &x.FailedHH }},
	{"hl_failed", func(x *Sample) *bool { return &x.FailedHL }},
	{"ll_failed", func(x *Sample) *bool { return &x.FailedLL }},
}

func sampleHeading() []string {
	heading := []string{"workload", "state", "seed", "share", "estimate"}
	for _, c := range sampleColumns {
		heading = append(heading, c.name)
	}
	for _, c := range sampleMarks {
		heading = append(heading, c.name)
	}
	return heading
}

// writeSamples writes the measured epochs, a line for each.
func writeSamples(w io.Writer, samples []Sample) error {
	lines := [][]string{sampleHeading()}
	for i := range samples {
		x := &samples[i]
		line := []string{x.Workload, x.State, strconv.FormatUint(x.Seed, 10), fmt.Sprint(x.Victim),
			strconv.FormatFloat(x.Estimate, 'g', 6, 64)}
		for _, c := range sampleColumns {
			line = append(line, strconv.Itoa(*c.of(x)))
		}
		for _, c := range sampleMarks {
			line = append(line, map[bool]string{false: "0", true: "1"}[*c.of(x)])
		}
		lines = append(lines, line)
	}
	return evidence.WriteCSV(w, lines)
}

// readSamples reads samples that writeSamples wrote.
func readSamples(r io.Reader) ([]Sample, error) {
	lines, err := evidence.ReadCSV(r)
	if err != nil {
		return nil, fmt.Errorf("epochs: %w", err)
	}
	if len(lines) == 0 || !slices.Equal(lines[0], sampleHeading()) {
		return nil, fmt.Errorf("epochs: expected a first line with %v", sampleHeading())
	}
	samples := make([]Sample, len(lines)-1)
	for i, line := range lines[1:] {
		x := &samples[i]
		x.Measured = &chamelemon.Measured{State: line[1]}
		var errs [3]error
		x.Seed, errs[0] = strconv.ParseUint(line[2], 10, 64)
		x.Victim, errs[1] = strconv.ParseFloat(line[3], 64)
		x.Estimate, errs[2] = strconv.ParseFloat(line[4], 64)
		err := errors.Join(errs[:]...)
		for j, c := range sampleColumns {
			n, bad := strconv.Atoi(line[5+j])
			*c.of(x), err = n, errors.Join(err, bad)
		}
		for j, c := range sampleMarks {
			*c.of(x) = line[5+len(sampleColumns)+j] == "1"
		}
		at := slices.IndexFunc(Sweeps(), func(s Sweep) bool { return s.Figure == x.Figure && s.Workload == line[0] })
		if err != nil || at < 0 {
			return nil, fmt.Errorf("epochs: line %d, figure %d, %s: %w", i+2, x.Figure, line[0],
				cmp.Or(err, errors.New("no figure")))
		}
		x.Sweep = Sweeps()[at]
	}
	return samples, nil
}

// lossName is the name of the files about all published losses.
const lossName = "chamelemon-losses"

// drawLosses writes the page from the epochs recorded in a directory.
func drawLosses(directory string) error {
	f, err := os.Open(filepath.Join(directory, lossName+".csv"))
	if err != nil {
		return err
	}
	samples, err := readSamples(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	var o Options
	o.complete()
	var figures []int
	for i := range samples {
		x := &samples[i]
		if !slices.Contains(figures, x.Figure) {
			figures = append(figures, x.Figure)
		}
		if !slices.Contains(o.Seeds, x.Seed) {
			o.Seeds = append(o.Seeds, x.Seed)
		}
	}
	return write(directory, lossName+".md",
		[]byte(chart.Wrap(lossPage(samples, LossClaims(samples), o.method(name(figures))))))
}

// tally counts epochs, and those in which every victim was published with its exact number.
type tally struct{ epochs, exact, undecoded int }

// illness is the accuracy of the epochs of an ill network that were decoded but for a few flows.
type illness struct {
	epochs, decoded int
	heavy, recorded Score   // scores of all epochs together
	worst           float64 // F1 of heavy in an epoch
	low, high       float64 // estimate of the number of victims
	squares         float64
}

func (w *illness) add(x *Sample) {
	if w.epochs == 0 {
		w.worst, w.low, w.high = 1, 1, 1
	}
	w.epochs++
	if !x.Decoded && !x.Others {
		return
	}
	w.decoded++
	w.heavy.Add(x.HeavyVictims)
	w.recorded.Add(x.Recorded)
	w.worst = min(w.worst, x.HeavyVictims.F1())
	w.low, w.high = min(w.low, x.Estimate), max(w.high, x.Estimate)
	w.squares += (x.Estimate - 1) * (x.Estimate - 1)
}

func (w *illness) error() float64 { return math.Sqrt(w.squares / float64(max(w.decoded, 1))) }

// divide groups samples by the requirements on them.
func divide(samples []Sample) (healthy tally, ill map[string]*illness, wrong int) {
	ill = make(map[string]*illness)
	for i := range samples {
		x := &samples[i]
		if x.False > 0 {
			wrong++
		}
		if x.State == "ill" {
			if ill[x.Workload] == nil {
				ill[x.Workload] = &illness{}
			}
			ill[x.Workload].add(x)
		}
		if x.mustBeExact() {
			healthy.epochs++
			switch {
			case x.Exact:
				healthy.exact++
			case !x.Decoded:
				healthy.undecoded++
			}
		}
	}
	return healthy, ill, wrong
}

// LossClaims compares the published victims with the requirements: exact while the network is
// healthy; while it is ill, heavy victims with an F1 of 0.99 and their number within 10 %.
func LossClaims(samples []Sample) (out []suite.Verdict) {
	healthy, ill, wrong := divide(samples)
	if healthy.epochs > 0 {
		why := ""
		if healthy.exact+healthy.undecoded == healthy.epochs {
			why = fmt.Sprintf("%d epochs could not be decoded: their victims are not published", healthy.undecoded)
		}
		out = append(out, claim("healthy: every victim published with its exact number of lost packets",
			fmt.Sprintf("in %d of %d epochs", healthy.exact, healthy.epochs), healthy.exact == healthy.epochs, why))
	}
	for _, name := range slices.Sorted(maps.Keys(ill)) {
		w := ill[name]
		out = append(out,
			claim(name+", ill: flows that lost at least Tl packets with F1 of at least 0.99",
				fmt.Sprintf("%.4f, at least %.4f in a decoded epoch", w.heavy.F1(), w.worst), w.heavy.F1() >= 0.99, ""),
			claim(name+", ill: number of victims within 10 %",
				fmt.Sprintf("%+.1f to %+.1f %%", 100*(w.low-1), 100*(w.high-1)), w.low >= 0.9 && w.high <= 1.1, ""))
	}
	return append(out, claim("no published victim or number is wrong",
		fmt.Sprintf("%d of %d epochs have a wrong victim or number", wrong, len(samples)), wrong == 0, ""))
}

// lossPage compares the published victims with the ground truth.
func lossPage(samples []Sample, list []suite.Verdict, method string) string {
	_, ill, _ := divide(samples)
	var b strings.Builder
	fmt.Fprintf(&b, "# Lost packets, published and true (ChameleMon)\n\n%s The rows as CSV: [%s.csv](%s.csv).\n\n", method,
		lossName, lossName)
	claims(&b, "requirement", list)
	b.WriteString("\nHeavy victims are flows that lost at least Tl packets. F1 compares them with the flows " +
		"whose published losses are at least Tl, over all decoded epochs and in the worst one. " +
		"Losses of an unsampled flow before its Tl-th packet are not recorded. The next column is the F1 of flows " +
		"that lost a packet while the classifier had them as HL or HH candidates (§4.2), which the model decides " +
		"itself. The number of victims is estimated from the sample.\n\n" +
		"| | epochs | decoded | heavy victims | F1 | worst F1 | F1 of candidates | number of victims | its standard " +
		"error |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(ill)) {
		w := ill[name]
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %.4f | %.4f | %.4f | %+.1f to %+.1f %% | %.1f %% |\n", name, w.epochs,
			w.decoded, w.heavy.Hits+w.heavy.Missed, w.heavy.F1(), w.worst, w.recorded.F1(), 100*(w.low-1),
			100*(w.high-1), 100*w.error())
	}
	return b.String()
}
