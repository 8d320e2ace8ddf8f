// SPDX-License-Identifier: Apache-2.0

package score

import (
	"math"
	"slices"
)

// Stat compares the published rows of a view with the true ones; ok is false if there is nothing to
// compare.
type Stat func(m *Measure, published, actual Rows) (s Score, ok bool)

// Some is a measure of rows that must exist: a view without published and true rows is not
// measured.
func Some(of Stat) Stat {
	return func(m *Measure, published, actual Rows) (Score, bool) {
		if len(published) == 0 && len(actual) == 0 {
			return Score{}, false
		}
		return of(m, published, actual)
	}
}

// confusion counts right and wrong published keys, once for all rows and once for the rows near a
// threshold.
func confusion(published, actual Rows) (s Score) {
	s.Counts, s.Near = &Confusion{}, &Confusion{}
	for key, row := range actual {
		_, found := published[key]
		add := func(of func(*Confusion) *int, wrong *[]string) {
			*of(s.Counts)++
			if row.Near {
				*of(s.Near)++
			} else if wrong != nil {
				*wrong = append(*wrong, key)
			}
		}
		switch {
		case row.Optional:
		case row.Unwanted && found:
			add(func(c *Confusion) *int { return &c.FalsePositive }, &s.False)
		case row.Unwanted:
		case found:
			add(func(c *Confusion) *int { return &c.TruePositive }, nil)
		default:
			add(func(c *Confusion) *int { return &c.FalseNegative }, &s.Missed)
		}
	}
	for key := range published {
		if actual[key] == nil {
			s.Counts.FalsePositive++
			s.False = append(s.False, key)
		}
	}
	slices.Sort(s.False)
	slices.Sort(s.Missed)
	return s
}

func pooled(s Score, pool func(Confusion) float64) (Score, bool) {
	s.Value, s.pool = pool(*s.Counts), pool
	return s, true
}

// ShareOf is the score of a share, of which more is better.
func ShareOf(v float64) Score { return Score{Value: v, least: true} }

// F1 is the harmonic mean of precision and recall of the rows' keys.
func F1(_ *Measure, published, actual Rows) (Score, bool) {
	s := confusion(published, actual)
	s.Reported, s.Actual = make(map[string]bool, len(published)), make(map[string]bool, len(actual))
	for key := range published {
		s.Reported[key] = true
	}
	for key, row := range actual {
		if !row.Unwanted || row.Near {
			s.Actual[key] = true
		}
	}
	return pooled(s, Confusion.F1)
}

// Precision is the share of the published rows that are true.
func Precision(_ *Measure, published, actual Rows) (Score, bool) {
	return pooled(confusion(published, actual), Confusion.Precision)
}

// Recall is the share of the true rows that are published.
func Recall(_ *Measure, published, actual Rows) (Score, bool) {
	return pooled(confusion(published, actual), Confusion.Recall)
}

// Correct is the share of the true rows that are published with the true values of all Leaves.
func Correct(m *Measure, published, actual Rows) (Score, bool) {
	return pooled(Score{Counts: correct(m, published, actual, true)}, Confusion.Recall)
}

// FoundCorrect is the share of the true rows that are published which have the true values of all
// Leaves.
func FoundCorrect(m *Measure, published, actual Rows) (Score, bool) {
	return pooled(Score{Counts: correct(m, published, actual, false)}, Confusion.Recall)
}

func correct(m *Measure, published, actual Rows, missing bool) *Confusion {
	c := &Confusion{}
	for key, row := range actual {
		found := published[key]
		if row.Unwanted || row.Optional || found == nil && !missing {
			continue
		}
		if equal(found, row, m.Leaves, m.Tolerance) {
			c.TruePositive++
		} else {
			c.FalseNegative++
		}
	}
	return c
}

// equal reports whether a published row has the true values of leaves.
func equal(published, actual *Row, leaves []string, tolerance float64) bool {
	if published == nil {
		return false
	}
	for _, leaf := range leaves {
		a, ok := published.Leaves[leaf]
		if b := actual.Leaves[leaf]; !ok || !same(a, b, tolerance) {
			return false
		}
	}
	return true
}

func same(a, b Value, tolerance float64) bool {
	return a.Text == b.Text && (a.Number == b.Number || Of(a.Number, b.Number).Error() <= tolerance)
}

// RelativeError is the mean relative error of a leaf over the true rows. A row that is not
// published has the value 0; a row whose leaf is not published does not count.
func RelativeError(m *Measure, published, actual Rows) (Score, bool) {
	return meanError(m, published, actual, true)
}

// FoundError is RelativeError over the true rows that are published.
func FoundError(m *Measure, published, actual Rows) (Score, bool) {
	return meanError(m, published, actual, false)
}

func meanError(m *Measure, published, actual Rows, missing bool) (Score, bool) {
	sum, n, wanted := 0.0, 0, 0
	for key, row := range actual {
		want, ok := row.Number(m.Leaves[0])
		if !ok || row.Unwanted || row.Optional {
			continue
		}
		wanted++
		found := published[key]
		got, ok := found.Number(m.Leaves[0])
		if !ok && (found != nil || !missing) {
			continue
		}
		sum += Of(got, want).Error()
		n++
	}
	if n == 0 {
		return Score{}, missing && wanted == 0
	}
	return Score{Value: sum / float64(n)}, true
}

// SumError is the relative error of the sum of a leaf over all rows.
func SumError(m *Measure, published, actual Rows) (Score, bool) {
	f := Of(sum(published, m.Leaves[0]), sum(actual, m.Leaves[0]))
	return Score{Value: f.Error(), Figure: &f}, true
}

func sum(rows Rows, leaf string) (total float64) {
	for _, row := range rows {
		if !row.Unwanted {
			total += row.Value(leaf)
		}
	}
	return total
}

// WMRE is the weighted mean relative error of a leaf over the rows of a distribution: the sum of
// the differences over the mean of both sums.
func WMRE(m *Measure, published, actual Rows) (Score, bool) {
	if len(published) == 0 {
		return Score{}, false
	}
	difference := 0.0
	for key, row := range actual {
		difference += math.Abs(row.Value(m.Leaves[0]) - published[key].Value(m.Leaves[0]))
	}
	for key, row := range published {
		if actual[key] == nil {
			difference += row.Value(m.Leaves[0])
		}
	}
	both := sum(published, m.Leaves[0]) + sum(actual, m.Leaves[0])
	if both == 0 {
		return Score{}, true
	}
	return Score{Value: 2 * difference / both}, true
}

// Share is the share of published rows with the status COMPLETE in a leaf. Without a row it is 0.
func Share(m *Measure, published, _ Rows) (Score, bool) {
	var c Confusion
	if len(published) == 0 {
		c.FalseNegative++
	}
	for _, row := range published {
		if row.Text(m.Leaves[0]) == "COMPLETE" {
			c.TruePositive++
		} else {
			c.FalseNegative++
		}
	}
	return pooled(Score{Counts: &c}, Confusion.Recall)
}
