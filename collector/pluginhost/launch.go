// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/files"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
)

// exitGrace is how long the host waits for the exit of a process whose output or stream has ended,
// so that it can report the exit status.
const exitGrace = 500 * time.Millisecond

// launch is the input of Host.launch.
type launch struct {
	name, path, sha256 string
	attach             bool // path is the socket of a plugin that runs already
	env                []string
	memoryLimit        int64
	onStart            func(file os.FileInfo) // called like process.onStart
	logs               *logSink
}

// launch starts a process and requests its description. If it fails, the error is a StartError and
// the process is gone. If ctx ends, launch gives up.
func (h *Host) launch(ctx context.Context, l launch) (*session, error) {
	fail := func(err error) error {
		return &StartError{Name: l.name, Path: l.path, Err: err, Output: l.logs.stderrTail()}
	}
	l.logs.reset()
	path, err := absolute(l.path)
	if err != nil {
		return nil, fail(err)
	}
	l.path = path
	if l.attach {
		s, err := h.attach(ctx, l)
		if err != nil {
			return nil, fail(err)
		}
		return s, nil
	}
	if err := verify(l.path, l.sha256); err != nil {
		return nil, fail(err)
	}
	sockets, err := h.sockets.ensure()
	if err != nil {
		return nil, fail(err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fail(err)
	}
	var started startedProcess
	client := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  sdk.Handshake,
		Plugins:          goplugin.PluginSet{sdk.PluginKey: connPlugin{}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		StartTimeout:     h.opts.StartTimeout + time.Second, // so that h.opts.StartTimeout ends first
		Logger:           hclog.New(&hclog.LoggerOptions{Level: hclog.Off}),
		Stderr:           l.logs.writer("stderr"),
		SyncStdout:       l.logs.writer("stdout"),
		SyncStderr:       l.logs.writer("stderr"),
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: sockets},
		GRPCDialOptions:  dialOptions(),
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, socketDir string) (runner.Runner, error) {
			p := newProcess(l, slices.Concat(l.environment(), cmd.Env), h.spawner,
				h.confiner.confine(socketDir, l.memoryLimit))
			started.set(p)
			return p, nil
		},
	})
	// go-plugin's start has no context, but it returns when the process ends.
	startCtx, cancel := context.WithTimeout(ctx, h.opts.StartTimeout)
	defer cancel()
	release := context.AfterFunc(startCtx, started.cancel)
	protocol, err := client.Client()
	timedOut := !release() && ctx.Err() == nil
	proc := started.get()
	if err != nil || timedOut {
		err = h.explain(proc, err, timedOut)
		proc.kill()
		proc.waitIfStarted()
		client.Kill()
		return nil, fail(cmp.Or(ctx.Err(), err))
	}
	raw, err := protocol.Dispense(sdk.PluginKey)
	conn, ok := raw.(*grpc.ClientConn)
	if err == nil && !ok {
		err = fmt.Errorf("go-plugin returned a %T", raw)
	}
	if err != nil {
		proc.kill()
		proc.waitIfStarted()
		client.Kill()
		return nil, fail(err)
	}
	s := newSession(h, l, client.Kill, proc, conn)
	if err := s.describe(ctx); err != nil {
		s.fail(err)
		<-s.dead
		return nil, fail(cmp.Or(ctx.Err(), err))
	}
	return s, nil
}

func dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithInitialWindowSize(8 << 20), grpc.WithInitialConnWindowSize(16 << 20),
		grpc.WithReadBufferSize(256 << 10), grpc.WithWriteBufferSize(256 << 10),
	}
}

// IsSocket reports whether the path is a socket, as of a plugin that was started with --listen.
func IsSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

// attach connects to a plugin that was started with --listen, and requests its description.
func (h *Host) attach(ctx context.Context, l launch) (*session, error) {
	info, err := os.Lstat(l.path)
	if err == nil {
		err = errors.Join(trustDirectory(filepath.Dir(l.path)), trustOwner(info))
	}
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: h.opts.StartTimeout}
	probe, err := dialer.DialContext(ctx, "unix", l.path)
	if err != nil {
		return nil, fmt.Errorf("no plugin listens: %w; start it with --listen %s", err, l.path)
	}
	_ = probe.Close() // nothing was sent
	conn, err := grpc.NewClient("unix:"+l.path,
		append(dialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return nil, err
	}
	s := newSession(h, l, func() { _ = conn.Close() }, attachedProcess(l), conn)
	s.callTimeout = 24 * time.Hour // a call may wait at a breakpoint of the debugger
	if err = cmp.Or(s.followLog(ctx), s.describe(ctx)); err != nil {
		s.fail(err)
		<-s.dead
		return nil, cmp.Or(ctx.Err(), err)
	}
	return s, nil
}

// startedProcess passes the process from go-plugin's callback to launch and to the start timeout.
type startedProcess struct {
	mu        sync.Mutex
	proc      *process
	cancelled bool
}

func (s *startedProcess) set(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc = p
	if s.cancelled {
		p.kill()
	}
}

func (s *startedProcess) cancel() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelled = true
	s.proc.kill()
}

// get returns the process, or nil if none was started.
func (s *startedProcess) get() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// explain turns go-plugin's start error into one of this package's errors.
func (h *Host) explain(proc *process, err error, timedOut bool) error {
	version := proc.version()
	switch {
	case proc.pid() == 0 && timedOut:
		return fmt.Errorf("%w: the system did not start it within %v: %w", ErrStartTimeout, h.opts.StartTimeout, err)
	case proc == nil: // go-plugin failed before it started a process
		return fmt.Errorf("it cannot be started: %w", err)
	case proc.pid() == 0 && err != nil: // the system refused to run the file: wrong format, missing interpreter, …
		if reason := files.Unstartable(proc.path, err); reason != "" {
			err = fmt.Errorf("%w: %s", err, reason)
		}
		return fmt.Errorf("%w: %w", ErrNotPlugin, err)
	case version >= 0 && version != sdk.ProtocolVersion:
		return fmt.Errorf("%w: the plugin speaks version %d, this collector version %d; rebuild the plugin with the SDK of "+
			"this release",
			ErrProtocolVersion, version, sdk.ProtocolVersion)
	case version >= 0 && timedOut:
		return fmt.Errorf("%w: after its handshake it accepts no connection for %v", ErrStartTimeout,
			h.opts.StartTimeout)
	case version >= 0 && proc.ends() && !proc.endedHere():
		return fmt.Errorf("%w: after its handshake it %w", ErrDescription, proc.exitErr())
	case version >= 0: // go-plugin's errors have several lines
		return fmt.Errorf("%w: its handshake is refused: %s", ErrNotPlugin, strings.Join(strings.Fields(err.Error()), " "))
	case proc.stdout.over():
		return fmt.Errorf("%w: it wrote more than %d MiB to its standard output, and no handshake in that",
			ErrStartTimeout, maxPreamble>>20)
	case timedOut:
		return fmt.Errorf("%w: no handshake on its standard output for %v; a plugin's main calls sdk.Serve",
			ErrStartTimeout, h.opts.StartTimeout)
	}
	if proc.ends() {
		return fmt.Errorf("%w: before the handshake it %w", ErrNotPlugin, proc.exitErr())
	}
	return fmt.Errorf("%w: its standard output is not a handshake: %w", ErrNotPlugin, err)
}

// environment returns the plugin's environment. If there is a memory limit, the environment makes
// a Go plugin collect garbage before it reaches the limit.
func (l launch) environment() []string {
	env := []string{sdk.EnvLifeline + "=stdin"}
	for _, name := range inherited {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	if l.memoryLimit > 0 {
		env = append(env, fmt.Sprintf("GOMEMLIMIT=%d", l.memoryLimit/10*9))
	}
	return append(env, l.env...)
}

// connPlugin exposes the gRPC connection.
type connPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (connPlugin) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return errors.New("the collector serves no plugin")
}

func (connPlugin) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

// describe requests the plugin's description.
func (s *session) describe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.callTimeout)
	defer cancel()
	m, err := s.api.Describe(ctx, &pluginv1.DescribeRequest{})
	if err != nil {
		if status.Code(err) == codes.Unavailable && s.proc.ends() {
			return fmt.Errorf("%w: after its handshake it %w", ErrDescription, s.proc.exitErr())
		}
		return fmt.Errorf("%w: Describe: %s", ErrDescription, status.Convert(err).Message())
	}
	s.description = sdk.DescriptionFrom(m)
	if s.description.ConfigSchema != "" {
		_, _, err = compileSchema(s.description.ConfigSchema)
	}
	if err = cmp.Or(err, s.description.Check()); err != nil {
		return fmt.Errorf("%w: %w", ErrDescription, err)
	}
	return nil
}

// fileName is the name of a plugin before its description is known.
func fileName(path string) string { return strings.TrimPrefix(filepath.Base(path), FilePrefix) }

// absolute returns the absolute path with symbolic links resolved.
func absolute(path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return path, err
	}
	return filepath.Abs(resolved)
}
