// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
	"github.com/netsketch/netsketch/yang/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rows returns a table with every kind of column. With sparse, some rows have no value and some
// texts repeat.
func rows(n int, sparse bool) *table.Table {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	b := table.NewBuilder("/m:a/b")
	key, number := b.TextKey("flow"), b.UintKey("number")
	u, i, f, o, s, label := b.Uint("u"), b.Int("i"), b.Float("f"), b.Bool("o"), b.Text("s"), b.Text("label")
	for row := range n {
		key.Append(fmt.Sprintf("10.0.%d.%d", row>>8, row&255))
		number.Append(uint64(row))
		label.Append([]string{"src", "dst", "5-tuple"}[row%3])
		if sparse && row%7 == 3 {
			continue
		}
		u.Append(random.Uint64())
		i.Append(-random.Int64())
		f.Append(random.NormFloat64())
		o.Append(random.IntN(2) == 0)
		s.Append(strings.Repeat("é", random.IntN(20)))
	}
	t, err := b.Table()
	if err != nil {
		panic(err)
	}
	return t
}

// text formats a table as text.
func text(t *table.Table) string {
	var b []byte
	for row := range t.Rows() {
		b = t.AppendKey(b, row)
		for c := range t.Values {
			b = fmt.Appendf(b, " %s:%v", t.Values[c].Name, t.Values[c].Value(row))
		}
		b = append(b, '\n')
	}
	return string(b)
}

func TestTableRoundTrip(t *testing.T) {
	container := &table.Table{List: "/m:a/summary", Values: []table.Column{table.Float64s("x", []float64{1.5})}}
	large := rows(60_000, true)
	tests := map[string]struct {
		table *table.Table
		parts int
	}{
		"empty": {rows(0, false), 1}, "one": {rows(1, false), 1}, "dense": {rows(500, false), 1},
		"sparse": {rows(500, true), 1},
		"large":  {large, 4}, "large dense": {rows(60_000, false), 4}, "slice": {large.Slice(777, 50_001), 3},
		"container": {container, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			decoder := NewTableDecoder(64 << 20)
			var got *TableResult
			parts := 0
			for part := range (TableResult{Target: "s1", Replace: true, Table: test.table}).Parts(9) {
				parts++
				encoded, err := proto.Marshal(part)
				if err != nil {
					t.Fatal(err)
				}
				if len(encoded) > MaxChunk*5/4 {
					t.Errorf("a part of %d bytes", len(encoded))
				}
				var decoded pluginv1.TablePart
				if err := proto.Unmarshal(encoded, &decoded); err != nil {
					t.Fatal(err)
				}
				if got != nil || decoded.GetEpoch() != 9 {
					t.Fatal("a part after the last one, or of another epoch")
				}
				if got, err = decoder.Add(&decoded); err != nil {
					t.Fatal(err)
				}
			}
			if got == nil || decoder.Open() || parts != test.parts || got.Target != "s1" || !got.Replace ||
				got.Table.List != test.table.List {
				t.Fatalf("%d parts, %+v", parts, got)
			}
			if want, have := text(test.table), text(got.Table); have != want {
				t.Error(cmp.Diff(want[:min(len(want), 2000)], have[:min(len(have), 2000)]))
			}
		})
	}
}

func TestTableDecoderRefuses(t *testing.T) {
	le := binary.LittleEndian
	u32 := func(v ...uint32) (b []byte) {
		for _, x := range v {
			b = le.AppendUint32(b, x)
		}
		return b
	}
	str := func(data string, ends, codes []byte) *pluginv1.Column {
		return &pluginv1.Column{Name: "k", Kind: pluginv1.ColumnKind_COLUMN_KIND_STRING, Data: []byte(data), Ends: ends,
			Codes: codes}
	}
	num := func(kind pluginv1.ColumnKind, data []byte) *pluginv1.Column {
		return &pluginv1.Column{Name: "k", Kind: kind, Data: data}
	}
	uints := pluginv1.ColumnKind_COLUMN_KIND_UINT64
	tests := map[string]*pluginv1.Column{
		"text too short":      str("ab", u32(1, 3), nil),
		"falling ends":        str("abc", u32(2, 1), nil),
		"text after the end":  str("abc", u32(1, 2), nil),
		"ends of no size":     str("ab", []byte{1, 0, 0}, nil),
		"too few ends":        str("ab", u32(2), nil),
		"code out of range":   str("ab", u32(1, 2), u32(0, 2)),
		"too few codes":       str("ab", u32(1, 2), u32(0)),
		"not UTF-8":           str("\xff\xfe", u32(1, 2), nil),
		"endless text":        str(strings.Repeat("x", MaxText+1)+"y", u32(MaxText+1, MaxText+2), nil),
		"short numbers":       num(uints, make([]byte, 15)),
		"no kind":             num(0, make([]byte, 16)),
		"unknown kind":        num(77, make([]byte, 16)),
		"boolean of 2":        num(pluginv1.ColumnKind_COLUMN_KIND_BOOL, []byte{1, 2}),
		"nulls of wrong size": {Name: "k", Kind: uints, Data: make([]byte, 16), Nulls: []byte{0, 0}},
		"null key":            {Name: "k", Kind: uints, Data: make([]byte, 16), Nulls: []byte{2}},
		"no name":             {Kind: uints, Data: make([]byte, 16)},
		"codes of numbers":    {Name: "k", Kind: uints, Data: make([]byte, 16), Codes: u32(0, 0)},
	}
	for name, column := range tests {
		part := &pluginv1.TablePart{Last: true, Table: &pluginv1.Table{List: "/m:a/b", Rows: 2,
			Keys: []*pluginv1.Column{column}}}
		if got, err := NewTableDecoder(1 << 20).Add(part); err == nil {
			t.Errorf("%s: accepted as %s", name, text(got.Table))
		}
	}
	first := &pluginv1.TablePart{Table: &pluginv1.Table{List: "/m:a/b", Rows: 1,
		Keys: []*pluginv1.Column{num(uints, make([]byte, 8))}}}
	for name, change := range map[string]func(*pluginv1.TablePart){
		"another list":   func(p *pluginv1.TablePart) { p.Table.List = "/m:a/c" },
		"another target": func(p *pluginv1.TablePart) { p.Target = "x" },
		"another column": func(p *pluginv1.TablePart) { p.Table.Keys[0].Name = "x" },
		"fewer columns":  func(p *pluginv1.TablePart) { p.Table.Keys = nil },
		"an empty part":  func(p *pluginv1.TablePart) { p.Table.Rows = 0; p.Table.Keys[0].Data = nil },
		"no table":       func(p *pluginv1.TablePart) { p.Table = nil },
		"more than allowed": func(p *pluginv1.TablePart) {
			p.Table.Rows = 200
			p.Table.Keys[0].Data = make([]byte,
				1600)
		},
	} {
		d := NewTableDecoder(1000)
		if _, err := d.Add(proto.Clone(first).(*pluginv1.TablePart)); err != nil {
			t.Fatal(err)
		}
		second := proto.Clone(first).(*pluginv1.TablePart)
		change(second)
		if _, err := d.Add(second); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzTableDecoder(f *testing.F) {
	for _, t := range []*table.Table{rows(0, false), rows(3, true), rows(40, false)} {
		var seed []byte
		for part := range (TableResult{Table: t}).Parts(1) {
			b, err := proto.Marshal(part)
			if err != nil {
				f.Fatal(err)
			}
			seed = append(binary.LittleEndian.AppendUint32(seed, uint32(len(b))), b...)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := NewTableDecoder(1 << 20)
		for len(data) > 4 {
			n := min(int(binary.LittleEndian.Uint32(data)), len(data)-4)
			var part pluginv1.TablePart
			if n < 0 || proto.Unmarshal(data[4:4+n], &part) != nil {
				return
			}
			data = data[4+n:]
			got, err := d.Add(&part)
			if err != nil {
				return
			}
			if got != nil {
				_ = text(got.Table)
			}
		}
	})
}

func testEpoch() *Epoch {
	e := &Epoch{
		Number: 5, Start: time.Unix(5, 0).UTC(), End: time.Unix(6, 1).UTC(), Status: StatusPartial,
		Expected: []string{"s1", "s2", "s3"}, ExpectedHosts: []string{"h1"},
		BankShift: 1, Skew: 7 * time.Microsecond, Deviation: 8 * time.Microsecond,
		AccuracyWarnings: []AccuracyWarning{{"s2", "flipped late"}, {Reason: "clocks"}},
		States:           []DeviceState{{Device: "s1", Plan: 8}, {Device: "s2", Mixed: true}},
		Plans: []PlanOutcome{{8, 5, "s1", PlanApplied, ""}, {9, 7, "s1", PlanLate, "came 3 ms too late"},
			{9, 7, "s2", PlanFailed, "refused"}},
		Missing: []Missing{{Name: "s3", Reason: "no answer by the deadline"},
			{Name: "h9", Reason: "gone", Host: true, Joined: true}},
		Hosts: []HostReport{{Host: "h1", Role: "a", Data: bytes.Repeat([]byte("r"), MaxChunk+1)},
			{Host: "h1", Role: "b"}, {Host: "h2", Role: "a", Data: []byte("x")}},
		Late: []LateReport{{3, HostReport{Host: "h2", Role: "a", Data: []byte("y")}},
			{4, HostReport{Host: "h2", Role: "a", Data: bytes.Repeat([]byte("z"), MaxChunk+1)}}},
		LateWarnings: []LateWarning{{4, AccuracyWarning{"s1", "2 packets arrived after it was read"}}},
	}
	cells := make([]uint32, MaxChunk/4*2+7)
	for i := range cells {
		cells[i] = uint32(i) * 2654435761
	}
	e.Put("s2", CellsOf("r.wide", cells))
	e.Put("s2", CellsOf("r.byte", []uint8{1, 2, 255}))
	e.Put("s1", CellsOf("r.long", []uint64{1 << 60}))
	e.Put("s1", CellsOf("r.none", []uint16{}))
	sparse := make([]uint16, MaxChunk+3)
	sparse[5000], sparse[MaxChunk/2], sparse[MaxChunk/2+40_000] = 1, 2, 3
	e.Put("s1", CellsOf("r.sparse", sparse))
	e.Put("s1", CellsOf("r.zero", make([]uint32, 5)))
	return e
}

func messages(tb testing.TB, e *Epoch) (all []proto.Message) {
	tb.Helper()
	if err := e.Send(func(part *pluginv1.EpochPart) error {
		m := part.ProtoReflect()
		of := m.WhichOneof(m.Descriptor().Oneofs().Get(0))
		all = append(all, proto.Clone(m.Get(of).Message().Interface()))
		return nil
	}, time.Second); err != nil {
		tb.Fatal(err)
	}
	return all
}

func feed(d *EpochDecoder, m proto.Message) error {
	switch m := m.(type) {
	case *pluginv1.EpochBegin:
		return d.Take(&pluginv1.EpochPart{Message: &pluginv1.EpochPart_Begin{Begin: m}})
	case *pluginv1.DeviceChunk:
		return d.Take(&pluginv1.EpochPart{Message: &pluginv1.EpochPart_Device{Device: m}})
	case *pluginv1.HostChunk:
		return d.Take(&pluginv1.EpochPart{Message: &pluginv1.EpochPart_Host{Host: m}})
	case *pluginv1.EpochEnd:
		return d.Take(&pluginv1.EpochPart{Message: &pluginv1.EpochPart_End{End: m}})
	}
	return errors.New("what is this")
}

func TestEpochRoundTrip(t *testing.T) {
	var got *Epoch
	d := NewEpochDecoder(1<<30, func(e *Epoch, budget time.Duration) error {
		if budget != time.Second {
			t.Errorf("budget %v", budget)
		}
		got = e
		return nil
	})
	for range 2 { // two epochs, one after the other
		for _, m := range messages(t, testEpoch()) {
			if c, ok := m.(*pluginv1.DeviceChunk); ok && c.Object == "r.sparse" && len(c.Data) > 2*4096 {
				t.Errorf("%d bytes of sparse cells from cell %d", len(c.Data), c.FirstCell)
			}
			if proto.Size(m) > MaxChunk+1000 {
				t.Errorf("a message of %d bytes", proto.Size(m))
			}
			if err := feed(d, m); err != nil {
				t.Fatal(err)
			}
		}
		equal := cmp.Comparer(func(a, b []byte) bool { return bytes.Equal(a, b) })
		if diff := cmp.Diff(testEpoch(), got, equal); diff != "" {
			t.Errorf("%.3000s", diff)
		}
	}
	if got.Bytes() != testEpoch().Bytes() || got.Device("s2").Object("r.byte").At(2) != 255 ||
		got.Device("s9") != nil || got.Device("s1").Object("x") != nil {
		t.Error("lookup")
	}
}

func TestEpochDecoderRefuses(t *testing.T) {
	tests := map[string]func(all []proto.Message) []proto.Message{
		"no begin":  func(all []proto.Message) []proto.Message { return all[1:] },
		"two begin": func(all []proto.Message) []proto.Message { return slices.Insert(all, 1, all[0]) },
		"a chunk is missing": func(all []proto.Message) []proto.Message {
			return slices.DeleteFunc(all, func(m proto.Message) bool {
				c, ok := m.(*pluginv1.DeviceChunk)
				return ok &&
					c.FirstCell == MaxChunk/4
			})
		},
		"the last chunk is missing": func(all []proto.Message) []proto.Message {
			return slices.DeleteFunc(all, func(m proto.Message) bool {
				c, ok := m.(*pluginv1.DeviceChunk)
				return ok &&
					c.FirstCell == MaxChunk/2
			})
		},
		"zeros beyond the object": func(all []proto.Message) []proto.Message {
			for _, m := range all {
				if c, ok := m.(*pluginv1.DeviceChunk); ok && c.ZeroCells > 0 {
					c.ZeroCells = math.MaxUint64
				}
			}
			return all
		},
		"fewer zeros": func(all []proto.Message) []proto.Message {
			for _, m := range all {
				if c, ok := m.(*pluginv1.DeviceChunk); ok && c.ZeroCells > 0 {
					c.ZeroCells--
				}
			}
			return all
		},
		"an object twice": func(all []proto.Message) []proto.Message { return slices.Insert(all, 1, all[1]) },
		"odd width": func(all []proto.Message) []proto.Message {
			all[1].(*pluginv1.DeviceChunk).WidthBits = 9
			return all
		},
		"total grows": func(all []proto.Message) []proto.Message {
			all[1].(*pluginv1.DeviceChunk).TotalCells = 1 << 40
			return all
		},
		"more than total": func(all []proto.Message) []proto.Message {
			all[1].(*pluginv1.DeviceChunk).Data = make([]byte, 64)
			all[1].(*pluginv1.DeviceChunk).WidthBits = 64
			all[1].(*pluginv1.DeviceChunk).TotalCells = 1
			return all
		},
		"width changes": func(all []proto.Message) []proto.Message {
			for _, m := range all {
				if c, ok := m.(*pluginv1.DeviceChunk); ok && c.FirstCell > 0 {
					c.WidthBits, c.FirstCell, c.TotalCells = 16, 2*c.FirstCell, 2*c.TotalCells
				}
			}
			return all
		},
		"late report of this epoch": func(all []proto.Message) []proto.Message {
			all[len(all)-2].(*pluginv1.HostChunk).Offset = 0 // the chunk follows a complete report
			return slices.Insert(all, len(all)-1, proto.Message(&pluginv1.HostChunk{Host: "h3", Role: "a", LateEpoch: 5}))
		},
		"no status": func(all []proto.Message) []proto.Message {
			all[len(all)-1].(*pluginv1.EpochEnd).Status = 0
			return all
		},
		"wrong end": func(all []proto.Message) []proto.Message {
			all[len(all)-1].(*pluginv1.EpochEnd).Epoch = 6
			return all
		},
		"ends at start": func(all []proto.Message) []proto.Message {
			all[0].(*pluginv1.EpochBegin).EndUnixNs = 5e9
			return all
		},
		"host report cut": func(all []proto.Message) []proto.Message {
			return slices.DeleteFunc(all, func(m proto.Message) bool {
				c, ok := m.(*pluginv1.HostChunk)
				return ok &&
					c.Offset > 0
			})
		},
		"host report too long": func(all []proto.Message) []proto.Message {
			all[len(all)-2].(*pluginv1.HostChunk).TotalBytes = 1 << 50
			return all
		},
	}
	for name, spoil := range tests {
		d := NewEpochDecoder(64<<20, func(*Epoch, time.Duration) error { return nil })
		var err error
		for _, m := range spoil(messages(t, testEpoch())) {
			if err = feed(d, m); err != nil {
				break
			}
		}
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	d := NewEpochDecoder(1<<20, func(*Epoch, time.Duration) error { return nil })
	var err error
	for _, m := range messages(t, testEpoch()) {
		if err = feed(d, m); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrEpochTooLarge) {
		t.Errorf("over the limit: %v", err)
	}
}

func FuzzEpochDecoder(f *testing.F) {
	small := testEpoch()
	small.Hosts[0].Data = []byte("short")
	small.Device("s2").Object("r.wide").Packed = make([]byte, 32)
	var seed []byte
	if err := small.Send(func(m *pluginv1.EpochPart) error {
		b, err := proto.Marshal(m)
		seed = append(append(seed, byte(len(b))), b...)
		return err
	}, 0); err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		d := NewEpochDecoder(1<<20, func(e *Epoch, _ time.Duration) error {
			for _, d := range e.Devices {
				for _, o := range d.Objects {
					if err := o.Check(); err != nil {
						t.Fatal(err)
					}
					_ = o.Uint32s()
				}
			}
			return nil
		})
		for len(data) > 1 {
			n := min(int(data[0]), len(data)-1)
			var m pluginv1.EpochPart
			if proto.Unmarshal(data[1:1+n], &m) != nil {
				return
			}
			data = data[1+n:]
			if d.Take(&m) != nil {
				return
			}
		}
	})
}

func TestModelsRoundTrip(t *testing.T) {
	d := Description{
		Name: "n", Version: "v", Summary: "s", ConfigSchema: "{}", SDK: "x",
		Programs: []ProgramNeed{{Role: "edge", Program: "p"}},
		Objects:  []ObjectNeed{{Name: "o", Annotation: "a", Values: map[string]string{"k": "v"}, Role: "r", Optional: true}},
		Modules:  []Module{{Name: "m", Text: "t"}}, Lists: []List{{Path: "/m:l", Summary: "s", Watchable: true}},
		Capabilities: Capabilities{Query: true, Merge: true, Drain: true, Watch: true, NetworkUpdates: true,
			State: true},
	}
	marked := d.Proto()
	marked.ConfigSchema = "\ufeff" + marked.GetConfigSchema() // as some editors write files
	marked.Modules[0].Text = "\ufeff" + marked.GetModules()[0].GetText()
	if diff := cmp.Diff(d, DescriptionFrom(marked)); diff != "" {
		t.Errorf("texts with byte order marks: %s", diff)
	}
	if diff := cmp.Diff(d, DescriptionFrom(d.Proto())); diff != "" {
		t.Error(diff)
	}
	n := Network{Version: 2,
		Devices: []Device{{Name: "d", Role: "r", Program: "p", Ports: []Port{{1, "eth1"}},
			Forwarding: &Forwarding{Seed: 7, Groups: []PortGroup{{Ports: []uint32{1, 2}}},
				Routes: []Route{{Prefix: "10.0.0.0/8", Group: 0}}},
			Objects: []Object{{Name: "o", Alias: "a", Cells: 4, Width: 13, Banks: 2,
				Annotations: Annotations{"x": {"k": "v"}}}},
			Unread: []Object{{Name: "u", Cells: 8, Width: 32, Banks: 1, Annotations: Annotations{"y": {"k": "w"}}}}}},
		Hosts: []Host{{Name: "h", Addresses: []string{"::1"}, Agent: true}},
		Links: []Link{{A: Endpoint{"d", 1}, B: Endpoint{"h", 0}, CapacityBPS: 7}},
	}
	if diff := cmp.Diff(n, NetworkFrom(n.Proto())); diff != "" {
		t.Error(diff)
	}
	entry := TableEntry{Table: "t", Priority: 3, Action: "a", Params: []ActionParam{{"p", []byte{1}}},
		Matches: []FieldMatch{{Field: "f", Value: []byte{1}, Mask: []byte{2}, High: []byte{3}, PrefixLen: 8}}}
	s := Settings{BankEpochs: 4, Merge: true, Bindings: []Binding{{"d", "o"}},
		Missing: []MissingObject{{"d", "o", "nothing"}},
		Plan: &Plan{FromEpoch: 4, Writes: []DeviceWrite{{"d", Insert, entry}, {"d", Modify, entry},
			{"d", Delete, entry}, {"d", SetDefault, entry}},
			Hosts: []HostSetting{{"h", "r", []byte("x"), nil}}}}
	got, err := SettingsFrom(s.Proto())
	if diff := cmp.Diff(s, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, err := PlanFrom(&pluginv1.Plan{Writes: []*pluginv1.DeviceWrite{{Device: "d"}}}); err == nil {
		t.Error("a write without a kind is accepted")
	}
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		e := Event{Level: level, Message: "m", Attributes: map[string]string{"a": "b"}}
		if diff := cmp.Diff(e, EventFrom(e.Proto())); diff != "" {
			t.Error(diff)
		}
	}
	if e := EventFrom(&pluginv1.Event{Message: strings.Repeat("x", 5000)}); len(e.Message) != 1024 {
		t.Errorf("a message of %d bytes", len(e.Message))
	}
	stats := Stats{Duration: time.Second, InputBytes: 2, Tables: 3, Rows: 4}
	if StatsFrom(stats.Proto()) != stats {
		t.Error("stats")
	}
}

func TestCells(t *testing.T) {
	if got := CellsOf("o", []uint32{1, 1 << 31}).Uint32s(); !slices.Equal(got, []uint32{1, 1 << 31}) {
		t.Error(got)
	}
	packed := CellsOf("o", []uint16{1, 0xabcd, 3})
	if !slices.Equal(packed.Packed, []byte{1, 0, 0xcd, 0xab, 3, 0}) || packed.Len() != 3 || packed.At(1) != 0xabcd {
		t.Error(packed)
	}
	if !slices.Equal(packed.Uint64s(), []uint64{1, 0xabcd, 3}) || !slices.Equal(packed.Uint8s(), []uint8{1, 0xcd, 3}) {
		t.Error(packed.Uint64s(), packed.Uint8s())
	}
	odd := Cells{Width: 32, Packed: append([]byte{9}, CellsOf("", []uint32{5, 6}).Packed...)[1:]} // not aligned
	if !slices.Equal(odd.Uint32s(), []uint32{5, 6}) {
		t.Error(odd.Uint32s())
	}
	view := CellsOf("o", []uint32{1, 2})
	view.Uint32s()[0] = 7
	if view.At(0) != 7 {
		t.Error("not a view")
	}
	for _, bad := range []Cells{{Width: 0}, {Width: 12}, {Width: 32, Packed: make([]byte, 3)}} {
		if bad.Check() == nil {
			t.Errorf("%+v passes", bad)
		}
	}
	if (Cells{}).Len() != 0 || len((Cells{Width: 8}).Uint8s()) != 0 {
		t.Error("empty")
	}
}

func TestBind(t *testing.T) {
	object := func(name, structure string) Object {
		return Object{Name: name, Alias: name[strings.LastIndex(name, ".")+1:],
			Annotations: Annotations{"mine": {"structure": structure}, "other": {"k": "v"}}}
	}
	n := Network{Devices: []Device{
		{Name: "leaf", Role: "edge", Objects: []Object{object("MyIngress.um.cells", "univmon"),
			object("MyIngress.um.keys", "univmon"), object("a/b[1].c", "x")}},
		{Name: "spine", Role: "transit", Objects: []Object{object("MyIngress.um.cells", "univmon")}},
	}}
	tests := []struct {
		need ObjectNeed
		want string
	}{
		{ObjectNeed{Name: "MyIngress.um.cells"}, "leaf spine"},
		{ObjectNeed{Name: "cells", Role: "edge"}, "leaf"},
		{ObjectNeed{Name: "*.um.*"}, "leaf leaf spine"},
		{ObjectNeed{Name: "a/b[1]*"}, "leaf"},
		{ObjectNeed{Annotation: "mine", Values: map[string]string{"structure": "univmon"}}, "leaf leaf spine"},
		{ObjectNeed{Annotation: "mine", Values: map[string]string{"structure": ""}, Role: "transit"}, "spine"},
		{ObjectNeed{Annotation: "mine", Values: map[string]string{"k": "v"}}, "missing @mine[k=v]"},
		{ObjectNeed{Annotation: "other", Values: map[string]string{"structure": "univmon"}},
			"missing @other[structure=univmon]"},
		{ObjectNeed{Annotation: "third"}, "missing @third"},
		{ObjectNeed{Name: "nothing", Annotation: "mine", Values: map[string]string{"a": "", "b": "c"}},
			"missing nothing @mine[a, b=c]"},
		{ObjectNeed{Name: "nothing", Optional: true}, ""},
	}
	for _, test := range tests {
		bindings, missing := n.Bind([]ObjectNeed{test.need, test.need})
		var got []string
		for _, b := range bindings {
			got = append(got, b.Device)
		}
		if len(missing) > 0 {
			got = append(got, "missing", missing[0].Object)
		}
		if len(missing) > 0 && !strings.HasPrefix(missing[0].Consequence,
			"the registers of leaf are MyIngress.um.cells @mine @other, MyIngress.um.keys @mine") {
			t.Errorf("%+v: %s", test.need, missing[0].Consequence)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%+v: %v, want %s", test.need, got, test.want)
		}
	}
	if n.Device("leaf").Object("cells") == nil || n.Device("none") != nil || n.Device("spine").Object("") != nil {
		t.Error("lookup")
	}
}

// The memory for a plugin's messages is bounded, whether they contain long names, tables without
// rows, or announced rows that never come.
func TestTableDecoderIsBounded(t *testing.T) {
	const limit = 1 << 20
	keys := func(name string, rows int) []*pluginv1.Column {
		return []*pluginv1.Column{{Name: name, Kind: pluginv1.ColumnKind_COLUMN_KIND_UINT64,
			Data: make([]byte, 8*rows)}}
	}
	for name, part := range map[string]*pluginv1.TablePart{
		"long names": {Last: true, Table: &pluginv1.Table{List: "/m:a/b", Rows: 1,
			Keys: keys(strings.Repeat("k", 10_000), 1)}},
		"tables without rows": {Last: true, Table: &pluginv1.Table{List: "/m:a/b", Keys: keys("k", 0)}},
		"long targets": {Last: true, Target: strings.Repeat("t", 10_000),
			Table: &pluginv1.Table{List: "/m:a/b", Rows: 1, Keys: keys("k", 1)}},
	} {
		d := NewTableDecoder(limit)
		n := 0
		var err error
		for ; err == nil && n < limit; n++ {
			_, err = d.Add(proto.Clone(part).(*pluginv1.TablePart))
		}
		if !errors.Is(err, ErrTableTooLarge) || n > limit/256+1 {
			t.Errorf("%s: %d tables, then %v", name, n, err)
		}
	}
	dictionary := &pluginv1.TablePart{Last: true, Table: &pluginv1.Table{List: "/m:a/b", Rows: 100,
		Keys: []*pluginv1.Column{{
			Name: "k", Kind: pluginv1.ColumnKind_COLUMN_KIND_STRING, Data: bytes.Repeat([]byte("x"), 20_000),
			Ends: binary.LittleEndian.AppendUint32(nil, 20_000), Codes: make([]byte, 400)}}}}
	if _, err := NewTableDecoder(limit).Add(dictionary); !errors.Is(err, ErrTableTooLarge) {
		t.Errorf("one text in a hundred rows: %v", err)
	}
	d := NewTableDecoder(limit)
	with := &pluginv1.TablePart{Table: &pluginv1.Table{List: "/m:a/b", Rows: 1, Values: keys("state/v", 1)}}
	with.Table.Values[0].Nulls = []byte{1}
	if _, err := d.Add(with); err != nil {
		t.Fatal(err)
	}
	announced := &pluginv1.TablePart{Table: &pluginv1.Table{List: "/m:a/b", Rows: 1 << 30, Values: keys("state/v", 1)}}
	before := new(runtime.MemStats)
	runtime.ReadMemStats(before)
	_, err := d.Add(announced)
	after := new(runtime.MemStats)
	runtime.ReadMemStats(after)
	if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > limit {
		t.Errorf("rows that do not come: %d bytes of memory, error %v", took, err)
	}
}

// Host settings share their common ends on the wire, so that settings of many hosts, each of which
// lists all hosts, fit in a message.
func TestHostSettings(t *testing.T) {
	common := bytes.Repeat([]byte("192.0.2.1,"), 1024)
	p := Plan{ID: 1}
	for i := range 1024 {
		p.Hosts = append(p.Hosts, HostSetting{Host: fmt.Sprintf("h%d", i), Role: "r",
			Data: slices.Concat(fmt.Appendf(nil, "host %d of ", i), common)})
	}
	p.Hosts[500].Data = nil
	p.Hosts[501].Data = []byte("x")
	m := p.Proto()
	if size := proto.Size(m); size > 64<<10 {
		t.Errorf("a plan of %d bytes", size)
	}
	got, err := PlanFrom(m)
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.Hosts {
		if x, y := p.Hosts[i], got.Hosts[i]; x.Host != y.Host || x.Role != y.Role || !bytes.Equal(x.Data, y.Whole()) {
			t.Fatalf("setting %d: %.100q, want %.100q", i, y.Data, x.Data)
		}
	}
	m.Hosts[3].Tail++ // more than the previous setting's length
	m.Hosts[3].Tail += uint64(len(p.Hosts[2].Data))
	if _, err := PlanFrom(m); err == nil || !strings.Contains(err.Error(), `host "h3"`) {
		t.Errorf("error %v", err)
	}
	if a, b := got.Hosts[1].Tail, got.Hosts[499].Tail; len(a) < len(common) || !SameTail(a, b) {
		t.Errorf("ends of %d and %d bytes, which are not the same memory", len(a), len(b))
	}
	if again := got.Proto(); proto.Size(again) > 64<<10 {
		t.Errorf("the plan that was read has %d bytes", proto.Size(again))
	}
	large := &pluginv1.Plan{Hosts: []*pluginv1.HostSetting{{Data: make([]byte, 3<<20)}}}
	for range 256 {
		large.Hosts = append(large.Hosts, &pluginv1.HostSetting{Data: []byte("x"), Tail: 3 << 20})
	}
	if _, err := PlanFrom(large); err != nil {
		t.Errorf("settings that share their end: %v", err)
	}
	large.Hosts[7].Data = make([]byte, 1<<20+1)
	if _, err := PlanFrom(large); err == nil || !strings.Contains(err.Error(), "more than 4 MiB") {
		t.Errorf("error %v", err)
	}
	large.Hosts[7].Data = []byte("x")
	for i := range large.GetHosts()[1:] { // each one ends with one byte more of the one before
		large.Hosts[i+1].Tail += uint64(i)
	}
	if _, err := PlanFrom(large); err == nil || !strings.Contains(err.Error(), "more than 256 MiB") {
		t.Errorf("error %v", err)
	}
}

// No plan makes the decoder panic or allocate more than its bound. A plan that it accepts is
// unchanged after encoding and decoding it again.
func FuzzPlan(f *testing.F) {
	seed, err := proto.Marshal(Plan{ID: 1, FromEpoch: 2, Writes: []DeviceWrite{{Device: "d", Op: Insert,
		Entry: TableEntry{Table: "t", Matches: []FieldMatch{{Field: "f", Value: []byte{1}}}}}},
		Hosts: []HostSetting{{Host: "h1", Role: "r", Data: []byte("1 abc")}, {Host: "h2", Role: "r", Data: []byte("2 abc")}},
	}.Proto())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		var m pluginv1.Plan
		if proto.Unmarshal(data, &m) != nil {
			return
		}
		p, err := PlanFrom(&m)
		if err != nil {
			return
		}
		again, err := PlanFrom(p.Proto())
		if err != nil {
			t.Fatal(err)
		}
		if len(again.Hosts) != len(p.Hosts) || len(again.Writes) != len(p.Writes) {
			t.Fatalf("%d hosts and %d writes; before %d and %d", len(again.Hosts), len(again.Writes), len(p.Hosts),
				len(p.Writes))
		}
		for i := range p.Hosts {
			if !bytes.Equal(p.Hosts[i].Data, again.Hosts[i].Data) {
				t.Fatalf("setting %d is %q; before %q", i, again.Hosts[i].Data, p.Hosts[i].Data)
			}
		}
	})
}
