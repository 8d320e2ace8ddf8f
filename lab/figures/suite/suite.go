// SPDX-License-Identifier: Apache-2.0

// Package suite turns measured rows into the pages and charts of docs/figures, and compares them
// with the papers' statements.
package suite

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/goccy/go-yaml"

	"github.com/netsketch/netsketch/lab/evidence"
	"github.com/netsketch/netsketch/lab/figures/trace"
)

// Row is one measured value.
type Row struct {
	Structure string  `json:"structure"`
	Variant   string  `json:"variant"`
	Memory    int     `json:"memory"` // bytes
	Task      string  `json:"task"`
	Metric    string  `json:"metric"`
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`
	Trace     string  `json:"trace"` // "": of the suite's own traffic
}

// Suite is the tasks of one figure, or of several that share their measurements. New adds its page.
type Suite struct {
	Name string // name on the command line and in file names
	Page
	// Measure returns the rows of a trace; a suite that makes its own traffic gets nil.
	Measure func(ctx context.Context, t *trace.Trace, o Options) ([]Row, error)
	// Table writes the rows; nil writes a table for each plot, and one for the remaining rows.
	Table func(rows []Row) string
}

// Options bound the work.
type Options struct {
	Seed uint64
	Runs int // number of speed measurements, and of everything repeated with other seeds; at least 1
	// Decodings is the largest number of tries at a memory; 99.9 % must succeed.
	Decodings int
	// Peers are other programs that measured speeds are compared with.
	Peers []Peer
}

// Peer is a program that inserts the same keys into an empty structure of its own, once a run. Its
// arguments are a file of keys, the structure's name, its rows, its bytes and a number of threads.
// The file has 21 bytes for each packet, as `records:FILE` reads: the key (source and destination
// address, source and destination port, all in network byte order, protocol: 13 bytes) and the
// arrival in microseconds (little endian, 8 bytes). The program prints lines: `about TEXT`, which
// the page quotes; `insertion PACKETS NANOSECONDS`, in processor time of the slowest thread; `query
// FLOWS NANOSECONDS`, for every flow once on one thread; `ARE VALUE`, the mean relative error of
// all flow sizes. It prints only `about` if it has no such structure. Another exit status than 0,
// another number of packets or flows than the file's and any other line are errors.
type Peer struct {
	Name    string
	Command []string // the program and its first arguments; at least the program
}

// Page has a suite's statements about its rows. Each suite has a page as YAML, in pages.
type Page struct {
	// Include is the name of another page, whose Setup and Define follow this page's.
	Include string
	Title   string
	// Hardware says what the rows depend on: "any" machine gives the same rows, or they are times and
	// speeds of one "processor".
	Hardware string
	// Workload is the traffic that is measured, in a few words.
	Workload string
	Setup    []string // paragraphs on how the paper measured, and on the differences here
	Plots    []Plot
	Define   yaml.MapSlice // names for the expressions of the claims: see environment
	Claims   []Claim
	// Sentences is how many statements about each figure the paper's text has. The page has a claim
	// for each, so one that it omits is a mistake.
	Sentences map[string]int
}

//go:embed pages
var pages embed.FS

// New completes a suite with its page. A suite whose page cannot be read is a mistake in this
// program.
func New(s Suite) Suite {
	var shared Page
	err := s.read(s.Name)
	if err == nil && s.Include != "" {
		err = shared.read(s.Include)
		s.Setup, s.Define = append(s.Setup, shared.Setup...), append(s.Define, shared.Define...)
	}
	if err == nil && (s.Hardware != "any" && s.Hardware != "processor" || s.Workload == "") {
		err = fmt.Errorf("hardware %q, workload %q: expected any or processor, and some words", s.Hardware, s.Workload)
	}
	if err != nil {
		panic(fmt.Sprintf("page %s: %v", s.Name, err))
	}
	return s
}

// read reads a page by its name.
func (p *Page) read(name string) error {
	text, err := pages.ReadFile("pages/" + name + ".yaml")
	if err != nil {
		return err
	}
	return yaml.UnmarshalWithOptions(text, p, yaml.Strict())
}

// Plot is one chart of a suite: a task's metric against memory, or against the number in the
// variant.
type Plot struct {
	File, Title string
	Task        string
	Metric      string
	X           string // label of the axis; "memory" or the meaning of the variant's number
	// Tasks, if there are any, are the places 1, 2, ... on the x axis, instead of Task.
	Tasks []string
	Y     string // label of the y axis; "" for none
	Log   bool
	Zero  bool // the y axis starts at 0
	Stack bool // the structures are stacked areas
	// Lines are values from the paper, at the places of the x axis where the rows have a value.
	Lines []Line
}

// Line is a value from the paper on a part of the x axis.
type Line struct {
	Name     string
	Value    float64
	From, To float64 // first and last place; 0: no limit
}

// Run measures the suite's rows. It rounds values to the six digits that the files have.
func (s *Suite) Run(ctx context.Context, t *trace.Trace, o Options) ([]Row, error) {
	o.Runs, o.Decodings = max(o.Runs, 1), max(o.Decodings, 1)
	rows, err := s.Measure(ctx, t, o)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		if rows[i].Value, err = strconv.ParseFloat(digits(rows[i].Value), 64); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

func digits(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

var columns = []string{"structure", "variant", "memory", "task", "metric", "value", "unit", "trace"}

// WriteCSV writes rows with a heading.
func WriteCSV(w io.Writer, rows []Row) error {
	lines := [][]string{columns}
	for _, r := range rows {
		lines = append(lines, []string{r.Structure, r.Variant, strconv.Itoa(r.Memory), r.Task, r.Metric, digits(r.Value),
			r.Unit, r.Trace})
	}
	return evidence.WriteCSV(w, lines)
}

// ReadCSV reads rows that WriteCSV wrote.
func ReadCSV(r io.Reader) ([]Row, error) {
	lines, err := evidence.ReadCSV(r)
	if err != nil {
		return nil, fmt.Errorf("rows: %w", err)
	}
	if len(lines) == 0 || !slices.Equal(lines[0], columns) {
		return nil, fmt.Errorf("rows: the first line is not %v", columns)
	}
	var rows []Row
	for i, l := range lines[1:] {
		memory, err1 := strconv.Atoi(l[2])
		value, err2 := strconv.ParseFloat(l[5], 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("rows: line %d: %w", i+2, err)
		}
		rows = append(rows, Row{l[0], l[1], memory, l[3], l[4], value, l[6], l[7]})
	}
	return rows, nil
}
