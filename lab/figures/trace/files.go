// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/sketch/flow"
)

// readPcap reads the packets of a capture that belong to flows, IPv4 and IPv6.
func readPcap(name string) (*Trace, error) {
	p, err := traffic.OpenTrace(name, nil, false)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	t := &Trace{Name: "pcap:" + name, fields: flow.FiveTuple, size: flow.FiveTupleV4}
	var keys []flow.Key
	for {
		packet, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		k, ok := truth.Parse(packet.Frame)
		if !ok {
			t.Left.Out++
			continue
		}
		if k.V6 {
			t.Left.IPv6++
			t.size = flow.FiveTupleV6
		}
		keys = append(keys, k)
		t.at = append(t.at, uint32(packet.At.Microseconds())+1)
	}
	t.Name += fmt.Sprintf(", %d packets of IPv6, %d left out as no flow's", t.Left.IPv6, t.Left.Out)
	for _, k := range keys {
		t.keys = t.AppendKey(t.keys, k)
	}
	return t.finish()
}

// recordBytes is the size of a packet's record in the papers' programs: a 13-byte key and an 8-byte
// time.
const recordBytes = flow.FiveTupleV4 + 8

// ReadRecords reads records of 21 bytes: a 13-byte key and a little-endian 8-byte time, an integer
// in microseconds or a float in seconds. Arrivals count from the first record's time. A file that
// ends within a record is an error.
func ReadRecords(name string, r io.Reader) (*Trace, error) {
	t := &Trace{Name: "records:" + name, fields: flow.FiveTuple, size: flow.FiveTupleV4}
	b := bufio.NewReaderSize(r, 1<<20)
	var rec [recordBytes]byte
	var first float64
	for {
		n, err := io.ReadFull(b, rec[:])
		if errors.Is(err, io.EOF) {
			return t.finish()
		}
		if err != nil {
			return nil, fmt.Errorf("trace %s: record %d ends after %d of %d bytes: %w", name, t.Len(), n, recordBytes,
				err)
		}
		raw := binary.LittleEndian.Uint64(rec[flow.FiveTupleV4:])
		at := float64(raw)
		if f := math.Float64frombits(raw); f > 1e-3 && f < 1e12 {
			at = f * 1e6
		}
		if t.Len() == 0 {
			first = at
		}
		us := min(max(at-first, 0), math.MaxUint32-1)
		t.add(rec[:flow.FiveTupleV4], uint32(us)+1)
	}
}
