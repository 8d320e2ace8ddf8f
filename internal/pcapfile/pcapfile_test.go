// SPDX-License-Identifier: Apache-2.0

package pcapfile_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/internal/pcapfile"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var begin = time.Unix(1_700_000_000, 123_456_789)

// file writes a file with n packets of 60 bytes, 10 ms apart, and returns its path and contents.
func file(t testing.TB, name string, n int) (path string, data []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	w, err := pcapfile.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := w.Write(pcapfile.Packet{Date: begin.Add(time.Duration(i) * 10 * time.Millisecond),
			Frame: bytes.Repeat([]byte{byte(i)}, 60)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if data, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return path, data
}

// drain reads to the end, and returns the packets and the final error.
func drain(path string) (out []pcapfile.Packet, err error) {
	r, err := pcapfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		p, err := r.Next()
		if err != nil {
			return out, err
		}
		p.Frame = bytes.Clone(p.Frame)
		out = append(out, p)
	}
}

func TestRoundTrip(t *testing.T) {
	for _, name := range []string{"a.pcap", "a.pcap.gz"} {
		path, data := file(t, name, 100)
		if zipped := data[0] == 0x1f; zipped != strings.HasSuffix(name, ".gz") {
			t.Errorf("%s: gzipped %v", name, zipped)
		}
		all, err := drain(path)
		if !errors.Is(err, io.EOF) || len(all) != 100 {
			t.Fatalf("%s: %d packets, %v", name, len(all), err)
		}
		for i, p := range all {
			if want := begin.Add(time.Duration(i) * 10 * time.Millisecond); !p.Date.Equal(want) ||
				!bytes.Equal(p.Frame, bytes.Repeat([]byte{byte(i)}, 60)) {
				t.Fatalf("%s: packet %d has date %v, want %v, and bytes %x", name, i, p.Date, want, p.Frame)
			}
		}
	}
}

func TestMicrosecondsAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "micro.pcap")
	var buf bytes.Buffer
	w := pcapgo.NewWriter(&buf)
	_ = w.WriteFileHeader(65535, layers.LinkTypeEthernet) // writing to a buffer never fails
	_ = w.WritePacket(gopacket.CaptureInfo{Timestamp: begin, CaptureLength: 4, Length: 4}, []byte{1, 2, 3, 4})
	if err := os.WriteFile(path, buf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := drain(path)
	if !errors.Is(err, io.EOF) || len(all) != 1 || !all[0].Date.Equal(begin.Truncate(time.Microsecond)) {
		t.Errorf("%v, %v", all, err)
	}
}

// Wherever a file is cut, its end is an error that names file and packet, except if it is cut
// between packets.
func TestTruncatedFiles(t *testing.T) {
	path, data := file(t, "a.pcap", 3)
	for n := range data {
		if err := os.WriteFile(path, data[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := drain(path)
		if n >= 24 && (n-24)%76 == 0 {
			if !errors.Is(err, io.EOF) || len(all) != (n-24)/76 {
				t.Errorf("cut between packets, at %d: %d packets, %v", n, len(all), err)
			}
			continue
		}
		if !errors.Is(err, pcapfile.ErrFile) || errors.Is(err, io.EOF) && n >= 24 ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("cut at %d: %v", n, err)
		}
		if n > 24 && !strings.Contains(err.Error(), fmt.Sprintf("after packet %d", (n-24)/76)) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	if err := os.WriteFile(path, append(data, data...), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := drain(path)
	if len(all) != 3 || err == nil || !strings.Contains(err.Error(), "after packet 3: another file begins; mergecap") {
		t.Errorf("two files in one: %d packets, %v", len(all), err)
	}
	path, data = file(t, "a.pcap.gz", 50)
	if err := os.WriteFile(path, data[:len(data)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := drain(path); !errors.Is(err, pcapfile.ErrFile) {
		t.Errorf("half a gzip file: %v", err)
	}
	for rest, want := range map[string]string{"x": "other bytes follow", strings.Repeat("\x00", 512): "other bytes follow",
		string(data): "another file begins", string(data[:5]): "truncated"} {
		if err := os.WriteFile(path, append(data[:len(data):len(data)], rest...), 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := drain(path); len(all) != 50 || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a gzip file and %.5q: %d packets, %v, want %q", rest, len(all), err, want)
		}
	}
}

// Records that hold more bytes than their packets had are read and counted.
func TestLongerRecords(t *testing.T) {
	path, data := file(t, "longer.pcap", 3)
	second := 24 + 16 + 60
	for name, tt := range map[string]struct {
		length  byte // stated length of the second packet, whose record has 60 bytes
		longer  int
		cut     int // number of bytes missing at the end
		packets int
	}{"longer": {40, 1, 0, 3}, "an empty packet": {0, 1, 0, 3}, "as long": {60, 0, 0, 3}, "cut": {40, 1, 10, 2},
		"cut in the record": {40, 0, 76 + 10, 1}} {
		data[second+12] = tt.length
		if err := os.WriteFile(path, data[:len(data)-tt.cut], 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := pcapfile.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ; ; n++ {
			p, err := r.Next()
			if err != nil {
				if want := tt.cut > 0; errors.Is(err, io.EOF) == want || want &&
					!strings.Contains(err.Error(), fmt.Sprintf("truncated after packet %d", tt.packets)) {
					t.Errorf("%s: %v", name, err)
				}
				break
			}
			if len(p.Frame) != 60 || p.Frame[59] != byte(n) {
				t.Errorf("%s: packet %d has %d bytes: %x", name, n, len(p.Frame), p.Frame)
			}
		}
		if n != tt.packets || r.LongerRecords() != tt.longer || r.Packets() != n {
			t.Errorf("%s: %d packets, %d longer", name, n, r.LongerRecords())
		}
		r.Close()
	}
}

func TestNotACapture(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcap")
	var radio bytes.Buffer
	_ = pcapgo.NewWriter(&radio).WriteFileHeader(65535, layers.LinkTypeIEEE802_11)
	for name, data := range map[string][]byte{
		"link type is 105 (802.11); expected Ethernet": radio.Bytes(),
		"the file is empty":                            nil,
		"neither pcap nor pcapng":                      []byte("once upon a time there was a file"),
		"compressed with zstd":                         []byte("\x28\xb5\x2f\xfd\x04\x00"),
		"compressed with xz":                           []byte("\xfd7zXZ\x00\x00"),
		"unexpected EOF":                               {0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 28},
	} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := pcapfile.Open(path); !errors.Is(err, pcapfile.ErrFile) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := pcapfile.Open(filepath.Join(t.TempDir(), "nobody")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// ip is an IPv4 header, and ether the same packet with an Ethernet header of zero addresses.
var (
	ip    = append([]byte{0x45, 0, 0, 20}, make([]byte, 16)...)
	ip6   = append([]byte{0x60}, make([]byte, 39)...)
	ether = func(kind uint16, packet []byte) []byte {
		return append(append(make([]byte, 12), byte(kind>>8), byte(kind)), packet...)
	}
)

// TestLinkTypes: packets of all link types with IP become the same Ethernet frames, in pcap and in
// pcapng.
func TestLinkTypes(t *testing.T) {
	cooked := append([]byte{0, 4, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0}, ip...)
	sll2 := append([]byte{0x86, 0xdd, 0, 0, 0, 0, 0, 3, 0, 1, 4, 6, 1, 2, 3, 4, 5, 6, 0, 0}, ip6...)
	for name, tc := range map[string]struct {
		link uint32
		data []byte
		want []byte
	}{
		"Ethernet":         {1, ether(0x0800, ip), ether(0x0800, ip)},
		"raw":              {101, ip, ether(0x0800, ip)},
		"raw, version 6":   {101, ip6, ether(0x86dd, ip6)},
		"raw, 12":          {12, ip, ether(0x0800, ip)},
		"IPv4":             {228, ip, ether(0x0800, ip)},
		"IPv6":             {229, ip6, ether(0x86dd, ip6)},
		"loopback":         {0, append([]byte{2, 0, 0, 0}, ip...), ether(0x0800, ip)},
		"loopback, BSD":    {108, append([]byte{0, 0, 0, 24}, ip6...), ether(0x86dd, ip6)},
		"cooked":           {113, cooked, ether(0x0800, ip)},
		"cooked 2":         {276, sll2, ether(0x86dd, ip6)},
		"cooked, cut":      {113, cooked[:10], ether(0, cooked[:10])},
		"raw, no version":  {101, []byte{0xff}, ether(0, []byte{0xff})},
		"loopback, no end": {0, []byte{2, 0}, ether(0, nil)},
	} {
		for _, format := range []string{"pcap", "pcapng"} {
			var buf bytes.Buffer
			if format == "pcap" {
				_ = pcapgo.NewWriter(&buf).WriteFileHeader(65535, layers.LinkTypeRaw)
				head := buf.Bytes()
				binary.LittleEndian.PutUint32(head[20:], tc.link)
				w := pcapgo.NewWriter(&buf)
				info := gopacket.CaptureInfo{Timestamp: begin, CaptureLength: len(tc.data), Length: len(tc.data)}
				_ = w.WritePacket(info, tc.data)
			} else {
				writeNg(t, &buf, layers.LinkType(tc.link), tc.data)
				data := buf.Bytes() // the link type stands behind the section header of 28 bytes
				at := bytes.Index(data, []byte{1, 0, 0, 0}) + 8
				binary.LittleEndian.PutUint16(data[at:], uint16(tc.link))
			}
			path := filepath.Join(t.TempDir(), "x."+format)
			if err := os.WriteFile(path, buf.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := drain(path)
			if !errors.Is(err, io.EOF) || len(got) != 1 || !bytes.Equal(got[0].Frame, tc.want) ||
				!got[0].Date.Truncate(time.Microsecond).Equal(begin.Truncate(time.Microsecond)) {
				t.Errorf("%s, %s: %v, %v; want %x", name, format, got, err, tc.want)
			}
		}
	}
}

// TestOtherInterfaces: packets of interfaces without Ethernet and IP are left out and counted.
func TestOtherInterfaces(t *testing.T) {
	block := func(kind uint32, body []byte) []byte {
		b := binary.LittleEndian.AppendUint32(nil, kind)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(body)+12))
		return binary.LittleEndian.AppendUint32(append(b, body...), uint32(len(body)+12))
	}
	section := block(0x0a0d0d0a, append([]byte{0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0}, bytes.Repeat([]byte{0xff}, 8)...))
	packet := func(at byte) []byte {
		return block(6, append([]byte{at, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 20, 0, 0, 0}, ip...))
	}
	usb, raw := block(1, []byte{189, 0, 0, 0, 0, 0, 0, 0}), block(1, []byte{101, 0, 0, 0, 0, 0, 0, 0})
	path := filepath.Join(t.TempDir(), "x.pcapng")
	if err := os.WriteFile(path, slices.Concat(section, usb, raw, packet(0), packet(1), packet(0)), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := pcapfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if p, err := r.Next(); err != nil || !bytes.Equal(p.Frame, ether(0x0800, ip)) {
		t.Errorf("%x, %v", p.Frame, err)
	}
	var log testkit.Log
	if _, err := r.Next(); !errors.Is(err, io.EOF) || r.OtherLinks() != 2 || r.Packets() != 1 {
		t.Errorf("%v, %d packets of other interfaces", err, r.OtherLinks())
	}
	if r.Warn(log.Logger()); !strings.Contains(log.String(), "packets=2") {
		t.Errorf("log %s", log.String())
	}
	if err := os.WriteFile(path, slices.Concat(section, usb, packet(0)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := drain(path); err == nil || !strings.Contains(err.Error(), "link type is 189") {
		t.Errorf("error %v", err)
	}
}

// TestFrameCheckSequence: the check sequence at the end of captured frames is removed.
func TestFrameCheckSequence(t *testing.T) {
	frame := ether(0x0800, ip)
	for name, tc := range map[string]struct {
		link   uint32
		data   []byte
		length int
	}{
		"4 bytes":        {1 | 1<<26 | 2<<28, append(bytes.Clone(frame), 1, 2, 3, 4), len(frame) + 4},
		"cut":            {1 | 1<<26 | 2<<28, frame[:20], len(frame) + 4},
		"length unknown": {1 | 2<<28, frame, len(frame)},
	} {
		var buf bytes.Buffer
		w := pcapgo.NewWriter(&buf)
		_ = w.WriteFileHeader(65535, layers.LinkTypeEthernet)
		binary.LittleEndian.PutUint32(buf.Bytes()[20:], tc.link)
		_ = w.WritePacket(gopacket.CaptureInfo{Timestamp: begin, CaptureLength: len(tc.data), Length: tc.length}, tc.data)
		path := filepath.Join(t.TempDir(), "x.pcap")
		if err := os.WriteFile(path, buf.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := drain(path)
		want := tc.data[:min(len(tc.data), len(frame))]
		if !errors.Is(err, io.EOF) || len(got) != 1 || !bytes.Equal(got[0].Frame, want) {
			t.Errorf("%s: %v, %v; want %x", name, got, err, want)
		}
	}
}

// TestFrameCheckSequenceNg: an interface of pcapng states the length of the frame check sequence in
// option 13.
func TestFrameCheckSequenceNg(t *testing.T) {
	frame := ether(0x0800, ip)
	var buf bytes.Buffer
	writeNg(t, &buf, layers.LinkTypeEthernet, append(bytes.Clone(frame), 1, 2, 3, 4))
	data := buf.Bytes()
	at := int(binary.LittleEndian.Uint32(data[4:])) // behind the section header
	length := int(binary.LittleEndian.Uint32(data[at+4:]))
	block := slices.Concat(data[at:at+16], []byte{13, 0, 1, 0, 4, 0, 0, 0}, data[at+16:at+length])
	binary.LittleEndian.PutUint32(block[4:], uint32(len(block)))
	binary.LittleEndian.PutUint32(block[len(block)-4:], uint32(len(block)))
	path := filepath.Join(t.TempDir(), "x.pcapng")
	if err := os.WriteFile(path, slices.Concat(data[:at], block, data[at+length:]), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := drain(path)
	if !errors.Is(err, io.EOF) || len(got) != 1 || !bytes.Equal(got[0].Frame, frame) {
		t.Errorf("%v, %v; want %x", got, err, frame)
	}
}

func writeNg(t testing.TB, w io.Writer, link layers.LinkType, packets ...[]byte) {
	t.Helper()
	ng, err := pcapgo.NewNgWriter(w, link)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range packets {
		info := gopacket.CaptureInfo{Timestamp: begin.Add(time.Duration(i) * time.Millisecond), CaptureLength: len(p),
			Length: len(p)}
		if err := ng.WritePacket(info, p); err != nil {
			t.Fatal(err)
		}
	}
	if err := ng.Flush(); err != nil {
		t.Fatal(err)
	}
}

// TestTruncatedNg: a pcapng file that ends within a block counts as truncated, wherever it ends.
func TestTruncatedNg(t *testing.T) {
	var buf bytes.Buffer
	writeNg(t, &buf, layers.LinkTypeEthernet, ether(0x0800, ip), ether(0x86dd, ip6), ether(0x0800, ip))
	whole, path := buf.Bytes(), filepath.Join(t.TempDir(), "x.pcapng")
	ends := 0
	for n := 40; n <= len(whole); n++ {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		packets, err := drain(path)
		switch {
		case errors.Is(err, io.EOF):
			ends++
		case !errors.Is(err, pcapfile.ErrFile):
			t.Errorf("%d of %d bytes: %d packets, %v", n, len(whole), len(packets), err)
		}
		if n == len(whole) && (!errors.Is(err, io.EOF) || len(packets) != 3) {
			t.Errorf("the whole file: %d packets, %v", len(packets), err)
		}
	}
	if ends != 5 { // the cuts after the section, the interface and each packet
		t.Errorf("%d lengths read as complete files; want 5", ends)
	}
}

// ngFile returns a pcapng file with two sections. Each has every kind of block that contains
// packets, and blocks that contain none.
func ngFile(order binary.AppendByteOrder) (data []byte) {
	block := func(kind uint32, body ...any) {
		var b []byte
		for _, v := range body {
			switch v := v.(type) {
			case int: // 16 bits
				b = order.AppendUint16(b, uint16(v))
			case uint32:
				b = order.AppendUint32(b, v)
			case uint64:
				b = order.AppendUint64(b, v)
			case []byte:
				b = append(append(b, v...), make([]byte, -len(v)&3)...)
			}
		}
		data = order.AppendUint32(order.AppendUint32(data, kind), uint32(len(b)+12))
		data = order.AppendUint32(append(data, b...), uint32(len(b)+12))
	}
	const section, description, obsolete, simple, statistics, enhanced = 0x0a0d0d0a, 1, 2, 3, 5, 6
	for range 2 {
		block(section, uint32(0x1a2b3c4d), 1, 0, ^uint64(0), 4, 3, []byte("any"), uint32(0))
		// An interface with 16 units in a second from second 100 on, that has 10 bytes of a packet.
		block(description, 1, 0, uint32(10), 9, 1, []byte{0x84}, 14, 8, uint64(100), uint32(0), uint32(7))
		block(description, 101, 0, uint32(0))
		block(description, 101, 0, uint32(0), 9, 1, []byte{0}) // in seconds
		block(statistics, uint32(0), uint32(1), uint32(2))
		block(enhanced, uint32(0), uint32(0), uint32(24), uint32(15), uint32(60), ether(0, []byte{1}))
		block(enhanced, uint32(1), uint32(1), uint32(0), uint32(20), uint32(20), ip)
		block(obsolete, 2, 9, uint32(0), uint32(7), uint32(20), uint32(20), ip)
		block(simple, uint32(60), ether(0, nil)[:10])
	}
	return data
}

// TestNgBlocks: packets of all kinds of blocks, in both byte orders.
func TestNgBlocks(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		path := filepath.Join(t.TempDir(), "x.pcapng")
		if err := os.WriteFile(path, ngFile(order), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := pcapfile.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		var before time.Time
		for i := range 8 {
			p, err := r.Next()
			if i%4 == 3 && !p.Date.Equal(before) {
				t.Errorf("%v: a packet without a date after %v has %v", order, before, p.Date)
			}
			before = p.Date
			want := [][]byte{ether(0, []byte{1}), ether(0x0800, ip), ether(0x0800, ip), make([]byte, 10)}[i%4]
			if err != nil || !bytes.Equal(p.Frame, want) {
				t.Errorf("%v: packet %d: %x, %v", order, i, p.Frame, err)
			}
			// A jump of the date is no pause: only the first packets have the times of the file.
			if i == 0 && !p.Date.Equal(time.Unix(101, 5e8)) {
				t.Errorf("%v: date %v", order, p.Date)
			}
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) || r.LongerRecords() != 0 {
			t.Errorf("%v: %v, %d longer records", order, err, r.LongerRecords())
		}
		if n := r.TimeSteps(); n != 5 { // packets without a date make no jump
			t.Errorf("%v: the clock jumps %d times", order, n)
		}
		r.Close()
	}
}

// TestNgDates: dates of all resolutions.
func TestNgDates(t *testing.T) {
	for _, tc := range []struct {
		resolution byte
		at         uint64
		want       time.Time // zero: an error
	}{
		{6, 1_500_000, time.Unix(1, 5e8)}, {9, 1_500_000_001, time.Unix(1, 500_000_001)},
		{0, 7, time.Unix(7, 0)}, {12, 1_500_000_000_999, time.Unix(1, 5e8)},
		{19, 15e18, time.Unix(1, 5e8)}, {20, 1, time.Time{}}, {0x80, 7, time.Unix(7, 0)},
		{0x80 | 20, 3 << 19, time.Unix(1, 5e8)}, {0x80 | 63, 3 << 62, time.Unix(1, 5e8)}, {0x80 | 64, 1, time.Time{}},
	} {
		var data []byte
		le := binary.LittleEndian
		for _, v := range []uint32{0x0a0d0d0a, 28, 0x1a2b3c4d, 1, 0, 0, 28, 1, 28, 1, 0, 9 | 1<<16, uint32(tc.resolution),
			28, 6, 32, 0, uint32(tc.at >> 32), uint32(tc.at), 0, 0, 32} {
			data = le.AppendUint32(data, v)
		}
		path := filepath.Join(t.TempDir(), "x.pcapng")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := drain(path)
		if failed := !errors.Is(err, io.EOF); failed != tc.want.IsZero() ||
			!failed && (len(got) != 1 || !got[0].Date.Equal(tc.want)) {
			t.Errorf("resolution %#x: %v, %v; want %v", tc.resolution, got, err, tc.want)
		}
	}
}

// TestTimeSteps: a date that jumps is no pause: the packets behind it follow those before it.
func TestTimeSteps(t *testing.T) {
	for name, tc := range map[string]struct {
		at    []time.Duration // time of each packet
		want  []time.Duration
		steps int
	}{
		"none":               {[]time.Duration{0, 1, 2}, []time.Duration{0, 1, 2}, 0},
		"one ahead":          {[]time.Duration{0, 65536, 1, 2}, []time.Duration{0, 0, 0, 1}, 2},
		"first ahead":        {[]time.Duration{65536, 0, 1}, []time.Duration{65536, 65536, 65537}, 1},
		"an hour back":       {[]time.Duration{3600, 3601, 1, 2}, []time.Duration{3600, 3601, 3601, 3602}, 1},
		"years ahead":        {[]time.Duration{0, 1e9, 1e9 + 1}, []time.Duration{0, 0, 1}, 1},
		"a long pause":       {[]time.Duration{0, 60, 119}, []time.Duration{0, 60, 119}, 0},
		"order of queues":    {[]time.Duration{5, 4, 5}, []time.Duration{5, 4, 5}, 0},
		"back, step by step": {[]time.Duration{9, 7, 5, 3}, []time.Duration{9, 9, 9, 9}, 3},
	} {
		path := filepath.Join(t.TempDir(), "x.pcap")
		w, err := pcapfile.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range tc.at {
			if err := w.Write(pcapfile.Packet{Date: begin.Add(at * time.Second), Frame: ether(0x0800, ip)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := pcapfile.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range tc.want {
			p, err := r.Next()
			if err != nil || !p.Date.Equal(begin.Add(want*time.Second)) {
				t.Errorf("%s: packet %d at %v, %v; want %v", name, i, p.Date.Sub(begin), err, want*time.Second)
			}
		}
		if r.TimeSteps() != tc.steps {
			t.Errorf("%s: %d steps; want %d", name, r.TimeSteps(), tc.steps)
		}
		r.Close()
	}
}

func FuzzOpen(f *testing.F) {
	for _, name := range []string{"a.pcap", "a.pcap.gz"} {
		_, data := file(f, name, 3)
		f.Add(data)
	}
	var ng bytes.Buffer
	writeNg(f, &ng, layers.LinkTypeRaw, ip, ip6)
	f.Add(ng.Bytes())
	f.Add(ngFile(binary.LittleEndian))
	f.Add(ngFile(binary.BigEndian))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(dir, "fuzz")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := drain(path); !errors.Is(err, io.EOF) && !errors.Is(err, pcapfile.ErrFile) {
			t.Fatalf("error of no known kind: %v", err)
		}
	})
}

// TestZeroChecksums: Warn counts packets that were captured before the device computed the checksum
// of their IPv4 header. A right checksum may be zero, too.
func TestZeroChecksums(t *testing.T) {
	header := []byte{0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}
	right := slices.Clone(header)
	binary.BigEndian.PutUint16(right[4:], 0x66d7) // with this identification
	var buf bytes.Buffer
	w := pcapgo.NewWriter(&buf)
	_ = w.WriteFileHeader(65535, layers.LinkTypeEthernet)
	for _, b := range [][]byte{ether(0x0800, header), ether(0x8100, append([]byte{0, 5, 8, 0}, header...)),
		ether(0x0800, right), ether(0x0800, header[:12]), ether(0x0806, header)} {
		_ = w.WritePacket(gopacket.CaptureInfo{Timestamp: begin, CaptureLength: len(b), Length: len(b)}, b)
	}
	path := filepath.Join(t.TempDir(), "x.pcap")
	if err := os.WriteFile(path, buf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := pcapfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for err == nil {
		_, err = r.Next()
	}
	var log testkit.Log
	r.Warn(log.Logger())
	if text := log.String(); !strings.Contains(text, "packets=2") || !strings.Contains(text, "fixcsum") {
		t.Errorf("log: %s", text)
	}
}
