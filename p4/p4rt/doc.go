// SPDX-License-Identifier: Apache-2.0

// Package p4rt drives a P4 switch through P4Runtime, as the specification (1.5.0) requires of a
// controller (docs/evidence/p4runtime.csv lists the obligations).
//
// [Dial] starts a [Client]: a supervised session with one switch, in one role, that goes through
//
//	Connecting → Arbitrating → Provisioning → Reconciling → Ready
//
// and back to Connecting, after a jittered backoff, when the stream is lost. Provisioning pushes
// the pipeline if the switch has another cookie; Reconciling calls [Config].Reconcile, which
// corrects the table entries. A client that another controller outbids is in Standby and does not
// write; a client in mode [Backup] never bids, and only reads.
//
// Names are P4Info's full names or unique aliases. Values are big-endian byte strings of any
// length; the client sends them in canonical form.
//
// # Concurrency
//
// Every method of Client may be called from any goroutine. Calls that need a session fail at once
// with [ErrNotReady] while there is none; only [Client.WaitReady] waits for one. One goroutine of
// the client receives and never blocks; packets that it cannot use are dropped and counted in
// [Stats]. [Client.Close] waits for all goroutines of the client.
package p4rt
