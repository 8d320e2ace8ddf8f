// SPDX-License-Identifier: Apache-2.0

// The process of a plugin.

package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress
)

// Handshake is go-plugin's handshake between collector and plugin. The cookie prevents starting a
// plugin by mistake; it is not a secret.
var Handshake = goplugin.HandshakeConfig{
	ProtocolVersion:  ProtocolVersion,
	MagicCookieKey:   "NETSKETCH_PLUGIN",
	MagicCookieValue: "netsketch.plugin.v1",
}

// PluginKey is the name of a netsketch plugin in go-plugin's plugin set.
const PluginKey = "netsketch"

const (
	// EnvLogLevel is the environment variable with the lowest level that a plugin logs: "debug",
	// "info", "warn" or "error".
	EnvLogLevel = "NETSKETCH_PLUGIN_LOG_LEVEL"
	// EnvLifeline is set to "stdin" by a collector that keeps the plugin's standard input open
	// until it exits.
	EnvLifeline = "NETSKETCH_PLUGIN_LIFELINE"
)

// drainBudget is the time to drain after SIGTERM or after the collector has exited.
const drainBudget = 5 * time.Second

// GRPCServerOptions are the options of a server that receives epochs: messages of up to MaxMessage,
// and windows for a stream of MaxChunk pieces.
func GRPCServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage), grpc.MaxSendMsgSize(MaxMessage),
		grpc.InitialWindowSize(8 << 20), grpc.InitialConnWindowSize(16 << 20),
		grpc.ReadBufferSize(256 << 10), grpc.WriteBufferSize(256 << 10),
	}
}

// Serve runs the plugin until the collector stops it or exits, and then exits the process. It is
// the last call of main.
//
// A plugin that a user starts by hand prints a short description and instructions; with --describe
// it prints its description as JSON, and with --listen SOCKET it waits for a collector whose
// configuration has "plugin: SOCKET".
//
// While a plugin runs, its standard output is redirected to standard error. Lines logged with
// log/slog or log reach the collector's log with level and attributes.
func Serve(p Plugin) {
	os.Exit(serve(p, os.Args, os.Getenv, os.Stdout, os.Stderr))
}

// serve returns the exit status.
func serve(p Plugin, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	if len(args) == 2 && (args[1] == "--describe" || args[1] == "-describe") {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(Describe(p)); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		return 0
	}
	if len(args) == 3 && (args[1] == "--listen" || args[1] == "-listen") {
		if err := listen(p, args[2], stderr); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		return 0
	}
	if getenv(Handshake.MagicCookieKey) != Handshake.MagicCookieValue {
		introduce(p, args, stderr)
		return 2
	}
	if err := splitStdout(); err != nil {
		fmt.Fprintf(stderr, "redirect standard output: %v\n", err)
		return 1
	}
	slog.SetDefault(slog.New(newLogHandler(os.Stderr, getenv(EnvLogLevel))))
	host := &process{server: NewServer(p)}
	stop := host.watchSignals(getenv(EnvLifeline) == "stdin")
	defer stop()
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: Handshake,
		Plugins:         goplugin.PluginSet{PluginKey: grpcPlugin{server: host.server}},
		GRPCServer:      host.newGRPC,
		Logger:          hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr, JSONFormat: true}),
	})
	return 0
}

// listen serves a plugin that a user has started by hand, such as in a debugger, for a collector
// that names the unix socket at path. It logs to w and to the collector, and returns when the
// process gets SIGTERM.
func listen(p Plugin, path string, w io.Writer) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s exists and is no socket; name another file", path)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path + ".new", Net: "unix"})
	if err != nil {
		return err
	}
	// At path, the socket accepts connections from the first moment, and only from this user. It
	// may replace the socket of a process that was killed.
	err = os.Chmod(path+".new", 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	l.SetUnlinkOnClose(false)
	defer os.Remove(path)
	host := &process{server: NewServer(p)}
	host.server.log = &logLines{}
	slog.SetDefault(slog.New(slog.NewMultiHandler(
		slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}), newLogHandler(host.server.log, "debug"))))
	slog.Info("waiting for a collector; its configuration names this socket", "plugin", path)
	server := host.newGRPC(nil)
	host.server.Register(server)
	defer host.watchSignals(false)()
	return server.Serve(l)
}

// introduce prints a description for a user who starts the binary by hand.
func introduce(p Plugin, args []string, w io.Writer) {
	d := Describe(p)
	name := d.Name
	if len(args) > 0 {
		name = args[0]
	}
	fmt.Fprintf(w, "%s %s is a netsketch plugin", d.Name, d.Version)
	if d.Summary != "" {
		fmt.Fprintf(w, ": %s", d.Summary)
	}
	fmt.Fprintf(w, "\n\nThe collector starts it: put it into the plugin directory and name it in the collector's\n"+
		"configuration. It publishes:\n")
	for _, l := range d.Lists {
		fmt.Fprintf(w, "  %s  %s\n", l.Path, l.Summary)
	}
	fmt.Fprintf(w, "\n%s --describe prints the full description as JSON.\n%[1]s --listen SOCKET waits for a collector "+
		"that has the path of SOCKET for plugin.\n", name)
}

// grpcPlugin is the plugin that go-plugin serves.
type grpcPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	server *Server
}

func (g grpcPlugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	g.server.Register(s)
	return nil
}

func (g grpcPlugin) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("a plugin serves and has no client")
}

// process stops the plugin after its current work.
type process struct {
	server *Server
	mu     sync.Mutex
	grpc   *grpc.Server
}

func (p *process) newGRPC(options []grpc.ServerOption) *grpc.Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grpc = grpc.NewServer(append(options, GRPCServerOptions()...)...)
	return p.grpc
}

// watchSignals drains the plugin and exits the process on SIGTERM. With lifeline, it also does so
// when standard input ends, because the collector has then exited.
func (p *process) watchSignals(lifeline bool) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	gone := make(chan struct{})
	if lifeline {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			close(gone)
		}()
	}
	go func() {
		select {
		case <-signals:
		case <-gone:
			slog.Warn("the collector has exited")
		}
		time.AfterFunc(drainBudget, func() { os.Exit(1) })
		ctx, cancel := context.WithTimeout(context.Background(), drainBudget)
		defer cancel()
		if err := p.server.drain(ctx); err != nil {
			slog.Warn("stopped before the drain was complete", "error", err)
		}
		p.mu.Lock()
		server := p.grpc
		p.mu.Unlock()
		if server == nil {
			os.Exit(0)
		}
		server.Stop()
	}()
	return func() { signal.Stop(signals) }
}
