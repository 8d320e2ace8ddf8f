// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"

	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/univmon/wire"
	"github.com/netsketch/netsketch/sketch/universal"
)

const groups = 2 // number of groups, as in bpf/univmon.c

// tables are the programs and maps of settings, with the maps in the memory of this process.
type tables struct {
	*hostkernel.Loaded
	settings *wire.Settings

	control *univmonControlBlock
	counts  []univmonCounts // counts by processor and group, as lanes
	lanes   [][]*universal.Sketch
}

// shapes returns where the kernel programs find the cells of each sketch, and the number of cells
// of a lane. The counts of packets by level follow the slots of a sketch.
func shapes(s *wire.Settings) (out [wire.MaxSketches]univmonShape, cells int) {
	for i, l := range s.Sketches {
		counters, heavy := cells, cells+l.CounterCells()
		packets := heavy + l.HeavyCells()
		out[i] = univmonShape{
			Cells: divisor(2 * l.Columns), Slots: divisor(l.Slots),
			Counters: uint32(counters), Heavy: uint32(heavy), Packets: uint32(packets),
			Levels: uint32(l.Levels), Rows: uint32(l.Rows), Columns: uint32(l.Columns), Ways: uint32(l.Ways),
			DeepColumns: uint32((l.Columns + 3) / 4), DeepSlots: uint32((l.Slots + 3) / 4),
			Words: uint32(l.Words()), Fields: uint32(l.Key),
		}
		cells = packets + l.Levels
	}
	return out, (cells + 1) &^ 1 // values of maps have a multiple of 8 bytes
}

func divisor(n int) univmonDivisor { return univmonDivisor{N: uint32(n), Inverse: 1 << 32 / uint64(n)} }

// load creates the maps and loads the programs.
func load(s *wire.Settings) (*tables, error) {
	spec, err := loadUnivmon()
	if err != nil {
		return nil, err
	}
	processors, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	shape, cells := shapes(s)
	spec.Maps[univmonMapLanes].MaxEntries = uint32(groups * processors)
	spec.Maps[univmonMapCells].MaxEntries = uint32(groups * processors)
	spec.Maps[univmonMapCells].ValueSize = uint32(4 * cells)
	var f univmonFlow
	places := len(s.Sketches) * int(unsafe.Sizeof(f.Places[0]))
	spec.Maps[univmonMapTags].MaxEntries = uint32(processors)
	spec.Maps[univmonMapFlows].MaxEntries *= uint32(processors)
	spec.Maps[univmonMapFlows].ValueSize = uint32(int(unsafe.Offsetof(f.Places))+places+63) &^ 63
	crc := make([]uint32, 4*256)
	hostkernel.CRC32Tables(crc)
	leading := make([]uint8, 256)
	for i := range leading {
		leading[i] = uint8(bits.LeadingZeros8(^uint8(i)))
	}
	l, err := hostkernel.Load(spec, wire.Role, map[string]any{"crc_tables": crc, "leading_ones": leading, "shapes": shape,
		"sketches": uint32(len(s.Sketches)), "lane_cells": uint32(cells),
		"encapsulation": uint32(max(0, slices.Index(wire.Encapsulations, s.Encapsulation)))},
		ebpf.CollectionOptions{}, "the sizes of the sketches, of which each processor has two groups")
	if err != nil {
		return nil, err
	}
	t := &tables{Loaded: l, settings: s}
	if err := t.open(cells); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// open maps the memory of the maps.
func (t *tables) open(cells int) error {
	control, err := hostkernel.View[univmonControlBlock](&t.Memory, t.Maps[univmonMapControl], univmonMapControl)
	if err != nil {
		return err
	}
	t.control = &control[0]
	if t.counts, err = hostkernel.View[univmonCounts](&t.Memory, t.Maps[univmonMapLanes], univmonMapLanes); err != nil {
		return err
	}
	all, err := hostkernel.Bytes(&t.Memory, t.Maps[univmonMapCells], univmonMapCells)
	if err != nil {
		return err
	}
	words := unsafe.Slice((*uint32)(unsafe.Pointer(&all[0])), len(all)/4)
	for lane := range t.counts {
		own := words[lane*cells:][:cells]
		var sketches []*universal.Sketch
		for _, l := range t.settings.Sketches {
			counters, heavy := l.CounterCells(), l.HeavyCells()
			s, err := universal.Open(l, own[:counters:counters], own[counters:][:heavy:heavy],
				own[counters+heavy:][:l.Levels:l.Levels])
			if err != nil {
				return err
			}
			sketches, own = append(sketches, s), own[counters+heavy+l.Levels:]
		}
		t.lanes = append(t.lanes, sketches)
	}
	return nil
}

// Hooks implements hostkernel.Tables: the programs of the directions that are counted, before
// others that insert headers into sent packets.
func (t *tables) Hooks() (hooks []hostkernel.Hook) {
	hook := func(name string, at ebpf.AttachType) hostkernel.Hook {
		return hostkernel.Hook{Name: name, Program: t.Programs[name], At: at, First: true}
	}
	if t.settings.Sent {
		hooks = append(hooks, hook(univmonProgSend, ebpf.AttachTCXEgress))
	}
	if t.settings.Received {
		hooks = append(hooks, hook(univmonProgReceive, ebpf.AttachTCXIngress))
	}
	return hooks
}

// Active implements hostkernel.Tables.
func (t *tables) Active() *uint32 { return &t.control.Active }

// collect adds the lanes of a group that no program uses to an empty report, if there is one, and
// clears them.
func (t *tables) collect(group uint32, r *wire.Report) error {
	var errs []error
	first := true // cells of the first processor are copied, cells of the others added
	for i := int(group); i < len(t.counts); i += groups {
		if t.counts[i] == (univmonCounts{}) {
			continue
		}
		for k, s := range t.lanes[i] {
			switch {
			case r == nil: // the epoch was dropped, or not measured whole
			case first:
				copy(r.Sketches[k].Counters(), s.Counters())
				copy(r.Sketches[k].Heavy(), s.Heavy())
				copy(r.Sketches[k].Packets(), s.Packets())
			default:
				errs = append(errs, r.Sketches[k].Merge(s))
			}
			s.Reset()
		}
		if first = false; r != nil {
			for c := range wire.Missed {
				r.Counters[c] += t.counts[i].Counters[c]
			}
		}
		t.counts[i] = univmonCounts{}
	}
	return errors.Join(errs...)
}
