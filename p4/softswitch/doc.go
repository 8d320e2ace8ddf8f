// SPDX-License-Identifier: Apache-2.0

// Package softswitch is a P4 switch in Go: it executes the BMv2 JSON that p4c-bm2-ss compiles from
// a v1model program, bit for bit like simple_switch, without a switch process to install.
//
// [Compile] translates a JSON file into an immutable [Program]. A file with a construct that cannot
// be executed is an error that names the construct and its place in the P4 source. A [Switch] has
// ports, a clock and the state of one loaded Program: table entries, counters, meters, registers,
// multicast groups, clone sessions. Packets enter through [Switch.Inject] or [Switch.PacketOut] and
// run to completion in the caller's goroutine; the resulting packets leave through the Tx functions
// of the ports before the call returns, so a network of switches on a virtual clock is
// deterministic.
//
// The switch consists of packages with one-way imports: control (types of the control plane),
// program (a compiled program as data), asm and compile (the compiler, from bmv2json), machine
// (executes a program), ports (ports and egress queues). This package puts them together and adds
// the traffic manager: replication, clones, loops and queueing.
//
// # Supported programs
//
// Everything that p4c-bm2-ss emits for v1model: headers, stacks, unions and their stacks,
// variable-length fields; parsers with lookahead, advance, verify, value sets, selects with masks;
// arithmetic of any width, signed and unsigned, saturating too; tables of every kind of match,
// const entries, action profiles and selectors; counters, meters (two rates, three colors) and
// registers; the hashes of v1model; random; clone, resubmit and recirculate with field lists;
// multicast; digest; truncate; assert, assume, log_msg; checksums; queueing metadata from queues
// with rates and depths.
//
// Errors of Compile: externs and primitives of other architectures, hash algorithms that v1model
// does not name, P4_14's length expressions, control flow with a cycle; and constructs of BMv2's
// JSON that p4c never emits, such as comparisons of whole stacks, division of numbers that can be
// negative, registers outside of actions, default or const entries in tables with an action
// profile. Loops in actions run, and are bounded.
//
// Where BMv2 reads memory of an earlier packet or stops (a field of a header that was never valid,
// an index out of range, a failed assert), the engine reads zeros, does nothing, or drops the
// packet, and counts it in [Stats].
//
// # Concurrency
//
// Every method of Switch may be called from any goroutine. Control plane calls and packets exclude
// each other for at most one packet's run or one call. With [Config.Parallel] at 1, the default,
// packets run one after another; above it, that many run concurrently: an action's accesses to
// registers are one atomic step, as in BMv2, and counters are exact. No lock is held during Tx,
// packet-in and watch functions: they may call any method of any Switch, Inject included.
package softswitch
