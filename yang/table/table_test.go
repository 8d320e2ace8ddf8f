// SPDX-License-Identifier: Apache-2.0

package table

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

const list = "/netsketch-univmon:univmon/heavy-hitters/heavy-hitter"

// sample returns a table of n rows with every kind and some nulls, and the same rows as boxed
// values.
func sample(tb testing.TB, n, flows int) (*Table, [][]any) {
	tb.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	b := NewBuilder(list)
	device, flow := b.TextKey("node"), b.TextKey("flow")
	packets, delta := b.Uint("state/packets"), b.Int("state/delta")
	share, up, kind := b.Float("state/share"), b.Bool("state/up"), b.Text("state/kind")
	rows := make([][]any, n)
	for i := range n {
		r := []any{fmt.Sprintf("leaf-%d", rng.IntN(4)), fmt.Sprintf("10.0.0.%d]\\", rng.IntN(flows)),
			rng.Uint64(), rng.Int64() - math.MaxInt64/2, rng.Float64(), rng.IntN(2) == 0,
			[]string{"rise", "fall"}[rng.IntN(2)]}
		device.Append(r[0].(string))
		flow.AppendBytes([]byte(r[1].(string)))
		for c := 2; c < len(r); c++ {
			if rng.IntN(5) == 0 {
				r[c] = nil
			}
		}
		if r[2] != nil {
			packets.Append(r[2].(uint64))
		}
		if r[3] != nil {
			delta.Append(r[3].(int64))
		}
		if r[4] != nil {
			share.Append(r[4].(float64))
		}
		if r[5] != nil {
			up.Append(r[5].(bool))
		}
		if r[6] != nil {
			kind.Append(r[6].(string))
		}
		rows[i] = r
	}
	t, err := b.Table()
	if err != nil {
		tb.Fatal(err)
	}
	return t, rows
}

func boxed(t *Table) [][]any {
	rows := make([][]any, t.Rows())
	for r := range rows {
		for i := range t.Keys {
			rows[r] = append(rows[r], t.Keys[i].Value(r))
		}
		for i := range t.Values {
			rows[r] = append(rows[r], t.Values[i].Value(r))
		}
	}
	return rows
}

func TestBuilderSlice(t *testing.T) {
	for _, flows := range []int{10, 5000} { // with and without a dictionary
		tab, want := sample(t, 3000, flows)
		if got := boxed(tab); !reflect.DeepEqual(got, want) {
			t.Fatalf("%d flows: the table does not hold what was appended", flows)
		}
		codes := tab.Keys[1].text.codes
		if dictionary := codes != nil; dictionary != (flows == 10) {
			t.Errorf("%d flows: dictionary %v", flows, dictionary)
		}
		for _, cut := range [][2]int{{0, 3000}, {0, 0}, {3000, 3000}, {1, 64}, {63, 65}, {700, 2999}} {
			s := tab.Slice(cut[0], cut[1]).Slice(0, cut[1]-cut[0])
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
			if got := boxed(s); len(got) != cut[1]-cut[0] || len(got) > 0 &&
				!reflect.DeepEqual(got, want[cut[0]:cut[1]]) {
				t.Errorf("slice %v differs", cut)
			}
			for _, c := range append(s.Keys, s.Values...) {
				back := roundTrip(t, c)
				for r := range c.Len() {
					if back.Value(r) != c.Value(r) {
						t.Fatalf("slice %v, column %s, row %d: %v came back as %v", cut, c.Name, r, c.Value(r),
							back.Value(r))
					}
				}
			}
		}
	}
}

// roundTrip splits a column into its parts and rebuilds it, as the wire format does.
func roundTrip(t *testing.T, c Column) Column {
	t.Helper()
	nulls := c.NullBits()
	var out Column
	switch c.Kind {
	case Uint64:
		out = Uint64s(c.Name, c.Uint64s())
	case Int64:
		out = Int64s(c.Name, c.Int64s())
	case Float64:
		out = Float64s(c.Name, c.Float64s())
	case Bool:
		out = Bools(c.Name, c.Bools())
	case String:
		c = c.Compact()
		data, offsets, codes := c.Packed()
		var err error
		if out, err = PackedStrings(c.Name, data, offsets, codes); err != nil {
			t.Fatal(err)
		}
	}
	out, err := out.WithNulls(nulls)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEmptyText(t *testing.T) {
	b := NewBuilder(list)
	b.TextKey("flow")
	tab, err := b.Table()
	if err != nil {
		t.Fatal(err)
	}
	if tab.Rows() != 0 || tab.Slice(0, 0).Rows() != 0 {
		t.Error("an empty table has rows")
	}
	roundTrip(t, tab.Keys[0])
}

// TestBytes checks that a text counts in every row that has it, and that a slice counts only its
// own rows.
func TestBytes(t *testing.T) {
	tab := &Table{List: "/m:a/b", Keys: []Column{Strings("k", []string{"aaaa", "bb", "aaaa"})},
		Values: []Column{Uint64s("u", make([]uint64, 3)), Bools("b", make([]bool, 3)),
			Strings("s", []string{"1", "22", "333"})}}
	if got := tab.Bytes(); got != 10+24+3+6 {
		t.Errorf("%d bytes", got)
	}
	if got := tab.Slice(1, 2).Bytes(); got != 2+8+1+2 {
		t.Errorf("%d bytes in the second row", got)
	}
	if got := (&Table{List: "/m:a/b", Keys: []Column{Strings("k", nil)}}).Bytes(); got != 0 {
		t.Errorf("%d bytes in no row", got)
	}
}

func TestCheck(t *testing.T) {
	nulls := func(c Column) Column { c, _ = c.WithNulls([]uint64{1}); return c }
	tests := []struct {
		name string
		t    Table
		want string
	}{
		{"no path", Table{List: "heavy", Keys: []Column{Uint64s("k", nil)}}, "schema path"},
		{"no columns", Table{List: list}, "no columns"},
		{"lengths", Table{List: list, Keys: []Column{Uint64s("k", []uint64{1})}, Values: []Column{Int64s("v", nil)}},
			"column v has 0 rows"},
		{"twice", Table{List: list, Keys: []Column{Uint64s("k", nil)}, Values: []Column{Int64s("k", nil)}}, "twice"},
		{"null key", Table{List: list, Keys: []Column{nulls(Uint64s("k", []uint64{1}))}},
			"key k is absent in 1 of 1 rows"},
		{"container", Table{List: list, Values: []Column{Uint64s("v", []uint64{1, 2})}}, "one row"},
		{"absolute", Table{List: list, Keys: []Column{Uint64s("/k", nil)}}, "relative"},
		{"no kind", Table{List: list, Values: []Column{{Name: "v"}}}, "no kind"},
	}
	for _, tt := range tests {
		if err := tt.t.Check(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error with %q", tt.name, err, tt.want)
		}
	}
}

func TestPackedStringsRefuses(t *testing.T) {
	tests := []struct {
		data           string
		offsets, codes []uint32
	}{
		{"abc", nil, nil},
		{"abc", []uint32{0, 2}, nil},
		{"abc", []uint32{1, 3}, nil},
		{"abc", []uint32{0, 4}, nil},
		{"abc", []uint32{0, 3, 2, 3}, nil},
		{"abc", []uint32{0, 3}, []uint32{0, 1}},
	}
	for _, tt := range tests {
		if _, err := PackedStrings("v", tt.data, tt.offsets, tt.codes); err == nil {
			t.Errorf("PackedStrings(%q, %v, %v) took it", tt.data, tt.offsets, tt.codes)
		}
	}
	if _, err := Uint64s("v", make([]uint64, 65)).WithNulls([]uint64{0}); err == nil {
		t.Error("a null bitmap that is too short was taken")
	}
}

func FuzzPackedStrings(f *testing.F) {
	f.Add("abc", []byte{0, 1, 3}, []byte{0, 1, 1})
	f.Fuzz(func(t *testing.T, data string, off, code []byte) {
		widen := func(b []byte) []uint32 {
			var out []uint32
			for _, v := range b {
				out = append(out, uint32(v))
			}
			return out
		}
		c, err := PackedStrings("v", data, widen(off), widen(code))
		if err != nil {
			return
		}
		for r := range c.Len() { // each row of a column that was accepted can be read
			_ = c.Text(r)
		}
	})
}

func TestKeyText(t *testing.T) {
	tab := &Table{List: list, Keys: []Column{Strings("flow", []string{`a]\b`}), Uint64s("port", []uint64{7})}}
	if got, want := tab.RowPath(0), list+`[flow=a\]\\b][port=7]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	row := []Column{Float64s("f", []float64{1e21}), Int64s("i", []int64{-5}), Bools("b", []bool{true}),
		Strings("s", []string{"x"})}
	want := []string{"1000000000000000000000", "-5", "true", "x"}
	for i := range row {
		if got := string(row[i].AppendText(nil, 0)); got != want[i] {
			t.Errorf("%s: got %s, want %s", row[i].Name, got, want[i])
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	flows := make([]string, 100_000)
	for i := range flows {
		flows[i] = fmt.Sprintf("10.0.%d.%d,10.1.0.1,tcp,%d,80", i>>8&255, i&255, i)
	}
	b.ReportAllocs()
	for b.Loop() {
		bd := NewBuilder(list)
		device, flow, packets := bd.TextKey("node"), bd.TextKey("flow"), bd.Uint("state/packets")
		for i, f := range flows {
			device.Append("leaf-1")
			flow.Append(f)
			packets.Append(uint64(i))
		}
		if _, err := bd.Table(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(flows)*b.N)/b.Elapsed().Seconds(), "rows/s")
}

// TestSkippedRows: rows without a value lack the leaf, at the beginning, in between and at the end.
func TestSkippedRows(t *testing.T) {
	b := NewBuilder(list)
	b.EachUint("state/epoch", 7)
	flow, packets, kind, up := b.TextKey("flow"), b.Uint("state/packets"), b.Text("state/kind"), b.Bool("state/up")
	b.EachBool("state/final", true)
	for i := range 130 {
		flow.Append(fmt.Sprint(i))
		packets.AppendIf(uint64(i), i == 65)
		kind.AppendSome(map[int]string{1: "rise", 128: "fall"}[i])
	}
	up.Append(true)
	got, err := b.Table()
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range boxed(got) {
		want := []any{fmt.Sprint(i), uint64(7), nil, nil, nil, true}
		switch i {
		case 1:
			want[3] = "rise"
		case 65:
			want[2] = uint64(65)
		case 128:
			want[3] = "fall"
		case 129:
			want[4] = true
		}
		if !reflect.DeepEqual(row, want) {
			t.Errorf("row %d: %v, want %v", i, row, want)
		}
	}
	b = NewBuilder(list)
	flow, packets = b.TextKey("flow"), b.Uint("state/packets")
	flow.Append("a")
	packets.Append(1)
	packets.Append(2)
	if _, err := b.Table(); err == nil || !strings.Contains(err.Error(), "state/packets has 2 rows") {
		t.Errorf("two values of a row: %v", err)
	}
	b = NewBuilder("/m:container")
	b.Uint("state/none")
	b.EachUint("state/epoch", 7)
	if got, err = b.Table(); err != nil || !reflect.DeepEqual(boxed(got), [][]any{{nil, uint64(7)}}) {
		t.Errorf("a container: %v, %v", err, got)
	}
}
