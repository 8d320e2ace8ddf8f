// SPDX-License-Identifier: Apache-2.0

// Package p4rt drives a P4 switch through P4Runtime, as its specification (1.5.0) asks of a controller.
//
// [Dial] starts a [Client]: a supervised session with one switch, in one role, that goes through
//
//	Connecting → Arbitrating → Provisioning → Reconciling → Ready
//
// and back to Connecting, after a jittered backoff, whenever the stream is lost. Provisioning pushes the pipeline when the switch's
// cookie is not the one wanted; Reconciling makes the entries on the switch those that [Client.Desire] was told. A client that
// another one outbids is in Standby and writes nothing; a client in mode [Backup] never bids, and reads only.
//
// Names are P4Info's full names or unique aliases. Values are big-endian byte strings of any length and leave in canonical form.
//
// # Concurrency
//
// Every method of Client may be called from any goroutine. Calls that need a session fail at once with [ErrNotReady] while there is
// none; nothing waits for a session but [Client.WaitReady]. One goroutine of the client receives: it never blocks, and what finds
// a queue full is dropped and counted in [Stats]. [Client.Close] waits for all goroutines of the client.
package p4rt
