// SPDX-License-Identifier: Apache-2.0

// Package lldp tells a switch's neighbours what it is, and learns what they are: the Link
// Layer Discovery Protocol, IEEE 802.1AB-2016.
//
// Frame is what a frame says; Parse reads one and Append writes it. Agent is the protocol
// on all ports of a switch: frames go out past the pipeline and are taken before it, as a
// switch's own software does it. It speaks to the nearest bridge (01:80:c2:00:00:0e).
//
// Concurrency: Frame belongs to one goroutine. An Agent's methods may be called from any;
// the frames of all ports are sent by whoever calls Tick, which is Run unless a test does.
// No lock is held while a frame is sent, so agents may be joined back to back.
package lldp
