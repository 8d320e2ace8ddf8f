// SPDX-License-Identifier: Apache-2.0

// Command figures measures what the papers' figures show and writes the pages, charts and tables of
// docs/figures. `make figures` runs it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "figures",
		Short: "The figures of the papers, measured here",
		Long: `Measures the sketches, ChameleMon's attention, OmniMon, SketchINT, LightGuardian and scenarios by
the tasks of the papers' figures, and writes a page, charts (SVG) and rows (CSV) for each.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cmd.AddCommand(sketchesCommand(), attentionCommand(), omnimonCommand(), sketchintCommand(), lightguardianCommand(),
		overtimeCommand(),
		overheadCommand(), accuracyCommand(), drawCommand())
	return cmd
}
