// SPDX-License-Identifier: Apache-2.0

// Package sketches measures accuracy and speed of the structures under sketch, on any traffic, by
// the tasks of the papers' figures. It has no state. The same trace and seed give the same rows,
// except times and speeds.
package sketches

import (
	"slices"

	"github.com/netsketch/netsketch/lab/figures/losses"
	"github.com/netsketch/netsketch/lab/figures/manifests"
	"github.com/netsketch/netsketch/lab/figures/suite"
)

// Suites are all figures, in order.
func Suites() []suite.Suite {
	return slices.Concat(
		[]suite.Suite{sketchintFigure5(), sketchintFigure6()}, losses.Suites(),
		[]suite.Suite{chamelemonFigure11(), lightguardianFigure5(), univmonFigure7(), univmonFigure8(), univmonFigure10(),
			univmonFigure11(), univmonFigure12(), univmonFigure13()}, manifests.Suites(),
		[]suite.Suite{accuracyT1(), speedSuite()})
}

// Draw writes the pages and charts of all suites from the rows recorded in a directory. The
// rows must be of the standard trace, as those in docs/figures are.
func Draw(directory string) error { return suite.Draw(directory, Suites(), command) }

// command is the command line of the committed figures.
func command(name string) string { return suite.Command("zipf:1.1", 2_000_000, 1, name) }
