// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// Network is the device name of results for the whole network.
const Network = "network"

// devices returns the names of all switches and of the hosts that measure.
func (p *plan) devices(network *sdk.Network) []string {
	names := make([]string, 0, len(network.Devices)+len(p.hosts))
	for i := range network.Devices {
		names = append(names, network.Devices[i].Name)
	}
	return append(names, p.hosts...)
}

// weigh returns the weight of each device's sketch in the network-wide sum, in which every packet
// counts once. Switches that are not measured must have weight 0. Hosts have a weight if it is
// configured, or if no switch measures.
func (p *plan) weigh(c *Configuration, network *sdk.Network, switches bool) (map[string]int, error) {
	switch {
	case len(c.Network.Weights) > 0:
		return p.configuredWeights(c.Network.Weights, network)
	case switches || len(p.hosts) == 0:
		return Weights(network, func(device string) bool { return len(p.instances[device]) > 0 })
	case c.Hosts.Packets == HostsAll:
		return nil, errors.New("hosts count the packets that they send and those that arrive, so packets between them " +
			"count twice (hosts.packets)")
	}
	weights := make(map[string]int)
	for _, name := range p.hosts {
		weights[name] = 1
	}
	return weights, nil
}

// configuredWeights looks weights up by name, then by role.
func (p *plan) configuredWeights(configured map[string]int, network *sdk.Network) (map[string]int, error) {
	used := make(map[string]bool)
	weights := make(map[string]int)
	look := func(device string, keys ...string) {
		for _, name := range keys {
			if w, ok := configured[name]; ok && name != "" {
				weights[device] = w
				used[name] = true
				return
			}
		}
	}
	for i := range network.Devices {
		look(network.Devices[i].Name, network.Devices[i].Name, network.Devices[i].Role)
	}
	for _, name := range p.hosts {
		look(name, name)
	}
	var unknown []string
	for name := range configured {
		if !used[name] {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 && len(network.Devices)+len(p.hosts) > 0 {
		slices.Sort(unknown)
		return nil, fmt.Errorf("%s: no switch has this name or role, and no host that measures has this name",
			strings.Join(unknown, ", "))
	}
	return weights, nil
}

// Weights computes the weights from the topology. Packets enter and leave at switches with attached
// hosts (distance 0). If every link between switches joins an even and an odd distance, a packet
// alternates between switches of even and odd distance and begins and ends at an even one, so it
// visits one more even switch than odd ones. The sum of the sketches at even distance minus the
// sketches at odd distance therefore counts each packet once on any path. This holds for leaf-spine
// networks and fat trees. A packet that is lost in the network can count 0 times.
//
// In a network of one switch its weight is 1. Weights returns an error if the rule does not hold or
// the model has no hosts.
func Weights(network *sdk.Network, measured func(device string) bool) (map[string]int, error) {
	if len(network.Devices) == 1 {
		return map[string]int{network.Devices[0].Name: 1}, nil
	}
	neighbors := make(map[string][]string)
	isSwitch := make(map[string]bool)
	for i := range network.Devices {
		isSwitch[network.Devices[i].Name] = true
	}
	distance := make(map[string]int)
	var queue []string
	for _, l := range network.Links {
		a, b := l.A.Node, l.B.Node
		switch {
		case isSwitch[a] && isSwitch[b]:
			neighbors[a] = append(neighbors[a], b)
			neighbors[b] = append(neighbors[b], a)
		case isSwitch[a] || isSwitch[b]:
			edge := a
			if isSwitch[b] {
				edge = b
			}
			if _, known := distance[edge]; !known {
				distance[edge] = 0
				queue = append(queue, edge)
			}
		}
	}
	if len(queue) == 0 {
		return nil, errors.New("the topology has no host attached to a switch, so the switches at which packets enter " +
			"are unknown")
	}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		for _, n := range neighbors[s] {
			if _, known := distance[n]; !known {
				distance[n] = distance[s] + 1
				queue = append(queue, n)
			}
		}
	}
	weights := make(map[string]int)
	for s, d := range distance {
		for _, n := range neighbors[s] {
			if distance[n]%2 == d%2 {
				return nil, fmt.Errorf("%s and %s are linked and equally far from hosts, so no sum of sketches counts packets once",
					min(s, n), max(s, n))
			}
		}
		weights[s] = 1 - 2*(d%2)
		if !measured(s) {
			return nil, fmt.Errorf("%s is on paths of packets and does not measure", s)
		}
	}
	return weights, nil
}
