// SPDX-License-Identifier: Apache-2.0

// Package pcapfile reads and writes capture files: pcap with microseconds or
// nanoseconds, gzipped or not, of link type Ethernet. A file that was cut off is
// told from one that ends.
//
// Readers and writers are for one goroutine each.
package pcapfile

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// ErrFile is wrapped by every error about what a capture file holds.
var ErrFile = errors.New("bad capture file")

// Sizes in bytes of a pcap file's header and of a packet's.
const (
	fileHeader   = 24
	packetHeader = 16
)

const bufferSize = 1 << 18

// Packet is one packet of a file.
type Packet struct {
	Date  time.Time // when it was captured, as the file says
	Frame []byte    // Ethernet, without FCS, as much of it as was captured; valid until the next call of Next
}

// Reader reads a capture file. Make one with Open.
type Reader struct {
	name    string
	f       *os.File
	r       *pcapgo.Reader
	packets int
	read    int64 // bytes taken from the file, uncompressed
	used    int64 // bytes of the file header and of the packets handed out
}

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

// Open opens the capture file at path. It fails, with ErrFile, when the file is not
// pcap or not Ethernet.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{name: path, f: f, used: fileHeader}
	if err := r.open(); err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

func (r *Reader) open() error {
	in := bufio.NewReaderSize(r.f, bufferSize)
	var plain io.Reader = in
	if magic, err := in.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		if plain, err = gzip.NewReader(in); err != nil {
			return fmt.Errorf("%s: %w: gzip header: %w", r.name, ErrFile, err)
		}
	}
	pr, err := pcapgo.NewReader(bufio.NewReaderSize(counter{plain, &r.read}, bufferSize))
	if err != nil {
		return fmt.Errorf("%s: %w: not a pcap file (pcapng: convert it with `editcap -F pcap`): %w", r.name, ErrFile, err)
	}
	if pr.LinkType() != layers.LinkTypeEthernet {
		return fmt.Errorf("%s: %w: link type is %v; only Ethernet can pass through switches", r.name, ErrFile, pr.LinkType())
	}
	r.r = pr
	return nil
}

// Next returns the next packet, and io.EOF after the last. A file that ends within a
// packet is an error, ErrFile, that names file and packet; the packets before it have
// been handed out.
func (r *Reader) Next() (Packet, error) {
	frame, info, err := r.r.ZeroCopyReadPacketData()
	if errors.Is(err, io.EOF) && r.read == r.used {
		return Packet{}, io.EOF
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		// What is there of the packet's header or bytes is not all of it.
		return Packet{}, fmt.Errorf("%s: %w: truncated after packet %d (`editcap` writes what is whole into a new file): %w",
			r.name, ErrFile, r.packets, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return Packet{}, fmt.Errorf("%s: %w: after packet %d: %w", r.name, ErrFile, r.packets, err)
	}
	r.packets++
	r.used += packetHeader + int64(len(frame))
	return Packet{info.Timestamp, frame}, nil
}

// Name returns the path that the file was opened by.
func (r *Reader) Name() string { return r.name }

// Packets returns how many packets have been handed out.
func (r *Reader) Packets() int { return r.packets }

// Close closes the file.
func (r *Reader) Close() error { return r.f.Close() }

// Writer writes a capture file, with nanoseconds. Make one with Create.
type Writer struct {
	name    string
	f       *os.File
	zip     *gzip.Writer // nil: not compressed
	buf     *bufio.Writer
	w       *pcapgo.Writer
	packets int
}

// snapLen is what the files say is the longest packet: none is cut.
const snapLen = 1 << 18

// Create makes a capture file at path, in place of one that is there. It is gzipped
// when the name ends in .gz.
func Create(path string) (*Writer, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	w := &Writer{name: path, f: f}
	var out io.Writer = f
	if strings.HasSuffix(path, ".gz") {
		w.zip = gzip.NewWriter(f)
		out = w.zip
	}
	w.buf = bufio.NewWriterSize(out, bufferSize)
	w.w = pcapgo.NewWriterNanos(w.buf)
	if err := w.w.WriteFileHeader(snapLen, layers.LinkTypeEthernet); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return w, nil
}

// Write appends a packet. frame is not kept.
func (w *Writer) Write(p Packet) error {
	info := gopacket.CaptureInfo{Timestamp: p.Date, CaptureLength: len(p.Frame), Length: len(p.Frame)}
	if err := w.w.WritePacket(info, p.Frame); err != nil {
		return fmt.Errorf("%s: packet %d: %w", w.name, w.packets+1, err)
	}
	w.packets++
	return nil
}

// Packets returns how many packets have been written.
func (w *Writer) Packets() int { return w.packets }

// Close writes out what is buffered and closes the file.
func (w *Writer) Close() error {
	err := w.buf.Flush()
	if w.zip != nil {
		err = errors.Join(err, w.zip.Close())
	}
	if err = errors.Join(err, w.f.Close()); err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	return nil
}
