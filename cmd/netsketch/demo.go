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
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/netsketch/netsketch/collector/config"
	"github.com/netsketch/netsketch/lab/scenario"
)

type demoFlags struct {
	scenario, trace, listen, plugins, log string
	plot                                  string
	epochs                                int
	json, virtual                         bool
	bmv2                                  []string
	influx                                influxFlags
}

type influxFlags struct{ url, token, org, bucket string }

func demoCommand() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play a scenario: an emulated network, the collector, and the results beside the truth",
		Long: `Play a scenario: P4 switches, hosts and links are emulated in this process, packets are sent
through them, and the collector measures the network as it would a real one: it drives the switches
through P4Runtime, feeds plugin processes, and serves results over gNMI. The demo reads them back
over gNMI and shows each beside the exact truth.

The exit code is 0 only when the results kept the bounds that the scenario states.`,
		Example: `  netsketch demo                                  the built-in scenario, until Ctrl-C
  netsketch demo --trace packets.pcap.gz --epochs 10 --json
  netsketch demo --scenario my.yaml --virtual --epochs 60
  netsketch demo --scenario examples/chamelemon/figure9.yaml --virtual --plot docs/figures/chamelemon-9`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := runDemo(cmd, &f)
			if err != nil && f.json && report == nil {
				// Whoever reads the object learns from it, too, that there was no run.
				return errors.Join(err, printJSON(cmd.OutOrStdout(), map[string]any{"ok": false, "error": err.Error()}))
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.scenario, "scenario", "", "scenario `file`; the built-in one when empty")
	flags.StringVar(&f.trace, "trace", "", "replay a pcap `file`, gzipped or not, in place of the scenario's traffic")
	flags.IntVar(&f.epochs, "epochs", 0, "end after so many epochs; 0: as the scenario says, else at Ctrl-C")
	flags.BoolVar(&f.json, "json", false, "print one JSON object at the end in place of the live table")
	flags.BoolVar(&f.virtual, "virtual", false, "play on a virtual clock, as fast as it can be computed")
	flags.StringSliceVar(&f.bmv2, "bmv2", nil, "`switches`, by name or role (edge, transit), that are BMv2's simple_switch_grpc, from the PATH, in place of soft switches")
	flags.StringVar(&f.plot, "plot", "", "write the run's figures to `files` of this name with .md, .svg and .csv after it")
	flags.StringVar(&f.listen, "gnmi", "127.0.0.1:9339", "`address` of the collector's gNMI server; port 0 takes a free one")
	flags.StringVar(&f.plugins, "plugins", "", "`folder` of plugin binaries; when empty, plugins beside this binary or ../lib/netsketch/plugins")
	flags.StringVar(&f.log, "log", "warn", "log `level`: debug, info, warn, error")
	flags.StringVar(&f.influx.url, "influxdb", "", "also write to the InfluxDB at this `URL`")
	flags.StringVar(&f.influx.token, "influxdb-token", "", "its `token`, or user:password")
	flags.StringVar(&f.influx.org, "influxdb-org", "", "its `organisation`")
	flags.StringVar(&f.influx.bucket, "influxdb-bucket", "netsketch", "its `bucket`, or database/retention")
	return cmd
}

// runDemo plays the scenario. The report is nil when it could not begin; otherwise it
// has been printed.
func runDemo(cmd *cobra.Command, f *demoFlags) (*scenario.Report, error) {
	s, err := f.load()
	if err != nil {
		return nil, err
	}
	logger, err := newLogger(cmd.ErrOrStderr(), f.log)
	if err != nil {
		return nil, err
	}
	if f.plot != "" {
		if err := writable("--plot", filepath.Dir(f.plot)); err != nil {
			return nil, err
		}
	}
	dir := f.plugins
	if dir == "" {
		if dir, err = pluginFolder(); err != nil {
			return nil, err
		}
	}
	out := cmd.OutOrStdout()
	view := &scenario.ViewWriter{W: out, Terminal: isTerminal(out), Size: func() (columns, lines int) { return terminalSize(out) }}
	o := scenario.Options{PluginDir: dir, Listen: f.listen, Virtual: f.virtual, BMv2: f.bmv2, Logger: logger, Version: version}
	if !f.json {
		o.OnEpoch = view.Epoch
		fmt.Fprintf(out, "starting %s: %s\n", s.Name, s.Summary)
	}
	run, err := scenario.Open(cmd.Context(), s, o)
	if err != nil {
		return nil, err
	}
	if !f.json {
		fmt.Fprintf(out, "%d switches measured, results at gNMI %s; the first epoch ends within two seconds\n", len(run.Network().Devices()), run.Address())
	}
	report, err := run.Play(cmd.Context())
	if f.plot != "" && len(report.Epochs) > 0 {
		err = errors.Join(err, run.WriteFigures(f.plot, f.command()))
	}
	if err = errors.Join(err, run.Close()); err != nil {
		report.OK, report.Error = false, err.Error()
	}
	if f.json {
		err = errors.Join(err, printJSON(out, report))
	} else {
		err = errors.Join(err, view.End(report))
	}
	if err == nil && !report.OK {
		err = errSilent
	}
	return report, err
}

// command is how a run like this is begun.
func (f *demoFlags) command() string {
	c := "netsketch demo"
	if f.scenario != "" {
		c += " --scenario " + f.scenario
	}
	if len(f.bmv2) > 0 {
		c += " --bmv2 " + strings.Join(f.bmv2, ",")
	}
	if f.virtual {
		c += " --virtual"
	}
	return c + " --plot " + f.plot
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// load reads the scenario and applies the flags that change it.
func (f *demoFlags) load() (*scenario.Scenario, error) {
	load := scenario.Default
	if f.scenario != "" {
		load = func() (*scenario.Scenario, error) { return scenario.Load(f.scenario) }
	}
	s, err := load()
	if err != nil {
		return nil, err
	}
	if f.trace != "" {
		s.UseTrace(f.trace)
		s.Name, s.Summary = "trace "+filepath.Base(f.trace), "packets of a capture file on the network of "+s.Name
	}
	if f.epochs < 0 {
		return nil, fmt.Errorf("--epochs %d: expected 0 or more", f.epochs)
	}
	if f.epochs > 0 {
		s.Epochs = f.epochs
	}
	if f.influx.url != "" {
		section, err := f.influx.section()
		if err != nil {
			return nil, err
		}
		if s.Outputs == nil {
			s.Outputs = map[string]config.Section{}
		}
		s.Outputs["influxdb"] = section
	}
	return s, nil
}

// section writes the flags as the output's configuration.
func (f influxFlags) section() (config.Section, error) {
	text, err := json.Marshal(map[string]string{"url": f.url, "token": f.token, "org": f.org, "bucket": f.bucket})
	if err != nil {
		return config.Section{}, err
	}
	return config.SectionOf("--influxdb flags", string(text))
}

// newLogger logs text to w from a level on.
func newLogger(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q: expected debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}

// pluginFolder finds the plugins that were built or installed with this binary.
func pluginFolder() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("where this binary lies: %w; name the plugin folder with --plugins", err)
	}
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		exe = real
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
	return "", fmt.Errorf("no plugins in %s or %s: run `make build`, or name their folder with --plugins", candidates[0], candidates[1])
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// terminalSize is a terminal's columns and lines, zero where they cannot be told.
func terminalSize(w io.Writer) (columns, lines int) {
	if f, ok := w.(*os.File); ok {
		columns, lines, _ = term.GetSize(int(f.Fd())) // 0 after an error
	}
	return columns, lines
}

// shutdownLimit bounds what a command does after it was asked to end.
const shutdownLimit = 15 * time.Second
