// SPDX-License-Identifier: Apache-2.0

package accuracy

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// Draws writes how much published results deviate from ground truth, for traffic that is drawn at
// random from a seed. It ends when the time is over or after count draws. It fails if a result
// deviates by more than the plugin states.
func Draws(ctx context.Context, w io.Writer, algorithms []string, count, most int, seed uint64,
	limit time.Duration) error {
	random := rand.New(rand.NewPCG(seed, 34))
	began, values, outside := time.Now(), 0, 0
	var errors [4]int // values within 0, 1, 2 and 3 standard errors
	for draw := 0; draw < count && time.Since(began) < limit; draw++ {
		name, sizes := drawSizes(random, most)
		for _, of := range accuracyOf {
			if !selected(algorithms, of.name) {
				continue
			}
			measure, traffic := of.measure, name
			if of.name == "chamelemon" {
				victims, loss := math.Pow(0.5, 8*random.Float64()), math.Pow(0.01, random.Float64())
				traffic += fmt.Sprintf(", %.1f %% of them lose %.0f %%", 100*victims, 100*loss)
				measure = func(ctx context.Context, _ string, sizes []int, seed uint64) ([]published, error) {
					return chamelemonLosses(ctx, sizes, seed, victims, loss)
				}
			}
			results, err := measure(ctx, of.name, sizes, random.Uint64())
			if err != nil {
				return fmt.Errorf("%s, %s: %w", of.name, traffic, err)
			}
			for _, p := range results {
				mark := ""
				if values++; p.outside {
					outside++
					mark = "OUTSIDE "
				}
				if p.says != "" && []rune(p.says)[0] == '±' && !math.IsNaN(p.error) {
					errors[min(int(p.error), 3)]++
				}
				fmt.Fprintf(w, "%s%s, %s: %s: %v\n", mark, of.name, traffic, p.task, p)
			}
		}
	}
	fmt.Fprintf(w, "seed %d: %d values, %d outside; %v within 1, 2, 3 and beyond 3 standard errors\n", seed, values,
		outside, errors)
	if outside > 0 {
		return fmt.Errorf("%d values are further from ground truth than the plugin says", outside)
	}
	return nil
}

// drawSizes draws the packets of 1,000 to most flows: a flood, Zipf, 1 to 10 packets with few heavy
// flows, or a flood with few heavy flows.
func drawSizes(random *rand.Rand, most int) (name string, sizes []int) {
	n := int(1000 * math.Pow(float64(most)/1000, random.Float64()))
	sizes = make([]int, n)
	skew, largest := 0.6+0.8*random.Float64(), math.Pow(10, 2+3*random.Float64())
	heavy := 1 + random.IntN(max(n/50, 1))
	kind := random.IntN(4)
	packets := 0
	for i := range sizes {
		switch {
		case kind == 0:
			sizes[i] = 1
		case kind == 1:
			sizes[i] = max(1, int(largest*math.Pow(float64(i+1), -skew)))
		case i < heavy:
			sizes[i] = max(1, int(largest*math.Pow(float64(i+1), -skew)))
		case kind == 2:
			sizes[i] = 1 + random.IntN(10)
		default:
			sizes[i] = 1
		}
		packets += sizes[i]
	}
	if part := mostPackets / float64(packets); part < 1 {
		for i, x := range sizes {
			sizes[i] = max(1, int(float64(x)*part))
		}
	}
	name = []string{fmt.Sprintf("flood of %d", n), fmt.Sprintf("Zipf %.2f, %d flows, largest %.0f", skew, n, largest),
		fmt.Sprintf("%d flows of 1 to 10 packets, %d of them Zipf %.2f from %.0f", n, heavy, skew, largest),
		fmt.Sprintf("flood of %d, %d of them Zipf %.2f from %.0f", n, heavy, skew, largest)}[kind]
	random.Shuffle(n, func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
	return name, sizes
}

// breaks reports whether ground truth contradicts the quality that a row states for a leaf.
func breaks(row map[string]string, leaf, quality string, truth float64) bool {
	if _, ok := row[leaf]; !ok {
		return false
	}
	v := number(row, leaf)
	switch sdk.Quality(row[quality]) {
	case sdk.Exact:
		return v != truth
	case sdk.LowerBound:
		return truth < v
	case sdk.UpperBound:
		return truth > v
	case sdk.Bounded:
		_, low := row[leaf+"-low"]
		_, high := row[leaf+"-high"]
		return low && truth < number(row, leaf+"-low") || high && truth > number(row, leaf+"-high")
	}
	return false
}

// boundsOf returns the result of a task in which wrong of a number of rows contradict the quality
// that they state.
func boundsOf(task string, rows, wrong int) published {
	return published{task: task, error: float64(wrong), text: fmt.Sprintf("%d of %d rows contradict their quality", wrong,
		rows), outside: wrong > 0}
}
