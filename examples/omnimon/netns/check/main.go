// SPDX-License-Identifier: Apache-2.0

// Command check sends files over TCP from h1 to h2 of the example and compares OmniMon's results
// with what happened. It kills the agent of h1 during the second one. netns.sh starts it.
//
// What happened is known from the switch's own counters of packets that it dropped, which OmniMon
// does not read.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	server    = "10.0.2.1:8000"
	collector = "10.255.0.1:9339"
	device    = "10.255.0.1:9559"
	patience  = 2 * time.Minute
)

// links are the links of the hosts, by the interface of the switch.
var links = map[string]string{"h1-sw": "h1-s1:1", "h2-sw": "h2-s1:2"}

func main() {
	bin := flag.String("bin", "", "`directory` of netsketch")
	run := flag.String("run", "", "`directory` of netsketch's logs and process ids")
	size := flag.Int64("bytes", 16<<20, "`size` of the first file; the second one is half of it")
	flag.Parse()
	var err error
	switch flag.Arg(0) {
	case "receive":
		err = receive()
	case "send":
		err = send(*size)
	default:
		c := &check{netsketch: filepath.Join(*bin, "netsketch"), run: *run, epochs: map[int64]row{}, flows: map[int64]row{},
			losses: map[string]row{}, alerts: map[string]bool{}}
		err = c.all(*size)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(1)
	}
}

// receive prints a line when it listens, and the count of bytes of one connection.
func receive() error {
	l, err := net.Listen("tcp", server)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	c, err := l.Accept()
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, c)
	fmt.Println(n)
	return err
}

func send(size int64) error {
	c, err := net.Dial("tcp", server)
	if err != nil {
		return err
	}
	_, err = c.Write(make([]byte, size))
	return errors.Join(err, c.Close())
}

// row is the keys and values of a row of a list.
type row map[string]any

func (r row) text(name string) string {
	s, _ := r[name].(string)
	return s
}

// number returns an integer, which JSON may hold as text. A leaf that is missing or
// is no number ends the program: as 0 it could pass for a count.
func (r row) number(name string) int64 {
	switch v := r[name].(type) {
	case float64:
		return int64(v)
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("leaf %s: %v", name, err))
		}
		return n
	}
	panic(fmt.Sprintf("leaf %s: %v, want a number", name, r[name]))
}

func (r row) is(name string) bool {
	b, _ := r[name].(bool)
	return b
}

// check has what was published since the last reset, by epoch.
type check struct {
	netsketch, run string
	epochs, flows  map[int64]row
	losses         map[string]row
	alerts         map[string]bool
}

// query returns the rows of all lists below a path. Containers are in the list "".
func (c *check) query(path, address string) (map[string][]row, error) {
	cmd := exec.Command(c.netsketch, "query", path, "--json", "--plaintext", "--address", address)
	var message bytes.Buffer
	cmd.Stderr = &message
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("query %s: %w: %s", path, err, message.String())
	}
	var parts []struct {
		List string
		Rows []struct{ Keys, Values row }
	}
	if err := json.Unmarshal(out, &parts); err != nil {
		return nil, fmt.Errorf("query %s: %w", path, err)
	}
	lists := map[string][]row{}
	for _, p := range parts {
		for _, r := range p.Rows {
			all := row{}
			maps.Copy(all, r.Keys)
			maps.Copy(all, r.Values)
			lists[p.List] = append(lists[p.List], all)
		}
	}
	return lists, nil
}

// poll keeps the rows that are new and returns the newest epoch. Lists are replaced one by one.
func (c *check) poll() (newest int64, err error) {
	lists, err := c.query("/omnimon", collector)
	if err != nil {
		return 0, err
	}
	for _, r := range lists[""] { // leaves have the whole path as their name
		short := row{}
		for name, v := range r {
			short[path.Base(name)] = v
		}
		c.epochs[short.number("epoch")] = short
	}
	for _, r := range lists["/omnimon/flows/flow"] {
		if r.text("source") == "h1" {
			c.flows[r.number("epoch")] = r
		}
	}
	for _, r := range lists["/omnimon/losses/loss"] {
		c.losses[fmt.Sprint(r.number("epoch"), r.text("flow"), r.text("element"))] = r
	}
	for _, r := range lists["/omnimon/alerts/alert"] {
		if r.is("active") {
			c.alerts[r.text("kind")+" "+r.text("subject")] = true
		}
	}
	for epoch := range c.epochs {
		newest = max(newest, epoch)
	}
	return newest, nil
}

// wait polls until an epoch has been published.
func (c *check) wait(epoch int64) error {
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		newest, err := c.poll()
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
	lists, err := c.query("/interfaces/interface/state/counters", device)
	if err != nil {
		return nil, err
	}
	sum := map[string]int64{}
	for _, r := range lists["/interfaces/interface"] {
		sum["s1"] += r.number("counters/out-discards")
		sum[links[r.text("name")]] += r.number("counters/in-discards")
	}
	return sum, nil
}

// program starts this program in the namespace of a host.
func program(host string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("ip", append([]string{"netns", "exec", "nsk-" + host, self}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// transfer sends a file and returns how many bytes arrived. It calls during on the way.
func (c *check) transfer(size int64, during func() error) (received int64, err error) {
	to, err := program("h2", "receive")
	if err != nil {
		return 0, err
	}
	out, err := to.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := to.Start(); err != nil {
		return 0, err
	}
	defer func() { _ = to.Process.Kill() }() // fails after its end
	var ready string
	if _, err := fmt.Fscanln(out, &ready); err != nil {
		return 0, fmt.Errorf("the program in h2: %w", err)
	}
	from, err := program("h1", "-bytes", fmt.Sprint(size), "send")
	if err != nil {
		return 0, err
	}
	if err := from.Start(); err != nil {
		return 0, err
	}
	defer func() { _ = from.Process.Kill() }()
	done := make(chan error, 1)
	go func() {
		_, err := fmt.Fscanln(out, &received)
		done <- errors.Join(err, from.Wait(), to.Wait())
	}()
	for {
		select {
		case err := <-done:
			return received, err
		case <-time.After(200 * time.Millisecond):
			if _, err := c.poll(); err != nil {
				return 0, err
			}
			if err := during(); err != nil {
				return 0, err
			}
			during = func() error { return nil }
		}
	}
}

// all sends a file, and another one during which it kills the agent of h1. The maps in the kernel
// outlive the agent; without that, the epoch of the kill and the next would be inexact.
func (c *check) all(size int64) error {
	if err := c.sends(size, 0, func() error { return nil }); err != nil {
		return err
	}
	fmt.Println("killing the agent of h1 during the next transfer")
	if err := c.sends(size/2, 2, func() error { return c.kill("h1") }); err != nil {
		return fmt.Errorf("with the agent of h1 killed: %w", err)
	}
	fmt.Println("PASSED")
	return nil
}

// sends sends a file and compares the results of its epochs, of which some may be inexact.
func (c *check) sends(size int64, inexact int, during func() error) error {
	for _, m := range []map[int64]row{c.epochs, c.flows} {
		clear(m)
	}
	first, err := c.poll()
	if err != nil {
		return err
	}
	clear(c.losses)
	clear(c.alerts)
	before, err := c.dropped()
	if err != nil {
		return err
	}
	received, err := c.transfer(size, during)
	if err != nil {
		return err
	}
	last, err := c.poll()
	if err != nil {
		return err
	}
	last += 2 + int64(inexact) // the epoch of the end, and that of its delivery
	if err := c.wait(last); err != nil {
		return err
	}
	happened, err := c.dropped()
	if err != nil {
		return err
	}
	for element, n := range before {
		happened[element] -= n
	}
	maps.DeleteFunc(happened, func(_ string, n int64) bool { return n == 0 })
	fmt.Printf("h2 received %d bytes\n", received)
	if received != size {
		return fmt.Errorf("%d bytes sent, %d received", size, received)
	}
	return c.compare(first, last, inexact, happened)
}

// compare returns how the results of epochs differ from what happened. Inexact epochs are only
// counted: the last one must be exact, and losses add up without inexact epochs only.
func (c *check) compare(first, last int64, inexact int, happened map[string]int64) error {
	var wrong []error
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	found := 0
	for e := first + 1; e <= last; e++ {
		if r, ok := c.epochs[e]; !ok || !r.is("exact") {
			found++
			fmt.Printf("epoch %d was published: %v; problem: %v\n", e, ok, r["problem"])
			expect(e < last, "the last epoch is not exact")
		}
	}
	if expect(found <= inexact, "%d epochs are not exact, at most %d may be", found, inexact); found > 0 {
		return errors.Join(wrong...)
	}
	lost := map[string]int64{}
	for _, r := range c.losses {
		if r.number("epoch") > first {
			lost[r.text("element")] += r.number("lost-low")
			expect(r.is("determined"), "loss of flow %s at %s is not determined", r.text("flow"), r.text("element"))
		}
	}
	var ofFlow int64
	for _, e := range slices.Sorted(maps.Keys(c.flows)) {
		r := c.flows[e]
		if e <= first {
			continue
		}
		fmt.Printf("epoch %d: %s path %s: %d packets sent, %d lost\n", e, r.text("flow"), r.text("path"),
			r.number("packets"), r.number("lost-packets"))
		ofFlow += r.number("lost-packets")
		expect(r.text("path") == "s1", "path %q, want s1", r.text("path"))
	}
	fmt.Println("losses by element:", lost, "alerts:", slices.Sorted(maps.Keys(c.alerts)))
	fmt.Println("packets that the switch dropped:", happened)
	expect(len(c.flows) > 0, "no flow of h1 was published")
	expect(happened["s1"] > 0, "the queue dropped nothing, so nothing was tested")
	expect(maps.Equal(lost, happened), "losses by element %v, dropped %v", lost, happened)
	// Acknowledgments take the other direction, and are another flow.
	expect(ofFlow == happened["s1"]+happened[links["h1-sw"]], "the flow lost %d packets, dropped %v", ofFlow, happened)
	want := map[string]bool{}
	for element := range happened {
		kind := "link"
		if element == "s1" {
			kind = "switch"
		}
		want[kind+"-lossy "+element] = true
	}
	got := maps.Clone(c.alerts)
	maps.DeleteFunc(got, func(a string, _ bool) bool {
		return !strings.Contains(a, "lossy") && !strings.Contains(a, "dead")
	})
	expect(maps.Equal(got, want), "alerts %v, want %v", got, want)
	return errors.Join(wrong...)
}

// kill ends the agent of a host by SIGKILL and starts it again, as a service manager does.
func (c *check) kill(host string) error {
	pidFile := filepath.Join(c.run, host+".pid")
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	log, err := os.OpenFile(filepath.Join(c.run, host+".log"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("ip", "netns", "exec", "nsk-"+host, c.netsketch, "hostagent", "--config",
		filepath.Join(c.run, host+".yaml"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	return os.WriteFile(pidFile, []byte(fmt.Sprintln(cmd.Process.Pid)), 0o600)
}
