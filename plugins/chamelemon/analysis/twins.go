// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"encoding/binary"
	"math/big"
	"slices"

	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/fermat"
)

// Flows that share all three buckets of a part cannot be decoded, however empty it is: with the
// program's hash of 32 bits that is one of some thousands of flows with every hundredth HH part.
// All others are decoded, and what is left of the part is the sum of the twins. That is enough to
// tell lost packets: the sum need not be divided to be put back into HL.
//
// Flows of the same hash are twins there, too. Once all other flows are taken out, their
// three buckets of HL hold what left the network, less than nothing, and with the sum added
// what was lost: nothing at all, or one flow's packets. Flows that are twins only among as many
// buckets as the HH part has are flows of their own in HL, decoded with too few packets; knowing
// both, the sum can be divided. If one of them lost all of its packets the other one is there
// alone, and the sum less its packets is the flow that is missing.

// twins are flows that share all buckets of an HH part.
type twins struct {
	count   int64    // of their packets
	sums    []uint64 // of their fragments
	width   int      // of the part, in buckets an array
	columns [arrays]int
}

// most is how many twins of a part are dealt with. What more is left over is an overfull part.
const mostTwins = 4

// leftTwins takes a part apart that was not decoded completely, and returns its twins. ok is
// false when something else is left in it, too.
func leftTwins(s *encoder, r *fermat.Result) (found []twins, ok bool) {
	if r.Left > arrays*mostTwins {
		return nil, false
	}
	for _, x := range r.Flows {
		if x.Count <= 0 || s.Add(x.Key, -x.Count) != nil {
			return nil, false
		}
	}
	return sharing(s)
}

// sharing returns what a sketch holds if it is nothing but flows, each time some, that share
// all buckets: the same content once in every array.
func sharing(s *encoder) (found []twins, ok bool) {
	width := s.Config().Width
	for row := range arrays {
		for col := range width {
			n, sums, err := s.Bucket(row, col)
			if err != nil {
				return nil, false
			}
			if n == 0 && !slices.ContainsFunc(sums, func(x uint64) bool { return x != 0 }) {
				continue
			}
			i := slices.IndexFunc(found, func(t twins) bool {
				return t.count == n && slices.Equal(t.sums, sums) && (row == 0 || t.columns[row-1] >= 0) && t.columns[row] < 0
			})
			switch {
			case row == 0 && len(found) < mostTwins:
				found = append(found, twins{n, sums, width, [arrays]int{col, -1, -1}})
			case row > 0 && i >= 0:
				found[i].columns[row] = col
			default:
				return nil, false
			}
		}
	}
	for _, t := range found {
		if t.columns[arrays-1] < 0 {
			return nil, false
		}
	}
	return found, true
}

// settle puts the twins of HH parts back into the difference of the HL parts of a family, which
// was decoded without them, and returns what there is then. d is taken apart.
func settle(d *encoder, r fermat.Result, all []twins) (fermat.Result, error) {
	flows := slices.Clone(r.Flows)
	for _, x := range flows {
		if err := d.Add(x.Key, -x.Count); err != nil {
			return r, err
		}
	}
	r.Complete = false
	for i := range all {
		t := &all[i]
		missing, ok, err := t.divide(flows)
		if err == nil && !ok {
			missing, ok, err = t.join(d)
		}
		if err != nil || !ok {
			return r, err
		}
		flows = append(flows, missing...)
	}
	left, err := d.Decode()
	if err != nil || !left.Complete || len(left.Flows) > 0 {
		return r, err
	}
	out := fermat.Result{Complete: true, Flows: slices.DeleteFunc(flows, func(x fermat.Flow) bool { return x.Count == 0 })}
	for i := range out.Flows {
		out.Flows[i].Sure = true
	}
	return out, nil
}

// join adds the twins to three buckets that are left over in HL, if nothing or one flow is in them
// then, and returns that flow.
func (t *twins) join(d *encoder) (lost []fermat.Flow, ok bool, err error) {
	left, ok := sharing(d)
	if !ok {
		return nil, false, nil
	}
	for _, x := range left {
		sum := twins{count: x.count + t.count, sums: make([]uint64, len(x.sums)), columns: x.columns}
		for i := range sum.sums {
			sum.sums[i] = (x.sums[i] + t.sums[i]) % prime
		}
		if err := sum.put(d); err != nil {
			return nil, false, err
		}
		after, err := d.Decode()
		if err != nil {
			return nil, false, err
		}
		if after.Left <= arrays*(len(left)-1) && (len(after.Flows) == 0 || len(after.Flows) == 1 && after.Flows[0].Count > 0) {
			for _, y := range after.Flows {
				if err := d.Add(y.Key, -y.Count); err != nil {
					return nil, false, err
				}
			}
			return after.Flows, true, nil
		}
		if err := x.put(d); err != nil { // these are of other twins
			return nil, false, err
		}
	}
	return nil, false, nil
}

// put sets the twins' buckets to their sum.
func (t *twins) put(d *encoder) error {
	for row, col := range t.columns {
		if err := d.SetBucket(row, col, t.count, t.sums); err != nil {
			return err
		}
	}
	return nil
}

// divide looks for the twins among flows that left with more packets than were put back, and
// adds to each what it had in the HH part. Of two that there must be, one may have lost everything:
// it is returned.
func (t *twins) divide(flows []fermat.Flow) (missing []fermat.Flow, ok bool, err error) {
	var mine []*fermat.Flow
	cols := family.NewRange(uint32(t.width))
	for i := range flows {
		if flows[i].Count >= 0 {
			continue
		}
		digest := family.Digest[wide](0, flows[i].Key)
		same := true
		for row, col := range t.columns {
			same = same && int(family.Column[wide](digest, row, &cols)) == col
		}
		if same {
			mine = append(mine, &flows[i])
		}
	}
	switch len(mine) {
	case 1:
		return t.other(mine[0])
	case 2:
		x, y := mine[0], mine[1]
		n, ok := t.first(words(x.Key), words(y.Key))
		if !ok || x.Count+n < 0 || y.Count+t.count-n < 0 {
			return nil, false, nil
		}
		x.Count, y.Count = x.Count+n, y.Count+t.count-n
		return nil, true, nil
	}
	return nil, false, nil
}

// mostLost is how many packets a flow may have lost whose twin lost all of its.
const mostLost = 64

// other finds the flow that is in the HH part besides x: x had as many packets there as left the
// network, and those it lost.
func (t *twins) other(x *fermat.Flow) (missing []fermat.Flow, ok bool, err error) {
	part, err := fermat.New[wide, fermat.Prime32](fermat.Config{Rows: arrays, Width: t.width, KeyBytes: len(x.Key), FragmentBits: 32})
	if err != nil {
		return nil, false, err
	}
	for n := -x.Count; n < min(t.count, -x.Count+mostLost); n++ {
		if err := t.put(part); err != nil {
			return nil, false, err
		}
		if err := part.Add(x.Key, -n); err != nil {
			return nil, false, err
		}
		r, err := part.Decode()
		if err != nil {
			return nil, false, err
		}
		if r.Complete && len(r.Flows) == 1 && r.Flows[0].Count == t.count-n {
			x.Count += n
			return r.Flows, true, nil
		}
	}
	return nil, false, nil
}

// first returns how many of the packets are of the first of two flows: n x + (count - n) y = sums.
func (t *twins) first(x, y []uint64) (n int64, ok bool) {
	i := 0
	for i < len(x) && x[i] == y[i] {
		i++
	}
	if i == len(x) {
		return 0, false
	}
	p := big.NewInt(prime)
	total := big.NewInt(t.count)
	a := new(big.Int).Sub(new(big.Int).SetUint64(t.sums[i]), new(big.Int).Mul(total, new(big.Int).SetUint64(y[i])))
	b := new(big.Int).Mod(new(big.Int).Sub(new(big.Int).SetUint64(x[i]), new(big.Int).SetUint64(y[i])), p)
	a.Mod(a.Mul(a, new(big.Int).ModInverse(b, p)), p)
	n = a.Int64()
	if n <= 0 || n >= t.count {
		return 0, false
	}
	for j := range x {
		if (uint64(n)*x[j]%prime+uint64(t.count-n)%prime*y[j])%prime != t.sums[j] {
			return 0, false
		}
	}
	return n, true
}

// words are a key's fragments, below the prime.
func words(key []byte) (out []uint64) {
	for ; len(key) > 0; key = key[min(4, len(key)):] {
		var w uint64
		if len(key) >= 4 {
			w = uint64(binary.BigEndian.Uint32(key))
		} else {
			for _, b := range key {
				w = w<<8 | uint64(b)
			}
		}
		out = append(out, w%prime)
	}
	return out
}
