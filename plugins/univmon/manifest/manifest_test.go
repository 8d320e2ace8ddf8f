// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// graph is a connected graph as lists of neighbors.
type graph [][]int

// random returns a tree of n switches with the given number of further links, or as many as there
// can be.
func random(r *rand.Rand, n, links int) graph {
	g := make(graph, n)
	join := func(a, b int) {
		g[a], g[b] = append(g[a], b), append(g[b], a)
	}
	for j := 1; j < n; j++ {
		join(j, max(0, j-1-r.IntN(min(j, 8))))
	}
	for links = min(links, n*(n-1)/2) - (n - 1); links > 0; {
		if a, b := r.IntN(n), r.IntN(n); a != b && !slices.Contains(g[a], b) {
			join(a, b)
			links--
		}
	}
	for _, to := range g {
		slices.Sort(to)
	}
	return g
}

// paths returns at most most shortest paths.
func (g graph) paths(from, to, most int) (out [][]int) {
	distance := make([]int, len(g))
	for j := range distance {
		distance[j] = math.MaxInt
	}
	distance[to] = 0
	for queue := []int{to}; len(queue) > 0; queue = queue[1:] {
		for _, j := range g[queue[0]] {
			if distance[j] == math.MaxInt {
				distance[j] = distance[queue[0]] + 1
				queue = append(queue, j)
			}
		}
	}
	var walk func(path []int)
	walk = func(path []int) {
		at := path[len(path)-1]
		if at == to {
			out = append(out, slices.Clone(path))
		}
		for _, j := range g[at] {
			if len(out) < most && distance[j] == distance[at]-1 {
				walk(append(path, j))
			}
		}
	}
	walk([]int{from})
	return out
}

// problem has all pairs of different switches.
func (g graph) problem(dimensions, paths int) *Problem {
	p := &Problem{}
	for k := range dimensions {
		p.Dimensions = append(p.Dimensions, Dimension{fmt.Sprint("dimension ", k), 1})
	}
	for from := range g {
		p.Switches = append(p.Switches, Switch{Name: fmt.Sprint("s", from)})
		for to := range g {
			if from != to {
				p.Pairs = append(p.Pairs, Pair{from, to, g.paths(from, to, paths)})
			}
		}
	}
	return p
}

// check fails the test unless each path of each pair has one switch that counts each dimension.
func check(t *testing.T, p *Problem, m *Manifest) {
	t.Helper()
	counts := make([]map[int]Set, len(p.Switches))
	load := make([]int, len(p.Switches))
	for j, duties := range m.Duties {
		counts[j] = map[int]Set{}
		var kept Set
		for _, d := range duties {
			if d.Set == 0 || counts[j][d.Pair] != 0 || p.Switches[j].Excluded {
				t.Errorf("switch %d has the duty %v twice, for nothing or while it is excluded", j, d)
			}
			counts[j][d.Pair] = d.Set
			kept |= d.Set
		}
		load[j] = p.bytes(kept)
		if kept != m.Kept[j] || p.Switches[j].Capacity > 0 && load[j] > p.Switches[j].Capacity {
			t.Errorf("switch %d counts %b and keeps %b, %d bytes", j, kept, m.Kept[j], load[j])
		}
	}
	uncovered := map[int]Set{}
	for _, d := range m.Uncovered {
		uncovered[d.Pair] = d.Set
	}
	for i, pair := range p.Pairs {
		for k := range p.Dimensions {
			for _, path := range pair.Paths {
				n := 0
				for _, j := range path {
					if counts[j][i].Has(k) {
						n++
					}
				}
				if want := map[bool]int{false: 1}[uncovered[i].Has(k)]; n != want {
					t.Fatalf("dimension %d of path %v: %d switches count it, expected %d", k, path, n, want)
				}
			}
		}
	}
	sum := 0
	for _, l := range load {
		sum += l
	}
	if m.Max != slices.Max(load) || m.Sum != sum || float64(m.Cost()) < m.Bound-1e-6 {
		t.Errorf("max %d, sum %d, cost %d; expected %d, %d, at least %v", m.Max, m.Sum, m.Cost(), slices.Max(load), sum,
			m.Bound)
	}
}

func solve(t *testing.T, p *Problem, s Scheme) *Manifest {
	t.Helper()
	m, err := Solve(p, s)
	if err != nil {
		t.Fatal(err)
	}
	check(t, p, m)
	return m
}

// figure3 is the paper's example: two pairs of hosts across a link, and two of the four switches on
// both paths.
func figure3() *Problem {
	const o1, o2, a, b, d1, d2 = 0, 1, 2, 3, 4, 5
	p := &Problem{Dimensions: []Dimension{{"5-tuple", 1}, {"src", 1}}}
	for _, name := range []string{"O1", "O2", "A", "B", "D1", "D2"} {
		p.Switches = append(p.Switches, Switch{Name: name})
	}
	for _, o := range []int{o1, o2} {
		for _, d := range []int{d1, d2} {
			p.Pairs = append(p.Pairs, Pair{o, d, [][]int{{o, a, b, d}}})
		}
	}
	return p
}

// The manifest of Figure 3 is one sketch on A and one on B; the other schemes need more. The
// paper's scheme query finds the same optimum; here it assigns one pair after another, with a
// request for each.
func TestFigure3(t *testing.T) {
	p := figure3()
	for s, want := range map[Scheme][3]int{Optimized: {1, 2, 0}, Ingress: {2, 4, 0}, Greedy: {1, 3, 0}, Query: {1, 3, 4}} {
		if m := solve(t, p, s); m.Max != want[0] || m.Sum != want[1] || m.Requests != want[2] {
			t.Errorf("%s: max %d, sum %d, %d requests; expected %v", s, m.Max, m.Sum, m.Requests, want)
		}
	}
	if m := solve(t, p, Optimized); m.Gap() != 0 || m.Sketches() != 2 {
		t.Errorf("gap %v, %d sketches; expected 0 and 2", m.Gap(), m.Sketches())
	}
}

// Every manifest counts every path once: single and multiple paths, sketches of unlike sizes,
// switches that are excluded or have little memory.
func TestOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for n := range 60 {
		g := random(r, 4+r.IntN(12), 8+r.IntN(14))
		p := g.problem(1+r.IntN(4), 1+n%3*8)
		for k := range p.Dimensions {
			p.Dimensions[k].Bytes += r.IntN(3)
		}
		if n%4 == 3 {
			p.Switches[r.IntN(len(g))].Excluded = true
			p.Switches[r.IntN(len(g))].Capacity = 2
		}
		for _, s := range Schemes {
			solve(t, p, s)
		}
	}
}

// A leaf-spine network with two spines: the paths between leaves share only their ends.
func TestSubPairs(t *testing.T) {
	g := graph{{3, 4}, {3, 4}, {3, 4}, {0, 1, 2}, {0, 1, 2}}
	p := g.problem(2, 8)
	p.Pairs = slices.DeleteFunc(p.Pairs, func(pair Pair) bool { return pair.Origin > 2 || pair.Destination > 2 })
	m := solve(t, p, Optimized)
	if m.Max != 1 || m.Sum != 4 {
		t.Errorf("max %d, sum %d: expected two leaves, or the spines, for each dimension", m.Max, m.Sum)
	}
}

// On small instances, the cost equals the cost of the best of all placements.
func TestExhaustive(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 60 {
		n := 3 + r.IntN(3)
		p := random(r, n, n-1+r.IntN(3)).problem(2, 1)
		p.Dimensions[1].Bytes += r.IntN(2)
		p.Pairs = slices.DeleteFunc(p.Pairs, func(Pair) bool { return r.IntN(3) == 0 })
		m := solve(t, p, Optimized)
		if best := exhaustive(p); m.Cost() != best || m.Bound > float64(best)+1e-6 {
			t.Errorf("%d switches: cost %d, bound %v; the optimum is %d", n, m.Cost(), m.Bound, best)
		}
	}
}

func exhaustive(p *Problem) int {
	best, n := math.MaxInt, len(p.Switches)
	for all := range 1 << (2 * n) {
		most, sum := 0, 0
		for j := range n {
			load := p.bytes(Set(all >> (2 * j) & 3))
			most, sum = max(most, load), sum+load
		}
		if n*most+sum < best && !slices.ContainsFunc(p.Pairs, func(pair Pair) bool {
			var kept Set
			for _, j := range pair.Paths[0] {
				kept |= Set(all >> (2 * j) & 3)
			}
			return kept != 3
		}) {
			best = n*most + sum
		}
	}
	return best
}

// GLPK, a solver of integer programs, finds the same optimum of the program in Figure 4.
func TestGLPK(t *testing.T) {
	glpsol, err := exec.LookPath("glpsol")
	if err != nil {
		t.Skip("glpsol (Debian's glpk-utils) is not on the PATH")
	}
	r := rand.New(rand.NewPCG(7, 8))
	for n := 8; n <= 16; n += 2 {
		p := random(r, n, n+n/3).problem(3, 1)
		m := solve(t, p, Optimized)
		if best := glpk(t, glpsol, p); m.Bound > best+1e-6 || math.Abs(float64(m.Cost())-best) > 1e-6 {
			t.Errorf("%d switches: cost %d, bound %v; GLPK finds %v", n, m.Cost(), m.Bound, best)
		}
	}
}

func glpk(t *testing.T, glpsol string, p *Problem) float64 {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "Minimize\n cost: %d most", len(p.Switches))
	var names []string
	for j := range p.Switches {
		for k, d := range p.Dimensions {
			names = append(names, fmt.Sprintf("s%d_%d", j, k))
			fmt.Fprintf(&b, " + %d s%d_%d", d.Bytes, j, k)
		}
	}
	b.WriteString("\nSubject To\n")
	for j := range p.Switches {
		b.WriteString(" most")
		for k, d := range p.Dimensions {
			fmt.Fprintf(&b, " - %d s%d_%d", d.Bytes, j, k)
		}
		b.WriteString(" >= 0\n")
	}
	for _, pair := range p.Pairs {
		for k := range p.Dimensions {
			for i, j := range pair.Paths[0] {
				fmt.Fprintf(&b, " %ss%d_%d", map[bool]string{true: "+ "}[i > 0], j, k)
			}
			b.WriteString(" >= 1\n")
		}
	}
	fmt.Fprintf(&b, "Binary\n %s\nEnd\n", strings.Join(names, "\n "))
	file, out := filepath.Join(t.TempDir(), "p.lp"), filepath.Join(t.TempDir(), "p.txt")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command(glpsol, "--lp", file, "--output", out).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`Objective: +cost = ([0-9.e+]+)`).FindSubmatch(text)
	if !bytes.Contains(text, []byte("INTEGER OPTIMAL")) || found == nil {
		t.Fatalf("no optimum: %s", text)
	}
	best, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return best
}

// The problems that Check refuses.
func TestCheck(t *testing.T) {
	for name, change := range map[string]func(p *Problem){
		"no path":                   func(p *Problem) { p.Pairs[0].Paths = nil },
		"switch 9, but there are 6": func(p *Problem) { p.Pairs[0].Paths[0][1] = 9 },
		"does not begin":            func(p *Problem) { p.Pairs[0].Origin = 2 },
		"has 0 bytes":               func(p *Problem) { p.Dimensions[0].Bytes = 0 },
		"33 dimensions":             func(p *Problem) { p.Dimensions = make([]Dimension, 33) },
		"is called \"all\"":         nil,
	} {
		p, scheme := figure3(), Optimized
		if change == nil {
			scheme = "all"
		} else {
			change(p)
		}
		if _, err := Solve(p, scheme); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Where only the ends of paths are known, all switches but one keep each sketch, and the bound says
// that this is the optimum.
func TestBoundOfEnds(t *testing.T) {
	for _, n := range []int{5, 23, 90} {
		p := &Problem{Switches: make([]Switch, n), Dimensions: []Dimension{{"src", 1}, {"dst", 1}, {"5-tuple", 1}}}
		for from := range n {
			for to := range n {
				if from != to {
					p.Pairs = append(p.Pairs, Pair{from, to, [][]int{{from, to}}})
				}
			}
		}
		if m := solve(t, p, Optimized); m.Sketches() != 3*(n-1) || m.Gap() > 1e-6 {
			t.Errorf("%d switches: %d sketches, gap %v", n, m.Sketches(), m.Gap())
		}
	}
}

// A problem without pairs has a manifest without duties.
func TestEmpty(t *testing.T) {
	p := figure3()
	p.Pairs = nil
	for _, s := range Schemes {
		if m := solve(t, p, s); m.Sum != 0 || m.Gap() != 0 {
			t.Errorf("%s: %+v", s, m)
		}
	}
}

// BenchmarkTable2 is the largest case of the paper's Table 2: 18,906 pairs, here of a random
// network of 138 switches and 151 links, and eight dimensions. The paper's solver took 12.6 s.
func BenchmarkTable2(b *testing.B) {
	p := random(rand.New(rand.NewPCG(9, 10)), 138, 151).problem(8, 1)
	for b.Loop() {
		m, err := Solve(p, Optimized)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(100*m.Gap(), "%gap")
		b.ReportMetric(float64(m.Sketches()), "sketches")
		b.ReportMetric(float64(m.Max), "sketches/switch")
	}
}
