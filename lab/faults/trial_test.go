// SPDX-License-Identifier: Apache-2.0

// One trial: its processes, its clock in epochs, and what it lost.

package faults

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netsketch/netsketch/internal/test/influxdbtest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/evidence"
)

// interval is the epoch length of the trial that runs. Bounds are numbers of epochs. On a busy
// machine epochs are longer, so that the processes of a trial get as much done in each.
var interval time.Duration

// epochLength returns the epoch length for a load average: 1 s up to a load of 2 for each
// processor, then more in proportion, at most 3 s.
func epochLength(load float64, processors int) time.Duration {
	return time.Duration(min(max(math.Ceil(load/2/float64(processors)), 1), 3)) * time.Second
}

// patience bounds waits for which nothing is promised.
func patience() time.Duration { return 90 * interval }

// fault is one case.
type fault struct {
	name    string // component that fails
	promise string // property that must hold nevertheless
	short   bool   // also part of "go test"
	linux   bool   // needs Linux
	root    bool   // needs root
	needs   needs

	// hit are the devices that the fault affects; the others must lose nothing.
	hit []string
	// epochs bounds the epochs without results of a device that is not hit.
	epochs int
	// back bounds the epochs from the end of the fault until all devices have results of a complete
	// epoch. 0: the fault lasts until the end of the trial.
	back int
	// cut: the network loses packets, too, as a switch does not forward.
	cut bool

	inject func(*trial) // begins the fault, and ends it unless it lasts
	check  func(*trial) // nil checks losses and recovery alone
}

// needs are the processes of a trial beyond three switches, a collector and UnivMon.
type needs struct {
	faulty      string // the keys of plugin faulty; empty: it does not run
	univmon     string // further keys of plugin UnivMon
	gnmi        string // further keys of the gNMI output
	tls         string // TLS of the gNMI output; empty: plaintext
	outputs     string // further outputs
	top         string // further top-level keys
	device      string // further keys of all devices
	switchFlags []string
	collector   string                                        // program; empty: netsketch
	credentials func(*trial) credentials.TransportCredentials // credentials of the client; nil: plaintext
	before      func(*trial)                                  // runs before the processes start
}

// trial is one run of a case.
type trial struct {
	*testing.T
	fault
	bin         binaries
	dir         string
	environment []string
	gnmi        string // address of the collector's gNMI server
	client      context.Context
	conn        *grpc.ClientConn

	devices   map[string]*device
	network   *network
	collector *process
	recorder  *recorder
	published *recorder // records the rows of plugin faulty
	database  *database // the scripted database
	influxd   *influxdbtest.Server
	authority *testkit.Authority
	keys      map[string]string // keys of the configuration by name; cases may add more

	first    uint64 // epoch from which results are counted
	injected uint64 // epoch in which the fault began
	ended    uint64 // epoch in which the fault ended

	row row
}

// Errorf also puts the text into the row.
func (t *trial) Errorf(format string, args ...any) {
	t.Helper()
	t.row.broken = append(t.row.broken, fmt.Sprintf(format, args...))
	t.T.Errorf(format, args...)
}

// Fatalf also puts the text into the row.
func (t *trial) Fatalf(format string, args ...any) {
	t.Helper()
	t.row.broken = append(t.row.broken, fmt.Sprintf(format, args...))
	t.T.Fatalf(format, args...)
}

// Skipf makes the row one that was not run.
func (t *trial) Skipf(format string, args ...any) {
	t.Helper()
	t.row.notRun = fmt.Sprintf(format, args...)
	t.T.Skipf(format, args...)
}

// require fails the trial unless a promise holds.
func (t *trial) require(ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Errorf(format, args...)
	}
}

// see adds an observation to the row.
func (t *trial) see(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(t.row.seen, text) {
		t.row.seen = append(t.row.seen, text)
	}
}

// now returns the epoch of this moment: epochs are numbered since 1970.
func now() uint64 { return uint64(time.Now().UnixNano() / int64(interval)) }

// poll waits for a condition and reports whether it came true within a limit.
func poll(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// await waits for a condition without which the trial cannot go on.
func (t *trial) await(what string, ok func() bool) {
	t.Helper()
	if !poll(patience(), ok) {
		t.Fatalf("not within %v: %s", patience(), what)
	}
}

// within waits for a condition that is promised within a number of epochs.
func (t *trial) within(epochs uint64, what string, ok func() bool) {
	t.Helper()
	from := now()
	switch held := poll(time.Duration(epochs)*interval+30*time.Second, ok); {
	case !held:
		t.Errorf("not within %d epochs: %s", epochs, what)
	case now()-from > epochs:
		t.Errorf("after %d epochs, promised %d: %s", now()-from, epochs, what)
	}
}

// pass waits until epochs have ended and been delivered.
func (t *trial) pass(epochs uint64) {
	t.Helper()
	from := t.recorder.last()
	t.await(fmt.Sprintf("%d further epochs", epochs), func() bool { return t.recorder.last() >= from+epochs })
}

// elapse waits for epochs of the clock, also while the collector does not run.
func (t *trial) elapse(epochs uint64) {
	t.Helper()
	from := now()
	t.await("time passes", func() bool { return now() >= from+epochs })
}

var configuration = template.Must(template.New("").Parse(`name: netsketch
epoch: {interval: {{.interval}}, guard: 10ms, deadline: {{.deadline}}}
device-defaults:
  pipeline: univmon-300k
  forwarding: managed
  timeout: 2s
{{- if not .devicetls}}
  tls: {plaintext: true}
{{- end}}
{{.device}}
devices:
  - {name: leaf1, address: "{{.leaf1}}", device-id: 1}
  - {name: leaf2, address: "{{.leaf2}}", device-id: 2}
  - {name: spine1, address: "{{.spine1}}", device-id: 3}
links:
  - {from: leaf1/1, to: spine1/1}
  - {from: leaf2/1, to: spine1/2}
hosts:
  - {name: h1, port: leaf1/2, addresses: [10.0.1.1]}
  - {name: h2, port: leaf2/2, addresses: [10.0.2.1]}
plugins:
  directory: {{.plugins}}
  state-directory: {{.dir}}/state
  instances:
    - plugin: univmon
{{.univmon}}
{{- if .faulty}}
    - plugin: faulty
{{.faulty}}
{{- end}}
outputs:
  - type: gnmi
    address: {{.gnmi}}
{{- if .tls}}
{{.tls}}
{{- else}}
    tls: {plaintext: true}
{{- end}}
{{.gnmikeys}}
{{.outputs}}
{{.top}}
`))

// indent puts keys under a list entry.
func indent(text string, spaces int) string {
	var b strings.Builder
	for line := range strings.Lines(strings.Trim(text, "\n")) {
		b.WriteString(strings.Repeat(" ", spaces) + line)
	}
	return b.String()
}

// expand fills the values of a trial, such as {{.dir}}, into a text of the case.
func (t *trial) expand(text string) string {
	t.Helper()
	var b strings.Builder
	parsed, err := template.New("").Option("missingkey=error").Parse(text)
	if err == nil {
		err = parsed.Execute(&b, t.keys)
	}
	if err != nil {
		t.Fatalf("the case's configuration: %v", err)
	}
	return b.String()
}

// config returns the configuration of the collector.
func (t *trial) config() string {
	t.Helper()
	n := t.needs
	values := map[string]string{
		"univmon": indent(t.expand(n.univmon), 6), "faulty": indent(t.expand(n.faulty), 6),
		"tls": indent(t.expand(n.tls), 4), "gnmikeys": indent(t.expand(n.gnmi), 4),
		"outputs": indent(t.expand(n.outputs), 2), "top": t.expand(n.top), "device": indent(t.expand(n.device), 2),
		"devicetls": "", "deadline": (interval * 4 / 5).String(),
	}
	if strings.Contains(n.device, "tls:") {
		values["devicetls"] = "given"
	}
	for k, v := range t.keys {
		values[k] = v
	}
	var b strings.Builder
	if err := configuration.Execute(&b, values); err != nil {
		t.Fatalf("the configuration: %v", err)
	}
	return b.String()
}

func (t *trial) path() string { return filepath.Join(t.dir, "netsketch.yaml") }

// write replaces the configuration file, by a rename.
func (t *trial) write(text string) {
	t.Helper()
	next := t.path() + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, t.path()); err != nil {
		t.Fatal(err)
	}
}

// edit replaces a text of the configuration, which must be there.
func (t *trial) edit(old, new string) {
	t.Helper()
	b, err := os.ReadFile(t.path())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), old) {
		t.Fatalf("%q is not in the configuration", old)
	}
	t.write(strings.Replace(string(b), old, new, 1))
}

// startCollector starts the collector's process, again after it has ended.
func (t *trial) startCollector() {
	t.Helper()
	program := t.needs.collector
	if program == "" {
		program = t.bin.netsketch
	}
	t.collector = t.start("collector", program, "collector", "--config", t.path())
	t.await("the collector serves gNMI", func() bool { return listening(t.gnmi) || !t.collector.running() })
	if !t.collector.running() {
		t.Fatalf("the collector has ended: %s", t.collector.text())
	}
}

// wholeSince returns the number of epochs after one that are whole, and the last of them.
func (t *trial) wholeSince(epoch uint64) (n int, last uint64) {
	for e := epoch + 1; e <= t.recorder.last()+1; e++ {
		if t.recorder.seen(e).whole() {
			n, last = n+1, e
		}
	}
	return n, last
}

// run runs the case.
func (f fault) run(tt *testing.T, bin binaries) row {
	t := &trial{T: tt, fault: f, bin: bin, devices: map[string]*device{}, client: context.Background()}
	interval = epochLength(evidence.Load(), runtime.NumCPU())
	t.row = row{fault: f.name, promise: f.promise, interval: interval}
	begin := time.Now()
	func() {
		// The parts run in a test of their own: a fatal error of a trial ends that alone.
		tt.Run("trial", func(tt *testing.T) {
			t.T = tt
			defer t.keepLogs()
			t.setup()
			t.injected = now()
			f.inject(t)
			t.ended = now()
			if f.check != nil {
				f.check(t)
			}
			t.account()
		})
	}()
	t.T = tt
	t.row.took = time.Since(begin)
	return t.row
}

// setup starts everything and waits for results.
func (t *trial) setup() {
	t.Helper()
	dir, err := os.MkdirTemp("", "netsketch-faults-")
	if err != nil {
		t.Fatal(err)
	}
	t.dir = dir
	t.gnmi = freeAddress(t)
	t.keys = map[string]string{"dir": dir, "plugins": t.bin.plugins, "gnmi": t.gnmi, "interval": interval.String()}
	if t.needs.before != nil {
		t.needs.before(t)
	}
	creds := insecure.NewCredentials()
	if t.needs.credentials != nil {
		creds = t.needs.credentials(t)
	}
	t.conn = t.dial(creds)
	t.startNetwork()
	for name, d := range t.devices {
		t.keys[name] = d.address
	}
	t.write(t.config())
	t.startCollector()
	t.recorder = t.record("/collector/epoch/state", "/univmon/node-summaries/node-summary[dimension=src]/state",
		"/univmon/summary/state/last-epoch")
	t.await("the switches have pipelines", t.network.attached)
	t.await("an epoch with results of all devices", func() bool { n, _ := t.wholeSince(now() - 10); return n > 0 })
	_, t.first = t.wholeSince(now() - 10)
	t.network.pause(false)
	t.await("an epoch with traffic", func() bool { n, _ := t.wholeSince(t.first + 1); return n > 0 })
}

// keepLogs removes the trial's directory, or names it if the trial failed.
func (t *trial) keepLogs() {
	if !t.Failed() {
		t.Cleanup(func() { os.RemoveAll(t.dir) })
		return
	}
	t.Logf("logs and configuration: %s", t.dir)
	if t.collector != nil {
		text := t.collector.text()
		t.Logf("the end of the collector's log:\n%s", text[max(0, len(text)-4000):])
	}
}

// account waits for recovery, ends the traffic, and compares what was sent with what the results
// have.
func (t *trial) account() {
	t.Helper()
	if t.back > 0 {
		t.await("a complete epoch with results of all devices after the fault", func() bool {
			n, _ := t.wholeSince(t.ended)
			return n > 0
		})
		whole := t.ended + 1
		for !t.recorder.seen(whole).whole() {
			whole++
		}
		after := int(whole - t.ended)
		if t.row.back = fmt.Sprintf("%d epochs", after); after == 1 {
			t.row.back = "1 epoch"
		}
		t.require(after <= t.back, "results after %d epochs, promised %d", after, t.back)
	}
	t.network.pause(true)
	var c counts
	for settled := false; !settled; { // packets on their way may take long on a busy machine
		c = t.network.counts()
		open := now()
		t.pass(3)
		// Three further epochs may be older than this one, if the collector delivers late.
		t.await("the epoch of the last packet", func() bool { return t.recorder.last() > open+1 })
		settled = reflect.DeepEqual(c, t.network.counts())
	}
	last := t.recorder.last() - 1
	hit := map[string]bool{}
	for _, d := range t.hit {
		hit[d] = true
	}
	var total, missing, epochs uint64
	var parts []string
	for _, d := range devices {
		var counted, without uint64
		for e := t.first; e <= last; e++ {
			p, ok := t.recorder.seen(e).packets[d]
			counted += p
			if !ok {
				without++
			}
		}
		if hit[d] {
			parts = append(parts, fmt.Sprintf("%s: %d of %d epochs", d, without, last-t.first+1))
			bound := t.ended - t.injected + uint64(t.back) + 1
			t.require(t.back == 0 || without <= bound, "%s has no results of %d epochs, promised %d", d, without, bound)
			continue
		}
		epochs = max(epochs, without)
		total += c.injected[d]
		t.require(counted <= c.injected[d], "%s counted %d packets, and %d arrived", d, counted, c.injected[d])
		missing += c.injected[d] - min(counted, c.injected[d])
		t.require(int(without) <= t.epochs, "%s has no results of %d epochs, promised %d", d, without, t.epochs)
		t.require(without > 0 || counted == c.injected[d], "%s counted %d packets, and %d arrived", d, counted,
			c.injected[d])
		if counted != c.injected[d] {
			for e := t.first; e <= t.recorder.last(); e++ {
				r := t.recorder.seen(e)
				t.Logf("epoch %d, %s, received %s, %s: %d packets", e, r.status, r.at.Format(time.TimeOnly), d, r.packets[d])
			}
		}
	}
	if len(t.hit) < len(devices) {
		parts = append([]string{lost(epochs, last-t.first+1, "epochs"), lost(missing, total, "packet counts")}, parts...)
	}
	if !t.cut {
		parts = append(parts, lost(c.sent-c.received, c.sent, "packets forwarded"))
		t.require(c.sent == c.received, "%d packets were sent and %d arrived", c.sent, c.received)
	}
	t.row.lost = append(parts, t.row.lost...)
	t.require(t.collector.running(), "the collector has ended")
}
