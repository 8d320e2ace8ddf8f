// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"math"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
)

// The kinds of alert, as in the YANG module.
const (
	heavyChange  alert.Kind = "HEAVY_CHANGE"  // a flow changed more than flows usually do
	attack       alert.Kind = "ATTACK"        // a destination has the sources of a DDoS victim
	entropyShift alert.Kind = "ENTROPY_SHIFT" // the entropy differs from its usual value
)

// learned is how many epochs a normal value needs before it is compared, deviations how many times
// its usual deviation a value must differ from it, and patience how many epochs in a row may differ
// before their value becomes the normal one.
const (
	learned    = 8
	deviations = 6
	patience   = 60
)

// normal is the usual value of a scope: exponential averages of the value and of its distance from
// the average, as TCP keeps them of round-trip times.
type normal struct {
	epochs         int
	mean, distance float64
	outside        int // epochs in a row
}

// differs reports whether the value x of an epoch differs from the normal value by at least least,
// and by several times the usual distance. If x does not differ, it is added to the averages.
func (n *normal) differs(x, least float64) bool {
	if n.epochs >= learned && math.Abs(x-n.mean) >= max(least, deviations*n.distance) {
		if n.outside++; n.outside <= patience {
			return true
		}
		*n = normal{}
	}
	n.outside = 0
	if n.epochs++; n.epochs == 1 {
		n.mean = x
		return false
	}
	// The first epochs count alike, later ones as in RFC 6298.
	share := max(1/float64(n.epochs), 1.0/8)
	n.distance += max(1/float64(n.epochs-1), 1.0/4) * (math.Abs(x-n.mean) - n.distance)
	n.mean += share * (x - n.mean)
	return false
}

// watchdog decides which results are alerts.
type watchdog struct {
	alerts alert.List
	usual  map[scope]*usual
	held   map[alert.Alert]held // alerts that are held, by location, subject and kind
}

// usual has the usual values of the entropy and of the largest change of a flow, the latter as a
// share of the packets of both epochs.
type usual struct{ entropy, change normal }

// held records when a problem was found last, and its text.
type held struct {
	epoch uint64
	text  string
}

// update finds the problems of an epoch, and returns log events of alerts that began or ended. An
// alert ends once its problem has not been found for Hold epochs. Only an attack is judged in an
// epoch after an incomplete one: packets that waited count late then, and add to flows.
func (w *watchdog) update(a *analysis, results []*result) (events []sdk.Event) {
	if w.usual == nil {
		w.usual, w.held = map[scope]*usual{}, map[alert.Alert]held{}
	}
	for _, r := range results {
		if !r.complete || a.config.Network.Enabled != (r.device == Network) {
			continue
		}
		before := a.previous[r.scope]
		w.judge(a.config, r, before == nil || before.restored || before.complete && before.epoch+1 == r.epoch)
	}
	var problems []alert.Problem
	for id, h := range w.held {
		if a.epoch.Number-h.epoch > uint64(a.config.Alerts.Hold) {
			delete(w.held, id)
			continue
		}
		problems = append(problems, alert.Problem{Location: id.Location, Subject: id.Subject, Kind: id.Kind, Text: h.text})
	}
	changes := w.alerts.Update(a.epoch, problems)
	for i := range changes {
		events = append(events, changes[i].Event(changes[i].Location+" "+changes[i].Subject))
	}
	return events
}

// find notes a problem of an epoch.
func (w *watchdog) find(r *result, subject string, k alert.Kind, format string, args ...any) {
	w.held[alert.Alert{Location: r.device, Subject: subject, Kind: k}] = held{r.epoch, fmt.Sprintf(format, args...)}
}

// judge finds the problems of a result, those of an epoch after a complete one if follows is set.
// Too few packets for a judgement change nothing.
func (w *watchdog) judge(c *Configuration, r *result, follows bool) {
	packets, _ := r.estimate.Packets()
	if packets < c.Alerts.Packets {
		return
	}
	if r.estimate.Represents() && r.dimension == flow.FiveTuple.String() {
		for _, v := range r.estimate.FanIns(c.DDoSVictims.Sources) {
			w.find(r, v.Destination.String(), attack, "%.0f addresses send to it", v.Sources)
		}
	}
	if !follows {
		return
	}
	u := w.usual[r.scope]
	if u == nil {
		u = new(usual)
		w.usual[r.scope] = u
	}
	if r.estimate.Represents() {
		usually := u.entropy.mean
		if x := r.estimate.Entropy(); u.entropy.differs(x, c.Alerts.Entropy) {
			w.find(r, r.dimension, entropyShift, "the entropy is %.2f bits, and usually %.2f", x, usually)
		}
	}
	if r.change != nil {
		f, share := largest(r.change, packets)
		usually := u.change.mean
		if u.change.differs(share, c.Alerts.Change) && share > usually {
			w.find(r, r.dimension, heavyChange, "%s changed from %.0f to %.0f packets, %.1f %% of all; usually the largest "+
				"change is %.1f %%", f.Key, f.Before, f.After, 100*share, 100*usually)
		}
	}
}

// largest returns the flow that changed most, and its change as a share of the packets of the
// larger epoch.
func largest(c *universal.Change, packets float64) (most universal.FlowChange, share float64) {
	for _, f := range c.Above(1) {
		if by := math.Abs(f.After - f.Before); by > math.Abs(most.After-most.Before) {
			most = f
		}
	}
	by := most.After - most.Before
	return most, math.Abs(by) / max(packets, packets-by, 1)
}

func severity(k alert.Kind) string {
	if k == attack {
		return "MAJOR"
	}
	return "MINOR"
}
