// SPDX-License-Identifier: Apache-2.0

// Command check sends files over TCP from h1 to h2 of the example and compares OmniMon's results
// with what happened. It kills the agent of h1 during the second one. netns.sh starts it.
//
// What happened is known from the switch's own counters of packets that it dropped, which OmniMon
// does not read.
package main

import (
	"errors"
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

const (
	device   = "10.255.0.1:9559"
	patience = 2 * time.Minute
)

// links are the links of the hosts, by the interface of the switch.
var links = map[string]string{"h1-sw": "h1-s1:1", "h2-sw": "h2-s1:2"}

func main() {
	netns.Main(func() error {
		bin := flag.String("bin", "", "`directory` of netsketch")
		run := flag.String("run", "", "`directory` of netsketch's logs and process ids")
		size := flag.Int64("bytes", 16<<20, "`size` of the first file; the second one is half of it")
		flag.Parse()
		c := &check{netsketch: filepath.Join(*bin, "netsketch"), run: *run, alerts: map[string]bool{}}
		c.restart()
		netns.Follow(&c.mu, c.take, &c.err, "/omnimon")
		if err := c.wait(1); err != nil {
			return err
		}
		return c.all(*size)
	})
}

// check has the results published since the last restart, by epoch.
type check struct {
	netsketch, run string

	mu      sync.Mutex
	newest  int64          // epoch
	seen    map[int64]bool // epochs with a summary
	missed  int64          // changes of settled that the collector did not send to this program
	flows   map[int64]netns.Row
	settled map[int64]netns.Row // epochs that are settled
	losses  map[string]netns.Row
	alerts  map[string]bool // alerts, and whether they are still active
	err     error
}

// restart drops results, and alerts that are over, and returns the newest epoch.
func (c *check) restart() (newest int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled, c.flows, c.losses = map[int64]netns.Row{}, map[int64]netns.Row{}, map[string]netns.Row{}
	c.seen, c.missed = map[int64]bool{}, 0
	maps.DeleteFunc(c.alerts, func(_ string, active bool) bool { return !active })
	return c.newest
}

// take is called by netns.Follow, with the lock held.
func (c *check) take(list string, r netns.Row, missed int64) {
	switch list {
	case "/omnimon/summary":
		c.newest = max(c.newest, r.Number("epoch"))
		c.seen[r.Number("epoch")] = true
	case "/omnimon/flows/flow":
		if r.Text("source-node") == "h1" {
			c.flows[r.Number("epoch")] = r
		}
	case "/omnimon/settled":
		c.missed += missed
		if r["epoch"] != nil { // null before the first epoch is settled
			c.settled[r.Number("epoch")] = r
		}
	case "/omnimon/settled/losses/loss":
		c.losses[fmt.Sprint(r.Number("epoch"), r.Text("flow"), r.Text("location"))] = r
	case "/omnimon/alerts/alert":
		alert := r.Text("kind") + " " + r.Text("location")
		if _, known := c.alerts[alert]; known || r.Is("active") {
			c.alerts[alert] = r.Is("active")
		}
	}
}

// wait waits until an epoch has been published.
func (c *check) wait(epoch int64) error {
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		c.mu.Lock()
		newest, err := c.newest, c.err
		c.mu.Unlock()
		if err != nil || newest >= epoch {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("epoch %d was not published within %v; the newest is %d", epoch, patience, newest)
		}
	}
}

// dropped returns the packets that the switch dropped, by what loses them: the switch itself, in
// its queues, and the links, on arrival. A busy machine loses packets on arrival because the switch
// does not get the processor in time.
func (c *check) dropped() (map[string]int64, error) {
	lists, err := netns.Query(c.netsketch, "/interfaces/interface/state/counters", device)
	if err != nil {
		return nil, err
	}
	sum := map[string]int64{}
	for _, r := range lists["/interfaces/interface"] {
		sum["s1"] += r.Number("counters/out-discards")
		sum[links[r.Text("name")]] += r.Number("counters/in-discards")
	}
	return sum, nil
}

// all sends a file, and another file during which it kills the agent of h1. The maps in the kernel
// outlive the agent; without them, the epoch of the kill and the next would be inexact.
func (c *check) all(size int64) error {
	err := c.sends(size, 0, func() error { return nil })
	for tries := 0; errors.Is(err, errUnseen) && tries < 3; tries++ {
		fmt.Println(err, "so another file is sent")
		err = c.sends(size, 0, func() error { return nil })
	}
	if err != nil {
		return err
	}
	fmt.Println("killing the agent of h1 during the next transfer")
	if err := c.sends(size/2, 2, func() error { return c.kill("h1") }); err != nil {
		return fmt.Errorf("with the agent of h1 killed: %w", err)
	}
	fmt.Println("PASSED")
	return nil
}

// settled is how many epochs after a loss its alert begins.
const settled = 4

// sends transfers a file and compares the results of the epochs of the transfer, some of which may
// be inexact.
func (c *check) sends(size int64, inexact int, during func() error) error {
	first := c.restart()
	before, err := c.dropped()
	if err != nil {
		return err
	}
	if err := netns.Send(size, during); err != nil {
		return err
	}
	c.mu.Lock()
	last := c.newest + 2 + int64(inexact) // epoch of the file's end, and epoch of its delivery
	c.mu.Unlock()
	if err := c.wait(last + settled); err != nil {
		return err
	}
	for tries := 0; !c.saw(last) && tries < 5; tries++ { // a slow client does not see every epoch
		last++
		if err := c.wait(last + settled + 1); err != nil {
			return err
		}
	}
	happened, err := c.dropped()
	if err != nil {
		return err
	}
	for element, n := range before {
		happened[element] -= n
	}
	maps.DeleteFunc(happened, func(_ string, n int64) bool { return n == 0 })
	if inexact == 0 {
		if err := c.unseen(first, last); err != nil {
			return err
		}
	}
	return c.compare(first, last, inexact, happened)
}

// saw reports whether the settled results of an epoch were received.
func (c *check) saw(epoch int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settled[epoch] != nil
}

// errUnseen says that a busy machine kept results of a transfer from this program: they are not
// known, but not wrong either.
var errUnseen = errors.New("a busy machine kept results from this program,")

// unseen returns errUnseen and prints why, if the settled results of an epoch did not come because
// this program was slow, or because the collector did not run over the end of an epoch.
func (c *check) unseen(first, last int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := first + 1; e <= last; e++ {
		if c.settled[e] != nil {
			continue
		}
		fmt.Printf("epoch %d: no settled results; %d changes were not sent to this program; settled epochs: %v; "+
			"published epochs: %v\n", e, c.missed, slices.Sorted(maps.Keys(c.settled)), slices.Sorted(maps.Keys(c.seen)))
		if c.missed > 0 || !c.seen[e] || !c.seen[e+settled] {
			return errUnseen
		}
	}
	return nil
}

// compare returns how the results of epochs differ from what happened. The last epoch must be
// exact. Other inexact epochs are counted; if there are any, losses are not compared.
func (c *check) compare(first, last int64, inexact int, happened map[string]int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var wrong []error
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	found := 0
	for e := first + 1; e <= last; e++ {
		if r, ok := c.settled[e]; !ok || r.Text("quality") != "EXACT" {
			found++
			fmt.Printf("epoch %d was settled: %v; problem: %v\n", e, ok, r["problem"])
			expect(e < last, "the last epoch is not exact")
		}
	}
	if expect(found <= inexact, "%d epochs are not exact, at most %d may be", found, inexact); found > 0 {
		return errors.Join(wrong...)
	}
	lost := map[string]int64{}
	for _, r := range c.losses {
		if r.Number("epoch") > first {
			lost[r.Text("location")] += r.Number("lost-packets-low")
			expect(r.Text("quality") == "EXACT", "loss of flow %s at %s is %s", r.Text("flow"), r.Text("location"),
				r.Text("quality"))
		}
	}
	var ofFlow int64
	for _, e := range slices.Sorted(maps.Keys(c.flows)) {
		r := c.flows[e]
		if e <= first {
			continue
		}
		fmt.Printf("epoch %d: %s path %s: %d packets sent, %d lost\n", e, r.Text("flow"), r.Text("path"),
			r.Number("packets"), r.Number("lost-packets"))
		ofFlow += r.Number("lost-packets")
		expect(r.Text("path") == "s1", "path %q, want s1", r.Text("path"))
	}
	fmt.Println("losses by location:", lost, "alerts:", slices.Sorted(maps.Keys(c.alerts)))
	fmt.Println("packets that the switch dropped:", happened)
	expect(len(c.flows) > 0, "no flow of h1 was published")
	expect(happened["s1"] > 0, "the queue dropped nothing, so nothing was tested")
	// The probes of leases wait in the same queues. They are in no result, and 16 a second at most.
	probes := int64(0)
	for element, n := range happened {
		probes += n - lost[element]
		expect(lost[element] <= n, "%d losses at %s, %d dropped", lost[element], element, n)
	}
	expect(probes <= 16*(last+settled-first), "losses by location %v, dropped %v", lost, happened)
	// Acknowledgments take the other direction, and are another flow.
	expect(ofFlow == lost["s1"]+lost[links["h1-sw"]], "the flow lost %d packets, its elements %v", ofFlow, lost)
	want, got := map[string]bool{}, map[string]bool{}
	for element := range lost {
		want["netsketch-results:PACKETS_LOST "+element] = true
	}
	for a := range c.alerts {
		if strings.Contains(a, "PACKETS_LOST") || strings.Contains(a, "BLACKHOLE") {
			got[a] = true
		}
	}
	expect(maps.Equal(got, want), "alerts %v, want %v", got, want)
	return errors.Join(wrong...)
}

// kill ends the agent of a host by SIGKILL and starts it again, as a service manager does.
func (c *check) kill(host string) error {
	if err := netns.Kill(c.run, host); err != nil {
		return err
	}
	return netns.Start(c.netsketch, c.run, host)
}
