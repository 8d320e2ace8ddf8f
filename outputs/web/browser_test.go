// SPDX-License-Identifier: Apache-2.0

//go:build console

// The console in Chromium: make console-check runs these tests.

package web

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

const (
	spines, leaves = 10, 50
	hitterRows     = 10_000
)

// browser is a tab of Chromium.
type browser struct {
	t   *testing.T
	ctx context.Context
	f   *fixture

	mu       sync.Mutex
	requests []string
	problems []string // exceptions, and errors of the page's log such as violations of the policy
	away     bool     // the console is stopped: its requests fail
}

// open starts Chromium with a tab of this size.
func open(t *testing.T, f *fixture, width, height int64) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("no Chromium: %v; install the package chromium", err)
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), chromedp.ExecPath(path), chromedp.Headless, chromedp.DisableGPU,
		chromedp.NoFirstRun, chromedp.NoSandbox) // root has no sandbox; the pages are the test's own
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 5*time.Minute)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx, f: f}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, height)); err != nil { // starts the browser
		t.Fatal(err)
	}
	if err := chromedp.Listen(ctx, b.record); err != nil {
		t.Fatal(err)
	}
	for _, enable := range []func() error{
		func() error { _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); return err },
		func() error { _, err := chromedp.Call(ctx, log.Enable, struct{}{}); return err },
		func() error { _, err := chromedp.Call(ctx, runtime.Enable, struct{}{}); return err },
	} {
		if err := enable(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(b.check)
	return b
}

func (b *browser) record(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := ev.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *log.EventEntryAdded:
		if b.away && e.Entry.Source == "network" {
			return
		}
		b.problems = append(b.problems, e.Entry.Text+" "+e.Entry.URL)
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, fmt.Sprintf("%+v", e.ExceptionDetails))
	}
}

// check fails if a page has requested anything of another host, or has reported a problem.
func (b *browser) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.requests) == 0 {
		b.t.Error("no request of a page was recorded")
	}
	for _, r := range b.requests {
		if u, err := url.Parse(r); err != nil || u.Host != b.f.Address() && u.Scheme != "data" {
			b.t.Errorf("request of another host: %s", r)
		}
	}
	for _, p := range b.problems {
		b.t.Errorf("problem in a page: %s", p)
	}
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	for i, step := range steps {
		ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
		err := chromedp.Do(ctx, step)
		cancel()
		if err != nil {
			b.t.Fatalf("step %d: %v", i+1, err)
		}
	}
}

// page opens a page of the console anew.
func (b *browser) page(hash string) {
	b.t.Helper()
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(b.f.URL()+"#/"+hash), chromedp.WaitVisible("h1"))
}

// evaluate returns the value of an expression; a promise is awaited.
func evaluate[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits for a condition of the page.
func (b *browser) until(condition string) { b.t.Helper(); b.after(func() {}, condition) }

// after waits until a page meets a condition, and does a step before each look that follows.
func (b *browser) after(step func(), condition string) {
	b.t.Helper()
	for range 600 {
		if evaluate[bool](b, condition) {
			return
		}
		step()
		time.Sleep(50 * time.Millisecond)
	}
	b.t.Fatalf("not after 30 s: %s; the page has %.2000s", condition, evaluate[string](b, "document.body.innerText"))
}

// network publishes a network of spines and leaves, an epoch, and heavy hitters.
func (f *fixture) network() {
	f.t.Helper()
	f.epoch++
	end := time.Now()
	device := table.NewBuilder("/netsketch-collector:collector/devices/device")
	name, connection, readout := device.TextKey("node"), device.Text("state/connection"), device.Uint("state/readout-time")
	var links [][2]string
	for i := range spines + leaves {
		text := fmt.Sprintf("spine%d", i)
		if i >= spines {
			text = fmt.Sprintf("leaf%d", i-spines)
			for s := range spines {
				links = append(links, [2]string{fmt.Sprintf("%s/%d", text, s+1), fmt.Sprintf("spine%d/%d", s, i)})
			}
		}
		name.Append(text)
		connection.Append("READY")
		readout.Append(uint64(1e6) * (f.epoch + uint64(i)))
	}
	epoch := table.NewBuilder("/netsketch-collector:collector/epoch")
	epoch.Uint("state/number").Append(f.epoch)
	epoch.Text("state/status").Append("COMPLETE")
	for _, leaf := range []string{"flip-time", "wait-time", "readout-time", "plugin-time", "publish-time", "total-time"} {
		epoch.Uint("state/" + leaf).Append(uint64(1e6) * (10 + f.epoch%5))
	}
	hitter := table.NewBuilder("/netsketch-univmon:univmon/heavy-hitters/heavy-hitter")
	on, dimension, flow := hitter.TextKey("node"), hitter.TextKey("dimension"), hitter.TextKey("flow")
	packets, share := hitter.Uint("state/packets"), hitter.Float("state/share")
	for i := range hitterRows {
		on.Append(fmt.Sprintf("leaf%d", i%leaves))
		dimension.Append("src")
		flow.Append(fmt.Sprintf("10.0.%d.%d", i/256, i%256))
		packets.Append(uint64(i)*1000 + f.epoch)
		share.Append(float64(i) / hitterRows)
	}
	var batch store.Batch
	batch.Time, batch.Epoch = end, f.epoch
	f.topology("CONFIRMED", 0, links...)
	for _, b := range []*table.Builder{device, epoch, hitter} {
		t, err := b.Table()
		if err != nil {
			f.t.Fatal(err)
		}
		batch.Tables = append(batch.Tables, store.Publication{Table: t, Replace: true})
	}
	if err := f.store.Publish(batch); err != nil {
		f.t.Fatal(err)
	}
}

// The pages load, at both widths and in both themes.
func TestBrowserPages(t *testing.T) {
	f := start(t, plain())
	f.network()
	b := open(t, f, 1280, 900)
	for _, p := range []struct{ hash, has string }{
		{"", fmt.Sprintf("%d switches, %d hosts, %d links", spines+leaves, leaves, spines*leaves+leaves)},
		{"epochs", "1 since the console was opened"},
		{"alerts", "No alerts"},
		{"flow?key=10.0.0.7", "/univmon/heavy-hitters/heavy-hitter"},
		{"queries", "No query runs."},
		{"plugin/univmon?list=/univmon/heavy-hitters/heavy-hitter", "10\u202f000 rows"},
		{"plugin/chamelemon", "summary"},
		{"plugin/hello", "used-cells"}, // a list of a third party's plugin
		{"paths?path=/collector/epoch", "…/state/plugin-time"},
	} {
		for _, width := range []int64{1280, 390} {
			b.do(chromedp.EmulateViewport(width, 844))
			b.page(p.hash)
			b.until(fmt.Sprintf("document.body.innerText.includes(%q)", p.has))
			if over := evaluate[float64](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
				t.Errorf("#/%s is %v pixels wider than %d", p.hash, over, width)
			}
		}
	}
	b.do(chromedp.EmulateViewport(1280, 900))
	b.page("plugin/univmon") // the page opens with a list that has rows, and not with the list of watched flows
	b.until(`document.querySelector('[aria-pressed=true]')?.innerText === 'node-summary'`)
	back := map[string]string{}
	for _, theme := range []string{"light", "dark"} {
		media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: theme}}}
		if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, media); err != nil {
			t.Fatal(err)
		}
		back[theme] = evaluate[string](b, "getComputedStyle(document.body).backgroundColor")
	}
	if back["light"] == back["dark"] {
		t.Errorf("the themes have the same background: %v", back)
	}
}

func TestBrowserKeyboard(t *testing.T) {
	f := start(t, plain())
	f.network()
	b := open(t, f, 1280, 900)
	b.page("")
	b.until(fmt.Sprintf("document.body.innerText.includes('%d switches')", spines+leaves))
	b.do(chromedp.KeyEvent("2"), chromedp.WaitVisible(".timeline"), chromedp.KeyEvent("?"), chromedp.WaitVisible("dialog"))
	b.page("plugin/univmon?list=/univmon/heavy-hitters/heavy-hitter")
	b.until("document.body.innerText.includes('10\u202f000 rows')")
	b.do(chromedp.KeyEvent("/"))
	if on := evaluate[string](b, "document.activeElement.className"); on != "filter" {
		t.Errorf("/ goes to %q, want the filter", on)
	}
	// The test's keyboard sends the character, too, although the page has taken the key.
	evaluate[any](b, "document.activeElement.select()")
	b.do(chromedp.KeyEvent("10.0.0.7"))
	b.until("document.querySelector('.count')?.innerText === '11 of 10\u202f000 rows'")
	evaluate[any](b, "document.querySelector('.scroller').focus()")
	b.do(chromedp.KeyEvent("j"), chromedp.WaitVisible(".details"), chromedp.WaitVisible(".uplot"))
	b.until("document.querySelector('.copy code')?.innerText.startsWith('gnmic -a 192.0.2.1:9339 --insecure') ?? false")

	// gnmi_cli asks for protobuf values of the whole row, keys with commas or without.
	line := evaluate[string](b, "document.querySelectorAll('.copy code')[1].innerText")
	options, text, _ := strings.Cut(strings.TrimSuffix(line, "'"), " -proto '")
	if want := "gnmi_cli -a 192.0.2.1:9339 -insecure -query_type streaming -display_type single"; options != want {
		t.Errorf("the line of gnmi_cli begins with %q, want %q", options, want)
	}
	var req gpb.SubscribeRequest
	if err := prototext.Unmarshal([]byte(text), &req); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	list := req.GetSubscribe()
	path := yang.PathString(list.GetSubscription()[0].GetPath().GetElem())
	if list.GetEncoding() != gpb.Encoding_PROTO || !strings.Contains(path, "[flow=10.0.0.7") {
		t.Errorf("the request of gnmi_cli is %v", &req)
	}
}

// The path browser shows the values that a gNMI client receives, also after they have changed.
func TestBrowserValuesMatchGNMI(t *testing.T) {
	f := start(t, plain())
	f.network()
	b := open(t, f, 1280, 2000)
	b.page("paths?path=" + url.QueryEscape("/univmon/heavy-hitters/heavy-hitter[flow=10.0.0.7]"))
	for range 3 {
		f.network()
		b.until(fmt.Sprintf("document.body.innerText.includes('%d')", 7000+f.epoch))
		cells := evaluate[[][]string](b,
			"[...document.querySelectorAll('.tr:not(.head)')].map((r) => [...r.children].map((c) => c.innerText))")
		path, err := yang.ParsePath("/univmon/heavy-hitters/heavy-hitter[node=leaf7][dimension=src][flow=10.0.0.7]/state/*")
		if err != nil {
			t.Fatal(err)
		}
		resp, err := f.gnmi.Get(t.Context(), &gpb.GetRequest{Path: []*gpb.Path{path}, Encoding: gpb.Encoding_JSON_IETF})
		if err != nil {
			t.Fatal(err)
		}
		compared := 0
		for _, n := range resp.GetNotification() {
			for _, u := range n.GetUpdate() {
				want := []string{yang.PathString(join(n.GetPrefix().GetElem(), u.GetPath().GetElem())),
					strings.Trim(string(u.GetVal().GetJsonIetfVal()), `"`)}
				if !slices.ContainsFunc(cells, func(c []string) bool { return slices.Equal(c[:2], want) }) {
					t.Errorf("the page has %q, not %q", cells, want)
				}
				compared++
			}
		}
		if compared < 5 {
			t.Errorf("%d leaves compared", compared)
		}
	}
}

// A query that a page starts is a subscription to a request, which ends when the page stops it.
func TestBrowserQuery(t *testing.T) {
	f := start(t, plain())
	f.network()
	b := open(t, f, 1280, 900)
	b.page("queries")
	before := f.State().Clients.Streams
	b.do(chromedp.SendKeys("textarea", "result = packets.distinct(dst, src)"), chromedp.Click("form button"),
		chromedp.WaitVisible(".started"))
	for f.State().Clients.Streams <= before {
		time.Sleep(20 * time.Millisecond)
	}
	b.do(chromedp.Click(".started button"))
	b.until("!document.querySelector('.started')")
	for f.State().Clients.Streams > before {
		time.Sleep(20 * time.Millisecond)
	}
}

// frames measures the time between frames for some seconds, while the page is scrolled.
const frames = `new Promise((done) => {
	const times = []
	let last = performance.now()
	const end = last + 8000
	const at = document.querySelector('.scroller')
	const step = (now) => {
		times.push(now - last)
		last = now
		at.scrollTop += 120
		if (at.scrollTop + at.clientHeight + 10 > at.scrollHeight) at.scrollTop = 0
		now < end ? requestAnimationFrame(step) : done(times)
	}
	requestAnimationFrame(step)
})`

// Frame times with 60 switches and 10,000 rows that all change every second, and the first paint.
// The figures are logged: docs/console.md has them.
func TestBrowserFrames(t *testing.T) {
	f := start(t, plain())
	f.network()
	stop := make(chan struct{})
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Second):
				f.network()
			}
		}
	})
	defer publishing.Wait()
	defer close(stop)
	b := open(t, f, 1280, 900)
	for _, p := range []struct{ name, hash, ready string }{
		{"topology", "", fmt.Sprintf("%d switches", spines+leaves)},
		{"10,000 rows", "plugin/univmon?list=/univmon/heavy-hitters/heavy-hitter", "10\u202f000 rows"},
		{"10,000 rows, sorted", "plugin/univmon?list=/univmon/heavy-hitters/heavy-hitter", "10\u202f000 rows"},
	} {
		b.page(p.hash)
		b.until(fmt.Sprintf("document.body.innerText.includes(%q)", p.ready))
		paint := evaluate[float64](b, "performance.getEntriesByName('first-contentful-paint')[0].startTime")
		if strings.HasSuffix(p.name, "sorted") {
			b.do(chromedp.Click("[role=columnheader]:nth-child(4) button"))
		}
		times := evaluate[[]float64](b, frames)
		slices.Sort(times)
		at := func(share float64) float64 { return times[int(share*float64(len(times)-1))] }
		t.Logf("%s: first paint after %.0f ms; %d frames in 8 s, median %.1f ms, 95 %% %.1f ms, "+
			"99 %% %.1f ms, longest %.0f ms",
			p.name, paint, len(times), at(0.5), at(0.95), at(0.99), at(1))
		if len(times) < 8 {
			t.Errorf("%s: %d frames in 8 s", p.name, len(times))
		}
	}
}

// publish publishes rows as the next epoch. A column is a list's key, or a leaf with text, a number
// or a bool.
func (f *fixture) publish(list string, keys []string, rows ...map[string]any) {
	f.t.Helper()
	b := table.NewBuilder(list)
	var columns []func(row map[string]any)
	for _, k := range keys {
		c := b.TextKey(k)
		columns = append(columns, func(row map[string]any) { c.Append(row[k].(string)) })
	}
	for _, leaf := range slices.Sorted(maps.Keys(rows[0])) {
		switch rows[0][leaf].(type) {
		case string:
			if !slices.Contains(keys, leaf) {
				c := b.Text(leaf)
				columns = append(columns, func(row map[string]any) { c.Append(row[leaf].(string)) })
			}
		case int:
			c := b.Uint(leaf)
			columns = append(columns, func(row map[string]any) { c.Append(uint64(row[leaf].(int))) })
		case float64:
			c := b.Float(leaf)
			columns = append(columns, func(row map[string]any) { c.Append(row[leaf].(float64)) })
		case bool:
			c := b.Bool(leaf)
			columns = append(columns, func(row map[string]any) { c.Append(row[leaf].(bool)) })
		}
	}
	for _, row := range rows {
		for _, add := range columns {
			add(row)
		}
	}
	t, err := b.Table()
	if err != nil {
		f.t.Fatal(err)
	}
	f.epoch++
	if err := f.store.Publish(store.Batch{Time: time.Now(), Epoch: f.epoch,
		Tables: []store.Publication{{Table: t, Replace: true}}}); err != nil {
		f.t.Fatal(err)
	}
}

// pages are the pages of the navigation, and addresses without a page.
var pages = []string{"", "epochs", "alerts", "flow", "flow?key=10.0.0.7", "flow?key=nonsense",
	"queries", "plugin/univmon",
	"plugin/omnimon", "plugin/hello", "plugin/probes", "plugin/unknown", "plugin/%E0%A4%A", "nowhere", "paths",
	"paths?path=/collector", "paths?path=/nowhere", "?select=nothing"}

// Every page works, at both widths and by keys, before anything is published. Each has a title.
func TestBrowserEmptyPages(t *testing.T) {
	f := start(t, plain())
	b := open(t, f, 390, 844)
	titles := map[string]string{}
	b.page("")
	for _, width := range []int64{1280, 390} {
		b.do(chromedp.EmulateViewport(width, 844))
		for _, page := range pages {
			evaluate[any](b, fmt.Sprintf("location.hash = '#/' + %q; new Promise((done) => requestAnimationFrame(done))", page))
			b.do(chromedp.WaitVisible("h1"))
			for _, key := range []string{"/", "j", "?"} {
				b.do(chromedp.KeyEvent(key))
			}
			evaluate[any](b, "document.activeElement.blur(); document.querySelector('.scroller')?.focus()")
			b.do(chromedp.KeyEvent("j"), chromedp.KeyEvent("k"))
			if over := evaluate[float64](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
				t.Errorf("#/%s is %v pixels wider than %d", page, over, width)
			}
			titles[page] = evaluate[string](b, "document.title")
		}
	}
	seen := map[string]string{}
	for page, title := range titles {
		if other, ok := seen[title]; ok || !strings.HasSuffix(title, " – netsketch") {
			t.Errorf("#/%s has the title %q, as #/%s", page, title, other)
		}
		seen[title] = page
	}
}

// A page that is left while it draws a chart causes no exception.
func TestBrowserLeavesCharts(t *testing.T) {
	f := start(t, plain())
	f.network()
	b := open(t, f, 1280, 900)
	for range 4 {
		b.page("plugin/univmon?list=/univmon/heavy-hitters/heavy-hitter")
		b.until("document.body.innerText.includes('10\u202f000 rows')")
		evaluate[any](b, "document.querySelector('.scroller').focus()")
		b.do(chromedp.KeyEvent("j"), chromedp.WaitVisible(".uplot"))
		// The chart's size is observed in the frame in which the page is left.
		evaluate[any](b, `new Promise((done) => {
			document.querySelector('main').style.width = '600px'
			location.hash = '#/epochs'
			requestAnimationFrame(() => requestAnimationFrame(done))
		})`)
		b.do(chromedp.WaitVisible(".timeline"))
	}
}

// visible are the texts of the cells with values that a person sees in the first rows of each
// table, without scrolling it; names of rows are no values.
const visible = `[...document.querySelectorAll('.scroller')].map((s) => {
	const r = s.getBoundingClientRect()
	return [...s.querySelectorAll('.tr:not(.head) > [role=gridcell]')].filter((c) => {
		const at = c.getBoundingClientRect()
		return at.left >= r.left && at.right <= Math.min(r.right, innerWidth) && at.top < r.bottom
	}).map((c) => c.innerText).filter(Boolean)
})`

// At 390 pixels each table shows values, not only what names its rows.
func TestBrowserNarrow(t *testing.T) {
	f := start(t, plain())
	f.network()
	b := open(t, f, 390, 844)
	for _, p := range []struct{ hash, ready, value string }{
		{"", "Links", "60.0"},
		{"epochs", "rows", "ms"},
		{"plugin/univmon?list=/univmon/heavy-hitters/heavy-hitter", "10\u202f000 rows", "1 001"},
		{"flow?key=10.0.0.7", "/univmon/heavy-hitters/heavy-hitter", "7 001"},
		{"paths?path=/collector/epoch", "rows", "COMPLETE"},
	} {
		b.page(p.hash)
		b.until(fmt.Sprintf("document.body.innerText.includes(%q) && !!document.querySelector('.tr:not(.head)')", p.ready))
		tables := evaluate[[][]string](b, visible)
		for i, values := range tables {
			if len(values) == 0 {
				t.Errorf("#/%s: table %d shows no value", p.hash, i)
			}
		}
		if all := strings.ReplaceAll(fmt.Sprint(tables), "\u202f", " "); p.hash != "" && !strings.Contains(all, p.value) {
			t.Errorf("#/%s: no value %s in %.500s", p.hash, p.value, all)
		}
	}
}

// A search watches the flow with all keys of each list that can be watched, whosever plugin has it,
// and says what is wrong with a key.
func TestBrowserFlow(t *testing.T) {
	f := start(t, plain())
	f.network()
	f.publish("/netsketch-univmon:univmon/node-summaries/node-summary", []string{"node", "dimension"},
		map[string]any{"node": "network", "dimension": "5-tuple", "state/packets": 1},
		map[string]any{"node": "network", "dimension": "src", "state/packets": 1},
		map[string]any{"node": "network", "dimension": "dst+proto", "state/packets": 1})
	f.publish("/acme-probes:probes/sites/site", []string{"site"},
		map[string]any{"site": "north", "state/port-id": 7}, map[string]any{"site": "south]", "state/port-id": 8})
	var mu sync.Mutex
	watched := map[string]bool{}
	defer f.store.OnInterest(func(added, removed []store.Watch) {
		mu.Lock()
		defer mu.Unlock()
		for _, w := range added {
			watched[fmt.Sprint(w.List, w.Keys)] = true
		}
		for _, w := range removed {
			delete(watched, fmt.Sprint(w.List, w.Keys))
		}
	})()
	const flows, probes = "/netsketch-univmon:univmon/flows/flow", "/acme-probes:probes/probes/probe"
	watches := func(want ...string) {
		t.Helper()
		testkit.Until(t, fmt.Sprintf("%q are watched", want), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return !slices.ContainsFunc(want, func(w string) bool { return !watched[w] })
		})

	}
	b := open(t, f, 1280, 900)
	b.page("flow?key=" + url.QueryEscape("10.0.0.1, 10.0.1.2,TCP,40000,80"))
	const tuple = "10.0.0.1,10.0.1.2,tcp,40000,80"
	watches(flows+"[network 5-tuple "+tuple+"]", flows+"[leaf3 5-tuple "+tuple+"]", flows+"[spine9 5-tuple "+tuple+"]",
		probes+"[north in "+tuple+"]", probes+"[south] out "+tuple+"]")
	mu.Lock()
	if watched[flows+"[network src "+tuple+"]"] {
		t.Error("a 5-tuple is watched as a source address")
	}
	mu.Unlock()
	// The plugin of the fixture refuses all rows, and says why.
	b.until("document.body.innerText.includes('refuses')")
	b.page("flow?key=10.0.0.7")
	watches(flows+"[network src 10.0.0.7]", probes+"[north in 10.0.0.7]")
	b.until("document.body.innerText.includes('11 of') || document.body.innerText.includes('1 row')")
	for key, want := range map[string]string{
		"10.0.0.300":                   "“10.0.0.300“ is neither an IP address",
		"10.0.0.1,10.0.1.2,tpc,1,2":    "“tpc“ is neither a protocol",
		"10.0.0.1,10.0.1.2,tcp,1":      "univmon counts by 5-tuple, dst+proto, src",
		"10.0.0.1,10.0.1.2,tcp,1,2,3,": "",
	} {
		b.page("flow?key=" + url.QueryEscape(key))
		want = strings.ReplaceAll(want, "“", `"`)
		if want == "" {
			want = "This is no flow"
		}
		b.until(fmt.Sprintf("document.body.innerText.includes(%q)", want))
	}
}

// topology publishes links between ports of switches as the collector does: with the result of
// its comparison with LLDP, and with the speed in bits per second unless it is 0. Each leaf has a
// host. The interface of port leaf1/3 is Ethernet3.
func (f *fixture) topology(status string, speed uint64, links ...[2]string) {
	f.t.Helper()
	nodes := table.NewBuilder("/netsketch-topology:topology/nodes/node")
	names, kinds, targets := nodes.TextKey("name"), nodes.Text("state/type"), nodes.Text("state/target")
	ends := table.NewBuilder("/netsketch-collector:collector/links/link")
	port, peer, compared := ends.TextKey("port"), ends.Text("state/peer-configured"), ends.Text("state/status")
	list := table.NewBuilder("/netsketch-topology:topology/links/link")
	link, speeds := list.TextKey("name"), list.Uint("state/speed")
	var columns [2]func(end string)
	for i, at := range []string{"state/source/", "state/destination/"} {
		node, number, name := list.Text(at+"node"), list.Uint(at+"port-number"), list.Text(at+"interface")
		columns[i] = func(end string) {
			of, text, _ := strings.Cut(end, "/")
			n, err := strconv.ParseUint(text, 10, 32)
			node.Append(of)
			number.AppendIf(n, err == nil)
			if err != nil {
				name.AppendSome("")
				return
			}
			name.Append("Ethernet" + text)
		}
	}
	add := func(ends [2]string) {
		for range 2 {
			link.Append(ends[0] + "~" + ends[1])
			speeds.AppendIf(speed, speed > 0)
			columns[0](ends[0])
			columns[1](ends[1])
			ends[0], ends[1] = ends[1], ends[0]
		}
	}
	seen := map[string]bool{}
	for _, l := range links {
		add(l)
		for i, end := range l {
			port.Append(end)
			peer.Append(l[1-i])
			compared.Append(status)
			name, _, _ := strings.Cut(end, "/")
			if seen[name] {
				continue
			}
			seen[name] = true
			names.Append(name)
			kinds.Append("SWITCH")
			targets.Append(name)
			if strings.HasPrefix(name, "leaf") {
				names.Append("host-of-" + name)
				kinds.Append("HOST")
				targets.AppendSome("")
				add([2]string{"host-of-" + name, name + "/99"})
			}
		}
	}
	batch := store.Batch{Time: time.Now()}
	for _, b := range []*table.Builder{nodes, ends, list} {
		t, err := b.Table()
		if err != nil {
			f.t.Fatal(err)
		}
		batch.Tables = append(batch.Tables, store.Publication{Table: t, Replace: true})
	}
	if err := f.store.Publish(batch); err != nil {
		f.t.Fatal(err)
	}
}

// links publishes two links of the configuration, and counters of a port.
func (f *fixture) links(octets int, speed uint64) {
	f.t.Helper()
	f.publish("/netsketch-collector:collector/devices/device", []string{"node"},
		map[string]any{"node": "leaf1", "state/connection": "READY"},
		map[string]any{"node": "leaf2", "state/connection": "READY"},
		map[string]any{"node": "spine1", "state/connection": "READY"})
	f.counters(octets, speed)
}

// counters publishes the links with their speed, and what a port of leaf1 has sent.
func (f *fixture) counters(octets int, speed uint64) {
	f.t.Helper()
	f.topology("CONFIGURED", speed, [2]string{"leaf1/1", "spine1/1"}, [2]string{"leaf2/1", "spine1/2"})
	b := table.NewBuilder("/openconfig-interfaces:interfaces/interface")
	b.TextKey("name").Append("Ethernet1")
	b.Uint("state/counters/in-octets").Append(uint64(octets))
	b.Uint("state/counters/out-octets").Append(uint64(octets))
	b.Uint("state/counters/out-discards").Append(0)
	t, err := b.Table()
	if err != nil {
		f.t.Fatal(err)
	}
	f.epoch++
	if err := f.store.Publish(store.Batch{Target: "leaf1", Time: f.time(), Epoch: f.epoch,
		Tables: []store.Publication{{Table: t, Replace: true}}}); err != nil {
		f.t.Fatal(err)
	}
}

// time moves by a second with each epoch.
func (f *fixture) time() time.Time { return time.Unix(1_795_750_000+int64(f.epoch), 0) }

// edges are the links of the map, as cytoscape has them.
const edges = `(document.querySelector('.graph')._cyreg?.cy.edges()
  .filter((e) => !/host/.test(e.id())).map((e) => e.data('color') + ' ' + e.hasClass('lossy')) ?? [])`

// Links of the configuration are on the map, with their source. Their color is the share of the
// port's speed, or without one a load on an absolute scale; a link can be selected on the map and
// in the table. A switch has its traffic over time.
func TestBrowserLinks(t *testing.T) {
	f := start(t, plain())
	f.links(0, 0)
	b := open(t, f, 1280, 900)
	b.page("")
	b.until("document.body.innerText.includes('3 switches, 2 hosts, 4 links') && " +
		"document.body.innerText.includes('4 links from configuration')")
	b.until("document.body.innerText.includes('with the next sample')")
	f.counters(90_875, 0) // 727 kbit/s, the largest load of the network
	b.until("document.body.innerText.includes('727 kbit/s')")
	b.until(edges + ".length === 2")
	b.until("!!" + edges + "[0]?.startsWith('hsl(207') && " + edges + "[1] === '#8a8f98 false'")
	if legend := evaluate[string](b, "document.querySelector('.legend').innerText"); !strings.Contains(legend,
		"where the speed is unknown") ||
		strings.Contains(legend, "of the link's speed") {
		t.Errorf("the legend is %q", legend)
	}
	f.counters(181_750, 1e9)
	b.until("document.body.innerText.includes('0.07 %')")
	b.until("!!" + edges + "[0]?.startsWith('hsl(120,')")
	f.counters(181_750+118_750_000, 1e9) // 95 %
	b.until("document.body.innerText.includes('95 %')")
	b.until("!!" + edges + "[0]?.startsWith('hsl(6,')")
	evaluate[any](b, "document.querySelector('.graph')._cyreg.cy.edges().filter((e) => !/host/.test(e.id()))[0].emit('tap'); null")
	b.until("document.querySelector('[aria-label=\"Selected link\"]')?.innerText" +
		".includes('leaf1/1 (Ethernet1) → spine1/1 (Ethernet1)') ?? false")
	b.do(chromedp.WaitVisible(".uplot"))
	evaluate[any](b, "[...document.querySelectorAll('.scroller')].at(-1).focus()")
	b.do(chromedp.KeyEvent("j"))
	b.until("location.hash.includes('select=') && !!document.querySelector('[aria-label=\"Selected link\"]')")
	b.page("?select=leaf1")
	b.until("document.querySelector('[aria-label=\"Selected switch\"]')?.innerText.includes('READY') ?? false")
	// A rate needs two samples after the page has subscribed, which nothing on it tells.
	octets := 400_000_000
	b.after(func() { octets += 1_000_000; f.counters(octets, 1e9) },
		"[...document.querySelectorAll('.chart')].some((c) => c.innerText.includes('traffic sent by all ports'))")
	if text := evaluate[string](b, "document.querySelector('.chart').innerText"); strings.Contains(text, "device-id") {
		t.Errorf("the first chart of a switch is %q", text)
	}
}

// TestBrowserExampleConfiguration: the links of configs/netsketch.yaml are on the map, though no
// switch is there to report any, with the numbers of their ports; hosts are below their switches.
func TestBrowserExampleConfiguration(t *testing.T) {
	cfg, err := config.Load("../../configs/netsketch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Plugins.Instances, cfg.Outputs = nil, nil
	c, err := collector.New(cfg, collector.Dependencies{Programs: func(name string) (*p4rt.Program, error) {
		p, err := compiled.Load(name)
		if err != nil {
			return nil, err
		}
		return &p4rt.Program{Name: p.Name, DeviceConfig: p.JSON, P4Info: p.P4Info}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := open(t, serve(t, plain(), c.Schema(), c.Store()), 1280, 900)
	b.page("")
	b.until("document.body.innerText.includes('3 switches, 2 hosts, 4 links')")
	b.until("document.body.innerText.includes('4 links from configuration')")
	table := "(document.querySelector('[aria-label=Links]')?.innerText ?? '')"
	for _, end := range []string{"leaf1/1", "spine1/1", "leaf2/1", "spine1/2", "leaf1/2", "leaf2/2", "h1", "h2"} {
		b.until(fmt.Sprintf("%s.includes(%q)", table, end))
	}
	const drawn = `(document.querySelector('.graph')._cyreg?.cy.edges().map((e) => e.id()).sort().join() ?? '')`
	b.until(drawn + " === 'h1 – leaf1/2,h2 – leaf2/2,leaf1/1 – spine1/1,leaf2/1 – spine1/2'")
	const rows = `(document.querySelector('.graph')._cyreg.cy.nodes().map((n) => n.id() + ' ' + n.position('y')).join())`
	heights := map[string]float64{}
	for text := range strings.SplitSeq(evaluate[string](b, rows), ",") {
		var name string
		var y float64
		if _, err := fmt.Sscan(text, &name, &y); err != nil {
			t.Fatal(text, err)
		}
		heights[name] = y
	}
	if !(heights["spine1"] < heights["leaf1"] && heights["leaf1"] == heights["leaf2"] &&
		heights["leaf1"] < heights["h1"] && heights["h1"] == heights["h2"]) {
		t.Errorf("the nodes are at the heights %v", heights)
	}
}

// TestBrowserConfiguration: a selected switch shows what the collector configures there over gNMI,
// and a configuration that differs is an alert.
func TestBrowserConfiguration(t *testing.T) {
	f := start(t, plain())
	f.publish("/netsketch-collector:collector/devices/device", []string{"node"},
		map[string]any{"node": "leaf1", "state/connection": "READY", "configuration/state/status": "DIFFERS"},
		map[string]any{"node": "leaf2", "state/connection": "READY", "configuration/state/status": "IN_EFFECT"})
	f.publish("/netsketch-collector:collector/devices/device/configuration/leaves/leaf", []string{"node", "path"},
		map[string]any{"node": "leaf1", "path": "/interfaces/interface[name=Ethernet1]/config/id", "state/desired": "1",
			"state/actual": "7", "state/status": "DRIFTED"},
		map[string]any{"node": "leaf2", "path": "/interfaces/interface[name=Ethernet9]/config/id", "state/desired": "9",
			"state/actual": "9", "state/status": "IN_EFFECT"})
	b := open(t, f, 1280, 900)
	b.page("?select=leaf1")
	details := "(document.querySelector('[aria-label=\"Selected switch\"]')?.innerText ?? '')"
	b.until(details + ".includes('DIFFERS') && " + details + ".includes('DRIFTED') && " +
		details + ".includes('Ethernet1') && !" + details + ".includes('Ethernet9')")
	b.page("alerts")
	b.until("document.body.innerText.includes('configuration of switch leaf1')")
}

// A loss is on the map if it is certain: at least one packet, and settled.
func TestBrowserLosses(t *testing.T) {
	f := start(t, plain())
	f.links(0, 0)
	loss := func(low, high int, provisional bool) {
		t.Helper()
		f.publish("/netsketch-omnimon:omnimon/links/link", []string{"link"}, map[string]any{"link": "leaf1/1~spine1/1",
			"state/from": "leaf1", "state/to": "spine1", "state/bytes": 1000, "state/packets": 10,
			"state/lost-packets-low": low, "state/lost-packets-high": high,
			"state/quality": map[bool]string{true: "ESTIMATE", false: "BOUNDED"}[provisional]})
	}
	b := open(t, f, 1280, 900)
	b.page("")
	lossy := func(want bool, shown string) {
		t.Helper()
		b.until(fmt.Sprintf("document.querySelector('[aria-label=Links]')?.innerText.includes(%q) ?? false", shown))
		b.until(fmt.Sprintf("%s[0]?.endsWith('true') === %t", edges, want))
	}
	loss(0, 41, false) // late packets: nothing is certain
	lossy(false, "0")
	loss(12, 12, true)
	lossy(false, "12 provisional")
	loss(13, 41, false)
	lossy(true, "13")
	// Settled losses of an earlier epoch are an alert.
	loss(0, 0, false)
	f.publish("/netsketch-omnimon:omnimon/alerts/alert", []string{"subject", "kind"}, map[string]any{
		"subject": "spine1/1~leaf1/1", "kind": "PACKETS_LOST", "state/active": true, "state/text": "it lost 3 packets"})
	b.until("!!" + edges + "[0]?.endsWith('true')")
}

// Epochs are times, with their numbers at hand; shares are percentages; a list that has a part of
// its entries says so.
func TestBrowserValues(t *testing.T) {
	f := start(t, plain())
	f.publish("/netsketch-collector:collector", nil, map[string]any{"state/epoch-length": 500_000_000})
	f.publish("/netsketch-collector:collector/epoch", nil, map[string]any{"state/number": 1_795_750_584,
		"state/status": "COMPLETE",
		"state/end":    1_795_750_584_000_000_000})
	f.publish("/netsketch-omnimon:omnimon/summary", nil,
		map[string]any{"state/flows": 15_608, "state/determined-share": 0.262295})
	f.publish("/netsketch-omnimon:omnimon/flows/flow", []string{"flow"},
		map[string]any{"flow": "10.0.0.1,10.0.0.2,tcp,1,2", "state/packets": 7},
		map[string]any{"flow": "10.0.0.1,10.0.0.2,tcp,1,3", "state/packets": 8})
	f.publish("/netsketch-omnimon:omnimon/alerts/alert", []string{"subject", "kind"}, map[string]any{
		"subject": "spine1", "kind": "PACKETS_LOST", "state/active": true, "state/since-epoch": 1_795_750_580})
	b := open(t, f, 1280, 900)
	b.page("plugin/omnimon?list=/omnimon/flows/flow")
	b.until("document.body.innerText.includes('2 of 15\u202f608 flows')")
	at := evaluate[string](b, "new Date(1795750582000).toLocaleTimeString(undefined, { hour12: false })")
	b.until("document.body.innerText.includes('26.23 %')")
	b.page("plugin/omnimon?list=/omnimon/alerts/alert")
	b.until(fmt.Sprintf("document.body.innerText.includes(%q)", at+".000"))
	if got := evaluate[string](b, "[...document.querySelectorAll('[role=gridcell]')]"+
		".find((c) => c.title.includes('1795750580'))?.innerText ?? ''"); got != at+".000" {
		t.Errorf("the epoch is shown as %q, want %s.000", got, at)
	}
	b.page("plugin/omnimon?list=/omnimon/flows/flow")
	b.until("document.body.innerText.includes('2 of 15\u202f608 flows')") // and not the page before
	// the notice leads to the search for other flows
	b.do(chromedp.Click(".notice a"), chromedp.WaitVisible(".search"))
	b.page("epochs")
	b.until("document.querySelector('.cards')?.innerText.includes('1795750584') ?? false") // the number is at hand
	b.page("plugin/probes?list=/probes/sites/site")
	f.publish("/acme-probes:probes/sites/site", []string{"site"},
		map[string]any{"site": "north", "state/port-id": 7, "state/seen": 1_795_750_580})
	b.until("document.querySelector('.tr:not(.head)')?.innerText.includes('north') ?? false")
	b.do(chromedp.Click(".tr:not(.head)"), chromedp.WaitVisible(".details"))
	if evaluate[bool](b, "document.querySelector('.details .chart') !== null") {
		t.Error("a port's id is drawn over time")
	}
}

// A collector goes away and comes back: the page says so, and follows it again with its modules.
func TestBrowserCollectorReturns(t *testing.T) {
	f := start(t, plain())
	f.network()
	c := plain()
	c.Address = f.Address()
	b := open(t, f, 1280, 900)
	b.page("plugin/univmon?list=/univmon/heavy-hitters/heavy-hitter")
	b.until("document.body.innerText.includes('10\u202f000 rows')")
	b.mu.Lock()
	b.away = true
	b.mu.Unlock()
	f.stop()
	b.until("document.body.innerText.includes('No connection to the collector')")
	for _, page := range []string{"#/", "#/epochs", "#/flow?key=10.0.0.7", "#/plugin/univmon", "#/"} {
		evaluate[any](b, fmt.Sprintf("location.hash = %q", page))
		b.do(chromedp.WaitVisible("h1"))
	}
	again := start(t, c)
	again.network()
	b.until(fmt.Sprintf("document.body.innerText.includes('%d switches') && "+
		"(document.querySelector('.pill')?.innerText.includes('COMPLETE') ?? false)",
		spines+leaves))
	b.until("!document.body.innerText.includes('No connection')")
	evaluate[any](b, "location.hash = '#/plugin/univmon?list=/univmon/heavy-hitters/heavy-hitter'")
	b.until("document.body.innerText.includes('10\u202f000 rows')")
}

// A collector that sends nothing for 40 s, not even a sign of life, is reported as lost, and the
// page subscribes again. The page's timers of that length are fired by the test.
func TestBrowserSilentCollector(t *testing.T) {
	f := start(t, plain())
	f.network()
	b := open(t, f, 1280, 900)
	b.page("")
	b.until("document.querySelector('.pill')?.innerText.includes('COMPLETE') ?? false")
	evaluate[any](b, `(() => {
		window.silences = new Set()
		window.seen = ''
		const { setTimeout: set, clearTimeout: clear } = window
		window.setTimeout = (f, ms, ...args) => {
			if (ms !== 40000) return set(f, ms, ...args)
			silences.add(f)
			return f
		}
		window.clearTimeout = id => silences.delete(id) || clear(id)
		new MutationObserver(() => (seen += document.body.innerText)).observe(document.body,
			{ subtree: true, childList: true, characterData: true })
	})()`)
	evaluate[any](b, "location.hash = '#/plugin/univmon?list=/univmon/heavy-hitters/heavy-hitter'")
	b.until("document.body.innerText.includes('10\u202f000 rows') && silences.size > 0")
	subscriptions := func() (n int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, r := range b.requests {
			if strings.HasSuffix(r, "/api/subscribe") {
				n++
			}
		}
		return n
	}
	before := subscriptions()
	evaluate[any](b, "[...silences].forEach(f => f())")
	b.until("seen.includes('the collector has ended the stream, or is silent')")
	b.until("document.body.innerText.includes('10\u202f000 rows')")
	testkit.Until(t, "a new subscription", func() bool { return subscriptions() > before })
}

// Also in a browser whose language has twelve hours, midnight is 00:00:00 and numbers have groups
// of digits. A load that is a tiny part of the speed is not shown as zero.
func TestBrowserTexts(t *testing.T) {
	f := start(t, plain())
	const midnight = 1_795_737_600
	f.publish("/netsketch-collector:collector", nil, map[string]any{"state/epoch-length": 1_000_000_000})
	f.publish("/netsketch-collector:collector/epoch", nil, map[string]any{"state/number": midnight,
		"state/status": "COMPLETE", "state/rows": 1_234_567, "state/end": midnight * 1_000_000_000})
	f.links(0, 400e9)
	b := open(t, f, 1280, 900)
	utc := emulation.SetTimezoneOverrideParams{TimezoneID: "UTC"}
	if _, err := chromedp.Call(b.ctx, emulation.SetTimezoneOverride, utc); err != nil {
		t.Fatal(err)
	}
	b.page("epochs")
	b.until("document.querySelector('.scroller')?.innerText.includes('1\u202f234\u202f567') ?? false")
	if text := evaluate[string](b, "document.body.innerText"); strings.Contains(text, "24:00:00") ||
		!strings.Contains(text, "epoch of 00:00:00 COMPLETE") || !strings.Contains(text, "00:00:00.000") ||
		!strings.Contains(text, "1 row") {
		t.Errorf("the page of epochs has %q", text)
	}
	b.page("")
	b.until("document.body.innerText.includes('with the next sample')")
	octets := 0
	b.after(func() { octets += 10; f.counters(octets, 400e9) }, "document.body.innerText.includes('80 bit/s')")
	b.until("document.body.innerText.includes('0.00000002 %') || document.body.innerText.includes('below 0.000001 %')")
}

// Rows of a query stay apart from those of another one, whatever their names are, and a list that a
// plugin lacks is named.
func TestBrowserNames(t *testing.T) {
	f := start(t, plain())
	const results = "/netsketch-omnimon:omnimon/queries/query/results/result"
	f.publish("/netsketch-omnimon:omnimon/queries/query", []string{"name"}, map[string]any{"name": `a]b\c`, "state/rows": 1},
		map[string]any{"name": "plain", "state/rows": 1})
	f.publish(results, []string{"query/name", "key"}, map[string]any{"query/name": `a]b\c`, "key": "first", "state/value": 1.5},
		map[string]any{"query/name": "plain", "key": "second", "state/value": 2.5})
	b := open(t, f, 1280, 900)
	b.page("queries")
	rows := func(name string) string {
		return fmt.Sprintf("(document.querySelector('[aria-label=' + JSON.stringify(%q) + ']')?.innerText ?? '')", "Results of "+name)
	}
	b.until(rows("plain") + ".includes('second')")
	b.until(rows(`a]b\c`) + ".includes('first')")
	if evaluate[bool](b, rows("plain")+".includes('first') || "+rows(`a]b\c`)+".includes('second')") {
		t.Error("a query shows rows of another one")
	}
	b.page("plugin/univmon?list=/univmon/nothing")
	b.until("document.body.innerText.includes('univmon has no list /univmon/nothing')")
}

// At 390 pixels no page becomes wider when a row or a switch is selected.
func TestBrowserNarrowDetails(t *testing.T) {
	f := start(t, plain())
	f.network()
	f.links(0, 1e9)
	f.publish("/netsketch-omnimon:omnimon/flows/flow", []string{"flow"}, map[string]any{
		"flow": "2001:db8:1111:2222:3333:4444:5555:6666,2001:db8:1111:2222:3333:4444:5555:7777,ipv6-icmp,0,0", "state/packets": 7})
	b := open(t, f, 390, 844)
	for _, p := range []struct{ hash, details string }{
		{"?select=leaf1", "[aria-label='Selected switch']"},
		{"plugin/omnimon?list=/omnimon/flows/flow", "[aria-label='Selected row']"},
		{"plugin/univmon?list=/univmon/heavy-hitters/heavy-hitter", "[aria-label='Selected row']"},
		{"flow?key=" + url.QueryEscape("2001:DB8:1111:2222:3333:4444:5555:6666 2001:db8:1111:2222:3333:4444:5555:7777 icmp6 0 0"),
			"[aria-label='Selected row']"},
		{"paths?path=/omnimon/flows", "[aria-label='Selected value']"},
	} {
		b.page(p.hash)
		b.after(func() { evaluate[any](b, "document.querySelector('.tr:not(.head)')?.click(); null") },
			fmt.Sprintf("!!document.querySelector(%q)", p.details))
		if over := evaluate[float64](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
			t.Errorf("#/%s is %v pixels wider than the page when it shows %s", p.hash, over, p.details)
		}
	}
}

// At 390 pixels the page shows what was selected, on the map and in each table, without scrolling.
func TestBrowserNarrowSelection(t *testing.T) {
	f := start(t, plain())
	f.network()
	f.links(0, 1e9)
	b := open(t, f, 390, 844)
	tap := func(element string) string {
		return "document.querySelector('.graph')._cyreg.cy." + element + ".emit('tap'); null"
	}
	click := func(table string) string {
		return fmt.Sprintf("document.querySelector('[aria-label=%q] .tr:not(.head)').click(); null", table)
	}
	for name, tc := range map[string]struct{ hash, act, details, text string }{
		"a link on the map": {"", tap("edges().filter((e) => !/host/.test(e.id()))[0]"), "Selected link",
			"leaf1/1 – spine1/1"},
		"a switch on the map":   {"", tap("$id('leaf1')"), "Selected switch", "leaf1"},
		"a link in the table":   {"", click("Links"), "Selected link", " – "},
		"a switch in the table": {"", click("Switches"), "Selected switch", ""},
		"a row of a plugin": {"plugin/univmon?list=/univmon/heavy-hitters/heavy-hitter",
			"document.querySelector('.tr:not(.head)').click(); null", "Selected row", "/univmon"},
	} {
		b.page("epochs")
		b.page(tc.hash)
		if tc.hash == "" {
			b.until(edges + ".length === 2")
		}
		b.until("!!document.querySelector('.tr:not(.head)')")
		evaluate[any](b, tc.act)
		heading := fmt.Sprintf("document.querySelector('[aria-label=%q] :is(h2, h3)')", tc.details)
		b.until("!!" + heading)
		b.until(fmt.Sprintf(`(() => {
			const h = %s.getBoundingClientRect(), below = document.querySelector('header').getBoundingClientRect().bottom
			return h.top >= below && h.bottom < innerHeight - 100
		})()`, heading))
		if text := evaluate[string](b, heading+".innerText"); !strings.Contains(text, tc.text) {
			t.Errorf("%s: %q is selected", name, text)
		}
	}
}

// Pages show odd data as it is: names with dots, flows with markup, the largest numbers, an epoch
// that was lost, one switch without links, and links of unknown or absurd speed.
func TestBrowserOddData(t *testing.T) {
	f := start(t, plain())
	const markup = "<img src=x onerror=alert(1)>&\"' ü 流 \u202e"
	name := "Core.sw-1_x"
	f.publish("/netsketch-collector:collector/devices/device", []string{"node"},
		map[string]any{"node": name, "state/connection": "BACKING_OFF", "state/last-error": strings.Repeat(markup, 30)},
		map[string]any{"node": strings.Repeat("n", 63), "state/connection": "READY", "state/last-error": ""})
	f.publish("/netsketch-collector:collector/epoch", nil, map[string]any{"state/number": 0, "state/status": "LOST",
		"state/rows": 0, "state/total-time": 0, "state/end": 0})
	f.publish("/netsketch-univmon:univmon/heavy-hitters/heavy-hitter", []string{"node", "dimension", "flow"},
		map[string]any{"node": name, "dimension": "src", "flow": markup, "state/packets": -1, "state/share": 1e-300},
		map[string]any{"node": "network", "dimension": "src", "flow": "", "state/packets": 1<<53 + 1, "state/share": 1e300},
		map[string]any{"node": "network", "dimension": "", "flow": strings.Repeat("1:", 500), "state/packets": 0,
			"state/share": -0.0})
	f.publish("/netsketch-omnimon:omnimon/queries/query", []string{"name"}, map[string]any{"name": markup, "state/rows": 0})
	f.topology("DIFFERENT", 1, [2]string{name + "/1", name + "/x"}, [2]string{"gone/0", "nobody/4294967295"})
	f.topology("CONFIGURED", 1<<63-1, [2]string{name + "/1", name + "/x"})
	b := open(t, f, 1440, 900)
	for _, page := range []string{"", "?select=" + url.QueryEscape(name), "epochs", "alerts", "queries", "plugin/univmon",
		"plugin/univmon?list=/univmon/heavy-hitters/heavy-hitter", "flow?key=" + url.QueryEscape(markup),
		"paths?path=/univmon/heavy-hitters"} {
		b.page(page)
		for _, width := range []int64{1440, 390} {
			b.do(chromedp.EmulateViewport(width, 844))
			evaluate[any](b, "document.querySelector('.tr:not(.head)')?.click(); "+
				"new Promise((done) => requestAnimationFrame(() => setTimeout(done, 200)))")
			text := evaluate[string](b, "document.body.innerText")
			for _, wrong := range []string{"NaN", "undefined", "Infinity", "[object", "null"} {
				if strings.Contains(text, wrong) {
					t.Errorf("#/%s: %q in %s", page, wrong, text)
				}
			}
			if evaluate[bool](b, "!!document.querySelector('img[src=x]')") {
				t.Errorf("#/%s: markup of a name is in the page", page)
			}
			if over := evaluate[float64](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
				t.Errorf("#/%s is %v pixels wider than %d", page, over, width)
			}
		}
	}
	b.page("plugin/univmon?list=/univmon/heavy-hitters/heavy-hitter")
	for _, value := range []string{"18\u202f446\u202f744\u202f073\u202f709\u202f551\u202f615",
		"9\u202f007\u202f199\u202f254\u202f740\u202f993"} {
		b.until(fmt.Sprintf("document.body.innerText.includes(%q)", value))
	}
}
