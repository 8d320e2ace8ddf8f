// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The model check runs three members with sessions to switches through all orders of what can
// happen: views that arrive, sessions that bid, epochs that end and messages that arrive, together
// with a few faults (faults). The members are Devices, the bids are Bid's.
//
// A switch obeys the highest election id, as P4Runtime has it. Messages between members are lost
// while one of them is cut off. A member's lease is renewed with each view and each epoch.

// The owner of a switch does not depend on other switches; runs with two switches check this. The
// longest of them, with a cut, a kill and a late view, runs only with -full.
var full = flag.Bool("full", false, "run the longest model check, too")

const members = 3

// names are the members; -1 is none.
var names = []string{"c1", "c2", "c3"}

func nameOf(m int8) string {
	if m < 0 {
		return ""
	}
	return names[m]
}

func indexOf(name string) int8 { return int8(slices.Index(names, name)) }

// preference is the order in which rendezvous hashing prefers members, for each switch.
var preference = [][members]int8{{0, 1, 2}, {1, 2, 0}}

// faults are the numbers of faults of each kind that may still happen in a run.
type faults struct{ cuts, kills, starts, lates, losses uint8 }

// process is the state of a member, apart from its devices.
type process struct {
	alive, cut, leased bool
	view               uint8 // the present members of its newest view, as a set
	fence              uint8
}

// link is a member's session with a switch.
type link struct {
	open, yields bool
	fence, bid   uint8 // fence of its lease when the session was opened; fence of its newest bid
}

// seat is the relation of one member to one switch.
type seat struct {
	state        State
	holder, next int8
	epochs       uint8
	stale        bool
}

// offer is a member's offer of a switch to another member. answered says that the other member has
// accepted it.
type offer struct {
	to       int8 // the other member; -1: the member offers nothing
	answered bool
}

// network is a switch with the sessions of all members.
type network struct {
	seats   [members]seat
	links   [members]link
	offers  [members]offer // indexed by the member that offers the device
	primary int8
	highest uint8 // the highest fence that was bid
	last    int8  // the newest primary
	shared  bool  // two members were primaries with one election id
	hasty   bool  // a member has outbid another one that could have handed the switch over
}

// world is a state of the model.
type world struct {
	left     faults
	members  [members]process
	before   uint8 // the set of present members before the newest change
	switches [2]network
}

// kind is a kind of step. A fault may never happen; any other step happens eventually.
type kind uint8

const (
	soon kind = iota
	epochEnd
	fault
)

// step is what happens next.
type step struct {
	what string
	kind kind
	next world
}

func (w *world) present() (set uint8) {
	for m, p := range w.members {
		if p.alive && !p.cut {
			set |= 1 << m
		}
	}
	return set
}

// first returns the preferred member of a set; -1 if it is empty.
func first(s int, set uint8) int8 {
	for _, m := range preference[s] {
		if set&(1<<m) != 0 {
			return m
		}
	}
	return -1
}

func (w *world) viewOf(m, s int) View {
	p := w.members[m]
	v := View{Self: names[m], Leased: p.leased, Owner: nameOf(first(s, p.view)), Before: nameOf(first(s, p.view&^(1<<m)))}
	for i, name := range names {
		if p.view&(1<<i) != 0 {
			v.Present = append(v.Present, name)
		}
	}
	return v
}

func (n *network) device(m int) Device {
	s := n.seats[m]
	return Device{State: s.state, Holder: nameOf(s.holder), Next: nameOf(s.next), Epochs: int(s.epochs),
		Stale: s.stale}
}

// election returns the id of a fence.
func election(fence uint8) ElectionID {
	if fence == 0 {
		return ElectionID{}
	}
	return ElectionID{High: fenceOf(fence), Low: 1}
}

func fenceOf(fence uint8) uint64 { return 7<<32 | uint64(fence) }

// renew gives a member a lease that is newer than all others.
func (w *world) renew(m int) {
	highest := uint8(0)
	for _, p := range w.members {
		highest = max(highest, p.fence)
	}
	for _, n := range w.switches {
		highest = max(highest, n.highest)
		for _, l := range n.links {
			highest = max(highest, l.fence, l.bid)
		}
	}
	w.members[m].fence = highest + 1
}

// canonical numbers the fences from 1 without gaps, which keeps their order.
func (w world) canonical() world {
	var all [1 + members + 2*(1+2*members)]*uint8
	fences := all[:0]
	for m := range w.members {
		if !w.switches[0].links[m].open && !w.switches[1].links[m].open {
			w.members[m].fence = 0 // a member renews its lease before it opens a session
		}
		fences = append(fences, &w.members[m].fence)
	}
	for s := range w.switches {
		n := &w.switches[s]
		fences = append(fences, &n.highest)
		for m := range n.links {
			fences = append(fences, &n.links[m].fence, &n.links[m].bid)
		}
	}
	var used [256]bool
	for _, f := range fences {
		used[*f] = true
	}
	var number [256]uint8
	next := uint8(0)
	for f := 1; f < 256; f++ {
		if used[f] {
			next++
			number[f] = next
		}
	}
	for _, f := range fences {
		*f = number[*f]
	}
	return w
}

// follow carries out a decision as package network does.
func (w *world) follow(m, s int, d Device, do Action) {
	n := &w.switches[s]
	n.seats[m] = seat{d.State, indexOf(d.Holder), indexOf(d.Next), uint8(d.Epochs), d.Stale}
	if do.Has(Open | OpenBackup | Close) {
		if n.primary == int8(m) {
			n.primary = -1
		}
		n.links[m] = link{}
	}
	if do.Has(Open | OpenBackup) {
		n.links[m] = link{open: true, yields: do.Has(OpenBackup), fence: w.members[m].fence, bid: w.members[m].fence}
	}
	if do.Has(Offer) {
		n.offers[m] = offer{to: indexOf(d.Next)}
	}
}

// tryBid lets a session bid, and reports whether it becomes the primary.
func (w *world) tryBid(m, s int) bool {
	n := &w.switches[s]
	l := &n.links[m]
	vacant := n.primary < 0
	if !l.open || n.primary == int8(m) || l.yields && !vacant {
		return false
	}
	fence := l.fence
	if vacant {
		fence = w.members[m].fence
	}
	id, ok := Bid(fenceOf(fence), 1, election(n.highest), vacant)
	if !ok || id.Compare(election(n.highest)) < 0 {
		return false
	}
	n.shared = id == election(n.highest) && n.last != int8(m)
	l.bid, l.yields = uint8(id.High), false
	n.highest, n.primary, n.last = l.bid, int8(m), int8(m)
	return true
}

func (w *world) session(m, s int) Session {
	n := &w.switches[s]
	l := n.links[m]
	return Session{Primary: l.open && n.primary == int8(m), Deposed: l.open && n.primary != int8(m) &&
		Deposes(election(n.highest), election(l.bid), fenceOf(w.members[m].fence))}
}

// reset ends the process of a member.
func (w *world) reset(m int) {
	w.members[m] = process{}
	for s := range w.switches {
		n := &w.switches[s]
		if n.primary == int8(m) {
			n.primary = -1
		}
		n.seats[m], n.links[m], n.offers[m] = seat{holder: -1, next: -1}, link{}, offer{to: -1}
	}
}

// steps returns everything that can happen next, with some switches.
func (w world) steps(switches int) (all []step) {
	add := func(k kind, f func(*world), what string, about ...any) {
		next := w
		f(&next)
		if next = next.canonical(); next != w {
			all = append(all, step{fmt.Sprintf(what, about...), k, next})
		}
	}
	for m, p := range w.members {
		w.memberSteps(m, p, switches, add)
		for s := range switches {
			w.deviceSteps(m, s, add)
		}
	}
	return all
}

type adder = func(k kind, f func(*world), what string, about ...any)

// memberSteps adds the faults of a member, and the views that it receives.
func (w world) memberSteps(m int, p process, switches int, add adder) {
	name, present := names[m], w.present()
	view := func(next *world, set uint8, leased bool) {
		if leased {
			next.renew(m)
		}
		next.members[m].leased = leased
		if leased {
			next.members[m].view = set
		}
		for s := range switches {
			n := &next.switches[s]
			was := n.device(m)
			d, do := was.View(next.viewOf(m, s), n.primary == int8(m))
			// the member may not know that the holder was killed and that another member took the
			// switch
			n.hasty = do.Has(Open) && n.primary >= 0 && n.primary != int8(m) && set&(1<<n.primary) != 0 &&
				(was.Stale || was.Holder == "" || was.Holder == nameOf(n.primary))
			next.follow(m, s, d, do)
		}
	}
	changes := func(next *world) { next.before = present }
	switch {
	case !p.alive:
		if w.left.starts > 0 {
			add(fault, func(next *world) { changes(next); next.left.starts--; next.members[m].alive = true }, "%s starts", name)
		}
		return
	case p.cut:
		add(fault, func(next *world) { changes(next); next.members[m].cut = false }, "%s is back", name)
		if p.leased {
			add(soon, func(next *world) { view(next, 0, false) }, "%s loses its lease", name)
		}
	case !p.leased || p.view != present:
		add(soon, func(next *world) { view(next, present, true) }, "%s has view %03b", name, present)
	case w.left.lates > 0 && w.before != present && w.before&(1<<m) != 0:
		add(fault, func(next *world) { next.left.lates--; view(next, w.before, true) }, "%s has the older view %03b", name,
			w.before)
	}
	if w.left.cuts > 0 && !p.cut {
		add(fault, func(next *world) { changes(next); next.left.cuts--; next.members[m].cut = true }, "%s is cut off", name)
	}
	if w.left.kills > 0 {
		add(fault, func(next *world) { changes(next); next.left.kills--; next.reset(m) }, "%s is killed", name)
	}
}

// deviceSteps adds what happens between a member and a switch.
func (w world) deviceSteps(m, s int, add adder) {
	n := &w.switches[s]
	p, d, name := w.members[m], n.device(m), fmt.Sprintf("s%d at %s", s+1, names[m])
	if n.links[m].open {
		add(soon, func(next *world) { next.tryBid(m, s) }, "%s is elected", name)
		if n.primary != int8(m) && n.highest > p.fence && p.alive && !p.cut {
			add(soon, func(next *world) { next.renew(m) }, "%s renews its lease", names[m])
		}
		observed, do := d.Session(w.session(m, s), w.viewOf(m, s))
		add(soon, func(next *world) { next.follow(m, s, observed, do) }, "%s observes its session: %v", name, observed.State)
	}
	if patience[d.State] > 0 && p.leased && !p.cut {
		for _, free := range []bool{true, false} {
			if !free && d.State != Leaving {
				continue
			}
			add(epochEnd, func(next *world) {
				next.switches[s].offers[m] = offer{to: -1} // earlier offers have timed out
				if n.highest > p.fence {
					next.renew(m)
				}
				after, do := d.Epoch(free)
				next.follow(m, s, after, do)
			}, "%s has read an epoch, can hand over: %v", name, free)
		}
	}
	o := n.offers[m]
	if o.to < 0 {
		return
	}
	lost := p.cut || !w.members[o.to].alive || w.members[o.to].cut
	switch {
	case lost:
		add(soon, func(next *world) { next.switches[s].offers[m] = offer{to: -1} }, "the offer of %s is lost", name)
	case !o.answered:
		add(soon, func(next *world) {
			t := int(o.to)
			session := w.session(t, s)
			after, do := n.device(t).Offered(names[m], session, n.links[t].open && n.highest <= w.members[t].fence)
			next.follow(t, s, after, do)
			next.switches[s].offers[m] = offer{to: -1}
			if do.Has(Accept) {
				next.switches[s].offers[m] = offer{o.to, true}
			}
		}, "the offer of %s arrives", name)
	default:
		add(soon, func(next *world) {
			next.switches[s].offers[m] = offer{to: -1}
			after, do := d.Accepted(nameOf(o.to))
			next.follow(m, s, after, do)
		}, "the answer to %s arrives", name)
		if w.left.losses > 0 {
			add(fault, func(next *world) { next.left.losses--; next.switches[s].offers[m] = offer{to: -1} },
				"the answer to %s is lost", name)
		}
	}
}

// acts reports whether a member writes entries to a switch.
func (w *world) acts(m, s int) bool {
	n := &w.switches[s]
	return n.primary == int8(m) && !n.device(m).Foreign()
}

// wrong returns the property that a world violates; "" if it violates none.
func (w *world) wrong(switches int) string {
	for s := range switches {
		n := &w.switches[s]
		if n.shared {
			return fmt.Sprintf("%s is the primary of s%d with the election id of another member", nameOf(n.primary), s+1)
		}
		for m := range members {
			switch l := n.links[m]; {
			case l.open == (n.seats[m].state == Elsewhere):
				return fmt.Sprintf("%s is %v at s%d, and has a session: %v", names[m], n.seats[m].state, s+1, l.open)
			case w.acts(m, s) && l.bid != n.highest:
				return fmt.Sprintf("%s writes to s%d with an id below the highest", names[m], s+1)
			}
		}
		if n.hasty {
			return fmt.Sprintf("a member bids for s%d, which %s could hand over", s+1, nameOf(n.primary))
		}
	}
	return ""
}

// informed reports whether all members have the newest view, which then stays the newest until the
// next fault.
func (w *world) informed() bool {
	for _, p := range w.members {
		if p.alive && (p.cut == p.leased || !p.cut && p.view != w.present()) {
			return false
		}
	}
	return true
}

// waits names the members that wait forever, in a world in which nothing happens any more.
func (w *world) waits(switches int) string {
	present := w.present()
	for s := range switches {
		n := &w.switches[s]
		owner := first(s, present)
		if owner < 0 {
			continue
		}
		if n.primary != owner || n.seats[owner].state != Owner {
			return fmt.Sprintf("%s is to own s%d, and is %v; the primary is %q", names[owner], s+1, n.seats[owner].state,
				nameOf(n.primary))
		}
		for m := range members {
			if int8(m) != owner && present&(1<<m) != 0 && n.seats[m].state != Elsewhere {
				return fmt.Sprintf("%s is %v at s%d of %s", names[m], n.seats[m].state, s+1, names[owner])
			}
		}
	}
	return ""
}

// search is a search of all worlds.
type search struct {
	t        *testing.T
	switches int
	number   map[world]int32
	worlds   []world
	came     []int32          // by world: the number of the world before it
	by       []string         // by world: the step that led to it from the world before
	after    [fault][][]int32 // by the kind of the step, and by world: the worlds that follow it
}

func (x *search) add(w world, from int32, by string) int32 {
	if i, ok := x.number[w]; ok {
		return i
	}
	i := int32(len(x.worlds))
	x.number[w] = i
	x.worlds, x.came, x.by = append(x.worlds, w), append(x.came, from), append(x.by, by)
	for k := range x.after {
		x.after[k] = append(x.after[k], nil)
	}
	return i
}

// path describes how a world is reached.
func (x *search) path(i int32) string {
	var steps []string
	for ; i >= 0; i = x.came[i] {
		w := x.worlds[i]
		text := x.by[i] + "\n\t\t"
		for s := range x.switches {
			n := w.switches[s]
			for m := range members {
				text += fmt.Sprintf("%v(%v>%v,%d) ", n.seats[m].state, n.seats[m].holder, n.seats[m].next, n.seats[m].epochs)
			}
			text += fmt.Sprintf("primary %q links %v; ", nameOf(n.primary), n.links)
		}
		steps = append(steps, text)
	}
	slices.Reverse(steps)
	return strings.Join(steps, "\n\t")
}

func (x *search) run(start world) {
	x.add(start, -1, "start")
	for i := int32(0); int(i) < len(x.worlds); i++ {
		w := x.worlds[i]
		for _, st := range w.steps(x.switches) {
			before := len(x.worlds)
			j := x.add(st.next, i, st.what)
			if st.kind != fault {
				x.after[st.kind][i] = append(x.after[st.kind][i], j)
			}
			if len(x.worlds) > before {
				if wrong := st.next.wrong(x.switches); wrong != "" {
					x.t.Fatalf("%s:\n\t%s", wrong, x.path(j))
				}
			}
		}
		if len(x.after[soon][i])+len(x.after[epochEnd][i]) == 0 {
			if waits := w.waits(x.switches); waits != "" {
				x.t.Fatalf("%s:\n\t%s", waits, x.path(i))
			}
		}
	}
}

// circle fails if members can outbid each other, or hand a device back and forth, without an end.
// It checks cycles of steps without the end of an epoch, and cycles of all steps when all members
// have the newest view. Members whose views differ may outbid each other, but only after some
// epochs.
func (x *search) circle(informed bool) {
	const open, done = 1, 2
	next := func(i int32) []int32 {
		if informed {
			return slices.Concat(x.after[soon][i], x.after[epochEnd][i])
		}
		return x.after[soon][i]
	}
	mark := make([]uint8, len(x.worlds))
	type frame struct {
		i    int32
		next []int32
	}
	for start := range x.worlds {
		if mark[start] != 0 || informed && !x.worlds[start].informed() {
			continue
		}
		stack := []frame{{int32(start), next(int32(start))}}
		mark[start] = open
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if len(top.next) == 0 {
				mark[top.i] = done
				stack = stack[:len(stack)-1]
				continue
			}
			j := top.next[0]
			top.next = top.next[1:]
			switch mark[j] {
			case 0:
				mark[j] = open
				stack = append(stack, frame{j, next(j)})
			case open:
				var steps []string
				for _, f := range stack {
					if f.i == j || len(steps) > 0 {
						steps = append(steps, x.path(f.i)[strings.LastIndex(x.path(f.i), "\n\t\t")+3:])
					}
				}
				x.t.Fatalf("members go round without an end:\n\t%s\nafter:\n\t%s", strings.Join(steps, "\n\t"), x.path(j))
			}
		}
	}
}

// start returns the first world of a run, in which no member has a view. If settled is set, each
// switch has its owner instead, and no message is on its way. If absent is set, the first member is
// absent.
func start(left faults, settled, absent bool, switches int) world {
	w := world{}
	for m := range members {
		w.reset(m)
		w.members[m].alive = m > 0 || !absent
	}
	for s := range w.switches {
		w.switches[s].primary, w.switches[s].last = -1, -1
	}
	w.before = w.present()
	for settled {
		next := w.steps(switches)
		if len(next) == 0 {
			break
		}
		w = next[0].next
	}
	w.left = left
	return w
}

// In all possible orders of steps, no two members are primaries with one election id, no member
// outbids another one that could hand the switch over, no member waits forever, and members do not
// outbid each other without an end.
func TestModel(t *testing.T) {
	was := patience
	t.Cleanup(func() { patience = was })
	patience = [states]int{Standby: 2, Taking: 1, Leaving: 1, Outbid: 1}
	for _, c := range []struct {
		name     string
		switches int
		settled  bool // starts when each switch has its owner; otherwise no member has a view
		absent   bool // c1 is absent at the start
		left     faults
	}{
		{"start", 1, false, false, faults{cuts: 1, losses: 1}},
		{"kill and restart", 1, false, false, faults{kills: 1, starts: 1}},
		{"a member joins", 1, true, true, faults{starts: 1, cuts: 1, losses: 1}},
		{"cut, kill, late view, lost answer", 1, true, false, faults{cuts: 1, kills: 1, lates: 1, losses: 1}},
		{"two switches, cut and late view", 2, true, false, faults{cuts: 1, lates: 1}},
		{"two switches, cut, kill and late view", 2, true, false, faults{cuts: 1, kills: 1, lates: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.switches == 2 && c.left.kills > 0 && !*full {
				t.Skip("takes a minute: go test ./collector/cluster/ownership -run Model -args -full, or make evidence")
			}
			x := &search{t: t, switches: c.switches, number: map[world]int32{}}
			x.run(start(c.left, c.settled, c.absent, c.switches))
			x.circle(true)
			x.circle(false)
			t.Logf("%d worlds", len(x.worlds))
		})
	}
}
