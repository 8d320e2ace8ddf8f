// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"errors"
	"fmt"
	"math"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/packet"
	role "github.com/netsketch/netsketch/hostagent/sketchint"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/sketch/countmin"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/tower"
)

// agents are the roles of all hosts with towers of one size.
type agents struct {
	roles  [hosts]*role.Role
	clocks [hosts]*epoch.Clock
	frame  [1]*packet.Frame
	// reports are the reports of the last interval as they were sent, and bytes is their total
	// length.
	reports [hosts]*wire.Report
	bytes   int
	packets int // packets that carry the reports, with an MTU of 1,500; jumbo with 9,000
	jumbo   int
}

const firstEpoch = 10

// newAgents returns roles whose towers have the given bytes each.
func newAgents(flows, latencies int) (*agents, error) {
	a := &agents{frame: [1]*packet.Frame{new(packet.Frame)}}
	s := wire.Settings{Marks: inband.Marks{DSCP: dscp, DSCPMask: 0x3f}, Interval: 1, Flows: flows, Latencies: latencies,
		Conservative: true, Heavy: change, HeavyFlows: 4096, Inflation: inflation, InflatedFlows: 1 << 16}
	data, err := s.Append(nil)
	if err != nil {
		return nil, err
	}
	for h := range hosts {
		a.clocks[h] = epoch.NewClock(0, firstEpoch-1)
		a.roles[h] = role.New(a.clocks[h])
		if err := a.roles[h].Apply(data); err != nil {
			return nil, err
		}
		a.clocks[h].Advance(firstEpoch)
	}
	return a, nil
}

// receive passes the newest packet of a flow to its host.
func (a *agents) receive(s *flowState) {
	a.frame[0].Set(s.frame)
	a.roles[s.host].In(a.frame[:])
}

// mtu are the payloads of a session's packets on links with an MTU of 1,500 and of 9,000 bytes.
var mtu = [2]int{1448, 8948}

// seal ends the interval with the given number.
func (a *agents) seal(number uint64) error {
	a.bytes, a.packets, a.jumbo = 0, 0, 0
	for h := range hosts {
		a.clocks[h].Advance(firstEpoch + number + 1)
		sealed := a.roles[h].Seal(firstEpoch + number)
		if sealed == nil {
			return errors.New("a role has no report")
		}
		data := sealed.Append(nil)
		sealed.Release()
		var err error
		if a.reports[h], err = wire.ParseReport(data); err != nil {
			return err
		}
		a.bytes += len(data)
		a.packets += (len(data) + mtu[0] - 1) / mtu[0]
		a.jumbo += (len(data) + mtu[1] - 1) / mtu[1]
	}
	return nil
}

// latencyARE is the average relative error of the mean latencies of all flows at all switches.
func (a *agents) latencyARE(b *testbed) float64 {
	return latencyARE(b, func(s *flowState, key []byte) (float64, bool) {
		n, sum, ok := a.reports[s.host].Latencies.Query(key)
		return float64(sum) / float64(n), ok
	})
}

// latencyARE compares mean latencies; without an estimate the error is 1.
func latencyARE(b *testbed, estimate func(s *flowState, key []byte) (float64, bool)) float64 {
	sum, n := 0.0, 0
	for _, s := range b.flows {
		for h, node := range s.path {
			mean := float64(s.sum[h]) / float64(s.packets)
			e := 1.0
			if x, ok := estimate(s, wire.AppendKey(nil, &s.key, node)); ok {
				e = math.Abs(x/mean - 1)
			}
			sum, n = sum+e, n+1
		}
	}
	return sum / float64(n)
}

// f1 compares two sets.
func f1(found, actual map[string]bool) float64 {
	right := 0
	for x := range found {
		if actual[x] {
			right++
		}
	}
	return 2 * float64(right) / float64(max(len(found)+len(actual), 1))
}

// inflates reports whether a latency is inflated by the mean of the other packets of n packets.
func inflates(worst, n, sum uint64) bool {
	return worst*(n-min(n, 1)) > inflation*(sum-min(sum, worst))
}

// inflations are the flows at switches with inflated latencies, by exact means.
func inflations(b *testbed) map[string]bool {
	out := map[string]bool{}
	for _, s := range b.flows {
		for h, node := range s.path {
			if inflates(uint64(s.worst[h]), uint64(s.packets), s.sum[h]) {
				out[s.name(node)] = true
			}
		}
	}
	return out
}

// inflatedF1 returns the F1 scores of the flows at switches with inflated latencies, judged by the
// exact mean of the flow's other packets at the switch in the interval, and by the exact mean of
// all its packets. count is the number of such flows by the first rule.
func (a *agents) inflatedF1(b *testbed) (others, all float64, count int) {
	found, byOthers, byAll := map[string]bool{}, inflations(b), map[string]bool{}
	for _, r := range a.reports {
		for _, x := range r.Inflated {
			found[fmt.Sprintf("%v/%d", x.Key, x.Node)] = true
		}
	}
	for _, s := range b.flows {
		for h, node := range s.path {
			if uint64(s.worst[h])*uint64(s.packets) > inflation*s.sum[h] {
				byAll[s.name(node)] = true
			}
		}
	}
	return f1(found, byOthers), f1(found, byAll), len(byOthers)
}

// places are flows at the switches of their paths.
func places(b *testbed, of func(s *flowState) bool) map[string]bool {
	out := map[string]bool{}
	for _, s := range b.flows {
		if of(s) {
			for _, node := range s.path {
				out[s.name(node)] = true
			}
		}
	}
	return out
}

// heavyHitters are the heavy hitters that the role finds at switches.
func (a *agents) heavyHitters() map[string]bool {
	out := map[string]bool{}
	for _, r := range a.reports {
		for _, x := range r.Heavy {
			if r.Flows.Query(x.Key.AppendBinary(nil)) < heavy {
				continue
			}
			for _, node := range x.Path {
				out[fmt.Sprintf("%v/%d", x.Key, node)] = true
			}
		}
	}
	return out
}

// counter is a sketch of flow sizes.
type counter interface {
	Insert(key []byte)
	Query(key []byte) uint32
}

// structure is a kind of sketch of flow sizes.
type structure struct {
	name string
	make func(memory int) (counter, error)
}

// counters are the structures of the paper's Figure 7 (a) and (b), with three rows.
var counters = []structure{
	{"TowerCU", func(memory int) (counter, error) { return newTower(memory, true) }},
	{"TowerCM", func(memory int) (counter, error) { return newTower(memory, false) }},
	{"CU", func(memory int) (counter, error) { return newCountMin(memory, true) }},
	{"CM", func(memory int) (counter, error) { return newCountMin(memory, false) }},
}

func newTower(memory int, conservative bool) (counter, error) {
	return tower.New[family.P4](tower.Config{Bits: []int{8, 16, 32}, Memory: memory, Conservative: conservative})
}

func newCountMin(memory int, conservative bool) (counter, error) {
	return countmin.New[family.P4](countmin.Config{Rows: 3, Width: memory / 3 / 4, Conservative: conservative})
}

// table is the structure of all hosts in one interval, and the flows that it finds large enough for
// a heavy change.
type table struct {
	sketches [hosts]counter
	flows    map[flow.Key]bool
}

func newTable(build func(int) (counter, error), memory int) (*table, error) {
	t := &table{flows: map[flow.Key]bool{}}
	for h := range hosts {
		var err error
		if t.sketches[h], err = build(memory); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *table) insert(s *flowState, key []byte) {
	c := t.sketches[s.host]
	c.Insert(key)
	if c.Query(key) >= change {
		t.flows[s.key] = true
	}
}

func (t *table) query(s *flowState) uint32 { return t.sketches[s.host].Query(s.key.AppendBinary(nil)) }

// hitters are the heavy hitters of switches.
func (t *table) hitters(b *testbed) map[string]bool {
	return places(b, func(s *flowState) bool { return t.flows[s.key] && t.query(s) >= heavy })
}
