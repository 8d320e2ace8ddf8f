// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/lab/scenario/score"
)

// algorithm is a plugin whose findings are counted, with its default configuration.
type algorithm struct {
	name    string        // name of the plugin
	program string        // keys of the scenario with the programs of the switches
	role    string        // role of the agents; "" for none
	epoch   time.Duration // 0: drawn
	lag     int           // alerts are about an epoch that is this many epochs older
	port    float64       // packets a second that a port sends at least, in spite of few packets of traffic
	// config is the configuration of the plugin: limits that leave nothing out.
	config string
	// graph replaces config in networks that are neither trees nor leaves and spines; "" keeps config.
	graph string
	// kinds are the alerts that are findings about the network, each with what it finds; others are
	// about the measurement.
	kinds map[string]string
	// faults are what is to be found, and disturbances what is not: at most one of them in a healthy
	// run.
	faults, disturbances []happening
	// happenings are the kinds of them that were chosen; "" if all are drawn.
	happenings string
	// truth returns the rows of the ground truth that are findings of a kind, by subject. It is nil if
	// alerts are judged in healthy networks only.
	truth func(t score.Tables, kind string) map[string]*score.Row
	// measures maps measures of the scorer to the fault that their rows find. The rows of the network
	// count as findings in each epoch.
	measures map[string]string
	// incomplete reports whether the plugin publishes that findings of a kind can be missing from an
	// epoch: of a switch, or of a dimension of a measure. nil: never.
	incomplete func(r *score.Result, kind, of string) bool
}

var (
	quiet       = happening{"nothing", func(*network, *span) (string, string, bool) { return "", "", true }}
	routeChange = happening{"route change", avoid}
	queues      = happening{"queue across the end of an epoch", burst}
	deadAgents  = happening{"half of the agents dead", halfDead}
)

// algorithms are all that are counted.
var algorithms = []*algorithm{
	{
		name: "lightguardian", program: "program: lightguardian", role: "lightguardian",
		kinds: alike("LATENCY_INFLATED", "PACKETS_LOST", "LOOP", "BLACKHOLE", "ABNORMAL_JITTER", "PATH_CHANGED"),
		faults: []happening{
			{"inflated latency", incast}, {"random drops", loss}, {"loop", misroute(true)}, {"blackhole", blackhole},
			{"abnormal jitter", stall}, {"abnormal path", misroute(false)},
		},
		disturbances: []happening{quiet, routeChange, queues, deadAgents},
		incomplete: func(r *score.Result, _, _ string) bool {
			row := r.Published.Row("summary", score.View{Device: score.Network}, "")
			return row == nil || row.Text("status") != "COMPLETE"
		},
		truth: func(t score.Tables, kind string) map[string]*score.Row {
			out := map[string]*score.Row{}
			for _, rows := range t["alert "+kind] {
				for key, row := range rows {
					out[strings.TrimPrefix(key, kind+"/")] = row
				}
			}
			return out
		},
	},
	{
		name: "omnimon", program: "program: omnimon", role: "omnimon",
		lag:   4,    // losses are settled then
		port:  20e3, // full queues would delay the probes of agents until no host had a lease
		kinds: map[string]string{"PACKETS_LOST": place, "BLACKHOLE": place},
		faults: []happening{
			{"loss", loss}, {"loss", loss}, {"blackhole", blackhole}, {"dead link", deadLink}, {"dead switch", deadSwitch},
		},
		disturbances: []happening{quiet, routeChange, deadAgents},
		truth: func(t score.Tables, kind string) map[string]*score.Row {
			out := map[string]*score.Row{}
			for _, rows := range t[kind] {
				for key, row := range rows {
					if n := row.Value("lost-packets-low"); n > 0 {
						row.Near = score.Near(n, 1)
						row.Optional = row.Near
						out[key] = row
					}
				}
			}
			return out
		},
	},
	{
		name: "chamelemon", program: "programs: {edge: chamelemon, transit: forwarding}",
		config:       ", config: {victims: {limit: 20000}}",
		kinds:        alike("NETWORK_ILL"),
		faults:       []happening{{"loss", loss}, {"blackhole", blackhole}, {"dead link", deadLink}},
		disturbances: []happening{quiet, routeChange},
		measures:     map[string]string{"heavy-victim-f1": "heavy victim"},
		incomplete:   func(_ *score.Result, _, of string) bool { return of == "undecoded" || of == "unsettled" },
	},
	{
		name: "sketchint", program: "program: sketchint", role: "sketchint", epoch: 5 * time.Second,
		config:       ", config: {limits: {inflations: 1000}}",
		kinds:        alike("LATENCY_INFLATED"),
		faults:       []happening{{"inflated latency", incast}, {"inflated latency", incast}},
		disturbances: []happening{quiet, routeChange, deadAgents},
		measures:     map[string]string{"inflated-f1": "inflated latency", "latency-alert-f1": "latency alert"},
	},
	{
		name: "univmon", program: "program: univmon", graph: ", config: {network: {scheme: manifest}}",
		kinds:        alike("HEAVY_CHANGE", "ATTACK", "ENTROPY_SHIFT"),
		faults:       []happening{{"attack", attack}, {"heavy change", incast}},
		disturbances: []happening{quiet, routeChange},
		measures:     map[string]string{"ddos-f1": "attack", "heavy-change-f1": "heavy change"},
		incomplete: func(r *score.Result, kind, of string) bool {
			row := r.Published.Row("node-summary", score.View{Device: score.Network, Dimension: of}, "")
			if row == nil || row.Text("status") != "COMPLETE" {
				return true
			}
			problem := row.Text("problem")
			return problem != "" && !(kind == "attack" && strings.HasPrefix(problem, "changes "))
		},
	},
}

// alike returns alert kinds, each as the name of the fault that it finds.
func alike(kinds ...string) map[string]string {
	out := map[string]string{}
	for _, k := range kinds {
		out[k] = k
	}
	return out
}

// finds returns the faults that alerts find, sorted.
func (a *algorithm) finds() []string {
	finds := slices.Compact(slices.Sorted(maps.Values(a.kinds)))
	if slices.Contains(finds, place) {
		return []string{"link", "switch"}
	}
	return finds
}

// only returns the algorithm with the faults and disturbances of some kinds, as often as they are
// named; with its own if kinds is empty.
func (a *algorithm) only(kinds string) (*algorithm, error) {
	if kinds == "" {
		return a, nil
	}
	b := *a
	b.happenings, b.faults, b.disturbances = kinds, nil, nil
	all := slices.Concat(a.faults, a.disturbances)
	for _, kind := range strings.Split(kinds, ",") {
		at := slices.IndexFunc(all, func(h happening) bool { return h.name == kind })
		switch {
		case at < 0:
			var names []string
			for _, h := range all {
				names = append(names, h.name)
			}
			return nil, fmt.Errorf("-kinds: %s has no %q; it has %q", a.name, kind, names)
		case at < len(a.faults):
			b.faults = append(b.faults, all[at])
		default:
			b.disturbances = append(b.disturbances, all[at])
		}
	}
	return &b, nil
}

// place stands for "link" or "switch", whichever the subject of the alert is.
const place = "place"

// alert is an active alert about the network.
type alert struct{ kind, subject string }

// active returns the faults that the active alerts of an epoch find, and whether each alert began
// in that epoch.
func (a *algorithm) active(r *score.Result) map[alert]bool { return a.alerts(r, true) }

// alerts returns the faults of the alerts that are active, or those that are not any more, and
// whether each alert began or ended in that epoch.
func (a *algorithm) alerts(r *score.Result, active bool) map[alert]bool {
	out := map[alert]bool{}
	summary := r.Published.Row("summary", score.View{Device: score.Network}, "")
	newest := max(summary.Value("last-epoch"), summary.Value("newest-epoch"))
	for _, rows := range r.Published["alert"] {
		for key, row := range rows {
			kind, subject, _ := strings.Cut(key, "/")
			finds, ok := a.kinds[kind]
			if finds == place {
				finds = "switch"
				if strings.Contains(subject, "~") {
					finds = "link"
				}
			}
			if ok && row.Is("active") == active {
				at := alert{finds, subject}
				out[at] = out[at] || row.Value("since-epoch") == newest
			}
		}
	}
	return out
}
