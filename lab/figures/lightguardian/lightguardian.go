// SPDX-License-Identifier: Apache-2.0

// Package lightguardian measures the figures of the LightGuardian paper beyond Figure 5, with the
// product's own code: SuMax, its partial reconstruction, and the analysis of the plugin. Switches
// select sketchlets as p4/programs/include/lightguardian.p4 does. The package has no state.
//
// Numbers of figures are the numbers in the paper's captions. Columns with the paper's numbers have
// only values that its text and tables state.
package lightguardian

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/sketch/family"
)

// hash is the hash of the switch program.
type hash = family.P4

// Paper returns all figures.
func Paper() suite.Paper {
	return suite.Paper{Subcommand: "lightguardian", Prefix: prefix,
		Suites: []suite.Suite{locatingFigure(), collectionFigure(), taskFigure(), delayFigure()}}
}

const prefix = "lightguardian-"

// inTurn does work on two processors and returns its rows in order.
func inTurn(ctx context.Context, work []func() ([]suite.Row, error)) ([]suite.Row, error) {
	parts := make([][]suite.Row, len(work))
	var g errgroup.Group
	g.SetLimit(2)
	for i, do := range work {
		g.Go(func() (err error) {
			if err := ctx.Err(); err != nil {
				return err
			}
			parts[i], err = do()
			return err
		})
	}
	err := g.Wait()
	return slices.Concat(parts...), err
}
