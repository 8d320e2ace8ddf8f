// SPDX-License-Identifier: Apache-2.0

// Package pcapfile reads and writes capture files: pcap with microseconds or nanoseconds and
// pcapng, gzipped or not. Packets of link types without an Ethernet header (raw IP, BSD loopback,
// Linux cooked) get one with zero addresses. A truncated file is distinguished from a complete one,
// and a clock that jumps is noticed.
//
// Readers and writers are for one goroutine each.
package pcapfile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
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
	in      *bufio.Reader // what source reads
	source  source
	packets int
	longer  int   // records with more bytes than their packets had
	read    int64 // bytes taken from the file, uncompressed
	frame   []byte
	dates   dates
}

// source reads the packets of one format.
type source interface {
	// next returns a packet with its link type, and io.EOF after the last. Its data are valid until
	// the next call.
	next() (data []byte, date time.Time, link layers.LinkType, err error)
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

// Open opens the capture file at path. It fails with ErrFile if the file is neither pcap nor
// pcapng, or if its packets have no Ethernet and no IP header.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{name: path, f: f}
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
	var err error
	if magic, _ := r.in.Peek(4); bytes.Equal(magic, sectionHeader) {
		r.source, err = newNg(r.in)
	} else {
		r.source, err = r.newClassic()
	}
	if err != nil {
		return fmt.Errorf("%s: %w: neither pcap nor pcapng: %w", r.name, ErrFile, err)
	}
	return nil
}

// sectionHeader is the beginning of a pcapng file.
var sectionHeader = []byte{0x0a, 0x0d, 0x0d, 0x0a}

// classic reads pcap.
type classic struct {
	*pcapgo.Reader
	file *Reader
	used int64 // bytes of the file header and of the packets handed out
}

func (r *Reader) newClassic() (source, error) {
	pr, err := pcapgo.NewReader(r.in)
	if err == nil {
		err = checkLink(pr.LinkType())
	}
	return &classic{pr, r, fileHeader}, err
}

func (c *classic) next() (data []byte, date time.Time, link layers.LinkType, err error) {
	data, info, err := c.ZeroCopyReadPacketData()
	if err != nil && info.CaptureLength > info.Length && info.CaptureLength <= snapLen {
		// pcapgo has read the record's header only. tcpdump reads these records, too.
		data = make([]byte, info.CaptureLength)
		if _, err = io.ReadFull(c.file.in, data); err == nil {
			c.file.longer++
		}
	}
	if errors.Is(err, io.EOF) && c.file.read != c.used {
		err = io.ErrUnexpectedEOF // within the header of a packet
	}
	if err == nil {
		c.used += packetHeader + int64(len(data))
	}
	return data, info.Timestamp, c.LinkType(), err
}

// ng reads pcapng.
type ng struct {
	*pcapgo.NgReader
	blocks *blocks
}

func newNg(in *bufio.Reader) (source, error) {
	b := &blocks{r: in}
	r, err := pcapgo.NewNgReader(b, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	return &ng{r, b}, err
}

func (n *ng) next() (data []byte, date time.Time, link layers.LinkType, err error) {
	data, info, err := n.ZeroCopyReadPacketData()
	if errors.Is(err, io.EOF) && !n.blocks.whole() {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, date, 0, err
	}
	i, err := n.Interface(info.InterfaceIndex)
	if err == nil {
		err = checkLink(i.LinkType)
	}
	return data, info.Timestamp, i.LinkType, err
}

// blocks reads pcapng and follows its blocks, because pcapgo does not distinguish a file that
// ends within one from a complete file.
type blocks struct {
	r     io.Reader
	order binary.ByteOrder
	head  []byte // of the block, up to 12 bytes
	left  int64  // bytes of the block behind its head
}

func (b *blocks) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		if b.left > 0 {
			skip := min(b.left, int64(len(rest)))
			rest, b.left = rest[skip:], b.left-skip
			continue
		}
		take := min(12-len(b.head), len(rest))
		b.head, rest = append(b.head, rest[:take]...), rest[take:]
		if len(b.head) < 12 {
			break
		}
		if bytes.Equal(b.head[:4], sectionHeader) {
			b.order = binary.BigEndian
			if b.head[8] == 0x4d { // of the byte order magic 0x1a2b3c4d
				b.order = binary.LittleEndian
			}
		}
		b.left = max(int64(b.order.Uint32(b.head[4:]))-12, 0)
		b.head = b.head[:0]
	}
	return n, err
}

// whole reports whether the last block is complete.
func (b *blocks) whole() bool { return b.left == 0 && len(b.head) == 0 }

// Numbers of raw IP in files of some systems, which package layers does not name.
const (
	linkRaw12 = 12
	linkRaw14 = 14 // OpenBSD
)

// Lengths of headers.
const (
	etherHeader  = 14
	cookedHeader = 16
	sll2Header   = 20
	loopHeader   = 4
)

// checkLink returns why packets of a link type cannot pass through switches.
func checkLink(link layers.LinkType) error {
	switch link {
	case layers.LinkTypeEthernet, layers.LinkTypeRaw, linkRaw12, linkRaw14, layers.LinkTypeIPv4, layers.LinkTypeIPv6,
		layers.LinkTypeNull, layers.LinkTypeLoop, layers.LinkTypeLinuxSLL, layers.LinkTypeLinuxSLL2:
		return nil
	}
	return fmt.Errorf("link type is %v; expected Ethernet, raw IP, BSD loopback or Linux cooked", link)
}

// ethernet returns a packet of a link type as an Ethernet frame. A packet that is too short for its
// link type becomes a frame of type 0, which is no IP.
func (r *Reader) ethernet(data []byte, link layers.LinkType) []byte {
	var kind uint16
	body := data
	switch link {
	case layers.LinkTypeEthernet:
		return data
	case layers.LinkTypeLinuxSLL:
		if len(data) >= cookedHeader {
			kind, body = binary.BigEndian.Uint16(data[14:]), data[cookedHeader:]
		}
	case layers.LinkTypeLinuxSLL2:
		if len(data) >= sll2Header {
			kind, body = binary.BigEndian.Uint16(data), data[sll2Header:]
		}
	default:
		if link == layers.LinkTypeNull || link == layers.LinkTypeLoop {
			body = data[min(loopHeader, len(data)):] // an address family, whose numbers differ between systems
		}
		if len(body) > 0 {
			kind = map[byte]uint16{4: uint16(layers.EthernetTypeIPv4), 6: uint16(layers.EthernetTypeIPv6)}[body[0]>>4]
		}
	}
	r.frame = append(append(r.frame[:0], make([]byte, etherHeader-2)...), byte(kind>>8), byte(kind))
	r.frame = append(r.frame, body...)
	return r.frame
}

const (
	// maxPause is the longest time between two packets of a file. A longer one is cut: it is a clock
	// that was set, or a packet with a wrong date.
	maxPause = time.Minute
	// maxBack is how far a packet may be dated before an earlier one, as packets of several queues of
	// a device are.
	maxBack = time.Second
)

// dates makes the dates of a file continuous.
type dates struct {
	shift time.Duration // added to the dates of the file
	last  time.Time     // the latest date handed out
	steps int
}

func (d *dates) next(date time.Time) time.Time {
	at := date.Add(d.shift)
	if step := at.Sub(d.last); !d.last.IsZero() && (step > maxPause || step < -maxBack) {
		d.steps++
		d.shift -= step
		at = d.last
	}
	if at.After(d.last) {
		d.last = at
	}
	return at
}

// Next returns the next packet, and io.EOF after the last. A file that ends within a packet is an
// ErrFile that names the file and the packet; the packets before it have been returned.
func (r *Reader) Next() (Packet, error) {
	data, date, link, err := r.source.next()
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF): // the packet is incomplete
		return Packet{}, fmt.Errorf(
			"%s: %w: truncated after packet %d (`editcap` writes what is whole into a new file): %w",
			r.name, ErrFile, r.packets, io.ErrUnexpectedEOF)
	case errors.Is(err, io.EOF):
		return Packet{}, io.EOF
	case err != nil:
		return Packet{}, fmt.Errorf("%s: %w: after packet %d: %w", r.name, ErrFile, r.packets, err)
	}
	r.packets++
	return Packet{r.dates.next(date), r.ethernet(data, link)}, nil
}

// Name returns the path that the file was opened by.
func (r *Reader) Name() string { return r.name }

// Packets returns the number of packets read.
func (r *Reader) Packets() int { return r.packets }

// LongerRecords returns the number of records handed out that hold more bytes than the file says
// their packets had.
func (r *Reader) LongerRecords() int { return r.longer }

// TimeSteps returns the number of times that the file's clock has jumped so far: more than a minute
// ahead, or more than a second back. Dates continue behind a jump as if there were none.
func (r *Reader) TimeSteps() int { return r.dates.steps }

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
