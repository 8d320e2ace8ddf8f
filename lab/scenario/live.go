// SPDX-License-Identifier: Apache-2.0

// Measurement of this machine's own traffic.

package scenario

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/program"
	"github.com/netsketch/netsketch/lab/scenario/gnmiread"
	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/outputs/all"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/afport"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
)

// LiveOptions configure the measurement of an interface.
type LiveOptions struct {
	// Interface is the name of a network interface of this machine.
	Interface string
	// Epochs is the number of epochs; 0 for no end.
	Epochs int
	// PluginDir, Listen, Web, HTTP, Logger and Version have the meaning of the fields of Options.
	PluginDir, Listen, Web, HTTP, Version string
	Logger                                *slog.Logger
	// Outputs are further outputs of the collector.
	Outputs []config.Output
	// OnEpoch is called after each epoch; nil for none.
	OnEpoch func(*Live) error
}

// LiveReport is the result of a measurement. It marshals to one JSON object.
type LiveReport struct {
	OK        bool   `json:"ok"` // every epoch is complete
	Interface string `json:"interface"`
	Error     string `json:"error,omitempty"`
	GNMI      string `json:"gnmi"`              // address of the collector's gNMI server
	Console   string `json:"console,omitempty"` // URL of the console
	// Epochs are all epochs of a run with a number of epochs, and the newest one of another.
	Epochs []LiveEpoch `json:"epochs"`
}

// LiveEpoch is one epoch of an interface.
type LiveEpoch struct {
	EpochScore
	Frames  uint64       `json:"frames"`            // frames received since the epoch before, IP or not
	Lost    uint64       `json:"frames_lost"`       // frames that the kernel dropped before they were read
	Down    bool         `json:"interface_down"`    // the interface was down or gone in a part of the epoch
	Results score.Tables `json:"results,omitempty"` // UnivMon's, by list and view
}

// Live measures the traffic of an interface: a soft switch whose only port observes the interface
// runs UnivMon's program, and a collector reads it as it reads any switch. Nothing is sent by the
// interface. Play, Report and Close belong to one goroutine.
type Live struct {
	o       LiveOptions
	sw      *softswitch.Switch
	port    *afport.Port
	rpc     *grpc.Server
	p4rt    *p4rtserver.Server
	served  chan error
	col     *collector.Collector
	reports chan collector.Report
	outs    *all.Set
	outDone chan error
	stopOut context.CancelFunc
	client  *gnmiread.Client
	before  afport.Stats  // counts at the end of the previous epoch
	changed time.Duration // when the interface last went up or down before that end
	downs   int           // epochs in which the interface was down
	whole   bool          // whether all epochs so far are whole
	report  LiveReport
}

// OpenLive starts the switch and the collector. When it returns, the gNMI server answers. Close
// ends both.
func OpenLive(ctx context.Context, o LiveOptions) (l *Live, err error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	l = &Live{o: o, reports: make(chan collector.Report, 64), whole: true}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
			l = nil
		}
	}()
	l.sw = softswitch.New(softswitch.Config{Name: o.Interface, Parallel: runtime.NumCPU(), Logger: o.Logger})
	l.port, err = afport.Open(l.sw, livePort, afport.Config{Interface: o.Interface, Watch: true, Logger: o.Logger})
	if err != nil {
		l.port = nil
		if errors.Is(err, os.ErrPermission) {
			return l, fmt.Errorf("%w; run this command with sudo, or give its file the capability once: "+
				"sudo setcap cap_net_raw+ep FILE", err)
		}
		return l, err
	}
	port, err := l.sw.PortStatus(livePort)
	if err != nil {
		return l, err
	}
	l.changed = port.LastChange
	address, err := l.serve()
	if err != nil {
		return l, err
	}
	cfg, err := l.config(address)
	if err != nil {
		return l, err
	}
	if l.col, err = collector.New(cfg, collector.Dependencies{Logger: o.Logger, Version: o.Version, Programs: Programs,
		OnReport: func(rep collector.Report) { l.reports <- rep }}); err != nil {
		return l, err
	}
	if err := l.col.Start(ctx); err != nil {
		return l, err
	}
	for name, err := range l.col.FailedPlugins() {
		return l, fmt.Errorf("plugin %s does not run: %w", name, err)
	}
	if l.outs, err = all.Open(cfg.Outputs, l.col, o.Logger); err != nil {
		return l, err
	}
	if err := l.outs.Start(); err != nil {
		return l, err
	}
	l.col.Health().Outputs.Store(true)
	var outCtx context.Context
	outCtx, l.stopOut = context.WithCancel(context.WithoutCancel(ctx))
	l.outDone = make(chan error, 1)
	go func() { l.outDone <- l.outs.Run(outCtx) }()
	l.report = LiveReport{Interface: o.Interface, GNMI: l.outs.Address("gnmi"), Console: l.outs.ConsoleURL(),
		Epochs: []LiveEpoch{}}
	l.client, err = gnmiread.Dial(l.report.GNMI)
	return l, err
}

// serve serves the switch's P4Runtime to the collector and returns the address.
func (l *Live) serve() (string, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	l.rpc = grpc.NewServer(p4rtserver.ServerOptions()...)
	l.p4rt = p4rtserver.New(l.sw, p4rtserver.Options{DeviceID: 1, Logger: l.o.Logger})
	l.p4rt.Register(l.rpc)
	l.served = make(chan error, 1)
	go func() { l.served <- l.rpc.Serve(lis) }()
	return lis.Addr().String(), nil
}

// config returns the collector's configuration.
func (l *Live) config(address string) (*config.Config, error) {
	type object = map[string]any
	plaintext := object{"plaintext": true}
	outputs := []any{object{"type": "gnmi", "address": l.o.Listen, "tls": plaintext}}
	if l.o.Web != "" {
		outputs = append(outputs, object{"type": "web", "address": l.o.Web, "tls": plaintext})
	}
	data, err := json.Marshal(object{
		"name":  "netsketch",
		"epoch": object{"interval": liveEpoch.String(), "align": true},
		"devices": []any{object{"name": l.o.Interface, "address": address, "device-id": 1, "pipeline": "univmon",
			"forwarding": "none", "tls": plaintext}},
		"plugins": object{"directory": l.o.PluginDir, "instances": []any{object{"plugin": "univmon"}}},
		"outputs": outputs,
	})
	if err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	cfg, err := config.Parse("the demo's configuration", data) // JSON is YAML
	if err != nil {
		return nil, err
	}
	for _, o := range l.o.Outputs {
		o.Name = cmp.Or(o.Name, o.Type)
		cfg.Outputs = append(cfg.Outputs, o)
	}
	cfg.HTTP.Address = l.o.HTTP
	return cfg, nil
}

const (
	liveEpoch = time.Second // length of an epoch
	livePort  = 1           // port of the switch on the interface
)

// Address returns where the collector's gNMI server listens.
func (l *Live) Address() string { return l.report.GNMI }

// ConsoleURL returns where a browser finds the console; empty without one.
func (l *Live) ConsoleURL() string { return l.report.Console }

// Report returns the report so far.
func (l *Live) Report() *LiveReport { return &l.report }

// Play measures until the number of epochs is reached or ctx ends. The report is never nil.
func (l *Live) Play(ctx context.Context) (*LiveReport, error) {
	err := l.play(ctx)
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled) {
		err = nil // the requested end
	}
	if err == nil && l.downs > 0 {
		err = fmt.Errorf("interface %s was down, had no carrier or was gone in %d epochs, whose results are not whole",
			l.o.Interface, l.downs)
	}
	if err != nil {
		l.report.Error = err.Error()
	}
	l.report.OK = err == nil && l.whole && len(l.report.Epochs) > 0
	return &l.report, err
}

func (l *Live) play(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	failed := make(chan error, 1)
	work.Go(func() {
		if err := l.col.Run(ctx); err != nil {
			failed <- err
		}
	})
	for n := 0; l.o.Epochs == 0 || n < l.o.Epochs; n++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case rep := <-l.reports:
			if err := l.add(ctx, &rep); err != nil {
				return err
			}
		}
	}
	return nil
}

// add reads the results of an epoch over gNMI.
func (l *Live) add(ctx context.Context, rep *collector.Report) error {
	leaves, err := l.client.Leaves(ctx, "univmon")
	if err != nil {
		return err
	}
	results, err := score.Read(leaves, score.DefaultMarker, rep.Number, []string{"node", "dimension"})
	if err != nil {
		return err
	}
	now := l.port.Stats()
	e := LiveEpoch{EpochScore: epochOf(rep, l.o.Logger), Results: results,
		Frames: now.Received - l.before.Received, Lost: now.Lost + now.Truncated - l.before.Lost - l.before.Truncated}
	l.before = now
	port, err := l.sw.PortStatus(livePort)
	if err != nil {
		return err
	}
	e.Down = !port.Up || port.LastChange != l.changed
	l.changed = port.LastChange
	if e.Down {
		l.downs++
	}
	l.whole = l.whole && e.whole()
	if l.o.Epochs == 0 {
		l.report.Epochs = nil
	}
	l.report.Epochs = append(l.report.Epochs, e)
	if l.o.OnEpoch == nil {
		return nil
	}
	return l.o.OnEpoch(l)
}

// Close ends the measurement.
func (l *Live) Close() error {
	var errs []error
	if l.client != nil {
		errs = append(errs, l.client.Close())
	}
	if l.stopOut != nil {
		l.stopOut()
		errs = append(errs, <-l.outDone)
	}
	if l.col != nil {
		errs = append(errs, stopUnread(l.col, l.reports))
	}
	if l.port != nil {
		errs = append(errs, l.port.Close())
	}
	if l.rpc != nil {
		l.p4rt.Close()
		l.rpc.Stop()
		errs = append(errs, <-l.served)
	}
	if l.sw != nil {
		l.sw.Close()
	}
	return errors.Join(errs...)
}

// Live draws the newest epoch of an interface.
func (v *ViewWriter) Live(l *Live) error {
	if len(l.report.Epochs) == 0 {
		return nil
	}
	return v.show(func(c score.Canvas) string { return l.report.draw(c) }, liveRows)
}

// liveRows is the number of rows of a table of flows.
const liveRows = 10

// draw returns the screen of the newest epoch.
func (r *LiveReport) draw(c score.Canvas) string {
	e := &r.Epochs[len(r.Epochs)-1]
	c.Printf("%s  %s, live: packets are read, none is sent or changed\n", c.Bold("netsketch demo"), r.Interface)
	if r.Console != "" && c.Terminal { // without a terminal, the address is printed once
		c.Printf("console: %s\n", c.Bold(r.Console))
	}
	c.Printf("epoch %d, ended %s; %d frames\n", e.Epoch, e.End.Format("15:04:05"), e.Frames)
	if !e.whole() {
		c.WriteString(c.Red(e.Status+": "+e.reasons()) + "\n")
	}
	if e.Down {
		c.WriteString(c.Red("the interface was down, had no carrier, or was gone: packets of that time are missing") + "\n")
	}
	if e.Lost > 0 {
		c.WriteString(c.Red(fmt.Sprintf("the kernel dropped %d frames, so the counts are too low: this machine is too busy",
			e.Lost)) + "\n")
	}
	c.WriteByte('\n')
	r.summaries(&c, e.Results)
	busiest := score.View{Device: r.Interface, Dimension: "5-tuple"}
	r.flows(&c, e.Results, "heavy-hitter", busiest, "top flows", "packets", "share")
	r.flows(&c, e.Results, "heavy-change", busiest, "largest changes since the epoch before", "delta", "")
	r.flows(&c, e.Results, "ddos-victim", score.View{Device: r.Interface}, "destinations of unusually many sources",
		"distinct-sources", "")
	c.Commands([]string{
		program.Name() + " query /univmon/heavy-hitters --address " + r.GNMI,
		"gnmic -a " + r.GNMI + " --insecure -e proto --format flat subscribe --path /univmon/node-summaries",
	})
	return c.String() + "\n"
}

// summaries draws a row for each dimension. A value that is missing is "-".
func (r *LiveReport) summaries(c *score.Canvas, t score.Tables) {
	c.WriteString(c.Dim(fmt.Sprintf("%-8s %12s %10s %9s", "by", "packets", "flows", "entropy")) + "\n")
	none := true
	for _, view := range t.Views("node-summary") {
		if view.Device != r.Interface {
			continue
		}
		none = false
		row := t.Row("node-summary", view, "")
		cell := func(leaf string, digits int) string {
			x, ok := row.Number(leaf)
			if !ok {
				return "-"
			}
			return fmt.Sprintf("%.*f", digits, x)
		}
		c.Printf("%-8s %12s %10s %9s\n", view.Dimension, cell("packets", 0), cell("distinct-flows", 0), cell("entropy", 3))
	}
	if none {
		c.WriteString(c.Red("no results for this epoch") + "\n")
	}
	c.WriteByte('\n')
}

// flows draws the largest rows of a list by the amount of a leaf, with a share if share names its
// leaf; nothing if the list is empty.
func (r *LiveReport) flows(c *score.Canvas, t score.Tables, list string, view score.View, title, leaf, share string) {
	rows := t[list][view]
	if len(rows) == 0 {
		return
	}
	width := 60
	if c.Columns > 0 {
		width = min(width, max(20, c.Columns-22))
	}
	c.WriteString(c.Dim(fmt.Sprintf("%-*s %12s %8s", width, score.Shorten(title, width), leaf, share)) + "\n")
	keys := slices.SortedFunc(maps.Keys(rows), func(a, b string) int {
		return cmp.Or(cmp.Compare(math.Abs(rows[b].Value(leaf)), math.Abs(rows[a].Value(leaf))), cmp.Compare(a, b))
	})
	for _, key := range keys[:min(len(keys), cmp.Or(c.Rows, liveRows))] {
		part := ""
		if x, ok := rows[key].Number(share); ok {
			part = score.Percent(x)
		}
		c.Printf("%-*s %12.0f %8s\n", width, score.Shorten(key, width), rows[key].Value(leaf), part)
	}
	c.WriteByte('\n')
}
