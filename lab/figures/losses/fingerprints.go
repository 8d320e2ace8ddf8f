// SPDX-License-Identifier: Apache-2.0

package losses

import (
	"context"
	"fmt"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/sketch/fermat"
)

// fingerprintRuns is the number of decodings of a point, by the point's number of flows.
var fingerprintRuns = map[int]int{1000: 1000, 10_000: 100}

// A bucket without a fingerprint has 64 bits, one with a fingerprint 8 more.
const bucketBytes, fingerprintBytes = 8, 9

// bucketsPerFlow are the points of the axis: the first chart gives an encoder this many buckets,
// the second the bytes of this many buckets without fingerprint. Decoding begins to succeed at 1.23
// (Theorem 3.1): the points are dense there, because distant points would show no difference.
var bucketsPerFlow = []float64{1.15, 1.2, 1.21, 1.22, 1.225, 1.23, 1.235, 1.24, 1.25, 1.26, 1.28, 1.3, 1.35, 1.4, 1.45}

func chamelemonFigure10() suite.Suite {
	const task = "decoding"
	name := func(flows int, fingerprint bool) string {
		return fmt.Sprintf("%dK flows, %s", flows/1000, map[bool]string{false: "no fingerprint", true: "8 bits"}[fingerprint])
	}
	axes := []string{"buckets per flow", "bytes per flow"}
	variant := func(axis int, x float64) string {
		if axis == 1 {
			x *= bucketBytes
		}
		return fmt.Sprintf("%s %.4g", axes[axis], x)
	}
	return suite.New(suite.Suite{
		Name: "chamelemon-10",
		Measure: func(ctx context.Context, t *trace.Trace, o suite.Options) ([]suite.Row, error) {
			all := t.Sources()
			var jobs []fingerprintJob
			var rows []suite.Row
			for _, flows := range []int{1000, 10_000} {
				if flows > len(all.Flows()) {
					continue // the trace has too few flows
				}
				for axis := range axes {
					for _, fingerprint := range []bool{false, true} {
						for _, x := range bucketsPerFlow {
							buckets := x * float64(flows)
							if axis == 1 && fingerprint {
								buckets *= float64(bucketBytes) / fingerprintBytes
							}
							c := fermat.Config{Width: int(buckets / 3), KeyBytes: lossKey, FragmentBits: 32}
							if fingerprint {
								c.Fingerprint = 8
							}
							jobs = append(jobs, fingerprintJob{c, flows})
							rows = append(rows, row(name(flows, fingerprint), variant(axis, x), 0, axes[axis], task, 0, "%", t.Name))
						}
					}
				}
			}
			err := suite.Each(ctx, len(jobs), func(i int) (err error) {
				rows[i].Value, err = jobs[i].success(ctx, all, o)
				return err
			})
			return rows, err
		},
	})
}

// fingerprintJob is a point: an encoder of the first flows of a trace.
type fingerprintJob struct {
	fermat.Config
	flows int
}

// success returns the percentage of the decodings that succeed.
func (j fingerprintJob) success(ctx context.Context, t *trace.Trace, o suite.Options) (float64, error) {
	l := losses{flows: t.Flows()[:j.flows]}
	runs, good := max(1, fingerprintRuns[j.flows]*min(o.Decodings, 10_000)/10_000), 0
	for run := range runs {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		j.Seed = o.Seed + uint64(run)
		s, err := fermat.New[host, fermat.Prime32](j.Config)
		if err != nil {
			return 0, err
		}
		for i, f := range l.flows {
			if err := s.Add(l.key(i), int64(f.Packets)); err != nil {
				return 0, err
			}
		}
		r, err := s.Decode()
		if err != nil {
			return 0, err
		}
		if r.Complete {
			good++
		}
	}
	return 100 * float64(good) / float64(runs), nil
}
