// SPDX-License-Identifier: Apache-2.0

// Package pcapport gives a soft switch ports that receive the packets of one capture file and write
// the packets that leave to another.
//
// Packets are injected in one of two ways. As fast as possible, the switch's clock is the file's: a
// packet arrives at its time in the file, counted from the first packet, and outgoing packets are
// dated from 1970-01-01 on, so the same input gives the same output, byte for byte. At the file's
// pace (Config.RealTime), packets arrive at the switch's own time, and outgoing packets have the
// current date.
//
// A Port may be used from any goroutine. Its input file is played once.
package pcapport

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/internal/pcapfile"
	"github.com/netsketch/netsketch/p4/softswitch"
)

// Config is the configuration of a port. The zero value is a port without input whose packets are
// discarded.
type Config struct {
	In       string // capture file of the arriving packets; "": no packets arrive
	Out      string // capture file to write what leaves to, gzipped if it ends in .gz; "": discarded
	RealTime bool   // inject at the file's pace
	Name     string // name of the port; "": "port N"
	Clock    *Clock // the switch's clock if queues run on the files' time; nil: the switch has its own clock
}

// Clock is the time of files that play as fast as possible: the time of the last packet that
// arrived.
type Clock struct{ now atomic.Int64 }

// Now returns the time; it is a softswitch.Config.Clock.
func (c *Clock) Now() time.Duration { return time.Duration(c.now.Load()) }

func (c *Clock) set(at time.Duration) {
	if c != nil {
		c.now.Store(int64(max(at, c.Now())))
	}
}

// Port is a port of a switch between two capture files. Create it with Open.
type Port struct {
	sw     *softswitch.Switch
	number uint32
	real   bool
	clock  *Clock
	start  time.Time // date of outgoing packets at time 0 of the switch

	mu     sync.Mutex // guards the fields below
	in     *pcapfile.Reader
	last   time.Time // date of the last packet
	kept   int       // pauses of the file in which other ports have packets
	gaps   int       // how often the packets of all ports paused until one of this port
	out    *pcapfile.Writer
	failed error // first failure to write
	closed bool
}

// ErrClosed is the error of a closed port.
var ErrClosed = errors.New("port closed")

// Open adds a port to the switch. The caller closes it.
func Open(sw *softswitch.Switch, number uint32, cfg Config) (*Port, error) {
	p := &Port{sw: sw, number: number, real: cfg.RealTime, clock: cfg.Clock, start: time.Unix(0, 0)}
	if cfg.RealTime {
		p.start = time.Now().Add(-sw.Now())
	}
	if cfg.Name == "" {
		cfg.Name = fmt.Sprintf("port %d", number)
	}
	var err error
	if cfg.In != "" {
		if p.in, err = pcapfile.Open(cfg.In); err != nil {
			return nil, fmt.Errorf("packets that arrive: %w", err)
		}
	}
	port := softswitch.Port{Name: cfg.Name}
	if cfg.Out != "" {
		if p.out, err = pcapfile.Create(cfg.Out); err != nil {
			return nil, errors.Join(fmt.Errorf("packets that leave: %w", err), p.closeFiles())
		}
		port.Tx = p.write
	}
	if err := sw.AddPort(number, port); err != nil {
		return nil, errors.Join(err, p.closeFiles())
	}
	return p, nil
}

// Number returns the port's number in the switch.
func (p *Port) Number() uint32 { return p.number }

// Read returns the number of packets that were read of the input file. After a whole file, the
// difference to the number that Play returns is the number of packets that the port did not take.
func (p *Port) Read() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.in == nil {
		return 0
	}
	return p.in.Packets()
}

// write writes an outgoing packet. It stops after a failure, which Close returns.
func (p *Port) write(frame []byte, at time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.failed != nil {
		return
	}
	p.failed = p.out.Write(pcapfile.Packet{Date: p.start.Add(at), Frame: frame})
}

// next reads the next packet of the input file, and io.EOF after the last.
func (p *Port) next() (pcapfile.Packet, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return pcapfile.Packet{}, ErrClosed
	case p.in == nil:
		return pcapfile.Packet{}, io.EOF
	}
	return p.in.Next()
}

// arrives counts the pauses before a packet: all is true for a pause of all files.
func (p *Port) arrives(date time.Time, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case all:
		p.gaps++
	case !p.last.IsZero() && date.Sub(p.last) > pcapfile.MaxPause:
		p.kept++
	}
	p.last = date
}

// Warn logs how the packets that were read differ from the packets of the file.
func (p *Port) Warn(log *slog.Logger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.in != nil {
		p.in.Warn(log)
	}
	if p.kept > 0 {
		log.Warn("a capture file pauses for more than a minute in which other files have packets; "+
			"its packets keep their dates", "file", p.in.Name(), "pauses", p.kept)
	}
	if p.gaps > 0 {
		log.Warn("a capture file goes on more than a minute after the packets of all ports before; its packets follow at "+
			"once", "file", p.in.Name(), "pauses", p.gaps)
	}
}

// Play injects the packets of the file until its end or the end of ctx, and then sends the packets
// in queues. It returns the number of packets that the port took (Switch.Inject). A truncated file
// is an error that names the file and its last whole packet, which has been injected.
func (p *Port) Play(ctx context.Context) (packets int, err error) { return Play(ctx, p) }

// Play injects the packets of several ports' files in the order of their dates, and counts time
// from the earliest. All play at the pace of the first port's configuration. If no file has a
// packet for longer than pcapfile.MaxPause, the next packet follows at once: the clocks of the
// files may differ. A pause of one file in which another has packets is kept.
func Play(ctx context.Context, ports ...*Port) (packets int, err error) {
	if err := keepPauses(ports); err != nil {
		return 0, err
	}
	var queue arrivals
	for i, p := range ports {
		a := &arrival{port: p, order: i}
		if err := a.read(); err == nil {
			queue = append(queue, a)
		} else if !errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("port %d: %w", p.number, err)
		}
	}
	if len(queue) == 0 {
		return 0, nil
	}
	heap.Init(&queue)
	var first time.Time // date of time 0, which grows with the pauses that are cut
	begin, last := time.Now(), time.Duration(0)
	for len(queue) > 0 {
		if err := ctx.Err(); err != nil {
			return packets, err
		}
		a := queue[0]
		at := last
		if !a.Date.IsZero() { // pcapng has packets without a date
			if first.IsZero() {
				first = a.Date
			}
			at = max(last, a.Date.Sub(first)) // dates within a file may go back; the switch's time does not
		}
		pause := at - last
		if pause > pcapfile.MaxPause {
			first, at = first.Add(pause), last
		}
		a.port.arrives(a.Date, pause > pcapfile.MaxPause)
		last = at
		if ports[0].real {
			if err := sleep(ctx, at-time.Since(begin)); err != nil {
				return packets, err
			}
			at = a.port.sw.Now()
		}
		a.port.clock.set(at)
		if a.port.sw.Inject(a.port.number, a.Frame, at) {
			packets++
		}
		switch err := a.read(); {
		case err == nil:
			heap.Fix(&queue, 0)
		case errors.Is(err, io.EOF):
			heap.Pop(&queue)
		default:
			return packets, fmt.Errorf("port %d: %w", a.port.number, err)
		}
	}
	for _, p := range ports {
		if err := p.drain(ctx); err != nil {
			return packets, err
		}
	}
	return packets, nil
}

// keepPauses makes ports keep the pauses of their files if several play together.
func keepPauses(ports []*Port) error {
	var files []*Port
	for _, p := range ports {
		if p.in != nil {
			files = append(files, p)
		}
	}
	for _, p := range files {
		if len(files) == 1 {
			break
		}
		if err := p.in.KeepPauses(); err != nil {
			return fmt.Errorf("port %d: %w", p.number, err)
		}
	}
	return nil
}

// drain sends the packets in the switch's queues: at the files' pace, or at once.
func (p *Port) drain(ctx context.Context) error {
	for {
		at, ok := p.sw.NextDeparture()
		if !ok {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.real {
			if err := sleep(ctx, at-p.sw.Now()); err != nil {
				return err
			}
		}
		p.clock.set(at)
		p.sw.Advance(at)
	}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// arrival is the next packet of a port.
type arrival struct {
	pcapfile.Packet
	port  *Port
	order int
}

func (a *arrival) read() (err error) {
	a.Packet, err = a.port.next()
	return err
}

// arrivals is a heap of ports by the dates of their next packets.
type arrivals []*arrival

func (h arrivals) Len() int { return len(h) }
func (h arrivals) Less(i, j int) bool {
	if c := h[i].Date.Compare(h[j].Date); c != 0 {
		return c < 0
	}
	return h[i].order < h[j].order
}
func (h arrivals) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *arrivals) Push(x any)   { *h = append(*h, x.(*arrival)) }
func (h *arrivals) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// Close removes the port from the switch and flushes the output. It returns the first write error.
// A second Close does nothing.
func (p *Port) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	err := errors.Join(p.failed, p.closeFiles())
	p.mu.Unlock()
	if e := p.sw.RemovePort(p.number); e != nil && !errors.Is(e, softswitch.ErrClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// closeFiles closes the open files. The caller holds mu, or the only reference.
func (p *Port) closeFiles() (err error) {
	if p.in != nil {
		err = p.in.Close()
	}
	if p.out != nil {
		err = errors.Join(err, p.out.Close())
	}
	return err
}
