// SPDX-License-Identifier: Apache-2.0

// Package omnimon measures the figures of the OmniMon paper, with the product's own code: mappings,
// data path of hosts, queries, compiled programs and analysis. It has no state.
//
// Numbers of figures are the numbers in the paper's captions. Columns with the paper's numbers have
// only values that its text and tables state.
package omnimon

import (
	"fmt"

	"github.com/netsketch/netsketch/lab/figures/suite"
)

// Paths in the repository's root, where the command runs. Tests change to that directory.
const (
	queryDirectory = "examples/omnimon/queries"
	programs       = "p4/programs"
)

// Paper returns all figures.
func Paper() suite.Paper {
	return suite.Paper{Subcommand: "omnimon", Prefix: prefix, Suites: []suite.Suite{
		linesTable(), overheadFigure(), consistencyFigure(), accountabilityFigure(), scalabilityFigure(),
		memoryFigure(), diagnosisFigure(), missingFigure(), queryFigure(), balanceFigure()}}
}

const prefix = "omnimon-"

// stated formats a number of the paper.
func stated(v float64) string {
	if v == none {
		return ""
	}
	return fmt.Sprintf("%.4g", v)
}
