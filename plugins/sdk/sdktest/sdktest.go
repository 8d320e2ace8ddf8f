// SPDX-License-Identifier: Apache-2.0

// Package sdktest tests plugins without a process and without a collector.
//
//	func TestHello(t *testing.T) {
//		h := sdktest.Start(t, &hello{}, sdktest.Options{Network: network})
//		results := h.Analyze(epoch)
//		sdktest.Golden(t, "testdata/hello.golden", *update, results)
//	}
//
// A Harness serves the plugin in the test's own process, over the same gRPC messages that a
// collector sends, and checks each result as a collector does: its list must be declared, and the
// result must be valid against the plugin's and netsketch's YANG modules. Replay feeds it a
// recording.
package sdktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
	"github.com/netsketch/netsketch/plugins/sdk/record"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// Options are the environment of the plugin under test.
type Options struct {
	// Config is the plugin's configuration, a JSON object; empty means no configuration.
	Config string
	// Network is the network model.
	Network sdk.Network
	// EpochLength defaults to 1 s.
	EpochLength time.Duration
	// Modules are YANG modules in addition to the plugin's and netsketch's own.
	Modules []yang.Module
	// State is passed to RestoreState of an sdk.Stateful plugin, as after a restart. It is
	// Results.State of an earlier harness; nil passes no state.
	State *sdk.State
	// Timeout bounds each call; default 30 s.
	Timeout time.Duration
}

// Harness is a plugin under test. Only the test's goroutine may use it.
type Harness struct {
	tb          testing.TB
	timeout     time.Duration
	description sdk.Description
	settings    sdk.Settings
	network     sdk.Network
	schema      *yang.Schema
	api         pluginv1.PluginClient
	stream      grpc.BidiStreamingClient[pluginv1.RunRequest, pluginv1.RunResponse]
	watched     []sdk.RowKey
	state       *pluginv1.PluginState // state that the next Configure passes
}

// Start serves and configures the plugin. It fails the test if the plugin's description or modules
// are unusable, or if the plugin refuses its configuration. The harness ends with the test.
func Start(tb testing.TB, p sdk.Plugin, opts Options) *Harness {
	tb.Helper()
	h, err := start(tb, p, opts)
	if err != nil {
		tb.Fatal(err)
	}
	h.settings, err = h.Configure(opts.Config, opts.Network, opts.EpochLength)
	if err != nil {
		tb.Fatalf("plugin %s: configuration refused: %v", h.description.Name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(cancel)
	if h.stream, err = h.api.Run(ctx); err != nil {
		tb.Fatal(err)
	}
	return h
}

// start serves the plugin and requests its description.
func start(tb testing.TB, p sdk.Plugin, opts Options) (*Harness, error) {
	h := &Harness{tb: tb, timeout: opts.Timeout}
	if opts.State != nil {
		h.state = opts.State.Proto()
	}
	if h.timeout == 0 {
		h.timeout = 30 * time.Second
	}
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(sdk.GRPCServerOptions()...)
	sdk.NewServer(p).Register(server)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	tb.Cleanup(func() { server.Stop(); <-served })
	conn, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn,
			error) {
			return listener.DialContext(ctx)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(sdk.MaxMessage)))
	if err != nil {
		return nil, err
	}
	tb.Cleanup(func() { conn.Close() })
	h.api = pluginv1.NewPluginClient(conn)
	ctx, cancel := h.context()
	defer cancel()
	m, err := h.api.Describe(ctx, &pluginv1.DescribeRequest{})
	if err != nil {
		return nil, err
	}
	h.description = sdk.DescriptionFrom(m)
	if err := h.description.Check(); err != nil {
		return nil, fmt.Errorf("the description: %w", err)
	}
	h.schema, err = schemaOf(tb, h.description, opts.Modules)
	return h, err
}

// schemaOf compiles the modules that define the plugin's lists.
func schemaOf(tb testing.TB, d sdk.Description, more []yang.Module) (*yang.Schema, error) {
	modules := slices.Clone(more)
	own := make(map[string]bool)
	for _, m := range d.Modules {
		modules = append(modules, yang.Module{Name: m.Name, Text: m.Text, Source: "plugin " + d.Name})
		own[m.Name] = true
	}
	for _, l := range d.Lists {
		name, _, _ := strings.Cut(strings.TrimPrefix(l.Path, "/"), ":")
		if bundled, err := yang.Bundled(name); err == nil && !own[name] {
			modules = append(modules, bundled...)
			own[name] = true
		}
	}
	schema, err := yang.Load(modules...)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", d.Name, err)
	}
	for _, l := range d.Lists {
		if err := schema.CheckResults(l.Path); err != nil {
			return nil, fmt.Errorf("plugin %s declares the list %s: %w", d.Name, l.Path, err)
		}
	}
	for _, m := range d.Modules {
		for _, w := range schema.Warnings(m.Name) {
			tb.Logf("warning: %s", w)
		}
	}
	return schema, nil
}

func (h *Harness) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), h.timeout)
}

// Description returns the description of the plugin.
func (h *Harness) Description() sdk.Description { return h.description }

// Settings returns the latest settings of the plugin.
func (h *Harness) Settings() sdk.Settings { return h.settings }

// Configure configures the plugin again. The error is an settings.KeyErrors if the plugin refuses
// the configuration.
func (h *Harness) Configure(config string, network sdk.Network, epoch time.Duration) (sdk.Settings, error) {
	if epoch == 0 {
		epoch = time.Second
	}
	h.network = network
	ctx, cancel := h.context()
	defer cancel()
	m, err := h.api.Configure(ctx, &pluginv1.ConfigureRequest{
		ConfigJson: []byte(config), Network: network.Proto(), EpochLengthNs: int64(epoch), State: h.state,
	})
	h.state = nil
	if err != nil {
		return sdk.Settings{}, err
	}
	s, err := sdk.SettingsFrom(m)
	if err == nil && s.Plan != nil {
		err = s.Plan.Check(&h.network)
	}
	return s, err
}

// Analyze sends the plugin an epoch and returns its results. Any error, and any
// result that a collector would refuse, fails the test.
func (h *Harness) Analyze(epoch *sdk.Epoch) *sdk.Results {
	h.tb.Helper()
	results, err := h.TryAnalyze(epoch)
	if err != nil {
		h.tb.Fatalf("plugin %s: epoch %d: %v", h.description.Name, epoch.Number, err)
	}
	return results
}

// TryAnalyze works as Analyze, but returns errors, for epochs that a plugin cannot analyze.
func (h *Harness) TryAnalyze(epoch *sdk.Epoch) (*sdk.Results, error) {
	if !epoch.End.After(epoch.Start) || epoch.Start.Year() < 1970 {
		return nil, fmt.Errorf("the epoch is from %v to %v: set Start and End", epoch.Start, epoch.End)
	}
	if err := h.watch(epoch.Watched); err != nil {
		return nil, err
	}
	send := func(part *pluginv1.EpochPart) error { return h.stream.Send(sdk.RunRequestOf(part)) }
	if err := h.asReceived(epoch).Send(send, h.timeout); err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	results, err := h.receive(epoch.Number)
	if err != nil {
		return nil, err
	}
	for _, r := range results.Tables {
		if err := h.Check(r.Table); err != nil {
			return nil, err
		}
	}
	for i := range results.Plans {
		if err := results.Plans[i].Check(&h.network); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// asReceived returns the epoch with the narrower cells of registers extended to 32 bits, as a
// collector passes them. Cells that are not a whole register, such as merged ones, stay unchanged.
func (h *Harness) asReceived(epoch *sdk.Epoch) *sdk.Epoch {
	out := *epoch
	out.Devices = slices.Clone(epoch.Devices)
	for i := range out.Devices {
		d := &out.Devices[i]
		d.Objects = slices.Clone(d.Objects)
		device := h.network.Device(d.Name)
		for j, c := range d.Objects {
			if device == nil || c.Width >= 32 {
				continue
			}
			if o := device.Object(c.Object); o != nil && c.Len() == o.Cells {
				d.Objects[j] = sdk.CellsOf(c.Object, c.Uint32s())
			}
		}
	}
	return &out
}

// watch makes rows the set of watched rows.
func (h *Harness) watch(rows []sdk.RowKey) error {
	var update pluginv1.WatchUpdate
	for _, w := range h.watched {
		update.Remove = append(update.Remove, w.Proto())
	}
	for _, w := range rows {
		update.Add = append(update.Add, w.Proto())
	}
	if len(update.Add)+len(update.Remove) == 0 {
		return nil
	}
	h.watched = slices.Clone(rows)
	return h.stream.Send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Watch{Watch: &update}})
}

// receive collects the results of the epoch.
func (h *Harness) receive(number uint64) (*sdk.Results, error) {
	results := &sdk.Results{}
	decoder := sdk.NewTableDecoder(1 << 30)
	for {
		m, err := h.stream.Recv()
		if err != nil {
			return nil, err
		}
		switch m := m.GetMessage().(type) {
		case *pluginv1.RunResponse_Table:
			result, err := decoder.Add(m.Table)
			if err != nil {
				return nil, err
			}
			if result != nil {
				results.Tables = append(results.Tables, *result)
			}
		case *pluginv1.RunResponse_Plan:
			plan, err := sdk.PlanFrom(m.Plan)
			if err != nil {
				return nil, err
			}
			results.Plans = append(results.Plans, plan)
		case *pluginv1.RunResponse_Event:
			results.Events = append(results.Events, sdk.EventFrom(m.Event))
		case *pluginv1.RunResponse_State:
			state := sdk.StateFrom(m.State)
			results.State = &state
		case *pluginv1.RunResponse_Done:
			if m.Done.GetEpoch() != number {
				return nil, fmt.Errorf("received the end of epoch %d, expected %d", m.Done.GetEpoch(), number)
			}
			results.Stats = sdk.StatsFrom(m.Done.GetStats())
			if m.Done.GetError() != "" {
				return nil, errors.New(m.Done.GetError())
			}
			return results, nil
		}
	}
}

// Check returns an error if a collector would refuse the table.
func (h *Harness) Check(t *table.Table) error {
	if !slices.ContainsFunc(h.description.Lists, func(l sdk.List) bool { return l.Path == t.List }) {
		return fmt.Errorf("a table of %s, a list that the description does not declare", t.List)
	}
	return h.schema.Validate(t)
}

// Query queries the plugin for a row. It fails if the plugin replies with rows of other keys only.
func (h *Harness) Query(row sdk.RowKey) ([]*table.Table, error) {
	ctx, cancel := h.context()
	defer cancel()
	m, err := h.api.Query(ctx, &pluginv1.QueryRequest{Row: row.Proto()})
	if err != nil {
		return nil, err
	}
	var tables []*table.Table
	found, rows := false, 0
	decoder := sdk.NewTableDecoder(1 << 30)
	for _, part := range m.GetTables() {
		result, err := decoder.Add(part)
		if err != nil {
			return nil, err
		}
		if result == nil {
			continue
		}
		if err := h.Check(result.Table); err != nil {
			return nil, err
		}
		tables = append(tables, result.Table)
		rows += result.Table.Rows()
		found = found || result.Table.List == row.List && result.Table.Find(row.Keys) >= 0
	}
	if rows > 0 && !found {
		return nil, fmt.Errorf("the reply to a query for %s %v has %d rows, none of them with these keys", row.List,
			row.Keys, rows)
	}
	return tables, nil
}

// Merge sends the plugin a part of an epoch and returns the merged part.
func (h *Harness) Merge(part *sdk.Epoch) (*sdk.Epoch, error) {
	ctx, cancel := h.context()
	defer cancel()
	stream, err := h.api.Merge(ctx)
	if err != nil {
		return nil, err
	}
	// Send returns EOF if the stream broke; Recv then returns the cause.
	if err := part.Send(stream.Send, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	var merged *sdk.Epoch
	decoder := sdk.NewEpochDecoder(1<<30, func(e *sdk.Epoch, _ time.Duration) error {
		merged = e
		return nil
	})
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) && merged != nil {
			return merged, nil
		}
		if err != nil {
			return nil, err
		}
		if err := decoder.Take(m); err != nil {
			return nil, err
		}
	}
}

// Replay sends the plugin all epochs of a recording (package record) and returns their results. The
// recording's configuration and network replace those given to Start.
func (h *Harness) Replay(path string) []*sdk.Results {
	h.tb.Helper()
	file, err := os.Open(path)
	if err != nil {
		h.tb.Fatal(err)
	}
	defer file.Close()
	r, err := record.NewReader(file)
	if err != nil {
		h.tb.Fatalf("%s: %v", path, err)
	}
	var all []*sdk.Results
	for {
		epoch, setup, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			h.tb.Fatalf("%s: %v", path, err)
		}
		if setup != nil {
			if setup.State != nil {
				h.state = setup.State.Proto()
			}
			if h.settings, err = h.Configure(string(setup.Config), setup.Network, setup.EpochLength); err != nil {
				h.tb.Fatalf("%s: configuration refused: %v", path, err)
			}
		}
		all = append(all, h.Analyze(epoch))
	}
}

// Text returns results as text, one line per row, for logs and golden files. It omits Stats, which
// differ from run to run.
func Text(results ...*sdk.Results) string {
	var b strings.Builder
	for i, r := range results {
		fmt.Fprintf(&b, "results %d\n", i)
		for _, t := range r.Tables {
			fmt.Fprintf(&b, "table %s target=%q replace=%t rows=%d\n", t.Table.List, t.Target, t.Replace,
				t.Table.Rows())
			for row := range t.Table.Rows() {
				line := t.Table.AppendKey(nil, row)
				for c := range t.Table.Values {
					column := &t.Table.Values[c]
					if !column.Null(row) {
						line = fmt.Appendf(line, " %s=", column.Name)
						line = column.AppendText(line, row)
					}
				}
				fmt.Fprintf(&b, "  %s\n", line)
			}
		}
		for _, p := range r.Plans {
			fmt.Fprintf(&b, "plan from epoch %d: %d writes, %d host settings\n", p.FromEpoch, len(p.Writes),
				len(p.Hosts))
		}
		for _, e := range r.Events {
			fmt.Fprintf(&b, "event %v %s\n", e.Level, e.Message)
		}
	}
	return b.String()
}

// Golden compares results with the file at path, or writes the file when update is
// true.
func Golden(tb testing.TB, path string, update bool, results ...*sdk.Results) {
	tb.Helper()
	got := Text(results...)
	if update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			tb.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		tb.Fatalf("%v; run the test with -update to write it", err)
	}
	if got == string(want) {
		return
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		g, w := lineOf(gotLines, i), lineOf(wantLines, i)
		if g != w {
			tb.Fatalf("%s:%d:\n got  %s\n want %s", path, i+1, g, w)
		}
	}
}

func lineOf(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(no line)"
}
