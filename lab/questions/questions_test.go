// SPDX-License-Identifier: Apache-2.0

// Package questions tries the queries of docs/yang.md: it plays scenarios of plugins, runs each
// query over gNMI, in InfluxDB and with the engine of Prometheus, and compares the answers with the
// ground truth, flow by flow.
package questions

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openconfig/gnmi/proto/gnmi"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/test/influxdbtest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/groundtruth"
	"github.com/netsketch/netsketch/outputs/influxdb"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/yang"
)

// plugins is a directory with the plugins that come with the collector.
var plugins string

func TestMain(m *testing.M) {
	testkit.MainWithPlugins(m, &plugins, "univmon", "chamelemon", "omnimon", "sketchint", "lightguardian")
}

// query is one question to one plugin, in three languages.
type query struct{ question, plugin, gnmi, influxql, promql string }

// queries reads the blocks of three queries from docs/yang.md. The question is the heading above
// the block.
func queries(t *testing.T) (out []query) {
	t.Helper()
	text, err := os.ReadFile("../../docs/yang.md")
	if err != nil {
		t.Fatal(err)
	}
	heading := ""
	parts := regexp.MustCompile(`(?m)^### (.*)$|^gNMI: +(.*)\n(?:InfluxQL: +(.*)\n)?(?:PromQL: +(.*)\n)?`)
	for _, m := range parts.FindAllStringSubmatch(string(text), -1) {
		if m[1] != "" {
			heading = m[1]
			continue
		}
		plugin, _, _ := strings.Cut(strings.TrimPrefix(m[2], "/"), "/")
		out = append(out, query{heading, plugin, m[2], m[3], m[4]})
	}
	return out
}

// row is a row of an answer: its keys and numbers, or texts, by name. A dash stands for an
// underscore of Prometheus.
type row map[string]string

// qualities are the values of leaves of quality.
var qualities = []string{"EXACT", "LOWER_BOUND", "UPPER_BOUND", "BOUNDED", "ESTIMATE"}

// number returns a leaf as a number. A quality has a number of its own.
func (r row) number(t *testing.T, name string) float64 {
	t.Helper()
	if i := slices.Index(qualities, r[name]); i >= 0 {
		return float64(i + 1)
	}
	if b, err := strconv.ParseBool(r[name]); err == nil && len(r[name]) > 1 {
		return map[bool]float64{true: 1}[b]
	}
	n, err := strconv.ParseFloat(r[name], 64)
	if err != nil {
		t.Fatalf("%s of %v is no number", name, r)
	}
	return n
}

// played is a scenario at the end of its last epoch.
type played struct {
	t     *testing.T
	run   *scenario.Run
	gnmi  gnmi.GNMIClient
	db    *influxdbtest.Server
	prom  scrape
	seen  *updates // since the last epoch but one
	now   time.Time
	truth map[uint64][]row // by epoch
	epoch time.Duration
}

// stamp is the name under which a row has its timestamp.
const stamp = "(timestamp)"

// get counts the leaves of a plugin that gNMI returns for a type of data.
func (p *played) get(plugin string, of gnmi.GetRequest_DataType) (n int) {
	p.t.Helper()
	path, err := yang.ParsePath("/" + plugin)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := p.gnmi.Get(p.t.Context(), &gnmi.GetRequest{Path: []*gnmi.Path{path}, Type: of,
		Encoding: gnmi.Encoding_JSON_IETF})
	if status.Code(err) == codes.NotFound {
		return 0
	}
	if err != nil {
		p.t.Fatal(err)
	}
	for _, notification := range resp.GetNotification() {
		n += len(notification.GetUpdate())
	}
	return n
}

// rows reads a gNMI path: one row for each container state.
func (p *played) rows(text string) (out []row) {
	p.t.Helper()
	path, err := yang.ParsePath(text)
	if err != nil {
		p.t.Fatal(err)
	}
	stream, err := p.gnmi.Subscribe(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	list := &gnmi.SubscriptionList{Mode: gnmi.SubscriptionList_ONCE, Encoding: gnmi.Encoding_JSON_IETF,
		Subscription: []*gnmi.Subscription{{Path: path}}}
	request := &gnmi.SubscribeRequest{Request: &gnmi.SubscribeRequest_Subscribe{Subscribe: list}}
	if err := stream.Send(request); err != nil {
		p.t.Fatal(err)
	}
	at := map[string]row{}
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			p.t.Fatalf("%s: %v", text, err)
		}
		for _, u := range resp.GetUpdate().GetUpdate() {
			elems := slices.Concat(resp.GetUpdate().GetPrefix().GetElem(), u.GetPath().GetElem())
			name, key := "", ""
			r := row{}
			for _, e := range elems {
				name = e.GetName()
				for k, v := range e.GetKey() {
					r[k] = v
				}
			}
			for _, k := range slices.Sorted(maps.Keys(r)) {
				key += k + "=" + r[k] + " "
			}
			if at[key] == nil {
				at[key] = r
				out = append(out, r)
			}
			var v any
			if err := json.Unmarshal(u.GetVal().GetJsonIetfVal(), &v); err != nil {
				p.t.Fatal(err)
			}
			at[key][name] = fmt.Sprint(v)
			at[key][stamp] = strconv.FormatInt(resp.GetUpdate().GetTimestamp(), 10)
		}
	}
}

// influx runs InfluxQL.
func (p *played) influx(text string) (out []row) {
	p.t.Helper()
	for _, s := range p.db.Query(text) {
		for _, values := range s.Values {
			r := row{}
			for k, v := range s.Tags {
				r[k] = v
			}
			for i, c := range s.Columns {
				if values[i] != nil {
					r[c] = fmt.Sprint(values[i])
				}
			}
			out = append(out, r)
		}
	}
	return out
}

// prometheus evaluates PromQL. Each row has the labels of a time series and its value as "value".
// The time series of an enumeration has the enumeration's value in the label state instead.
func (p *played) prometheus(text string) (out []row) {
	p.t.Helper()
	for _, s := range p.prom.query(p.t, text, p.now) {
		r := row{"value": strconv.FormatFloat(s.F, 'g', -1, 64)}
		for name, v := range s.Metric.Map() {
			r[strings.ReplaceAll(name, "_", "-")] = v
		}
		if r["state"] != "" {
			r["value"] = r["state"]
		}
		out = append(out, r)
	}
	return out
}

// of returns the ground truth of the epochs that the results of a plugin are about. If hosts mark
// packets with the epoch, the last row of a flow at a node in an epoch is about the packets that
// carry it, which OmniMon counts, and the first one about all packets at that time.
func (p *played) of(plugin string) (out []row) {
	p.t.Helper()
	s := p.rows("/" + plugin + "/summary/state")[0]
	last := uint64(s.number(p.t, "last-epoch"))
	for n := uint64(s.number(p.t, "first-epoch")); n <= last; n++ {
		if len(p.truth[n]) == 0 && (plugin != "lightguardian" || n == last) { // epochs of an interval share a bank
			p.t.Fatalf("the ground truth has nothing about epoch %d", n)
		}
		at := map[[2]string]int{}
		for _, r := range p.truth[n] {
			key := [2]string{r["node"], r["flow"]}
			if i, twice := at[key]; !twice {
				at[key], out = len(out), append(out, r)
			} else if plugin == "omnimon" {
				out[i] = r
			}
		}
	}
	return out
}

// load reads a scenario of the repository.
func load(t *testing.T, file string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Load(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// play plays some epochs of a scenario and calls ask at the end of the last one.
func play(t *testing.T, s *scenario.Scenario, epochs int, ask func(*played)) {
	t.Helper()
	s.Epochs, s.Expect, s.ScoreEvery = epochs, nil, 0 // the ground truth has each epoch
	p := &played{t: t, db: influxdbtest.Start(t, influxdbtest.Options{}), truth: map[uint64][]row{},
		epoch: s.Epoch}
	file := filepath.Join(t.TempDir(), "truth.csv")
	truth, err := groundtruth.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	c := settings.Default[influxdb.Config]()
	c.URL, c.Bucket, c.Spool.Dir, c.FlushInterval = p.db.URL, "netsketch", filepath.Join(t.TempDir(), "spool"),
		50*time.Millisecond
	out, err := influxdb.New("influxdb", c, certs.New(certs.Options{}), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var written chan error
	asked := false
	n := 0
	// The queries ask for the last minute. Playing may take longer, so the epochs are in the future.
	start := time.Now().Add(time.Hour).Truncate(s.Epoch)
	run, err := scenario.Open(t.Context(), s, scenario.Options{PluginDir: plugins, Listen: "127.0.0.1:0",
		HTTP: "127.0.0.1:0", Virtual: true, Start: start, GroundTruth: truth,
		OnEpoch: func(run *scenario.Run) error {
			if n++; n == 1 {
				if err := out.Start(run.Collector().Store()); err != nil {
					return err
				}
				written = make(chan error, 1)
				go func() { written <- out.Run(ctx) }()
			}
			if n < epochs-1 {
				return nil
			}
			p.run = run
			if n == epochs-1 {
				p.seen = p.follow(ctx, run.Address())
				return nil
			}
			conn, err := grpc.NewClient(run.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
			if err != nil {
				return err
			}
			defer conn.Close()
			p.gnmi = gnmi.NewGNMIClient(conn)
			p.readTruth(file)
			p.now = time.Now()
			p.prom = newScrape(t, "http://"+run.Collector().HTTPAddress()+"/metrics/results", p.now)
			testkit.Until(t, "the database has all points", func() bool {
				st := out.State()
				return st.Sent > 0 && st.Queued == 0 && st.Spooled == 0
			})
			asked = true
			ask(p)
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = run.Play(t.Context())
	stop()
	if written != nil {
		err = errors.Join(err, <-written)
	}
	if err = errors.Join(err, run.Close(), truth.Close()); err != nil || !asked {
		t.Fatal(err, asked)
	}
}

// updates counts what a subscriber on change receives.
type updates struct {
	mu                sync.Mutex
	updated, withdrew int
	err               error
}

// follow subscribes to all plugins on change, and counts from when all values were sent.
func (p *played) follow(ctx context.Context, address string) *updates {
	p.t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		p.t.Fatal(err)
	}
	stream, err := gnmi.NewGNMIClient(conn).Subscribe(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	list := &gnmi.SubscriptionList{}
	for _, plugin := range slices.Sorted(maps.Keys(scenarios)) {
		if path, err := yang.ParsePath("/" + plugin); err != nil {
			p.t.Fatal(err)
		} else if slices.Contains(p.run.Report().Plugins, plugin) {
			list.Subscription = append(list.Subscription, &gnmi.Subscription{Path: path,
				Mode: gnmi.SubscriptionMode_ON_CHANGE})
		}
	}
	request := &gnmi.SubscribeRequest{Request: &gnmi.SubscribeRequest_Subscribe{Subscribe: list}}
	if err := stream.Send(request); err != nil {
		p.t.Fatal(err)
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			p.t.Fatal(err)
		}
		if resp.GetSyncResponse() {
			break
		}
	}
	u := &updates{}
	go func() {
		defer conn.Close()
		for {
			resp, err := stream.Recv()
			u.mu.Lock()
			if u.err = err; err == nil {
				u.updated += len(resp.GetUpdate().GetUpdate())
				u.withdrew += len(resp.GetUpdate().GetDelete())
			}
			u.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return u
}

// get returns the numbers of updates and deletes, when no more arrive.
func (u *updates) get(t *testing.T) (updated, withdrew int) {
	t.Helper()
	for before := -1; ; {
		u.mu.Lock()
		updated, withdrew = u.updated, u.withdrew
		err := u.err
		u.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if updated+withdrew == before && before > 0 {
			return updated, withdrew
		}
		before = updated + withdrew
		time.Sleep(time.Second)
	}
}

// volume is what the last epoch of a scenario costs its readers.
type volume struct{ rows, updates, deletes, points, series int }

// above reports whether a volume is more than a tenth, and 50, above a recorded one.
func (v *volume) above(recorded *volume) bool {
	more := func(n, than int) bool { return n > than+than/10+50 }
	return more(v.rows, recorded.rows) || more(v.updates, recorded.updates) || more(v.deletes, recorded.deletes) ||
		more(v.points, recorded.points) || more(v.series, recorded.series)
}

// volume counts the rows of a plugin in the last epoch, what a subscriber on change receives of
// them, the points in InfluxDB, and the time series of Prometheus.
func (p *played) volume(plugin string) (v volume) {
	p.t.Helper()
	epochs := p.run.Report().Epochs
	v.rows = epochs[len(epochs)-1].Rows[plugin]
	v.updates, v.deletes = p.seen.get(p.t)
	since := epochs[len(epochs)-2].End.UnixNano()
	if s := p.rows("/" + plugin + "/summary/state"); plugin == "lightguardian" { // rows have the end of the interval
		since = int64(s[0].number(p.t, "start-time"))
	}
	for _, r := range p.influx(fmt.Sprintf(`SELECT COUNT("ended") FROM /^%s\// WHERE time > %d`, plugin, since)) {
		v.points += int(r.number(p.t, "count"))
	}
	for _, s := range p.prom {
		if strings.HasPrefix(s.Labels().Get(model.MetricNameLabel), "netsketch_"+plugin+"_") {
			v.series++
		}
	}
	return v
}

// readTruth reads the ground truth so far.
func (p *played) readTruth(file string) {
	p.t.Helper()
	f, err := os.Open(file)
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, record := range records[1:] {
		r := row{}
		for i, name := range records[0] {
			r[name] = record[i]
		}
		protocol := map[string]string{"6": "tcp", "17": "udp", "1": "icmp"}[r["protocol"]]
		r["flow"] = strings.Join([]string{r["src"], r["dst"], protocol, r["src-port"], r["dst-port"]}, ",")
		n := uint64(r.number(p.t, "epoch"))
		p.truth[n] = append(p.truth[n], r)
	}
}

// ask runs the three queries. Each row of InfluxDB and of Prometheus is a row of gNMI with the same
// value, and the largest values are the same. It returns the rows of gNMI, which can be none.
func (p *played) ask(q query, keys []string, leaf string) []row {
	p.t.Helper()
	name := func(r row) (out string) {
		for _, k := range keys {
			out += r[k] + " "
		}
		return out
	}
	rows := p.rows(q.gnmi)
	values := map[string]float64{}
	end := p.rows("/" + q.plugin + "/summary/state")[0]["end-time"]
	for _, r := range rows {
		if r[stamp] != end {
			p.t.Errorf("the timestamp of %v is not the end of the range, %s", r, end)
		}
		if fields := strings.Split(r["flow"], ","); r["flow"] != "" && !slices.Equal(fields[:3],
			[]string{r["source-address"], r["destination-address"], r["protocol"]}) {
			p.t.Errorf("%v does not have the fields of its flow", r)
		}
		if r[leaf] != "" {
			values[name(r)] = r.number(p.t, leaf)
		}
	}
	var largest []float64
	for _, v := range values {
		largest = append(largest, v)
	}
	slices.Sort(largest)
	slices.Reverse(largest)
	compare := func(text, leaf string, scale float64, answer []row) {
		p.t.Helper()
		var found []float64
		for _, r := range answer {
			if r[leaf] == "" { // a row without the leaf
				continue
			}
			v, ok := values[name(r)]
			got := r.number(p.t, leaf) * scale
			if !ok || math.Abs(got-v) > 1e-6*math.Abs(v) {
				p.t.Errorf("%s\nhas %v; gNMI has %v, %v", text, r, v, ok)
			}
			found = append(found, v)
		}
		slices.Sort(found)
		slices.Reverse(found)
		want := largest
		if strings.Contains(text, "10") && len(want) > 10 && len(found) < len(want) {
			want = want[:10]
		}
		if !slices.Equal(found, want) {
			p.t.Errorf("%s\nhas %d rows with %v; want %d with %v", text, len(found), found, len(want), want)
		}
	}
	scale := 1.0
	if strings.Contains(q.promql, "_seconds") {
		scale = 1e9
	}
	compare(q.influxql, leaf, 1, p.influx(q.influxql))
	compare(q.promql, "value", scale, p.prometheus(q.promql))
	return rows
}
