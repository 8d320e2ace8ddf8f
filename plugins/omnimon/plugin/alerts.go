// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
)

// The kinds of alert, as in the YANG module.
const (
	lossy         alert.Kind = "PACKETS_LOST" // of a switch or link
	dead          alert.Kind = "BLACKHOLE"
	hostMissing   alert.Kind = "HOST_MISSING"
	switchMissing alert.Kind = "SWITCH_MISSING"
	inexact       alert.Kind = "INEXACT"
	planFailed    alert.Kind = "PLAN_FAILED"
)

// networkLocation is the subject of alerts about the whole network.
const networkLocation = "network"

// severity returns the severity of an alert of this kind.
func severity(k alert.Kind) string {
	if k == planFailed {
		return "MINOR"
	}
	return "MAJOR"
}

// alertEvents returns the log events of alerts that began or ended.
func alertEvents(changes []alert.Alert) (events []sdk.Event) {
	for i := range changes {
		x := &changes[i]
		name := x.Location
		switch {
		case strings.Contains(name, "~"): // a link
		case x.Kind == lossy, x.Kind == dead, x.Kind == switchMissing, x.Kind == planFailed:
			name = "switch " + name
		}
		events = append(events, x.Event(name))
	}
	return events
}
