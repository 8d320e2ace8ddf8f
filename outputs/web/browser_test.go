// SPDX-License-Identifier: Apache-2.0

//go:build console

// The console in Chromium: make console-check runs these tests.

package web

import (
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"slices"
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

	"github.com/netsketch/netsketch/collector/store"
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
func (b *browser) until(condition string) {
	b.t.Helper()
	for range 600 {
		if evaluate[bool](b, condition) {
			return
		}
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
	name, connection, readout := device.TextKey("name"), device.Text("state/connection"), device.Uint("state/readout-time")
	link := table.NewBuilder("/netsketch-collector:collector/links/link")
	port, peer, status := link.TextKey("port"), link.Text("state/peer-configured"), link.Text("state/status")
	for i := range spines + leaves {
		text := fmt.Sprintf("spine%d", i)
		if i >= spines {
			text = fmt.Sprintf("leaf%d", i-spines)
			for s := range spines {
				port.Append(fmt.Sprintf("%s/%d", text, s+1))
				peer.Append(fmt.Sprintf("spine%d/%d", s, i))
				status.Append("confirmed")
			}
		}
		name.Append(text)
		connection.Append("ready")
		readout.Append(uint64(1e6) * (f.epoch + uint64(i)))
	}
	epoch := table.NewBuilder("/netsketch-collector:collector/epoch")
	epoch.Uint("state/number").Append(f.epoch)
	epoch.Text("state/status").Append("complete")
	for _, leaf := range []string{"flip-time", "wait-time", "readout-time", "plugin-time", "publish-time", "total-time"} {
		epoch.Uint("state/" + leaf).Append(uint64(1e6) * (10 + f.epoch%5))
	}
	hitter := table.NewBuilder("/netsketch-univmon:univmon/heavy-hitters/heavy-hitter")
	on, dimension, flow := hitter.TextKey("device"), hitter.TextKey("dimension"), hitter.TextKey("flow")
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
	for _, b := range []*table.Builder{device, link, epoch, hitter} {
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
		{"", fmt.Sprintf("%d switches, %d links", spines+leaves, spines*leaves)},
		{"epochs", "1 since the console was opened"},
		{"alerts", "No alerts"},
		{"flow?key=10.0.0.7", "/univmon/heavy-hitters/heavy-hitter"},
		{"queries", "No query runs."},
		{"plugin/univmon?list=/univmon/heavy-hitters/heavy-hitter", "10000 rows"},
		{"plugin/chamelemon", "summary"},
		{"plugin/hello", "used-cells"}, // of a third party
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
	b.until("document.body.innerText.includes('10000 rows')")
	b.do(chromedp.KeyEvent("/"))
	if on := evaluate[string](b, "document.activeElement.className"); on != "filter" {
		t.Errorf("/ goes to %q, want the filter", on)
	}
	// The test's keyboard sends the character, too, although the page has taken the key.
	evaluate[any](b, "document.activeElement.select()")
	b.do(chromedp.KeyEvent("10.0.0.7"))
	b.until("document.querySelector('.count').innerText === '11 of 10000 rows'")
	evaluate[any](b, "document.querySelector('.scroller').focus()")
	b.do(chromedp.KeyEvent("j"), chromedp.WaitVisible(".details"), chromedp.WaitVisible(".uplot"))
	b.until("document.querySelector('.copy code').innerText.startsWith('gnmic -a 192.0.2.1:9339 --insecure')")

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
		path, err := yang.ParsePath("/univmon/heavy-hitters/heavy-hitter[device=leaf7][dimension=src][flow=10.0.0.7]/state/*")
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
		{"10,000 rows", "plugin/univmon?list=/univmon/heavy-hitters/heavy-hitter", "10000 rows"},
		{"10,000 rows, sorted", "plugin/univmon?list=/univmon/heavy-hitters/heavy-hitter", "10000 rows"},
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
		t.Logf("%s: first paint after %.0f ms; %d frames in 8 s, median %.1f ms, 95 %% %.1f ms, 99 %% %.1f ms, longest %.0f ms",
			p.name, paint, len(times), at(0.5), at(0.95), at(0.99), at(1))
		if len(times) < 8 {
			t.Errorf("%s: %d frames in 8 s", p.name, len(times))
		}
	}
}
