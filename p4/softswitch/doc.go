// SPDX-License-Identifier: Apache-2.0

// Package softswitch is a P4 switch in Go: it executes the BMv2 JSON that p4c-bm2-ss makes of a v1model program, bit for
// bit as simple_switch does, without a switch process to install.
//
// [Compile] turns a JSON file into an immutable [Program]: typed, checked, and refused as a whole when it holds a
// construct that cannot be run, named with its place in the P4 source. A [Switch] has ports, a clock and the state of
// one loaded Program: table entries, counters, meters, registers, multicast groups, clone sessions. Packets enter through
// [Switch.Inject] or [Switch.PacketOut] and run to completion in the caller's goroutine; what they become leaves through
// the Tx functions of the ports before the call returns, so a network of switches on a virtual clock is deterministic.
//
// # Names and values
//
// Control plane objects are called by their BMv2 names, which are P4Info's full names ("MyIngress.ipv4_lpm"). Values are
// big-endian byte strings. They are accepted in any length as long as the number fits the field's width, and are returned
// in the full width of the field: ceil(width/8) bytes.
//
// # What runs
//
// All that p4c-bm2-ss emits for v1model: headers, stacks, unions and their stacks, variable-length fields; parsers with lookahead, advance,
// verify, value sets, selects with masks; arithmetic of any width, with and without sign, saturating too; tables of every
// kind of match, const entries, action profiles and selectors; counters, meters (two rates, three colours) and registers; the hashes of v1model;
// random; clone, resubmit and recirculate with field lists; multicast; digest; truncate; assert, assume, log_msg;
// checksums; queueing metadata from queues with rates and depths.
//
// Compile refuses, with the construct's name and place: externs and primitives of other architectures, hash algorithms v1model does
// not name, P4_14's length expressions, control flow with a cycle; and what BMv2's JSON could say and p4c never does, such as comparisons of
// whole stacks, division of numbers that can be negative, registers named outside of actions, default or const entries in tables with an
// action profile. Loops in actions run, and are bounded.
//
// Where BMv2 reads memory of an earlier packet or stops (a field of a header that was never valid, an index out of range, a failed
// assert), the engine has zeros, does nothing, or drops the packet, and counts it in [Stats].
//
// # Concurrency
//
// Every method of Switch may be called from any goroutine. Control plane calls and packets exclude one another for no
// longer than one packet's run (or one call). With [Config.Parallel] at 1, the default, packets run one after another; above
// it as many run at once: what an action does with registers is one step, as in BMv2, and counters
// are exact. No lock is held while Tx, packet-in and watch functions run: they may call any method of any Switch,
// Inject included.
package softswitch
