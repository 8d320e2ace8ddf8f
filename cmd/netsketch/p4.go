// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/internal/files"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/trial"
)

func p4Command() *cobra.Command {
	cmd := &cobra.Command{Use: "p4", Short: "Check P4 programs, and begin a program of your own"}
	var info string
	check := &cobra.Command{
		Use:   "check FILE",
		Short: "Print what the collector reads from switches that run a program, and what is missing",
		Long: "Print what the collector reads from switches that run a program, and what is missing. FILE is the BMv2\n" +
			"JSON that p4c writes; its P4Info is FILE with .p4info.txtpb instead of .json. The program is loaded into\n" +
			"a soft switch, which reads a bank of each register by packet.",
		Example: "  netsketch p4 check p4/mysketch.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			base, isJSON := strings.CutSuffix(args[0], ".json")
			switch {
			case info == "" && !isJSON:
				return fmt.Errorf("%s: expected the file NAME.json that p4c writes, or --p4info with the file of its P4Info",
					args[0])
			case info == "":
				info = base + ".p4info.txtpb"
			}
			p, err := p4rt.ReadProgram(args[0], info)
			if err != nil {
				return errors.Join(err, checkJSON(args[0]))
			}
			for _, source := range changedSources(base) {
				fmt.Fprintf(cmd.OutOrStdout(), "warning: %s has changed since %s was compiled: run make p4\n", source, args[0])
			}
			return checkP4(cmd.Context(), cmd.OutOrStdout(), p)
		},
	}
	check.Flags().StringVar(&info, "p4info", "", "`file` with the P4Info, as text or binary")
	cmd.AddCommand(check, p4NewCommand())
	return cmd
}

// changedSources returns the sources of a compiled program that differ from the digests in the list
// that make p4 writes, BASE.sha256; none if there is no such list.
func changedSources(base string) (changed []string) {
	list, err := files.Read(base + ".sha256")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(list)) {
		digest, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if filepath.Ext(name) != ".p4" {
			continue
		}
		text, err := files.Read(filepath.Join(filepath.Dir(base), name))
		if err != nil || fmt.Sprintf("%x", sha256.Sum256(text)) != digest {
			changed = append(changed, name)
		}
	}
	return changed
}

// checkJSON returns an error if the device config in a file is not BMv2 JSON. It returns nil if the
// file cannot be read.
func checkJSON(path string) error {
	text, err := files.ReadText(path)
	if err != nil {
		return nil
	}
	if _, err = softswitch.Compile(text); err != nil {
		return fmt.Errorf("program %s: %w", path, err)
	}
	return nil
}

// checkP4 prints what the collector reads from switches with a program.
func checkP4(ctx context.Context, out io.Writer, p *p4rt.Program) error {
	m, err := device.Inspect(p)
	if m != nil {
		for _, name := range m.Unread {
			fmt.Fprintf(out, "not read: register %s has no @%s\n", name, p4values.AnnotationReadout)
		}
	}
	if err != nil {
		return fmt.Errorf("program %s: %w", p.Name, err)
	}
	kind := "bank"
	if m.Windowed {
		kind = "window of epochs"
	}
	fmt.Fprintf(out, "%s: table %s selects the %s; %d banks\n", p.Name, m.Table, kind, m.Banks)
	cells := 0
	for _, o := range m.Objects {
		fmt.Fprintf(out, "register %s: %d cells of %d bits in a bank, %d bytes as a plugin receives them\n", o.Name,
			o.Cells, o.Width, 4*o.Cells)
		cells += o.Cells
	}
	if len(m.Objects) == 0 {
		return fmt.Errorf("no register has @%s, so nothing is read", p4values.AnnotationReadout)
	}
	t, err := trial.New(p)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := t.Check(); err != nil {
		return err
	}
	if m.ByPacket {
		took, err := t.ByPacket()
		fmt.Fprintf(out, "read-out: by %d packets in each epoch, which took this machine's soft switch %v\n",
			(cells+p4rt.ReadoutCells-1)/p4rt.ReadoutCells, rounded(took))
		return err
	}
	empty, full, err := t.ByRegister(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "read-out: by RegisterEntry, %d cells one by one, which took %v from this machine's soft switch, "+
		"and %v if each of them had to be cleared: %v a cell; with the headers packet_in and packet_out of netsketch's "+
		"includes, a packet reads %d\n", cells, rounded(empty), rounded(full),
		(full / time.Duration(cells)).Round(10*time.Nanosecond), p4rt.ReadoutCells)
	return nil
}

// rounded returns a duration in steps of 10 µs.
func rounded(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
