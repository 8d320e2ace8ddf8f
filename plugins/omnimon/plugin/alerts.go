// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
)

// The kinds of alert, as in the YANG module.
const (
	switchLossy   alert.Kind = "SWITCH_LOSSY"
	switchDead    alert.Kind = "SWITCH_DEAD"
	linkLossy     alert.Kind = "LINK_LOSSY"
	linkDead      alert.Kind = "LINK_DEAD"
	hostMissing   alert.Kind = "HOST_MISSING"
	switchMissing alert.Kind = "SWITCH_MISSING"
	inexact       alert.Kind = "INEXACT"
	planFailed    alert.Kind = "PLAN_FAILED"
)

// networkSubject is the subject of alerts about the whole network.
const networkSubject = "network"

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
		name := x.Subject
		if x.Kind == switchLossy || x.Kind == switchDead || x.Kind == switchMissing || x.Kind == planFailed {
			name = "switch " + name
		}
		events = append(events, x.Event(name))
	}
	return events
}
