// SPDX-License-Identifier: Apache-2.0

// Command check sends files over TCP from h1 to h2 of the example and compares what arrived with
// what was sent: the bytes of the files, every packet as both hosts capture it, and SketchINT's
// results. It kills the agent of h2 during the second file. netns.sh starts it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/netsketch/netsketch/examples/internal/netns"
)

const patience = time.Minute

func main() {
	netns.Main(func() error {
		bin := flag.String("bin", "", "`directory` of netsketch")
		run := flag.String("run", "", "`directory` of netsketch's logs and process ids")
		agents := flag.String("agents", "kernel", "data `path` of agents: kernel, which outlives them, or bridge")
		size := flag.Int64("bytes", 8<<20, "`size` of the first file; the second one is half of it")
		flag.Parse()
		c := &check{netsketch: filepath.Join(*bin, "netsketch"), run: *run, outlives: *agents == "kernel"}
		return c.all(*size)
	})
}

type check struct {
	netsketch, run string
	outlives       bool // the data path goes on without the agent
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
	if packets, err = netns.Transfer(size/2, func() error { return nil }); err != nil {
		return fmt.Errorf("with the agent started again: %w", err)
	}
	if err := c.results(packets); err != nil {
		return fmt.Errorf("with the agent started again: %w", err)
	}
	fmt.Println("PASSED")
	return nil
}

// results waits until flows to the server in consecutive intervals have the packets that arrived,
// and compares their paths and latencies.
func (c *check) results(packets int64) error {
	flows, latencies := map[string]netns.Row{}, map[string]netns.Row{}
	var sum int64
	for end := time.Now().Add(patience); sum < packets; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("results have %d packets to %s after %v; %d arrived", sum, netns.Server, patience, packets)
		}
		lists, err := netns.Query(c.netsketch, "/sketchint", netns.Collector)
		if err != nil {
			return err
		}
		for _, r := range lists["/sketchint/flows/flow"] {
			if toServer(r) {
				flows[fmt.Sprint(r.Number("epoch"), r.Text("flow"))] = r
			}
		}
		for _, r := range lists["/sketchint/latencies/latency"] {
			if toServer(r) {
				latencies[fmt.Sprint(r.Number("epoch"), r.Text("flow"), r.Text("switch"))] = r
			}
		}
		for _, r := range lists["/sketchint/faults/fault"] {
			return fmt.Errorf("a packet with INT was not read: %v", r)
		}
		sum = 0
		for _, r := range flows {
			sum += r.Number("packets")
		}
	}
	for id, r := range flows {
		fmt.Printf("epoch %d: %s path %s: %d packets, %d ns\n", r.Number("epoch"), r.Text("flow"), r.Text("path"),
			r.Number("packets"), r.Number("latency"))
		if r.Text("path") != "s1 s2" {
			return fmt.Errorf("flow %s has the path %q, want s1 s2", id, r.Text("path"))
		}
		for _, name := range []string{"s1", "s2"} {
			l := latencies[id+name]
			if l == nil {
				continue // the list of the interval was not replaced yet, or was again
			}
			if l.Number("packets") != r.Number("packets") || l.Number("latency") <= 0 {
				return fmt.Errorf("flow %s has %d packets; at %s %v", id, r.Number("packets"), name, l)
			}
		}
	}
	if sum != packets {
		return fmt.Errorf("results have %d packets to %s; %d arrived", sum, netns.Server, packets)
	}
	if len(latencies) == 0 {
		return errors.New("no latencies were published")
	}
	return nil
}

// toServer reports whether a row is about the flow to the server.
func toServer(r netns.Row) bool {
	return strings.HasPrefix(r.Text("flow"), "10.0.1.1,10.0.2.1,tcp,") && strings.HasSuffix(r.Text("flow"), ",8000")
}
