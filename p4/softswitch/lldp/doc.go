// SPDX-License-Identifier: Apache-2.0

// Package lldp is the Link Layer Discovery Protocol, IEEE 802.1AB-2016: a switch advertises itself
// to its neighbors, and keeps a table of them.
//
// Frame is the content of a frame; Parse decodes and Marshal encodes it. Agent runs the protocol on
// all ports of a switch. Its frames bypass the pipeline in both directions, like all frames of a
// switch's own software. It uses the nearest-bridge address (01:80:c2:00:00:0e).
//
// Concurrency: a Frame belongs to one goroutine. The methods of an Agent may be called from any
// goroutine; the caller of Tick, Run in production, sends the frames of all ports. No lock is held
// while a frame is sent, so agents may be connected back to back.
package lldp
