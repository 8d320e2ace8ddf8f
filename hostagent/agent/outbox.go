// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"hash/crc32"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/hostagent/hostv1"
)

// chunkBytes is the size of a chunk, in which 350 sketchlets of LightGuardian with 94 bytes fit. A
// small one lets epochs pass between chunks.
const chunkBytes = 33 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// outbox holds encoded reports, and parts of them, until the collector acknowledges them. It
// outlives sessions.
type outbox struct {
	limit int64

	mu       sync.Mutex
	reports  []*outReport // reports in the order in which they were added
	sealed   uint64       // newest epoch that was requested
	sending  *outReport   // the report in transmission; nil if none is
	bytes    int64
	dropped  uint64
	maxBytes uint64 // limit of a report's size, as the collector stated it
}

// outReport is an encoded report.
type outReport struct {
	epoch    uint64
	role     string
	part     uint64 // number of the part; 0: the report that was requested
	data     []byte
	checksum uint32
	sent     int
	done     bool // all chunks are sent
	// requested is the time from the begin of the next epoch to the request of the report; 0: not
	// known.
	requested time.Duration
}

// put adds a report, or a part of one, and drops the oldest ones beyond the limit.
func (o *outbox) put(epoch uint64, role string, part uint64, data []byte, requested time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if part == 0 {
		o.sealed = epoch // numbers may go back
	}
	o.reports = append(o.reports, &outReport{epoch: epoch, role: role, part: part, data: data, requested: requested,
		checksum: crc32.Checksum(data, castagnoli)})
	o.bytes += int64(len(data))
	for i := 0; o.bytes > o.limit && i < len(o.reports)-1; {
		if o.reports[i] == o.sending {
			i++
			continue
		}
		o.bytes -= int64(len(o.reports[i].data))
		o.reports = slices.Delete(o.reports, i, i+1)
		o.dropped++
	}
}

// again sends a report once more. It returns false without this report.
func (o *outbox) again(epoch uint64, role string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := o.find(epoch, role, 0)
	if i < 0 {
		return false
	}
	if r := o.reports[i]; r != o.sending {
		r.sent, r.done = 0, false
	}
	return true
}

// find returns the index of a report, or -1. o.mu is held.
func (o *outbox) find(epoch uint64, role string, part uint64) int {
	return slices.IndexFunc(o.reports, func(r *outReport) bool {
		return r.epoch == epoch && r.role == role && r.part == part
	})
}

// restart begins a session: all reports are to be sent again.
func (o *outbox) restart(maxBytes uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sending, o.maxBytes = nil, maxBytes
	for _, r := range o.reports {
		r.sent, r.done, r.requested = 0, false, 0
	}
}

// remove ends a report and reports whether there was one.
func (o *outbox) remove(epoch uint64, role string, part uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := o.find(epoch, role, part)
	if i < 0 {
		return false
	}
	if o.reports[i] == o.sending {
		o.sending = nil
	}
	o.bytes -= int64(len(o.reports[i].data))
	o.reports = slices.Delete(o.reports, i, i+1)
	return true
}

// next returns the next chunk, of the report that is being sent or else of the newest epoch that
// is over, whose deadline is still to come; nil: all are sent. Of an epoch the first part is the
// first, and the report that was requested the last. Parts of an open epoch wait for others.
func (o *outbox) next() *hostv1.ReportChunk {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.sending
	if r == nil {
		for _, x := range o.reports {
			if !x.done && (r == nil || x.epoch <= o.sealed && (x.epoch > r.epoch || r.epoch > o.sealed)) {
				r = x
			}
		}
	}
	if r == nil {
		return nil
	}
	end := min(r.sent+chunkBytes, len(r.data))
	c := &hostv1.ReportChunk{Epoch: r.epoch, Role: r.role, TotalBytes: uint64(len(r.data)), Checksum: r.checksum,
		Offset: uint64(r.sent), Data: r.data[r.sent:end], BeginToRequestNs: int64(r.requested), Part: r.part}
	o.sending, r.sent, r.done = r, end, end == len(r.data)
	if r.done {
		o.sending = nil
	}
	return c
}

// waiting reports whether there is a chunk to send.
func (o *outbox) waiting() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.reports, func(r *outReport) bool { return !r.done })
}

// tooLarge reports whether the collector refuses reports of this size, and the limit.
func (o *outbox) tooLarge(size int) (limit uint64, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.maxBytes, uint64(size) > o.maxBytes
}

func (o *outbox) stats() (bytes int64, dropped uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes, o.dropped
}
