// SPDX-License-Identifier: Apache-2.0

package input

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
)

// recorder records packets, and marks those that leave in their last byte.
type recorder struct {
	mu      sync.Mutex
	out, in []string
}

func (r *recorder) Out(frames []*packet.Frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range frames {
		r.out = append(r.out, string(f.Bytes()))
		f.Bytes()[len(f.Bytes())-1] = 0xee
	}
}

func (r *recorder) In(frames []*packet.Frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range frames {
		r.in = append(r.in, string(f.Bytes()))
	}
}

func (r *recorder) Lane() role.Lane { return r }

// frame is an IPv4 packet from 10.0.0.n, with a VLAN tag if vlan is not 0.
func frame(n, vlan byte) []byte {
	b := []byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, n}
	if vlan != 0 {
		b = append(b, 0x81, 0, 0, vlan)
	}
	b = append(b, 8, 0)
	ip := make([]byte, 46)
	copy(ip, []byte{0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, n, 10, 0, 0, 9})
	return append(b, ip...)
}

func TestCapture(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in.pcap")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := pcapgo.NewWriter(f)
	if err := w.WriteFileHeader(65536, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	for i, data := range [][]byte{frame(1, 0), frame(2, 0), frame(1, 7), {1, 2, 3}} {
		info := gopacket.CaptureInfo{Timestamp: time.Unix(1, int64(i)*1000), CaptureLength: len(data), Length: len(data)}
		if err := w.WritePacket(info, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var r recorder
	c := Capture{File: path, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}}
	n, err := c.Run(t.Context(), &r)
	if n != 4 || err != nil || len(r.out) != 2 || len(r.in) != 2 || r.out[1] != string(frame(1, 7)) {
		t.Errorf("%d packets, %v: %d out, %d in, want 2 and 2", n, err, len(r.out), len(r.in))
	}
	if err := os.WriteFile(path, []byte("no capture file, and longer than a header"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(t.Context(), &r); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("another file: %v", err)
	}
}

func FuzzLeaves(f *testing.F) {
	f.Add(frame(1, 7))
	f.Fuzz(func(_ *testing.T, data []byte) { leaves(data, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}) })
}
