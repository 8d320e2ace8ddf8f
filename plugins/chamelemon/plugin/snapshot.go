// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
)

// stateVersion is the version of the encoding of the saved state: the length of a JSON object (four
// bytes, big-endian like all numbers), the object (type snapshot), and for each entry of its Kept,
// in order, the flow sizes of the preceding epoch: the two rows of the classifier, then the IPv4
// and the IPv6 flows of the HH part. A flow is its packets (a varint) and its canonical bytes.
const stateVersion = 1

// snapshot is the state that a new process resumes from.
type snapshot struct {
	Edges   []savedEdge
	Layout  savedLayout
	Room    [families]Room
	Ledger  ledger
	Settled uint64
	// Straggled is the latest epoch in which more packets left than entered.
	Straggled   uint64
	Share       [families]float64 // absent in states of earlier releases
	Transitions transitions       `json:"Turns"` // the name in version 1
	Alerts      alert.List
	// Previous is the number of the preceding epoch; Kept lists the switches whose flows follow. In a
	// large network the flows of some switches do not fit: their changes appear one epoch later.
	Previous uint64
	Kept     []savedSizes

	previous *previous
}

type savedEdge struct {
	Name, Rows, Encoders string
	Ports                []uint32
}

type savedLayout struct {
	Bits, Counters [2]int
	Up, Down       [families]int
}

type savedSizes struct {
	Name    string
	Th      uint32
	Decoded bool
	Sound   bool
	Flows   [families]int
}

func (e *edge) saved() savedEdge {
	return savedEdge{e.name, strings.Join(e.classifier[:], " "), strings.Join(slices.Concat(e.up[:], e.down[:]), " "),
		e.ports}
}

func (l *layout) saved() savedLayout { return savedLayout{l.bits, l.counters, l.up, l.down} }

// fits reports whether the state is of this network.
func (s *snapshot) fits(b *binding) bool {
	return len(s.Ledger.Plans) > 0 && s.Layout == b.layout.saved() && s.Room == b.room &&
		slices.EqualFunc(s.Edges, b.edges, func(x savedEdge, e edge) bool {
			y := e.saved()
			return x.Name == y.Name && x.Rows == y.Rows && x.Encoders == y.Encoders && slices.Equal(x.Ports, y.Ports)
		})
}

// SaveState implements sdk.Stateful.
func (p *Plugin) SaveState() (sdk.State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.binding
	if len(b.edges) == 0 {
		return sdk.State{}, nil
	}
	s := snapshot{Layout: b.layout.saved(), Room: b.room, Ledger: p.ledger, Settled: p.settled, Straggled: p.straggled,
		Share: p.share, Transitions: p.transitions}
	for i := range b.edges {
		s.Edges = append(s.Edges, b.edges[i].saved())
	}
	s.Alerts = p.alerts.Newest(savedAlerts)
	head, err := json.Marshal(&s)
	if err != nil {
		return sdk.State{}, err
	}
	var body []byte
	if p.previous != nil {
		size := 0
		for _, x := range p.previous.edges {
			size += x.savedBytes()
		}
		body = make([]byte, 0, min(size, sdk.MaxState))
		s.Previous = p.previous.number
		left := sdk.MaxState - 64 - len(head)
		for _, name := range slices.Sorted(maps.Keys(p.previous.edges)) {
			x := p.previous.edges[name]
			if left -= x.savedBytes() + len(name) + 100; left < 0 {
				break
			}
			k := savedSizes{Name: name, Th: x.th, Decoded: x.decoded, Sound: x.sound}
			body, k.Flows = x.appendTo(body)
			s.Kept = append(s.Kept, k)
		}
		if head, err = json.Marshal(&s); err != nil {
			return sdk.State{}, err
		}
	}
	if n := 4 + len(head) + len(body); n > sdk.MaxState {
		return sdk.State{}, fmt.Errorf("%d bytes, more than the %d that a state may have", n, sdk.MaxState)
	}
	data := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(head)+len(body)), uint32(len(head)))
	return sdk.State{Version: stateVersion, Data: append(append(data, head...), body...)}, nil
}

// savedAlerts is how many alerts are saved.
const savedAlerts = 200

// savedBytes bounds the bytes that appendTo appends: five bytes are enough for the packets of a
// flow.
func (s *sizer) savedBytes() int {
	n := cellBytes(s.bits[0])*len(s.rows[0]) + cellBytes(s.bits[1])*len(s.rows[1])
	for key := range s.hitters {
		n += len(key) + 5
	}
	return n
}

// cellBytes is the size of a saved counter.
func cellBytes(bits int) int { return (bits + 7) / 8 }

// appendTo appends the rows, and the flows by family.
func (s *sizer) appendTo(b []byte) (_ []byte, flows [families]int) {
	for i, row := range s.rows {
		switch n := cellBytes(s.bits[i]); n {
		case 1:
			for _, v := range row {
				b = append(b, byte(v))
			}
		case 2:
			for _, v := range row {
				b = binary.BigEndian.AppendUint16(b, uint16(v))
			}
		default:
			for _, v := range row {
				for k := n - 1; k >= 0; k-- {
					b = append(b, byte(v>>(8*k)))
				}
			}
		}
	}
	for f, size := range keyBytes {
		for key, n := range s.hitters {
			if len(key) == size {
				b = append(binary.AppendUvarint(b, uint64(n)), key...)
				flows[f]++
			}
		}
	}
	return b, flows
}

// RestoreState implements sdk.Stateful. An invalid state is refused as a whole.
func (p *Plugin) RestoreState(state sdk.State) error {
	if state.Version != stateVersion {
		return fmt.Errorf("the state has version %d; this plugin reads version %d", state.Version, stateVersion)
	}
	s, err := readSnapshot(state.Data)
	if err != nil {
		return fmt.Errorf("state after epoch %d: %w", state.Epoch, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restored = s
	return nil
}

var errState = errors.New("not a state of this plugin")

func readSnapshot(data []byte) (*snapshot, error) {
	if len(data) < 4 || uint64(len(data)-4) < uint64(binary.BigEndian.Uint32(data)) || len(data) > sdk.MaxState {
		return nil, fmt.Errorf("%w: %d bytes", errState, len(data))
	}
	n := binary.BigEndian.Uint32(data)
	s := &snapshot{}
	if err := json.Unmarshal(data[4:4+n], s); err != nil {
		return nil, fmt.Errorf("%w: %w", errState, err)
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", errState, err)
	}
	s.previous = &previous{number: s.Previous, edges: make(map[string]*sizer)}
	body := data[4+n:]
	for _, k := range s.Kept {
		x, rest, err := s.readSizes(&k, body)
		if err != nil {
			return nil, fmt.Errorf("%w: switch %q: %w", errState, k.Name, err)
		}
		s.previous.edges[k.Name], body = x, rest
	}
	if len(body) > 0 {
		return nil, fmt.Errorf("%w: %d bytes too many", errState, len(body))
	}
	return s, nil
}

// check refuses attentions that are out of range.
func (s *snapshot) check() error {
	for _, x := range s.Share {
		if !(x >= 0 && x <= 1) {
			return fmt.Errorf("%v victim flows per flow", x)
		}
	}
	for i, bits := range s.Layout.Bits {
		if bits < 1 || bits > 32 || s.Layout.Counters[i] < 1 || s.Layout.Counters[i] > sdk.MaxState {
			return fmt.Errorf("a row of %d counters of %d bits", s.Layout.Counters[i], bits)
		}
	}
	if len(s.Ledger.Plans) > keptPlans || len(s.Alerts) > savedAlerts {
		return fmt.Errorf("%d plans and %d alerts", len(s.Ledger.Plans), len(s.Alerts))
	}
	for i := range s.Ledger.Plans {
		h := &s.Ledger.Plans[i]
		a := &h.Attention
		if h.Bank < anyBank || h.Bank > 1 || i > 0 && h.ID <= s.Ledger.Plans[i-1].ID || h.ID > s.Ledger.Last {
			return fmt.Errorf("plan %d for bank %d", h.ID, h.Bank)
		}
		if a.State > Ill || a.Tl < 1 || a.Tl > maxThreshold || a.Sample > Sampled ||
			(a.State == Healthy) != (a.Tl == 1) {
			return fmt.Errorf("plan %d: state %d, Tl %d, sample %d", h.ID, a.State, a.Tl, a.Sample)
		}
		for _, e := range s.Edges {
			if th := a.Th[e.Name]; th < a.Tl || th > maxThreshold {
				return fmt.Errorf("plan %d: thresholds of %s out of order: Tl %d, Th %d", h.ID, e.Name, a.Tl, th)
			}
		}
		for f, part := range a.Parts {
			if r := &s.Room[f]; part.LL < 0 || part.HL < 0 || r.Up < 0 || r.Down < 0 || part.LL > r.Down ||
				part.HL > r.Down-part.LL || r.Down > r.Up {
				return fmt.Errorf("plan %d: %d buckets for LL and %d for HL do not fit arrays of %d upstream and %d downstream",
					h.ID, part.LL, part.HL, r.Up, r.Down)
			}
		}
	}
	first := slices.ContainsFunc(s.Ledger.Plans, func(h held) bool { return h.From == 0 && h.Bank == anyBank })
	for bank := range 2 {
		if !first && s.Ledger.latest(math.MaxUint64, bank) == nil {
			return fmt.Errorf("no plan for bank %d", bank)
		}
	}
	return s.Alerts.Check()
}

// readSizes reads the flow sizes of an edge switch.
func (s *snapshot) readSizes(k *savedSizes, b []byte) (*sizer, []byte, error) {
	var rows [2][]uint32
	for i := range rows {
		n := cellBytes(s.Layout.Bits[i])
		if len(b) < n*s.Layout.Counters[i] {
			return nil, nil, errors.New("its classifier is cut off")
		}
		rows[i] = make([]uint32, s.Layout.Counters[i])
		for j := range rows[i] {
			for _, c := range b[:n] {
				rows[i][j] = rows[i][j]<<8 | uint32(c)
			}
			b = b[n:]
		}
	}
	x := newSizer(&layout{bits: s.Layout.Bits, up: s.Layout.Up}, k.Th, rows)
	x.decoded, x.sound = k.Decoded, k.Sound
	x.hitters = make(map[string]int64, min(max(k.Flows[0], 0)+max(k.Flows[1], 0), len(b)/keyBytes[0]))
	if k.Th < 1 {
		return nil, nil, errors.New("its threshold Th is 0")
	}
	for f, size := range keyBytes {
		for range k.Flows[f] {
			n, used := binary.Uvarint(b)
			if used <= 0 || len(b) < used+size || n < 1 || n > math.MaxInt32 {
				return nil, nil, errors.New("a flow is cut off, or has no packets")
			}
			b = b[used:]
			x.hitters[string(b[:size])] = int64(n)
			b = b[size:]
		}
	}
	return &x, b, nil
}
