// SPDX-License-Identifier: Apache-2.0

// Package analysis is ChameleMon (Yang et al., SIGCOMM 2023) as a netsketch plugin. From
// the flow classifiers and encoders of all edge switches it works out which flows lost how
// many packets between their entry and their exit (§4.2), six tasks on what entered, for
// each edge switch and for the network, and how the switches' memory is to be divided in
// coming epochs (§4.3), which it hands to the collector as plans.
//
// What is published as exact is: a decoding that left nothing over, over epochs of which
// every edge switch delivered everything, under a division that all of it was encoded
// with. Everything else says so.
//
// A Plugin may be used by several goroutines; epochs are analysed one at a time.
package analysis
