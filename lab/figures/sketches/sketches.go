// SPDX-License-Identifier: Apache-2.0

// Package sketches measures accuracy and speed of the structures under sketch, on any traffic, by
// the tasks of the papers' figures. It has no state. The same trace and seed give the same rows,
// except times and speeds.
package sketches

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/lab/figures/suite"
)

// Suites are all figures, in order.
func Suites() []suite.Suite {
	return []suite.Suite{
		sketchintFigure5(), chamelemonFigure4(), chamelemonFigure5(), chamelemonFigure6(), chamelemonFigure11(),
		lightguardianFigure5(),
		univmonFigure8(), univmonFigure10(), univmonFigure11(), univmonFigure13(), accuracyT1(), speedSuite(),
	}
}

// Select returns the suites of the given names, all for none.
func Select(names []string) ([]suite.Suite, error) {
	all := Suites()
	if len(names) == 0 {
		return all, nil
	}
	var out []suite.Suite
	for _, n := range names {
		i := slices.IndexFunc(all, func(s suite.Suite) bool { return s.Name == n })
		if i < 0 {
			return nil, fmt.Errorf("figure %q: there is none of that name; there are %s", n,
				strings.Join(Names(), ", "))
		}
		out = append(out, all[i])
	}
	return out, nil
}

// Names are the names of all figures, in order.
func Names() (names []string) {
	for _, s := range Suites() {
		names = append(names, s.Name)
	}
	return names
}

// Draw writes the pages and charts of all suites from the rows recorded in a directory. The
// rows must be of the standard trace, as those in docs/figures are.
func Draw(directory string) error {
	for _, s := range Suites() {
		f, err := os.Open(filepath.Join(directory, s.Name+".csv"))
		if err != nil {
			return err
		}
		rows, err := suite.ReadCSV(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		if err := s.Write(directory, rows, suite.Command("zipf:1.1", 2_000_000, 1, s.Name)); err != nil {
			return err
		}
	}
	return nil
}
