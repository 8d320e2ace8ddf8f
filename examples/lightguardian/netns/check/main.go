// SPDX-License-Identifier: Apache-2.0

// Command check sends files over TCP from h1 to h2 of the example and compares what arrived with
// what was sent: the bytes of the files, every packet as both hosts capture it, and LightGuardian's
// results. It kills the agent of h2 during the second file. netns.sh starts it.
package main

import (
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
		size := flag.Int64("bytes", 24<<20, "`size` of the first file; the others are a third of it")
		flag.Parse()
		c := &check{netsketch: filepath.Join(*bin, "netsketch"), run: *run}
		return c.all(*size)
	})
}

type check struct {
	netsketch, run string
}

// all sends a file, and another one during which it kills the agent of h2. The program in the
// kernel outlives the agent and goes on to remove sketchlets.
func (c *check) all(size int64) error {
	fmt.Println("sending")
	packets, err := netns.Transfer(size, func() error { return nil })
	if err != nil {
		return err
	}
	if err := c.results(packets, 2); err != nil {
		return err
	}
	fmt.Println("killing the agent of h2 during the next transfer")
	if _, err := netns.Transfer(size/3, func() error { return netns.Kill(c.run, "h2") }); err != nil {
		return fmt.Errorf("without an agent: %w", err)
	}
	if err := netns.Start(c.netsketch, c.run, "h2"); err != nil {
		return err
	}
	time.Sleep(5 * time.Second) // until the agent has its settings, and an epoch has begun
	if packets, err = netns.Transfer(size/3, func() error { return nil }); err != nil {
		return fmt.Errorf("with the agent started again: %w", err)
	}
	if err := c.results(packets, 0); err != nil { // the file is too short for the sketches
		return fmt.Errorf("with the agent started again: %w", err)
	}
	fmt.Println("PASSED")
	return nil
}

// results waits until flows to the server in consecutive epochs have the packets that arrived, and
// until a count of switches have them in their sketches. A switch sends its sketch in the packets
// of the next epoch.
func (c *check) results(packets int64, switches int) error {
	flows, hops := map[string]netns.Row{}, map[string]netns.Row{}
	var sum, sketchlets int64
	for end := time.Now().Add(patience); sum < packets || len(hops) < switches; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("after %v results have %d packets to %s at %d switches; expected %d at %d", patience, sum,
				netns.Server, len(hops), packets, switches)
		}
		lists, err := netns.Query(c.netsketch, "/lightguardian", netns.Collector)
		if err != nil {
			return err
		}
		for _, r := range lists["/lightguardian/flows/flow"] {
			if toServer(r) {
				flows[fmt.Sprint(r.Number("epoch"), r.Text("flow"))] = r
			}
		}
		for _, r := range lists["/lightguardian/hops/hop"] {
			if toServer(r) && r.Is("valid") {
				hops[r.Text("switch")] = r
			}
		}
		for _, r := range lists["/lightguardian/hosts/host"] {
			sketchlets = max(sketchlets, r.Number("sketchlets"))
			for _, counter := range []string{"short", "bad-check", "unread", "unknown-device", "unknown-column", "wrong-words",
				"full", "flows-full"} {
				if n := r.Number(counter); n != 0 {
					return fmt.Errorf("host %s: %s is %d", r.Text("host"), counter, n)
				}
			}
		}
		sum = 0
		for _, r := range flows {
			sum += r.Number("received-packets")
		}
	}
	for _, r := range flows {
		fmt.Printf("epoch %d: %s path %s: %d packets sent, %d received\n", r.Number("epoch"), r.Text("flow"),
			r.Text("path"), r.Number("sent"), r.Number("received-packets"))
	}
	for name, r := range hops {
		fmt.Printf("epoch %d: %d packets at %s\n", r.Number("epoch"), r.Number("packets"), name)
	}
	fmt.Printf("%d sketchlets in an epoch\n", sketchlets)
	if sum != packets || sketchlets == 0 {
		return fmt.Errorf("results have %d packets to %s, of %d sketchlets; %d packets arrived", sum, netns.Server,
			sketchlets, packets)
	}
	return nil
}

// toServer reports whether a row is about the flow to the server.
func toServer(r netns.Row) bool {
	return strings.HasPrefix(r.Text("flow"), "10.0.1.1,10.0.2.1,tcp,") && strings.HasSuffix(r.Text("flow"), ",8000")
}
