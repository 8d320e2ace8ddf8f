// SPDX-License-Identifier: Apache-2.0

package epoch

import "sync"

// lateReports holds reports that arrived after their epoch was delivered.
type lateReports struct {
	mu      sync.Mutex
	reports []Report
}

// add keeps reports of a source.
func (l *lateReports) add(source string, reports ...Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range reports {
		r.Source = source
		l.reports = append(l.reports, r)
	}
}

// take returns the reports to deliver with an epoch, and how many it drops. It drops reports of
// epochs more than bound epochs before epoch, and of epochs that have not ended.
func (l *lateReports) take(epoch, bound uint64) (deliver []Report, dropped uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.reports {
		if r.Epoch < epoch && epoch-r.Epoch <= bound {
			deliver = append(deliver, r)
		} else {
			dropped++
		}
	}
	l.reports = nil
	return deliver, dropped
}
