// SPDX-License-Identifier: Apache-2.0

// The tests' plugins are this test binary under other names.

package pluginhost

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/yang/table"
)

// testPrefix begins the file names under which the test binary acts as a plugin.
const testPrefix = "netsketch-plugin-test-"

func TestMain(m *testing.M) {
	if mode, ok := strings.CutPrefix(filepath.Base(os.Args[0]), testPrefix); ok {
		behave(mode)
		return
	}
	goleak.VerifyTestMain(m)
}

// behave is the main function of the test plugins.
func behave(mode string) {
	switch mode {
	case "good", "twin":
		sdk.Serve(&testPlugin{name: "good"})
	case "configured":
		sdk.Serve(struct{ sdk.Plugin }{&testPlugin{name: "configured"}}) // takes networks by Configure alone
	case "moody":
		sdk.Serve(&testPlugin{name: "moody"})
	case "chatty":
		fmt.Println("welcome to my plugin")
		fmt.Println(strings.Repeat("=", 100_000))
		fmt.Println("1|2") // similar to a handshake
		sdk.Serve(&testPlugin{name: "chatty", setup: func() { fmt.Println("configured, says stdout") }})
	case "notplugin":
		fmt.Println("usage: frobnicate FILE")
	case "exit":
		fmt.Fprintln(os.Stderr, "cannot find libfoo.so")
		os.Exit(3)
	case "silent":
		stay()
	case "closed":
		os.Stdout.Close()
		fmt.Fprint(os.Stderr, "the license has ended") // without a line end
		os.Exit(7)
	case "unfinished":
		fmt.Print("no room on the device") // without a line end
		os.Exit(7)
	case "endless":
		for {
			fmt.Println(strings.Repeat("y", 1000))
		}
	case "liar":
		fmt.Printf("1|%d|unix|%s|grpc|\n", sdk.ProtocolVersion, filepath.Join(os.TempDir(), "nobody-listens-here"))
		stay()
	case "oldversion":
		handshake := sdk.Handshake
		handshake.ProtocolVersion = 99
		serveRaw(handshake, sdk.NewServer(&testPlugin{name: "old"}).Register)
	case "badname":
		sdk.Serve(&testPlugin{name: "Bad Name!"})
	case "orphan":
		sdk.Serve(&testPlugin{name: "orphan", setup: func() { shell(descendants) }})
	case "churn":
		sdk.Serve(&testPlugin{name: "churn", setup: func() { shell(`for i in 1 2 3 4 5; do (setsid true &); done`) }})
	case "rogue":
		serveRaw(sdk.Handshake, func(r grpc.ServiceRegistrar) { pluginv1.RegisterPluginServer(r, &rogue{}) })
	case "host":
		runHost()
	default:
		fmt.Fprintf(os.Stderr, "no such mode: %s\n", mode)
		os.Exit(9)
	}
}

// descendants starts processes that leave a plugin in several ways: a child, a child in a session
// of its own, a daemon, a daemon without the plugin's environment, and a daemon with a child of
// its own. Each writes its process number to $TMPDIR/children.
const descendants = `
	child() { echo 'echo $$ >>'$TMPDIR'/children; exec sleep 300'; }
	sh -c "$(child)" &
	setsid sh -c "$(child)" &
	(setsid sh -c "$(child)" &)
	(env -i PATH="$PATH" setsid sh -c "$(child)" &)
	(setsid sh -c "(setsid sh -c '$(child)' &); $(child)" &)`

// shell runs a script.
func shell(script string) {
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		slog.Error("script", "error", err)
	}
}

// serveRaw serves the plugin protocol without the SDK.
func serveRaw(handshake goplugin.HandshakeConfig, register func(grpc.ServiceRegistrar)) {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: handshake,
		Plugins:         goplugin.PluginSet{sdk.PluginKey: rawPlugin{register: register}},
		GRPCServer: func(o []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(o, sdk.GRPCServerOptions()...)...)
		},
	})
}

type rawPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	register func(grpc.ServiceRegistrar)
}

func (p rawPlugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	p.register(s)
	return nil
}

func (p rawPlugin) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("not here")
}

const testList = "/netsketch-test:test/sums/sum"

// testPlugin sums the cells of each device. The first name in Epoch.Expected may be a command to
// misbehave.
type testPlugin struct {
	name    string
	setup   func()
	network uint64
	greet   string
	seen    uint64 // epochs analyzed, including those before restarts
	state   sdk.State
}

func (p *testPlugin) Describe() sdk.Description {
	return sdk.Description{
		Name: p.name, Version: "1.0.0", Summary: "sums cells",
		ConfigSchema: `{"type":"object","additionalProperties":false,` +
			`"properties":{"greet":{"type":"string","minLength":2},"refuse":{"type":"boolean"}}}`,
		Modules: []sdk.Module{{Name: "netsketch-test", Text: "module netsketch-test {}"}},
		Lists:   []sdk.List{{Path: testList, Watchable: true}},
	}
}

// refusedNetwork is the version of the network that the plugin refuses.
const refusedNetwork = 13

func (p *testPlugin) Configure(_ context.Context, config sdk.Config, network sdk.Network) (sdk.Settings, error) {
	var c struct {
		Greet  string `yaml:"greet"`
		Refuse bool   `yaml:"refuse"`
	}
	if err := config.Decode(&c); err != nil {
		return sdk.Settings{}, err
	}
	if c.Refuse {
		return sdk.Settings{}, settings.KeyErrors{{Key: "refuse", Message: "is true"}}
	}
	if network.Version == refusedNetwork {
		return sdk.Settings{}, errors.New("no switch is known")
	}
	if p.setup != nil {
		p.setup()
	}
	p.greet, p.network = c.Greet, network.Version
	slog.Info("configured", "greet", c.Greet, "network", network.Version)
	return sdk.Settings{Bindings: []sdk.Binding{{Device: "s1", Object: "r"}}}, nil
}

func (p *testPlugin) NetworkChanged(_ context.Context, network sdk.Network) {
	p.network = network.Version
}

// SaveState implements sdk.Stateful. The state is the number of epochs analyzed.
func (p *testPlugin) SaveState() (sdk.State, error) {
	return sdk.State{Version: 2, Data: binary.AppendUvarint(nil, p.seen)}, nil
}

func (p *testPlugin) RestoreState(s sdk.State) error {
	p.seen, _ = binary.Uvarint(s.Data)
	p.state = s
	return nil
}

func (p *testPlugin) Drain(context.Context) error {
	slog.Info("drained")
	return nil
}

func (p *testPlugin) Query(_ context.Context, row sdk.RowKey) ([]*table.Table, uint64, error) {
	if row.Keys["node"] == "" {
		return nil, 0, errors.New("no device")
	}
	return []*table.Table{sumTable(testList, []string{row.Keys["node"]}, []uint64{7})}, 3, nil
}

// Merge keeps the last device's cells.
func (p *testPlugin) Merge(_ context.Context, part *sdk.Epoch) (*sdk.Epoch, error) {
	out := *part
	out.Devices = part.Devices[len(part.Devices)-1:]
	return &out, nil
}

func (p *testPlugin) Analyze(ctx context.Context, epoch *sdk.Epoch) (*sdk.Results, error) {
	var command string
	if len(epoch.Expected) > 0 {
		command = epoch.Expected[0]
	}
	if p.greet == "fragile" {
		os.Exit(8)
	}
	if err := misbehave(ctx, command); err != nil {
		return nil, err
	}
	var names []string
	var sums []uint64
	for _, d := range epoch.Devices {
		sum := uint64(0)
		for _, o := range d.Objects {
			for _, v := range o.Uint32s() {
				sum += uint64(v)
			}
		}
		names, sums = append(names, d.Name), append(sums, sum)
	}
	switch command {
	case "network":
		names, sums = append(names, "network"), append(sums, p.network)
	case "watches":
		names, sums = append(names, "watched"), append(sums, uint64(len(epoch.Watched)))
	case "seen":
		names, sums = append(names, "seen", "restored", "version"),
			append(sums, p.seen, p.state.Epoch, uint64(p.state.Version))
	case "pid":
		names, sums = append(names, "pid"), append(sums, uint64(os.Getpid()))
	case "huge":
		for i := range 300_000 {
			names, sums = append(names, fmt.Sprintf("device-%07d", i)), append(sums, uint64(i))
		}
	}
	p.seen++
	results := &sdk.Results{}
	results.Add(sumTable(testList, names, sums), nil)
	results.Plans = []sdk.Plan{{FromEpoch: epoch.Number + 2, Hosts: []sdk.HostSetting{{Role: "r", Data: []byte("x")}}}}
	if command == "events" {
		for i := range 5_000 {
			results.Events = append(results.Events, sdk.Event{Level: slog.LevelWarn, Message: fmt.Sprint("event ", i)})
		}
	}
	return results, nil
}

// stay blocks for longer than any test. It does not use an empty select, because the runtime ends
// a program in which no goroutine can continue.
func stay() { time.Sleep(time.Hour) }

// misbehave executes a command.
func misbehave(ctx context.Context, command string) error {
	switch command {
	case "exit":
		os.Exit(7)
	case "panic":
		panic("an unexpected cell")
	case "hang":
		select {}
	case "hang once":
		mark := filepath.Join(os.TempDir(), "hangs")
		if _, err := os.Stat(mark); err == nil {
			return nil
		}
		if err := os.WriteFile(mark, nil, 0o600); err != nil {
			return err
		}
		stay()
	case "patient":
		<-ctx.Done()
		return context.Cause(ctx)
	case "fail":
		return errors.New("the cells make no sense")
	case "allocate", "waste":
		var all [][]byte
		for range 128 { // 2 GiB
			block := bytes.Repeat([]byte{1}, 16<<20)
			if command == "allocate" || len(all) == 0 {
				all = append(all, block)
			}
		}
		slog.Info("allocated", "blocks", len(all))
	case "flood":
		line := strings.Repeat("x", 200) + "\n"
		for range 20_000 {
			_, _ = io.WriteString(stderr, line)
		}
	case "lines":
		for _, line := range []string{
			`{"@message":5}`, `{"@message":"half`, `{"@level":7,"@message":"level is a number"}`, `[]`, `{}`, "null",
			`{"@message":"nested","a":{"b":[1,2]},"@level":"error"}`, "\x1b[31mred\x00", strings.Repeat("long", 50_000),
			`{"@message":"` + strings.Repeat("json", 50_000) + `"}`,
		} {
			fmt.Fprintln(stderr, line)
		}
		fmt.Println("and this went to standard output")
	}
	return nil
}

// stderr is the process's real standard error, which go-plugin has redirected.
var stderr = os.NewFile(2, "stderr")

func sumTable(list string, names []string, sums []uint64) *table.Table {
	return &table.Table{
		List:   list,
		Keys:   []table.Column{table.Strings("node", names)},
		Values: []table.Column{table.Uint64s("state/sum", sums)},
	}
}

// rogue breaks the contract. The first expected device's name says how.
type rogue struct {
	pluginv1.UnimplementedPluginServer
}

func (*rogue) Describe(context.Context, *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	return &pluginv1.DescribeResponse{Name: "rogue", Lists: []*pluginv1.ListInfo{{Path: testList}}}, nil
}

func (*rogue) Configure(context.Context, *pluginv1.ConfigureRequest) (*pluginv1.ConfigureResponse, error) {
	return &pluginv1.ConfigureResponse{}, nil
}

func (*rogue) Drain(context.Context, *pluginv1.DrainRequest) (*pluginv1.DrainResponse, error) {
	return &pluginv1.DrainResponse{}, nil
}

func (*rogue) Run(stream grpc.BidiStreamingServer[pluginv1.RunRequest, pluginv1.RunResponse]) error {
	var begin *pluginv1.EpochBegin
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if b := m.GetBegin(); b != nil {
			begin = b
			if begin.GetExpectedDevices()[0] == "deaf" {
				select {}
			}
		}
		if m.GetEnd() == nil {
			continue
		}
		part := func(epoch uint64, c *pluginv1.Column) error {
			return stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Table{Table: &pluginv1.TablePart{
				Epoch: epoch, Last: true, Table: &pluginv1.Table{List: testList, Rows: 2,
					Keys: []*pluginv1.Column{c}}}}})
		}
		text := &pluginv1.Column{Name: "node", Kind: pluginv1.ColumnKind_COLUMN_KIND_STRING}
		switch begin.GetExpectedDevices()[0] {
		case "leave":
			return nil
		case "wrongepoch":
			_ = part(begin.GetEpoch()+5, text)
		case "garbage":
			text.Data, text.Ends = []byte("ab"), bytes.Repeat([]byte{0xff}, 8)
			_ = part(begin.GetEpoch(), text)
		case "endless":
			text.Data, text.Ends = bytes.Repeat([]byte("x"), 1<<20), []byte{0, 0, 8, 0, 0, 0, 16, 0}
			for stream.Context().Err() == nil {
				_ = part(begin.GetEpoch(), text)
			}
		case "obedient": // sends until the epoch is canceled
			text.Data, text.Ends = bytes.Repeat([]byte("x"), 1<<17), []byte{0, 0, 1, 0, 0, 0, 2, 0}
			canceled := make(chan error, 1)
			go func() {
				m, err := stream.Recv()
				if err == nil && m.GetCancel().GetEpoch() != begin.GetEpoch() {
					err = fmt.Errorf("%v instead of a cancellation", m)
				}
				canceled <- err
			}()
			for len(canceled) == 0 {
				_ = part(begin.GetEpoch(), text)
			}
			if err := <-canceled; err != nil {
				return err
			}
		case "tables": // sends tables without rows, without end
			text.Data, text.Ends, text.Codes = nil, nil, nil
			for stream.Context().Err() == nil {
				_ = stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Table{Table: &pluginv1.TablePart{
					Epoch: begin.GetEpoch(), Last: true,
					Table: &pluginv1.Table{List: testList, Keys: []*pluginv1.Column{text}}}}})
			}
		case "plans":
			for range 10 {
				_ = stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Plan{Plan: &pluginv1.Plan{
					Hosts: []*pluginv1.HostSetting{{Data: make([]byte, 4<<20)}}}}})
			}
		case "events":
			for range 10 {
				_ = stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Event{Event: &pluginv1.Event{
					Attributes: map[string]string{"a": strings.Repeat("x", 4<<20)}}}})
			}
		case "state":
			_ = stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_State{State: &pluginv1.PluginState{
				Data: make([]byte, sdk.MaxState+1)}}})
		case "twice":
			_ = stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Done{
				Done: &pluginv1.EpochDone{Epoch: begin.GetEpoch()}}})
		case "empty":
			_ = stream.Send(&pluginv1.RunResponse{})
		}
		_ = stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Done{
			Done: &pluginv1.EpochDone{Epoch: begin.GetEpoch()}}})
	}
}

// runHost runs a host in a process of its own: it starts the plugin "orphan", prints the process
// number and the socket directory, and waits to be killed.
func runHost() {
	h, err := New(Options{SocketDir: os.Getenv("TEST_SOCKETS"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	inst, err := h.Start(context.Background(), Spec{Path: filepath.Join(filepath.Dir(os.Args[0]), testPrefix+"orphan")})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(inst.Status().PID, h.sockets.path)
	time.Sleep(time.Hour)
}
