// SPDX-License-Identifier: Apache-2.0

// Package pcapfile reads and writes capture files: pcap with microseconds or nanoseconds, gzipped
// or not, of link type Ethernet. A truncated file is distinguished from a complete one.
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

// ErrFile is wrapped by every error about the content of a capture file.
var ErrFile = errors.New("bad capture file")

// Bytes of the header of a pcap file and of a packet.
const (
	fileHeader   = 24
	packetHeader = 16
)

const bufferSize = 1 << 18

// Packet is one packet of a file.
type Packet struct {
	Date  time.Time // date of capture
	Frame []byte    // Ethernet, without FCS, as much of it as was captured; valid until the next call of Next
}

// Reader reads a capture file. Create it with Open.
type Reader struct {
	name    string
	f       *os.File
	in      *bufio.Reader // what r reads
	r       *pcapgo.Reader
	packets int
	longer  int   // records with more bytes than their packets had
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

// Open opens the capture file at path. It fails with ErrFile if the file is not pcap or not
// Ethernet.
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
	r.in = bufio.NewReaderSize(counter{plain, &r.read}, bufferSize)
	pr, err := pcapgo.NewReader(r.in)
	if err != nil {
		return fmt.Errorf("%s: %w: not a pcap file (pcapng: convert it with `editcap -F pcap`): %w", r.name, ErrFile,
			err)
	}
	if pr.LinkType() != layers.LinkTypeEthernet {
		return fmt.Errorf("%s: %w: link type is %v; only Ethernet can pass through switches", r.name, ErrFile,
			pr.LinkType())
	}
	r.r = pr
	return nil
}

// Next returns the next packet, and io.EOF after the last. A file that ends within a packet is an
// ErrFile that names the file and the packet; the packets before it have been returned.
func (r *Reader) Next() (Packet, error) {
	frame, info, err := r.r.ZeroCopyReadPacketData()
	if err != nil && info.CaptureLength > info.Length && info.CaptureLength <= snapLen {
		// pcapgo has read the record's header only. tcpdump reads these records, too.
		frame = make([]byte, info.CaptureLength)
		if _, err = io.ReadFull(r.in, frame); err == nil {
			r.longer++
		}
	}
	if errors.Is(err, io.EOF) && r.read == r.used {
		return Packet{}, io.EOF
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		// The packet is incomplete.
		return Packet{}, fmt.Errorf(
			"%s: %w: truncated after packet %d (`editcap` writes what is whole into a new file): %w",
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

// Packets returns the number of packets read.
func (r *Reader) Packets() int { return r.packets }

// LongerRecords returns the number of records handed out that hold more bytes than the file says
// their packets had.
func (r *Reader) LongerRecords() int { return r.longer }

// Close closes the file.
func (r *Reader) Close() error { return r.f.Close() }

// Writer writes a capture file with nanoseconds. Create it with Create.
type Writer struct {
	name    string
	f       *os.File
	zip     *gzip.Writer // nil: not compressed
	buf     *bufio.Writer
	w       *pcapgo.Writer
	packets int
}

// snapLen is the snapshot length of written files: no packet is cut.
const snapLen = 1 << 18

// Create creates a capture file at path, replacing an existing file. It is gzipped if the name ends
// in .gz.
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

// Packets returns the number of packets written.
func (w *Writer) Packets() int { return w.packets }

// Close flushes and closes the file.
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
