// SPDX-License-Identifier: Apache-2.0

// Package sumax is LightGuardian's SuMax (§4): its buckets hold sum cells and maximum cells. Sum
// cells are updated almost conservatively in one pass over the rows, as a switch's pipeline can
// do. The sketch can be queried when only some columns have arrived (§6.1).
//
// A Sketch is not safe for concurrent use while it is written.
package sumax

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/estimate"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/internal/pages"
	"github.com/netsketch/netsketch/sketch/internal/shape"
	"github.com/netsketch/netsketch/sketch/internal/wire"
)

// Config is the shape of a sketch of 32-bit cells. Give either Width or Memory.
type Config struct {
	Rows   int // 1 to family.Rows; 0 means 3
	Width  int // buckets per row
	Memory int // bytes of all buckets; rounded down to whole rows
	// Ranges are the lower limits, in ascending order, of the delay ranges after the first one, which
	// begins at 0: n limits make n+1 sum cells. With nil, delays are not recorded.
	Ranges []uint32
	// NoSizes omits the size cell of every bucket with Ranges. The size is then the sum of the
	// ranges' minima, which has a smaller error with the same memory. A packet without a delay counts
	// as a packet with delay 0.
	NoSizes bool
	// Intervals records the longest inter-arrival time and the last arrival.
	Intervals bool
	Seed      uint64
}

const (
	cellBytes = 4
	maxRanges = 63
)

// cells returns the number of cells in a bucket: the size unless it is omitted, the delays, the
// interval and the last arrival.
func (c *Config) cells() int {
	n := c.first()
	if c.Ranges != nil {
		n += len(c.Ranges) + 1
	}
	if c.Intervals {
		n += 2
	}
	return n
}

// first returns the cell of the first range.
func (c *Config) first() int {
	if c.NoSizes {
		return 0
	}
	return 1
}

// bucket checks the cells of a bucket.
func (c *Config) bucket() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: sumax: %s", sketch.ErrConfig, fmt.Sprintf(format, args...))
	}
	if len(c.Ranges) > maxRanges {
		return fail("%d limits of delay ranges; expected at most %d", len(c.Ranges), maxRanges)
	}
	if c.NoSizes && c.Ranges == nil {
		return fail("no sizes and no ranges: nothing is counted")
	}
	for i, r := range c.Ranges {
		if r == 0 || i > 0 && r <= c.Ranges[i-1] {
			return fail("delay range %d begins at %d; limits ascend from above 0", i+1, r)
		}
	}
	c.Ranges = slices.Clone(c.Ranges)
	return nil
}

func (c *Config) equal(o *Config) bool {
	return c.Rows == o.Rows && c.Width == o.Width && c.Intervals == o.Intervals && c.NoSizes == o.NoSizes &&
		c.Seed == o.Seed &&
		(c.Ranges == nil) == (o.Ranges == nil) && slices.Equal(c.Ranges, o.Ranges)
}

// Sketch records packets, their delays and their gaps, by key.
type Sketch[F family.Hash] struct {
	cfg      Config
	cols     family.Range
	n        int      // cells per bucket
	cells    []uint32 // buckets of all rows of a column, before the buckets of the next column
	received []uint64 // bitmap of the received columns; nil if all were
	arrived  int      // columns that were received, if received is not nil
	tally    *tally   // tally of the received columns; nil until it is computed

	sizes [][]uint32 // sizes of the received buckets of each row, ascending; nil until Excess needs them
}

// tally holds the counts that the estimates of all flows need.
type tally struct {
	zeros [family.MaxRows]int // number of empty buckets in each row
	first estimate.Histogram  // sizes of the first row
}

// New returns an empty sketch with all its columns.
func New[F family.Hash](c Config) (*Sketch[F], error) {
	if err := c.bucket(); err != nil {
		return nil, err
	}
	n := c.cells()
	var err error
	if c.Rows, c.Width, err = shape.Rows[F]("sumax", c.Rows, c.Width, c.Memory, cellBytes*n, c.Seed); err != nil {
		return nil, err
	}
	c.Memory = 0
	return &Sketch[F]{cfg: c, cols: family.NewRange(uint32(c.Width)), n: n,
		cells: pages.Make[uint32](c.Rows * c.Width * n)}, nil
}

// NewPartial returns a sketch without columns, to be filled by SetColumn in any order. Its results
// refer to the columns set so far, and further columns refine them.
func NewPartial[F family.Hash](c Config) (*Sketch[F], error) {
	s, err := New[F](c)
	if err != nil {
		return nil, err
	}
	s.received, s.tally = make([]uint64, (s.cfg.Width+63)/64), new(tally)
	return s, nil
}

// Config returns the shape, with its actual Width.
func (s *Sketch[F]) Config() Config {
	c := s.cfg
	c.Ranges = slices.Clone(c.Ranges)
	return c
}

// Memory returns the size of the cells in bytes.
func (s *Sketch[F]) Memory() int { return len(s.cells) * cellBytes }

// Packet is the data of a packet other than its key.
type Packet struct {
	Delay uint32 // delay in the unit of Ranges
	At    uint32 // arrival time, above 0, in the unit of intervals
}

// Insert records a packet without delay and arrival time.
func (s *Sketch[F]) Insert(key []byte) { s.Add(key, 1) }

// InsertBatch records one packet of each key as Insert does; keys are concatenated, size bytes
// each.
func (s *Sketch[F]) InsertBatch(keys []byte, size int) error {
	if err := family.CheckBatch("sumax", keys, size); err != nil {
		return err
	}
	s.tally, s.sizes = nil, nil
	var digests [family.Block]uint64
	for len(keys) > 0 {
		n := family.Digests[F](s.cfg.Seed, keys, size, digests[:])
		for _, d := range digests[:n] {
			at := s.columns(d)
			s.sum(&at, 0, 1)
		}
		keys = keys[n*size:]
	}
	return nil
}

// Add adds n to the size of a key, for example bytes.
func (s *Sketch[F]) Add(key []byte, n uint32) {
	s.tally, s.sizes = nil, nil
	at := s.columns(family.Digest[F](s.cfg.Seed, key))
	s.sum(&at, 0, n)
}

// Record records a packet, with its delay and arrival if the sketch has cells for them (§4.4).
func (s *Sketch[F]) Record(key []byte, p Packet) {
	s.tally, s.sizes = nil, nil
	at := s.columns(family.Digest[F](s.cfg.Seed, key))
	if !s.cfg.NoSizes {
		s.sum(&at, 0, 1)
	}
	if s.cfg.Ranges != nil {
		s.sum(&at, s.cfg.first()+s.delayRange(p.Delay), 1)
	}
	if s.cfg.Intervals {
		for r := range s.cfg.Rows {
			b := s.bucket(r, at[r%family.MaxRows])[s.n-2:]
			if last := b[1]; last != 0 && p.At > last {
				b[0] = max(b[0], p.At-last)
			}
			b[1] = max(b[1], p.At)
		}
	}
}

// columns returns a key's columns by row.
func (s *Sketch[F]) columns(d uint64) (at [family.MaxRows]uint32) {
	family.Columns[F](d, &s.cols, at[:min(s.cfg.Rows, family.MaxRows)])
	return at
}

func (s *Sketch[F]) delayRange(delay uint32) (i int) {
	for _, limit := range s.cfg.Ranges {
		if delay < limit {
			break
		}
		i++
	}
	return i
}

// at returns the index of the first cell of a bucket.
func (s *Sketch[F]) at(row int, col uint32) int { return (int(col)*s.cfg.Rows + row) * s.n }

// bucket returns the cells of a bucket.
func (s *Sketch[F]) bucket(row int, col uint32) []uint32 {
	i := s.at(row, col)
	return s.cells[i : i+s.n : i+s.n]
}

// column returns the cells of a column, row by row.
func (s *Sketch[F]) column(col uint32) []uint32 {
	i, n := s.at(0, col), s.cfg.Rows*s.n
	return s.cells[i : i+n : i+n]
}

// sum is the paper's Algorithm 1 for one sum cell: the smallest sum so far replaces CU's minimum.
// Cells stop at 2^32-1.
func (s *Sketch[F]) sum(at *[family.MaxRows]uint32, cell int, n uint32) {
	least := uint32(math.MaxUint32)
	cells, stride := s.cells[cell:], s.cfg.Rows*s.n
	for _, col := range at[:min(s.cfg.Rows, family.MaxRows)] {
		c := &cells[int(col)*stride]
		to := *c + n
		if to < n {
			to = math.MaxUint32
		}
		least = min(least, to)
		*c = max(*c, least)
		cells = cells[min(s.n, len(cells)):]
	}
}

// smallest returns the smallest of a key's cells in the received columns.
func (s *Sketch[F]) smallest(d uint64, cell int) (v uint32, ok bool) {
	v = math.MaxUint32
	for r := range s.cfg.Rows {
		col := family.Column[F](d, r, &s.cols)
		if s.has(col) {
			v, ok = min(v, s.cells[s.at(r, col)+cell]), true
		}
	}
	return v, ok
}

func (s *Sketch[F]) has(col uint32) bool {
	return s.received == nil || s.received[col/64]>>(col%64)&1 != 0
}

// Query returns the size of a key, which is never too low except if cells reached their limit.
// valid is false if none of the key's columns was received (§6.1: with a share θ of the columns,
// 1-(1-θ)^rows of the keys have one).
func (s *Sketch[F]) Query(key []byte) (size uint32, valid bool) {
	return s.query(family.Digest[F](s.cfg.Seed, key))
}

// query is Query by digest.
func (s *Sketch[F]) query(d uint64) (size uint32, valid bool) {
	v, ok := s.smallest(d, 0)
	if !ok {
		return 0, false
	}
	if s.cfg.NoSizes {
		for i := range s.cfg.Ranges {
			n, _ := s.smallest(d, 1+i)
			if v += n; v < n {
				return math.MaxUint32, true
			}
		}
	}
	return v, true
}

// Whole reports whether the key's buckets were received in all rows. Columns that arrive later do
// not change the results of such a key.
func (s *Sketch[F]) Whole(key []byte) bool {
	at := s.columns(family.Digest[F](s.cfg.Seed, key))
	for _, col := range at[:s.cfg.Rows] {
		if !s.has(col) {
			return false
		}
	}
	return true
}

// Delays appends the number of a key's packets in each delay range to dst.
func (s *Sketch[F]) Delays(dst []uint32, key []byte) (delays []uint32, valid bool) {
	if s.cfg.Ranges == nil {
		return dst, false
	}
	d := family.Digest[F](s.cfg.Seed, key)
	for i := range len(s.cfg.Ranges) + 1 {
		v, ok := s.smallest(d, s.cfg.first()+i)
		if !ok {
			return dst, false
		}
		dst = append(dst, v)
	}
	return dst, true
}

// MaxInterval returns the longest gap between two packets of a key, and its last arrival, both in
// the unit of Packet.At: the smallest values over the received rows (§4.3). In a bucket that other
// flows share, the gap is in general too short, and the arrival is never too early.
func (s *Sketch[F]) MaxInterval(key []byte) (interval, last uint32, valid bool) {
	if !s.cfg.Intervals {
		return 0, 0, false
	}
	d := family.Digest[F](s.cfg.Seed, key)
	if last, valid = s.smallest(d, s.n-1); valid {
		interval, _ = s.smallest(d, s.n-2)
	}
	return interval, last, valid
}

// OwnInterval returns the longest gap between two packets of a key of which size packets are known
// to have passed. alone reports that no other flow has a packet in the key's bucket of the first
// row, whose sizes are plain sums: the gap is exact then. Without such a bucket it is the smallest
// gap of the rows whose buckets have the key's estimated size, because a larger bucket is shared;
// without such rows it is the result of MaxInterval. The paper does not have this.
func (s *Sketch[F]) OwnInterval(key []byte, size uint32) (interval uint32, alone, valid bool) {
	if !s.cfg.Intervals {
		return 0, false, false
	}
	d := family.Digest[F](s.cfg.Seed, key)
	estimate, valid := s.query(d)
	if !valid {
		return 0, false, false
	}
	interval = uint32(math.MaxUint32)
	for r := range s.cfg.Rows {
		col := family.Column[F](d, r, &s.cols)
		if !s.has(col) {
			continue
		}
		b := s.bucket(r, col)
		if r == 0 && s.size(b) == size {
			return b[s.n-2], true, true
		}
		if s.size(b) == estimate {
			interval = min(interval, b[s.n-2])
		}
	}
	if interval == math.MaxUint32 {
		interval, _ = s.smallest(d, s.n-2)
	}
	return interval, false, true
}

// Gap returns the longest gap between packets of a key, if it lies between least and most. size is
// the number of the key's packets that are known to have passed. ok means that two of the key's
// buckets have this gap, so that it is hardly one of another flow. Without ok, gap is the longest
// one of these buckets between least and most, which other flows can only have shortened. If there
// is none, gap is 0 and seen is the probability that a gap of a given share of the interval would
// be among them, although packets of other flows may divide it. The paper does not have this.
func (s *Sketch[F]) Gap(key []byte, size, least, most uint32, share float64) (gap uint32, seen float64, ok bool) {
	if !s.cfg.Intervals {
		return 0, 0, false
	}
	d, hidden := family.Digest[F](s.cfg.Seed, key), 1.0
	var found []uint32
	for r := range s.cfg.Rows {
		col := family.Column[F](d, r, &s.cols)
		if !s.has(col) {
			continue
		}
		b := s.bucket(r, col)
		v := b[s.n-2]
		if v >= least && v <= most {
			if slices.Contains(found, v) {
				gap, ok = v, true
			} else if !ok {
				gap = max(gap, v) // other flows only shorten it
			}
			found = append(found, v)
		}
		// Packets of other flows divide a gap into parts that are not longer than the bucket's gap.
		parts := float64(least) / max(float64(v), 1)
		divided := divides(s.size(b)-min(s.size(b), size), share, parts)
		if r > 0 { // other flows' packets may not have raised the size
			mean := 0.0 // over the buckets of the first row, whose sizes are plain sums
			for _, n := range s.sorted()[0] {
				mean += divides(n, share, parts) / float64(s.ReceivedColumns())
			}
			divided = max(divided, mean)
		}
		hidden *= divided
	}
	if len(found) > 0 {
		return gap, 0, ok
	}
	return 0, 1 - hidden, false
}

// divides returns the probability that some of n packets are in a share of the interval, if they
// are anywhere in it; 0 if n packets cannot divide it into the parts.
func divides(n uint32, share, parts float64) float64 {
	if float64(n) < parts-1 {
		return 0
	}
	return 1 - math.Pow(1-share, float64(n))
}

// sorted returns the sizes of the received buckets of each row, ascending.
func (s *Sketch[F]) sorted() [][]uint32 {
	if s.sizes == nil {
		s.sizes = make([][]uint32, s.cfg.Rows)
		for r := range s.sizes {
			s.sizes[r] = s.Row(r)
			slices.Sort(s.sizes[r])
		}
	}
	return s.sizes
}

// Excess returns the probability that other flows alone add at least n to a key's size: the product
// of the shares of received buckets that have at least n packets, over the received rows of the
// key. Theorem 6.1 bounds it from the mean of a bucket; this is the sketch's own distribution.
func (s *Sketch[F]) Excess(key []byte, n uint32) float64 {
	d, p := family.Digest[F](s.cfg.Seed, key), 1.0
	for r, sizes := range s.sorted() {
		if s.has(family.Column[F](d, r, &s.cols)) {
			below, _ := slices.BinarySearch(sizes, n)
			p *= float64(len(sizes)-below) / float64(len(sizes))
		}
	}
	return p
}

// Row returns the size cells of a row in packets, or the sums over the ranges if sizes are omitted.
// For a partial sketch, it returns the cells of the received columns.
func (s *Sketch[F]) Row(i int) []uint32 {
	out := make([]uint32, 0, s.ReceivedColumns())
	for c := range uint32(s.cfg.Width) {
		if !s.has(c) {
			continue
		}
		out = append(out, s.size(s.bucket(i, c)))
	}
	return out
}

// size returns the size of a bucket.
func (s *Sketch[F]) size(bucket []uint32) uint32 {
	v := bucket[0]
	if s.cfg.NoSizes {
		for _, n := range bucket[1 : 1+len(s.cfg.Ranges)] {
			if v += n; v < n {
				return math.MaxUint32
			}
		}
	}
	return v
}

// add adds a column to the tally, or removes it if n is -1.
func (s *Sketch[F]) add(t *tally, column []uint32, n int) {
	for r := range s.cfg.Rows {
		v := s.size(column[r*s.n : (r+1)*s.n])
		if v == 0 {
			t.zeros[r] += n
		}
		if r == 0 {
			t.first.Add(v, n)
		}
	}
}

// tallied returns the tally of the received columns.
func (s *Sketch[F]) tallied() *tally {
	if s.tally == nil {
		s.tally = new(tally)
		for c := range uint32(s.cfg.Width) {
			if s.has(c) {
				s.add(s.tally, s.column(c), 1)
			}
		}
	}
	return s.tally
}

// Cardinality estimates the number of flows by linear counting (§6.1), over the received buckets
// of all rows. ok is false if no column was received, or if no received bucket is empty.
func (s *Sketch[F]) Cardinality() (flows float64, ok bool) {
	if s.ReceivedColumns() == 0 {
		return 0, false
	}
	counters := slices.Repeat([]int{s.ReceivedColumns()}, s.cfg.Rows)
	flows, ok = estimate.FlowsByZeros(counters, s.tallied().zeros[:s.cfg.Rows])
	return flows / s.Received(), ok
}

// Distribution estimates the numbers of flows by their packets with MRAC (§6.1) over the received
// buckets of the first row, whose cells are plain sums, divided by the share of received columns.
// Buckets of at least limit packets are left out and counted; a distribution takes 8 bytes for each
// size below limit. An error wraps sketch.ErrLimit if no received bucket is empty, and
// sketch.ErrConfig if no column was received or limit is below 2.
func (s *Sketch[F]) Distribution(limit uint32) (d estimate.Distribution, omitted int, err error) {
	if limit < 2 {
		return nil, 0, fmt.Errorf("%w: sumax: sizes below %d; expected a limit of at least 2", sketch.ErrConfig, limit)
	}
	sizes := &s.tallied().first
	if d, err = (estimate.MRAC{Overflow: limit}).RunHistogram(sizes); err != nil {
		return nil, 0, fmt.Errorf("sumax: %w", err)
	}
	share := s.Received()
	for x := range d {
		d[x] /= share
	}
	return d, sizes.AtLeast(limit), nil
}

// Bound is the bound of the paper's Theorem 6.1 for a given total of packets: a valid size is too
// high by at most e/width of the total, except with probability e^-r for a key with r received
// columns. Failure is the mean over the keys with a valid size.
func (s *Sketch[F]) Bound(total uint64) sketch.Bound {
	share := s.Received()
	some, failure := 0.0, 0.0
	d := s.cfg.Rows
	for r := 1; r <= d; r++ {
		p := math.Pow(share, float64(r)) * math.Pow(1-share, float64(d-r))
		for i := range r {
			p *= float64(d-i) / float64(i+1)
		}
		some += p
		failure += p * math.Exp(-float64(r))
	}
	if some == 0 {
		return sketch.Bound{Over: math.Inf(1), Under: math.Inf(1), Failure: 1}
	}
	return sketch.Bound{Over: math.E / float64(s.cfg.Width) * float64(total), Failure: failure / some}
}

// Received returns the share of received columns, 0 to 1.
func (s *Sketch[F]) Received() float64 { return float64(s.ReceivedColumns()) / float64(s.cfg.Width) }

// ReceivedColumns returns the number of received columns.
func (s *Sketch[F]) ReceivedColumns() int {
	if s.received == nil {
		return s.cfg.Width
	}
	return s.arrived
}

// Column appends the cells of a column, row by row, to dst: the content of a sketchlet (§5.1).
func (s *Sketch[F]) Column(dst []uint32, col int) ([]uint32, error) {
	if col < 0 || col >= s.cfg.Width {
		return dst, fmt.Errorf("%w: sumax: column %d, but the sketch has %d columns", sketch.ErrMismatch, col, s.cfg.Width)
	}
	return append(dst, s.column(uint32(col))...), nil
}

// Receipt says how a received column relates to the column received before.
type Receipt uint8

// Results of SetColumn.
const (
	First    Receipt = iota // the first cells of this column
	Again                   // the same cells as the cells received before
	Replaced                // cells that differ from the cells received before, which they replace
)

// SetColumn sets a received column. A column may be received more than once; the latest cells are
// used. In a sketch that is not partial, every column counts as received First.
func (s *Sketch[F]) SetColumn(col int, cells []uint32) (Receipt, error) {
	if col < 0 || col >= s.cfg.Width || len(cells) != s.cfg.Rows*s.n {
		return First, fmt.Errorf("%w: sumax: column %d with %d cells; there are %d columns of %d", sketch.ErrMismatch,
			col, len(cells), s.cfg.Width, s.cfg.Rows*s.n)
	}
	receipt, column := First, s.column(uint32(col))
	s.sizes = nil
	if s.received == nil {
		s.tally, s.sizes = nil, nil
	} else if s.has(uint32(col)) {
		if slices.Equal(column, cells) {
			return Again, nil
		}
		receipt = Replaced
		if s.tally != nil {
			s.add(s.tally, column, -1)
		}
	} else {
		s.received[col/64] |= 1 << (col % 64)
		s.arrived++
	}
	if s.tally != nil {
		s.add(s.tally, cells, 1)
	}
	copy(column, cells)
	return receipt, nil
}

// Reset empties the sketch; a partial one then has no columns.
func (s *Sketch[F]) Reset() {
	clear(s.cells)
	clear(s.received)
	s.arrived, s.tally, s.sizes = 0, nil, nil
	if s.received != nil {
		s.tally = new(tally)
	}
}

// Merge adds the sums of o, and keeps the larger maxima. Merged sizes are never too low, as before.
// Both sketches must have all columns.
func (s *Sketch[F]) Merge(o *Sketch[F]) error {
	if o == nil {
		return fmt.Errorf("%w: sumax: nothing to merge", sketch.ErrMismatch)
	}
	if !s.cfg.equal(&o.cfg) {
		return fmt.Errorf("%w: sumax: %+v and %+v", sketch.ErrMismatch, s.cfg, o.cfg)
	}
	if s.received != nil || o.received != nil {
		return fmt.Errorf("%w: sumax: partial sketches cannot be merged, because each may lack columns of the other",
			sketch.ErrMismatch)
	}
	s.tally, s.sizes = nil, nil
	sums := s.n
	if s.cfg.Intervals {
		sums -= 2
	}
	for i, v := range o.cells {
		if i%s.n >= sums {
			s.cells[i] = max(s.cells[i], v)
			continue
		}
		sum := s.cells[i] + v
		if sum < v {
			sum = math.MaxUint32
		}
		s.cells[i] = sum
	}
	return nil
}

// MarshalBinary serializes the sketch.
func (s *Sketch[F]) MarshalBinary() ([]byte, error) {
	w := wire.NewWriter(wire.SuMax, family.ID[F](), s.cfg.Seed, s.Memory())
	var flags uint32
	if s.cfg.Intervals {
		flags |= 1
	}
	if s.received != nil {
		flags |= 2
	}
	if s.cfg.Ranges != nil {
		flags |= 4
	}
	if s.cfg.NoSizes {
		flags |= 8
	}
	w.U32(flags, uint32(s.cfg.Rows), uint32(s.cfg.Width), uint32(len(s.cfg.Ranges)))
	w.U32(s.cfg.Ranges...)
	w.U64(s.received...)
	for r := range s.cfg.Rows {
		for c := range uint32(s.cfg.Width) {
			w.U32(s.bucket(r, c)...)
		}
	}
	return w.Bytes(), nil
}

// UnmarshalBinary replaces the sketch by a serialized one.
func (s *Sketch[F]) UnmarshalBinary(b []byte) error {
	r, err := wire.NewReader(b, wire.SuMax, family.ID[F]())
	if err != nil {
		return fmt.Errorf("sumax: %w", err)
	}
	flags, rows, width, ranges := r.U32(), int(r.U32()), int(r.U32()), r.U32()
	if flags > 15 || flags&12 == 8 || rows < 1 || rows > family.MaxRows || width < 1 || ranges > maxRanges ||
		flags&4 == 0 && ranges > 0 {
		return fmt.Errorf("sumax: %w: %d rows of %d, %d ranges, flags %#x", sketch.ErrFormat, rows, width, ranges,
			flags)
	}
	c := Config{Rows: rows, Width: width, Intervals: flags&1 != 0, NoSizes: flags&8 != 0, Seed: r.Seed}
	if flags&4 != 0 {
		c.Ranges = make([]uint32, ranges)
		wire.Cells(r, c.Ranges)
	}
	var received int
	if flags&2 != 0 {
		received = (width + 63) / 64
	}
	if err := r.Expect(received*8 + rows*width*c.cells()*cellBytes); err != nil {
		return fmt.Errorf("sumax: %w", err)
	}
	n, err := New[F](c)
	if err != nil {
		return fmt.Errorf("%w: %w", sketch.ErrFormat, err)
	}
	if received > 0 {
		n.received = make([]uint64, received)
		wire.Cells(r, n.received)
		if rest := width % 64; rest != 0 && n.received[received-1]>>rest != 0 {
			return fmt.Errorf("sumax: %w: columns beyond the width", sketch.ErrFormat)
		}
		for _, set := range n.received {
			n.arrived += bits.OnesCount64(set)
		}
	}
	for row := range rows {
		for c := range uint32(width) {
			wire.Cells(r, n.bucket(row, c))
		}
	}
	*s = *n
	return nil
}
