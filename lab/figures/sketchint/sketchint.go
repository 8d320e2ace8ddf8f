// SPDX-License-Identifier: Apache-2.0

// Package sketchint measures what Figures 7 and 8 of the SketchINT paper show, with the product's
// own code: the role of host agents, its reports, and the towers. It has no state.
package sketchint

import "github.com/netsketch/netsketch/lab/figures/suite"

// Paper returns all figures.
func Paper() suite.Paper {
	return suite.Paper{Subcommand: "sketchint", Prefix: prefix, Suites: []suite.Suite{globalFigure(), costFigure()}}
}

const prefix = "sketchint-"
