// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/netsketch/netsketch/lab/scenario/score"
)

// algorithm is a plugin whose findings are counted, with its default configuration.
type algorithm struct {
	name    string // of the plugin
	program string // of the switches
	role    string // of the agents; "" for none
	// kinds are the alerts that are findings about the network; others are about the measurement.
	kinds []string
	// faults are what is to be found, and disturbances what is not: at most one of them in a healthy
	// run.
	faults, disturbances []happening
	// truth is the list of the ground truth with the alerts of a kind.
	truth func(kind string) string
}

var (
	quiet       = happening{"nothing", func(*network, *span) (string, string, bool) { return "", "", true }}
	routeChange = happening{"route change", avoid}
	queues      = happening{"queue across the end of an epoch", burst}
	deadAgents  = happening{"half of the agents dead", halfDead}
)

// algorithms are all that are counted: those whose scorers publish their alerts.
var algorithms = []*algorithm{
	{
		name: "lightguardian", program: "lightguardian", role: "lightguardian",
		kinds: []string{"inflated-latency", "random-drops", "loop", "blackhole", "abnormal-jitter", "abnormal-path"},
		faults: []happening{
			{"inflated-latency", incast}, {"random-drops", loss}, {"loop", misroute(true)}, {"blackhole", blackhole},
			{"abnormal-jitter", stall}, {"abnormal-path", misroute(false)},
		},
		disturbances: []happening{quiet, routeChange, queues, deadAgents},
		truth:        func(kind string) string { return "alert " + kind },
	},
}

// alert is an active alert about the network.
type alert struct{ kind, subject string }

// active returns the active alerts of an epoch, with whether they began in it.
func (a *algorithm) active(r *score.Result) map[alert]bool {
	out := map[alert]bool{}
	for _, rows := range r.Published["alert"] {
		for key, row := range rows {
			kind, subject, _ := strings.Cut(key, "/")
			for _, k := range a.kinds {
				if k == kind && row.Is("active") {
					out[alert{kind, subject}] = row.Value("since-epoch") == row.Value("epoch")
				}
			}
		}
	}
	return out
}
