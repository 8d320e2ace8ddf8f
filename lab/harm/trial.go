// SPDX-License-Identifier: Apache-2.0

//go:build linux

// One case: traffic, a failure, its end, and the account.

package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/netsketch/netsketch/lab/evidence"
	"github.com/netsketch/netsketch/lab/programs"
)

// lease is the longest time for which a host goes on tagging packets to a host that is gone.
const lease = 3 * time.Second

// stillness bounds the time without progress of TCP: a lease, as long again until a retransmission
// that has backed off, and some seconds for a busy machine.
const stillness = 2*lease + 4*time.Second

// scenario is a case.
type scenario struct {
	name, what string
	quick      bool // whether CI runs the case
	settings   settings
	// before runs before programs start.
	before func(*trial) error
	// untagged: no packet may have a carrier before the failure.
	untagged bool
	// fail causes the failure; heal ends it. Either may be nil.
	fail, heal func(*trial) error
	// hold is the time between fail and heal, 6 s if 0.
	hold time.Duration
	// to are the hosts to which packets in flight at the failure may be lost, for as long as a lease.
	to []string
	// silent are the hosts to which no packet may have a carrier once a lease has passed since the
	// failure.
	silent []string
	// ahead is how many epochs a host may be ahead of the clock, 1 if 0.
	ahead int
	// inexact: the results need not be exact after the failure.
	inexact bool
	// after is a further check, at the end.
	after func(*trial) error
}

// trial is a run of a case.
type trial struct {
	scenario
	world    *world
	traffic  *traffic
	results  *results
	sniffers map[string]*sniffer
	streams  []*stream // streams of the hosts with agents
	controls []*stream // the same streams of the control pair, in the same order
	proofs   []*stream

	failed, healed time.Time
	row            row
}

// row is a line of the table.
type row struct {
	Name, Carrier         string
	Count, Control        countJSON
	Bound                 int
	Before, During, After int // packets with a carrier, of h1 and h2
	Ahead, Unread         int
	Stopped               time.Duration // time from the failure to the last packet with a carrier to a silent host
	TCP                   string
	Proof                 string
	Wrong                 []string
	Took                  time.Duration
}

type countJSON struct{ Sent, Lost, Outage int }

func (r row) verdict() string {
	if len(r.Wrong) == 0 {
		return "pass"
	}
	return "FAIL: " + strings.Join(r.Wrong, "; ")
}

func (t *trial) wrong(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	log.Print("WRONG: ", text)
	t.row.Wrong = append(t.row.Wrong, text)
}

// ways are the streams of hosts with agents: a name that begins with the IP version, the hosts, and
// the bytes of the IP packets. 1394 bytes fit a path of 1400 only without a carrier.
var ways = []struct {
	name, from, to string
	size           int
}{
	{"4 small", "h1", "h2", 100}, {"4 small", "h2", "h1", 100}, {"4 large", "h1", "h2", 1200},
	{"4 large", "h2", "h1", 1200}, {"4 nearly", "h1", "h2", 1394}, {"4 nearly", "h2", "h1", 1394},
	{"4 full", "h1", "h2", 1500}, {"4 full", "h2", "h1", 1500}, {"6 small", "h1", "h2", 100},
	{"6 small", "h2", "h1", 100}, {"6 full", "h1", "h2", 1500}, {"6 full", "h2", "h1", 1500},
	{"4 to a host without agent", "h1", "c2", 100}, {"4 from a host without agent", "c1", "h2", 100},
	{"4ping", "h1", "h2", 84},
}

// control is the host without an agent that is at the same place.
var control = map[string]string{"h1": "c1", "h2": "c2", "c1": "c1", "c2": "c2"}

// run runs the case in this process.
func (s scenario) run(dir string, o options) (row, error) {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	if err := isolate(dir); err != nil {
		return row{}, err
	}
	w := &world{dir: dir, bin: o.bin, settings: s.settings, epoch: o.epoch, running: map[string]*programs.Program{}}
	switch o.carrier {
	case "":
	case "plain":
		w.settings.carrier, w.settings.bridged = "", true
	default:
		w.settings.carrier = o.carrier
	}
	t := &trial{scenario: s, world: w, traffic: newTraffic(), sniffers: map[string]*sniffer{}}
	t.row = row{Name: s.name, Carrier: w.settings.carrier}
	if err := t.play(); err != nil {
		t.wrong("%v", err)
	}
	return t.row, nil
}

// play brings the network up, breaks it, and accounts for the packets.
func (t *trial) play() error {
	if err := t.begin(); err != nil {
		return fmt.Errorf("before the failure: %w", err)
	}
	if err := t.breaks(); err != nil {
		t.wrong("%v", err)
	}
	if _, wrong := t.recover(); wrong != "" {
		t.wrong("%s", wrong)
	}
	if t.scenario.after != nil {
		if err := t.scenario.after(t); err != nil {
			t.wrong("%v", err)
		}
	}
	if err := t.world.ended(); err != nil {
		t.wrong("%v", err)
	}
	log.Print("the traffic ends")
	t.traffic.end()
	t.account()
	return nil
}

// begin starts everything. Traffic runs before the agents start.
func (t *trial) begin() error {
	w := t.world
	if t.row.Carrier == "" {
		t.row.Carrier = "shim"
	}
	w.settings.plain = append(w.settings.plain, "c1", "c2")
	if err := errors.Join(w.build(), w.configure()); err != nil {
		return err
	}
	if t.before != nil {
		if err := t.before(t); err != nil {
			return err
		}
	}
	if err := errors.Join(w.startSwitch("s1"), w.startSwitch("s2"), w.startCollector()); err != nil {
		return err
	}
	for _, h := range hosts {
		if err := t.traffic.listen(h.name); err != nil {
			return err
		}
	}
	for _, h := range []string{"h1", "h2"} {
		s, err := sniff(h+"-sw", w.epoch)
		if err != nil {
			return err
		}
		t.sniffers[h] = s
	}
	if err := t.awaitRoutes(); err != nil {
		return err
	}
	log.Print("switches forward; traffic begins")
	t.results = follow()
	for _, way := range ways {
		s, err := t.traffic.open(way.name, way.from, way.to, way.size)
		if err != nil {
			return err
		}
		c, err := t.traffic.open(way.name, control[way.from], control[way.to], way.size)
		if err != nil {
			return err
		}
		t.streams, t.controls = append(t.streams, s), append(t.controls, c)
		t.traffic.start(s, 0)
		t.traffic.start(c, 0)
	}
	for _, x := range []*transfer{{from: "h1", to: "h2"}, {from: "h2", to: "h1", six: true}, {from: "c1", to: "c2"},
		{from: "c2", to: "c1", six: true}} {
		t.traffic.startTCP(x)
	}
	time.Sleep(time.Second) // a second of traffic without agents
	for _, h := range []string{"h1", "h2"} {
		if !slices.Contains(w.settings.late, h) {
			if err := w.startAgent(h); err != nil {
				return err
			}
		}
	}
	log.Print("agents are started")
	if err := t.await("results of the collector", func() bool { return t.results.last() > 0 }); err != nil {
		return err
	}
	without := t.untagged || len(w.settings.late) > 0
	if without || t.inexact {
		// Agents that will never tag packets cannot be recognized, so wait some epochs more than
		// leases take to begin.
		if err := t.epochs(8); err != nil || without {
			return err
		}
	} else if took, wrong := t.prove(10); wrong != "" {
		return fmt.Errorf("results are not exact: %s", wrong)
	} else {
		log.Printf("results are exact, in trial %d", took)
	}
	err := t.await("packets with a carrier in both directions", func() bool {
		begin := time.Time{}
		now := time.Now()
		return t.sniffers["h1"].taggedTo("h2", begin, now) > 0 && t.sniffers["h2"].taggedTo("h1", begin, now) > 0
	})
	log.Print("packets have a carrier in both directions")
	return err
}

// epochs waits until n epochs have been published, or their time has passed.
func (t *trial) epochs(n int64) error {
	last := t.results.last()
	if last == 0 {
		if err := t.await("results", func() bool { return t.results.last() > 0 }); err != nil {
			return err
		}
		last = t.results.last()
	}
	return t.await("epochs", func() bool { return t.results.last() >= last+n })
}

// await waits for a condition.
func (t *trial) await(what string, ok func() bool) error {
	for end := time.Now().Add(programs.Patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("not within %v: %s", programs.Patience, what)
		}
	}
	return nil
}

// awaitRoutes waits until a packet of each family has crossed the network in both directions.
func (t *trial) awaitRoutes() error {
	var first []*stream
	for _, way := range [][3]string{{"4 first", "c1", "c2"}, {"4 first", "c2", "c1"}, {"6 first", "c1", "c2"},
		{"6 first", "c2", "c1"}, {"4 first", "h1", "h2"}, {"4 first", "h2", "h1"}, {"6 first", "h1", "h2"},
		{"6 first", "h2", "h1"}} {
		s, err := t.traffic.open(way[0], way[1], way[2], 100)
		if err != nil {
			return err
		}
		first = append(first, s)
	}
	return t.await("the switches forward", func() bool {
		arrived := 0
		for _, s := range first {
			s.send()
			s.mu.Lock()
			if slices.Max(s.arrived) > 0 {
				arrived++
			}
			s.mu.Unlock()
		}
		time.Sleep(50 * time.Millisecond)
		return arrived == len(first)
	})
}

// breaks runs the failure and its end.
func (t *trial) breaks() error {
	t.failed = time.Now()
	if t.fail != nil {
		log.Print("the failure begins")
		if err := t.fail(t); err != nil {
			return fmt.Errorf("failure: %w", err)
		}
		log.Print("the failure is complete")
	}
	hold := t.hold
	if hold == 0 {
		hold = 2 * lease
	}
	time.Sleep(hold)
	t.healed = time.Now()
	if t.heal == nil {
		return nil
	}
	log.Print("the failure ends")
	if err := t.heal(t); err != nil {
		return fmt.Errorf("end of the failure: %w", err)
	}
	return nil
}

// recover waits until results are exact again.
func (t *trial) recover() (int, string) {
	tries := 10
	if t.inexact {
		return 0, ""
	}
	took, wrong := t.prove(tries)
	if wrong != "" {
		return took, fmt.Sprintf("results are not exact again after %d trials: %s", tries, wrong)
	}
	log.Printf("results are exact again, in trial %d", took)
	t.row.Proof = fmt.Sprintf("exact in trial %d", took)
	return took, ""
}

// account fills the row with counts of packets and connections.
func (t *trial) account() {
	// Packets that switches could not read in time, for lack of processor time, are not telemetry's
	// loss.
	unread, err := t.world.unread()
	if err != nil {
		t.wrong("%v", err)
	}
	t.row.Unread = unread
	var all, controls count
	above, worst := 0, 0 // number of streams above their bound, and the largest loss
	var lostAt []time.Time
	for i, s := range t.streams {
		c, at := s.account(t.controls[i])
		all.add(c)
		lostAt = append(lostAt, at...)
		without, controlAt := t.controls[i].account(nil)
		controls.add(without)
		bound := 0
		if slices.Contains(t.to, s.to) || s.ping && len(t.to) > 0 {
			bound = packetRate * int(lease/time.Second)
		}
		t.row.Bound += bound
		if c.lost > bound+unread {
			above, worst = above+1, max(worst, c.lost)
		}
		log.Printf("%s from %s to %s: %+v%s; the control pair: %+v%s", s.name, s.from, s.to, c, clocks(at), without,
			clocks(controlAt))
	}
	if above > 0 {
		t.wrong("%d of %d streams lost more packets because of telemetry than they may, the worst %d", above,
			len(t.streams), worst)
	}
	for _, s := range t.proofs {
		c, at := s.account(nil)
		all.add(c)
		lostAt = append(lostAt, at...)
	}
	slices.SortFunc(lostAt, time.Time.Compare)
	if len(lostAt) > 0 {
		log.Printf("packets lost by telemetry: the first %v, the last %v after the failure; first at %v",
			lostAt[0].Sub(t.failed).Round(time.Millisecond), lostAt[len(lostAt)-1].Sub(t.failed).Round(time.Millisecond),
			lostAt[0].Format("15:04:05.000"))
	}
	t.row.Count = countJSON{all.sent, all.lost, all.outage}
	t.row.Control = countJSON{controls.sent, controls.lost, 0}
	if all.damaged+all.copies > 0 {
		t.wrong("%d packets damaged, %d copies", all.damaged, all.copies)
	}
	t.accountCarriers()
	t.accountTCP()
}

// accountCarriers counts the packets with a carrier before, during and after the failure.
func (t *trial) accountCarriers() {
	begin, end := time.Time{}, time.Now()
	quiet := t.failed.Add(lease + 500*time.Millisecond)
	for from, s := range t.sniffers {
		to := map[string]string{"h1": "h2", "h2": "h1"}[from]
		t.row.Before += s.taggedTo(to, begin, t.failed)
		t.row.During += s.taggedTo(to, quiet, t.healed)
		t.row.After += s.taggedTo(to, t.healed, end)
		if n := s.taggedTo("c2", begin, end); n > 0 {
			t.wrong("%d packets with a carrier to c2, which has no agent", n)
		}
		if n := s.taggedTo(to, quiet, t.healed); n > 0 && slices.Contains(t.silent, to) {
			t.wrong("%d packets with a carrier to %s, more than %v after the failure", n, to, quiet.Sub(t.failed))
		}
		s.mu.Lock()
		t.row.Ahead = max(t.row.Ahead, s.ahead)
		for carrier := range s.carriers {
			if carrier != t.row.Carrier {
				t.wrong("%d packets of %s have the carrier %s", s.carriers[carrier], from, carrier)
			}
		}
		for _, e := range s.tagged {
			if slices.Contains(t.silent, e.to) && e.at.After(t.failed) && e.at.Before(t.healed) {
				t.row.Stopped = max(t.row.Stopped, e.at.Sub(t.failed))
			}
		}
		s.mu.Unlock()
	}
	// The next epoch may begin at one host while a packet of the other is on the way.
	if most := max(1, t.ahead); t.row.Ahead > most {
		t.wrong("a host was %d epochs ahead of the clock, at most %d may be", t.row.Ahead, most)
	}
	if (t.untagged || len(t.settings.late) > 0) && t.row.Before > 0 {
		t.wrong("%d packets with a carrier before the failure, without a right to it", t.row.Before)
	}
	if !t.untagged && t.row.After == 0 && !t.inexact {
		t.wrong("no packet with a carrier at the end")
	}
}

// accountTCP records how much the connections transferred, and how long they stood still.
func (t *trial) accountTCP() {
	for i, x := range t.traffic.tcp {
		x.mu.Lock()
		if x.stall > stillness {
			t.wrong("TCP from %s to %s stood still for %v", x.from, x.to, x.stall.Round(time.Second))
		}
		for _, err := range x.errs {
			t.wrong("TCP: %v", err)
		}
		log.Printf("TCP from %s to %s: %d bytes, at most %v for %d, %d short connections, the slowest %v", x.from, x.to,
			x.bytes, x.stall.Round(time.Millisecond), blockSize, x.short, x.slowest.Round(time.Millisecond))
		if i < 2 {
			t.row.TCP += fmt.Sprintf("%.1f MB +%d, %v; ", float64(x.bytes)/1e6, x.short,
				max(x.stall, x.slowest).Round(10*time.Millisecond))
		} else {
			t.row.TCP += fmt.Sprintf("(%v) ", max(x.stall, x.slowest).Round(10*time.Millisecond))
		}
		x.mu.Unlock()
	}
}

// clocks is the first few of some times, for the log.
func clocks(times []time.Time) string {
	text := ""
	for i, at := range times {
		if i == 5 {
			return text + " ..."
		}
		text += at.Format(" 15:04:05.000")
	}
	return text
}

// printTable prints all rows, below the state of the machine when the run began and ended.
func printTable(out io.Writer, began string, rows []row) {
	fmt.Fprintf(out, "%s at the begin, %.2f at the end\n", began, evidence.Load())
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "case\tcarrier\tsent\tlost\tbound\tunread\tcontrol lost\ttagged before\tafter lease\t"+
		"at the end\tlast tag\t"+
		"TCP (control)\tresults\ttime\tverdict")
	for _, r := range rows {
		stopped := "-"
		if r.Stopped > 0 {
			stopped = fmt.Sprintf("%.1fs", r.Stopped.Seconds())
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d of %d\t%d\t%d\t%d\t%s\t%s\t%s\t%v\t%s\n", r.Name, r.Carrier, r.Count.Sent,
			r.Count.Lost, r.Bound, r.Unread, r.Control.Lost, r.Control.Sent, r.Before, r.During, r.After, stopped, r.TCP,
			r.Proof, r.Took,
			r.verdict())
	}
	w.Flush()
}

// exactTCP checks that all packets of new connections had room for a carrier, so that their rows
// are exact.
func exactTCP(t *trial) error { return t.results.exactTCP() }

// signal ends agents of hosts by a signal.
func (t *trial) signal(s syscall.Signal, names ...string) error {
	for _, name := range names {
		if err := t.world.end(name, s); err != nil {
			return err
		}
	}
	return nil
}
