// SPDX-License-Identifier: Apache-2.0

package pcapfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/p4/softswitch/pcapfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var begin = time.Unix(1_700_000_000, 123_456_789)

// file writes n packets of 60 bytes, 10 ms apart, and returns what the file holds.
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

// drain reads to the end, and returns the packets and what ended them.
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
	_ = w.WriteFileHeader(65535, layers.LinkTypeEthernet) // a buffer takes everything
	_ = w.WritePacket(gopacket.CaptureInfo{Timestamp: begin, CaptureLength: 4, Length: 4}, []byte{1, 2, 3, 4})
	if err := os.WriteFile(path, buf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := drain(path)
	if !errors.Is(err, io.EOF) || len(all) != 1 || !all[0].Date.Equal(begin.Truncate(time.Microsecond)) {
		t.Errorf("%v, %v", all, err)
	}
}

// However a file is cut, its end is an error unless the cut lies between packets, and
// the error names file and packet.
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
	path, data = file(t, "a.pcap.gz", 50)
	if err := os.WriteFile(path, data[:len(data)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := drain(path); !errors.Is(err, pcapfile.ErrFile) {
		t.Errorf("half a gzip file: %v", err)
	}
}

// Records that hold more bytes than their packets had are read, and counted.
func TestLongerRecords(t *testing.T) {
	path, data := file(t, "longer.pcap", 3)
	second := 24 + 16 + 60
	for name, tt := range map[string]struct {
		length  byte // of the second packet, whose record has 60 bytes
		longer  int
		cut     int // bytes missing at the end
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

func TestNotEthernet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raw.pcap")
	var buf bytes.Buffer
	_ = pcapgo.NewWriter(&buf).WriteFileHeader(65535, layers.LinkTypeRaw)
	for name, data := range map[string][]byte{
		"link type is Raw": buf.Bytes(), "not a pcap file": []byte("once upon a time there was a file"),
		"editcap": {0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 28},
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

func FuzzOpen(f *testing.F) {
	for _, name := range []string{"a.pcap", "a.pcap.gz"} {
		_, data := file(f, name, 3)
		f.Add(data)
	}
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
