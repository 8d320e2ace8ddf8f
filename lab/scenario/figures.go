// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/netsketch/netsketch/lab/plot"
	"github.com/netsketch/netsketch/lab/scenario/score"
)

// WriteFigures writes the figures of the run's first algorithm that has any: base.svg, base.csv with the
// numbers, and base.md, a page with both and what became of the scenario's bounds. command is how
// they are made, for the page.
func (r *Run) WriteFigures(base, command string) error {
	for _, name := range r.scored {
		if i, ok := r.scorers[name].(score.Illustrator); ok {
			return r.writeFigures(i.Figures(), base, command)
		}
	}
	return fmt.Errorf("scenario: none of the algorithms %v draws figures", r.scored)
}

func (r *Run) writeFigures(f score.Figures, base, command string) error {
	svg, ok := plot.Column(f.Charts)
	if !ok {
		return fmt.Errorf("scenario: figures %s: there is nothing to draw", base)
	}
	var table bytes.Buffer
	w := csv.NewWriter(&table)
	if err := w.WriteAll(append([][]string{f.Columns}, f.Rows...)); err != nil {
		return fmt.Errorf("scenario: figures %s: %w", base, err)
	}
	rep, name := &r.report, filepath.Base(base)
	var page strings.Builder
	fmt.Fprintf(&page, "# %s\n\nScenario %s: %s. Made by `%s`, on the %s clock.\n\n", f.Title, rep.Scenario, r.s.Summary, command, rep.Clock)
	fmt.Fprintf(&page, "%d switches (%s), %d hosts, %d epochs of %v; %d packets sent. All figures were read over gNMI; the truth beside them is exact. Numbers: [%s.csv](%s.csv).\n\n%s\n",
		rep.Switches, rep.Program, rep.Hosts, len(rep.Epochs), r.s.Epoch, rep.Network.Sent, name, name, f.Text)
	if r.s.Notes != "" {
		fmt.Fprintf(&page, "%s\n\n", strings.TrimSpace(r.s.Notes))
	}
	if len(rep.Expected) > 0 {
		page.WriteString("| bound | of | value | kept |\n|---|---|---|---|\n")
		for _, v := range rep.Expected {
			kept := "yes"
			if !v.OK {
				kept = "**no**"
			}
			fmt.Fprintf(&page, "| %s | %s | %.5g | %s |\n", v.Bound, v.Dimension, v.Value, kept)
		}
	}
	fmt.Fprintf(&page, "\n![%s](%s.svg)\n", f.Title, name)
	for ext, data := range map[string][]byte{".svg": []byte(svg), ".csv": table.Bytes(), ".md": []byte(page.String())} {
		if err := os.WriteFile(base+ext, data, 0o644); err != nil { //nolint:gosec // figures are for everybody
			return fmt.Errorf("scenario: figures: %w", err)
		}
	}
	return nil
}
