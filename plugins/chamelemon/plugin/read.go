// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/netsketch/netsketch/plugins/chamelemon/sizes"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/estimate"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/fermat"
	"github.com/netsketch/netsketch/sketch/rowhash"
)

// Hash families of the P4 program: the classifier's and the encoders'. Digests of the encoders'
// family serve for both.
type (
	hashes = family.P4
	wide   = family.P4Wide
)

// fingerprint is the number of bits of an identifier's last fragment that hold a fingerprint.
const fingerprint = 20

type encoder = fermat.Sketch[wide, fermat.Prime32]

// sampled reports whether an LL candidate with this key is encoded.
func (a *Attention) sampled(key []byte) bool {
	return rowhash.Mix(rowhash.Key(key), a.Seed)&0xffff < a.Sample
}

// seedOf returns the seed of an epoch's sample: the odd multiplier of the hash that selects the LL
// candidates to encode (docs/chamelemon-p4.md). Each epoch has another seed, so that no light
// victim flow stays out of the sample in every epoch.
func seedOf(epoch uint64) uint32 { return rowhash.Mix(uint32(epoch), rowhash.OddLevel) | 1 }

// reading holds the data that an edge switch recorded in an epoch.
type reading struct {
	sizer
	edge  *edge
	whole bool // all cells were delivered
	hh    [families]fermat.Result
	count [families]count
	// crowded reports that the HH part has no empty buckets: count is a lower bound.
	crowded [families]bool
	// delta is the difference of the LL and HL parts, entered less left, with HH flows added back
	// to HL (§4.2); nil if the part has no buckets. decodeLosses consumes them.
	delta     [families][2]*encoder
	stuck     [families]*encoder // HH parts with a few buckets that could not be decoded
	hhCounted bool               // whether the HH parts were decoded, except the parts in stuck
	torn      string             // why the cells are not a consistent copy of the registers

	// The first call of totals computes these results.
	done    bool
	packets uint64 // packets that entered; a lower bound if counters overflowed
	exact   bool   // packets is exact
	sizes   sizes.Sizes
	flows   float64             // distinct flows by linear counting
	counted bool                // flows is valid
	guess   func() *sizes.Sizes // sizes by which the control chooses Th and Tl
}

// sizer estimates flow sizes. It is kept for one more epoch to compute changes.
type sizer struct {
	th      uint32
	decoded bool // the HH parts, completely
	// sound is set if all cells were delivered, are consistent, and were counted in the epoch under
	// this th. Otherwise sizes have no bounds.
	sound   bool
	rows    [2][]uint32
	bits    [2]int
	cols    [2]family.Range
	has     [families]bool   // whether the switch has encoders of a family
	hitters map[string]int64 // packets in the HH part by flow, exact flows only
}

// newSizer returns a sizer of a classifier's rows, without flows of the HH part.
func newSizer(l *layout, th uint32, rows [2][]uint32) sizer {
	s := sizer{th: th, decoded: true, rows: rows, bits: l.bits}
	for i := range s.cols {
		s.cols[i] = family.NewRange(uint32(len(rows[i])))
	}
	for f := range families {
		s.has[f] = l.up[f] > 0
	}
	return s
}

// object returns an object's cells, or an error if their number or width is wrong. Read-out may pad
// cells to more bits than the register has.
func (e *edge) object(d *sdk.DeviceData, object string, bits int) (sdk.Cells, error) {
	c, need := d.Object(object), e.cells[object]
	if c == nil {
		return sdk.Cells{}, fmt.Errorf("%s was not delivered", object)
	}
	if err := c.Check(); err != nil {
		return sdk.Cells{}, err
	}
	if c.Width < bits || c.Width > 32 {
		return sdk.Cells{}, fmt.Errorf("%s: cells of %d bits delivered, the register has %d", object, c.Width, bits)
	}
	if c.Len() != need {
		return sdk.Cells{}, fmt.Errorf("%s: %d cells delivered, expected %d", object, c.Len(), need)
	}
	return *c, nil
}

// read decodes an edge switch's cells under the attention in force. It computes only the input of
// the next attention.
func (e *edge) read(d *sdk.DeviceData, a *Attention, room *[families]Room) (*reading, error) {
	l := &e.layout
	var rows [2][]uint32
	for i, object := range e.classifier {
		c, err := e.object(d, object, l.bits[i])
		if err != nil {
			return nil, err
		}
		rows[i] = c.Uint32s()[:l.counters[i]]
		if most := slices.Max(rows[i]); most > 1<<l.bits[i]-1 {
			return nil, fmt.Errorf("%s: a counter of %d bits is %d", object, l.bits[i], most)
		}
	}
	r := &reading{sizer: newSizer(l, a.Th[e.name], rows), edge: e, whole: true, hhCounted: true}
	for f := range families {
		if e.up[f] == "" {
			r.count[f].decoded = true
			continue
		}
		if err := r.encoders(d, f, a, room); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// encoders reads the parts of one family and decodes the HH part.
func (r *reading) encoders(d *sdk.DeviceData, f int, a *Attention, room *[families]Room) error {
	e, l := r.edge, &r.edge.layout
	up, err := e.object(d, e.up[f], 32)
	if err != nil {
		return err
	}
	down, err := e.object(d, e.down[f], 32)
	if err != nil {
		return err
	}
	upper, lower := register{e.up[f], up.Uint32s(), l.up[f], l.words[f]},
		register{e.down[f], down.Uint32s(), l.down[f], l.words[f]}
	p := a.Parts[f]
	hh, err := newPart(f, a.hitters(f, room))
	if err != nil {
		return err
	}
	if err := r.take(&upper, hh, p.LL+p.HL, false); err != nil {
		return err
	}
	if r.hh[f], err = hh.Decode(); err != nil {
		return err
	}
	r.count[f], r.crowded[f] = tally(hh, r.hh[f])
	r.decoded = r.decoded && r.hh[f].Complete
	for i, width := range []int{p.LL, p.HL} {
		if width == 0 {
			continue
		}
		s, err := newPart(f, width)
		if err != nil {
			return err
		}
		first := i * p.LL
		if err := r.take(&upper, s, first, false); err != nil {
			return err
		}
		if err := r.take(&lower, s, first, true); err != nil {
			return err
		}
		r.delta[f][i] = s
	}
	if !r.hh[f].Complete {
		// A flow that is not exact may come from a bucket that was wrongly taken for pure.
		wrong := func(x fermat.Flow) bool { return !x.Exact }
		if r.hh[f].Left > fermat.MaxRemaining || slices.ContainsFunc(r.hh[f].Flows, wrong) {
			r.hhCounted = false
			return nil
		}
		r.stuck[f] = hh
		r.count[f] = count{flows: float64(len(r.hh[f].Flows))}
	}
	return r.putBack(f, r.hh[f].Flows, r.delta[f][heavyPart])
}

// putBack adds flows of the HH part to an HL part.
func (r *reading) putBack(f int, flows []fermat.Flow, into *encoder) error {
	for _, x := range flows {
		if x.Count <= 0 {
			return fmt.Errorf("%s: a flow with %d packets", r.edge.up[f], x.Count)
		}
		if into != nil {
			if err := into.Add(x.Key, x.Count); err != nil {
				return err
			}
		}
	}
	return nil
}

// tally counts the flows of a part: exactly when it was decoded, otherwise by linear counting.
// crowded reports that too few buckets are empty for linear counting: the count is then the least
// number of flows that the part can have.
func tally(s *encoder, r fermat.Result) (c count, crowded bool) {
	if r.Complete {
		return count{flows: float64(len(r.Flows)), decoded: true}, false
	}
	n, _, ok := s.Load()
	m, width := float64(s.Buckets()), float64(s.Config().Width)
	const empty = 7 // buckets
	if least := width * math.Log(m/empty); !ok || n > least {
		least = max(least, 1)
		return count{flows: least, high: least}, true
	}
	// The standard deviation of linear counting with t flows per bucket of each array.
	t := n / width
	deviation := math.Sqrt(math.Exp(t)-t-1) / (t * math.Sqrt(m))
	return count{flows: max(n, 1), high: n * (1 + 2*deviation)}, false
}

func newPart(f, buckets int) (*encoder, error) {
	return fermat.New[wide, fermat.Prime32](fermat.Config{Rows: arrays, Width: buckets, KeyBytes: keyBytes[f],
		FragmentBits: 32, Fingerprint: fingerprint})
}

// register is a bank of an encoder.
type register struct {
	name    string
	cells   []uint32
	buckets int // buckets of an array
	words   int // words of a bucket
}

// take adds a register's buckets from first on to a sketch, or subtracts them. Every packet is
// counted once in each array: if the sums differ, cells were lost, or packets arrived during the
// read-out.
func (r *reading) take(from *register, to *encoder, first int, minus bool) error {
	var sums [arrays]uint64
	for row := range arrays {
		at := (row*from.buckets + first) * from.words
		cells := from.cells[at : at+to.Config().Width*from.words]
		if err := to.AddRegisters(row, cells, minus); err != nil {
			return fmt.Errorf("%s, part from bucket %d on: %w", from.name, first, err)
		}
		for i := 0; i < len(cells); i += from.words {
			sums[row] += uint64(cells[i])
		}
	}
	if sums[0] != sums[1] || sums[0] != sums[2] {
		r.torn = fmt.Sprintf("%s: the arrays of the part from bucket %d on have counted %d, %d and %d packets: a counter "+
			"wrapped, cells were lost, or packets arrived during the read-out", from.name, first, sums[0], sums[1], sums[2])
	}
	return nil
}

// query returns the classifier's estimate of a flow's size, never below its packets. If all its
// counters overflowed, size is 65,535, a lower bound, and ok is false.
func (r *sizer) query(key []byte) (size uint32, ok bool) {
	return r.lookUp(family.Digest[hashes](0, key))
}

// lookUp works as query, for the digest of a key.
func (r *sizer) lookUp(d uint64) (size uint32, ok bool) {
	size = math.MaxUint32
	for i, row := range r.rows {
		if v := row[family.Column[hashes](d, i, &r.cols[i])]; v < r.full(i) {
			size = min(size, v)
		}
	}
	if size == math.MaxUint32 {
		return r.full(1), false
	}
	return size, true
}

// familyOf returns the address family of a flow's canonical bytes.
func familyOf(key []byte) int {
	if len(key) == keyBytes[0] {
		return 0
	}
	return 1
}

// full is the value of an overflowed counter in a row.
func (r *sizer) full(row int) uint32 { return 1<<r.bits[row] - 1 }

// size returns a flow's packets (§4.2), the least number that the flow can have, and the quality of
// the packets. Call index first.
func (r *sizer) size(key []byte) (packets, least uint64, q sdk.Quality) {
	if n, ok := r.hitters[string(key)]; ok {
		// The flow was an HH candidate from its th-th packet on, as the classifier counted it. If other
		// flows shared its counters, it was a candidate earlier.
		return uint64(n) + uint64(r.th) - 1, uint64(n), r.hitterQuality()
	}
	n, ok := r.query(key)
	switch {
	case n == 0 && r.sound:
		return 0, 0, sdk.Exact // a classifier never misses a flow
	case r.decoded && r.has[familyOf(key)]: // a larger flow would have its last packet in the HH part
		return uint64(min(n, r.th-1)), 0, r.hitterQuality()
	case !ok:
		return uint64(n), uint64(n), r.quality(sdk.LowerBound)
	}
	return uint64(n), 0, r.quality(sdk.UpperBound)
}

// quality returns the quality of a bound of a flow's packets.
func (r *sizer) quality(bound sdk.Quality) sdk.Quality {
	if !r.sound {
		return sdk.Estimate
	}
	return bound
}

// hitterQuality returns the quality of the packets of a flow of a family with encoders. With a
// threshold of 1 all its packets are in the HH part.
func (r *sizer) hitterQuality() sdk.Quality {
	if r.th == 1 && r.decoded {
		return r.quality(sdk.Exact)
	}
	return r.quality(sdk.UpperBound)
}

// index builds the map of the HH part's flows. Later calls do nothing.
func (r *reading) index() {
	if r.hitters != nil {
		return
	}
	var keys []byte // keys of all flows in one string, which is one allocation
	n := 0
	for f := range families {
		n += len(r.hh[f].Flows)
		keys = slices.Grow(keys, len(r.hh[f].Flows)*keyBytes[f])
	}
	r.hitters = make(map[string]int64, n)
	for f := range families {
		for i := range r.hh[f].Flows {
			keys = append(keys, r.hh[f].Flows[i].Key...)
		}
	}
	all := string(keys)
	for f := range families {
		for i := range r.hh[f].Flows {
			x := &r.hh[f].Flows[i]
			key := all[:len(x.Key)]
			all = all[len(x.Key):]
			if x.Exact && x.Count > 0 {
				r.hitters[key] = x.Count
			}
		}
	}
	r.hh = [families]fermat.Result{}
}

// totals computes packets, distinct flows and the size distribution (§4.2). Later calls do nothing.
func (r *reading) totals(iterations int) {
	if r.done {
		return
	}
	r.done = true
	r.guess = func() *sizes.Sizes { return &r.sizes }
	r.index()
	r.exact = true
	for _, v := range r.rows[1] { // every packet raises one counter of each row
		r.packets += uint64(v)
		r.exact = r.exact && v < r.full(1)
	}
	if r.exactSizes() {
		return
	}
	r.flows, r.counted = estimate.Cardinality(len(r.rows[0]), estimate.Zeros(r.rows[0]))
	// Sizes of at least "to" come from the HH part, smaller sizes from the classifier.
	to := r.full(1)
	if r.decoded {
		to = min(to, max(r.th, fewest))
	}
	from := uint32(1) // least size that is not known
	if d, err := (estimate.MRAC{Iterations: iterations, Overflow: r.full(0)}).Run(r.rows[0]); err == nil {
		r.sizes.OK, from = true, min(r.full(0), to)
		r.sizes.Small = append(r.sizes.Small, d[:min(int(from), len(d))]...)
	}
	if r.sizes.OK && from < to {
		if d, err := estimate.Decompound(r.rows[1], from, to); err == nil {
			copy(d, r.sizes.Small) // distribution of sizes below from
			r.sizes.Small, from = d, to
		}
	}
	if from < to {
		r.guess = sync.OnceValue(func() *sizes.Sizes { return r.classifier().Guess(&r.sizes, from, to) })
	}
	r.sizes.Rest = r.large(uint64(to))
}

// vague reports whether flows share so many counters that estimated sizes are not published.
func (r *sizer) vague() bool {
	flows, ok := estimate.Cardinality(len(r.rows[0]), estimate.Zeros(r.rows[0]))
	return !ok || flows > sizes.Most*float64(len(r.rows[0]))
}

func (r *sizer) classifier() *sizes.Classifier {
	return &sizes.Classifier{Rows: r.rows, Full: [2]uint32{r.full(0), r.full(1)}}
}

// fewest is the least number of packets of a flow whose size is taken from the HH part: with a Th
// of 2 or 3, too many of the part's flows are smaller ones that share their counters.
const fewest = 4

// large returns the sizes, of from packets or more, of the flows in the HH part. The packets before
// the flow's counters reached Th are not in the part. They are estimated as the flow's share in its
// counters, because flows that share a counter also share the packets that raised it to Th.
func (r *reading) large(from uint64) []uint64 {
	var sums [2]map[uint32]float64 // packets in the HH part by counter
	for i := range sums {
		sums[i] = make(map[uint32]float64, len(r.hitters))
		for key, q := range r.hitters {
			sums[i][r.column(i, key)] += float64(q)
		}
	}
	var out []uint64
	for key, q := range r.hitters {
		before := 0.0
		for i := range sums {
			least := float64(min(r.th, r.full(i)) - 1)
			before = max(before, least*float64(q)/sums[i][r.column(i, key)])
		}
		if n := uint64(float64(q) + before + 0.5); n >= from {
			out = append(out, n)
		}
	}
	slices.Sort(out) // so that sums do not depend on the map's order
	return out
}

// column returns the counter of a flow in a row of the classifier.
func (r *sizer) column(row int, key string) uint32 {
	return family.Column[hashes](family.Digest[hashes](0, []byte(key)), row, &r.cols[row])
}

// exactSizes takes the number and sizes of the flows from the HH part, if every flow was a
// candidate from its first packet on and all packets are in the part.
func (r *reading) exactSizes() bool {
	sum := uint64(0)
	for _, n := range r.hitters {
		sum += uint64(n)
	}
	if r.th != 1 || !r.decoded || !r.exact || sum != r.packets {
		return false
	}
	r.flows, r.counted, r.sizes = float64(len(r.hitters)), true, sizes.Of(r.hitters, r.full(0))
	return true
}
