// SPDX-License-Identifier: Apache-2.0

// The process around a plugin.

package sdk

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// Handshake is what collector and plugin agree on before they speak gRPC. The
// cookie keeps people from starting a plugin by mistake; it is no secret.
var Handshake = goplugin.HandshakeConfig{
	ProtocolVersion:  ProtocolVersion,
	MagicCookieKey:   "NETSKETCH_PLUGIN",
	MagicCookieValue: "netsketch.plugin.v1",
}

// PluginKey is the name under which go-plugin knows a netsketch plugin.
const PluginKey = "netsketch"

const (
	// EnvLogLevel is the environment variable by which the collector sets the
	// least level of what a plugin logs: "debug", "info", "warn" or "error".
	EnvLogLevel = "NETSKETCH_PLUGIN_LOG_LEVEL"
	// EnvLifeline is set to "stdin" by a collector that keeps the plugin's
	// standard input open for as long as it lives.
	EnvLifeline = "NETSKETCH_PLUGIN_LIFELINE"
)

// drainBudget is how long a plugin that is told to end by a signal, or whose
// collector is gone, may take to finish.
const drainBudget = 5 * time.Second

// GRPCServerOptions are the settings of a server that takes epochs: messages of
// up to MaxMessage, and windows that keep a stream of MaxChunk pieces moving.
func GRPCServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage), grpc.MaxSendMsgSize(MaxMessage),
		grpc.InitialWindowSize(8 << 20), grpc.InitialConnWindowSize(16 << 20),
		grpc.ReadBufferSize(256 << 10), grpc.WriteBufferSize(256 << 10),
	}
}

// Serve runs the plugin until the collector is done with it or gone, and then
// ends the process. It is the last call of main.
//
// Started by hand it prints what the plugin is and how to use it; with
// --describe it prints the description as JSON.
//
// While a plugin runs, its standard output is its standard error, and what is
// logged through log/slog or log reaches the collector's log with level and
// attributes.
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

// introduce tells a person who started the binary what it is.
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
	fmt.Fprintf(w, "\n\nIt is not started by hand: put it into the collector's plugin folder and name it in the\n"+
		"collector's configuration. It publishes:\n")
	for _, l := range d.Lists {
		fmt.Fprintf(w, "  %s  %s\n", l.Path, l.Summary)
	}
	fmt.Fprintf(w, "\n%s --describe prints all of its description as JSON.\n", name)
}

// grpcPlugin is what go-plugin serves.
type grpcPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	server *Server
}

func (g grpcPlugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	g.server.Register(s)
	return nil
}

func (g grpcPlugin) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("a plugin is no client")
}

// process ends the plugin in good order.
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

// watchSignals drains and ends the process on SIGTERM and, with lifeline, when
// standard input ends because the collector is gone.
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
			slog.Warn("the collector is gone")
		}
		time.AfterFunc(drainBudget, func() { os.Exit(1) })
		ctx, cancel := context.WithTimeout(context.Background(), drainBudget)
		defer cancel()
		if err := p.server.drain(ctx); err != nil {
			slog.Warn("stopped before it was finished", "error", err)
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
