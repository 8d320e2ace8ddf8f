// SPDX-License-Identifier: Apache-2.0

// Package command is the program of a host agent: its configuration file, checks, and the list of
// its roles. An agent with a role of its own is a main function with one call:
//
//	func main() {
//		command.Main("1.0", command.Role{Name: "hello", New: newHello})
//	}
package command

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/input"
	"github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/report"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/hostagent/role/remote"
	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/manpages"
	"github.com/netsketch/netsketch/internal/program"
	"github.com/netsketch/netsketch/internal/usage"
)

// Role is a role that a program has. One of New and Kernel may be nil.
type Role struct {
	// Name is the name of the role, as role.Role.Name returns it.
	Name string
	// New returns the role in Go, with the clock of its epochs.
	New func(*epoch.Clock) role.Role
	// Kernel is the data path in the kernel.
	Kernel *Kernel
	// Local, if set, answers queries about what the role measures at an address of this host, until
	// ctx ends.
	Local func(ctx context.Context, l Local) error
}

// Local configures the queries of programs on this host.
type Local struct {
	// Address is the address of a socket, such as unix:///run/netsketch/hostagent.sock.
	Address string
	// Host is the name of this host.
	Host string
	// Path is the data path of the role.
	Path agent.DataPath
	// Logger receives errors.
	Logger *slog.Logger
}

// Kernel is the data path of a role in the kernel.
type Kernel struct {
	// Open opens the role's data path in the kernel.
	Open func(kernel.Config) (agent.DataPath, error)
	// Check returns what would make Open fail, and warnings.
	Check func(kernel.Config) (warnings []string, err error)
	// Strip, if set, attaches and pins programs that only strip arriving packets, unless programs are
	// attached. settings are the last settings of the role, nil if none are known.
	Strip func(c kernel.Config, settings []byte) error
}

// codeRemoved is the exit code of an agent that ended because of the command remove. systemd does
// not start it again then.
const codeRemoved = 3

// errRemoved ends an agent because of the command remove.
var errRemoved = errors.New("the command remove has ended this agent")

// Main runs the command of an agent with the given roles, and ends the process.
func Main(version string, roles ...Role) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	cmd := New(version, roles...)
	err := cmd.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, cmd.Name()+":", err)
	}
	switch {
	case err == nil:
		os.Exit(0)
	case errors.Is(err, errRemoved):
		os.Exit(codeRemoved)
	}
	os.Exit(1)
}

// New returns the command of an agent with the given roles.
func New(version string, roles ...Role) *cobra.Command {
	var path string
	run := func(cmd *cobra.Command, _ []string) error {
		c, err := load(path, roles)
		if err != nil {
			return err
		}
		return run(cmd.Context(), c, version, roles, logger(cmd.ErrOrStderr(), c.Log))
	}
	cmd := &cobra.Command{
		Use:   program.Agent(),
		Short: "Measure the packets of this host, and report each epoch to the collector",
		Long: `Measure the packets of this host, and report each epoch to the collector, which also sends the settings
of each role. Certificates are loaded again when their files change and on SIGHUP. SIGTERM ends the agent; programs
that are pinned in the kernel stay, and strip what arrives for telemetry. The command remove takes them away.`,
		Example:       "  " + program.Agent() + " --config /etc/netsketch/agent.yaml",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          run,
	}
	cmd.PersistentFlags().StringVarP(&path, "config", "c", "agent.yaml", "configuration `file`")
	var offline bool
	checks := &cobra.Command{
		Use:   "check",
		Short: "Report what would make the agent fail on this host",
		Long: `Report what would make the agent fail on this host: the configuration, certificates, the session with the
collector, interfaces, capabilities and what the kernel lacks. Nothing is measured and nothing remains.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return check(cmd.Context(), cmd.OutOrStdout(), path, version, roles, offline)
		},
	}
	checks.Flags().BoolVar(&offline, "offline", false, "do not connect to the collector")
	var wait time.Duration
	strips := &cobra.Command{
		Use:   "strip",
		Short: "Attach programs that strip what arrives, before the network is up",
		Long: `Attach programs that only strip what arrives for telemetry, and leave them to the agent, which starts later.
The unit netsketch-strip.service runs this when the system starts. It connects to nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := load(path, roles)
			if err != nil {
				return err
			}
			return strip(cmd.Context(), c, roles, wait, logger(cmd.ErrOrStderr(), c.Log))
		},
	}
	strips.Flags().DurationVar(&wait, "wait", 0, "how long to wait for the interface")
	removes := &cobra.Command{
		Use:   "remove",
		Short: "End the agent, and take away what it has in the kernel, without harm to packets",
		Long: `End the agent of this host if it runs, and take away what agents have left in the kernel: at once the programs
that change what this host sends, and, when other hosts have stopped to send headers to it, those that strip what
arrives. That takes 3.5 s. It may be run again, and when the agent, its pins or the interface are gone.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := load(path, roles)
			if err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "%v\n%s cannot be used: the agents of all interfaces are removed\n", err, path)
				c = &Config{Packets: Packets{Pin: defaultPin}, State: state("", defaultPin)}
			}
			return remove(cmd.Context(), c, roles, cmd.OutOrStdout())
		},
	}
	runs := &cobra.Command{Use: "run", Short: "Measure and report, as without a subcommand",
		Args: cobra.NoArgs, RunE: run}
	serves := &cobra.Command{Use: remote.Command, Short: "Serve the role on standard input and output, for scenarios",
		Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(roles) != 1 || roles[0].New == nil {
				return fmt.Errorf("this program has %d roles; a scenario plays programs with one", len(roles))
			}
			return remote.Serve(cmd.InOrStdin(), cmd.OutOrStdout(), roles[0].New)
		}}
	cmd.AddCommand(runs, checks, strips, removes, serves)
	manpages.Add(cmd, version)
	usage.Explain(cmd)
	return cmd
}

func logger(w io.Writer, c Log) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.Level}
	if c.Format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// configured returns the roles of the file.
func (c *Config) configured(roles []Role) []Role {
	return slices.DeleteFunc(slices.Clone(roles), func(r Role) bool {
		if len(c.Roles) > 0 {
			return !slices.Contains(c.Roles, r.Name)
		}
		return !r.runs(c.Packets.Source)
	})
}

// runs reports whether the role has a data path for a source of packets.
func (r Role) runs(s Source) bool {
	switch s {
	case SourceKernel:
		return r.Kernel != nil
	case SourceReports:
		if r.New == nil {
			return false
		}
		_, ok := r.New(epoch.NewClock(0, 0)).(role.Receiver)
		return ok
	}
	return r.New != nil
}

// dataPaths are the open data paths of an agent.
type dataPaths struct {
	all   []agent.DataPath
	inGo  []*agent.RolePath // roles that receive packets or reports from this process
	close func() error
}

func (c *Config) open(roles []Role, log *slog.Logger) (*dataPaths, error) {
	d := &dataPaths{}
	d.close = func() error {
		var errs []error
		for _, p := range d.all {
			errs = append(errs, p.Close())
		}
		return errors.Join(errs...)
	}
	configured := c.configured(roles)
	if len(configured) == 0 {
		return nil, fmt.Errorf("no role of this program runs with packets.source: %s", c.Packets.Source)
	}
	for _, r := range configured {
		switch {
		case !r.runs(c.Packets.Source):
			return nil, errors.Join(fmt.Errorf("role %s does not run with packets.source: %s", r.Name, c.Packets.Source),
				d.close())
		case c.Packets.Source == SourceKernel:
			p, err := r.Kernel.Open(c.kernel(r.Name, log))
			if err != nil {
				return nil, errors.Join(fmt.Errorf("role %s: %w", r.Name, err), d.close())
			}
			d.all = append(d.all, p)
		default:
			p := agent.NewRolePath(c.create(r))
			d.all, d.inGo = append(d.all, p), append(d.inGo, p)
		}
	}
	return d, nil
}

// create returns a function that creates a role in Go. A role that supports leases needs them, and
// their probes, only where it sends packets: between two interfaces.
func (c *Config) create(r Role) func(*epoch.Clock) role.Role {
	mtu := 0
	if c.Packets.Source == SourceBridge {
		// Without the interface, the bridge fails later.
		if outside, err := net.InterfaceByName(c.Packets.Outside); err == nil {
			mtu = outside.MTU
		}
	}
	return func(clock *epoch.Clock) role.Role {
		x := r.New(clock)
		if l, ok := x.(role.Leaser); ok && mtu > 0 {
			l.NeedLeases(mtu, nil)
		}
		return x
	}
}

// kernel returns the configuration of a role's data path in the kernel.
func (c *Config) kernel(role string, log *slog.Logger) kernel.Config {
	p := c.Packets
	k := kernel.Config{Role: role, Interface: p.Interface, AtOnce: slices.Contains(c.Roles, role),
		DisableOffloads: p.DisableOffloads, Logger: log}
	if p.Pin != "" {
		k.Pin = filepath.Join(p.Pin, role)
	}
	if c.State != "" {
		k.State = filepath.Join(c.State, role+".settings")
	}
	return k
}

// agentConfig returns the configuration of the session, whose certificates are in store.
func (c *Config) agentConfig(store *certs.Store, version string) (agent.Config, error) {
	var secured func(string) (*tls.Config, error)
	if t := c.Collector.TLS; !t.Plaintext {
		secured = func(address string) (*tls.Config, error) { return t.Client(store, address) }
		if _, err := secured(c.Collector.Address); err != nil {
			return agent.Config{}, fmt.Errorf("collector.tls: %w", err)
		}
		store.Declare("agent", certs.Use{Name: "client of the collector",
			Files: certs.Files{Cert: t.CertFile, Key: t.KeyFile, CA: t.CAFile}})
	}
	cfg := agent.Config{Address: c.Collector.Address, Others: c.Collector.Others, TLS: secured, Host: c.Host,
		Version: version, BootID: bootID(), MaxBuffered: int64(c.MaxBuffered), UDP: c.Collector.UDP}
	if c.HoldAbove > 0 {
		cfg.Busy = (&meter{dir: filepath.Join("/sys/class/net", c.interfaceName(), "statistics"),
			limit: float64(c.HoldAbove), now: time.Now}).busy
	}
	return cfg, nil
}

func run(ctx context.Context, c *Config, version string, roles []Role, log *slog.Logger) (err error) {
	store := certs.New(certs.Options{Logger: log})
	cfg, err := c.agentConfig(store, version)
	if err != nil {
		return err
	}
	store.Start()
	defer store.Stop()
	if text := c.dropPins(); text != "" {
		log.Warn(text)
	}
	release, err := c.lock()
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	leave := make(chan os.Signal, 1)
	signal.Notify(leave, signalRemove)
	defer signal.Stop(leave)
	paths, err := c.open(roles, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, paths.close()) }()
	cfg.DataPaths = paths.all
	a, err := agent.New(cfg, agent.Dependencies{Logger: log})
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { reload(ctx, store) })
	local := make(chan error, 1)
	work.Go(func() {
		err := c.local(ctx, roles, paths, log)
		if err != nil {
			cancel(err)
		}
		local <- err
	})
	packets := make(chan error, 1)
	// Packets pass until peers know that the agent ends.
	passing, stopPassing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPassing()
	work.Go(func() {
		err := c.packets(passing, paths.inGo, log)
		if err != nil {
			cancel(err)
		}
		packets <- err
	})
	work.Go(func() {
		select {
		case <-leave:
			cancel(errRemoved)
		case <-ctx.Done():
		}
	})
	err = a.Run(ctx)
	if errors.Is(context.Cause(ctx), errRemoved) {
		err = errors.Join(err, errRemoved)
	}
	if c.Packets.removesWhileOpen() {
		log.Info("telling other agents to send packets without headers to this host")
		a.Leave(context.WithoutCancel(ctx))
	}
	a.Close()
	cancel(nil)
	stopPassing()
	return errors.Join(err, <-packets, <-local)
}

// local answers queries of programs on this host until ctx ends.
func (c *Config) local(ctx context.Context, roles []Role, paths *dataPaths, log *slog.Logger) error {
	if c.Local == "" {
		return nil
	}
	for i, r := range c.configured(roles) {
		if r.Local != nil {
			return r.Local(ctx, Local{Address: c.Local, Host: c.Host, Path: paths.all[i], Logger: log})
		}
	}
	return c.errNoLocal()
}

func (c *Config) errNoLocal() error {
	return fmt.Errorf("local: no role that runs with packets.source: %s answers queries; remove the key, or name one in "+
		"roles", c.Packets.Source)
}

// reload loads the certificates again on SIGHUP.
func reload(ctx context.Context, store *certs.Store) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		select {
		case <-hangup:
			store.Reload()
		case <-ctx.Done():
			return
		}
	}
}

// packets brings packets or telemetry reports to the roles until ctx ends.
func (c *Config) packets(ctx context.Context, paths []*agent.RolePath, log *slog.Logger) error {
	var roles []input.Path
	var receivers []report.Path
	for _, p := range paths {
		roles, receivers = append(roles, p), append(receivers, p)
	}
	switch c.Packets.Source {
	case SourceReports:
		s, err := c.Packets.receiver(log).Run(ctx, receivers...)
		log.Info("receiving telemetry reports ended", "received", s.Received, "dropped", s.Dropped)
		return err
	case SourceBridge:
		b := input.Bridge{Inside: c.Packets.Inside, Outside: c.Packets.Outside, Sockets: c.Packets.Sockets, Logger: log}
		s, err := b.Run(ctx, roles...)
		log.Info("forwarding ended", "out", s.Out, "in", s.In, "unsent", s.Unsent, "lost", s.Lost, "truncated", s.Truncated,
			"unsplit", s.Unsplit, "outages", s.Outages)
		return err
	case SourceCapture:
		n, err := input.Capture{File: c.Packets.File, Addresses: c.addresses(), Logger: log}.Run(ctx, roles...)
		log.Info("the capture file has been played", "file", c.Packets.File, "packets", n)
		return err
	case SourceKernel:
	}
	return nil
}

// removesWhileOpen reports whether nothing removes headers from packets to this host once the data
// paths are closed.
func (p Packets) removesWhileOpen() bool {
	return p.Source == SourceBridge || p.Source == SourceKernel && p.Pin == ""
}

func (p Packets) receiver(log *slog.Logger) report.Receiver {
	return report.Receiver{Address: p.Receive, Sockets: p.Sockets, Logger: log}
}

func (c *Config) addresses() (out []netip.Prefix) {
	for _, p := range c.Packets.Addresses {
		out = append(out, p.Prefix)
	}
	return out
}
