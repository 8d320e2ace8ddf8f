// SPDX-License-Identifier: Apache-2.0

// Package omnimon measures the figures of the OmniMon paper, with the product's own code: mappings,
// data path of hosts, queries, compiled programs and analysis. It has no state.
//
// Numbers of figures are the numbers in the paper's captions. Columns with the paper's numbers have
// only values that its text and tables state.
package omnimon

import (
	"fmt"
	"strings"

	"github.com/netsketch/netsketch/lab/figures/suite"
)

// The command runs in the repository; its tests change to it.
const (
	queryDirectory = "examples/omnimon/queries"
	programs       = "p4/programs"
)

// Suites are all figures, in order.
func Suites() []suite.Suite {
	return []suite.Suite{linesTable(), overheadFigure(), consistencyFigure(), accountabilityFigure(),
		scalabilityFigure(), memoryFigure(), diagnosisFigure(), missingFigure(), queryFigure(), balanceFigure()}
}

const prefix = "omnimon-"

// Command is the command line that measures a figure.
func Command(name string) string {
	return suite.Make("omnimon --figures " + strings.TrimPrefix(name, prefix) + " --out docs/figures")
}

// Select returns the suites of figures as the paper numbers them, such as 12 or table-1; all for
// none.
func Select(figures []string) ([]suite.Suite, error) {
	var names []string
	for _, f := range figures {
		names = append(names, prefix+f)
	}
	return suite.Select(Suites(), names)
}

// Draw writes the pages and charts from the rows in a directory.
func Draw(directory string) error { return suite.Draw(directory, Suites(), Command) }

// stated formats a number of the paper.
func stated(v float64) string {
	if v == none {
		return ""
	}
	return fmt.Sprintf("%.4g", v)
}
