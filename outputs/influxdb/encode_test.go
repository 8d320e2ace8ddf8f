// SPDX-License-Identifier: Apache-2.0

package influxdb

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/influxdata/line-protocol/v2/lineprotocol"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang/table"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// newEncoder returns an encoder and the list to which it adds its chunks.
func newEncoder(maxLines, maxSeries int) (*encoder, *[]chunk) {
	var chunks []chunk
	e := &encoder{
		exclude: map[string]bool{}, lists: map[listKey]*liveRows{}, limit: newSeriesLimit(maxSeries, time.Hour),
		maxBytes: 1 << 20, maxLines: maxLines, logger: slog.New(slog.DiscardHandler),
	}
	e.emit = func(c chunk) { chunks = append(chunks, c) }
	return e, &chunks
}

// encode encodes the rows of a table.
func (e *encoder) encode(target string, at time.Time, t *table.Table) {
	e.publish(&store.Batch{Target: target, Time: at}, &store.Publication{Table: t})
}

func TestLines(t *testing.T) {
	nulls := func(c table.Column, bits uint64) table.Column { c, _ = c.WithNulls([]uint64{bits}); return c }
	tests := []struct {
		name     string
		t        table.Table
		unsigned bool
		want     string
	}{
		{"a list", table.Table{
			List: "/netsketch-univmon:univmon/heavy-hitters/heavy-hitter",
			Keys: []table.Column{table.Strings("node", []string{"leaf 1", "leaf-2"}),
				table.Strings("flow", []string{"10.0.0.1,10.0.0.2,tcp,1,80", `a=b\`})},
			Values: []table.Column{table.Uint64s("state/packets", []uint64{5, math.MaxUint64}),
				table.Float64s("state/share", []float64{0.5, 1e-7}), table.Strings("state/flow", []string{"x", "y"})},
		}, false, `univmon/heavy-hitter,flow=10.0.0.1\,10.0.0.2\,tcp\,1\,80,node=leaf\ 1,target=netsketch ` +
			"packets=5i,share=0.5,ended=false 1795176000000000000\n" +
			`univmon/heavy-hitter,flow=a\=b%5C,node=leaf-2,target=netsketch packets=9223372036854775807i,` +
			"share=1e-07,ended=false 1795176000000000000\n"},
		{"the fields of a flow", table.Table{
			List: "/m:a/flows/flow", Keys: []table.Column{table.Strings("flow", []string{"10.0.0.1,10.0.0.2,tcp,1,80", "x"})},
			Values: []table.Column{table.Uint64s("state/packets", []uint64{5, 6}),
				nulls(table.Strings("state/source-address", []string{"10.0.0.1", ""}), 2),
				nulls(table.Strings("state/destination-address", []string{"10.0.0.2", ""}), 2),
				nulls(table.Strings("state/protocol", []string{"tcp", ""}), 2),
				nulls(table.Uint64s("state/source-port", []uint64{1, 0}), 2),
				nulls(table.Uint64s("state/destination-port", []uint64{80, 0}), 2)},
		}, false, `a/flow,destination-address=10.0.0.2,destination-port=80,flow=10.0.0.1\,10.0.0.2\,tcp\,1\,80,` +
			"protocol=tcp,source-address=10.0.0.1,source-port=1,target=netsketch packets=5i,ended=false " +
			"1795176000000000000\n" +
			"a/flow,flow=x,target=netsketch packets=6i,ended=false 1795176000000000000\n"},
		{"unsigned", table.Table{
			List: "/m:top/list", Keys: []table.Column{table.Uint64s("id", []uint64{7})},
			Values: []table.Column{table.Uint64s("state/n", []uint64{math.MaxUint64})},
		}, true, "top/list,id=7,target=netsketch n=18446744073709551615u,ended=false 1795176000000000000\n"},
		{"a container", table.Table{
			List: "/netsketch-collector:collector/epoch",
			Values: []table.Column{table.Strings("state/status", []string{"a \"b\"\nc\\"}),
				table.Int64s("state/delta", []int64{-3}),
				table.Bools("state/up", []bool{true}), table.Uint64s("config/n", []uint64{1}),
				table.Uint64s("state/counters/in-octets", []uint64{2})},
		}, false, `collector/epoch,target=netsketch config/n=1i,counters/in-octets=2i,delta=-3i,` +
			`status="a \"b\" c\\",up=true,ended=false 1795176000000000000` + "\n"},
		{"absent", table.Table{
			List: "/m:a/b/c/ds/d", Keys: []table.Column{table.Strings("target", []string{"x", "", "z"})},
			Values: []table.Column{nulls(table.Uint64s("state/n", []uint64{1, 2, 3}), 1),
				nulls(table.Uint64s("state/time", []uint64{1, 2, 3}), 5)},
		}, false, "a/b/c/d,gnmi-target=netsketch n=2i,time-=2i,ended=false 1795176000000000000\n" +
			"a/b/c/d,gnmi-target=netsketch,target=z n=3i,ended=false 1795176000000000000\n"},
		{"a leaf named target", table.Table{List: "/m:a/b", Values: []table.Column{
			table.Strings("state/target", []string{"x"})}}, false,
			`a/b,target=netsketch target-="x",ended=false 1795176000000000000` + "\n"},
		{"only keys", table.Table{List: "/m:a/b", Keys: []table.Column{table.Strings("k", []string{"x"})}}, false, ""},
		{"excluded", table.Table{List: "/m:not/this", Values: []table.Column{table.Uint64s("n", []uint64{1})}}, false,
			""},
		{"odd text", table.Table{
			List: "/m:a/b", Keys: []table.Column{table.Strings("k", []string{"a\nb\x7f\xff…"})},
			Values: []table.Column{table.Strings("state/s", []string{"\xff" + strings.Repeat("x", 70_000)})},
		}, false, "a/b,k=a%0Ab%7F%FF…,target=netsketch s=\"?" + strings.Repeat("x", maxText-1) +
			"\",ended=false 1795176000000000000\n"},
	}
	for _, tt := range tests {
		e, chunks := newEncoder(100, 100)
		e.unsigned = tt.unsigned
		e.exclude["not/this"] = true
		e.encode("netsketch", epoch, &tt.t)
		e.flush()
		got, points := "", 0
		for _, c := range *chunks {
			got += c.lines
			points += c.points
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if points != strings.Count(got, "\n") {
			t.Errorf("%s: %d points", tt.name, points)
		}
		if want := strings.Contains(tt.want, "9223372036854775807i"); want != (e.saturated.Load() == 1) {
			t.Errorf("%s: %d values saturated", tt.name, e.saturated.Load())
		}
		if e.unencodable.Load() != 0 {
			t.Errorf("%s: %d rows not encoded", tt.name, e.unencodable.Load())
		}
	}
}

func TestMeasurement(t *testing.T) {
	tests := []struct {
		list  string
		keyed bool
		want  string
	}{
		{"/netsketch-univmon:univmon/heavy-hitters/heavy-hitter", true, "univmon/heavy-hitter"},
		{"/openconfig-interfaces:interfaces/interface", true, "interfaces/interface"},
		{"/m:list", true, "list"},
		{"/acme-porttop:porttop/port", true, "porttop/port"},
		{"/netsketch-collector:collector", false, "collector"},
		{"/netsketch-collector:collector/epoch", false, "collector/epoch"},
		{"/netsketch-collector:collector/state", false, "collector"},
		{"/netsketch-collector:collector/epoch/state", false, "collector/epoch"},
		{"/netsketch-collector:internal/config", false, "internal/config"},
		{"/m:state", false, "state"},
		{"/a:x/b:ys/b:y", true, "x/y"},
	}
	for _, tt := range tests {
		if got := Measurement(tt.list, tt.keyed); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.list, got, tt.want)
		}
	}
}

func flows(n, from int) *table.Table {
	b := table.NewBuilder("/netsketch-univmon:univmon/heavy-hitters/heavy-hitter")
	device, dimension, flow := b.TextKey("node"), b.TextKey("dimension"), b.TextKey("flow")
	rank, packets, share := b.Uint("state/rank"), b.Uint("state/packets"), b.Float("state/share")
	for i := range n {
		device.Append(fmt.Sprintf("leaf-%d", i%4))
		dimension.Append("5-tuple")
		flow.Append(fmt.Sprintf("10.1.%d.%d,10.0.0.1,tcp,%d,80", (from+i)>>8&255, (from+i)&255, (from+i)&0xffff))
		rank.Append(uint64(i/4 + 1))
		packets.Append(uint64(1000 * (n - i)))
		share.Append(1 / float64(n))
	}
	t, err := b.Table()
	if err != nil {
		panic(err)
	}
	return t
}

func TestChunks(t *testing.T) {
	e, chunks := newEncoder(100, 10_000)
	e.encode("t", epoch, flows(250, 0))
	if len(*chunks) != 2 || e.points != 50 || e.pending.Load() != 50 {
		t.Errorf("%d chunks and %d points", len(*chunks), e.points)
	}
	e.maxBytes = 300
	e.encode("t", epoch.Add(time.Second), flows(3, 0))
	if n := len(*chunks); n != 4 && n != 3 {
		t.Errorf("%d chunks", n)
	}
	if c := (*chunks)[2]; !c.time.Equal(epoch.Add(time.Second)) {
		t.Errorf("newest point %v", c.time)
	}
	e.flush()
	total := 0
	for _, c := range *chunks {
		total += c.points
		dec := lineprotocol.NewDecoderWithBytes([]byte(c.lines))
		for dec.Next() {
			if m, err := dec.Measurement(); err != nil || string(m) != "univmon/heavy-hitter" {
				t.Fatal(err)
			}
		}
	}
	if total != 253 || e.pending.Load() != 0 {
		t.Errorf("%d points", total)
	}
}

// However many flows come and go, at most max-series series are written. Series that have begun
// continue to be written, and after a window other series are accepted.
func TestSeriesAreBounded(t *testing.T) {
	const bound = 50
	e, chunks := newEncoder(1_000_000, bound)
	at := epoch
	rows := uint64(0)
	replace := func(t *table.Table) {
		e.publish(&store.Batch{Target: "t", Time: at}, &store.Publication{Table: t, Replace: true})
	}
	for round := range 200 {
		replace(flows(40, round*7))
		rows += 40
		at = at.Add(time.Second)
		if n := len(e.limit.seen["univmon/heavy-hitter"].last); n > bound {
			t.Fatalf("%d series are remembered", n)
		}
	}
	e.encode("t", at, &table.Table{List: "/netsketch-collector:collector/epoch",
		Values: []table.Column{table.Uint64s("state/number", []uint64{1})}})
	e.flush()
	series := map[string]bool{}
	points := uint64(0)
	for _, line := range strings.Split(strings.TrimSuffix((*chunks)[0].lines, "\n"), "\n") {
		series[seriesOf(line)] = true
		if !strings.Contains(line, " ended=true ") {
			points++
		}
	}
	if len(series) != bound+1 || points-1+e.overSeries.Load() != rows {
		t.Errorf("%d series, %d points, %d dropped of %d", len(series), points, e.overSeries.Load(), rows)
	}
	at = at.Add(2 * time.Hour) // one window later
	replace(flows(40, 100_000))
	e.flush()
	if got := (*chunks)[1].points; got != 40 {
		t.Errorf("%d points of new series", got)
	}
	if n := len(e.limit.seen["univmon/heavy-hitter"].last); n != 40 {
		t.Errorf("%d series are remembered", n)
	}
}

func FuzzEncode(f *testing.F) {
	f.Add("node", "a b", "state/x", "text", uint64(1))
	f.Add("time", `a\`, "time", "\n", uint64(math.MaxUint64))
	f.Add("", "", "", "", uint64(0))
	f.Fuzz(func(t *testing.T, key, tag, leaf, text string, n uint64) {
		e, chunks := newEncoder(100, 100)
		tab := &table.Table{
			List: "/m:a/" + leaf, Keys: []table.Column{table.Strings(key, []string{tag})},
			Values: []table.Column{table.Strings(leaf, []string{text}), table.Uint64s("state/n", []uint64{n})},
		}
		e.encode(tag, epoch, tab)
		e.flush()
		for _, c := range *chunks {
			if c.points != 1 || strings.Count(c.lines, "\n") != 1 {
				t.Fatalf("%d points in %q", c.points, c.lines)
			}
			dec := lineprotocol.NewDecoderWithBytes([]byte(c.lines))
			for dec.Next() {
				if _, err := dec.Measurement(); err != nil {
					t.Fatalf("%q: %v", c.lines, err)
				}
				for {
					k, _, err := dec.NextTag()
					if err != nil {
						t.Fatalf("%q: %v", c.lines, err)
					}
					if k == nil {
						break
					}
				}
				for {
					k, _, err := dec.NextField()
					if err != nil {
						t.Fatalf("%q: %v", c.lines, err)
					}
					if k == nil {
						break
					}
				}
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	const rows = 100_000
	tab := flows(rows, 0)
	e, chunks := newEncoder(5000, rows)
	b.ReportAllocs()
	for b.Loop() {
		*chunks = (*chunks)[:0]
		e.encode("netsketch", epoch, tab)
		e.flush()
	}
	b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "points/s")
}

// A tag has the name of its key, except names that InfluxDB reserves. A leaf that repeats a key is
// no field.
func TestTags(t *testing.T) {
	for key, want := range map[string]string{"node": "node", "time": "time-", "_field": "_field-",
		"_measurement": "_measurement-", "_other": "_other"} {
		if got := Tag(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	l := newLayout(&table.Table{List: "/m:x/ys/y", Keys: []table.Column{table.Strings("node", []string{"s1"})},
		Values: []table.Column{table.Strings("state/node", []string{"s1"}), table.Uint64s("state/n", []uint64{1})}})
	if len(l.fields) != 1 || l.fields[0].name != "n" || l.tags[0].name != "node" {
		t.Errorf("tags %v, fields %v: expected node and n", l.tags, l.fields)
	}
	l = newLayout(&table.Table{List: "/m:x/ys/y", Keys: []table.Column{table.Strings("target", []string{"a"}),
		table.Strings("gnmi-target", []string{"b"})}})
	if l.targetName != "gnmi-target-" {
		t.Errorf("the tag of the target is %s", l.targetName)
	}
}

// TestTagText: texts that differ have tags that differ.
func TestTagText(t *testing.T) {
	seen := map[string]string{}
	parts := []string{"", "a", "0A", "%", "%0A", "%0a", "%25", "\n", "\xff", "\ufffd", "?", `\`, "é"}
	for _, a := range parts {
		for _, b := range parts {
			for _, c := range parts {
				text := a + b + c
				tag := tagText(text)
				if other, ok := seen[tag]; ok && other != text {
					t.Fatalf("%q and %q have the tag %q", text, other, tag)
				}
				seen[tag] = text
				if !utf8.ValidString(tag) || strings.ContainsAny(tag, "\n\x7f") || strings.HasSuffix(tag, `\`) {
					t.Errorf("%q has the tag %q", text, tag)
				}
			}
		}
	}
	if got := tagText("agg1-1/1 100 %"); got != "agg1-1/1 100 %" {
		t.Errorf("got %q", got)
	}
}
