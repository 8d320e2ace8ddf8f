// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// CaptureReader reads the packets of a capture file, pcap or pcapng, gzipped or not. It is for one goroutine.
type CaptureReader struct {
	name   string
	file   *os.File
	read   func() ([]byte, gopacket.CaptureInfo, error)
	number int
	first  time.Time
}

// OpenCapture opens a capture file. The caller closes the reader.
func OpenCapture(name string) (*CaptureReader, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	c := &CaptureReader{name: name, file: f}
	if err := c.open(bufio.NewReaderSize(f, 1<<16)); err != nil {
		f.Close()
		return nil, fmt.Errorf("capture %s: %w", name, err)
	}
	return c, nil
}

func (c *CaptureReader) open(r *bufio.Reader) error {
	magic, err := r.Peek(4)
	if err != nil {
		return fmt.Errorf("it has no header: %w", unexpected(err))
	}
	if magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(r)
		if err != nil {
			return fmt.Errorf("gzip: %w", unexpected(err))
		}
		r = bufio.NewReaderSize(z, 1<<16)
		if magic, err = r.Peek(4); err != nil {
			return fmt.Errorf("it has no header: %w", unexpected(err))
		}
	}
	if magic[0] == 0x0a && magic[1] == 0x0d && magic[2] == 0x0d && magic[3] == 0x0a {
		ng, err := pcapgo.NewNgReader(r, pcapgo.DefaultNgReaderOptions)
		if err != nil {
			return fmt.Errorf("pcapng header: %w", unexpected(err))
		}
		c.read = ng.ReadPacketData
		return nil
	}
	p, err := pcapgo.NewReader(r)
	if err != nil {
		return fmt.Errorf("it is neither pcap nor pcapng: %w", unexpected(err))
	}
	c.read = p.ReadPacketData
	return nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Next returns the next packet and its time since the first one. At the end it returns io.EOF; a file that ends within a packet, or is damaged,
// gives an error with the number of that packet, from 1, which wraps io.ErrUnexpectedEOF when it is cut off.
func (c *CaptureReader) Next() (pkt []byte, at time.Duration, err error) {
	pkt, info, err := c.read()
	c.number++
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, 0, io.EOF
	}
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, 0, fmt.Errorf("capture %s is cut off in packet %d: %w", c.name, c.number, err)
		}
		return nil, 0, fmt.Errorf("capture %s, packet %d: %w", c.name, c.number, err)
	}
	if c.number == 1 {
		c.first = info.Timestamp
	}
	return pkt, max(0, info.Timestamp.Sub(c.first)), nil
}

// Close closes the file.
func (c *CaptureReader) Close() error { return c.file.Close() }

// Replay injects a capture's packets into a port at their times since the first one, plus start. It does not wait: the times are those of the
// switch's clock, and all packets are run as fast as they can be. It returns how many were injected, and the error that ended it: nil at the
// capture's end, the context's when that is done.
func (s *Switch) Replay(ctx context.Context, port uint32, c *CaptureReader, start time.Duration) (packets int, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return packets, fmt.Errorf("replay into port %d: %w", port, err)
		}
		pkt, at, err := c.Next()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return packets, nil
		}
		if err != nil {
			return packets, fmt.Errorf("replay into port %d: %w", port, err)
		}
		s.Inject(port, pkt, start+at)
		packets++
	}
}

// CaptureWriter writes packets to a pcap file with times in nanoseconds; a name that ends in .gz makes it gzipped. Its Tx is a port's
// Tx, and may be called from any goroutine.
type CaptureWriter struct {
	mu   sync.Mutex
	name string
	file *os.File
	zip  *gzip.Writer
	buf  *bufio.Writer
	w    *pcapgo.Writer
	base time.Time
	err  error
}

// CreateCapture makes a capture file; base is the wall time of the switch's time zero. The caller closes the writer.
func CreateCapture(name string, base time.Time) (*CaptureWriter, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	c := &CaptureWriter{name: name, file: f, base: base}
	var to io.Writer = f
	if strings.HasSuffix(name, ".gz") {
		c.zip = gzip.NewWriter(f)
		to = c.zip
	}
	c.buf = bufio.NewWriterSize(to, 1<<16)
	c.w = pcapgo.NewWriterNanos(c.buf)
	if err := c.w.WriteFileHeader(maxPacket, layers.LinkTypeEthernet); err != nil {
		f.Close()
		return nil, fmt.Errorf("capture %s: %w", name, err)
	}
	return c, nil
}

// Tx writes a packet. After an error it does nothing; Close returns the error.
func (c *CaptureWriter) Tx(pkt []byte, at time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = c.w.WritePacket(gopacket.CaptureInfo{Timestamp: c.base.Add(at), CaptureLength: len(pkt), Length: len(pkt)}, pkt)
}

// Close writes what is left and closes the file. It returns the first error of all.
func (c *CaptureWriter) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	keep := func(err error) {
		if c.err == nil {
			c.err = err
		}
	}
	keep(c.buf.Flush())
	if c.zip != nil {
		keep(c.zip.Close())
	}
	keep(c.file.Close())
	if c.err != nil {
		return fmt.Errorf("capture %s: %w", c.name, c.err)
	}
	return nil
}
