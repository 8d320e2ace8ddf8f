// SPDX-License-Identifier: Apache-2.0

// Package p4rtserver serves P4Runtime 1.5.0 for a soft switch: it is the controller's view of one
// [softswitch.Switch].
//
// The switch holds the forwarding state; the server holds the state that exists in P4Runtime only:
// the primary of each role, P4Info and cookie, the configuration of digests. A pipeline is pushed
// as BMv2 JSON, the output of p4c-bm2-ss. docs/evidence/p4runtime.csv lists the requirements of the
// specification with the test of each.
//
// # Concurrency
//
// Writes exclude each other and reads; reads take a snapshot and stream it afterwards, so a client
// that reads slowly blocks no other. Each stream has a bounded queue: a client that does not read
// loses packets and digests, which are counted ([Server.Stats]), and takes no more memory than the
// queue. Packets run in the goroutine of the stream that sent them.
package p4rtserver
