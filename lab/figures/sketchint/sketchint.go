// SPDX-License-Identifier: Apache-2.0

// Package sketchint measures what Figures 7 and 8 of the SketchINT paper show, with the product's
// own code: the role of host agents, its reports, and the towers. It has no state.
package sketchint

import (
	"strings"

	"github.com/netsketch/netsketch/lab/figures/suite"
)

// Suites are all figures, in order.
func Suites() []suite.Suite { return []suite.Suite{globalFigure(), costFigure()} }

const prefix = "sketchint-"

// Command is the command line that measures a figure.
func Command(name string) string {
	return suite.Make("sketchint --figures " + strings.TrimPrefix(name, prefix) + " --out docs/figures")
}

// Select returns the suites of figures as the paper numbers them, such as 7; all for none.
func Select(figures []string) ([]suite.Suite, error) {
	var names []string
	for _, f := range figures {
		names = append(names, prefix+f)
	}
	return suite.Select(Suites(), names)
}

// Draw writes the pages and charts from the rows in a directory.
func Draw(directory string) error { return suite.Draw(directory, Suites(), Command) }
