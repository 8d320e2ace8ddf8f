// SPDX-License-Identifier: Apache-2.0

// Command figure draws how the example, CocoSketch, and UnivMon find heavy hitters of 1 to 6 keys
// in the same packets with the same memory, as the paper's evaluation does: UnivMon needs a sketch
// for each key, and CocoSketch one for all. It writes figure.svg, and the values as CSV.
package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"

	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"

	"example.com/netsketch-plugin-cocosketch/slots"
)

// keys are the keys of the paper's evaluation, in its order.
var keys = []flow.Fields{flow.FiveTuple, flow.Src | flow.Dst, flow.Src | flow.SrcPort, flow.Dst | flow.DstPort,
	flow.Src, flow.Dst}

// setting is a run of the experiment.
type setting struct {
	packets, flows int
	memory         int     // bytes of each algorithm
	share          float64 // of the packets, from which on a flow is a heavy hitter
}

func main() {
	s := setting{packets: 1_000_000, flows: 100_000, memory: 500 << 10, share: 1e-4}
	const seeds = 5
	series := map[string][][]float64{} // F1 by algorithm, number of keys and seed
	for seed := range uint64(seeds) {
		for n := range keys {
			coco, univmon := s.play(seed+1, keys[:n+1])
			for name, f1 := range map[string]float64{"CocoSketch": coco, "UnivMon": univmon} {
				if series[name] == nil {
					series[name] = make([][]float64, len(keys))
				}
				series[name][n] = append(series[name][n], f1)
			}
		}
	}
	fmt.Println("algorithm,keys,f1,confidence")
	for _, name := range []string{"CocoSketch", "UnivMon"} {
		for n, values := range series[name] {
			mean, half := confidence(values)
			fmt.Printf("%s,%d,%.4f,%.4f\n", name, n+1, mean, half)
		}
	}
	file, err := os.Create("figure.svg")
	if err == nil {
		err = draw(file, series)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// play returns the mean F1 of both algorithms over the given keys.
func (s *setting) play(seed uint64, measured []flow.Fields) (coco, univmon float64) {
	sketch := slots.New(s.memory/4/slots.Arrays/slots.Words, seed)
	perKey := make([]*universal.Sketch, len(measured))
	for i, fields := range measured {
		layout, err := universal.Fit(fields, s.memory/len(measured))
		if err == nil {
			perKey[i], err = universal.New(layout)
		}
		if err != nil {
			panic(err) // the memory is too small for any sketch
		}
	}
	actual := map[flow.Key]uint64{}
	for k := range s.trace(seed) {
		actual[k]++
		sketch.Count(&k)
		for _, u := range perKey {
			u.Update(&k)
		}
	}
	least := s.share * float64(s.packets)
	for i, fields := range measured {
		want := map[flow.Key]bool{}
		sums := map[flow.Key]uint64{}
		for k, n := range actual {
			sums[k.Project(fields)] += n
		}
		for k, n := range sums {
			if float64(n) >= least {
				want[k] = true
			}
		}
		found, err := slots.Sizes(sketch.Cells, fields)
		if err != nil {
			panic(err) // the sketch wrote the cells
		}
		var got []flow.Key
		for k, n := range found {
			if float64(n) >= least {
				got = append(got, k)
			}
		}
		coco += f1(got, want) / float64(len(measured))
		got = nil
		for _, f := range perKey[i].Reading().Estimate().Above(least) {
			got = append(got, f.Key)
		}
		univmon += f1(got, want) / float64(len(measured))
	}
	return coco, univmon
}

// trace yields the 5-tuple of each packet. Flows have Zipf sizes, and so have the hosts in them.
func (s *setting) trace(seed uint64) func(func(flow.Key) bool) {
	return func(yield func(flow.Key) bool) {
		r := rand.New(rand.NewPCG(seed, 1))
		hosts := rand.NewZipf(r, 1.05, 10, uint64(s.flows/4))
		sizes := rand.NewZipf(r, 1.1, 1, uint64(s.flows-1))
		host := func() netip.Addr {
			h := hosts.Uint64()
			return netip.AddrFrom4([4]byte{10, byte(h >> 16), byte(h >> 8), byte(h)})
		}
		flows := make([]flow.Key, s.flows)
		for i := range flows {
			k, err := flow.New(host(), host(), 6, uint16(1024+r.IntN(60000)), []uint16{53, 80, 443, 8080}[r.IntN(4)])
			if err != nil {
				panic(err) // both addresses are IPv4
			}
			flows[i] = k
		}
		for range s.packets {
			if !yield(flows[sizes.Uint64()]) {
				return
			}
		}
	}
}

func f1(got []flow.Key, want map[flow.Key]bool) float64 {
	right := 0
	for _, k := range got {
		if want[k] {
			right++
		}
	}
	if len(got)+len(want) == 0 {
		return 1
	}
	return 2 * float64(right) / float64(len(got)+len(want))
}

// confidence returns the mean, and half of the 95 % confidence interval of five values (Student's
// t).
func confidence(values []float64) (mean, half float64) {
	const t = 2.776
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		half += (v - mean) * (v - mean)
	}
	return mean, t * math.Sqrt(half/float64(len(values)-1)/float64(len(values)))
}

// draw draws a line for each algorithm.
func draw(w io.Writer, series map[string][][]float64) error {
	x := func(n int) int { return 60 + 80*n }
	y := func(f1 float64) float64 { return 220 - 200*f1 }
	var b strings.Builder
	b.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 520 260" font-family="sans-serif" ` +
		`font-size="12">` +
		`<rect width="520" height="260" fill="white"/><text x="220" y="255">number of keys</text>` +
		`<text x="12" y="130" transform="rotate(-90 12 130)">F1</text>`)
	for i := range 6 {
		v := float64(i) / 5
		fmt.Fprintf(&b, `<path d="M45 %.0fH480" stroke="#ddd"/><text x="20" y="%.0f">%.1f</text>`, y(v), y(v)+4, v)
		fmt.Fprintf(&b, `<text x="%d" y="237">%d</text>`, x(i)-3, i+1)
	}
	for _, line := range []struct{ name, color string }{{"CocoSketch", "#0b62a4"}, {"UnivMon", "#c23b22"}} {
		path, last := "M", 0.0
		for n, values := range series[line.name] {
			mean, half := confidence(values)
			path, last = path+fmt.Sprintf(" %d %.1f", x(n), y(mean)), mean
			fmt.Fprintf(&b, `<path d="M%d %.1fV%.1f" stroke="%s"/>`, x(n), y(mean-half), y(mean+half), line.color)
		}
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/><text x="%d" y="%.0f" fill="%s">%s</text>`,
			path, line.color, x(4), y(last)-8, line.color, line.name)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}
