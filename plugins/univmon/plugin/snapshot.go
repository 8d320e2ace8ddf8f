// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/universal"
)

// stateVersion is the version of the encoding of the saved state: the length of a JSON object (four
// bytes, big-endian), the object (type snapshot), and the cells of its sketches in order. Each cell
// is a varint; a run of zeros is a zero and its length.
const stateVersion = 1

// snapshot is the newest epoch's sketches, with which the next process compares its first epoch.
type snapshot struct {
	Epoch uint64
	// Sketches are complete. In a large network some sketches do not fit: their changes, and the
	// changes of views that need them, appear one epoch later.
	Sketches []savedSketch
}

type savedSketch struct {
	Device, Dimension string
	Layout            universal.Layout
	Counts            bool // whether the sketch counts the packets of each level
	Bytes             int  // bytes of the sketch's cells
	Merged            bool `json:",omitempty"` // whether the counters are the sum of several switches, or of none
}

// maxRestored bounds the memory of restored sketches, in bytes.
const maxRestored = 256 << 20

// sealed is the cells of a sketch at the end of an epoch.
type sealed struct {
	layout                   universal.Layout
	counters, heavy, packets []uint32 // packets is nil if the sketch does not count them
	merged                   bool     // whether the counters are the sum of several switches, or of none
}

func (s *sealed) reading() (*universal.Reading, error) {
	u, err := universal.Open(s.layout, s.counters, s.heavy, s.packets)
	if err != nil {
		return nil, err
	}
	return u.Reading(), nil
}

// SaveState implements sdk.Stateful.
func (p *Plugin) SaveState() (sdk.State, error) { return p.save(sdk.MaxState) }

// save returns a state of at most limit bytes.
func (p *Plugin) save(limit int) (sdk.State, error) {
	p.mu.Lock()
	measured := p.measured
	p.mu.Unlock()
	var s snapshot
	var body []byte
	decoded := 0
	for _, key := range slices.SortedFunc(maps.Keys(measured), scope.compare) {
		r := measured[key]
		if !r.whole {
			continue
		}
		saved := savedSketch{key.device, key.dimension, r.sealed.layout, r.sealed.packets != nil, 0,
			r.sealed.merged}
		start := len(body)
		for _, cells := range [][]uint32{r.sealed.counters, r.sealed.heavy, r.sealed.packets} {
			body = universal.AppendCells(body, cells)
		}
		saved.Bytes = len(body) - start
		decoded += saved.Layout.Bytes()
		s.Epoch, s.Sketches = r.epoch, append(s.Sketches, saved)
		head, err := json.Marshal(&s)
		if err != nil {
			return sdk.State{}, err
		}
		if 4+len(head)+len(body) > limit || decoded > maxRestored {
			s.Sketches, body = s.Sketches[:len(s.Sketches)-1], body[:start]
			break
		}
	}
	if len(s.Sketches) == 0 {
		return sdk.State{}, nil
	}
	head, err := json.Marshal(&s)
	if err != nil {
		return sdk.State{}, err
	}
	data := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(head)+len(body)), uint32(len(head)))
	return sdk.State{Version: stateVersion, Data: append(append(data, head...), body...)}, nil
}

// RestoreState implements sdk.Stateful. An invalid state is refused as a whole.
func (p *Plugin) RestoreState(state sdk.State) error {
	if state.Version != stateVersion {
		return fmt.Errorf("the state has version %d; this plugin reads version %d", state.Version, stateVersion)
	}
	restored, err := readSnapshot(state.Data)
	if err != nil {
		return fmt.Errorf("state after epoch %d: %w: %w", state.Epoch, errState, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.measured = restored
	return nil
}

var errState = errors.New("not a state of this plugin")

// readSnapshot returns the results of the switches' sketches in a state.
func readSnapshot(data []byte) (map[scope]*result, error) {
	if len(data) < 4 || uint64(len(data)-4) < uint64(binary.BigEndian.Uint32(data)) {
		return nil, fmt.Errorf("%d bytes", len(data))
	}
	n := binary.BigEndian.Uint32(data)
	var s snapshot
	if err := json.Unmarshal(data[4:4+n], &s); err != nil {
		return nil, err
	}
	body, decoded := data[4+n:], 0
	restored := map[scope]*result{}
	for _, saved := range s.Sketches {
		key := scope{saved.Device, saved.Dimension}
		if err := saved.Layout.Validate(); err != nil {
			return nil, fmt.Errorf("%s: %w", subject(key), err)
		}
		if decoded += saved.Layout.Bytes(); decoded > maxRestored {
			return nil, fmt.Errorf("its sketches have more than %d bytes", maxRestored)
		}
		if saved.Bytes < 0 || saved.Bytes > len(body) {
			return nil, fmt.Errorf("%s: its length is %d bytes, but only %d follow", subject(key), saved.Bytes, len(body))
		}
		cells, err := readSealed(&saved, body[:saved.Bytes])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", subject(key), err)
		}
		reading, err := cells.reading()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", subject(key), err)
		}
		body = body[saved.Bytes:]
		restored[key] = &result{scope: key, epoch: s.Epoch, status: sdk.StatusComplete, whole: true, restored: true,
			from: []string{saved.Device}, sealed: cells, estimate: reading.Estimate()}
	}
	if len(body) > 0 {
		return nil, fmt.Errorf("%d bytes too many", len(body))
	}
	return restored, nil
}

func readSealed(saved *savedSketch, b []byte) (*sealed, error) {
	s := &sealed{layout: saved.Layout, merged: saved.Merged, counters: make([]uint32, saved.Layout.CounterCells()),
		heavy: make([]uint32, saved.Layout.HeavyCells())}
	if saved.Counts {
		s.packets = make([]uint32, saved.Layout.Levels)
	}
	var err error
	for _, cells := range [][]uint32{s.counters, s.heavy, s.packets} {
		if b, err = universal.ReadCells(cells, b); err != nil {
			return nil, err
		}
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("%d bytes too many", len(b))
	}
	return s, nil
}

// compare orders scopes by device and dimension.
func (s scope) compare(o scope) int {
	return cmp.Or(strings.Compare(s.device, o.device), strings.Compare(s.dimension, o.dimension))
}
