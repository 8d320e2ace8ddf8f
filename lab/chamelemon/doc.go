// SPDX-License-Identifier: Apache-2.0

// Package chamelemon is the testbed of the ChameleMon paper's evaluation (§5.2): edge
// switches of the paper's sizes between hosts, traffic of its workloads with victims at a
// ratio, and the truth of every lost packet; and the figures that are drawn from it.
//
// The edge switches are a model of the program chamelemon (docs/chamelemon-p4.md) that
// works on bursts of packets, thousands of times faster than the program: tables by time
// bit, registers cell by cell. A test holds it to the program on soft switches. What is
// between the edge switches loses packets and nothing else. Which plugin analyses the
// epochs is the caller's business: the package knows the SDK only.
//
// A Testbed belongs to one goroutine. The same seed gives the same epochs on every machine.
package chamelemon
