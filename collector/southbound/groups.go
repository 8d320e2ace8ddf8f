// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/yang"
)

// maxStreams bounds the open streams of one session.
const maxStreams = 32

// groups decides which subscriptions share a stream, and when an ended stream is opened again. It
// has no clock and no network: its caller passes events with their time, and opens and closes
// streams for it.
//
// All subscriptions begin in one group, because switches limit their streams. What happens to a
// group depends on its state and on the event:
//
//	asking   sync, or values for SyncTimeout    serving
//	asking   refused, several subscriptions     sorting
//	asking   refused although none is refused   two groups of half the size, queued
//	         alone
//	asking   a limit                            queued again for a while, because the switch may
//	                                            count streams that were closed just now
//	asking   a limit later, several             two groups of half the size, queued
//	         subscriptions
//	asking   refused, one subscription          asking in another mode, if there is one
//	asking   any other end                      waiting
//	sorting  a subscription is accepted alone   sorting the next one
//	sorting  a limit                            sorting the same one again after a while
//	sorting  a subscription is refused alone    it becomes a group, waiting; sorting the next one
//	sorting  no subscription is left            asking with the accepted ones
//	serving  ended soon, several subscriptions  two groups of half the size, waiting
//	serving  any other end, or silent           waiting
//	queued   no group is asking or sorting      asking
//	waiting  its time has come, and the same    asking
//
// Groups ask one after another in the order of their subscriptions, so that the first ones, which
// discovery needs, get the streams of a switch that limits them.
//
// A group waits longer after each failure; after a stream that has lasted, it begins with the
// shortest wait again. The session is lost if the connection breaks and with it the only open
// stream, or the only stream that serves.
type groups struct {
	all []*group
	// open opens a stream for some subscriptions of a group; shut closes one, after which it has no
	// further events.
	open func(g *group, parts []*part) *stream
	shut func(*stream)
	// rested, when a group begins to wait, receives the reason.
	rested func(g *group)

	lasting     time.Duration // a stream that has served for this long counts as lasting
	syncTimeout time.Duration // time limit of the state asking
	tryTimeout  time.Duration // time limit of one subscription in the state sorting
	newWait     func() *backoff.ExponentialBackOff

	lost     error // why the session is lost
	encoding error // the error with which the switch refused the encoding; nothing can be read in this encoding
}

type groupState string

const (
	queued  groupState = "queued"  // the group has no stream until its turn
	asking  groupState = "asking"  // the group's stream is open and has not synced
	sorting groupState = "sorting" // the group's subscriptions are tried one by one
	serving groupState = "serving" // the group's stream has synced
	waiting groupState = "waiting" // the group has no stream until due
)

// part is one subscription.
type part struct {
	Subscription
	// mode is the index in modes of the mode to subscribe with.
	mode int
}

// sampleInstead is the sampling interval for switches that refuse every mode but SAMPLE.
const sampleInstead = 10 * time.Second

// modes returns the configured subscription, followed by the modes to try if the switch refuses it.
// The last one requests the shortest interval that the switch supports, for switches that cannot
// sample as often as configured.
func (p *part) modes() []Subscription {
	all, path := []Subscription{p.Subscription}, p.Path
	if p.Mode == OnChange {
		all = append(all, Subscription{path, TargetDefined, 0}, Subscription{path, Sample, sampleInstead})
	}
	if all[len(all)-1].SampleInterval > 0 {
		all = append(all, Subscription{path, Sample, 0})
	}
	return all
}

func (p *part) subscription() Subscription { return p.modes()[p.mode] }

// change selects the next mode after a refusal; false if there is none. It selects the shortest
// interval of the switch only if the switch answered InvalidArgument, which says that its shortest
// interval is longer than the configured one. Otherwise the shortest interval could be much shorter
// than configured.
func (p *part) change(err error) bool {
	all := p.modes()
	if p.mode+1 == len(all) || all[p.mode+1].Mode == Sample && all[p.mode].Mode == Sample &&
		status.Code(err) != codes.InvalidArgument {
		return false
	}
	p.mode++
	return true
}

// group is a set of subscriptions that share a stream.
type group struct {
	parts  []*part
	state  groupState
	stream *stream // nil if waiting
	since  time.Time
	due    time.Time // asking, sorting: deadline of the state; waiting: time of the next attempt
	heard  time.Time // time of the last message
	talks  bool      // the stream has sent values
	sample bool      // whether the stream has sent a sampled value
	sorted bool      // whether the switch accepts each of the parts alone
	wait   *backoff.ExponentialBackOff
	limits int   // number of streams of the group that ended because of a limit of the switch
	cause  end   // cause of the last end
	err    error // error of the last end, until the group is serving

	left, kept []*part // while sorting: parts to try, the first of which is being tried; accepted parts
}

func (g *group) String() string {
	first := yang.PathString(g.parts[0].Path.GetElem())
	if len(g.parts) == 1 {
		return first
	}
	return fmt.Sprintf("%s and %d more", first, len(g.parts)-1)
}

// end is the kind of a stream's end.
type end string

const (
	refused end = "refused" // the switch does not serve the subscriptions of the stream
	limited end = "limited" // the switch has no stream or subscription left
	broken  end = "broken"  // the connection, or the switch ended the stream
)

// endOf returns the kind of an end. Vendors refuse paths with Unknown, Aborted and Internal, too.
func endOf(err error) end {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.Unimplemented, codes.NotFound, codes.FailedPrecondition, codes.PermissionDenied,
		codes.Unknown, codes.Aborted, codes.Internal, codes.AlreadyExists, codes.DataLoss:
		return refused
	case codes.OutOfRange, codes.ResourceExhausted:
		// gRPC reports a message above the limit of this client with the same code.
		if strings.Contains(err.Error(), "received message larger than max") {
			return refused
		}
		return limited
	}
	return broken
}

// start puts all subscriptions in one group.
func (m *groups) start(parts []*part) {
	m.all = []*group{{parts: parts, state: queued, wait: m.newWait()}}
}

func (g *group) enter(state groupState, now time.Time) {
	g.state, g.since = state, now
	if state == serving {
		g.err = nil
	}
}

// ask opens a stream for a group, unless too many streams are open.
func (m *groups) ask(g *group, now time.Time) {
	if m.streams() >= maxStreams {
		m.rest(g, limited, fmt.Errorf("the collector opens at most %d streams to a device", maxStreams), now)
		return
	}
	g.enter(asking, now)
	g.due, g.heard, g.talks, g.sample = now.Add(m.syncTimeout), now, false, false
	g.stream = m.open(g, g.parts)
}

func (m *groups) streams() int {
	n := 0
	for _, g := range m.all {
		if g.stream != nil {
			n++
		}
	}
	return n
}

// serving returns the number of groups that are serving.
func (m *groups) serving() int {
	n := 0
	for _, g := range m.all {
		if g.state == serving {
			n++
		}
	}
	return n
}

// rest lets a group wait. The next attempt begins with the modes of the configuration.
func (m *groups) rest(g *group, cause end, err error, now time.Time) {
	g.enter(waiting, now)
	if cause == refused {
		for _, p := range g.parts {
			p.mode = 0
		}
	}
	g.cause, g.err = cause, err
	g.due = now.Add(g.wait.NextBackOff())
	m.rested(g)
}

// message takes a message of a group's stream. synced is set for a sync_response, sample if the
// message has a value of a path that the stream samples.
func (m *groups) message(g *group, synced, sample bool, now time.Time) {
	g.heard = now
	g.talks, g.sample = g.talks || !synced, g.sample || sample
	switch {
	case synced && g.state == asking:
		g.enter(serving, now)
	case synced && g.state == sorting:
		m.accept(g, now)
	}
}

// ended takes the end of a group's stream.
func (m *groups) ended(g *group, err error, now time.Time) {
	g.stream = nil
	cause := endOf(err)
	if cause == broken && (m.streams() == 0 || g.state == serving && m.serving() == 1) {
		m.lost = fmt.Errorf("gNMI subscription to %s: %w", g, err)
		return
	}
	if m.serving() == 0 && EncodingRefused(err) {
		m.encoding = err
		return
	}
	switch several := len(g.parts) > 1; g.state {
	case sorting:
		m.unaccepted(g, cause, err, now)
	case asking:
		switch {
		case several && cause == refused && !g.sorted:
			// A subscription that is not refused within tryTimeout counts as accepted, so
			// tryTimeout is at least twice the time that the switch took for this refusal.
			m.tryTimeout = max(m.tryTimeout, 2*now.Sub(g.since))
			g.enter(sorting, now)
			g.left, g.kept = g.parts, nil
			m.try(g, now)
		case cause == limited && m.again(g, now):
			g.enter(queued, now)
		case several && cause != broken:
			m.halve(g)
		case cause == refused && g.parts[0].change(err):
			m.ask(g, now)
		default:
			m.rest(g, cause, err, now)
		}
	case serving:
		lasted := now.Sub(g.since) >= m.lasting
		if lasted {
			g.wait.Reset()
		}
		if several && !lasted && cause != broken {
			for _, half := range m.halve(g) {
				m.rest(half, cause, err, now)
			}
			return
		}
		m.rest(g, cause, err, now)
	}
}

// again schedules another attempt after a stream ended because of a limit of the switch; every
// fourth time it returns false instead.
func (m *groups) again(g *group, now time.Time) bool {
	const attempts = 4
	g.limits++
	g.due = now.Add(g.wait.NextBackOff())
	return g.limits%attempts != 0
}

// halve replaces a group by two of half its size, and returns them.
func (m *groups) halve(g *group) []*group {
	n := len(g.parts) / 2
	var halves []*group
	for _, parts := range [][]*part{g.parts[:n:n], g.parts[n:]} {
		halves = append(halves, &group{parts: parts, state: queued, sorted: g.sorted, wait: m.newWait()})
	}
	i := slices.Index(m.all, g)
	m.all = slices.Replace(slices.Clone(m.all), i, i+1, halves...)
	return halves
}

// try opens a stream for the next subscription to be sorted, or one for all accepted ones.
func (m *groups) try(g *group, now time.Time) {
	switch {
	case len(g.left) > 0:
		g.due = now.Add(m.tryTimeout)
		g.stream = m.open(g, g.left[:1])
	case len(g.kept) > 0:
		g.parts, g.sorted = g.kept, true
		m.ask(g, now)
	default:
		m.all = slices.DeleteFunc(m.all, func(x *group) bool { return x == g })
	}
}

// accept keeps the subscription that is being tried.
func (m *groups) accept(g *group, now time.Time) {
	m.shut(g.stream)
	g.stream = nil
	g.kept, g.left = append(g.kept, g.left[0]), g.left[1:]
	m.try(g, now)
}

// unaccepted sets the subscription that is being tried aside, or tries it again in another mode.
func (m *groups) unaccepted(g *group, cause end, err error, now time.Time) {
	p := g.left[0]
	if cause == refused && p.change(err) {
		m.try(g, now)
		return
	}
	if cause == limited && m.again(g, now) {
		return
	}
	g.left = g.left[1:]
	alone := &group{parts: []*part{p}, wait: m.newWait()}
	m.all = append(m.all, alone)
	m.rest(alone, cause, err, now)
	m.try(g, now)
}

// tick acts on the deadlines that have passed. It returns the time at which it must be called next.
func (m *groups) tick(now time.Time) (next time.Time) {
	for _, g := range slices.Clone(m.all) {
		switch late := !g.due.After(now); {
		case (g.state == queued || g.state == waiting) && late && !m.busy(now):
			m.ask(g, now)
		case g.state == sorting && late && g.stream == nil:
			m.try(g, now)
		case g.state == sorting && late:
			m.accept(g, now)
		case g.state == asking && late && g.talks:
			g.enter(serving, now)
		case g.state == asking && late:
			m.silent(g, fmt.Errorf("no message within %v, not even sync_response", m.syncTimeout), now)
		case g.state == serving && g.sample && g.quiet() > 0 && now.Sub(g.heard) >= g.quiet():
			m.silent(g, fmt.Errorf("no message for %v, although the switch samples", g.quiet()), now)
		}
	}
	for _, g := range m.all {
		at := g.due
		switch {
		case g.state == serving && (!g.sample || g.quiet() == 0):
			continue
		case g.state == serving:
			at = g.heard.Add(g.quiet())
		case !at.After(now): // a due group that other groups block: look again later
			at = now.Add(m.tryTimeout)
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// busy reports whether a group is asking or sorting. A group that has been asking for long does not
// block the others.
func (m *groups) busy(now time.Time) bool {
	return slices.ContainsFunc(m.all, func(g *group) bool {
		return g.state == sorting || g.state == asking && now.Sub(g.since) < m.tryTimeout
	})
}

// silent ends the stream of a group that sends nothing.
func (m *groups) silent(g *group, why error, now time.Time) {
	m.shut(g.stream)
	m.ended(g, status.Error(codes.DeadlineExceeded, why.Error()), now)
}

// quiet is how long a sampling stream may stay silent; 0 for no limit.
func (g *group) quiet() time.Duration {
	var longest time.Duration
	for _, p := range g.parts {
		if sub := p.subscription(); sub.Mode == Sample {
			longest = max(longest, sub.SampleInterval)
		}
	}
	if longest == 0 {
		return 0
	}
	return max(3*longest, 30*time.Second)
}

// settled reports whether no group is still being tried: each one is serving or has failed.
func (m *groups) settled() bool {
	return !slices.ContainsFunc(m.all, func(g *group) bool { return g.state != serving && g.err == nil })
}

// failed reports whether every group has failed.
func (m *groups) failed() bool {
	return !slices.ContainsFunc(m.all, func(g *group) bool { return g.err == nil })
}

// missing returns the number of subscriptions in groups that have failed, and one of these groups,
// nil if no group has failed. A group that hit a limit comes first, because the operator can change
// the limit.
func (m *groups) missing() (subscriptions int, example *group) {
	for _, g := range m.all {
		if g.err == nil {
			continue
		}
		subscriptions += len(g.parts)
		if example == nil || example.cause != limited && g.cause == limited {
			example = g
		}
	}
	return subscriptions, example
}
