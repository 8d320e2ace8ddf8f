// SPDX-License-Identifier: Apache-2.0

// Package grafana tests the Grafana dashboards for netsketch's points in InfluxDB, which are for
// import and for provisioning (directories dashboards and provisioning): their layout, and every
// query of a panel against a real InfluxDB.
package grafana

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/influxdbtest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/outputs/influxdb"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/yang/table"
)

func TestMain(m *testing.M) {
	// ygot logs through glog, which starts a goroutine at load.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

// dashboard is what the tests read of a dashboard.
type dashboard struct {
	UID        string
	Templating struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage
		}
	}
	Panels []struct {
		ID                       int
		Type, Title, Description string
		Datasource               struct{ UID, Type string }
		GridPos                  struct{ X, Y, W, H int }
		Targets                  []struct{ Query, Alias string }
	}
}

// TestLayout: a dashboard and its panels have IDs of their own, panels have a title, a description
// and a query of the chosen data source, and no panel covers another one.
func TestLayout(t *testing.T) {
	uids := map[string]bool{}
	for name, text := range files(t) {
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d.UID == "" || uids[d.UID] {
			t.Errorf("%s: the UID %q is missing or not unique", name, d.UID)
		}
		uids[d.UID] = true
		ids, titles, taken := map[int]bool{}, map[string]bool{}, map[[2]int]bool{}
		for _, p := range d.Panels {
			if ids[p.ID] || titles[p.Type+p.Title] {
				t.Errorf("%s: panel %d, %s, occurs twice", name, p.ID, p.Title)
			}
			ids[p.ID], titles[p.Type+p.Title] = true, true
			if p.Type != "row" && (p.Title == "" || p.Description == "" || len(p.Targets) == 0 ||
				p.Datasource.UID != "${datasource}" || p.Datasource.Type != "influxdb") {
				t.Errorf("%s: panel %d, %q, lacks a title, a description, a query or the data source", name, p.ID, p.Title)
			}
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
					if place := [2]int{x, y}; x >= 24 || taken[place] {
						t.Fatalf("%s: panel %s covers another one, or the edge", name, p.Title)
					}
					taken[[2]int{x, y}] = true
				}
			}
		}
	}
}

func files(t *testing.T) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("dashboards/*.json")
	if err != nil || len(names) != 6 {
		t.Fatal(names, err)
	}
	out := map[string][]byte{}
	for _, n := range names {
		if out[filepath.Base(n)], err = os.ReadFile(n); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// Grafana ignores errors in provisioning files; this test reports them.
func TestProvisioning(t *testing.T) {
	var sources struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, Access, URL, User, Database string
			IsDefault                                    bool              `yaml:"isDefault"`
			JSONData                                     map[string]string `yaml:"jsonData"`
			SecureJSONData                               map[string]string `yaml:"secureJsonData"`
		}
	}
	strictYAML(t, "provisioning/datasources/netsketch.yaml", &sources)
	if s := sources.Datasources[0]; sources.APIVersion != 1 || s.Type != "influxdb" || s.Database == "" ||
		s.JSONData["dbName"] != s.Database {
		t.Errorf("%+v", sources)
	}
	var providers struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name, Folder, Type    string
			DisableDeletion       bool `yaml:"disableDeletion"`
			UpdateIntervalSeconds int  `yaml:"updateIntervalSeconds"`
			AllowUIUpdates        bool `yaml:"allowUiUpdates"`
			Options               struct {
				Path                      string
				FoldersFromFilesStructure bool `yaml:"foldersFromFilesStructure"`
			}
		}
	}
	strictYAML(t, "provisioning/dashboards/netsketch.yaml", &providers)
	if p := providers.Providers[0]; p.Type != "file" || p.Options.Path == "" {
		t.Errorf("%+v", providers)
	}
}

func strictYAML(t *testing.T, path string, into any) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := yaml.NewDecoder(f, yaml.Strict()).Decode(into); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}

// sample is one epoch of two switches and the network, and of the collector.
type sample struct{ tables []*table.Table }

func (s *sample) build(b *table.Builder) {
	t, err := b.Table()
	if err != nil {
		panic(err)
	}
	s.tables = append(s.tables, t)
}

var (
	devices    = []string{"leaf-1", "leaf-2", "network"}
	dimensions = []string{"src", "5-tuple"}
)

func epochSample(n uint64) []*table.Table {
	var s sample
	s.univmon(n)
	s.collector(n)
	s.chamelemon(n)
	s.omnimon(n)
	s.sketchint(n)
	s.lightguardian(n)
	return s.tables
}

func (s *sample) univmon(n uint64) {
	const top = "/netsketch-univmon:univmon/"
	b := table.NewBuilder(top + "node-summaries/node-summary")
	device, dimension, status := b.TextKey("node"), b.TextKey("dimension"), b.Text("state/status")
	packets, distinct, f2 := b.Uint("state/packets"), b.Uint("state/distinct-flows"), b.Uint("state/second-moment")
	entropy, hitters, changes := b.Float("state/entropy"), b.Uint("state/heavy-hitters"), b.Uint("state/changes")
	for i, d := range devices {
		for _, dim := range dimensions {
			device.Append(d)
			dimension.Append(dim)
			status.Append("COMPLETE")
			packets.Append(uint64(10_000*(i+1)) + n)
			distinct.Append(500)
			f2.Append(9_000_000)
			entropy.Append(7.25)
			hitters.Append(30)
			changes.Append(6)
		}
	}
	s.build(b)

	b = table.NewBuilder(top + "heavy-hitters/heavy-hitter")
	device, dimension, flow := b.TextKey("node"), b.TextKey("dimension"), b.TextKey("flow")
	rank, packets, share := b.Uint("state/rank"), b.Uint("state/packets"), b.Float("state/share")
	for i, d := range devices {
		for r := range 30 {
			device.Append(d)
			dimension.Append("src")
			flow.Append(fmt.Sprintf("10.0.%d.%d", i, r))
			rank.Append(uint64(r + 1))
			packets.Append(uint64(1000*(i+1) - r))
			share.Append(0.1 - float64(r)/1000)
		}
	}
	s.build(b)

	b = table.NewBuilder(top + "heavy-changes/heavy-change")
	device, dimension, flow = b.TextKey("node"), b.TextKey("dimension"), b.TextKey("flow")
	rank, previous, current, delta, kind := b.Uint("state/rank"),
		b.Uint("state/previous"), b.Uint("state/current"), b.Int("state/delta"), b.Text("state/kind")
	for r := range 6 {
		device.Append("leaf-1")
		dimension.Append("src")
		flow.Append(fmt.Sprintf("10.9.0.%d", r))
		rank.Append(uint64(r + 1))
		previous.Append(900)
		current.Append(uint64(100 * r))
		delta.Append(int64(100*r - 900))
		kind.Append("DECREASE")
	}
	s.build(b)

	b = table.NewBuilder(top + "ddos-victims/ddos-victim")
	device, destination, sources := b.TextKey("node"), b.TextKey("destination-address"),
		b.Uint("state/distinct-sources")
	for i := range 3 {
		device.Append("network")
		destination.Append(fmt.Sprintf("192.0.2.%d", i))
		sources.Append(uint64(4000 + i))
	}
	s.build(b)

	b = table.NewBuilder(top + "flows/flow")
	device, dimension, flow, packets = b.TextKey("node"), b.TextKey("dimension"), b.TextKey("flow"),
		b.Uint("state/packets")
	device.Append("leaf-1")
	dimension.Append("5-tuple")
	flow.Append("10.0.0.1,10.0.0.2,tcp,1234,80")
	packets.Append(12)
	s.build(b)

	b = table.NewBuilder(top + "functions/function")
	device, dimension, name, value := b.TextKey("node"), b.TextKey("dimension"), b.TextKey("name"),
		b.Float("state/value")
	device.Append("network")
	dimension.Append("src")
	name.Append("l1.5")
	value.Append(123456.5)
	s.build(b)
}

func (s *sample) collector(n uint64) {
	const top = "/netsketch-collector:collector"
	one := func(list string, values map[string]any, keys ...string) {
		b := table.NewBuilder(list)
		for i := 0; i < len(keys); i += 2 {
			b.TextKey(keys[i]).Append(keys[i+1])
		}
		for name, v := range values {
			if len(keys) > 0 {
				name = "state/" + name
			}
			switch v := v.(type) {
			case int:
				b.Uint(name).Append(uint64(v))
			case uint64:
				b.Uint(name).Append(v)
			case string:
				b.Text(name).Append(v)
			}
		}
		s.build(b)
	}
	one(top+"/state", map[string]any{"version": "v0", "epochs-complete": n, "epochs-partial": 1, "epochs-lost": 0,
		"subscriptions": 2, "watched-flows": 1, "rows": 5000, "heap": 30_000_000})
	status, missing := "COMPLETE", ""
	if n%5 == 0 {
		status, missing = "PARTIAL", "leaf-2"
	}
	one(top+"/epoch/state", map[string]any{"number": n, "status": status, "missing": missing, "devices-expected": 3,
		"devices-present": 3, "devices-missing": len(missing) / 6,
		"flip-time": 1_000_000, "wait-time": 5_000_000, "readout-time": 40_000_000, "plugin-time": 20_000_000,
		"publish-time":      1_000_000,
		"first-update-time": 68_000_000, "total-time": 67_000_000, "cells": 100_000, "rows": 400})
	one(top+"/devices/device", map[string]any{"address": "127.0.0.1:9559", "connection": "READY",
		"mastership": "PRIMARY", "readout-method": "PACKET", "readout-time": 30_000_000,
		"epochs-complete": n, "epochs-lost": 1, "reconnects": 2, "packet-ins": 400, "packet-ins-dropped": 0,
		"last-error": ""}, "node", "leaf-1")
	one(top+"/plugins/plugin", map[string]any{"version": "v1", "status": "RUNNING", "pid": 42, "restarts": 0,
		"epochs-analyzed": n, "epochs-lost": 0, "rows": 400, "rows-refused": 0, "analysis-time": 20_000_000,
		"last-error": ""}, "name", "univmon")
	one(top+"/outputs/output", map[string]any{"type": "influxdb", "status": "UP", "sent": 100 * n, "dropped": 0,
		"queued": 3, "spooled": 0, "last-error": ""}, "name", "influxdb")
}

const epochs = 20

// fill writes epochs of samples to a real InfluxDB through netsketch's own output, which runs until
// the test ends, so that the rows of the last epoch exist.
func fill(t *testing.T, start time.Time) *influxdbtest.Server {
	t.Helper()
	db := influxdbtest.Start(t, influxdbtest.Options{})
	c := settings.Default[influxdb.Config]()
	c.URL, c.Bucket, c.Spool.Dir = db.URL, "netsketch", filepath.Join(t.TempDir(), "spool")
	o, err := influxdb.New("influxdb", c, certs.New(certs.Options{}), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := store.New(store.Options{})
	t.Cleanup(s.Close)
	if err := o.Start(s); err != nil {
		t.Fatal(err)
	}
	yangtest.Check(t, epochSample(1)...)
	points := uint64(0)
	for n := range uint64(epochs) {
		b := store.Batch{Time: start.Add(time.Duration(n) * time.Second), Epoch: n + 1}
		for _, tab := range epochSample(n + 1) {
			b.Tables = append(b.Tables, store.Publication{Table: tab, Replace: true})
			points += uint64(tab.Rows())
		}
		if err := s.Publish(b); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	testkit.Until(t, "the database has all points", func() bool {
		st := o.State()
		if st.Dropped != 0 {
			t.Fatalf("%+v, %d points were published", st, points)
		}
		return st.Sent == points && st.Queued == 0
	})
	return db
}

// expand replaces Grafana's variables by values, as Grafana does.
func expand(query string, start time.Time) string {
	query = strings.ReplaceAll(query, "$timeFilter",
		fmt.Sprintf("time >= %d AND time <= %d", start.UnixNano(), start.Add(epochs*time.Second).UnixNano()))
	query = strings.ReplaceAll(query, "$__interval", "1s")
	return regexp.MustCompile(`\$\{(\w+):regex\}`).ReplaceAllStringFunc(query, func(v string) string {
		switch v {
		case "${target:regex}":
			return "(netsketch)"
		case "${node:regex}":
			return "(" + strings.Join(devices, "|") + ")"
		case "${dimension:regex}":
			return "(" + strings.Join(dimensions, "|") + ")"
		}
		return v
	})
}

// want holds, for each panel, a value that must occur in a column of the result of one of its
// queries.
var want = map[string][2]string{ // panel to column and value
	"Packets":                   {"mean", "30020"},
	"Packets per epoch":         {"mean", "10001"},
	"Distinct flows":            {"mean", "500"},
	"Entropy":                   {"mean", "7.25"},
	"Second moment (F2)":        {"mean", "9000000"},
	"Largest flows":             {"packets", "3000"},
	"Largest flows over time":   {"max", "2991"},
	"Share of the largest flow": {"max", "0.1"},
	"Heavy changes":             {"kind", "DECREASE"},
	"DDoS victims":              {"distinct-sources", "4002"},
	"Sources per victim":        {"max", "4000"},
	"Watched flows":             {"mean", "12"},
	"Functions":                 {"mean", "123456.5"},
	"Complete":                  {"mean", "20"},
	"Epoch end to results":      {"mean", "67000000"},
	"Epoch end to first update": {"mean", "68000000"},
	"Stages of an epoch":        {"mean", "40000000"},
	"Devices per epoch":         {"mean", "3"},
	"Incomplete epochs":         {"missing", "leaf-2"},
	"Devices":                   {"connection", "READY"},
	"Read-out":                  {"mean", "30000000"},
	"Plugins":                   {"status", "RUNNING"},
	"Outputs":                   {"sent", "2000"},
	"Sent":                      {"non_negative_derivative", "100"},
	"Queued and dropped":        {"max", "3"},

	"ChameleMon: Network state":                   {"decided", "ILL"},
	"ChameleMon: Alerts":                          {"mean", "2"},
	"ChameleMon: Changes of state":                {"mean", "4"},
	"ChameleMon: Epochs":                          {"status", "PARTIAL"},
	"ChameleMon: Quality":                         {"victims-quality", "EXACT"},
	"ChameleMon: Alerts by kind":                  {"text", "nothing was delivered"},
	"ChameleMon: Epochs with an alert":            {"count", "1"},
	"ChameleMon: Division of the IPv4 encoders":   {"mean", "7677"},
	"ChameleMon: Memory":                          {"mean", "153540"},
	"ChameleMon: Decoded flows":                   {"mean", "5200"},
	"ChameleMon: Load factors":                    {"mean", "0.677"},
	"ChameleMon: Thresholds":                      {"mean", "57"},
	"ChameleMon: Th by switch":                    {"mean", "56"},
	"ChameleMon: Sample rate":                     {"mean", "0.25"},
	"ChameleMon: Victims":                         {"mean", "8000"},
	"ChameleMon: Lost packets":                    {"mean", "12345"},
	"ChameleMon: Top victims":                     {"lost-packets", "309"},
	"ChameleMon: Packets per epoch":               {"mean", "20003"},
	"ChameleMon: Distinct flows":                  {"mean", "777"},
	"ChameleMon: Entropy":                         {"mean", "9.5"},
	"ChameleMon: Heavy hitters":                   {"packets", "3000"},
	"ChameleMon: Heavy changes":                   {"kind", "INCREASE"},
	"ChameleMon: Heavy hitters and heavy changes": {"mean", "31"},
	"ChameleMon: Flows by size":                   {"mean", "1000.5"},
	"ChameleMon: Watched flows":                   {"mean", "13"},
	"ChameleMon: Response":                        {"mean", "9000000"},
	"ChameleMon: Collection":                      {"mean", "40000000"},
}

// Every query of every panel and variable returns plausible results from a real InfluxDB.
func TestEveryQuery(t *testing.T) {
	start := time.Now().Add(-time.Minute).Truncate(time.Second)
	db := fill(t, start)
	seen := map[string]bool{}
	for name, text := range files(t) {
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		for _, v := range d.Templating.List {
			if v.Type != "query" {
				continue
			}
			var query string
			if err := json.Unmarshal(v.Query, &query); err != nil {
				t.Fatal(name, err)
			}
			if out := db.Query(query); len(out) != 1 || len(out[0].Values) == 0 {
				t.Errorf("%s: variable %s has no values", name, v.Name)
			}
		}
		for _, p := range d.Panels {
			if p.Type == "row" {
				continue
			}
			title := p.Title
			var cells []string
			for _, q := range p.Targets {
				query := expand(q.Query, start)
				if regexp.MustCompile(`\$[\w{]`).MatchString(query) {
					t.Errorf("%s: %s: %s has a variable that the dashboard does not have", name, title, query)
				}
				out, err := db.TryQuery(query)
				if err != nil {
					t.Errorf("%s: %s: %s: %v", name, title, query, err)
					continue
				}
				values := 0
				for _, series := range out {
					for i, c := range series.Columns {
						if c == "time" {
							continue
						}
						filled := 0
						for _, row := range series.Values {
							if row[i] != nil {
								filled++
								cells = append(cells, c+"="+fmt.Sprint(row[i]))
							}
						}
						if filled == 0 {
							t.Errorf("%s: %s: %s: column %s has no values", name, title, query, c)
						}
						values += filled
					}
					for _, tag := range regexp.MustCompile(`\$tag_(\w+)`).FindAllStringSubmatch(q.Alias, -1) {
						if series.Tags[tag[1]] == "" {
							t.Errorf("%s: %s: the legend names the tag %s, which the result does not have", name, title,
								tag[1])
						}
					}
				}
				if values == 0 {
					t.Errorf("%s: %s: no result for %s", name, title, query)
				}
			}
			if name == "netsketch-chamelemon.json" {
				title = "ChameleMon: " + title
			}
			w, ok := want[title]
			if !ok && name == "netsketch-chamelemon.json" {
				t.Errorf("no expected value for panel %s", title)
			}
			if ok {
				seen[title] = true
				if !strings.Contains("\n"+strings.Join(cells, "\n")+"\n", "\n"+w[0]+"="+w[1]+"\n") {
					t.Errorf("%s: %s: no %s = %s among %.300v", name, title, w[0], w[1], cells)
				}
			}
		}
	}
	for title := range want {
		if !seen[title] {
			t.Errorf("there is no panel %q", title)
		}
	}
}
