// SPDX-License-Identifier: Apache-2.0

// Package p4rtserver serves P4Runtime 1.5.0 for a soft switch: it is the controller's view of one [softswitch.Switch].
//
// The switch holds the forwarding state; the server holds what only P4Runtime knows: who is the primary of which role, the P4Info and
// cookie, what digests are configured. A pipeline is pushed as BMv2 JSON, as p4c-bm2-ss writes it. docs/p4runtime.md lists the
// requirements of the specification with the test of each.
//
// # Concurrency
//
// Writes exclude one another and reads; reads take a snapshot and stream it afterwards, so that a client that reads slowly holds nobody
// up. Each stream has a bounded queue: a client that does not read loses packets and digests, which are counted ([Server.Stats]), and
// costs no more memory than the queue. Packets run in the goroutine of the stream that sent them.
package p4rtserver
