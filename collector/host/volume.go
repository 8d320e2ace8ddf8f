// SPDX-License-Identifier: Apache-2.0

package host

import (
	"maps"
	"sync"

	"github.com/netsketch/netsketch/collector/epoch"
)

// volume bounds the reports of all hosts in each epoch. A report counts from its first chunk on.
type volume struct {
	limit uint64 // bytes

	mu      sync.Mutex
	newest  uint64
	byEpoch map[uint64]uint64 // bytes by epoch, for all epochs that can still have late reports
}

// add adds a report and reports whether there is room for it.
func (v *volume) add(number, size uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if number > v.newest || v.byEpoch == nil {
		v.newest = number
		if v.byEpoch == nil {
			v.byEpoch = map[uint64]uint64{}
		}
		maps.DeleteFunc(v.byEpoch, func(n, _ uint64) bool { return n+epoch.DefaultLateEpochs+1 < number })
	}
	if size > v.limit || v.byEpoch[number] > v.limit-size {
		return false
	}
	v.byEpoch[number] += size
	return true
}

// remove subtracts a report that did not arrive completely.
func (v *volume) remove(number, size uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byEpoch[number] >= size {
		v.byEpoch[number] -= size
	}
}
