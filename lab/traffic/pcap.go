// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/netsketch/netsketch/internal/pcapfile"
)

// ErrTrace is wrapped by every error about the content of a capture file.
var ErrTrace = pcapfile.ErrFile

// Trace replays a capture file of any form that package pcapfile reads. Packet times are relative
// to the file's first packet; a packet that the file dates before an earlier one keeps the earlier
// one's time.
type Trace struct {
	r     *pcapfile.Reader
	place func(frame []byte) int
	first time.Time
	last  time.Duration
	pause int
}

// OpenTrace opens the capture file at path. place returns the host that sends a frame. keepPauses
// is for traces that Together plays: pauses of more than pcapfile.MaxPause are not cut then.
func OpenTrace(path string, place func(frame []byte) int, keepPauses bool) (*Trace, error) {
	r, err := pcapfile.Open(path)
	if err == nil && keepPauses {
		if err = r.KeepPauses(); err != nil {
			r.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("traffic: trace: %w", err)
	}
	return &Trace{r: r, place: place}, nil
}

// Next returns the next packet of the file. A file that ends within a packet is an
// error that names the packet; the packets before it have been returned.
func (t *Trace) Next() (Packet, error) {
	p, err := t.r.Next()
	if errors.Is(err, io.EOF) {
		return Packet{}, io.EOF
	}
	if err != nil {
		return Packet{}, fmt.Errorf("traffic: trace: %w", err)
	}
	if t.first.IsZero() {
		t.first = p.Date
	}
	if at := p.Date.Sub(t.first); at > t.last {
		if at-t.last > pcapfile.MaxPause {
			t.pause++
		}
		t.last = at
	}
	host := 0
	if t.place != nil {
		host = t.place(p.Frame)
	}
	return Packet{At: t.last, Host: host, Frame: p.Frame}, nil
}

// Length returns the time of the last packet of the capture file at path.
func Length(path string) (time.Duration, error) {
	t, err := OpenTrace(path, nil, false)
	if err != nil {
		return 0, err
	}
	defer t.Close()
	for {
		_, err := t.Next()
		if errors.Is(err, io.EOF) {
			return t.last, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// Packets returns the number of packets returned so far.
func (t *Trace) Packets() int { return t.r.Packets() }

// LongerRecords returns how many records so far hold more bytes than the file says their packets
// had. Frames have the additional bytes, too.
func (t *Trace) LongerRecords() int { return t.r.LongerRecords() }

// Pauses returns how often the trace has paused so far for more than a minute: 0 unless it keeps
// its pauses.
func (t *Trace) Pauses() int { return t.pause }

// TimeSteps returns how often the file's clock has jumped so far.
func (t *Trace) TimeSteps() int { return t.r.TimeSteps() }

// OtherLinks returns the number of packets so far that were left out, because their interfaces have
// neither Ethernet nor IP.
func (t *Trace) OtherLinks() int { return t.r.OtherLinks() }

// Close closes the file.
func (t *Trace) Close() error { return t.r.Close() }

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

// Close closes the current round.
func (r *repeat) Close() error {
	if r.cur == nil {
		return nil
	}
	return r.cur.Close()
}
