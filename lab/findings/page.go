// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Aims of all plugins.
const (
	leastRecall    = 0.95
	leastPrecision = 0.98
	mostFalse      = 0.001 // alerts in a healthy epoch
)

// table returns the counts as Markdown.
func (r *run) table(sums map[string]*tally) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Seeds %d to %d on %s, share %g of the packets,\n%s.\n", r.seed, r.seed+uint64(r.seeds)-1,
		strings.ReplaceAll(r.topologies, ",", ", "), r.share, r.began)
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		t := sums[name]
		if len(t.kinds) > 0 {
			fmt.Fprintf(&b, "\n| %s: fault | found | recall (95 %%) | found of incomplete epochs | reported | right | "+
				"precision (95 %%) | near the threshold | reported | exactly: recall, precision |\n|%s\n", name,
				strings.Repeat("---|", 10))
			for _, kind := range slices.Sorted(maps.Keys(t.kinds)) {
				f := t.kinds[kind]
				fmt.Fprintf(&b, "| %s | %d of %d | %s | %d of %d | %d | %d | %s | %d | %d | %.3f, %.3f |\n", kind, f.found.n,
					f.found.of, percent(f.found), f.incomplete.n, f.incomplete.of, f.right.of, f.right.n, percent(f.right),
					f.near.of, f.near.n, f.exactly.Recall(), f.exactly.Precision())
			}
		}
		fmt.Fprintf(&b, "\n| %s: healthy networks | epochs | false alerts | in 1,000 epochs (95 %%) |\n|---|---|---|---|\n",
			name)
		all := share{}
		for _, what := range slices.Sorted(maps.Keys(t.healthy)) {
			s := t.healthy[what]
			all.n, all.of = all.n+s.n, all.of+s.of
			fmt.Fprintf(&b, "| %s | %d | %d | %s |\n", what, s.of, s.n, perThousand(*s))
		}
		fmt.Fprintf(&b, "| all | %d | %d | %s |\n", all.of, all.n, perThousand(all))
	}
	return b.String()
}

func percent(s share) string {
	if s.of == 0 {
		return "none"
	}
	low, high := s.interval()
	return fmt.Sprintf("%.3f (%.3f to %.3f)", s.value(), low, high)
}

func perThousand(s share) string {
	low, high := s.rate()
	return fmt.Sprintf("%.1f (%.1f to %.1f)", 1000*float64(s.n)/float64(max(s.of, 1)), 1000*low, 1000*high)
}

// aims returns an error that names what misses its aim.
func aims(sums map[string]*tally) error {
	var errs []error
	alerts := share{}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		for _, kind := range slices.Sorted(maps.Keys(sums[name].kinds)) {
			f := sums[name].kinds[kind]
			if f.found.value() < leastRecall {
				errs = append(errs, fmt.Errorf("%s: recall of %s is %.3f; the aim is %v", name, kind, f.found.value(),
					leastRecall))
			}
			if f.right.value() < leastPrecision {
				errs = append(errs, fmt.Errorf("%s: precision of %s is %.3f; the aim is %v", name, kind, f.right.value(),
					leastPrecision))
			}
		}
		for _, s := range sums[name].healthy {
			alerts.n, alerts.of = alerts.n+s.n, alerts.of+s.of
		}
	}
	if rate := float64(alerts.n) / float64(max(alerts.of, 1)); rate > mostFalse {
		errs = append(errs, fmt.Errorf("%d false alerts in %d healthy epochs; the aim is 1 in %.0f", alerts.n, alerts.of,
			1/mostFalse))
	}
	return errors.Join(errs...)
}

// The table stands between these lines of the page.
const (
	begin = "<!-- `make findings` -->\n"
	end   = "<!-- end -->\n"
)

// write replaces the table of a page.
func write(path, text string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return fmt.Errorf("%s: the lines %q and %q are not there", path, begin, end)
	}
	return os.WriteFile(path, []byte(before+begin+"\n"+text+"\n"+end+after), 0o644) //nolint:gosec // a page
}
