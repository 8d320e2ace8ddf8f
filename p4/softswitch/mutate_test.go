// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// mutator changes a JSON tree at a few places: it replaces values by other values of the same file,
// changes numbers, and removes members.
type mutator struct {
	r     *rand.Rand
	nodes []place
}

// place is one value in the tree.
type place struct {
	get func() any
	set func(any)
}

func (m *mutator) collect(v any) {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			if k == "source_info" {
				continue
			}
			m.nodes = append(m.nodes, place{func() any { return v[k] }, func(x any) { v[k] = x }})
			m.collect(v[k])
		}
	case []any:
		for i := range v {
			m.nodes = append(m.nodes, place{func() any { return v[i] }, func(x any) { v[i] = x }})
			m.collect(v[i])
		}
	}
}

var oddValues = []any{
	nil, true, false, "", "0x0", "0xffffffffffffffffffffffffffffffffff", "-0x1", "default", "*", 0.0, -1.0, 1.0, 64.0,
	65.0, 65536.0, 1e18,
	[]any{}, map[string]any{}, "hexstr", "field", "header", "header_stack", "expression", "runtime_data",
}

func (m *mutator) mutate(tree any) {
	m.collect(tree)
	for range 1 + m.r.IntN(2) {
		at := m.nodes[m.r.IntN(len(m.nodes))]
		switch v := at.get().(type) {
		case float64:
			at.set([]any{v + 1, v - 1, v * 2, 0.0, 1.0, v + 1000, 63.0, 64.0, 65.0, 129.0}[m.r.IntN(10)])
			continue
		case []any:
			if len(v) > 0 && m.r.IntN(2) == 0 {
				i := m.r.IntN(len(v))
				if m.r.IntN(2) == 0 {
					at.set(slices.Delete(slices.Clone(v), i, i+1))
				} else {
					at.set(append(slices.Clone(v), clone(v[i])))
				}
				continue
			}
		}
		if m.r.IntN(3) == 0 {
			at.set(oddValues[m.r.IntN(len(oddValues))])
			continue
		}
		// A value of the same kind keeps the file well-formed and changes its meaning.
		for range 50 {
			other := m.nodes[m.r.IntN(len(m.nodes))].get()
			if sameKind(other, at.get()) {
				at.set(clone(other))
				break
			}
		}
	}
}

func clone(v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	var out any
	_ = json.Unmarshal(b, &out)
	return out
}

func sameKind(a, b any) bool {
	switch a.(type) {
	case string:
		_, ok := b.(string)
		return ok
	case float64:
		_, ok := b.(float64)
		return ok
	case []any:
		_, ok := b.([]any)
		return ok
	case map[string]any:
		_, ok := b.(map[string]any)
		return ok
	}
	return false
}

func testPrograms(tb testing.TB) (out [][]byte) {
	tb.Helper()
	names, err := filepath.Glob("testdata/*.json")
	if err != nil || len(names) == 0 {
		tb.Fatal("no test programs", err)
	}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// runHostile compiles a file that may be anything and, when it compiles, runs packets through it.
func runHostile(js []byte, pkts ...[]byte) bool {
	p, err := Compile(js)
	if err != nil {
		return false
	}
	words := 0
	for _, r := range p.Info.Registers {
		words += r.Size * ((r.Width + 63) / 64)
	}
	for _, c := range p.Info.Counters {
		words += c.Size
	}
	for _, m := range p.Info.Meters {
		words += m.Size * 20
	}
	if words > 1<<22 {
		return true // a mutated program may ask for more memory than this test allows
	}
	s := New(Config{MaxLoops: 3})
	defer s.Close()
	if err := s.Load(p); err != nil {
		return true
	}
	_ = s.AddPort(0, Port{})
	_ = s.InsertCloneSession(CloneSession{ID: 1, Replicas: []Replica{{Port: 0, Instance: 1}}})
	_ = s.InsertMulticastGroup(MulticastGroup{ID: 1,
		Replicas: []Replica{{Port: 0, Instance: 1}, {Port: 1, Instance: 1}}})
	for _, pkt := range pkts {
		s.Inject(0, pkt, 0)
	}
	return true
}

func mutated(js []byte, seed uint64) []byte {
	var tree any
	if err := json.Unmarshal(js, &tree); err != nil {
		return nil
	}
	m := mutator{r: rand.New(rand.NewPCG(seed, 1))}
	m.mutate(tree)
	out, _ := json.Marshal(tree)
	return out
}

// TestMutatedPrograms: well-formed files with another meaning are refused or run, and never cause a
// panic.
func TestMutatedPrograms(t *testing.T) {
	t.Parallel()
	ran, total := 0, 0
	for i, js := range testPrograms(t) {
		for seed := range uint64(30) {
			r := rand.New(rand.NewPCG(seed, 3))
			total++
			if runHostile(mutated(js, uint64(i)<<32|seed), random(r, r.IntN(200)), random(r, 300),
				request{op: byte(seed % 14), session: 1}.bytes()) {
				ran++
			}
		}
	}
	t.Logf("%d of %d changed programs were taken", ran, total)
	if ran == 0 || ran == total {
		t.Errorf("%d of %d changed programs were taken", ran, total)
	}
}

// FuzzMutated checks what TestMutatedPrograms checks, on random changes.
func FuzzMutated(f *testing.F) {
	programs := testPrograms(f)
	f.Add(uint8(0), uint64(1), []byte{1, 2, 3})
	f.Fuzz(func(_ *testing.T, which uint8, seed uint64, pkt []byte) {
		r := rand.New(rand.NewPCG(seed, 4))
		runHostile(mutated(programs[int(which)%len(programs)], seed), pkt, random(r, 200),
			request{op: byte(seed % 14), session: 1}.bytes())
	})
}
