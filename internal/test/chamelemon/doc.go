// SPDX-License-Identifier: Apache-2.0

// Package chamelemon is the testbed of the ChameleMon paper's evaluation (§5.2): edge
// switches of the paper's sizes between hosts, traffic of its workloads with victims at a
// ratio, and the ground truth of every lost packet.
//
// The edge switches are a model of the program chamelemon (docs/chamelemon-p4.md) that works on
// bursts of packets, thousands of times faster than the program: tables by time bit, registers cell
// by cell. A test compares it with the program on soft switches. The network between the edge
// switches loses packets and does nothing else. The caller selects the plugin that analyzes the
// epochs: the package depends on the SDK only.
//
// A Testbed belongs to one goroutine. The same seed gives the same epochs on every machine.
package chamelemon
