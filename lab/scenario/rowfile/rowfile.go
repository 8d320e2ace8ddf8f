// SPDX-License-Identifier: Apache-2.0

// Package rowfile writes rows into a file of CSV or of Parquet.
package rowfile

import (
	"cmp"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// Column is a column of a file.
type Column struct {
	Name string
	Node parquet.Node
}

// Text is the type of a column of text.
func Text() parquet.Node { return parquet.Encoded(parquet.String(), &parquet.RLEDictionary) }

// File is a file of rows.
type File struct {
	file *os.File
	w    writer
}

// writer writes rows as CSV or as Parquet.
type writer interface {
	write(row []parquet.Value) error
	// flush writes the rows that are buffered, if a reader could use them before the end of the file.
	flush() error
	close() error
}

// Create creates a file: Parquet if the path ends in .parquet, otherwise CSV with a line of names.
// schema is the name that Parquet gives to a row.
func Create(path, schema string, columns []Column) (*File, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	f := &File{file: file}
	if strings.EqualFold(filepath.Ext(path), ".parquet") {
		f.w = newParquetRows(file, schema, columns)
	} else if f.w, err = newCSVRows(file, columns); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return f, nil
}

// Write adds a row. An absent value is null in Parquet, and empty in CSV.
func (f *File) Write(row []parquet.Value) error { return f.w.write(row) }

// Flush writes the rows that are buffered, if a reader could use them before the end of the file.
func (f *File) Flush() error { return f.w.flush() }

// Close ends the file. No other method may be called after it.
func (f *File) Close() error { return errors.Join(f.w.close(), f.file.Close()) }

// csvRows writes rows as CSV; an absent value is empty.
type csvRows struct{ *csv.Writer }

func newCSVRows(w io.Writer, columns []Column) (csvRows, error) {
	var names []string
	for _, c := range columns {
		names = append(names, c.Name)
	}
	out := csvRows{csv.NewWriter(w)}
	return out, errors.Join(out.Write(names), out.flush())
}

func (c csvRows) write(row []parquet.Value) error {
	fields := make([]string, len(row))
	for i, v := range row {
		switch {
		case v.IsNull():
		case v.Kind() == parquet.ByteArray:
			fields[i] = string(v.ByteArray())
		default:
			fields[i] = strconv.FormatUint(v.Uint64(), 10)
		}
	}
	return c.Write(fields)
}

func (c csvRows) flush() error {
	c.Flush()
	return c.Error()
}

func (c csvRows) close() error { return c.flush() }

// maxRowGroup bounds the rows that a Parquet writer keeps in memory.
const maxRowGroup = 1 << 18

// parquetRows writes rows as Parquet.
type parquetRows struct {
	*parquet.Writer
	columns []Column
}

func newParquetRows(w io.Writer, schema string, columns []Column) parquetRows {
	root := ordered{Group: parquet.Group{}}
	for _, c := range columns {
		root.Group[c.Name] = c.Node
		root.names = append(root.names, c.Name)
	}
	return parquetRows{parquet.NewWriter(w, parquet.NewSchema(schema, root), parquet.Compression(&parquet.Zstd),
		parquet.MaxRowsPerRowGroup(maxRowGroup)), columns}
}

// ordered is a group whose columns have the order of their names in names. A Group alone sorts
// them.
type ordered struct {
	parquet.Group
	names []string
}

func (o ordered) Fields() []parquet.Field {
	fields := o.Group.Fields()
	slices.SortFunc(fields, func(a, b parquet.Field) int {
		return cmp.Compare(slices.Index(o.names, a.Name()), slices.Index(o.names, b.Name()))
	})
	return fields
}

func (p parquetRows) write(row []parquet.Value) error {
	for i, v := range row {
		present := 0 // the definition level of an optional column
		if p.columns[i].Node.Optional() && !v.IsNull() {
			present = 1
		}
		row[i] = v.Level(0, present, i)
	}
	_, err := p.WriteRows([]parquet.Row{row})
	return err
}

// A file of Parquet is readable once it is closed.
func (p parquetRows) flush() error { return nil }

func (p parquetRows) close() error { return p.Close() }
