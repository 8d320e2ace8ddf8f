// SPDX-License-Identifier: Apache-2.0

// Package lightguardian measures the figures of the LightGuardian paper beyond Figure 5, with the
// product's own code: SuMax, its partial reconstruction, and the analysis of the plugin. Switches
// select sketchlets as docs/lightguardian-p4.md defines it. The package has no state.
//
// Numbers of figures are the numbers in the paper's captions. Columns with the paper's numbers have
// only values that its text and tables state.
package lightguardian

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/sketch/family"
)

// hash is the hash of the switch program.
type hash = family.P4

// Suites are all figures, in order.
func Suites() []suite.Suite {
	return []suite.Suite{locatingFigure(), collectionFigure(), taskFigure(), delayFigure()}
}

const prefix = "lightguardian-"

// Command is the command line that measures a figure.
func Command(name string) string {
	return suite.Make("lightguardian --figures " + strings.TrimPrefix(name, prefix) + " --out docs/figures")
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
