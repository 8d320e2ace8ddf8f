// SPDX-License-Identifier: Apache-2.0

// Package server speaks gNMI (specification 0.10 and 0.11) over what a store holds:
// Capabilities, Get, and Subscribe in its modes ONCE, POLL and STREAM. The
// collector's northbound output and the soft switch's gNMI are both this server.
//
// A stream's subscriptions become store subscriptions, one for each combination of
// mode and intervals. Encoded leaves are kept with the store's rows, so that streams
// that ask for the same share the work; a stream puts bytes together and sends them.
//
// Concurrency: a Server may be used from any goroutine. Each stream has one
// goroutine that sends, the handler's own, and one that receives; both end with the
// stream. A client that does not read blocks its own sender and nobody else.
package server
