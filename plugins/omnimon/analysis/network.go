// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Hop is a switch on a path.
type Hop struct {
	// Link is the directed link by which packets enter the switch.
	Link int32
	// Switch is the number of the switch.
	Switch int32
	// Array is the slot array that counts the packets: the switch's, or the array of its port. None:
	// the switch does not measure.
	Array int32
}

// None is the Array of a switch that does not measure. It leaves the count of hops in the header as
// it is, so the next switch that measures uses the slot in its place.
const None = -1

// Path is the path of a flow through at least one switch.
type Path struct {
	// Hops are empty if they were sought and are not determined.
	Hops []Hop
	// Last is the link to the destination.
	Last int32
	// From is the link from the source. It is set if Hops are empty.
	From int32
}

// first is the link from the source.
func (p *Path) first() int32 {
	if len(p.Hops) == 0 {
		return p.From
	}
	return p.Hops[0].Link
}

// Host is the end of a link that is no switch.
const Host = -1

// Link is a directed link between two switches, or between a switch and a Host.
type Link struct{ From, To int32 }

// Network has the facts about the network and the hosts' settings that the analysis needs. Route is
// called concurrently.
type Network struct {
	Hosts, Switches, Arrays int
	Links                   []Link
	// Uplinks and Downlinks hold, for each host, the index of the link from the host and of the
	// link to it; -1 if there is no such link.
	Uplinks, Downlinks []int32
	// SwitchOf is the switch of each array.
	SwitchOf []int32
	// Flows is the size of the hosts' flow tables.
	Flows int
	// Slots of an array per epoch, and slots per flow.
	Slots, SlotsPerFlow int
	// Values is the count of statistics that switches record, the first ones of wire.Values. A slot
	// has the sums of their values, then the sums of the differences of Extremes maxima and minima.
	Values, Extremes int
	// Bits is the width of the switches' counters. A slot must lose less than 2^(Bits-1) of any
	// statistic in an epoch.
	Bits int
	// Route returns the destination of a flow and its path, or nil if it has none.
	Route func(source int, k *flow.Key) (destination int, path *Path)
	// Search, if set, replaces Route.
	Search *Search
	// HostNames are the hosts' names in reasons; without names, reasons have numbers.
	HostNames []string
}

// words is the count of numbers in a slot.
func (n *Network) words() int { return n.Values + n.Extremes }

// statistic is the statistic of a number in a slot.
func (n *Network) statistic(word int) wire.Statistic {
	if word < n.Values {
		return wire.Statistic(word)
	}
	return wire.FirstExtreme + wire.Statistic(word-n.Values)
}
