// SPDX-License-Identifier: Apache-2.0

// Package plugin is UnivMon (Liu et al., SIGCOMM 2016) as a netsketch plugin: it
// computes totals, heavy hitters, heavy changes, DDoS victims, watched flows and G-sums from the
// universal sketches of an epoch, for each switch and, from a sum of sketches, for the network.
//
// The rows of device "network" count every packet once although it crosses several
// switches. Sketches are linear, so this needs no support in the data plane: if packets
// enter and leave at edge switches, and the switches on a path alternate between two kinds, as in
// a leaf-spine network or a fat tree, then the sum of one kind minus the sum of the other has each
// packet exactly once (see Weights).
//
// A Plugin may be used by several goroutines; epochs are analyzed one at a time.
package plugin
