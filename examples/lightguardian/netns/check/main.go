// SPDX-License-Identifier: Apache-2.0

// Command check sends files over TCP from h1 to h2 of the example and compares what arrived with
// what was sent: the bytes of the files, every packet as both hosts capture it, and LightGuardian's
// results. It kills the agent of h2 during the second file. netns.sh starts it.
package main

import (
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netsketch/netsketch/internal/test/netns"
)

const patience = time.Minute

func main() {
	netns.Main(func() error {
		bin := flag.String("bin", "", "`directory` of netsketch")
		run := flag.String("run", "", "`directory` of netsketch's logs and process ids")
		size := flag.Int64("bytes", 48<<20, "`size` of the first file; the others are a third of it")
		flag.Parse()
		c := &check{netsketch: filepath.Join(*bin, "netsketch"), run: *run, ended: map[string]bool{}}
		return c.all(*size)
	})
}

type check struct {
	netsketch, run string

	mu         sync.Mutex
	flows      map[string]netns.Row // flows to the server, by interval and key
	hops       map[string]netns.Row // hops of these flows, by switch
	ended      map[string]bool      // flows of earlier files
	sketchlets int64                // most of a host in an epoch
	gaps       account
	err        error // error of the subscription, or of a counter
}

// all sends a file, and another one during which it kills the agent of h2. The program in the
// kernel outlives the agent and goes on to remove sketchlets.
func (c *check) all(size int64) error {
	c.restart()
	netns.Follow(&c.mu, c.take, &c.err, "/lightguardian", "/collector/plugins", "/collector/state")
	fmt.Println("sending")
	packets, err := netns.Transfer(size, c.local)
	if err != nil {
		return err
	}
	if err := c.results(packets, []string{"s1", "s2"}); err != nil {
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
	c.restart()
	if packets, err = netns.Transfer(size/3, func() error { return nil }); err != nil {
		return fmt.Errorf("with the agent started again: %w", err)
	}
	if err := c.results(packets, nil); err != nil { // the file is too short for the sketches
		return fmt.Errorf("with the agent started again: %w", err)
	}
	fmt.Println("PASSED")
	return nil
}

// local waits until the agent of h2 has reconstructed by itself how many packets of the flow passed
// a switch.
func (c *check) local() error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		lists, err := netns.Query(c.netsketch, "/host", "unix://"+c.run+"/h2.sock")
		if err != nil {
			return err
		}
		for _, r := range lists["/host/hops/hop"] {
			if n := r.Number("packets"); toServer(r) && r.Is("carrier") && n > 0 {
				fmt.Printf("the agent of h2: %d packets at %s\n", n, r.Text("node"))
				return nil
			}
		}
	}
	return fmt.Errorf("the agent of h2 has no switch of the flow to %s after %v", netns.Server, patience)
}

// restart drops results, and ignores those flows from now on.
func (c *check) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.flows {
		c.ended[r.Text("flow")] = true
	}
	c.flows, c.hops, c.sketchlets = map[string]netns.Row{}, map[string]netns.Row{}, 0
	c.gaps.restart()
}

// take is called by netns.Follow, with the lock held.
func (c *check) take(list string, r netns.Row, missed int64) {
	c.gaps.take(list, r, missed)
	switch list {
	case "/lightguardian/flows/flow":
		if toServer(r) && !c.ended[r.Text("flow")] {
			c.flows[fmt.Sprint(r.Number("first-epoch"), r.Text("flow"))] = r // later epochs of an interval have more
		}
	case "/lightguardian/hops/hop":
		if toServer(r) && !c.ended[r.Text("flow")] && r["packets"] != nil {
			c.hops[r.Text("node")] = r
		}
	case "/lightguardian/hosts/host":
		if r["sketchlets"] == nil { // the host did not report
			return
		}
		c.sketchlets = max(c.sketchlets, r.Number("sketchlets"))
		for _, counter := range []string{"short", "bad-check", "unread", "unknown-device", "unknown-column", "wrong-words",
			"full", "flows-full"} {
			if n := r.Number(counter); n != 0 {
				c.err = fmt.Errorf("host %s: %s is %d", r.Text("node"), counter, n)
			}
		}
	}
}

// results waits for the results of all packets that arrived, and compares and prints them: flows to
// the server have the packets, and switches have them in their sketches. A switch sends its sketch
// in the packets of the next interval. Results that are missing when all are final need a reason.
func (c *check) results(packets int64, switches []string) error {
	c.mu.Lock()
	last := c.gaps.newest + 3*c.gaps.length + lateEpochs // in an interval that began after the last packet
	c.mu.Unlock()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		done, err := c.compare(packets, switches, last)
		if err != nil || done {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("no results of an interval after epoch %d within %v", last, patience)
		}
	}
}

// compare compares results once all are there, or at the latest when an interval that begins with
// epoch last or later has results.
func (c *check) compare(packets int64, switches []string, last int64) (done bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := int64(0)
	for _, r := range c.flows {
		if r["received-packets"] != nil { // h2 reported
			sum += r.Number("received-packets")
		}
	}
	unseen := slices.DeleteFunc(slices.Clone(switches), func(name string) bool { return c.hops[name] != nil })
	if c.err != nil || (sum < packets || len(unseen) > 0) && c.gaps.newest < last {
		return false, c.err
	}
	for _, id := range slices.Sorted(maps.Keys(c.flows)) {
		r := c.flows[id]
		fmt.Printf("from epoch %d: %s path %s: %v packets sent, %v received\n", r.Number("first-epoch"), r.Text("flow"),
			r.Text("path"), r["packets"], r["received-packets"])
	}
	for name, r := range c.hops {
		fmt.Printf("from epoch %d: %d packets at %s\n", r.Number("first-epoch"), r.Number("packets"), name)
	}
	fmt.Printf("%d sketchlets in an epoch\n", c.sketchlets)
	if sum > packets || c.sketchlets == 0 {
		return false, fmt.Errorf("results have %d packets to %s, of %d sketchlets; %d packets arrived", sum, netns.Server,
			c.sketchlets, packets)
	}
	if sum < packets {
		fmt.Printf("%d packets are in no result\n", packets-sum)
		if err := c.gaps.explain(c.flows); err != nil {
			return false, fmt.Errorf("results have %d packets to %s; %d arrived: %w", sum, netns.Server, packets, err)
		}
	}
	for _, name := range unseen {
		n := c.gaps.unmeasured[name]
		if n == 0 && sum == packets {
			return false, fmt.Errorf("results have no packets at %s, and no reason", name)
		}
		fmt.Printf("no packets at %s: %d sketchlets are of intervals that it did not measure whole\n", name, n)
	}
	return true, nil
}

// toServer reports whether a row is about the flow to the server.
func toServer(r netns.Row) bool {
	return strings.HasPrefix(r.Text("flow"), "10.0.1.1,10.0.2.1,tcp,") && strings.HasSuffix(r.Text("flow"), ",8000")
}
