// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Recorded returns the rows of a suite that are recorded in a directory.
func Recorded(directory, name string) ([]Row, error) {
	f, err := os.Open(filepath.Join(directory, name+".csv"))
	if err != nil {
		return nil, err
	}
	rows, err := ReadCSV(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return rows, nil
}

// Draw writes the pages and charts of suites from the rows recorded in a directory. command returns
// the command line that measures a suite.
func Draw(directory string, suites []Suite, command func(name string) string) error {
	for _, s := range suites {
		rows, err := Recorded(directory, s.Name)
		if err != nil {
			return err
		}
		if err := s.draw(directory, rows, command(s.Name)); err != nil {
			return err
		}
	}
	return nil
}

// CheckPages returns what differs if the pages and charts of suites in a directory do not follow
// from their rows, or if it has another file of a suite.
func CheckPages(directory string, suites []Suite, command func(name string) string) (problems []error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return []error{err}
	}
	for _, s := range suites {
		rows, err := Recorded(directory, s.Name)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		files, err := s.files(rows, command(s.Name))
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for name, data := range files {
			recorded, err := os.ReadFile(filepath.Join(directory, name))
			switch {
			case err != nil:
				problems = append(problems, err)
			case !bytes.Equal(recorded, data):
				problems = append(problems, fmt.Errorf("%s differs from its rows: write it with `make figures`", name))
			}
		}
		n := 1 + len(s.Plots)
		if len(s.Claims) > 0 {
			n++
		}
		if len(files) != n {
			problems = append(problems, fmt.Errorf("%s: %d files, want %d: a chart has no rows", s.Name, len(files), n))
		}
		for _, e := range entries {
			rest, ours := strings.CutPrefix(e.Name(), s.Name)
			if ours && files[e.Name()] == nil && rest != ".csv" && (rest[0] == '-' || rest[0] == '.') {
				problems = append(problems, fmt.Errorf("%s belongs to no figure", e.Name()))
			}
		}
	}
	return problems
}

// omitted returns the figures of a page that have other numbers of claims than the paper has
// sentences.
func (p *Page) omitted() (problems []error) {
	claims := map[string]int{}
	for i := range p.Claims {
		claims[p.Claims[i].Figure]++
	}
	figures := maps.Clone(claims)
	maps.Copy(figures, p.Sentences)
	for _, figure := range slices.Sorted(maps.Keys(figures)) {
		if n, of := claims[figure], p.Sentences[figure]; n != of {
			problems = append(problems, fmt.Errorf("figure %s has %d claims; the paper has %d statements about it", figure, n,
				of))
		}
	}
	return problems
}

// CheckClaims returns the statements of the papers that are omitted, that do not hold for the
// recorded rows and have no reason, that hold and have a reason, or that miss a value.
func CheckClaims(directory string, suites []Suite) (problems []error) {
	for _, s := range suites {
		for _, err := range s.omitted() {
			problems = append(problems, fmt.Errorf("%s: %w", s.Name, err))
		}
		rows, err := Recorded(directory, s.Name)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		verdicts, err := s.Judge(rows)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", s.Name, err))
		}
		for _, v := range verdicts {
			problem := ""
			switch {
			case strings.Contains(v.Here, Short(math.NaN())):
				problem = "a value is missing"
			case v.Open || v.Apart != "":
			case !v.Holds && v.Why == "":
				problem = "does not hold"
			case v.Holds && v.Why != "":
				problem = "holds, so the reason why not is out of date"
			}
			if problem != "" {
				problems = append(problems, fmt.Errorf("%s %s: %q %s: %s", s.Name, v.Figure, v.Paper, problem, v.Here))
			}
		}
	}
	return problems
}

// Names are the names of suites.
func Names(suites []Suite) (names []string) {
	for _, s := range suites {
		names = append(names, s.Name)
	}
	return names
}

// Select returns the suites of the given names, all for none.
func Select(all []Suite, names []string) (out []Suite, err error) {
	if len(names) == 0 {
		return all, nil
	}
	for _, n := range names {
		i := slices.IndexFunc(all, func(s Suite) bool { return s.Name == n })
		if i < 0 {
			return nil, fmt.Errorf("there is no figure %q; the figures are %s", n, strings.Join(Names(all), ", "))
		}
		out = append(out, all[i])
	}
	return out, nil
}
