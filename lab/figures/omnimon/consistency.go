// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/netsketch/netsketch/hostagent/epoch"
	hostrole "github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Parameters of Exp#4, in which one host is the straggler, whose clock is behind or ahead. Times
// are in microseconds.
const (
	stragglerHosts = 8
	stragglerFlows = 400
	epochLength    = 100_000
	stragglerRun   = 8_000_000
	mostDelay      = 500 // largest delay of a packet
	relayDelay     = 100 // delay of a message from or to the collector
	tickEvery      = 1_000
	longFlow       = 1_000_000
)

// lags are how far the clock of host 0 is behind the other hosts' clocks, or ahead if negative.
var lags = []int{0, 1_000, 10_000, 100_000, 1_000_000, -1_000, -10_000, -100_000, -1_000_000}

// event is a packet that is sent or arrives, a tick of the hosts' clocks or a relayed epoch.
type event struct {
	at, order int
	do        func()
}

// straggler runs the data path of hosts whose clocks differ on a virtual clock.
type straggler struct {
	now, lag int
	events   []event // sorted, the next event last
	order    int
	clocks   []*epoch.Clock
	roles    []*hostrole.Role
	relayed  uint64
	sealed   uint64 // next epoch to collect
	flows    map[flow.Key]*timed

	sent, received map[counted]int64 // packets, by the epoch that the collector assigned
	byClock        map[counted]int64 // sent minus received packets, by the clock of each host
	sentByClock    map[counted]int64
}

// counted is a flow in an epoch.
type counted struct {
	key   flow.Key
	epoch uint64
}

// timed is a flow with the times of its first and last packet.
type timed struct {
	from, to    int
	first, last int
	began       uint64 // epoch of the first packet
	ended       uint64
	clockBegan  uint64 // epoch in which the flow began by the source's clock
	clockEnded  uint64 // epoch in which the flow ended by the destination's clock
}

func newStraggler(lag int, seed uint64) (*straggler, error) {
	s := &straggler{lag: lag, flows: map[flow.Key]*timed{}, sent: map[counted]int64{}, received: map[counted]int64{},
		byClock: map[counted]int64{}, sentByClock: map[counted]int64{}}
	r := rand.New(rand.NewPCG(seed, 4))
	settings := wire.Settings{EtherType: header.DefaultEtherType, Slots: 512, SlotsPerFlow: 2, Shares: 2 * stragglerHosts,
		Flows: 1024, IngressSlots: 1 << 14, IdleEpochs: 1000}
	for h := range stragglerHosts {
		settings.Hosts = append(settings.Hosts, []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(h + 1)})})
	}
	first := uint64(hostTime(0, 0).UnixMicro() / epochLength)
	s.relayed, s.sealed = first, max(first, s.localEpoch(0)) // all follow the fastest clock before flows begin
	for h := range stragglerHosts {
		settings.Host = h
		data, err := settings.Append(nil)
		if err != nil {
			return nil, err
		}
		c := epoch.NewClock(epochLength*time.Microsecond, first)
		role := hostrole.New(c, func() time.Duration { return 0 })
		if err := role.Apply(data); err != nil {
			return nil, err
		}
		s.clocks, s.roles = append(s.clocks, c), append(s.roles, role)
	}
	for at := 0; at < stragglerRun; at += tickEvery {
		s.at(at, s.tick)
	}
	for n := range stragglerFlows {
		s.start(n, r)
	}
	return s, nil
}

// hostTime is the clock of a host that is behind or ahead, some minutes after the Unix epoch.
func hostTime(now, lag int) time.Time { return time.UnixMicro(int64(600_000_000 + now - lag)) }

func (s *straggler) clock(h int) time.Time {
	if h == 0 {
		return hostTime(s.now, s.lag)
	}
	return hostTime(s.now, 0)
}

func (s *straggler) at(at int, do func()) {
	s.events = append(s.events, event{at, s.order, do})
	s.order++
}

// start schedules the packets of a flow, every second of which begins or ends at the straggler.
func (s *straggler) start(n int, r *rand.Rand) {
	f := &timed{from: 1 + r.IntN(stragglerHosts-1)}
	if n%2 == 0 {
		f.from = 0
	}
	for f.to = f.from; f.to == f.from; {
		f.to = r.IntN(stragglerHosts)
	}
	spec := traffic.FrameSpec{Src: netip.AddrFrom4([4]byte{10, 0, 0, byte(f.from + 1)}),
		Dst: netip.AddrFrom4([4]byte{10, 0, 0, byte(f.to + 1)}), Proto: packet.ProtocolUDP, SrcPort: uint16(n), DstPort: 9}
	key := flow.Key{Mask: flow.FiveTuple, Proto: spec.Proto, SrcPort: spec.SrcPort, DstPort: spec.DstPort}
	copy(key.Src[:], spec.Src.AsSlice())
	copy(key.Dst[:], spec.Dst.AsSlice())
	s.flows[key] = f
	at := 200_000 + r.IntN(1_500_000)
	length := longFlow + r.IntN(4_000_000)
	for end := at + length; at < end; at += 2_000 + r.IntN(20_000) {
		s.at(at, func() { s.send(key, f, traffic.BuildFrame(spec), r.IntN(mostDelay)) })
	}
}

// localEpoch is the epoch by a host's clock alone.
func (s *straggler) localEpoch(h int) uint64 { return uint64(s.clock(h).UnixMicro()) / epochLength }

func (s *straggler) send(key flow.Key, f *timed, data []byte, delay int) {
	s.tickHost(f.from)
	frames := []*packet.Frame{packet.NewFrame(data)}
	s.roles[f.from].Out(frames)
	local := counted{key, s.localEpoch(f.from)}
	s.sentByClock[local]++
	s.byClock[local]++
	if f.began == 0 {
		f.first, f.began, f.clockBegan = s.now, s.clocks[f.from].Current(), local.epoch
	}
	f.last, f.ended = s.now, s.clocks[f.from].Current()
	s.insert(delay, func() {
		s.tickHost(f.to)
		s.roles[f.to].In(frames)
		f.clockEnded = s.localEpoch(f.to)
		s.byClock[counted{key, f.clockEnded}]--
	})
}

// insert schedules an event while the simulation runs.
func (s *straggler) insert(delay int, do func()) {
	e := event{s.now + delay, s.order, do}
	s.order++
	i, _ := slices.BinarySearchFunc(s.events, e, later)
	s.events = slices.Insert(s.events, i, e)
}

// later orders events from the last to the first.
func later(a, b event) int { return -cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order)) }

func (s *straggler) tick() {
	for h := range s.clocks {
		s.tickHost(h)
	}
}

// tickHost advances a host by its clock; the collector relays a new epoch to all hosts.
func (s *straggler) tickHost(h int) {
	e, notify := s.clocks[h].Tick(s.clock(h))
	if !notify {
		return
	}
	s.insert(relayDelay, func() {
		if e <= s.relayed {
			return
		}
		s.relayed = e
		s.insert(relayDelay, func() {
			for _, c := range s.clocks {
				c.Advance(e)
			}
		})
	})
}

func (s *straggler) run() error {
	slices.SortFunc(s.events, later)
	for len(s.events) > 0 {
		e := s.events[len(s.events)-1]
		s.events = s.events[:len(s.events)-1]
		s.now = e.at
		e.do()
		if s.clocks[0].Current() >= s.sealed+3 && !slices.ContainsFunc(s.clocks, func(c *epoch.Clock) bool {
			return c.Current() < s.sealed+3
		}) {
			if err := s.collect(s.sealed); err != nil {
				return err
			}
			s.sealed++
		}
	}
	return nil
}

// collect reads the reports of an epoch.
func (s *straggler) collect(e uint64) error {
	keys := make([]map[uint32]flow.Key, stragglerHosts)
	reports := make([][]byte, stragglerHosts)
	var values wire.Values
	for h, role := range s.roles {
		g := role.Seal(e)
		if g == nil {
			return fmt.Errorf("host %d has no report of epoch %d", h, e)
		}
		reports[h] = g.Append(nil)
		g.Release()
		rep, err := wire.Open(reports[h])
		if err != nil {
			return err
		}
		for c, n := range rep.Counters {
			if n > 0 {
				return fmt.Errorf("host %d, epoch %d: %d packets %v", h, e, n, wire.Counter(c))
			}
		}
		keys[h] = map[uint32]flow.Key{}
		var row wire.EgressRow
		for rep.NextEgress(&row) {
			if err := values.Decode(row.Values); err != nil {
				return err
			}
			keys[h][row.Index] = row.Key
			s.sent[counted{row.Key, e}] += values[wire.Packets]
		}
	}
	for _, data := range reports {
		rep, err := wire.Open(data)
		if err != nil {
			return err
		}
		rep.SkipEgress()
		var row wire.IngressRow
		for {
			source, ok := rep.NextHost()
			if !ok {
				break
			}
			for rep.NextIngress(&row) {
				if err := values.Decode(row.Values); err != nil {
					return err
				}
				s.received[counted{keys[source][row.Index], e}] += values[wire.Packets]
			}
		}
		if err := rep.Err(); err != nil {
			return err
		}
	}
	return nil
}

// results are mean relative errors at the straggler: of the packets of flows in an epoch as the
// other end counts them, and of the completion time of flows.
type results struct{ counts, times, clockCounts, clockTimes float64 }

func (s *straggler) results() (r results, err error) {
	n, clockCounts := 0, 0
	for at, sent := range s.sent {
		if f := s.flows[at.key]; f.from == 0 || f.to == 0 {
			r.counts += math.Abs(float64(s.received[at]-sent)) / float64(sent)
			n++
		}
	}
	for at, sent := range s.sentByClock {
		if f := s.flows[at.key]; f.from == 0 || f.to == 0 {
			r.clockCounts += math.Abs(float64(s.byClock[at])) / float64(sent)
			clockCounts++
		}
	}
	flows := 0
	for _, f := range s.flows {
		if took := f.last - f.first; took >= longFlow && (f.from == 0 || f.to == 0) {
			flows++
			r.times += math.Abs(float64(int(f.ended-f.began)*epochLength-took)) / float64(took)
			r.clockTimes += math.Abs(float64((int(f.clockEnded)-int(f.clockBegan))*epochLength-took)) / float64(took)
		}
	}
	if n == 0 || flows == 0 {
		return r, errors.New("the straggler has no flows")
	}
	r.counts, r.clockCounts = r.counts/float64(n), r.clockCounts/float64(clockCounts)
	r.times, r.clockTimes = r.times/float64(flows), r.clockTimes/float64(flows)
	return r, nil
}

// The two ways to number epochs.
const synchronized, unsynchronized = "OmniMon", "clocks alone"

// stragglerRows measures Figures 11(c) and (d).
func stragglerRows(seed uint64) (rows []suite.Row, err error) {
	for _, lag := range lags {
		s, err := newStraggler(lag, seed)
		if err != nil {
			return nil, err
		}
		if err := s.run(); err != nil {
			return nil, fmt.Errorf("clock %d µs behind: %w", lag, err)
		}
		r, err := s.results()
		if err != nil {
			return nil, err
		}
		clock := fmt.Sprintf("clock behind (ms) %d", lag/1000)
		if lag < 0 {
			clock = fmt.Sprintf("clock ahead (ms) %d", -lag/1000)
		}
		row := func(structure, metric string, v float64) {
			rows = append(rows, suite.Row{Structure: structure, Variant: clock,
				Task: "straggler", Metric: metric, Value: 100 * v, Unit: "%"})
		}
		row(synchronized, "packet counts", r.counts)
		row(synchronized, "completion time", r.times)
		row(unsynchronized, "packet counts", r.clockCounts)
		row(unsynchronized, "completion time", r.clockTimes)
	}
	return rows, nil
}

// deviation runs the collector's benchmark with 1,024 agents.
func deviation(ctx context.Context) (rows []suite.Row, err error) {
	text, err := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "EpochDeviation", "-benchtime", "30x",
		"./collector/host").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test -bench EpochDeviation ./collector/host: %w\n%s", err, text)
	}
	for _, protocol := range []struct{ name, variant string }{{"TCP", "udp=false"}, {"UDP", "udp=true"}} {
		for _, metric := range []string{"median-µs", "p99-µs", "last-µs", "cpu-µs/host"} {
			m := regexp.MustCompile(protocol.variant + `.*\s([0-9.e+]+) ` + metric).FindSubmatch(text)
			if m == nil {
				return nil, fmt.Errorf("the benchmark has no %s for %s:\n%s", metric, protocol.name, text)
			}
			v, err := strconv.ParseFloat(string(m[1]), 64)
			if err != nil {
				return nil, err
			}
			rows = append(rows, suite.Row{Structure: protocol.name, Task: "deviation", Metric: metric, Value: v, Unit: "µs"})
		}
	}
	return rows, nil
}

func consistencyFigure() suite.Suite {
	return suite.New(suite.Suite{
		Name: "omnimon-11",
		Measure: func(ctx context.Context, _ *trace.Trace, o suite.Options) ([]suite.Row, error) {
			rows, err := stragglerRows(o.Seed)
			if err != nil {
				return nil, err
			}
			more, err := deviation(ctx)
			return append(rows, more...), err
		},
	})
}
