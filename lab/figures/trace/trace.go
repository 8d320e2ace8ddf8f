// SPDX-License-Identifier: Apache-2.0

// Package trace holds traffic in memory, generated or captured, with the exact answers about it.
package trace

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/netsketch/netsketch/internal/files"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Trace is packets of flows whose keys have one length. Any number of goroutines may
// read it.
type Trace struct {
	Name      string
	Left      Left
	fields    flow.Fields
	size      int // bytes of every key
	keys      []byte
	at        []uint32 // arrival in microseconds, from 1 on
	flows     []Flow   // largest first
	generated bool     // whether the trace was generated, so that its flows do not change by themselves
	again     func(seed uint64) (*Trace, error)
	like      func(packets, ranks int, seed uint64) (*Trace, error)
	once      sync.Once
	exact     Exact
}

// Left counts packets of a capture.
type Left struct {
	Out  int // left out: neither IPv4 nor IPv6, or a broken header
	IPv6 int // packets of IPv6 flows in the trace
}

// Flow is a flow with its exact number of packets.
type Flow struct {
	Key     string
	Packets uint32
}

// Len is the number of packets.
func (t *Trace) Len() int { return len(t.at) }

// Key returns the key of packet i.
func (t *Trace) Key(i int) []byte { return t.keys[i*t.size : (i+1)*t.size] }

// KeyBytes is the length of every key: 13 for IPv4 5-tuples. If the trace has an IPv6 packet, all
// keys have the 37 bytes of IPv6, with IPv4 addresses mapped (RFC 4291 §2.5.5.2). Keys that are
// source addresses alone have 4 or 16 bytes.
func (t *Trace) KeyBytes() int { return t.size }

// Keys returns the keys of all packets, one after the other.
func (t *Trace) Keys() []byte { return t.keys }

// At returns when packet i arrived, in microseconds, from 1 on.
func (t *Trace) At(i int) uint32 { return t.at[i] }

// Fields are the fields of the keys.
func (t *Trace) Fields() flow.Fields { return t.fields }

// Flows are the flows, largest first.
func (t *Trace) Flows() []Flow { return t.flows }

func (t *Trace) add(key []byte, at uint32) {
	t.keys = append(t.keys, key...)
	t.at = append(t.at, at)
}

func (t *Trace) finish() (*Trace, error) {
	if len(t.at) == 0 {
		return nil, fmt.Errorf("trace %s: no packet of a flow", t.Name)
	}
	t.count()
	return t, nil
}

// Sources returns the same packets with the source address as the flow, as several papers have it.
func (t *Trace) Sources() *Trace {
	s := &Trace{Name: t.Name, Left: t.Left, fields: flow.Src, size: 4, at: t.at, generated: t.generated}
	if t.size == flow.FiveTupleV6 {
		s.size = 16
	}
	s.keys = make([]byte, 0, t.Len()*s.size)
	for i := range t.Len() {
		s.keys = append(s.keys, t.Key(i)[:s.size]...)
	}
	s.count()
	if t.again != nil {
		s.again = func(seed uint64) (*Trace, error) {
			o, err := t.again(seed)
			if err != nil {
				return nil, err
			}
			return o.Sources(), nil
		}
	}
	return s
}

// Window returns the packets from from to to.
func (t *Trace) Window(from, to int) *Trace {
	w := &Trace{Name: t.Name, Left: t.Left, fields: t.fields, size: t.size, keys: t.keys[from*t.size : to*t.size],
		at: t.at[from:to], generated: t.generated}
	w.count()
	return w
}

// Another generates a trace of the same kind from another seed; for a capture it returns the
// capture itself.
func (t *Trace) Another(seed uint64) (*Trace, error) {
	if t.again == nil {
		return t, nil
	}
	return t.again(seed)
}

// Like generates another number of packets of the same kind from a seed; a Zipf distribution has
// this number of ranks, which is the most flows there can be. For a capture it returns the capture
// itself.
func (t *Trace) Like(packets, ranks int, seed uint64) (*Trace, error) {
	if t.like == nil {
		return t, nil
	}
	return t.like(packets, ranks, seed)
}

var mapped = [12]byte{10: 0xff, 11: 0xff}

// Parse returns a key as packet parsers return it.
func (t *Trace) Parse(k []byte) flow.Key {
	var buf [flow.FiveTupleV4]byte
	switch {
	case t.size == flow.FiveTupleV6 && [12]byte(k) == mapped && [12]byte(k[16:]) == mapped:
		b := append(append(append(buf[:0], k[12:16]...), k[28:32]...), k[32:]...)
		key, _ := flow.ParseBinary(t.fields, b)
		return key
	case t.size == 16 && [12]byte(k) == mapped:
		k = k[12:]
	}
	key, _ := flow.ParseBinary(t.fields, k)
	return key
}

// AppendKey is the inverse of Parse.
func (t *Trace) AppendKey(b []byte, k flow.Key) []byte {
	if k.V6 || t.size == flow.FiveTupleV4 || t.size == 4 {
		return k.AppendBinary(b)
	}
	b = append(append(b, mapped[:]...), k.Src[:4]...)
	if t.size == 16 {
		return b
	}
	b = append(append(b, mapped[:]...), k.Dst[:4]...)
	b = append(b, k.Proto)
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, k.SrcPort), k.DstPort)
}

// count fills in the flows.
func (t *Trace) count() {
	counts := make(map[string]uint32)
	for i := range t.Len() {
		counts[string(t.Key(i))]++
	}
	t.flows = make([]Flow, 0, len(counts))
	for k, n := range counts {
		t.flows = append(t.flows, Flow{k, n})
	}
	slices.SortFunc(t.flows, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), strings.Compare(a.Key, b.Key))
	})
}

// Load returns the traffic that spec names: zipf:SKEW, cdf:FILE (lines of packets and the
// share of flows with at most this number), pcap:FILE, or records:FILE, whose records
// are the 21 bytes that the papers' programs read, a key of 13 and a time of 8. Generated
// traffic has the given number of packets and comes from the seed.
func Load(spec string, packets int, seed uint64) (*Trace, error) {
	return named("", spec, packets, packets/10, seed)
}

// named loads a trace with this number of packets and ranks; its name follows from them if empty.
func named(name, spec string, packets, ranks int, seed uint64) (*Trace, error) {
	t, err := load(spec, packets, max(ranks, 1), seed)
	if err != nil || !t.generated {
		return t, err
	}
	if name != "" {
		t.Name = name
	}
	t.again = func(seed uint64) (*Trace, error) { return named(name, spec, packets, ranks, seed) }
	t.like = func(packets, ranks int, seed uint64) (*Trace, error) {
		return named(fmt.Sprintf("%s; of its kind %d packets of %d ranks", t.Name, packets, ranks), spec, packets, ranks,
			seed)
	}
	return t, nil
}

func load(spec string, packets, ranks int, seed uint64) (*Trace, error) {
	kind, arg, _ := strings.Cut(spec, ":")
	switch kind {
	case "zipf":
		skew, err := strconv.ParseFloat(arg, 64)
		if err != nil || !(skew >= 0 && skew <= 5) {
			return nil, fmt.Errorf("trace %q: the skew is a number of 0 to 5, such as zipf:1.1", spec)
		}
		if packets < 1 || packets > 1<<28 {
			return nil, fmt.Errorf("trace %q: %d packets; expected 1 to %d", spec, packets, 1<<28)
		}
		return Zipf(spec, skew, ranks, packets, seed)
	case "cdf":
		if packets < 1 || packets > 1<<28 {
			return nil, fmt.Errorf("trace %q: %d packets; expected 1 to %d", spec, packets, 1<<28)
		}
		weights, err := readCDF(arg, packets, seed)
		if err != nil {
			return nil, fmt.Errorf("trace %q: %w", spec, err)
		}
		return generate(spec, weights, packets, seed)
	case "pcap":
		return readPcap(arg)
	case "records":
		f, err := os.Open(arg)
		if err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		defer f.Close()
		return ReadRecords(arg, f)
	}
	return nil, fmt.Errorf("trace %q: expected zipf:SKEW, cdf:FILE, pcap:FILE or records:FILE", spec)
}

// Zipf returns packets of at most as many flows as there are ranks, which are drawn in proportion
// to rank^-skew. Ranks and packets are at least 1.
func Zipf(name string, skew float64, ranks, packets int, seed uint64) (*Trace, error) {
	weights := make([]float64, ranks)
	for i := range weights {
		weights[i] = math.Pow(float64(i+1), -skew)
	}
	return generate(name, weights, packets, seed)
}

// generate draws packets of flows with random keys in proportion to their weights.
func generate(name string, weights []float64, packets int, seed uint64) (*Trace, error) {
	const size = flow.FiveTupleV4
	r := rand.New(rand.NewPCG(seed, 0x62656e6368))
	sum, total := make([]float64, len(weights)), 0.0
	keys := make([]byte, len(weights)*size+8)
	for i := 0; i < len(weights)*size; i += 8 {
		binary.LittleEndian.PutUint64(keys[i:], r.Uint64())
	}
	for i, w := range weights {
		total += w
		sum[i] = total
		keys[i*size+8] = 6
	}
	t := &Trace{Name: fmt.Sprintf("%s, %d packets, seed %d", name, packets, seed), fields: flow.FiveTuple, size: size,
		generated: true}
	for i := range packets {
		f := min(sort.SearchFloat64s(sum, r.Float64()*total), len(sum)-1)
		t.add(keys[f*size:(f+1)*size], uint32(1+int64(i)*5_000_000/int64(packets)))
	}
	return t.finish()
}

func readCDF(name string, packets int, seed uint64) ([]float64, error) {
	b, err := files.ReadText(name)
	if err != nil {
		return nil, err
	}
	var sizes, shares []float64
	for i, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var x, p float64
		if _, err := fmt.Sscan(line, &x, &p); err != nil {
			return nil, fmt.Errorf("line %d: %q is not a size and a share", i+1, line)
		}
		if n := len(sizes); !(x >= 1) || !(p >= 0 && p <= 1) || n > 0 && (x < sizes[n-1] || p < shares[n-1]) {
			return nil, fmt.Errorf("line %d: %q does not continue a cumulative distribution", i+1, line)
		}
		sizes, shares = append(sizes, x), append(shares, p)
	}
	if len(sizes) == 0 || shares[len(shares)-1] != 1 {
		return nil, errors.New("the last share is not 1")
	}
	r := rand.New(rand.NewPCG(seed, 0x636466))
	var weights []float64
	for sum := 0.0; sum < float64(packets); {
		u := r.Float64()
		i := sort.SearchFloat64s(shares, u)
		x := sizes[min(i, len(sizes)-1)]
		if i > 0 && i < len(sizes) && shares[i] > shares[i-1] {
			x = sizes[i-1] + (sizes[i]-sizes[i-1])*(u-shares[i-1])/(shares[i]-shares[i-1])
		}
		weights = append(weights, x)
		sum += x
	}
	return weights, nil
}
