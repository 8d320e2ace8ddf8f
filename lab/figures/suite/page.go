// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/lab/figures/chart"
)

// FileName turns a title into a part of a file's name.
func FileName(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "-") }

// series collects the rows that belong to a plot, by structure.
func (p *Plot) series(rows []Row) (all []chart.Series) {
	for _, r := range rows {
		place := slices.Index(p.Tasks, r.Task)
		if p.Tasks == nil && r.Task != p.Task || p.Tasks != nil && place < 0 || r.Metric != p.Metric {
			continue
		}
		x := float64(r.Memory) / 1000
		switch {
		case p.Tasks != nil:
			x = float64(place + 1)
		case p.X != "memory":
			number, found := strings.CutPrefix(r.Variant, p.X+" ")
			v, err := strconv.ParseFloat(number, 64)
			if !found || err != nil {
				continue
			}
			x = v
		}
		i := slices.IndexFunc(all, func(s chart.Series) bool { return s.Name == r.Structure })
		if i < 0 {
			i = len(all)
			all = append(all, chart.Series{Name: r.Structure})
		}
		all[i].Points = append(all[i].Points, chart.Point{X: x, Y: r.Value})
	}
	return all
}

// SVG draws the plot and returns nil if no row belongs to it.
func (p *Plot) SVG(rows []Row) []byte {
	c := chart.Chart{Title: p.Title, X: p.X, Y: p.Y, LogY: p.Log, Zero: p.Zero, Stack: p.Stack, Series: p.series(rows)}
	if c.X == "memory" {
		c.X = "memory (KB)"
	}
	var xs []float64
	for _, s := range c.Series {
		for _, q := range s.Points {
			xs = append(xs, q.X)
		}
	}
	for _, l := range p.Lines {
		line := chart.Series{Name: "paper: " + l.Name, Reference: true}
		for _, q := range c.Series[0].Points {
			if q.X >= l.From && (l.To == 0 || q.X <= l.To) {
				line.Points = append(line.Points, chart.Point{X: q.X, Y: l.Value})
			}
		}
		c.Series = append(c.Series, line)
	}
	c.LogX = len(xs) > 0 && slices.Min(xs) > 0 && slices.Max(xs) > 20*slices.Min(xs)
	return chart.SVG(c)
}

// standard is the beginning of the name of the committed figures' trace. The reasons in the claims
// apply to this trace, and to similar ones.
const standard = "zipf:1.1, 2000000 packets, seed 1"

// Make returns the command line that runs this program with arguments.
func Make(arguments string) string { return "make figures FIGURES=\"" + arguments + "\"" }

// Command is the command line that measures a suite.
func Command(trace string, packets int, seed uint64, name string) string {
	c := "sketches --figures " + name
	if trace != "zipf:1.1" {
		c += " --trace " + trace
	}
	if packets != 2_000_000 {
		c += fmt.Sprintf(" --packets %d", packets)
	}
	if seed != 1 {
		c += fmt.Sprintf(" --seed %d", seed)
	}
	return Make(c + " --plots docs/figures")
}

// Text returns a suite's page in Markdown: the paper's statements that do not hold, what is
// measured instead, and the charts.
func (s *Suite) Text(rows []Row, command string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nMade by `%s`.", s.Title, command)
	if len(rows) > 0 && rows[0].Trace != "" && rows[0].Trace != standard {
		fmt.Fprintf(&b, " Traffic: %s.", rows[0].Trace)
	}
	fmt.Fprintf(&b, " Rows: [%s.csv](%s.csv).\n", s.Name, s.Name)
	for _, paragraph := range s.Setup {
		fmt.Fprintf(&b, "\n%s\n", paragraph)
	}
	if err := s.claims(&b, rows); err != nil {
		return "", err
	}
	if s.Table != nil {
		b.WriteString("\n" + s.Table(rows))
		return chart.Wrap(b.String()), nil
	}
	for _, r := range rows {
		switch r.Task {
		case "machine":
			fmt.Fprintf(&b, "\nMachine: %s, %g processors.\n", r.Variant, r.Value)
		case "peer":
			fmt.Fprintf(&b, "\nPeer %s: %s.\n", r.Structure, r.Variant)
		}
	}
	for _, p := range s.Plots {
		if p.SVG(rows) != nil {
			fmt.Fprintf(&b, "\n![%s](%s.svg)\n", p.Title, p.File)
		}
	}
	return chart.Wrap(b.String()), nil
}

// verdicts are the claims of a page as it states them, each reason once.
func (s *Suite) verdicts(rows []Row) ([]Verdict, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	verdicts, err := s.Judge(rows)
	SayOnce(verdicts)
	for i := range verdicts {
		if !strings.HasPrefix(rows[0].Trace, standard) && rows[0].Trace != "" {
			verdicts[i].Why = ""
		}
	}
	return verdicts, err
}

// claims writes how many claims hold, and the table of those that do not. A claim that continues
// the one before it stands behind that one.
func (s *Suite) claims(b *strings.Builder, rows []Row) error {
	verdicts, err := s.verdicts(rows)
	if err != nil || len(verdicts) == 0 {
		return err
	}
	holding, shown := 0, map[int]bool{}
	for i, v := range verdicts {
		if v.Apart == "" && !v.Open && v.Holds {
			holding++
			continue
		}
		for shown[i] = true; i > 0 && continues.MatchString(verdicts[i].Paper); {
			i--
			shown[i] = true
		}
	}
	fmt.Fprintf(b, "\n%d of %d [statements](%s) hold.", holding, len(verdicts), s.statements())
	if len(shown) == 0 {
		b.WriteString("\n")
		return nil
	}
	referred := ""
	if len(shown) > len(verdicts)-holding {
		referred = ", and those that they refer to"
	}
	fmt.Fprintf(b, " The others%s:\n\n| figure | the paper | here | holds |\n|---|---|---|---|\n", referred)
	for i, v := range verdicts {
		if shown[i] {
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", v.Figure, v.Paper, v.Here, v.Mark())
		}
	}
	return nil
}

// continues matches a claim that is understood only behind the one before it.
var continues = regexp.MustCompile(`^(the same|and|with them)\b`)

// statements is the name of the file with all claims of a page.
func (s *Suite) statements() string { return s.Name + "-statements.csv" }

// files returns a suite's page, claims and charts by file name.
func (s *Suite) files(rows []Row, command string) (map[string][]byte, error) {
	text, err := s.Text(rows, command)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	files := map[string][]byte{s.Name + ".md": []byte(text)}
	if verdicts, err := s.verdicts(rows); err != nil || len(verdicts) > 0 {
		var b bytes.Buffer
		b.WriteString("# statements of the paper, judged by the rows beside this file\n")
		lines := [][]string{{"figure", "the paper", "here", "holds"}}
		for _, v := range verdicts {
			lines = append(lines, []string{v.Figure, v.Paper, v.Here, v.Mark()})
		}
		if err := errors.Join(err, csv.NewWriter(&b).WriteAll(lines)); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		files[s.statements()] = b.Bytes()
	}
	for _, p := range s.Plots {
		if svg := p.SVG(rows); svg != nil {
			files[p.File+".svg"] = svg
		}
	}
	return files, nil
}

// Write writes the rows of a run to a directory, and the suite's page and charts.
func (s *Suite) Write(directory string, rows []Row, command string) error {
	var b bytes.Buffer
	if err := WriteCSV(&b, rows); err != nil {
		return err
	}
	//nolint:gosec // figures are public
	if err := os.WriteFile(filepath.Join(directory, s.Name+".csv"), b.Bytes(), 0o644); err != nil {
		return err
	}
	return s.draw(directory, rows, command)
}

// draw writes a suite's page and charts to a directory.
func (s *Suite) draw(directory string, rows []Row, command string) error {
	files, err := s.files(rows, command)
	if err != nil {
		return err
	}
	for name, data := range files {
		//nolint:gosec // figures are public
		if err := os.WriteFile(filepath.Join(directory, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
