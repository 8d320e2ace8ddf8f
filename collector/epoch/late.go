// SPDX-License-Identifier: Apache-2.0

package epoch

import (
	"sync"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// maxLateBytes bounds the late reports of one host that wait for delivery. A report counts with its
// data and lateOverhead.
const (
	maxLateBytes = 256 << 20
	lateOverhead = 1 << 10
)

// lateReports holds reports that arrived after their epoch was delivered.
type lateReports struct {
	mu      sync.Mutex
	reports []sdk.LateReport
	bytes   map[string]int // bytes of late reports, by host
	dropped uint64         // reports that add has dropped since the last delivery
}

// add keeps a report. It drops the report and returns false if the report's epoch is before oldest,
// or the host has too many reports that wait.
func (l *lateReports) add(r sdk.LateReport, oldest uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := len(r.Data) + lateOverhead
	if r.Epoch < oldest || l.bytes[r.Host]+size > maxLateBytes {
		l.dropped++
		return false
	}
	if l.bytes == nil {
		l.bytes = map[string]int{}
	}
	l.bytes[r.Host] += size
	l.reports = append(l.reports, r)
	return true
}

// take returns the reports to deliver with an epoch, and how many reports were dropped since the
// last delivery. It drops reports on epochs more than bound epochs before epoch, and on epochs that
// have not ended. Reports on the epoch itself, which came after their host was collected, stay for
// the next epoch.
func (l *lateReports) take(epoch, bound uint64) (deliver []sdk.LateReport, dropped uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.reports
	dropped = l.dropped
	l.reports, l.bytes, l.dropped = nil, map[string]int{}, 0
	for _, r := range all {
		switch {
		case r.Epoch == epoch:
			l.reports = append(l.reports, r)
			l.bytes[r.Host] += len(r.Data) + lateOverhead
		case r.Epoch < epoch && epoch-r.Epoch <= bound:
			deliver = append(deliver, r)
		default:
			dropped++
		}
	}
	return deliver, dropped
}

// Late keeps a report of a host on an epoch that was delivered without it. The report is delivered
// with the next epoch. Late returns false if the report is dropped: its host is no source, the
// epoch is too old, or the host has too many reports that wait.
func (e *Engine) Late(r sdk.LateReport) bool {
	e.mu.Lock()
	m, open := e.sources[r.Host], e.open.number
	e.mu.Unlock()
	oldest := uint64(0) // oldest epoch that may still be collected
	if bound := e.cfg.LateEpochs + 1 + uint64(e.cfg.Lag()); open > bound {
		oldest = open - bound
	}
	if m == nil || !e.late.add(r, oldest) {
		return false
	}
	if e.handOver != nil && !m.source.Sealing().IsElsewhere() {
		e.unsent.add(r, oldest)
	}
	return true
}
