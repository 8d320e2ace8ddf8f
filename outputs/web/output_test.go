// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/outputs/access"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

func TestMain(m *testing.M) {
	// ygot imports glog, which starts a goroutine.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

// acme is the module of a plugin that computes rows for a flow at a site, in a list of other names.
const acme = `module acme-probes {
  yang-version "1.1"; namespace "https://example.com/yang/probes"; prefix "acme-probes";
  import openconfig-extensions { prefix oc-ext; }
  import netsketch-types { prefix ns-types; }
  organization "Example"; description "Probes."; oc-ext:openconfig-version "0.1.0";
  revision "2026-11-20" { description "First version."; reference "0.1.0"; }
  container probes { description "Results of the plugin.";
    container sites { config false; description "All sites.";
      list site { key "site"; description "A site.";
        leaf site { type leafref { path "../state/site"; } description "Reference to the site."; }
        container state { description "The site.";
          leaf site { type string; description "Name of the site."; }
          leaf port-id { type uint32; description "Its port."; }
          leaf seen { type ns-types:epoch-number; description "Its newest epoch."; } } } }
    container probes { config false; description "All probes.";
      list probe { key "site way tuple"; description "A probe of a flow.";
        leaf site { type leafref { path "../state/site"; } description "Reference to the site."; }
        leaf way { type leafref { path "../state/way"; } description "Reference to the way."; }
        leaf tuple { type leafref { path "../state/tuple"; } description "Reference to the flow."; }
        container state { description "The probe.";
          leaf site { type string; description "Name of the site."; }
          leaf way { type enumeration { enum in { description "In."; } enum out { description "Out."; } }
            description "Way of the packets."; }
          leaf tuple { type ns-types:flow-key; description "The flow."; }
          leaf answered { type ns-types:share; description "Answered probes."; } } } } } }`

// schema has the modules that ship, and those of plugins of third parties.
var schema = sync.OnceValues(func() (*yang.Schema, error) {
	const name = "acme-hello"
	text, err := os.ReadFile("../../examples/plugin-hello/" + name + ".yang")
	if err != nil {
		return nil, err
	}
	return yang.Load(append(yangtest.Modules(), yang.Module{Name: name, Text: string(text)},
		yang.Module{Name: "acme-probes", Text: acme})...)
})

// fixture is a running console over a store.
type fixture struct {
	*Output
	t      *testing.T
	store  *store.Store
	client *http.Client
	epoch  uint64
	stop   func() // stops the output; called at the end of the test as well
}

// querier refuses every row, like a plugin that has special rules for its keys.
type querier struct{}

func (querier) Query(_ context.Context, _, list string, keys map[string]string) (*store.View, error) {
	return nil, status.Errorf(codes.FailedPrecondition, "the plugin of %s refuses %s", list, keys["site"])
}

func plain() Config {
	c := DefaultConfig()
	c.Address, c.TLS.Plaintext = "127.0.0.1:0", true
	return c
}

func start(t *testing.T, c Config) *fixture {
	t.Helper()
	modules, err := schema()
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, c, modules, store.New(store.Options{Schema: modules}))
}

// serve starts the output on a store.
func serve(t *testing.T, c Config, modules *yang.Schema, st *store.Store) *fixture {
	t.Helper()
	f := &fixture{t: t, store: st, client: &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{}, ForceAttemptHTTP2: true}}}
	o, err := New("web", c, Dependencies{
		Schema: func() *yang.Schema { return modules }, Querier: querier{},
		Watchable: func() []string {
			return []string{"/netsketch-univmon:univmon/flows/flow", "/acme-probes:probes/probes/probe"}
		},
		Certificates: certs.New(certs.Options{}),
		Endpoint:     func() *Endpoint { return &Endpoint{Address: "192.0.2.1:9339", Plaintext: true} },
		Measurement:  func(list string, keyed bool) string { return fmt.Sprint(list, " ", keyed) },
		Tag:          func(key string) string { return key },
		Logger:       slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Start(f.store); err != nil {
		t.Fatal(err)
	}
	f.Output = o
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if s := o.State().Status; s != outputs.Stopped {
			t.Errorf("a stopped output is %s", s)
		}
		f.client.CloseIdleConnections()
		f.store.Close()
	})
	t.Cleanup(f.stop)
	return f
}

// flows publishes the packets of flows of one device as the next epoch.
func (f *fixture) flows(packets map[string]uint64) {
	f.t.Helper()
	b := table.NewBuilder("/netsketch-univmon:univmon/heavy-hitters/heavy-hitter")
	device, dimension, flow := b.TextKey("node"), b.TextKey("dimension"), b.TextKey("flow")
	value, share := b.Uint("state/packets"), b.Float("state/share")
	for name := range maps.Keys(packets) {
		device.Append("leaf1")
		dimension.Append("src")
		flow.Append(name)
		value.Append(packets[name])
		share.Append(0.25)
	}
	t, err := b.Table()
	if err != nil {
		f.t.Fatal(err)
	}
	f.epoch++
	if err := f.store.Publish(store.Batch{Time: time.Unix(int64(f.epoch), 0), Epoch: f.epoch,
		Tables: []store.Publication{{Table: t, Replace: true}}}); err != nil {
		f.t.Fatal(err)
	}
}

// request makes a request with these headers, "Name: value" each. The caller closes the body.
func (f *fixture) request(method, path, body string, headers ...string) *http.Response {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, strings.TrimSuffix(f.URL(), "/")+path,
		strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	resp, err := f.client.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp
}

// answer makes a request and returns the status of the answer, and the error that its body reports.
func (f *fixture) answer(method, path, body string, headers ...string) (int, string) {
	f.t.Helper()
	resp := f.request(method, path, body, headers...)
	defer resp.Body.Close()
	var failed struct{ Error string }
	if resp.StatusCode != http.StatusOK {
		if err := json.NewDecoder(resp.Body).Decode(&failed); err != nil || failed.Error == "" {
			f.t.Errorf("status %d without an error: %v", resp.StatusCode, err)
		}
	}
	return resp.StatusCode, failed.Error
}

// event is a notification as a browser receives it.
type event struct {
	Time, Target string
	Set          [][2]json.RawMessage
	Delete       []string
}

// follower keeps the tree of a subscription as a page does.
type follower struct {
	t     *testing.T
	lines *bufio.Scanner
	body  io.Closer
	tree  map[string]string // value by path of the leaf
}

func (f *fixture) follow(body string) *follower {
	f.t.Helper()
	resp := f.request("POST", "/api/subscribe", body)
	f.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		f.t.Fatalf("%s, %s", resp.Status, resp.Header)
	}
	return &follower{t: f.t, lines: bufio.NewScanner(resp.Body), body: resp.Body, tree: map[string]string{}}
}

// next applies the next event and returns its name.
func (f *follower) next() string {
	f.t.Helper()
	name := "message"
	for f.lines.Scan() {
		line := f.lines.Text()
		if after, ok := strings.CutPrefix(line, "event: "); ok {
			name = after
		}
		if after, ok := strings.CutPrefix(line, "data: "); ok && name == "message" {
			f.apply(after)
		}
		if line == "" {
			return name
		}
	}
	f.t.Fatalf("the stream ended: %v", f.lines.Err())
	return ""
}

func (f *follower) apply(data string) {
	f.t.Helper()
	var e event
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		f.t.Fatalf("%v: %s", err, data)
	}
	for _, d := range e.Delete {
		maps.DeleteFunc(f.tree, func(path, _ string) bool { return path == d || strings.HasPrefix(path, d+"/") })
	}
	for _, s := range e.Set {
		var entry string
		var leaves map[string]json.RawMessage
		if err := json.Unmarshal(s[0], &entry); err != nil {
			f.t.Fatal(err)
		}
		if err := json.Unmarshal(s[1], &leaves); err != nil {
			f.t.Fatal(err)
		}
		for leaf, value := range leaves {
			f.tree[entry+"/"+leaf] = string(value)
		}
	}
}

func (f *follower) until(what string, reached func() bool) {
	f.t.Helper()
	for i := 0; !reached(); i++ {
		if i == 10_000 {
			f.t.Fatalf("%s: not after %d events", what, i)
		}
		f.next()
	}
}

const hitters = "/univmon/heavy-hitters"

// A page receives the values that a gNMI client receives in JSON_IETF, follows changes, and loses
// rows that are gone.
func TestValuesMatchGNMI(t *testing.T) {
	f := start(t, plain())
	f.flows(map[string]uint64{"10.0.0.1": 1<<63 + 1, "10.0.0.2": 7, `odd]"\é`: 3})
	page := f.follow(`{"paths": ["` + hitters + `"]}`)
	for page.next() != "sync" {
	}
	check := func() {
		t.Helper()
		resp, err := f.gnmi.Get(t.Context(), &gpb.GetRequest{Encoding: gpb.Encoding_JSON_IETF,
			Path: []*gpb.Path{{Elem: []*gpb.PathElem{{Name: "univmon"}, {Name: "heavy-hitters"},
				{Name: "heavy-hitter"}, {Name: "state"}, {Name: "*"}}}}})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for _, n := range resp.GetNotification() {
			for _, u := range n.GetUpdate() {
				path := join(n.GetPrefix().GetElem(), u.GetPath().GetElem())
				want[yang.PathString(path)] = string(u.GetVal().GetJsonIetfVal())
			}
		}
		got := maps.Clone(page.tree)
		maps.DeleteFunc(got, func(path, _ string) bool { return !strings.Contains(path, "/state/") }) // the keys
		if len(want) < 8 || !maps.Equal(want, got) {
			t.Errorf("a page has\n%v\na gNMI client\n%v", got, want)
		}
	}
	check()
	f.flows(map[string]uint64{"10.0.0.2": 8, "10.0.0.3": 9})
	packets := func(flow string) string {
		return "/univmon/heavy-hitters/heavy-hitter[dimension=src][flow=" + flow + "][node=leaf1]/state/packets"
	}
	page.until("the rows of the second epoch", func() bool {
		_, old := page.tree[packets("10.0.0.1")]
		return !old && page.tree[packets("10.0.0.2")] == `"8"` && page.tree[packets("10.0.0.3")] != ""
	})
	check()
	if s := f.State(); s.Sent == 0 || s.Clients.Streams != 1 {
		t.Errorf("state %+v", s)
	}
}

// A subscription with an interval receives the newest value of each interval.
func TestInterval(t *testing.T) {
	f := start(t, plain())
	f.flows(map[string]uint64{"10.0.0.1": 1})
	page := f.follow(`{"paths": ["` + hitters + `"], "intervalMs": 100}`)
	for page.next() != "sync" {
	}
	const changes = 50
	for i := range uint64(changes) {
		f.flows(map[string]uint64{"10.0.0.1": 2 + i})
	}
	events := 0
	page.until("the newest value", func() bool {
		events++
		return page.tree["/univmon/heavy-hitters/heavy-hitter[dimension=src][flow=10.0.0.1][node=leaf1]/state/packets"] ==
			fmt.Sprintf(`"%d"`, changes+1)
	})
	if events > changes/2 {
		t.Errorf("%d events for %d changes within an interval", events, changes)
	}
}

func TestRequestsAreChecked(t *testing.T) {
	c := plain()
	c.MaxStreamsPerClient = 1
	f := start(t, c)
	for _, tt := range []struct {
		path, body string
		headers    []string
		status     int
		message    string
	}{
		{"/api/subscribe", `{`, nil, 400, "unexpected EOF"},
		{"/api/subscribe", `{"paths": ["/univmon"]} {}`, nil, 400, "continues after"},
		{"/api/subscribe", `{"path": "/univmon"}`, nil, 400, `unknown field "path"`},
		{"/api/subscribe", `{}`, nil, 400, "at least one path"},
		{"/api/subscribe", `{"paths": ["univmon"]}`, nil, 400, "does not begin with /"},
		{"/api/subscribe", `{"paths": ["/univmom"]}`, nil, 400, `did you mean "univmon"`},
		{"/api/subscribe", `{"paths": ["/univmon"], "intervalMs": 5}`, nil, 400, "the lowest is 100ms"},
		{"/api/subscribe", `{"paths": ["/` + strings.Repeat("x", maxBody) + `"]}`, nil, 413, "fewer paths"},
		{"/api/subscribe", `{"paths": ["/univmon"]}`, []string{"Content-Type: text/plain"}, 415, "expected application/json"},
		{"/api/subscribe", `{"paths": ["/univmon"]}`, []string{"Sec-Fetch-Site: cross-site"}, 403, "another site"},
		{"/api/subscribe", `{"paths": ["/univmon"]}`, []string{"Host: rebound.example"}, 403, "not a loopback name"},
	} {
		code, message := f.answer("POST", tt.path, tt.body, tt.headers...)
		if code != tt.status || !strings.Contains(message, tt.message) {
			t.Errorf("%.80s %q: %d %q, want %d %q", tt.body, tt.headers, code, message, tt.status, tt.message)
		}
	}
	code, message := f.answer("GET", "/nowhere.js", "")
	if code != 404 || !strings.Contains(message, "begins at /") {
		t.Errorf("a page that is not there: %d %s", code, message)
	}
	f.follow(`{"paths": ["/univmon", "/collector"]}`)
	code, message = f.answer("POST", "/api/subscribe", `{"paths": ["/univmon"]}`)
	if code != 429 || !strings.Contains(message, "max-streams-per-client") {
		t.Errorf("a stream over the limit: %d %s", code, message)
	}
	if s := f.State().Clients; s.StreamsRefused != 1 {
		t.Errorf("%+v, want 1 refused stream", s)
	}
}

func TestUsers(t *testing.T) {
	c := plain()
	c.Username, c.Password = "ops", settings.Secret("s3cret")
	c.Users = []access.User{{Name: "tenant", Password: "t3nant", Paths: []string{"/univmon"}}}
	f := start(t, c)
	login := func(name, password string) string {
		r, _ := http.NewRequest("GET", "/", nil)
		r.SetBasicAuth(name, password)
		return "Authorization: " + r.Header.Get("Authorization")
	}
	for _, tt := range []struct {
		path   string
		login  []string
		status int
	}{
		{"/", nil, 401},
		{"/", []string{login("ops", "wrong")}, 401},
		{"/", []string{"Authorization: Bearer s3cret"}, 401},
		{"/", []string{login("", "")}, 401},
		{"/", []string{login("ops", "s3cret")}, 200},
		{"/api/schema", []string{login("tenant", "t3nant")}, 200},
	} {
		resp := f.request("GET", tt.path, "", tt.login...)
		if asks := resp.Header.Get("WWW-Authenticate") != ""; asks != (tt.status == 401) {
			t.Errorf("%s %q: asks for a login: %t", tt.path, tt.login, asks)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("%s %q: %s, want %d", tt.path, tt.login, resp.Status, tt.status)
		}
	}
	code, message := f.answer("POST", "/api/subscribe", `{"paths": ["/collector"]}`, login("tenant", "t3nant"))
	if code != 403 || !strings.Contains(message, "may read only /univmon") {
		t.Errorf("a path that the user may not read: %d %s", code, message)
	}
	if s := f.State().Clients; s.LoginsRefused != 4 || s.PathsRefused != 1 {
		t.Errorf("%+v, want 4 refused logins and 1 refused path", s)
	}
	resp := f.request("GET", "/api/info", "", login("tenant", "t3nant"))
	defer resp.Body.Close()
	var info struct {
		Target, User string
		GNMI         *Endpoint
	}
	if err := json.NewDecoder(resp.Body).Decode(&info); err != nil || info.User != "tenant" ||
		info.Target != "netsketch" || info.GNMI.Address != "192.0.2.1:9339" {
		t.Errorf("info %+v, %v", info, err)
	}
}

// With TLS a browser has all streams on one connection.
func TestTLS(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	dir := t.TempDir()
	c := plain()
	c.TLS.Plaintext = false
	c.TLS.CertFile, c.TLS.KeyFile = ca.Issue(t, dir, "server", time.Now().AddDate(1, 0, 0))
	c.TLS.ClientCAFile = ca.Write(t, dir, "ca.pem")
	c.Users = []access.User{{Name: "grafana"}}
	f := start(t, c)
	pair, err := tls.LoadX509KeyPair(ca.Issue(t, dir, "grafana", time.Now().AddDate(1, 0, 0)))
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig := f.client.Transport.(*http.Transport).TLSClientConfig
	tlsConfig.RootCAs, tlsConfig.Certificates = ca.Pool(), []tls.Certificate{pair}
	f.flows(map[string]uint64{"10.0.0.1": 1})
	for range 10 {
		page := f.follow(`{"paths": ["` + hitters + `"]}`)
		for page.next() != "sync" {
		}
	}
	resp := f.request("GET", "/", "")
	resp.Body.Close()
	if n := f.State().Clients.Connections; resp.ProtoMajor != 2 || n != 1 {
		t.Errorf("%s, %d connections for 10 streams", resp.Proto, n)
	}
}

// A browser that does not read events does not delay another browser, and is disconnected.
func TestSlowBrowser(t *testing.T) {
	c := plain()
	c.WriteTimeout = 2 * time.Second
	f := start(t, c)
	conn, err := net.Dial("tcp", f.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	const body = `{"paths": ["` + hitters + `"]}`
	fmt.Fprintf(conn, "POST /api/subscribe HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body)
	page := f.follow(body)
	testkit.Until(t, "both streams are open", func() bool { return f.State().Clients.Streams == 2 })

	const rows, full = 100, 20 // rounds that fill every buffer of the connection
	long := strings.Repeat("x", 4000)
	packets := map[string]uint64{}
	for n := uint64(1); f.State().Clients.StreamsRefused == 0; n++ {
		for i := range rows {
			packets[fmt.Sprint(i, long)] = n
		}
		f.flows(packets)
		want, have := fmt.Sprintf(`"%d"`, n), 0
		page.until("the newest values", func() bool {
			have = 0
			for path, v := range page.tree {
				if strings.HasSuffix(path, "packets") && v == want {
					have++
				}
			}
			return have == rows
		})
		if n > full {
			time.Sleep(50 * time.Millisecond)
		}
	}
	testkit.Until(t, "the slow stream has ended", func() bool { return f.State().Clients.Streams == 1 })
}

// The files of the console load nothing from elsewhere, and a browser's copy is confirmed by its
// entity tag.
func TestPages(t *testing.T) {
	f := start(t, plain())
	resp := f.request("GET", "/", "", "Accept-Encoding: identity")
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !bytes.Contains(text, []byte("<title>netsketch</title>")) {
		t.Fatalf("%s, %v: %.200s", resp.Status, err, text)
	}
	if bytes.Contains(text, []byte("://")) || bytes.Contains(text, []byte("<script>")) {
		t.Errorf("the page names another site, or has a script of its own: %s", text)
	}
	policy := resp.Header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("content security policy %q", policy)
	}
	again := f.request("GET", "/", "", "If-None-Match: "+resp.Header.Get("ETag"))
	again.Body.Close()
	if again.StatusCode != http.StatusNotModified {
		t.Errorf("a current copy: %s", again.Status)
	}
}

func TestPagesAreCurrent(t *testing.T) {
	testkit.GeneratedIsCurrent(t, "make console", "console/*.*", "console/src/*", "dist/*", "dist/assets/*")
}

func TestSchema(t *testing.T) {
	f := start(t, plain())
	resp := f.request("GET", "/api/schema", "")
	defer resp.Body.Close()
	var root node
	if err := json.NewDecoder(resp.Body).Decode(&root); err != nil {
		t.Fatal(err)
	}
	at := func(path string) *node {
		n := &root
		for name := range strings.SplitSeq(path, "/") {
			var child *node
			for _, c := range n.Children {
				if c.Name == name {
					child = c
				}
			}
			if child == nil {
				t.Fatalf("%s: no %s at %s", path, name, n.Name)
			}
			n = child
		}
		return n
	}
	if !at("univmon").Plugin || !at("hello").Plugin || at("collector").Plugin || at("interfaces").Plugin {
		t.Error("the nodes of plugins are not marked as those")
	}
	list := at("omnimon/queries/query/results/result")
	if list.Kind != "list" || fmt.Sprint(list.Keys, list.Tags) != "[key] [query/name key]" ||
		list.Measurement != "/netsketch-omnimon:omnimon/queries/query/results/result true" {
		t.Errorf("a nested list: %+v", list)
	}
	leaf := at("collector/epoch/state/total-time")
	if leaf.Units != "nanoseconds" || leaf.Base != "uint64" || leaf.Description == "" || leaf.Config {
		t.Errorf("a leaf: %+v", leaf)
	}
	if v := at("collector/plugins/plugin/state/status").Values; len(v) < 4 {
		t.Errorf("an enumeration has the values %q", v)
	}
}

// Every browser of a console that stops is disconnected, whether it reads or not.
func TestStopsWithOpenStreams(t *testing.T) {
	f := start(t, plain()) // the cleanup of the test waits for the output
	var pages sync.WaitGroup
	for range 5 {
		page := f.follow(`{"paths": ["/collector"]}`)
		pages.Go(func() {
			for page.lines.Scan() {
			}
		})
	}
	t.Cleanup(pages.Wait)
	conn, err := net.Dial("tcp", f.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
}

func FuzzSubscription(f *testing.F) {
	for _, s := range []string{
		`{"target": "*", "paths": ["/interfaces/interface[name=a\\]b]/state", "/"], "intervalMs": 100}`,
		`{"paths": ["/a[b=c][d=*]/.../e"]}`, `{"paths": [""]}`, `[]`, `{"paths": null} x`, `{"intervalMs": -1}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r, err := parseSubscription(strings.NewReader(body))
		if err != nil {
			return
		}
		again := subscription{Target: r.GetSubscribe().GetPrefix().GetTarget()}
		for _, s := range r.GetSubscribe().GetSubscription() {
			again.Paths = append(again.Paths, yang.PathString(s.GetPath().GetElem()))
			again.IntervalMS = uint32(s.GetSampleInterval() / uint64(time.Millisecond))
		}
		text, err := json.Marshal(again)
		if err != nil {
			t.Fatal(err)
		}
		second, err := parseSubscription(bytes.NewReader(text))
		if err != nil || second.String() != r.String() {
			t.Errorf("%s is\n%v, and its own text %s is\n%v, %v", body, r, text, second, err)
		}
	})
}

// An event is one line of JSON whatever the names and values.
func FuzzNotification(f *testing.F) {
	f.Add("heavy-hitter", "flow", `10.0.0.1]"\`, "state", "leaf1\n")
	f.Fuzz(func(t *testing.T, list, key, value, leaf, target string) {
		n := &gpb.Notification{Prefix: &gpb.Path{Target: target}, Update: []*gpb.Update{{
			Path: &gpb.Path{Elem: []*gpb.PathElem{{Name: list, Key: map[string]string{key: value}}, {Name: leaf}}},
			Val:  &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte("1")}},
		}}, Delete: []*gpb.Path{{Elem: []*gpb.PathElem{{Name: list}}}}}
		line := appendNotification(nil, n)
		var e event
		if err := json.Unmarshal(line, &e); err != nil || len(e.Set) != 1 || len(e.Delete) != 1 {
			t.Errorf("%v: %s", err, line)
		}
		if bytes.ContainsAny(line, "\n\r") {
			t.Errorf("an event of several lines: %q", line)
		}
	})
}

// The server accepts a flow key as people write it, and names the field that is wrong.
func TestFlowKeys(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1":                            "map[dst:10.0.0.1 src:10.0.0.1]",
		" 10.0.0.1, 10.0.1.2, TCP, 40000, 80": "map[5-tuple:10.0.0.1,10.0.1.2,tcp,40000,80]",
		"2001:DB8:0:0::1":                     "map[dst:2001:db8::1 src:2001:db8::1]",
		"10.0.0.1,10.0.1.2,6,40000,80":        "map[5-tuple:10.0.0.1,10.0.1.2,tcp,40000,80]",
		"6":                                   "map[dst-port:6 proto:tcp src-port:6]",
		"10.0.0.300":                          `"10.0.0.300" is neither an IP address nor a protocol nor a port`,
		"10.0.0.1,10.0.1.2,tpc,40000,80":      `"tpc" is neither a protocol's name nor a number`,
		"10.0.0.1,10.0.1.2,tcp,99999,80":      `"99999" is not a port from 0 to 65535`,
		"10.0.0.1 10.0.1.2  tcp 40000 80":     "map[5-tuple:10.0.0.1,10.0.1.2,tcp,40000,80]",
		"[2001:db8::1], [2001:db8::2]":        "map[src+dst:2001:db8::1,2001:db8::2]",
		"2001:db8::1,fe80::2,icmp6,0,0":       "map[5-tuple:2001:db8::1,fe80::2,ipv6-icmp,0,0]",
		"ICMPv6":                              "map[proto:ipv6-icmp]",
		"10.0.0.1,10.0.1.2,ICMP,0,0":          "map[5-tuple:10.0.0.1,10.0.1.2,icmp,0,0]",
		"fe80::1%eth0":                        "is neither an IP address",
		"::ffff:10.0.0.1":                     "10.0.0.1",
		"010.0.0.1":                           "is neither an IP address",
		"10.0.0.1,2001:db8::1":                "another order or number",
		"tcp,10.0.0.1":                        "another order or number",
		"10.0.0.1,10.0.1.2,tcp,40000,80,1":    "another order or number",
		"10.0.0.1;10.0.1.2":                   "is neither an IP address",
		"":                                    `"" is neither an IP address`,
	} {
		forms, err := flow.Forms(text)
		got := fmt.Sprint(forms)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func FuzzFlowKeys(f *testing.F) {
	f.Add("10.0.0.1,10.0.1.2,tcp,40000,80")
	f.Fuzz(func(t *testing.T, text string) {
		forms, err := flow.Forms(text)
		if (err == nil) != (len(forms) > 0) {
			t.Errorf("%q: %v, %v", text, forms, err)
		}
		for dimension, key := range forms {
			if again, err := flow.Forms(key); err != nil || again[dimension] != key {
				t.Errorf("%q is written %q by %s, and that as %q: %v", text, key, dimension, again[dimension], err)
			}
		}
	})
}

// The requests of a search: what is wrong with a key is an answer, not a failed request.
func TestFlowRequests(t *testing.T) {
	f := start(t, plain())
	read := func(method, path, body string) string {
		resp := f.request(method, path, body, "Content-Type: application/json")
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s %s: %s, %v", method, path, resp.Status, err)
		}
		return string(text)
	}
	for _, tt := range []struct{ method, path, body, want string }{
		{"GET", "/api/flow?key=10.0.0.7", "", `{"forms":{"dst":"10.0.0.7","src":"10.0.0.7"},"error":""}`},
		{"GET", "/api/flow?key=x", "", `{"forms":null,"error":"\"x\" is neither`},
		{"POST", "/api/get", `{"paths": ["/univmon/flows/flow[dimension=src][flow=x][node=leaf1]"]}`,
			`"code":"FailedPrecondition"`},
		{"POST", "/api/get", `{"paths": ["/univmom"]}`, `did you mean`},
		{"GET", "/api/info", "", `"watchable":["/univmon/flows/flow","/probes/probes/probe"]`},
	} {
		if got := read(tt.method, tt.path, tt.body); !strings.Contains(got, tt.want) {
			t.Errorf("%s %s %s: %s, want %s", tt.method, tt.path, tt.body, got, tt.want)
		}
	}
}
