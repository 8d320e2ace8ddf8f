// SPDX-License-Identifier: Apache-2.0

// Command check sends files over TCP from h1 to h2 of the example and compares what arrived with
// what was sent: the bytes of the files, every packet as both hosts capture it, and SketchINT's
// results. It kills the agent of h2 during the second file. netns.sh starts it.
package main

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/netsketch/netsketch/internal/test/netns"
)

const patience = time.Minute

// switches are the path to the server.
var switches = []string{"s1", "s2"}

func main() {
	netns.Main(func() error {
		bin := flag.String("bin", "", "`directory` of netsketch")
		run := flag.String("run", "", "`directory` of netsketch's logs and process ids")
		agents := flag.String("agents", "kernel", "data `path` of agents: kernel, which outlives them, or bridge")
		size := flag.Int64("bytes", 8<<20, "`size` of the first file; the second one is half of it")
		flag.Parse()
		c := &check{netsketch: filepath.Join(*bin, "netsketch"), run: *run, outlives: *agents == "kernel",
			ended: map[string]bool{}}
		c.restart()
		netns.Follow(&c.mu, c.take, &c.err, "/sketchint")
		return c.all(*size)
	})
}

type check struct {
	netsketch, run string
	outlives       bool // the data path goes on without the agent

	mu          sync.Mutex
	flows, hops map[string]netns.Row // rows by epoch and flow, and by epoch, flow and switch
	ended       map[string]bool      // flows of earlier transfers
	err         error
}

// all sends a file, and another one during which it kills the agent of h2. The program in the
// kernel outlives the agent and goes on to remove INT.
func (c *check) all(size int64) error {
	fmt.Println("sending")
	packets, err := netns.Transfer(size, func() error { return nil })
	if err != nil {
		return err
	}
	if err := c.results(packets); err != nil {
		return err
	}
	if !c.outlives {
		fmt.Println("PASSED")
		return nil
	}
	fmt.Println("killing the agent of h2 during the next transfer")
	if _, err := netns.Transfer(size/2, func() error { return netns.Kill(c.run, "h2") }); err != nil {
		return fmt.Errorf("without an agent: %w", err)
	}
	if err := netns.Start(c.netsketch, c.run, "h2"); err != nil {
		return err
	}
	time.Sleep(5 * time.Second) // until the agent has its settings, and an epoch has begun
	c.restart()
	if packets, err = netns.Transfer(size/2, func() error { return nil }); err != nil {
		return fmt.Errorf("with the agent started again: %w", err)
	}
	if err := c.results(packets); err != nil {
		return fmt.Errorf("with the agent started again: %w", err)
	}
	fmt.Println("PASSED")
	return nil
}

// restart drops results, and ignores those flows from now on.
func (c *check) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.flows {
		c.ended[r.Text("flow")] = true
	}
	c.flows, c.hops = map[string]netns.Row{}, map[string]netns.Row{}
}

// take is called by netns.Follow, with the lock held.
func (c *check) take(list string, r netns.Row, missed int64) {
	switch list {
	case "/sketchint/flows/flow":
		if toServer(r) && !c.ended[r.Text("flow")] {
			c.flows[fmt.Sprint(r.Number("epoch"), r.Text("flow"))] = r
			if missed > 0 {
				fmt.Printf("epoch %d: %d values before it were not read\n", r.Number("epoch"), missed)
			}
		}
	case "/sketchint/hops/hop":
		if toServer(r) && !c.ended[r.Text("flow")] {
			c.hops[fmt.Sprint(r.Number("epoch"), r.Text("flow"), r.Text("node"))] = r
		}
	case "/sketchint/faults/fault":
		c.err = fmt.Errorf("a packet with INT was not read: %v", r)
	}
}

// results waits until the results have as many packets to the server as arrived, in any number of
// epochs, and the latency at each switch. It then compares the results with what happened.
func (c *check) results(packets int64) error {
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		lacks, err := c.compare(packets)
		if lacks == "" || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("after %v, %s", patience, lacks)
		}
	}
}

// compare compares and prints results once all have arrived. Until then it returns the missing
// results.
func (c *check) compare(packets int64) (lacks string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return "", c.err
	}
	var sum int64
	for id, r := range c.flows {
		sum += r.Number("packets")
		for _, name := range switches {
			if c.hops[id+name] == nil {
				return fmt.Sprintf("epoch %d has no latency at %s", r.Number("epoch"), name), nil
			}
		}
	}
	if sum < packets {
		return fmt.Sprintf("results have %d packets to %s; %d arrived", sum, netns.Server, packets), nil
	}
	for id, r := range c.flows {
		fmt.Printf("epoch %d: %s path %s: %d packets, %d ns\n", r.Number("epoch"), r.Text("flow"), r.Text("path"),
			r.Number("packets"), r.Number("latency-avg"))
		if want := strings.Join(switches, " "); r.Text("path") != want {
			return "", fmt.Errorf("flow %s has the path %q, want %s", id, r.Text("path"), want)
		}
		for _, name := range switches {
			if l := c.hops[id+name]; l.Number("packets") != r.Number("packets") || l.Number("latency-avg") <= 0 {
				return "", fmt.Errorf("flow %s has %d packets; at %s %v", id, r.Number("packets"), name, l)
			}
		}
	}
	if sum > packets {
		return "", fmt.Errorf("results have %d packets to %s; %d arrived", sum, netns.Server, packets)
	}
	return "", nil
}

// toServer reports whether a row is about the flow to the server.
func toServer(r netns.Row) bool {
	return strings.HasPrefix(r.Text("flow"), "10.0.1.1,10.0.2.1,tcp,") && strings.HasSuffix(r.Text("flow"), ",8000")
}
