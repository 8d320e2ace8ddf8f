// SPDX-License-Identifier: Apache-2.0

// A scripted server in the place of InfluxDB.

package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/netsketch/netsketch/internal/test/influxdbtest"
	"github.com/netsketch/netsketch/outputs/influxdb"
)

// database accepts writes as InfluxDB does, unless it has another answer.
type database struct {
	address string

	mu      sync.Mutex
	answer  func(w http.ResponseWriter, lines string) (stored bool) // nil answers as InfluxDB does
	asked   int                                                     // number of requests that function answer has answered
	points  map[string]bool                                         // lines
	perhaps map[string]bool                                         // lines that answer did not store
}

// scripted starts a database until the end of the test.
func scripted(tb testing.TB, address string) *database {
	tb.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		tb.Fatal(err)
	}
	db := &database{address: l.Addr().String(), points: map[string]bool{}, perhaps: map[string]bool{}}
	s := &http.Server{Handler: db}
	go func() { _ = s.Serve(l) }() // until Close
	tb.Cleanup(func() { s.Close() })
	return db
}

// ServeHTTP implements http.Handler.
func (db *database) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	stored := true
	if db.answer != nil {
		db.asked++
		stored = db.answer(w, string(b))
	} else {
		w.WriteHeader(http.StatusNoContent)
	}
	for line := range strings.Lines(string(b)) {
		if stored {
			db.points[line] = true
		} else {
			db.perhaps[line] = true
		}
	}
}

// set changes the answer.
func (db *database) set(answer func(http.ResponseWriter, string) bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.answer, db.asked = answer, 0
}

// refusals returns how many requests answer has answered since it was set.
func (db *database) refusals() int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.asked
}

var pointTime = regexp.MustCompile(` (\d+)\n?$`)

// summaries is the list of UnivMon's summaries.
const summaries = "/netsketch-univmon:univmon/node-summaries/node-summary"

// epochs counts the points of UnivMon's summaries by epoch.
func (db *database) epochs() map[string]int { return db.rows(linePrefix(summaries)) }

// rows counts the points that begin with a prefix by epoch.
func (db *database) rows(prefix string) map[string]int {
	db.mu.Lock()
	defer db.mu.Unlock()
	n := map[string]int{}
	for line := range db.points {
		if m := pointTime.FindStringSubmatch(line); m != nil && strings.HasPrefix(line, prefix) {
			end, _ := strconv.ParseInt(m[1], 10, 64)
			n[epochOf(end)]++
		}
	}
	return n
}

// epochOf returns the number of the epoch that ended at a time in nanoseconds since 1970.
func epochOf(end int64) string { return fmt.Sprint(end / int64(interval)) }

// missing returns how many lines were refused and never stored.
func (db *database) missing() int {
	db.mu.Lock()
	defer db.mu.Unlock()
	n := 0
	for line := range db.perhaps {
		if !db.points[line] {
			n++
		}
	}
	return n
}

// answers is an answer that stores nothing.
func answers(code int, header, body string) func(http.ResponseWriter, string) bool {
	return func(w http.ResponseWriter, _ string) bool {
		if name, v, ok := strings.Cut(header, ": "); ok {
			w.Header().Set(name, v)
		}
		w.WriteHeader(code)
		fmt.Fprint(w, body)
		return false
	}
}

// pointsPerEpoch is the number of summaries: three switches and the network, by source and by
// 5-tuple.
const pointsPerEpoch = 8

// delivered checks that the points of all summaries since the start of the trial are in the
// database, by epoch, and returns their number.
func (t *trial) delivered(epochs func() map[string]int) {
	t.Helper()
	last := t.recorder.last()
	t.await("the queue is delivered", func() bool {
		return epochs()[fmt.Sprint(last)] >= pointsPerEpoch && t.output("influxdb", "spooled") == "0"
	})
	have, missing, total := epochs(), 0, 0
	for e := t.first; e <= last; e++ {
		total += pointsPerEpoch
		missing += max(0, pointsPerEpoch-have[fmt.Sprint(e)])
	}
	t.row.lost = append(t.row.lost, lost(uint64(missing), uint64(total), "points"))
	t.require(missing == 0, "%d of %d points are missing", missing, total)
	t.require(t.output("influxdb", "dropped") == "0", "%s points are counted as dropped", t.output("influxdb", "dropped"))
}

// influx is an output into the scripted database.
var influx = needs{
	outputs: "- {type: influxdb, url: 'http://{{.database}}', bucket: netsketch, gzip: false, timeout: 2s, " +
		"flush-interval: 200ms, spool: {dir: '{{.dir}}/spool'}}",
	before: func(t *trial) {
		t.database = scripted(t, "127.0.0.1:0")
		t.keys["database"] = t.database.address
	},
}

// odd is a case in which the database answers oddly for some requests, and then as InfluxDB does.
func odd(name, shown string, answer func(http.ResponseWriter, string) bool) fault {
	return fault{
		name:    "database: " + name,
		promise: "points wait, the error is in the state, nothing is dropped; all are delivered afterwards",
		needs:   influx, back: 3,
		inject: func(t *trial) {
			t.database.set(answer)
			t.await("two requests have the answer", func() bool { return t.database.refusals() >= 2 })
			t.within(3, "the state shows "+shown, func() bool {
				return t.output("influxdb", "status") != "UP" && strings.Contains(t.output("influxdb", "last-error"), shown)
			})
			t.see("status %s, last-error %q", t.output("influxdb", "status"), short(t.output("influxdb", "last-error")))
			t.database.set(nil)
		},
		check: func(t *trial) {
			t.pass(2)
			t.delivered(t.database.epochs)
			t.require(t.database.missing() == 0, "%d refused points were never sent again", t.database.missing())
		},
	}
}

// varying are the parts of an error that differ from run to run.
var varying = regexp.MustCompile(`(epoch|process) \d+|127\.0\.0\.1:\d+|[^\s(]*/netsketch-faults-[a-z-]*\d+/`)

// short cuts an error to what fits the table.
func short(s string) string {
	s = varying.ReplaceAllStringFunc(s, func(v string) string {
		switch word, _, ok := strings.Cut(v, " "); {
		case ok:
			return word + " N"
		case strings.HasPrefix(v, "127"):
			return "HOST:PORT"
		}
		return ""
	})
	if len(s) > 90 {
		return s[:90] + "…"
	}
	return s
}

const page400 = "<html><head><title>400 The plain HTTP request was sent to HTTPS port</title></head></html>"

var databaseCases = append([]fault{
	{
		name:    "database: killed and started again",
		promise: "points wait on disk; all are delivered afterwards, and are there once",
		needs: needs{
			outputs: "- {type: influxdb, url: '{{.database}}', bucket: netsketch, flush-interval: 200ms, " +
				"spool: {dir: '{{.dir}}/spool'}}",
			before: func(t *trial) {
				t.influxd = influxdbtest.Start(t, influxdbtest.Options{})
				t.keys["database"] = t.influxd.URL
			},
		},
		back: 3,
		inject: func(t *trial) {
			t.influxd.Kill()
			t.within(6, "the state shows it", func() bool { return t.output("influxdb", "status") == "DOWN" })
			t.pass(3)
			t.see("status down, %s bytes on disk", t.output("influxdb", "spooled"))
			t.influxd.Start()
		},
		check: func(t *trial) {
			t.pass(2)
			t.delivered(func() map[string]int {
				n := map[string]int{}
				for _, s := range t.influxd.Query(`SELECT packets FROM "` + influxdb.Measurement(summaries, true) + `"`) {
					for _, end := range s.Column("time") {
						ns, _ := end.(json.Number).Int64()
						n[epochOf(ns)]++
					}
				}
				return n
			})
		},
	},
	odd("500", "500", answers(500, "", `{"error":"engine: timeout"}`)),
	odd("429 with Retry-After", "429",
		answers(429, "Retry-After: 1", `{"code":"too many requests","message":"slow down"}`)),
	odd("400 with a proxy's HTML page", "400", answers(400, "Content-Type: text/html", page400)),
	odd("405", "405", answers(405, "", "Method Not Allowed")),
	odd("408", "408", answers(408, "", "Request Timeout")),
	odd("200 with JSON", "200", answers(200, "Content-Type: application/json", `{"status":"ok"}`)),
},
	fault{
		name:    "database: 407 of a proxy, and a new start after it is configured",
		promise: "points wait on disk, the error is in the state; the new start delivers all",
		needs:   influx, hit: devices, back: 5,
		inject: func(t *trial) {
			t.database.set(answers(407, "", "Proxy Authentication Required"))
			t.within(6, "the state is refused", func() bool { return t.output("influxdb", "status") == "REFUSED" })
			t.see("status refused, last-error %q", short(t.output("influxdb", "last-error")))
			t.pass(2)
			t.require(t.collector.terminate(), "exit code %d", t.collector.cmd.ProcessState.ExitCode())
			t.database.set(nil)
			t.startCollector()
		},
		check: func(t *trial) {
			t.await("points on disk are delivered", func() bool {
				return t.output("influxdb", "status") == "UP" && t.output("influxdb", "spooled") == "0"
			})
			missing := t.database.missing()
			t.row.lost = append(t.row.lost, lost(uint64(missing), uint64(t.database.stored()+missing), "points"))
			t.require(missing == 0, "%d refused points were never sent again", missing)
		},
	},
	fault{
		name:    "database: 413",
		promise: "requests are halved until they fit; nothing is lost",
		needs:   influx, back: 3,
		inject: func(t *trial) {
			t.database.set(func(w http.ResponseWriter, lines string) bool {
				if strings.Count(lines, "\n") > 5 {
					w.WriteHeader(http.StatusRequestEntityTooLarge)
					return false
				}
				w.WriteHeader(http.StatusNoContent)
				return true
			})
			t.await("requests are refused", func() bool { return t.database.refusals() >= 20 })
			t.database.set(nil)
		},
		check: func(t *trial) {
			t.pass(2)
			t.delivered(t.database.epochs)
			t.require(t.database.missing() == 0, "%d refused points were never sent again", t.database.missing())
		},
	},
	fault{
		name: "database: disk of the spool full", root: true, linux: true,
		promise: "the oldest points go first, and only as many as needed; what is dropped is counted, also after a restart",
		needs: needs{
			faulty: `config: {mode: rows, rows: ` + strconv.Itoa(diskRows) + `}`,
			outputs: "- {type: influxdb, url: 'http://{{.database}}', bucket: netsketch, gzip: false, timeout: 2s, " +
				"flush-interval: 200ms, spool: {dir: '{{.dir}}/disk/spool'}}",
			before: func(t *trial) {
				influx.before(t)
				t.mountDisk(diskBytes)
			},
		},
		hit: devices, back: 6,
		inject: func(t *trial) {
			t.published = t.record("/faulty/row[name=row0]/state/epoch")
			t.database.set(answers(503, "", ""))
			t.await("the disk is full and points are dropped", func() bool { return t.outputNumber("dropped") > 0 })
			t.pass(3)
			t.require(t.collector.logged("the disk is full") > 0, "the log has no reason")
			kept := t.outputNumber("spooled")
			t.see("%d of %d bytes of the disk hold points", kept, diskBytes)
			t.require(kept >= diskBytes*3/4, "%d of %d bytes hold points, promised 3/4", kept, diskBytes)
			dropped := t.outputNumber("dropped")
			t.require(t.collector.terminate(), "exit code %d", t.collector.cmd.ProcessState.ExitCode())
			t.startCollector()
			t.await("the output runs", func() bool { return t.output("influxdb", "status") != "" })
			again := t.outputNumber("dropped")
			t.require(again >= dropped, "%d dropped points are counted after a restart, %d before", again, dropped)
			t.database.set(nil)
		},
		check: func(t *trial) {
			t.pass(2)
			t.await("the queue is delivered", func() bool { return t.outputNumber("spooled") == 0 })
			rows := t.database.rows(linePrefix(faultyList))
			missing, total, newest := 0, 0, uint64(0) // newest epoch with a missing row
			for e := t.injected; e < t.ended; e++ {
				if _, ok := t.published.seen(e).state["row0"]; ok {
					have := rows[fmt.Sprint(e)]
					total += diskRows
					if missing += diskRows - have; have < diskRows {
						newest = e
					}
				}
			}
			older := 0 // rows of epochs before the newest one with a missing row
			for e := t.injected; e < newest; e++ {
				older += rows[fmt.Sprint(e)]
			}
			dropped := t.outputNumber("dropped")
			t.row.lost = append(t.row.lost, lost(uint64(missing), uint64(total), "rows of the plugin")+
				fmt.Sprintf(" (%d points counted as dropped)", dropped))
			t.require(total > 0, "no epoch with rows was seen")
			t.require(older <= 2*diskRows, "%d rows are older than a dropped one", older)
			t.require(dropped >= missing && dropped <= missing+missing/4+diskRows, "%d rows are lost and %d points counted",
				missing, dropped)
		},
	},
	fault{
		name:    "database: partial write",
		promise: "only the refused points are dropped; the state counts them and has the reason",
		needs:   influx, back: 3,
		inject: func(t *trial) {
			refused, plugins := map[string]bool{}, linePrefix("/netsketch-collector:collector/plugins/plugin")
			t.database.set(func(w http.ResponseWriter, lines string) bool {
				var bad []string
				var good strings.Builder
				for line := range strings.Lines(lines) {
					if strings.HasPrefix(line, plugins) {
						bad = append(bad, line)
						refused[line] = true
					} else {
						good.WriteString(line)
					}
				}
				for line := range strings.Lines(good.String()) {
					t.database.points[line] = true
				}
				if len(bad) == 0 {
					w.WriteHeader(http.StatusNoContent)
					return true
				}
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("X-Influxdb-Version", "1.8.10")
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprintf(w, `{"error":"partial write: field type conflict: input field \"rows\" on measurement `+
					`\"collector/plugin\" is type integer, already exists as type float dropped=%d"}`, len(bad))
				return false
			})
			t.pass(3)
			t.database.set(nil)
			t.within(3, "the state counts the dropped points", func() bool {
				return t.output("influxdb", "dropped") == fmt.Sprint(len(refused)) && len(refused) > 0
			})
			t.within(3, "the state has the reason", func() bool {
				return strings.Contains(t.output("influxdb", "last-error"), "field type conflict")
			})
			t.see("dropped %s of %d refused, last-error %q", t.output("influxdb", "dropped"), len(refused),
				short(t.output("influxdb", "last-error")))
			t.row.lost = append(t.row.lost, lost(uint64(len(refused)), uint64(len(refused)), "refused points"))
		},
		check: func(t *trial) {
			t.pass(2)
			last := fmt.Sprint(t.recorder.last())
			t.await("the queue is delivered", func() bool { return t.database.epochs()[last] >= pointsPerEpoch })
			have := t.database.epochs()
			for e := t.first; e <= t.recorder.last()-1; e++ {
				t.require(have[fmt.Sprint(e)] == pointsPerEpoch, "epoch %d has %d of %d points", e, have[fmt.Sprint(e)],
					pointsPerEpoch)
			}
		},
	})

// diskBytes is the size of the disk of the spool. diskRows is the number of rows of an epoch; some
// epochs fill the disk.
const (
	diskBytes = 6 << 20
	diskRows  = 1500
)

// mountDisk mounts a small file system at disk in the trial's directory.
func (t *trial) mountDisk(size int) {
	t.Helper()
	path := filepath.Join(t.dir, "disk")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("faults", path, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Fatalf("mount %s: %v", path, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			t.T.Error(err)
		}
	})
}

// outputNumber is a number of the database's output.
func (t *trial) outputNumber(leaf string) int {
	t.Helper()
	return t.number("/collector/outputs/output[name=influxdb]/state/" + leaf)
}

// stored returns the number of points.
func (db *database) stored() int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return len(db.points)
}
