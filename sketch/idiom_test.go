// SPDX-License-Identifier: Apache-2.0

package sketch_test

import (
	"bytes"
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/internal/test/zipf"
	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/countmin"
	"github.com/netsketch/netsketch/sketch/countsketch"
	"github.com/netsketch/netsketch/sketch/estimate"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/fermat"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/sumax"
	"github.com/netsketch/netsketch/sketch/tower"
	"github.com/netsketch/netsketch/sketch/universal"
)

// TestIdiom checks the API that package sketch describes for all structures. Each structure's
// package tests what it counts and how accurately.

// subject is one structure with the common API.
type subject struct {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler

	of       any // the structure itself, for merge and subtract
	memory   int
	insert   func(key []byte) error
	batch    func(keys []byte, size int) error
	query    func(key []byte) float64
	reset    func()
	merge    func(o any) error
	subtract func(o any) error // nil if the structure cannot be subtracted
	bound    func() sketch.Bound
	decodes  bool // a query decodes the whole sketch, and allocates
}

// kind makes subjects. linear means that the sum of two sketches equals, bit by bit, the sketch of
// both sketches' packets. reorders means that the counters depend on the order of packets, which a
// batch changes.
type kind struct {
	name   string
	build  func(memory int, seed uint64) (*subject, error)
	linear bool
	seeded bool
	sizes  []int // lengths of keys, including 13

	reorders bool
}

func wrap[T interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
	Memory() int
	Reset()
}](s T, merge func(T) error, subtract func(T) error) *subject {
	x := &subject{BinaryMarshaler: s, BinaryUnmarshaler: s, of: s, memory: s.Memory(), reset: s.Reset}
	x.merge = func(o any) error {
		t, _ := o.(T) // a nil o becomes a nil T
		return merge(t)
	}
	if subtract != nil {
		x.subtract = func(o any) error {
			t, _ := o.(T)
			return subtract(t)
		}
	}
	return x
}

var anyLength = []int{1, 4, 13, 16, 37}

func kinds() (all []kind) {
	all = append(all, hashed[family.Fast](true)...)
	all = append(all, hashed[family.P4](false)...)
	all = append(all,
		fermatKind[family.Fast, fermat.Mersenne61]("2^61-1", true),
		fermatKind[family.Fast, fermat.Prime32]("2^32-5", true),
		fermatKind[family.P4, fermat.Prime32]("2^32-5", false),
		kind{name: "universal", linear: false, sizes: []int{13, 37},
			build: func(memory int, _ uint64) (*subject, error) {
				l, err := universal.Fit(flow.FiveTuple, memory)
				if err != nil {
					return nil, err
				}
				s, err := universal.New(l)
				if err != nil {
					return nil, err
				}
				x := wrap(s, s.Merge, s.Subtract)
				x.insert, x.batch, x.bound = s.Insert, s.InsertBatch, s.Bound
				x.query = func(k []byte) float64 { return float64(s.Query(k)) }
				return x, nil
			}})
	return all
}

// insertAll adapts an Insert without an error result.
func insertAll(f func([]byte)) func([]byte) error {
	return func(k []byte) error { f(k); return nil }
}

func hashed[F family.Hash](seeded bool) []kind {
	name := func(s string) string { return s + " " + family.Name[F]() }
	var out []kind
	for _, cu := range []bool{false, true} {
		out = append(out,
			kind{name(fmt.Sprintf("countmin, conservative %v", cu)), func(memory int, seed uint64) (*subject, error) {
				s, err := countmin.New[F](countmin.Config{Memory: memory, Seed: seed, Conservative: cu})
				if err != nil {
					return nil, err
				}
				subtract := s.Subtract
				if cu {
					subtract = nil
				}
				x := wrap(s, s.Merge, subtract)
				x.insert, x.batch, x.bound = insertAll(s.Insert), s.InsertBatch, s.Bound
				x.query = func(k []byte) float64 { return float64(s.Query(k)) }
				return x, nil
			}, !cu, seeded, anyLength, cu && seeded},
			kind{name(fmt.Sprintf("tower, conservative %v", cu)), func(memory int, seed uint64) (*subject, error) {
				s, err := tower.New[F](tower.Config{Memory: memory, Seed: seed, Conservative: cu})
				if err != nil {
					return nil, err
				}
				x := wrap(s, s.Merge, nil) // an overflowed counter cannot be subtracted
				x.insert, x.batch = insertAll(s.Insert), s.InsertBatch
				x.bound = func() sketch.Bound { return s.Bound(1, packets) }
				x.query = func(k []byte) float64 { return float64(s.Query(k)) }
				return x, nil
			}, !cu, seeded, anyLength, cu && seeded})
	}
	return append(out,
		kind{name("latency tower"), func(memory int, seed uint64) (*subject, error) {
			s, err := tower.NewLatency[F](tower.Config{Memory: memory, Seed: seed})
			if err != nil {
				return nil, err
			}
			x := wrap(s, s.Merge, nil)
			x.insert = func(k []byte) error { s.Insert(k, 10); return nil }
			latencies := slices.Repeat([]uint32{10}, packets)
			x.batch = func(keys []byte, size int) error {
				return s.InsertBatch(keys, size, latencies[:len(keys)/max(size, 1)])
			}
			x.bound = func() sketch.Bound { return s.Bound(1, packets) }
			x.query = func(k []byte) float64 { n, _, _ := s.Query(k); return float64(n) }
			return x, nil
		}, true, seeded, anyLength, false},
		kind{name("countsketch"), func(memory int, seed uint64) (*subject, error) {
			s, err := countsketch.New[F](countsketch.Config{Memory: memory, Seed: seed})
			if err != nil {
				return nil, err
			}
			x := wrap(s, s.Merge, s.Subtract)
			x.insert, x.batch, x.bound = insertAll(s.Insert), s.InsertBatch, s.Bound
			x.query = func(k []byte) float64 { return float64(s.Query(k)) }
			return x, nil
		}, true, seeded, anyLength, false},
		kind{name("sumax"), func(memory int, seed uint64) (*subject, error) {
			s, err := sumax.New[F](sumax.Config{Memory: memory, Seed: seed})
			if err != nil {
				return nil, err
			}
			x := wrap(s, s.Merge, nil) // sums with approximate conservative update are not linear
			x.insert, x.batch = insertAll(s.Insert), s.InsertBatch
			x.bound = func() sketch.Bound { return s.Bound(packets) }
			x.query = func(k []byte) float64 { n, _ := s.Query(k); return float64(n) }
			return x, nil
		}, false, seeded, anyLength, false})
}

func fermatKind[F family.Hash, E fermat.Field](field string, seeded bool) kind {
	return kind{"fermat " + field + " " + family.Name[F](), func(memory int, seed uint64) (*subject, error) {
		s, err := fermat.New[F, E](fermat.Config{Memory: memory, KeyBytes: 13, Seed: seed})
		if err != nil {
			return nil, err
		}
		x := wrap(s, s.Merge, s.Subtract)
		x.insert, x.batch, x.bound, x.decodes = s.Insert, s.InsertBatch, s.Bound, true
		x.query = func(k []byte) float64 {
			r, err := s.Decode()
			for _, f := range r.Flows {
				if bytes.Equal(f.Key, k) && f.Exact && err == nil {
					return float64(f.Count)
				}
			}
			return 0
		}
		return x, nil
	}, true, seeded, []int{13}, false}
}

const (
	memory  = 60_000
	packets = 20_000
)

const least = 9000 // bytes that are enough for every structure

// hottest returns the key with the most packets.
func hottest(tr *zipf.Trace) []byte {
	most := ""
	for k, n := range tr.Count {
		if m := tr.Count[most]; n > m || n == m && k < most {
			most = k
		}
	}
	return []byte(most)
}

// trafficFor returns packets with few enough flows for every structure, including Fermat, to count
// them in 60 KB.
func trafficFor(size int) *zipf.Trace { return zipf.New(5, packets, 900, 1.1, size) }

func (k kind) must(t *testing.T, memory int, seed uint64) *subject {
	t.Helper()
	s, err := k.build(memory, seed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (x *subject) fill(t *testing.T, tr *zipf.Trace, from, to int) *subject {
	t.Helper()
	for i := from; i < to; i++ {
		if err := x.insert(tr.Key(i)); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

func (x *subject) bytes(t *testing.T) []byte {
	t.Helper()
	b, err := x.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestIdiom(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Run("construct", k.construct)
			t.Run("insert and query", k.insertAndQuery)
			t.Run("merge", k.merge)
			t.Run("mismatch", k.mismatch)
			t.Run("bytes", k.bytes)
			t.Run("allocations", k.allocations)
		})
	}
}

func (k kind) construct(t *testing.T) {
	for _, m := range []int{math.MinInt, -1, 0, 1, math.MaxInt} {
		if _, err := k.build(m, 0); !errors.Is(err, sketch.ErrConfig) {
			t.Errorf("%d bytes: %v", m, err)
		}
	}
	for _, m := range []int{least, memory, 777_777} {
		if s := k.must(t, m, 0); s.memory > m || s.memory < m*9/10 {
			t.Errorf("of %d bytes it takes %d", m, s.memory)
		}
	}
	if _, err := k.build(memory, 2); !k.seeded && k.name != "universal" && !errors.Is(err, sketch.ErrConfig) {
		t.Errorf("an even seed for hashes of P4: %v", err)
	}
}

func (k kind) insertAndQuery(t *testing.T) {
	for _, size := range k.sizes {
		tr := trafficFor(max(size, 4))
		if size < 4 {
			tr = &zipf.Trace{Size: size, Keys: tr.Keys[:packets*size], Count: map[string]uint32{}}
			for i := range tr.Len() {
				tr.Count[string(tr.Key(i))]++
			}
		}
		seed := uint64(0)
		if k.seeded {
			seed = 5
		}
		s := k.must(t, memory, seed)
		empty := s.bytes(t)
		s.fill(t, tr, 0, tr.Len())
		if s.batch != nil {
			o := k.must(t, memory, seed)
			for _, part := range [][]byte{tr.Keys[:size], tr.Keys[size : 700*size], nil, tr.Keys[700*size:]} {
				if err := o.batch(part, size); err != nil {
					t.Fatal(err)
				}
			}
			if k.reorders {
				for key, n := range tr.Count {
					if e := o.query([]byte(key)); e < float64(n) {
						t.Errorf("keys of %d bytes: after a batch %x has %v of %d packets", size, key, e, n)
					}
				}
			} else if !bytes.Equal(o.bytes(t), s.bytes(t)) {
				t.Errorf("keys of %d bytes: a batch gives another sketch", size)
			}
			for _, err := range []error{o.batch(tr.Keys[:2*size+1], size+size/20), o.batch(make([]byte, 5), 0),
				o.batch(make([]byte, 5), -5), o.batch(make([]byte, size+1), size)} {
				if size > 1 && !errors.Is(err, sketch.ErrMismatch) {
					t.Errorf("a batch that is no number of keys: %v", err)
				}
			}
		}
		b := s.bound()
		if b.Failure <= 0 || b.Failure >= 1 || math.IsInf(b.Over, 0) || b.Over < 0 || b.Under < 0 {
			t.Errorf("bound %+v", b)
		}
		off := 0
		for key, n := range tr.Count {
			if s.decodes && n < 50 {
				continue
			}
			e := s.query([]byte(key))
			if e-b.Over > float64(n) || e+b.Under < float64(n) {
				off++
			}
		}
		if float64(off) > b.Failure*float64(len(tr.Count)) {
			t.Errorf("keys of %d bytes: %d of %d are further off than %+v", size, off, len(tr.Count), b)
		}
		s.reset()
		if !bytes.Equal(s.bytes(t), empty) {
			t.Error("not empty after Reset")
		}
	}
}

func (k kind) merge(t *testing.T) {
	tr := trafficFor(13)
	hot := hottest(tr)
	all := k.must(t, memory, 0).fill(t, tr, 0, tr.Len())
	a, b := k.must(t, memory, 0).fill(t, tr, 0, 5000), k.must(t, memory, 0).fill(t, tr, 5000, tr.Len())
	first, second := a.bytes(t), b.bytes(t)
	if err := a.merge(b.of); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.bytes(t), second) {
		t.Error("the one that was merged changed")
	}
	if k.linear && !bytes.Equal(a.bytes(t), all.bytes(t)) {
		t.Error("the sum is not the sketch of all packets")
	}
	if got := a.query(hot); math.Abs(got/float64(tr.Count[string(hot)])-1) > 0.05 {
		t.Errorf("the sum has %v of %d packets", got, tr.Count[string(hot)])
	}
	if a.subtract != nil {
		if err := a.subtract(b.of); err != nil {
			t.Fatal(err)
		}
		if k.linear && !bytes.Equal(a.bytes(t), first) {
			t.Error("less the second part it is not the first")
		}
	}
	before := all.query(hot)
	if err := all.merge(all.of); err != nil || all.query(hot) != 2*before {
		t.Errorf("merged with itself it has %v packets of a key, %v before (%v)", all.query(hot), before, err)
	}
	if all.subtract != nil {
		if err := all.subtract(all.of); err != nil || !bytes.Equal(all.bytes(t), k.must(t, memory, 0).bytes(t)) {
			t.Errorf("less itself it is not empty (%v)", err)
		}
	}
}

func (k kind) mismatch(t *testing.T) {
	s := k.must(t, memory, 0).fill(t, trafficFor(13), 0, 100)
	before := s.bytes(t)
	others := map[string]any{"nothing": nil, "another shape": k.must(t, memory/2, 0).of}
	if k.seeded {
		others["another seed"] = k.must(t, memory, 1).of
	}
	for name, o := range others {
		if err := s.merge(o); !errors.Is(err, sketch.ErrMismatch) {
			t.Errorf("merge of %s: %v", name, err)
		}
		if s.subtract != nil {
			if err := s.subtract(o); !errors.Is(err, sketch.ErrMismatch) {
				t.Errorf("subtraction of %s: %v", name, err)
			}
		}
	}
	if !bytes.Equal(s.bytes(t), before) {
		t.Error("what was refused changed it")
	}
}

func (k kind) bytes(t *testing.T) {
	s := k.must(t, least, 0).fill(t, trafficFor(13), 0, 3000)
	b := s.bytes(t)
	o := k.must(t, memory, 0)
	if err := o.UnmarshalBinary(b); err != nil || !bytes.Equal(o.bytes(t), b) {
		t.Fatalf("read back it is another (%v)", err)
	}
	if err := o.merge(s.of); err != nil {
		t.Errorf("read back it does not merge: %v", err)
	}
	if err := o.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	// The bytes are damaged, but have a valid checksum: another version, kind or family, and a shape
	// with too few or too many cells.
	sum := func(b []byte) []byte { return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b)) }
	body := b[:len(b)-4]
	bad := map[string][]byte{"nothing": nil, "short": body[:20], "a byte missing": sum(bytes.Clone(body[:len(body)-1])),
		"a byte more": sum(append(bytes.Clone(body), 0)), "no checksum": body}
	for at, what := range map[int]string{3: "version", 4: "kind", 5: "family"} {
		c := bytes.Clone(body)
		c[at] ^= 0x40
		bad["another "+what] = sum(c)
	}
	for i := 0; i < len(b); i += 37 {
		c := bytes.Clone(b)
		c[i] ^= 1
		bad[fmt.Sprintf("byte %d changed", i)] = c
		bad[fmt.Sprintf("cut to %d", i)] = b[:i]
	}
	for name, c := range bad {
		if err := o.UnmarshalBinary(c); !errors.Is(err, sketch.ErrFormat) && !errors.Is(err, sketch.ErrMismatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !bytes.Equal(o.bytes(t), b) {
		t.Error("what was refused changed it")
	}
}

func (k kind) allocations(t *testing.T) {
	tr := trafficFor(13)
	s := k.must(t, memory, 0)
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		_ = s.insert(tr.Key(i))
		if !s.decodes {
			s.query(tr.Key(i))
		}
		if s.batch != nil && i%100 == 0 {
			_ = s.batch(tr.Keys[:13*300], 13)
		}
		i++
	}); n != 0 {
		t.Errorf("%v allocations an insertion", n)
	}
}

// TestEstimatorsIdiom: the estimators accept rows of every structure, and refuse rows without
// information.
func TestEstimatorsIdiom(t *testing.T) {
	tr := trafficFor(13)
	c, err1 := countmin.New[family.Fast](countmin.Config{Memory: memory})
	w, err2 := tower.New[family.Fast](tower.Config{Memory: memory})
	s, err3 := sumax.New[family.Fast](sumax.Config{Memory: memory})
	if err := errors.Join(err1, err2, err3, c.InsertBatch(tr.Keys, 13), w.InsertBatch(tr.Keys, 13),
		s.InsertBatch(tr.Keys, 13)); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string][]uint32{"countmin": c.Row(0), "tower": w.Row(0), "sumax": s.Row(0)} {
		n, ok := estimate.Cardinality(len(row), estimate.Zeros(row))
		if !ok || math.Abs(n/float64(len(tr.Count))-1) > 0.05 {
			t.Errorf("%s: %v flows of %d", name, n, len(tr.Count))
		}
	}
	d, err := estimate.MRAC{}.Run(c.Row(1))
	if err != nil || math.Abs(d.Flows()/float64(len(tr.Count))-1) > 0.05 || math.Abs(d.Packets()/packets-1) > 0.05 {
		t.Errorf("MRAC: %v flows of %d, %v packets (%v)", d.Flows(), len(tr.Count), d.Packets(), err)
	}
	full := []uint32{3, 2, 5}
	if _, ok := estimate.Cardinality(len(full), estimate.Zeros(full)); ok {
		t.Error("a full row gives a number of flows")
	}
	if _, err := (estimate.MRAC{}).Run(full); !errors.Is(err, sketch.ErrLimit) {
		t.Errorf("a full row gives sizes: %v", err)
	}
	if _, err := (estimate.MRAC{}).Run(nil); !errors.Is(err, sketch.ErrConfig) {
		t.Errorf("no row: %v", err)
	}
}
