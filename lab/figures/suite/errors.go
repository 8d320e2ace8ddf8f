// SPDX-License-Identifier: Apache-2.0

package suite

import "math"

// Relative returns the relative error of a value; the value itself if 0 is right.
func Relative(got, want float64) float64 {
	if want == 0 {
		return math.Abs(got)
	}
	return math.Abs(got-want) / math.Abs(want)
}

// F1 is the F1 score of found against the ground truth.
func F1[V any](found map[string]float64, truth map[string]V) float64 {
	hits := 0
	for k := range found {
		if _, ok := truth[k]; ok {
			hits++
		}
	}
	if len(found)+len(truth) == 0 {
		return 1
	}
	return 2 * float64(hits) / float64(len(found)+len(truth))
}
