// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/lab/figures/accuracy"
	"github.com/netsketch/netsketch/lab/figures/sketches"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
)

// sketchesFlags are the flags of the sketches command.
type sketchesFlags struct {
	trace   string
	packets int
	figures []string
	options suite.Options
	json    bool
	csv     string
	plots   string
	peers   []string
}

func sketchesCommand() *cobra.Command {
	var f sketchesFlags
	cmd := &cobra.Command{
		Use:   "sketches",
		Short: "Accuracy and speed of the sketches, by the figures of the papers",
		Long: `Runs the tasks of the papers' figures over a trace and prints a table.

Traces: zipf:SKEW, cdf:FILE (lines of a flow size and the share of flows not larger),
pcap:FILE, records:FILE (records of a 13-byte key and an 8-byte time).
Figures: ` + strings.Join(suite.Names(sketches.Suites()), " ") + `;
all when none is named. Everything but times and speeds comes out the same each time.`,
		Example: `  figures sketches --figures speed
  figures sketches --trace pcap:capture.pcap.gz --figures sketchint-5 --csv errors.csv --plots plots
  figures sketches --plots docs/figures`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runSketches(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), f)
		},
	}
	cmd.Flags().StringVar(&f.trace, "trace", "zipf:1.1", "traffic: zipf:SKEW, cdf:FILE, pcap:FILE or records:FILE")
	cmd.Flags().IntVar(&f.packets, "packets", 2_000_000, "packets of generated traffic")
	cmd.Flags().StringSliceVar(&f.figures, "figures", nil, "figures to run, by name; all when empty")
	cmd.Flags().Uint64Var(&f.options.Seed, "seed", 1, "of generated traffic and of the hashes")
	cmd.Flags().IntVar(&f.options.Runs, "runs", 5,
		"seeds of the hashes that a figure is the mean or median of, and runs of speed measurements")
	cmd.Flags().IntVar(&f.options.Decodings, "decodings", 10_000, "decodings, at most, of which 99.9 % must succeed")
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON array instead of the table")
	cmd.Flags().StringVar(&f.csv, "csv", "", "also write the rows to this file")
	cmd.Flags().
		StringVar(&f.plots, "plots", "", "also write SVG plots, a page and the rows as CSV for each figure to this "+
			"directory")
	cmd.Flags().StringArrayVar(&f.peers, "peer", nil, "NAME=COMMAND of a program to compare speeds with, in the figures "+
		"speed and sketchint-6; repeatable. The comment of Peer in lab/figures/suite says what it reads and prints")
	return cmd
}

// parsePeers reads NAME=COMMAND; spaces separate the command's arguments.
func parsePeers(flags []string) (peers []suite.Peer, err error) {
	for _, s := range flags {
		name, command, _ := strings.Cut(s, "=")
		p := suite.Peer{Name: name, Command: strings.Fields(command)}
		if strings.TrimSpace(name) == "" || strings.ContainsAny(name, "|\n") || len(p.Command) == 0 ||
			slices.ContainsFunc(peers, func(o suite.Peer) bool { return o.Name == name }) {
			return nil, fmt.Errorf("--peer %q: expected NAME=COMMAND, each name once", s)
		}
		peers = append(peers, p)
	}
	return peers, nil
}

func runSketches(ctx context.Context, out, progress io.Writer, f sketchesFlags) error {
	suites, err := suite.Select(sketches.Suites(), f.figures)
	if err != nil {
		return err
	}
	if f.options.Runs < 1 {
		return fmt.Errorf("--runs %d: at least 1", f.options.Runs)
	}
	if f.options.Decodings < 1 {
		return fmt.Errorf("--decodings %d: at least 1", f.options.Decodings)
	}
	if f.csv != "" {
		if err := writable("--csv", filepath.Dir(f.csv)); err != nil {
			return err
		}
	}
	if f.plots != "" {
		if err := writable("--plots", f.plots); err != nil {
			return err
		}
	}
	if f.options.Peers, err = parsePeers(f.peers); err != nil {
		return err
	}
	t, err := trace.Load(f.trace, f.packets, f.options.Seed)
	if err != nil {
		return err
	}
	fmt.Fprintf(
		progress,
		"%s: %d packets of %d flows, keys of %d bytes; %d packets are IPv6; %d that are no IP, or broken, are left "+
			"out\n",
		t.Name,
		t.Len(),
		len(t.Flows()),
		t.KeyBytes(),
		t.Left.IPv6,
		t.Left.Out,
	)
	rows := []suite.Row{}
	for _, s := range suites {
		start := time.Now()
		r, err := s.Run(ctx, t, f.options)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		fmt.Fprintf(progress, "%s: %.0f s\n", s.Title, time.Since(start).Seconds())
		rows = append(rows, r...)
		if f.plots != "" {
			if err := s.Write(f.plots, r, suite.Command(f.trace, f.packets, f.options.Seed, s.Name)); err != nil {
				return err
			}
		}
	}
	if f.csv != "" {
		if err := writeRows(f.csv, rows); err != nil {
			return err
		}
	}
	if f.json {
		e := json.NewEncoder(out)
		e.SetIndent("", " ")
		return e.Encode(rows)
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "STRUCTURE\tVARIANT\tBYTES\tTASK\tMETRIC\tVALUE\tUNIT")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%.4g\t%s\n", r.Structure, r.Variant, r.Memory, r.Task, r.Metric, r.Value,
			r.Unit)
	}
	return w.Flush()
}

func writeRows(name string, rows []suite.Row) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(suite.WriteCSV(file, rows), file.Close())
}

func accuracyCommand() *cobra.Command {
	var part accuracy.Selection
	var draws, most int
	var seed uint64
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "accuracy",
		Short: "What plugins publish from 1,000 to 4 million flows of nine kinds of traffic, against ground truth, as CSV",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if draws > 0 {
				if seed == 0 {
					seed = uint64(time.Now().UnixNano())
				}
				return accuracy.Draws(cmd.Context(), cmd.OutOrStdout(), part.Algorithms, draws, most, seed, limit)
			}
			return accuracy.Table(cmd.Context(), cmd.OutOrStdout(), part)
		},
	}
	cmd.Flags().StringSliceVar(&part.Algorithms, "algorithms", nil, "algorithms to measure; all when empty")
	cmd.Flags().StringSliceVar(&part.Traffic, "traffic", nil, "traffic to measure; all when empty")
	cmd.Flags().IntSliceVar(&part.Flows, "flows", nil, "numbers of flows to measure; all when empty")
	cmd.Flags().IntVar(&draws, "draws", 0, "draw traffic so many times at random instead, and fail if a value is "+
		"further from ground truth than the plugin says")
	cmd.Flags().IntVar(&most, "most", 1_000_000, "most flows of drawn traffic")
	cmd.Flags().Uint64Var(&seed, "seed", 0, "seed of drawn traffic; 0 takes one from the clock")
	cmd.Flags().DurationVar(&limit, "time", time.Hour, "time after which no more traffic is drawn")
	return cmd
}
