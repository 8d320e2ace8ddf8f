// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/lab/truth"
)

func hosts() []traffic.Host {
	return []traffic.Host{
		{V4: netip.MustParsePrefix("10.0.0.0/24"), V6: netip.MustParsePrefix("fd00:0:0:1::/64")},
		{V4: netip.MustParsePrefix("10.0.1.0/24"), V6: netip.MustParsePrefix("fd00:0:0:2::/64")},
		{V4: netip.MustParsePrefix("10.0.2.0/24"), V6: netip.MustParsePrefix("fd00:0:0:3::/64")},
	}
}

func generated() traffic.Generated {
	return traffic.Generated{Name: "test", Seed: 7, Rate: 10_000, Flows: 500, Zipf: 1.1, V6Share: 0.3, UDP: 0.2,
		Until: 2 * time.Second}
}

func drain(t *testing.T, s traffic.Source) []traffic.Packet {
	t.Helper()
	var out []traffic.Packet
	for {
		p, err := s.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		p.Frame = bytes.Clone(p.Frame)
		out = append(out, p)
	}
}

// Frames are correct down to their checksums: gopacket, which shares no code with the builder,
// checks them.
func TestGeneratedFramesAreValid(t *testing.T) {
	s, err := traffic.Generate(generated(), hosts())
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range drain(t, s)[:2000] {
		pkt := gopacket.NewPacket(p.Frame, layers.LayerTypeEthernet, gopacket.Default)
		if e := pkt.ErrorLayer(); e != nil {
			t.Fatalf("packet %d: %v", i, e.Error())
		}
		if l, ok := pkt.TransportLayer().(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}); !ok || l.SetNetworkLayerForChecksum(pkt.NetworkLayer()) != nil {
			t.Fatalf("packet %d: transport layer %v", i, pkt.TransportLayer())
		}
		err, mismatches := pkt.VerifyChecksums()
		if err != nil || len(mismatches) > 0 {
			t.Fatalf("packet %d: checksums: %v %v", i, err, mismatches)
		}
		key, ok := truth.Parse(p.Frame)
		if !ok {
			t.Fatalf("packet %d is no flow", i)
		}
		if got, want := key.SrcAddr().String(), pkt.NetworkLayer().NetworkFlow().Src().String(); got != want {
			t.Fatalf("packet %d: source %s, gopacket has %s", i, got, want)
		}
		h := hosts()[p.Host]
		if !h.V4.Contains(key.SrcAddr()) && !h.V6.Contains(key.SrcAddr()) {
			t.Fatalf("packet %d of host %d comes from %s", i, p.Host, key.SrcAddr())
		}
	}
}

func TestGeneratedIsDeterministicAndFollowsZipf(t *testing.T) {
	var runs [2][]traffic.Packet
	for i := range runs {
		s, err := traffic.Generate(generated(), hosts())
		if err != nil {
			t.Fatal(err)
		}
		runs[i] = drain(t, s)
	}
	if len(runs[0]) != len(runs[1]) {
		t.Fatalf("%d packets, then %d", len(runs[0]), len(runs[1]))
	}
	counts := map[string]int{}
	for i := range runs[0] {
		a, b := runs[0][i], runs[1][i]
		if a.At != b.At || a.Host != b.Host || !bytes.Equal(a.Frame, b.Frame) {
			t.Fatalf("packet %d differs between two runs of one seed", i)
		}
		counts[string(a.Frame)]++
	}
	// 20,000 packets expected; the count is Poisson: 5 standard deviations are 708.
	if n := len(runs[0]); math.Abs(float64(n)-20_000) > 708 {
		t.Errorf("%d packets in 2 s at 10,000 a second", n)
	}
	most := 0
	for _, n := range counts {
		most = max(most, n)
	}
	norm := 0.0
	for i := 1; i <= 500; i++ {
		norm += math.Pow(float64(i), -1.1)
	}
	want := float64(len(runs[0])) / norm
	if d := math.Abs(float64(most) - want); d > 5*math.Sqrt(want) { // 5 sigma: one in a million
		t.Errorf("the largest flow has %d packets; Zipf 1.1 over 500 flows gives %.0f", most, want)
	}
}

func TestCDFSizes(t *testing.T) {
	g := generated()
	g.Zipf, g.Flows = 0, 1000
	g.CDF = []traffic.SizePoint{{Packets: 1, Share: 0.9}, {Packets: 1000, Share: 0.9}, {Packets: 1000, Share: 1}}
	s, err := traffic.Generate(g, hosts())
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, p := range drain(t, s) {
		counts[string(p.Frame)]++
	}
	large := 0
	for _, n := range counts {
		if n > 20 {
			large++
		}
	}
	// 100 of 1,000 flows are large; binomial, 5 sigma are 47.
	if large < 53 || large > 147 {
		t.Errorf("%d large flows; a tenth of 1,000 expected", large)
	}
}

func TestGeneratedRefusesWhatIsOutOfRange(t *testing.T) {
	for field, change := range map[string]func(*traffic.Generated){
		"rate":    func(g *traffic.Generated) { g.Rate = 0 },
		"flows":   func(g *traffic.Generated) { g.Flows = 0 },
		"zipf":    func(g *traffic.Generated) { g.Zipf = -1 },
		"ipv6":    func(g *traffic.Generated) { g.V6Share = 1.5 },
		"bytes":   func(g *traffic.Generated) { g.Bytes = 20 },
		"until":   func(g *traffic.Generated) { g.From = 3 * time.Second },
		"cdf":     func(g *traffic.Generated) { g.CDF = []traffic.SizePoint{{Packets: 5, Share: 0.5}} },
		"senders": func(g *traffic.Generated) { g.Senders = []int{9} },
	} {
		g := generated()
		change(&g)
		if _, err := traffic.Generate(g, hosts()); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s out of range: error %v does not name it", field, err)
		}
	}
}

func TestSourceHasManyDestinations(t *testing.T) {
	g := generated()
	g.Source, g.V6Share = netip.MustParseAddr("10.0.0.9"), 0.5
	s, err := traffic.Generate(g, hosts())
	if err != nil {
		t.Fatal(err)
	}
	destinations := map[netip.Addr]bool{}
	for _, p := range drain(t, s) {
		k, _ := truth.Parse(p.Frame)
		if k.SrcAddr() != g.Source {
			t.Fatalf("a packet from %v", k.SrcAddr())
		}
		destinations[k.DstAddr()] = true
	}
	if len(destinations) < 200 {
		t.Errorf("%d destinations", len(destinations))
	}
}

func TestTargetHasOneDestinationAndManySources(t *testing.T) {
	g := generated()
	g.Target = netip.MustParseAddr("10.0.2.9")
	s, err := traffic.Generate(g, hosts())
	if err != nil {
		t.Fatal(err)
	}
	sources := map[netip.Addr]bool{}
	for _, p := range drain(t, s) {
		k, _ := truth.Parse(p.Frame)
		if k.DstAddr() != g.Target {
			t.Fatalf("a packet goes to %s", k.DstAddr())
		}
		sources[k.SrcAddr()] = true
	}
	if len(sources) < 200 {
		t.Errorf("%d sources", len(sources))
	}
}

func TestMergeKeepsTimeOrder(t *testing.T) {
	a, b := generated(), generated()
	b.Seed, b.From = 8, time.Second
	sa, err := traffic.Generate(a, hosts())
	if err != nil {
		t.Fatal(err)
	}
	sb, err := traffic.Generate(b, hosts())
	if err != nil {
		t.Fatal(err)
	}
	all := drain(t, traffic.Until(traffic.Merge(sa, sb), 1500*time.Millisecond))
	for i := 1; i < len(all); i++ {
		if all[i].At < all[i-1].At {
			t.Fatalf("packet %d at %v follows %v", i, all[i].At, all[i-1].At)
		}
	}
	if n := len(all); n < 19_000 || n > 21_000 {
		t.Errorf("%d packets of 20,000 expected", n)
	}
}

// capture writes n packets 10 ms apart to a file and returns its path and bytes.
func capture(t *testing.T, n int, zip bool) (string, []byte) {
	t.Helper()
	s, err := traffic.Generate(generated(), hosts())
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := pcapgo.NewWriter(&buf)
	if err := w.WriteFileHeader(65535, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	start := time.Unix(1_700_000_000, 0)
	for i := range n {
		p, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		info := gopacket.CaptureInfo{Timestamp: start.Add(time.Duration(i) * 10 * time.Millisecond),
			CaptureLength: len(p.Frame), Length: len(p.Frame)}
		if err := w.WritePacket(info, p.Frame); err != nil {
			t.Fatal(err)
		}
	}
	data := buf.Bytes()
	name := "trace.pcap"
	if zip {
		var z bytes.Buffer
		zw := gzip.NewWriter(&z)
		if _, err := zw.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := zw.Close(); err != nil {
			t.Fatal(err)
		}
		data, name = z.Bytes(), "trace.pcap.gz"
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, data
}

func TestTraceReplays(t *testing.T) {
	for _, zip := range []bool{false, true} {
		path, _ := capture(t, 50, zip)
		tr, err := traffic.OpenTrace(path, func([]byte) int { return 2 }, false)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		all := drain(t, tr)
		if len(all) != 50 || all[49].At != 490*time.Millisecond || all[49].Host != 2 {
			t.Errorf("gzip %v: %d packets, last %v from host %d", zip, len(all), all[49].At, all[49].Host)
		}
	}
}

func TestTraceCutAnywhereIsAnErrorThatNamesThePacket(t *testing.T) {
	path, data := capture(t, 3, false)
	whole := 24 + 3*(16+128)
	if len(data) != whole {
		t.Fatalf("the file has %d bytes, %d expected", len(data), whole)
	}
	for _, n := range []int{0, 10, 24 + 5, 24 + 16, 24 + 144 + 16, 24 + 144 + 100, whole - 1} {
		if err := os.WriteFile(path, data[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		tr, err := traffic.OpenTrace(path, nil, false)
		for err == nil {
			_, err = tr.Next()
		}
		if tr != nil {
			tr.Close()
		}
		if !errors.Is(err, traffic.ErrTrace) || !strings.Contains(err.Error(), path) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	zipped, data := capture(t, 50, true)
	if err := os.WriteFile(zipped, data[:len(data)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	tr, err := traffic.OpenTrace(zipped, nil, false)
	for err == nil {
		_, err = tr.Next()
	}
	if !errors.Is(err, traffic.ErrTrace) || !strings.Contains(err.Error(), "after packet") {
		t.Errorf("half a gzip file: %v", err)
	}
	tr.Close()
}

func TestRepeatGoesOnInTime(t *testing.T) {
	path, _ := capture(t, 10, false)
	r := traffic.Repeat(func() (*traffic.Trace, error) { return traffic.OpenTrace(path, nil, false) }, 10*time.Millisecond)
	all := drain(t, traffic.Until(r, 250*time.Millisecond))
	if len(all) != 25 {
		t.Errorf("%d packets in 250 ms of a 100 ms trace with a packet each 10 ms", len(all))
	}
	r.(io.Closer).Close()
}

func FuzzTrace(f *testing.F) {
	var buf bytes.Buffer
	w := pcapgo.NewWriter(&buf)
	info := gopacket.CaptureInfo{Timestamp: time.Unix(1, 0), CaptureLength: 4, Length: 4}
	if err := errors.Join(w.WriteFileHeader(65535, layers.LinkTypeEthernet),
		w.WritePacket(info, []byte{1, 2, 3, 4})); err != nil {
		f.Fatal(err)
	}
	f.Add(buf.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "t")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		tr, err := traffic.OpenTrace(path, func(b []byte) int { truth.Parse(b); return 0 }, false)
		for err == nil {
			_, err = tr.Next()
		}
		if tr != nil {
			tr.Close()
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, traffic.ErrTrace) {
			t.Fatalf("error of an unexpected kind: %v", err)
		}
	})
}

// fixed is a source of packets at given seconds, of a host each.
func fixed(host int, seconds ...int) traffic.Source {
	var all []traffic.Packet
	for _, at := range seconds {
		all = append(all, traffic.Packet{At: time.Duration(at) * time.Second, Host: host})
	}
	return &list{all}
}

type list struct{ left []traffic.Packet }

func (l *list) Next() (traffic.Packet, error) {
	if len(l.left) == 0 {
		return traffic.Packet{}, io.EOF
	}
	p := l.left[0]
	l.left = l.left[1:]
	return p, nil
}

// TestTogether: a pause of one trace is kept where another has packets, a pause of all is cut, and
// a trace begins when it is to begin.
func TestTogether(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b   []int
		want   []int // seconds of all packets
		counts [2]int64
	}{
		"pause of one": {[]int{0, 150}, []int{10, 60, 110, 160}, []int{0, 10, 60, 110, 150, 160}, [2]int64{1, 3}},
		"of all":       {[]int{0, 1000, 1001}, []int{10, 1005}, []int{0, 10, 10, 11, 15}, [2]int64{3, 2}},
		"then begins":  {[]int{0, 10, 2000}, []int{1000, 1001}, []int{0, 10, 1000, 1001, 1001}, [2]int64{2, 0}},
		"begins in it": {[]int{0, 500}, []int{300, 310}, []int{0, 300, 310, 310}, [2]int64{1, 0}},
		"late alone":   {[]int{300, 301}, nil, []int{300, 301}, [2]int64{0, 0}},
	} {
		var counts [2]atomic.Int64
		together := traffic.Together(150*time.Second, []*atomic.Int64{&counts[0], &counts[1]}, fixed(0, tc.a...),
			fixed(1, tc.b...))
		var got []int
		for _, p := range drain(t, together) {
			got = append(got, int(p.At/time.Second))
		}
		if !slices.Equal(got, tc.want) || counts[0].Load() != tc.counts[0] || counts[1].Load() != tc.counts[1] {
			t.Errorf("%s: %v, %d and %d before the end; want %v, %v", name, got, counts[0].Load(), counts[1].Load(), tc.want,
				tc.counts)
		}
	}
}
