// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// The golden files hold what simple_switch sends out of port 1 for each packet that comes in on
// port 0. They are made by BMv2 itself: `go test -run Golden -update` with simple_switch on the
// PATH.
var update = flag.Bool("update", false, "make the golden files with simple_switch")

// goldenInputs makes the packets of each test program.
var goldenInputs = map[string]func(r *rand.Rand) []byte{
	"expressions": func(r *rand.Rand) []byte { return interesting(r, 1+1+2+2+4+4+8+8+16+16+1+1+4+8+3+3+6+12) },
	"hashes":      func(r *rand.Rand) []byte { return random(r, 1+4+2+16+6+2+1+r.IntN(12)) },
	"parsing": func(r *rand.Rand) []byte {
		b := random(r, 1+r.IntN(60))
		b[0] = byte(r.IntN(9))<<4 | byte(r.IntN(16))
		if len(b) > 2 {
			b[1] = byte(r.IntN(3))
		}
		return b
	},
	"tables": func(r *rand.Rand) []byte {
		b := random(r, 1+2+4+16+1+4)
		pick := func(at int, v ...byte) { b[at] = v[r.IntN(len(v))] }
		pick(0, 0, 1, 2, 3, 1, 2)
		pick(1, 0, 1, 1, 2)
		pick(2, 0, 1, 2, 10, 15, 21)
		pick(3, 10, 0, 128)
		pick(4, 1, 1, 0)
		pick(5, 2, 0)
		pick(6, 3, 0)
		if r.IntN(3) > 0 {
			copy(b[7:], []byte{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, byte(r.IntN(2)), 0, 0, 0, 0, 0, 0, 0, byte(r.IntN(2))})
		}
		pick(23, 7, 55, 107, 200, 55, 50)
		return b
	},
	"stacks": func(r *rand.Rand) []byte {
		b := random(r, 3+3*3+16+r.IntN(4))
		b[0], b[2] = byte(r.IntN(13)), byte(r.IntN(4))
		if r.IntN(3) == 0 {
			copy(b[6:9], b[3:6])
		}
		return b
	},
	"atomic": func(r *rand.Rand) []byte {
		b := random(r, 18+r.IntN(20))
		b[0], b[1] = 0, byte(r.IntN(4))
		return b
	},
	"constructs": func(r *rand.Rand) []byte {
		b := random(r, 6+r.IntN(24))
		b[0] = byte(r.IntN(8))
		if len(b) > 6 {
			b[6] = byte(1+r.IntN(3))<<4 | b[6]&15
		}
		if r.IntN(3) == 0 {
			sum := program.Algorithms["csum16"](append([]byte{b[0], b[1], b[2], b[3]}, b[6:]...))
			b[4], b[5] = byte(sum>>8), byte(sum)
		}
		return b
	},
	"registers": func(r *rand.Rand) []byte { return random(r, 18+r.IntN(20)) },
	"drops": func(r *rand.Rand) []byte {
		b := random(r, 4+r.IntN(20))
		b[0], b[1] = byte(r.IntN(10)), byte(r.IntN(5))
		return b
	},
	"rounds": func(r *rand.Rand) []byte {
		b := random(r, 4+r.IntN(10))
		b[0] = byte(r.IntN(6))
		if r.IntN(2) == 0 {
			b[1] = byte(r.IntN(40))
		}
		return b
	},
	"loops": func(r *rand.Rand) []byte {
		b := random(r, 10+r.IntN(30))
		b[0] = byte(r.IntN(10))
		if r.IntN(2) == 0 {
			sum := program.Algorithms["csum16"](append([]byte{b[0], b[1]}, b[6:10]...))
			b[2], b[3] = byte(sum>>8), byte(sum)
		}
		return b
	},
}

func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// interesting mixes random bytes with runs of zeros and ones.
func interesting(r *rand.Rand, n int) []byte {
	b := random(r, n)
	for at := 0; at < n; {
		run := 1 + r.IntN(8)
		for i := at; i < min(n, at+run); i++ {
			switch r.IntN(4) {
			case 0:
				b[i] = 0
			case 1:
				b[i] = 0xff
			}
		}
		at += run
	}
	return b
}

// goldenPackets is less than BMv2's egress queue holds.
const goldenPackets = 60

func load(tb testing.TB, name string) *Program {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		tb.Fatal(err)
	}
	p, err := Compile(b)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func TestGolden(t *testing.T) {
	for name, gen := range goldenInputs {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			in := make([][]byte, goldenPackets)
			for i := range in {
				in[i] = gen(r)
			}
			file := filepath.Join("testdata", name+".golden")
			if *update {
				writeGolden(t, file, in, bmv2Run(t, name, in))
			}
			want := readGolden(t, file)
			sw := New(Config{})
			defer sw.Close()
			if err := sw.Load(load(t, name)); err != nil {
				t.Fatal(err)
			}
			var got [][]byte
			_ = sw.AddPort(0, Port{})
			_ = sw.AddPort(1, Port{Tx: func(pkt []byte, _ time.Duration) { got = append(got, bytes.Clone(pkt)) }})
			bad := 0
			for i, pkt := range in {
				if !bytes.Equal(pkt, want[i].in) {
					t.Fatalf("packet %d is not the one in %s: run with -update", i, file)
				}
				got = got[:0]
				sw.Inject(0, pkt, time.Duration(i)*time.Millisecond)
				if !slices.EqualFunc(got, want[i].out, bytes.Equal) {
					if bad++; bad < 4 {
						t.Errorf("packet %d %x\n got %x\nwant %x", i, pkt, got, want[i].out)
					}
				}
			}
			if bad > 0 {
				t.Errorf("%d of %d packets differ", bad, len(in))
			}
		})
	}
}

type goldenPacket struct {
	in  []byte
	out [][]byte
}

func readGolden(t *testing.T, file string) (all []goldenPacket) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		kind, text, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || kind == "#" {
			continue
		}
		pkt, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if kind == "in" {
			all = append(all, goldenPacket{in: pkt})
		} else {
			all[len(all)-1].out = append(all[len(all)-1].out, pkt)
		}
	}
	return all
}

func writeGolden(t *testing.T, file string, in [][]byte, out [][][]byte) {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("# Made by simple_switch: packets into port 0, and what leaves on port 1 for each.\n")
	for i := range in {
		fmt.Fprintf(&b, "in %x\n", in[i])
		for _, o := range out[i] {
			fmt.Fprintf(&b, "out %x\n", o)
		}
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// bmv2Run sends packets through simple_switch. Where every packet comes out once and in order, one
// run of the switch processes all packets; otherwise each packet has its own run.
func bmv2Run(t *testing.T, name string, in [][]byte) [][][]byte {
	t.Helper()
	all := make([][][]byte, len(in))
	if name == "loops" || name == "drops" {
		for i := range in {
			all[i] = bmv2Files(t, name, in[i:i+1])
		}
		return all
	}
	out := bmv2Files(t, name, in)
	if len(out) != len(in) {
		t.Fatalf("%s: BMv2 sent %d packets for %d", name, len(out), len(in))
	}
	for i := range out {
		all[i] = out[i : i+1]
	}
	return all
}

func bmv2Files(t *testing.T, name string, in [][]byte) [][]byte {
	t.Helper()
	js, err := filepath.Abs(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return bmv2Ports(t, js, map[uint32][][]byte{0: in, 1: nil}, 1, len(in))
}

// bmv2Ports sends packets into the ports of simple_switch, in the order of the ports. It returns
// the packets that leave by port from, when want of them have left or no more come.
func bmv2Ports(t *testing.T, js string, in map[uint32][][]byte, from uint32, want int) [][]byte {
	t.Helper()
	path, err := exec.LookPath("simple_switch")
	if err != nil {
		t.Fatal("golden files are made by BMv2, and simple_switch is not on the PATH")
	}
	dir := t.TempDir()
	args := []string{"--use-files", "0"}
	for port, pkts := range in {
		writePcap(t, filepath.Join(dir, fmt.Sprintf("p%d_in.pcap", port)), int64(port), pkts)
		args = append(args, "-i", fmt.Sprintf("%d@p%d", port, port))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, thrift, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	cmd := exec.Command(path, append(args, "--thrift-port", thrift, js)...)
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	// The switch does not report that it has processed all packets, so wait as long as packets leave.
	var out [][]byte
	for quiet := 0; quiet < 40 && len(out) < want; quiet++ {
		time.Sleep(150 * time.Millisecond)
		now := readPcap(t, filepath.Join(dir, fmt.Sprintf("p%d_out.pcap", from)))
		if len(now) > len(out) {
			out, quiet = now, 0
		}
	}
	return out
}

func writePcap(t *testing.T, file string, second int64, pkts [][]byte) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := pcapgo.NewWriter(f)
	if err := w.WriteFileHeader(65536, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	for i, p := range pkts {
		ci := gopacket.CaptureInfo{Timestamp: time.Unix(second, int64(i)*1000), CaptureLength: len(p), Length: len(p)}
		if err := w.WritePacket(ci, p); err != nil {
			t.Fatal(err)
		}
	}
}

func readPcap(t *testing.T, file string) (out [][]byte) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		return nil // not made yet
	}
	defer f.Close()
	r, err := pcapgo.NewReader(bufio.NewReader(f))
	if err != nil {
		return nil
	}
	for {
		d, _, err := r.ReadPacketData()
		if err != nil {
			return out
		}
		out = append(out, d)
	}
}
