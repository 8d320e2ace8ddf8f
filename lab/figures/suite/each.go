// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// Each calls f for 0 to n-1, on all processors at once. f must write each number's results to a
// place of their own, so that the results do not depend on the order.
func Each(ctx context.Context, n int, f func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return f(i)
		})
	}
	return g.Wait()
}
