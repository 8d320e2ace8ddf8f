// SPDX-License-Identifier: Apache-2.0

package sketchbench

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"sort"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/sketch/flow"
)

// KeyBytes is the length of every key: an IPv4 5-tuple.
const KeyBytes = flow.FiveTupleV4

// Trace is packets of IPv4 5-tuples, held in memory.
type Trace struct {
	Name    string
	keys    []byte
	at      []uint32 // arrival in microseconds, from 1 on
	counts  map[string]uint32
	flows   []Flow // largest first
	Skipped int    // packets of other keys: IPv6, or no IP
	rename  bool   // generated: flows do not change by themselves
}

// Flow is one flow's exact packets.
type Flow struct {
	Key     string
	Packets uint32
}

// Len is the number of packets.
func (t *Trace) Len() int { return len(t.at) }

// Key returns the key of packet i.
func (t *Trace) Key(i int) []byte { return t.keys[i*KeyBytes : (i+1)*KeyBytes] }

// Flows is the number of flows.
func (t *Trace) Flows() int { return len(t.flows) }

func (t *Trace) add(key []byte, at uint32) {
	t.keys = append(t.keys, key...)
	t.at = append(t.at, at)
}

func (t *Trace) finish() (*Trace, error) {
	if len(t.at) == 0 {
		return nil, fmt.Errorf("trace %s: no packet of an IPv4 flow", t.Name)
	}
	t.counts = countKeys(t, 0, t.Len(), false)
	t.flows = sorted(t.counts)
	return t, nil
}

func countKeys(t *Trace, from, to int, renamed bool) map[string]uint32 {
	m := make(map[string]uint32)
	var buf [KeyBytes]byte
	for i := from; i < to; i++ {
		k := t.Key(i)
		if renamed {
			k = otherName(&buf, k)
		}
		m[string(k)]++
	}
	return m
}

func sorted(counts map[string]uint32) []Flow {
	flows := make([]Flow, 0, len(counts))
	for k, n := range counts {
		flows = append(flows, Flow{k, n})
	}
	sort.Slice(flows, func(i, j int) bool {
		if flows[i].Packets != flows[j].Packets {
			return flows[i].Packets > flows[j].Packets
		}
		return flows[i].Key < flows[j].Key
	})
	return flows
}

// otherName gives every tenth flow another key.
func otherName(buf *[KeyBytes]byte, k []byte) []byte {
	if (uint32(k[0])+uint32(k[3])*3+uint32(k[7])*7)%10 != 0 {
		return k
	}
	copy(buf[:], k)
	buf[8] ^= 0x55
	return buf[:]
}

// Load returns the traffic that spec names: zipf:SKEW, cdf:FILE (lines of packets and the
// share of flows with at most so many), pcap:FILE, or records:FILE, whose records
// are the 21 bytes that the papers' programs read, a key of 13 and a time of 8. Generated
// traffic has the given number of packets and comes from the seed.
func Load(spec string, packets int, seed uint64) (*Trace, error) {
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
		ranks := max(packets/10, 1)
		weights := make([]float64, ranks)
		for i := range weights {
			weights[i] = math.Pow(float64(i+1), -skew)
		}
		return generate(spec, weights, packets, seed)
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

// generate draws packets of flows with random keys in proportion to their weights.
func generate(name string, weights []float64, packets int, seed uint64) (*Trace, error) {
	r := rand.New(rand.NewPCG(seed, 0x62656e6368))
	sum, total := make([]float64, len(weights)), 0.0
	keys := make([]byte, len(weights)*KeyBytes+8)
	for i := 0; i < len(weights)*KeyBytes; i += 8 {
		binary.LittleEndian.PutUint64(keys[i:], r.Uint64())
	}
	for i, w := range weights {
		total += w
		sum[i] = total
		keys[i*KeyBytes+8] = 6
	}
	t := &Trace{Name: fmt.Sprintf("%s, %d packets, seed %d", name, packets, seed), rename: true}
	for i := range packets {
		f := min(sort.SearchFloat64s(sum, r.Float64()*total), len(sum)-1)
		t.add(keys[f*KeyBytes:(f+1)*KeyBytes], uint32(1+int64(i)*5_000_000/int64(packets)))
	}
	return t.finish()
}

func readCDF(name string, packets int, seed uint64) ([]float64, error) {
	b, err := os.ReadFile(name)
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

func readPcap(name string) (*Trace, error) {
	p, err := traffic.OpenTrace(name, nil)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	t := &Trace{Name: "pcap:" + name}
	var buf [flow.MaxBinary]byte
	for {
		packet, err := p.Next()
		if errors.Is(err, io.EOF) {
			return t.finish()
		}
		if err != nil {
			return nil, err
		}
		k, ok := truth.Parse(packet.Frame)
		if !ok || k.V6 {
			t.Skipped++
			continue
		}
		t.add(k.AppendBinary(buf[:0]), uint32(packet.At.Microseconds())+1)
	}
}

// ReadRecords reads records of 21 bytes: a 13-byte key and a little-endian 8-byte time,
// integer or float, whose differences to the first are taken in seconds when it is a float
// and in microseconds when not. A file that ends within a record is an error.
func ReadRecords(name string, r io.Reader) (*Trace, error) {
	t := &Trace{Name: "records:" + name}
	b := bufio.NewReaderSize(r, 1<<20)
	var rec [21]byte
	var first float64
	for {
		n, err := io.ReadFull(b, rec[:])
		if errors.Is(err, io.EOF) {
			return t.finish()
		}
		if err != nil {
			return nil, fmt.Errorf("trace %s: record %d ends after %d of 21 bytes: %w", name, t.Len(), n, err)
		}
		raw := binary.LittleEndian.Uint64(rec[13:])
		at := float64(raw)
		if f := math.Float64frombits(raw); f > 1e-3 && f < 1e12 {
			at = f * 1e6
		}
		if t.Len() == 0 {
			first = at
		}
		us := min(max(at-first, 0), math.MaxUint32-1)
		t.add(rec[:13], uint32(us)+1)
	}
}
