// SPDX-License-Identifier: Apache-2.0

package suite

import "strings"

// Paper has figures of one paper.
type Paper struct {
	// Subcommand is the subcommand of figures that measures them, and Prefix precedes the number of a
	// figure in the name of its suite.
	Subcommand, Prefix string
	Suites             []Suite // in order
}

// Command is the command line that measures the figure of a suite.
func (p Paper) Command(name string) string {
	return Make(p.Subcommand + " --figures " + strings.TrimPrefix(name, p.Prefix) + " --out docs/figures")
}

// Select returns the suites of figures as the paper numbers them, such as 7 or table-1; all for
// none.
func (p Paper) Select(figures []string) ([]Suite, error) {
	var names []string
	for _, f := range figures {
		names = append(names, p.Prefix+f)
	}
	return Select(p.Suites, names)
}

// Draw writes the pages and charts from the rows in a directory.
func (p Paper) Draw(directory string) error { return Draw(directory, p.Suites, p.Command) }
