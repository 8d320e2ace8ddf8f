// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
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

	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/collector/schema"
	"github.com/netsketch/netsketch/internal/files"
	"github.com/netsketch/netsketch/internal/program"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/record"
)

type replayFlags struct {
	plugin, plugins string
	json            bool
	timeout         time.Duration
}

func replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay FILE --plugin NAME",
		Short: "Analyze a recording again and print the result tables",
		Long: "Analyze a recording again and print the result tables. A collector records what a plugin " +
			"receives when\n" +
			"the plugin's configuration has the key record. The recording holds the plugin's configuration, the\n" +
			"network and the epochs; results are checked against the plugin's YANG modules as in the collector.\n\n" +
			"Exit status: 0 if every epoch was analyzed, 2 if the recording is truncated or corrupt (the epochs\n" +
			"before the damage are printed), 1 after any other error.",
		Example: `  netsketch replay univmon.epochs --plugin univmon
  netsketch replay univmon.epochs --plugin ./my-plugin --json | jq '.tables[].list'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return replay(cmd, args[0], f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.plugin, "plugin", "", "`name` of the plugin in the plugin directory, or path of a binary")
	flags.StringVar(&f.plugins, "plugins", "", pluginsUsage)
	flags.BoolVar(&f.json, "json", false, "print one JSON object for each epoch")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "time for the analysis of one epoch")
	_ = cmd.MarkFlagRequired("plugin")
	return cmd
}

// replay feeds the recording to the plugin and prints the results of each epoch.
func replay(cmd *cobra.Command, file string, f replayFlags) error {
	in, err := files.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	path, err := f.binary()
	if err != nil {
		return err
	}
	player, err := newPlayer(slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)), path)
	if err != nil {
		return err
	}
	defer func() { _ = player.host.Close(context.WithoutCancel(cmd.Context())) }()
	emit := writeText
	if f.json {
		emit = writeJSON
	}
	reader, err := record.NewReader(in)
	failed := 0
	for err == nil {
		var epoch *sdk.Epoch
		var setup *record.Setup
		if epoch, setup, err = reader.Next(); err != nil {
			break
		}
		if err := player.configure(cmd.Context(), setup); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
		results, analyzing := player.analyze(ctx, epoch)
		cancel()
		if cmd.Context().Err() != nil {
			return cmd.Context().Err()
		}
		if analyzing != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "epoch %d: %v\n", epoch.Number, analyzing)
			failed++
			continue
		}
		if err := emit(cmd.OutOrStdout(), epoch, results); err != nil {
			return err
		}
	}
	switch {
	case errors.Is(err, record.ErrDamaged):
		return exitError{2, fmt.Errorf("%s: %w", file, err)}
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("%s: %w", file, err)
	case failed > 0:
		return fmt.Errorf("%s: %s not analyzed", file, counted(failed, "epoch"))
	}
	return nil
}

// binary returns the path of the plugin.
func (f replayFlags) binary() (string, error) {
	if strings.ContainsRune(f.plugin, filepath.Separator) {
		return f.plugin, nil
	}
	dir := f.plugins
	if dir == "" {
		var err error
		if dir, err = pluginDirectory(); err != nil {
			return "", err
		}
	}
	path := filepath.Join(dir, pluginhost.FilePrefix+f.plugin)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("no plugin %q in %s: see `%s plugin list`", f.plugin, dir, program.Name())
	}
	return path, nil
}

// player runs a plugin with the setups of a recording.
type player struct {
	host    *pluginhost.Host
	path    string
	schema  *schema.Registry
	plugin  *pluginhost.Instance // nil before the first epoch
	network *schema.Network
}

func newPlayer(logger *slog.Logger, path string) (*player, error) {
	registry, err := schema.New(nil)
	if err != nil {
		return nil, err
	}
	host, err := pluginhost.New(pluginhost.Options{Logger: logger})
	if err != nil {
		return nil, err
	}
	return &player{host: host, path: path, schema: registry}, nil
}

// configure starts the plugin with the first setup, and configures it again with later ones. A nil
// setup means that the setup did not change.
func (p *player) configure(ctx context.Context, setup *record.Setup) (err error) {
	if setup != nil {
		p.network = schema.NewNetwork(&setup.Network)
	}
	switch {
	case p.plugin == nil:
		p.plugin, err = p.host.Start(ctx, pluginhost.Spec{
			Path: p.path, Config: setup.Config, Network: setup.Network, EpochLength: setup.EpochLength,
			State: setup.State, LogLevel: slog.LevelWarn,
		})
		if err != nil {
			return err
		}
		return p.schema.Adopt(p.plugin.Describe())
	case setup != nil:
		return p.plugin.Configure(ctx, setup.Config, setup.Network)
	}
	return nil
}

// stop ends the plugin.
func (p *player) stop(ctx context.Context) {
	if p.plugin != nil {
		p.plugin.Stop(context.WithoutCancel(ctx))
	}
}

// analyze gives the plugin one epoch. It validates the plugin's results, and completes them as a
// collector does.
func (p *player) analyze(ctx context.Context, epoch *sdk.Epoch) (*sdk.Results, error) {
	p.plugin.SetWatched(epoch.Watched)
	results, err := p.plugin.Analyze(ctx, epoch)
	if err != nil {
		return nil, err
	}
	for i, r := range results.Tables {
		if err := p.schema.Validate(r.Table); err != nil {
			return nil, err
		}
		results.Tables[i].Table = p.schema.Complete(r.Table, p.network)
	}
	if results.State != nil {
		p.plugin.SetState(results.State)
	}
	return results, nil
}

// epochResults is the JSON form of an epoch's results.
type epochResults struct {
	Epoch  uint64         `json:"epoch"`
	Status string         `json:"status"`
	End    time.Time      `json:"end"`
	Tables []*resultTable `json:"tables"`
	Plans  []sdk.Plan     `json:"plans,omitempty"`
}

func resultsOf(epoch *sdk.Epoch, results *sdk.Results) epochResults {
	out := epochResults{Epoch: epoch.Number, Status: epoch.Status.String(), End: epoch.End.UTC(),
		Tables: []*resultTable{}, Plans: results.Plans}
	for _, r := range results.Tables {
		out.Tables = append(out.Tables, resultTableOf(r, out.End))
	}
	return out
}

// resultTableOf converts a table of an epoch that ended at the given time.
func resultTableOf(r sdk.TableResult, end time.Time) *resultTable {
	t := &resultTable{List: r.Table.List, Rows: []*resultRow{}}
	if !r.End.IsZero() {
		end = r.End
	}
	for i := range r.Table.Keys {
		t.keys = append(t.keys, r.Table.Keys[i].Name)
	}
	for i := range r.Table.Values {
		t.leaves = append(t.leaves, strings.TrimPrefix(r.Table.Values[i].Name, "state/"))
	}
	for n := range r.Table.Rows() {
		row := &resultRow{Target: r.Target, Time: end, Keys: make(map[string]string), Values: make(map[string]any)}
		for i, name := range t.keys {
			row.Keys[name] = string(r.Table.Keys[i].AppendText(nil, n))
		}
		for i, name := range t.leaves {
			if c := &r.Table.Values[i]; !c.Null(n) {
				row.Values[name] = c.Value(n)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// writeText prints an epoch's tables with aligned columns.
func writeText(w io.Writer, epoch *sdk.Epoch, results *sdk.Results) error {
	r := resultsOf(epoch, results)
	fmt.Fprintf(w, "epoch %d, %s, ended %s: %s, %s\n\n", r.Epoch, r.Status, r.End.Format(time.RFC3339Nano),
		counted(len(r.Tables), "table"), counted(len(r.Plans), "plan"))
	if err := printTables(w, r.Tables); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// writeJSON prints an epoch as one line of JSON.
func writeJSON(w io.Writer, epoch *sdk.Epoch, results *sdk.Results) error {
	return json.NewEncoder(w).Encode(resultsOf(epoch, results))
}
