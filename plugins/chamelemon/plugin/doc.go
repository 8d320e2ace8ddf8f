// SPDX-License-Identifier: Apache-2.0

// Package plugin is ChameleMon (Yang et al., SIGCOMM 2023) as a netsketch plugin. From
// the flow classifiers and encoders of all edge switches it computes the packets that each flow
// lost between its entry and its exit (§4.2) and six measurement tasks on the entering traffic,
// per edge switch and network-wide. It also divides the switches' memory for later epochs (§4.3)
// and returns the division to the collector as plans.
//
// A result is exact if every edge switch delivered all its cells, all parts were decoded
// completely, and the division in force during the whole epoch is certain. All other results are
// marked as estimates.
//
// A Plugin may be used by several goroutines; epochs are analyzed one at a time.
package plugin
