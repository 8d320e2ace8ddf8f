// SPDX-License-Identifier: Apache-2.0

// Package analysis is UnivMon (Liu et al., SIGCOMM 2016) as a netsketch plugin: it
// turns the universal sketches that switches recorded in an epoch into totals, heavy
// hitters, heavy changes, DDoS victims, watched flows and G-sums, for each switch and,
// by adding sketches up, for the network.
//
// The rows of device "network" count every packet once although it crosses several
// switches. Sketches are linear, so this needs nothing of the data plane: if packets
// enter and leave at edge switches, and the switches on a path belong alternately to two
// kinds, as in a leaf-spine network or a fat tree, then the sum of the one kind less the
// sum of the other has each packet exactly once (see Weights).
//
// A Plugin may be used by several goroutines; epochs are analysed one at a time.
package analysis
