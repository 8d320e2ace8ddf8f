// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// ErrTrace is wrapped by every error about what a capture file holds.
var ErrTrace = errors.New("bad capture file")

// Trace replays a capture file: pcap with microseconds or nanoseconds, gzipped or
// not, of link type Ethernet. Packet times are relative to the file's first packet;
// a packet that the file dates before an earlier one keeps the earlier one's time.
type Trace struct {
	name    string
	f       *os.File
	r       *pcapgo.Reader
	place   func(frame []byte) int
	first   time.Time
	last    time.Duration
	packets int
	read    int64 // bytes taken from the file, uncompressed
	used    int64 // bytes of the file header and of the packets handed out
}

// Sizes in bytes of a pcap file's header and of a packet's.
const (
	fileHeader   = 24
	packetHeader = 16
)

// counter counts the bytes read through it.
type counter struct {
	r io.Reader
	n *int64
}

func (c counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	*c.n += int64(n)
	return n, err
}

// OpenTrace opens the capture file at path. place says which host sends a frame.
func OpenTrace(path string, place func(frame []byte) int) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("traffic: trace: %w", err)
	}
	t := &Trace{name: path, f: f, place: place}
	if err := t.open(); err != nil {
		f.Close()
		return nil, err
	}
	return t, nil
}

func (t *Trace) open() error {
	br := bufio.NewReaderSize(t.f, 1<<18)
	var r io.Reader = br
	if magic, err := br.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		if r, err = gzip.NewReader(br); err != nil {
			return fmt.Errorf("traffic: trace %s: %w: gzip header: %w", t.name, ErrTrace, err)
		}
	}
	t.used = fileHeader
	pr, err := pcapgo.NewReader(bufio.NewReaderSize(counter{r, &t.read}, 1<<18))
	if err != nil {
		return fmt.Errorf("traffic: trace %s: %w: not a pcap file (pcapng: convert it with `editcap -F pcap`): %w", t.name, ErrTrace, err)
	}
	if pr.LinkType() != layers.LinkTypeEthernet {
		return fmt.Errorf("traffic: trace %s: %w: link type is %v; only Ethernet can be replayed through switches", t.name, ErrTrace, pr.LinkType())
	}
	t.r = pr
	return nil
}

// Next returns the next packet of the file. A file that ends within a packet is an
// error that names the packet; the packets before it have been handed out.
func (t *Trace) Next() (Packet, error) {
	frame, info, err := t.r.ZeroCopyReadPacketData()
	if errors.Is(err, io.EOF) && t.read == t.used {
		return Packet{}, io.EOF
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // the packet's header is there, its bytes are not
	}
	if err != nil {
		return Packet{}, fmt.Errorf("traffic: trace %s: %w: after packet %d: %w", t.name, ErrTrace, t.packets, err)
	}
	t.packets++
	t.used += packetHeader + int64(len(frame))
	if t.first.IsZero() {
		t.first = info.Timestamp
	}
	if at := info.Timestamp.Sub(t.first); at > t.last {
		t.last = at
	}
	host := 0
	if t.place != nil {
		host = t.place(frame)
	}
	return Packet{At: t.last, Host: host, Frame: frame}, nil
}

// Packets returns how many packets have been handed out.
func (t *Trace) Packets() int { return t.packets }

// Close closes the file.
func (t *Trace) Close() error { return t.f.Close() }

// Repeat plays open's trace again and again, each round following the last after
// gap, until the consumer stops. open is called once per round.
func Repeat(open func() (*Trace, error), gap time.Duration) Source {
	return &repeat{open: open, gap: gap}
}

type repeat struct {
	open  func() (*Trace, error)
	gap   time.Duration
	cur   *Trace
	shift time.Duration
	last  time.Duration
}

func (r *repeat) Next() (Packet, error) {
	fresh := false
	for {
		if r.cur == nil {
			t, err := r.open()
			if err != nil {
				return Packet{}, err
			}
			r.cur, fresh = t, true
		}
		p, err := r.cur.Next()
		if errors.Is(err, io.EOF) {
			empty := fresh
			r.cur.Close()
			r.cur = nil
			r.shift = r.last + r.gap
			if empty {
				return Packet{}, io.EOF // a trace without packets would repeat for ever
			}
			continue
		}
		if err != nil {
			return Packet{}, err
		}
		p.At += r.shift
		r.last = p.At
		return p, nil
	}
}

// Close closes the round that is being played.
func (r *repeat) Close() error {
	if r.cur == nil {
		return nil
	}
	return r.cur.Close()
}
