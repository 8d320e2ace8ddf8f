// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/lightguardian"
	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/sketch/flow"
)

const (
	groups   = 2       // number of groups, as in bpf/lightguardian.c
	maxFlows = 1 << 17 // flows of a group, as in bpf/lightguardian.c

	// maxAge is the age of a sketchlet beyond which it is not reported. The number of its interval
	// is ambiguous after 256 intervals.
	maxAge = 10 * time.Second

	memory      = 4 << 20                                   // bytes of map sketchlets, unless the processors need more
	leastLane   = 1 << 16                                   // bytes for a processor
	mostLane    = 1 << 21                                   // older kernels have no larger values
	recordBytes = int(unsafe.Sizeof(lightguardianRecord{})) // bytes of the record of the longest sketchlet
	eventBytes  = int(unsafe.Sizeof(lightguardianEvent{}))  // the begin of a record

	// mapsPrefix begins the name of the directory of pinned maps, which ends with the digest of the
	// program.
	mapsPrefix = "maps-"
)

// tables are the maps of the programs; maps that are arrays are in the memory of this process.
type tables struct {
	*hostkernel.Loaded

	control *lightguardianControlBlock
	counts  []lightguardianCounts // counts by processor and group
	lanes   []byte                // lanes of all processors
	rings   []lightguardianRing   // rings by processor
	maxAge  time.Duration         // largest age of reported sketchlets
}

// load loads the programs. With a directory, it takes their maps from the pins there, or pins them.
func load(pin string) (*tables, error) {
	spec, err := loadLightguardian()
	if err != nil {
		return nil, err
	}
	processors, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	lane := laneBytes(processors)
	spec.Maps[lightguardianMapLanes].MaxEntries = uint32(groups * processors)
	spec.Maps[lightguardianMapRings].MaxEntries = uint32(processors)
	spec.Maps[lightguardianMapSketchlets].MaxEntries = uint32(processors)
	spec.Maps[lightguardianMapSketchlets].ValueSize = uint32(lane + 2*recordBytes)
	crc := make([]uint32, 8*256)
	hostkernel.CRC32Tables(crc)
	opts := ebpf.CollectionOptions{}
	if pin != "" {
		if opts.Maps.PinPath, err = mapsIn(pin); err != nil {
			return nil, fmt.Errorf("pin %s: %w", pin, err)
		}
		for _, name := range []string{lightguardianMapControl, lightguardianMapLanes, lightguardianMapFlows0,
			lightguardianMapFlows1, lightguardianMapSketchlets, lightguardianMapRings} {
			spec.Maps[name].Pinning = ebpf.PinByName
		}
	}
	l, err := hostkernel.Load(spec, wire.Role, map[string]any{"crc_tables": crc, "lane_bytes": uint32(lane)}, opts,
		"the memory that others use")
	if err != nil {
		return nil, err
	}
	t := &tables{Loaded: l, maxAge: maxAge}
	if err := t.open(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// laneBytes returns the size of a processor's part of map sketchlets, a power of two, without the
// bytes of a record that begins before its end.
func laneBytes(processors int) int {
	return min(max(1<<(bits.Len(uint(memory/processors))-1), leastLane), mostLane)
}

// mapsIn returns the directory of the maps, which it creates. It removes the maps of other
// programs.
func mapsIn(pin string) (string, error) {
	sum := sha256.Sum256(_LightguardianBytes)
	dir := filepath.Join(pin, mapsPrefix+hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	all, err := os.ReadDir(pin)
	for _, d := range all {
		if other := filepath.Join(pin, d.Name()); strings.HasPrefix(d.Name(), mapsPrefix) && other != dir {
			err = errors.Join(err, os.RemoveAll(other))
		}
	}
	return dir, err
}

func (t *tables) open() error {
	control, err := hostkernel.View[lightguardianControlBlock](&t.Memory, t.Maps[lightguardianMapControl],
		lightguardianMapControl)
	if err != nil {
		return err
	}
	t.control = &control[0]
	if t.counts, err = hostkernel.View[lightguardianCounts](&t.Memory, t.Maps[lightguardianMapLanes],
		lightguardianMapLanes); err != nil {
		return err
	}
	if t.lanes, err = hostkernel.Bytes(&t.Memory, t.Maps[lightguardianMapSketchlets],
		lightguardianMapSketchlets); err != nil {
		return err
	}
	t.rings, err = hostkernel.View[lightguardianRing](&t.Memory, t.Maps[lightguardianMapRings], lightguardianMapRings)
	return err
}

// Hooks implements hostkernel.Tables.
func (t *tables) Hooks() []hostkernel.Hook {
	return []hostkernel.Hook{
		{Name: lightguardianProgReceive, Program: t.Programs[lightguardianProgReceive], At: ebpf.AttachTCXIngress,
			First: true},
		{Name: lightguardianProgSend, Program: t.Programs[lightguardianProgSend], At: ebpf.AttachTCXEgress, First: true},
	}
}

// Active implements hostkernel.Tables.
func (t *tables) Active() *uint32 { return &t.control.Active }

// monotonic is the clock of the programs.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail
	return time.Duration(t.Nano())
}

// drain brings the sketchlets that have arrived to the batches of their groups. whole states for
// which groups the flows count.
func (t *tables) drain(batches [groups]*lightguardian.Batch, whole [groups]bool) error {
	now := monotonic()
	size := len(t.lanes) / len(t.rings)
	lane := uint64(size - 2*recordBytes)
	for processor := range t.rings {
		ring := &t.rings[processor]
		own := t.lanes[processor*size:][:size]
		end := atomic.LoadUint64(&ring.Written) // excludes sketchlets that arrive in the meantime
		for ring.Read < end {
			record := own[ring.Read%lane:][:recordBytes]
			e := (*lightguardianEvent)(unsafe.Pointer(&record[0]))
			s, err := wire.Find(record[eventBytes:][:min(int(e.Size), recordBytes-eventBytes)])
			if err != nil {
				atomic.StoreUint64(&ring.Read, end)
				return fmt.Errorf("map %s: %w", lightguardianMapSketchlets, err)
			}
			t.keep(e, s, now, batches, whole)
			next := ring.Read + uint64(eventBytes+len(s)+7)&^7
			atomic.StoreUint64(&ring.Read, next) // the program may write the record again
		}
	}
	return nil
}

// keep adds a sketchlet to the batch of its group.
func (t *tables) keep(e *lightguardianEvent, s wire.Sketchlet, now time.Duration,
	batches [groups]*lightguardian.Batch, whole [groups]bool) {
	group := e.Group & (groups - 1)
	b := batches[group]
	switch {
	case b == nil: // the epoch has been dropped, and counted
	case now-time.Duration(e.At) > t.maxAge:
		b.Counters[wire.Stale]++
	case e.Keyed != 0 && whole[group]:
		key := keyOf(&e.Key)
		b.Count(&wire.Flow{Key: key})
		b.Keep(s, &key)
	default:
		b.Keep(s, nil)
	}
}

// collect adds the counts of a group that no program uses to a batch, if there is one, and clears
// the group. whole states whether the flows count.
func (t *tables) collect(group uint32, b *lightguardian.Batch, whole bool) error {
	if b == nil {
		b = new(lightguardian.Batch) // the epoch has been dropped, and counted
		whole = false
	}
	for i := int(group); i < len(t.counts); i += groups {
		for c := range b.Counters {
			if n := t.counts[i].Counters[c]; whole || c != int(wire.NoFlow) && c != int(wire.FlowsFull) {
				b.Counters[c] += n
			}
		}
		t.counts[i] = lightguardianCounts{}
	}
	name := [groups]string{lightguardianMapFlows0, lightguardianMapFlows1}[group]
	const many = 4096
	var cursor ebpf.MapBatchCursor
	keys, counts := make([]lightguardianKey, many), make([]lightguardianFlowCounts, many)
	for {
		n, err := t.Maps[name].BatchLookupAndDelete(&cursor, keys, counts, nil)
		for i := range n {
			if whole {
				n := &counts[i]
				b.Count(&wire.Flow{Key: keyOf(&keys[i]), Sent: n.Sent, Received: n.Received,
					SentGap: n.SentGap / 1000, ReceivedGap: n.ReceivedGap / 1000})
			}
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			break
		}
		if err != nil {
			return fmt.Errorf("map %s: %w", name, err)
		}
	}
	t.control.Used[group] = 0
	return nil
}

func keyOf(k *lightguardianKey) flow.Key {
	out := flow.Key{SrcPort: k.Sport, DstPort: k.Dport, Proto: k.Proto, Mask: flow.FiveTuple, V6: k.V6 != 0}
	for i := range k.Src {
		binary.LittleEndian.PutUint64(out.Src[8*i:], k.Src[i])
		binary.LittleEndian.PutUint64(out.Dst[8*i:], k.Dst[i])
	}
	return out
}
