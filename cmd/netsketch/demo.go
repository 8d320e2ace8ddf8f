// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/groundtruth"
	"github.com/netsketch/netsketch/outputs/web"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/settings/yaml"
)

type demoFlags struct {
	scenario, trace, iface, listen, web, http, plugins, log string
	rows, truth, charts                                     string // files and directories that a sweep writes
	epochs, seeds                                           int
	sweep                                                   []string
	json, virtual, wall                                     bool
	bmv2                                                    []string
	influx                                                  influxFlags
}

// influxFlags are the flags of the InfluxDB output, and the directory of its spool. A collector
// keeps undelivered points for its next start; a demo must not, because another demo would send
// them to another database.
type influxFlags struct{ url, token, org, bucket, spool string }

func demoCommand() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the system at work: on an emulated network, or on this machine's own traffic",
		Long: `Play a scenario: P4 switches, hosts and links are emulated in this process, packets are sent
through them, and the collector measures the network as it would a real one: it drives the switches
through P4Runtime, feeds plugin processes, and serves results over gNMI. The demo reads them back
over gNMI and shows each next to the ground truth.

A scenario is played once, or for --epochs. On a terminal or with --http, and with neither --epochs nor
--json, the demo stays until Ctrl-C: the built-in scenario begins anew every minute, with its events
apart, a capture file is played again and again, and after another scenario the console and the gNMI
server stay with its last results. Otherwise a capture file is played once.

The exit code is 0 only if the results meet the bounds of the scenario. On a machine that is too slow
for its epochs, the emulated network and the collector's clock slow down together, so the load does
not change the results. --wall plays on the machine's clock instead.

With --sweep or --seeds, the scenario is played once for each combination of values and seeds, and the
mean of each measure is printed with its 95 % confidence interval over the seeds. --rows writes the
measures of each run. It runs on a virtual clock, or with --wall.

With --interface, the demo measures the traffic of a network interface of this machine instead: its top
flows, changes and entropy. It only reads packets, and needs root or the capability CAP_NET_RAW (Linux).
One frame can stand for several packets on the wire, because the kernel joins and splits them later.
The exit code is 0 only if all epochs are complete.`,
		Example: `  netsketch demo                                  the built-in scenario, on a terminal until Ctrl-C
  netsketch demo --trace packets.pcap.gz --epochs 10 --json
  netsketch demo --scenario my.yaml --virtual --epochs 60
  netsketch demo --scenario my.yaml --virtual --sweep traffic[0].flows=1000,5000 --seeds 5 --rows rows.csv
  netsketch demo --interface eth0                 this machine's own traffic`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return fmt.Errorf("demo: %q is no flag: give a scenario with --scenario FILE, a capture file with --trace FILE",
				args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			run := runDemo
			switch {
			case f.iface != "":
				run = runLive
			case cmd.Flags().Changed("interface"):
				return errors.New("--interface is empty: name an interface, as ip link shows it")
			case len(f.sweep) > 0 || cmd.Flags().Changed("seeds"):
				run = runSweep
			case f.rows != "" || f.charts != "":
				return errors.New("--rows and --charts describe a sweep: set --sweep or --seeds")
			}
			if f.influx.url != "" {
				var err error
				if f.influx.spool, err = os.MkdirTemp("", "netsketch-demo-"); err != nil {
					return err
				}
				defer os.RemoveAll(f.influx.spool)
			}
			began, err := run(cmd, &f)
			if err != nil && f.json && !began {
				// The JSON object also reports that the run failed.
				return errors.Join(err, printJSON(cmd.OutOrStdout(), map[string]any{"ok": false, "error": err.Error()}))
			}
			return err
		},
	}
	f.declare(cmd)
	return cmd
}

// declare declares the flags of demo.
func (f *demoFlags) declare(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.scenario, "scenario", "", "scenario `file`; the built-in one when empty")
	flags.StringVar(&f.trace, "trace", "", "replay a pcap `file`, gzipped or not, instead of the scenario's traffic")
	flags.StringVar(&f.iface, "interface", "",
		"measure the traffic of the `interface` of this machine instead of a scenario's")
	flags.IntVar(&f.epochs, "epochs", 0, "number of epochs, after which the demo ends; 0: as in the scenario")
	flags.BoolVar(&f.json, "json", false, "print one JSON object at the end instead of the live table")
	flags.BoolVar(&f.virtual, "virtual", false, "play on a virtual clock, as fast as it can be computed")
	flags.BoolVar(&f.wall, "wall", false, "play on the machine's clock: a busy machine makes epochs partial")
	flags.StringArrayVar(&f.sweep, "sweep", nil, "`key=values` of the scenario to play in turn, such as\n"+
		"traffic[0].flows=1000,5000; may be repeated for a grid")
	flags.IntVar(&f.seeds, "seeds", 1, "number of seeds to play, from the scenario's on")
	flags.StringVar(&f.rows, "rows", "", "`file` for the measures of each run of a sweep, as CSV")
	flags.StringVar(&f.charts, "charts", "", "`directory` for a chart of each measure of a sweep, as SVG")
	flags.StringVar(&f.truth, "ground-truth", "", "`file` for what happened to each flow in each scored epoch:\n"+
		"Parquet if its name ends in .parquet, otherwise CSV")
	flags.StringSliceVar(&f.bmv2, "bmv2", nil, "`switches`, by name or role (edge, transit), that run BMv2's "+
		"simple_switch_grpc, from the PATH, instead of soft switches")
	flags.StringVar(&f.listen, "gnmi", "127.0.0.1:9339",
		"`address` of the collector's gNMI server; port 0 takes a free one")
	flags.StringVar(&f.web, "web", web.DefaultConfig().Address,
		"`address` of the console, a web page; port 0 takes a free one, as does the default if --gnmi is given; not "+
			"served when empty")
	flags.StringVar(&f.http, "http", "", "`address` of the collector's /metrics, /healthz and /readyz; not "+
		"served when empty")
	flags.StringVar(&f.plugins, "plugins", "", pluginsUsage)
	flags.StringVar(&f.log, "log", "warn", "log `level`: debug, info, warn, error")
	flags.StringVar(&f.influx.url, "influxdb", "", "also write to the InfluxDB at this `URL`; points that it has\n"+
		"not taken when the demo ends are dropped")
	flags.StringVar(&f.influx.token, "influxdb-token", "", "its `token`, or user:password")
	flags.StringVar(&f.influx.org, "influxdb-org", "", "its `organization`")
	flags.StringVar(&f.influx.bucket, "influxdb-bucket", "netsketch", "its `bucket`, or database/retention")
	cmd.MarkFlagsMutuallyExclusive("virtual", "wall")
	for _, other := range []string{"scenario", "trace", "virtual", "wall", "bmv2", "sweep", "seeds", "ground-truth"} {
		cmd.MarkFlagsMutuallyExclusive("interface", other)
	}
	for _, other := range []string{"trace", "json", "http", "web", "influxdb"} {
		cmd.MarkFlagsMutuallyExclusive("sweep", other)
		cmd.MarkFlagsMutuallyExclusive("seeds", other)
	}
}

// prepare returns the log and the view of a demo, and sets flags that depend on other flags.
func (f *demoFlags) prepare(cmd *cobra.Command) (*slog.Logger, *scenario.ViewWriter, error) {
	logger, err := newLogger(cmd.ErrOrStderr(), f.log)
	if err != nil {
		return nil, nil, err
	}
	if f.plugins == "" {
		if f.plugins, err = pluginDirectory(); err != nil {
			return nil, nil, err
		}
	}
	if flags := cmd.Flags(); flags.Changed("gnmi") && !flags.Changed("web") {
		f.web = "127.0.0.1:0" // so that a second demo does not need the first one's port
	}
	out := cmd.OutOrStdout()
	return logger, &scenario.ViewWriter{W: out, Terminal: isTerminal(out),
		Size: func() (columns, lines int) { return terminalSize(out) }}, nil
}

// runLive measures an interface. began is true if the report has been printed.
func runLive(cmd *cobra.Command, f *demoFlags) (began bool, err error) {
	if f.epochs < 0 {
		return false, fmt.Errorf("--epochs %d: expected 0 or more", f.epochs)
	}
	logger, view, err := f.prepare(cmd)
	if err != nil {
		return false, err
	}
	o := scenario.LiveOptions{Interface: f.iface, Epochs: f.epochs, PluginDir: f.plugins, Listen: f.listen, Web: f.web,
		HTTP: f.http, Logger: logger, Version: version}
	if o.Outputs, err = f.outputs(); err != nil {
		return false, err
	}
	out := cmd.OutOrStdout()
	if !f.json {
		o.OnEpoch = view.Live
		fmt.Fprintf(out, "reading the packets of %s; none is sent or changed\n", f.iface)
	}
	live, err := scenario.OpenLive(cmd.Context(), o)
	if err != nil {
		return false, fmt.Errorf("--interface: %w", err)
	}
	if !f.json {
		fmt.Fprintf(out, "results at gNMI %s; the first epoch ends within two seconds\n", live.Address())
		if url := live.ConsoleURL(); url != "" {
			fmt.Fprintf(out, "console: %s\n", url)
		}
	}
	report, err := live.Play(cmd.Context())
	if err = errors.Join(err, live.Close()); err != nil {
		report.OK, report.Error = false, err.Error()
	}
	if f.json {
		err = errors.Join(err, printJSON(out, report))
	}
	if err == nil && !report.OK {
		err = errSilent
	}
	return true, err
}

// runDemo plays the scenario. began is true if the report has been printed.
func runDemo(cmd *cobra.Command, f *demoFlags) (began bool, err error) {
	s, err := f.load()
	if err != nil {
		return false, err
	}
	logger, view, err := f.prepare(cmd)
	if err != nil {
		return false, err
	}
	out := cmd.OutOrStdout()
	switch follow := f.stays(out) && !f.virtual; {
	case f.scenario != "":
	case follow:
		s.PlayOn()
	case f.trace != "" && f.epochs == 0: // otherwise the demo would run without end
		if err := s.PlayTraceOnce(); err != nil {
			return false, err
		}
	}
	o := scenario.Options{PluginDir: f.plugins, Listen: f.listen, Web: f.web, HTTP: f.http, Virtual: !f.wall,
		Paced: !f.wall && !f.virtual, BMv2: f.bmv2, Logger: logger, Version: version}
	if f.virtual && f.influx.url != "" { // the run ends at the present, as dashboards show the newest points
		o.Start = time.Now().Truncate(s.Epoch).Add(-virtualSpan(s))
	}
	if f.truth != "" {
		if o.GroundTruth, err = groundtruth.Create(f.truth); err != nil {
			return false, err
		}
	}
	if !f.json {
		o.OnEpoch = view.Epoch
		fmt.Fprintf(out, "starting %s: %s\n", s.Name, s.Summary)
	}
	run, err := scenario.Open(cmd.Context(), s, o)
	if err != nil {
		return false, errors.Join(err, o.GroundTruth.Close())
	}
	if !f.json {
		fmt.Fprintf(out, "%d switches measured, results at gNMI %s; the first epoch ends within two seconds\n",
			len(run.Network().Devices()), run.Address())
		if url := run.ConsoleURL(); url != "" {
			fmt.Fprintf(out, "console: %s\n", url)
		}
	}
	report, err := run.Play(cmd.Context())
	if !f.json {
		err = errors.Join(err, view.End(report))
	}
	if f.stays(out) && err == nil && cmd.Context().Err() == nil {
		fmt.Fprintf(out, "the last results stay, at gNMI %s%s; Ctrl-C ends the demo\n", run.Address(),
			strings.TrimSuffix(" and in the console "+run.ConsoleURL(), " and in the console "))
		<-cmd.Context().Done()
	}
	if closing := errors.Join(run.Close(), o.GroundTruth.Close()); closing != nil || err != nil {
		err = errors.Join(err, closing)
		report.OK, report.Error = false, err.Error()
	}
	if f.json {
		err = errors.Join(err, printJSON(out, report))
	} else {
		if n := len(report.Epochs); n > 0 && f.virtual && f.influx.url != "" {
			from, to := report.Epochs[0].End.UTC(), report.Epochs[n-1].End.UTC()
			fmt.Fprintf(out, "the points in InfluxDB are dated %s to %s; in Grafana's address: from=%d&to=%d\n",
				from.Format(time.RFC3339), to.Format(time.RFC3339), from.UnixMilli(), to.UnixMilli())
		}
	}
	if err == nil && !report.OK {
		err = errSilent
	}
	return true, err
}

// stays reports whether the demo runs until Ctrl-C, because somebody watches it: on a terminal or
// over the network.
func (f *demoFlags) stays(out io.Writer) bool {
	return f.epochs == 0 && !f.json && (isTerminal(out) || f.http != "" || f.influx.url != "")
}

// virtualSpan returns how long before the present a scenario's virtual time begins, so that it ends
// at the present; one hour if the scenario has no end. It adds two epochs, which are not measured:
// the one before the first, and the one in which agents start.
func virtualSpan(s *scenario.Scenario) time.Duration {
	if s.Epochs == 0 {
		return time.Hour
	}
	return time.Duration(s.Epochs+2) * s.Epoch
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// load reads the scenario with changes and applies the flags that change it.
func (f *demoFlags) load(changes ...scenario.Change) (*scenario.Scenario, error) {
	load := scenario.Default
	if f.scenario != "" {
		load = func(changes ...scenario.Change) (*scenario.Scenario, error) {
			return scenario.Load(f.scenario, changes...)
		}
	}
	s, err := load(changes...)
	if err != nil {
		return nil, err
	}
	if f.trace != "" {
		s.UseTrace(f.trace)
		if f.scenario == "" { // the number of epochs and the accuracy bounds fit only the built-in traffic
			s.Epochs = 0
			s.Expect = slices.DeleteFunc(s.Expect, func(b scenario.Bound) bool { return b.AtMost == nil || *b.AtMost > 0 })
		}
		s.Name, s.Summary = "trace "+filepath.Base(f.trace), "packets of a capture file on the network of "+s.Name
	}
	if f.epochs < 0 {
		return nil, fmt.Errorf("--epochs %d: expected 0 or more", f.epochs)
	}
	if f.epochs > 0 {
		s.Epochs = f.epochs
	}
	outputs, err := f.outputs()
	s.Outputs = append(s.Outputs, outputs...)
	return s, err
}

// outputs returns the configuration of the outputs that the flags name.
func (f *demoFlags) outputs() ([]config.Output, error) {
	if f.influx.url == "" {
		return nil, nil
	}
	section, err := f.influx.section()
	return []config.Output{{Type: "influxdb", Settings: section}}, err
}

// section returns the flags as the configuration of an InfluxDB output.
func (f influxFlags) section() (settings.Section, error) {
	text, err := json.Marshal(map[string]any{"url": f.url, "token": f.token, "org": f.org, "bucket": f.bucket,
		"spool": map[string]string{"dir": f.spool}})
	if err != nil {
		return settings.Section{}, err
	}
	return yaml.Section("--influxdb flags", strings.ReplaceAll(string(text), "$", "$$"))
}

// newLogger returns a logger that writes text to w from a level on.
func newLogger(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q: expected debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}

// pluginDirectory finds the plugins that were built or installed with this binary.
func pluginDirectory() (string, error) {
	exe, err := executable()
	if err != nil {
		return "", fmt.Errorf("%w; set the plugin directory with --plugins", err)
	}
	candidates := []string{
		filepath.Join(filepath.Dir(exe), "plugins"),
		filepath.Join(filepath.Dir(exe), "..", "lib", "netsketch", "plugins"),
	}
	for _, dir := range candidates {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no plugins in %s or %s: install the package netsketch, run `make build` in a checkout, or set "+
		"their directory with --plugins", candidates[0], candidates[1])
}

// executable returns the path of this binary, without symbolic links.
func executable() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("path of this binary: %w", err)
	}
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		exe = real
	}
	return exe, nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// terminalSize returns a terminal's columns and lines, zero if they are unknown.
func terminalSize(w io.Writer) (columns, lines int) {
	if f, ok := w.(*os.File); ok {
		columns, lines, _ = term.GetSize(int(f.Fd())) // 0 after an error
	}
	return columns, lines
}

// shutdownLimit bounds the shutdown of a command.
const shutdownLimit = 15 * time.Second
