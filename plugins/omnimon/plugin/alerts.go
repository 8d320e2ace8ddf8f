// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
)

// The kinds of alert, as in the YANG module.
const (
	switchLossy   alert.Kind = "switch-lossy"
	switchDead    alert.Kind = "switch-dead"
	linkLossy     alert.Kind = "link-lossy"
	linkDead      alert.Kind = "link-dead"
	hostMissing   alert.Kind = "host-missing"
	switchMissing alert.Kind = "switch-missing"
	inexact       alert.Kind = "inexact"
	planFailed    alert.Kind = "plan-failed"
)

// networkSubject is the subject of alerts about the whole network.
const networkSubject = "network"

// severity returns the severity of an alert of this kind.
func severity(k alert.Kind) string {
	if k == planFailed {
		return "minor"
	}
	return "major"
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
