// SPDX-License-Identifier: Apache-2.0

package fermat

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
)

// Flow is a decoded flow.
type Flow struct {
	Key   []byte
	Count int64 // negative if more packets were subtracted than added
	// Exact reports that key and count are exact: the decoding was complete, or all of the flow's
	// buckets became empty. If identifiers leave 16 bits or more of their fragments unused, two empty
	// buckets are enough. If no bucket of the sketch has a negative count, the flow's count must also
	// be above 0 and at most the count of each of its buckets.
	//
	// A sketch that cannot be decoded completely yields wrong flows, too: the mean of a few
	// identifiers is often an identifier, and one in width of these belongs in the bucket where it
	// was found. A wrong flow is marked exact only if other buckets are wrong together with it: of
	// the flows marked exact, fewer than two in width² are wrong, from a width of 10 on
	// (TestExactFlows).
	Exact bool
}

// Result is the result of Decode.
type Result struct {
	Flows []Flow
	// Complete reports that all buckets became empty: Flows then contains all flows with exact
	// counts.
	Complete bool
	Left     int // buckets that could not be decoded
}

// Decode removes flows from pure buckets until there is none (ChameleMon §3.1). It does not change
// the sketch. With too many flows the result is not complete, and only its exact flows are
// reliable. If a count has overflowed, Decode fails with ErrLimit. Its time is linear in buckets
// and flows, and bounded for any content.
func (s *Sketch[F, E]) Decode() (Result, error) {
	if s.full {
		return Result{}, fmt.Errorf("%w: fermat: a count overflowed", sketch.ErrLimit)
	}
	d := newDecoder(s)
	d.run()
	return d.result(s), nil
}

type decoder[F family.Hash, E Field] struct {
	s     Sketch[F, E] // copy that decoding empties
	queue []int32      // ring of the buckets to examine
	head  int
	n     int
	in    []bool // whether each bucket is in the queue

	keys    []byte // extracted keys, concatenated
	digests []uint64
	counts  []int64
	index   []int32 // open hash table of the extracted keys, by digest; 0 marks an empty entry
	id      []E
	buf     [maxKey + 16]byte
	last    uint64 // upper limit of the last fragment; 0: no limit

	words    [maxFragments]uint64 // words that pureWords tries
	doubtful [maxFragments]int
	tries    int // remaining tries of unlikely words
}

func newDecoder[F family.Hash, E Field](s *Sketch[F, E]) *decoder[F, E] {
	d := &decoder[F, E]{s: *s}
	d.s.cells, d.s.stride, d.s.offset = make([]E, 0, s.Buckets()*(1+s.fragments)), s.cfg.Width, 0
	for r := range s.cfg.Rows {
		d.s.cells = append(d.s.cells, s.row(r)...)
	}
	total := s.Buckets()
	d.queue, d.in = make([]int32, total), make([]bool, total)
	d.id = make([]E, s.fragments)
	d.tries = 1<<16 + 64*total
	for b := range total {
		if !empty(d.bucket(b)) {
			d.push(int32(b))
		}
	}
	// A sketch with as many flows as buckets cannot be decoded.
	d.keys = make([]byte, 0, d.n*s.cfg.KeyBytes)
	d.digests, d.counts = make([]uint64, 0, d.n), make([]int64, 0, d.n)
	d.index = make([]int32, max(64, 2<<bits.Len(uint(d.n))))
	if used := (8*s.cfg.KeyBytes + s.cfg.Fingerprint) % 32; s.cfg.FragmentBits == 32 && used > 0 {
		d.last = 1 << used
	}
	return d
}

func (d *decoder[F, E]) bucket(b int) []E {
	n := 1 + d.s.fragments
	return d.s.cells[b*n : (b+1)*n : (b+1)*n]
}

func empty[E Field](b []E) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

func (d *decoder[F, E]) push(b int32) {
	if d.in[b] {
		return
	}
	d.in[b] = true
	at := d.head + d.n
	if at >= len(d.queue) {
		at -= len(d.queue)
	}
	d.queue[at] = b
	d.n++
}

func (d *decoder[F, E]) run() {
	// Buckets that are mistaken for pure add wrong flows and remove them again. The budget ends
	// content that repeats this forever.
	width, budget := d.s.cfg.Width, 8*len(d.queue)+64
	for d.n > 0 && budget > 0 {
		b := d.queue[d.head]
		if d.head++; d.head == len(d.queue) {
			d.head = 0
		}
		d.n--
		d.in[b] = false
		if n, digest, ok := d.pure(d.bucket(int(b)), int(b)/width, uint32(int(b)%width)); ok {
			budget--
			d.take(digest, n)
		}
	}
}

// take removes n packets of the flow with the fragments in d.id and the key in d.buf.
func (d *decoder[F, E]) take(digest uint64, n int64) {
	d.record(digest, n)
	for r := range d.s.cfg.Rows {
		col := family.Column[F](digest, r, &d.s.cols)
		cells := d.s.at(r, col)
		d.s.put(cells, d.id, -n)
		if !empty(cells) {
			d.push(int32(r*d.s.cfg.Width + int(col)))
		}
	}
}

// pure reports whether a bucket holds one flow, and writes the flow's fragments to d.id and its
// key to d.buf. The sum divided by the count must be an identifier that hashes to this bucket.
func (d *decoder[F, E]) pure(b []E, row int, col uint32) (n int64, digest uint64, ok bool) {
	n = count(b[0])
	if n == 0 || d.last > 0 && d.impure(n, uint64(b[len(b)-1])) {
		return 0, 0, false
	}
	times := signed[E](n)
	switch {
	case times == 0:
		return 0, 0, false
	case n == 1:
		copy(d.id, b[1:])
	case n < 0:
		d.divide(b[1:], sub(0, invert(signed[E](-n))))
	default:
		d.divide(b[1:], invert(times))
	}
	if d.s.cfg.FragmentBits == 32 {
		return d.pureWords(n, row, col)
	}
	if !d.join() {
		return 0, 0, false
	}
	digest, ok = d.verify(row, col)
	return n, digest, ok
}

// impure reports that n packets of one flow cannot have this sum of last fragments, which leave
// bits unused. It spares inversion and hash for most buckets with several flows.
func (d *decoder[F, E]) impure(n int64, sum uint64) bool {
	if n < 0 {
		n, sum = -n, uint64(sub(0, E(sum)))
	}
	if uint64(n) > (1<<32-1)/d.last {
		return false // n times a fragment may have exceeded the prime
	}
	x, y := uint32(sum), uint32(n)
	return uint64(x/y) >= d.last || x%y != 0
}

func (d *decoder[F, E]) divide(sums []E, inverse E) {
	for i, x := range sums {
		d.id[i] = mul(x, inverse)
	}
}

// verify hashes the key in d.buf and checks that it belongs in this bucket.
func (d *decoder[F, E]) verify(row int, col uint32) (digest uint64, ok bool) {
	n := d.s.cfg.KeyBytes
	digest = family.Digest[F](d.s.cfg.Seed, d.buf[:n])
	if family.Column[F](digest, row, &d.s.cols) != col {
		return 0, false
	}
	if bits := d.s.cfg.Fingerprint; bits > 0 {
		if fp := binary.LittleEndian.Uint64(d.buf[n:]); fp != uint64(family.Fingerprint[F](digest))&(1<<bits-1) {
			return 0, false
		}
	}
	return digest, true
}

// join combines the fragments in d.id to a key in d.buf. It fails if they do not form an
// identifier, because a fragment is too large or because a bit is set that no key has.
func (d *decoder[F, E]) join() bool {
	bits := uint(d.s.cfg.FragmentBits)
	clear(d.buf[:])
	for i, x := range d.id {
		v := uint64(x)
		if v>>bits != 0 {
			return false
		}
		at := uint(i) * bits
		word := d.buf[at/8:]
		// The fragments of the largest identifier end within the buffer.
		binary.LittleEndian.PutUint64(word, binary.LittleEndian.Uint64(word)|v<<(at%8))
		word[8] |= byte(v >> (64 - at%8))
	}
	rest := d.buf[d.s.cfg.KeyBytes:]
	fp := uint64(1)<<d.s.cfg.Fingerprint - 1
	return binary.LittleEndian.Uint64(rest)&^fp == 0
}

// pureWords does the work of pure for fragments of 32 bits, where a fragment of 0 to 4 may have
// been larger by the prime. It first tries to raise none and all of these fragments; then any one,
// any two, and so on. In these tries, the key must also belong in its other buckets, because one
// in width of the wrong keys belongs in this bucket. The number of tries is bounded for the whole
// decoding.
func (d *decoder[F, E]) pureWords(n int64, row int, col uint32) (int64, uint64, bool) {
	doubtful := 0
	words := d.words[:len(d.id)]
	for i, x := range d.id {
		words[i] = uint64(x)
		if uint64(x) < 1<<32-prime32 && (d.last == 0 || i < len(d.id)-1) {
			d.doubtful[doubtful] = i
			doubtful++
		}
	}
	try := func(raised uint64) (digest uint64, ok bool) {
		for j, i := range d.doubtful[:doubtful] {
			words[i] = uint64(d.id[i]) + raised>>j&1*prime32
		}
		if !d.joinWords(words) {
			return 0, false
		}
		return d.verify(row, col)
	}
	all := uint64(1)<<doubtful - 1
	if digest, ok := try(0); ok || doubtful == 0 {
		return n, digest, ok
	}
	if digest, ok := try(all); ok || doubtful == 1 {
		return n, digest, ok
	}
	for number := 1; number < doubtful; number++ {
		for raised := uint64(1)<<number - 1; raised < all; {
			if d.tries--; d.tries < 0 {
				return 0, 0, false
			}
			if digest, ok := try(raised); ok && !d.absent(digest) {
				return n, digest, true
			}
			// The next larger number with the same number of bits set.
			low := raised & -raised
			up := raised + low
			raised = (up^raised)>>2/low | up
		}
	}
	return 0, 0, false
}

// absent reports that a key cannot be in the sketch, because one of its buckets is empty.
func (d *decoder[F, E]) absent(digest uint64) bool {
	for r := range d.s.cfg.Rows {
		if empty(d.s.at(r, family.Column[F](digest, r, &d.s.cols))) {
			return true
		}
	}
	return false
}

func (d *decoder[F, E]) joinWords(words []uint64) bool {
	n := d.s.cfg.KeyBytes
	var fp, got uint64
	for i, v := range words {
		switch rest := n - 4*i; {
		case rest >= 4:
			binary.BigEndian.PutUint32(d.buf[4*i:], uint32(v))
		case rest > 0:
			for j := range rest {
				d.buf[4*i+j] = byte(v >> (8 * (rest - 1 - j)))
			}
			fp, got = v>>(8*rest), uint64(32-8*rest)
		default:
			fp |= v << got // a fingerprint of at most 32 bits begins in one word and ends in this one
		}
	}
	binary.LittleEndian.PutUint64(d.buf[n:], fp)
	return fp>>d.s.cfg.Fingerprint == 0
}

// record adds n to the extracted packets of the key in d.buf.
func (d *decoder[F, E]) record(digest uint64, n int64) {
	size := d.s.cfg.KeyBytes
	key := d.buf[:size]
	mask := len(d.index) - 1
	i := slot(digest) & mask
	for ; d.index[i] != 0; i = (i + 1) & mask {
		f := int(d.index[i]) - 1
		if d.digests[f] == digest && string(d.keys[f*size:(f+1)*size]) == string(key) {
			d.counts[f] += n
			return
		}
	}
	d.keys = append(d.keys, key...)
	d.digests = append(d.digests, digest)
	d.counts = append(d.counts, n)
	d.index[i] = int32(len(d.counts))
	if 2*len(d.counts) > len(d.index) {
		d.grow()
	}
}

func slot(digest uint64) int { return int((digest * 0x9e3779b97f4a7c15) >> 33) }

func (d *decoder[F, E]) grow() {
	d.index = make([]int32, 2*len(d.index))
	mask := len(d.index) - 1
	for f, digest := range d.digests {
		i := slot(digest) & mask
		for ; d.index[i] != 0; i = (i + 1) & mask {
		}
		d.index[i] = int32(f + 1)
	}
}

func (d *decoder[F, E]) result(of *Sketch[F, E]) Result {
	var r Result
	for b := range len(d.queue) {
		if !empty(d.bucket(b)) {
			r.Left++
		}
	}
	r.Complete = r.Left == 0
	size := d.s.cfg.KeyBytes
	need, plain := d.s.cfg.Rows, !r.Complete && of.plain()
	if d.s.spare() >= 16 {
		need = min(need, 2)
	}
	r.Flows = make([]Flow, 0, len(d.counts))
	for f, n := range d.counts {
		if n == 0 {
			continue // a wrong flow that was removed again
		}
		exact := r.Complete || need > 1 && (!plain || n > 0)
		if exact && !r.Complete {
			var cols [family.MaxRows]uint32
			at := cols[:min(d.s.cfg.Rows, family.MaxRows)]
			family.Columns[F](d.digests[f], &d.s.cols, at)
			emptied := 0
			for row, col := range at {
				if empty(d.s.at(row, col)) {
					emptied++
				}
				exact = exact && (!plain || n <= count(of.at(row, col)[0]))
			}
			exact = exact && emptied >= need
		}
		r.Flows = append(r.Flows, Flow{Key: d.keys[f*size : (f+1)*size : (f+1)*size], Count: n, Exact: exact})
	}
	return r
}

// plain reports that no bucket has a negative count.
func (s *Sketch[F, E]) plain() bool {
	n := 1 + s.fragments
	for r := range s.cfg.Rows {
		cells := s.row(r)
		for i := 0; i < len(cells); i += n {
			if count(cells[i]) < 0 {
				return false
			}
		}
	}
	return true
}

// Bound returns the bound for an exact flow (see Flow): its count has no error, but the flow is
// wrong with a small probability. A complete decoding has no wrong flows, except if two flows
// share all their buckets.
func (s *Sketch[F, E]) Bound() sketch.Bound {
	return sketch.Bound{Failure: min(1, 2/(float64(s.cfg.Width)*float64(s.cfg.Width)))}
}

// Load estimates the number of flows and of flows per bucket, by linear counting of the empty
// buckets. Use it if decoding fails, and choose a width with a load of 0.7. ok is false if no
// bucket is empty, because there are too many flows for an estimate.
func (s *Sketch[F, E]) Load() (flows, load float64, ok bool) {
	n := 1 + s.fragments
	zero := 0
	for r := range s.cfg.Rows {
		cells := s.row(r)
		for i := 0; i < len(cells); i += n {
			if empty(cells[i : i+n]) {
				zero++
			}
		}
	}
	// Every row counts every flow, so the mean share of empty buckets over the rows is used.
	share := float64(zero) / float64(s.Buckets())
	if share == 0 {
		return math.Inf(1), math.Inf(1), false
	}
	flows = -float64(s.cfg.Width) * math.Log(share)
	return flows, flows / float64(s.Buckets()), true
}

// spare returns the number of bits of the sums that identifiers do not use.
func (s *Sketch[F, E]) spare() int {
	bits := 32
	if wide[E]() {
		bits = 61
	}
	return s.fragments*bits - 8*s.cfg.KeyBytes
}
