// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// pluginDir returns a directory with this test binary as a plugin for each mode.
func pluginDir(tb testing.TB, modes ...string) string {
	tb.Helper()
	dir := tb.TempDir()
	for _, mode := range modes {
		install(tb, filepath.Join(dir, testPrefix+mode))
	}
	return dir
}

// install copies this test binary to path.
func install(tb testing.TB, path string) {
	tb.Helper()
	if err := testkit.InstallSelf(path); err != nil {
		tb.Fatal(err)
	}
}

// newHost returns a host that is closed at the end of the test, and then checks that no process
// and no file of the host is left. Times that opts does not set are long enough for a busy
// machine.
func newHost(tb testing.TB, opts Options) *Host {
	tb.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	opts.StartTimeout = cmp.Or(opts.StartTimeout, 2*time.Minute)
	opts.CallTimeout = cmp.Or(opts.CallTimeout, 2*time.Minute)
	opts.HealthTimeout = cmp.Or(opts.HealthTimeout, time.Minute)
	h, err := New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			tb.Error(err)
		}
		if _, err := os.Stat(h.sockets.path); !errors.Is(err, os.ErrNotExist) {
			tb.Errorf("socket directory %s is left: %v", h.sockets.path, err)
		}
	})
	return h
}

func start(tb testing.TB, h *Host, mode string) *Instance {
	tb.Helper()
	inst, err := h.Start(tb.Context(), Spec{Path: filepath.Join(pluginDir(tb, mode), testPrefix+mode)})
	if err != nil {
		tb.Fatal(err)
	}
	return inst
}

// epoch returns an epoch whose first expected device is the command.
func epoch(number uint64, command string) *sdk.Epoch {
	e := &sdk.Epoch{Number: number, Start: time.Unix(int64(number), 0), End: time.Unix(int64(number)+1, 0),
		Status: sdk.StatusComplete, Expected: []string{command}}
	e.Put("s1", sdk.CellsOf("r", []uint32{1, 2, 3}))
	e.Put("s2", sdk.CellsOf("r", []uint32{10, 20, 30}))
	return e
}

// analyze gives the plugin an epoch, and returns the sums by device.
func analyze(tb testing.TB, inst *Instance, e *sdk.Epoch, limit time.Duration) (map[string]uint64, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	defer cancel()
	results, err := inst.Analyze(ctx, e)
	if err != nil {
		return nil, err
	}
	sums := make(map[string]uint64)
	for _, r := range results.Tables {
		for row := range r.Table.Rows() {
			sums[r.Table.Keys[0].Text(row)] = r.Table.Values[0].Uint64(row)
		}
	}
	return sums, nil
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestEpochThereAndBack(t *testing.T) {
	var logs testkit.Log
	h := newHost(t, Options{Logger: logs.Logger()})
	var settings []sdk.Settings
	inst, err := h.Start(t.Context(), Spec{
		Name: "sums", Path: filepath.Join(pluginDir(t, "good"), testPrefix+"good"), Config: []byte(`{"greet":"hello"}`),
		Network: sdk.Network{Version: 4}, EpochLength: time.Second, OnSettings: func(s sdk.Settings) {
			settings = append(settings, s)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	sums, err := analyze(t, inst, epoch(1, ""), time.Minute)
	if err != nil || sums["s1"] != 6 || sums["s2"] != 60 || len(sums) != 2 {
		t.Fatalf("sums %v, %v", sums, err)
	}
	large := epoch(2, "")
	cells := make([]uint32, 3<<20) // 12 MiB: many chunks
	for i := range cells {
		cells[i] = uint32(i)
	}
	large.Put("s3", sdk.CellsOf("r", cells))
	if sums, err = analyze(t, inst, large, time.Minute); err != nil ||
		sums["s3"] != uint64(len(cells))*uint64(len(cells)-1)/2 {
		t.Fatalf("sums %v, %v", sums, err)
	}
	if sums, err = analyze(t, inst, epoch(3, "network"), time.Minute); err != nil || sums["network"] != 4 {
		t.Fatalf("sums %v, %v", sums, err)
	}
	if sums, err = analyze(t, inst, epoch(4, "huge"), time.Minute); err != nil || len(sums) != 300_002 ||
		sums["device-0299999"] != 299_999 {
		t.Fatalf("%d sums, %v", len(sums), err)
	}
	d, status := inst.Describe(), inst.Status()
	if d.Name != "good" || !d.Capabilities.Query || !d.Capabilities.Merge || !d.Capabilities.Drain ||
		!d.Capabilities.Watch {
		t.Errorf("description %+v", d)
	}
	if status.State != StateRunning || status.Version != "1.0.0" || status.LastError != "" || !alive(status.PID) {
		t.Errorf("status %+v", status)
	}
	if len(settings) != 1 || len(settings[0].Bindings) != 1 {
		t.Errorf("settings %+v", settings)
	}
	inst.Stop(t.Context())
	if alive(status.PID) || inst.Status().State != StateStopped {
		t.Errorf("process %d after Stop: alive %v, %v", status.PID, alive(status.PID), inst.Status())
	}
	if _, err := analyze(t, inst, epoch(5, ""), time.Minute); !errors.Is(err, ErrStopped) {
		t.Errorf("Analyze after Stop: %v", err)
	}
	for _, want := range []string{"msg=configured plugin=sums greet=hello network=4", "msg=drained"} {
		if !strings.Contains(logs.String(), want) {
			t.Errorf("log lacks %q:\n%s", want, logs.String())
		}
	}
}

func TestLogFlood(t *testing.T) {
	var logs testkit.Log
	h := newHost(t, Options{Logger: logs.Logger(), LogLinesAtOnce: 50, LogLinesPerSec: 1})
	inst := start(t, h, "good")
	if sums, err := analyze(t, inst, epoch(1, "flood"), time.Minute); err != nil || sums["s1"] != 6 {
		t.Fatal(sums, err)
	}
	inst.Stop(t.Context())
	if status := inst.Status(); status.LogLinesDropped < 19_000 || status.State != StateStopped {
		t.Errorf("status %+v", status)
	}
	if lines := strings.Count(logs.String(), "\n"); lines > 200 {
		t.Errorf("%d lines of log", lines)
	}
	if !strings.Contains(logs.String(), "lines were dropped") {
		t.Errorf("the log does not report dropped lines:\n%s", logs.String())
	}
}

func TestManyEvents(t *testing.T) {
	h := newHost(t, Options{})
	inst := start(t, h, "good")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	results, err := inst.Analyze(ctx, epoch(1, "events"))
	if err != nil || len(results.Events) != 100 || inst.Status().LogLinesDropped != 4900 {
		t.Fatalf("%v, %d events, %+v", err, len(results.Events), inst.Status())
	}
	if len(results.Plans) != 1 || results.Plans[0].FromEpoch != 3 || string(results.Plans[0].Hosts[0].Data) != "x" {
		t.Errorf("plans %+v", results.Plans)
	}
}

// TestLostEpochs: each way to misbehave loses one epoch, and the next one has
// results again.
func TestLostEpochs(t *testing.T) {
	tests := []struct {
		mode, command string
		want          error
		text          string
		restarts      uint64
	}{
		{"good", "exit", ErrCrashed, "exited with status 7", 1},
		{"good", "panic", ErrCrashed, "an unexpected cell", 1},
		{"good", "hang", ErrTimeout, "", 1},
		{"good", "patient", ErrTimeout, "", 0},
		{"good", "fail", ErrFailed, "the cells make no sense", 0},
		{"rogue", "leave", ErrProtocol, "its stream ended", 1},
		{"rogue", "wrongepoch", ErrProtocol, "epoch 6", 1},
		{"rogue", "garbage", ErrInvalidResults, "column", 0},
		{"rogue", "endless", ErrInvalidResults, "did not stop sending when the epoch was canceled", 1},
		{"rogue", "obedient", ErrInvalidResults, "(4194304 bytes); configure the plugin to report fewer rows", 0},
		{"rogue", "deaf", ErrTimeout, "", 1},
		{"rogue", "tables", ErrTimeout, "", 1},
		{"rogue", "plans", ErrInvalidResults, "more than 16777216 bytes of plans and events", 0},
		{"rogue", "events", ErrInvalidResults, "more than 16777216 bytes of plans and events", 0},
		{"rogue", "state", ErrInvalidResults, "a state of 16777217 bytes; at most 16777216 are kept", 0},
	}
	for _, test := range tests {
		t.Run(test.mode+" "+test.command, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, Options{MaxResultBytes: 4 << 20})
			inst := start(t, h, test.mode)
			limit := time.Minute
			if errors.Is(test.want, ErrTimeout) {
				limit = 300 * time.Millisecond
			}
			e := epoch(1, test.command)
			if test.command == "deaf" { // more cells than the flow-control windows hold
				e.Put("s3", sdk.CellsOf("r", make([]uint32, 8<<20)))
			}
			_, err := analyze(t, inst, e, limit)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
				t.Fatalf("error %v", err)
			}
			if _, err := analyze(t, inst, epoch(2, ""), time.Minute); err != nil {
				t.Fatalf("the next epoch: %v", err)
			}
			if status := inst.Status(); status.Restarts != test.restarts ||
				(status.LastError != "") != (test.restarts > 0) {
				t.Errorf("status %+v", status)
			}
		})
	}
}

// A plugin that replies twice to an epoch breaks the contract: the host restarts it, and it works
// again.
func TestAnsweredTwice(t *testing.T) {
	down := make(chan string, 16)
	h := newHost(t, Options{OnChange: func(s Status) {
		if s.LastError != "" {
			down <- s.LastError
		}
	}})
	inst := start(t, h, "rogue")
	// the host may read both replies, or see the second one first
	_, _ = analyze(t, inst, epoch(1, "twice"), time.Minute)
	if why := <-down; !strings.Contains(why, "the end of epoch 1, which was not requested") {
		t.Error(why)
	}
	for number := uint64(2); ; number++ { // the next epoch may still go to the dying process
		if _, err := analyze(t, inst, epoch(number, ""), time.Minute); err == nil {
			break
		} else if number > 3 {
			t.Fatal(err)
		}
	}
}

func TestTooLargeResults(t *testing.T) {
	h := newHost(t, Options{MaxResultBytes: 1 << 20})
	inst := start(t, h, "good")
	if _, err := analyze(t, inst, epoch(1, "huge"), time.Minute); !errors.Is(err, sdk.ErrTableTooLarge) {
		t.Fatal(err)
	}
	if _, err := analyze(t, inst, epoch(2, ""), time.Minute); err != nil {
		t.Fatal(err)
	}
}

func TestKilledBetweenEpochs(t *testing.T) {
	h := newHost(t, Options{Backoff: Backoff{Base: time.Hour, Max: time.Hour}})
	inst := start(t, h, "good")
	inst.SetWatched([]sdk.RowKey{{List: testList, Keys: map[string]string{"node": "a"}}})
	for n := range uint64(2) { // the second start follows at once, the third after a delay
		sums, err := analyze(t, inst, epoch(2*n, "watches"), time.Minute)
		if err != nil || sums["watched"] != 1 {
			t.Fatal(sums, err)
		}
		pid := inst.Status().PID
		if err := testkit.Signal(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		testkit.Until(t, "notice", func() bool { return inst.Status().PID != pid })
	}
	if _, err := analyze(t, inst, epoch(3, ""), time.Minute); !errors.Is(err, ErrNotRunning) {
		t.Fatalf("while it waits: %v", err)
	}
	if err := inst.Configure(t.Context(), []byte(`{"greet":"again"}`), sdk.Network{Version: 1}); err != nil {
		t.Fatal(err)
	}
	if sums, err := analyze(t, inst, epoch(9, "watches"), time.Minute); err != nil || sums["watched"] != 1 {
		t.Fatal(sums, err)
	}
}

// A plugin that is killed continues from the newest state that the caller kept.
func TestStateSurvivesKill(t *testing.T) {
	h := newHost(t, Options{})
	inst := start(t, h, "good")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for n := uint64(1); n <= 4; n++ {
		results, err := inst.Analyze(ctx, epoch(n, ""))
		if err != nil {
			t.Fatal(err)
		}
		if n < 4 { // the state of epoch 4 is not kept
			inst.SetState(results.State)
		}
	}
	pid := inst.Status().PID
	if err := testkit.Signal(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "notice", func() bool { return inst.Status().PID != pid })
	sums, err := analyze(t, inst, epoch(5, "seen"), time.Minute)
	if err != nil || sums["seen"] != 3 || sums["restored"] != 3 || sums["version"] != 2 {
		t.Fatal(sums, err)
	}
	// A collector that saved a state passes it to the plugin that it starts.
	results, err := inst.Analyze(ctx, epoch(6, ""))
	if err != nil {
		t.Fatal(err)
	}
	state := results.State
	inst.Stop(context.Background())
	next, err := h.Start(context.Background(), Spec{Name: "next", Path: inst.spec.Path, State: state})
	if err != nil {
		t.Fatal(err)
	}
	if sums, err := analyze(t, next, epoch(7, "seen"), time.Minute); err != nil || sums["seen"] != 5 ||
		sums["restored"] != 6 {
		t.Fatal(sums, err)
	}
	// A plugin whose work another collector continued is restarted with that collector's state.
	next.Restart(ctx, &sdk.State{Epoch: 20, Version: 2, Data: []byte{41}})
	if sums, err := analyze(t, next, epoch(21, "seen"), time.Minute); err != nil || sums["seen"] != 41 ||
		sums["restored"] != 20 {
		t.Fatal(sums, err)
	}
}

// A plugin that is killed while it analyzes an epoch receives the epoch again, so no epoch is
// lost.
func TestKilledDuringAnEpoch(t *testing.T) {
	h := newHost(t, Options{})
	tmp := t.TempDir()
	inst, err := h.Start(t.Context(), Spec{Path: filepath.Join(pluginDir(t, "good"), testPrefix+"good"),
		Env: []string{"TMPDIR=" + tmp}})
	if err != nil {
		t.Fatal(err)
	}
	pid := inst.Status().PID
	go func() {
		for {
			if _, err := os.Stat(filepath.Join(tmp, "hangs")); err == nil {
				_ = testkit.Signal(pid, syscall.SIGKILL)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	sums, err := analyze(t, inst, epoch(1, "hang once"), time.Minute)
	if err != nil || sums["s1"] != 6 {
		t.Errorf("sums %v, %v", sums, err)
	}
	if status := inst.Status(); status.Restarts != 1 || !strings.Contains(status.LastError, "killed from outside") {
		t.Errorf("status %+v", status)
	}
}

func TestFailedState(t *testing.T) {
	states := make(chan State, 100)
	h := newHost(t, Options{
		Backoff:  Backoff{Base: time.Millisecond, Max: 2 * time.Millisecond, FailedAfter: 3},
		OnChange: func(s Status) { states <- s.State },
	})
	dir := pluginDir(t, "good")
	path := filepath.Join(dir, testPrefix+"good")
	inst, err := h.Start(t.Context(), Spec{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := testkit.Signal(inst.Status().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for s := range states {
		if s == StateFailed {
			break
		}
	}
	install(t, path) // the host keeps trying to start it
	for s := range states {
		if s == StateRunning {
			break
		}
	}
	if sums, err := analyze(t, inst, epoch(1, ""), time.Minute); err != nil || sums["s1"] != 6 {
		t.Fatal(sums, err)
	}
}

// A status snapshot never mixes two states: without a process, the state is not running.
func TestStatusIsOfOneState(t *testing.T) {
	var inst atomic.Pointer[Instance]
	looked := make(chan Status, 100)
	look := func() {
		if i := inst.Load(); i != nil {
			looked <- i.Status()
		}
	}
	h := newHost(t, Options{Logger: slog.New(lookHandler{slog.DiscardHandler, look}), OnChange: func(Status) { look() }})
	i := start(t, h, "good")
	inst.Store(i)
	pid := i.Status().PID
	if err := testkit.Signal(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for {
		s := <-looked
		if (s.State == StateRunning) != (s.PID != 0) || (s.Restarts == 0) != (s.PID == pid) ||
			(s.Restarts == 0) != (s.LastError == "") {
			t.Fatalf("status %+v", s)
		}
		if s.State == StateRunning && s.Restarts == 1 {
			break
		}
	}
}

// lookHandler calls look for each record.
type lookHandler struct {
	slog.Handler
	look func()
}

// Enabled implements slog.Handler.
func (h lookHandler) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (h lookHandler) Handle(context.Context, slog.Record) error {
	h.look()
	return nil
}

// WithAttrs implements slog.Handler.
func (h lookHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

// On a virtual clock, a busy machine does not end a plugin.
func TestIOLimit(t *testing.T) {
	o := Options{IOLimit: func(d time.Duration) time.Duration { return max(d, 3*time.Minute) }}.withDefaults()
	for _, d := range []time.Duration{o.StartTimeout, o.CallTimeout, o.HealthTimeout} {
		if d != 3*time.Minute {
			t.Errorf("a limit is %v, want that of the clock", d)
		}
	}
	if o := (Options{}).withDefaults(); o.HealthTimeout != 2*time.Second {
		t.Errorf("by default the limit of a health check is %v", o.HealthTimeout)
	}
}

func TestBackoff(t *testing.T) {
	delays := Options{}.withDefaults().Backoff.Delays()
	var got []string
	for range 10 {
		got = append(got, delays.NextBackOff().String())
	}
	if want := "1s 2s 4s 8s 16s 32s 1m4s 2m0s 2m0s 2m0s"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestStoppedProcessIsUnhealthy(t *testing.T) {
	h := newHost(t, Options{HealthInterval: 20 * time.Millisecond, HealthTimeout: 20 * time.Millisecond,
		HealthFailures: 2})
	inst := start(t, h, "good")
	testkit.Until(t, "a stopped process", func() bool { // a busy machine may report the plugin as unhealthy first
		return testkit.Signal(inst.Status().PID, syscall.SIGSTOP) == nil
	})
	testkit.Until(t, "restart", func() bool {
		return inst.Status().Restarts > 0 &&
			inst.Status().State == StateRunning
	})
	if !strings.Contains(inst.Status().LastError, ErrUnhealthy.Error()) {
		t.Error(inst.Status().LastError)
	}
}

func TestStopOfAStoppedProcess(t *testing.T) {
	h := newHost(t, Options{StopGrace: 100 * time.Millisecond})
	inst := start(t, h, "good")
	pid := inst.Status().PID
	if err := testkit.Signal(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	inst.Stop(t.Context())
	if alive(pid) {
		t.Error("still there")
	}
}

func TestNetworkAndConfiguration(t *testing.T) {
	h := newHost(t, Options{})
	inst := start(t, h, "good")
	if err := inst.SetNetwork(t.Context(), sdk.Network{Version: 9}); err != nil {
		t.Fatal(err)
	}
	if sums, err := analyze(t, inst, epoch(1, "network"), time.Minute); err != nil || sums["network"] != 9 {
		t.Fatal(sums, err)
	}
	if err := inst.Configure(t.Context(), []byte(`{"refuse":true}`), sdk.Network{Version: 10}); !errors.Is(err,
		ErrConfig) {
		t.Fatal(err)
	}
	if err := inst.Configure(t.Context(), []byte(`{"greet":"hey"}`), sdk.Network{Version: 11}); err != nil {
		t.Fatal(err)
	}
	if sums, err := analyze(t, inst, epoch(2, "network"), time.Minute); err != nil || sums["network"] != 11 {
		t.Fatal(sums, err)
	}
}

// A plugin that refuses the changed network does not go on with the earlier one. It runs again with
// the next network.
func TestRefusedNetwork(t *testing.T) {
	h := newHost(t, Options{Backoff: Backoff{Base: time.Millisecond, Max: time.Millisecond}})
	inst := start(t, h, "configured")
	if err := inst.SetNetwork(t.Context(), sdk.Network{Version: refusedNetwork}); !errors.Is(err, ErrConfig) {
		t.Fatal(err)
	}
	testkit.Until(t, "a process that did not start", func() bool { return inst.Status().Restarts > 1 })
	sums, err := analyze(t, inst, epoch(1, "network"), time.Minute)
	if s := inst.Status(); err == nil || !strings.Contains(s.LastError, "no switch is known") {
		t.Fatalf("%v, status %+v", sums, s)
	}
	if err := inst.SetNetwork(t.Context(), sdk.Network{Version: 14}); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "a process that runs", func() bool { return inst.Status().State == StateRunning })
	if sums, err := analyze(t, inst, epoch(2, "network"), time.Minute); err != nil || sums["network"] != 14 {
		t.Fatal(sums, err)
	}
}

// A plugin that crashed and waits for its next start takes a changed configuration and starts at
// once.
func TestConfigureWhileDown(t *testing.T) {
	h := newHost(t, Options{Backoff: Backoff{Base: time.Hour, Max: time.Hour}})
	inst, err := h.Start(t.Context(), Spec{Path: filepath.Join(pluginDir(t, "good"), testPrefix+"good"),
		Config: []byte(`{"greet":"fragile"}`)})
	if err != nil {
		t.Fatal(err)
	}
	for number := uint64(1); inst.Status().State != StateWaiting; number++ {
		if _, err := analyze(t, inst, epoch(number, ""), time.Minute); !errors.Is(err, ErrCrashed) &&
			!errors.Is(err, ErrNotRunning) {
			t.Fatal(err)
		}
	}
	if err := inst.SetNetwork(t.Context(), sdk.Network{Version: 3}); err != nil || inst.Status().State != StateWaiting {
		t.Fatalf("another network: %v, %v", err, inst.Status().State)
	}
	if err := inst.Configure(t.Context(), []byte(`{"greet":1}`), sdk.Network{Version: 4}); !errors.Is(err, ErrConfig) ||
		inst.Status().State != StateWaiting {
		t.Fatalf("a configuration that the schema refuses: %v, %v", err, inst.Status().State)
	}
	if err := inst.Configure(t.Context(), []byte(`{"refuse":true}`), sdk.Network{Version: 5}); !errors.Is(err,
		ErrNotRunning) || !errors.Is(err, ErrConfig) {
		t.Fatalf("a configuration that the plugin refuses: %v", err)
	}
	if err := inst.Configure(t.Context(), []byte(`{"greet":"sturdy"}`), sdk.Network{Version: 6}); err != nil {
		t.Fatal(err)
	}
	if status := inst.Status(); status.State != StateRunning {
		t.Fatalf("status %+v", status)
	}
	if sums, err := analyze(t, inst, epoch(99, "network"), time.Minute); err != nil || sums["network"] != 6 {
		t.Fatal(sums, err)
	}
}

func TestQueryAndMerge(t *testing.T) {
	h := newHost(t, Options{})
	inst := start(t, h, "good")
	tables, number, err := inst.Query(t.Context(), sdk.RowKey{List: testList, Keys: map[string]string{"node": "s7"}})
	if err != nil || number != 3 || len(tables) != 1 || tables[0].Table.RowPath(0) != testList+"[node=s7]" {
		t.Fatal(tables, number, err)
	}
	if _, _, err := inst.Query(t.Context(), sdk.RowKey{List: testList}); err == nil ||
		!strings.Contains(err.Error(), "no device") {
		t.Fatal(err)
	}
	part := epoch(1, "")
	part.Put("s9", sdk.CellsOf("r", slices.Repeat([]uint32{1}, 1<<20)))
	merged, err := inst.Merge(t.Context(), part)
	if err != nil || len(merged.Devices) != 1 || merged.Device("s9").Object("r").Len() != 1<<20 {
		t.Fatal(merged, err)
	}
	rogue := start(t, h, "rogue")
	if _, err := rogue.Merge(t.Context(), part); !errors.Is(err, ErrNoCapability) {
		t.Fatal(err)
	}
	if _, _, err := rogue.Query(t.Context(), sdk.RowKey{List: testList}); !errors.Is(err, ErrNoCapability) {
		t.Fatal(err)
	}
}

func TestMalformedEpoch(t *testing.T) {
	h := newHost(t, Options{})
	inst := start(t, h, "good")
	for name, spoil := range map[string]func(*sdk.Epoch){
		"width":  func(e *sdk.Epoch) { e.Devices[0].Objects[0].Width = 12 },
		"length": func(e *sdk.Epoch) { e.Devices[0].Objects[0].Packed = []byte{1} },
		"status": func(e *sdk.Epoch) { e.Status = 0 },
		"end":    func(e *sdk.Epoch) { e.End = e.Start },
	} {
		e := epoch(1, "")
		spoil(e)
		if _, err := analyze(t, inst, e, time.Minute); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if inst.Status().Restarts != 0 {
		t.Error("the plugin had to pay for it")
	}
}

func TestClosedHost(t *testing.T) {
	h, err := New(Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Start(t.Context(), Spec{Path: "/bin/true"}); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
