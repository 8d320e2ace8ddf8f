// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
)

// The kinds of alert, as in the YANG module.
const (
	networkIll    alert.Kind = "NETWORK_ILL"    // the latest network state is ill
	switchMissing alert.Kind = "SWITCH_MISSING" // the data of an edge switch is missing or incomplete
	badCells      alert.Kind = "BAD_CELLS"      // the delivered cells do not match the pipeline
	notDecoded    alert.Kind = "NOT_DECODED"    // a part of an encoder cannot be decoded
	outOfStep     alert.Kind = "OUT_OF_STEP"    // the switches' epochs differ
	notMeasured   alert.Kind = "NOT_MEASURED"   // packets enter or leave at switches that do not measure
	highThreshold alert.Kind = "HIGH_THRESHOLD" // Th exceeds the thresholds of the heavy hitters or changes
	planFailed    alert.Kind = "PLAN_FAILED"    // a plan was not applied to a switch, or this is uncertain
	badWatch      alert.Kind = "watched-flow"   // only in the log
)

// alertEvents returns the log events of alerts that began or ended. Changes of the network state
// have their own events.
func alertEvents(changes []alert.Alert) (events []sdk.Event) {
	for i := range changes {
		if x := &changes[i]; x.Kind != networkIll && (x.Active || x.Kind != badWatch) {
			events = append(events, x.Event(alertName(x)))
		}
	}
	return events
}

func alertName(x *alert.Alert) string {
	switch {
	case x.Kind == badWatch:
		return "watched flow " + x.Location
	case x.Location == Network:
		return "network"
	}
	return "switch " + x.Location
}

// severity returns the severity of an alert of this kind.
func severity(k alert.Kind) string {
	switch k {
	case networkIll, switchMissing, badCells, notMeasured:
		return "MAJOR"
	}
	return "MINOR"
}

// published are the alerts with a row: all that have been active, and NETWORK_ILL.
func published(alerts alert.List) alert.List {
	return slices.DeleteFunc(slices.Clone(alerts), func(x alert.Alert) bool { return x.Kind == badWatch })
}
