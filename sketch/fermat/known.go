// SPDX-License-Identifier: Apache-2.0

package fermat

import (
	"bytes"
	"fmt"
	"iter"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
)

// MaxRemaining is the largest number of remaining buckets that DecodeWithKeys resolves. If more
// remain, there are too many flows.
const MaxRemaining = 24

// maxTries bounds the time of DecodeWithKeys to about 20 ms for any content.
const maxTries = 1 << 20

// DecodeWithKeys decodes a sketch as Decode does, and then resolves a few remaining buckets: two
// flows that share all of their buckets cannot be decoded, however empty the sketch is, nor can
// four flows that share them in pairs. known returns keys of flows that may be among them; it is
// called only if needed. A bucket holds two flows if, for exactly one known flow and one number of
// packets, the rest is one flow without an empty bucket. If resolving such buckets and decoding
// further do not empty the sketch, DecodeWithKeys returns the result of Decode.
//
// A known flow in such a bucket is found with its packets, and so is the other flow. If the
// bucket's flows are not known, but k other flows are, one of these k flows belongs in the bucket
// in all rows with probability k / width^rows. It then gives a wrong pair with probability 1 /
// width^rows for each number of packets that leaves an identifier; with IPv4 5-tuples in fragments
// of 32 bits, there are fewer than 256 such numbers.
func (s *Sketch[F, E]) DecodeWithKeys(known iter.Seq[[]byte]) (Result, error) {
	return s.decodeWithKeys(known, maxTries)
}

func (s *Sketch[F, E]) decodeWithKeys(known iter.Seq[[]byte], tries int) (Result, error) {
	if s.full {
		return Result{}, fmt.Errorf("%w: fermat: a count overflowed", sketch.ErrLimit)
	}
	d := newDecoder(s)
	d.run()
	r := d.result(s)
	if r.Complete || r.Left > MaxRemaining {
		return r, nil
	}
	d.part(known, tries)
	if parted := d.result(s); parted.Complete {
		return parted, nil
	}
	return r, nil
}

// flowIn is a number of packets of a flow in a bucket.
type flowIn struct {
	key string
	n   int64
}

// part resolves buckets with two flows until no such bucket remains.
func (d *decoder[F, E]) part(known iter.Seq[[]byte], tries int) {
	var keys [][]byte
	for key := range known {
		if len(key) == d.s.cfg.KeyBytes && !d.absent(family.Digest[F](d.s.cfg.Seed, key)) {
			keys = append(keys, bytes.Clone(key))
		}
	}
	for found := true; found; {
		found = false
		for b := range d.queue {
			pair, ok := d.pair(b, keys, &tries)
			if !ok {
				continue
			}
			for _, x := range pair {
				d.take(d.load(x.key), x.n)
			}
			d.run()
			found = true
		}
	}
}

// load writes a key to d.buf and its fragments to d.id.
func (d *decoder[F, E]) load(key string) (digest uint64) {
	n := copy(d.buf[:], key)
	digest = family.Digest[F](d.s.cfg.Seed, d.buf[:n])
	d.s.split(digest, d.buf[:n], d.id)
	return digest
}

// pair returns the two flows of a bucket. ok is false if both flows are unknown, or if more than
// one pair is possible.
func (d *decoder[F, E]) pair(b int, known [][]byte, tries *int) (pair [2]flowIn, ok bool) {
	row, col := b/d.s.cfg.Width, uint32(b%d.s.cfg.Width)
	bucket := d.bucket(b)
	rest, id := make([]E, len(bucket)), make([]E, len(d.id))
	for _, key := range known {
		digest := family.Digest[F](d.s.cfg.Seed, key)
		if family.Column[F](digest, row, &d.s.cols) != col {
			continue
		}
		d.s.split(digest, key, id)
		copy(rest, bucket)
		for n := int64(1); n < count(bucket[0]); n++ {
			if *tries--; *tries < 0 {
				return pair, false
			}
			d.s.put(rest, id, -1)
			m, other, pure := d.pure(rest, row, col)
			if !pure || d.absent(other) {
				continue
			}
			found := [2]flowIn{{string(key), n}, {string(d.buf[:d.s.cfg.KeyBytes]), m}}
			if found[0].key > found[1].key {
				found[0], found[1] = found[1], found[0]
			}
			if ok && found != pair {
				return pair, false
			}
			pair, ok = found, true
		}
	}
	return pair, ok
}
