// SPDX-License-Identifier: Apache-2.0

// Command clustersoak restarts and kills collectors of a cluster, and kills servers of its NATS,
// and measures how long their switches and hosts are not measured. All are processes of their own
// on this machine; the soft switches and the agents of the hosts run in this one. `make
// soak-cluster` runs it. It fails if an epoch is lost in a rolling restart, if a switch has no
// owner for longer than ownedWithin, or if an epoch has another number of packets than were sent.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/cluster/bus/natsserver"
	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/hostagent/univmon"
	"github.com/netsketch/netsketch/lab/evidence"
	"github.com/netsketch/netsketch/lab/programs"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/p4/bmv2"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/dataplane"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
)

const (
	// ownedWithin bounds the time from a kill to a ready session with each of the switches.
	ownedWithin = 5 * time.Second
	// leaderWithin bounds the time without a leader of the leases after the kill of a NATS server.
	leaderWithin = 15 * time.Second
	// resultsWithin bounds the time without a row of a switch after the kill of a NATS server.
	resultsWithin = 8 * time.Second
	interval      = time.Second // length of epochs
	patience      = time.Minute // limit for waits that are not measured
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var s soak
	flag.StringVar(&s.bin, "bin", "bin", "`directory` of netsketch and its plugins, as make build fills it")
	flag.IntVar(&s.kills, "kills", 20, "kills of collectors")
	flag.IntVar(&s.rolling, "rolling", 3, "rolling restarts of all collectors, without a lost epoch")
	flag.IntVar(&s.natsKills, "nats-kills", 3, "kills of the NATS server that leads the leases")
	flag.IntVar(&s.count, "switches", 6, "soft switches")
	flag.BoolVar(&s.bmv2, "bmv2", false, "processes of BMv2's "+bmv2.Program+" instead of soft switches")
	flag.IntVar(&s.hosts, "hosts", 3, "hosts with agents that count, as switches do, what the host sends")
	flag.IntVar(&s.packets, "packets", 100, "packets to each switch, and of each host, in an epoch")
	seed := flag.Uint64("seed", 1, "seed of the choice of collectors")
	flag.Parse()
	var err error
	if flag.Arg(0) == "nats" {
		err = runNATS(ctx, flag.Args()[1:])
	} else {
		s.random = rand.New(rand.NewPCG(*seed, 0))
		err = s.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "clustersoak:", err)
		os.Exit(1)
	}
}

// runNATS runs one NATS server. args are its name, its addresses for clients and for routes, its
// directory, and the route addresses of all servers.
func runNATS(ctx context.Context, args []string) error {
	b, err := bus.Connect(ctx, bus.Config{Name: "soak", Member: args[0], Serve: natsserver.Start,
		Embedded: &bus.Embedded{Listen: args[1], RouteListen: args[2], Directory: args[3], Routes: args[4:]}})
	if err != nil {
		return err
	}
	<-ctx.Done()
	b.Close()
	return nil
}

// process is a process that can be killed and started again.
type process struct {
	name    string
	args    []string
	running *programs.Program
}

// soak is one run.
type soak struct {
	bin                                       string
	kills, natsKills, rolling, count, packets int
	hosts                                     int
	bmv2                                      bool
	random                                    *rand.Rand

	dir        string
	nats       []*process
	addresses  []string // addresses of NATS
	collectors []*process
	gnmi       []string
	agents     []string                   // addresses at which collectors serve agents
	paths      []*agent.RolePath          // paths of the agents
	inject     []func(frame []byte) error // each injects a frame into a port of a switch
	listen     []string                   // P4Runtime addresses of the switches
	records    *records
	failures   []string
}

func (s *soak) run(ctx context.Context) (err error) {
	if s.bin, err = filepath.Abs(s.bin); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "netsketch-clustersoak-"); err != nil {
		return err
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(s.dir)
		} else {
			err = fmt.Errorf("%w; logs are in %s", err, s.dir)
		}
	}()
	defer s.end()
	fmt.Println(evidence.Run())
	stopSwitches, err := s.startSwitches(ctx)
	defer stopSwitches()
	if err != nil {
		return err
	}
	if err := errors.Join(s.startNATS(), s.startCollectors()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	agents, err := s.startAgents(ctx)
	if err != nil {
		cancel()
		return err
	}
	defer agents.Wait()
	s.records = newRecords(uint64(s.packets))
	wait := s.records.follow(ctx, s.gnmi)
	defer wait()
	defer cancel()
	go s.traffic(ctx)
	var owners map[string]string
	var since time.Time
	if err := s.until(ctx, "all switches are measured, and none moves for 5 epochs", func() bool {
		if now := s.records.owners(); !maps.Equal(now, owners) {
			owners, since = now, time.Now()
		}
		return s.all() && time.Since(since) > 5*interval
	}); err != nil {
		return err
	}
	if err := s.roll(ctx); err != nil {
		return err
	}
	var owned, measured []time.Duration
	var lost []int
	for i := range s.kills {
		o, m, l, err := s.kill(ctx, i)
		if err != nil {
			return err
		}
		owned, measured, lost = append(owned, o...), append(measured, m...), append(lost, l...)
	}
	s.print("owned again after the kill of a collector", owned)
	s.print("first row of an epoch after the kill of a collector", measured)
	slices.Sort(lost)
	if len(lost) > 0 {
		fmt.Printf("epochs not measured for a switch or host whose collector was killed: median %d, worst %d\n",
			lost[len(lost)/2], lost[len(lost)-1])
	}
	var leaderless []time.Duration
	for range s.natsKills {
		took, err := s.killLeader(ctx)
		if err != nil {
			return err
		}
		leaderless = append(leaderless, took)
	}
	s.print("leases have a leader again after the kill of theirs", leaderless)
	rows, late, wrong := s.records.result()
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("%d rows of epochs with %d packets each, %d with another number, and %d epochs whose packets were sent "+
		"late; load %s", rows, s.packets, len(wrong), late, load)
	s.failures = append(s.failures, wrong...)
	if len(s.failures) > 0 {
		return fmt.Errorf("%d failures, such as:\n  %s", len(s.failures),
			strings.Join(s.failures[:min(10, len(s.failures))], "\n  "))
	}
	return nil
}

// all reports whether each switch and host has one owner and was measured since.
func (s *soak) all() bool {
	n := s.count + s.hosts
	return len(s.records.owners()) == n && s.records.allMeasured(n, time.Now().Add(-3*interval))
}

// until waits for a condition.
func (s *soak) until(ctx context.Context, what string, ok func() bool) error {
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(end) {
			return fmt.Errorf("not within %v: %s; owners: %v", patience, what, s.records.owners())
		}
	}
	return nil
}

// roll restarts all collectors one after another, several times. No switch or host may be without
// the row of an epoch.
func (s *soak) roll(ctx context.Context) error {
	if s.rolling == 0 {
		return nil
	}
	begin := epochAt(time.Now())
	var stops, moves []time.Duration
	moved := 0
	for range s.rolling {
		for _, p := range s.collectors {
			devices := s.records.ownedBy(p.name)
			if len(devices) == 0 { // without devices, nothing shows that the collector is a member again
				continue
			}
			moved += 2 * len(devices)
			at := time.Now()
			p.kill(syscall.SIGTERM)
			s.records.drop(p.name)
			stops = append(stops, time.Since(at))
			if err := p.start(s); err != nil {
				return err
			}
			at = time.Now()
			if err := s.until(ctx, "all are measured, and "+p.name+" owns its own", func() bool {
				return s.all() && slices.Equal(s.records.ownedBy(p.name), devices)
			}); err != nil {
				return err
			}
			moves = append(moves, time.Since(at))
		}
	}
	time.Sleep(3 * interval) // until the last moves are over
	s.print("a collector hands over and ends after SIGTERM", stops)
	s.print("a collector that is started again has its switches and hosts", moves)
	lost := s.records.lostSince(begin)
	fmt.Printf("%d rolling restarts, %d of collectors, %d moves of switches and hosts: %d of %d of their epochs lost\n",
		s.rolling, len(stops), moved, len(lost), len(lost)+s.records.count(begin))
	s.failures = append(s.failures, lost...)
	return nil
}

// kill kills a collector that owns switches or hosts, waits until they are measured again and
// starts it again.
func (s *soak) kill(ctx context.Context, number int) (owned, measured []time.Duration, lost []int, err error) {
	victim, name, devices := 0, "", []string(nil)
	for len(devices) == 0 { // a collector may own no device
		victim = s.random.IntN(len(s.collectors))
		name = s.collectors[victim].name
		devices = s.records.ownedBy(name)
	}
	time.Sleep(time.Duration(s.random.Int64N(int64(interval)))) // anywhere in an epoch
	begin := time.Now()
	open := epochAt(begin)
	s.collectors[victim].kill(syscall.SIGKILL)
	s.records.drop(name)
	if err := s.until(ctx, "another collector owns what was of "+name, func() bool {
		owners := s.records.owners()
		return !slices.ContainsFunc(devices, func(d string) bool { return owners[d] == "" })
	}); err != nil {
		return nil, nil, nil, err
	}
	for _, d := range devices {
		took := s.records.ownedSince(d, begin).Sub(begin)
		owned = append(owned, took)
		if took > ownedWithin {
			s.failures = append(s.failures, fmt.Sprintf("kill %d: %s has an owner after %v", number+1, d, took))
		}
	}
	if err := s.until(ctx, "what was of "+name+" is measured", func() bool {
		return !slices.ContainsFunc(devices, func(d string) bool { _, _, ok := s.records.firstSince(d, open); return !ok })
	}); err != nil {
		return nil, nil, nil, err
	}
	for _, d := range devices {
		at, missing, _ := s.records.firstSince(d, open)
		measured, lost = append(measured, at.Sub(begin)), append(lost, missing)
	}
	fmt.Printf("kill %d: %s with %d switches and hosts\n", number+1, name, len(devices))
	if err := s.collectors[victim].start(s); err != nil {
		return nil, nil, nil, err
	}
	return owned, measured, lost, s.until(ctx, "all are measured, and "+name+" owns its own", func() bool {
		return s.all() && slices.Equal(s.records.ownedBy(name), devices)
	})
}

// killLeader kills the NATS server that leads the leases, and starts it again when there is another
// leader.
func (s *soak) killLeader(ctx context.Context) (time.Duration, error) {
	b, err := bus.Connect(ctx, bus.Config{Name: "soak", Member: "clustersoak", Servers: slices.Clone(s.addresses)})
	if err != nil {
		return 0, err
	}
	defer b.Close()
	current := false // whether all servers hold the newest leases
	leader := func() string {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var stream jetstream.Stream
		if stream, err = b.JetStream().Stream(ctx, "KV_"+b.Bucket("leases")); err != nil {
			return ""
		}
		c := stream.CachedInfo().Cluster
		if c == nil {
			return ""
		}
		current = len(c.Replicas) == 2 && !slices.ContainsFunc(c.Replicas, func(p *jetstream.PeerInfo) bool {
			return p.Offline || !p.Current
		})
		return c.Leader
	}
	was := ""
	if err := s.until(ctx, "the leases have a leader and are at all servers", func() bool {
		was = leader()
		return was != "" && current
	}); err != nil {
		return 0, err
	}
	i := slices.IndexFunc(s.nats, func(p *process) bool { return p.name == was })
	begin := time.Now()
	s.nats[i].kill(syscall.SIGKILL)
	if err := s.until(ctx, "the leases have another leader", func() bool {
		l := leader()
		return l != "" && l != was
	}); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	if took > leaderWithin {
		s.failures = append(s.failures, fmt.Sprintf("no leader of the leases for %v", took))
	}
	if gap := s.records.longestGap(begin); gap > resultsWithin {
		s.failures = append(s.failures, fmt.Sprintf("no row for %v while the NATS server %s was away", gap, was))
	}
	if err := s.nats[i].start(s); err != nil {
		return 0, err
	}
	return took, s.until(ctx, "all switches are measured after the kill of a NATS server", s.all)
}

// print prints the median and the longest of some times.
func (s *soak) print(what string, times []time.Duration) {
	if len(times) == 0 {
		return
	}
	slices.Sort(times)
	fmt.Printf("%s: median %v, worst %v of %d\n", what, times[len(times)/2].Round(time.Millisecond),
		times[len(times)-1].Round(time.Millisecond), len(times))
}

// traffic sends packets to every switch, and from every host, in the middle of each epoch.
func (s *soak) traffic(ctx context.Context) {
	for {
		now := time.Now()
		next := now.Truncate(interval).Add(interval * 3 / 2)
		select {
		case <-time.After(next.Sub(now)):
		case <-ctx.Done():
			return
		}
		for i, inject := range s.inject {
			lost, why := 0, error(nil)
			for j := range s.packets {
				if err := inject(frame(byte(i), uint16(j))); err != nil {
					lost, why = lost+1, err
				}
			}
			if lost > 0 {
				fmt.Printf("s%d, epoch %d: %d packets were not sent, the last one because: %v\n", i+1, epochAt(next), lost, why)
			}
		}
		for i, path := range s.paths {
			for j := range s.packets {
				path.Out([]*packet.Frame{packet.NewFrame(frame(byte(s.count+i), uint16(j)))})
			}
		}
		if meant, sent := epochAt(next), epochAt(time.Now()); sent != meant {
			s.records.sentLate(meant, sent)
		}
	}
}

// epochAt returns the number of the epoch at a time.
func epochAt(t time.Time) uint64 { return uint64(t.UnixNano()/int64(interval)) + 1 }

// frame is a UDP packet from 10.HOST.FLOW, where FLOW has 16 bits.
func frame(host byte, flow uint16) []byte {
	return traffic.BuildFrame(traffic.FrameSpec{Src: netip.AddrFrom4([4]byte{10, host, byte(flow >> 8), byte(flow)}),
		Dst: netip.AddrFrom4([4]byte{10, 0, 0, 1}), Proto: 17, SrcPort: 4096 + flow, DstPort: 80})
}

// startSwitches starts the switches, which outlive collectors.
func (s *soak) startSwitches(ctx context.Context) (stop func(), err error) {
	var compiler softswitch.Compiler
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	for range s.count {
		start := func() (func(), error) { return s.startSoft(&compiler) }
		if s.bmv2 {
			start = func() (func(), error) { return s.startBMv2(ctx) }
		}
		end, err := start()
		if err != nil {
			return stop, err
		}
		stops = append(stops, end)
	}
	return stop, nil
}

func (s *soak) startSoft(compiler *softswitch.Compiler) (stop func(), err error) {
	sw := softswitch.New(softswitch.Config{})
	if err := sw.AddPort(1, softswitch.Port{Name: "p1", Tx: func([]byte, time.Duration) {}}); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	service := p4rtserver.New(sw, p4rtserver.Options{Compile: compiler.Compile})
	rpc := grpc.NewServer(p4rtserver.ServerOptions()...)
	service.Register(rpc)
	go func() { _ = rpc.Serve(l) }() // until Stop
	s.inject = append(s.inject, func(frame []byte) error {
		sw.Inject(1, frame, 0)
		return nil
	})
	s.listen = append(s.listen, l.Addr().String())
	return func() {
		rpc.Stop()
		service.Close()
		sw.Close()
	}, nil
}

// startBMv2 starts a switch that drops all packets, as a soft switch without routes does.
func (s *soak) startBMv2(ctx context.Context) (stop func(), err error) {
	sw, err := bmv2.Start(ctx, bmv2.Config{})
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(sw.DataPlane(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		sw.Close()
		return nil, err
	}
	var packets *dataplane.Client
	s.inject = append(s.inject, func(frame []byte) (err error) {
		for range 2 { // the switch ends a stream that was opened before its pipeline was set
			if packets == nil {
				if packets, err = dataplane.Open(ctx, conn, 1); err != nil {
					packets = nil
					return err
				}
			}
			if err = packets.Inject(1, frame, 0); err == nil {
				return nil
			}
			packets.Close()
			packets = nil
		}
		return err
	})
	s.listen = append(s.listen, sw.P4Runtime())
	return func() {
		_ = conn.Close() // closing the connection ends the stream of packets
		sw.Close()
	}, nil
}

// startAgents starts the agents of the hosts, until ctx ends.
func (s *soak) startAgents(ctx context.Context) (running *sync.WaitGroup, err error) {
	running = &sync.WaitGroup{}
	for i := range s.hosts {
		path := agent.NewRolePath(func(c *epoch.Clock) role.Role { return univmon.New(c) })
		a, err := agent.New(agent.Config{Address: s.agents[0], Others: s.agents[1:], Host: fmt.Sprint("h", i+1),
			Version: "soak", DataPaths: []agent.DataPath{path}}, agent.Dependencies{})
		if err != nil {
			return nil, err
		}
		s.paths = append(s.paths, path)
		running.Go(func() { _ = a.Run(ctx) }) // Run returns nil
	}
	return running, nil
}

func (s *soak) startNATS() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	addresses, err := programs.FreeAddresses(6)
	if err != nil {
		return err
	}
	s.addresses = addresses[:3]
	for i := range 3 {
		name := "nats" + strconv.Itoa(i+1)
		p := &process{name: name, args: append([]string{self, "nats", name, addresses[i], addresses[3+i],
			filepath.Join(s.dir, name)}, addresses[3:]...)}
		s.nats = append(s.nats, p)
		if err := p.start(s); err != nil {
			return err
		}
	}
	return nil
}

func (s *soak) startCollectors() error {
	addresses, err := programs.FreeAddresses(6)
	if err != nil {
		return err
	}
	s.gnmi, s.agents = addresses[:3], addresses[3:]
	for i := range 3 {
		name := "collector" + strconv.Itoa(i+1)
		var b strings.Builder
		fmt.Fprintf(&b, "name: netsketch\nepoch: {interval: %v}\n", interval)
		fmt.Fprintf(&b, "cluster:\n  name: soak\n  member: %s\n  nats: {replicas: 3, addresses: [%q, %q, %q], "+
			"tls: {plaintext: true}}\n", name, s.addresses[0], s.addresses[1], s.addresses[2])
		fmt.Fprintf(&b, "plugins: {directory: %q, instances: [{plugin: univmon, config: {hosts: {packets: sent}}}]}\n",
			filepath.Join(s.bin, "plugins"))
		fmt.Fprintf(&b, "agents: {address: %q, tls: {plaintext: true}}\n", s.agents[i])
		fmt.Fprintf(&b, "outputs: [{type: gnmi, address: %q, tls: {plaintext: true}}]\n", s.gnmi[i])
		b.WriteString("device-defaults: {pipeline: univmon-300k, tls: {plaintext: true}}\ndevices:\n")
		for j, address := range s.listen {
			fmt.Fprintf(&b, "  - {name: s%d, address: %q, device-id: 1}\n", j+1, address)
		}
		if s.hosts > 0 {
			b.WriteString("hosts:\n")
		}
		for j := range s.hosts {
			fmt.Fprintf(&b, "  - {name: h%d, port: s1/%d, addresses: [10.%d.0.0/24], agent: true}\n", j+1, j+1, s.count+j)
		}
		file := filepath.Join(s.dir, name+".yaml")
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			return err
		}
		p := &process{name: name, args: []string{filepath.Join(s.bin, "netsketch"), "collector", "--config", file}}
		s.collectors = append(s.collectors, p)
		if err := p.start(s); err != nil {
			return err
		}
	}
	return nil
}

// start starts a process.
func (p *process) start(s *soak) (err error) {
	p.running, err = programs.Start(s.dir, p.name, nil, p.args...)
	return err
}

// kill ends a process and waits for it.
func (p *process) kill(signal syscall.Signal) {
	if p.running != nil {
		_ = p.running.End(signal) // fails if the process has ended
	}
}

// end ends all processes, collectors first.
func (s *soak) end() {
	for _, p := range slices.Concat(s.collectors, s.nats) {
		p.kill(syscall.SIGTERM)
	}
}
