// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/intent"
	hostagent "github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// stampPath records when it enters an epoch.
type stampPath struct {
	epoch atomic.Uint64
	at    atomic.Int64 // time at which it entered the newest epoch, in nanoseconds since began
	left  *atomic.Int64
	all   chan struct{}
}

var began = time.Now()

func (*stampPath) Role() string                     { return roleName }
func (*stampPath) Apply([]byte) error               { return nil }
func (*stampPath) Since() (uint64, bool)            { return 0, false }
func (p *stampPath) Epoch() uint64                  { return p.epoch.Load() }
func (*stampPath) Reset(uint64) error               { return nil }
func (*stampPath) Seal(uint64) (role.Report, error) { return nil, nil }
func (*stampPath) Close() error                     { return nil }

func (p *stampPath) Advance(e uint64) bool {
	for {
		old := p.epoch.Load()
		if e <= old {
			return false
		}
		if p.epoch.CompareAndSwap(old, e) {
			p.at.Store(int64(time.Since(began)))
			if p.left.Add(-1) == 0 {
				p.all <- struct{}{}
			}
			return true
		}
	}
}

// fixedEpochs is an engine whose epoch the benchmark sets.
type fixedEpochs struct{ number atomic.Uint64 }

func (*fixedEpochs) Add(epoch.Source)         {}
func (*fixedEpochs) Remove(string)            {}
func (*fixedEpochs) Late(sdk.LateReport) bool { return true }

func (f *fixedEpochs) Numbering() (time.Duration, time.Time, uint64) {
	return time.Hour, time.Unix(0, 0), f.number.Load()
}

// BenchmarkEpochDeviation measures how long it takes, with 1,024 agents in this process, from the
// moment when one host's clock begins an epoch until the median host, the 99th percentile and the
// last host have entered it (paper: 60 µs for 1,024 hosts). Because all agents share the
// processors with the collector, it also measures the processor time for each host.
func BenchmarkEpochDeviation(b *testing.B) {
	for _, udp := range []bool{false, true} {
		b.Run(fmt.Sprintf("udp=%v", udp), func(b *testing.B) { benchmarkDeviation(b, 1024, udp) })
	}
}

func benchmarkDeviation(b *testing.B, hosts int, udp bool) {
	names := make([]string, hosts)
	for i := range names {
		names[i] = fmt.Sprintf("h%d", i)
	}
	engine := &fixedEpochs{}
	engine.number.Store(1)
	cfg := Config{Address: "127.0.0.1:0", Timeout: time.Minute, MaxReport: 1 << 20, MaxEpoch: 1 << 30, UDP: udp,
		Hosts: names}
	c := New(cfg, Dependencies{
		Epochs: engine, Settings: func(string) []intent.HostSetting { return nil },
		Applied: func(string, string, uint64, string) {}, OnChange: func() {},
	})
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	defer c.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	var left atomic.Int64
	all := make(chan struct{}, 1)
	left.Store(int64(hosts))
	paths := make([]*stampPath, hosts)
	clocks := make([]*epoch.Virtual, hosts)
	for i, name := range names {
		paths[i], clocks[i] = &stampPath{left: &left, all: all}, epoch.NewVirtual(time.Unix(3600, 0), 0)
		a, err := hostagent.New(hostagent.Config{Address: c.Address(), Host: name, UDP: udp,
			DataPaths: []hostagent.DataPath{paths[i]}}, hostagent.Dependencies{Clock: clocks[i]})
		if err != nil {
			b.Fatal(err)
		}
		work.Go(func() { _ = a.Run(ctx) }) // Run returns nil
	}
	<-all // all hosts have the first epoch
	testkit.Until(b, "UDP", func() bool {
		return !slices.ContainsFunc(c.Hosts(), func(s Status) bool { return s.UDP != udp })
	})
	var median, p99, last []time.Duration
	late := 0
	before := processorTime(b)
	for b.Loop() {
		e := engine.number.Add(1)
		left.Store(int64(hosts))
		fast := int(e) % hosts
		clocks[fast].AdvanceTo(time.Unix(3600*int64(e), 0))
		boundary := time.NewTimer(5 * time.Second)
		select {
		case <-all:
			boundary.Stop()
		case <-boundary.C: // a datagram was lost
			late++
			c.SettingsChanged() // sends the epoch over TCP, as a boundary does
			<-all
		}
		start := paths[fast].at.Load()
		times := make([]time.Duration, hosts)
		for i, p := range paths {
			times[i] = time.Duration(p.at.Load() - start)
		}
		slices.Sort(times)
		median = append(median, times[hosts/2])
		p99 = append(p99, times[hosts*99/100])
		last = append(last, times[hosts-1])
	}
	b.ReportMetric(float64(late), "late")
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N*hosts), "cpu-µs/host")
	for name, list := range map[string][]time.Duration{"median": median, "p99": p99, "last": last} {
		slices.Sort(list)
		b.ReportMetric(float64(list[len(list)/2].Microseconds()), name+"-µs")
	}
}

// processorTime is the time that this process has used processors.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
