// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/fermat"
	"github.com/netsketch/netsketch/sketch/flow"
)

// victim is a flow that lost packets.
type victim struct {
	key         flow.Key
	raw         string // canonical bytes
	family      int
	heavy       bool // whether the flow was in an HL part
	lost        int64
	quality     sdk.Quality // of lost
	size        uint64      // estimate of the packets that entered
	sizeQuality sdk.Quality
	entry, exit string // edge switches; "" if undetermined
}

// losses are the lost packets of an epoch.
type losses struct {
	deltas   bool // the differences were computed
	complete bool // whether everything was decoded: victims has all flows of the parts
	known    bool // all but a few of these flows were decoded, with exact counts
	hl, ll   [families]count
	negative int    // number of flows of which more packets left than entered
	backward bool   // more packets left than entered in a bucket that was not decoded
	reason   string // reason for which the losses are not complete

	results [families][2]fermat.Result // results by part, until name
	crowded [families][2]*encoder      // differences without empty buckets, by part
	named   bool
	victims []*victim // set by name; sorted by lost packets after rank
}

// Parts of an encoder that exist upstream and downstream.
const (
	lightPart = iota
	heavyPart
)

// decodeLosses detects lost packets (§4.2): it decodes the sum of the differences, upstream less
// downstream, of all edge switches. It consumes the readings' differences and completes their HH
// parts if possible.
func decodeLosses(b *binding, a *Attention, readings []*reading, before *previous) (*losses, error) {
	l := &losses{complete: true, known: true}
	for _, r := range readings {
		if !r.hhCounted {
			l.complete, l.known = false, false
			l.reason = fmt.Sprintf("the HH part of %s was not decoded", r.edge.name)
			return l, nil
		}
	}
	l.deltas = true
	for f := range families {
		for _, part := range []int{heavyPart, lightPart} {
			into, width := &l.ll[f], a.Parts[f].LL
			if part == heavyPart {
				into, width = &l.hl[f], a.Parts[f].HL
			}
			if width == 0 || b.layout.up[f] == 0 {
				into.decoded = true
				continue
			}
			d, err := delta(f, part, readings)
			if err != nil {
				return nil, err
			}
			result, err := d.DecodeWithKeys(l.hints(f, readings, before))
			if err != nil {
				return nil, err
			}
			together := false
			if part == heavyPart {
				if together, err = l.settle(f, d, &result, readings, before); err != nil {
					return nil, err
				}
			}
			var crowded bool
			if *into, crowded = tally(d, result); crowded {
				l.crowded[f][part] = d
			}
			switch few := inseparable(d, &result); {
			case result.Complete:
			case few > 0 && !together:
				*into = count{flows: float64(len(result.Flows) + few), few: few}
				l.complete = false
				l.reason = fmt.Sprintf("%d flows of the %s %s parts share all their buckets; the other %d were decoded",
					few, familyName(f), [2]string{"LL", "HL"}[part], len(result.Flows))
			default:
				l.complete, l.known = false, false
				l.backward = l.backward || !together && backward(d)
				l.reason = fmt.Sprintf("the difference of the %s %s parts was not decoded: about %.0f flows in %d buckets",
					familyName(f), [2]string{"LL", "HL"}[part], into.flows, d.Buckets())
			}
			l.results[f][part] = result
			l.check(&result)
		}
	}
	return l, nil
}

// inseparable returns the number of flows that could not be decoded if these share all buckets and
// all other flows are exact; 0 otherwise. Two flows are assumed for a bucket of each array, the
// least and by far the likeliest number.
func inseparable(d *encoder, r *fermat.Result) int {
	wrong := func(x fermat.Flow) bool { return !x.Exact || x.Count < 0 }
	if r.Left == 0 || r.Left > fermat.MaxRemaining || backward(d) || slices.ContainsFunc(r.Flows, wrong) {
		return 0
	}
	return max(2*r.Left/arrays, 2)
}

// hints yields flows that may be among victim flows which share all their buckets: flows of the HH
// parts, flows of the parts decoded so far, and the heavy hitters of the preceding epoch.
func (l *losses) hints(f int, readings []*reading, before *previous) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, r := range readings {
			for i := range r.hh[f].Flows {
				if !yield(r.hh[f].Flows[i].Key) {
					return
				}
			}
		}
		for part := range l.results[f] {
			for i := range l.results[f][part].Flows {
				if !yield(l.results[f][part].Flows[i].Key) {
					return
				}
			}
		}
		if before == nil {
			return
		}
		for _, x := range before.edges {
			for key := range x.hitters {
				if !yield([]byte(key)) {
					return
				}
			}
		}
	}
}

// settle completes HH parts in which flows share all their buckets. These flows were not added back
// to the HL part, so their counts are negative in it. The HL part is decoded again after an HH part
// was completed; the result is complete only if all HH parts are.
func (l *losses) settle(f int, d *encoder, result *fermat.Result, readings []*reading,
	before *previous,
) (together bool, err error) {
	known := l.hints(f, readings, before)
	gone := func(yield func([]byte) bool) {
		for i := range result.Flows {
			if result.Flows[i].Count < 0 && !yield(result.Flows[i].Key) {
				return
			}
		}
		known(yield)
	}
	found := false
	for _, r := range readings {
		if r.stuck[f] == nil {
			continue
		}
		hh, err := r.stuck[f].DecodeWithKeys(gone)
		if err != nil {
			return true, err
		}
		if !hh.Complete {
			together = true
			continue
		}
		for _, x := range r.hh[f].Flows {
			if err := d.Add(x.Key, -x.Count); err != nil {
				return true, err
			}
		}
		if err := r.putBack(f, hh.Flows, d); err != nil {
			return true, err
		}
		r.hh[f] = hh
		r.count[f], _ = tally(r.stuck[f], hh)
		r.stuck[f] = nil
		r.decoded = r.stuck == [families]*encoder{}
		found = true
	}
	if found {
		if *result, err = d.DecodeWithKeys(known); err != nil {
			return together, err
		}
	}
	result.Complete = result.Complete && !together
	return together, nil
}

// backward reports whether any bucket has more packets that left than entered.
func backward(d *encoder) bool {
	for row := range d.Config().Rows {
		for col := range d.Config().Width {
			if n, _, err := d.Bucket(row, col); err == nil && n < 0 {
				return true
			}
		}
	}
	return false
}

// check counts the flows of which more packets left than entered.
func (l *losses) check(result *fermat.Result) {
	for i := range result.Flows {
		if result.Flows[i].Count < 0 && result.Complete { // incomplete: a bucket was wrongly taken for pure
			l.negative++
		}
	}
	if l.negative > 0 {
		l.complete, l.known = false, false
		l.reason = fmt.Sprintf("more packets left than entered in %d flows: the switches' epochs differ, or packets were "+
			"in flight for longer than the drain", l.negative)
	}
}

// name computes the victim flows from both parts, with their entry and exit. Later calls do
// nothing.
func (l *losses) name(b *binding, a *Attention, readings []*reading) error {
	if l.named || !l.deltas {
		return nil
	}
	l.named = true
	n := 0
	for f := range l.results {
		for part := range l.results[f] {
			n += len(l.results[f][part].Flows)
		}
	}
	all := make([]victim, 0, n)
	found := make(map[string]int, n)
	for f := range l.results {
		for part := range l.results[f] {
			for _, x := range l.results[f][part].Flows {
				if !x.Exact || x.Count < 0 { // after an incomplete decoding only exact flows count
					continue
				}
				i, ok := found[string(x.Key)]
				if !ok {
					key, err := flow.ParseBinary(flow.FiveTuple, x.Key)
					if err != nil {
						return err
					}
					i = len(all)
					all = append(all, victim{key: key, raw: string(x.Key), family: f})
					found[all[i].raw] = i
				}
				all[i].lost += x.Count
				all[i].heavy = all[i].heavy || part == heavyPart
			}
		}
	}
	l.results = [families][2]fermat.Result{}
	for i := range all {
		v := &all[i]
		// Packets before the tl-th of a flow were encoded only if the flow is in the sample.
		if v.quality = sdk.LowerBound; l.known && (a.Tl == 1 || a.sampled([]byte(v.raw))) {
			v.quality = sdk.Exact
		}
		b.locate(v, readings)
		if l.known || b.plausible(v) {
			l.victims = append(l.victims, v)
		}
	}
	return nil
}

// rank sorts the victim flows by lost packets, most first.
func (l *losses) rank() {
	slices.SortFunc(l.victims, func(x, y *victim) int {
		return cmp.Or(cmp.Compare(y.lost, x.lost), strings.Compare(x.raw, y.raw))
	})
}

func familyName(f int) string { return [families]string{"IPv4", "IPv6"}[f] }

// delta returns the difference of one part, entered less left, over all edge switches.
func delta(f, part int, readings []*reading) (*encoder, error) {
	d := readings[0].delta[f][part]
	for _, r := range readings {
		if s := r.delta[f][part]; s != d {
			if err := d.Merge(s); err != nil {
				return nil, err
			}
		}
		r.delta[f][part] = nil
	}
	return d, nil
}

// locate sets the entry and exit of a flow from the addresses of the network model. If the model
// lacks the source, the entry is the only edge switch whose classifier counted the flow.
func (b *binding) locate(v *victim, readings []*reading) {
	raw := []byte(v.raw)
	d := family.Digest[hashes](0, raw)
	at := b.attachedTo(v.key.SrcAddr())
	v.exit = b.attachedTo(v.key.DstAddr())
	var only *reading
	saw := 0
	for _, r := range readings {
		n, _ := r.lookUp(d)
		if n == 0 {
			continue
		}
		saw++
		if only = r; r.edge.name == at {
			saw = 1
			break
		}
	}
	if saw == 1 {
		v.entry = only.edge.name
		v.size, _, v.sizeQuality = only.size(raw)
		return
	}
	for _, r := range readings { // the largest estimate bounds the flow's size
		if n, _, q := r.size(raw); n > v.size || v.sizeQuality == "" {
			v.size, v.sizeQuality = n, q
		}
	}
}

// plausible reports whether a flow from an incompletely decoded part can be real. Buckets wrongly
// taken for pure give random keys: the classifiers count too few packets of such a key, and its
// addresses are not in the network model.
func (b *binding) plausible(v *victim) bool {
	if uint64(v.lost) > v.size {
		return false
	}
	at := b.attachedTo(v.key.SrcAddr())
	return len(b.hosts.at) == 0 || at != "" && at == v.entry && v.exit != ""
}

// victimSizes returns the sizes of the victim flows for the control (§4.3.2). All heavy ones are
// measured; each light one is weighted for those outside the sample.
func (l *losses) victimSizes(a *Attention) []victimSize {
	weight := lightWeight(a)
	out := make([]victimSize, 0, len(l.victims))
	for _, v := range l.victims {
		w := weight
		if v.heavy {
			w = 1
		}
		out = append(out, victimSize{family: v.family, size: float64(v.size), weight: w, heavy: v.heavy,
			sampled: a.sampled([]byte(v.raw))})
	}
	return out
}

// lightWeight is the number of light victims that each light victim in the sample stands for.
func lightWeight(a *Attention) float64 {
	if a.State == Ill && a.Sample > 0 {
		return Sampled / float64(a.Sample)
	}
	return 1
}

// number estimates the number of victim flows.
func (l *losses) number(a *Attention) (n float64, ok bool) {
	if !l.deltas {
		return 0, false
	}
	if l.known {
		for _, v := range l.victimSizes(a) {
			n += v.weight
		}
		for f := range families {
			n += float64(l.hl[f].few) + float64(l.ll[f].few)*lightWeight(a)
		}
		return n, true
	}
	for f := range families {
		n += l.hl[f].flows
		n += l.ll[f].flows * lightWeight(a)
	}
	return n, true
}
