// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/netsketch/netsketch/hostagent/inband"
	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/sketchint"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/tower"
)

// Sizes in bpf/sketchint.c.
const (
	groups      = 2
	sets        = 1 << 11
	flowRows    = 5
	latencyRows = 3
	maxNodes    = 1 << 14
	maxQueues   = 1 << 14
)

// Tables that are bounded in an interval, as in bpf/sketchint.c.
const (
	tableHeavy = iota
	tableInflated
	tableNodes
	tableFaults
	tableQueues
	boundedTables
)

// tables are the maps of one program; maps that are arrays are in the memory of this process.
type tables struct {
	*hostkernel.Loaded
	settings *wire.Settings
	hook     hostkernel.Hook

	control   *sketchintControlBlock
	counts    []sketchintCounts // counts by lane and group, as are the next four
	sets      []sketchintSet
	cache     []sketchintEntrySet
	flows     []uint64
	latencies []uint64
	// Of another lane, to be merged.
	otherFlows     *tower.Sketch[family.P4]
	otherLatencies *tower.Latency[family.P4]
}

// load creates the maps and loads the program: at XDP if it must run before all other programs,
// otherwise at TC.
func load(s *wire.Settings, first bool) (*tables, error) {
	spec, err := loadSketchint()
	if err != nil {
		return nil, err
	}
	t := &tables{settings: s}
	if t.otherFlows, t.otherLatencies, err = s.NewTowers(); err != nil {
		return nil, err
	}
	lanes, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	flowWords, latencyWords := len(t.otherFlows.Words()), len(t.otherLatencies.Words())
	for name, size := range map[string]int{
		sketchintMapLanes: groups * lanes, sketchintMapSets: groups * lanes * sets, sketchintMapCache: groups * lanes * sets,
		sketchintMapFlows: groups * lanes * flowWords, sketchintMapLatencies: groups * lanes * latencyWords,
		sketchintMapHeavy: groups * max(s.HeavyFlows, 1), sketchintMapInflated: groups * max(s.InflatedFlows, 1),
	} {
		spec.Maps[name].MaxEntries = uint32(size)
	}
	t.hook = hostkernel.Hook{Name: sketchintProgReceive, At: ebpf.AttachTCXIngress, First: true}
	if first {
		t.hook = hostkernel.Hook{Name: sketchintProgReceiveFirst, At: ebpf.AttachXDP}
	}
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return name != t.hook.Name })
	t.Loaded, err = hostkernel.Load(spec, wire.Role, variables(s, flowWords/flowRows, latencyWords/latencyRows),
		ebpf.CollectionOptions{}, "the sizes of towers and tables")
	if err != nil {
		return nil, err
	}
	t.hook.Program = t.Programs[t.hook.Name]
	if err := t.open(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// variables are the constants of the program.
func variables(s *wire.Settings, flowWords, latencyWords int) map[string]any {
	m := &s.Marks
	var domains, instructions [maxSourceOnly]uint16
	var words [maxSourceOnly]uint8
	for i, o := range m.SourceOnly {
		domains[i], instructions[i], words[i] = o.Domain, o.Instruction, uint8(o.Words)
	}
	flag := map[bool]uint8{true: 1}
	crc := make([]uint32, 4*256)
	hostkernel.CRC32Tables(crc)
	return map[string]any{
		"mark_dscp": m.DSCP, "mark_dscp_mask": m.DSCPMask, "before_options": flag[m.BeforeOptions],
		"vxlan_next": m.VXLANNext, "geneve_type": m.GeneveType, "udp_port": m.UDPPort, "gre_type": m.GRE,
		"vxlan_port": m.VXLAN, "geneve_port": m.Geneve, "geneve_class": m.GeneveClass,
		"probe": bits.ReverseBytes64(m.Probe), "source_only": uint32(len(m.SourceOnly)), "source_domain": domains,
		"source_instruction": instructions, "source_words": words, "flow_words": uint32(flowWords),
		"latency_words": uint32(latencyWords), "heavy_packets": s.Heavy, "factor": uint32(s.Factor()),
		"limits": [boundedTables]uint32{tableHeavy: uint32(s.HeavyFlows), tableInflated: uint32(s.InflatedFlows),
			tableNodes: maxNodes, tableFaults: wire.MaxFaults, tableQueues: maxQueues},
		"crc_tables": crc,
	}
}

func (t *tables) open() error {
	var errs [5]error
	control, err := hostkernel.View[sketchintControlBlock](&t.Memory, t.Maps[sketchintMapControl], sketchintMapControl)
	if err != nil {
		return err
	}
	t.control = &control[0]
	t.counts, errs[0] = hostkernel.View[sketchintCounts](&t.Memory, t.Maps[sketchintMapLanes], sketchintMapLanes)
	t.sets, errs[1] = hostkernel.View[sketchintSet](&t.Memory, t.Maps[sketchintMapSets], sketchintMapSets)
	t.cache, errs[2] = hostkernel.View[sketchintEntrySet](&t.Memory, t.Maps[sketchintMapCache], sketchintMapCache)
	t.flows, errs[3] = hostkernel.View[uint64](&t.Memory, t.Maps[sketchintMapFlows], sketchintMapFlows)
	t.latencies, errs[4] = hostkernel.View[uint64](&t.Memory, t.Maps[sketchintMapLatencies], sketchintMapLatencies)
	return errors.Join(errs[:]...)
}

// Hooks implements hostkernel.Tables.
func (t *tables) Hooks() []hostkernel.Hook { return []hostkernel.Hook{t.hook} }

// Active implements hostkernel.Tables.
func (t *tables) Active() *uint32 { return &t.control.Active }

// lane has one processor's measurements of an interval.
type lane struct {
	counts           *sketchintCounts
	sets             []sketchintSet
	cache            []sketchintEntrySet
	flows, latencies []uint64
}

// used returns the lanes of a group that had packets.
func (t *tables) used(group uint32) (out []lane) {
	f, l := len(t.otherFlows.Words()), len(t.otherLatencies.Words())
	for slot := int(group); slot < len(t.counts); slot += groups {
		if c := &t.counts[slot]; c.Problems != [len(c.Problems)]uint64{} {
			out = append(out, lane{c, t.sets[slot*sets:][:sets], t.cache[slot*sets:][:sets], t.flows[slot*f:][:f],
				t.latencies[slot*l:][:l]})
		}
	}
	return out
}

// read adds up the lanes of a group that no program uses any more, and returns the cached flows.
func (t *tables) read(group uint32, r *wire.Report) (cached []sketchint.Cached, err error) {
	if err := t.readTables(group, r); err != nil {
		return nil, err
	}
	lanes := t.used(group)
	for i, l := range lanes {
		for n := range r.Problems {
			r.Problems[n] += l.counts.Problems[n]
		}
		for n := range r.Versions {
			r.Versions[n] += l.counts.Versions[n]
		}
		for n := range r.Counters {
			r.Counters[n] += l.counts.Counters[n]
		}
		if i == 0 {
			copy(r.Flows.Words(), l.flows)
			copy(r.Latencies.Words(), l.latencies)
			continue
		}
		copy(t.otherFlows.Words(), l.flows)
		copy(t.otherLatencies.Words(), l.latencies)
		if err := errors.Join(r.Flows.Merge(t.otherFlows), r.Latencies.Merge(t.otherLatencies)); err != nil {
			return nil, err
		}
	}
	for _, l := range lanes {
		for set := range l.cache {
			for way := range l.cache[set].Entry {
				if e := &l.cache[set].Entry[way]; e.Label != 0 {
					cached = append(cached, cachedOf(e))
				}
			}
		}
	}
	return cached, nil
}

// cachedOf returns a cached flow.
func cachedOf(e *sketchintEntry) sketchint.Cached {
	c := sketchint.Cached{Packets: e.Packets, Key: keyOf(&sketchintKey{Src: [2]uint64{e.Src, e.SrcLow},
		Dst: [2]uint64{e.Dst, e.DstLow}, Sport: uint16(e.Label >> 48), Dport: uint16(e.Label >> 32),
		Proto: uint8(e.Label >> 24), V6: uint8(e.Label >> 8)})}
	if int(e.Hops) > len(e.Hop) {
		return c
	}
	for i, h := range e.Hop[:e.Hops] {
		c.Hops = append(c.Hops, sketchint.CachedHop{Node: e.Node[i], Packets: h.Packets, Before: e.Before[i],
			Worst: h.Worst, Inflated: e.Inflated[i], Sum: h.Sum, SumBefore: e.SumBefore[i]})
	}
	return c
}

// readTables reads the tables of a group.
func (t *tables) readTables(group uint32, r *wire.Report) error {
	var flowID sketchintFlowId
	var h sketchintHeavyFlow
	err := each(t.Maps[sketchintMapHeavy], sketchintMapHeavy, &flowID, &h, func() {
		if flowID.Group != group {
			return
		}
		row := wire.Heavy{Key: keyOf(&flowID.Key), Changes: h.Changes}
		if h.Hops > 0 { // the latest hop comes first
			row.Path = slices.Clone(h.Path[:h.Hops])
			slices.Reverse(row.Path)
		}
		r.Heavy = append(r.Heavy, row)
	})
	var place sketchintPlace
	var f sketchintInflatedFlow
	err = errors.Join(err, each(t.Maps[sketchintMapInflated], sketchintMapInflated, &place, &f, func() {
		if place.Group == group {
			r.Inflated = append(r.Inflated, wire.Inflated{Key: keyOf(&place.Key), Node: place.Node, Packets: f.Packets,
				Worst: f.Worst})
		}
	}))
	var node sketchintNodeId
	var counts []sketchintNodeCounts
	err = errors.Join(err, each(t.Maps[sketchintMapNodes], sketchintMapNodes, &node, &counts, func() {
		if node.Group != group {
			return
		}
		n := wire.Node{ID: node.Node}
		for _, c := range counts {
			n.Packets, n.Sum, n.Worst = n.Packets+c.Packets, n.Sum+c.Sum, max(n.Worst, uint32(c.Worst))
		}
		r.Nodes = append(r.Nodes, n)
	}))
	var queue sketchintQueueId
	var queues []sketchintQueueCounts
	err = errors.Join(err, each(t.Maps[sketchintMapQueues], sketchintMapQueues, &queue, &queues, func() {
		if queue.Group != group {
			return
		}
		q := wire.Queue{Node: queue.Node, ID: uint8(queue.Id)}
		for _, c := range queues {
			q.Packets, q.Timed, q.Sum = q.Packets+c.Packets, q.Timed+c.Timed, q.Sum+c.Sum
			q.Occupancy, q.Worst = q.Occupancy+c.Occupancy, max(q.Worst, uint32(c.Worst))
		}
		r.Queues = append(r.Queues, q)
	}))
	var fault sketchintFaultId
	var packets uint64
	err = errors.Join(err, each(t.Maps[sketchintMapFaults], sketchintMapFaults, &fault, &packets, func() {
		if uint32(fault.Group) == group {
			r.Faults = append(r.Faults, wire.Fault{Address: address(fault.Address, fault.V6 != 0),
				Problem: inband.Problem(fault.Problem), Packets: packets})
		}
	}))
	return err
}

// each calls f with each row of a map in key and value.
func each(m *ebpf.Map, name string, key, value any, f func()) error {
	rows := m.Iterate()
	for rows.Next(key, value) {
		f()
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("map %s: %w", name, err)
	}
	return nil
}

// clear empties a group that no program uses.
func (t *tables) clear(group uint32) error {
	for _, l := range t.used(group) {
		*l.counts = sketchintCounts{}
		clear(l.sets)
		clear(l.cache)
		clear(l.flows)
		clear(l.latencies)
	}
	err := errors.Join(
		remove(t.Maps[sketchintMapHeavy], func(k *sketchintFlowId) bool { return k.Group == group }),
		remove(t.Maps[sketchintMapInflated], func(k *sketchintPlace) bool { return k.Group == group }),
		remove(t.Maps[sketchintMapNodes], func(k *sketchintNodeId) bool { return k.Group == group }),
		remove(t.Maps[sketchintMapQueues], func(k *sketchintQueueId) bool { return k.Group == group }),
		remove(t.Maps[sketchintMapFaults], func(k *sketchintFaultId) bool { return uint32(k.Group) == group }))
	clear(t.control.Used[group*boundedTables:][:boundedTables])
	return err
}

// remove removes the rows of a map that match.
func remove[K any](m *ebpf.Map, match func(*K) bool) error {
	var keys []K
	var last any
	for {
		var k K
		err := m.NextKey(last, &k)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			break
		}
		if err != nil {
			return fmt.Errorf("map %s: %w", m, err)
		}
		if match(&k) {
			keys = append(keys, k)
		}
		last = &k
	}
	for i := range keys {
		if err := m.Delete(&keys[i]); err != nil {
			return fmt.Errorf("map %s: %w", m, err)
		}
	}
	return nil
}

func keyOf(k *sketchintKey) flow.Key {
	return flow.Key{Src: address16(k.Src), Dst: address16(k.Dst), SrcPort: k.Sport, DstPort: k.Dport, Proto: k.Proto,
		Mask: flow.FiveTuple, V6: k.V6 != 0}
}

func address16(words [2]uint64) (b [16]byte) {
	binary.LittleEndian.PutUint64(b[:], words[0])
	binary.LittleEndian.PutUint64(b[8:], words[1])
	return b
}

func address(words [2]uint64, v6 bool) netip.Addr {
	b := address16(words)
	if v6 {
		return netip.AddrFrom16(b)
	}
	return netip.AddrFrom4([4]byte(b[:4]))
}
