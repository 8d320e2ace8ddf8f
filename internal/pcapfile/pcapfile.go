// SPDX-License-Identifier: Apache-2.0

// Package pcapfile reads and writes capture files: pcap with microseconds or nanoseconds and
// pcapng, gzipped or not. Packets of link types without an Ethernet header (raw IP, BSD loopback,
// Linux cooked) get one with zero addresses. Readers report truncated files and jumps of the
// clock.
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
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/internal/checksum"
	"github.com/netsketch/netsketch/internal/files"
)

// ErrFile is wrapped by every error about the content of a capture file.
var ErrFile = errors.New("bad capture file")

const bufferSize = 1 << 18

// Packet is one packet of a file.
type Packet struct {
	Date  time.Time // date of capture
	Frame []byte    // Ethernet without FCS, as much of the frame as was captured; valid until the next call of Next
}

// Reader reads a capture file. Create it with Open.
type Reader struct {
	name    string
	f       *os.File
	source  source
	packets int
	longer  int // records with more bytes than their packets had
	zero    int // packets whose IPv4 header has the wrong checksum zero
	frame   []byte
	dates   dates
}

// source reads the packets of one format.
type source interface {
	// next returns a packet, io.EOF after the last one, and io.ErrUnexpectedEOF if the file ends in
	// the middle of one. Its data are valid until the next call.
	next() (record, error)
}

// record is a packet of a file.
type record struct {
	date   time.Time
	link   linkType
	length int // length of the packet; data has its first bytes
	data   []byte
}

// Open opens the capture file at path. It fails with ErrFile if the file is neither pcap nor
// pcapng, or if its packets have no Ethernet and no IP header.
func Open(path string) (*Reader, error) {
	f, err := files.Open(path)
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
		zip, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("%s: %w: gzip header: %w", r.name, ErrFile, err)
		}
		plain = &members{zip, in}
	}
	for magic, by := range compressed {
		if begin, err := in.Peek(len(magic)); err == nil && string(begin) == magic {
			return fmt.Errorf("%s: %w: it is compressed with %s; decompress it, or compress it with gzip", r.name, ErrFile, by)
		}
	}
	data := &input{r: bufio.NewReaderSize(plain, bufferSize)}
	var err error
	if magic, _ := data.r.Peek(4); bytes.Equal(magic, sectionHeader) {
		r.source, err = newNg(data)
	} else {
		r.source, err = newClassic(data)
	}
	if errors.Is(err, io.EOF) && !data.begun {
		return fmt.Errorf("%s: %w: the file is empty", r.name, ErrFile)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: neither pcap nor pcapng: %w", r.name, ErrFile, err)
	}
	return nil
}

// members reads a gzip file, which can have several members.
type members struct {
	*gzip.Reader
	in *bufio.Reader
}

// Read reads a member, and at its end begins the next one.
func (m *members) Read(b []byte) (int, error) {
	m.Multistream(false)
	n, err := m.Reader.Read(b)
	switch {
	case !errors.Is(err, io.EOF):
		return n, err
	case n > 0:
		return n, nil
	}
	switch magic, peekErr := m.in.Peek(2); {
	case len(magic) == 0:
		return 0, peekErr
	case len(magic) < 2 || magic[0] != 0x1f || magic[1] != 0x8b:
		return 0, errors.New("other bytes follow what gzip compressed; `zcat` writes all packets into a new file")
	}
	return 0, m.Reset(m.in)
}

// compressed has the beginnings of files that are compressed in other ways than with gzip.
var compressed = map[string]string{"\x28\xb5\x2f\xfd": "zstd", "\xfd7zXZ\x00": "xz", "BZh": "bzip2",
	"\x04\x22\x4d\x18": "lz4", "PK\x03\x04": "zip"}

// Lengths of headers.
const (
	etherHeader  = 14
	cookedHeader = 16
	sll2Header   = 20
	loopHeader   = 4
)

// ethernet returns a packet of a link type as an Ethernet frame. A packet that is too short for its
// link type becomes a frame of type 0, which is no IP.
func (r *Reader) ethernet(data []byte, link linkType) []byte {
	var kind uint16
	body := data
	switch link {
	case linkEthernet:
		return data
	case linkCooked:
		if len(data) >= cookedHeader {
			kind, body = binary.BigEndian.Uint16(data[14:]), data[cookedHeader:]
		}
	case linkCooked2:
		if len(data) >= sll2Header {
			kind, body = binary.BigEndian.Uint16(data), data[sll2Header:]
		}
	default:
		if link == linkNull || link == linkLoop {
			body = data[min(loopHeader, len(data)):] // an address family, whose numbers differ between systems
		}
		if len(body) > 0 {
			kind = map[byte]uint16{4: 0x0800, 6: 0x86dd}[body[0]>>4]
		}
	}
	r.frame = append(append(r.frame[:0], make([]byte, etherHeader-2)...), byte(kind>>8), byte(kind))
	r.frame = append(r.frame, body...)
	return r.frame
}

const (
	// MaxPause is the longest time between two packets of a file. A longer pause is cut, because it
	// means that the clock was set or a date is wrong.
	MaxPause = time.Minute
	// maxBack is how much earlier than its predecessor a packet may be dated, as happens with packets
	// of a device's different queues.
	maxBack = time.Second
)

// dates makes the dates of a file continuous.
type dates struct {
	shift time.Duration // added to the dates of the file
	last  time.Time     // the latest date handed out
	steps int
	plan  []part // parts of the file from the current one on; nil if pauses are cut
}

// next returns the date of packet n, counted from 0.
func (d *dates) next(n int, date time.Time) time.Time {
	for len(d.plan) > 1 && d.plan[1].begin <= n {
		if d.plan = d.plan[1:]; d.plan[0].jump {
			d.steps++
		}
	}
	if date.IsZero() { // pcapng has packets without a date
		return d.last
	}
	if d.plan != nil {
		d.last = date.Add(d.plan[0].shift)
		return d.last
	}
	at := date.Add(d.shift)
	if step := at.Sub(d.last); !d.last.IsZero() && (step > MaxPause || step < -maxBack) {
		d.steps++
		d.shift -= step
		at = d.last
	}
	if at.After(d.last) {
		d.last = at
	}
	return at
}

// Next returns the next packet, and io.EOF after the last one. If the file ends within a packet,
// Next returns an ErrFile that names the file and the packet, after all complete packets.
func (r *Reader) Next() (Packet, error) {
	p, err := r.source.next()
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
	if len(p.data) > p.length {
		r.longer++
	}
	frame := r.ethernet(p.data, p.link)
	if zeroChecksum(frame) {
		r.zero++
	}
	return Packet{r.dates.next(r.packets-1, p.date), frame}, nil
}

// zeroChecksum reports whether the IPv4 header of a frame has the checksum zero, although the right
// checksum is not zero.
func zeroChecksum(frame []byte) bool {
	at := 12
	for len(frame) >= at+4 && slices.Contains([]uint16{0x8100, 0x88a8, 0x9100}, binary.BigEndian.Uint16(frame[at:])) {
		at += 4 // a VLAN tag
	}
	if len(frame) < at+22 || binary.BigEndian.Uint16(frame[at:]) != 0x0800 {
		return false
	}
	ip := frame[at+2:]
	header := int(ip[0]&0xf) * 4
	if ip[0]>>4 != 4 || header < 20 || len(ip) < header || ip[10]|ip[11] != 0 {
		return false
	}
	return checksum.Sum(0, ip[:header]) != 0xffff
}

// Name returns the path that the file was opened by.
func (r *Reader) Name() string { return r.name }

// Packets returns the number of packets read.
func (r *Reader) Packets() int { return r.packets }

// LongerRecords returns the number of records handed out that hold more bytes than the file says
// their packets had.
func (r *Reader) LongerRecords() int { return r.longer }

// TimeSteps returns how often the file's clock has jumped so far: more than a minute ahead, or
// more than a second back. Dates after a jump continue without a gap. With KeepPauses, a clock that
// is ahead and does not return has not jumped.
func (r *Reader) TimeSteps() int { return r.dates.steps }

// OtherLinks returns the number of packets so far that were left out, because their interfaces have
// neither Ethernet nor IP.
func (r *Reader) OtherLinks() int {
	if n, ok := r.source.(*ng); ok {
		return n.skipped
	}
	return 0
}

// Warn logs how the packets so far differ from the packets of the file.
func (r *Reader) Warn(log *slog.Logger) {
	if n := r.TimeSteps(); n > 0 {
		log.Warn("the clock of a capture file jumps, or it pauses for more than a minute; "+
			"the packets follow each other as if it did not", "file", r.name, "jumps", n)
	}
	if n := r.OtherLinks(); n > 0 {
		log.Warn("packets of a capture file are left out: their interfaces have neither Ethernet nor IP", "file", r.name,
			"packets", n)
	}
	if r.zero > 0 {
		log.Warn("IPv4 headers of a capture file have the checksum zero: the packets were captured before the device "+
			"computed it, and programs take them for damaged; tcprewrite --fixcsum corrects the file", "file", r.name,
			"packets", r.zero)
	}
}

// Close closes the file.
func (r *Reader) Close() error { return r.f.Close() }

// Writer writes a capture file with nanoseconds. Create it with Create.
type Writer struct {
	name    string
	f       *os.File
	zip     *gzip.Writer // nil if the file is not compressed
	buf     *bufio.Writer
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
	header := binary.LittleEndian.AppendUint32(nil, magicNanoseconds)
	for _, v := range []uint32{major | minor<<16, 0, 0, snapLen, uint32(linkEthernet)} {
		header = binary.LittleEndian.AppendUint32(header, v)
	}
	if _, err := w.buf.Write(header); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return w, nil
}

// Write appends a packet. It does not keep frame.
func (w *Writer) Write(p Packet) error {
	var header [packetHeader]byte
	for i, v := range []int{int(p.Date.Unix()), p.Date.Nanosecond(), len(p.Frame), len(p.Frame)} {
		binary.LittleEndian.PutUint32(header[4*i:], uint32(v))
	}
	_, err := w.buf.Write(header[:])
	if err == nil {
		_, err = w.buf.Write(p.Frame)
	}
	if err != nil {
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
