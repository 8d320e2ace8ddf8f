// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"math"

	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/rowhash"
	"github.com/netsketch/netsketch/sketch/tower"
)

// earlier is the tower of latencies of the newest interval before the current one.
type earlier struct {
	settings  *wire.Settings
	interval  uint64
	latencies *tower.Latency[family.P4]
}

// judgement decides at the end of an interval which rows of the table of inflated latencies remain:
// rows whose worst latency exceeds a configured multiple of the flow's mean latency at the
// switch. The mean is of the flow's other packets in the interval, or of the earlier interval,
// which is needed if the flow has too few packets, or if a queue was full during the whole
// interval.
type judgement struct {
	g       *group
	earlier *tower.Latency[family.P4] // tower of the earlier interval; nil: there is no such interval
	judged  map[place]bool
}

// judge begins the judgement of a group.
func (g *group) judge(before *earlier) *judgement {
	j := &judgement{g: g, judged: map[place]bool{}}
	if before != nil && before.settings == g.settings && before.interval < g.interval {
		j.earlier = before.latencies
	}
	return j
}

// entry judges the hops of a cached flow. The cache knows their latencies better than the tower.
func (j *judgement) entry(e *entry) {
	if e.label == 0 {
		return
	}
	for i, node := range e.nodes() {
		h := &e.hop[i]
		packets := h.packets - e.before[i]
		if packets == 0 {
			continue
		}
		limit := j.limit(e.digest, node)
		beyond := float64(h.worst) > limit
		if !beyond && len(j.g.inflated) == 0 {
			continue
		}
		at := place{e.key(), node}
		row := j.g.inflated[at]
		// an extreme latency without a row means that the table is full
		if row == nil && beyond && h.extreme(j.g.factor) == 0 {
			j.g.inflate(at, 1, h.worst)
			row = j.g.inflated[at]
		}
		if row == nil {
			continue
		}
		if beyond {
			row.Packets = max(row.Packets, atLeast(packets, h.sum-e.sumBefore[i], h.worst, limit))
		}
		j.keep(at, row, h.packets, h.sum, limit)
	}
}

// rest judges the rows of flows that left the cache. Their latencies come from the tower.
func (j *judgement) rest() {
	for at, row := range j.g.inflated {
		if j.judged[at] {
			continue
		}
		digest := rowhash.Key(at.key.AppendBinary(j.g.scratch[:0]))
		n, sum, ok := j.g.Latencies.QueryDigest(uint64(rowhash.Next(digest, at.node)))
		if !ok {
			n, sum = 0, 0
		}
		j.keep(at, row, n, sum, j.limit(digest, at.node))
	}
}

// keep keeps a row if its worst latency is inflated compared with the other packets of the
// interval, or is above limit, which comes from the earlier interval. Otherwise it deletes the row.
func (j *judgement) keep(at place, row *wire.Inflated, packets uint32, sum uint64, limit float64) {
	others := hop{worst: row.Worst, packets: max(packets, 1), sum: max(sum, uint64(row.Worst))}
	if others.extreme(j.g.factor) != 0 || float64(row.Worst) > limit {
		j.judged[at] = true
		return
	}
	delete(j.g.inflated, at)
}

// limit returns the latency above which a latency is inflated compared with the mean of the earlier
// interval, or infinity if that mean is not known.
func (j *judgement) limit(digest, node uint32) float64 {
	if j.earlier == nil {
		return math.Inf(1)
	}
	n, sum, ok := j.earlier.QueryDigest(uint64(rowhash.Next(digest, node)))
	if !ok {
		return math.Inf(1)
	}
	return float64(j.g.factor) / 256 * float64(sum) / float64(n)
}

// atLeast returns how many packets exceed a limit at least, by their sum and the worst one, which
// exceeds it.
func atLeast(packets uint32, sum uint64, worst uint32, limit float64) uint32 {
	over := (float64(sum) - float64(packets)*limit) / (float64(worst) - limit)
	return uint32(min(max(math.Ceil(over), 1), float64(packets)))
}
