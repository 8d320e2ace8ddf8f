// SPDX-License-Identifier: Apache-2.0

package influxdb

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/influxdbtest"
	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/yang/table"
)

func realConfig(t testing.TB, db *influxdbtest.Server) Config {
	c := spoolConfig(t, db.URL)
	c.Bucket, c.Token, c.Timeout = "netsketch/autogen", "admin:secret", 5*time.Second
	return c
}

// A real InfluxDB returns every cell of a table unchanged.
func TestReadBack(t *testing.T) {
	db := influxdbtest.Start(t, influxdbtest.Options{})
	s := newStore(t)
	o := run(t, s, realConfig(t, db), nil)
	tab := flows(500, 0)
	b := table.NewBuilder("/netsketch-collector:collector/devices/device")
	name, connection, cookie, share, up, delta := b.TextKey("name"), b.Text("state/connection"),
		b.Uint("state/pipeline-cookie"), b.Float("state/share"), b.Bool("state/up"), b.Int("state/delta")
	for i, odd := range []string{"plain", "a b,c=d", `quote"back\slash`, "ümläut", "tail\\"} {
		name.Append(odd)
		if i > 0 {
			connection.Append(`text "quoted" \ and ` + odd)
		}
		cookie.Append(math.MaxUint64 - uint64(i))
		share.Append(1.0 / float64(i+3))
		up.Append(i%2 == 0)
		delta.Append(math.MinInt64 + int64(i))
	}
	odd, err := b.Table()
	if err != nil {
		t.Fatal(err)
	}
	publish(t, s, epoch, tab, odd)
	st := o.drained(505)
	if st.Sent != 505 || o.enc.saturated.Load() != 5 {
		t.Errorf("%+v, %d values saturated", st, o.enc.saturated.Load())
	}
	for _, tt := range []struct {
		measurement string
		t           *table.Table
	}{{"univmon/heavy-hitter", tab}, {"collector/device", odd}} {
		rows := map[string]map[string]any{} // by the tags
		for _, series := range db.Query(fmt.Sprintf(`SELECT * FROM "%s" GROUP BY *`, tt.measurement)) {
			if len(series.Values) != 1 {
				t.Fatalf("%d points in a series", len(series.Values))
			}
			row := map[string]any{}
			for i, c := range series.Columns {
				row[c] = series.Values[0][i]
			}
			key := ""
			for i := range tt.t.Keys {
				key += "|" + series.Tags[Tag(tt.t.Keys[i].Name)]
			}
			if series.Tags["target"] != "netsketch" {
				t.Errorf("target %q", series.Tags["target"])
			}
			rows[key] = row
		}
		if len(rows) != tt.t.Rows() {
			t.Errorf("%s: %d series", tt.measurement, len(rows))
		}
		for r := range tt.t.Rows() {
			key := ""
			for i := range tt.t.Keys {
				key += "|" + tagText(tt.t.Keys[i].Text(r))
			}
			row := rows[key]
			if row == nil {
				t.Errorf("%s: no point for %s", tt.measurement, key)
				continue
			}
			if at, err := row["time"].(json.Number).Int64(); err != nil || at != epoch.UnixNano() {
				t.Errorf("time %v", row["time"])
			}
			for i := range tt.t.Values {
				c := &tt.t.Values[i]
				if got, want := row[strings.TrimPrefix(c.Name, "state/")], c.Value(r); !same(got, want) {
					t.Errorf("%s %s %s: %v (%T), want %v", tt.measurement, key, c.Name, got, got, want)
				}
			}
		}
	}
}

// same compares a JSON value with a cell.
func same(got, want any) bool {
	switch w := want.(type) {
	case nil:
		return got == nil
	case uint64:
		return fmt.Sprint(got) == fmt.Sprint(min(w, math.MaxInt64))
	case int64:
		return fmt.Sprint(got) == fmt.Sprint(w)
	case float64:
		n, ok := got.(json.Number)
		if !ok {
			return false
		}
		f, err := n.Float64()
		return err == nil && f == w
	}
	return got == want
}

// No point is lost or duplicated when influxd stops or is killed, even while points are written.
func TestRealOutage(t *testing.T) {
	db := influxdbtest.Start(t, influxdbtest.Options{})
	s := newStore(t)
	c := realConfig(t, db)
	c.BatchPoints = 500
	o := run(t, s, c, nil)
	const rows = 400
	n := 0
	publishSome := func(epochs int) {
		for range epochs {
			publish(t, s, epoch.Add(time.Duration(n)*time.Second), flows(rows, 0))
			n++
		}
	}
	publishSome(5)
	o.drained(n * rows)
	db.Stop()
	publishSome(10)
	o.until("the status is down", func(s outputs.State) bool { return s.Status == outputs.Down && s.Queued == 10*rows })
	db.Start()
	o.drained(n * rows)
	for range 3 {
		publishSome(10)
		before := o.State().Sent
		o.until("some are written", func(s outputs.State) bool { return s.Sent > before })
		db.Kill()
		publishSome(5)
		o.until("the status is down", func(s outputs.State) bool { return s.Status == outputs.Down })
		db.Start()
		o.drained(n * rows)
	}
	st := o.State()
	if st.Sent != uint64(n*rows) || st.Dropped != 0 {
		t.Errorf("%+v, %d published", st, n*rows)
	}
	if got := db.Count("univmon/heavy-hitter", "packets"); got != n*rows {
		t.Errorf("%d points in the database, %d published", got, n*rows)
	}
}

// A request that is too large for the database is delivered in parts.
func TestRealTooLarge(t *testing.T) {
	db := influxdbtest.Start(t, influxdbtest.Options{MaxBodySize: 20_000})
	s := newStore(t)
	c := realConfig(t, db)
	c.Gzip = false
	o := run(t, s, c, nil)
	publish(t, s, epoch, flows(2000, 0))
	if st := o.drained(2000); st.Sent != 2000 || st.Dropped != 0 {
		t.Errorf("%+v", st)
	}
	if got := db.Count("univmon/heavy-hitter", "packets"); got != 2000 {
		t.Errorf("%d points", got)
	}
}

// Points with a field that has another type in the database are dropped; other points arrive.
func TestRealFieldConflict(t *testing.T) {
	db := influxdbtest.Start(t, influxdbtest.Options{})
	s := newStore(t)
	o := run(t, s, realConfig(t, db), nil)
	one := func(c table.Column) *table.Table {
		return &table.Table{List: "/m:conflict", Keys: []table.Column{table.Strings("k", []string{"x"})},
			Values: []table.Column{c}}
	}
	publish(t, s, epoch, one(table.Strings("state/v", []string{"text"})))
	o.drained(1)
	publish(t, s, epoch.Add(time.Second), flows(100, 0), one(table.Uint64s("state/v", []uint64{1})))
	st := o.drained(102)
	if st.Sent != 101 || st.Dropped != 1 || !strings.Contains(st.LastError, "field type conflict") {
		t.Errorf("%+v", st)
	}
	if got := db.Count("univmon/heavy-hitter", "packets"); got != 100 {
		t.Errorf("%d points", got)
	}
}

// Wrong credentials or a missing database do not lose points.
func TestRealRefused(t *testing.T) {
	db := influxdbtest.Start(t, influxdbtest.Options{Auth: true})
	s := newStore(t)
	c := realConfig(t, db)
	c.Token = "admin:wrong"
	o := run(t, s, c, nil)
	publish(t, s, epoch, flows(100, 0))
	st := o.until("the status is refused", func(s outputs.State) bool { return s.Status == outputs.Refused })
	if !strings.Contains(st.LastError, "401") || st.Queued != 100 {
		t.Errorf("%+v", st)
	}
	o.stop()
	c.Token, c.Bucket = "admin:secret", "elsewhere"
	o = run(t, s, c, nil) // uses the spool of the first output
	st = o.until("the status is refused", func(s outputs.State) bool { return s.Status == outputs.Refused })
	if !strings.Contains(st.LastError, `database not found: "elsewhere"`) {
		t.Errorf("%+v", st)
	}
	o.stop()
	c.Bucket = "netsketch"
	o = run(t, s, c, nil)
	o.drained(200) // 100 rows, and 100 points for their ends, which the first stop queued
	if got := db.Count("univmon/heavy-hitter", "packets"); got != 100 {
		t.Errorf("%d points", got)
	}
}

// Unsigned integers are written as such if the database accepts them.
func TestRealUnsigned(t *testing.T) {
	db := influxdbtest.Start(t, influxdbtest.Options{})
	s := newStore(t)
	c := realConfig(t, db)
	c.Unsigned = true
	o := run(t, s, c, nil)
	publish(t, s, epoch, &table.Table{List: "/m:wide", Keys: []table.Column{table.Strings("k", []string{"x"})},
		Values: []table.Column{table.Uint64s("state/v", []uint64{math.MaxUint64})}})
	if st := o.drained(1); st.Dropped > 0 {
		t.Skip("this influxd was built without -tags uint64")
	}
	if got := db.Query(`SELECT v FROM wide`)[0].Column("v")[0]; fmt.Sprint(got) != "18446744073709551615" {
		t.Errorf("got %v", got)
	}
}

// BenchmarkReal measures the points per second that the output writes to a real InfluxDB: from
// memory, and from the spool after an outage.
func BenchmarkReal(b *testing.B) {
	const rows, epochs = 10_000, 10
	for _, away := range []bool{false, true} {
		name := "direct"
		if away {
			name = "catching-up"
		}
		b.Run(name, func(b *testing.B) {
			db := influxdbtest.Start(b, influxdbtest.Options{})
			s := newStore(b)
			o := run(b, s, realConfig(b, db), nil)
			tab := flows(rows, 0)
			total := 0
			for b.Loop() {
				if away {
					b.StopTimer()
					db.Stop()
				}
				for range epochs {
					publish(b, s, epoch.Add(time.Duration(total)*time.Second), tab)
					total += rows
				}
				if away {
					o.until("all points are queued", func(s outputs.State) bool { return s.Queued == rows*epochs })
					db.Start()
					b.StartTimer()
				}
				o.drained(total)
			}
			b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "points/s")
		})
	}
}
