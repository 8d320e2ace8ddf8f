// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/sketch/flow"
)

// GroundTruth writes what happened to the flows of each scored epoch into a file. Several runs, one
// after the other, may share it.
type GroundTruth struct {
	file  *os.File
	w     rowWriter
	point []parquet.Value // values of a sweep's axes and the seed, the first columns
}

// rowWriter writes rows as CSV or as Parquet.
type rowWriter interface {
	write(row []parquet.Value) error
	// flush writes the rows that are buffered, if a reader could use them before the end of the file.
	flush() error
	close() error
}

// truthColumns are the columns after those of a sweep.
var truthColumns = []column{
	{"seed", parquet.Uint(64)}, {"epoch", parquet.Uint(64)}, {"device", text()}, {"src", text()}, {"dst", text()},
	{"protocol", parquet.Uint(8)}, {"src-port", parquet.Uint(16)}, {"dst-port", parquet.Uint(16)},
	{"packets", parquet.Uint(64)}, {"entered", parquet.Optional(parquet.Uint(64))},
	{"lost", parquet.Optional(parquet.Uint(64))}, {"lost-at", parquet.Optional(text())},
	{"hop", parquet.Optional(parquet.Uint(32))}, {"delay-mean-ns", parquet.Optional(parquet.Uint(64))},
	{"delay-max-ns", parquet.Optional(parquet.Uint(64))},
}

// column is a column of Parquet.
type column struct {
	name string
	node parquet.Node
}

func text() parquet.Node { return parquet.Encoded(parquet.String(), &parquet.RLEDictionary) }

// CreateGroundTruth creates a file whose first columns are the keys that a sweep changes: Parquet
// if its name ends in .parquet, otherwise CSV.
func CreateGroundTruth(path string, keys ...string) (*GroundTruth, error) {
	var columns []column
	for _, key := range keys {
		columns = append(columns, column{key, text()})
	}
	columns = append(columns, truthColumns...)
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	g := &GroundTruth{file: file}
	if strings.EqualFold(filepath.Ext(path), ".parquet") {
		g.w = newParquetRows(file, columns)
	} else if g.w, err = newCSVRows(file, columns); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return g, nil
}

// Close ends the file. No other method may be called after it. Close of nil does nothing.
func (g *GroundTruth) Close() error {
	if g == nil {
		return nil
	}
	if err := errors.Join(g.w.close(), g.file.Close()); err != nil {
		return fmt.Errorf("ground truth: %w", err)
	}
	return nil
}

// begin begins a run at a point of a sweep.
func (g *GroundTruth) begin(values []string, seed uint64) {
	g.point = nil
	for _, v := range values {
		g.point = append(g.point, parquet.ValueOf(v))
	}
	g.point = append(g.point, parquet.ValueOf(seed))
}

// write writes one row for each flow at each switch, in the order of names and flows, and one for
// each flow that entered the network, whose device is "network". If only hosts measure, the packets
// are those that arrived at hosts, and the rows are in the order of flows.
func (g *GroundTruth) write(epoch uint64, actual *score.Truth) (err error) {
	row := func(device string, k flow.Key, packets uint64, rest ...any) {
		values := slices.Clone(g.point)
		for _, v := range append([]any{epoch, device, k.SrcAddr().String(), k.DstAddr().String(), uint32(k.Proto),
			uint32(k.SrcPort), uint32(k.DstPort), packets}, rest...) {
			values = append(values, parquet.ValueOf(v))
		}
		if err == nil {
			err = g.w.write(values)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(actual.Devices)) {
		d := actual.Devices[name]
		lostAt := map[flow.Key][]string{}
		for l, n := range d.Losses {
			lostAt[l.Flow] = append(lostAt[l.Flow], fmt.Sprintf("%s=%d", l.Element, n))
		}
		for _, k := range sortedFlows(d.All) {
			var entered, lost, at, hop, mean, worst any // nil is empty
			if n := d.Entered[k]; n > 0 {
				slices.Sort(lostAt[k])
				entered, lost, at = n, d.Lost[k], strings.Join(lostAt[k], " ")
			}
			if p, ok := d.Departed[k]; ok && len(p.Delays) > 0 {
				sum := time.Duration(0)
				for _, delay := range p.Delays {
					sum += delay
				}
				hop, mean, worst = uint32(p.Hop), uint64(sum)/uint64(len(p.Delays)), uint64(slices.Max(p.Delays))
			}
			row(name, k, d.All[k], entered, lost, at, hop, mean, worst)
		}
	}
	for _, k := range sortedFlows(actual.Network) {
		row("network", k, actual.Network[k], actual.Network[k], actual.Lost[k], nil, nil, nil, nil)
	}
	if onlyHosts(actual) {
		through := passages(actual)
		for _, k := range sortedFlows(actual.Stays.Packets) {
			for _, p := range through[k] {
				worst := actual.Stays.Delays[truth.FlowAt{Flow: k, Switch: p.device}].Worst
				row(p.device, k, p.packets, nil, nil, nil, uint32(p.hop), uint64(p.delay)/p.packets, uint64(worst))
			}
			row("network", k, actual.Stays.Packets[k], nil, nil, nil, nil, nil, nil)
		}
	}
	if err = cmp.Or(err, g.w.flush()); err != nil {
		return fmt.Errorf("ground truth: %w", err)
	}
	return nil
}

// csvRows writes rows as CSV; an absent value is empty.
type csvRows struct{ *csv.Writer }

func newCSVRows(w io.Writer, columns []column) (csvRows, error) {
	var names []string
	for _, c := range columns {
		names = append(names, c.name)
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
	columns []column
}

func newParquetRows(w io.Writer, columns []column) parquetRows {
	root := ordered{Group: parquet.Group{}}
	for _, c := range columns {
		root.Group[c.name] = c.node
		root.names = append(root.names, c.name)
	}
	return parquetRows{parquet.NewWriter(w, parquet.NewSchema("ground-truth", root), parquet.Compression(&parquet.Zstd),
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
		if p.columns[i].node.Optional() && !v.IsNull() {
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

// sortedFlows returns the flows in the order of their keys' text.
func sortedFlows[V any](flows map[flow.Key]V) []flow.Key {
	return slices.SortedFunc(maps.Keys(flows), func(a, b flow.Key) int { return cmp.Compare(a.String(), b.String()) })
}
