// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/internal/files"
	"github.com/netsketch/netsketch/lab/scenario/score"
)

// Row is a measure of one run.
type Row struct {
	Values []string // values of the axes
	Seed   uint64
	OK     bool // whether the run was successful
	score.Total
}

// Rows returns the measures of a run.
func (p *Played) Rows() (out []Row) {
	for _, t := range p.Report.Totals {
		out = append(out, Row{Values: p.Values, Seed: p.Seed, OK: p.Report.OK, Total: t})
	}
	return out
}

// columns are the columns of a file of rows behind those of the axes.
var columns = []string{"seed", "ok", "algorithm", "measure", "dimension", "value", "worst", "views"}

// Names returns the keys of axes.
func Names(axes []Axis) (names []string) {
	for _, a := range axes {
		names = append(names, a.Key)
	}
	return names
}

// RowWriter writes rows as CSV.
type RowWriter struct{ w *csv.Writer }

// NewRowWriter writes the line of names.
func NewRowWriter(w io.Writer, axes []Axis) (*RowWriter, error) {
	rows := &RowWriter{csv.NewWriter(w)}
	err := rows.w.Write(append(Names(axes), columns...))
	return rows, err
}

// Write writes the rows of a run.
func (w *RowWriter) Write(rows []Row) error {
	for _, r := range rows {
		if err := w.w.Write(append(slices.Clone(r.Values), strconv.FormatUint(r.Seed, 10), strconv.FormatBool(r.OK),
			r.Algorithm, r.Measure, r.Dimension, number(r.Value), number(r.Worst), strconv.Itoa(r.Views))); err != nil {
			return err
		}
	}
	w.w.Flush()
	return w.w.Error()
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// ReadRows reads files of rows as one sweep: they have the same columns, and no run twice. The axes
// have the values in the order of their first rows.
func ReadRows(paths ...string) (axes []Axis, rows []Row, err error) {
	type measured struct{ at, seed, algorithm, measure, dimension string }
	seen := map[measured]string{}
	for i, path := range paths {
		text, err := files.ReadText(path) // spreadsheets write a byte order mark
		if err != nil {
			return nil, nil, err
		}
		r := csv.NewReader(bytes.NewReader(text))
		fail := func(err error) ([]Axis, []Row, error) { return nil, nil, fmt.Errorf("%s: %w", path, err) }
		header, err := r.Read()
		if err != nil && !errors.Is(err, io.EOF) {
			return fail(err)
		}
		n := len(header) - len(columns)
		if n < 0 || !slices.Equal(header[n:], columns) {
			return fail(fmt.Errorf("no rows of a sweep: expected the last columns %s; --rows of netsketch demo writes them",
				strings.Join(columns, ",")))
		}
		if i == 0 {
			for _, key := range header[:n] {
				axes = append(axes, Axis{Key: key})
			}
		} else if !slices.Equal(header[:n], Names(axes)) {
			return fail(fmt.Errorf("it has a sweep of %q, and %s one of %q: draw them apart", header[:n], paths[0], Names(axes)))
		}
		for {
			fields, err := r.Read()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return fail(err)
			}
			line, _ := r.FieldPos(0)
			row, err := parseRow(fields[:n:n], fields[n:])
			if err != nil {
				return fail(fmt.Errorf("line %d: %w", line, err))
			}
			key := measured{strings.Join(row.Values, "\x00"), fields[n], row.Algorithm, row.Measure, row.Dimension}
			if first, twice := seen[key]; twice {
				return fail(fmt.Errorf("line %d: this run with seed %s is also in %s", line, fields[n], first))
			}
			seen[key] = fmt.Sprintf("%s, line %d", path, line)
			for a, v := range row.Values {
				if !slices.Contains(axes[a].Values, v) {
					axes[a].Values = append(axes[a].Values, v)
				}
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return nil, nil, fmt.Errorf("%s: no run has a row", strings.Join(paths, ", "))
	}
	return axes, rows, nil
}

// parseRow parses a row: the values of the axes, and the fields of the columns that follow them.
func parseRow(values, fields []string) (row Row, err error) {
	row.Values, row.Algorithm, row.Measure, row.Dimension = values, fields[2], fields[3], fields[4]
	if row.Measure == "" || strings.ContainsAny(row.Measure, `/\`) {
		return row, fmt.Errorf("measure %q: expected a name", row.Measure)
	}
	var errs [5]error
	row.Seed, errs[0] = strconv.ParseUint(fields[0], 10, 64)
	row.OK, errs[1] = strconv.ParseBool(fields[1])
	row.Value, errs[2] = strconv.ParseFloat(fields[5], 64)
	row.Worst, errs[3] = strconv.ParseFloat(fields[6], 64)
	row.Views, errs[4] = strconv.Atoi(fields[7])
	if err := errors.Join(errs[:]...); err != nil {
		return row, err
	}
	if math.IsInf(row.Value, 0) {
		return row, fmt.Errorf("value %v: expected a finite number", row.Value)
	}
	return row, nil
}
