// SPDX-License-Identifier: Apache-2.0

// Package server implements gNMI (specification 0.10 and 0.11) on a store: Capabilities, Get, Set,
// and Subscribe in its modes ONCE, POLL and STREAM. It is the collector's northbound server and the
// gNMI server of the soft switch.
//
// The subscriptions of a stream become store subscriptions, one for each combination of mode and
// intervals. Encoded leaves are kept with the store's rows, so that streams with the same paths
// share them; each stream only combines and sends the encoded parts.
//
// Concurrency: a Server may be used from any goroutine. Each stream has one goroutine that sends,
// the handler's own, and one that receives; both end with the stream. A client that does not read
// blocks only its own sender.
package server
