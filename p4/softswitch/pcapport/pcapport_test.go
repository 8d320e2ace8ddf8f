// SPDX-License-Identifier: Apache-2.0

package pcapport_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/internal/pcapfile"
	"github.com/netsketch/netsketch/internal/test/switchtest"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/pcapport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// forwarder is a switch whose default routes send IPv4 to port 2.
func forwarder(t *testing.T) *softswitch.Switch {
	t.Helper()
	sw := switchtest.New(t, "", "forwarding")
	err := sw.InsertEntry("ingress.forwarding.ipv4_lpm", softswitch.Entry{
		Match: []softswitch.Match{{Kind: softswitch.MatchDontCare}},
		Action: softswitch.Action{Name: "ingress.forwarding.forward",
			Params: [][]byte{{2}, {2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return sw
}

// frame is a UDP packet that carries a number in its ports.
func frame(n uint32) []byte {
	f := make([]byte, 12, 60)
	f = append(f, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	var sum uint32
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(f[24:], ^uint16(sum))
	return append(binary.BigEndian.AppendUint32(f, n), make([]byte, 22)...)
}

func number(f []byte) uint32 { return binary.BigEndian.Uint32(f[34:]) }

// capture writes frames with the numbers, a date each, and returns the path.
func capture(t *testing.T, dates []time.Duration, numbers ...uint32) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in.pcap.gz")
	w, err := pcapfile.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range numbers {
		if err := w.Write(pcapfile.Packet{Date: time.Unix(1_700_000_000, 0).Add(dates[i]),
			Frame: frame(n)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, sw *softswitch.Switch, number uint32, cfg pcapport.Config) *pcapport.Port {
	t.Helper()
	p, err := pcapport.Open(sw, number, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// written returns what a file holds: numbers and dates since 1970.
func written(t *testing.T, path string) (numbers []uint32, dates []time.Duration) {
	t.Helper()
	r, err := pcapfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			return numbers, dates
		}
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, number(p.Frame))
		dates = append(dates, time.Duration(p.Date.UnixNano()))
	}
}

func TestPlayAndRecord(t *testing.T) {
	sw := forwarder(t)
	out := filepath.Join(t.TempDir(), "out.pcap")
	in := open(t, sw, 1, pcapport.Config{In: capture(t, []time.Duration{0, 5e9, 4e9, 7e9}, 1, 2, 3, 4)})
	to := open(t, sw, 2, pcapport.Config{Out: out, Name: "uplink"})
	if st, err := sw.PortStatus(2); err != nil || st.Name != "uplink" || !st.Up || to.Number() != 2 {
		t.Errorf("port 2 is %+v, %v", st, err)
	}
	if n, err := in.Play(t.Context()); n != 4 || err != nil {
		t.Fatalf("played %d packets, %v", n, err)
	}
	if n, err := in.Play(t.Context()); n != 0 || err != nil {
		t.Errorf("played %d packets of a file that was played, %v", n, err)
	}
	if err := errors.Join(in.Close(), to.Close(), to.Close()); err != nil {
		t.Fatal(err)
	}
	numbers, dates := written(t, out)
	if want := []uint32{1, 2, 3, 4}; len(numbers) != 4 || [4]uint32(numbers) != [4]uint32(want) {
		t.Errorf("left: %v", numbers)
	}
	// The third packet is dated before the second: time stands still for it.
	if want := [4]time.Duration{0, 5e9, 5e9, 7e9}; [4]time.Duration(dates) != want {
		t.Errorf("left at %v", dates)
	}
	if len(sw.Ports()) != 0 {
		t.Errorf("ports that were closed are there: %v", sw.Ports())
	}
	if _, err := in.Play(t.Context()); !errors.Is(err, pcapport.ErrClosed) {
		t.Errorf("playing a closed port: %v", err)
	}
}

func TestPlayMergesFilesByTime(t *testing.T) {
	var files [2][]byte
	for i := range files {
		sw := forwarder(t)
		out := filepath.Join(t.TempDir(), "out.pcap")
		a := open(t, sw, 1, pcapport.Config{In: capture(t, []time.Duration{1e9, 3e9, 4e9}, 1, 3, 4)})
		b := open(t, sw, 3, pcapport.Config{In: capture(t, []time.Duration{2e9, 4e9, 9e9}, 2, 5, 6)})
		c := open(t, sw, 2, pcapport.Config{Out: out})
		if n, err := pcapport.Play(t.Context(), a, b, c); n != 6 || err != nil {
			t.Fatalf("played %d packets, %v", n, err)
		}
		if err := errors.Join(a.Close(), b.Close(), c.Close()); err != nil {
			t.Fatal(err)
		}
		numbers, dates := written(t, out)
		if len(numbers) != 6 || [6]uint32(numbers) != [6]uint32{1, 2, 3, 4, 5, 6} || dates[5] != 8e9 {
			t.Errorf("left: %v at %v", numbers, dates)
		}
		var err error
		if files[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("two runs gave two files")
	}
}

// Files whose clocks differ by hours play one after the other without a pause, and the log names
// those that were late.
func TestPlayCutsPauses(t *testing.T) {
	sw := forwarder(t)
	out := filepath.Join(t.TempDir(), "out.pcap")
	early := open(t, sw, 1, pcapport.Config{In: capture(t, []time.Duration{0, 20e6}, 1, 2), RealTime: true})
	late := open(t, sw, 3, pcapport.Config{In: capture(t, []time.Duration{86400e9, 86400e9 + 20e6}, 3, 4)})
	latest := open(t, sw, 4, pcapport.Config{In: capture(t, []time.Duration{864000e9}, 5)})
	to := open(t, sw, 2, pcapport.Config{Out: out, RealTime: true})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if n, err := pcapport.Play(ctx, early, latest, late); n != 5 || err != nil {
		t.Fatalf("played %d packets, %v", n, err)
	}
	var log bytes.Buffer
	for _, p := range []*pcapport.Port{early, late, latest} {
		p.Warn(slog.New(slog.NewTextHandler(&log, nil)))
	}
	if n := strings.Count(log.String(), "goes on more than a minute after"); n != 2 {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
	if err := errors.Join(early.Close(), late.Close(), latest.Close(), to.Close()); err != nil {
		t.Fatal(err)
	}
	if numbers, _ := written(t, out); !slices.Equal(numbers, []uint32{1, 2, 3, 4, 5}) {
		t.Errorf("left: %v", numbers)
	}
}

// TestPlayKeepsPauses: a pause of one file in which another has packets is kept, and packets ahead
// of their clock do not hold back those behind them.
func TestPlayKeepsPauses(t *testing.T) {
	const s = time.Second
	steady := []time.Duration{0, 50 * s, 100 * s, 150 * s, 200 * s}
	for name, tc := range map[string]struct {
		dates []time.Duration // dates of packets 1, 2 and so on; another file has packets 11 to 15
		want  []uint32
		log   string
	}{
		"pause":     {[]time.Duration{1 * s, 151 * s}, []uint32{11, 1, 12, 13, 14, 2, 15}, "pauses=1"},
		"one ahead": {[]time.Duration{1 * s, 65536 * s, 51 * s}, []uint32{11, 1, 2, 12, 3, 13, 14, 15}, "jumps=2"},
		"three ahead": {[]time.Duration{1 * s, 65536 * s, 65537 * s, 65580 * s, 101 * s},
			[]uint32{11, 1, 2, 3, 4, 12, 13, 5, 14, 15}, "jumps=2"},
		"first ahead": {[]time.Duration{65536 * s, 51 * s, 151 * s}, []uint32{11, 12, 1, 2, 13, 14, 3, 15}, "jumps=1"},
		"last ahead": {[]time.Duration{1 * s, 51 * s, 65536 * s},
			[]uint32{11, 1, 12, 2, 13, 14, 15, 3}, "more than a minute after"},
		"set back": {[]time.Duration{1 * s, 51 * s, -3600 * s}, []uint32{11, 1, 12, 2, 3, 13, 14, 15}, "jumps=1"},
		"pause, ahead": {[]time.Duration{1 * s, 101 * s, 9999 * s, 151 * s},
			[]uint32{11, 1, 12, 13, 2, 3, 14, 4, 15}, "jumps=2"},
		"ahead, pause": {[]time.Duration{1 * s, 9999 * s, 9999*s + 1, 51 * s, 151 * s},
			[]uint32{11, 1, 2, 3, 12, 4, 13, 14, 5, 15}, "pauses=1"},
		"pause of both":  {[]time.Duration{1 * s, 9999 * s}, []uint32{11, 1, 12, 13, 14, 15, 2}, "more than a minute after"},
		"1970, then now": {[]time.Duration{-1e9 * s, 51 * s}, []uint32{1, 11, 12, 2, 13, 14, 15}, "more than a minute after"},
	} {
		sw := forwarder(t)
		out := filepath.Join(t.TempDir(), "out.pcap")
		var numbers []uint32
		for i := range tc.dates {
			numbers = append(numbers, uint32(i)+1)
		}
		odd := open(t, sw, 1, pcapport.Config{In: capture(t, tc.dates, numbers...)})
		other := open(t, sw, 3, pcapport.Config{In: capture(t, steady, 11, 12, 13, 14, 15)})
		to := open(t, sw, 2, pcapport.Config{Out: out})
		if n, err := pcapport.Play(t.Context(), odd, other); n != len(tc.want) || err != nil {
			t.Errorf("%s: played %d packets, %v", name, n, err)
		}
		var log bytes.Buffer
		for _, p := range []*pcapport.Port{odd, other} {
			p.Warn(slog.New(slog.NewTextHandler(&log, nil)))
		}
		if !strings.Contains(log.String(), tc.log) {
			t.Errorf("%s: no %q in the log:\n%s", name, tc.log, log.String())
		}
		if err := errors.Join(odd.Close(), other.Close(), to.Close()); err != nil {
			t.Fatal(err)
		}
		if numbers, _ := written(t, out); !slices.Equal(numbers, tc.want) {
			t.Errorf("%s: %v, want %v", name, numbers, tc.want)
		}
	}
}

// TestPlayUndatedPackets: packets of pcapng that have no date leave at once, and those behind them
// keep their distances.
func TestPlayUndatedPackets(t *testing.T) {
	block := func(kind uint32, words ...uint32) []byte {
		b := binary.LittleEndian.AppendUint32(nil, kind)
		for _, w := range append(append([]uint32{uint32(4*len(words) + 12)}, words...), uint32(4*len(words)+12)) {
			b = binary.LittleEndian.AppendUint32(b, w)
		}
		return b
	}
	packet := func(n uint32) (words []uint32) {
		for f := frame(n); len(f) >= 4; f = f[4:] {
			words = append(words, binary.LittleEndian.Uint32(f))
		}
		return words
	}
	file := slices.Concat(block(0x0a0d0d0a, 0x1a2b3c4d, 1, ^uint32(0), ^uint32(0)), block(1, 1, 0),
		block(3, append([]uint32{60}, packet(1)...)...))
	for n := range uint32(3) { // 10 s apart
		date := uint64(1_700_000_000+10*n) * 1e6
		file = append(file, block(6, append([]uint32{0, uint32(date >> 32), uint32(date), 60, 60}, packet(2+n)...)...)...)
	}
	in := filepath.Join(t.TempDir(), "in.pcapng")
	if err := os.WriteFile(in, file, 0o600); err != nil {
		t.Fatal(err)
	}
	sw := forwarder(t)
	out := filepath.Join(t.TempDir(), "out.pcap")
	from, to := open(t, sw, 1, pcapport.Config{In: in}), open(t, sw, 2, pcapport.Config{Out: out})
	if n, err := from.Play(t.Context()); n != 4 || err != nil {
		t.Fatalf("played %d packets, %v", n, err)
	}
	if err := errors.Join(from.Close(), to.Close()); err != nil {
		t.Fatal(err)
	}
	numbers, dates := written(t, out)
	if !slices.Equal(numbers, []uint32{1, 2, 3, 4}) || len(dates) != 4 || dates[3]-dates[1] != 20*time.Second {
		t.Errorf("%v at %v", numbers, dates)
	}
}

func TestRealTime(t *testing.T) {
	sw := forwarder(t)
	out := filepath.Join(t.TempDir(), "out.pcap")
	in := open(t, sw, 1, pcapport.Config{In: capture(t, []time.Duration{0, 30e6, 60e6}, 1, 2, 3), RealTime: true})
	to := open(t, sw, 2, pcapport.Config{Out: out, RealTime: true})
	begin := time.Now()
	if n, err := in.Play(t.Context()); n != 3 || err != nil {
		t.Fatalf("played %d packets, %v", n, err)
	}
	if err := errors.Join(in.Close(), to.Close()); err != nil {
		t.Fatal(err)
	}
	_, dates := written(t, out)
	if len(dates) != 3 || dates[2]-dates[0] < 55*time.Millisecond {
		t.Errorf("60 ms of packets left at %v", dates)
	}
	if first := time.Unix(0, int64(dates[0])); first.Before(begin.Add(-time.Second)) || first.After(time.Now()) {
		t.Errorf("left at %v, sent after %v", first, begin)
	}
}

func TestPlayEndsWithItsContext(t *testing.T) {
	sw := forwarder(t)
	in := open(t, sw, 1, pcapport.Config{In: capture(t, []time.Duration{0, 50 * time.Second}, 1, 2), RealTime: true})
	defer in.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	if n, err := in.Play(ctx); n > 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d packets, %v", n, err)
	}
}

func TestErrors(t *testing.T) {
	sw := forwarder(t)
	dir := t.TempDir()
	good := capture(t, []time.Duration{0, 1, 2}, 1, 2, 3)
	cut := filepath.Join(dir, "cut.pcap")
	w, err := pcapfile.Create(cut)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Write(pcapfile.Packet{Date: time.Unix(1, 0), Frame: frame(1)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(cut, 24+76+16+60-5); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		number uint32
		cfg    pcapport.Config
		wants  string
	}{
		{"no such file", 1, pcapport.Config{In: filepath.Join(dir, "none.pcap")}, "packets that arrive: open "},
		{"no capture file", 1, pcapport.Config{In: dir}, "packets that arrive: "},
		{"no directory", 1, pcapport.Config{In: good, Out: filepath.Join(dir, "none", "out.pcap")},
			"packets that leave: open "},
		{"a number that is none", 4000, pcapport.Config{In: good, Out: filepath.Join(dir, "out.pcap")}, "port 4000: "},
		{"the CPU port", softswitch.DefaultCPUPort, pcapport.Config{In: good}, "port 255: "},
	} {
		if p, err := pcapport.Open(sw, tc.number, tc.cfg); err == nil || !strings.HasPrefix(err.Error(), tc.wants) {
			t.Errorf("%s: %v, %v; want an error that begins with %q", tc.name, p, err, tc.wants)
		}
	}
	p := open(t, sw, 1, pcapport.Config{In: cut})
	defer p.Close()
	if _, err := pcapport.Open(sw, 1, pcapport.Config{}); !errors.Is(err, softswitch.ErrExists) {
		t.Errorf("a port that is there: %v", err)
	}
	n, err := p.Play(t.Context())
	if n != 1 || !errors.Is(err, pcapfile.ErrFile) || !strings.Contains(err.Error(), cut) ||
		!strings.Contains(err.Error(), "after packet 1") {
		t.Errorf("a file that was cut off: %d packets, %v", n, err)
	}
}

func TestCloseReportsFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no /dev/full")
	}
	sw := forwarder(t)
	in := open(t, sw, 1, pcapport.Config{In: capture(t, []time.Duration{0}, 1)})
	defer in.Close()
	out := open(t, sw, 2, pcapport.Config{Out: "/dev/full"})
	if n, err := in.Play(t.Context()); n != 1 || err != nil {
		t.Fatalf("%d packets, %v", n, err)
	}
	if err := out.Close(); err == nil || !strings.Contains(err.Error(), "/dev/full") {
		t.Errorf("closing: %v", err)
	}
}
