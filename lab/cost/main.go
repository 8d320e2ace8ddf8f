// SPDX-License-Identifier: Apache-2.0

// Command cost measures the processor time of a collector, its plugin and its switches, as separate
// processes on this machine, with little traffic. `make cost` runs it.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/lab/evidence"
	"github.com/netsketch/netsketch/lab/programs"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/p4/softswitch/dataplane"
)

func main() {
	var c cost
	flag.StringVar(&c.bin, "bin", "bin", "`directory` of netsketch and its plugins, as make build fills it")
	flag.IntVar(&c.switches, "switches", 8, "soft switches")
	flag.StringVar(&c.program, "program", "univmon", "their program")
	flag.StringVar(&c.plugin, "plugin", "univmon", "the plugin; empty for none")
	flag.IntVar(&c.packets, "packets", 10, "packets a second at each switch, each of a flow of its own")
	flag.DurationVar(&c.interval, "interval", time.Second, "length of an epoch")
	flag.DurationVar(&c.measure, "measure", 30*time.Second, "how long to measure")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := c.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cost:", err)
		os.Exit(1)
	}
}

type cost struct {
	bin, program, plugin string
	switches, packets    int
	interval, measure    time.Duration

	dir       string
	processes []*programs.Program
	addresses []string
}

// warmUp is how long the processes run before they are measured.
const warmUp = 10 * time.Second

func (c *cost) run(ctx context.Context) (err error) {
	if c.bin, err = filepath.Abs(c.bin); err != nil {
		return err
	}
	if c.dir, err = os.MkdirTemp("", "netsketch-cost-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(c.dir)) }()
	defer c.end()
	if c.addresses, err = programs.FreeAddresses(c.switches); err != nil {
		return err
	}
	for i := range c.switches {
		if err := c.startSwitch(i); err != nil {
			return err
		}
	}
	if err := c.startCollector(); err != nil {
		return err
	}
	send, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, c.switches)
	for i, address := range c.addresses {
		if c.packets == 0 {
			break
		}
		go func() { failed <- c.send(send, address, i) }()
	}
	pause := func(d time.Duration) error {
		select {
		case err := <-failed:
			return err
		case <-time.After(d):
			return ctx.Err()
		}
	}
	if err := pause(warmUp); err != nil {
		return err
	}
	before, err := c.times()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := pause(c.measure); err != nil {
		return err
	}
	after, err := c.times()
	if err != nil {
		return err
	}
	return c.print(before, after, time.Since(begin))
}

// start runs netsketch with its log in a file.
func (c *cost) start(name string, args ...string) error {
	p, err := programs.Start(c.dir, name, nil, append([]string{filepath.Join(c.bin, "netsketch")}, args...)...)
	if err == nil {
		c.processes = append(c.processes, p)
	}
	return err
}

func (c *cost) log(name string) string { return filepath.Join(c.dir, name+".log") }

// end ends the collector and then the switches.
func (c *cost) end() {
	for _, p := range slices.Backward(c.processes) {
		_ = p.End(syscall.SIGTERM) // fails if the process has ended
	}
}

func (c *cost) startSwitch(i int) error {
	return c.start(fmt.Sprintf("s%d", i+1), "switch", "--listen", c.addresses[i], "--device-id", strconv.Itoa(i+1),
		"--grpc-ports", "4", "--log", "warn")
}

func (c *cost) startCollector() error {
	var b strings.Builder
	fmt.Fprintf(&b, "epoch: {interval: %v}\ndevice-defaults: {pipeline: %s, tls: {plaintext: true}}\ndevices:\n",
		c.interval, c.program)
	for i, address := range c.addresses {
		fmt.Fprintf(&b, "  - {name: s%d, address: %q, device-id: %d}\n", i+1, address, i+1)
	}
	if c.plugin != "" {
		fmt.Fprintf(&b, "plugins: {directory: %q, instances: [{plugin: %s}]}\n", filepath.Join(c.bin, "plugins"), c.plugin)
	}
	b.WriteString("log: {level: warn}\n")
	name := filepath.Join(c.dir, "collector.yaml")
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		return err
	}
	return c.start("collector", "collector", "--config", name)
}

// send sends packets to a switch, evenly in time.
func (c *cost) send(ctx context.Context, address string, number int) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	frames := make([][]byte, c.packets)
	for i := range frames {
		frames[i] = frame(byte(number), uint16(i))
	}
	for {
		client, err := dataplane.Open(ctx, conn, uint64(number+1))
		if err == nil {
			err = c.inject(ctx, client, frames)
			client.Close()
		}
		if ctx.Err() != nil || status.Code(err) != codes.Unavailable {
			return err
		}
		time.Sleep(100 * time.Millisecond) // the switch has no pipeline yet
	}
}

// inject sends packets until ctx ends. The switch drops them, because it has no route for them.
func (c *cost) inject(ctx context.Context, client *dataplane.Client, frames [][]byte) error {
	tick := time.NewTicker(time.Second / time.Duration(c.packets))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := client.Inject(1, frames[i%len(frames)], 0); err != nil {
				return err
			}
		}
	}
}

// frame is a UDP packet from 10.HOST.FLOW, where FLOW has 16 bits.
func frame(host byte, flow uint16) []byte {
	return traffic.BuildFrame(traffic.FrameSpec{Src: netip.AddrFrom4([4]byte{10, host, byte(flow >> 8), byte(flow)}),
		Dst: netip.AddrFrom4([4]byte{10, 0, 0, 1}), Proto: 17, SrcPort: 4096 + flow, DstPort: 80})
}

// times are the processor times of the processes and their children, by name.
func (c *cost) times() (map[string][]time.Duration, error) {
	out := map[string][]time.Duration{}
	all, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	parents := map[int]string{}
	for i, p := range c.processes {
		name := "switch"
		if i == c.switches {
			name = "collector"
		}
		parents[p.PID()] = name
	}
	for _, entry := range all {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // the process has ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		parent, _ := strconv.Atoi(fields[1])
		name := parents[pid]
		if parents[parent] != "" {
			name = "plugin"
		}
		if name == "" {
			continue
		}
		user, err1 := strconv.Atoi(fields[11])
		system, err2 := strconv.Atoi(fields[12])
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		out[name] = append(out[name], time.Duration(user+system)*10*time.Millisecond)
	}
	if len(out["switch"]) != c.switches || len(out["collector"]) != 1 {
		text, _ := os.ReadFile(c.log("collector"))
		return nil, fmt.Errorf("a process has ended; the collector's log:\n%s", text)
	}
	return out, nil
}

// print prints the shares of one processor.
func (c *cost) print(before, after map[string][]time.Duration, lasted time.Duration) error {
	text, err := os.ReadFile(c.log("collector"))
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d switches with %s, %d packets a second each, epochs of %v, for %v\n", evidence.Run(), c.switches,
		c.program, c.packets, c.interval, lasted.Round(time.Second))
	for _, name := range []string{"collector", "plugin", "switch"} {
		var shares []float64
		for i := range min(len(before[name]), len(after[name])) {
			shares = append(shares, 100*(after[name][i]-before[name][i]).Seconds()/lasted.Seconds())
		}
		slices.SortFunc(shares, cmp.Compare[float64])
		if len(shares) > 0 {
			fmt.Printf("%-10s %5.2f %% of a processor (median of %d; largest %.2f)\n", name, shares[len(shares)/2],
				len(shares), shares[len(shares)-1])
		}
	}
	if len(text) > 0 {
		fmt.Printf("the collector's log:\n%s", text)
	}
	return nil
}
